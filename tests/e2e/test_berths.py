# SPDX-License-Identifier: Apache-2.0
"""Berths: a first process that waits in its namespaces and groups for whichever sandbox comes without a prepared one."""
import contextlib
import os
import re
import signal
import threading

import oci
import posture
import pytest
import silica
from silica import clean, sandbox_processes, wait_for
from test_images import create, load, tiny
from test_posture import check, tasks_of


@pytest.fixture
def quay(daemon_factory):
    """A daemon with two berths and nothing prepared."""
    d = daemon_factory("quay", pool=0, berths=2).start()
    wait_for(lambda: waiting(d) == 2, what="two berths")
    return d


def waiting(d):
    """Berths in which a first process waits: a slot that has no record."""
    found = [s for s in d.slots() if not os.path.exists(f"{d.run_dir}/slots/{s}/record")]
    return len(found) if len(sandbox_processes(d)) >= len(found) else -1


def groups(pid):
    """{controller: the last part of the group's name}"""
    lines = [line.strip().split(":", 2) for line in open(f"/proc/{pid}/cgroup")]
    return {c: path.rsplit("/", 1)[1] for _, cs, path in lines for c in cs.split(",") if "/silica-" in path}


def divided(d, box):
    """The agent in the groups of the whole, everything else in those of the workload."""
    tasks = tasks_of(d, box)
    try:
        agent = groups(next(pid for pid, inside in tasks.items() if inside == 1))
        others = [groups(pid) for pid, inside in tasks.items() if inside != 1]
    except OSError:
        return False  # one of them has ended
    return agent.get("memory", "") != "work" and all(o.get("memory", "work") == "work" and o.get("pids", "work") == "work" for o in others)


def asleep(d, box):
    assert d.request("POST", f"/v1/sandbox/{box}/sleep").status == 200


def test_a_wake_takes_a_berth(quay):
    d = quay
    d.out("a", "echo kept > /workspace/f")
    asleep(d, "a")
    wait_for(lambda: waiting(d) == 2 and len(d.slots()) == 2, what="berths only")
    before = d.slots()
    assert d.out("a", "cat /workspace/f") == "kept"
    with_record = [s for s in d.slots() if os.path.exists(f"{d.run_dir}/slots/{s}/record")]
    assert len(with_record) == 1 and with_record[0] in before
    wait_for(lambda: waiting(d) == 2, what="the next berth")


def test_the_agent_leaves_the_groups_of_the_workload(quay):
    """... and is in all respects what it is in any other sandbox."""
    quay.out("a", "true")
    wait_for(lambda: divided(quay, "a"), what="the agent's move")
    for pid, inside in tasks_of(quay, "a").items():
        check(pid, inside)
    agent = next(pid for pid, inside in tasks_of(quay, "a").items() if inside == 1)
    inside = quay.out("a", "cat /proc/self/cgroup")
    assert not re.search(r"silica|\.\.", inside), inside
    for pid in sandbox_processes(quay):
        with contextlib.suppress(OSError):  # others may end meanwhile
            if open(f"/proc/{pid}/comm").read().strip() == "silica-spawner":
                os.kill(pid, signal.SIGKILL)  # its successor is moved where it belongs, too
    wait_for(lambda: quay.exec("a", "echo again", sessionId="new").get("stdout", "").strip() == "again", what="the next spawner")
    wait_for(lambda: divided(quay, "a"), what="the next spawner's place")
    assert posture.status(agent)["State"].split()[0] in "SR"


def next_spawner(agent, known):
    """The pid of one that is not known yet and waits: to be placed, or to be used."""
    found = []

    def waits():
        with open(f"/proc/{agent}/task/{agent}/children") as f:
            for pid in map(int, f.read().split()):
                with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as comm, open(f"/proc/{pid}/wchan") as wchan:
                    if comm.read() == "silica-spawner\n" and "skb_wait" in wchan.read() and pid not in known:
                        found.append(pid)
        return found

    wait_for(waits, what="a spawner")
    return found[0]


def test_a_spawner_that_is_killed_before_it_is_placed(quay):
    """The keeper finds nobody to place, and does not hold it against the sandbox."""
    quay.out("a", "X=1")
    wait_for(lambda: divided(quay, "a"), what="the agent's move")
    agent = next(pid for pid, inside in tasks_of(quay, "a").items() if inside == 1)
    killed = set()
    os.kill(quay.proc.pid, signal.SIGSTOP)
    try:
        for _ in range(3):
            pid = next_spawner(agent, killed)
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        next_spawner(agent, killed)  # asks in vain, too
    finally:
        os.kill(quay.proc.pid, signal.SIGCONT)
    assert quay.exec("a", "echo again", sessionId="new")["stdout"].strip() == "again"
    assert quay.out("a", "echo $X") == "1"
    wait_for(lambda: divided(quay, "a"), what="the last spawner's place")


def test_a_size_of_its_own(quay):
    limits = {"memory": "96M", "tasks": 40, "cpu": 0.5, "disk": "64M"}
    r = quay.request("PUT", "/v1/sandbox/small", {"limits": limits})
    assert r.status == 201, r.body
    r = quay.exec("small", "python3 -c 'x = bytearray(200 << 20)'")
    assert r["exitCode"] == 137, r
    r = quay.exec("small", "head -c 80M /dev/zero > /workspace/big")
    assert r["exitCode"] == 1 and "No space" in r["stderr"]
    tasks = ("python3 -c 'import threading, time\nn = 0\ntry:\n while n < 60: threading.Thread(target=time.sleep, args=(600,), daemon=True).start(); n += 1\n"
             "except RuntimeError: pass\nprint(n)'")
    assert 20 < int(quay.out("small", tasks)) < 40
    quota = quay.out("small", "cd /sys/fs/cgroup; cat cpu/cpu.cfs_quota_us cpu.max 2>/dev/null; true")
    assert quota in ("50000", "50000 100000", "")  # "": a kernel without


def test_what_a_sandbox_brings_with_it(quay):
    """Image, environment, directory, host name and volumes are told to the process that waits."""
    load(quay, oci.image([tiny(), oci.tar([oci.entry("srv/f", "of the image")])], config={"Env": ["FROM=image", "PATH=/bin"], "WorkingDir": "/srv"}),
         "own:1")
    create(quay, "own", "own:1")
    assert quay.out("own", "pwd; cat f; echo; echo $FROM").split("\n") == ["/srv", "of the image", "image"]
    assert quay.request("POST", "/v1/volumes", {"name": "shared", "size": "64MiB"}).status == 201
    r = quay.request("PUT", "/v1/sandbox/vol", {"volumes": [{"name": "shared", "path": "/mnt/shared"}], "env": {"MINE": "yes"}})
    assert r.status == 201, r.body
    assert quay.out("vol", "echo x > /mnt/shared/f; cat /mnt/shared/f; echo $MINE") == "x\nyes"
    for box in ("own", "vol"):
        quay.destroy(box)


def test_a_berth_that_died_is_not_used(quay):
    def ended(pid):
        try:
            return posture.status(pid)["State"][0] in "ZX"
        except OSError:
            return True

    for pid in sandbox_processes(quay):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: ended(pid), what="the end of a waiting process")
    assert quay.out("a", "echo fine") == "fine"
    asleep(quay, "a")
    assert quay.out("a", "echo fine") == "fine"


def test_a_berth_that_dies_with_words_unread(daemon_factory):
    """The process is stopped, so that it reads nothing of what it is told, and killed at ever later moments."""
    d = daemon_factory("deaf", pool=0, berths=1).start()
    for i in range(12):
        wait_for(lambda: waiting(d) == 1, what="a berth")
        (pid,) = sandbox_processes(d)
        os.kill(pid, signal.SIGSTOP)
        killer = threading.Timer(i * 0.005, os.kill, (pid, signal.SIGKILL))
        killer.start()
        assert d.out("a", "echo x >> /workspace/f; wc -l < /workspace/f") == str(i + 1)
        killer.join()
        asleep(d, "a")


@pytest.mark.parametrize("step", range(13))
def test_a_failed_start_leaves_no_berth(daemon_factory, step):
    d = daemon_factory("wreck", pool=0, berths=1).start(env={"SILICA_FAIL": f"start:{step}"})
    wait_for(lambda: waiting(d) == 1, what="a berth")
    for _ in range(2):
        assert d.request("PUT", "/v1/sandbox/x", {}).status == 500
        wait_for(lambda: waiting(d) == 1 and len(d.slots()) == 1 and not d.disks() and not d.loops(), what="the next berth, and nothing else")
    d.stop()
    wait_for(lambda: clean(d), what="a clean host")


def test_the_keeper_dies_with_berths(quay):
    before = set(quay.slots())
    quay.kill()
    wait_for(lambda: not sandbox_processes(quay), what="the waiting processes' end")
    quay.start()
    wait_for(lambda: waiting(quay) == 2 and len(quay.slots()) == 2, what="two berths again")
    assert before and quay.out("a", "echo fine") == "fine"
    quay.destroy("a")
    quay.stop()
    wait_for(lambda: clean(quay), what="a clean host")


def test_the_keeper_dies_before_the_agent_has_moved(daemon_factory):
    """The next one adopts the sandbox, and moves it."""
    d = daemon_factory("lift", pool=0, berths=1).start(env={"SILICA_CRASH": "lift:0"})
    wait_for(lambda: waiting(d) == 1, what="a berth")
    try:
        d.request("PUT", "/v1/sandbox/a", {})
    except (OSError, silica.http.client.HTTPException):
        pass
    assert d.proc.wait(60) == -signal.SIGKILL
    wait_for(lambda: not d.port_open(), what="the gateway's end")
    d.start()
    d.out("a", "true")
    wait_for(lambda: divided(d, "a"), what="the agent's move")


def test_destroy_while_the_agent_moves(quay):
    for i in range(20):
        assert quay.out("quick", f"echo {i}") == str(i)
        assert quay.destroy("quick")["existed"] is True
    wait_for(lambda: waiting(quay) == 2 and len(quay.slots()) == 2, what="berths only")


def test_scarce_places_are_for_sandboxes(daemon_factory):
    """Who is waited for by nobody leaves before the last places are taken, and comes back."""
    d = daemon_factory("scarce", pool=0, berths=2, args=["--slots", "11"]).start()
    wait_for(lambda: waiting(d) == 2, what="two berths")
    for i in range(11):
        assert d.request("PUT", f"/v1/sandbox/s{i}", {}).status == 201, i
    assert d.request("PUT", "/v1/sandbox/more", {}).status == 429
    for i in range(11):
        d.destroy(f"s{i}")
    wait_for(lambda: waiting(d) == 2 and len(d.slots()) == 2, what="two berths again")


def test_stopping_ends_the_berths(quay):
    for how in (signal.SIGTERM, signal.SIGINT):
        quay.stop(how)
        wait_for(lambda: clean(quay), what="a clean host")
        quay.start()
        wait_for(lambda: waiting(quay) == 2, what="two berths")
