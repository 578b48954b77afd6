# SPDX-License-Identifier: Apache-2.0
"""Previews for tests: expose a port of a sandbox, run a service there, and talk to it through the gateway byte by byte."""
import itertools
import json
import os
import socket
import urllib.parse

from silica import wait_for

SERVICE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "service.py")
OK = [["send", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"], ["keep", None]]
addresses = (f"127.9.{a}.{b}" for a, b in itertools.product(range(256), range(1, 255)))


def expose(daemon, box, port=8000, **fields):
    r = daemon.request("POST", f"/v1/sandbox/{box}/ports", {"port": port, **fields})
    assert r.status in (200, 201), (r.status, r.body)
    return Preview(daemon, r.json["url"])


def listening(daemon, box, port):
    r = daemon.request("GET", f"/v1/sandbox/{box}/ports/listening")
    assert r.status == 200, r.body
    return any(p["port"] == port for p in r.json["ports"])


def start(daemon, box, command, port, name=None):
    """A background process of the sandbox that listens on a port."""
    r = daemon.request("POST", f"/v1/sandbox/{box}/api/process/start", {"command": command, "processId": name or f"p{port}"})
    assert r.status == 200, r.body
    wait_for(lambda: listening(daemon, box, port), what=f"port {port}")


def write(daemon, box, path, text):
    r = daemon.request("POST", f"/v1/sandbox/{box}/api/write", {"path": path, "content": text})
    assert r.status == 200, r.body


def serve(daemon, box, plays=None, port=8000, host="127.0.0.1", **fields):
    """service.py with these plays, exposed."""
    write(daemon, box, "/workspace/service.py", open(SERVICE).read())
    write(daemon, box, f"/workspace/plays{port}.json", json.dumps({"*": OK, **(plays or {})}))
    start(daemon, box, f"exec python3 /workspace/service.py {host} {port} /workspace/plays{port}.json", port)
    return expose(daemon, box, port, **fields)


def requests_seen(daemon, box):
    """What the service wrote down."""
    return [json.loads(line) for line in daemon.out(box, "cat /tmp/requests 2>/dev/null || true").splitlines()]


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def all(self, name):
        return [v for k, v in self.headers if k == name]

    def __getitem__(self, name):
        values = self.all(name)
        return values[0] if values else None

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:200]!r}>"


class Wire:
    """One connection to the gateway; each from an address of its own, so that guesses are counted apart."""

    def __init__(self, daemon, source=None, timeout=60):
        self.s = socket.create_connection(("127.0.0.1", daemon.port), timeout=timeout, source_address=(source or next(addresses), 0))
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.s.close()

    def send(self, data):
        self.s.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))

    def more(self):
        data = self.s.recv(1 << 18)
        self.rest += data
        return bool(data)

    def line(self):
        while b"\r\n" not in self.rest:
            if not self.more():
                raise EOFError(f"cut off in a line after {self.rest!r}")
        line, self.rest = self.rest.split(b"\r\n", 1)
        return line.decode("latin-1")

    def exactly(self, n):
        while len(self.rest) < n:
            if not self.more():
                raise EOFError(f"cut off: {len(self.rest)} of {n} bytes")
        data, self.rest = self.rest[:n], self.rest[n:]
        return data

    def head(self):
        status = int(self.line().split(" ")[1])
        headers = []
        while line := self.line():
            k, v = line.split(":", 1)
            headers.append((k.lower(), v.strip()))
        return Answer(status, headers, b"")

    def answer(self, method="GET"):
        a = self.head()
        while a.status // 100 == 1 and a.status != 101:
            a = self.head()
        if method == "HEAD" or a.status in (101, 204, 304):
            return a
        if a["transfer-encoding"] == "chunked":
            while size := int(self.line(), 16):
                a.body += self.exactly(size)
                assert self.exactly(2) == b"\r\n"
            assert self.line() == ""
        elif a["content-length"] is not None:
            a.body = self.exactly(int(a["content-length"]))
        else:
            while self.more():
                pass
            a.body, self.rest = self.rest, b""
        return a

    def everything(self):
        """All bytes until the other side closes, however it does."""
        try:
            while self.more():
                pass
        except ConnectionResetError:
            pass
        data, self.rest = self.rest, b""
        return data


class Preview:
    def __init__(self, daemon, url):
        self.daemon, self.url = daemon, url
        self.host = urllib.parse.urlsplit(url).netloc
        self.name = self.host.split(":")[0]

    def wire(self, **kw):
        return Wire(self.daemon, **kw)

    def head(self, path="/", method="GET", headers=(), version="HTTP/1.1"):
        lines = [f"{method} {path} {version}", f"Host: {self.host}", *headers]
        return "\r\n".join(lines) + "\r\n\r\n"

    def get(self, path="/", headers=(), method="GET", body=b"", **kw):
        with self.wire(**kw) as w:
            extra = [f"Content-Length: {len(body)}"] if body else []
            w.send(self.head(path, method, [*headers, *extra]))
            if body:
                w.send(body)
            return w.answer(method)
