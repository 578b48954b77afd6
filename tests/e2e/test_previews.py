# SPDX-License-Identifier: Apache-2.0
"""Exposed ports and previews (catalogue area 11), through the real daemon, with services inside real sandboxes."""
import json
import random
import re
import string
import time

import pytest
from preview import Wire, expose, requests_seen, serve, start, write
from silica import TOKEN, Daemon, wait_for
from tracer import gateway_pid


@pytest.fixture(scope="module")
def daemon():
    # the address sanitizer keeps freed memory for a while; tests that watch memory want little of that
    d = Daemon("previews", env={"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:quarantine_size_mb=1"})
    d.start()
    yield d
    d.cleanup()


@pytest.fixture
def box(daemon):
    """A fresh sandbox id, short enough for a host name."""
    name = "b-" + "".join(random.choices(string.ascii_lowercase, k=8))
    yield name
    daemon.destroy(name)


def api(daemon, method, box, tail="", body=None):
    return daemon.request(method, f"/v1/sandbox/{box}/ports{tail}", body)


def body_of(text, extra=""):
    return [["send", f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n{extra}\r\n{text}"], ["keep", None]]


def host_answer(daemon, host, path="/", source=None, extra=""):
    with Wire(daemon, source=source) as w:
        w.send(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{extra}\r\n")
        return w.answer()


def without_time(body):
    return re.sub(rb'"timestamp":"[^"]*"', b"", body)


# ------------------------------------------------------------------ the ports API

def test_expose_list_and_close(daemon, box):
    r = api(daemon, "POST", box, body={"port": 8080, "name": "web"})
    assert r.status == 201
    first = r.json
    assert first["port"] == 8080 and first["name"] == "web" and first["exposedAt"].endswith("Z")
    assert re.fullmatch(rf"http://8080-{box}-[a-z0-9]{{16}}\.localhost:{daemon.port}/", first["url"])
    assert api(daemon, "POST", box, body={"port": 8081, "token": "my_token_1"}).json["url"] == \
        f"http://8081-{box}-my_token_1.localhost:{daemon.port}/"
    listed = api(daemon, "GET", box).json
    assert listed["count"] == 2 and [p["port"] for p in listed["ports"]] == [8080, 8081] and listed["ports"][0] == first
    r = api(daemon, "POST", box, body={"port": 8080})
    assert r.status == 200 and r.json == first
    assert api(daemon, "DELETE", box, "/8080").json == {"success": True, "port": 8080}
    assert api(daemon, "DELETE", box, "/8080").json["code"] == "PORT_NOT_EXPOSED"
    assert api(daemon, "GET", box).json["count"] == 1
    again = api(daemon, "POST", box, body={"port": 8080}).json
    assert again["url"] != first["url"]


def test_expose_is_strict(daemon, box):
    for port in (None, 80, 1023, 65536, 3000, "8080", 8080.5, -1, True):
        r = api(daemon, "POST", box, body={"port": port})
        assert r.status == 400 and r.json["code"] == "INVALID_PORT_NUMBER", (port, r.body)
    for token in ("", "a" * 17, "Token", "a-b", "a.b", "ä", 5):
        r = api(daemon, "POST", box, body={"port": 8080, "token": token})
        assert r.status == 400 and r.json["context"]["field"] == "token", (token, r.body)
    assert api(daemon, "POST", box, body={"port": 8080, "name": "n" * 65}).status == 400
    assert api(daemon, "POST", box, body=[]).status == 400
    assert api(daemon, "GET", box).status == 404  # nothing of this made a sandbox
    assert api(daemon, "POST", box, body={"port": 8080, "token": "same"}).status == 201
    assert api(daemon, "POST", box, body={"port": 8081, "token": "same"}).json["code"] == "PORT_ALREADY_EXPOSED"
    assert api(daemon, "POST", box, body={"port": 8080, "token": "other"}).json["code"] == "PORT_ALREADY_EXPOSED"
    assert api(daemon, "POST", box, body={"port": 8080, "token": "same"}).status == 200


def test_ids_that_are_no_host_names(daemon):
    for name in ("UpperCase", "with.dot", "l" * 41):
        r = api(daemon, "POST", name, body={"port": 8080, "token": "0123456789abcdef"})
        if len(name) == 41:  # 4 digits leave room for 41
            assert r.status == 201
            r = api(daemon, "POST", name, body={"port": 18080, "token": "0123456789abcde0"})
        assert r.status == 400 and r.json["code"] == "INVALID_SANDBOX_ID", r.body
        daemon.destroy(name)


def test_too_many_ports(daemon, box):
    for port in range(9000, 9064):
        assert api(daemon, "POST", box, body={"port": port}).status == 201
    assert api(daemon, "POST", box, body={"port": 9064}).json["code"] == "TOO_MANY_PORTS"


def test_listening_ports(daemon, box):
    start(daemon, box, "exec python3 -m http.server 8123 --bind 127.0.0.1", 8123)
    start(daemon, box, "exec python3 -m http.server 8124 --bind ::1", 8124)
    ports = daemon.request("GET", f"/v1/sandbox/{box}/ports/listening").json["ports"]
    assert {"port": 8123, "address": "127.0.0.1", "process": "python3"} in ports
    assert {"port": 8124, "address": "::1", "process": "python3"} in ports


# ------------------------------------------------------------------ who gets in

def test_PRV_01_guessing_tokens(daemon, box):
    p = serve(daemon, box)
    port, token = p.name.split("-")[0], p.name.split(".")[0].rsplit("-", 1)[1]
    begun = time.monotonic()
    with Wire(daemon) as w:
        seen = {}
        for _ in range(3000):
            guess = "".join(random.choices(string.ascii_lowercase + string.digits, k=16))
            w.send(f"GET / HTTP/1.1\r\nHost: {port}-{box}-{guess}.localhost\r\n\r\n")
            status = w.answer().status
            seen[status] = seen.get(status, 0) + 1
    assert set(seen) == {404, 429} and seen[404] <= 20 * (2 + (time.monotonic() - begun) / 10), seen  # 20 in ten seconds
    for guess in (token[:-1], token[1:], token + "a", token[:1], "", token[:-1] + ("b" if token[-1] == "a" else "a")):
        assert host_answer(daemon, f"{port}-{box}-{guess}.localhost").status == 404, guess
    assert p.get().body == b"ok"


def test_PRV_01_every_miss_looks_the_same(daemon, box):
    p = serve(daemon, box)
    token = p.name.split(".")[0].rsplit("-", 1)[1]
    misses = [host_answer(daemon, h + ".localhost") for h in (
        f"8000-{box}-{'a' * 16}", f"8001-{box}-{token}", f"8000-nobody-{token}", "nonsense", f"8000-{box}", "8000-a-b")]
    assert {(m.status, without_time(m.body), tuple(k for k, _ in m.headers)) for m in misses} == {
        (404, without_time(misses[0].body), tuple(k for k, _ in misses[0].headers))}
    page = host_answer(daemon, "nonsense.localhost", extra="Accept: text/html\r\n")
    assert page.status == 404 and page["content-type"].startswith("text/html") and b"<h1>" in page.body


def test_PRV_02_tokens_are_for_one_port_of_one_sandbox(daemon, box):
    p = serve(daemon, box, token="tokenx")
    serve(daemon, box, port=8001, token="tokeny")
    expose(daemon, box + "2", 8000, token="tokenz")
    try:
        assert p.get().body == b"ok"
        for port, name, token in ((8000, box, "tokeny"), (8001, box, "tokenx"), (8000, box, "tokenz"),
                                  (8000, box + "2", "tokenx"), (8001, box + "2", "tokenz")):
            assert host_answer(daemon, f"{port}-{name}-{token}.localhost").status == 404
    finally:
        daemon.destroy(box + "2")


def test_PRV_03_host_tricks(daemon, box):
    p = serve(daemon, box, token="tok")
    name = p.name
    for good in (name, name.upper(), name + ":1", name + f":{daemon.port}", name.replace("localhost", "LocalHost")):
        assert host_answer(daemon, good).body == b"ok", good
    for bad in (name + ".", "x." + name, name + "x", "user@" + name, name.replace(".localhost", ".localhost.evil.example"),
                name.replace(".", "\xa1", 1), "0" + name, name.replace("8000", "08000"), "-" + name, name + ":x", name + ":123456",
                "a" * 64 + ".localhost", f"8000-{'b' * 60}-tok.localhost", f"8000--tok.localhost", "8000-.localhost"):
        assert 400 <= host_answer(daemon, bad).status < 500, bad
    for extra in (f"Host: {name}\r\n", "X-Forwarded-Host: localhost\r\n"):
        a = host_answer(daemon, "nothing.localhost", extra=extra)
        assert a.status in (400, 404)
    for header in ("X-Forwarded-Host", "Forwarded", "X-Original-Host"):
        assert host_answer(daemon, f"127.0.0.1:{daemon.port}", extra=f"{header}: {name}\r\n").status == 401
    with Wire(daemon) as w:  # the target does not decide, either
        w.send(f"GET http://{name}/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert w.answer().status in (400, 401, 404)


def test_PRV_04_api_and_previews_do_not_mix(daemon, box):
    p = serve(daemon, box, {"/health": body_of("mine"), "/v1/sandbox": body_of("mine too")})
    auth = f"Authorization: Bearer {TOKEN}\r\n"
    assert host_answer(daemon, p.host, "/health").body == b"mine"
    assert host_answer(daemon, p.host, "/v1/sandbox", extra=auth).body == b"mine too"
    for path in ("/v1/sandbox", "/health", f"/v1/sandbox/{box}/api/ping"):
        assert host_answer(daemon, "nobody.localhost", path, extra=auth).status == 404
    assert host_answer(daemon, f"localhost:{daemon.port}", "/").status == 401


def test_PRV_05_only_exposed_ports(daemon, box):
    p = serve(daemon, box, token="tok")
    start(daemon, box, "exec python3 -m http.server 8002 --bind 127.0.0.1", 8002)
    for port in (8002, 3000, 80, 22, 443, 0, 65536, 99999):
        assert host_answer(daemon, f"{port}-{box}-tok.localhost").status == 404
    assert p.get().status == 200


def test_PRV_06_old_addresses(daemon, box):
    p = serve(daemon, box, token="tok")
    assert p.get().status == 200
    api(daemon, "DELETE", box, "/8000")
    assert p.get().status == 404
    expose(daemon, box, token="tok")
    assert p.get().status == 200
    daemon.destroy(box)
    assert p.get().status == 404
    assert daemon.request("GET", f"/v1/sandbox/{box}").status == 404  # the visit did not bring it back
    daemon.out(box, "true")  # the same id again
    assert p.get().status == 404 and api(daemon, "GET", box).json["count"] == 0


def test_unexpose_ends_what_runs(daemon, box):
    p = serve(daemon, box, {"/endless": [["send", "HTTP/1.1 200 OK\r\n\r\n"], ["repeat", "x" * 1000]]})
    with p.wire() as w:
        w.send(p.head("/endless"))
        assert w.head().status == 200
        w.exactly(100)
        api(daemon, "DELETE", box, "/8000")
        w.everything()  # and it ends
    wait_for(lambda: daemon.out(box, "cat /tmp/gone 2>/dev/null || true") == "gone", what="the end of the service's connection")


def test_addresses_survive_sleep_and_restarts(daemon_factory):
    d = daemon_factory("stay").start()
    p = serve(d, "demo", token="tok")
    url = api(d, "GET", "demo").json
    assert p.get().body == b"ok"
    for sig_kill in (False, True):  # an orderly end puts it to sleep, the other one leaves it running
        d.kill() if sig_kill else d.stop()
        d.start()
        assert api(d, "GET", "demo").json == url
        if not sig_kill:
            assert d.request("GET", "/v1/sandbox/demo").json["state"] == "asleep"
            r = p.get()
            assert r.status == 502 and json.loads(r.body)["code"] == "SERVICE_NOT_RESPONDING"
            assert d.request("GET", "/v1/sandbox/demo").json["state"] == "running"  # the visit woke it
            serve(d, "demo", token="tok")
        assert p.get().body == b"ok"
    api(d, "DELETE", "demo", "/8000")
    d.kill()
    d.start()
    assert p.get().status == 404 and api(d, "GET", "demo").json["count"] == 0


# ------------------------------------------------------------------ what passes

def test_PRV_07_credentials_of_the_platform_stay_out(daemon, box):
    p = serve(daemon, box)
    p.get("/a", [f"Authorization: Bearer {TOKEN}", "Cookie: mine=1"])
    p.get("/b", ["Authorization: Bearer of-the-app"])
    p.get("/c", [f"Authorization: Basic abc", f"Authorization: bearer {TOKEN}"])
    heads = {r["head"].split(" ")[1]: r["head"] for r in requests_seen(daemon, box)}
    assert TOKEN not in "".join(heads.values()) and "Cookie: mine=1" in heads["/a"]
    assert "Authorization: Bearer of-the-app" in heads["/b"]


def test_PRV_08_hop_by_hop(daemon, box):
    p = serve(daemon, box)
    p.get("/x?y=z", ["Connection: X-Foo, keep-alive", "X-Foo: secret", "TE: trailers", "Proxy-Authorization: x", "Proxy-Connection: x",
                     "Keep-Alive: timeout=5", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk", "Trailer: X-T", "X-Bar: stays",
                     "X-Forwarded-For: 6.6.6.6", "X-Forwarded-Proto: https", "X-Real-IP: 6.6.6.6", "Forwarded: for=6.6.6.6"],
          source="127.8.8.8")
    with p.wire() as w:
        w.send(p.head("/h2c", headers=["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"]))
        assert w.answer().status == 200
    first, second = (r["head"] for r in requests_seen(daemon, box))
    lines = first.split("\r\n")
    assert lines[0] == "GET /x?y=z HTTP/1.1" and f"Host: {p.host}" in lines and "X-Bar: stays" in lines
    names = {line.split(":")[0].lower() for line in lines[1:]}
    assert names == {"host", "x-bar", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-sandbox-name"}
    assert "X-Forwarded-For: 127.8.8.8" in lines and "X-Forwarded-Proto: http" in lines and f"X-Forwarded-Host: {p.host}" in lines
    assert "upgrade" not in second.lower() and "HTTP2" not in second


def test_PRV_09_what_services_may_say_about_other_hosts(daemon, box):
    lines = ["Set-Cookie: host=1; Path=/; HttpOnly", "Set-Cookie: parent=1; Domain=localhost",
             "Set-Cookie: dot=1; domain=.localhost ; Path=/", "Set-Cookie: exact=1; Domain={host}", "Set-Cookie: twice=1; Domain={host}; Domain=localhost",
             "Clear-Site-Data: \"*\"", "Strict-Transport-Security: max-age=1; includeSubDomains", "Alt-Svc: h3=\":443\"",
             "X-Frame-Options: DENY", "Keep-Alive: timeout=9", "Connection: keep-alive, X-Hop", "X-Hop: 1"]
    host = f"8000-{box}-tok.localhost"
    p = serve(daemon, box, {"/": body_of("hello", "".join(f"{line.format(host=host)}\r\n" for line in lines)),
                            "/hsts": body_of("hello", "Strict-Transport-Security: max-age=1\r\n")}, token="tok")
    a = p.get()
    assert a.body == b"hello"
    assert [c.split("=")[0] for c in a.all("set-cookie")] == ["host", "exact"]
    names = {k for k, _ in a.headers}
    assert names == {"set-cookie", "x-frame-options", "content-length", "date"}, names
    assert p.get("/hsts")["strict-transport-security"] == "max-age=1"


HOSTILE = {
    "cl+te": "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "two-lengths": "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "bad-length": "HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc",
    "overflow": "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nabc",
    "no-status": "hello there\r\n\r\n",
    "garbage": "\x00\x01\x02" * 100,
    "nul": "HTTP/1.1 200 OK\r\nX-A: b\x00c\r\nContent-Length: 2\r\n\r\nok",
    "bare-cr": "HTTP/1.1 200 OK\r\nX-A: b\rSet-Cookie: x=1; Domain=localhost\r\nContent-Length: 2\r\n\r\nok",
    "fold": "HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 2\r\n\r\nok",
    "early-close": "HTTP/1.1 200 OK\r\nX-A: b",
    "nothing": "",
    "http2": "HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "status-9": "HTTP/1.1 999 What\r\nContent-Length: 2\r\n\r\nok",
    "switch": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    "endless-head": "HTTP/1.1 200 OK\r\n" + "X-Filler: " + "y" * 70000 + "\r\n\r\n",
    "many-headers": "HTTP/1.1 200 OK\r\n" + "X-Filler: y\r\n" * 200 + "\r\n",
    "endless-1xx": "HTTP/1.1 103 Early Hints\r\n\r\n" * 100 + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
}


def test_PRV_10_hostile_answers_become_502(daemon, box):
    p = serve(daemon, box, {"/" + k: [["send", v]] for k, v in HOSTILE.items()})
    for name in HOSTILE:
        a = p.get("/" + name)
        assert a.status == 502, (name, a)
        assert p.get().body == b"ok", name
    assert p.get("/garbage", ["Accept: text/html"])["content-type"].startswith("text/html")


def test_PRV_10_exact_framing(daemon, box):
    chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    p = serve(daemon, box, {
        "/extra": [["send", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"], ["keep", None]],
        "/204": [["send", "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"], ["keep", None]],
        "/304": [["send", "HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\nETag: \"e\"\r\n\r\n"], ["keep", None]],
        "/trailer": [["send", chunked + "5\r\nhello\r\n0\r\nX-Trailer: t\r\nSet-Cookie: a=b\r\n\r\n"], ["keep", None]],
        "/until-close": [["send", "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the end"]],
        "/hints": [["send", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"], ["keep", None]],
        "/bad-chunk": [["send", chunked + "5\r\nhello\r\nzz\r\n"]],
        "/short": [["send", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"]],
        "/cut-chunks": [["send", chunked + "5\r\nhello\r\n"]]})
    with p.wire() as w:  # one connection: a forged answer would come out as the answer to the next request
        for path, status, body in (("/extra", 200, b"ok"), ("/", 200, b"ok"), ("/204", 204, b""), ("/", 200, b"ok"), ("/304", 304, b""),
                                   ("/", 200, b"ok"), ("/trailer", 200, b"hello"), ("/until-close", 200, b"until the end"), ("/hints", 200, b"ok")):
            w.send(p.head(path))
            a = w.answer()
            assert (a.status, a.body) == (status, body), path
            assert a["x-trailer"] is None and a["link"] is None
    for path, begin in (("/bad-chunk", b"hello"), ("/short", b"only this"), ("/cut-chunks", b"hello")):
        with p.wire() as w:  # what is missing must be seen to be missing
            w.send(p.head(path))
            with pytest.raises((EOFError, ConnectionResetError)):
                w.answer()


def test_PRV_11_service_that_hangs(daemon_factory):
    d = daemon_factory("hang", args=["--preview-timeout", "2s"]).start()
    p = serve(d, "demo", {"/never": [["sleep", 600]], "/drip": [["send", "HTTP/1.1 200 OK\r\n"], *[["send", "X"], ["sleep", 1]] * 600],
                          "/no-read": [["sleep", 600]]})
    begin = time.monotonic()
    with p.wire() as never, p.wire() as drip, p.wire() as upload:
        never.send(p.head("/never"))
        drip.send(p.head("/drip"))
        upload.send(p.head("/no-read", "POST", ["Content-Length: 100000000"]))
        try:
            upload.s.settimeout(1)
            upload.s.sendall(b"x" * 100_000_000)
        except OSError:
            pass
        upload.s.settimeout(60)
        assert p.get().body == b"ok"  # others are fine
        assert never.answer().status == 504 and drip.answer().status == 504
        assert upload.answer().status == 504
    assert time.monotonic() - begin < 60
    assert p.get().body == b"ok"


def test_PRV_12_endless_body_and_client_gone(daemon, box):
    p = serve(daemon, box, {"/endless": [["send", "HTTP/1.1 200 OK\r\n\r\n"], ["repeat", "x" * 100000]]})
    with p.wire() as w:
        w.send(p.head("/endless"))
        assert w.head().status == 200
        w.exactly(1 << 20)
    wait_for(lambda: daemon.out(box, "cat /tmp/gone 2>/dev/null || true") == "gone", what="the end of the service's connection")


def gateway_memory(daemon):
    return next(int(line.split()[1]) for line in open(f"/proc/{gateway_pid(daemon)}/status") if line.startswith("VmRSS")) << 10


def test_PRV_14_large_upload_in_flat_memory(daemon, box):
    size, piece = 2 << 30, b"x" * (1 << 20)
    done = [["swallow", None], ["send", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"]]
    p = serve(daemon, box, {"/up": done})
    p.get()
    before = peak = gateway_memory(daemon)
    with p.wire(timeout=120) as w:
        w.send(p.head("/up", "PUT", [f"Content-Length: {size}"]))
        for i in range(size // len(piece)):
            w.send(piece)
            if i % 64 == 0:
                peak = max(peak, gateway_memory(daemon))
        assert w.answer().body == b"ok"
    assert requests_seen(daemon, box)[-1]["swallowed"] == size
    assert peak - before < 16 << 20, (before, peak)


def test_large_download_in_flat_memory(daemon, box):
    daemon.out(box, "cd /workspace && truncate -s 1G big")
    start(daemon, box, "cd /workspace; exec python3 -m http.server 8003 --bind 127.0.0.1", 8003)
    p = expose(daemon, box, 8003)
    p.get("/nothing")
    before = peak = gateway_memory(daemon)
    with p.wire() as w:
        w.send(p.head("/big"))
        assert w.head()["content-length"] == str(1 << 30)
        got = len(w.rest)
        time.sleep(0.5)  # nobody reads: the service must be stopped, not the memory filled
        peak = max(peak, gateway_memory(daemon))
        while data := w.s.recv(1 << 20):
            got += len(data)
            if got >= 1 << 30:
                break
        peak = max(peak, gateway_memory(daemon))
    assert got == 1 << 30 and peak - before < 16 << 20, (got, before, peak)


BAD_REQUESTS = {  # catalogue area 7: HTTP-01 to HTTP-09
    "cl+te": "POST / HTTP/1.1\r\nHost: {h}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {h}\r\n\r\n",
    "te+cl": "POST / HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {h}\r\n\r\n",
    "two-cl": "POST / HTTP/1.1\r\nHost: {h}\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    "list-cl": "POST / HTTP/1.1\r\nHost: {h}\r\nContent-Length: 5, 5\r\n\r\nabcde",
    "plus-cl": "POST / HTTP/1.1\r\nHost: {h}\r\nContent-Length: +5\r\n\r\nabcde",
    "hex-cl": "POST / HTTP/1.1\r\nHost: {h}\r\nContent-Length: 0x5\r\n\r\nabcde",
    "big-cl": "POST / HTTP/1.1\r\nHost: {h}\r\nContent-Length: 18446744073709551617\r\n\r\nabcde",
    "xchunked": "POST / HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked-identity": "POST / HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "vertical-tab": "POST / HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "space-colon": "POST / HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "fold": "GET / HTTP/1.1\r\nHost: {h}\r\nX-A: b\r\n GET /smuggled HTTP/1.1\r\n\r\n",
    "te-1.0": "POST / HTTP/1.0\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk-0x": "POST / HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
    "chunk-17": "POST / HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n00000000000000001\r\na\r\n0\r\n\r\n",
    "chunk-lf": "POST / HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n1\na\n0\n\n",
    "lf-head": "GET / HTTP/1.1\nHost: {h}\n\n",
    "bare-cr": "GET / HTTP/1.1\r\nHost: {h}\r\nX-A: b\rGET /smuggled HTTP/1.1\r\n\r\n",
    "nul": "GET / HTTP/1.1\r\nHost: {h}\r\nX-A: b\x00c\r\n\r\n",
    "no-colon": "GET / HTTP/1.1\r\nHost: {h}\r\nnonsense\r\n\r\n",
    "two-hosts": "GET / HTTP/1.1\r\nHost: {h}\r\nHost: {h}\r\n\r\n",
    "http-2": "GET / HTTP/2.0\r\nHost: {h}\r\n\r\n",
    "two-spaces": "GET  / HTTP/1.1\r\nHost: {h}\r\n\r\n",
    "no-version": "GET /\r\nHost: {h}\r\n\r\n",
    "asterisk": "GET * HTTP/1.1\r\nHost: {h}\r\n\r\n",
}


def test_PRV_15_nothing_is_smuggled(daemon, box):
    p = serve(daemon, box, {"*": [["swallow", None], *body_of("ok")]})
    for name, text in BAD_REQUESTS.items():
        with p.wire() as w:
            w.send(text.format(h=p.host))
            a = w.everything() if name != "asterisk" else b""
            if name == "asterisk":
                assert w.answer().status == 400
            else:
                assert a.startswith(b"HTTP/1.1 4") or a.startswith(b"HTTP/1.1 505"), (name, a[:100])
                assert a.count(b"\r\nDate: ") == 1, (name, a)
    with p.wire() as w:  # a body that looks like a request stays a body, however it is framed
        inner = f"GET /smuggled HTTP/1.1\r\nHost: {p.host}\r\n\r\n"
        w.send(p.head("/body", "POST", [f"Content-Length: {len(inner)}"]) + inner)
        w.send(p.head("/last"))
        assert w.answer().status == 200 and w.answer().status == 200
    seen = [r["head"].split("\r\n")[0] for r in requests_seen(daemon, box)]
    malformed = ("POST / HTTP/1.1", "")  # heads whose bodies turned out so, whenever the service noticed
    assert [x for x in seen if x not in malformed] == ["POST /body HTTP/1.1", "GET /last HTTP/1.1"], seen


def test_PRV_15_chunked_upload_is_framed_anew(daemon, box):
    p = serve(daemon, box, {"/up": [["swallow", None], ["send", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"]]})
    with p.wire() as w:
        w.send(p.head("/up", "POST", ["Transfer-Encoding: chunked", "Trailer: X-T"]))
        w.send("5;ext=1\r\nhello\r\n1\r\n!\r\n0\r\nX-T: 1\r\nHost: other\r\n\r\n")
        assert w.answer().body == b"ok"
    r = requests_seen(daemon, box)[-1]
    assert r["swallowed"] == 6 and ";ext" not in r["head"] and r["head"].count("\r\nHost:") == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_PRV_16_whatever_it_is_bound_to(daemon, box, host):
    assert serve(daemon, box, host=host).get().body == b"ok"


def test_PRV_17_redirects_are_the_clients_business(daemon, box):
    target = f"http://127.0.0.1:{daemon.port}/health"
    p = serve(daemon, box, {"/": [["send", f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n"], ["keep", None]],
                            "/meta": [["send", "HTTP/1.1 307 T\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"], ["keep", None]]})
    a = p.get()
    assert a.status == 302 and a["location"] == target
    assert p.get("/meta")["location"] == "http://169.254.169.254/"


def test_PRV_18_no_open_relay(daemon, box):
    p = serve(daemon, box)
    for line in (f"GET http://example.invalid/ HTTP/1.1", f"GET http://{p.host}/ HTTP/1.1", "CONNECT example.invalid:80 HTTP/1.1",
                 f"CONNECT {p.name}:80 HTTP/1.1", "CONNECT 127.0.0.1:8000 HTTP/1.1"):
        with p.wire() as w:
            w.send(f"{line}\r\nHost: {p.host}\r\n\r\n")
            assert 400 <= w.answer().status < 500, line
    assert requests_seen(daemon, box) == []


# ------------------------------------------------------------------ how it passes

def test_methods_and_heads(daemon, box):
    p = serve(daemon, box, {"/head": [["send", "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"], ["keep", None]]})
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"):
        assert p.get("/" + method, method=method).status == 200
    a = p.get("/head", method="HEAD")
    assert a["content-length"] == "1234" and a.body == b""
    assert [r["head"].split(" ")[0] for r in requests_seen(daemon, box)][:7] == \
        ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"]


def test_events_are_not_held_back(daemon, box):
    """The next one is sent when the last one has arrived."""
    p = serve(daemon, box, {"/sse": [["send", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"],
                                     *(step for i in range(4) for step in (["send", "data: tick\n\n"], ["wait", f"/tmp/arrived-{i}"]))]})
    with p.wire() as w:
        w.send(p.head("/sse"))
        assert w.head().status == 200
        for i in range(4):
            assert int(w.line(), 16) == 12 and w.exactly(14) == b"data: tick\n\n\r\n"
            daemon.out(box, f"touch /tmp/arrived-{i}")


def test_continue_is_said_by_us(daemon, box):
    p = serve(daemon, box, {"/up": [["read", 5], ["send", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"], ["keep", None]]})
    with p.wire() as w:
        w.send(p.head("/up", "POST", ["Expect: 100-continue", "Content-Length: 5"]))
        assert w.head().status == 100
        w.send("hello")
        assert w.answer().body == b"ok"
    r = requests_seen(daemon, box)[-1]
    assert r["body"] == "hello" and "expect" not in r["head"].lower()


def test_early_answer_to_an_upload(daemon, box):
    p = serve(daemon, box, {"/up": [["send", "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno!"]]})
    with p.wire() as w:
        w.send(p.head("/up", "POST", ["Content-Length: 50000000"]))
        assert w.answer().status == 413


def test_old_http(daemon, box):
    p = serve(daemon, box, {"/old": [["send", "HTTP/1.0 200 OK\r\n\r\nold"]], "/chunks": [["send", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nnew\r\n0\r\n\r\n"], ["keep", None]]})
    assert p.get("/old").body == b"old"
    with p.wire() as w:  # a client that knows no chunks
        w.send(p.head("/chunks", version="HTTP/1.0"))
        a = w.answer()
        assert a.body == b"new" and a["transfer-encoding"] is None
    daemon.out(box, "cd /workspace; seq 1 1000 > numbers")
    start(daemon, box, "cd /workspace; exec python3 -m http.server 8005 --bind 127.0.0.1", 8005)
    q = expose(daemon, box, 8005)
    assert len(q.get("/numbers").body) == 3893


def test_ranges(daemon, box):
    program = ("import http.server\n"
               "class H(http.server.BaseHTTPRequestHandler):\n"
               "    protocol_version = 'HTTP/1.1'\n"
               "    def do_GET(self):\n"
               "        a, b = map(int, self.headers['Range'].split('=')[1].split('-'))\n"
               "        body = (b'0123456789' * 10)[a:b + 1]\n"
               "        self.send_response(206)\n"
               "        self.send_header('Content-Range', f'bytes {a}-{b}/100')\n"
               "        self.send_header('Content-Length', str(len(body)))\n"
               "        self.end_headers()\n"
               "        self.wfile.write(body)\n"
               "http.server.ThreadingHTTPServer(('127.0.0.1', 8006), H).serve_forever()\n")
    write(daemon, box, "/workspace/range.py", program)
    start(daemon, box, "exec python3 /workspace/range.py", 8006)
    a = expose(daemon, box, 8006).get("/", ["Range: bytes=15-24"])
    assert a.status == 206 and a.body == b"5678901234" and a["content-range"] == "bytes 15-24/100"


def test_connections_are_kept_and_stale_ones_noticed(daemon, box):
    p = serve(daemon, box, {"/close": [["send", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"]]})  # closes without a word
    for _ in range(5):
        assert p.get().body == b"ok"
    assert {r["n"] for r in requests_seen(daemon, box)} == {1}
    for _ in range(50):
        assert p.get("/close").status == 200 and p.get().status == 200


def test_pages_for_browsers(daemon, box):
    p = expose(daemon, box)
    a = p.get("/", ["Accept: text/html,*/*"])
    assert a.status == 502 and a["content-type"].startswith("text/html") and b"8000" in a.body and box.encode() in a.body
    assert json.loads(p.get().body)["code"] == "SERVICE_NOT_RESPONDING"


def test_limit_of_connections(daemon, box):
    p = serve(daemon, box, {"/hang": [["sleep", 600]]})
    wires = [p.wire() for _ in range(256)]
    try:
        for w in wires:
            w.send(p.head("/hang"))
        wait_for(lambda: p.get().status == 503, what="the limit")
        wires.pop().s.close()
        wait_for(lambda: p.get().status == 200, what="room again")
    finally:
        for w in wires:
            w.s.close()


def test_sandbox_that_ends_under_a_request(daemon, box):
    p = serve(daemon, box, {"/hang": [["sleep", 600]], "/endless": [["send", "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nx"], ["sleep", 600]]})
    with p.wire() as waiting, p.wire() as reading:
        waiting.send(p.head("/hang"))
        reading.send(p.head("/endless"))
        assert reading.head().status == 200
        reading.exactly(1)
        daemon.destroy(box)
        assert waiting.answer().status in (404, 502)
        with pytest.raises((EOFError, ConnectionResetError)):
            reading.exactly(999999)


def test_custom_domain(daemon_factory):
    d = daemon_factory("domain", args=["--preview-domain", "https://box.example.test:8443"]).start()
    r = api(d, "POST", "demo", body={"port": 8000, "token": "tok"})
    assert r.json["url"] == "https://8000-demo-tok.box.example.test:8443/"
    serve(d, "demo", token="tok")
    assert host_answer(d, "8000-demo-tok.box.example.test").body == b"ok"
    assert host_answer(d, "8000-demo-tok.localhost").status == 401  # just another name of the API


# ------------------------------------------------------------------ WebSocket

def upgrade(p, w, path="/ws"):
    w.send(p.head(path, headers=["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
                                 "Sec-WebSocket-Version: 13", f"Origin: http://{p.host}"]))
    a = w.head()
    assert a.status == 101 and a["upgrade"] == "websocket" and a["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", a


WS = [["send", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
       "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nX-Extra: 1\r\n\r\n"], ["echo", None]]


def test_PRV_13_bytes_pass_unchanged(daemon, box):
    p = serve(daemon, box, {"/ws": WS, "/greets": [WS[0], ["send", "first!"], ["echo", None]]})
    with p.wire() as w:
        upgrade(p, w)
        for data in (b"\x81\x05hello", bytes(range(256)), b"GET / HTTP/1.1\r\n\r\n"):
            w.send(data)
            assert w.exactly(len(data)) == data
        frame = b"\x82\x7f" + (1 << 20).to_bytes(8, "big") + random.randbytes(1 << 20)
        w.send(frame)
        assert w.exactly(len(frame)) == frame
        w.s.shutdown(1)  # half close: the echo of everything before it still comes, then the end
        assert w.everything() == b""
    with p.wire() as w:  # bytes right behind the heads, in both directions
        w.send(p.head("/greets", headers=["Connection: Upgrade", "Upgrade: websocket"]) + "early")
        assert w.head().status == 101
        assert sorted(w.exactly(11)) == sorted(b"first!early")
    head = next(r["head"] for r in requests_seen(daemon, box) if "/ws" in r["head"])
    assert "Connection: Upgrade" in head and "Upgrade: websocket" in head and f"Origin: http://{p.host}" in head


def test_PRV_13_many_at_once_and_slow_readers(daemon, box):
    p = serve(daemon, box, {"/ws": WS})
    wires = [p.wire() for _ in range(200)]
    try:
        for w in wires:
            upgrade(p, w)
        for i, w in enumerate(wires):
            w.send(b"%05d" % i)
        for i, w in enumerate(wires):
            assert w.exactly(5) == b"%05d" % i
        before = gateway_memory(daemon)
        for w in wires[:20]:  # they send and never read: each is stopped, memory stays
            w.s.settimeout(0.2)
            try:
                w.s.sendall(b"y" * (64 << 20))
            except OSError:
                pass
        assert gateway_memory(daemon) - before < 32 << 20
        wires[-1].send(b"still")
        assert wires[-1].exactly(5) == b"still"
    finally:
        for w in wires:
            w.s.close()


def test_PRV_13_refused_upgrade_is_an_answer(daemon, box):
    p = serve(daemon, box)
    with p.wire() as w:
        w.send(p.head("/", headers=["Connection: Upgrade", "Upgrade: websocket"]))
        assert w.answer().body == b"ok"
        w.send(p.head("/again"))
        assert w.answer().body == b"ok"


def test_tunnel_ends_with_its_sandbox(daemon, box):
    p = serve(daemon, box, {"/ws": WS})
    with p.wire() as w, p.wire() as v:
        upgrade(p, w)
        upgrade(p, v)
        api(daemon, "DELETE", box, "/8000")
        assert w.everything() == b"" and v.everything() == b""
    p = expose(daemon, box)
    with p.wire() as w:
        upgrade(p, w)
        daemon.destroy(box)
        assert w.everything() == b""


def test_open_tunnel_keeps_the_sandbox_awake(daemon_factory):
    d = daemon_factory("awake", args=["--sleep-after", "2s"]).start()
    p = serve(d, "demo", {"/ws": WS})
    with p.wire() as w:
        upgrade(p, w)
        time.sleep(5)  # longer than it may idle
        w.send(b"awake?")
        assert w.exactly(6) == b"awake?"
    wait_for(lambda: d.request("GET", "/v1/sandbox/demo").json["state"] == "asleep", what="sleep")

    def woken():  # a moment later it may be asleep again
        assert p.get().status == 502
        return d.request("GET", "/v1/sandbox/demo").json["state"] == "running"

    wait_for(woken, what="a sandbox that the visit woke")
