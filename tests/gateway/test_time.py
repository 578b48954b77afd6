# SPDX-License-Identifier: Apache-2.0
"""Clocks that jump, a host that was suspended, years to come, and a thousand sandboxes whose time is up at once (catalogue
area 14). A debug build adds to its clocks what the file SILICA_CLOCK says; the machine's own are left alone."""
import concurrent.futures
import http.client
import json
import os
import re
import struct
import time

import pytest
from conftest import AUTH, DEADLINE, until

HOUR, YEAR = 3600, 365 * 86400


class Clock:
    """What is added to the gateway's clocks, in seconds."""

    def __init__(self, path):
        self.path = path
        self.jump()

    def jump(self, wall=0, mono=0, boot=0):
        with open(self.path, "r+b" if os.path.exists(self.path) else "wb") as f:
            f.write(struct.pack("=qqq", *(int(s * 1_000_000) for s in (wall, mono, boot))))


@pytest.fixture
def clock(tmp_path, monkeypatch):
    made = Clock(str(tmp_path / "clock"))
    monkeypatch.setenv("SILICA_CLOCK", made.path)
    return made


def token(g, **fields):
    r = g.ask("POST", "/v1/token", body=json.dumps({"scope": "read-only", **fields}))
    assert r.status == 201, r
    return r.json()["token"]


def opens(g, secret):
    return g.get("/v1/sandbox", token=secret).status == 200


def year_told(g):
    return int(g.get("/v1/nothing").error()["timestamp"][:4])


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 10 * YEAR, -10 * YEAR])
def test_TIME_01_the_wall_clock_jumps(make_gateway, clock, jump):
    """Nothing expires and nothing is prolonged: neither idle sandboxes nor tokens; only what is displayed changes."""
    g = make_gateway("--freeze-after", "0")
    g.put("idle", {"sleepAfter": 30 * 60})
    short, long = token(g, expiresIn=1800), token(g, expiresIn=90 * 86400)
    clock.jump(wall=jump)
    assert abs(year_told(g) - time.gmtime(time.time() + jump).tm_year) <= 1, "the jump is seen"
    assert opens(g, short) and opens(g, long)
    assert {t["expired"] for t in g.get("/v1/token").json()["tokens"]} == {False}
    assert g.state("idle") == "running" and g.count("idle")["starts"] == 1

    clock.jump(wall=jump, mono=HOUR, boot=HOUR)  # an hour really passes
    until(lambda: g.state("idle") == "asleep", "the sleep")
    assert not opens(g, short) and opens(g, long)


def test_TIME_01_a_clock_set_back_while_the_gateway_is_down(make_gateway, clock):
    """After a restart only the wall clock tells how long ago a token was made; it lives no longer than it was made for."""
    g = make_gateway()
    short = token(g, expiresIn=1800)
    clock.jump(wall=-10 * YEAR)
    g.kill_gateway()
    assert opens(g, short)
    clock.jump(wall=-10 * YEAR, mono=HOUR, boot=HOUR)
    assert not opens(g, short)


def test_TIME_02_the_host_was_suspended(make_gateway, clock):
    """Suspended time is no idle time, but a token's time goes on: boot time runs while monotonic time stands."""
    g = make_gateway("--freeze-after", "0")
    g.put("idle", {"sleepAfter": 30 * 60})
    short, long = token(g, expiresIn=1800), token(g, expiresIn=7200)
    clock.jump(wall=HOUR, boot=HOUR)
    assert not opens(g, short) and opens(g, long)
    assert g.state("idle") == "running"
    clock.jump(wall=HOUR, boot=HOUR, mono=HOUR)
    until(lambda: g.state("idle") == "asleep", "the sleep, now that it was idle")


@pytest.mark.parametrize("year", [2040, 2110])
def test_TIME_04_beyond_2038_and_2106(make_gateway, clock, year):
    clock.jump(wall=(year - time.gmtime().tm_year) * 365.25 * 86400)
    g = make_gateway()
    assert g.put("later", {"sleepAfter": 600}).status == 201
    made = g.get("/v1/sandbox/later").json()["createdAt"]
    assert re.fullmatch(rf"{year}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ", made), made
    secret = token(g, expiresIn=3600)
    assert opens(g, secret)
    assert re.search(rf"\b{year}\b", g.get("/health").headers["Date"])
    g.kill_gateway()  # and read back from the database
    assert g.get("/v1/sandbox/later").json()["createdAt"] == made and opens(g, secret)
    assert g.api("later", "ping").status == 200


def test_TIME_05_a_thousand_sandboxes_expire_at_once(make_gateway, clock):
    """Each is put to sleep once, and requests are answered all the while."""
    many = 1000
    g = make_gateway("--freeze-after", "0")

    def create(first):
        c = http.client.HTTPConnection("127.0.0.1", g.port, timeout=DEADLINE)
        for i in range(first, many, 16):
            c.request("PUT", f"/v1/sandbox/s{i}", body='{"sleepAfter": 1800}', headers=AUTH)
            r = c.getresponse()
            r.read()
            assert r.status == 201
        c.close()

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(create, range(16)))
    g.put("steady", {"keepAlive": True})
    clock.jump(mono=HOUR)
    answered = 0

    def asleep():
        nonlocal answered
        assert g.api("steady", "ping").status == 200
        answered += 1
        return f'silica_sandboxes{{state="asleep"}} {many}\n' in g.get("/metrics").body.decode()

    until(asleep, "a thousand sleeping sandboxes")
    assert answered and g.state("steady") == "running"
    assert g.count("s7")["starts"] == 2, "the next use wakes it"
