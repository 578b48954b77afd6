# SPDX-License-Identifier: Apache-2.0
"""A client of a terminal (/ws/pty)."""
import json
import os

from websocket import WebSocket


class Terminal(WebSocket):
    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.output = b""
        self.controls = []

    @classmethod
    def open(cls, api, session, query="", **kw):
        return cls.of(api, f"/ws/pty?sessionId={session}{query}", **kw)

    def step(self):
        message = self.receive()
        if isinstance(message, bytes):
            self.output += message
        else:
            self.controls.append(json.loads(message))

    def until_control(self, kind):
        while not any(c["type"] == kind for c in self.controls):
            self.step()
        return next(c for c in self.controls if c["type"] == kind)

    def until(self, text):
        while text not in self.output:
            self.step()

    def ready(self):
        self.until_control("ready")
        return self

    def type(self, text):
        self.send(text.encode())

    def ask(self, command):
        """The output of a command, with marks around it that the echo of the typing does not contain."""
        mark = os.urandom(6).hex()
        self.type(f"echo {mark[:6]}''{mark[6:]}; {command}; echo {mark[6:]}''{mark[:6]}\n")
        begin, end = mark.encode(), (mark[6:] + mark[:6]).encode()
        self.until(end)
        text = self.output.split(begin, 1)[1].split(end, 1)[0]
        return text.decode().replace("\r\n", "\n").strip()

    def leave(self):
        """Ends the shell, so that the next one who asks for this session's terminal gets a new one."""
        self.type("exit\n")
        self.until_control("exit")
