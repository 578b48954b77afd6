# SPDX-License-Identifier: Apache-2.0
"""Clients of the releases 0.3.3, 0.4.12 and 0.6.3: what they send, and what they accept.

Each class stands for one release. Its helpers send exactly what that client sends and fail where that client would
throw. A server serves one release for its whole life, so each class has an agent of its own.
"""
import contextlib
import json
import os
import signal

import pytest

from conftest import start_agent, wait_until
from services import free_port, http_service


class ClientError(Exception):
    """What the client throws at its user."""


@contextlib.contextmanager
def agent_for_old_client():
    if os.environ.get("SILICA_BASE_URL"):
        pytest.skip("needs an agent of its own")
    process, api = start_agent()
    api.headers = {}  # none of them names its sandbox
    api.run("mkdir -p /workspace", "__DISABLE_SESSION__", cwd="/")
    try:
        yield api
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
        assert b"Sanitizer" not in errors, errors.decode()
        with contextlib.suppress(OSError):
            os.rmdir("/workspace")


def sse(api, method, path, body=None):
    """The events of a stream as these clients read it."""
    connection, response = api.open(method, path, body, headers={"Accept": "text/event-stream"})
    try:
        if response.status != 200:
            raise ClientError(response.read())
        while line := response.readline():
            if line.startswith(b"data: "):
                yield json.loads(line[6:])
    finally:
        connection.close()


# ------------------------------------------------------------------ 0.3.3


class Client033:
    """Looks only at `error` of a failure."""

    session = "sandbox-default"

    def __init__(self, api):
        self.api = api

    def call(self, method, path, body=None):
        response = self.api.request(method, path, body)
        if response.status >= 400:
            data = response.json
            if not isinstance(data.get("error"), str):
                raise AssertionError(f"a failure without error: {data}")
            raise ClientError(data["error"])
        return response.json

    def create_session(self, **fields):
        body = {"id": self.session, "env": {}, "cwd": "/workspace", "isolation": True, **fields}
        result = self.call("POST", "/api/session/create", body)
        assert result["success"] is True and result["id"] == body["id"] and isinstance(result["message"], str)
        return result

    def exec(self, command):
        result = self.call("POST", "/api/execute", {"id": self.session, "command": command})
        assert {"success", "stdout", "stderr", "exitCode", "command", "timestamp"} <= set(result)
        return result

    def start(self, command, **options):
        body = {"command": command, "sessionId": self.session, "options": options}
        process = self.call("POST", "/api/process/start", body)["process"]
        self.check_process(process)
        return process

    def check_process(self, process):
        assert {"id", "pid", "command", "status", "startTime", "endTime", "exitCode", "sessionId"} <= set(process), process
        assert process["sessionId"] == self.session

    def follow(self, process_id):
        events = []
        for event in sse(self.api, "GET", f"/api/process/{process_id}/stream"):
            events.append(event)
            if event["type"] == "complete":  # `exit` means nothing to this client
                return events
        raise ClientError("the stream ended before it was complete")


class TestRelease033:
    @pytest.fixture(scope="class")
    def client(self):
        with agent_for_old_client() as api:
            client = Client033(api)
            client.create_session()
            yield client

    @pytest.fixture
    def files(self, client):
        path = client.exec("mktemp -d")["stdout"].strip()
        yield path
        client.exec(f"rm -rf {path}")

    def test_ping(self, client):
        result = client.call("GET", "/api/ping")
        assert result["message"] == "pong" and result["timestamp"]

    def test_create_again_succeeds_and_replaces(self, client):
        client.exec("A=old; cd /tmp")
        client.create_session(env={"B": "new"})
        assert client.exec('echo "$A-$B-$PWD"')["stdout"].strip() == "-new-/workspace"

    def test_list_sessions(self, client):
        result = client.call("GET", "/api/session/list")
        assert result["count"] == len(result["sessions"]) and client.session in result["sessions"]

    def test_exec(self, client):
        result = client.exec("echo out; echo err >&2; false")
        assert (result["stdout"].strip(), result["stderr"].strip()) == ("out", "err")
        assert (result["exitCode"], result["success"]) == (1, False)

    def test_state_stays(self, client):
        client.exec("cd /tmp; export X=1")
        assert client.exec("echo $PWD$X")["stdout"].strip() == "/tmp1"
        client.exec("cd /workspace")

    def test_exec_stream(self, client):
        body = {"id": client.session, "command": "echo hi; echo no >&2; exit 3"}
        events = list(sse(client.api, "POST", "/api/execute/stream", body))
        kinds = [e["type"] for e in events]
        assert kinds[0] == "start" and kinds[-1] == "complete"
        assert {"stdout", "stderr"} < set(kinds) <= {"start", "stdout", "stderr", "complete"}
        assert events[-1]["exitCode"] == 3

    def test_process_life(self, client):
        process = client.start("echo begun; sleep 100", processId="life")
        assert (process["id"], process["status"]) == ("life", "running")
        assert process["endTime"] is None and process["exitCode"] is None

        listed = client.call("GET", f"/api/process/list?session={client.session}")
        assert listed["count"] == len(listed["processes"]) and listed["timestamp"]
        for entry in listed["processes"]:
            client.check_process(entry)
        assert "life" in [p["id"] for p in listed["processes"]]

        got = client.call("GET", "/api/process/life")
        client.check_process(got["process"])
        assert got["timestamp"]

        wait_until(lambda: client.call("GET", "/api/process/life/logs")["stdout"], "output")
        killed = client.call("DELETE", "/api/process/life")
        assert killed["success"] is True and killed["processId"] == "life"
        assert killed["sessionId"] == client.session and killed["message"] and killed["timestamp"]

        logs = client.call("GET", "/api/process/life/logs")
        assert (logs["stdout"], logs["stderr"]) == ("begun\n", "")

    def test_list_of_another_session_is_empty(self, client):
        client.start("true", processId="mine")
        assert client.call("GET", "/api/process/list?session=another")["processes"] == []

    def test_options_of_a_process(self, client):
        client.start("echo $V; pwd", processId="options", env={"V": "x"}, cwd="/tmp")
        client.follow("options")
        assert client.call("GET", "/api/process/options/logs")["stdout"] == "x\n/tmp\n"

    def test_process_stream_ends_with_complete(self, client):
        client.start("echo a; sleep 0.2; echo b; exit 5", processId="stream")
        events = client.follow("stream")
        assert "".join(e["data"] for e in events if e["type"] == "stdout") == "a\nb\n"
        last = events[-1]
        assert (last["exitCode"], last["processId"], last["sessionId"]) == (5, "stream", client.session)
        assert last["status"] and last["timestamp"]

    def test_kill_all(self, client):
        client.start("sleep 100", processId="k1")
        client.start("sleep 100", processId="k2")
        result = client.call("DELETE", f"/api/process/kill-all?session={client.session}")
        assert result["killedCount"] >= 2 and result["message"] and result["timestamp"]

    def test_unknown_process(self, client):
        with pytest.raises(ClientError):
            client.call("GET", "/api/process/none")

    def test_files(self, client, files):
        session = {"sessionId": client.session}
        write = {"path": f"{files}/a", "content": "hé\n", "encoding": "utf-8", **session}
        assert client.call("POST", "/api/write", write)["exitCode"] == 0
        read = client.call("POST", "/api/read", {"path": f"{files}/a", "encoding": "utf-8", **session})
        assert (read["content"], read["exitCode"]) == ("hé\n", 0)
        result = client.call("POST", "/api/rename", {"oldPath": f"{files}/a", "newPath": f"{files}/b", **session})
        assert (result["oldPath"], result["newPath"], result["exitCode"]) == (f"{files}/a", f"{files}/b", 0)
        made = client.call("POST", "/api/mkdir", {"path": f"{files}/d", "recursive": False, **session})
        assert (made["recursive"], made["exitCode"]) == (False, 0)
        body = {"sourcePath": f"{files}/b", "destinationPath": f"{files}/d/c", **session}
        moved = client.call("POST", "/api/move", body)
        assert (moved["sourcePath"], moved["destinationPath"]) == (f"{files}/b", f"{files}/d/c")
        assert moved["exitCode"] == 0
        listed = client.call("POST", "/api/list-files", {"path": f"{files}/d", "options": {}, **session})
        assert [f["name"] for f in listed["files"]] == ["c"] and listed["exitCode"] == 0
        assert client.call("POST", "/api/delete", {"path": f"{files}/d/c", **session})["exitCode"] == 0
        with pytest.raises(ClientError):
            client.call("POST", "/api/read", {"path": f"{files}/none", "encoding": "utf-8", **session})

    def test_git(self, client, files):
        client.exec(f"git init -q -b main {files}/r && cd {files}/r && git -c user.name=a -c user.email=a@b "
                    "commit -q --allow-empty -m 1; cd /workspace")
        body = {"repoUrl": f"file://{files}/r", "branch": "main", "targetDir": f"{files}/t", "sessionId": client.session}
        result = client.call("POST", "/api/git/checkout", body)
        assert {"success", "stdout", "stderr", "exitCode", "repoUrl", "branch", "targetDir", "timestamp"} <= set(result)
        assert (result["success"], result["exitCode"], result["branch"]) == (True, 0, "main")
        with pytest.raises(ClientError):
            client.call("POST", "/api/git/checkout", {**body, "branch": "none", "targetDir": f"{files}/u"})

    def test_ports_and_proxy(self, client):
        with http_service(client.api) as (_, port):
            for _ in range(2):  # repeating is fine
                result = client.call("POST", "/api/expose-port", {"port": port, "name": "web"})
                assert (result["success"], result["port"], result["name"]) == (True, port, "web")
                assert result["exposedAt"] and result["timestamp"]
            listed = client.call("GET", "/api/exposed-ports")
            assert listed["count"] == 1 and listed["timestamp"]
            assert {"port", "name", "exposedAt"} <= set(listed["ports"][0])
            assert client.call("GET", f"/proxy/{port}/some/path?x=1")["path"] == "/some/path?x=1"
            assert client.call("POST", f"/proxy/{port}/up", {"a": 1})["body"] == '{"a": 1}'
            assert client.call("DELETE", "/api/unexpose-port", {"port": port})["success"] is True
            with pytest.raises(ClientError, match="^Port is not exposed$"):
                client.call("DELETE", "/api/unexpose-port", {"port": port})
            with pytest.raises(ClientError, match=f"^Port {port} is not exposed$"):
                client.call("GET", f"/proxy/{port}/x")

    def test_proxy_to_nobody(self, client):
        port = free_port(client.api)
        client.call("POST", "/api/expose-port", {"port": port})
        with pytest.raises(ClientError, match=f"^Service on port {port} is not responding$"):
            client.call("GET", f"/proxy/{port}/x")
        client.call("DELETE", "/api/unexpose-port", {"port": port})


# ------------------------------------------------------------------ 0.4.12 and 0.6.3


class Client04:
    """Reads the envelope."""

    session = "sandbox-default"

    def __init__(self, api):
        self.api = api
        assert self.call("GET", "/api/version")["version"]

    def call(self, method, path, body=None):
        response = self.api.request(method, path, body)
        data = response.json
        if response.status >= 400:
            self.look_at_failure(response)
            for member in ("code", "message", "context", "httpStatus", "timestamp"):
                assert member in data, data
            raise ClientError(data["code"], data["message"])
        return data

    def look_at_failure(self, response):
        pass

    def create_session(self, session=None):
        try:
            self.call("POST", "/api/session/create", {"id": session or self.session, "env": {}, "cwd": "/workspace"})
        except ClientError as e:
            if "already exists" not in e.args[1]:  # that is how this client tells
                raise

    def exec(self, command, **fields):
        result = self.call("POST", "/api/execute", {"command": command, "sessionId": self.session, **fields})
        assert {"success", "stdout", "stderr", "exitCode", "command", "timestamp"} <= set(result)
        return result


class Client063(Client04):
    REPEATS = (
        "no container instance available", "currently provisioning", "container port not found",
        "connection refused: container port", "the container is not listening", "failed to verify port",
        "container did not start", "network connection lost", "container suddenly disconnected",
        "monitor failed to find container", "timed out", "timeout",
    )  # fmt: skip

    def look_at_failure(self, response):
        """This client would send the request again, and again."""
        text = response.body.decode().lower()
        if response.status in (500, 503):
            for words in self.REPEATS:
                assert words not in text, f"a failure that is repeated: {text}"


class Both:
    """What 0.4.12 and 0.6.3 have in common."""

    @pytest.fixture
    def files(self, client):
        path = client.exec("mktemp -d")["stdout"].strip()
        yield path
        client.exec(f"rm -rf {path}")

    def test_create_again_is_recognised(self, client):
        client.create_session()
        client.create_session()

    def test_unknown_session_is_created(self, client):
        """The client remembers its session across restarts of the server."""
        body = {"command": "echo $0", "sessionId": "from-a-former-life"}
        assert client.call("POST", "/api/execute", body)["stdout"] == "bash"
        read = {"path": "/etc/hostname", "sessionId": "from-another-life"}
        assert client.call("POST", "/api/read", read)["success"] is True

    def test_exec(self, client):
        result = client.exec("echo out; echo err >&2; exit_code() { return 2; }; exit_code")
        assert (result["stdout"], result["stderr"], result["exitCode"]) == ("out", "err", 2)

    def test_command_beyond_its_time(self, client):
        with pytest.raises(ClientError) as e:
            client.exec("echo timeout; sleep 2", timeoutMs=100)
        assert e.value.args[0] == "COMMAND_EXECUTION_ERROR"
        assert client.exec("echo on")["stdout"] == "on"

    def test_list_sessions(self, client):
        assert client.session in client.call("GET", "/api/session/list")["data"]

    def test_process_life(self, client):
        body = {"command": "echo a; sleep 100", "sessionId": client.session, "processId": "life"}
        started = client.call("POST", "/api/process/start", body)
        assert started["processId"] == "life" and started["pid"] > 0 and started["command"]
        assert "life" in [p["id"] for p in client.call("GET", "/api/process/list")["processes"]]
        assert client.call("GET", "/api/process/life")["process"]["status"] == "running"
        wait_until(lambda: client.call("GET", "/api/process/life/logs")["stdout"], "output")
        assert client.call("DELETE", "/api/process/life")["success"] is True
        assert client.call("GET", "/api/process/life/logs")["stdout"] == "a\n"
        assert client.call("DELETE", "/api/process/kill-all")["cleanedCount"] == 0

    def test_process_stream_ends_with_exit(self, client):
        body = {"command": "echo a; exit 4", "sessionId": client.session, "processId": "stream"}
        client.call("POST", "/api/process/start", body)
        seen = []
        for event in sse(client.api, "GET", "/api/process/stream/stream"):
            seen.append(event)
            if event["type"] == "exit":
                break
        assert seen[0]["type"] == "process_info"
        assert seen[-1]["exitCode"] == 4
        assert "".join(e["data"] for e in seen if e["type"] == "stdout") == "a\n"

    def test_ports(self, client):
        session = client.session
        with http_service(client.api) as (_, port):
            assert client.call("GET", f"/api/exposed-ports?session={session}")["ports"] == []
            result = client.call("POST", "/api/expose-port", {"port": port, "sessionId": session, "name": "web"})
            assert (result["success"], result["port"], result["url"]) == (True, port, f"http://localhost:{port}")
            with pytest.raises(ClientError) as e:
                client.call("POST", "/api/expose-port", {"port": port, "sessionId": session, "name": "web"})
            assert e.value.args[0] == "PORT_ALREADY_EXPOSED"
            listed = client.call("GET", f"/api/exposed-ports?session={session}")
            entry = listed["ports"][0]
            assert (entry["port"], entry["url"], entry["status"]) == (port, f"http://localhost:{port}", "active")
            assert client.call("GET", f"/proxy/{port}")["path"] == "/"
            assert client.call("DELETE", f"/api/exposed-ports/{port}?session={session}")["success"] is True
            with pytest.raises(ClientError) as e:
                client.call("DELETE", f"/api/exposed-ports/{port}?session={session}")
            assert e.value.args[0] == "PORT_NOT_EXPOSED"
            response = client.api.get(f"/proxy/{port}")
            assert (response.status, response.json["error"], response.json["port"]) == (404, "Port not found", port)

    def test_bad_port_number(self, client):
        with pytest.raises(ClientError) as e:
            client.call("POST", "/api/expose-port", {"port": 70000, "sessionId": client.session})
        assert e.value.args[0] == "INVALID_PORT_NUMBER"

    def test_git(self, client, files):
        client.exec(f"git init -q -b main {files}/r && cd {files}/r && git -c user.name=a -c user.email=a@b "
                    "commit -q --allow-empty -m 1; cd /workspace")
        body = {"repoUrl": f"file://{files}/r", "targetDir": f"{files}/t", "sessionId": client.session}
        result = client.call("POST", "/api/git/checkout", body)
        assert (result["success"], result["branch"], result["targetDir"]) == (True, "main", f"{files}/t")

    def test_interpreter_health(self, client):
        assert client.call("GET", "/api/interpreter/health")["status"] == "healthy"

    def test_commands(self, client):
        assert isinstance(client.call("GET", "/api/commands")["availableCommands"], list)


class TestRelease0412(Both):
    @pytest.fixture(scope="class")
    def client(self):
        with agent_for_old_client() as api:
            client = Client04(api)
            client.create_session()
            yield client

    def test_read_detects_binary_in_spite_of_utf8(self, client, files):
        client.exec(f"printf '\\211PNG\\r\\n\\032\\n\\0\\0' > {files}/a.png; printf text > {files}/b.txt")
        ask = {"encoding": "utf8", "sessionId": client.session}
        image = client.call("POST", "/api/read", {"path": f"{files}/a.png", **ask})
        assert (image["encoding"], image["isBinary"], image["content"]) == ("base64", True, "iVBORw0KGgoAAA==")
        text = client.call("POST", "/api/read", {"path": f"{files}/b.txt", **ask})
        assert (text["encoding"], text["content"]) == ("utf-8", "text")

    def test_write(self, client, files):
        body = {"path": f"{files}/w", "content": "é", "encoding": "utf8", "sessionId": client.session}
        assert client.call("POST", "/api/write", body)["success"] is True
        assert client.exec(f"cat {files}/w")["stdout"] == "é"

    def test_exists_and_stream(self, client, files):
        client.exec(f"echo x > {files}/f")
        body = {"path": f"{files}/f", "sessionId": client.session}
        assert client.call("POST", "/api/exists", body)["exists"] is True
        events = list(sse(client.api, "POST", "/api/read/stream", body))
        assert [e["type"] for e in events] == ["metadata", "chunk", "complete"]


class TestRelease063(Both):
    @pytest.fixture(scope="class")
    def client(self):
        with agent_for_old_client() as api:
            client = Client063(api)
            client.create_session()
            yield client

    def test_exec_with_env_and_cwd(self, client):
        result = client.exec("echo $A; pwd", env={"A": "1"}, cwd="/tmp")
        assert result["stdout"] == "1\n/tmp"

    def test_delete_session(self, client):
        client.create_session("short")
        result = client.call("POST", "/api/session/delete", {"sessionId": "short"})
        assert (result["success"], result["sessionId"]) == (True, "short")

    def test_read_without_encoding(self, client, files):
        client.exec(f"printf text > {files}/b.txt")
        read = client.call("POST", "/api/read", {"path": f"{files}/b.txt", "sessionId": client.session})
        assert (read["encoding"], read["content"]) == ("utf-8", "text")

    def test_port_check(self, client):
        with http_service(client.api) as (_, port):
            ask = {"port": port, "mode": "http", "path": "/", "statusMin": 200, "statusMax": 399}
            assert client.call("POST", "/api/port-check", ask) == {"ready": True, "statusCode": 200}
            result = client.call("POST", "/api/port-check", {**ask, "path": "/status/404"})
            assert (result["ready"], result["statusCode"]) == (False, 404) and result["error"]
            tcp = {"port": port, "mode": "tcp"}
            assert client.call("POST", "/api/port-check", tcp) == {"ready": True}
        result = client.call("POST", "/api/port-check", ask)
        assert result["ready"] is False and result["error"] and "statusCode" not in result

    def test_port_check_never_fails(self, client):
        for port in (0, 99999, "x", None):
            result = client.call("POST", "/api/port-check", {"port": port, "mode": "http"})
            assert result["ready"] is False and result["error"]

    def test_git_beyond_its_time_is_not_repeated(self, client, files):
        script = "import socket, time; s = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.listen(); print(s.getsockname()[1], flush=True); time.sleep(60)"
        client.call("POST", "/api/process/start", {"command": f"python3 -c '{script}'", "sessionId": client.session, "processId": "stall"})
        port = next(e["data"] for e in sse(client.api, "GET", "/api/process/stall/stream") if e["type"] == "stdout").strip()
        body = {"repoUrl": f"http://127.0.0.1:{port}/timeout.git", "targetDir": f"{files}/t", "timeoutMs": 300, "sessionId": client.session}
        with pytest.raises(ClientError) as e:
            client.call("POST", "/api/git/checkout", body)
        assert e.value.args[0] == "GIT_NETWORK_ERROR"
        client.call("DELETE", "/api/process/stall")
