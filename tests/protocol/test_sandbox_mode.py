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

    def __init__(self, tmp_path, before=(), arguments=()):
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
            + [*before, os.environ["SILICA_AGENT"], "--sandbox", *arguments],
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
def sandbox_factory(tmp_path):
    if not os.environ.get("SILICA_AGENT") or os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs SILICA_AGENT, root, setpriv and unshare")
    made = []

    def make(**how):
        made.append(Sandbox(tmp_path, **how))
        return made[0]

    yield make
    (s,) = made
    if s.process.poll() is None:
        os.kill(s.agent_pid(), signal.SIGTERM)  # a clean end: it removes what it has made
    try:
        _, errors = s.process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        s.process.kill()
        raise
    assert b"AddressSanitizer" not in errors, errors.decode()


@pytest.fixture
def sandbox(sandbox_factory):
    return sandbox_factory()


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


# Without locales a shell consists of few enough files to be recognized by them.
FEW_FILES = """set -e
mount -t tmpfs none /usr/lib/locale
"""
# bash becomes a program that goes to another root first.
ANOTHER_ROOT = """
mount -t tmpfs none "$0"
mkdir "$0/usr"
for d in /bin /lib /lib32 /lib64 /sbin; do [ ! -e $d ] || cp -d $d "$0"; done
for d in dev proc tmp root; do mkdir "$0/$d"; mount --rbind /$d "$0/$d"; done
mount --rbind /usr "$0/usr"
printf '#!/bin/sh\\nexec chroot %s /usr/bin/bash "$@"\\n' "$0" > "$0/bash"
chmod 755 "$0/bash"
mount --bind "$0/bash" /usr/bin/bash
"""


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_shell_that_waited_in_another_root_is_not_used(sandbox_factory, tmp_path, elsewhere):
    """A root that changes is not changed for who is being forked at that moment."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    script = FEW_FILES + ANOTHER_ROOT * elsewhere + 'exec "$@"'
    sandbox = sandbox_factory(before=["sh", "-c", script, str(place)], arguments=["--bare"])
    sandbox.connect()
    assert sandbox.receive()[0] == PLACE
    sandbox.send(PLACED)

    number = None

    def waiting():
        """A shell that has been looked at: then the agent waits without a time limit."""
        nonlocal number
        agent = sandbox.agent_pid()
        with open(f"/proc/{agent}/syscall") as call, open(f"/proc/{agent}/task/{agent}/children") as children:
            if call.read().split()[4:5] not in (["0xffffffffffffffff"], ["0xffffffff"]):
                return False
            for pid in children.read().split():
                with open(f"/proc/{pid}/comm") as comm, open(f"/proc/{pid}/wchan") as wchan, open(f"/proc/{pid}/status") as status:
                    if comm.read() == "bash\n" and "pipe" in wchan.read():
                        number = next(line.split()[-1] for line in status if line.startswith("NSpid"))
        return number is not None

    wait_until(waiting, "the shell that waits")
    sandbox.send(BOOT)
    assert sandbox.receive()[0] == BOOTED
    assert (sandbox.out("echo $$") == number) == (not elsewhere)
    assert sandbox.out("echo next", sessionId="next") == "next"
