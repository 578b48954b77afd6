# SPDX-License-Identifier: Apache-2.0
"""Containers and their way out, with the real daemon: what they connect to reaches the owner of their sidecar."""
import os
import signal
import textwrap
import threading

import pytest

import silica
from engine import Engine, sidecar_call, through
from owner import Owner, Resolver, echo, http
from silica import wait_for
from test_docker_adoption import answers
from tracer import gateway_pid

PROLOGUE = """
import json, os, socket, ssl, sys, urllib.request
socket.setdefaulttimeout(40)

def read_all(s):
    data = b""
    while piece := s.recv(65536):
        data += piece
    return data

def fetch(url, **kwargs):
    return urllib.request.urlopen(url, **kwargs).read().decode()
"""
CA = "/etc/cloudflare/certs/cloudflare-containers-ca.crt"


@pytest.fixture(scope="module")
def resolver():
    r = Resolver({"real.example": "93.184.216.34", "gone.example": None, "own.test": None})
    yield r
    r.close()


@pytest.fixture(scope="module")
def daemon(resolver):
    d = silica.Daemon("sidecar", args=["--dns", resolver.address])
    d.start()
    yield d
    d.cleanup()


class Container:
    """A container whose sidecar is owned by `decide`."""

    def __init__(self, daemon, decide, name="app", internet=False, names=("*.test",)):
        self.engine, self.name = Engine(daemon), name
        self.owner = Owner(decide)
        self.port = self.engine.pair(name, egress_port=self.owner.port)
        self.put({"port": self.owner.port, "internet": {"enabled": internet}, "dns": {"allowHostnames": list(names)}})
        self.engine.start(name)
        self.wait_up()

    def wait_up(self):
        wait_for(self.up, what="the server inside")

    def up(self):
        try:
            return through(self.port, 3000, "GET", "/api/ping").status == 200
        except (OSError, AssertionError):  # nobody listens there yet
            return False

    def put(self, settings):
        assert sidecar_call(self.port, "PUT", "/egress", settings).status == 204

    def trust(self):
        pem = sidecar_call(self.port, "GET", "/ca").body.decode()
        r = self.sh(f"mkdir -p {os.path.dirname(CA)} && cat > {CA} <<'X'\n{pem}X")
        assert r["exitCode"] == 0, r
        return pem

    def sh(self, command):
        r = through(self.port, 3000, "POST", "/api/execute", {"command": command})
        assert r.status == 200, r.body
        return r.json

    def python(self, program):
        through(self.port, 3000, "POST", "/api/write", {"path": "/tmp/p.py", "content": PROLOGUE + textwrap.dedent(program)})
        r = self.sh("python3 /tmp/p.py")
        assert r["exitCode"] == 0, r["stderr"]
        return r["stdout"].strip()

    def close(self):
        self.engine.remove(self.name, (204, 404))
        self.engine.remove(self.name + "-proxy", (204, 404))
        self.owner.close()


@pytest.fixture
def container(daemon):
    made = []

    def make(decide, **kwargs):
        made.append(Container(daemon, decide, **kwargs))
        return made[-1]

    yield make
    for c in made:
        c.close()


def test_names_and_http(container):
    c = container(lambda head: (200, http(lambda request: request.split(b"\r\n")[0])))
    assert c.python("print(fetch('http://api.test/path'))") == "GET /path HTTP/1.1"
    head = c.owner.heads[-1]
    assert head["target"] == "11.0.0.1:80" and head["x-hostname"] == "api.test"
    out = c.python("""
        try:
            fetch("http://elsewhere.example/")
        except OSError as e:
            print(e)
        """)
    assert "Name or service not known" in out or "No address associated" in out


def test_https_with_the_sidecars_authority(container):
    c = container(lambda head: (200, http(b"inside")))
    pem = c.trust()
    assert "PRIVATE" not in pem
    out = c.python(f"""
        context = ssl.create_default_context(cafile={CA!r})
        print(fetch("https://api.test/", context=context))
        try:
            fetch("https://api.test/")
        except OSError as e:
            print("certificate verify failed" in str(e))
        """)
    assert out.split() == ["inside", "True"]
    assert c.owner.heads[-1]["x-tls-sni"] == "api.test"
    # the programs people use
    r = c.sh(f"curl -sS -m 50 --cacert {CA} https://other.test/ && NODE_EXTRA_CA_CERTS={CA} node -e "
             "\"fetch('https://node.test/').then(r => r.text()).then(t => console.log(' ' + t))\"")
    assert r["exitCode"] == 0 and r["stdout"].split() == ["inside", "inside"], r


def test_internet_on_asks_the_hosts_resolver(container, resolver):
    c = container(lambda head: (202, http(b"dialed")), internet=True)
    assert c.python("print(fetch('http://real.example/'), fetch('http://own.test/'))") == "dialed dialed"
    assert c.owner.heads[0]["target"] == "93.184.216.34:80" and c.owner.heads[1]["target"] == "11.0.0.1:80"
    assert ("real.example", 1) in resolver.asked
    assert c.python("""
        try:
            socket.getaddrinfo("gone.example", 80)
        except socket.gaierror:
            print("none")
        """) == "none"


def test_plain_tcp_denied_and_spoken_first(container):
    def decide(head):
        port = head["target"].split(":")[1]
        if port == "7000":
            return 200, echo
        if port == "2525":
            return 202, lambda conn, rest: conn.sendall(b"220 ready")
        return 400, None

    c = container(decide)
    out = c.python("""
        s = socket.create_connection(("10.1.2.3", 7000))
        s.sendall(b"x" * 300000)
        s.shutdown(socket.SHUT_WR)
        print(len(read_all(s)))
        print(read_all(socket.create_connection(("1.2.3.4", 2525))).decode())
        for address in "169.254.169.254", "192.168.1.1":
            try:
                s = socket.create_connection((address, 80))
                s.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
                print(s.recv(10))
            except (ConnectionResetError, BrokenPipeError):
                print("reset")
        """)
    assert out.splitlines() == ["300000", "220 ready", "reset", "reset"]


def test_two_hundred_at_once(container):
    together = threading.Barrier(200)

    def handler(conn, rest):
        together.wait(60)
        echo(conn, rest)

    c = container(lambda head: (200, handler))
    out = c.python("""
        conns = [socket.create_connection(("8.8.%d.8" % i, 7000)) for i in range(200)]
        for i, s in enumerate(conns):
            s.sendall(b"%d" % i)
            s.shutdown(socket.SHUT_WR)
        print(all(read_all(s) == b"%d" % i for i, s in enumerate(conns)))
        """)
    assert out == "True"


def test_the_workload_cannot_change_its_rules(container):
    """No right over the namespace, no way to get one by making another."""
    c = container(lambda head: (400, None))
    out = c.python("""
        import struct
        def netlink(protocol, message):
            try:
                s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
                s.bind((0, 0))
                s.send(message)
                while True:
                    answer = s.recv(65536)
                    kind, = struct.unpack("=H", answer[4:6])
                    if kind == 2:
                        return os.strerror(-struct.unpack("=i", answer[16:20])[0])
            except OSError as e:
                return os.strerror(e.errno)
        # the route that makes every address local, then the whole rule set
        route = struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 255, 4, 254, 2, 0)
        print(netlink(0, struct.pack("=IHHII", 16 + len(route), 25, 5, 1, 0) + route))
        begin = struct.pack("=IHHIIBBH", 20, 16, 1, 1, 0, 0, 0, socket.htons(10))
        table = struct.pack("=IHHIIBBH", 20, 10 << 8 | 2, 5, 2, 0, 1, 0, 0)
        end = struct.pack("=IHHIIBBH", 20, 17, 1, 3, 0, 0, 0, socket.htons(10))
        print(netlink(12, begin + table + end))
        """)
    for line in out.splitlines():
        assert line in ("Operation not permitted", "Address family not supported by protocol",
                        "Protocol not supported", "Permission denied"), out
    assert len(out.splitlines()) == 2
    r = c.sh("unshare -Urn true 2>&1; unshare -n true 2>&1; true")
    assert "not permitted" in r["stdout"] or "nvalid argument" in r["stdout"] or "not implemented" in r["stdout"], r


def test_settings_are_kept_over_a_restart_of_the_container(container):
    c = container(lambda head: (200, http(b"x")))
    assert c.python("print(fetch('http://api.test/'))") == "x"
    c.engine.remove(c.name)
    c.engine.create(c.name, HostConfig={"NetworkMode": f"container:{c.name}-proxy"})
    c.engine.start(c.name)
    c.wait_up()
    assert c.python("print(fetch('http://api.test/'))") == "x"


def test_a_new_gateway_takes_over(container, daemon):
    c = container(lambda head: (200, http(b"x")))
    pem = c.trust()
    old = gateway_pid(daemon)
    os.kill(old, signal.SIGKILL)
    wait_for(lambda: gateway_pid(daemon) != old and answers(c.engine), what="a new gateway")
    assert sidecar_call(c.port, "GET", "/ca").body.decode() == pem
    c.put({"port": c.owner.port})  # all that workerd says when it finds a container
    out = c.python(f"""
        print(fetch("https://api.test/", context=ssl.create_default_context(cafile={CA!r})))
        try:
            socket.getaddrinfo("elsewhere.example", 80)
        except socket.gaierror:
            print("none")
        """)
    assert out.split() == ["x", "none"]  # the settings are those of before


def test_a_new_keeper_takes_over(container, daemon):
    """Which sandboxes have a sidecar is known after kill -9, too; the rules were never gone."""
    c = container(lambda head: (200, http(b"x")))
    assert c.python("print(fetch('http://api.test/'))") == "x"
    daemon.kill()
    daemon.start()
    wait_for(lambda: answers(c.engine), what="the engine's socket")
    c.port = c.engine.host_port(c.name + "-proxy")
    c.put({"port": c.owner.port})
    c.wait_up()
    assert c.python("print(fetch('http://api.test/'))") == "x"


def test_a_flood_of_one_does_not_stop_the_other(container):
    """One connects and asks as fast as it can, and never reads; the other one is served."""
    bad = container(lambda head: (200, lambda conn, rest: conn.recv(1)), name="bad")
    good = container(lambda head: (200, http(b"x")), name="good")
    r = through(bad.port, 3000, "POST", "/api/process/start", {"command": "python3 -c '" + textwrap.dedent("""
        import socket
        names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        question = bytes(5) + b"\\1" + bytes(6) + b"\\3api\\4test" + bytes(2) + b"\\1" + bytes(1) + b"\\1"
        kept = []
        while True:
            for i in range(100):
                names.sendto(question, ("8.8.8.8", 53))
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(("1.2.3.4", 7000))
            kept = kept[-500:] + [s]
        """) + "'"})
    assert r.status == 200, r.body
    wait_for(lambda: len(bad.owner.heads) > 300, what="the flood")
    for _ in range(20):
        assert good.python("print(fetch('http://api.test/'))") == "x"
    assert bad.sh("pgrep -fc 'import socket'")["exitCode"] == 0  # it is still at it


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_nothing_is_left(container, daemon):
    """Open connections in every state, and then the container is gone."""
    first = container(lambda head: (200, echo), name="first")
    gateway = gateway_pid(daemon)
    first.close()
    before = descriptors(gateway)
    for i in range(3):
        c = Container(daemon, lambda head: (200, echo) if head["target"].endswith("7000") else (b"", lambda conn, rest: conn.recv(1)),
                      name=f"gone-{i}")
        try:
            through(c.port, 3000, "POST", "/api/process/start", {"command": "python3 -c '" + textwrap.dedent("""
                import socket, time
                open_ones = [socket.create_connection(("1.2.3.4", port)) for port in [7000] * 20 + [7001] * 20 + [443] * 5]
                for s in open_ones[:20]:
                    s.sendall(b"x")
                    s.recv(1)
                open("/tmp/open", "w").close()
                time.sleep(1000)
                """) + "'"})
            wait_for(lambda: c.sh("ls /tmp/open")["exitCode"] == 0, what="connections")
            assert descriptors(gateway) > before
        finally:
            c.close()
    # a socket of theirs would keep their namespace alive; nothing else could
    wait_for(lambda: descriptors(gateway) <= before, what="everything is given back")
    assert gateway_pid(daemon) == gateway
