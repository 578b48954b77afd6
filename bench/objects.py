# SPDX-License-Identifier: Apache-2.0
"""The life of sandboxes under load: thaw, wake, bursts of creations, a thousand idle ones."""
import concurrent.futures
import http.client
import json
import time

from foundation import POOL, steady_meminfo
from harness import percentile

TRUE = json.dumps({"command": "true"})


def silica_token():
    import silica  # reads the paths from the environment when it is first imported
    return silica.TOKEN


class Caller:
    """One kept connection to the gateway."""

    def __init__(self, daemon):
        self.conn = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=120)
        self.conn.connect()
        self.headers = {"Authorization": "Bearer " + silica_token(), "Content-Type": "application/json"}

    def call(self, method, path, body=None):
        """Milliseconds; anything but success is an error of the measurement."""
        begun = time.monotonic()
        self.conn.request(method, "/v1/sandbox/" + path, body, self.headers)
        r = self.conn.getresponse()
        text = r.read()
        if r.status >= 300:
            raise RuntimeError(f"{method} {path}: {r.status} {text[:200]!r}")
        return (time.monotonic() - begun) * 1000

    def true(self, sandbox):
        return self.call("POST", f"{sandbox}/api/execute", TRUE)


def state(daemon, sandbox):
    return daemon.request("GET", f"/v1/sandbox/{sandbox}").json["state"]


def thaw_and_wake(host):
    report, rounds = host.report, host.amount(100, 20)
    daemon = host.special_daemon("life", POOL, ["--freeze-after", "100ms"])
    bare = host.special_daemon("bare", 0, ["--kept-disks", "0", "--uid-base", str(0x64000000)])  # as if all had slept for long
    me, other = Caller(daemon), Caller(bare)
    other_size = json.dumps({"limits": {"memory": "900MiB"}})  # the pool has none of it
    cold, made, bald, warm, thawed, slept, woken, late = [], [], [], [], [], [], [], []
    for i in range(rounds):
        name = f"life-{i}"
        cold.append(me.true(name))
        warm.append(min(me.true(name) for _ in range(3)))
        host.silica.wait_for(lambda: state(daemon, name) == "frozen", 20)
        thawed.append(me.true(name))
        slept.append(me.call("POST", f"{name}/sleep"))
        woken.append(me.true(name))
        me.call("DELETE", name)
        bald.append(other.call("PUT", name, "{}") + other.true(name))
        other.call("POST", f"{name}/sleep")
        late.append(other.true(name))
        other.call("DELETE", name)
        made.append(me.call("PUT", f"made-{i}", other_size) + me.true(f"made-{i}"))
        me.call("DELETE", f"made-{i}")
    report.times("One command (`true`) by the state of its sandbox", {"running": warm, "frozen": thawed, "asleep, disk kept": woken,
                                                                       "asleep, disk let go": late, "unknown, from the pool": cold, "unknown, of another size": made,
                                                                       "unknown, nothing prepared": bald}, "running")
    report.target("thaw: more than warm, p50", percentile(thawed, 50) - percentile(warm, 50), 1.0)
    report.times("Putting a sandbox to sleep", {"until answered": slept}, "until answered")
    report.note("what sleeps has a disk of its own, which no prepared sandbox has: waking makes a root of it, for a sandbox that waits without one")
    report.target("wake from sleep: x cold start, nothing prepared", percentile(woken, 50) / percentile(bald, 50), 1.0, "x")
    report.target("wake from sleep: x cold start from the pool", percentile(woken, 50) / percentile(cold, 50), 1.0, "x")
    daemon.cleanup()
    bare.cleanup()


def burst(host):
    report, turns, size = host.report, host.amount(5, 2), 100
    daemon = host.daemon(POOL)
    rows, medians, slowest = [], [], []
    with concurrent.futures.ThreadPoolExecutor(size) as pool:
        for turn in range(turns):
            callers = [Caller(daemon) for _ in range(size)]
            times = list(pool.map(lambda i: callers[i].true(f"burst-{turn}-{i}"), range(size)))
            list(pool.map(lambda i: callers[i].call("DELETE", f"burst-{turn}-{i}"), range(size)))
            medians.append(percentile(times, 50))
            slowest.append(max(times))
            rows.append([f"turn {turn + 1}", len(times), medians[-1], percentile(times, 95), slowest[-1]])
    report.table(f"{size} unknown ids at once, each with one command", ["", "answered", "p50 ms", "p95 ms", "slowest ms"], rows)
    report.target("burst of 100: median", percentile(medians, 50), 350)
    report.target("burst of 100: the slowest", percentile(slowest, 50), 700)
    host.close_daemon(POOL)


def in_turns(callers, rounds, each):
    """[times of the first, ...]: a machine's moods last longer than a turn, so they meet all alike."""
    times = [[] for _ in callers]
    for _ in range(rounds):
        for caller, mine in zip(callers, times):
            mine += [caller.true("probe") for _ in range(each)]
    return times


def crowd(host):
    report, count = host.report, host.amount(1000, 200)
    daemon = host.special_daemon("crowd", 0, ["--freeze-after", "0", "--slots", str(count + 16)])
    quiet = host.special_daemon("quiet", 0, ["--freeze-after", "0", "--slots", "16"], 0x68000000)
    callers = [Caller(daemon), Caller(quiet)]
    for caller in callers:
        caller.true("probe")
    alone, quiet_alone = in_turns(callers, 20, 50)
    before = steady_meminfo(5)
    begun = time.monotonic()

    def make(k):
        other = Caller(daemon)
        for i in range(k, count, 8):
            other.call("PUT", f"idle-{i}", "{}")

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(8)))
    took = time.monotonic() - begun
    made = steady_meminfo(10)
    among, quiet_among = in_turns(callers, 20, 50)
    mib = (before["MemAvailable"] - made["MemAvailable"]) / 1024
    report.times(f"One command in one sandbox, alone and among {count} idle ones; another daemon's only sandbox took its turn beside it",
                 {"alone": alone, "the other daemon's, then": quiet_alone, "among the idle": among, "the other daemon's, now": quiet_among}, "alone")
    report.target(f"one command among {count} idle sandboxes / in a daemon that has none, p50",
                  percentile(among, 50) / percentile(quiet_among, 50), 1.1, "x")
    report.note(f"{count} idle sandboxes made in {took:.1f} s; memory of all: {mib:.0f} MiB (as the kernel's MemAvailable tells it)")
    report.target(f"{count} idle sandboxes, memory", mib / count * 1024, 1024, "KiB each")
    daemon.cleanup()
    quiet.cleanup()


def objects(host):
    host.report.heading("the life of sandboxes: thaw, wake, burst, crowd")
    thaw_and_wake(host)
    burst(host)
    crowd(host)
