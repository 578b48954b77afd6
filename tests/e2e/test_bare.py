# SPDX-License-Identifier: Apache-2.0
"""Bare sandboxes: agent and shell wait on the image's own tree for whoever comes with a disk."""
import concurrent.futures
import os
import re
import signal

import pytest
import silica
from silica import clean, sandbox_processes, wait_for
from test_posture import check, tasks_of
from test_spare_shell import age, inside, shells

STEPS = 7  # of moving in


def prepared(d, count):
    """The shells of so many bare sandboxes, which have looked at themselves by now."""
    def old():
        found = shells(d)
        return len(found) == count and all(age(p) > 1 for p in found)

    wait_for(old, what=f"{count} bare sandboxes")
    return {inside(p): p for p in shells(d)}


def asleep(d, box):
    assert d.request("POST", f"/v1/sandbox/{box}/sleep").status == 200


def only_bare(d, count):
    return len(d.slots()) == count and len(shells(d)) == count and not d.loops() and not d.disks()


@pytest.fixture
def inn(daemon_factory):
    """A daemon with two bare sandboxes and nothing else prepared."""
    return daemon_factory("inn", pool=0, bare=2).start()


@pytest.fixture
def single(daemon_factory):
    """A sandbox that sleeps, and one bare one."""
    d = daemon_factory("single", pool=0, bare=1).start()
    d.out("a", "echo kept > /workspace/f")
    asleep(d, "a")
    return d


def test_a_wake_moves_in(single):
    d = single
    (number,), (pid,) = zip(*prepared(d, 1).items())
    (slot,) = d.slots()
    assert d.out("a", "echo $$; cat f; echo more > f; cat f; echo $LINENO") == f"{number}\nkept\nmore\n2"
    assert pid in shells(d) and slot in d.slots()
    roots, looked = set(), set()
    for task, number in tasks_of(d, "a").items():
        try:
            check(task, number)
            root, cwd = (os.stat(f"/proc/{task}/{link}") for link in ("root", "cwd"))
            assert (root.st_dev, root.st_ino) == (cwd.st_dev, cwd.st_ino) or os.readlink(f"/proc/{task}/cwd").startswith("/workspace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        roots.add(root.st_dev)
        looked.add(task)
    assert len(roots) == 1 and pid in looked and len(looked) >= 3  # agent, spawner and shell at least
    asleep(d, "a")
    prepared(d, 1)
    assert d.out("a", "cat f") == "more"


def test_nothing_tells_it_from_another(daemon_factory):
    """Variables, options, limits, mounts, open files: as in a sandbox that is built from the beginning."""
    look = ("declare -p | grep -v '^declare [-a-zA-Z]* \\(BASHPID\\|PPID\\|EPOCH[A-Z]*\\|S*RANDOM\\|SECONDS\\|BASH_ARG[VC]\\|BASH_[A-Z]*LINENO\\|PIPESTATUS\\)'; set -o; shopt;"
            "ulimit -a; trap; jobs; umask; pwd -P; dirs; hostname; ls -1 / /dev /tmp /run; ls -ld / /tmp /run; stat -c %m%a / /tmp /run /proc /sys /dev;"
            "ls -1 /proc/1/fd 2>&1; ls -1 /proc/$$/fd; cat /proc/sys/kernel/hostname; id; grep -E 'Cap|NoNew|Seccomp' /proc/self/status; cat /etc/resolv.conf 2>&1")
    mounts = "cut -d' ' -f5- /proc/self/mountinfo | sed 's/ - / /; s/[ug]id=[0-9]*//g' | sort"
    ends = []
    for bare in (0, 1):
        d = daemon_factory(f"like{bare}", pool=0, bare=bare).start()
        d.out("a", "touch /workspace/f /etc/here")
        asleep(d, "a")
        if bare:
            number, = prepared(d, 1)
            assert d.out("a", "echo $$") == number
            asleep(d, "a")
            prepared(d, 1)
        ends.append((d.out("a", look), re.sub(r"(/dev/loop|dir=)\d+", r"\1", d.out("a", mounts))))
        d.destroy("a")
    for built, moved in zip(*ends):
        assert built.split("\n") == moved.split("\n")
    assert "/workspace" in ends[0][0] and " overlay " in ends[0][1]


@pytest.mark.parametrize("change, same", [
    ("mkdir -p /usr/local/lib/x && touch /usr/local/lib/x/y /opt/z", True),
    ("cp /usr/bin/bash /usr/bin/other && mv /usr/bin/other /usr/bin/bash", False),
    ("touch /usr/bin/bash", False),
    ("touch /etc/ld.so.preload", False),
    ("cp /etc/passwd /etc/copy", True),
    ("cp -a /etc /other && mv /etc /gone && ln -s other /etc", True),
    ("mkdir /other && echo > /other/ld.so.preload && mv /etc /gone && ln -s /other /etc", False),
])
def test_a_shell_that_the_disk_has_replaced(single, change, same):
    d = single
    d.out("a", change + " && echo done")
    asleep(d, "a")
    number, = prepared(d, 1)
    assert (d.out("a", "echo $$") == number) == same  # otherwise a new one was started from the disk
    assert d.out("a", "cat /workspace/f") == "kept"


def test_a_directory_that_is_gone(single):
    single.out("a", "cd /; rm -r /workspace")
    asleep(single, "a")
    prepared(single, 1)
    assert single.out("a", "pwd; ls -d /workspace 2>/dev/null; true") == "/root"


def test_what_a_sandbox_brings_with_it(inn):
    assert inn.request("POST", "/v1/volumes", {"name": "shared", "size": "64MiB"}).status == 201
    prepared(inn, 2)
    r = inn.request("PUT", "/v1/sandbox/vol", {"volumes": [{"name": "shared", "path": "/mnt/shared"}], "env": {"MINE": "yes"}})
    assert r.status == 201, r.body
    assert inn.out("vol", "echo x > /mnt/shared/f; cat /mnt/shared/f; echo $MINE") == "x\nyes"
    asleep(inn, "vol")
    assert inn.out("vol", "cat /mnt/shared/f; df --output=target /mnt/shared | tail -1") == "x\n/mnt/shared"
    inn.out("link", "ln -s /etc /mnt/shared")
    asleep(inn, "link")
    r = inn.request("PUT", "/v1/sandbox/link", {"volumes": [{"name": "shared", "path": "/mnt/shared"}]})
    r = inn.request("POST", "/v1/sandbox/link/api/execute", {"command": "true"}) if r.status < 300 else r
    assert r.status >= 400 and "symbolic link" in r.body.decode(), r.body
    for box in ("vol", "link"):
        inn.destroy(box)
    wait_for(lambda: only_bare(inn, 2), what="bare sandboxes only")


def test_a_size_of_its_own_is_built(inn):
    prepared(inn, 2)
    assert inn.request("PUT", "/v1/sandbox/small", {"limits": {"memory": "96M", "disk": "64M"}}).status == 201
    assert inn.exec("small", "python3 -c 'x = bytearray(200 << 20)'")["exitCode"] == 137
    assert len(inn.slots()) == 3


def test_the_disk_limit_of_a_woken_one(single):
    prepared(single, 1)
    text = single.out("a", "df --output=size / /workspace | tail -2").split()
    assert len(set(text)) == 1 and int(text[0]) > 0
    assert single.out("a", "findmnt -no FSTYPE / 2>/dev/null || stat -fc %T /") in ("overlay", "overlayfs")


def test_many_at_once(inn):
    boxes = [f"b{i}" for i in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda b: inn.out(b, f"echo {b} > /workspace/f"), boxes))
        for _ in range(3):
            list(pool.map(lambda b: asleep(inn, b), boxes))
            assert list(pool.map(lambda b: inn.out(b, "cat /workspace/f"), boxes)) == boxes
        list(pool.map(inn.destroy, boxes))
    wait_for(lambda: only_bare(inn, 2), what="bare sandboxes only")


def test_one_that_died_is_not_used(inn):
    prepared(inn, 2)
    for pid in sandbox_processes(inn):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    assert inn.out("a", "echo fine") == "fine"
    asleep(inn, "a")
    assert inn.out("a", "echo fine") == "fine"


@pytest.mark.parametrize("when, kind", [("orphan", "berths"), ("orphan", "bare"), ("claim", "bare"), ("claim", "pool")])
def test_one_that_dies_when_it_is_taken(daemon_factory, when, kind):
    """... or is to hear whose it is. Whoever wants a sandbox does not notice."""
    d = daemon_factory("evicted", **{"pool": 0, kind: 1}).start(env={"SILICA_FAIL": f"{when}:0"})
    disks = int(kind == "pool")

    def ready():
        return len(d.slots()) == 1 and len(d.disks()) - disks in (0, 1) and len(shells(d) if kind != "berths" else sandbox_processes(d)) == 1

    for i in range(3):
        wait_for(ready, what="what is prepared")
        assert d.out("a", "echo x >> /workspace/f; wc -l < /workspace/f") == str(i + 1)
        asleep(d, "a")
    d.destroy("a")
    wait_for(lambda: ready() and len(d.disks()) == disks, what="what is prepared, and nothing else")


@pytest.mark.parametrize("step", range(STEPS))
def test_a_failed_move_leaves_nothing(daemon_factory, step):
    d = daemon_factory("unfit", pool=0, bare=1).start(env={"SILICA_FAIL": f"move:{step}"})
    for _ in range(2):
        wait_for(lambda: only_bare(d, 1), what="a bare sandbox, and nothing else")
        assert d.request("PUT", "/v1/sandbox/x", {}).status == 500
    wait_for(lambda: only_bare(d, 1), what="a bare sandbox, and nothing else")
    d.stop()
    wait_for(lambda: clean(d), what="a clean host")


@pytest.mark.parametrize("step", range(STEPS))
def test_a_keeper_that_dies_meanwhile(single, step):
    d = single
    d.stop()
    d.start(env={"SILICA_CRASH": f"move:{step}"})
    wait_for(lambda: len(shells(d)) == 1, what="a bare sandbox")
    with pytest.raises((OSError, silica.http.client.HTTPException)):
        d.request("POST", "/v1/sandbox/a/api/execute", {"command": "true"})
        raise OSError("the gateway told it")
    assert d.proc.wait(60) == -signal.SIGKILL
    wait_for(lambda: not d.port_open(), what="the gateway's end")
    d.start()
    assert d.out("a", "cat /workspace/f") == "kept"
    d.destroy("a")
    wait_for(lambda: only_bare(d, 1), what="a bare sandbox, and nothing else")


def test_the_keeper_dies_with_bare_ones(inn):
    prepared(inn, 2)
    inn.kill()
    inn.start()
    wait_for(lambda: only_bare(inn, 2), what="two bare sandboxes again")
    assert inn.out("a", "echo fine") == "fine"
    inn.destroy("a")
    inn.stop()
    wait_for(lambda: clean(inn), what="a clean host")


def test_scarce_places_are_for_sandboxes(daemon_factory):
    d = daemon_factory("full", pool=0, bare=2, args=["--slots", "11"]).start()
    prepared(d, 2)
    for i in range(11):
        assert d.request("PUT", f"/v1/sandbox/s{i}", {}).status == 201, i
    assert d.request("PUT", "/v1/sandbox/more", {}).status == 429
    for i in range(11):
        d.destroy(f"s{i}")
    wait_for(lambda: only_bare(d, 2), what="two bare sandboxes again")
