# SPDX-License-Identifier: Apache-2.0
"""Sleeping, waking, watching and tokens on the command line."""
import json
import signal

import pytest
from conftest import DEADLINE, read_until
from test_verbs import sandbox


# ---- sleep, wake

@pytest.mark.parametrize("verb,state", [("sleep", "asleep"), ("wake", "running")])
def test_sleep_and_wake(fake, silica, verb, state):
    for name in ("a", "b"):
        fake.answer("POST", f"/v1/sandbox/{name}/{verb}", sandbox(name, state=state))
    r = silica.run(verb, "a", "b")
    assert (r.returncode, r.stdout, r.stderr) == (0, b"a\nb\n", b"")
    assert [(q.method, q.path) for q in fake.requests] == [("POST", f"/v1/sandbox/a/{verb}"), ("POST", f"/v1/sandbox/b/{verb}")]


@pytest.mark.parametrize("verb", ["sleep", "wake"])
def test_one_fails_the_rest_is_tried(fake, silica, verb):
    fake.answer("POST", f"/v1/sandbox/a/{verb}", {"code": "SANDBOX_NOT_FOUND", "message": "there is no sandbox 'a'"}, 404)
    fake.answer("POST", f"/v1/sandbox/b/{verb}", sandbox("b"))
    r = silica.run(verb, "a", "b")
    assert r.returncode == 125 and r.stdout == b"b\n" and b"there is no sandbox 'a'" in r.stderr
    r = silica.run(verb)
    assert r.returncode == 125 and b"is missing" in r.stderr


# ---- events

def test_events_line_by_line(fake, silica):
    @fake.on("GET", "/v1/events")
    def events(h, request):
        h.events()
        h.chunk(b": events\n\n")
        h.event(type="created", sandboxId="demo", timestamp="2026-01-02T03:04:05.678Z")
        h.event(type="asleep", sandboxId="demo", timestamp="2026-01-02T03:04:06.678Z", reason="idle\x1b[2J")
        h.event(type="gap", missed=7)
        h.end()

    r = silica.run("events", "--sandbox", "demo")
    lines = r.stdout.decode().splitlines()
    assert lines[0].split() == ["2026-01-02T03:04:05.678Z", "created", "demo"]
    assert lines[1].split() == ["2026-01-02T03:04:06.678Z", "asleep", "demo", "idle?[2J"]
    assert "7 events were missed" in lines[2]
    assert r.returncode == 125 and b"ended the stream" in r.stderr, "it goes on for ever, unless something is wrong"
    assert fake.requests[0].path == "/v1/events?sandbox=demo"
    r = silica.run("events", "--json")
    assert [json.loads(line)["type"] for line in r.stdout.splitlines()] == ["created", "asleep", "gap"]


def test_events_arrive_at_once(fake, silica):
    @fake.on("GET", "/v1/events")
    def events(h, request):
        h.events()
        h.event(type="created", sandboxId="demo", timestamp="2026-01-02T03:04:05.678Z")
        h.rfile.read(1)  # until the caller goes

    p = silica.start("events")
    assert b"created" in read_until(p.stdout.fileno(), b"\n")
    p.send_signal(signal.SIGINT)
    assert p.wait(DEADLINE) == -signal.SIGINT


def test_events_refused(fake, silica):
    fake.answer("GET", "/v1/events", {"code": "FORBIDDEN", "message": "this token may not do that"}, 403)
    r = silica.run("events")
    assert r.returncode == 125 and b"may not do that" in r.stderr
    assert silica.run("events", "--sandbox", "a/b").returncode == 125
    assert silica.run("events", "extra").returncode == 125


# ---- top

def test_top_once(fake, silica):
    looks = []

    @fake.on("GET", "/v1/sandbox")
    def listing(h, request):
        looks.append(request)
        h.json({"sandboxes": [
            sandbox("lazy", cpuSeconds=1, memoryPeakBytes=4 << 20, oomKills=0, diskBytes=1 << 20, limits={"memoryBytes": 1 << 30}),
            sandbox("busy", cpuSeconds=10 * len(looks), memoryPeakBytes=9 << 20, oomKills=3, diskBytes=2 << 20,
                    limits={"memoryBytes": 2 << 30})]})

    r = silica.run("top")
    rows = [line.split("\t") for line in r.stdout.decode().splitlines()]
    assert rows[0] == ["ID", "STATE", "CPU%", "CPU", "MEMORY", "PEAK", "LIMIT", "DISK", "TASKS", "OOM"]
    assert [row[0] for row in rows[1:]] == ["busy", "lazy"], "the busiest first"
    assert float(rows[1][2]) > 20 and float(rows[2][2]) == 0  # ten seconds of work between two looks, whenever the second one is
    assert rows[1][3:] == ["20.0s", "3 MiB", "9 MiB", "2 GiB", "2 MiB", "5", "3"]
    assert len(looks) == 2, "a rate needs two looks"
    assert b"\x1b" not in r.stdout
    assert json.loads(silica.run("top", "--json").stdout)["sandboxes"][0]["id"] == "lazy"


def test_top_renews_on_a_terminal(fake, silica):
    import os
    import pty
    fake.answer("GET", "/v1/sandbox", {"sandboxes": [sandbox("demo")]})
    master, slave = pty.openpty()
    p = silica.start("top", "-n", "200ms", stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    shown = read_until(master, b"demo")
    shown += read_until(master, b"\x1b[H\x1b[J")
    p.send_signal(signal.SIGINT)
    assert p.wait(DEADLINE) == -signal.SIGINT
    os.close(master)
    assert b"\x1b[H\x1b[J" in shown


# ---- logs

def test_logs(fake, silica):
    fake.answer("GET", "/v1/sandbox/demo/api/process/my%20job/logs", {"stdout": "out\x00put\n", "stderr": "err\n"})
    r = silica.run("logs", "demo", "my job")
    assert (r.returncode, r.stdout, r.stderr) == (0, b"out\x00put\n", b"err\n")
    assert json.loads(silica.run("logs", "--json", "demo", "my job").stdout)["stderr"] == "err\n"
    fake.answer("GET", "/v1/sandbox/demo/api/process/none/logs", {"code": "PROCESS_NOT_FOUND", "message": "Process 'none' not found"}, 404)
    r = silica.run("logs", "demo", "none")
    assert r.returncode == 125 and b"not found" in r.stderr
    for words in ([], ["demo"], ["demo", "a", "b"], ["../x", "p"]):
        assert silica.run("logs", *words).returncode == 125


def test_logs_follow(fake, silica):
    @fake.on("GET", "/v1/sandbox/demo/api/process/p/stream")
    def stream(h, request):
        h.events()
        h.event(type="stdout", data="one\n")
        h.event(type="stderr", data="two\n")
        h.event(type="exit", exitCode=7)
        h.end()

    r = silica.run("logs", "-f", "demo", "p")
    assert (r.returncode, r.stdout, r.stderr) == (7, b"one\n", b"two\n")

    @fake.on("GET", "/v1/sandbox/demo/api/process/cut/stream")
    def cut(h, request):
        h.events()
        h.event(type="stdout", data="one\n")
        h.close_connection = True

    r = silica.run("logs", "-f", "demo", "cut")
    assert r.returncode == 125 and r.stdout == b"one\n"


# ---- token

TOKENS = {"tokens": [
    {"id": "abc123def456", "scope": "admin", "createdAt": "2026-01-02T03:04:05.678Z"},
    {"id": "xyz", "scope": "one-sandbox", "sandbox": "demo", "name": "for \x1b demo", "createdAt": "2026-01-02T03:04:05.678Z",
     "expiresAt": "2020-01-01T00:00:00.000Z", "expired": True}], "count": 2}


def test_token_create(fake, silica):
    fake.answer("POST", "/v1/token", {"id": "abc", "scope": "one-sandbox", "token": "silica_secret"}, 201)
    r = silica.run("token", "create", "one-sandbox", "--sandbox", "demo", "--name", "n", "--expires", "90m")
    assert (r.returncode, r.stdout, r.stderr) == (0, b"silica_secret\n", b"")
    assert fake.requests[0].json == {"scope": "one-sandbox", "sandbox": "demo", "name": "n", "expiresIn": 5400}
    assert json.loads(silica.run("token", "create", "admin", "--json").stdout)["id"] == "abc"
    assert fake.requests[1].json == {"scope": "admin"}
    fake.answer("POST", "/v1/token", {"code": "VALIDATION_FAILED", "message": "scope must be admin, ..."}, 400)
    r = silica.run("token", "create", "king")
    assert r.returncode == 125 and b"scope must be" in r.stderr


def test_token_ls(fake, silica):
    fake.answer("GET", "/v1/token", TOKENS)
    rows = [line.split("\t") for line in silica.run("token", "ls").stdout.decode().splitlines()]
    assert rows[0] == ["ID", "SCOPE", "SANDBOX", "NAME", "CREATED", "EXPIRES"]
    assert rows[1][:4] == ["abc123def456", "admin", "-", "-"] and rows[1][5] == "never"
    assert rows[2][:4] == ["xyz", "one-sandbox", "demo", "for ? demo"] and rows[2][5] == "expired"
    assert json.loads(silica.run("token", "ls", "--json").stdout) == TOKENS


def test_token_rm(fake, silica):
    fake.answer("DELETE", "/v1/token/abc", {"success": True, "id": "abc"})
    fake.answer("DELETE", "/v1/token/gone", {"code": "TOKEN_NOT_FOUND", "message": "there is no token 'gone'"}, 404)
    assert silica.run("token", "rm", "abc").stdout == b"abc\n"
    r = silica.run("token", "rm", "gone", "../x", "abc")
    assert r.returncode == 125 and r.stdout == b"abc\n"
    assert b"no token 'gone'" in r.stderr and b"'../x' is not the id of a token" in r.stderr


@pytest.mark.parametrize("words", [[], ["make"], ["create"], ["rm"], ["ls", "x"], ["create", "admin", "x"],
                                   ["create", "admin", "--expires", "soon"]])
def test_token_usage(silica, words):
    r = silica.run("token", *words)
    assert r.returncode == 125 and b"silica help token" in r.stderr


@pytest.mark.parametrize("verb", ["sleep", "wake", "events", "top", "logs", "token"])
def test_help(silica, verb):
    r = silica.run("help", verb)
    assert r.returncode == 0 and f"Usage: silica {verb}".encode() in r.stdout and b"Examples:" in r.stdout
    assert silica.run(verb, "--help").stdout == r.stdout
