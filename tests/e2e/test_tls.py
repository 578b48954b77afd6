# SPDX-License-Identifier: Apache-2.0
"""HTTPS for the API and for previews: certificates by name, read again without a restart, tunnels inside TLS."""
import hashlib
import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time

import pytest
from preview import Preview, Wire, serve
from silica import TOKEN, Daemon, free_port, wait_for
from test_previews import WS, body_of, upgrade

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="needs the openssl command")
DOMAIN = "box.example.test"


def certificate(directory, name, *hosts):
    cert, key = f"{directory}/{name}.pem", f"{directory}/{name}.key"
    names = ",".join("DNS:" + h for h in hosts)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", f"/CN={hosts[0]}", "-addext", f"subjectAltName={names}", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    return cert, key


def fingerprint(path):
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(open(path).read())).hexdigest()


class Tls(Daemon):
    def __init__(self, directory):
        self.files = str(directory)
        self.api, self.api_key = certificate(self.files, "api", "api.example.test", "localhost")
        self.box, self.box_key = certificate(self.files, "box", f"*.{DOMAIN}")
        self.tls_port = free_port()
        super().__init__("tls", env={"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:quarantine_size_mb=1"}, args=[
            "--listen-tls", f"127.0.0.1:{self.tls_port}", "--tls-cert", self.api, "--tls-key", self.api_key,
            "--tls-cert", self.box, "--tls-key", self.box_key, "--preview-domain", f"{DOMAIN}:{self.tls_port}"])

    def secure(self, s, name, cafile=None, **options):
        context = ssl.create_default_context(cafile=cafile)
        if not cafile:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for k, v in options.items():
            setattr(context, k, v)
        return context.wrap_socket(s, server_hostname=name)

    def shown(self, name):
        """The fingerprint of the certificate that a client asking for a name gets."""
        with socket.create_connection(("127.0.0.1", self.tls_port), 60) as s, self.secure(s, name) as t:
            return hashlib.sha256(t.getpeercert(True)).hexdigest()


class TlsWire(Wire):
    def __init__(self, daemon, name, **kw):
        port, daemon.port = daemon.port, daemon.tls_port
        try:
            super().__init__(daemon, **kw)
        finally:
            daemon.port = port
        self.s = daemon.secure(self.s, name)


class TlsPreview(Preview):
    def wire(self, **kw):
        return TlsWire(self.daemon, self.name, **kw)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    d = Tls(tmp_path_factory.mktemp("tls"))
    d.start()
    yield d
    d.cleanup()


def test_api_over_tls(tls):
    context = ssl.create_default_context(cafile=tls.api)
    c = http.client.HTTPSConnection("localhost", tls.tls_port, context=context, timeout=60)
    for _ in range(3):
        c.request("GET", "/health")
        r = c.getresponse()
        assert r.status == 200 and r.read()
    c.request("POST", "/v1/sandbox/demo/api/execute", '{"command":"echo hi"}', {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"})
    assert b'"stdout":"hi"' in c.getresponse().read()
    c.close()


def test_upload_over_tls(tls):
    data = os.urandom(5 << 20)
    c = http.client.HTTPSConnection("localhost", tls.tls_port, context=ssl.create_default_context(cafile=tls.api), timeout=60)
    c.request("PUT", "/v1/sandbox/demo/file/workspace/f", data, {"Authorization": f"Bearer {TOKEN}"})
    assert c.getresponse().status in (200, 201, 204)
    c.close()
    assert tls.out("demo", "sha256sum < /workspace/f").split()[0] == hashlib.sha256(data).hexdigest()


def test_certificate_by_name(tls):
    api, box = fingerprint(tls.api), fingerprint(tls.box)
    assert tls.shown("localhost") == api and tls.shown("api.example.test") == api
    assert tls.shown(f"8000-demo-tok.{DOMAIN}") == box
    assert tls.shown("unknown.example") == api and tls.shown(None) == api
    with socket.create_connection(("127.0.0.1", tls.tls_port), 60) as s:
        t = tls.secure(s, f"8000-demo-tok.{DOMAIN}", cafile=tls.box)  # the client's own check of name and chain
        t.close()


def test_only_http_1_and_modern_tls(tls):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    with socket.create_connection(("127.0.0.1", tls.tls_port), 60) as s, context.wrap_socket(s) as t:
        assert t.selected_alpn_protocol() == "http/1.1" and t.version() == "TLSv1.3"
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", tls.tls_port), 60) as s, pytest.raises(ssl.SSLError):
        context.wrap_socket(s)


def test_previews_over_tls(tls):
    big = body_of("0123456789abcdef" * 65536)
    p = serve(tls, "demo", {"/ws": WS, "/big": big, "/up": [["swallow", None], *body_of("ok")]}, token="tok")
    assert p.url == f"https://8000-demo-tok.{DOMAIN}:{tls.tls_port}/"
    q = TlsPreview(tls, p.url)
    assert q.get().body == b"ok"
    assert q.get("/big").body == b"0123456789abcdef" * 65536
    head = next(h for h in (r for r in tls.out("demo", "cat /tmp/requests").splitlines()))
    assert "X-Forwarded-Proto: https" in head and "X-Forwarded-For: 127.9." in head
    with q.wire() as w:
        w.send(q.head("/up", "PUT", [f"Content-Length: {64 << 20}"]))
        for _ in range(64):
            w.send(b"u" * (1 << 20))
        assert w.answer().body == b"ok"
    with q.wire() as w:
        upgrade(q, w)
        for n in (1, 1000, 100_000):
            w.send(b"e" * n)
            assert w.exactly(n) == b"e" * n


def test_certificates_are_read_again(tls):
    before, name = tls.shown("localhost"), f"8000-demo-tok.{DOMAIN}"
    p = serve(tls, "keep", {"/ws": WS}, port=8001, token="tok")
    q = TlsPreview(tls, p.url)
    with q.wire() as w:
        upgrade(q, w)
        certificate(tls.files, "api", "localhost")
        tls.proc.send_signal(signal.SIGHUP)
        after = fingerprint(tls.api)
        wait_for(lambda: tls.shown("localhost") == after, what="the new certificate")
        assert after != before and tls.shown(name) == fingerprint(tls.box)
        w.send(b"still the same connection")
        assert w.exactly(25) == b"still the same connection"
    for broken in ("nonsense", open(tls.box).read()):  # not a certificate; one of another key
        good = open(tls.api).read()
        open(tls.api, "w").write(broken)
        seen = tls.log().count("stay as they are")
        tls.proc.send_signal(signal.SIGHUP)
        wait_for(lambda: tls.log().count("stay as they are") > seen, what="a complaint")
        assert tls.shown("localhost") == after
        open(tls.api, "w").write(good)
    os.rename(tls.api, tls.api + ".away")
    seen = tls.log().count("stay as they are")
    tls.proc.send_signal(signal.SIGHUP)
    wait_for(lambda: tls.log().count("stay as they are") > seen, what="a complaint")
    assert tls.shown("localhost") == after
    os.rename(tls.api + ".away", tls.api)
    tls.destroy("keep")


def test_garbage_and_silence(tls):
    with socket.create_connection(("127.0.0.1", tls.tls_port), 60) as s:
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            assert b"HTTP" not in s.recv(100) and s.recv(100) == b""
        except ConnectionResetError:
            pass
    begin = time.monotonic()
    silent = [socket.create_connection(("127.0.0.1", tls.tls_port), 60) for _ in range(20)]
    assert tls.shown("localhost")  # others are served meanwhile
    for s in silent:
        assert s.recv(1) == b""
        s.close()
    assert time.monotonic() - begin > 5  # not before they could have spoken


def test_flags_are_checked(tls):
    def error(*args):
        d = Daemon("bad", args=args)
        try:
            d.start(wait=False)
            assert d.proc.wait(60) != 0
            return d.log()
        finally:
            d.cleanup()

    assert "needs its --tls-key" in error("--tls-cert", tls.api)
    assert "--listen-tls needs" in error("--listen-tls", "127.0.0.1:0")
    assert "none.pem" in error("--listen-tls", "127.0.0.1:0", "--tls-cert", tls.files + "/none.pem", "--tls-key", tls.api_key)
