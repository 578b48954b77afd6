# SPDX-License-Identifier: Apache-2.0
"""A small WebSocket client: as strict as the tests need it, and able to break every rule."""
import base64
import contextlib
import hashlib
import json
import os
import socket
import struct

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


class Refused(Exception):
    def __init__(self, status, headers, body):
        super().__init__(f"{status}: {body[:200]}")
        self.status, self.headers, self.body = status, headers, body


class Closed(Exception):
    def __init__(self, code, reason=""):
        super().__init__(f"closed with {code} {reason}")
        self.code, self.reason = code, reason


def frame(opcode, payload=b"", final=True, masked=True, reserved=0, length=None):
    """length: a pair (form, announced): 7, 16 or 64 bits, whatever the payload is."""
    n = len(payload)
    form, announced = length or (7 if n < 126 else 16 if n < 65536 else 64, n)
    head = bytes([final << 7 | reserved << 4 | opcode])
    mask = 0x80 if masked else 0
    if form == 7:
        head += bytes([mask | announced])
    elif form == 16:
        head += bytes([mask | 126]) + struct.pack(">H", announced)
    else:
        head += bytes([mask | 127]) + struct.pack(">Q", announced)
    if not masked:
        return head + payload
    key = os.urandom(4)
    repeated = key * (n // 4 + 1)
    hidden = (int.from_bytes(payload, "big") ^ int.from_bytes(repeated[:n], "big")).to_bytes(n, "big")
    return head + key + hidden


def handshake_lines(path, host, key, drop=(), extra=()):
    lines = {
        "Host": host,
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": key,
        "Sec-WebSocket-Version": "13",
    }
    return [f"GET {path} HTTP/1.1"] + [f"{k}: {v}" for k, v in lines.items() if k not in drop] + list(extra)


class WebSocket:
    def __init__(self, address, path, headers=None, timeout=60, receive_buffer=None, host=None):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(timeout)
        self.sock.connect(address)
        self.buffer = b""
        self.close_code = None
        key = base64.b64encode(os.urandom(16)).decode()
        extra = [f"{k}: {v}" for k, v in (headers or {}).items()]
        lines = handshake_lines(path, host or f"{address[0]}:{address[1]}", key, extra=extra)
        self.sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self._read_head(key)

    @classmethod
    def of(cls, api, path, **kw):
        headers = {**api.headers, **kw.pop("headers", {})}
        return cls(api.address, api.prefix + path, headers=headers, **kw)

    def _fill(self):
        data = self.sock.recv(1 << 20)
        if not data:
            raise Closed(1006)
        self.buffer += data

    def _read_head(self, key):
        while b"\r\n\r\n" not in self.buffer:
            self._fill()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        first, *rest = head.decode().split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in rest)}
        status = int(first.split()[1])
        if status != 101:
            while len(self.buffer) < int(headers.get("content-length", 0)):
                self._fill()
            self.sock.close()
            raise Refused(status, headers, self.buffer)
        expected = base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()
        assert headers["sec-websocket-accept"] == expected
        assert headers["upgrade"].lower() == "websocket"
        assert "sec-websocket-extensions" not in headers

    def _take(self, n):
        while len(self.buffer) < n:
            self._fill()
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def frame(self):
        """One frame as it comes: (opcode, final, payload)."""
        first, second = self._take(2)
        assert not first & 0x70 and not second & 0x80, "reserved bits, or a masked frame of a server"
        n = second & 0x7F
        if n == 126:
            n = struct.unpack(">H", self._take(2))[0]
        elif n == 127:
            n = struct.unpack(">Q", self._take(8))[0]
        return first & 15, bool(first & 0x80), self._take(n)

    def receive(self):
        """The next message as str or bytes; pings are answered. Raises Closed."""
        while True:
            opcode, final, payload = self.frame()
            assert final, "the server does not send pieces"
            if opcode == PING:
                self.raw(frame(PONG, payload))
            elif opcode == CLOSE:
                code = struct.unpack(">H", payload[:2])[0] if payload else 1005
                if self.close_code is None:
                    with contextlib.suppress(OSError):  # it may find nobody
                        self.raw(frame(CLOSE, payload[:2]))
                raise Closed(code, payload[2:].decode())
            elif opcode == TEXT:
                return payload.decode()
            elif opcode == BINARY:
                return payload

    def receive_json(self):
        message = self.receive()
        assert isinstance(message, str), message[:100]
        return json.loads(message)

    def raw(self, data):
        self.sock.sendall(data)

    def send(self, message):
        data = message.encode() if isinstance(message, str) else message
        self.raw(frame(TEXT if isinstance(message, str) else BINARY, data))

    def send_json(self, message):
        self.send(json.dumps(message))

    def expect_close(self):
        """Reads up to the close frame and to the end behind it; returns the code."""
        try:
            while True:
                self.receive()
        except Closed as closed:
            self.wait_end()
            return closed.code

    def wait_end(self):
        while self.sock.recv(1 << 16):
            pass

    def close(self, code=1000):
        self.close_code = code
        self.raw(frame(CLOSE, struct.pack(">H", code)))

    def drop(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()
