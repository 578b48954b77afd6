# SPDX-License-Identifier: Apache-2.0
"""Crashes, restarts and damaged files (catalogue area 13): what was promised holds, what runs goes on, nothing is left."""
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest
import silica
from silica import mounts, read_until, sandbox_processes, wait_for
from tracer import gateway_pid


def kill_gateway(d):
    pid = gateway_pid(d)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), what="the gateway's end")
    wait_for(d.healthy, what="a new gateway")


class Load:
    """Creates, runs and destroys sandboxes until told to stop; remembers what was answered."""

    def __init__(self, d, threads=3):
        self.d, self.stop = d, threading.Event()
        self.kept, self.wrong, self.done = {}, [], 0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(threads)]
        for t in self.threads:
            t.start()

    def run(self, n):
        i = 0
        while not self.stop.is_set():
            i += 1
            name = f"load-{n}-{i}"
            try:
                r = self.d.request("POST", f"/v1/sandbox/{name}/api/execute",
                                   {"command": f"echo {name} > /workspace/f; sync; echo {name}"}, timeout=30)
                if r.status == 200 and r.json["stdout"] != name:
                    self.wrong.append((name, r.body))
                if r.status == 200:
                    with self.lock:
                        self.kept[name] = True
                        self.done += 1
                if i % 3:
                    with self.lock:
                        self.kept.pop(name, None)  # from here on its fate is open
                    self.d.request("DELETE", f"/v1/sandbox/{name}", timeout=30)
            except (OSError, ValueError, socket.timeout):
                time.sleep(0.02)
            except Exception as e:  # http.client: an answer that was cut off
                if "http.client" not in type(e).__module__:
                    self.wrong.append((name, repr(e)))

    def end(self):
        self.stop.set()
        for t in self.threads:
            t.join(60)
            assert not t.is_alive()
        assert not self.wrong, self.wrong


def remove_all(d):
    for s in d.request("GET", "/v1/sandbox").json["sandboxes"]:
        d.destroy(s["id"])


def test_a_restart_at_once(daemon_factory):
    """The gateway of a keeper that was killed has the addresses for a moment longer: the next one waits for them."""
    d = daemon_factory("atonce", pool=0).start()
    d.out("x", "mark=1")
    for _ in range(10):
        d.kill()
        d.start()
        assert d.out("x", "echo $mark") == "1"


def test_REC_01_kill_under_load(daemon_factory):
    """20 rounds of kill -9, keeper and gateway in turn: acknowledged sandboxes and their files are there, a running process runs
    on, and in the end nothing is left."""
    d = daemon_factory("rec01", pool=1).start()
    before = mounts()
    d.request("PUT", "/v1/sandbox/steady", {"keepAlive": True})
    shell = d.out("steady", "A=7; echo $$")
    d.request("POST", "/v1/sandbox/steady/api/process/start",
              {"command": "n=0; while :; do n=$((n+1)); echo $n > /workspace/n; sleep 0.05; done", "processId": "counter"})
    rng = random.Random(1)
    last = 0
    for round_number in range(20):
        load = Load(d)
        enough = rng.randrange(1, 4)
        wait_for(lambda: load.done >= enough, what="some work done")
        time.sleep(rng.random() * 0.05)
        if round_number % 2:
            kill_gateway(d)
        else:
            d.kill()
            d.start()
        load.end()
        assert d.out("steady", "echo $$ $A") == f"{shell} 7", "the session is the same"
        count = lambda: int(d.out("steady", "cat /workspace/n").strip() or 0)  # noqa: E731 - empty: just being written
        last = wait_for(lambda: (n := count()) > last and n, what="the process counts on")
        listed = {s["id"] for s in d.request("GET", "/v1/sandbox").json["sandboxes"]}
        assert set(load.kept) <= listed, set(load.kept) - listed
        for name in list(load.kept)[:3]:
            assert d.out(name, "cat /workspace/f") == name
        for name in listed - {"steady"}:
            d.destroy(name)
    remove_all(d)
    wait_for(lambda: len(d.disks()) <= 1 and len(d.slots()) <= 1, what="only what the pool holds")
    assert mounts() == before
    d.stop()
    wait_for(lambda: not d.leftovers() and not sandbox_processes(d), what="an empty host")


@pytest.mark.parametrize("victim", ["keeper", "gateway"])
def test_REC_04_kill_with_open_streams(daemon_factory, victim):
    """The caller sees the end of his stream, not a false completion; the process and its output go on."""
    d = daemon_factory("rec04", pool=0).start()
    d.request("POST", "/v1/sandbox/s/api/process/start",
              {"command": "for i in $(seq 1 100); do echo line $i; sleep 0.02; done; while [ ! -e /tmp/go ]; do sleep 0.05; done; "
                          "for i in $(seq 101 200); do echo line $i; done", "processId": "p"})
    s = socket.create_connection(("127.0.0.1", d.port), timeout=60)
    s.sendall(f"GET /v1/sandbox/s/api/process/p/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {silica.TOKEN}\r\n\r\n".encode())
    read_until(s, b"line 1")
    if victim == "keeper":
        d.kill()
    else:
        os.kill(gateway_pid(d), signal.SIGKILL)
    got = b""
    try:
        while piece := s.recv(65536):
            got += piece
    except ConnectionResetError:
        pass
    assert not got.endswith(b"0\r\n\r\n"), "no proper end"
    s.close()
    if victim == "keeper":
        d.start()
    else:
        wait_for(d.healthy)
    d.out("s", "touch /tmp/go")
    wait_for(lambda: d.request("GET", "/v1/sandbox/s/api/process/p").json["process"]["status"] == "completed", what="its end")
    out = d.request("GET", "/v1/sandbox/s/api/process/p/logs").json["stdout"].split("\n")
    assert [x for x in out if x] == [f"line {i}" for i in range(1, 201)], "not a line is missing"


def test_REC_06_pid_reuse(daemon_factory):
    """The recorded pid belongs to somebody else now: not adopted, not killed."""
    d = daemon_factory("rec06", pool=0).start()
    d.out("gone", "echo kept > /workspace/f; sync")
    d.kill()
    agents = []
    for pid in sandbox_processes(d):
        try:
            if open(f"/proc/{pid}/status").read().split("NSpid:")[1].split("\n")[0].split()[-1] == "1":
                agents.append(pid)
        except FileNotFoundError:
            pass
    assert len(agents) == 1
    os.kill(agents[0], signal.SIGKILL)
    wait_for(lambda: not sandbox_processes(d), what="the sandbox's end")
    innocent = subprocess.Popen(["sleep", "600"])
    try:
        path = f"{d.run_dir}/slots/{d.slots()[0]}/record"
        data = open(path, "rb").read()
        old = struct.pack("<i", agents[0])
        assert data.count(old) >= 1
        with open(path, "wb") as f:
            f.write(data.replace(old, struct.pack("<i", innocent.pid), 1))
        d.start()
        assert d.request("GET", "/v1/sandbox/gone").json["state"] == "asleep"
        assert d.out("gone", "cat /workspace/f") == "kept"
        d.destroy("gone")
        assert innocent.poll() is None, "it lives"
    finally:
        innocent.kill()
        innocent.wait()


def damage_header(path):
    with open(path, "r+b") as f:
        f.write(b"not a database at all" * 4)


def damage_middle(path):
    with open(path, "r+b") as f:
        size = os.path.getsize(path)
        for page in range(4096, size, 4096):  # page 1 holds the schema and stays
            f.seek(page)
            f.write(b"\xa5" * 512)


def damage_half(path):
    os.truncate(path, max(4096, os.path.getsize(path) // 2 // 4096 * 4096))


def damage_empty(path):
    os.truncate(path, 0)


DAMAGES = [damage_header, damage_middle, damage_half, damage_empty]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__[7:])
def test_REC_13_damaged_keeper_db(daemon_factory, damage):
    """Refuses with a message and deletes nothing; with the file restored everything is there."""
    d = daemon_factory("rec13k", pool=0).start()
    for i in range(3):
        d.out(f"s{i}", f"echo {i} > /workspace/f")
    d.stop()
    disks = d.disks()
    path = d.data + "/keeper.db"
    shutil.copy(path, path + ".copy")
    damage(path)
    d.start(wait=False)
    assert d.proc.wait(60) != 0
    assert "ledger" in d.log().split("\n")[-2] or "keeper.db" in d.log().split("\n")[-2], d.log()[-500:]
    assert d.disks() == disks
    for f in (path, path + "-wal", path + "-shm"):
        if os.path.exists(f):
            os.unlink(f)
    os.rename(path + ".copy", path)
    d.start()
    assert [d.out(f"s{i}", "cat /workspace/f") for i in range(3)] == ["0", "1", "2"]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__[7:])
def test_REC_13_damaged_state_db(daemon_factory, damage):
    """No answer instead of a wrong one, with a message in the log; a lost file costs the settings, never the files."""
    d = daemon_factory("rec13g", pool=0).start()
    d.request("PUT", "/v1/sandbox/s", {"labels": {"a": "b"}, "env": {"V": "1" * 5000}})
    d.out("s", "echo kept > /workspace/f")
    d.stop()
    path = d.data + "/gateway/state.db"
    shutil.copy(path, path + ".copy")
    begin = len(d.log())
    damage(path)
    disks = d.disks()
    d.start(wait=False)
    if damage is damage_empty:
        wait_for(d.healthy)
        assert d.out("s", "cat /workspace/f") == "kept"
        return
    wait_for(lambda: "state database" in d.log()[begin:], what="the message")
    with pytest.raises(OSError):
        d.request("GET", "/v1/sandbox", timeout=1)
    assert d.disks() == disks
    d.stop()
    stat = os.stat(path)
    for f in (path, path + "-wal", path + "-shm"):
        if os.path.exists(f):
            os.unlink(f)
    os.rename(path + ".copy", path)
    os.chown(path, stat.st_uid, stat.st_gid)
    d.start()
    assert d.request("GET", "/v1/sandbox/s").json["labels"] == {"a": "b"}
    assert d.out("s", "cat /workspace/f; echo ${#V}") == "kept\n5000"


def test_REC_20_crash_loop(daemon_factory):
    """Killed again and again, often before it serves: no growth of leftovers."""
    d = daemon_factory("rec20", pool=2).start()
    d.out("keep", "echo kept > /workspace/f; sync")
    rng = random.Random(2)
    for _ in range(12):
        d.kill()
        d.start(wait=False)
        time.sleep(rng.random() * 0.5)
    d.kill()
    d.start()
    assert d.out("keep", "cat /workspace/f") == "kept"
    wait_for(lambda: len(d.slots()) <= 3 and len(d.disks()) <= 3, what="one sandbox and the pool")
    d.destroy("keep")
    d.stop()
    wait_for(lambda: not d.leftovers() and not sandbox_processes(d), what="an empty host")


def test_what_survives_a_restart(daemon_factory):
    """Tokens, owners, labels, env and times, through a clean stop and a kill."""
    d = daemon_factory("survive", pool=0).start()
    made = d.request("POST", "/v1/token", {"scope": "create-only", "name": "ci"}).json
    bearer = {"Authorization": "Bearer " + made["token"]}
    assert d.request("POST", "/v1/sandbox/mine/api/execute", {"command": "true"}, headers=bearer).status == 200
    d.request("PUT", "/v1/sandbox/theirs", {"labels": {"x": "y"}, "sleepAfter": "1h"})
    before = d.request("GET", "/v1/sandbox/theirs").json
    for end in (lambda: d.stop(), lambda: d.stop(signal.SIGTERM), lambda: d.kill()):
        end()
        d.start()
        own = d.request("GET", "/v1/sandbox", headers=bearer).json["sandboxes"]
        assert [s["id"] for s in own] == ["mine"]
        assert d.request("GET", "/v1/sandbox/theirs", headers=bearer).status == 404
        after = d.request("GET", "/v1/sandbox/theirs").json
        for field in ("labels", "sleepAfter", "createdAt", "limits", "image"):
            assert after[field] == before[field]
    assert d.request("DELETE", f"/v1/token/{made['id']}").status == 200
    assert d.request("GET", "/v1/sandbox", headers=bearer).status == 401
