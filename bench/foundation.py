# SPDX-License-Identifier: Apache-2.0
"""Cold start, rate, warm commands and memory, side by side with the tools people use for the same."""
import os
import socket
import subprocess
import time

import oci
from harness import OUT, client, gateway, http, meminfo, percentile, spawn

TRUE = {"command": "true"}
DONE = '"exitCode":0'
POOL = 8  # the daemon's default
GAP_MS = 50  # for what goes on in the background: a pool being refilled, namespaces being taken down


def peers(host):
    """The competitors that run one program and end: name -> plan line."""
    root, run = host.rootfs, host.dir
    found = {}

    def add(name, *argv):
        try:
            found[name] = spawn(name, *argv)
        except FileNotFoundError as e:
            host.report.note(f"{name}: not available ({e} is not installed)")

    bundle = oci.bundle(f"{run}/oci", root, ["/bin/true"])
    add("C limit, static true", f"{OUT}/limit", root, host.work, "@")
    add("C limit, /bin/true", f"{OUT}/limit", root, host.work, "/bin/true")
    add("unshare + chroot", "unshare", "--fork", "--pid", "--mount", "--uts", "--ipc", "--net", "--cgroup", f"--root={root}",
        "/bin/true")
    add("bubblewrap", "bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", root, "/", "--tmpfs", "/tmp", "--proc", "/proc",
        "--dev", "/dev", "/bin/true")
    for runtime in ("crun", "runc"):
        add(runtime, runtime, "--root", f"{run}/{runtime}", "run", "--bundle", bundle, f"bench-{os.getpid()}-{{t}}-{{n}}")
    return found


def create_and_exec(name, daemon, prefix):
    address, path = gateway(daemon), f"/v1/sandbox/{prefix}-{{t}}-{{n}}"
    return [http(name, address, "POST", path + "/api/execute", TRUE, DONE), http("-destroy", address, "DELETE", path)]


def create_only(name, daemon):
    address, path = gateway(daemon), "/v1/sandbox/bare-{t}-{n}"
    return [http(name, address, "PUT", path, {}, '"running"'), http("-destroy", address, "DELETE", path)]


def cold(host):
    report, rounds = host.report, host.amount(200, 30)
    report.heading("cold start: from nothing to the end of `true`")
    report.note("peers: one /bin/true in fresh namespaces on the same root file system; Silica: POST to an unknown ID, answered;")
    report.note("full recipe with disk quota and limits, deletion between rounds not counted. Pool on is the default; pool off")
    report.note(f"makes everything on the request. All take turns in each round, {GAP_MS} ms apart.")
    on, off = host.daemon(POOL), host.daemon(0)
    lines = peers(host)
    names = list(lines) + ["Silica, pool on", "Silica, pool off", "Silica, pool on, create only", "Silica, pool off, create only"]
    plan = list(lines.values()) + create_and_exec(names[-4], on, "cold") + create_and_exec(names[-3], off, "cold")
    plan += create_only(names[-2], on) + create_only(names[-1], off)
    result = client("mix", rounds, GAP_MS, plan=plan, private=True)
    report.failures("cold", result)
    series = {n: result.get(n) for n in names}
    report.times("Cold start to exit of true", series, "bubblewrap", result.failures)
    p50 = {n: percentile(v, 50) for n, v in series.items() if v}
    mine, limit = p50.get("Silica, pool on"), p50.get("C limit, /bin/true")
    report.target("cold: x C limit (/bin/true)", mine and limit and mine / limit, 1.5, "x")
    report.target("cold: x bubblewrap", mine and mine / p50["bubblewrap"] if "bubblewrap" in p50 else None, 1.0, "x")
    report.target("cold p50", mine, 5.0)
    report.target("cold p99", percentile(series["Silica, pool on"], 99) if mine else None, 15.0)


def rate_of(result, name, begin=0.0, end=None):
    """Finished rounds per second between two times (ms)."""
    ends = [s.at + s.total for s in result.samples.get(name, [])]
    end = max(ends, default=0) if end is None else end
    return sum(begin < e <= end for e in ends) * 1000 / (end - begin) if end > begin else 0.0


def settled(host, daemon, pool):
    """What is left of a daemon's sandboxes beyond its pool once nothing is under way any more."""
    def beyond():
        return [max(0, len(daemon.slots()) - pool - daemon.berths - daemon.bare), *(max(0, len(x) - pool) for x in (daemon.loops(), daemon.disks()))]

    try:
        host.silica.wait_for(lambda: not any(beyond()), 20)
    except AssertionError:
        pass  # the figures are the report
    return beyond()


def rate(host):
    report, window, turns, long = host.report, host.amount(3, 1.5), host.amount(4, 2), host.args.sustained or host.amount(60, 10)
    report.heading("sustained: create, one command, destroy, again and again")
    daemon = host.daemon(POOL)
    lines = {n: [line] for n, line in peers(host).items() if n != "unshare + chroot"}
    lines["Silica"] = None
    rows = []
    for threads in (2, 8):
        rates = {n: [] for n in lines}
        for turn in range(turns):
            for n, plan in lines.items():
                plan = plan or create_and_exec("Silica", daemon, f"rate{threads}-{turn}")
                result = client("load", threads, window, plan=plan, private=True)
                report.failures(f"rate with {threads} clients", result)
                rates[n].append(rate_of(result, n))
        mean = {n: sum(v) / len(v) for n, v in rates.items()}
        base = mean.get("bubblewrap")
        rows += [[n, threads, mean[n], min(rates[n]), max(rates[n]), mean[n] / base if base else None] for n in lines]
    report.table(f"Per second, {turns} turns of {window} s each", ["", "clients", "mean /s", "lowest", "highest", "x bubblewrap"],
                 rows)
    rows, most = [], None
    for threads, seconds in ((2, min(long, 60)), (8, long)):
        result = client("load", threads, seconds, plan=create_and_exec("Silica", daemon, f"long{threads}"))
        report.failures(f"{seconds} s with {threads} clients", result)
        if result.failures:
            report.note("what the daemon said: " + (daemon.log()[-2000:].strip() or "nothing"))
            report.note("what it has now: " + daemon.request("GET", "/v1/sandbox").body.decode()[:2000])
        total = rate_of(result, "Silica", 0, seconds * 1000)
        tenths = [rate_of(result, "Silica", seconds * 100 * i, seconds * 100 * (i + 1)) for i in range(10)]
        exec_ms = result.get("Silica") or [0]
        left = settled(host, daemon, POOL)
        rows.append([f"{threads} clients, {seconds} s", total, tenths[0], tenths[-1], min(tenths), max(tenths),
                     percentile(exec_ms, 50), percentile(exec_ms, 99), "/".join(map(str, left))])
        most = max(total, most or 0)
        if any(left):
            report.broken.append(f"sustained: left behind after the run (slots/loops/disks): {left}")
    report.table("Silica alone", ["", "/s", "first tenth", "last", "lowest", "highest", "create+exec p50 ms",
                                                 "p99 ms", "slots/loops/disks left"], rows)
    daemon.stop()
    gone = {k: len(v) for k, v in daemon.leftovers().items()}
    report.note(f"after the daemon's end there are left: {gone or 'no groups, no loop devices, no slots'}")
    if gone:
        report.broken.append(f"after the daemon's end: {gone}")
    host.close_daemon(POOL)
    report.target("sustained create + exec + destroy", most, 150, "/s", at_least=True)


def agent_socket(daemon):
    """The socket of the only sandbox of a daemon without a pool."""
    (slot,) = daemon.slots()
    return f"unix:{daemon.run_dir}/slots/{slot}/agent.sock"


def agent_processes(host, daemon):
    """{pid: command name} of the agents and their helpers (not the shells they run)."""
    found = {}
    for pid in host.silica.sandbox_processes(daemon):
        try:
            name = open(f"/proc/{pid}/comm").read().strip()
            exe = os.readlink(f"/proc/{pid}/exe")
        except OSError:
            continue
        if "agent" in name or "memfd" in exe:
            found[pid] = name
    return found


def is_first(pid):
    return next(line for line in open(f"/proc/{pid}/status") if line.startswith("NSpid")).split()[-1] == "1"


def pss_kib(pid):
    for line in open(f"/proc/{pid}/smaps_rollup"):
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def containers(host):
    """Running containers of crun and runc for their exec: name -> plan line."""
    lines = {}
    bundle = oci.bundle(f"{host.dir}/oci-sleep", host.rootfs, ["/bin/sleep", "3600"])
    for runtime in ("crun", "runc"):
        name = f"bench-warm-{os.getpid()}"
        base = [runtime, "--root", f"{host.dir}/{runtime}"]
        private = ["unshare", "--mount", "sh", "-c", 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$0" "$@"']
        try:
            r = subprocess.run([*private, *base, "run", "--detach", "--bundle", bundle, name], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            if r.returncode == 0:
                host.undo.append(lambda b=base: subprocess.run([*private, *b, "delete", "--force", name], check=False,
                                                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
                lines[f"{runtime} exec /bin/true"] = spawn(f"{runtime} exec /bin/true", *base, "exec", name, "/bin/true")
        except FileNotFoundError:
            pass
    return lines


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def plain_agent(host):
    """The agent as an ordinary program on this host; returns its address."""
    port, env = free_port(), dict(os.environ, SANDBOX_LOG_LEVEL="error")
    p = subprocess.Popen([host.silica.AGENT, "--listen", f"127.0.0.1:{port}"], stdin=subprocess.DEVNULL, env=env)

    def end():
        p.terminate()
        p.wait()

    host.undo.append(end)

    def listening():
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0

    host.silica.wait_for(listening, 10, "the plain agent")
    return f"tcp:127.0.0.1:{port}"


def bare_shells(host):
    """bench/shells.c; returns its address."""
    path = f"{host.dir}/shells.sock"
    p = subprocess.Popen([f"{OUT}/shells", path], stdin=subprocess.DEVNULL)

    def end():
        p.terminate()
        p.wait()

    host.undo.append(end)
    host.silica.wait_for(lambda: os.path.exists(path), 10, "the C limit of commands")
    return f"unix:{path}"


def agent_start(host):
    """From the start of the agent's program to its first answer."""
    port = free_port()
    result = client("start", f"tcp:127.0.0.1:{port}", host.amount(100, 20), host.silica.AGENT, "--listen", f"127.0.0.1:{port}")
    host.report.failures("agent", result)
    return result.get("start")


def warm(host):
    report, rounds = host.report, host.amount(3000, 500)
    report.heading("warm: a command in a sandbox that runs")
    daemon = host.daemon(0)
    daemon.exec("warm", "true")
    try:
        via, sock, path = gateway(daemon), agent_socket(daemon), "/v1/sandbox/warm"
        plain = plain_agent(host)
        names = ["ping, agent's socket", "ping, gateway", "true, agent's socket", "true, gateway", "/bin/true, agent's socket",
                 "/bin/true, gateway", "true, agent as a plain program"]
        program = {"command": "/bin/true"}
        plan = [http(names[0], sock, "GET", "/api/ping"), http(names[1], via, "GET", path + "/api/ping"),
                http(names[2], sock, "POST", "/api/execute", TRUE, DONE),
                http(names[3], via, "POST", path + "/api/execute", TRUE, DONE),
                http(names[4], sock, "POST", "/api/execute", program, DONE),
                http(names[5], via, "POST", path + "/api/execute", program, DONE),
                http(names[6], plain, "POST", "/api/execute", TRUE, DONE)]
        result = client("mix", rounds, 0, plan=plan)
        report.failures("warm", result)
        series = {n: result.get(n) for n in names}
        report.times("Round trips, one client", series, names[2], result.failures)
        for name, limit in ((names[2], 0.35), (names[3], 0.5)):
            values = series[name]
            report.target(f"warm {name} p50", percentile(values, 50) if values else None, limit)
            report.target(f"warm {name} p99", percentile(values, 99) if values else None, 2.0)

        others = containers(host)
        if others:
            mine = "Silica /bin/true, gateway"
            result = client("mix", host.amount(200, 30), 5, private=True, plan=[
                *others.values(), http(mine, via, "POST", path + "/api/execute", program, DONE)])
            report.failures("warm", result)
            report.times("The same in running containers", {n: result.get(n) for n in [mine, *others]}, mine, result.failures)

    finally:
        daemon.destroy("warm")
    crowd(host, daemon)


def crowd(host, daemon):
    """Many clients, each in a session of its own; the default size has one core, which is a limit of its own."""
    report, seconds, rows, best = host.report, host.amount(5, 2), [], {}
    limit, limits = bare_shells(host), []

    def measure_limit():
        limits.append(client("load", 64, seconds, plan=[http("exec", limit, "POST", "/", TRUE, DONE)]))

    client("load", 64, 0.3, plan=[http("exec", limit, "POST", "/", TRUE, DONE)])
    for size, settings in (("default size", {}), ("all cores", {"limits": {"cpu": os.cpu_count()}})):
        r = daemon.request("PUT", "/v1/sandbox/crowd", settings)
        assert r.status in (200, 201), (r.status, r.body)
        try:
            for way, address, prefix in (("agent's socket", agent_socket(daemon), ""),
                                         ("gateway", gateway(daemon), "/v1/sandbox/crowd")):
                for clients in (1, 8, 64):
                    body = {"command": "true", "sessionId": f"{clients}-s{{t}}"}
                    step = http("exec", address, "POST", prefix + "/api/execute", body, DONE)
                    client("load", clients, 0.3, plan=[step])  # starts the shells
                    result = client("load", clients, seconds, plan=[step])
                    report.failures(f"{clients} clients", result)
                    values = result.get("exec") or [0]
                    best[(way, clients, size)] = rate_of(result, "exec")
                    rows.append([f"{way}, {size}", clients, best[(way, clients, size)], percentile(values, 50),
                                 percentile(values, 99)])
                measure_limit()
        finally:
            daemon.destroy("crowd")
    for result in limits:
        report.failures("C limit", result)
    rates = [rate_of(result, "exec") for result in limits]
    mean = sum(rates) / len(rates)
    times = [t for result in limits for t in result.get("exec")] or [0]
    rows.append([f"C limit, {len(rates)} turns", 64, mean, percentile(times, 50), percentile(times, 99)])
    report.note("C limit: bench/shells.c, a pipe to bash and a pipe from it, without sessions, output or checks")
    report.table("Commands per second (`true`), one session per client", ["", "clients", "exec/s", "p50 ms", "p99 ms", "x C limit"],
                 [row + [row[2] / mean if mean else None] for row in rows])
    for way in ("agent's socket", "gateway"):
        report.target(f"64 clients, 64 sessions, {way}", best[(way, 64, "all cores")], 8000, "exec/s", at_least=True)


def steady_meminfo(seconds):
    """The median over a while: other programs breathe."""
    seen = []
    for _ in range(10):
        time.sleep(seconds / 10)  # sampling, not waiting for a condition
        seen.append(meminfo())
    return {k: sorted(s[k] for s in seen)[5] for k in seen[0]}


PARTS = {"everything (MemAvailable)": "MemAvailable", "anonymous memory": "AnonPages", "kernel, not reclaimable": "SUnreclaim",
         "kernel, reclaimable": "SReclaimable", "per cpu": "Percpu", "page tables": "PageTables", "kernel stacks": "KernelStack",
         "page cache of disks and tmpfs": "Cached", "buffers": "Buffers"}


def memory_cycle(host, daemon, ids):
    """Makes them all, looks, uses each once, looks, removes them, looks again."""
    seconds = host.amount(5, 2)
    before = steady_meminfo(seconds)
    try:
        for i in ids:
            r = daemon.request("PUT", f"/v1/sandbox/{i}", {})
            assert r.status in (200, 201), (r.status, r.body)
        created = steady_meminfo(seconds)
        pss = {p: (pss_kib(p), is_first(p)) for p in agent_processes(host, daemon)}
        for i in ids:
            daemon.exec(i, "true")
        used = steady_meminfo(seconds)
    finally:
        for i in ids:
            daemon.request("DELETE", f"/v1/sandbox/{i}")
    after = steady_meminfo(seconds)
    return before, created, used, after, pss


def memory(host):
    report, count, cycles = host.report, host.amount(100, 30), 3
    report.heading(f"memory of an idle sandbox ({count} of them, {cycles} times made and removed)")
    daemon = host.daemon(0)
    daemon.exec("first", "true")  # what exists once for all of them is not counted
    ids = [f"idle-{i}" for i in range(count)]
    seen = [memory_cycle(host, daemon, ids) for _ in range(cycles)]
    daemon.destroy("first")
    rows = []
    for label, key in PARTS.items():
        sign = -1 if key == "MemAvailable" else 1
        made, used, moved = [], [], []
        for before, created, exercised, after, _ in seen:
            made.append(sign * (created[key] - before[key]) / count)
            used.append(sign * (exercised[key] - before[key]) / count)
            moved.append(abs(after[key] - before[key]) / count)
        rows.append([label, sorted(made)[cycles // 2], sorted(used)[cycles // 2], min(made), max(made), max(moved)])
    report.table("KiB per sandbox",
                 ["", "created", "after one command", "created: lowest", "highest", "not back after removal"], rows)
    _, everything, _, low, high, moved = rows[0]
    quiet = low > 0 and max(high - low, moved) <= everything / 3
    if not quiet:
        report.note("other programs' memory moved too much meanwhile: the figure for everything is not used")
    pss = seen[-1][4]
    size = os.path.getsize(host.silica.AGENT) / 1024
    sandboxes = count + 1
    alone = [kib for kib, first in pss.values() if first]
    per_agent = sum(alone) / len(alone) if alone else None
    started = agent_start(host)
    ready = percentile(started, 50) if started else None
    report.table("Agent", ["", "value", "unit"], [
        ["start of the program to its first answer, p50", ready, "ms"],
        ["file", size, "KiB"], ["PSS of the agent", per_agent, "KiB"],
        ["PSS of agent and spawner", sum(kib for kib, _ in pss.values()) / sandboxes, "KiB"]])
    report.target("memory of an idle sandbox, everything", everything if quiet else None, 1024, "KiB")
    report.target("agent's file", size, 500 * 1000 / 1024, "KiB")
    report.target("agent ready (program's start to its first answer), p50", ready, 2.0)
    report.target("agent's PSS", per_agent, 300 * 1000 / 1024, "KiB")
