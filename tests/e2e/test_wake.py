# SPDX-License-Identifier: Apache-2.0
"""Sleep and wake: the disk of a sandbox that fell asleep lately stays mounted, everything else is given back."""
import re
import signal
import subprocess

import pytest
from silica import sandbox_processes, wait_for


def images(daemon):
    """The numbers of the disk images that are on a device."""
    found = []
    for path in daemon.loops():
        try:
            found.append(int(re.search(r"/(\d+)\.img", open(path).read()).group(1)))
        except OSError:  # just being let go
            pass
    return sorted(found)


def sleep(daemon, sandbox):
    r = daemon.request("POST", f"/v1/sandbox/{sandbox}/sleep")
    assert r.status == 200 and r.json["state"] == "asleep", r.body


def nothing_but_disks(daemon):
    return not daemon.slot_groups() and not daemon.slots() and not sandbox_processes(daemon)


def test_wake_while_the_disk_is_kept(daemon_factory):
    d = daemon_factory("wkept", pool=0).start()
    d.out("a", "mkdir -p /workspace/d && echo root > /workspace/d/r && echo user > /workspace/d/u && chown 1000:1001 /workspace/d/u "
               "&& chmod 4711 /workspace/d/u && ln -s r /workspace/d/l && rm /etc/motd; echo set > /etc/hostname.mine")
    before = images(d)
    for _ in range(3):
        sleep(d, "a")
        wait_for(lambda: nothing_but_disks(d), what="groups, slot and processes given back")
        assert images(d) == before and len(before) == 1
        assert d.out("a", "cd /workspace/d && stat -c '%n %u:%g %a' r u && readlink l && cat l u /etc/hostname.mine; test -e /etc/motd || echo gone"
                     ) == "r 0:0 644\nu 1000:1001 4711\nr\nroot\nuser\nset\ngone"
        assert d.out("a", "echo x >> /workspace/count && touch /etc/more && rm -r /etc/more && wc -l < /workspace/count")
        assert images(d) == before
    assert d.out("a", "cat /workspace/count") == "x\nx\nx"


def test_wake_in_another_slot(daemon_factory):
    """The ids of the next life are others; the files are root's all the same."""
    d = daemon_factory("wslot", pool=0).start()
    d.out("a", "echo x > /workspace/f; install -o 1000 -g 1000 -m 600 /workspace/f /workspace/g")
    (slot,) = d.slots()
    sleep(d, "a")
    d.out("b", "true")
    assert d.out("a", "stat -c '%u:%g' /workspace/f /workspace/g; cat /workspace/g") == "0:0\n1000:1000\nx"
    assert slot not in d.slots() or len(d.slots()) == 2


def test_wake_after_the_disk_was_let_go(daemon_factory):
    d = daemon_factory("wgone", pool=0, args=["--kept-disks-for", "300ms"]).start()
    d.out("a", "echo x > /workspace/f")
    sleep(d, "a")
    wait_for(lambda: not d.leftovers(), what="an empty host")
    assert d.out("a", "cat /workspace/f; echo y > /workspace/f") == "x"
    sleep(d, "a")
    wait_for(lambda: not d.leftovers(), what="an empty host")
    assert d.out("a", "cat /workspace/f") == "y"


def test_no_disk_is_kept_when_it_is_turned_off(daemon_factory):
    d = daemon_factory("woff", pool=0, args=["--kept-disks", "0"]).start()
    d.out("a", "echo x > /workspace/f")
    sleep(d, "a")
    wait_for(lambda: not images(d), what="no device")
    assert d.out("a", "cat /workspace/f") == "x"


def test_the_longest_asleep_is_let_go_first(daemon_factory):
    d = daemon_factory("wlru", pool=0, args=["--kept-disks", "2"]).start()
    of = {}
    for name in "abcd":
        d.out(name, f"echo {name} > /workspace/f")
        (of[name],) = set(images(d)) - set(of.values())
    for name in "abcd":
        sleep(d, name)
    wait_for(lambda: images(d) == sorted((of["c"], of["d"])), what="the two youngest sleepers' disks")
    assert d.out("c", "cat /workspace/f") == "c"
    sleep(d, "c")  # the youngest now
    assert d.out("a", "cat /workspace/f") == "a"
    sleep(d, "a")
    wait_for(lambda: images(d) == sorted((of["c"], of["a"])), what="the two youngest sleepers' disks")
    assert [d.out(name, "cat /workspace/f") for name in "dcba"] == list("dcba")


def test_destroy_of_a_sleeping_sandbox_leaves_nothing(daemon_factory):
    d = daemon_factory("wdestroy", pool=0).start()
    for i in range(4):
        d.out(f"s{i}", "echo old > /workspace/f")
        sleep(d, f"s{i}")
    assert len(images(d)) == 4
    for i in range(4):
        d.destroy(f"s{i}")
    wait_for(lambda: not d.leftovers() and not d.disks(), what="nothing left")
    assert d.out("s0", "ls /workspace | wc -l") == "0"


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_the_daemons_end_lets_go_of_everything(daemon_factory, sig):
    d = daemon_factory("wend", pool=0).start()
    for i in range(3):
        d.out(f"s{i}", f"echo {i} > /workspace/f")
        sleep(d, f"s{i}")
    d.stop(sig)
    wait_for(lambda: not d.leftovers(), what="an empty host")
    d.start()
    assert [d.out(f"s{i}", "cat /workspace/f") for i in range(3)] == list("012")


def test_kill_9_while_disks_are_kept(daemon_factory):
    """The kernel lets go of what the keeper held; the next one waits for that and finds every file."""
    d = daemon_factory("wkill", pool=0).start()
    for i in range(3):
        d.out(f"s{i}", f"echo {i} > /workspace/f")
        sleep(d, f"s{i}")
    d.out("runs", "echo r > /workspace/f")
    pid = d.out("runs", "echo $$")
    for _ in range(2):
        d.kill()
        d.start()
        wait_for(lambda: len(images(d)) == 1, what="a device for what runs and nothing else")
        assert [d.out(f"s{i}", "cat /workspace/f") for i in range(3)] == list("012")
        assert d.out("runs", "echo $$; cat /workspace/f") == f"{pid}\nr"
        for i in range(3):
            sleep(d, f"s{i}")
    d.kill()
    wait_for(lambda: len(images(d)) == 1, what="the kernel's unmount")


def test_the_quota_holds_after_a_wake(daemon_factory):
    d = daemon_factory("wquota", pool=0).start()
    assert d.request("PUT", "/v1/sandbox/small", {"limits": {"disk": "128MiB"}}).status == 201
    fill = "head -c 200000000 /dev/zero > /workspace/{}"
    for name in ("one", "two"):
        r = d.exec("small", fill.format(name))
        assert r["exitCode"] != 0 and "No space left" in r["stderr"], r
        sleep(d, "small")
        assert len(images(d)) == 1
    assert int(d.out("small", "cat /workspace/one /workspace/two | wc -c")) < 128 << 20
    d.out("small", "rm /workspace/one && head -c 50000000 /dev/zero > /workspace/three")


@pytest.mark.parametrize("settled", [False, True])
def test_what_sleeps_is_complete_in_its_image(daemon_factory, tmp_path, settled):
    """Were the power cut now, the journal would bring back every file: that of a copy does, while the disk is mounted."""
    d = daemon_factory("wsafe", pool=0).start()
    d.out("a", "head -c 3000000 /dev/urandom > /workspace/f; sha256sum < /workspace/f > /workspace/sum")
    if settled:
        (loop,) = (path.split("/")[3] for path in d.loops())
        wait_for(lambda: open(f"/sys/block/{loop}/loop/dio").read().strip() == "1", what="direct I/O")
        d.out("a", "echo more >> /workspace/f; sha256sum < /workspace/f > /workspace/sum")
    sleep(d, "a")
    assert len(images(d)) == 1
    copy = str(tmp_path / "copy.img")
    subprocess.run(["cp", "--sparse=always", f"{d.data}/disks/{images(d)[0]}.img", copy], check=True)
    assert subprocess.run(["e2fsck", "-p", copy], capture_output=True).returncode in (0, 1)

    def cat(path):
        return subprocess.run(["debugfs", "-R", f"cat {path}", copy], capture_output=True, check=True).stdout

    told = cat("/upper/workspace/sum").split()[0].decode()
    ours = subprocess.run(["sha256sum"], input=cat("/upper/workspace/f"), capture_output=True, check=True).stdout.split()[0].decode()
    assert told == ours


@pytest.mark.parametrize("step", ["start:3", "berth:5", "start:7", "start:10"])
def test_a_wake_that_fails_keeps_the_disk(daemon_factory, step):
    d = daemon_factory("wfail", pool=0).start(env={"SILICA_FAIL": f"{step}:1"})
    d.out("a", "echo x > /workspace/f")
    sleep(d, "a")
    for _ in range(2):
        assert d.request("POST", "/v1/sandbox/a/api/execute", {"command": "true"}).status >= 500
        assert len(images(d)) == 1
        wait_for(lambda: nothing_but_disks(d), what="the rest undone")
    d.stop(signal.SIGTERM)
    wait_for(lambda: not d.leftovers(), what="an empty host")
    d.start()
    assert d.out("a", "cat /workspace/f") == "x"


@pytest.mark.parametrize("step", ["berth:1", "start:8", "start:11"])
def test_the_keeper_dies_in_a_wake(daemon_factory, step):
    d = daemon_factory("wcrash", pool=0).start(env={"SILICA_CRASH": f"{step}:1"})
    d.out("a", "echo x > /workspace/f")
    sleep(d, "a")
    with pytest.raises(OSError):
        d.request("POST", "/v1/sandbox/a/api/execute", {"command": "true"})
    d.proc.wait(60)
    d.start()
    assert d.out("a", "cat /workspace/f") == "x"
    assert len(images(d)) == 1
    d.destroy("a")
    wait_for(lambda: not d.leftovers() and not d.disks(), what="nothing left")


def test_sleep_and_wake_without_a_pause(daemon_factory):
    d = daemon_factory("wquick", pool=0).start()
    for i in range(15):
        assert d.out("a", f"echo {i} >> /workspace/f; tail -n 1 /workspace/f") == str(i)
        sleep(d, "a")
    assert d.out("a", "cat /workspace/f").split() == [str(i) for i in range(15)]
    assert "does not stay mounted" not in d.log()


def test_short_memory_lets_go(daemon_factory):
    d = daemon_factory("wmem", pool=0).start(env={"SILICA_FAIL": "memory:0:2"})  # two looks at the host find enough
    d.out("a", "echo x > /workspace/f")
    sleep(d, "a")
    assert len(images(d)) == 1

    def refused():
        d.request("DELETE", "/v1/sandbox/b")
        return d.request("PUT", "/v1/sandbox/b", {}).status == 429

    wait_for(refused, what="the refusal")
    wait_for(lambda: not images(d), what="the disks' end")
    d.stop(signal.SIGTERM)
    d.start()
    assert d.out("a", "cat /workspace/f") == "x"
