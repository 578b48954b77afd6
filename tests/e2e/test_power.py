# SPDX-License-Identifier: Apache-2.0
"""The machine fails around the daemon (catalogue area 13): a reboot, a loss of power, a data directory that turns read-only."""
import contextlib
import fcntl
import glob
import os
import random
import shutil
import signal
import struct
import subprocess
import threading

import pytest
from silica import clean, mounts, sandbox_processes, wait_for

EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32): from here on nothing more is written, as without power
NO_LOG_FLUSH = 2


class DataDisk:
    """A file system of its own for a daemon's data, which can lose its power or its health. It is mounted in a namespace that only this daemon is in:
    others would take a copy of the mount along and keep it in use."""

    def __init__(self, d, directory):
        self.image, self.point = f"{directory}/{d.name}.img", d.data
        with open(self.image, "wb") as f:
            f.truncate(1 << 30)
        subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=1,lazy_journal_init=1", self.image], check=True)
        os.makedirs(self.point)
        self.holder = subprocess.Popen(["unshare", "--mount", "sleep", "infinity"])
        self.enter = ["nsenter", "-t", str(self.holder.pid), "-m"]
        wait_for(lambda: os.readlink(f"/proc/{self.holder.pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"), what="a mount namespace")
        self.view = f"/proc/{self.holder.pid}/root{self.point}"
        d.prefix = self.enter
        self.mount()

    def inside(self, *command, check=True):
        return subprocess.run([*self.enter, *command], capture_output=True, text=True, check=check)

    def mount(self):
        self.inside("mount", "-o", "loop,errors=remount-ro", self.image, self.point)

    def unmount(self):
        wait_for(lambda: self.inside("umount", self.point, check=False).returncode == 0, what="the end of its use")
        used = lambda: subprocess.run(["losetup", "-j", self.image], capture_output=True, text=True).stdout
        wait_for(lambda: not used(), what="the end of its use in other mount namespaces")

    def pull_the_plug(self):
        fd = os.open(self.view, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def turn_read_only(self):
        device = os.path.basename(self.inside("findmnt", "-no", "SOURCE", self.point).stdout.strip())
        trigger = f"/sys/fs/ext4/{device}/trigger_fs_error"
        if not os.access(trigger, os.W_OK):
            pytest.skip(f"needs {trigger}")
        with open(trigger, "w") as f:
            f.write("test")

    def close(self):
        self.holder.kill()
        self.holder.wait()


def end_everything(d):
    """What a reboot does: no process is left, nor what was in memory only."""
    d.kill()
    for pid in sandbox_processes(d):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    wait_for(lambda: not sandbox_processes(d), what="the end of all processes")
    wait_for(lambda: not d.loops(), what="the end of all loop devices")
    shutil.rmtree(d.run_dir)
    wait_for(lambda: all(removed(group) for group in d.cgroup_dirs()), what="the end of all control groups")


def removed(group):
    try:
        os.rmdir(group)
    except OSError:  # the kernel still has to do with the last one in it
        return False
    return True


@pytest.fixture
def disk(daemon_factory, tmp_path):
    made = []

    def make(name, **kwargs):
        d = daemon_factory(name, **kwargs)
        try:
            made.append((d, DataDisk(d, tmp_path)))
            d.args += ["--disk-margin", "1MiB"]
        except (OSError, subprocess.CalledProcessError) as e:
            pytest.skip(f"needs a loop device with ext4: {e}")
        return made[-1]

    yield make
    for d, disk in made:
        if d.proc and d.proc.poll() is None:
            d.stop()
        for pid in sandbox_processes(d):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        disk.close()  # the mount goes with its namespace
        d.prefix = ()


def test_REC_07_reboot(daemon_factory):
    """The data directory is all that stays: sandboxes sleep and wake with their files; nothing believes in what ran before."""
    d = daemon_factory("rec07", pool=1).start()
    before = mounts()
    for i in range(3):
        d.out(f"s{i}", f"echo {i} > /workspace/f; sync; sleep 1000 & echo $!")
    d.request("PUT", "/v1/sandbox/s0", {"labels": {"a": "b"}})
    end_everything(d)
    d.start()
    listed = {s["id"]: s for s in d.request("GET", "/v1/sandbox").json["sandboxes"]}
    assert set(listed) == {"s0", "s1", "s2"} and {s["state"] for s in listed.values()} == {"asleep"}
    assert listed["s0"]["labels"] == {"a": "b"}
    assert [d.out(f"s{i}", "cat /workspace/f; pgrep -c sleep; true").split() for i in range(3)] == [[str(i), "0"] for i in range(3)]
    assert mounts() == before
    for i in range(3):
        d.destroy(f"s{i}")
    d.stop()
    wait_for(lambda: clean(d), what="a clean host")


class Work:
    """Creates, labels and removes sandboxes and remembers what was acknowledged, until there is no answer any more."""

    def __init__(self, d, n):
        self.d, self.n, self.there, self.gone, self.unsure, self.done = d, n, {}, set(), set(), 0
        self.over = False  # an answer that comes later would not come from a machine without power
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def ask(self, method, name, body=None):
        self.unsure.add(name)
        r = self.d.request(method, f"/v1/sandbox/{name}", body, timeout=40)
        assert r.status in (200, 201) and not self.over, r.body
        self.unsure.discard(name)
        self.done += 1

    def run(self):
        try:
            for i in range(1000):
                name = f"w{self.n}-{i}"
                self.ask("PUT", name, {"labels": {"n": str(i)}})
                self.there[name] = str(i)
                if i % 3 == 2:
                    self.ask("DELETE", name)
                    del self.there[name]
                    self.gone.add(name)
        except Exception:  # the power is gone: whatever the answer was, it was no success
            pass


@pytest.mark.parametrize("seed", range(3))
def test_REC_08_loss_of_power(disk, seed):
    """The file system stops in the middle of the work and comes back with what had reached it: every acknowledged creation and removal
    holds, files written before their sandbox slept are there, and the databases are sound."""
    d, data = disk(f"rec08-{seed}", pool=1)
    d.start()
    d.out("files", "echo kept > /workspace/f")
    assert d.request("POST", "/v1/sandbox/files/sleep").status == 200
    work = [Work(d, n) for n in range(3)]
    enough = random.Random(seed).randrange(4, 12)
    wait_for(lambda: sum(w.done for w in work) >= enough, what="some work")
    for w in work:
        w.over = True
    data.pull_the_plug()
    for w in work:
        w.thread.join(60)
        assert not w.thread.is_alive()
    end_everything(d)
    data.unmount()
    data.mount()
    for db in ("keeper.db", "gateway/state.db"):
        check = data.inside("python3", "-c", "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute('PRAGMA integrity_check').fetchone())",
                            f"{d.data}/{db}", check=False)
        assert check.stdout.strip() == "ok", (db, check)
    owner = os.stat(data.view + "/gateway")
    for path in glob.glob(data.view + "/gateway/state.db*"):  # looked at by root; they are the gateway's own
        os.chown(path, owner.st_uid, owner.st_gid)
    d.start()
    listed = {s["id"]: s for s in d.request("GET", "/v1/sandbox").json["sandboxes"]}
    for w in work:
        assert {name: listed.get(name, {}).get("labels", {}).get("n") for name in w.there if name not in w.unsure} == \
            {name: n for name, n in w.there.items() if name not in w.unsure}
        assert not (w.gone - w.unsure) & set(listed)
    assert d.out("files", "cat /workspace/f") == "kept"
    name = next((n for w in work for n in w.there if n not in w.unsure), None)
    if name:
        assert d.out(name, "echo works") == "works", "what was acknowledged can be used"


def test_REC_12_the_data_directory_turns_read_only(disk):
    """What can be read is read, what must be written gets a typed error, and after a repair all is as before."""
    d, data = disk("rec12", pool=0)
    d.start()
    d.out("old", "export A=7; echo kept > /tmp/f")
    data.turn_read_only()
    assert d.request("GET", "/v1/sandbox").status == 200
    assert d.request("GET", "/v1/sandbox/old").json["state"] == "running"
    assert d.out("old", "echo $A; cat /tmp/f") == "7\nkept", "a running sandbox goes on"
    r = d.request("PUT", "/v1/sandbox/new", {})
    assert r.status >= 500 and r.json["code"], r.body
    r = d.request("PUT", "/v1/sandbox/old", {"labels": {"a": "b"}})
    assert r.status >= 500 and r.json["code"], r.body
    wait_for(lambda: d.request("GET", "/v1/sandbox/new").status == 404, what="the end of what could not be recorded")
    assert d.proc.poll() is None
    end_everything(d)
    data.unmount()
    subprocess.run(["fsck.ext4", "-fy", data.image], capture_output=True)
    data.mount()
    d.start()
    assert [s["id"] for s in d.request("GET", "/v1/sandbox").json["sandboxes"]] == ["old"]
    assert d.out("old", "echo works") == "works"
    assert d.out("new", "echo works") == "works"
