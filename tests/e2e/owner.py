# SPDX-License-Identifier: Apache-2.0
"""owner.py: who owns a sidecar, for tests: the listener on the host that every connection out of a sandbox reaches
as a CONNECT, and a resolver."""
import socket
import struct
import threading


class Owner:
    """Answers every CONNECT with decide(head) -> (status line or raw bytes, handler(conn, rest) or None)."""

    def __init__(self, decide):
        self.decide = decide
        self.heads = []
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(1024)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn):
        with conn:
            try:
                data = b""
                while b"\r\n\r\n" not in data:
                    piece = conn.recv(65536)
                    if not piece:
                        return
                    data += piece
                text, rest = data.split(b"\r\n\r\n", 1)
                head = parse_head(text)
                self.heads.append(head)
                answer, handler = self.decide(head)
                if isinstance(answer, int):
                    answer = b"HTTP/1.1 %d Whatever\r\n\r\n" % answer
                conn.sendall(answer)
                if handler:
                    handler(conn, rest)
            except OSError:
                pass  # the other side went away, as many tests want


def parse_head(text):
    lines = text.decode().split("\r\n")
    method, target, version = lines[0].split(" ")
    head = {"method": method, "target": target, "version": version}
    for line in lines[1:]:
        name, value = line.split(": ", 1)
        head[name.lower()] = value
    return head


def read_request(conn, data=b""):
    while b"\r\n\r\n" not in data:
        piece = conn.recv(65536)
        if not piece:
            raise OSError("no request")
        data += piece
    return data


def http(body):
    """A handler that answers one HTTP request with a text, or what a function makes of the request."""

    def handler(conn, rest):
        request = read_request(conn, rest)
        text = body(request) if callable(body) else body
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(text), text))

    return handler


def echo(conn, rest):
    """Everything comes back; an end is answered with an end."""
    if rest:
        conn.sendall(rest)
    while piece := conn.recv(65536):
        conn.sendall(piece)
    conn.shutdown(socket.SHUT_WR)


class Resolver:
    """A name server on a loopback address: names maps a name to an address, None (no such name) or "silent"."""

    def __init__(self, names, address=None):
        self.names = names
        self.asked = []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.address = address or bind_somewhere(self.socket)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        self.socket.close()

    def _serve(self):
        while True:
            try:
                packet, peer = self.socket.recvfrom(4096)
            except OSError:
                return
            name, kind, end = question(packet)
            self.asked.append((name, kind))
            answer = self.names.get(name)
            if answer != "silent":
                # a liar answers first, with another id
                self.socket.sendto(reply(bytes([packet[0] ^ 1]) + packet[1:], end, "6.6.6.6"), peer)
                self.socket.sendto(reply(packet, end, answer), peer)


def bind_somewhere(sock):
    """Port 53 of some loopback address that nobody else has."""
    for n in range(2, 250):
        try:
            sock.bind((f"127.53.53.{n}", 53))
            return f"127.53.53.{n}"
        except OSError:
            continue
    raise RuntimeError("no loopback address with a free port 53")


def question(packet):
    labels, at = [], 12
    while packet[at]:
        labels.append(packet[at + 1 : at + 1 + packet[at]].decode())
        at += 1 + packet[at]
    (kind,) = struct.unpack(">H", packet[at + 1 : at + 3])
    return ".".join(labels).lower(), kind, at + 5


def reply(packet, end, address):
    flags, count = (0x8183, 0) if address is None else (0x8180, 1)
    head = packet[:2] + struct.pack(">5H", flags, 1, count, 0, 0) + packet[12:end]
    if address is None:
        return head
    return head + b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton(address)
