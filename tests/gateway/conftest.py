# SPDX-License-Identifier: Apache-2.0
"""The real gateway in front of a keeper and agents that only pretend (fake_keeper.c): what it lets in, what it
passes on, what it promises.

SILICA_FAKE_KEEPER names the program.
"""
import concurrent.futures
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zlib

import pytest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from unwritten import checked

DEADLINE = 60  # seconds; only a failing test waits that long
TOKEN = "secret"
AUTH = {"Authorization": f"Bearer {TOKEN}"}


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, checked(body)

    def json(self):
        return json.loads(self.body)

    def error(self):
        """The error envelope, checked for its shape."""
        e = self.json()
        assert e["httpStatus"] == self.status
        assert e["code"] and e["message"] and e["error"] == e["message"]
        assert isinstance(e["context"], dict)
        assert e["timestamp"].endswith("Z") and len(e["timestamp"]) == 24
        return e

    def __repr__(self):
        return f"<{self.status} {self.body[:300]!r}>"


class Gateway:
    def __init__(self, directory, *options):
        self.process = subprocess.Popen(
            [os.environ["SILICA_FAKE_KEEPER"], "--dir", directory, *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            # the address sanitizer keeps freed memory for a while; tests that watch memory want little of that
            # nor can a gateway that gave up its rights be searched for leaks
            env={**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=1:" + os.environ.get("ASAN_OPTIONS", "")
                 + (":detect_leaks=0" if "--uid" in options else "")})
        self.directory = directory
        self.next_line()

    def next_line(self):
        """What the fake keeper says whenever it has started the gateway."""
        ready, _, _ = select.select([self.process.stdout], [], [], DEADLINE)
        assert ready, "the fake keeper says nothing"
        said = json.loads(self.process.stdout.readline())
        self.port, self.pid = said["port"], said["gateway"]
        assert self.get("/health").status == 200

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def connection(self, source=None):
        """From an address of the test's, so that one test's wrong tokens do not close the door to the next. Few addresses: the kernel
        remembers each of them for good, and looks through them at the end of every network namespace."""
        if source is None:
            place = zlib.crc32(os.environ.get("PYTEST_CURRENT_TEST", "").encode())
            source = f"127.77.{place >> 8 & 3}.{place % 251 + 2}"
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE, source_address=(source, 0))

    def ask(self, method, path, body=None, headers=None, token=True, source=None):
        c = self.connection(source)
        try:
            if token and token is not True:
                headers = {"Authorization": f"Bearer {token}", **(headers or {})}
            c.request(method, path, body=body, headers={**(AUTH if token else {}), **(headers or {})})
            r = c.getresponse()
            return Answer(r.status, r.headers, r.read())
        finally:
            c.close()

    def get(self, path, **kw):
        return self.ask("GET", path, **kw)

    def put(self, sandbox, config=None, raw=None):
        return self.ask("PUT", f"/v1/sandbox/{sandbox}", body=raw if raw is not None else json.dumps(config or {}),
                        headers={"Content-Type": "application/json"})

    def delete(self, sandbox):
        return self.ask("DELETE", f"/v1/sandbox/{sandbox}")

    def api(self, sandbox, path, method="GET", **kw):
        return self.ask(method, f"/v1/sandbox/{sandbox}/api/{path}", **kw)

    def count(self, sandbox):
        return self.api(sandbox, "count").json()

    def state(self, sandbox):
        a = self.get(f"/v1/sandbox/{sandbox}")
        return a.json()["state"] if a.status == 200 else None

    def starting(self, pool, sandbox):
        """A sandbox that is starting, and a use that waits for it. "slow-*" take 300 ms: who looks too late tries another."""
        for i in range(20):
            name = f"{sandbox}-{i}"
            use = pool.submit(self.api, name, "ping")
            while not use.done():
                if self.state(name) == "starting":
                    return name, use
            self.delete(name)
        raise AssertionError(f"{sandbox} was never seen starting")

    def use_and_watch(self, sandbox, path):
        """Uses a sandbox; once it runs it does as long as the use lasts."""
        def seen():
            s = self.get(f"/v1/sandbox/{sandbox}").json()
            return s["activeRequests"], s["state"]

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            use = pool.submit(self.api, sandbox, path)
            until(lambda: use.done() or seen() == (1, "running"))
            while (now := seen())[0]:
                assert now[1] == "running"
            return use.result()

    def raw(self, data, half_close=False):
        """Sends bytes and reads until the gateway closes or has answered once and is silent for a moment."""
        with self.connect() as s:
            try:
                s.sendall(data)
                if half_close:
                    s.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # refused before all was sent
            return read_until_quiet(s)

    def memory(self):
        with open(f"/proc/{self.pid}/status") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS"))

    def open_files(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def kill_gateway(self, sig=signal.SIGKILL):
        os.kill(self.pid, sig)
        self.next_line()

    def end(self):
        self.process.stdin.close()
        code = self.process.wait(DEADLINE)
        self.process.stdout.close()
        return code


def routes():
    """Every row of the router's table, as (method or None, pattern, flags)."""
    with open(os.path.join(os.path.dirname(__file__), "../../src/gateway/router.c")) as f:
        source = f.read()
    rows = re.findall(r'^    \{(?:"(\w+)"|NULL), "([^"]+)",\s+\w+,\s+([\w| ]+?)(?:,\s+CLASS_\w+)?\},', source, re.M)
    assert len(rows) == len(re.findall(r', ROUTE_|, 0, CLASS_', source)) >= 15, "not a row is missed"
    return [(method or None, pattern, set(flags.split(" | ")) - {"0"}) for method, pattern, flags in rows]


def example(pattern, sandbox="x", rest="ping"):
    return pattern.replace("{id}", sandbox).replace("*", "8080" if "/ports/" in pattern else rest)


def read_until_quiet(s):
    got = b""
    s.settimeout(DEADLINE)
    try:
        while True:
            piece = s.recv(65536)
            if not piece:
                return checked(got)
            got += piece
            s.settimeout(3)  # an answer has begun; what belongs to it follows
    except (socket.timeout, ConnectionResetError):
        return checked(got)


def hang_up(s):
    """Ends the connection so that the other side notices at once: with a reset. A plain close looks like a caller who has
    sent all and still reads."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def until(condition, what="the condition"):
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come true in {DEADLINE} s")


@pytest.fixture(scope="session")
def make_gateway():
    made, directories = [], []

    def make(*options, directory=None):
        if directory is None:
            directory = tempfile.mkdtemp(prefix="silica-gateway-")
            directories.append(directory)
        g = Gateway(directory, *options)
        made.append(g)
        return g

    yield make
    codes = [g.end() if g.process.poll() is None else g.process.returncode for g in made]
    for d in directories:
        shutil.rmtree(d)
    assert set(codes) <= {0}, "a gateway or its sanitizer complained"


@pytest.fixture(scope="session")
def gateway(make_gateway):
    return make_gateway()


@pytest.fixture(scope="session")
def open_gateway(make_gateway):
    """One without tokens."""
    return make_gateway("--auth-off")
