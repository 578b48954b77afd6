# SPDX-License-Identifier: Apache-2.0
"""Statements of the protocol about connections, sessions, commands and processes that no other file tests."""
import json
import re
import socket
import threading
import time

import pytest
from conftest import text_of, wait_until

SESSIONLESS = "__DISABLE_SESSION__"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture
def busy(api, session):
    """A session whose shell runs a command until the test is over."""
    path = api.out("mktemp -u", SESSIONLESS).strip()
    thread = threading.Thread(target=api.execute, args=(f"while [ ! -e {path} ]; do sleep 0.02; done", session))
    thread.start()
    wait_until(lambda: session in api.get("/api/session/list").json["data"], "the session")
    yield session
    api.run(f"touch {path}", SESSIONLESS)
    thread.join()
    api.run(f"rm {path}", SESSIONLESS)


def quickly(call):
    begin = time.monotonic()
    result = call()
    assert time.monotonic() - begin < 30, "it has waited for the session"
    return result


# ------------------------------------------------------------------ connections


@pytest.mark.parametrize("host", ["containerstarthealthcheck", "ping", "localhost:3000"])
def test_the_platform_s_probe(api, host):
    with socket.create_connection(api.address, timeout=60) as s:
        s.sendall(f"GET {api.prefix}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert s.recv(100).startswith(b"HTTP/1.1 ")


def test_connections_are_kept(api):
    import http.client

    connection = http.client.HTTPConnection(*api.address, timeout=60)
    for _ in range(3):
        connection.request("GET", api.prefix + "/api/ping", headers=api.headers)
        assert connection.getresponse().read()
        assert connection.sock is not None
    connection.close()


@pytest.mark.parametrize("upgrade", ["websocket", "h2c", "WebSocket"])
def test_an_upgrade_of_an_ordinary_path_is_an_ordinary_request(api, upgrade):
    headers = {"Upgrade": upgrade, "Connection": "Upgrade", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
               "Sec-WebSocket-Version": "13"}
    assert api.get("/api/ping", headers=headers).json["status"] == "healthy"


def test_a_get_with_a_content_type_and_no_body(api):
    assert api.get("/api/process/list", headers={"Content-Type": "application/json"}).status == 200


def test_every_answer_is_json_with_a_timestamp(api, session, process_id):
    api.start("true", session, processId=process_id)
    api.wait_process(process_id)
    answers = [api.get("/api/ping"), api.get("/api/version"), api.get("/api/commands"), api.get("/api/session/list"),
               api.get("/api/process/list"), api.get(f"/api/process/{process_id}"), api.get(f"/api/process/{process_id}/logs"),
               api.execute("true", session), api.get("/nope"), api.delete("/api/process/none")]
    for answer in answers:
        assert answer.headers["Content-Type"] == "application/json"
        assert TIME.fullmatch(answer.json["timestamp"])


def test_the_header_of_an_event_stream(api, session):
    connection, response = api.open("POST", "/api/execute/stream", {"command": "true", "sessionId": session})
    assert response.headers["Content-Type"] == "text/event-stream" and response.headers["Cache-Control"] == "no-cache"
    assert response.headers["Connection"] == "keep-alive" and response.headers["Access-Control-Allow-Origin"] == "*"
    assert response.read().endswith(b"}\n\n")
    connection.close()


def test_process_paths_are_not_decoded(api, session):
    api.start("true", session, processId="a b")
    wait_until(lambda: "a b" in [p["id"] for p in api.get("/api/process/list").json["processes"]], "it")
    assert api.get("/api/process/a%20b").status == 404


@pytest.mark.parametrize("body", [{"sessionId": ""}, {"sessionId": None}, {"sessionId": 7}])
def test_an_empty_session_id_counts_as_absent(api, body):
    api.run("DEFAULT_MARK=1")
    answer = api.post("/api/execute", {"command": "echo $DEFAULT_MARK", **body}).json
    assert answer["stdout"] == "1" and "sessionId" not in answer


def test_process_start_looks_only_at_the_body(api, session):
    api.run("MARK=here", session)
    started = api.post("/api/process/start?session=" + session, {"command": "echo ${MARK-none}"},
                       headers={"X-Session-Id": session, "Authorization": f"Bearer {session}"})
    assert text_of(api.wait_process(started.json["processId"])) == "none\n"


# ------------------------------------------------------------------ sessions


def test_a_generated_session_id(api):
    name = api.post("/api/session/create", {}).json["id"]
    assert re.fullmatch(r"session_\d{13}_[0-9a-f]{12}", name)
    api.post("/api/session/delete", {"sessionId": name})


def test_session_ids_are_case_sensitive(api, session):
    api.run("X=lower", session)
    assert api.out("echo ${X-fresh}", session.upper()) == "fresh"
    api.post("/api/session/delete", {"sessionId": session.upper()})


OPERATIONS = {
    "execute": ("/api/execute", {"command": "true"}),
    "execute/stream": ("/api/execute/stream", {"command": "true"}),
    "process/start": ("/api/process/start", {"command": "true"}),
    "read": ("/api/read", {"path": "/etc/passwd"}),
    "read/stream": ("/api/read/stream", {"path": "/etc/passwd"}),
    "write": ("/api/write", {"path": "{d}/w", "content": "x"}),
    "delete": ("/api/delete", {"path": "{d}/none"}),
    "rename": ("/api/rename", {"oldPath": "{d}/none", "newPath": "{d}/x"}),
    "move": ("/api/move", {"sourcePath": "{d}/none", "destinationPath": "{d}/x"}),
    "mkdir": ("/api/mkdir", {"path": "{d}/dir"}),
    "list-files": ("/api/list-files", {"path": "{d}"}),
    "exists": ("/api/exists", {"path": "{d}"}),
    "git/checkout": ("/api/git/checkout", {"repoUrl": "{d}/none.git", "targetDir": "{d}/clone", "timeoutMs": 5000}),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_creates_its_session(api, session, directory, operation):
    path, body = OPERATIONS[operation]
    body = {k: v.replace("{d}", directory) if isinstance(v, str) else v for k, v in body.items()}
    api.post(path, {**body, "sessionId": session})
    assert session in api.get("/api/session/list").json["data"]


def test_an_implicit_session_keeps_nothing_of_its_first_command(api, session):
    first = api.run("pwd", session, cwd="/etc", timeoutMs=4000, env={"A": "1"})["stdout"]
    assert first == "/etc"
    assert api.out("pwd", session) != "/etc" and api.out("echo ${A-unset}", session) == "unset"
    assert api.out("sleep 4.5; echo done", session) == "done"  # no time limit either


def test_sessions_start_in_the_workspace(api, session):
    expected = api.out("cd /workspace 2>/dev/null || cd; pwd", SESSIONLESS, cwd="/").strip()
    assert api.out("pwd", session) == expected


def test_a_session_with_a_dead_shell_stays_listed_until_it_is_touched(api, session):
    pid = api.out("echo $$", session)
    api.run(f"kill -9 {pid}; while [ -e /proc/{pid} ]; do sleep 0.01; done", SESSIONLESS)
    assert session in api.get("/api/session/list").json["data"]
    assert api.execute("true", session).status == 410
    assert session not in api.get("/api/session/list").json["data"]


def test_a_fresh_shell_has_default_settings(api, session):
    api.post("/api/session/create", {"id": session, "cwd": "/etc", "env": {"A": "1"}, "commandTimeoutMs": 4000})
    assert api.out("echo $PWD $A", session) == "/etc 1"
    assert api.execute("exit 0", session).status == 410
    assert api.out("[ $PWD != /etc ] && echo ${A-unset}; sleep 4.5; echo done", session) == "unset\ndone"


@pytest.mark.parametrize("path", ["/api/execute/stream", "/api/process/start"])
def test_starts_in_a_dead_shell(api, session, path):
    pid = api.out("echo $$", session)
    api.run(f"kill -9 {pid}; while [ -e /proc/{pid} ]; do sleep 0.01; done", SESSIONLESS)
    response = api.post(path, {"command": "true", "sessionId": session})
    assert response.status == 410 and response.json["code"] == "SESSION_TERMINATED"
    assert response.json["context"]["exitCode"] == 137
    assert api.post(path, {"command": "true", "sessionId": session}).status == 200


def test_a_terminated_session_has_a_hint(api, session):
    error = api.execute("exit 3", session).json
    assert error["suggestion"] and error["httpStatus"] == 410


def test_exit_in_parentheses_leaves_the_session_alone(api, session):
    assert api.run("( exit 5 )", session)["exitCode"] == 5
    assert api.out("echo alive", session) == "alive"


def test_aliases_count_from_the_next_command_on(api, session):
    result = api.run("shopt -s expand_aliases; alias hi='echo aliased'; hi", session)
    assert result["exitCode"] == 127
    assert api.out("hi", session) == "aliased"


def test_jobs_and_wait(api, session):
    """What the client's own restore script does."""
    script = "a=; for i in 1 2 3; do (sleep 0.1; exit $i) & a=\"$a $!\"; done; for p in $a; do wait $p; echo $?; done"
    assert api.out(script, session).split() == ["1", "2", "3"]


def test_the_default_session_can_be_deleted(own_agent):
    _, api = own_agent()
    api.run("X=1")
    assert api.post("/api/session/delete", {"sessionId": "default"}).status == 200
    assert api.out("echo ${X-fresh}") == "fresh"


# ------------------------------------------------------------------ the lock


def test_what_does_not_wait_for_the_session(api, busy, other_session, process_id):
    api.start("echo hi; sleep 60", SESSIONLESS, processId=process_id)
    for path in ("/api/ping", "/api/session/list", "/api/process/list", f"/api/process/{process_id}", f"/api/process/{process_id}/logs"):
        assert quickly(lambda: api.get(path)).status == 200
    events = api.events("GET", f"/api/process/{process_id}/stream")
    assert quickly(lambda: next(events))[1]["type"] == "process_info"
    assert quickly(lambda: api.delete(f"/api/process/{process_id}")).status == 200
    assert quickly(lambda: api.out("echo other", other_session)) == "other"
    assert quickly(lambda: api.out("echo none", SESSIONLESS)) == "none\n"
    api.post("/api/session/delete", {"sessionId": other_session})


@pytest.mark.parametrize("path, body", [
    ("/api/read", {"path": "/etc/passwd"}), ("/api/exists", {"path": "/etc"}), ("/api/execute/stream", {"command": "true"}),
    ("/api/process/start", {"command": "true"}), ("/api/session/delete", {}),
])
def test_what_waits_for_the_session(api, session, directory, path, body):
    order = []

    def first():
        api.execute(f"while [ ! -e {directory}/go ]; do sleep 0.02; done", session)
        order.append("command")

    def second():
        api.post(path, {**body, "sessionId": session})
        order.append("operation")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    wait_until(lambda: session in api.get("/api/session/list").json["data"], "the command")
    threads[1].start()
    time.sleep(0.3)  # in which the operation would be over if it did not wait
    assert order == []
    api.run(f"touch {directory}/go", SESSIONLESS)
    for t in threads:
        t.join()
    assert sorted(order) == ["command", "operation"]


def test_a_started_process_does_not_hold_the_session(api, session, process_id):
    api.start("sleep 60", session, processId=process_id)
    assert quickly(lambda: api.out("echo free", session)) == "free"


# ------------------------------------------------------------------ commands without a session


def test_sessionless_shell(api):
    assert api.out("echo $0 $-", SESSIONLESS) == "/bin/bash hBc\n"
    pid, group = api.out("echo $$; ps -o pgid= -p $$", SESSIONLESS).split()
    assert pid == group  # a group of its own


def test_sessionless_stdin_is_empty(api):
    assert api.run("cat; read x", SESSIONLESS)["exitCode"] == 1


def test_sessionless_blank_command(api):
    assert api.run("", SESSIONLESS)["exitCode"] == 0 and api.run(" \n", SESSIONLESS)["exitCode"] == 0


def test_sessionless_timeout_although_it_ends_by_itself(api):
    """It gives up within the grace, with a status of its own: 124 all the same."""
    result = api.run("trap 'echo bye; exit 0' TERM; while :; do sleep 0.02; done", SESSIONLESS, timeoutMs=3000)
    assert result["exitCode"] == 124 and result["stdout"] == "bye\n"


def test_sessionless_timeout_of_one_that_ignores_it(api):
    begin = time.monotonic()
    result = api.run("trap '' TERM; while :; do sleep 0.05; done", SESSIONLESS, timeoutMs=3000)
    assert result["exitCode"] == 124 and 7.5 < time.monotonic() - begin < 40


def test_sessionless_stream_ignores_the_timeout(api):
    events = api.stream("sleep 0.4; echo end", SESSIONLESS, timeoutMs=50)
    assert text_of(events) == "end\n" and events[-1]["exitCode"] == 0


# ------------------------------------------------------------------ streams and processes


def test_a_stream_ignores_background(api, session):
    events = api.stream("echo x", session, background=True)
    assert [e["type"] for e in events] == ["start", "stdout", "complete"]


def test_a_stream_ignores_the_process_id(api, session, process_id):
    api.stream("echo x", session, processId=process_id)
    assert api.get(f"/api/process/{process_id}").status == 404


def test_unknown_members_are_ignored(api, session, process_id):
    api.start("true", session, processId=process_id, encoding="latin1", autoCleanup=True, origin="internal", what={"ever": []})
    api.wait_process(process_id)
    assert api.process(process_id)["status"] == "completed"


def test_the_start_answer_of_old_and_new_clients(api, session, process_id):
    answer = api.start("true", session, processId=process_id)
    assert {"success", "processId", "pid", "command", "timestamp", "process"} <= set(answer)


def test_the_pid_is_the_subshell_s(api, session, process_id):
    pid = api.start("echo $BASHPID; sleep 60", session, processId=process_id)["pid"]
    wait_until(lambda: api.get(f"/api/process/{process_id}/logs").json["stdout"], "the pid")
    assert api.get(f"/api/process/{process_id}/logs").json["stdout"] == f"{pid}\n"


def test_the_list_has_no_end_times_and_all_sessions(api, session, other_session, process_id):
    api.start("exit 5", session, processId=process_id)
    api.wait_process(process_id)
    api.start("sleep 60", other_session, processId=process_id + "-2")
    listed = {p["id"]: p for p in api.get("/api/process/list").json["processes"]}
    assert listed[process_id]["exitCode"] == 5 and "endTime" not in listed[process_id]
    assert listed[process_id + "-2"]["status"] == "running" and "exitCode" not in listed[process_id + "-2"]
    api.post("/api/session/delete", {"sessionId": other_session})


def test_the_status_filter_is_exact(api, session, process_id):
    api.start("exit 5", session, processId=process_id)
    api.wait_process(process_id)
    for query, found in (("failed", True), ("Failed", False), ("fail", False), ("running", False), ("", False)):
        listed = [p["id"] for p in api.get(f"/api/process/list?status={query}").json["processes"]]
        assert (process_id in listed) is found, query


@pytest.mark.parametrize("command, text", [
    ("true", "Process completed with exit code 0"), ("exit 9", "Process failed with exit code 9"),
    ("kill -9 $BASHPID", "Process killed with exit code 137"),
])
def test_the_text_of_the_exit_event(api, session, process_id, command, text):
    api.start(command, session, processId=process_id)
    assert api.wait_process(process_id)[-1]["data"] == text


def test_the_order_of_a_process_stream(api, session, process_id):
    api.start("echo e >&2; echo o", session, processId=process_id)
    api.wait_process(process_id)
    assert [e["type"] for e in api.wait_process(process_id)] == ["process_info", "stdout", "stderr", "exit"]


def test_nothing_written_is_no_event(api, session, process_id):
    api.start("true", session, processId=process_id)
    api.wait_process(process_id)
    assert [e["type"] for e in api.wait_process(process_id)] == ["process_info", "exit"]


def test_a_killed_stream_completes(api, session):
    events = api.events("POST", "/api/execute/stream", {"command": "echo x; sleep 60", "sessionId": session})
    assert next(events)[1]["type"] == "start" and next(events)[1]["data"] == "x\n"
    name = [p["id"] for p in api.get("/api/process/list?status=running").json["processes"] if p["command"] == "echo x; sleep 60"][-1]
    assert api.delete(f"/api/process/{name}").status == 200
    assert [(e["type"], e["exitCode"]) for _, e in events] == [("complete", 143)]


def test_logs_of_a_process_whose_session_is_gone(api, session, process_id):
    api.start("echo kept; sleep 60", session, processId=process_id)
    wait_until(lambda: api.get(f"/api/process/{process_id}/logs").json["stdout"], "output")
    api.post("/api/session/delete", {"sessionId": session})
    process = api.process(process_id)
    assert (process["status"], process["exitCode"]) == ("killed", 137)
    assert api.get(f"/api/process/{process_id}/logs").json["stdout"] == "kept\n"


def test_kill_all_with_nothing_to_kill(own_agent):
    _, api = own_agent()
    answer = api.delete("/api/process/kill-all").json
    assert (answer["success"], answer["cleanedCount"]) == (True, 0)


def test_a_silent_stream_is_not_cut(api, session):
    """WS-14: and nothing but events is sent meanwhile."""
    connection, response = api.open("POST", "/api/execute/stream", {"command": "sleep 3; echo late", "sessionId": session})
    body = response.read()
    connection.close()
    assert [json.loads(b[6:])["type"] for b in body.split(b"\n\n") if b] == ["start", "stdout", "complete"]
