# SPDX-License-Identifier: Apache-2.0
"""Speaking to the container engine's socket the way workerd does: a connection per request, empty bodies in chunks."""
import json
import socket
import struct
import threading
import urllib.parse

import silica

SIDECAR_IMAGE = "cloudflare/proxy-everything:test"


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)


def read_head(f):
    line = f.readline().decode()
    if not line:
        raise ConnectionError("the connection ended before an answer came")
    headers = {}
    while True:
        h = f.readline().decode().strip()
        if not h:
            break
        name, _, value = h.partition(":")
        headers[name.lower()] = value.strip()
    return int(line.split()[1]), headers


def read_body(f, status, headers):
    if status in (204, 304) or status < 200:
        return b""
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while True:
            n = int(f.readline(), 16)
            piece = f.read(n)
            f.readline()
            if n == 0:
                return body
            body += piece
    return f.read(int(headers["content-length"])) if "content-length" in headers else f.read()


def answer(s, method="POST"):
    """Reads the answer to what was sent, and closes the connection."""
    with s:
        f = s.makefile("rb")
        status, headers = read_head(f)
        return Answer(status, headers, b"" if method == "HEAD" else read_body(f, status, headers))


class Engine:
    def __init__(self, daemon):
        self.path = daemon.run_dir + "/docker.sock"
        self.daemon = daemon

    def connect(self, timeout=60):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(timeout)
        s.connect(self.path)
        return s

    def send(self, method, path, body=None, chunked=None, headers=(), timeout=60, content_type="application/json"):
        """Sends one request and gives the connection, whose answer has not been read."""
        s = self.connect(timeout)
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers)
        if chunked is None:
            chunked = body is None and method in ("POST", "DELETE") and not path.endswith("/start")
        if body is not None:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            s.sendall((head + f"Content-Type: {content_type}\r\nContent-Length: {len(raw)}\r\n\r\n").encode() + raw)
        elif chunked:
            s.sendall((head + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n").encode())
        elif method == "POST":
            s.sendall((head + "Content-Length: 0\r\n\r\n").encode())
        else:
            s.sendall((head + "\r\n").encode())
        return s

    def call(self, method, path, body=None, **kwargs):
        return answer(self.send(method, path, body, **kwargs), method)

    def tag(self, reference, image="base"):
        repo, _, tag = reference.rpartition(":")
        r = self.call("POST", f"/images/{image}/tag?repo={repo}&tag={tag}")
        assert r.status == 201, (r.status, r.body)

    # ---- what a caller does with containers

    def create(self, name, image="base", expect=201, **body):
        r = self.call("POST", f"/containers/create?name={name}", {"Image": image, **body})
        assert r.status == expect, (r.status, r.body)
        return r

    def start(self, name, expect=204):
        r = self.call("POST", f"/containers/{name}/start")
        assert r.status == expect, (r.status, r.body)

    def inspect(self, name):
        r = self.call("GET", f"/containers/{name}/json")
        return r.json if r.status == 200 else None

    def status(self, name):
        info = self.inspect(name)
        return info and info["State"]["Status"]

    def wait(self, name, condition=""):
        """A wait in the background: call .result() for the status code. What is asked next is asked after it."""
        s = self.send("POST", f"/containers/{name}/wait{condition}", timeout=120)
        return Background(lambda: answer(s))

    def remove(self, name, expect=204):
        r = self.call("DELETE", f"/containers/{name}?force=true")
        assert r.status in (expect if isinstance(expect, tuple) else (expect,)), (r.status, r.body)

    def run(self, name, *argv, **body):
        """A container with a main program of its own."""
        self.create(name, Entrypoint=list(argv), **body)
        self.start(name)

    def pair(self, name, image="base", egress_port=40009, **body):
        """A container and its sidecar, as workerd makes them; gives the sidecar's port."""
        proxy = name + "-proxy"
        self.create(proxy, image=SIDECAR_IMAGE, ExposedPorts={"39001/tcp": {}}, HostConfig={
            "PublishAllPorts": True, "NetworkMode": "bridge", "CapAdd": ["NET_ADMIN"], "Dns": ["1.1.1.1"]},
            Cmd=["--http-egress-port", str(egress_port), "--http-ingress-address", "0.0.0.0:39001",
                 "--docker-gateway-cidr", "127.0.0.0/8", "--dns-enabled", "--tls-intercept", "--disable-ipv6"])
        self.start(proxy)
        host = body.pop("HostConfig", {})
        self.create(name, image=image, HostConfig={"NetworkMode": f"container:{proxy}", "PidMode": "host",
                                                   "RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 0}, **host}, **body)
        return self.host_port(proxy)

    def host_port(self, proxy):
        port = self.inspect(proxy)["NetworkSettings"]["Ports"]["39001/tcp"][0]["HostPort"]
        assert isinstance(port, str)
        return int(port)


class Background:
    def __init__(self, f):
        self.value = self.error = None
        self.thread = threading.Thread(target=self.work, args=(f,), daemon=True)
        self.thread.start()

    def work(self, f):
        try:
            self.value = f()
        except Exception as e:  # noqa: BLE001 - told by result()
            self.error = e

    @property
    def done(self):
        return not self.thread.is_alive()

    def result(self, seconds=90):
        self.thread.join(seconds)
        assert self.done, "it does not end"
        if self.error:
            raise self.error
        return self.value


def tunnel(port, inside, timeout=60):
    """CONNECT through a sidecar, without Host: the socket and the status."""
    s = socket.create_connection(("127.0.0.1", port), timeout)
    s.sendall(f"CONNECT 127.0.0.1:{inside} HTTP/1.1\r\nX-Dst-Addr: 127.0.0.1:{inside}\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        c = s.recv(1)
        if not c:
            raise ConnectionError("the tunnel ended before its answer")
        head += c
    return s, int(head.split()[1])


def through(port, inside, method, path, body=None):
    """One HTTP request to a server inside."""
    s, status = tunnel(port, inside)
    assert status == 200, status
    raw = json.dumps(body).encode() if body is not None else b""
    s.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost:{inside}\r\nContent-Type: application/json\r\n"
              f"Content-Length: {len(raw)}\r\nConnection: close\r\n\r\n".encode() + raw)
    return answer(s, method)


def sidecar_call(port, method, path, body=None):
    s = socket.create_connection(("127.0.0.1", port), 60)
    raw = json.dumps(body).encode() if body is not None else b""
    s.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw)
    return answer(s, method)


def frames(data):
    """The framed output of an exec: {1: stdout, 2: stderr}."""
    out = {1: b"", 2: b""}
    while data:
        stream, n = data[0], struct.unpack(">I", data[4:8])[0]
        assert len(data) >= 8 + n, "a frame is cut"
        out[stream] += data[8:8 + n]
        data = data[8 + n:]
    return out


def quote(text):
    return urllib.parse.quote(text, safe="")


def wait_status(engine, name, status, seconds=60):
    silica.wait_for(lambda: engine.status(name) == status, seconds, f"{name} is {status}")
