# SPDX-License-Identifier: Apache-2.0
"""The silica command against a scripted server: what it sends, prints and exits with.

SILICA_BIN names the program under test.
"""
import http.server
import json
import os
import pty
import select
import socket
import socketserver
import subprocess
import threading
import time

import pytest

DEADLINE = 60  # seconds; only a failing test waits that long


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.fake.connections += 1

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def serve_one(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        fake = self.server.fake
        request = Request(self.command, self.path, self.headers, body)
        fake.requests.append(request)
        path = self.path.partition("?")[0]
        script = fake.scripts.get((self.command, path))
        if script is None:
            self.json({"code": "UNKNOWN_ERROR", "message": f"no script for {self.command} {path}"}, 404)
        else:
            script(self, request)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = serve_one

    def json(self, value, status=200):
        self.raw(json.dumps(value).encode(), "application/json", status)

    def raw(self, body, content_type, status=200):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def event(self, **event):
        self.chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def end(self):
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def log_message(self, *args):
        pass


class Request:
    def __init__(self, method, path, headers, body):
        self.method, self.path, self.headers, self.body = method, path, headers, body

    @property
    def json(self):
        return json.loads(self.body)


class TcpServer(http.server.ThreadingHTTPServer):
    daemon_threads = True


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def get_request(self):
        connection, _ = super().get_request()
        return connection, ("unix", 0)


class Fake:
    """A server whose answers are functions of (handler, request), by method and path."""

    def __init__(self, unix_path=None):
        self.scripts, self.requests, self.connections = {}, [], 0
        if unix_path:
            self.server = UnixServer(unix_path, Handler)
            self.url = f"unix:{unix_path}"
        else:
            self.server = TcpServer(("127.0.0.1", 0), Handler)
            self.port = self.server.server_address[1]
            self.url = f"http://127.0.0.1:{self.port}"
        self.server.fake = self
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def on(self, method, path):
        def remember(script):
            self.scripts[method, path] = script
            return script

        return remember

    def execute(self, sandbox="demo"):
        return self.on("POST", f"/v1/sandbox/{sandbox}/api/execute")

    def answer(self, method, path, value, status=200):
        self.scripts[method, path] = lambda h, r: h.json(value, status)

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def fake():
    f = Fake()
    yield f
    f.stop()


@pytest.fixture
def unix_fake(tmp_path):
    f = Fake(str(tmp_path / "api.sock"))
    yield f
    f.stop()


class Silica:
    def __init__(self, binary, tmp_path):
        self.binary = binary
        self.data = tmp_path / "data"
        self.data.mkdir()
        self.url = None
        self.processes = []

    def environment(self, extra):
        env = {"PATH": os.environ["PATH"], "SILICA_DATA": str(self.data), "LC_ALL": "C.UTF-8"}
        if self.url:
            env["SILICA_URL"] = self.url
        env.update(extra)
        return env

    def run(self, *words, env=None, input=None, **kwargs):
        stdin = {"input": input} if input is not None else {"stdin": subprocess.DEVNULL}
        return subprocess.run([self.binary, *words], env=self.environment(env or {}), capture_output=True,
                              timeout=DEADLINE, **stdin, **kwargs)

    def start(self, *words, env=None, **kwargs):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kwargs}
        process = subprocess.Popen([self.binary, *words], env=self.environment(env or {}), **options)
        self.processes.append(process)
        return process

    def terminal(self, *words, env=None, type_in=b""):
        """Runs on a terminal of its own; returns the exit code and everything shown."""
        master, slave = pty.openpty()
        process = self.start(*words, env=env, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        os.write(master, type_in)
        shown = read_until(master, None)
        os.close(master)
        return process.wait(DEADLINE), shown.decode().replace("\r\n", "\n")

    def stop(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()


def read_until(fd, wanted):
    """Bytes of fd until `wanted` is among them (None: until the end)."""
    end = time.monotonic() + DEADLINE
    got = b""
    while wanted is None or wanted not in got:
        ready, _, _ = select.select([fd], [], [], max(0, end - time.monotonic()))
        assert ready, f"waited in vain for {wanted!r}, got {got!r}"
        try:
            piece = os.read(fd, 65536)
        except OSError:  # a terminal whose other side is gone
            piece = b""
        if not piece:
            assert wanted is None, f"ended before {wanted!r}, got {got!r}"
            break
        got += piece
    return got


@pytest.fixture
def silica(fake, tmp_path):
    binary = os.environ.get("SILICA_BIN")
    assert binary, "SILICA_BIN must name the silica program"
    s = Silica(os.path.abspath(binary), tmp_path)
    s.url = fake.url
    yield s
    s.stop()


@pytest.fixture
def closed_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        yield s.getsockname()[1]  # bound, and nobody listens
