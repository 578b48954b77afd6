# SPDX-License-Identifier: Apache-2.0
"""HYG-08: mixed work for a while, and memory, descriptors and disk are what they were. A few rounds here; SILICA_SOAK_SECONDS makes it a day."""
import concurrent.futures
import contextlib
import os
import time

from silica import clean, mounts, wait_for
from tracer import gateway_pid

SECONDS = float(os.environ.get("SILICA_SOAK_SECONDS", 0))
ROUNDS, WARM_UP = 4, 2  # at least


def life(d, name):
    """One sandbox through everything that is kept somewhere: files, sessions, processes, contexts, sleep."""
    api = f"/v1/sandbox/{name}/api"
    assert d.request("PUT", f"/v1/sandbox/{name}", {"labels": {"n": name}}).status == 201
    assert d.out(name, "head -c 300000 /dev/urandom | base64").strip()
    assert d.out(name, "echo in a session", sessionId="s") == "in a session"
    for i in range(5):
        assert d.request("POST", f"{api}/write", {"path": f"/workspace/f{i}", "content": "x" * 10000}).status == 200
        assert d.request("POST", f"{api}/read", {"path": f"/workspace/f{i}"}).status == 200
    assert d.request("POST", f"{api}/process/start", {"command": "seq 1 1000; sleep 100", "processId": "p"}).status == 200
    assert d.request("GET", f"{api}/process/p/logs").status == 200
    assert d.request("GET", f"{api}/nothing").status == 404
    assert d.request("POST", f"/v1/sandbox/{name}/sleep").status == 200
    assert d.out(name, "cat /workspace/f0") == "x" * 10000
    d.destroy(name)


def measure(d):
    found = {}
    for who, pid in (("keeper", d.proc.pid), ("gateway", gateway_pid(d))):
        with open(f"/proc/{pid}/status") as f:
            found[f"memory of the {who}"] = next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) // 1024
        found[f"descriptors of the {who}"] = len(os.listdir(f"/proc/{pid}/fd"))
        found[f"threads of the {who}"] = len(os.listdir(f"/proc/{pid}/task"))
    found["files of the daemon"] = sum(len(files) for _, _, files in os.walk(d.data))
    found["KiB of the daemon"] = 0
    for top, _, files in os.walk(d.data):
        for name in files:
            with contextlib.suppress(FileNotFoundError):  # what is being removed
                found["KiB of the daemon"] += os.lstat(f"{top}/{name}").st_blocks // 2
    return found


def settled(d):
    """What is measured when the pool is full and nothing changes any more."""
    seen = [measure(d)]

    def still():
        time.sleep(0.5)
        seen.append(measure(d))
        return len(d.slots()) == d.pool and seen[-1] == seen[-2]

    wait_for(still, what="a daemon at rest")
    return seen[-1]


ALLOWED = {"memory": 32, "descriptors": 2, "threads": 1, "files": 2, "KiB": 8192}  # the databases' logs grow to 4 MiB each before they are written back


def test_HYG_08_a_long_time_leaves_no_trace(daemon_factory):
    # freed memory that the sanitizer holds back would look like a leak
    d = daemon_factory("hyg8", pool=1, env={"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:quarantine_size_mb=1"}).start()
    before_mounts, end, rounds, first = mounts(), time.monotonic() + SECONDS, 0, None
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        while rounds < ROUNDS + WARM_UP or time.monotonic() < end:
            list(pool.map(lambda i: life(d, f"r{rounds}-{i}"), range(4)))
            rounds += 1
            if rounds == WARM_UP:
                first = settled(d)
    settled(d)

    def grown():
        now = measure(d)
        return {k: (first[k], now[k]) for k in first if now[k] > first[k] + ALLOWED[k.split()[0]]}

    wait_for(lambda: not grown(), what=f"everything as before, {rounds} rounds")
    assert mounts() == before_mounts
    d.stop()
    wait_for(lambda: clean(d), what="an empty host")
