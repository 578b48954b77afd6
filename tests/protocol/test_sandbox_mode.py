# SPDX-License-Identifier: Apache-2.0
"""The agent as PID 1: boot over the keeper's line, placement of spawners, signals, confinement of what it spawns."""
import array
import http.client
import json
import os
import shutil
import signal
import socket
import struct
import subprocess

import pytest
from conftest import wait_until

BOOT, PLACED, PLACE, BOOTED = 1, 2, 3, 4


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


class Sandbox:
    """An agent in its own pid namespace, and the keeper's end of its line."""

    def __init__(self, tmp_path):
        self.http = str(tmp_path / "http")
        self.control = str(tmp_path / "control")
        listeners = []
        for path, kind in ((self.http, socket.SOCK_STREAM), (self.control, socket.SOCK_SEQPACKET)):
            s = socket.socket(socket.AF_UNIX, kind)
            s.bind(path)
            s.listen(16)
            listeners.append(s)
        fds = [os.dup(s.fileno()) for s in listeners]

        def inherit():
            high = [os.dup2(fd, 100 + i) for i, fd in enumerate(fds)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)
            os.closerange(5, 200)

        self.process = subprocess.Popen(
            # no CAP_SYS_PTRACE, as in a real sandbox: it would see through everything
            ["setpriv", "--bounding-set", "-sys_ptrace", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
            + [os.environ["SILICA_AGENT"], "--sandbox"],
            preexec_fn=inherit,
            close_fds=False,
            stderr=subprocess.PIPE,
        )
        for fd in fds:
            os.close(fd)
        for s in listeners:
            s.close()
        self.line = None

    def agent_pid(self):
        """PID 1 of the namespace, as seen from here: the only child of unshare."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as f:
            return int(f.read().split()[0])

    def connect(self):
        self.line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.line.settimeout(60)
        self.line.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.line.connect(self.control)

    def send(self, kind, environment=None):
        message = struct.pack("=II", 1, kind)
        ancillary = []
        if environment is not None:
            fd = os.memfd_create("env")
            os.write(fd, b"".join(f"{k}={v}".encode() + b"\0" for k, v in environment.items()))
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        self.line.sendmsg([message], ancillary)
        if environment is not None:
            os.close(fd)

    def receive(self):
        """(type, pid of the sender)"""
        data, ancillary, _, _ = self.line.recvmsg(64, 1024)
        version, kind = struct.unpack("=II", data)
        assert version == 1
        pid = next(struct.unpack("=iII", d)[0] for level, t, d in ancillary if t == socket.SCM_CREDENTIALS)
        return kind, pid

    def boot(self, environment=None):
        self.connect()
        self.send(BOOT, environment)
        answers = [self.receive(), self.receive()]
        assert {kind for kind, _ in answers} == {PLACE, BOOTED}
        self.send(PLACED)
        return dict(answers)

    def request(self, method, path, body=None):
        connection = UnixConnection(self.http)
        connection.request(method, path, body=json.dumps(body) if body else None)
        response = connection.getresponse()
        data = json.loads(response.read())
        connection.close()
        return data

    def out(self, command, **fields):
        answer = self.request("POST", "/api/execute", {"command": command, **fields})
        assert "stdout" in answer, answer
        return answer["stdout"]


@pytest.fixture
def sandbox(tmp_path):
    if not os.environ.get("SILICA_AGENT") or os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs SILICA_AGENT, root, setpriv and unshare")
    s = Sandbox(tmp_path)
    yield s
    if s.process.poll() is None:
        os.kill(s.agent_pid(), signal.SIGTERM)  # a clean end: it removes what it has made
    try:
        _, errors = s.process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        s.process.kill()
        raise
    assert b"AddressSanitizer" not in errors, errors.decode()


def test_nothing_is_served_before_boot(sandbox):
    sandbox.connect()
    assert sandbox.receive()[0] == PLACE
    connection = UnixConnection(sandbox.http)
    connection.timeout = 0.5
    connection.connect()
    connection.sock.settimeout(0.5)
    connection.sock.sendall(b"GET /api/ping HTTP/1.1\r\nHost: x\r\n\r\n")
    with pytest.raises(TimeoutError):
        connection.sock.recv(1)
    sandbox.send(BOOT)
    connection.sock.settimeout(60)
    assert connection.sock.recv(12) == b"HTTP/1.1 200"


def test_the_environment_of_boot_reaches_commands(sandbox):
    sandbox.boot({"FROM_BOOT": "yes", "SANDBOX_VERSION": "9.9"})
    assert sandbox.out("echo $FROM_BOOT") == "yes"
    assert sandbox.request("GET", "/api/version")["version"] == "9.9"


def test_commands_wait_for_the_placement(sandbox):
    sandbox.connect()
    sandbox.send(BOOT)
    {sandbox.receive()[0], sandbox.receive()[0]}
    connection = UnixConnection(sandbox.http)
    connection.request("POST", "/api/execute", json.dumps({"command": "echo hi"}))
    connection.sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        connection.sock.recv(1)
    sandbox.send(PLACED)
    connection.sock.settimeout(60)
    assert json.loads(connection.getresponse().read())["stdout"] == "hi"


def test_the_spawner_itself_asks(sandbox):
    senders = sandbox.boot()
    assert senders[PLACE] != senders[BOOTED]
    with open(f"/proc/{senders[PLACE]}/comm") as f:
        assert f.read() == "silica-spawner\n"


def test_processes_are_children_of_the_agent(sandbox):
    sandbox.boot()
    assert sandbox.out("echo $PPID") == "1"
    assert sandbox.out("ps -o sid= -p $$ | tr -d ' '; echo $$").split()[0] == sandbox.out("echo $$")


def test_a_killed_spawner_is_replaced(sandbox):
    spawner = sandbox.boot()[PLACE]
    os.kill(spawner, signal.SIGKILL)
    kind, fresh = sandbox.receive()
    assert kind == PLACE and fresh != spawner
    sandbox.send(PLACED)
    assert sandbox.out("echo ok", sessionId="new") == "ok"


def test_without_a_keeper_requests_wait(sandbox):
    spawner = sandbox.boot()[PLACE]
    sandbox.line.close()
    wait_until(lambda: sandbox.request("GET", "/api/ping")["success"], "the agent")
    os.kill(spawner, signal.SIGKILL)
    wait_until(lambda: not os.path.exists(f"/proc/{spawner}"), "the agent has noticed both")
    connection = UnixConnection(sandbox.http)
    connection.request("POST", "/api/execute", json.dumps({"command": "echo late", "sessionId": "new"}))
    sandbox.connect()
    assert sandbox.receive()[0] == PLACE
    sandbox.send(PLACED)
    assert json.loads(connection.getresponse().read())["stdout"] == "late"


def test_a_second_keeper_replaces_the_first(sandbox):
    sandbox.boot()
    first = sandbox.line
    sandbox.connect()
    sandbox.send(BOOT)
    assert sandbox.receive()[0] == BOOTED
    assert first.recv(16) == b""


def test_garbage_on_the_line_ends_the_connection_only(sandbox):
    sandbox.boot()
    sandbox.line.send(b"xyz")
    assert sandbox.line.recv(16) == b""
    assert sandbox.request("GET", "/api/ping")["success"]


def test_signals_from_inside_are_ignored(sandbox):
    sandbox.boot()
    sandbox.out("for s in TERM INT HUP USR1 QUIT KILL CHLD; do kill -$s 1; done", sessionId="x")
    assert sandbox.out("echo alive") == "alive"


def test_term_from_outside_ends_it_cleanly(sandbox):
    sandbox.boot()
    sandbox.request("POST", "/api/process/start", {"command": "sleep 100"})
    os.kill(sandbox.agent_pid(), signal.SIGTERM)
    assert sandbox.process.wait(timeout=60) == 0


def test_limits_and_capabilities_of_commands(sandbox):
    sandbox.boot()
    assert sandbox.out("ulimit -Sn; ulimit -Hn; ulimit -c").split() == ["4096", "16384", "0"]
    status = dict(line.split(":", 1) for line in sandbox.out("cat /proc/self/status").splitlines())
    for name in ("CapBnd", "CapPrm", "CapEff"):
        assert int(status[name], 16) & (1 << 8) == 0, name
    assert int(status["CapInh"], 16) == 0 and int(status["CapAmb"], 16) == 0
    assert sandbox.out("cat /proc/self/oom_score_adj") == "500"


def test_the_agent_cannot_be_inspected(sandbox):
    sandbox.boot()
    for link in ("cwd", "exe", "root", "fd/0", "ns/net"):
        assert sandbox.request("POST", "/api/execute", {"command": f"readlink /proc/1/{link}"})["exitCode"] == 1, link


def test_descriptors_of_commands(sandbox):
    sandbox.boot()
    assert sandbox.out("ls /proc/self/fd").split() == ["0", "1", "2", "3"]
