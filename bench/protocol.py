# SPDX-License-Identifier: Apache-2.0
"""The container protocol through the gateway: streams, much output, processes, files."""
import glob
import json
import os

from foundation import agent_processes, agent_socket
from harness import client, gateway, http, outcome, percentile

ROOM = {"limits": {"memory": "4G", "disk": "16G", "tasks": 512, "ioBytesPerSecond": 10**11, "ioOperationsPerSecond": 10**6}}
LINE = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde"
OUTPUT = 100_000_000


def p50(values):
    return percentile(values, 50) if values else None


def peak_reset(pids):
    for p in pids:
        with open(f"/proc/{p}/clear_refs", "w") as f:
            f.write("5")


def peak_mib(pids):
    total = 0
    for p in pids:
        total += next(int(line.split()[1]) for line in open(f"/proc/{p}/status") if line.startswith("VmHWM"))
    return total / 1024


def gateway_pids(daemon):
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            parent = int(open(path).read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if parent == daemon.proc.pid:
            found.append(int(path.split("/")[2]))
    return found


def streams(host, via, path):
    report = host.report
    for label, pause_ms in (("without a pause", 0), ("2 ms apart", 2)):
        result = client("mix", host.amount(1000, 200), pause_ms, plan=[
            http("echo", via, "POST", path + "/api/execute/stream", {"command": "echo hi"}, '"complete"', '"type":"stdout"')])
        report.failures("stream", result)
        series = {"first byte": result.get("echo", "first"), "the output": result.get("echo", "mark"), "complete": result.get("echo")}
        report.times(f"execute/stream of `echo`, {label}, since the request", series, failed=report.why(result))
        report.target(f"stream echo {label}: first byte, p50", p50(series["first byte"]), 0.5)
        report.target(f"stream echo {label}: complete, p50", p50(series["complete"]), 1.0)


def output(host, daemon, ways):
    report, rows, rates = host.report, [], {}
    lines, one = f"yes {LINE} | head -c {OUTPUT}", f"head -c {OUTPUT} /dev/zero | tr '\\\\0' x"
    agents, door = list(agent_processes(host, daemon)), gateway_pids(daemon)
    for label, command in (("64-byte lines", lines), ("one line", one)):
        for route in ("execute", "execute/stream"):
            for way, address, prefix in ways:
                peak_reset(agents + door)
                name = f"{route}, {label}, {way}"
                body = '{"command":"' + command + '"}'
                result = client("mix", host.amount(5, 2), 0, plan=[http(name, address, "POST", f"{prefix}/api/{route}", body)])
                report.failures("output", result)
                short = [b for b in result.get(name, "bytes") if b < OUTPUT]
                if short:
                    report.broken.append(f"{name}: only {short[0]} bytes arrived")
                times = result.get(name)
                rate = OUTPUT / 1e3 / p50(times) if times else None
                rates[(label, route, way)] = rate
                rows.append([name, outcome(rate, report.why(result)), peak_mib(agents), peak_mib(door)])
    report.table("100 MB of output", ["", "MB/s", "agent's peak MiB", "gateway's peak MiB"], rows)
    for route in ("execute", "execute/stream"):
        report.target(f"output through {route}, lines, gateway", rates[("64-byte lines", route, "gateway")], 200, "MB/s", True)


def processes(host, via, path):
    report = host.report
    result = client("process", via, path, host.amount(200, 30))
    report.failures("process", result)
    series = {"start answered": result.get("start"), "log event after the write": result.get("log"),
              "exit event after the last write": result.get("exit")}
    report.times("process/start and its stream", series, failed=report.why(result))
    report.target("process start answered, p50", p50(series["start answered"]), 1.5)
    report.target("process: log event after the write, p50", p50(series["log event after the write"]), 2.0)
    report.target("process: exit event after the last write (the shell's own end counted), p50",
                  p50(series["exit event after the last write"]), 1.0)


def files(host, daemon, via, path):
    report = host.report
    big = os.path.join(host.dir, "write-1m.json")
    with open(big, "w") as f:
        json.dump({"path": "/workspace/m", "content": "x" * (1 << 20)}, f)
    # the steps of a mix come in any order: what is read must be there before
    for name, n in (("k", 1 << 10), ("m", 1 << 20)):
        daemon.exec("proto", f"head -c {n} /dev/zero | tr '\\0' x >/workspace/{name}")
    for directory, n in (("k1", 1000), ("k10", 10000)):
        daemon.exec("proto", f"mkdir -p /workspace/{directory} && cd /workspace/{directory} && seq -f f%05g 1 {n} | xargs touch")

    def post(name, route, body, expect='"success":true'):
        return http(name, via, "POST", f"{path}/api/{route}", body, expect)

    failed = {}

    def run(rounds, plan):
        result = client("mix", rounds, 0, plan=plan)
        report.failures("files", result)
        failed.update(result.failures)
        return {line.split("\t")[1]: result.get(line.split("\t")[1]) for line in plan}

    series = run(host.amount(1000, 200), [
        post("write 1 KiB", "write", {"path": "/workspace/k", "content": "x" * 1024}),
        post("read 1 KiB", "read", {"path": "/workspace/k"}),
        post("exists", "exists", {"path": "/workspace/k"}, '"exists":true'),
        post("mkdir", "mkdir", {"path": "/workspace/d{n}"})])
    series |= run(host.amount(50, 10), [
        post("write 1 MiB", "write", "@" + big), post("read 1 MiB", "read", {"path": "/workspace/m"}),
        post("list 1,000", "list-files", {"path": "/workspace/k1"}), post("list 10,000", "list-files", {"path": "/workspace/k10"})])
    report.times("Files over JSON", series, failed=failed)
    for name, limit in (("write 1 KiB", 0.2), ("read 1 KiB", 0.2), ("exists", 0.2), ("mkdir", 0.2), ("list 1,000", 3),
                        ("list 10,000", 30)):
        report.target(f"{name} p50", p50(series[name]), limit)


def raw(host, daemon, via, path):
    report, size = host.report, host.amount(1 << 30, 256 << 20)
    daemon.exec("proto", f"head -c {size} /dev/zero >/workspace/raw")
    seconds, failures = {"upload": [], "download": []}, {}
    for _ in range(host.amount(5, 2)):
        # a new file each time: rewriting one would measure the disk, which has to take the old one's pages first
        result = client("mix", 1, 0, plan=[
            http("upload", via, "PUT", path + "/file/workspace/up{n}", f"+{size}"),
            http("download", via, "GET", path + "/file/workspace/raw")])
        report.failures("raw", result)
        failures |= result.failures
        for name, values in seconds.items():
            values += result.get(name)
        if any(b != size for b in result.get("download", "bytes")):
            report.broken.append("raw download: not all bytes arrived")
        # what is left to be written would be written beside the next round, and more than memory holds for certain
        daemon.exec("proto", "rm /workspace/up*; sync")
    rates = {n: size / 1e6 / p50(values) if values else None for n, values in seconds.items()}
    report.table(f"Raw bodies of {size >> 20} MiB", ["", "GB/s"], [[n, outcome(rates[n], failures.get(n))] for n in rates])
    for n, rate in rates.items():
        report.target(f"raw {n}", rate, 1.0, "GB/s", True)


def protocol(host):
    host.report.heading("the container protocol")
    host.report.note("one sandbox with room (4 GiB of memory, 16 GiB of disk, one core), through the gateway unless said")
    daemon = host.daemon(0)
    r = daemon.request("PUT", "/v1/sandbox/proto", ROOM)
    assert r.status in (200, 201), (r.status, r.body)
    daemon.exec("proto", "true")
    via, path = gateway(daemon), "/v1/sandbox/proto"
    ways = (("agent's socket", agent_socket(daemon), ""), ("gateway", via, path))
    try:
        streams(host, via, path)
        output(host, daemon, ways)
        processes(host, via, path)
        files(host, daemon, via, path)
        raw(host, daemon, via, path)
    finally:
        daemon.destroy("proto")
