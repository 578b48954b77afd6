# SPDX-License-Identifier: Apache-2.0
"""channel: the private line between one context and the agent.

Towards the context: JSON texts, each ended by a newline, cut into packets anywhere.
Towards the agent: messages of a kind, a run number and a JSON text in pure ASCII, cut into pieces. Every piece is one
packet "\\n<nonce><mark><bytes>\\n"; the mark says where in its message the piece stands. Who does not know the nonce
cannot make a piece, and because packets do not mix, garbage written to the descriptor damages nothing.
"""

import _socket
import json
import os
import threading

PIECE_MAX = 32 * 1024
HOLD_MAX = 8 * 1024
_ALONE, _FIRST, _MIDDLE, _LAST = b"=", b"<", b"+", b">"

# Bound now: what user code does to the modules later is not our business.
_getpid = os.getpid
encode_json = json.JSONEncoder(ensure_ascii=True, allow_nan=False, check_circular=True, separators=(",", ":")).encode
_decode_json = json.JSONDecoder().decode


class Channel:
    __slots__ = ("_socket", "_head", "_pid", "_received", "_sending", "_interrupted", "_acks", "_lock", "_held")

    def __init__(self, fd, nonce):
        self._socket = _socket.socket(fileno=fd)
        self._head = b"\n" + nonce.encode("ascii")
        self._pid = _getpid()
        self._received = b""
        self._acks = 0  # asked for and not received
        self._held = b""  # pieces that go with the next packet
        self._sending = False
        self._interrupted = False
        self._lock = threading.RLock()  # threads of user code may display something, too

    @property
    def ours(self):
        """False in a process which user code has forked: it must not speak for the context."""
        return _getpid() == self._pid

    def close(self):
        self._socket.close()

    def wait_ack(self):
        """Returns when the agent has taken what was sent. Acks of interrupted waits are made up for."""
        self._acks += 1
        while self._acks:
            if self._next() is None:
                return

    def receive(self):
        """The next request as a dictionary, or None when the agent has hung up."""
        while True:
            request = self._next()
            if request is None or request["op"] != "ack":
                return request

    def _next(self):
        while True:
            line, newline, rest = self._received.partition(b"\n")
            if newline:
                self._received = rest
                request = _decode_json(line.decode("utf-8"))
                if request["op"] == "ack":
                    self._acks = max(0, self._acks - 1)
                return request
            packet = self._socket.recv(256 * 1024)
            if not packet:
                return None
            self._received += packet

    def interrupt_deferred(self):
        """For the signal handler: True when the interrupt has to wait for the end of a message."""
        self._interrupted = self._interrupted or self._sending
        return self._sending

    def send(self, kind, run, text, hold=False):
        """Sends one message; never interrupted half way, because the agent would wait for the rest.

        hold: another one follows at once, and if both are short one packet, and one wake-up of the agent, will do.
        """
        if not self.ours:
            return
        message = f"{kind}{run} {text}".encode("ascii")
        with self._lock:
            self._sending = True
            try:
                self._send_pieces(message, hold)
            finally:
                self._sending = False
        if self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt

    def _send_pieces(self, message, hold):
        count = len(message)
        if hold and len(self._held) + count <= HOLD_MAX:
            self._held += b"%s%s%s\n" % (self._head, _ALONE, message)
            return
        for at in range(0, count, PIECE_MAX):
            last = at + PIECE_MAX >= count
            mark = (_ALONE if last else _FIRST) if at == 0 else (_LAST if last else _MIDDLE)
            packet = b"%s%s%s%s\n" % (self._held, self._head, mark, message[at : at + PIECE_MAX])
            self._held = b""
            self._socket.send(packet)

    def forget_interrupt(self):
        self._interrupted = False


def move_high(fd):
    """The same file under a high number which is closed on exec; the old number is free."""
    import fcntl
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    base = 1000 if limit < 0 or limit > 1100 else max(3, limit // 2)
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, base)
    os.close(fd)
    return high

