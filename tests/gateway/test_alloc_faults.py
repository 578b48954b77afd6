# SPDX-License-Identifier: Apache-2.0
"""REC-15: the gateway without memory: every allocation of every kind of request fails in turn. Each is answered or cut, and what was promised holds. Where
it could not keep a promise otherwise the gateway ends itself and is started again."""
import http.client
import json
import re

import pytest
from alloc import Allocations
from conftest import Gateway, until


@pytest.fixture(scope="module")
def poor(tmp_path_factory):
    directory = tmp_path_factory.mktemp("gateway")
    allocations = Allocations(directory / "countdown")
    g = Gateway(str(directory), "--alloc", allocations.path)
    if not re.search(b"__wrap_malloc", open(f"/proc/{g.pid}/exe", "rb").read()):
        g.end()
        pytest.skip("only debug builds let allocations fail")
    g.put("steady", {"labels": {"a": "b"}, "keepAlive": True})
    yield g, allocations
    assert g.end() == 0


def calls(kind, n):
    return {
        "create": [("PUT", f"/v1/sandbox/s{n}", {"labels": {"n": str(n)}, "env": {"A": "1" * 500}, "sleepAfter": "1h"}), ("DELETE", f"/v1/sandbox/s{n}", None)],
        "change": [("PUT", "/v1/sandbox/steady", {"labels": {"a": "b"}, "env": {"X": str(n)}})],
        "proxy": [("POST", "/v1/sandbox/steady/api/echo", {"x": "y" * 3000})],
        "list": [("GET", "/v1/sandbox?label=a%3Db", None), ("GET", "/v1/sandbox/steady", None), ("GET", "/metrics", None)],
        "token": [("POST", "/v1/token", {"scope": "read-only", "name": f"t{n}"}), ("GET", "/v1/token", None)],
        "ports": [("POST", "/v1/sandbox/steady/ports", {"port": 2000 + n}), ("DELETE", f"/v1/sandbox/steady/ports/{2000 + n}", None)],
        "sleep": [("POST", "/v1/sandbox/steady/sleep", None), ("POST", "/v1/sandbox/steady/wake", None)],
        "errors": [("GET", "/v1/nothing", None), ("PUT", "/v1/sandbox/..", {}), ("PUT", "/v1/sandbox/x", [])],
    }[kind]


KINDS = ["create", "change", "proxy", "list", "token", "ports", "sleep", "errors"]


def ask(g, method, path, body):
    try:
        return g.ask(method, path, body=None if body is None else json.dumps(body), headers={"Content-Type": "application/json"})
    except (ConnectionError, http.client.HTTPException):
        return None


@pytest.mark.parametrize("kind", KINDS)
def test_REC_15_the_gateway_without_memory(poor, kind):
    g, allocations = poor
    ends = 0

    def story(n):
        nonlocal ends
        for method, path, body in calls(kind, n):
            r = ask(g, method, path, body)
            assert r is None or r.status < 400 or not r.body or r.error()["code"], (n, path, r)  # no memory for the words is a status without
            if r is None and not alive(g):
                allocations.fail_in(-1)
                g.next_line()
                ends += 1
            if kind == "create" and method == "PUT" and r is not None and r.status == 201 and allocations.left() == 0:
                assert g.get(path).json()["labels"] == {"n": str(n)}, "what was promised is there"

    assert allocations.each(story) > 5
    assert ends <= 8, "it ends itself only where it says so"
    got = g.get("/v1/sandbox/steady").json()
    assert got["labels"] == {"a": "b"}
    for method, path, body in calls(kind, 900):
        r = ask(g, method, path, body)
        assert r is not None and (r.status < 400 or kind == "errors"), (path, r)
    until(lambda: g.api("steady", "ping").status == 200, "the sandbox at work")


def alive(g):
    try:
        return open(f"/proc/{g.pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
