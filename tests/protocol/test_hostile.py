# SPDX-License-Identifier: Apache-2.0
"""Clients that send nonsense, too much, too slowly or too often: typed answers, bounded memory, and the next client is served."""
import json
import os
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import start_agent, text_of, wait_until
from measure import SCALE, Growth, scaled

SESSIONLESS = "__DISABLE_SESSION__"
MB = 1 << 20
ROUTES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src/agent/routes.c")

SESSIONS_MAX = PROCESSES_MAX = 4096


def healthy(api, session="healthy"):
    assert api.out("echo ok", session) == "ok"
    assert api.out("echo ok", SESSIONLESS) == "ok\n"


def check_typed(response, what):
    """A result, or an error that says what it is; never a severed connection, never an untyped failure."""
    assert response.status in (200, 204) or 400 <= response.status <= 501, (what, response.status)
    if response.status >= 400 and response.body:
        error = json.loads(response.body)
        assert error.get("code") and (error.get("message") or error.get("error")), (what, error)
        assert response.status != 503, "clients would repeat the request for minutes"


def knock(api, method, path, body, headers=None):
    """Sends a request and reads its answer, of a stream only the beginning."""
    connection, response = api.open(method, path, body, headers)
    try:
        stream = (response.headers.get("Content-Type") or "").startswith("text/event-stream")
        data = response.readline() if stream else response.read()

        class Answer:
            status = response.status
            body = b"" if stream else data

        return Answer
    finally:
        connection.close()


# ------------------------------------------------------------------ the table of routes and fields


def table(d):
    """Every route with a body: (path, valid body). One field at a time is replaced by something else."""
    return {
        "/api/session/create": {"id": "made", "env": {"A": "1"}, "cwd": d, "commandTimeoutMs": 1000, "isolation": False},
        "/api/session/delete": {"sessionId": "made"},
        "/api/execute": {"command": "true", "sessionId": "h", "timeoutMs": 2000, "env": {"A": "1"}, "cwd": d, "origin": "user",
                         "background": False},
        "/api/execute/stream": {"command": "true", "sessionId": "h", "env": {"A": "1"}, "cwd": d, "timeoutMs": 2000},
        "/api/process/start": {"command": "true", "sessionId": "h", "processId": "hostile", "env": {"A": "1"}, "cwd": d,
                               "timeoutMs": 2000, "encoding": "utf8", "autoCleanup": True},
        "/api/port-watch": {"port": 1, "mode": "tcp", "path": "/", "statusMin": 200, "statusMax": 399, "processId": "none",
                            "interval": 100},
        "/api/port-check": {"port": 1, "mode": "http", "path": "/", "statusMin": 200, "statusMax": 399},
        "/api/git/checkout": {"repoUrl": "/nonexistent.git", "branch": "b", "targetDir": d + "/clone", "depth": 1,
                              "timeoutMs": 30000, "sessionId": "h"},
        "/api/backup/create": {"dir": "/tmp/none", "archivePath": "/var/backups/none.sqsh", "gitignore": False, "excludes": ["x"],
                               "compression": {"format": "lz4", "threads": 1}, "sessionId": "h"},
        "/api/backup/restore": {"dir": "/tmp/none", "archivePath": "/var/backups/none.sqsh", "sessionId": "h"},
        "/api/backup/upload-parts": {"archivePath": "/var/backups/none.sqsh", "sessionId": "h", "parts": [
            {"partNumber": 1, "url": "https://localhost:1/", "offset": 0, "size": 1}]},
        "/api/watch": {"path": "/workspace/none", "recursive": True, "include": ["*.x"], "exclude": [], "events": ["create"]},
        "/api/watch/check": {"path": "/workspace/none", "recursive": True, "since": "watch-1-1:1"},
        "/api/expose-port": {"port": 8080, "name": "web", "sessionId": "h"},
        "/api/unexpose-port": {"port": 8080},
        "/api/read": {"path": d + "/f", "encoding": "utf-8", "sessionId": "h"},
        "/api/read/stream": {"path": d + "/f", "sessionId": "h"},
        "/api/write": {"path": d + "/f", "content": "x", "encoding": "utf-8", "sessionId": "h"},
        "/api/delete": {"path": d + "/none", "sessionId": "h"},
        "/api/rename": {"oldPath": d + "/none", "newPath": d + "/other", "sessionId": "h"},
        "/api/move": {"sourcePath": d + "/none", "destinationPath": d + "/other", "sessionId": "h"},
        "/api/mkdir": {"path": d + "/dir", "recursive": True, "sessionId": "h"},
        "/api/list-files": {"path": d, "options": {"recursive": False, "includeHidden": True}, "sessionId": "h"},
        "/api/exists": {"path": d + "/f", "sessionId": "h"},
        "/api/contexts": {"language": "nope", "cwd": d, "env_vars": {"A": "1"}},
        "/api/tunnels/quick": {"port": 8080, "id": "t"},
        "/api/tunnels/named": {"port": 8080, "id": "t", "name": "n", "token": "x"},
        "/api/tunnels/ensure": {"port": 8080, "tunnelId": "t", "runId": "r", "mode": "quick"},
        "/api/tunnels/stop": {"runId": "r"},
        "/api/tunnels/destroy": {"id": "t"},
        "/api/resolve": {"path": d + "/f", "sessionId": "h"},
        "/api/execute/code": {"context_id": "none", "code": "1", "language": "nope", "timeout_ms": 100},
    }


PATHS = list(table("/tmp"))
WRONG = [None, True, False, 0, -1, 1.5, "", [], {}, [None], {"a": {"b": [1]}}, "x"]  # API-03
NUMBERS = [2**31, 2**32, 2**53 + 1, 2**63, 2**64, -(2**63), 1e308, -0.0, 1e-300]  # API-04
RAW = ["1e400", "-1e400", "NaN", "Infinity", "0x10", "01", "1.", ".5", "+1", "'x'", '"\\ud800"', '"\\u0000"', '"\t"', "tru", "1 2"]
STRINGS = ["x" * MB, "\u202e\u2066rtl", "a\nb", "../../..", "-rf", "$(id)", "`id`", "';id;'", "%s%n", "\\", "🎉" * 1000, " ", "\u00a0"]


def places(value, path=()):
    """Every field of a body, also inside of others."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def replaced(body, place, value):
    copy = json.loads(json.dumps(body))
    at = copy
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    return copy


@pytest.fixture(scope="module")
def target():
    """An agent that may be harmed."""
    if os.environ.get("SILICA_BASE_URL"):
        pytest.skip("needs an agent of its own")
    process, api = start_agent()
    yield process, api
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and b"Sanitizer" not in errors, errors.decode()


@pytest.fixture
def den(target, tmp_path):
    """A directory deep enough for relative paths, where session h is at home."""
    inner = tmp_path / "1/2/3/4"
    inner.mkdir(parents=True)
    _, api = target
    api.post("/api/session/delete", {"sessionId": "h"})
    assert api.post("/api/session/create", {"id": "h", "cwd": str(inner)}).status == 200
    return str(inner)


def method_of(path):
    return "DELETE" if path == "/api/unexpose-port" else "POST"


def test_the_table_has_every_route():
    if not os.path.exists(ROUTES):
        pytest.skip("needs the source of the agent")
    with open(ROUTES) as f:
        rows = re.findall(r'\{"(?:POST|DELETE)", "([^"]+)", BODY_(?:JSON|JSON_NUL|TOLERANT|OWN), ', f.read())
    assert {r for r in rows if "{" not in r and "*" not in r} == set(PATHS)


@pytest.mark.parametrize("path", PATHS)
def test_wrong_values_for_every_field(target, den, path):
    """API-03, API-04, API-05"""
    _, api = target
    body = table(den)[path]
    for place in places(body):
        for value in WRONG + NUMBERS + STRINGS:
            answer = knock(api, method_of(path), path, replaced(body, place, value))
            check_typed(answer, (path, place, str(value)[:50]))
    assert api.get("/api/ping").status == 200
    if path == "/api/session/create":
        for name in api.get("/api/session/list").json["data"]:
            api.post("/api/session/delete", {"sessionId": name})


@pytest.mark.parametrize("path", PATHS)
def test_raw_nonsense_for_every_field(target, den, path):
    """API-04, API-05: tokens that are not JSON, lone surrogates, NUL."""
    _, api = target
    body = table(den)[path]
    for place in places(body):
        text = json.dumps(replaced(body, place, "@@@"))
        for raw in RAW:
            answer = knock(api, method_of(path), path, text.replace('"@@@"', raw))
            check_typed(answer, (path, place, raw))
            if raw != '"\\u0000"' and path not in ("/api/session/create", "/api/watch", "/api/watch/check", "/api/read/stream"):
                assert answer.status >= 400, (path, place, raw)
    if path == "/api/session/create":
        for name in api.get("/api/session/list").json["data"]:
            api.post("/api/session/delete", {"sessionId": name})


BODIES = {
    "deep arrays": "[" * 100_000,
    "deep objects": '{"a":' * 100_000,
    "closed deep arrays": "[" * 100_000 + "]" * 100_000,
    "deep inside": '{"command":' + "[" * 100_000 + "]" * 100_000 + "}",
    "byte order mark": b'\xef\xbb\xbf{"command":"true"}',
    "comment": '{"command":"true" /* x */}',
    "line comment": '{"command":"true"} // x',
    "trailing data": '{"command":"true"}{"command":"true"}',
    "trailing comma": '{"command":"true",}',
    "invalid utf-8": b'{"command":"\xff\xfe"}',
    "half a character": b'{"command":"\xe2\x82"}',
    "unterminated": '{"command":"true',
    "a million values": "[" + "0," * 1_100_000 + "0]",
    "utf-16": '{"command":"true"}'.encode("utf-16"),
    "nul": b'{"command":"true"}\0',
    "empty": "",
    "blank": " \n\t",
    "a string": '"true"',
    "null": "null",
}


@pytest.mark.parametrize("path", PATHS)
def test_bodies_that_are_not_what_is_wanted(target, path):
    """API-01, API-06"""
    _, api = target
    for name, body in BODIES.items():
        check_typed(knock(api, method_of(path), path, body), (path, name))
    healthy(api)


def test_of_duplicate_keys_the_last_wins(api, session):
    """API-06: consistently."""
    text = '{"command":"echo first","sessionId":"%s","command":"echo last","env":{"A":"1","A":"2"},"env":{"B":"3"}}' % session
    assert api.post("/api/execute", text).json["stdout"] == "last"


def test_depth_within_reason_is_fine(api, session):
    text = json.dumps({"command": "echo ok", "sessionId": session, "x": None})
    assert api.post("/api/execute", text.replace("null", "[" * 60 + "]" * 60)).json["stdout"] == "ok"


# ------------------------------------------------------------------ sizes and speeds


def raw_request(api, head, pieces, timeout=60):
    """Sends pieces until an answer comes; returns it."""
    with socket.create_connection(api.address, timeout=timeout) as s:
        s.sendall(head)
        sent = 0
        try:
            for piece in pieces:
                s.sendall(piece)
                sent += len(piece)
        except OSError:
            pass
        try:
            return s.recv(65536), sent
        except OSError:
            return b"", sent


def test_a_gigabyte_is_refused_by_its_announcement(api):
    """API-02"""
    head = b"POST /api/execute HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n"
    answer, _ = raw_request(api, head, [])
    assert answer.startswith(b"HTTP/1.1 413")


def test_chunks_without_end_are_refused_at_the_cap(own_agent):
    """API-02"""
    process, api = own_agent()
    head = b"POST /api/execute HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    piece = b"%x\r\n" % MB + b" " * MB + b"\r\n"
    answer, sent = raw_request(api, head, (piece for _ in range(400)))
    assert sent < 200 * (MB + 20)  # beyond 128 it is only read for a moment, so that the refusal is not lost
    assert answer.startswith(b"HTTP/1.1 413") or answer == b""
    healthy(api)


def test_large_commands_within_the_cap_are_run(own_agent):
    process, api = own_agent()
    size = scaled(100 * MB, 2 * MB)
    with Growth(process) as growth:
        result = api.post("/api/execute", {"command": "wc -c <<'END'\n" + "x" * size + "\nEND", "sessionId": "s"}, timeout=300)
    assert result.json["stdout"] == str(size + 1)
    growth.assert_below(8 * 128 * MB)


def test_many_large_requests_at_once_do_not_add_up(own_agent):
    """All of them together may hold 256 MiB; what is beyond is told so and may come again."""
    process, api = own_agent()
    size, count = scaled(40 * MB, 2 * MB), 16
    body = json.dumps({"command": "true", "sessionId": "s", "ignored": "x" * size})
    statuses = []

    def send():
        try:
            statuses.append(api.request("POST", "/api/execute", body, timeout=120).status)
        except OSError:
            statuses.append("cut")  # the answer may be lost when the body is still being sent

    gate = api.post("/api/process/start", {"command": "sleep 1", "sessionId": "s"})
    assert gate.status == 200
    with Growth(process) as growth:
        threads = [threading.Thread(target=send) for _ in range(count)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert set(statuses) <= {200, 429, "cut"} and 200 in statuses, statuses
    growth.assert_below(700 * MB)
    healthy(api)


def test_records_of_large_commands_do_not_add_up(own_agent):
    """They are forgotten, the oldest first, when they would hold more than 256 MiB."""
    process, api = own_agent()
    size, count = scaled(55 * MB, MB), 5
    with Growth(process) as growth:
        for i in range(count):
            response = api.post("/api/process/start", {"command": f"true {i} # " + "x" * size, "sessionId": "s",
                                                       "processId": f"p{i}"}, timeout=120)
            assert response.status == 200, response.body[:300]
            wait_until(lambda: api.process(f"p{i}")["status"] == "completed", "the end", 60)
    assert api.get(f"/api/process/p{count - 1}").status == 200
    if SCALE == 1:
        assert api.get("/api/process/p0").status == 404
    growth.assert_below(1200 * MB)


def test_a_slow_body_is_given_up(api):
    """A body that comes at less than a kilobyte a second is not waited for."""
    with socket.create_connection(api.address, timeout=60) as s:
        s.sendall(b"POST /api/execute HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        begin = time.monotonic()
        s.settimeout(0.5)
        while time.monotonic() - begin < 90:
            try:
                s.sendall(b" ")
                answer = s.recv(1000)
                break
            except TimeoutError:
                continue
            except OSError:
                answer = b"HTTP/1.1 408"
                break
        else:
            pytest.fail("the agent waits for ever")
    assert answer.startswith(b"HTTP/1.1 408")
    healthy(api)


def test_clients_that_leave_in_the_middle(own_agent):
    """Of heads, bodies, commands and streams: nothing stays behind."""
    process, api = own_agent()
    healthy(api)
    descriptors = len(os.listdir(f"/proc/{process.pid}/fd"))
    body = json.dumps({"command": "sleep 0.2; echo x", "sessionId": SESSIONLESS}).encode()
    parts = [b"POST /api/exec", b"POST /api/execute HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n{",
             b"POST /api/execute HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body,
             b"POST /api/execute/stream HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body]
    for i in range(scaled(1000, 200)):
        with socket.create_connection(api.address) as s:
            s.sendall(parts[i % len(parts)])
            if i % 3 == 0:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    wait_until(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) <= descriptors + 2, "all descriptors back")
    healthy(api)


# ------------------------------------------------------------------ crowds (DOS-31)


def many(count, work, workers=16):
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, range(count)))


def test_ten_thousand_sessions(own_agent):
    process, api = own_agent()
    count = scaled(10_000, 200)
    healthy(api, "first")
    with Growth(process) as growth:
        answers = many(count, lambda i: api.post("/api/session/create", {"id": f"s{i}", "cwd": "/"}, timeout=120))
    made = [a for a in answers if a.status == 200]
    refused = [a for a in answers if a.status != 200]
    assert len(made) == min(count, SESSIONS_MAX - 1)
    assert {(a.status, a.json["code"]) for a in refused} <= {(429, "TOO_MANY_SESSIONS")}
    growth.assert_below(64 * MB)
    assert len(api.get("/api/session/list").json["data"]) == len(made) + 1
    assert api.out("echo ok", "first") == "ok" and api.out("echo ok", made[-1].json["id"]) == "ok"
    if refused:
        for path in ("/api/execute", "/api/execute/stream", "/api/process/start"):
            response = api.post(path, {"command": "true", "sessionId": "one more"})
            assert (response.status, response.json["code"]) == (429, "TOO_MANY_SESSIONS")
        assert api.post("/api/session/delete", {"sessionId": made[0].json["id"]}).status == 200
        assert api.out("echo ok", "one more") == "ok"


def test_ten_thousand_running_processes(own_agent):
    process, api = own_agent()
    count = scaled(10_000, 200)
    with Growth(process) as growth:
        answers = many(count, lambda i: api.post("/api/process/start", {"command": "exec sleep 600", "sessionId": SESSIONLESS,
                                                                        "cwd": "/", "processId": f"p{i}"}, timeout=120))
    made = [a for a in answers if a.status == 200]
    refused = [a for a in answers if a.status != 200]
    assert len(made) == min(count, PROCESSES_MAX)
    assert {(a.status, a.json["code"]) for a in refused} <= {(429, "TOO_MANY_PROCESSES")}
    growth.assert_below(64 * MB)
    assert api.get("/api/process/list?status=running").json["count"] == len(made)
    assert api.out("echo ok", "s") == "ok"
    assert api.delete("/api/process/kill-all", timeout=120).json["killedCount"] == len(made)
    assert api.get("/api/process/list?status=running").json["count"] == 0
    assert api.start("true", "s")["pid"] > 1


def test_ten_thousand_finished_processes(own_agent):
    process, api = own_agent()
    count = scaled(10_000, 300)
    with Growth(process) as growth:
        many(count, lambda i: api.start(f"echo {i}", f"s{i % 8}", processId=f"p{i}"))
    for i in range(8):
        api.wait_process(f"p{count - 1 - i}")
    assert text_of(api.wait_process(f"p{count - 1}")) == f"{count - 1}\n"
    assert api.get("/api/process/list").json["count"] <= PROCESSES_MAX
    growth.assert_below(64 * MB)


def test_a_thousand_streams_at_once(own_agent, tmp_path):
    process, api = own_agent()
    count = scaled(1000, 100)
    os.mkfifo(tmp_path / "go")
    gate = os.open(tmp_path / "go", os.O_RDWR)
    command = f"read x < {tmp_path}/go; echo end"
    with Growth(process) as growth:
        streams = [api.open("POST", "/api/execute/stream", {"command": command, "sessionId": f"s{i % 16}"}) for i in range(count)]
        assert api.out("echo ok", "other") == "ok", "while all of them wait"
        os.write(gate, b"\n" * count)  # a line for each
        for connection, response in streams:
            body = response.read()
            connection.close()
            assert body.count(b'"type":"complete"') == 1 and b'"data":"end\\n"' in body
    os.close(gate)
    growth.assert_below(64 * MB)


def test_a_long_queue_in_one_session(own_agent):
    """Ten thousand operations may wait; the next one is told so."""
    process, api = own_agent()
    count = scaled(10_500, 100)
    api.start("true", "s")
    body = json.dumps({"command": "sleep 600", "sessionId": "s"})
    head = f"POST /api/execute HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with Growth(process) as growth:
        for first in range(0, count, 50):  # these clients leave; their commands wait all the same
            clients = [socket.create_connection(api.address, timeout=60) for _ in range(50)]
            for s in clients:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a half-closed one may wait
                s.sendall((head + body).encode())
            assert api.get("/api/ping").status == 200  # by now all of them have been taken
            last = clients[-1].recv(1000) if SCALE == 1 and first + 50 >= count else b""
            for s in clients:
                s.close()
    if SCALE == 1:
        assert last.startswith(b"HTTP/1.1 429") and b"TOO_MANY_REQUESTS" in last
    growth.assert_below(64 * MB)
    healthy(api)
    assert api.get("/api/session/list").status == 200


# ------------------------------------------------------------------ injections (API-08, API-09), large environments (DOS-34)

INJECTIONS = ["-", "--", "-rf", "$(touch pwned)", "`touch pwned`", "'; touch pwned; '", '"; touch pwned; "', "a\ntouch pwned\n", "\\",
              "a b", "*", "~", "$HOME", "{a,b}", "&& touch pwned", "| touch pwned", "\u202e", "%s", "!!", "#"]


@pytest.mark.parametrize("text", INJECTIONS, ids=range(len(INJECTIONS)))
@pytest.mark.parametrize("path", ["/api/execute", "/api/execute/stream", "/api/process/start"])
@pytest.mark.parametrize("where", ["s", SESSIONLESS], ids=["session", "sessionless"])
def test_directories_are_literal(api, session, directory, text, path, where):
    target = f"{directory}/{text}"
    assert api.post("/api/mkdir", {"path": target, "recursive": True, "sessionId": SESSIONLESS}).status == 200
    where = session if where == "s" else where
    body = {"command": f"pwd -P > {directory}/seen", "cwd": target, "sessionId": where}
    assert api.post(path, body).status == 200
    wait_until(lambda: api.run(f"test -s {directory}/seen", SESSIONLESS)["exitCode"] == 0, "the command")
    real = api.out(f"cd {directory}; pwd -P", SESSIONLESS).removesuffix("\n")
    seen = api.out(f"cat {directory}/seen; printf .", SESSIONLESS)
    assert seen == f"{real}/{text}\n."
    assert api.run(f"find {directory} -name pwned", SESSIONLESS)["stdout"] == ""


@pytest.mark.parametrize("text", INJECTIONS, ids=range(len(INJECTIONS)))
def test_names_are_literal(api, directory, text):
    """Ids of sessions and processes are opaque."""
    name = f"{directory} {text}"
    api.run(f"cd {directory}; X=1", name)
    assert api.out("echo $X", name) == "1" and name in api.get("/api/session/list").json["data"]
    api.start("echo hi", name, processId=name)
    wait_until(lambda: [p["status"] for p in api.get("/api/process/list").json["processes"] if p["id"] == name] == ["completed"], "it")
    assert api.post("/api/session/delete", {"sessionId": name}).status == 200
    assert api.out(f"ls {directory}", SESSIONLESS) == ""


@pytest.mark.parametrize("name", ["A=B", "A\nB", "", "A B", "1A", "A-B", "LD_PRELOAD\n", "Ä", "A;touch pwned", "BASH_FUNC_x%%"])
def test_names_of_variables(api, session, directory, name):
    """API-08: refused in a session; sessionless a name without = is passed on as it is, others are left out."""
    response = api.execute("true", session, env={name: "1"})
    assert response.status == 500 and response.json["code"] == "COMMAND_EXECUTION_ERROR"
    assert api.run(f"cd {directory}; env", SESSIONLESS, env={name: "x", "GOOD": "1"})["exitCode"] == 0
    assert api.out(f"ls {directory}", SESSIONLESS) == ""


@pytest.mark.parametrize("env", [{"LD_PRELOAD": "/nonexistent.so"}, {"PATH": ""}, {"BASH_ENV": "/etc/passwd"}, {"IFS": "/"}, {"PS4": "$(id)"},
                                 {"ENV": "/etc/passwd"}, {"SHELLOPTS": "xtrace"}, {"HOME": "/nonexistent"}, {"TMPDIR": "/nonexistent"}])
def test_dangerous_variables_have_an_effect_inside_only(own_agent, env):
    """API-08"""
    _, api = own_agent()
    api.post("/api/session/create", {"id": "s", "env": env})
    for where in ("s", SESSIONLESS):
        api.execute("true", where, env=env)
        api.post("/api/process/start", {"command": "true", "sessionId": where, "env": env})
    healthy(api, "other")


@pytest.mark.parametrize("path", ["/api/execute", "/api/execute/stream", "/api/process/start"])
@pytest.mark.parametrize("where", ["s", SESSIONLESS], ids=["session", "sessionless"])
def test_large_environments(api, session, path, where):
    """DOS-34: the kernel's limits are told, not felt."""
    where = session if where == "s" else where
    for env in ({"BIG": "x" * MB}, {f"V{i}": "x" * 1000 for i in range(4000)}, {f"V{i}": "" for i in range(5000)}, {"A" * MB: "x"}):
        response = api.post(path, {"command": "/bin/true", "sessionId": where, "env": env})
        check_typed(response, len(env))
    assert api.out("echo ok", where).strip() == "ok"


def test_a_large_environment_of_a_session(api, session):
    response = api.post("/api/session/create", {"id": session, "env": {"BIG": "x" * MB}})
    assert response.status == 500 and response.json["code"] == "INTERNAL_ERROR"
    assert api.post("/api/session/create", {"id": session, "env": {f"V{i}": "" for i in range(5000)}}).status == 500
    assert api.out("echo ok", session) == "ok"


@pytest.mark.parametrize("where", ["s", SESSIONLESS], ids=["session", "sessionless"])
def test_a_hundred_thousand_arguments(api, session, where):
    """DOS-34: bash says it, with its own status."""
    where = session if where == "s" else where
    response = api.execute("/bin/true " + "argument " * 400_000, where)
    check_typed(response, "arguments")
    if response.status == 200:
        assert response.json["exitCode"] == 126 and "too long" in response.json["stderr"].lower()
    else:
        assert "too long" in response.json["message"].lower()
    assert api.out("echo ok", where).strip() == "ok"
