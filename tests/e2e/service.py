# SPDX-License-Identifier: Apache-2.0
"""A service for tests, run inside a sandbox: says exactly the bytes it is told to, and writes down what it was sent.

usage: service.py HOST PORT PLAYS.json

PLAYS maps a path to a list of steps; "*" is played for other paths. A step is [name, argument]:
    send TEXT         bytes as latin-1
    repeat TEXT       until the other side is gone, then writes /tmp/gone
    sleep SECONDS
    read N            that many bytes of body (kept in the record)
    swallow           the rest of a body with Content-Length or chunked, only counted
    echo              everything that comes, back, until the end; then our own end
    wait PATH         until there is such a file
    keep              no close: the next request comes over the same connection
Every request is one line of JSON in /tmp/requests: {"head", "body", "n": connection number}; it is there before what is sent behind
the last thing that was read.
"""
import json
import os
import socket
import sys
import threading

family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
plays = json.load(open(sys.argv[3]))
lock = threading.Lock()
record = open("/tmp/requests", "a")
numbers = iter(range(1, 1 << 30))


def note(entry):
    with lock:
        record.write(json.dumps(entry) + "\n")
        record.flush()


class Connection:
    def __init__(self, s, n):
        self.s, self.n, self.rest = s, n, b""

    def more(self):
        data = self.s.recv(1 << 20)
        self.rest += data
        return bool(data)

    def head(self):
        while b"\r\n\r\n" not in self.rest:
            if not self.more():
                return None
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        return head.decode("latin-1")

    def read(self, n):
        while len(self.rest) < n and self.more():
            pass
        data, self.rest = self.rest[:n], self.rest[n:]
        return data

    def line(self):
        while b"\r\n" not in self.rest:
            if not self.more():
                return b""
        line, self.rest = self.rest.split(b"\r\n", 1)
        return line

    def swallow(self, head):
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:])
        total, buffer = 0, bytearray(1 << 20)
        if "content-length" in fields:
            want = int(fields["content-length"])
            total, self.rest = min(len(self.rest), want), self.rest[want:]
            while total < want:
                n = self.s.recv_into(buffer, min(len(buffer), want - total))
                if not n:
                    break
                total += n
        elif fields.get("transfer-encoding") == "chunked":
            while size := int(self.line(), 16):
                total += len(self.read(size))
                self.read(2)
            while self.line():
                pass
        return total

    def play(self, head):
        path = head.split(" ")[1].split("?")[0]
        entry = {"head": head, "body": "", "n": self.n}
        steps, keep = plays.get(path, plays["*"]), False
        inputs = sum(name in ("read", "swallow") for name, _ in steps)
        if not inputs:
            note(entry)
        for name, argument in steps:
            if name == "send":
                self.s.sendall(argument.encode("latin-1"))
            elif name == "repeat":
                try:
                    while True:
                        self.s.sendall(argument.encode("latin-1"))
                except OSError:
                    open("/tmp/gone", "w").write("gone")
            elif name == "sleep":
                threading.Event().wait(argument)
            elif name == "wait":
                while not os.path.exists(argument):
                    threading.Event().wait(0.02)
            elif name in ("read", "swallow"):
                if name == "read":
                    entry["body"] += self.read(argument).decode("latin-1")
                else:
                    entry["swallowed"] = self.swallow(head)
                inputs -= 1
                if not inputs:
                    note(entry)
            elif name == "echo":
                while self.rest or self.more():
                    data, self.rest = self.rest, b""
                    self.s.sendall(data)
                self.s.shutdown(socket.SHUT_WR)
            elif name == "keep":
                keep = True
        return keep

    def run(self):
        try:
            while (head := self.head()) is not None and self.play(head):
                pass
        except (OSError, ValueError) as e:
            note({"head": "", "body": "", "n": self.n, "error": str(e)})
        finally:
            try:
                self.s.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            self.s.close()


server = socket.socket(family)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind((sys.argv[1], int(sys.argv[2])))
server.listen(512)
while True:
    s, _ = server.accept()
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=Connection(s, next(numbers)).run, daemon=True).start()
