# SPDX-License-Identifier: Apache-2.0
"""Resource limits (catalogue area 5): one sandbox uses what it may, and its neighbours and the daemon do not notice."""
import ctypes
import os

import pytest
from silica import sandbox_processes, wait_for


@pytest.fixture(scope="module")
def neighbour(daemon):
    daemon.out("neighbour", "true")
    yield "neighbour"
    daemon.destroy("neighbour")


def unharmed(daemon, neighbour):
    assert daemon.out(neighbour, "echo ok") == "ok"
    assert daemon.request("GET", "/health", auth=False).status == 200


def test_DOS_01_fork_bomb(daemon, box, neighbour):
    daemon.request("POST", f"/v1/sandbox/{box}/api/process/start",
                   {"command": "bomb() { bomb | bomb & }; bomb", "processId": "bomb"})
    wait_for(lambda: daemon.request("GET", f"/v1/sandbox/{box}").json["tasks"] > 400, what="the tasks limit's reach")
    unharmed(daemon, neighbour)
    assert daemon.request("GET", f"/v1/sandbox/{box}").json["tasks"] <= 528
    assert daemon.request("GET", f"/v1/sandbox/{box}/api/ping").status == 200
    daemon.destroy(box)  # within the time that a request may take


def test_DOS_03_memory_bomb(daemon, box, neighbour):
    r = daemon.exec(box, "python3 -c \"x = bytearray(4 << 30); print(len(x))\"", sessionId="__DISABLE_SESSION__")
    assert r["exitCode"] != 0 and str(4 << 30) not in r["stdout"]
    assert daemon.out(box, "echo alive") == "alive"
    unharmed(daemon, neighbour)


def test_AGT_04_agent_survives_oom_rounds(daemon, box):
    daemon.out(box, "true")
    pids = set(sandbox_processes(daemon))
    for _ in range(5):
        daemon.exec(box, "for i in 1 2 3 4; do python3 -c 'x = bytearray(600 << 20)' & done; wait",
                    sessionId="__DISABLE_SESSION__")
        assert daemon.request("GET", f"/v1/sandbox/{box}/api/ping").status == 200
    assert pids & set(sandbox_processes(daemon))


def test_DOS_04_tmpfs_is_smaller_than_memory(daemon, box):
    for path in ("/tmp", "/run", "/dev/shm"):
        r = daemon.exec(box, f"dd if=/dev/zero of={path}/fill bs=1M count=900; rm -f {path}/fill")
        assert "No space left" in r["stderr"], (path, r)


def test_DOS_07_disk_quota(daemon, neighbour):
    """A sandbox with a small disk fills it: ENOSPC, and nobody else notices."""
    r = daemon.request("PUT", "/v1/sandbox/small-disk", {"limits": {"diskBytes": 128 << 20}})
    assert r.status == 201, r.body
    try:
        r = daemon.exec("small-disk", "dd if=/dev/zero of=/workspace/fill bs=1M count=500")
        assert "No space left" in r["stderr"]
        used = daemon.request("GET", "/v1/sandbox/small-disk").json["diskBytes"]
        assert used <= (128 << 20) + (1 << 20)
        daemon.out("small-disk", "rm /workspace/fill; echo again > /workspace/f")
        unharmed(daemon, neighbour)
    finally:
        daemon.destroy("small-disk")


def test_DOS_08_inode_quota(daemon):
    r = daemon.request("PUT", "/v1/sandbox/small-inodes", {"limits": {"inodes": 2048, "diskBytes": 128 << 20}})
    assert r.status == 201, r.body
    try:
        r = daemon.exec("small-inodes", "mkdir /workspace/d; cd /workspace/d; for i in $(seq 1 4000); do : > $i || break; done")
        assert "No space left" in r["stderr"]
    finally:
        daemon.destroy("small-inodes")


def test_DOS_15_priorities_are_refused(daemon, box):
    r = daemon.exec(box, "chrt -f 99 true; echo $?; nice -n -20 sh -c 'nice'")
    assert r["stdout"].split("\n")[0] != "0"
    assert int(r["stdout"].strip().split("\n")[-1]) >= os.nice(0), "not better than this test's own"
    r = daemon.exec(box, "chrt -r 1 true; echo $?; chrt -d --sched-runtime 1000000 --sched-period 10000000 0 true; echo $?")
    assert "0" not in r["stdout"].split(), "neither round robin nor deadlines"


def test_DOS_16_descriptors(daemon, box):
    assert daemon.out(box, "ulimit -Sn; ulimit -Hn") == "4096\n16384"
    r = daemon.exec(box, "python3 -c 'import os\ntry:\n    [os.dup(1) for _ in range(5000)]\nexcept OSError as e: print(e.errno)'")
    assert r["stdout"] == "24"


def test_DOS_18_zombies_are_reaped(daemon, box):
    """Orphans of orphans: all reaped, the tasks count returns."""
    before = daemon.request("GET", f"/v1/sandbox/{box}").status
    daemon.out(box, "for i in $(seq 1 300); do (true & (true &)); done")
    assert before in (200, 404)
    wait_for(lambda: daemon.request("GET", f"/v1/sandbox/{box}").json["tasks"] <= 6, what="all zombies reaped")


def test_DOS_21_inotify_of_one_sandbox_does_not_starve_another(daemon, box, neighbour):
    daemon.request("POST", f"/v1/sandbox/{box}/api/process/start", {"command": (
        "exec python3 -c \"import ctypes, time\n"
        "libc = ctypes.CDLL(None)\n"
        "n = 0\n"
        "while libc.inotify_init() >= 0: n += 1\n"
        "print(n, flush=True); time.sleep(600)\""), "processId": "hog"})
    wait_for(lambda: daemon.request("GET", f"/v1/sandbox/{box}/api/process/hog/logs").json["stdout"], what="the hog")
    assert daemon.out(neighbour, "python3 -c \"import ctypes; print([ctypes.CDLL(None).inotify_init() > 0 for _ in range(8)].count(True))\"") == "8"
    on_the_host = [ctypes.CDLL(None).inotify_init() for _ in range(8)]
    assert min(on_the_host) > 0
    for fd in on_the_host:
        os.close(fd)


def test_limits_are_those_of_the_size(daemon):
    r = daemon.request("PUT", "/v1/sandbox/sized", {"instanceType": "basic"})
    assert r.status == 201
    try:
        assert daemon.request("GET", "/v1/sandbox/sized").json["limits"]["memoryBytes"] == 2 << 30
        shown = daemon.out("sized", "cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max")
        assert int(shown) <= 2 << 30
    finally:
        daemon.destroy("sized")


@pytest.mark.parametrize("memory, spares", [("192MiB", 1), ("1GiB", 4)])
def test_interpreters_kept_ready_follow_the_memory(daemon, box, memory, spares):
    def processes():
        return int(daemon.out(box, "pgrep -fc node/main.js"))

    assert daemon.request("PUT", f"/v1/sandbox/{box}", {"limits": {"memory": memory}}).status in (200, 201)
    contexts = []
    for _ in range(6):
        r = daemon.request("POST", f"/v1/sandbox/{box}/api/contexts", {"language": "javascript"})
        assert r.status == 200, r.body
        contexts.append(r.json["contextId"])
    wait_for(lambda: processes() == len(contexts) + spares, 90, "as many more than are used")
    assert max(processes() for _ in range(20)) == len(contexts) + spares
    for context in contexts:
        r = daemon.request("POST", f"/v1/sandbox/{box}/api/execute/code", {"context_id": context, "code": "6 * 7"})
        assert '"42"' in r.body.decode(), r.body
