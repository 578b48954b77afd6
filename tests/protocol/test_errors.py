# SPDX-License-Identifier: Apache-2.0
"""Routing, methods, envelopes, the small routes, and the server as a program."""
import json
import os
import signal
import socket

import pytest
from conftest import alive, wait_until


def test_ping(api):
    answer = api.get("/api/ping").json
    assert (answer["success"], answer["status"], answer["message"]) == (True, "healthy", "pong")


def test_root_is_text(api):
    response = api.get("/")
    assert response.status == 200 and response.headers["Content-Type"] == "text/plain; charset=utf-8"


def test_commands(api):
    answer = api.get("/api/commands").json
    assert answer["availableCommands"] == [] and answer["count"] == 0


def test_version(own_agent):
    _, api = own_agent(environment={"SANDBOX_VERSION": "1.2.3"})
    assert api.get("/api/version").json["version"] == "1.2.3"


def test_placement_id(own_agent):
    _, api = own_agent(environment={"CLOUDFLARE_PLACEMENT_ID": "here"})
    assert api.post("/api/session/create", {"id": "x"}).json["containerPlacementId"] == "here"
    assert api.post("/api/session/create", {"id": "x"}).json["context"]["containerPlacementId"] == "here"


@pytest.mark.parametrize("path", ["/nope", "/api", "/api/ping/", "/API/ping", "/api/process/a/b/c", "/api/process/"])
def test_unknown_route(api, path):
    response = api.get(path)
    error = response.json
    assert response.status == 404 and error["httpStatus"] == 404
    assert error["code"] == "UNKNOWN_ERROR" and error["context"] == {}
    assert error["error"] == error["message"]


def test_wrong_method_is_unknown(api):
    assert api.get("/api/execute").status == 404
    assert api.post("/api/ping", {}).status == 404


def test_query_does_not_matter_for_matching(api):
    assert api.get("/api/ping?x=/y").status == 200


@pytest.mark.parametrize("method", ["PATCH", "PROPFIND"])
def test_other_methods(api, method):
    response = api.request(method, "/api/ping")
    assert 400 <= response.status < 600 and response.json["code"]


def test_head(api):
    response = api.request("HEAD", "/api/ping")
    assert 400 <= response.status < 600 and response.body == b""


def test_options_and_cors(api):
    response = api.request("OPTIONS", "/api/execute")
    assert response.status == 200
    for answer in (response, api.get("/api/ping"), api.get("/nope")):
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert answer.headers["Access-Control-Allow-Methods"] == "GET, POST, PUT, DELETE, OPTIONS"


@pytest.mark.parametrize("path", ["/api/execute", "/api/execute/stream", "/api/process/start"])
@pytest.mark.parametrize("body", ["", "{", "nul", '{"command":"a\\u0000b"}', b'{"command":"\xff"}'])
def test_invalid_json(api, path, body):
    response = api.post(path, body)
    error = response.json
    assert response.status == 500 and error["code"] == "INTERNAL_ERROR"
    assert error["message"].startswith("Failed to parse request body: ")


@pytest.mark.parametrize("body", ["", "{", "null", "[]", "7"])
def test_session_create_tolerates_anything(api, body):
    answer = api.post("/api/session/create", body).json
    assert answer["success"] is True and answer["id"].startswith("session_")
    assert answer["data"] == {"id": answer["id"]}
    api.post("/api/session/delete", {"sessionId": answer["id"]})


def test_session_create_settings(api, session):
    body = {"id": session, "env": {"A": "1", "B": None, "": "x"}, "cwd": "/etc", "name": "ignored"}
    answer = api.post("/api/session/create", body).json
    assert answer["id"] == session and "containerPlacementId" in answer and answer["message"]
    assert api.out("echo $A ${B-unset} $PWD", session) == "1 unset /etc"


def test_session_create_missing_directory(api, session):
    assert api.post("/api/session/create", {"id": session, "cwd": "/no/such"}).status == 200
    assert api.out("[ -d $PWD ] && [ $PWD != /no/such ] && echo ok", session) == "ok"


def test_session_list(api, session, other_session):
    api.run("true", session)
    api.run("true", other_session)
    answer = api.get("/api/session/list").json
    ids = answer["data"]
    assert ids.index(session) < ids.index(other_session)
    assert answer["sessions"] == ids and answer["count"] == len(ids)
    api.post("/api/session/delete", {"sessionId": other_session})


def test_session_delete(api, session):
    api.run("true", session)
    answer = api.post("/api/session/delete", {"sessionId": session}).json
    assert answer["success"] is True and answer["sessionId"] == session
    assert session not in api.get("/api/session/list").json["data"]


@pytest.mark.parametrize("body", ["{", "{}", '{"sessionId":""}'])
def test_session_delete_without_an_id(api, body):
    response = api.post("/api/session/delete", body)
    assert response.status == 400 and response.json["code"] == "VALIDATION_FAILED"
    assert response.json["context"] == {}


def test_session_delete_unknown(api):
    response = api.post("/api/session/delete", {"sessionId": "no-such"})
    assert response.status == 500 and response.json["code"] == "INTERNAL_ERROR"
    assert response.json["context"] == {"sessionId": "no-such", "originalError": "Session not found"}


def test_release_0_3_replaces_a_session(own_agent):
    _, api = own_agent()
    body = {"id": "s", "isolation": True, "cwd": "/tmp"}
    assert api.post("/api/session/create", body).status == 200
    api.run("X=1", "s")
    assert api.post("/api/session/create", body).status == 200
    assert api.out("echo ${X-new}", "s") == "new"


@pytest.mark.parametrize(
    "headers, query",
    [
        ({"Authorization": "Bearer {}"}, ""),
        ({"X-Session-Id": "{}"}, ""),
        ({}, "?session={}"),
        ({}, "?sessionId={}"),
        ({"Authorization": "Bearer {}", "X-Session-Id": "other"}, "?session=other"),
        ({"X-Session-Id": "{}"}, "?session=other"),
    ],
)
def test_session_from_the_context(api, session, headers, query):
    api.run("MARK=here", session)
    headers = {k: v.format(session) for k, v in headers.items()}
    response = api.post("/api/execute" + query.format(session), {"command": "echo $MARK"}, headers=headers)
    assert response.json["stdout"] == "here" and response.json["sessionId"] == session


def test_the_body_names_the_session_first(api, session):
    api.run("MARK=here", session)
    answer = api.execute("echo $MARK", session, headers={"X-Session-Id": "other"})
    assert answer.json["stdout"] == "here"


def test_id_of_release_0_3_names_the_session(own_agent):
    _, api = own_agent()
    api.run("MARK=here", "s")
    assert api.post("/api/execute", {"id": "s", "command": "echo $MARK"}).json["stdout"] == "here"


@pytest.mark.parametrize(
    "path, code",
    [
        ("/api/execute", "COMMAND_EXECUTION_ERROR"),
        ("/api/execute/stream", "STREAM_START_ERROR"),
        ("/api/process/start", "STREAM_START_ERROR"),
    ],
)
def test_blank_session(api, path, code):
    response = api.post(path, {"command": "true", "sessionId": " \t"})
    assert response.status == 500 and response.json["code"] == code


def test_missing_command(api, session):
    response = api.post("/api/execute", {"sessionId": session})
    assert response.status == 500 and response.json["code"] == "COMMAND_EXECUTION_ERROR"


@pytest.mark.parametrize("path", ["/api/execute/stream", "/api/process/start"])
@pytest.mark.parametrize("command", ["", "  \n", None])
def test_blank_command(api, session, path, command):
    response = api.post(path, {"command": command, "sessionId": session})
    assert response.status == 400 and response.json["code"] == "INVALID_COMMAND"


def test_blank_background_command(api, session):
    assert api.execute(" ", session, background=True).status == 400


def test_envelope(api):
    response = api.delete("/api/process/none")
    error = response.json
    assert set(error) == {"code", "message", "error", "context", "httpStatus", "timestamp", "suggestion"}
    assert response.headers["Content-Type"] == "application/json"


def test_too_large_a_body(api):
    with socket.create_connection(api.address, timeout=60) as s:
        s.sendall(b"POST /api/execute HTTP/1.1\r\nHost: x\r\nContent-Length: 134217729\r\n\r\n")
        answer = s.recv(4096)
    assert answer.startswith(b"HTTP/1.1 413 ") and b"onnection: close" in answer


def test_pipelined_requests(api):
    with socket.create_connection(api.address, timeout=60) as s:
        s.sendall(b"GET /api/ping HTTP/1.1\r\nHost: x\r\n\r\n" * 2 + b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        data = b"".join(iter(lambda: s.recv(65536), b""))
    assert data.count(b"HTTP/1.1 200 ") == 3


def test_session_ids_are_opaque(api):
    for name in ("../../x", "a b", "Ä'\"", "x" * 3000):
        assert api.out("echo ok", name) == "ok"
        assert name in api.get("/api/session/list").json["data"]
        assert api.post("/api/session/delete", {"sessionId": name}).status == 200


# ------------------------------------------------------------------ the server as a program


def test_supervised_command_fails(own_agent):
    process, _ = own_agent(command=["sh", "-c", "sleep 0.2; exit 7"])
    assert process.wait(timeout=60) == 7


def test_supervised_command_dies_of_a_signal(own_agent):
    process, _ = own_agent(command=["sh", "-c", "kill -9 $$"])
    assert process.wait(timeout=60) == 137


def test_supervised_command_cannot_be_started(own_agent):
    process, _ = own_agent(command=["/no/such/program"])
    assert process.wait(timeout=60) == 1


def test_supervised_command_succeeds(own_agent):
    process, api = own_agent(command=["sh", "-c", "exit 0"])
    assert api.get("/api/ping").status == 200
    assert api.out("echo ok") == "ok"
    assert process.poll() is None


def test_supervised_command_gets_the_environment(own_agent, tmp_path):
    script = f'echo "$SANDBOX_STARTED $MARK" > {tmp_path}/out'
    own_agent(command=["sh", "-c", script], environment={"MARK": "m"})
    wait_until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text(), "the file")
    assert (tmp_path / "out").read_text() == "true m\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_shutdown_kills_everything(own_agent, tmp_path, number):
    process, api = own_agent(command=["sh", "-c", f"echo $$ > {tmp_path}/cmd; exec sleep 60"])
    pids = [api.start("sleep 60", "s")["pid"], int(api.out("echo $$", "s"))]
    api.run("sleep 60 & disown", "s")
    wait_until(lambda: (tmp_path / "cmd").exists() and (tmp_path / "cmd").read_text(), "the command")
    pids.append(int((tmp_path / "cmd").read_text()))
    process.send_signal(number)
    assert process.wait(timeout=60) == 0
    assert not any(alive(pid) for pid in pids)


def test_the_agent_is_restartable_on_its_spawner_s_death(own_agent):
    process, api = own_agent()
    children = f"/proc/{process.pid}/task/{process.pid}/children"
    with open(children) as f:
        spawner = int(f.read().split()[0])
    os.kill(spawner, signal.SIGKILL)
    assert api.out("echo ok", "fresh") == "ok"
    assert api.out("echo ok", "__DISABLE_SESSION__") == "ok\n"


def test_orphans_are_reaped(own_agent):
    _, api = own_agent()
    pids = api.out("for i in 1 2 3 4 5; do (sleep 0.1 & echo $!); done", "s").split()
    assert len(pids) == 5
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "the end of the last zombie")


def test_json_numbers_and_types_are_tolerated(api, session):
    body = {"command": "echo ok", "sessionId": session, "timeoutMs": "soon", "env": [], "cwd": 7, "background": "no"}
    assert api.post("/api/execute", json.dumps(body)).json["stdout"] == "ok"
