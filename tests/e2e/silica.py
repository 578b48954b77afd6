# SPDX-License-Identifier: Apache-2.0
"""A daemon of its own for a test: start it, speak to it over the real socket, look at the host around it."""
import contextlib
import glob
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT + "/tests")
from unwritten import checked
BIN = os.environ.get("SILICA_BIN", os.path.join(ROOT, "build/debug/src/cli/silica"))
AGENT = os.environ.get("SILICA_AGENT", os.path.join(ROOT, "build/agent/src/agent/silica-agent"))
IMAGES = os.environ.get("SILICA_IMAGES", "/var/lib/silica/images")
UID_BASE = 0x70000000
TOKEN = "t" * 40


def wait_for(condition, seconds=60.0, what="condition"):
    """Polls a condition that something else brings about; the bound is generous because machines are shared."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {seconds} s")
        time.sleep(0.005)


def read_until(s, text):
    """What a socket gives up to this text, and perhaps a little more."""
    got = b""
    while text not in got:
        piece = s.recv(65536)
        assert piece, got
        got += piece
    return got


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, checked(body)

    @property
    def json(self):
        return json.loads(self.body)


def free_port():
    """A port for a listener, not one of those that the kernel gives to outgoing connections, nor of those that the protocol's
    tests take at the same time: it stays free until it is used."""
    while True:
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", random.randrange(10000, 20000)))
            return s.getsockname()[1]


class Daemon:
    network = "none"  # the rules of the machine the tests run on are not theirs to change: see lab.py
    prefix = ()

    def __init__(self, name, args=(), env=None, pool=1, auth=True, berths=0, bare=0, run_in=None):
        self.name = name
        self.dir = tempfile.mkdtemp(prefix=f"silica-{name}-")
        self.data = self.dir + "/data"
        self.run_dir = tempfile.mkdtemp(prefix=f"silica-{name}-", dir=run_in) if run_in else self.dir + "/run"
        self.instance = f"{name}-{os.getpid()}"
        self.args, self.env, self.pool, self.berths, self.bare, self.auth = list(args), dict(env or {}), pool, berths, bare, auth
        self.proc = self.port = None
        self.log_path = self.dir + "/log"

    def start(self, env=None, wait=True):
        self.port = self.port or free_port()
        full = {k: v for k, v in os.environ.items() if not k.startswith("SILICA_")}
        full.update({"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1"}, **self.env, **(env or {}))
        log = open(self.log_path, "ab")
        self.proc = subprocess.Popen(
            [*self.prefix, BIN, "serve", "--data", self.data, "--run", self.run_dir, "--images", IMAGES, "--agent", AGENT,
             "--listen", f"127.0.0.1:{self.port}", "--instance", self.instance, "--pool", str(self.pool), "--berths", str(self.berths), "--bare", str(self.bare),
             *(["--network", self.network] if self.network else []), "--token", TOKEN, "--log-level", "debug", *self.args],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=full)
        log.close()
        if wait:
            wait_for(self.healthy, what="the daemon's health")
        return self

    def healthy(self):
        if self.proc.poll() is not None:
            raise AssertionError(f"the daemon ended with {self.proc.returncode}:\n{self.log()}")
        try:
            return self.request("GET", "/health", auth=False).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def connection(self, timeout):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None, auth=True, timeout=60):
        conn = self.connection(timeout)
        h = dict(headers or {})
        if auth and self.auth and not any(k.lower() == "authorization" for k in h):
            h["Authorization"] = "Bearer " + TOKEN
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            h.setdefault("Content-Type", "application/json")
        try:
            try:
                conn.request(method, path, body, h)
            except (BrokenPipeError, ConnectionResetError):
                if not body:
                    raise  # else there may be an answer that came before all of it was taken
            r = conn.getresponse()
            return Response(r.status, {k.lower(): v for k, v in r.getheaders()}, r.read())
        finally:
            conn.close()

    def exec(self, sandbox, command, timeout=60, **fields):
        r = self.request("POST", f"/v1/sandbox/{sandbox}/api/execute", {"command": command, **fields}, timeout=timeout)
        assert r.status == 200, (r.status, r.body)
        return r.json

    def out(self, sandbox, command, **fields):
        r = self.exec(sandbox, command, **fields)
        assert r["exitCode"] == 0, r
        return r["stdout"]

    def destroy(self, sandbox):
        r = self.request("DELETE", f"/v1/sandbox/{sandbox}")
        assert r.status == 200, r.body
        return r.json

    def kill(self):
        """kill -9 of the keeper; its gateway follows by itself."""
        self.proc.kill()
        self.proc.wait()
        wait_for(lambda: not self.port_open(), what="the gateway's end")

    def port_open(self):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self, sig=signal.SIGINT, seconds=60):
        if self.proc and self.proc.poll() is None:
            self.proc.send_signal(sig)
            try:
                self.proc.wait(seconds)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                raise AssertionError("the daemon does not stop:\n" + self.log())

    def cleanup(self):
        """Ends everything, also what a failed test left running."""
        if self.proc and self.proc.poll() is None:
            self.proc.send_signal(signal.SIGINT)
            try:
                self.proc.wait(60)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
        if self.leftovers():  # a keeper that died: let a new one sweep
            self.start(env={k: "" for k in ("SILICA_FAIL", "SILICA_CRASH")})
            self.stop()
        for d in self.cgroup_dirs():
            try:
                os.rmdir(d)
            except OSError:
                pass
        for path in (self.run_dir, self.dir):
            shutil.rmtree(path, ignore_errors=True)

    # ---- the host around it

    def cgroup_dirs(self):
        found = []
        for base in {m.split()[4] for m in open("/proc/self/mountinfo") if " - cgroup" in m}:
            top = f"{base}/silica-{self.instance}"
            for d, _, _ in os.walk(top, topdown=False):
                found.append(d)
        return found

    def slot_groups(self):
        return [d for d in self.cgroup_dirs() if re.search(r"/silica-[^/]+/\d", d)]

    def loops(self):
        found = []
        for f in glob.glob("/sys/block/loop*/loop/backing_file"):
            try:
                if self.dir in open(f).read():
                    found.append(f)
            except OSError:
                pass
        return found

    def slots(self):
        try:
            return sorted(os.listdir(self.run_dir + "/slots"))
        except FileNotFoundError:
            return []

    def disks(self):
        try:
            return sorted(os.listdir(self.data + "/disks"))
        except FileNotFoundError:
            return []

    def leftovers(self):
        return {k: v for k, v in {"groups": self.slot_groups(), "loops": self.loops(), "slots": self.slots()}.items() if v}


def sandbox_processes(daemon):
    """Every process in a group of this daemon's sandboxes, as {pid: cgroup line}."""
    found = {}
    for p in glob.glob("/proc/[0-9]*/cgroup"):
        try:
            text = open(p).read()
        except OSError:
            continue
        if f"/silica-{daemon.instance}/" in text:
            found[int(p.split("/")[2])] = text
    return found


def clean(d):
    """Nothing of the daemon's sandboxes is left on the host."""
    return not d.leftovers() and not d.disks() and not sandbox_processes(d)


def mounts():
    return sorted(line.split()[4] for line in open("/proc/self/mountinfo"))


def ids_in_use():
    """Processes of the host whose uid lies in the pool of ranges."""
    found = {}
    for p in glob.glob("/proc/[0-9]*/status"):
        try:
            uid = int(re.search(r"^Uid:\s+(\d+)", open(p).read(), re.M).group(1))
        except (OSError, AttributeError):
            continue
        if uid >= UID_BASE:
            found[int(p.split("/")[2])] = uid
    return found
