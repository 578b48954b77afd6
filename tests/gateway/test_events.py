# SPDX-License-Identifier: Apache-2.0
"""Events, metrics, and the filters of the listing."""
import json
import re
import time

import pytest
from conftest import AUTH, DEADLINE, until
from test_time import HOUR, clock  # noqa: F401  (a fixture)
from test_tokens import make


class Stream:
    """One stream of events, read line by line."""

    def __init__(self, g, query="", token=True, last=None):
        self.c = g.connection()
        headers = dict(AUTH) if token is True else {"Authorization": f"Bearer {token}"}
        if last:
            headers["Last-Event-ID"] = last
        self.c.request("GET", "/v1/events" + query, headers=headers)
        self.r = self.c.getresponse()
        assert self.r.status == 200 and self.r.headers["Content-Type"] == "text/event-stream", self.r.read()
        assert self.r.readline() == b": events\n" and self.r.readline() == b"\n"

    def next(self):
        event, last = None, None
        while True:
            line = self.r.readline()
            assert line, "the stream ended"
            if line.startswith(b"id: "):
                last = line[4:].strip().decode()
            elif line.startswith(b"data: "):
                event = json.loads(line[6:])
            elif line == b"\n" and event is not None:
                return {**event, "event_id": last}

    def next_of_many(self):
        """The next one, whether a slow machine has frozen the sandbox meanwhile or not."""
        while (event := self.next())["type"] in ("frozen", "thawed"):
            pass
        return event

    def types(self, n):
        return [self.next()["type"] for _ in range(n)]

    def close(self):
        self.c.close()


@pytest.fixture(scope="module")
def g(make_gateway):
    return make_gateway("--freeze-after", "300")


def test_a_life_in_events(g):
    s = Stream(g, "?sandbox=told")
    g.put("told", {"sleepAfter": "1h"})
    first = s.next()
    assert first["type"] == "created" and first["sandboxId"] == "told" and first["timestamp"].endswith("Z")
    assert s.types(1) == ["started"]
    frozen = s.next()
    assert frozen["type"] == "frozen" and frozen["reason"] == "idle"
    g.api("told", "ping")
    assert s.types(1) == ["thawed"]
    g.ask("POST", "/v1/sandbox/told/sleep")
    asleep = s.next_of_many()
    assert asleep["type"] == "asleep" and asleep["reason"] == "requested"
    g.ask("POST", "/v1/sandbox/told/wake")
    assert s.types(1) == ["woken"]
    g.api("told", "die")
    assert s.next_of_many()["type"] == "exited"
    g.delete("told")
    assert s.types(1) == ["destroyed"]
    s.close()


def test_a_failed_start(g):
    s = Stream(g)
    g.put("full-ev")
    failed = s.next()
    assert failed["type"] == "failed" and failed["sandboxId"] == "full-ev" and "no room" in failed["reason"]
    s.close()


def test_created_is_told_when_it_is_durable(g):
    s = Stream(g, "?sandbox=late-ev")
    begin = time.monotonic()
    g.api("late-ev", "echo")
    assert s.next()["type"] == "created" and time.monotonic() - begin > 0.14
    g.delete("late-ev")
    s.close()
    s = Stream(g)
    assert g.api("unrecorded-ev", "echo").status == 500
    until(lambda: g.get("/v1/sandbox/unrecorded-ev").status == 404)
    g.put("after-unrecorded")
    assert s.next()["sandboxId"] == "after-unrecorded", "nobody heard of what could not be recorded"
    g.delete("after-unrecorded")
    s.close()


def test_replay_from_the_last_id(g):
    s = Stream(g)
    g.put("again-1", {"keepAlive": True})  # it is not frozen
    first = s.next()
    s.close()
    g.delete("again-1")
    g.put("again-2", {"keepAlive": True})
    s = Stream(g, last=first["event_id"])
    assert [(e["type"], e["sandboxId"]) for e in (s.next() for _ in range(4))] == [
        ("started", "again-1"), ("destroyed", "again-1"), ("created", "again-2"), ("started", "again-2")]
    s.close()
    s = Stream(g, f"?lastEventId={first['event_id']}&sandbox=again-2")
    assert s.types(2) == ["created", "started"]
    s.close()
    g.delete("again-2")


@pytest.mark.parametrize("last", ["x", "nonsense-3", "-", "99", "a" * 100])
def test_an_id_of_another_life(g, last):
    s = Stream(g, last=last)
    assert s.next()["type"] == "gap"
    s.close()


def test_tokens_hear_only_their_own(g):
    a = make(g, "create-only")["token"]
    s, bound = Stream(g, token=a), Stream(g, token=make(g, "one-sandbox", sandbox="ev-bound")["token"])
    g.put("ev-admin")
    g.put("ev-bound")
    g.ask("PUT", "/v1/sandbox/ev-a", body="{}", token=a)
    assert s.next()["sandboxId"] == "ev-a" and bound.next()["sandboxId"] == "ev-bound"
    for name in ("ev-admin", "ev-bound", "ev-a"):
        g.delete(name)
    s.close()
    bound.close()


def test_slow_readers_lose_and_are_told(make_gateway):
    """A subscriber that does not read: the gateway's memory stays, and what was missed is counted."""
    g = make_gateway()
    s = g.connect()
    s.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: " + AUTH["Authorization"].encode() + b"\r\n\r\n")
    before = g.memory()
    name = "full-" + "x" * 58  # a start that fails: an event without a sandbox
    c = g.connection()
    rounds = 0
    while b"silica_event_subscribers 1" in g.get("/metrics").body and rounds < 60000:
        for _ in range(1000):
            c.request("PUT", f"/v1/sandbox/{name}", headers=AUTH)
            assert c.getresponse().read()
        rounds += 1000
        if rounds * 280 > 8 << 20:  # more than the kernel buffers for anybody
            break
    c.close()
    assert g.memory() - before < 24 << 20
    s.settimeout(DEADLINE)
    text = b""
    while b'"type":"gap","missed":' not in text:
        piece = s.recv(1 << 20)
        assert piece
        text = text[-200:] + piece
    assert 0 < int(re.search(rb'"missed":(\d+)', text).group(1)) < rounds
    s.close()


def test_subscribers_are_limited(make_gateway):
    g = make_gateway()
    streams = [Stream(g) for _ in range(256)]
    a = g.get("/v1/events")
    assert a.status == 429 and a.error()["code"] == "TOO_MANY_REQUESTS" and a.headers["Retry-After"]
    streams.pop().close()
    until(lambda: "silica_event_subscribers 255" in g.get("/metrics").body.decode())
    streams.append(Stream(g))
    for s in streams:
        s.close()


def test_bad_subscriptions(g):
    assert g.get("/v1/events?sandbox=../x").status == 400
    assert g.ask("HEAD", "/v1/events").status == 200
    assert g.ask("POST", "/v1/events").status == 405


# ---------------------------------------------------------------- metrics

def metrics(g):
    found = {}
    for line in g.get("/metrics").body.decode().splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name] = float(value)
    return found


def test_metrics_count(make_gateway):
    g = make_gateway()
    a = g.get("/metrics")
    assert a.status == 200 and a.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    before = metrics(g)
    g.put("m1")
    g.api("m2", "echo", method="POST", body="x" * 1000)
    g.put("full-m")
    g.api("m1", "die")
    g.get("/nowhere")
    g.get("/v1/sandbox", token="wrong")
    m = metrics(g)

    def grew(name):
        return m.get(name, 0) - before.get(name, 0)

    assert m['silica_sandboxes{state="running"}'] == 1 and m['silica_sandboxes{state="asleep"}'] == 1
    assert grew('silica_sandbox_events_total{event="created"}') == 2
    assert grew('silica_sandbox_events_total{event="failed"}') == 1
    assert grew('silica_sandbox_events_total{event="exited"}') == 1
    assert grew("silica_start_seconds_count") == 2
    assert m['silica_start_seconds_bucket{le="+Inf"}'] == m["silica_start_seconds_count"]
    buckets = [v for k, v in m.items() if k.startswith("silica_start_seconds_bucket")]
    assert buckets == sorted(buckets)
    assert grew('silica_requests_total{route="sandbox",status="2xx"}') == 1
    assert grew('silica_requests_total{route="sandbox",status="4xx"}') == 2
    assert grew('silica_requests_total{route="api",status="2xx"}') == 1
    assert grew('silica_requests_total{route="api",status="5xx"}') == 1
    assert grew('silica_requests_total{route="other",status="4xx"}') == 1
    assert grew('silica_agent_bytes_total{direction="to"}') == 1000
    assert grew('silica_agent_bytes_total{direction="from"}') > 1000
    assert grew("silica_auth_failures_total") == 1
    assert m["silica_requests_in_flight"] == 1, "this one"
    assert m["silica_connections"] >= 1


def test_OPS_05_cardinality(make_gateway):
    """Thousands of ids, paths and tokens: the number of series stays."""
    g = make_gateway()
    g.put("one")
    for path in ("/v1/sandbox/nobody", "/nowhere"):
        g.get(path)
    g.delete("one")
    before = len(metrics(g))
    c = g.connection()
    for i in range(1000):
        for method, path in (("GET", f"/v1/sandbox/id-{i}"), ("GET", f"/path/{i}"), ("DELETE", f"/v1/sandbox/id-{i}")):
            c.request(method, path, headers=AUTH)
            c.getresponse().read()
    c.close()
    for i in range(30):
        g.put(f"id-{i}")
    assert len(metrics(g)) <= before + 1


# ---------------------------------------------------------------- listing

def test_filters(make_gateway, clock):  # noqa: F811
    g = make_gateway()
    g.put("old", {"labels": {"team": "red", "env": "prod"}, "keepAlive": True})
    clock.jump(wall=HOUR, mono=HOUR, boot=HOUR)
    g.put("new", {"labels": {"team": "red"}})

    def ids(query):
        a = g.get("/v1/sandbox?" + query)
        assert a.status == 200, a
        return [s["id"] for s in a.json()["sandboxes"]]

    assert ids("label=team=red") == ["old", "new"] and ids("label=team=red&label=env=prod") == ["old"]
    assert ids("label=env=prod&label=team=blue") == []
    assert ids("olderThan=30m") == ["old"] and ids("newerThan=30m") == ["new"]
    assert ids("idle=30m") == ["old"] and ids("idle=2h") == []
    assert ids("state=running&newerThan=2h&label=team%3Dred") == ["old", "new"]
    g.api("old", "ping")
    assert ids("idle=30m") == []
    assert g.get("/v1/sandbox").json()["sandboxes"][0]["oomKills"] == 2


@pytest.mark.parametrize("query,field", [("olderThan=x", "olderThan"), ("newerThan=1", "newerThan"), ("idle=-1s", "idle"),
                                         ("label=x", "label"), ("label==x", "label"), ("state=", "state"),
                                         ("&".join(f"label=a{i}=b" for i in range(17)), "label"),
                                         pytest.param("label=" + "x" * 2000 + "=y", "label", id="long")])
def test_bad_filters(g, query, field):
    a = g.get("/v1/sandbox?" + query)
    assert a.status == 400 and a.error()["context"]["field"] == field
