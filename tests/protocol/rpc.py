# SPDX-License-Identifier: Apache-2.0
"""A client of /rpc that says exactly what it is told: the messages themselves, without a library."""
import base64
import socket

from websocket import Closed, WebSocket

UNDEFINED = ["undefined"]


class Rpc(WebSocket):
    """Counts its own numbers; the server's messages are kept in the order in which they came."""

    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.next = 1

    def say(self, *message):
        self.send_json(list(message))

    def number(self):
        self.next += 1
        return self.next - 1

    def push(self, method, *args, target=0):
        path = method.split(".") if method else []
        self.say("push", ["pipeline", target, path, list(args)])
        return self.number()

    def stream(self, target, method, *args):
        self.say("stream", ["pipeline", target, [method], list(args)])
        return self.number()

    def pipe(self):
        self.say("pipe")
        return self.number()

    def expect(self, *message):
        got = self.receive_json()
        assert got == list(message), got
        return got

    def ask(self, method, *args):
        """Calls and returns the answer, ("resolve" or "reject", expression), then releases it."""
        id = self.push(method, *args)
        self.say("pull", id)
        kind, got, value = self.receive_json()
        assert got == id, (kind, got, value)
        self.say("release", id, 1)
        return kind, value

    def call(self, method, *args):
        kind, value = self.ask(method, *args)
        assert kind == "resolve", value
        return value

    def refused(self, method, *args):
        kind, value = self.ask(method, *args)
        assert kind == "reject", value
        return value

    def is_alive(self):
        return self.call("utils.ping") == "healthy"

    def end(self):
        """The text of the server's abort; it must be the reason of the close, too."""
        kind, error = self.receive_json()
        assert kind == "abort", (kind, error)
        try:
            self.receive()
        except Closed as closed:
            assert closed.code == 3000 and error[2].startswith(closed.reason), (closed, error)
        self.wait_end()
        return tuple(error[1:])


def chunk(data):
    return ["bytes", base64.b64encode(data).decode().rstrip("=")]


def bytes_of(expression):
    kind, text = expression
    assert kind == "bytes" and "=" not in text
    return base64.b64decode(text + "=" * (-len(text) % 4))

