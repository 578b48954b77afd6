# SPDX-License-Identifier: Apache-2.0
"""The sandboxes as objects: ids, configuration, states."""
import concurrent.futures
import json
import os
import signal
import sqlite3
import time

import pytest
from conftest import AUTH, until

# ---------------------------------------------------------------- ids

GOOD_IDS = ["a", "A", "0", "my-app", "a.b", "a_b", "x" * 63, "UPPER", "a--b", "%61bc", "api1"]
BAD_IDS = [
    "", "x" * 64, "x" * 128, "x" * 129, "x" * 5000, "-a", "a-", ".", "..", ".a", "a.", "%2e%2e", "%2e", "..%2f..%2fetc",
    "a%2fb", "a%5cb", "a%00b", "%00", "a%0ab", "a%0d%0ab", "a%20b", "%20", "a+b", "a%", "a%2", "a%zz", "a%25", "%252e",
    "a:b", "a;b", "a,b", "a@b", "a!b", "a$b", "a&b", "a=b", "a*b", "a(b)", "a'b", "a~b", "%c3%a4", "%ff", "%e2%80%ae",
    "%f0%9f%98%80", "%ef%bc%8e%ef%bc%8e", "www", "api", "admin", "root", "system", "cloudflare", "workers", "WWW", "Api",
    "%61pi", "a%7f", "a%1b[0m", "a%22b", "a<b>", "a|b", "a^b", "a`b", "a%7bb%7d",
]


@pytest.mark.parametrize("sandbox", GOOD_IDS)
def test_good_ids(gateway, sandbox):
    assert gateway.put(sandbox).status in (200, 201)
    assert gateway.api(sandbox, "ping").status == 200
    assert gateway.delete(sandbox).json()["existed"] is True


@pytest.mark.parametrize("sandbox", BAD_IDS)
def test_bad_ids(gateway, sandbox):
    for method, path in (("GET", ""), ("PUT", ""), ("DELETE", ""), ("GET", "/api/ping"), ("POST", "/api/execute")):
        a = gateway.ask(method, f"/v1/sandbox/{sandbox}{path}")
        assert a.status == 400 and a.error()["code"] == "INVALID_SANDBOX_ID", (method, path, a)


@pytest.mark.parametrize("path", ["/v1/sandbox/../../etc/passwd", "/v1/sandbox/x/../y", "/v1//sandbox/x",
                                  "/v1/sandbox/x/api", "/v1/sandbox/x/apix", "/v1/sandbox/x/ap%69/ping", "/V1/sandbox/x",
                                  "/v1/sandbox/x/", "//v1/sandbox/x", "/v1/sandbox/x//api/ping", "/v2/sandbox"])
def test_paths_have_one_meaning(gateway, path):
    a = gateway.get(path)
    assert (a.status, a.error()["code"]) in ((404, "UNKNOWN_ROUTE"), (400, "INVALID_SANDBOX_ID"))


def test_ids_are_decoded_once(gateway):
    gateway.put("decoded")
    assert gateway.get("/v1/sandbox/de%63oded").json()["id"] == "decoded"
    gateway.delete("decoded")


def test_methods(gateway):
    a = gateway.ask("POST", "/v1/sandbox/x")
    assert a.status == 405 and a.error()["code"] == "METHOD_NOT_ALLOWED"
    assert a.headers["Allow"] == "GET, PUT, DELETE"
    assert gateway.ask("DELETE", "/v1/sandbox").headers["Allow"] == "GET"
    assert gateway.ask("TRACE", "/v1/sandbox").status in (405, 501, 400)


# ---------------------------------------------------------------- configuration

def test_put_creates_and_configures(gateway):
    config = {"image": "base", "instanceType": "basic", "env": {"A": "1", "B": "x y"}, "labels": {"team": "red"},
              "sleepAfter": "30s", "keepAlive": True, "ephemeral": False}
    a = gateway.put("conf", config)
    assert a.status == 201
    s = a.json()
    assert s["id"] == "conf" and s["state"] == "running" and s["instanceType"] == "basic"
    assert s["limits"]["memoryBytes"] == 2 << 30 and s["limits"]["cpu"] == 1
    assert s["sleepAfter"] == 30 and s["keepAlive"] is True and s["labels"] == {"team": "red"}
    assert s["envNames"] == ["A", "B"] and "x y" not in a.body.decode()
    assert gateway.count("conf")["env"] == "A=1\nB=x y\n"

    assert gateway.put("conf", config).status == 200
    a = gateway.put("conf", {"keepAlive": False, "labels": {"team": "blue"}, "sleepAfter": 60})
    assert a.status == 200
    s = gateway.get("/v1/sandbox/conf").json()
    assert s["keepAlive"] is False and s["labels"] == {"team": "blue"} and s["sleepAfter"] == 60
    assert s["envNames"] == ["A", "B"], "what is not given does not change"
    assert gateway.count("conf")["starts"] == 1
    gateway.delete("conf")


@pytest.mark.parametrize("change", [{"image": "other"}, {"instanceType": "basic"}, {"limits": {"memory": "512MiB"}},
                                    {"limits": {"cpu": 0.5}}, {"limits": {"tasks": 100}}])
def test_image_and_limits_cannot_change(gateway, change):
    gateway.put("fixed")
    a = gateway.put("fixed", change)
    assert a.status == 409 and a.error()["code"] == "SANDBOX_EXISTS"
    assert gateway.put("fixed", {"image": "base", "instanceType": "lite", "limits": {"cpu": 1, "tasks": 512}}).status == 200
    gateway.delete("fixed")


WRONG = [None, True, 0, -1, 1.5, 10**400, 2**31, 2**32, 2**53 + 1, 2**63, 1e308, "", "x" * 70000, "\x00", "\u202e", [], {}]
FIELDS = ["image", "instanceType", "limits", "env", "labels", "sleepAfter", "keepAlive", "ephemeral"]
LIMITS = ["memory", "memoryBytes", "disk", "diskBytes", "cpu", "tasks", "inodes", "ioBytesPerSecond",
          "ioOperationsPerSecond"]


@pytest.mark.parametrize("field", FIELDS + [f"limits.{name}" for name in LIMITS])
def test_wrong_values(gateway, field):
    refused = 0
    for value in WRONG:
        body = {"limits": {field[7:]: value}} if field.startswith("limits.") else {field: value}
        a = gateway.put("wrong", body)
        if a.status >= 400:
            e = a.error()
            assert a.status in (400, 404) and e["code"] in ("VALIDATION_FAILED", "BAD_REQUEST"), (value, a)
            if e["code"] == "VALIDATION_FAILED":
                assert e["context"]["field"] == field
            assert gateway.get("/v1/sandbox/wrong").status == 404, "a refused PUT creates nothing"
            refused += 1
        else:
            gateway.delete("wrong")
    assert refused >= 9


@pytest.mark.parametrize("body", [b"", b"{}", b' {"image":"base"} ', b'{"image":"nope","image":"base"}',
                                  b'{"unknown":{"deep":[1,2]},"image":"base"}'])
def test_accepted_bodies(gateway, body):
    assert gateway.put("bodies", raw=body).status == 201
    gateway.delete("bodies")


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b"1", b'"x"', b"{}x", b"{}{}", b"\xef\xbb\xbf{}", b"{/**/}",
                                  b'{"a":NaN}', b"{'a':1}", b'{"a":1,}', b'{"image":"\xff"}', b'{"image":"\\ud800"}',
                                  b"[" * 100000, b'{"a":' * 100000, b'{"image":"a\\u0000b"}', b"\x00"])
def test_bodies_that_are_no_configuration(gateway, body):
    a = gateway.put("nojson", raw=body)
    assert a.status == 400 and a.error()["code"] in ("BAD_REQUEST", "VALIDATION_FAILED")
    assert gateway.get("/v1/sandbox/nojson").status == 404


def test_too_large_a_body(gateway):
    a = gateway.put("large", raw=b" " * (1 << 20) + b"{}")
    assert a.status == 413 and a.error()["code"] == "PAYLOAD_TOO_LARGE"
    assert gateway.get("/v1/sandbox/large").status == 404


def test_strings_survive(gateway, make_gateway):
    value = 'tab\t quote" back\\ \u202e ünï 😀 \n'
    gateway.put("text", {"labels": {"k": value}, "env": {"K": value}})
    assert gateway.get("/v1/sandbox/text").json()["labels"] == {"k": value}
    gateway.delete("text")


# ---------------------------------------------------------------- listing

def test_list_and_filter(make_gateway):
    g = make_gateway()
    assert g.get("/v1/sandbox").json() == {"sandboxes": [], "count": 0}
    for name, team in (("one", "red"), ("two", "blue"), ("three", "red")):
        g.put(name, {"labels": {"team": team}})
    listing = g.get("/v1/sandbox").json()
    assert listing["count"] == 3
    assert [s["id"] for s in listing["sandboxes"]] == ["one", "two", "three"]
    assert all(s["memoryBytes"] == 12345678 and s["tasks"] == 3 for s in listing["sandboxes"])
    assert {s["id"] for s in g.get("/v1/sandbox?label=team=red").json()["sandboxes"]} == {"one", "three"}
    assert g.get("/v1/sandbox?label=team%3Dblue&state=running").json()["count"] == 1
    assert g.get("/v1/sandbox?label=team=green").json()["count"] == 0
    assert g.get("/v1/sandbox?state=asleep").json()["count"] == 0
    assert g.get("/v1/sandbox?state=dancing").status == 400
    assert g.get("/v1/sandbox?label=x").status == 400
    assert g.get("/health").json()["sandboxes"] == 3


# ---------------------------------------------------------------- life

def parallel(n, job):
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return list(pool.map(job, range(n)))


def test_one_start_for_many_first_requests(gateway):
    answers = parallel(50, lambda i: gateway.api("slow-crowd", f"echo?n={i}"))
    assert [a.status for a in answers] == [200] * 50
    assert {a.json()["target"] for a in answers} == {f"/api/echo?n={i}" for i in range(50)}
    c = gateway.count("slow-crowd")
    assert c["starts"] == 1 and c["malformed"] == 0
    gateway.delete("slow-crowd")


def test_health_answers_during_starts(gateway):
    def answered_meanwhile(attempt):
        waiting = [pool.submit(gateway.api, f"slow-h{attempt}-{i}", "ping") for i in range(4)]
        assert gateway.get("/health").status == 200
        meanwhile = not any(w.done() for w in waiting)
        assert [w.result().status for w in waiting] == [200] * 4
        return meanwhile

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert any(answered_meanwhile(attempt) for attempt in range(20))  # a start takes 300 ms, a slow machine looks again


@pytest.mark.parametrize("sandbox,config,status,code", [
    ("full-1", {}, 429, "HOST_FULL"), ("broken-1", {}, 500, "SANDBOX_START_FAILED"),
    ("noimage", {"image": "missing"}, 404, "IMAGE_NOT_FOUND")])
def test_failed_starts(gateway, sandbox, config, status, code):
    a = gateway.put(sandbox, config)
    assert a.status == status and a.error()["code"] == code
    assert (a.headers["Retry-After"] is not None) == (status == 429)
    assert gateway.get(f"/v1/sandbox/{sandbox}").status == 404, "nothing is left"
    if not config:
        answers = parallel(20, lambda i: gateway.api(sandbox, "ping"))
        assert all(a.status == status and a.error()["code"] == code for a in answers)
        assert a.error()["context"]["sandboxId"] == sandbox


def test_failed_start_leaves_no_row(make_gateway):
    g = make_gateway()
    g.put("full-2")
    g.put("stays")
    g.kill_gateway(signal.SIGTERM)
    assert [s["id"] for s in g.get("/v1/sandbox").json()["sandboxes"]] == ["stays"]


def test_delete_is_idempotent(gateway):
    gateway.put("gone")
    a = gateway.delete("gone")
    assert a.status == 200 and a.json() == {"success": True, "id": "gone", "existed": True}
    assert gateway.delete("gone").json() == {"success": True, "id": "gone", "existed": False}
    assert gateway.get("/v1/sandbox/gone").status == 404
    gateway.put("gone")
    answers = parallel(50, lambda i: gateway.delete("gone"))
    assert all(a.status == 200 for a in answers)
    assert any(a.json()["existed"] for a in answers)


def test_same_put_many_times(gateway):
    answers = parallel(50, lambda i: gateway.put("slow-same", {"labels": {"a": "b"}}))
    assert sorted(a.status for a in answers) == [200] * 49 + [201]
    assert gateway.count("slow-same")["starts"] == 1
    gateway.delete("slow-same")


def test_destroy_and_use_at_once_gives_a_fresh_one(gateway):
    gateway.put("slow-fresh", {"labels": {"old": "yes"}})
    first = gateway.count("slow-fresh")["generation"]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        gone = pool.submit(gateway.delete, "slow-fresh")
        use = pool.submit(gateway.api, "slow-fresh", "echo")
        assert gone.result().json()["existed"] is True
        # it came before or after the destroy; if after, it met a new sandbox
        assert use.result().status in (200, 502)
    a = gateway.api("slow-fresh", "echo")
    assert a.status == 200 and a.json()["generation"] > first
    assert gateway.get("/v1/sandbox/slow-fresh").json()["labels"] == {}
    gateway.delete("slow-fresh")


def test_destroy_while_starting(gateway):
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        name, use = gateway.starting(pool, "slow-cut")
        gone = pool.submit(gateway.delete, name)
        assert gone.result().json()["existed"] is True
        assert use.result().status == 200, "it waited, and got the one after"
    assert gateway.count(name)["starts"] == 2
    gateway.delete(name)


def test_put_during_destroy_makes_a_new_one(gateway):
    gateway.put("slow-renew", {"labels": {"a": "1"}})
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        gone = pool.submit(gateway.delete, "slow-renew")
        again = pool.submit(gateway.put, "slow-renew", {"image": "other"})
        assert gone.result().status == 200
        assert again.result().status in (201, 409)
    gateway.delete("slow-renew")


def test_a_destroy_that_fails_is_told(gateway):
    gateway.put("stuck-1")
    a = gateway.delete("stuck-1")
    assert a.status == 500 and a.error()["code"] == "SANDBOX_DESTROY_FAILED"
    assert gateway.get("/v1/sandbox/stuck-1").status == 200
    assert gateway.api("stuck-1", "ping").status == 200


def test_sleep_and_wake(gateway):
    gateway.put("sleepy", {"sleepAfter": 0.2, "env": {"A": "kept"}})
    until(lambda: gateway.state("sleepy") == "asleep", "falling asleep")
    before = gateway.get("/v1/sandbox/sleepy").json()
    assert before["memoryBytes"] == 0
    c = gateway.count("sleepy")
    assert c["starts"] == 2 and c["env"] == "A=kept\n"
    gateway.put("sleepy", {"keepAlive": True})
    gateway.api("sleepy", "ping")  # it may have slept before it was told
    time.sleep(0.5)  # more than sleepAfter: it must not have slept
    assert gateway.state("sleepy") == "running"
    gateway.delete("sleepy")


def test_a_request_keeps_it_awake(gateway):
    gateway.put("busy", {"sleepAfter": 0.2})
    assert gateway.use_and_watch("busy", "slow?ms=700").status == 200
    gateway.delete("busy")


def test_ended_sandbox_starts_again(gateway):
    gateway.put("mortal")
    assert gateway.api("mortal", "die").status == 502
    until(lambda: gateway.state("mortal") == "asleep")
    assert gateway.api("mortal", "echo").status == 200
    assert gateway.count("mortal")["starts"] == 2
    gateway.delete("mortal")


# ---------------------------------------------------------------- what survives

def test_promises_survive_kill(make_gateway):
    g = make_gateway()
    config = {"labels": {"a": "b"}, "sleepAfter": "1h", "limits": {"memory": "256MiB"}, "keepAlive": True}
    assert g.put("kept", config).status == 201
    assert g.api("first-use", "ping").status == 200
    g.put("deleted")
    g.delete("deleted")
    generation = g.count("kept")["generation"]
    before = g.get("/v1/sandbox/kept").json()
    g.kill_gateway()
    after = g.get("/v1/sandbox/kept").json()
    for field in ("id", "state", "image", "limits", "createdAt", "sleepAfter", "keepAlive", "labels"):
        assert before[field] == after[field]
    assert {s["id"] for s in g.get("/v1/sandbox").json()["sandboxes"]} == {"kept", "first-use"}
    assert g.count("kept")["generation"] == generation, "it kept running"


def test_kill_at_any_moment(make_gateway):
    """Whatever was answered before the kill is true after it."""
    g = make_gateway()
    for round_number in range(5):
        promised = set()

        def create(i):
            name = f"k{round_number}-{i}"
            try:
                if g.put(name, {"labels": {"n": name}}).status == 201:
                    promised.add(name)
            except OSError:
                pass

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(create, i) for i in range(40)]
            until(lambda: len(promised) > 4 * round_number)
            g.kill_gateway()
            concurrent.futures.wait(jobs)
        found = {s["id"]: s["labels"] for s in g.get("/v1/sandbox").json()["sandboxes"]}
        for name in promised:
            assert found[name] == {"n": name}


def test_last_use_is_written_at_the_end(make_gateway):
    g = make_gateway()
    g.put("used")
    time.sleep(0.01)  # so that the two times differ
    g.api("used", "ping")
    before = g.get("/v1/sandbox/used").json()["lastUsedAt"]
    g.kill_gateway(signal.SIGTERM)
    assert g.get("/v1/sandbox/used").json()["lastUsedAt"] == before


def test_what_cannot_be_written_is_not_promised(make_gateway):
    g = make_gateway()
    assert g.end() == 0
    with sqlite3.connect(os.path.join(g.directory, "state.db")) as db:
        db.execute("CREATE TRIGGER refuse BEFORE INSERT ON sandboxes WHEN NEW.id LIKE '%unsaved' "
                   "BEGIN SELECT RAISE(ABORT, 'no'); END")
    db.close()
    g = make_gateway(directory=g.directory)
    for sandbox in ("unsaved", "slow-unsaved"):
        for answer in (lambda: g.api(sandbox, "echo"), lambda: g.put(sandbox)):
            a = answer()
            assert a.status == 500 and a.error()["code"] == "STATE_NOT_SAVED"
            until(lambda: g.get(f"/v1/sandbox/{sandbox}").status == 404, "its removal")
    assert g.api("saved", "echo").status == 200


def test_a_change_that_cannot_be_written_does_not_happen(make_gateway):
    g = make_gateway()
    g.put("steady", {"labels": {"a": "1"}})
    assert g.end() == 0
    with sqlite3.connect(os.path.join(g.directory, "state.db")) as db:
        db.execute("CREATE TRIGGER refuse BEFORE INSERT ON sandboxes BEGIN SELECT RAISE(ABORT, 'no'); END")
    db.close()
    g = make_gateway(directory=g.directory)
    assert g.state("steady") == "asleep", "this keeper does not know it"
    a = g.put("steady", {"labels": {"a": "2"}})
    assert a.status == 500 and a.error()["code"] == "STATE_NOT_SAVED"
    assert g.get("/v1/sandbox/steady").json()["labels"] == {"a": "1"}
    assert g.api("steady", "echo").status == 200


def test_many_sandboxes(make_gateway):
    g = make_gateway()
    parallel(16, lambda i: [g.put(f"m{i}-{k}") for k in range(40)])
    assert g.get("/v1/sandbox").json()["count"] == 640
    g.kill_gateway()
    assert g.get("/health").json()["sandboxes"] == 640
    parallel(16, lambda i: [g.delete(f"m{i}-{k}") for k in range(40)])
    assert g.get("/v1/sandbox").json()["count"] == 0


def test_answers_wait_for_the_record_of_the_keeper(gateway):
    for answer in (lambda: gateway.api("late-1", "echo"), lambda: gateway.put("late-2")):
        begin = time.monotonic()
        assert answer().status in (200, 201)
        assert time.monotonic() - begin > 0.14

    def next_time():
        begin = time.monotonic()
        assert gateway.api("late-1", "echo").status == 200
        return time.monotonic() - begin

    assert min(next_time() for _ in range(20)) < 0.14, "the next times it is on disk"


def test_what_the_keeper_cannot_record_is_not_promised(gateway):
    for answer in (lambda: gateway.api("unrecorded-1", "echo"), lambda: gateway.put("unrecorded-1")):
        a = answer()
        assert a.status == 500 and a.error()["code"] == "STATE_NOT_SAVED"
        until(lambda: gateway.get("/v1/sandbox/unrecorded-1").status == 404, "its removal")
