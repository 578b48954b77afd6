# SPDX-License-Identifier: Apache-2.0
"""Freezing, sleeping, waking, and agents that do not answer: the state machine with a keeper that only pretends."""
import concurrent.futures
import http.client
import os
import sqlite3
import time

import pytest
from conftest import until
from test_events import Stream


@pytest.fixture(scope="module")
def g(make_gateway):
    return make_gateway("--freeze-after", "300", "--silence", "400")


def life(g, sandbox, verb):
    return g.ask("POST", f"/v1/sandbox/{sandbox}/{verb}")


# ---------------------------------------------------------------- freezing

def test_idle_is_frozen_and_thawed_by_use(g):
    g.put("cold")
    until(lambda: g.state("cold") == "frozen", "the freeze")
    generation = g.count("cold")["generation"]
    until(lambda: g.count("cold") and g.state("cold") == "running", "the thaw, before the next freeze")
    assert g.count("cold")["generation"] == generation and g.count("cold")["starts"] == 1
    until(lambda: g.state("cold") == "frozen", "the second freeze")
    assert g.get("/v1/sandbox/cold").json()["state"] == "frozen", "looking does not wake"
    assert g.delete("cold").json()["existed"] is True


def test_background_process_keeps_it_running(g):
    g.put("busy")
    g.api("busy", "background?n=1")
    time.sleep(1.2)  # several times the idle time: it must not have been frozen
    assert g.state("busy") == "running"
    g.api("busy", "background?n=0")
    until(lambda: g.state("busy") == "frozen", "the freeze after the process ended")
    g.delete("busy")


def test_cpu_use_keeps_it_running(g):
    g.put("worker-1")
    time.sleep(1.2)
    assert g.state("worker-1") == "running"
    g.delete("worker-1")


def test_a_request_in_flight_keeps_it_running(g):
    g.put("held")
    assert g.use_and_watch("held", "slow?ms=1200").status == 200
    g.delete("held")


def test_keep_alive_is_never_frozen(g):
    g.put("alive", {"keepAlive": True, "sleepAfter": 0.2})
    time.sleep(1.0)
    assert g.state("alive") == "running"
    g.put("alive", {"keepAlive": False})
    until(lambda: g.state("alive") == "asleep")
    g.delete("alive")


def test_what_cannot_be_frozen_runs_on(g):
    g.put("restless-1")
    time.sleep(1.0)
    assert g.state("restless-1") == "running"
    assert g.api("restless-1", "ping").status == 200
    g.delete("restless-1")


def test_frozen_falls_asleep(g):
    s = Stream(g, "?sandbox=deep")
    g.put("deep", {"sleepAfter": 3})
    assert s.types(4) == ["created", "started", "frozen", "asleep"]
    s.close()
    assert g.count("deep")["starts"] == 2
    g.delete("deep")


def test_use_at_the_moment_of_freezing(g):
    """Requests all around the time of the freeze: every one is answered."""
    def use(i):
        name = f"edge-{i}"
        g.put(name)
        for _ in range(2):
            time.sleep(0.28 + 0.002 * i)
            assert g.api(name, "ping").status == 200
        assert g.count(name)["starts"] == 1
        g.delete(name)

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        list(pool.map(use, range(40)))


def test_frozen_survives_the_gateway(make_gateway):
    g = make_gateway("--freeze-after", "300")
    g.put("ice")
    until(lambda: g.state("ice") == "frozen")
    g.kill_gateway()
    assert g.state("ice") == "frozen"
    assert g.api("ice", "ping").status == 200 and g.count("ice")["starts"] == 1


# ---------------------------------------------------------------- sleep and wake on demand

def test_sleep_and_wake(g):
    g.put("doze", {"env": {"A": "1"}})
    a = life(g, "doze", "sleep")
    assert a.status == 200 and a.json()["state"] == "asleep" and a.json()["id"] == "doze"
    assert life(g, "doze", "sleep").json()["state"] == "asleep", "again is fine"
    a = life(g, "doze", "wake")
    assert a.status == 200 and a.json()["state"] == "running"
    assert life(g, "doze", "wake").json()["state"] == "running"
    assert g.count("doze")["starts"] == 2
    until(lambda: g.state("doze") == "frozen")
    assert life(g, "doze", "wake").json()["state"] == "running"
    assert g.count("doze")["starts"] == 2
    g.delete("doze")


@pytest.mark.parametrize("verb", ["sleep", "wake"])
def test_unknown_ones(g, verb):
    a = life(g, "nobody", verb)
    assert a.status == 404 and a.error()["code"] == "SANDBOX_NOT_FOUND"
    assert g.get("/v1/sandbox/nobody").status == 404, "nothing was made"
    assert g.ask("GET", f"/v1/sandbox/nobody/{verb}").status == 405


def test_keep_alive_sleeps_when_told(g):
    g.put("told", {"keepAlive": True})
    assert life(g, "told", "sleep").json()["state"] == "asleep"
    g.delete("told")


def test_sleep_ends_what_is_in_flight(g):
    g.put("cut")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(g.api, "cut", "hang")
        until(lambda: g.get("/v1/sandbox/cut").json()["activeRequests"] == 1)
        assert life(g, "cut", "sleep").json()["state"] == "asleep"
        a = answer.result()
        assert a.status == 502 and a.error()["code"] == "SANDBOX_UNAVAILABLE"
    assert g.api("cut", "ping").status == 200
    g.delete("cut")


def test_sleep_during_a_start(g):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        name, use = g.starting(pool, "slow-tired")
        assert life(g, name, "sleep").status == 200
        assert use.result().status == 200, "it waited, and was served after the sleep"
    g.delete(name)


def test_sleep_during_a_destroy(g):
    g.put("stuck-tired")
    a = life(g, "stuck-tired", "sleep")
    assert a.status == 200
    assert life(g, "stuck-tired", "wake").json()["state"] == "running"


def test_wake_that_fails(make_gateway):
    g = make_gateway()
    g.put("lame")
    life(g, "lame", "sleep")
    g.end()
    with sqlite3.connect(os.path.join(g.directory, "state.db")) as db:
        db.execute("UPDATE sandboxes SET image = 'missing' WHERE id = 'lame'")
    db.close()
    g = make_gateway(directory=g.directory)
    a = life(g, "lame", "wake")
    assert a.status == 404 and a.error()["code"] == "IMAGE_NOT_FOUND"
    assert g.state("lame") == "asleep", "it is still there"


def test_ephemeral_forgets_and_keeps_its_settings(g):
    g.put("brief", {"ephemeral": True, "env": {"A": "1"}, "labels": {"l": "1"}, "sleepAfter": 0.3})
    first = g.count("brief")["generation"]
    until(lambda: g.state("brief") == "asleep")
    c = g.count("brief")
    assert c["env"] == "A=1\n" and c["generation"] > first
    s = g.get("/v1/sandbox/brief").json()
    assert s["labels"] == {"l": "1"} and s["ephemeral"] is True
    g.delete("brief")


# ---------------------------------------------------------------- agents that do not answer

def test_AGT_01_wedged_agent_is_given_up(g):
    g.put("wedged", {"keepAlive": True})
    assert g.api("wedged", "wedge").status == 200
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda i: g.api("wedged", "echo"), range(5)))
    assert [a.status for a in answers] == [502] * 5
    assert {a.error()["code"] for a in answers} == {"SANDBOX_UNAVAILABLE"}
    assert 3.5 < time.monotonic() - begin < 40, "the silence, and two pings of two seconds"
    assert g.api("wedged", "echo").status == 200, "the next request works"
    assert g.count("wedged")["starts"] == 2
    g.delete("wedged")


def test_silence_alone_is_no_sign(g):
    g.put("quiet", {"keepAlive": True})
    assert g.api("quiet", "slow?ms=3000").status == 200
    assert g.count("quiet")["starts"] == 1
    g.delete("quiet")


def test_wedged_agent_can_be_destroyed(gateway):
    gateway.put("wedged-2")
    gateway.api("wedged-2", "wedge")
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(gateway.api, "wedged-2", "echo", method="POST")
        until(lambda: gateway.get("/v1/sandbox/wedged-2").json()["activeRequests"] == 1)
        assert gateway.delete("wedged-2").json()["existed"] is True
        assert answer.result().status == 502
    assert time.monotonic() - begin < 25, "long before it is given up"


# ---------------------------------------------------------------- every call in every state

CALLS = [("GET", ""), ("PUT", ""), ("DELETE", ""), ("POST", "/sleep"), ("POST", "/wake"), ("GET", "/api/ping"),
         ("POST", "/api/execute"), ("GET", "/ports")]


@pytest.mark.parametrize("call", CALLS, ids=lambda c: c[0] + c[1].replace("/", "-"))
@pytest.mark.parametrize("state", ["absent", "starting", "running", "frozen", "asleep", "ended", "destroying", "failed"])
def test_API_12_every_call_in_every_state(g, state, call):
    """A typed answer, and a sandbox that works afterwards."""
    method, path = call
    name = ("slow-" if state in ("starting", "destroying") else "") + "m-" + state + "-" + str(CALLS.index(call))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        pending = []
        if state == "starting":
            name, use = g.starting(pool, name)
            pending.append(use)
        elif state == "failed":
            assert g.api("broken-" + name, "ping").status == 500
            name = "broken-" + name
        elif state != "absent":
            assert g.put(name).status == 201
        if state == "frozen":
            until(lambda: g.state(name) == "frozen")
        elif state == "asleep":
            assert life(g, name, "sleep").status == 200
        elif state == "ended":
            g.api(name, "die")
        elif state == "destroying":
            pending.append(pool.submit(g.delete, name))
        a = None
        try:
            a = g.ask(method, f"/v1/sandbox/{name}{path}", body="{}" if method in ("PUT", "POST") else None)
        except http.client.IncompleteRead:
            assert state == "destroying"  # it was being answered: a cut answer is seen to be one
        if a and a.status >= 400:
            allowed = {"SANDBOX_NOT_FOUND", "SANDBOX_START_FAILED", "SANDBOX_UNAVAILABLE"}
            assert a.error()["code"] in allowed, a
            assert state in ("absent", "destroying", "failed", "ended"), a
        for p in pending:
            assert p.result().status in (200, 502), p.result()
    if state != "failed":
        assert g.api(name, "ping").status == 200
        g.delete(name)


@pytest.mark.parametrize("call", [("PUT", ""), ("DELETE", ""), ("POST", "/sleep"), ("POST", "/wake")],
                         ids=lambda c: c[0] + c[1].replace("/", "-"))
def test_API_11_same_call_fifty_times(g, call):
    name = "slow-same-" + call[0].lower() + call[1].replace("/", "-")
    if call[0] != "PUT":
        g.put(name)
    before = g.count(name)["starts"] if call[0] != "PUT" else 0
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda i: g.ask(call[0], f"/v1/sandbox/{name}{call[1]}",
                                                body="{}" if call[0] == "PUT" else None), range(50)))
    assert all(a.status in (200, 201) for a in answers)
    if call[0] == "PUT":
        assert sum(a.status == 201 for a in answers) == 1
    assert g.count(name)["starts"] <= before + 1
    g.delete(name)
