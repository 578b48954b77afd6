# SPDX-License-Identifier: Apache-2.0
"""What reaches the agent, and what comes back."""
import concurrent.futures
import http.client
import json
import os
import re
import socket
import threading

import pytest
from conftest import AUTH, DEADLINE, TOKEN, hang_up, read_until_quiet, until

# ---------------------------------------------------------------- passing on


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_methods_and_targets_pass(gateway, method):
    a = gateway.api("echo", "x/%2e%2e/y%20z?a=b&c=%26&d", method=method, body=b"" if method == "GET" else b"hello")
    seen = a.json()
    assert a.status == 200 and seen["method"] == method
    assert seen["target"] == "/api/x/%2e%2e/y%20z?a=b&c=%26&d"
    assert seen["body"] == ("" if method == "GET" else "hello")


def test_headers_that_pass_and_those_that_do_not(gateway):
    a = gateway.api("echo", "x", method="POST", body="{}", headers={
        "Content-Type": "application/json", "X-Sandbox-Id": "abc", "X-Session-Id": "s1", "X-Trace-Id": "t", "Cookie": "c=d",
        "Connection": "keep-alive, X-Hop", "X-Hop": "1", "Keep-Alive": "timeout=5", "TE": "trailers", "Upgrade": "h2c",
        "Proxy-Authorization": f"Bearer {TOKEN}", "Proxy-Connection": "keep-alive", "Trailer": "X"})
    headers = {name.lower(): value for name, value in a.json()["headers"]}
    assert len(headers) == len(a.json()["headers"]), "none twice"
    assert headers["host"] == "localhost:3000"
    assert headers["x-sandbox-id"] == "abc" and headers["x-session-id"] == "s1" and headers["cookie"] == "c=d"
    assert headers["content-length"] == "2" and headers["content-type"] == "application/json"
    for name in ("authorization", "connection", "x-hop", "keep-alive", "te", "upgrade", "proxy-authorization",
                 "proxy-connection", "trailer", "transfer-encoding", "expect"):
        assert name not in headers
    assert TOKEN not in json.dumps(a.json())


def test_headers_from_the_agent(gateway):
    a = gateway.api("echo", "headers")
    names = [h.lower() for h in a.headers]
    assert a.status == 200 and a.body == b"ok" and a.headers["X-Passes"] == "yes"
    for name in ("x-private", "keep-alive", "set-cookie", "strict-transport-security", "proxy-authenticate", "trailer",
                 "upgrade"):
        assert name not in names
    assert a.headers["X-Content-Type-Options"] == "nosniff"
    assert a.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert names.count("date") == 1 and names.count("content-length") == 1


@pytest.mark.parametrize("size", [0, 1, 1000, 65535, 65536, 65537, 1 << 20])
@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_of_all_sizes(gateway, size, chunked):
    body = bytes(i % 251 for i in range(size))
    pieces = iter([body[i:i + 5000] for i in range(0, size, 5000)])
    a = gateway.api("sizes", "x", method="POST", body=pieces if chunked else body)
    assert a.status == 200
    assert a.json()["bodyLength"] == size
    assert a.json()["body"].encode("latin-1") == body[:4096]


def test_many_requests_on_one_connection(gateway):
    before = gateway.count("alive")
    c = gateway.connection()
    for i in range(50):
        c.request("POST", "/v1/sandbox/alive/api/x", body=f"{i}", headers=AUTH)
        r = c.getresponse()
        seen = json.loads(r.read())
        assert r.status == 200 and seen["body"] == str(i)
    c.close()
    after = gateway.count("alive")
    assert after["connects"] <= before["connects"] + 1, "connections to the agent are used again"


def test_pipelined_requests_are_answered_in_order(gateway):
    one = "GET /v1/sandbox/pipe/api/x?n={} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n" % TOKEN
    last = one.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
    answer = gateway.raw("".join(one.format(i) for i in range(19)).encode() + last.format(19).encode())
    places = [answer.index(b"/api/x?n=%d\"" % i) for i in range(20)]
    assert places == sorted(places) and answer.count(b"HTTP/1.1 200 OK") == 20


def test_parallel_requests_get_connections_of_their_own(gateway):
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda i: gateway.api("wide", f"slow?ms=200&n={i}"), range(40)))
    assert [a.json()["target"] for a in answers] == [f"/api/slow?ms=200&n={i}" for i in range(40)]


def test_no_more_connections_are_asked_for_than_callers_wait(gateway):
    """While the keeper takes its time, four callers share one connection, hundreds of times."""
    callers, each = 4, 100

    def call(k):
        c = gateway.connection()
        for i in range(each):
            c.request("GET", f"/v1/sandbox/distant-1/api/x?n={k}-{i}", headers=AUTH)
            r = c.getresponse()
            assert r.status == 200 and json.loads(r.read())["target"] == f"/api/x?n={k}-{i}"
        c.close()

    gateway.api("distant-1", "x")
    with concurrent.futures.ThreadPoolExecutor(callers) as pool:
        list(pool.map(call, range(callers)))
    assert gateway.count("distant-1")["connects"] <= 3 * callers


def test_expect_continue(gateway):
    head = (f"POST /v1/sandbox/echo/api/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    with gateway.connect() as s:
        s.sendall(head.encode())
        assert s.recv(100).startswith(b"HTTP/1.1 100 ")
        s.sendall(b"hello")
        assert b'"body":"hello"' in read_until_quiet(s)


def test_head_and_keep_alive(gateway):
    c = gateway.connection()
    c.request("HEAD", "/v1/sandbox/echo/api/big?n=1000", headers=AUTH)
    r = c.getresponse()
    assert r.status in (200, 502) and r.read() == b""
    c.close()


# ---------------------------------------------------------------- smuggling

PATH = "/v1/sandbox/smuggle/api/x"
START = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
INNER = f"GET {PATH}?inner HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"


STATUS_LINE = re.compile(rb"HTTP/1\.1 \d\d\d ")


def with_lengths(*values):
    return (START + "".join(f"Content-Length: {v}\r\n" for v in values) + "\r\nhello").encode("latin-1")


def with_coding(line, version="1.1"):
    return (START.replace("HTTP/1.1", f"HTTP/{version}") + line + "\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + INNER).encode("latin-1")


def with_chunks(chunks):
    return (START + "Transfer-Encoding: chunked\r\n\r\n" + chunks).encode("latin-1")


def with_head(head):
    return head.encode("latin-1")


REFUSED = {
    "both, length first": (START + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + INNER).encode(),
    "both, coding first": (START + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + INNER).encode(),
    "two lengths": with_lengths("5", "6"),
    "two equal lengths": with_lengths("5", "5"),
    "length list": with_lengths("5, 5"),
    "length +5": with_lengths("+5"),
    "length -1": with_lengths("-1"),
    "length 0x5": with_lengths("0x5"),
    "length with space": with_lengths("5 5"),
    "length of 2^64+1": with_lengths("18446744073709551617"),
    "empty length": with_lengths(""),
    "xchunked": with_coding("Transfer-Encoding: xchunked"),
    "chunked, identity": with_coding("Transfer-Encoding: chunked, identity"),
    "identity": with_coding("Transfer-Encoding: identity"),
    "two codings": with_coding("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
    "coding with vertical tab": with_coding("Transfer-Encoding:\x0bchunked"),
    "coding with comma": with_coding("Transfer-Encoding: chunked,"),
    "space before colon": with_coding("Transfer-Encoding : chunked"),
    "folded coding": with_coding("Transfer-Encoding:\r\n chunked"),
    "coding on 1.0": with_coding("Transfer-Encoding: chunked", "1.0"),
    "bare LF": with_head(START.replace("\r\n", "\n") + "\n"),
    "bare CR": with_head(START + "X: a\rY: b\r\n\r\n"),
    "CRCRLF": with_head(START + "X: a\r\r\n\r\n"),
    "NUL in a value": with_head(START + "X: a\0b\r\n\r\n"),
    "fold": with_head(START + "X: a\r\n b\r\n\r\n"),
    "no colon": with_head(START + "X\r\n\r\n"),
    "empty name": with_head(START + ": a\r\n\r\n"),
    "space in a name": with_head(START + "X Y: a\r\n\r\n"),
    "no host": with_head(START.replace("Host: x\r\n", "") + "\r\n"),
    "two hosts": with_head(START + "Host: y\r\n\r\n"),
    "http/0.9": with_head(f"GET {PATH}\r\n\r\n"),
    "http/1.10": with_head(START.replace("HTTP/1.1", "HTTP/1.10") + "\r\n"),
    "http/2.0": with_head(START.replace("HTTP/1.1", "HTTP/2.0") + "\r\n"),
    "two spaces": with_head(START.replace(" HTTP", "  HTTP") + "\r\n"),
    "absolute form": with_head(START.replace(PATH, "http://other" + PATH) + "\r\n"),
    "asterisk form": with_head(START.replace(PATH, "*") + "\r\n"),
}

CHUNK_ERRORS = ["0x1\r\na\r\n0\r\n\r\n", "-1\r\na\r\n0\r\n\r\n", " 1\r\na\r\n0\r\n\r\n", "11111111111111111\r\na\r\n0\r\n\r\n",
                "1\r\nab\r\n0\r\n\r\n", "1\na\r\n0\r\n\r\n", "1\ra\r\n0\r\n\r\n", "1;a\nb\r\na\r\n0\r\n\r\n", "g\r\na\r\n0\r\n\r\n",
                "\r\na\r\n0\r\n\r\n", "1;" + "x" * (1 << 20) + "\r\na\r\n0\r\n\r\n"]


@pytest.mark.parametrize("name", REFUSED)
def test_doubtful_heads_reach_nobody(gateway, name):
    before = gateway.count("smuggle")
    answer = gateway.raw(REFUSED[name], half_close=True)
    assert answer.startswith(b"HTTP/1.1 4") or answer.startswith(b"HTTP/1.1 505"), answer[:200]
    assert len(STATUS_LINE.findall(answer)) == 1, "one answer, then the end"
    assert b'"code":' in answer
    after = gateway.count("smuggle")
    assert after["requests"] == before["requests"] + 1, "only the count itself"
    assert after["malformed"] == 0


@pytest.mark.parametrize("chunks", CHUNK_ERRORS, ids=range(len(CHUNK_ERRORS)))
def test_bad_chunks_end_the_request(gateway, chunks):
    before = gateway.count("smuggle")
    answer = gateway.raw(with_chunks(chunks + INNER), half_close=True)
    assert len(STATUS_LINE.findall(answer)) <= 1
    assert not answer or answer.startswith(b"HTTP/1.1 4"), answer[:200]
    # the agent may have seen the beginning of the one request, but neither its end nor another
    until(lambda: gateway.count("smuggle")["malformed"] == 0)
    after = gateway.count("smuggle")
    assert b"inner" not in answer
    assert after["requests"] - before["requests"] <= 3


def test_trailers_are_dropped(gateway):
    answer = gateway.raw(with_chunks("5\r\nhello\r\n0\r\nHost: evil\r\nAuthorization: Bearer x\r\n"
                                     "Content-Length: 99\r\nX-T: 1\r\n\r\n"))
    assert b'"body":"hello"' in answer and b"X-T" not in answer and b"evil" not in answer


def test_plain_chunked_in_any_case(gateway):
    answer = gateway.raw((START + "Transfer-Encoding: Chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n").encode())
    assert answer.startswith(b"HTTP/1.1 200") and b'"body":"hello"' in answer


def test_body_that_looks_like_a_request(gateway):
    before = gateway.count("smuggle")["requests"]
    body = INNER.encode() * 3
    a = gateway.api("smuggle", "x", method="POST", body=body)
    assert a.json()["bodyLength"] == len(body)
    assert gateway.count("smuggle")["requests"] == before + 2


# ---------------------------------------------------------------- agents that misbehave

@pytest.mark.parametrize("kind", ["garbage", "empty", "cl-te", "two-lengths", "negative-length", "bare-cr", "fold", "nul",
                                  "status-101", "status-999", "huge-head", "endless-1xx", "many-headers"])
def test_answers_that_are_none(gateway, kind):
    a = gateway.api("hostile", f"raw?kind={kind}")
    assert a.status == 502 and a.error()["code"] == "SANDBOX_UNAVAILABLE", a
    assert gateway.api("hostile", "echo").status == 200, "the next request works"


@pytest.mark.parametrize("path", ["raw?kind=bad-chunk", "raw?kind=short", "cut-mid", "die-mid"])
def test_broken_answers_are_broken_off(gateway, path):
    c = gateway.connection()
    c.request("GET", f"/v1/sandbox/hostile/api/{path}", headers=AUTH)
    with pytest.raises((http.client.IncompleteRead, ConnectionError, http.client.BadStatusLine)):
        r = c.getresponse()
        assert r.status == 200
        r.read()
    c.close()
    assert gateway.api("hostile", "echo").status == 200


def test_bytes_behind_the_answer_go_nowhere(gateway):
    a = gateway.api("hostile", "raw?kind=extra")
    assert a.status == 200 and a.body == b"first"
    for _ in range(3):
        assert b"second" not in gateway.api("hostile", "echo").body


def test_hostile_answers_leak_nothing(gateway):
    for _ in range(5):
        gateway.api("hostile", "raw?kind=garbage")
    before = gateway.open_files()
    for _ in range(100):
        gateway.api("hostile", "raw?kind=garbage")
    until(lambda: gateway.open_files() <= before + 2)


def test_death_before_the_answer(gateway):
    a = gateway.api("dies", "die", method="POST", body="{}")
    assert a.status == 502 and a.error()["code"] == "SANDBOX_UNAVAILABLE"
    assert a.error()["context"]["sandboxId"] == "dies"
    assert gateway.api("dies", "echo").status == 200


def test_death_tells_everybody(gateway):
    gateway.api("dies2", "echo")
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        waiting = [pool.submit(gateway.api, "dies2", "hang", method="POST", body="{}") for _ in range(10)]
        until(lambda: gateway.get("/v1/sandbox/dies2").json()["activeRequests"] == 10)
        assert gateway.api("dies2", "die", method="POST", body="{}").status == 502
        assert all(w.result().status == 502 for w in waiting)
    assert gateway.api("dies2", "echo").status == 200


def test_closed_idle_connections_are_replaced(gateway):
    for _ in range(30):
        assert gateway.api("fickle", "close-after").status == 200
        assert gateway.api("fickle", "echo").status == 200


def test_connections_refused_by_the_keeper(gateway):
    """The first connection comes with the start; when there is no other, the caller hears of it."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda i: gateway.api("lost-1", "slow?ms=100"), range(4)))
    assert {a.status for a in answers} <= {200, 502}
    assert any(a.status == 200 for a in answers)


def test_early_answer(gateway):
    """The agent refuses a large body before it has read it."""
    with gateway.connect() as s:
        s.sendall(f"POST /v1/sandbox/early/api/early HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
                  "Content-Length: 100000000\r\n\r\n".encode() + b"x" * 100000)
        assert read_until_quiet(s).startswith(b"HTTP/1.1 413 ")
    assert gateway.api("early", "echo").status == 200


# ---------------------------------------------------------------- hanging up

@pytest.mark.parametrize("path", ["hang", "stream"])
def test_the_agent_hears_when_the_caller_leaves(gateway, path):
    before = gateway.count("leaver")["hangups"]
    s = gateway.connect()
    s.sendall(f"GET /v1/sandbox/leaver/api/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    if path == "stream":
        assert s.recv(1000)
        s.close()  # what is sent from now on is answered with a reset
    else:
        until(lambda: gateway.get("/v1/sandbox/leaver").json()["activeRequests"] == 1)
        hang_up(s)
    until(lambda: gateway.count("leaver")["hangups"] == before + 1, "the hang-up")
    until(lambda: gateway.get("/v1/sandbox/leaver").json()["activeRequests"] == 0)


def test_leaving_in_the_middle_of_an_upload(gateway):
    before = gateway.count("leaver")["hangups"]
    with gateway.connect() as s:
        s.sendall(f"POST /v1/sandbox/leaver/api/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
                  "Content-Length: 1000000\r\n\r\n".encode() + b"x" * 100000)
        until(lambda: gateway.get("/v1/sandbox/leaver").json()["activeRequests"] == 1)
    until(lambda: gateway.count("leaver")["hangups"] == before + 1, "the hang-up")


def test_leaving_during_a_start(gateway):
    with gateway.connect() as s:
        s.sendall(f"GET /v1/sandbox/slow-left/api/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        until(lambda: gateway.state("slow-left"))  # "starting", unless we look too late
    until(lambda: gateway.state("slow-left") == "running")
    assert gateway.count("slow-left")["starts"] == 1
    gateway.delete("slow-left")


def test_many_disconnects_leak_nothing(gateway):
    gateway.api("churn", "echo")

    def leave(i):
        with gateway.connect() as s:
            s.sendall(f"GET /v1/sandbox/churn/api/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
            s.recv(100)

    leave(0)
    before = gateway.open_files()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(leave, range(200)))
    until(lambda: gateway.open_files() <= before + 16)
    until(lambda: gateway.get("/v1/sandbox/churn").json()["activeRequests"] == 0)


# ---------------------------------------------------------------- large bodies

MiB = 1 << 20


def test_large_uploads_in_flat_memory(gateway):
    gateway.api("heavy", "echo")
    before = gateway.memory()
    peak = 0

    def pieces():
        nonlocal peak
        piece = b"x" * MiB
        for i in range(256):
            if i % 16 == 0:
                peak = max(peak, gateway.memory())
            yield piece

    a = gateway.api("heavy", "x", method="POST", body=pieces())
    assert a.json()["bodyLength"] == 256 * MiB
    assert peak - before < 16 * MiB


@pytest.mark.parametrize("path", ["x", "slowread?ms=300"])
def test_an_upload_of_known_length_and_what_follows(gateway, path):
    """The body passes through the kernel; the next request on the connection begins right behind it."""
    body, more = os.urandom(MiB) * 24, b"hello"
    before = gateway.memory()
    with gateway.connect() as s:
        head = f"POST /v1/sandbox/heavy/api/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: %d\r\n%s\r\n"
        sender = threading.Thread(target=s.sendall, args=((head % (path, len(body), "")).encode() + body +
                                                          (head % ("echo", len(more), "Connection: close\r\n")).encode() + more,))
        sender.start()
        answers = b""
        while piece := s.recv(65536):
            answers += piece
            assert gateway.memory() - before < 16 * MiB
        sender.join()
    assert answers.count(b"HTTP/1.1 200") == 2 and b'"body":"hello"' in answers, answers
    assert f'"bodyLength":{len(body)}'.encode() in answers


@pytest.mark.parametrize("path", ["big", "bigchunked"])
def test_large_downloads_in_flat_memory(gateway, path):
    c = gateway.connection()
    before = gateway.memory()
    c.request("GET", f"/v1/sandbox/heavy/api/{path}?n={256 * MiB}", headers=AUTH)
    r = c.getresponse()
    assert r.status == 200
    got, peak = 0, 0
    while piece := r.read(MiB):
        got += len(piece)
        if got % (16 * MiB) == 0:
            peak = max(peak, gateway.memory())
    c.close()
    assert got == 256 * MiB
    assert peak - before < 16 * MiB


def test_a_caller_who_does_not_read_stops_the_agent(gateway):
    before = gateway.memory()
    with gateway.connect() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        s.sendall(f"GET /v1/sandbox/heavy/api/big?n={1024 * MiB} HTTP/1.1\r\nHost: x\r\n"
                  f"Authorization: Bearer {TOKEN}\r\n\r\n".encode())
        until(lambda: gateway.get("/v1/sandbox/heavy").json()["activeRequests"] == 1)
        for _ in range(20):
            assert gateway.api("heavy", "echo").status == 200  # time passes, others are served
            assert gateway.memory() - before < 16 * MiB


def test_an_agent_that_does_not_read_stops_the_caller(gateway):
    before = gateway.memory()
    with gateway.connect() as s:
        s.settimeout(0.5)
        s.sendall(f"POST /v1/sandbox/heavy/api/slowread?ms=6000 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
                  f"Content-Length: {64 * MiB}\r\n\r\n".encode())
        sent = 0
        with pytest.raises(socket.timeout):
            while sent < 64 * MiB:
                sent += s.send(b"x" * 65536)
        assert gateway.memory() - before < 16 * MiB
        s.settimeout(DEADLINE)
        while sent < 64 * MiB:
            sent += s.send(b"x" * min(65536, 64 * MiB - sent))
        assert f'"bodyLength":{64 * MiB}'.encode() in read_until_quiet(s)


def test_silent_streams_are_not_cut(gateway):
    assert gateway.api("echo", "slow?ms=1200").status == 200
