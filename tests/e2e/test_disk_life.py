# SPDX-License-Identifier: Apache-2.0
"""Quota disks: quick and unordered in the first seconds, with barriers and direct I/O from then on."""
import concurrent.futures
import os
import signal

import pytest
from silica import wait_for


def loops(daemon):
    """The names of the loop devices over its disks."""
    return [path.split("/")[3] for path in daemon.loops()]


def settled(loop):
    try:
        options = open(f"/proc/fs/ext4/{loop}/options").read().split("\n")
        return "barrier" in options and open(f"/sys/block/{loop}/loop/dio").read().strip() == "1"
    except OSError:
        return False


def test_a_disk_settles_and_keeps_what_was_written_before(daemon_factory):
    d = daemon_factory("settle", pool=0).start()
    d.out("a", "head -c 3000000 /dev/urandom > /workspace/f; sha256sum /workspace/f > /workspace/sum")
    assert len(loops(d)) == 1
    wait_for(lambda: settled(loops(d)[0]), what="barriers and direct I/O")
    assert d.out("a", "cd /workspace && sha256sum -c sum && echo more > g && sync") == "/workspace/f: OK"
    r = d.request("POST", "/v1/sandbox/a/sleep")
    assert r.status == 200, r.body
    assert d.out("a", "cd /workspace && sha256sum -c sum && cat g") == "/workspace/f: OK\nmore"
    assert all(settled(name) for name in loops(d)), "a disk that is attached again is never young"
    assert "without barriers" not in d.log()


def test_a_disk_that_sleeps_young_settles_meanwhile(daemon_factory):
    d = daemon_factory("dream", pool=0).start()
    d.out("a", "echo x > /workspace/f")
    assert d.request("POST", "/v1/sandbox/a/sleep").status == 200
    wait_for(lambda: settled(loops(d)[0]), what="barriers and direct I/O")
    assert d.out("a", "cat /workspace/f") == "x"
    assert settled(loops(d)[0]) and "without barriers" not in d.log()


def test_sleep_and_destroy_of_a_young_disk(daemon_factory):
    d = daemon_factory("young", pool=0).start()
    for i in range(5):
        d.out(f"s{i}", f"echo {i} > /workspace/f")
        assert d.request("POST", f"/v1/sandbox/s{i}/sleep").status == 200
        d.out(f"d{i}", "echo gone > /workspace/f")
        d.destroy(f"d{i}")
    assert [d.out(f"s{i}", "cat /workspace/f") for i in range(5)] == list("01234")
    for i in range(5):
        d.destroy(f"s{i}")
    wait_for(lambda: not loops(d) and not d.disks(), what="no disk is left")
    assert "without barriers" not in d.log(), "a sandbox that ended is not settled"


def vacant(names):
    """Those of them that the kernel has, and nobody uses."""
    return [n for n in names if os.path.exists(f"/sys/block/{n}") and not os.path.exists(f"/sys/block/{n}/loop")]


@pytest.mark.parametrize("restart", [False, True], ids=["", "restarted"])
def test_devices_that_nobody_needs_are_removed(daemon_factory, restart):
    """All but some, and the first ones of the machine; those of sandboxes that a new keeper adopted, too."""
    d = daemon_factory("devices", pool=0).start()
    count = 60
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(r.status == 201 for r in pool.map(lambda i: d.request("PUT", f"/v1/sandbox/s{i}", {}), range(count)))
        used = loops(d)
        assert len(used) == count
        if restart:
            d.stop(signal.SIGTERM)
            d.start()
        list(pool.map(lambda i: d.destroy(f"s{i}"), range(count)))
    wait_for(lambda: not d.loops() and len(vacant(used)) <= 32 + 8, what="the removal of the rest")
    assert d.out("next", "echo fine") == "fine"


def test_the_end_of_a_daemon_removes_devices(daemon_factory):
    d = daemon_factory("devend", pool=0).start()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: d.out(f"s{i}", "echo x > /workspace/f"), range(50)))
    used = loops(d)
    assert len(used) == 50
    d.stop()  # all fall asleep
    assert not d.loops() and len(vacant(used)) <= 32 + 8
    d.start()
    assert d.out("s49", "cat /workspace/f") == "x"
