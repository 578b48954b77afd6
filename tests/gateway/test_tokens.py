# SPDX-License-Identifier: Apache-2.0
"""Tokens with limits (catalogue area 10): what each scope may do, whom it sees, and how it ends."""
import concurrent.futures
import json
import os
import sqlite3
import time

import pytest
from conftest import DEADLINE, TOKEN, example, routes, until


@pytest.fixture(scope="module")
def g(make_gateway):
    return make_gateway()


def make(g, scope, **fields):
    a = g.ask("POST", "/v1/token", body=json.dumps({"scope": scope, **fields}))
    assert a.status == 201, a
    return a.json()


def listed(g, **kw):
    return [s["id"] for s in g.get("/v1/sandbox", **kw).json()["sandboxes"]]


# ---------------------------------------------------------------- life of a token

def test_create_list_revoke(g):
    made = make(g, "one-sandbox", sandbox="mine", name="for mine", expiresIn="1h")
    assert made["token"].startswith("silica_") and len(made["token"]) == 7 + 64
    assert made["scope"] == "one-sandbox" and made["sandbox"] == "mine" and made["name"] == "for mine"
    assert made["expiresAt"] > made["createdAt"] and made["expired"] is False
    a = g.get("/v1/token")
    mine = [t for t in a.json()["tokens"] if t["id"] == made["id"]]
    assert len(mine) == 1 and "token" not in mine[0] and made["token"] not in a.body.decode()
    assert g.api("mine", "ping", token=made["token"]).status == 200
    assert g.ask("DELETE", f"/v1/token/{made['id']}").json() == {"success": True, "id": made["id"]}
    assert g.api("mine", "ping", token=made["token"]).status == 401
    a = g.ask("DELETE", f"/v1/token/{made['id']}")
    assert a.status == 404 and a.error()["code"] == "TOKEN_NOT_FOUND"
    g.delete("mine")


@pytest.mark.parametrize("body,field", [
    ({}, "scope"), ({"scope": "king"}, "scope"), ({"scope": 1}, "scope"), ({"scope": "one-sandbox"}, "sandbox"),
    ({"scope": "one-sandbox", "sandbox": "../x"}, "sandbox"), ({"scope": "one-sandbox", "sandbox": 7}, "sandbox"),
    ({"scope": "admin", "sandbox": "x"}, "sandbox"), ({"scope": "create-only", "sandbox": "x"}, "sandbox"),
    ({"scope": "admin", "name": "n" * 64}, "name"), ({"scope": "admin", "name": []}, "name"),
    ({"scope": "admin", "expiresIn": "soon"}, "expiresIn"), ({"scope": "admin", "expiresIn": -1}, "expiresIn"),
    ({"scope": "admin", "expiresIn": 1e300}, "expiresIn"), ([], "body")])
def test_what_is_no_token(g, body, field):
    before = g.get("/v1/token").json()["count"]
    a = g.ask("POST", "/v1/token", body=json.dumps(body))
    assert a.status == 400 and a.error()["context"]["field"] == field
    assert g.get("/v1/token").json()["count"] == before


def test_bodies_that_are_no_json(g):
    assert g.ask("POST", "/v1/token", body="{").status == 400
    assert g.ask("POST", "/v1/token").status == 400
    assert g.ask("POST", "/v1/token", body=" " * 20000).status == 413


def test_AUTH_08_tokens_at_rest(g):
    made = make(g, "admin", name="at rest")
    assert g.get("/v1/sandbox", token=made["token"]).status == 200
    for name in os.listdir(g.directory):
        with open(os.path.join(g.directory, name), "rb") as f:
            data = f.read()
        assert made["token"].encode() not in data and made["token"][7:].encode() not in data, name
        assert bytes.fromhex(made["token"][7:]) not in data and TOKEN.encode() not in data.replace(b"token", b"")
    with open(f"/proc/{g.pid}/cmdline", "rb") as f:
        assert made["token"].encode() not in f.read()


def test_tokens_survive_kill(make_gateway):
    g = make_gateway()
    keep = make(g, "create-only", name="keep")
    gone = make(g, "admin", name="gone")
    g.ask("DELETE", f"/v1/token/{gone['id']}")
    assert g.put("hers", {}).status == 201
    assert g.api("his", "ping", token=keep["token"]).status == 200
    g.kill_gateway()
    assert listed(g, token=keep["token"]) == ["his"], "what it owns survives, too"
    assert g.get("/v1/sandbox", token=gone["token"]).status == 401
    assert [t["name"] for t in g.get("/v1/token").json()["tokens"]] == ["keep"]


FIRST_SCHEMA = """CREATE TABLE sandboxes (
 id TEXT PRIMARY KEY NOT NULL, image TEXT NOT NULL, instance_type TEXT NOT NULL,
 memory_bytes INTEGER NOT NULL, disk_bytes INTEGER NOT NULL, disk_inodes INTEGER NOT NULL,
 io_bps INTEGER NOT NULL, io_iops INTEGER NOT NULL, tasks INTEGER NOT NULL, cpu_milli INTEGER NOT NULL,
 env TEXT NOT NULL, labels TEXT NOT NULL, sleep_after_ms INTEGER NOT NULL,
 keep_alive INTEGER NOT NULL, ephemeral INTEGER NOT NULL,
 created_ms INTEGER NOT NULL, last_used_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID"""


def test_a_database_of_the_first_release(make_gateway, tmp_path):
    """Forward migration from the tables as they were before tokens existed."""
    with sqlite3.connect(tmp_path / "state.db") as db:
        db.execute(FIRST_SCHEMA)
        db.execute("INSERT INTO sandboxes VALUES ('old', 'base', 'lite', 1 << 30, 1 << 32, 100000, 0, 0, 512, 1000, '{}', "
                   "'{\"a\":\"b\"}', 600000, 0, 0, 1000, 2000)")
        db.execute("PRAGMA user_version = 1")
    db.close()
    g = make_gateway(directory=str(tmp_path))
    old = g.get("/v1/sandbox/old").json()
    assert old["labels"] == {"a": "b"} and old["state"] == "asleep" and old["createdAt"] == "1970-01-01T00:00:01.000Z"
    made = make(g, "create-only")
    assert g.api("old", "ping", token=made["token"]).status == 404, "it belongs to nobody"
    assert g.api("new", "ping", token=made["token"]).status == 200
    g.kill_gateway()
    assert {s["id"] for s in g.get("/v1/sandbox").json()["sandboxes"]} == {"old", "new"}


def test_too_many_tokens(make_gateway):
    g = make_gateway()
    c = g.connection()
    statuses = []
    for _ in range(1030):
        c.request("POST", "/v1/token", body='{"scope":"admin"}', headers={"Authorization": f"Bearer {TOKEN}"})
        r = c.getresponse()
        r.read()
        statuses.append(r.status)
    c.close()
    assert statuses.count(201) == 1023 and statuses.count(409) == 7, "with the one it was started with"


# ---------------------------------------------------------------- scopes

def test_AUTH_06_read_only_changes_nothing(g):
    """Every route of the router: those without ROUTE_READ answer 403, whatever they are asked."""
    g.put("seen", {"labels": {"a": "1"}})
    before = g.get("/v1/sandbox/seen").json()
    reader = make(g, "read-only")["token"]
    refused = 0
    for method, pattern, flags in routes():
        for verb in [method] if method else ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"]:
            if flags & {"ROUTE_READ", "ROUTE_OPEN"}:
                continue
            a = g.ask(verb, example(pattern, "seen"), token=reader, body="{}" if verb != "GET" else None)
            assert a.status == 403 and a.error()["code"] == "FORBIDDEN", (verb, pattern, a)
            refused += 1
    assert refused >= 12
    for sandbox in ("seen", "not-there"):
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
        assert g.ask("GET", f"/v1/sandbox/{sandbox}/api/ping", headers=upgrade, token=reader).status == 403
    after = g.get("/v1/sandbox/seen").json()
    for volatile in ("lastUsedAt", "activeRequests"):
        before.pop(volatile), after.pop(volatile)
    assert before == after
    # and what it may
    assert "seen" in listed(g, token=reader)
    assert g.get("/v1/sandbox/seen", token=reader).status == 200
    assert g.api("seen", "ping", token=reader).status == 200
    assert g.get("/metrics", token=reader).status == 200
    a = g.api("never-made", "ping", token=reader)
    assert a.status == 404 and g.get("/v1/sandbox/never-made").status == 404, "it creates nothing"
    g.delete("seen")


def test_read_only_of_one_sandbox(g):
    g.put("one")
    g.put("two")
    reader = make(g, "read-only", sandbox="one")["token"]
    assert listed(g, token=reader) == ["one"]
    assert g.get("/v1/sandbox/one", token=reader).status == 200
    assert g.get("/v1/sandbox/two", token=reader).status == 404
    assert g.get("/metrics", token=reader).status == 403
    assert g.get("/v1/events?sandbox=two", token=reader).status == 404
    g.delete("one")
    g.delete("two")


def test_AUTH_04_another_ones_sandbox_on_every_route(g):
    """404 on every route that names a sandbox, the same as for one that does not exist, and nothing happens to it."""
    assert g.put("victim", {"labels": {"a": "1"}, "env": {"S": "secret"}}).status == 201
    starts = g.count("victim")["starts"]
    one = make(g, "one-sandbox", sandbox="attacker")["token"]
    creator = make(g, "create-only")["token"]
    reader = make(g, "read-only", sandbox="attacker")["token"]
    for token in (one, creator, reader):
        for method, pattern, flags in routes():
            if "{id}" not in pattern or "ROUTE_TOKEN" in flags:
                continue
            for verb in [method] if method else ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"]:
                if token == reader and "ROUTE_READ" not in flags:
                    continue
                a = g.ask(verb, example(pattern, "victim"), token=token, body="{}" if verb != "GET" else None)
                assert a.status == 404, (verb, pattern, a)
                if verb == "HEAD":
                    continue
                assert a.error()["code"] == "SANDBOX_NOT_FOUND", (verb, pattern, a)
                if token != creator:  # which may make what does not exist
                    b = g.ask(verb, example(pattern, "nobody"), token=token, body="{}" if verb != "GET" else None)
                    assert (b.status, b.error()["message"]) == (404, a.error()["message"].replace("victim", "nobody"))
        assert "victim" not in listed(g, token=token)
    assert g.count("victim")["starts"] == starts and g.state("victim") == "running"
    assert g.get("/v1/sandbox/nobody").status == 404
    g.delete("victim")


def test_AUTH_05_list_shows_only_own(g):
    a, b = make(g, "create-only")["token"], make(g, "create-only")["token"]
    g.put("admins")
    assert g.ask("PUT", "/v1/sandbox/of-a", body="{}", token=a).status == 201
    assert g.api("of-b", "ping", token=b).status == 200
    assert listed(g, token=a) == ["of-a"] and listed(g, token=b) == ["of-b"]
    assert {"admins", "of-a", "of-b"} <= set(listed(g))
    assert g.api("of-a", "ping", token=b).status == 404
    assert g.ask("DELETE", "/v1/sandbox/of-a", token=b).status == 404
    assert g.api("of-a", "ping").status == 200, "an admin may use all"
    assert g.ask("DELETE", "/v1/sandbox/of-a", token=a).json()["existed"] is True
    assert g.ask("DELETE", "/v1/sandbox/of-a", token=a).json()["existed"] is False
    assert g.api("of-a", "ping", token=b).status == 200, "the id was free again"
    assert listed(g, token=b) == ["of-b", "of-a"]
    for sandbox in ("admins", "of-a", "of-b"):
        g.delete(sandbox)


def test_create_only_may_not_rule(g):
    token = make(g, "create-only")["token"]
    for method, path in (("GET", "/v1/token"), ("POST", "/v1/token"), ("DELETE", "/v1/token/x"), ("GET", "/metrics")):
        a = g.ask(method, path, token=token, body='{"scope":"admin"}' if method == "POST" else None)
        assert a.status == 403, (method, path)


def test_one_owner_when_two_are_first(g):
    """Many tokens use one new id at the same time: it belongs to one, the others are told that there is none."""
    tokens = [make(g, "create-only")["token"] for _ in range(6)]
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda i: (i % 6, g.api("slow-race", "ping", token=tokens[i % 6]).status), range(24)))
    winners = {i for i, status in answers if status == 200}
    assert len(winners) == 1 and all(status in (200, 404) for _, status in answers), answers
    assert sum(status == 200 for _, status in answers) == 4
    assert g.count("slow-race")["starts"] == 1
    g.delete("slow-race")


def test_a_destroyed_sandbox_goes_to_the_next(g):
    """A second token waits while the first destroys: what it gets is its own."""
    a, b = make(g, "create-only")["token"], make(g, "create-only")["token"]
    assert g.api("slow-heir", "ping", token=a).status == 200
    assert g.ask("DELETE", "/v1/sandbox/slow-heir", token=a).status == 200
    assert g.api("slow-heir", "ping", token=b).status == 200
    assert g.api("slow-heir", "ping", token=a).status == 404
    g.delete("slow-heir")


def test_AUTH_15_the_check_sees_what_is_done(g):
    """A large or chunked body changes nothing about who may do it."""
    token = make(g, "one-sandbox", sandbox="deputy")["token"]
    g.put("treasure")
    head = f"Host: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
    for path in ("/v1/sandbox/treasure/api/echo", "/v1/sandbox/treasure"):
        for framing, body in (("Content-Length: 3000000", b"x" * 3000000),
                              ("Transfer-Encoding: chunked", b"2dc6c0\r\n" + b"x" * 3000000 + b"\r\n0\r\n\r\n")):
            answer = g.raw(f"PUT {path} HTTP/1.1\r\n{head}{framing}\r\n\r\n".encode() + body)
            assert answer.startswith(b"HTTP/1.1 404 "), answer[:200]
    g.delete("treasure")


# ---------------------------------------------------------------- the end of a token

def open_stream(g, token, path):
    s = g.connect()
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    got = s.recv(65536)
    assert got.startswith(b"HTTP/1.1 200 "), got
    return s


def ends(s):
    end = time.monotonic() + DEADLINE
    s.settimeout(DEADLINE)
    try:
        while s.recv(65536):
            assert time.monotonic() < end, "the stream goes on"
    except ConnectionResetError:
        pass
    s.close()
    return True


@pytest.mark.parametrize("path", ["/v1/sandbox/stream-1/api/stream", "/v1/events"])
def test_AUTH_07_revoked_during_a_stream(g, path):
    victim, other = make(g, "admin"), make(g, "admin")
    g.put("stream-1")
    hangups = g.count("stream-1")["hangups"]
    s, untouched = open_stream(g, victim["token"], path), open_stream(g, other["token"], path)
    g.ask("DELETE", f"/v1/token/{victim['id']}")
    assert ends(s)
    if "api" in path:
        until(lambda: g.count("stream-1")["hangups"] == hangups + 1, "the agent hears of it")
    untouched.settimeout(0.3)
    try:
        while True:
            assert untouched.recv(65536), "the other one's stream goes on"
            if "api" in path:
                break
    except TimeoutError:
        pass
    untouched.close()
    g.ask("DELETE", f"/v1/token/{other['id']}")
    g.delete("stream-1")


def test_AUTH_07_a_waiting_request_ends_too(g):
    victim = make(g, "admin")
    g.put("hang-1")
    s = g.connect()
    s.sendall(f"GET /v1/sandbox/hang-1/api/hang HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {victim['token']}\r\n\r\n".encode())
    until(lambda: g.get("/v1/sandbox/hang-1").json()["activeRequests"] == 1)
    g.ask("DELETE", f"/v1/token/{victim['id']}")
    assert ends(s)
    until(lambda: g.get("/v1/sandbox/hang-1").json()["activeRequests"] == 0)
    g.delete("hang-1")


def test_AUTH_07_expired_during_a_stream(g):
    g.put("stream-2")
    begin = time.monotonic()
    victim = make(g, "one-sandbox", sandbox="stream-2", expiresIn=5)
    s = open_stream(g, victim["token"], "/v1/sandbox/stream-2/api/stream")
    assert ends(s)
    assert 4.7 < time.monotonic() - begin < 30
    assert g.api("stream-2", "ping", token=victim["token"]).status == 401
    assert [t["expired"] for t in g.get("/v1/token").json()["tokens"] if t["id"] == victim["id"]] == [True]
    g.delete("stream-2")


def test_a_token_may_revoke_itself(g):
    made = make(g, "admin")
    a = g.ask("DELETE", f"/v1/token/{made['id']}", token=made["token"])
    assert a.status == 200 and a.json()["success"] is True
    assert g.get("/v1/sandbox", token=made["token"]).status == 401


def test_AUTH_09_brute_force(make_gateway):
    g = make_gateway()
    source = "127.9.9.9"
    statuses = [g.get("/v1/sandbox", token=f"wrong{i}", source=source).status for i in range(60)]
    assert statuses[:20] == [401] * 20 and set(statuses[20:]) == {429}, statuses
    a = g.get("/v1/sandbox", source=source)
    assert a.status == 429 and a.error()["code"] == "TOO_MANY_FAILURES", "also with the right one"
    assert 0 < int(a.headers["Retry-After"]) <= 10
    assert g.get("/v1/sandbox", source="127.9.9.10").status == 200, "others are not concerned"
    assert g.get("/health", source=source, token=False).status == 200
    until(lambda: g.get("/v1/sandbox", source=source).status == 200, "the end of the wait")


def test_AUTH_09_many_addresses(make_gateway):
    """10 000 wrong tokens from as many addresses as the table has places twice over: memory stays, a stranger gets in."""
    g = make_gateway()
    before = g.memory()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: g.get("/v1/sandbox", token="wrong", source=f"127.10.{i >> 8}.{i & 255 or 1}").status,
                      range(2048)))
    assert g.get("/v1/sandbox", source="127.11.1.1").status == 200
    assert g.memory() - before < 8 << 20
