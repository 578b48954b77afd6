# SPDX-License-Identifier: Apache-2.0
"""How commands end: every exit status and signal, kills of trees that resist, daemons that hide."""
import os
import signal
import time

import pytest
from conftest import alive, wait_until

SESSIONLESS = "__DISABLE_SESSION__"
HARMLESS = {"SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU"}
DEADLY = sorted({s for s in signal.Signals if s.name not in HARMLESS} | {signal.SIGRTMIN + 3, signal.SIGRTMAX})
WHERE = pytest.mark.parametrize("name", [None, SESSIONLESS], ids=["session", "sessionless"])


def status_of(code):
    return "completed" if code == 0 else "killed" if code in (137, 143) else "failed"


# ------------------------------------------------------------------ statuses (AGT-13)


@WHERE
def test_every_exit_status_of_a_process(api, session, process_id, name):
    for code in range(256):
        api.start(f"exit {code}", name or session, processId=f"{process_id}-{code}")
    for code in range(256):
        api.wait_process(f"{process_id}-{code}")
        process = api.process(f"{process_id}-{code}")
        assert (process["exitCode"], process["status"]) == (code, status_of(code))


@WHERE
def test_every_exit_status_of_a_command(api, session, name):
    for code in range(256):
        result = api.run(f"(exit {code})", name or session)
        assert (result["exitCode"], result["success"]) == (code, code == 0)


def test_every_exit_status_of_a_stream(api, session):
    for code in range(256):
        assert api.stream(f"exit {code}", session)[-1]["exitCode"] == code


@WHERE
def test_every_deadly_signal_of_a_process(api, session, process_id, name):
    """Also those that would leave a core."""
    for number in DEADLY:
        command = f"ulimit -c 0; exec sh -c 'kill -{int(number)} $$; sleep 5'"  # bash -c ignores SIGQUIT
        api.start(command, name or session, processId=f"{process_id}-{int(number)}")
    for number in DEADLY:
        api.wait_process(f"{process_id}-{int(number)}")
        process = api.process(f"{process_id}-{int(number)}")
        assert (process["exitCode"], process["status"]) == (128 + number, status_of(128 + number)), number


@WHERE
def test_every_deadly_signal_of_a_command(api, session, name):
    for number in DEADLY:
        result = api.run(f"sh -c 'ulimit -c 0; kill -{int(number)} $$; sleep 5'", name or session)
        assert result["exitCode"] == 128 + number, number


@pytest.mark.parametrize("what, code", [
    ("/nonexistent/program", 127), ("/etc/passwd", 126), ("/", 126), ("{directory}/text", 126), ("{directory}/interpreter", 126),
])
@WHERE
def test_programs_that_cannot_be_executed(api, session, directory, name, what, code):
    """AGT-10: missing, not executable, a directory, another architecture, a missing interpreter."""
    api.run(f"printf '\\177ELF\\2\\1\\1junk' > {directory}/text; printf '#!/no/such\\n' > {directory}/interpreter; "
            f"chmod +x {directory}/*", SESSIONLESS)
    result = api.run(what.format(directory=directory), name or session)
    assert result["exitCode"] in (code, 127 if "interpreter" in what else code) and result["stderr"]


# ------------------------------------------------------------------ kills (AGT-12)


@pytest.mark.parametrize("given, code", [
    ({"path": "?signal=SIGINT"}, 130), ({"path": "?signal=INT"}, 130), ({"path": "?signal=2"}, 130),
    ({"body": {"signal": "SIGHUP"}}, 129), ({"body": {"signal": "KILL"}}, 137), ({"body": {"signal": 10}}, 138),
    ({"body": {"signal": None}}, 143), ({"body": {}}, 143), ({"body": "not json"}, 143), ({}, 143),
    ({"path": "?signal=SIGQUIT", "body": {"signal": "SIGHUP"}}, 131),
])
@WHERE
def test_kill_with_a_signal(api, session, process_id, name, given, code):
    api.start("ulimit -c 0; exec sleep 60", name or session, processId=process_id)
    wait_until(lambda: api.out(f"cat /proc/{api.process(process_id)['pid']}/comm", SESSIONLESS) == "sleep\n", "the program")
    response = api.request("DELETE", f"/api/process/{process_id}{given.get('path', '')}", given.get("body"))
    assert response.status == 200, response.body
    process = api.process(process_id)
    assert (process["exitCode"], process["status"]) == (code, "killed")


@pytest.mark.parametrize("path, body", [
    ("?signal=SIGSTOP", None), ("?signal=", None), ("?signal=SIGTERMX", None), ("?signal=0", None), ("?signal=-9", None),
    ("?signal=99999999999", None), ("?signal=" + "X" * 1000, None), ("", {"signal": "NO"}), ("", {"signal": []}),
    ("", {"signal": 0}), ("", {"signal": 1e300}), ("", {"signal": True}),
])
def test_signals_that_cannot_be_chosen(api, session, process_id, path, body):
    api.start("sleep 60", session, processId=process_id)
    response = api.request("DELETE", f"/api/process/{process_id}{path}", body)
    assert response.status == 400 and response.json["code"] == "VALIDATION_FAILED"
    assert api.process(process_id)["status"] == "running"


def test_a_stopped_tree_is_killed(api, session, process_id, directory):
    api.start(f"sh -c 'echo $$ > {directory}/pid; kill -STOP $$; sleep 60'; true", session, processId=process_id)
    wait_until(lambda: api.out(f"cat {directory}/pid 2>/dev/null", SESSIONLESS), "the pid")
    assert api.delete(f"/api/process/{process_id}?signal=SIGKILL").status == 200
    assert api.process(process_id)["exitCode"] == 137


def daemon(directory, name="pid"):
    """A process that has left its session, group and parent."""
    return (f"setsid sh -c '(echo $$ > {directory}/{name}; exec sleep 60) & exit' </dev/null >/dev/null 2>&1; "
            f"setsid sh -c '(setsid sh -c \"echo \\$\\$ > {directory}/{name}2; exec sleep 60\") & exit' "
            "</dev/null >/dev/null 2>&1")


def daemon_pids(api, directory, name="pid"):
    # the first one wrote the pid of its dead parent: its own is the only sleep in that group
    def written():
        text = api.out(f"cat {directory}/{name} {directory}/{name}2 2>/dev/null", SESSIONLESS).split()
        return text if len(text) == 2 else None

    wait_until(written, "the daemons")
    group, second = written()
    first = api.out(f"ps -o pid= -g {group}", SESSIONLESS).split()
    return [int(p) for p in first] + [int(second)]


def still_there(api, pids):
    return [p for p in pids if api.run(f"kill -0 {p}", SESSIONLESS)["exitCode"] == 0]


def test_deleting_a_session_ends_its_daemons(api, session, other_session, directory):
    api.run(daemon(directory), session)
    api.run(daemon(directory, "other"), other_session)
    pids, others = daemon_pids(api, directory), daemon_pids(api, directory, "other")
    assert len(still_there(api, pids)) >= 2
    assert api.post("/api/session/delete", {"sessionId": session}).status == 200
    assert still_there(api, pids) == []
    assert still_there(api, others) == others  # of another session
    api.post("/api/session/delete", {"sessionId": other_session})
    assert still_there(api, others) == []


def test_deleting_a_session_ends_the_daemons_of_its_processes(api, session, process_id, directory):
    api.start(daemon(directory), session, processId=process_id)
    api.wait_process(process_id)
    pids = daemon_pids(api, directory)
    assert still_there(api, pids) == pids
    api.post("/api/session/delete", {"sessionId": session})
    assert still_there(api, pids) == []


@WHERE
def test_killing_a_process_ends_its_daemons_only(api, session, process_id, directory, name):
    where = name or session
    api.start(daemon(directory) + "; sleep 60", where, processId=process_id)
    api.start(daemon(directory, "other") + "; sleep 60", where, processId=process_id + "-other")
    pids, others = daemon_pids(api, directory), daemon_pids(api, directory, "other")
    assert api.delete(f"/api/process/{process_id}").status == 200
    assert still_there(api, pids) == []
    assert still_there(api, others) == others
    assert api.delete(f"/api/process/{process_id}-other").status == 200
    assert still_there(api, others) == []


def test_a_command_out_of_time_takes_its_daemons_along(api, directory):
    for limit in (1000, 5000, 25000):  # a slow machine needs longer to start them
        assert api.run(daemon(directory) + "; sleep 60", SESSIONLESS, timeoutMs=limit)["exitCode"] == 124
        if len(api.out(f"cat {directory}/*", SESSIONLESS).split()) == 2:
            break
    assert still_there(api, daemon_pids(api, directory)) == []


def test_shutdown_ends_daemons(own_agent, tmp_path):
    process, api = own_agent()
    api.run(daemon(tmp_path), "s")
    pids = daemon_pids(api, tmp_path)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    assert not any(alive(pid) for pid in pids)


def test_kill_all_ends_many_at_once(own_agent):
    """Those that ignore SIGTERM are waited for together, not one after the other."""
    _, api = own_agent()
    for i in range(12):
        api.start("trap '' TERM; echo ready; while :; do sleep 0.1; done", f"s{i % 3}", processId=f"p{i}")
    for i in range(12):
        wait_until(lambda: api.get(f"/api/process/p{i}/logs").json["stdout"], "the trap")
    begin = time.monotonic()
    assert api.delete("/api/process/kill-all", timeout=60).json["killedCount"] == 12
    assert 4.5 < time.monotonic() - begin < 30  # one after the other they would need a minute
    assert {(p["status"], p["exitCode"]) for p in api.get("/api/process/list").json["processes"]} == {("killed", 137)}


# ------------------------------------------------------------------ what is left behind


def fifo_directories():
    return {d for d in os.listdir("/dev/shm") if d.startswith(".s")}


def test_fifos_of_a_killed_agent_are_swept_by_the_next(own_agent):
    before = fifo_directories()
    first, api = own_agent()
    api.run("true", "s")
    mine = fifo_directories() - before
    first.kill()
    first.wait()
    assert mine & fifo_directories()
    second, api = own_agent()
    api.run("true", "s")
    assert not any(f"-{first.pid}-" in d for d in fifo_directories())
    assert any(f"-{second.pid}-" in d for d in fifo_directories())  # that one is in use


def test_an_orphan_that_holds_the_output_costs_no_descriptors(own_agent):
    """AGT-11"""
    process, api = own_agent()
    api.run("true", "s")
    for _ in range(100):
        api.out("(sleep 300 &)", "s")
    held = len(os.listdir(f"/proc/{process.pid}/fd"))
    for _ in range(100):
        api.out("(sleep 300 &)", "s")
    wait_until(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) <= held + 2, "closed connections")
