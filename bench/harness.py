# SPDX-License-Identifier: Apache-2.0
"""What all sections share: building, the measuring client, daemons of our own, figures and tables."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
OUT = os.path.join(ROOT, "build", "bench")
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))

GCC = ["-std=gnu17", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Wshadow", "-I" + os.path.join(ROOT, "src")]
# musl has no kernel headers of its own; behind its own directories the host's do no harm
MUSL = ["-static", "-idirafter", "/usr/include", "-idirafter", f"/usr/include/{os.uname().machine}-linux-gnu"]
PROGRAMS = {
    "client": ["gcc", *GCC, "-pthread"], "limit": ["musl-gcc", *GCC, *MUSL], "true": ["musl-gcc", *GCC, *MUSL],
    "web": ["musl-gcc", *GCC, *MUSL], "yardstick": ["gcc", *GCC], "shells": ["gcc", *GCC],
}
SOURCES = {"client": ["client.c", "step.c", "http.c", "step.h", "http.h"], "limit": ["limit.c"], "true": ["true.c"],
           "web": ["web.c"], "yardstick": ["yardstick.c"], "shells": ["shells.c", "../src/net/write_all.c"]}
# What yardstick.c says, in microseconds, on the machine that the targets were set on.
REFERENCE = {"exec": 130, "same": 10, "other": 60}


def images_dir():
    return os.environ.get("SILICA_IMAGES", "/var/lib/silica/images")


def shell_lib(function):
    """Runs a function of scripts/lib.sh, which knows how to install and build."""
    subprocess.run(["bash", "-c", f'set -euo pipefail; . "{ROOT}/scripts/lib.sh"; {function}'], check=True,
                   stdout=sys.stderr)


def build(install):
    if install and os.geteuid() == 0:
        shell_lib('install_missing "${bench_packages[@]}" gcc musl-tools')
    os.makedirs(OUT, exist_ok=True)
    for name, command in PROGRAMS.items():
        target, sources = os.path.join(OUT, name), [os.path.join(HERE, s) for s in SOURCES[name]]
        if not os.path.exists(target) or any(os.path.getmtime(s) > os.path.getmtime(target) for s in sources):
            subprocess.run([*command, "-o", target, *[s for s in sources if s.endswith(".c")]], check=True)


# ---- plans for the measuring client

def spawn(name, *argv):
    program = shutil.which(argv[0])
    if not program:
        raise FileNotFoundError(argv[0])
    return "\t".join(["spawn", name, program, *argv[1:]])


def http(name, address, method, path, body="", expect="", mark=""):
    if isinstance(body, dict):
        body = json.dumps(body)
    return "\t".join(["http", name, address, method, path, body, expect, mark])


class Sample:
    def __init__(self, fields):
        self.name = fields[0]
        self.at, self.total, self.first, self.mark = (int(f) / 1e6 for f in fields[1:5])  # milliseconds
        self.bytes = int(fields[5])


class Result:
    def __init__(self, text):
        self.samples, self.failures = {}, {}
        for line in text.splitlines():
            kind, name, *rest = line.split("\t")
            if kind == "fail":
                self.failures[name] = rest[0]
            else:
                self.samples.setdefault(name, []).append(Sample([name, *rest]))

    def get(self, name, what="total"):
        return [getattr(s, what) for s in self.samples.get(name, [])]


# crun refuses a host which has version 1 groups and a version 2 tree with controllers beside them; its
# competitors do not look at that tree, so all run where it is not mounted
PRIVATE = ["unshare", "--mount", "sh", "-c",
           'case $(stat -fc %T /sys/fs/cgroup) in tmpfs) umount /sys/fs/cgroup/unified 2>/dev/null;; esac; exec "$0" "$@"']


def client(*args, plan=(), private=False):
    command = [*(PRIVATE if private else []), os.path.join(OUT, "client"), *[str(a) for a in args]]
    env = dict(os.environ, LIMIT_PROGRAM=os.path.join(OUT, "true"), BENCH_TOKEN="t" * 40)
    p = subprocess.run(command, input="\n".join(plan), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    if p.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {p.returncode}: {p.stderr[-500:]}")
    result = Result(p.stdout)
    if result.failures and p.stderr.strip():
        print("  (said: " + p.stderr.strip().splitlines()[0][:200] + ")", file=sys.stderr)
    return result


# ---- figures

def percentile(values, p):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))]


def figure(value):
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def route_missing(text):
    """Whether a failure says that there is no such route (a missing file or sandbox is a 404 too, and a failure)."""
    return "HTTP 404" in text and ('"UNKNOWN_ERROR"' in text or '"UNKNOWN_ROUTE"' in text)  # the agent's, the gateway's


def outcome(value, failure):
    """A cell of a table: the value, or in a word why there is none."""
    if value is not None:
        return value
    return "failed" if failure and not route_missing(failure) else "not available"


class Report:
    """Prints as it goes; keeps everything for --json."""

    def __init__(self):
        self.data = {"machine": machine(), "yardstick": [], "tables": [], "targets": []}
        self.broken = []

    def heading(self, text):
        print(f"\n== {text}", flush=True)

    def note(self, text):
        print(f"   {text}", flush=True)

    def yardstick(self, when):
        """How fast the machine is just now: absolute times mean little without it."""
        text = subprocess.run([os.path.join(OUT, "yardstick"), os.path.join(OUT, "true")], check=True, capture_output=True, text=True).stdout
        now = {name: float(us) for name, us in (line.split() for line in text.splitlines())}
        self.data["yardstick"].append({"when": when, **now})
        words = {"exec": "start of a static program", "same": "round trip to a process on the same cpu", "other": "on another cpu"}
        self.note(f"the machine {when}: " + ", ".join(f"{words[name]} {us:.0f} us ({us / REFERENCE[name]:.1f} x the machine of the targets)"
                                                      for name, us in now.items()))

    def table(self, title, columns, rows):
        self.data["tables"].append({"title": title, "columns": columns, "rows": rows})
        cells = [columns] + [[figure(c) for c in r] for r in rows]
        widths = [max(len(r[i]) for r in cells) for i in range(len(columns))]
        print(f"\n{title}")
        for n, r in enumerate(cells):
            print("  " + "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))).rstrip())
            if n == 0:
                print("  " + "  ".join("-" * w for w in widths))
        sys.stdout.flush()

    def times(self, title, series, base=None, failed=""):
        """Rows of p50, p95 and p99 in ms; `base` names the row whose median is 1, `failed` tells why rows are empty."""
        unit = percentile(series[base], 50) if series.get(base) else None
        rows = []
        for name, values in series.items():
            if not values:
                why = failed.get(name, "") if isinstance(failed, dict) else failed
                rows.append([name, 0, outcome(None, why), None, None] + [None] * (base is not None))
                continue
            p50 = percentile(values, 50)
            row = [name, len(values), p50, percentile(values, 95), percentile(values, 99)]
            rows.append(row + ([p50 / unit if unit else None] if base is not None else []))
        self.table(title, ["", "n", "p50 ms", "p95 ms", "p99 ms"] + ([f"x {base}"] if base is not None else []), rows)

    def target(self, what, value, limit, unit="ms", at_least=False):
        met = None if value is None else value >= limit if at_least else value <= limit
        self.data["targets"].append({"what": what, "value": value, "target": limit, "unit": unit, "at_least": at_least,
                                     "met": met})

    def failed(self, where, text):
        """A failure of the thing measured; a route that is not there is no failure."""
        if route_missing(text):
            self.note(f"{where}: not available (404)")
            return
        self.broken.append(f"{where}: {text}")
        self.note(f"{where}: FAILED: {text}")

    def why(self, result):
        return next(iter(result.failures.values()), "")

    def failures(self, where, result):
        for name, text in result.failures.items():
            self.failed(f"{where}: {name}", text)

    def summary(self):
        if self.data["targets"]:
            rows = [[t["what"], t["value"] if t["value"] is not None else "not available",
                     (">= " if t["at_least"] else "<= ") + figure(t["target"]), t["unit"],
                     "-" if t["met"] is None else "met" if t["met"] else "missed"] for t in self.data["targets"]]
            self.table("Targets (information: the machine decides about absolute times, look at ratios first)",
                       ["", "measured", "target", "unit", ""], rows)
        for b in self.broken:
            print(f"broken: {b}")

    def save(self, path):
        with open(path, "w") as f:
            json.dump(self.data | {"broken": self.broken}, f, indent=1)


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    return {"kernel": os.uname().release, "cpus": os.cpu_count(), "model": model, "load": os.getloadavg()[0],
            "memory_mib": meminfo()["MemTotal"] // 1024, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def meminfo():
    return {line.split(":")[0]: int(line.split()[1]) for line in open("/proc/meminfo")}


# ---- what is measured

RUN_IN = "/dev/shm"  # in memory, as /run is on every Debian machine, though not on every virtual one


def berths(pool):
    """As many as a daemon has by default, and as many bare sandboxes; a daemon without a pool has nothing prepared at all."""
    return 2 if pool else 0


class Host:
    """The daemons, bundles and directories of one run; all of it goes at the end."""

    def __init__(self, args, report):
        import silica  # reads the paths from the environment when it is first imported
        self.silica, self.args, self.report = silica, args, report
        self.quick = args.quick
        self.rootfs = os.path.realpath(os.path.join(images_dir(), "base", "rootfs"))
        self.dir = tempfile.mkdtemp(prefix="silica-bench-")
        os.chmod(self.dir, 0o755)  # mapped users look up the bundles below it
        self.work = os.path.join(self.dir, "work")
        os.mkdir(self.work)
        self.daemons, self.undo = {}, []

    def amount(self, full, quick):
        return quick if self.quick else full

    def daemon(self, pool):
        if pool not in self.daemons:
            d = self.silica.Daemon(f"bench{pool}", pool=pool, berths=berths(pool), bare=berths(pool), run_in=RUN_IN, args=[
                "--log-level", "warn", "--uid-base", str(0x40000000 + 0x8000000 * len(self.daemons)), "--slots", "2000"])
            self.daemons[pool] = d
            d.start()
        d = self.daemons[pool]
        self.silica.wait_for(lambda: len(d.slots()) >= pool + 2 * berths(pool), 60, f"a full pool of {pool}")
        return d

    def special_daemon(self, name, pool, args, uid_base=0x60000000):
        """One with settings of its own; whoever asks for it cleans it up."""
        d = self.silica.Daemon(f"bench-{name}", pool=pool, berths=berths(pool), bare=berths(pool), run_in=RUN_IN, args=["--log-level", "warn", "--uid-base", str(uid_base), *args])
        self.undo.append(d.cleanup)
        d.start()
        self.silica.wait_for(lambda: len(d.slots()) >= pool + 2 * berths(pool), 60, f"a full pool of {pool}")
        return d

    def close_daemon(self, pool):
        d = self.daemons.pop(pool, None)
        if d:
            d.cleanup()

    def close(self):
        steps = list(reversed(self.undo)) + [lambda p=pool: self.close_daemon(p) for pool in self.daemons]
        for step in steps:
            try:
                step()
            except Exception as e:  # the others must still be ended
                self.report.failed("cleanup", str(e))
        shutil.rmtree(self.dir, ignore_errors=True)


def gateway(daemon):
    return f"gateway:127.0.0.1:{daemon.port}"
