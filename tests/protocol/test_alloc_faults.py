# SPDX-License-Identifier: Apache-2.0
"""REC-15: the agent without memory: every allocation of every kind of request fails in turn. Each is answered or cut, never wrongly, and the
agent lives on and has lost nothing."""
import http.client
import json
import os

import pytest
from alloc import Allocations
from conftest import wait_until
from measure import SANITIZED

pytestmark = pytest.mark.skipif(not SANITIZED, reason="only debug builds let allocations fail")

NAMES = ["execute", "session", "stream", "process", "read", "write", "list", "move", "mkdir", "errors", "watch", "ports"]


@pytest.fixture(scope="module")
def poor(tmp_path_factory):
    """An agent whose allocations fail on demand."""
    from conftest import start_agent
    allocations = Allocations(tmp_path_factory.mktemp("alloc") / "countdown")
    process, api = start_agent(environment={"SILICA_ALLOC": allocations.path})
    yield process, api, allocations
    process.terminate()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0 and b"Sanitizer" not in errors, errors.decode()[-3000:]


def calls(kind, path, n):
    """The requests of one kind; fresh names, so that each makes something anew."""
    return {
        "execute": [("POST", "/api/execute", {"command": "echo ok", "env": {"A": "1"}, "cwd": "/tmp"})],
        "session": [("POST", "/api/session/create", {"id": f"s{n}", "env": {"B": "2"}}), ("POST", "/api/session/delete", {"sessionId": f"s{n}"})],
        "stream": [("POST", "/api/execute/stream", {"command": "echo ok"})],
        "process": [("POST", "/api/process/start", {"command": "echo ok; exec sleep 100", "processId": f"p{n}"}), ("GET", "/api/process/list", None),
                    ("GET", f"/api/process/p{n}/logs", None), ("DELETE", f"/api/process/p{n}", None)],
        "read": [("POST", "/api/read", {"path": path + "/kept"}), ("POST", "/api/read/stream", {"path": path + "/kept"})],
        "write": [("POST", "/api/write", {"path": f"{path}/w{n}", "content": "x" * 5000})],
        "list": [("POST", "/api/list-files", {"path": path, "options": {"recursive": True}})],
        "move": [("POST", "/api/write", {"path": path + "/a", "content": "x"}), ("POST", "/api/rename", {"oldPath": path + "/a", "newPath": path + "/b"}),
                 ("POST", "/api/delete", {"path": path + "/b"})],
        "mkdir": [("POST", "/api/mkdir", {"path": f"{path}/d{n}/e", "recursive": True})],
        "errors": [("POST", "/api/execute", "{"), ("GET", "/nothing", None), ("POST", "/api/read", {"path": path + "/missing"})],
        "watch": [("POST", "/api/watch/check", {"path": path, "recursive": True})],
        "ports": [("POST", "/api/port-check", {"port": 1}), ("GET", "/api/ports", None)],
    }[kind]


def ask(api, method, path, body):
    try:
        return api.request(method, path, body)
    except (ConnectionError, http.client.HTTPException):
        return None  # cut: nothing was claimed


def right(kind, r):
    """A success is a true one."""
    if r is None or r.status >= 400:
        return True
    if kind == "execute":
        return r.json["stdout"].strip() == "ok" and r.json["exitCode"] == 0
    if kind == "read" and r.body.startswith(b"{"):
        return r.json["content"] == "kept"
    return True


@pytest.mark.parametrize("kind", NAMES)
def test_REC_15_the_agent_without_memory(poor, tmp_path, kind):
    process, api, allocations = poor
    (tmp_path / "kept").write_text("kept")

    def story(n):
        for method, path, body in calls(kind, str(tmp_path), n):
            r = ask(api, method, path, body)
            assert process.poll() is None, "the agent has died"
            assert right(kind, r), (n, path, r.body[:500])

    assert allocations.each(story) > 5
    for method, path, body in calls(kind, str(tmp_path), 100000):
        r = ask(api, method, path, body)
        assert r is not None and (r.status == 200 or kind in ("errors", "watch", "ports")), (path, r and r.body[:300])
    assert (tmp_path / "kept").read_text() == "kept"
    wait_until(lambda: not [name for name in os.listdir(tmp_path) if name.startswith(".")], "no unfinished files")
    assert json.loads(api.get("/api/ping").body)
