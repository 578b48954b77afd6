# SPDX-License-Identifier: Apache-2.0
"""The container protocol over HTTP, against a running server or an agent started here.

SILICA_BASE_URL  a server to test; SILICA_HEADERS a JSON object of headers for every request
SILICA_AGENT     without a URL: the agent to start as a plain program on a free port
"""
import concurrent.futures
import http.client
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.parse

import pytest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from unwritten import checked

COUNTER = itertools.count()


class Response:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = checked(body)

    @property
    def json(self):
        return json.loads(self.body)


class Api:
    def __init__(self, url, headers=None):
        parsed = urllib.parse.urlparse(url)
        self.address = (parsed.hostname, parsed.port or 80)
        self.prefix = parsed.path.rstrip("/")
        self.headers = {"X-Sandbox-Id": "test", **(headers or {})}

    def send(self, method, path, body=None, headers=None, timeout=60):
        """Sends a request; its answer is connection.getresponse()."""
        connection = http.client.HTTPConnection(*self.address, timeout=timeout)
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        merged = {"Content-Type": "application/json", **self.headers, **(headers or {})}
        merged = {k: v for k, v in merged.items() if v is not None}
        connection.request(method, self.prefix + path, body=data, headers=merged)
        return connection

    def hand_over(self, method, path, body=None, headers=None):
        """Sends a request which the server has taken when this returns: it takes them in the order in which they come."""
        connection = self.send(method, path, body, headers)
        assert self.get("/api/ping").status == 200
        return connection

    def open(self, method, path, body=None, headers=None, timeout=60):
        connection = self.send(method, path, body, headers, timeout)
        return connection, connection.getresponse()

    def request(self, method, path, body=None, headers=None, timeout=60):
        connection, response = self.open(method, path, body, headers, timeout)
        try:
            return Response(response.status, response.headers, response.read())
        finally:
            connection.close()

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, body=None, **kw):
        return self.request("POST", path, body, **kw)

    def delete(self, path, **kw):
        return self.request("DELETE", path, **kw)

    def execute(self, command, session=None, headers=None, **fields):
        body = {"command": command, **fields}
        if session is not None:
            body["sessionId"] = session
        return self.post("/api/execute", body, headers=headers)

    def run(self, command, session=None, **fields):
        """The result of a command that the server is expected to run."""
        response = self.execute(command, session, **fields)
        assert response.status == 200, response.body[:500]
        return response.json

    def out(self, command, session=None, **fields):
        return self.run(command, session, **fields)["stdout"]

    def events(self, method, path, body=None, headers=None):
        """Yields (seconds since the request, event)."""
        begin = time.monotonic()
        connection, response = self.open(method, path, body, headers)
        try:
            assert response.status == 200, response.read()[:500]
            assert response.headers["Content-Type"].startswith("text/event-stream")
            while True:
                line = checked(response.readline())
                if not line:
                    return
                if line == b"\n":
                    continue
                assert line.startswith(b"data: "), line[:100]
                yield time.monotonic() - begin, json.loads(line[6:])
        finally:
            connection.close()

    def stream(self, command, session=None, **fields):
        body = {"command": command, **fields}
        if session is not None:
            body["sessionId"] = session
        return [e for _, e in self.events("POST", "/api/execute/stream", body)]

    def start(self, command, session=None, **fields):
        body = {"command": command, **fields}
        if session is not None:
            body["sessionId"] = session
        response = self.post("/api/process/start", body)
        assert response.status == 200, response.body[:500]
        return response.json

    def process(self, process_id):
        return self.get(f"/api/process/{process_id}").json["process"]

    def wait_process(self, process_id):
        """Waits for the end by its own event."""
        events = [e for _, e in self.events("GET", f"/api/process/{process_id}/stream")]
        assert events[-1]["type"] == "exit"
        return events


def wait_until(condition, what, seconds=60):
    """Only a failing test waits that long."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"in vain: {what}"
        time.sleep(0.02)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def meet(api, directory, sessions):
    """Runs a command in each of these sessions at once. It succeeds when it has seen that all of them run."""
    all_here = f"met=({directory}/*); [ ${{#met[@]}} = {len(sessions)} ]"
    command = f"touch {directory}/$$; for i in {{1..500}}; do {all_here} && break; sleep 0.1; done; {all_here}"
    with concurrent.futures.ThreadPoolExecutor(len(sessions)) as pool:
        results = list(pool.map(lambda s: api.run(command, s), sessions))
    assert [r["exitCode"] for r in results] == [0] * len(sessions)


def text_of(events, kind="stdout"):
    return "".join(e["data"] for e in events if e["type"] == kind)


def start_agent(arguments=(), environment=None, command=()):
    agent = os.environ.get("SILICA_AGENT")
    if not agent:
        pytest.skip("neither SILICA_BASE_URL nor SILICA_AGENT is set")
    process = subprocess.Popen(
        [agent, "--listen", "127.0.0.1:0", *arguments, *command],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    said = process.stderr.readline().decode()
    address = re.search(r"listening on (127\.0\.0\.1:\d+)", said)
    assert address, said
    return process, Api(f"http://{address[1]}")


@pytest.fixture(scope="session")
def api():
    url = os.environ.get("SILICA_BASE_URL")
    if url:
        yield Api(url, json.loads(os.environ.get("SILICA_HEADERS", "{}")))
        return
    process, api = start_agent()
    yield api
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()
    assert b"Sanitizer" not in errors, errors.decode()


@pytest.fixture
def own_agent():
    """Starts agents of one's own: own_agent(environment=..., command=...) -> (process, api)."""
    if os.environ.get("SILICA_BASE_URL"):
        pytest.skip("needs an agent of its own")
    running = []

    def start(**kw):
        process, api = start_agent(**kw)
        running.append(process)
        return process, api

    yield start
    for process in running:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
        assert b"Sanitizer" not in errors, errors.decode()


@pytest.fixture
def session(api):
    name = f"s{os.getpid()}-{next(COUNTER)}"
    yield name
    api.post("/api/session/delete", {"sessionId": name})


@pytest.fixture
def other_session(session):
    return session + "-other"


@pytest.fixture
def directory(api):
    """A directory inside the sandbox."""
    path = api.out("mktemp -d", sessionId="__DISABLE_SESSION__").strip()
    yield path
    api.run(f"rm -rf {path}", sessionId="__DISABLE_SESSION__")


@pytest.fixture
def process_id():
    return f"p{os.getpid()}-{next(COUNTER)}"
