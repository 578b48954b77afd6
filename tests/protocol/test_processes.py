# SPDX-License-Identifier: Apache-2.0
"""Background processes: start, list, get, kill, logs, stream."""
import re
import threading
import time

import pytest
from conftest import text_of, wait_until

SESSIONLESS = "__DISABLE_SESSION__"


def test_start_answer(api, session, process_id):
    answer = api.start("sleep 30", session, processId=process_id)
    assert answer["success"] is True and answer["processId"] == process_id
    assert answer["command"] == "sleep 30" and answer["pid"] > 1
    assert answer["process"]["id"] == process_id and answer["process"]["status"] == "running"


def test_generated_id(api, session):
    assert re.fullmatch(r"proc_\d+_[a-z0-9]{6}", api.start("true", session)["processId"])


def test_background_execute(api, session):
    answer = api.run("sleep 30", session, background=True)
    assert answer["processId"].startswith("proc_") and answer["pid"] > 1


def test_get(api, session, process_id):
    api.start("exit 5", session, processId=process_id)
    api.wait_process(process_id)
    process = api.process(process_id)
    assert process["status"] == "failed" and process["exitCode"] == 5
    assert process["startTime"] <= process["endTime"]


def test_running_has_no_end(api, session, process_id):
    api.start("sleep 30", session, processId=process_id)
    process = api.process(process_id)
    assert process["status"] == "running" and "endTime" not in process and "exitCode" not in process


@pytest.mark.parametrize(
    "command, status, code",
    [("true", "completed", 0), ("exit 3", "failed", 3), ("kill -9 $BASHPID", "killed", 137), ("exit 143", "killed", 143)],
)
@pytest.mark.parametrize("name", [None, SESSIONLESS], ids=["session", "sessionless"])
def test_final_status(api, session, process_id, name, command, status, code):
    api.start(command, name or session, processId=process_id)
    api.wait_process(process_id)
    process = api.process(process_id)
    assert (process["status"], process["exitCode"]) == (status, code)


def test_list_shows_running_first_and_filters(api, session, process_id):
    api.start("true", session, processId=process_id + "a")
    api.wait_process(process_id + "a")
    api.start("sleep 30", session, processId=process_id + "b")
    processes = api.get("/api/process/list").json["processes"]
    ids = [p["id"] for p in processes]
    assert ids.index(process_id + "b") < ids.index(process_id + "a")
    assert all("endTime" not in p for p in processes)
    running = api.get("/api/process/list?status=running").json["processes"]
    assert process_id + "b" in [p["id"] for p in running]
    assert {p["status"] for p in running} == {"running"}


def test_reusing_an_id_replaces_the_record(api, session, process_id):
    api.start("echo old", session, processId=process_id)
    api.wait_process(process_id)
    api.start("echo new; sleep 30", session, processId=process_id)
    assert api.process(process_id)["status"] == "running"
    assert [p["id"] for p in api.get("/api/process/list").json["processes"]].count(process_id) == 1


def test_logs_grow(api, session, process_id, directory):
    api.start(f"echo one; while [ ! -e {directory}/go ]; do sleep 0.02; done; echo two", session, processId=process_id)
    wait_until(lambda: api.get(f"/api/process/{process_id}/logs").json["stdout"] == "one\n", "the first line")
    api.run(f"touch {directory}/go", SESSIONLESS)
    api.wait_process(process_id)
    assert api.get(f"/api/process/{process_id}/logs").json["stdout"] == "one\ntwo\n"


def test_logs_hold_whole_lines(api, session, process_id):
    api.start("echo one; printf two; sleep 30", session, processId=process_id)
    wait_until(lambda: api.get(f"/api/process/{process_id}/logs").json["stdout"], "output")
    time.sleep(0.2)  # two has been written by now
    assert api.get(f"/api/process/{process_id}/logs").json["stdout"] == "one\n"


def test_large_logs(api, session, process_id):
    api.start("seq 1 1000000", session, processId=process_id)
    api.wait_process(process_id)
    logs = api.get(f"/api/process/{process_id}/logs").json
    assert logs["stdout"] == "".join(f"{i}\n" for i in range(1, 1000001))


def test_stream_of_a_finished_process(api, session, process_id):
    api.start("echo a; echo b; echo e >&2; exit 4", session, processId=process_id)
    api.wait_process(process_id)
    events = [e for _, e in api.events("GET", f"/api/process/{process_id}/stream")]
    for e in events:
        assert e.pop("timestamp").endswith("Z")
    assert events == [
        {
            "type": "process_info",
            "processId": process_id,
            "command": "echo a; echo b; echo e >&2; exit 4",
            "status": "failed",
        },
        {"type": "stdout", "data": "a\nb\n", "processId": process_id},
        {"type": "stderr", "data": "e\n", "processId": process_id},
        {
            "type": "exit",
            "processId": process_id,
            "exitCode": 4,
            "data": "Process failed with exit code 4",
        },
    ]


def test_stream_replays_then_follows(api, session, process_id, directory):
    api.start(f"echo one; while [ ! -e {directory}/go ]; do sleep 0.02; done; echo two", session, processId=process_id)
    wait_until(lambda: api.get(f"/api/process/{process_id}/logs").json["stdout"], "output")
    events = api.events("GET", f"/api/process/{process_id}/stream")
    assert next(events)[1]["status"] == "running"
    assert next(events)[1]["data"] == "one\n"
    api.run(f"touch {directory}/go", SESSIONLESS)
    rest = [e for _, e in events]
    assert text_of(rest) == "two\n" and rest[-1]["type"] == "exit" and rest[-1]["exitCode"] == 0


def test_several_readers_see_the_same(api, session, process_id):
    api.start("for i in {1..2000}; do echo line $i; done; sleep 0.3; echo end", session, processId=process_id)
    texts = []

    def follow():
        texts.append(text_of(api.wait_process(process_id)))

    threads = [threading.Thread(target=follow) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert texts == ["".join(f"line {i}\n" for i in range(1, 2001)) + "end\n"] * 4


def test_a_slow_reader_does_not_slow_a_background_process(api, session, process_id):
    api.start("sleep 0.3; head -c 60000000 /dev/zero | tr '\\0' x", session, processId=process_id)
    connection, response = api.open("GET", f"/api/process/{process_id}/stream")
    response.readline()
    wait_until(lambda: api.process(process_id)["status"] == "completed", "the end")
    total = sum(len(chunk) for chunk in iter(lambda: response.read(1 << 20), b""))
    connection.close()
    assert total > 60000000


def test_kill_answer(api, session, process_id):
    api.start("sleep 30", session, processId=process_id)
    answer = api.delete(f"/api/process/{process_id}").json
    assert answer["success"] is True and answer["processId"] == process_id
    process = api.process(process_id)
    assert (process["status"], process["exitCode"]) == ("killed", 143)


@pytest.mark.parametrize("name", [None, SESSIONLESS], ids=["session", "sessionless"])
def test_kill_ends_the_whole_tree(api, session, process_id, directory, name):
    script = f"sh -c 'sleep 60 & echo $! > {directory}/a; sleep 60 & echo $! > {directory}/b; wait'; true"
    api.start(script, name or session, processId=process_id)
    wait_until(lambda: api.out(f"cat {directory}/b 2>/dev/null", SESSIONLESS), "the pids")
    assert api.delete(f"/api/process/{process_id}").status == 200
    result = api.out(f"for p in $(cat {directory}/a {directory}/b); do kill -0 $p 2>/dev/null && echo alive; done", SESSIONLESS)
    assert result == ""


def test_kill_with_a_signal_of_choice(api, session, process_id):
    api.start("trap 'echo int; exit 7' INT; echo set; while :; do sleep 0.05; done", session, processId=process_id)
    wait_until(lambda: api.get(f"/api/process/{process_id}/logs").json["stdout"], "the trap")
    assert api.delete(f"/api/process/{process_id}?signal=SIGINT").status == 200
    process = api.process(process_id)
    assert (process["status"], process["exitCode"]) == ("killed", 7)


def test_kill_tells_the_followers(api, session, process_id):
    api.start("sleep 30", session, processId=process_id)
    events = api.events("GET", f"/api/process/{process_id}/stream")
    next(events)
    api.delete(f"/api/process/{process_id}")
    last = list(events)[-1][1]
    assert (last["type"], last["exitCode"]) == ("exit", 143)


def test_kill_unknown(api):
    response = api.delete("/api/process/no-such")
    assert response.status == 404 and response.json["code"] == "PROCESS_NOT_FOUND"
    assert response.json["context"] == {"processId": "no-such"}


def test_kill_finished(api, session, process_id):
    api.start("true", session, processId=process_id)
    api.wait_process(process_id)
    response = api.delete(f"/api/process/{process_id}")
    assert response.status == 404 and response.json["code"] == "COMMAND_NOT_FOUND"
    assert response.json["context"] == {"command": process_id}


@pytest.mark.parametrize("path", ["", "/logs", "/stream"])
def test_unknown_process(api, path):
    response = api.get(f"/api/process/no-such{path}")
    assert response.status == 404 and response.json["code"] == "PROCESS_NOT_FOUND"


def test_kill_all(own_agent):
    _, api = own_agent()
    for i in range(3):
        api.start("sleep 30", f"s{i}")
    answer = api.delete("/api/process/kill-all").json
    assert (answer["success"], answer["cleanedCount"], answer["killedCount"]) == (True, 3, 3)
    assert api.get("/api/process/list?status=running").json["processes"] == []


def test_kill_all_of_one_session(own_agent):
    _, api = own_agent()
    api.start("sleep 30", "one")
    api.start("sleep 30", "two")
    assert api.delete("/api/process/kill-all?session=one").json["killedCount"] == 1
    assert [p["sessionId"] for p in api.get("/api/process/list?status=running").json["processes"]] == ["two"]


def test_sessionless_timeout(api, process_id):
    api.start("sleep 30", SESSIONLESS, processId=process_id, timeoutMs=200)
    events = api.wait_process(process_id)
    assert text_of(events, "stderr") == "Command timed out after 200ms\n"
    assert events[-1]["exitCode"] == 124


def test_timeout_is_ignored_in_a_session(api, session, process_id):
    api.start("sleep 0.4; echo end", session, processId=process_id, timeoutMs=50)
    assert text_of(api.wait_process(process_id)) == "end\n"


def test_bad_cwd(api, session, process_id):
    api.start("true", session, processId=process_id, cwd="/nope")
    events = api.wait_process(process_id)
    assert text_of(events, "stderr") == "Failed to change directory to '/nope'\n" and events[-1]["exitCode"] == 1


def test_options_of_release_0_3(own_agent):
    _, api = own_agent()
    body = {"command": "echo $A; pwd", "sessionId": "s", "options": {"processId": "old", "env": {"A": "1"}, "cwd": "/etc"}}
    assert api.post("/api/process/start", body).json["process"]["id"] == "old"
    events = [e for _, e in api.events("GET", "/api/process/old/stream")]
    assert text_of(events) == "1\n/etc\n"
    assert [e["type"] for e in events[-2:]] == ["exit", "complete"]
    assert events[-1]["status"] == "completed"


def test_many_processes_at_once(api, session, process_id):
    ids = [f"{process_id}-{i}" for i in range(40)]
    threads = [threading.Thread(target=api.start, args=(f"echo {i}", session), kwargs={"processId": i}) for i in ids]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i in ids:
        assert text_of(api.wait_process(i)) == f"{i}\n"
