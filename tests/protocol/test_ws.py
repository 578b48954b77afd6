# SPDX-License-Identifier: Apache-2.0
"""Requests over a WebSocket (/ws, /api/ws), and the rules of WebSockets themselves (catalogue area 8)."""
import base64
import json
import os
import socket
import struct
import threading

import pytest
from conftest import wait_until
from measure import Growth
from websocket import CLOSE, CONTINUATION, PING, PONG, TEXT, Closed, WebSocket, frame, handshake_lines


class Mux(WebSocket):
    """Messages by id, in the order in which they came."""

    def request(self, id, method, path, body=None, **more):
        message = {"type": "request", "id": id, "method": method, "path": path, **more}
        if body is not None:
            message["body"] = body
        self.send_json(message)

    def answer(self, id):
        """All messages of one request, which must be the only one under way."""
        seen = []
        while True:
            message = self.receive_json()
            assert message.get("id") == id, message
            seen.append(message)
            if message["type"] != "stream":
                return seen

    def call(self, method, path, body=None, id="call", **more):
        self.request(id, method, path, body, **more)
        *streamed, last = self.answer(id)
        assert not streamed
        return last


@pytest.fixture
def mux(api):
    with Mux.of(api, "/ws") as ws:
        yield ws


# ------------------------------------------------------------------ requests

def test_plain_answer(mux, session):
    got = mux.call("POST", "/api/execute", {"command": "echo hi", "sessionId": session})
    assert got["type"] == "response" and got["status"] == 200 and got["done"] is True
    assert got["body"]["stdout"].rstrip("\n") == "hi" and got["body"]["exitCode"] == 0


def test_alias(api):
    with Mux.of(api, "/api/ws") as ws:
        assert ws.call("GET", "/api/ping")["status"] == 200


def test_error_envelope_and_missing_body(mux):
    got = mux.call("GET", "/api/process/nobody-has-this-id")
    assert got["status"] == 404 and got["body"]["code"] == "PROCESS_NOT_FOUND" and got["done"] is True
    got = mux.call("GET", "/")
    assert got["status"] == 200 and "body" not in got
    got = mux.call("GET", "/nothing/here")
    assert got["status"] == 404 and got["body"]["httpStatus"] == 404


def test_same_answer_as_http(api, mux, session):
    for method, path, body in (
        ("GET", "/api/version", None),
        ("POST", "/api/exists", {"path": "/etc", "sessionId": session}),
        ("POST", "/api/read", {"path": "/no/such/file", "sessionId": session}),
        ("POST", "/api/execute", {"sessionId": session}),
    ):
        direct = api.request(method, path, body)
        relayed = mux.call(method, path, body)
        expected, got = direct.json, relayed["body"]
        for timed in ("timestamp", "duration"):
            expected.pop(timed, None), got.pop(timed, None)
        assert (relayed["status"], got) == (direct.status, expected)


def test_stream(mux, session):
    mux.request("s", "POST", "/api/execute/stream", {"command": "echo a; echo b >&2; exit 3", "sessionId": session})
    *events, last = mux.answer("s")
    assert all(set(e) == {"type", "id", "data"} for e in events)
    inner = [json.loads(e["data"]) for e in events]
    assert inner[0]["type"] == "start" and inner[-1]["type"] == "complete" and inner[-1]["exitCode"] == 3
    assert [e["data"] for e in inner if e["type"] == "stdout"] == ["a\n"]
    assert last == {"type": "response", "id": "s", "status": 200, "done": True}


def test_stream_that_fails_before_it_begins(mux):
    got = mux.call("GET", "/api/process/nobody/stream")
    assert got["type"] == "response" and got["status"] == 404 and got["body"]["code"] == "PROCESS_NOT_FOUND"


def test_requests_overlap(mux, session, directory):
    fifo = f"{directory}/gate"
    mux.call("POST", "/api/execute", {"command": f"mkfifo {fifo}", "sessionId": session})
    mux.request("slow", "POST", "/api/execute", {"command": f"cat {fifo}", "sessionId": session})
    mux.request("quick", "GET", "/api/ping")
    assert mux.receive_json()["id"] == "quick"
    mux.request("writer", "POST", "/api/execute", {"command": f"echo go > {fifo}", "sessionId": session + "w"})
    got = {m["id"]: m for m in (mux.receive_json(), mux.receive_json())}
    assert set(got) == {"slow", "writer"} and got["slow"]["body"]["stdout"].rstrip("\n") == "go"
    mux.call("POST", "/api/session/delete", {"sessionId": session + "w"})


def test_order_within_a_session(mux, session):
    for i in range(50):
        mux.request(str(i), "POST", "/api/execute", {"command": f"x=$x,{i}; echo $x", "sessionId": session})
    got = {m["id"]: m["body"]["stdout"].strip() for m in (mux.receive_json() for _ in range(50))}
    assert got["49"] == "," + ",".join(map(str, range(50)))


def test_headers_are_passed(mux, session):
    got = mux.call("POST", "/api/execute", {"command": "echo $$"}, headers={"X-Session-Id": session})
    again = mux.call("POST", "/api/execute", {"command": "echo $$", "sessionId": session})
    assert got["body"]["stdout"] == again["body"]["stdout"]
    got = mux.call("GET", "/api/ping", headers={"Content-Length": "100", "Transfer-Encoding": "chunked", "Host": "a b"})
    assert got["status"] == 200


def test_protocol_errors(mux):
    mux.send("{nonsense")
    assert mux.receive_json() == {"type": "error", "code": "PARSE_ERROR", "message": "Invalid JSON message", "status": 400}
    mux.send_json({"type": "surprise", "id": "1"})
    got = mux.receive_json()
    assert got["code"] == "INVALID_REQUEST" and got["message"] == "Message must be a valid WSRequest" and "id" not in got
    mux.request("t", "TRACE", "/api/ping")
    got = mux.receive_json()
    assert got["type"] == "error" and got["id"] == "t" and got["code"] == "INTERNAL_ERROR" and got["status"] == 500
    mux.request("p", "GET", "no-slash")
    assert mux.receive_json()["code"] == "INTERNAL_ERROR"
    mux.request("h", "GET", "/api/ping", headers={"X-Bad": "a\r\nEvil: 1"})
    assert mux.receive_json()["code"] == "INTERNAL_ERROR"
    assert mux.call("GET", "/api/ping")["status"] == 200


def test_without_id_and_as_binary(mux):
    mux.send_json({"type": "request", "method": "GET", "path": "/api/ping"})
    got = mux.receive_json()
    assert got["status"] == 200 and "id" not in got
    mux.send(json.dumps({"type": "request", "id": "b", "method": "GET", "path": "/api/ping"}).encode())
    assert mux.receive_json()["id"] == "b"
    mux.send(b"\xff\xfe")
    assert mux.receive_json()["code"] == "PARSE_ERROR"


def test_cancel_stops_delivery_and_not_the_command(api, mux, session, directory):
    mark = f"{directory}/mark"
    mux.request("c", "POST", "/api/execute/stream",
                {"command": f"echo one; while [ ! -e {mark}.go ]; do sleep 0.02; done; touch {mark}", "sessionId": session})
    while json.loads(mux.receive_json()["data"])["type"] != "stdout":
        pass
    mux.send_json({"type": "cancel", "id": "unknown"})
    mux.send_json({"type": "cancel", "id": "c"})
    assert mux.receive_json() == {"type": "response", "id": "c", "status": 200, "done": True}
    assert mux.call("GET", "/api/ping")["status"] == 200
    api.run(f"touch {mark}.go", sessionId="__DISABLE_SESSION__")
    wait_until(lambda: api.run(f"test -e {mark}", sessionId="__DISABLE_SESSION__")["exitCode"] == 0, "the command goes on")


def test_cancel_of_a_plain_request_has_no_effect(mux, session):
    mux.request("p", "POST", "/api/execute", {"command": "sleep 0.2; echo done", "sessionId": session})
    mux.send_json({"type": "cancel", "id": "p"})
    assert mux.receive_json()["body"]["stdout"].strip() == "done"


def test_closing_with_a_stream_under_way(api, session):
    with Mux.of(api, "/ws") as ws:
        ws.request("w", "POST", "/api/execute/stream", {"command": "echo one; sleep 0.5", "sessionId": session})
        assert json.loads(ws.receive_json()["data"])["type"] == "start"
        ws.close()
        assert ws.expect_close() == 1000
    with Mux.of(api, "/ws") as ws:
        assert ws.call("GET", "/api/ping")["status"] == 200


def test_large_bodies_both_ways(mux, session, directory):
    text = "0123456789abcdef" * (1 << 18)  # 4 MiB
    got = mux.call("POST", "/api/write", {"path": f"{directory}/big", "content": text, "sessionId": session})
    assert got["status"] == 200
    got = mux.call("POST", "/api/read", {"path": f"{directory}/big", "sessionId": session})
    assert got["body"]["content"] == text


def test_a_file_that_claims_to_be_json(mux, api, directory):
    api.run(f"echo '{{broken' > {directory}/a.json; echo '{{\"a\":[1]}}' > {directory}/b.json", sessionId="__DISABLE_SESSION__")
    got = mux.call("GET", f"/file{directory}/a.json")
    assert got["status"] == 200 and "body" not in got
    got = mux.call("GET", f"/file{directory}/b.json")
    assert got["status"] == 200 and got["body"] == {"a": [1]}


def test_a_reader_that_stops_does_not_disturb_others(api, session, directory):
    with Mux.of(api, "/ws", receive_buffer=8192) as stuck, Mux.of(api, "/ws") as other:
        stuck.request("s", "POST", "/api/execute/stream", {"command": "seq 1 300000", "sessionId": session})
        for _ in range(20):
            assert other.call("GET", "/api/ping")["status"] == 200
        *events, last = stuck.answer("s")
        lines = "".join(e["data"] for e in (json.loads(m["data"]) for m in events) if e["type"] == "stdout")
        assert lines.split() == [str(i) for i in range(1, 300001)] and last["done"]


def test_many_connections(api):
    sockets = [Mux.of(api, "/ws") for _ in range(50)]
    for i, ws in enumerate(sockets):
        ws.request(str(i), "GET", "/api/ping")
    for i, ws in enumerate(sockets):
        assert ws.receive_json()["id"] == str(i)
        ws.drop()


# ------------------------------------------------------------------ the protocol below (WS-01 to WS-05, WS-09)

def close_code(api, *pieces):
    """The code with which the server ends the connection after these bytes."""
    with WebSocket.of(api, "/ws") as ws:
        try:
            for piece in pieces:
                ws.raw(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return ws.expect_close()


@pytest.mark.parametrize("name,piece", [
    ("not masked", frame(TEXT, b"{}", masked=False)),
    ("reserved bit 1, as a compressed frame has it", frame(TEXT, b"{}", reserved=4)),
    ("reserved bit 2", frame(TEXT, b"{}", reserved=2)),
    ("reserved bit 3", frame(PING, b"", reserved=1)),
    *[(f"opcode {n}", frame(n, b"")) for n in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)],
    ("7 bits in 16", frame(TEXT, b"{}", length=(16, 2))),
    ("7 bits in 64", frame(TEXT, b"{}", length=(64, 2))),
    ("16 bits in 64", frame(TEXT, b"x" * 200, length=(64, 200))),
    ("continuation of nothing", frame(CONTINUATION, b"x")),
    ("message in a message", frame(TEXT, b"x", final=False) + frame(TEXT, b"y")),
    ("ping in pieces", frame(PING, b"x", final=False)),
    ("long ping", frame(PING, b"x" * 126)),
    ("close of one byte", frame(CLOSE, b"x")),
    *[(f"close with {n}", frame(CLOSE, struct.pack(">H", n))) for n in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535)],
], ids=lambda v: v if isinstance(v, str) else "")
def test_WS_01_02_broken_rules(api, name, piece):
    assert close_code(api, piece) == 1002


@pytest.mark.parametrize("announced", [1 << 63, 1 << 62, 8 << 30, (1 << 64) - 1])
def test_WS_03_announced_lengths_are_not_believed(own_agent, announced):
    process, api = own_agent()
    with Growth(process) as growth:
        assert close_code(api, frame(TEXT, b"x" * 100, length=(64, announced))) == 1009
    growth.assert_below(4 << 20)


def test_WS_01_text_is_checked_byte_by_byte(api):
    good = "κόσμε 𝄞 \ud7ff \U0010ffff".encode()
    with WebSocket.of(api, "/ws") as ws:
        for i in range(len(good)):
            ws.raw(frame(TEXT if i == 0 else CONTINUATION, good[i:i + 1], final=i == len(good) - 1))
        assert ws.receive_json()["code"] == "PARSE_ERROR"
    for bad in (b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xff", b"\xe2\x82"):
        assert close_code(api, frame(TEXT, b"ok" + bad)) == 1007
    # noticed at the first wrong byte: the message is not over
    assert close_code(api, frame(TEXT, b"\xf4", final=False), frame(CONTINUATION, b"\x90", final=False)) == 1007


def test_WS_01_pings_between_pieces(api):
    with WebSocket.of(api, "/ws") as ws:
        message = json.dumps({"type": "request", "id": "f", "method": "GET", "path": "/api/ping"}).encode()
        ws.raw(frame(TEXT, message[:5], final=False) + frame(PING, b"middle") + frame(CONTINUATION, b"", final=False))
        assert ws.frame() == (PONG, True, b"middle")
        ws.raw(frame(PONG, b"unasked") + frame(CONTINUATION, message[5:]))
        assert ws.receive_json()["id"] == "f"


def test_WS_05_ping_flood(api):
    with WebSocket.of(api, "/ws", receive_buffer=8192) as ws:
        sender = threading.Thread(target=lambda: ws.raw(frame(PING, b"x" * 125) * 20000 + frame(PING, b"last")))
        sender.start()
        while ws.frame()[2] != b"last":
            pass
        sender.join()


def test_WS_04_fragment_flood(api):
    piece = frame(CONTINUATION, b"", final=False)
    try:
        code = close_code(api, frame(TEXT, b"", final=False), *[piece * 1000] * 1000)
    except ConnectionError:
        code = 1006
    assert code in (1008, 1006)  # a reset may overtake the close frame while we still send, and what is behind it


def test_WS_09_close_handshakes(api):
    with WebSocket.of(api, "/ws") as ws:
        ws.close(3456)
        assert ws.expect_close() == 3456
    with WebSocket.of(api, "/ws") as ws:
        ws.close_code = 1005
        ws.raw(frame(CLOSE))
        assert ws.expect_close() == 1005
    with WebSocket.of(api, "/ws") as ws:  # what follows a close is not looked at
        ws.raw(frame(CLOSE, struct.pack(">H", 1000)) + frame(TEXT, b"\xff") + b"\x00" * 100)
        ws.close_code = 1000
        assert ws.expect_close() == 1000
    with WebSocket.of(api, "/ws") as ws:  # no close frame at all
        ws.raw(frame(TEXT, b"x", final=False))
        ws.sock.shutdown(socket.SHUT_WR)
        ws.wait_end()


# ------------------------------------------------------------------ the handshake (WS-06, WS-11)

def raw_answer(api, text):
    with socket.create_connection(api.address, timeout=60) as s:
        s.sendall(text.encode())
        data = b""
        while b"\r\n\r\n" not in data:
            piece = s.recv(65536)
            if not piece:
                break
            data += piece
        return int(data.split()[1]), data.decode().lower()


KEY = base64.b64encode(os.urandom(16)).decode()


@pytest.mark.parametrize("change,status", [
    (dict(drop=["Sec-WebSocket-Key"]), 400),
    (dict(drop=["Sec-WebSocket-Key"], extra=["Sec-WebSocket-Key: short"]), 400),
    (dict(extra=[f"Sec-WebSocket-Key: {KEY}"]), 400),
    (dict(drop=["Sec-WebSocket-Version"]), 400),
    (dict(drop=["Sec-WebSocket-Version"], extra=["Sec-WebSocket-Version: 8"]), 426),
    (dict(drop=["Connection"], extra=["Connection: keep-alive"]), 400),
    (dict(drop=["Connection"]), 400),
])
@pytest.mark.parametrize("path", ["/ws", "/ws/pty?sessionId=x"])
def test_WS_06_handshake_errors(api, change, status, path):
    extra = [f"{k}: {v}" for k, v in api.headers.items()] + list(change.get("extra", []))
    lines = handshake_lines(api.prefix + path, "localhost", KEY, change.get("drop", ()), extra)
    got, text = raw_answer(api, "\r\n".join(lines) + "\r\n\r\n")
    assert got == status
    if status == 426:
        assert "sec-websocket-version: 13" in text


def test_WS_06_handshake_with_other_methods(api):
    extra = [f"{k}: {v}" for k, v in api.headers.items()]
    lines = handshake_lines(api.prefix + "/ws", "localhost", KEY, extra=extra)
    text = "\r\n".join(lines) + "\r\n\r\n"
    assert raw_answer(api, text.replace("GET", "POST", 1))[0] in (400, 405)
    assert raw_answer(api, text.replace("HTTP/1.1", "HTTP/1.0", 1))[0] in (400, 426, 505)


def test_without_upgrade_it_is_a_plain_path(api):
    assert api.get("/ws").status in (404, 426)
    assert api.get("/ws/pty?sessionId=x").status in (404, 426)


def test_WS_11_compression_is_not_accepted(api):
    with WebSocket.of(api, "/ws", headers={"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"}) as ws:
        ws.send_json({"type": "request", "id": "1", "method": "GET", "path": "/api/ping"})
        assert ws.receive_json()["id"] == "1"


def test_bytes_behind_the_handshake(api):
    with socket.create_connection(api.address, timeout=60) as s:
        lines = handshake_lines(api.prefix + "/ws", "localhost", KEY, extra=[f"{k}: {v}" for k, v in api.headers.items()])
        s.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + frame(PING, b"early"))
        data = b""
        while not data.endswith(b"early"):
            piece = s.recv(65536)
            assert piece, data
            data += piece
        assert data.endswith(b"\x8a\x05early")


def test_an_agent_that_stops_says_goodbye(own_agent):
    """The official client waits for ever for what it asked over a connection that just breaks."""
    process, api = own_agent()
    with Mux.of(api, "/ws") as ws:
        ws.request("slow", "POST", "/api/execute", {"command": "sleep 30"})
        assert ws.call("GET", "/api/ping", id="ping")["status"] == 200
        process.terminate()
        with pytest.raises(Closed) as goodbye:  # what is behind it may be a reset: our answer finds nobody
            while True:
                ws.receive()
        assert goodbye.value.code == 1001
