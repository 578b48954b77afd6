# SPDX-License-Identifier: Apache-2.0
"""The way out of a sandbox with a sidecar: a program in a network namespace of its own (tests/gateway/egress_host.c),
and the owner, played here, that all its connections reach."""
import json
import os
import select
import socket
import ssl
import subprocess
import textwrap
import threading

import pytest

import silica
from owner import Owner, Resolver, echo, http

HOST = os.environ.get(
    "SILICA_EGRESS_HOST", os.path.join(os.path.dirname(silica.BIN), "..", "..", "tests", "egress_host")
)
PATIENCE = 60

PROLOGUE = """
import json, os, socket, ssl, struct, sys, threading, time
socket.setdefaulttimeout(40)
CA = sys.argv[1]

def connect(address="93.184.216.34", port=7000):
    return socket.create_connection((address, port))

def read_all(s):
    data = b""
    while piece := s.recv(65536):
        data += piece
    return data

def outcome(address="93.184.216.34", port=7000):
    try:
        s = connect(address, port)
        s.sendall(b"hello")
        return s.recv(10)
    except (ConnectionResetError, BrokenPipeError):
        return "reset"

def secure(name, port=443, cafile=None, address="11.0.0.1"):
    context = ssl.create_default_context(cafile=cafile or CA)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context.wrap_socket(connect(address, port), server_hostname=name)

def get(s, host):
    s.sendall(b"GET /x HTTP/1.1\\r\\nHost: " + host.encode() + b"\\r\\nConnection: close\\r\\n\\r\\n")
    return read_all(s).split(b"\\r\\n\\r\\n", 1)[1]

def ask(name, kind=1, server="8.8.8.8", raw=None, edns=False, patience=20):
    labels = b"".join(bytes([len(l)]) + l.encode() for l in name.split("."))
    packet = raw or struct.pack(">6H", 0x1234, 0x100, 1, 0, 0, int(edns)) + labels + b"\\0" + struct.pack(">HH", kind, 1)
    if edns:
        packet += b"\\0\\0\\x29\\x04\\xd0" + bytes(6)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(patience)
    s.sendto(packet, (server, 53))
    answer, peer = s.recvfrom(4096)
    assert peer == (server, 53), peer
    assert answer[:2] == packet[:2]
    return answer

def code(answer):
    return answer[3] & 15

def address(answer):
    return socket.inet_ntoa(answer[-4:]) if answer[7] else None
"""


class Lab:
    def __init__(self, tmp_path):
        self.tmp = tmp_path
        self.ca = str(tmp_path / "ca.pem")
        self.owners = []

    def owner(self, decide):
        self.owners.append(Owner(decide))
        return self.owners[-1]

    def close(self):
        for o in self.owners:
            o.close()

    def start(self, owner, program, internet=False, names=("*.test",), resolver="-"):
        port = owner if isinstance(owner, int) else owner.port
        settings = {"port": port, "internet": {"enabled": internet}, "dns": {"allowHostnames": list(names)}}
        code = PROLOGUE + textwrap.dedent(program)
        return subprocess.Popen(
            [HOST, resolver, self.ca, json.dumps(settings), "/usr/bin/python3", "-c", code, self.ca],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )

    def run(self, owner, program, **kwargs):
        p = self.start(owner, program, **kwargs)
        try:
            out, err = p.communicate(timeout=PATIENCE)
        finally:
            p.kill()
        assert p.returncode == 0, err
        assert "Sanitizer" not in err, err
        return out.strip()


@pytest.fixture
def lab(tmp_path):
    made = Lab(tmp_path)
    yield made
    made.close()


def certificate(tmp_path, name):
    """A key and a self-signed certificate of somebody else."""
    key, cert = str(tmp_path / f"{name}.key"), str(tmp_path / f"{name}.crt")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-keyout", key, "-out", cert, "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"],
        check=True, capture_output=True,
    )
    return key, cert


# ---------------------------------------------------------------- TCP


def test_http_carries_its_host(lab):
    owner = lab.owner(lambda head: (200, http(b"hello")))
    out = lab.run(owner, """
        print(get(connect("93.184.216.34", 80), "Api.Test:80").decode())
        print(get(connect("10.1.2.3", 8080), "other.test").decode())
        """)
    assert out.split() == ["hello", "hello"]
    assert owner.heads[0] == {"method": "CONNECT", "target": "93.184.216.34:80", "version": "HTTP/1.1",
                              "host": "93.184.216.34:80", "x-hostname": "api.test"}
    assert owner.heads[1] == {"method": "CONNECT", "target": "10.1.2.3:8080", "version": "HTTP/1.1",
                              "host": "10.1.2.3:8080"}


def test_https_ends_here_and_is_trusted(lab):
    seen = []
    owner = lab.owner(lambda head: (200, http(lambda request: seen.append(request) or b"secret")))
    out = lab.run(owner, """
        for name in "api.test", "www.api.test", "api.test":
            s = secure(name)
            names = [v for k, v in s.getpeercert()["subjectAltName"]]
            print(names[0], get(s, name).decode(), s.version())
        """)
    assert out.splitlines() == ["api.test secret TLSv1.3", "www.api.test secret TLSv1.3", "api.test secret TLSv1.3"]
    assert [h["x-tls-sni"] for h in owner.heads] == ["api.test", "www.api.test", "api.test"]
    assert all("x-hostname" not in h for h in owner.heads)
    assert seen[0].startswith(b"GET /x HTTP/1.1\r\nHost: api.test\r\n")  # the owner sees plain HTTP


def test_https_is_refused_by_who_does_not_trust_us(lab):
    owner = lab.owner(lambda head: (200, http(b"secret")))
    out = lab.run(owner, """
        try:
            ssl.create_default_context().wrap_socket(connect("11.0.0.1", 443), server_hostname="api.test")
        except ssl.SSLCertVerificationError as e:
            print("refused")
        print(get(secure("api.test"), "api.test").decode())
        """)
    assert out.split() == ["refused", "secret"]


def test_http1_is_what_tls_agrees_on(lab):
    owner = lab.owner(lambda head: (200, http(b"x")))
    out = lab.run(owner, """
        context = ssl.create_default_context(cafile=CA)
        context.set_alpn_protocols(["h2", "http/1.1"])
        s = context.wrap_socket(connect("11.0.0.1", 443), server_hostname="api.test")
        print(s.selected_alpn_protocol())
        """)
    assert out == "http/1.1"


def test_202_leaves_tls_alone(lab, tmp_path):
    key, cert = certificate(tmp_path, "real.example")

    def real(conn, rest):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        with context.wrap_socket(conn, server_side=True) as s:
            http(b"real")(s, b"")

    owner = lab.owner(lambda head: (202, real))
    out = lab.run(owner, f"""
        print(get(secure("real.example", cafile={cert!r}), "real.example").decode())
        try:
            secure("real.example")
        except ssl.SSLError:
            print("not ours")
        """)
    assert out.split() == ["real", "not", "ours"]
    assert owner.heads[0]["x-tls-sni"] == "real.example"


def test_tls_without_a_name_is_passed(lab, tmp_path):
    key, cert = certificate(tmp_path, "real.example")

    def real(conn, rest):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        with context.wrap_socket(conn, server_side=True) as s:
            http(b"real")(s, b"")

    owner = lab.owner(lambda head: (200, real))
    out = lab.run(owner, """
        context = ssl._create_unverified_context()
        print(get(context.wrap_socket(connect("1.2.3.4", 443)), "x").decode())
        """)
    assert out == "real"
    assert "x-tls-sni" not in owner.heads[0]


def test_a_hello_in_pieces(lab):
    owner = lab.owner(lambda head: (200, http(b"whole")))
    out = lab.run(owner, """
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = ssl.create_default_context(cafile=CA).wrap_bio(incoming, outgoing, server_hostname="pieces.test")
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        hello = outgoing.read()
        # two records where there was one, and then byte by byte
        body = hello[5:]
        records = b"".join(hello[:3] + struct.pack(">H", len(p)) + p for p in (body[:7], body[7:]))
        s = connect("11.0.0.1", 8443)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(records)):
            s.sendall(records[i:i + 1])
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                s.sendall(outgoing.read())
                data = s.recv(65536)
                assert data
                incoming.write(data)
        tls.write(b"GET / HTTP/1.1\\r\\nHost: pieces.test\\r\\n\\r\\n")
        s.sendall(outgoing.read())
        incoming.write(read_all(s))
        print(tls.read(65536).split(b"\\r\\n\\r\\n")[1].decode())
        """)
    assert out == "whole"
    assert owner.heads[0]["x-tls-sni"] == "pieces.test"


def test_half_close_both_ways(lab):
    owner = lab.owner(lambda head: (200, echo))
    out = lab.run(owner, """
        s = connect()
        s.sendall(b"x" * 1000000)
        s.shutdown(socket.SHUT_WR)
        print(len(read_all(s)))
        """)
    assert out == "1000000"


def test_a_server_may_speak_first(lab):
    def banner(conn, rest):
        conn.sendall(b"220 ready\r\n")
        echo(conn, rest)

    owner = lab.owner(lambda head: (202, banner))
    out = lab.run(owner, """
        s = connect("1.2.3.4", 2525)
        print(s.recv(100).decode().strip())
        s.sendall(b"HELO")
        print(s.recv(100).decode())
        """)
    assert out.splitlines() == ["220 ready", "HELO"]
    assert owner.heads[0]["target"] == "1.2.3.4:2525"


def test_a_client_that_only_listens_on_port_443(lab):
    """No hello ever comes: after a while it goes on without one."""
    owner = lab.owner(lambda head: (202, lambda conn, rest: conn.sendall(b"hi")))
    assert lab.run(owner, "print(read_all(connect('1.2.3.4', 443)).decode())") == "hi"


@pytest.mark.parametrize("answer", [
    400, 403, 500, b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 9000, b"HTTP/1.1 101 Hm\r\n\r\n",
])
def test_what_is_not_allowed_is_reset(lab, answer):
    owner = lab.owner(lambda head: (answer, None))
    assert lab.run(owner, "print(outcome())") == "reset"


def test_no_owner_is_a_reset(lab):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    assert lab.run(port, "print(outcome())") == "reset"


def test_the_catcher_itself_is_nobody(lab):
    owner = lab.owner(lambda head: (200, echo))
    assert lab.run(owner, "print(outcome('127.0.0.1', 39002))") == "reset" and not owner.heads


def test_loopback_stays_inside(lab):
    owner = lab.owner(lambda head: (200, echo))
    out = lab.run(owner, """
        l = socket.create_server(("127.0.0.1", 8080))
        c = connect("127.0.0.1", 8080)
        l.accept()[0].sendall(b"mine")
        print(c.recv(10).decode())
        try:
            connect("127.0.0.1", 8081)
        except ConnectionRefusedError:
            print("refused")
        """)
    assert out.split() == ["mine", "refused"] and not owner.heads


@pytest.mark.parametrize("pieces", [
    [b"HTTP/1.1 200 OK\r\n\r\nfirst bytes"],
    [b"HTTP/1.1 2", b"00 OK\r\nA: b\r\n", b"\r", b"\nfirst ", b"bytes"],
])
def test_not_a_byte_behind_the_answer_is_lost(lab, pieces):
    def send(conn, rest):
        for p in pieces[1:]:
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            conn.sendall(p)

    owner = lab.owner(lambda head: (pieces[0], send))
    assert lab.run(owner, "s = connect(); s.sendall(b'x'); print(read_all(s).decode())") == "first bytes"


def test_two_hundred_at_once(lab):
    """All of them are open before the first one is answered."""
    together = threading.Barrier(200)

    def handler(conn, rest):
        together.wait(PATIENCE)
        echo(conn, rest)

    owner = lab.owner(lambda head: (200, handler))
    out = lab.run(owner, """
        conns = []
        for i in range(200):
            s = connect("93.184.%d.%d" % (i % 250, i % 7), 7000 + i)
            s.sendall(b"%d" % i)
            s.shutdown(socket.SHUT_WR)
            conns.append(s)
        print(all(read_all(s) == b"%d" % i for i, s in enumerate(conns)))
        """)
    assert out == "True"
    assert len({h["target"] for h in owner.heads}) == 200


def test_a_connection_too_many_is_reset(lab):
    """The first 1024 stay, whatever comes after them."""
    owner = lab.owner(lambda head: (200, echo))
    out = lab.run(owner, """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
        conns = []
        for i in range(1024):
            s = connect()
            s.sendall(b"a")
            conns.append(s)
        for s in conns:
            assert s.recv(1) == b"a"
        print(outcome())
        conns[0].sendall(b"c")
        print(conns[0].recv(1).decode())
        """)
    assert out.split() == ["reset", "c"]


def memory_kb(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


@pytest.mark.parametrize("tls", [False, True])
def test_a_slow_reader_slows_the_owner(lab, tls):
    size, sent, stalled = 64 << 20, [0], threading.Event()

    def flood(conn, rest):
        conn.recv(1)
        piece = b"z" * 65536
        while sent[0] < size:
            if not select.select([], [conn], [], 1.0)[1]:
                stalled.set()  # nobody takes it
            sent[0] += conn.send(piece)

    owner = lab.owner(lambda head: (200, flood))
    p = lab.start(owner, f"""
        s = {'secure("api.test")' if tls else 'connect()'}
        s.sendall(b"x")
        print("open", flush=True)
        while not os.path.exists(CA + ".go"):
            time.sleep(0.02)
        n = 0
        while piece := s.recv(1 << 20):
            n += len(piece)
        print(n)
        """)
    try:
        assert p.stdout.readline().strip() == "open"
        assert stalled.wait(PATIENCE)
        assert sent[0] < size
        assert memory_kb(p.pid) < 256 * 1024  # with a sanitizer's own
        open(lab.ca + ".go", "w").close()
        out, err = p.communicate(timeout=PATIENCE)
    finally:
        p.kill()
    assert p.returncode == 0, err
    assert out.strip() == str(size)


# ---------------------------------------------------------------- settings


def test_settings_change_while_it_runs(lab):
    first = lab.owner(lambda head: (200, http(b"first")))
    second = lab.owner(lambda head: (200, http(b"second")))
    p = lab.start(first, """
        print(get(connect("1.2.3.4", 80), "a.test").decode(), address(ask("a.test")), address(ask("b.other")), flush=True)
        while get(connect("1.2.3.4", 80), "a.test") != b"second" or address(ask("a.test")):
            time.sleep(0.05)
        print("second", address(ask("b.other")), flush=True)
        """)
    try:
        assert p.stdout.readline().split() == ["first", "11.0.0.1", "None"]
        p.stdin.write(json.dumps({"port": second.port, "dns": {"allowHostnames": ["*.other"]}}))
        p.stdin.flush()
        out, err = p.communicate(timeout=PATIENCE)
    finally:
        p.kill()
    assert p.returncode == 0, err
    assert out.split() == ["ok", "second", "11.0.0.1"]


@pytest.mark.parametrize("body,why", [
    ("[]", "object"),
    ("{", "JSON"),
    ('{"port": 0}', "port"),
    ('{"port": 80}', "port"),
    ('{"port": "80"}', "port"),
    ('{"port": 65536}', "port"),
    ('{"internet": true}', "internet"),
    ('{"internet": {"enabled": 1}}', "internet"),
    ('{"dns": []}', "dns"),
    ('{"dns": {"allowHostnames": "*"}}', "allowHostnames"),
    ('{"dns": {"allowHostnames": [1]}}', "allowHostnames"),
    ('{"dns": {"allowHostnames": ["Upper.test"]}}', "lower case"),
    ('{"dns": {"allowHostnames": ["a b"]}}', "lower case"),
    ('{"dns": {"allowHostnames": [""]}}', "lower case"),
])
def test_bad_settings_change_nothing(lab, body, why):
    owner = lab.owner(lambda head: (200, http(b"still")))
    p = lab.start(owner, """
        print("open", flush=True)
        while not os.path.exists(CA + ".go"):
            time.sleep(0.02)
        print(get(connect("1.2.3.4", 80), "a.test").decode(), address(ask("a.test")), flush=True)
        """)
    try:
        assert p.stdout.readline().strip() == "open"
        p.stdin.write(body)
        p.stdin.flush()
        answer = p.stdout.readline()
        open(lab.ca + ".go", "w").close()
        out, err = p.communicate(timeout=PATIENCE)
    finally:
        p.kill()
    assert why in answer and answer.strip() != "ok"
    assert out.split() == ["still", "11.0.0.1"], err


# ---------------------------------------------------------------- names


def test_names_without_internet(lab):
    owner = lab.owner(lambda head: (200, http(b"x")))
    out = lab.run(owner, """
        a = ask("Api.TEST")
        assert code(a) == 0 and address(a) == "11.0.0.1" and a[12:21] == b"\\3Api\\4TEST", a
        for server in "127.0.0.1", "10.9.8.7", "169.254.169.254":
            assert address(ask("x.y.test", server=server, edns=True)[:-11]) == "11.0.0.1"
        a = ask("api.test", 28)
        assert code(a) == 0 and a[7] == 0  # it exists, without an IPv6 address
        assert code(ask("api.example")) == 3 and code(ask("test")) == 3
        assert code(ask("", raw=b"\\x12\\x34\\1\\0" + bytes(8))) == 1
        print("done")
        """)
    assert out == "done"


def test_names_with_internet(lab):
    resolver = Resolver({"real.example": "93.184.216.34", "own.test": None, "gone.example": None})
    owner = lab.owner(lambda head: (202, echo))
    try:
        out = lab.run(owner, """
            print(address(ask("real.example")), address(ask("REAL.example", edns=True)))
            print(code(ask("gone.example")), address(ask("gone.example")))
            print(code(ask("own.test")), address(ask("own.test")))
            a = ask("real.example", 28)
            print(code(a), a[7])
            """, internet=True, resolver=resolver.address)
    finally:
        resolver.close()
    assert out.splitlines() == ["93.184.216.34 93.184.216.34", "3 None", "0 11.0.0.1", "0 0"]
    assert ("real.example", 28) not in resolver.asked


def test_names_when_the_resolver_is_silent(lab):
    resolver = Resolver({"quiet.example": "silent", "own.test": "silent"})
    owner = lab.owner(lambda head: (202, echo))
    try:
        out = lab.run(owner, """
            print(code(ask("quiet.example")), address(ask("own.test")))
            """, internet=True, resolver=resolver.address)
    finally:
        resolver.close()
    assert out == "2 11.0.0.1"


def test_names_without_any_resolver(lab):
    owner = lab.owner(lambda head: (202, echo))
    out = lab.run(owner, "print(code(ask('a.example')), address(ask('own.test')))", internet=True)
    assert out == "2 11.0.0.1"


def test_more_questions_than_fit(lab):
    """Those beyond the bound are dropped; the ones after them are answered."""
    resolver = Resolver({f"n{i}.example": "silent" for i in range(400)} | {"last.example": "9.9.9.9"})
    owner = lab.owner(lambda head: (202, echo))
    try:
        out = lab.run(owner, """
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            for i in range(400):
                name = b"n%d" % i
                s.sendto(struct.pack(">6H", i, 0x100, 1, 0, 0, 0) + bytes([len(name)]) + name + b"\\7example\\0\\0\\1\\0\\1",
                         ("8.8.8.8", 53))
            while True:
                try:
                    print(address(ask("last.example", patience=0.5)))  # dropped until earlier ones are given up
                    break
                except socket.timeout:
                    pass
            """, internet=True, resolver=resolver.address)
    finally:
        resolver.close()
    assert out == "9.9.9.9"
    assert len(resolver.asked) < 400
