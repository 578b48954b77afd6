# SPDX-License-Identifier: Apache-2.0
"""The check list of the session semantics, one test a line."""
import threading
import time

from conftest import meet, text_of, wait_until

SESSIONLESS = "__DISABLE_SESSION__"


def test_01_cd_persists(api, session):
    api.run("cd /tmp", session)
    assert api.out("pwd", session) == "/tmp"


def test_02_variables_and_functions_persist(api, session):
    for command in ("export A=1", "B=2", 'f(){ echo "$A$B"; }'):
        api.run(command, session)
    assert api.out("f", session) == "12"


def test_03_cwd_counts_for_one_command(api, session):
    before = api.out("pwd", session)
    assert api.out("pwd", session, cwd="/etc") == "/etc"
    assert api.out("pwd", session) == before


def test_04_env_counts_for_one_command(api, session):
    api.run("export A=before", session)
    assert api.out("echo $A", session, env={"A": "x"}) == "x"
    assert api.out("echo $A", session) == "before"


def test_05_sessions_are_independent(api, session, other_session):
    api.run("cd /tmp; export A=one", session)
    api.run("cd /etc; export A=two", other_session)
    assert api.out("echo $PWD $A", session) == "/tmp one"
    assert api.out("echo $PWD $A", other_session) == "/etc two"
    api.post("/api/session/delete", {"sessionId": other_session})


def test_06_outputs_are_separate(api, session):
    result = api.run("echo out; echo err >&2", session)
    assert (result["stdout"], result["stderr"]) == ("out", "err")


def test_06_failure_is_a_result(api, session):
    result = api.run("false", session)
    assert (result["exitCode"], result["success"]) == (1, False)


def test_07_exit_terminates_the_session(api, session):
    response = api.execute("exit 7", session)
    assert response.status == 410
    assert response.json["code"] == "SESSION_TERMINATED"
    assert response.json["context"] == {"sessionId": session, "exitCode": 7}
    assert api.out("echo fresh", session) == "fresh"


def test_08_a_command_out_of_time_goes_on(api, session, directory):
    command = f"while [ ! -e {directory}/go ]; do sleep 0.02; done; echo late > {directory}/tail"
    assert api.execute(command, session, timeoutMs=200).status == 500
    api.run(f"touch {directory}/go", SESSIONLESS)
    wait_until(lambda: api.out(f"cat {directory}/tail 2>/dev/null", SESSIONLESS) == "late\n", "the tail")


def test_09_delete_after_a_timeout_is_prompt_and_final(api, session, directory):
    api.execute(f"while [ ! -e {directory}/go ]; do sleep 0.02; done; touch {directory}/tail", session, timeoutMs=100)
    assert api.post("/api/session/delete", {"sessionId": session}).status == 200  # it does not wait for the end of the command
    api.run(f"touch {directory}/go; sleep 1", SESSIONLESS)  # in which the tail would run
    assert api.out(f"ls {directory}", SESSIONLESS) == "go\n"


def test_10_a_stream_arrives_line_by_line(api, session, directory):
    command = f"for i in 1 2 3; do echo $i; while [ ! -e {directory}/$i ]; do sleep 0.02; done; done"
    seen = []
    for _, event in api.events("POST", "/api/execute/stream", {"command": command, "sessionId": session}):
        seen.append(event)
        if event["type"] == "stdout":  # only now the next one is written
            api.run(f"touch {directory}/{event['data']}", SESSIONLESS)
    assert [e["data"] for e in seen if e["type"] == "stdout"] == ["1\n", "2\n", "3\n"]
    assert seen[-1]["type"] == "complete" and seen[-1]["exitCode"] == 0


def test_11_a_process_can_be_killed(api, session, process_id):
    api.start("sleep 100", session, processId=process_id)
    assert api.delete(f"/api/process/{process_id}").status == 200
    listed = [p for p in api.get("/api/process/list").json["processes"] if p["id"] == process_id]
    assert [p["status"] for p in listed] == ["killed"]


def test_12_a_child_that_ignores_term_dies_after_the_grace(api, session, process_id, directory):
    script = f"(trap '' TERM; echo $BASHPID > {directory}/pid; while :; do sleep 0.1; done)"
    api.start(script, session, processId=process_id)
    wait_until(lambda: api.out(f"cat {directory}/pid 2>/dev/null", SESSIONLESS), "the pid")
    pid = api.out(f"cat {directory}/pid", SESSIONLESS).strip()
    begin = time.monotonic()
    assert api.delete(f"/api/process/{process_id}").status == 200
    assert 4.5 < time.monotonic() - begin < 30
    assert api.run(f"kill -0 {pid}", SESSIONLESS)["exitCode"] != 0


def test_13_logs_of_a_finished_process_stay(api, session, process_id):
    api.start("echo out; echo err >&2", session, processId=process_id)
    api.wait_process(process_id)
    logs = api.get(f"/api/process/{process_id}/logs").json
    assert (logs["stdout"], logs["stderr"]) == ("out\n", "err\n")


def test_14_one_session_serialises(api, session):
    begin = time.monotonic()
    threads = [threading.Thread(target=api.run, args=("sleep 1", session)) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert time.monotonic() - begin > 1.95


def test_14_two_sessions_are_parallel(api, session, other_session, directory):
    meet(api, directory, [session, other_session])
    api.post("/api/session/delete", {"sessionId": other_session})


def test_15_sessionless_state_does_not_persist(api):
    before = api.out("pwd", SESSIONLESS)
    api.run("cd /tmp", SESSIONLESS)
    assert api.out("pwd", SESSIONLESS) == before


def test_15_sessionless_output_is_raw(api):
    assert api.out("printf 'a\\n'", SESSIONLESS) == "a\n"


def test_16_sessionless_timeout(api):
    begin = time.monotonic()
    result = api.run("sleep 60", SESSIONLESS, timeoutMs=200)
    assert time.monotonic() - begin < 30
    assert (result["exitCode"], result["stderr"]) == (124, "Command timed out after 200ms")


def test_17_invalid_utf8_is_replaced(api, session):
    assert api.out("printf '\\xff'", session) == "\ufffd"


def test_17_nul_is_dropped_in_a_session(api, session):
    assert api.out("printf 'a\\0b'", session) == "ab"


def test_18_fifty_megabytes_of_output(api, session):
    result = api.run("head -c 50000000 /dev/zero | tr '\\0' x", session)
    assert len(result["stdout"]) == 50000000
    assert set(result["stdout"]) == {"x"}


def test_19_an_unknown_session_is_created(api, session):
    assert api.out("echo hi", session) == "hi"
    assert session in api.get("/api/session/list").json["data"]


def test_20_creating_twice_conflicts(api, session):
    assert api.post("/api/session/create", {"id": session}).status == 200
    response = api.post("/api/session/create", {"id": session})
    assert response.status == 409
    assert response.json["code"] == "SESSION_ALREADY_EXISTS"
    assert "already exists" in response.json["message"]


def test_a_stream_is_a_process(api, session):
    events = api.stream("echo hi", session)
    assert text_of(events) == "hi\n"
    commands = [p["command"] for p in api.get("/api/process/list").json["processes"]]
    assert "echo hi" in commands
