# SPDX-License-Identifier: Apache-2.0
"""WebSockets and terminals through the gateway, into real sandboxes, and `silica shell` (catalogue area 8)."""
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from silica import BIN, TOKEN, wait_for

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "protocol"))
from websocket import Closed, Refused, WebSocket

AUTH = {"Authorization": f"Bearer {TOKEN}"}


def connect(daemon, box, path, headers=AUTH, **kw):
    return WebSocket(("127.0.0.1", daemon.port), f"/v1/sandbox/{box}{path}", headers=headers, **kw)


def terminal(daemon, box, session="s", query="", **kw):
    return connect(daemon, box, f"/ws/pty?sessionId={session}{query}", **kw)


def until(ws, text, seen=b""):
    """Reads output up to a text; control messages are left out."""
    while text not in seen:
        message = ws.receive()
        if isinstance(message, bytes):
            seen += message
    return seen


# ------------------------------------------------------------------ requests

@pytest.mark.parametrize("path", ["/ws", "/api/ws"])
def test_requests(daemon, box, path):
    with connect(daemon, box, path) as ws:
        ws.send_json({"type": "request", "id": "1", "method": "POST", "path": "/api/execute", "body": {"command": "echo hi"}})
        got = ws.receive_json()
        assert got["id"] == "1" and got["body"]["stdout"].strip() == "hi"
        ws.close()
        assert ws.expect_close() == 1000


def test_large_message_is_passed_on_unchanged(daemon, box):
    text = "x" * (6 << 20)
    with connect(daemon, box, "/ws") as ws:
        ws.send_json({"type": "request", "id": "w", "method": "POST", "path": "/api/write", "body": {"path": "/workspace/big", "content": text}})
        assert ws.receive_json()["status"] == 200
        ws.send_json({"type": "request", "id": "r", "method": "POST", "path": "/api/read", "body": {"path": "/workspace/big"}})
        assert ws.receive_json()["body"]["content"] == text


# ------------------------------------------------------------------ who may (WS-07, WS-08)

@pytest.mark.parametrize("path", ["/ws", "/api/ws", "/ws/pty?sessionId=s"])
def test_token_before_the_upgrade(daemon, box, path):
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        with pytest.raises(Refused) as refused:
            connect(daemon, box, path, headers=headers)
        assert refused.value.status == 401
    assert daemon.request("GET", f"/v1/sandbox/{box}").status == 404  # nobody was let in, so nothing was made


def test_token_in_the_query_of_a_terminal_only(daemon, box):
    with terminal(daemon, box, query=f"&token={TOKEN}&cols=90", headers={}) as ws:
        ws.send(b"echo size-$(stty size | tr ' ' x); tr '\\0' '\\n' < /proc/1/environ | grep -c tttttttt\n")
        seen = until(ws, b"size-24x90")
        seen = until(ws, b"0\r\n", seen)
    for path in ("/ws", "/api/ws"):
        with pytest.raises(Refused) as refused:
            connect(daemon, box, f"{path}?token={TOKEN}", headers={})
        assert refused.value.status == 401
    assert daemon.request("GET", f"/v1/sandbox/{box}/ws/pty?sessionId=s&token={TOKEN}", auth=False).status == 401
    assert TOKEN not in daemon.log()


def test_foreign_origin(daemon, box):
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{daemon.port}.evil.example", "http://127.0.0.1"):
        with pytest.raises(Refused) as refused:
            terminal(daemon, box, headers={**AUTH, "Origin": origin})
        assert refused.value.status == 403
    with terminal(daemon, box, headers={**AUTH, "Origin": f"http://127.0.0.1:{daemon.port}"}) as ws:
        ws.receive()


def test_other_requests_to_the_paths(daemon, box):
    r = daemon.request("GET", f"/v1/sandbox/{box}/ws")
    assert r.status == 426
    assert daemon.request("POST", f"/v1/sandbox/{box}/ws", {}).status == 405
    with pytest.raises(Refused) as refused:
        connect(daemon, box, "/ws/pty")
    assert refused.value.status == 400 and refused.value.body == b"sessionId query parameter required"


def test_revoking_the_token_ends_the_terminal(daemon, box):
    made = daemon.request("POST", "/v1/token", {"scope": "one-sandbox", "sandbox": box})
    assert made.status in (200, 201), made.body
    with terminal(daemon, box, headers={"Authorization": "Bearer " + made.json["token"]}) as ws:
        ws.send(b"echo alive-$((1+1))\n")
        until(ws, b"alive-2")
        assert daemon.request("DELETE", f"/v1/token/{made.json['id']}").status in (200, 204)
        with pytest.raises((Closed, ConnectionResetError)):
            while True:
                ws.receive()


# ------------------------------------------------------------------ the terminal

def test_terminal_in_a_sandbox(daemon, box):
    daemon.exec(box, "cd /tmp; export MARK=from-session", sessionId="s")
    with terminal(daemon, box) as ws:
        ws.send(b"echo at-$PWD-$MARK; tty; ls -l /proc/self/fd | wc -l; grep -c . /proc/1/comm\n")
        seen = until(ws, b"at-/tmp-from-session")
        until(ws, b"/dev/pts/", seen)
        ws.send(b"grep -E 'NoNewPrivs|Seccomp:' /proc/self/status | tr -d '\\t\\n'; exit 9\n")
        seen = b""
        while True:
            message = ws.receive()
            if isinstance(message, bytes):
                seen += message
            elif json.loads(message)["type"] == "exit":
                assert json.loads(message)["code"] == 9
                break
        assert b"NoNewPrivs:1Seccomp:2" in seen  # as every other process
        with pytest.raises(Closed) as closed:
            ws.receive()
        assert closed.value.code == 1000


def test_input_cannot_be_faked(daemon, box):
    with terminal(daemon, box) as ws:
        ws.send(b"python3 -c 'import fcntl;fcntl.ioctl(0,0x5412,b\"x\")'; echo end-$?\n")
        seen = until(ws, b"end-1")
        assert b"Errno" in seen


def test_an_open_terminal_is_a_request_in_flight(daemon, box):
    assert daemon.request("PUT", f"/v1/sandbox/{box}", {"sleepAfter": "1s"}).status in (200, 201)
    with terminal(daemon, box) as ws:
        ws.send(b"echo on-$((1+1))\n")
        until(ws, b"on-2")
        until_time = time.monotonic() + 3  # three times the limit
        while time.monotonic() < until_time:
            assert daemon.request("GET", f"/v1/sandbox/{box}").json["state"] == "running"
            time.sleep(0.2)
        ws.send(b"echo still-$((1+1))\n")
        until(ws, b"still-2")
    wait_for(lambda: daemon.request("GET", f"/v1/sandbox/{box}").json["state"] != "running", what="it falls asleep")


def test_destroying_the_sandbox_ends_the_terminal(daemon, box):
    with terminal(daemon, box) as ws:
        ws.send(b"echo up-$((1+1))\n")
        until(ws, b"up-2")
        daemon.destroy(box)
        with pytest.raises((Closed, ConnectionResetError)):
            while True:
                ws.receive()


def test_slow_reader(daemon, box):
    with terminal(daemon, box, receive_buffer=8192) as stuck, terminal(daemon, box, session="other") as fine:
        stuck.send(b"cat /dev/urandom\n")
        for i in range(20):
            fine.send(f"echo n-$(({i}+100))\n".encode())
            until(fine, f"n-{i + 100}".encode())
            assert daemon.out(box, "echo ok").strip() == "ok"


# ------------------------------------------------------------------ the command line

class Shell:
    """silica shell on a terminal of the test's own."""

    def __init__(self, daemon, box, *options):
        self.master, slave = pty.openpty()
        self.resize(100, 30)
        self.process = subprocess.Popen(
            [BIN, "shell", box, "--url", f"http://127.0.0.1:{daemon.port}", "--token", TOKEN, *options],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.seen = b""

    def resize(self, cols, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text):
        os.write(self.master, text.encode())

    def until(self, text):
        end = time.monotonic() + 60
        while text.encode() not in self.seen:
            assert time.monotonic() < end, self.seen[-500:]
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.master, 65536)
                except OSError:
                    break
        assert text.encode() in self.seen, self.seen[-500:]

    def end(self):
        while self.process.poll() is None:
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.master, 65536)
                except OSError:
                    pass
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def shell(daemon, box):
    made = []

    def start(*options):
        made.append(Shell(daemon, box, *options))
        return made[-1]

    yield start
    for s in made:
        s.close()


def test_shell_command(shell):
    s = shell()
    s.type("echo here-$((40+2)) $(stty size)\r")
    s.until("here-42 30 100")
    s.resize(111, 44)
    s.process.send_signal(signal.SIGWINCH)
    s.type("while [ \"$(stty size)\" != '44 111' ]; do sleep 0.05; done; echo resized-$((1+1))\r")
    s.until("resized-2")
    s.type("bash -c 'echo started-$((1+1)); exec sleep 1000'\r")  # when it speaks the keys are its own
    s.until("started-2")
    s.type("\x03echo interrupted-$((1+1))\r")
    s.until("interrupted-2")
    assert not termios.tcgetattr(s.master)[3] & termios.ICANON  # raw while it runs
    s.type("exit 5\r")
    assert s.end() == 5
    assert termios.tcgetattr(s.master)[3] & termios.ICANON  # and as before when it is over


def test_shell_rejoins(shell):
    one = shell("--session", "kept")
    one.type("kept=value-$((1+1)); echo set-$((1+1))\r")
    one.until("set-2")
    one.process.terminate()
    one.process.wait(timeout=60)
    two = shell("--session", "kept")
    two.type("echo again-$kept\r")
    two.until("again-value-2")


def test_shell_with_a_pipe(daemon, box):
    done = subprocess.run([BIN, "shell", box, "--url", f"http://127.0.0.1:{daemon.port}", "--token", TOKEN],
                          input=b"echo piped-$((1+1)); exit 3\n", stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 3 and b"piped-2" in done.stdout and done.stderr == b""


def test_shell_says_what_is_wrong(daemon, box):
    run = lambda *a: subprocess.run([BIN, "shell", *a], input=b"", stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    url = f"http://127.0.0.1:{daemon.port}"
    done = run(box, "--url", url, "--token", "wrong")
    assert done.returncode == 125 and b"token" in done.stderr
    done = run(box, "--url", url, "--token", TOKEN, "--shell", "no-such-shell")
    assert done.returncode == 125 and b"no-such-shell" in done.stderr
    assert run().returncode == 125
