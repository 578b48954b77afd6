# SPDX-License-Identifier: Apache-2.0
"""Host hygiene under awkward circumstances, and images that lie (catalogue areas 14 and 1)."""
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess

import pytest
import silica
from silica import clean, mounts, wait_for


def test_HYG_04_a_busy_sandbox_is_removed(daemon_factory):
    """Traced and stopped processes, open and deleted files, directories that somebody stands in."""
    d = daemon_factory("hyg4").start()
    d.out("busy", """mkdir -p /workspace/deep/er && cd /workspace/deep/er
        python3 - <<'P' &
import ctypes, os, time
held = [open(f"/workspace/f{i}", "w") for i in range(200)]
[os.unlink(f.name) for f in held]
child = os.fork()
if child == 0:
    ctypes.CDLL(None).ptrace(0, 0, 0, 0)  # traced by its parent from here on
    os.kill(os.getpid(), 19)
    time.sleep(1000)
os.waitpid(child, os.WUNTRACED)
open("/tmp/held", "w")
time.sleep(1000)
P
        (cd /workspace/deep && exec sleep 1000) & (sleep 1000 & kill -STOP $!)
        while [ ! -e /tmp/held ]; do sleep 0.01; done
        rm -r /workspace/deep""")
    assert d.destroy("busy")["existed"] is True
    wait_for(lambda: len(d.slots()) <= 1, what="its slot is free")
    d.stop()
    wait_for(lambda: clean(d), what="a clean host")


def test_HYG_05_tasks_that_are_slow_to_exit(daemon_factory):
    """A thousand threads with much memory each take their time to exit; the groups are gone afterwards."""
    d = daemon_factory("hyg5", pool=0).start()
    for i in range(3):
        d.out(f"slow{i}", """python3 -c "
import threading, time
block = [bytearray(1 << 20) for _ in range(200)]
for _ in range(300): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print(len(block), flush=True)
time.sleep(1000)" > /tmp/out & while ! grep -q 200 /tmp/out; do sleep 0.01; done""")
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda i: d.destroy(f"slow{i}"), range(3)))
    wait_for(lambda: not d.leftovers(), what="no groups, loops or slots")


def test_HYG_06_foreign_objects_are_left_alone(daemon_factory):
    """Things with names like ours that are not ours survive start, sweep and end."""
    groups = sorted({m.split()[4] for m in open("/proc/self/mountinfo") if " - cgroup" in m})
    d = daemon_factory("hyg6", pool=0)
    foreign = [f"{g}/silica-foreign-{os.getpid()}" for g in groups if os.access(g, os.W_OK)]
    stranger = f"{d.dir}/disks/7.img"
    os.makedirs(os.path.dirname(stranger))
    with open(stranger, "wb") as f:
        f.truncate(1 << 20)
    loop = subprocess.run(["losetup", "--find", "--show", stranger], capture_output=True, text=True)
    space = f"silica-foreign-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", space], check=True)
    try:
        for g in foreign:
            os.mkdir(g)
        d.start()
        d.out("a", "true")
        d.kill()
        d.start()
        d.destroy("a")
        d.stop()
        assert all(os.path.isdir(g) for g in foreign) and foreign
        assert space in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
        assert os.path.getsize(stranger) == 1 << 20
        if loop.returncode == 0:
            backing = f"/sys/block/{os.path.basename(loop.stdout.strip())}/loop/backing_file"
            assert open(backing).read().strip() == stranger
    finally:
        subprocess.run(["ip", "netns", "del", space], check=False)
        if loop.returncode == 0:
            subprocess.run(["losetup", "--detach", loop.stdout.strip()], check=False)
        for g in foreign:
            if os.path.isdir(g):
                os.rmdir(g)


def test_HYG_07_no_temporary_files(daemon_factory):
    def look():
        found = set()
        for top in ("/tmp", "/var/tmp", "/dev/shm", "/run"):
            found |= {f"{top}/{name}" for name in os.listdir(top) if "silica" in name or name.startswith(".s")}
        return found

    d = daemon_factory("hyg7", pool=0)
    before = look()  # the daemon's own directory is among them
    d.start()
    for i in range(5):
        d.out(f"t{i}", "echo x > /tmp/y")
        d.destroy(f"t{i}")
    d.stop()
    ours = {p for p in look() - before if re.search(rf"-{d.name}-|\b{d.proc.pid}\b", p)}
    assert not ours


def test_HYG_09_the_kernel_complains_of_nothing(daemon_factory):
    log = subprocess.run(["dmesg"], capture_output=True, text=True)
    if log.returncode != 0:
        pytest.skip("the kernel's log may not be read")
    earlier = set(log.stdout.splitlines())
    d = daemon_factory("hyg9").start()
    d.request("PUT", "/v1/sandbox/k", {"limits": {"memory": "64MiB"}})
    d.exec("k", "python3 -c 'x = bytearray(1 << 30)'")  # an OOM of its own
    d.destroy("k")
    d.stop()
    text = subprocess.run(["dmesg"], capture_output=True, text=True).stdout
    bad = [line for line in text.splitlines() if line not in earlier and any(w in line for w in ("WARNING: CPU", "BUG:", "Oops", "general protection", "stack segment"))]
    assert not bad


def test_HYG_10_no_zombies(daemon_factory):
    d = daemon_factory("hyg10").start()
    for i in range(10):
        d.out(f"z{i}", "for i in 1 2 3 4 5; do (sleep 0.01 &) ; done")
        d.destroy(f"z{i}")

    def zombies():
        table = subprocess.run(["ps", "--ppid", str(d.proc.pid), "-o", "stat="], capture_output=True, text=True).stdout
        return [s for s in table.split() if s.startswith("Z")]

    wait_for(lambda: not zombies(), what="all children are reaped")


# ------------------------------------------------------------------ images that lie


@pytest.fixture
def hostile_image(tmp_path, monkeypatch):
    """An images directory whose `base` is a small copy of the real one, to be spoilt by the test."""
    root = tmp_path / "images" / "base" / "rootfs"
    root.mkdir(parents=True)
    real = silica.IMAGES + "/base/rootfs"
    for name in ("bin", "lib", "lib64", "sbin"):
        if os.path.islink(f"{real}/{name}"):
            os.symlink(os.readlink(f"{real}/{name}"), root / name)
    shutil.copytree(f"{real}/etc", root / "etc", symlinks=True, ignore_dangling_symlinks=True)
    for name in ("usr/bin", "usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/sbin"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("bash", "cat", "ls", "readlink"):
        shutil.copy2(f"{real}/usr/bin/{name}", root / "usr/bin" / name)
    loader = os.path.realpath(f"{real}/usr/lib64/ld-linux-x86-64.so.2")
    if not os.path.exists(loader):
        loader = f"{real}/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
    shutil.copy2(loader, root / "usr/lib64/ld-linux-x86-64.so.2")
    for name in ("libc.so.6", "libtinfo.so.6", "libselinux.so.1", "libpcre2-8.so.0"):
        if os.path.exists(f"{real}/usr/lib/x86_64-linux-gnu/{name}"):
            shutil.copy2(f"{real}/usr/lib/x86_64-linux-gnu/{name}", root / "usr/lib/x86_64-linux-gnu" / name)
    for name in ("dev", "proc", "sys", "tmp", "workspace", "root", "run"):
        (root / name).mkdir()
    monkeypatch.setattr(silica, "IMAGES", str(tmp_path / "images"))
    return root


def try_image(d):
    """What a sandbox of that image says about itself; None when it is refused."""
    r = d.request("POST", "/v1/sandbox/liar/api/execute", {"command": "cat /proc/self/mountinfo; ls /dev"})
    assert r.status in (200, 500, 501, 503), r.body
    return r.json["stdout"] if r.status == 200 else None


def test_the_small_copy_works(hostile_image, daemon_factory):
    assert " / " in try_image(daemon_factory("iso0", pool=0).start())


@pytest.mark.parametrize("where", ["dev", "proc", "sys", "tmp"])
@pytest.mark.parametrize("target", ["/", "/proc/1/root", "../../../../.."])
def test_ISO_09_mount_points_that_are_symlinks(hostile_image, daemon_factory, where, target):
    (hostile_image / where).rmdir()
    os.symlink(target, hostile_image / where)
    before = mounts()
    d = daemon_factory("iso9", pool=0).start()
    said = try_image(d)
    if said is not None:  # then real directories are used
        points = [line.split()[4] for line in said.splitlines() if " - " in line]
        assert f"/{where}" in points, points
        d.destroy("liar")
    d.stop()
    wait_for(lambda: clean(d), what="a clean host")
    assert mounts() == before


def test_ISO_10_dev_null_is_a_symlink(hostile_image, daemon_factory):
    os.symlink("/proc/sys/kernel/core_pattern", hostile_image / "dev" / "null")
    before = open("/proc/sys/kernel/core_pattern").read()
    d = daemon_factory("iso10", pool=0).start()
    if try_image(d) is not None:
        assert d.out("liar", "echo '|/evil' > /dev/null; [ -c /dev/null ] && [ ! -L /dev/null ] && echo device") == "device"
        assert d.out("liar", "cat /proc/kcore /proc/keys 2>/dev/null | cat") == ""
    assert open("/proc/sys/kernel/core_pattern").read() == before


def test_ISO_11_terminals_while_dev_is_being_changed(daemon_factory):
    d = daemon_factory("iso11").start()
    d.out("swap", """(while :; do mv /dev/pts /dev/pts2; ln -s / /dev/pts; rm /dev/pts; mv /dev/ptmx /dev/x; done) >/dev/null 2>&1 &
        echo $! > /tmp/pid""")
    r = d.out("swap", """python3 - <<'P'
import os, pty
for i in range(200):
    master, slave = pty.openpty()
    assert os.ttyname(slave).startswith("/dev/pts/"), os.ttyname(slave)
    os.close(master); os.close(slave)
print("fine")
P""")
    assert r == "fine"
    assert d.out("swap", "kill $(cat /tmp/pid); ls -d /dev/pts; [ -L /dev/pts ] || echo directory") == "/dev/pts\ndirectory"


def test_ISO_12_creation_while_a_sandbox_exchanges_its_directories(daemon_factory):
    d = daemon_factory("iso12").start()
    d.out("racer", """mkdir -p /workspace/a /workspace/b && python3 - <<'P' > /dev/null 2>&1 &
import ctypes
libc = ctypes.CDLL(None)
pairs = [(b"/workspace/a", b"/workspace/b"), (b"/tmp", b"/workspace"), (b"/proc", b"/tmp"), (b"/sys", b"/workspace")]
while True:
    for one, other in pairs:
        libc.renameat2(-100, one, -100, other, 2)  # RENAME_EXCHANGE
P""")
    def other(i):
        points = [line.split()[4] for line in d.out(f"o{i}", "cat /proc/self/mountinfo").splitlines()]
        d.destroy(f"o{i}")
        return {"/proc", "/sys", "/dev", "/dev/pts", "/tmp"} <= set(points)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(other, range(50)))
