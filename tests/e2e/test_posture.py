# SPDX-License-Identifier: Apache-2.0
"""Isolation posture (catalogue area 1): every task of a sandbox, on every way in, looks as the recipe promises."""
import contextlib
import json
import os
import re
import zlib

import posture
import silica
from silica import UID_BASE, sandbox_processes, wait_for
from test_terminal import terminal, until


def tasks_of(daemon, box):
    """{pid: comm} of one sandbox: its tasks share a pid namespace; the agent is the one that is pid 1 inside."""
    marker = str(900000 + zlib.crc32(box.encode()) % 99999)
    daemon.request("POST", f"/v1/sandbox/{box}/api/process/start", {"command": f"exec sleep {marker}"})

    def find():
        for pid in sandbox_processes(daemon):
            try:
                if marker in open(f"/proc/{pid}/cmdline").read():
                    return os.readlink(f"/proc/{pid}/ns/pid")
            except OSError:
                pass
        return None

    ns = wait_for(find, what="a process of the sandbox")
    found = {}
    for pid in sandbox_processes(daemon):
        try:
            if os.readlink(f"/proc/{pid}/ns/pid") == ns:
                found[pid] = int(posture.status(pid)["NSpid"].split()[-1])
        except OSError:
            pass
    return found


def wrong(pid, inside):
    """What a process that is still there should not be."""
    try:
        uid = int(posture.status(pid)["Uid"].split()[0])
        assert uid >= UID_BASE and uid % 65536 == 0
        agent = inside == 1
        return posture.differences(pid, posture.AGENT_CAPS if agent else posture.WORKLOAD_CAPS, uid, agent)
    except OSError:
        return []


def check(pid, inside):
    with contextlib.suppress(AssertionError):  # a shell that is just being prepared is the agent's child at first
        wait_for(lambda: not wrong(pid, inside))
    assert wrong(pid, inside) == []


def test_ISO_01_posture_of_every_task(daemon, box):
    daemon.out(box, "true")
    tasks = tasks_of(daemon, box)
    assert 1 in tasks.values() and len(tasks) >= 4  # agent, spawner, shell, sleep
    for pid, inside in tasks.items():
        check(pid, inside)


def test_ISO_02_same_on_every_way_in(daemon, box):
    """Posture as seen from inside, for each kind of start."""
    probe = "grep -E '^(Cap|NoNewPrivs|Seccomp:|Groups)' /proc/self/status; readlink /proc/self/ns/*; ulimit -n; umask"
    first = daemon.out(box, probe)
    assert f"CapEff:\t{posture.WORKLOAD_CAPS:016x}" in first
    fresh = daemon.out(box, probe, sessionId="another")
    less = daemon.out(box, probe, sessionId="__DISABLE_SESSION__").rstrip("\n")
    r = daemon.request("POST", f"/v1/sandbox/{box}/api/process/start", {"command": probe, "processId": "probe"})
    assert r.status == 200, r.body

    def ended():
        p = daemon.request("GET", f"/v1/sandbox/{box}/api/process/probe").json["process"]
        return p["status"] == "completed"

    wait_for(ended, what="the process's end")
    logs = daemon.request("GET", f"/v1/sandbox/{box}/api/process/probe/logs").json["stdout"].rstrip("\n")
    assert fresh == first and less == first and logs == first


def status_lines(text):
    return sorted(line for line in text.replace("\r", "").splitlines() if re.match(r"(Cap|NoNewPrivs|Seccomp:|Groups)", line))


def test_ISO_02_interpreters_and_terminals(daemon, box):
    """Code of a context, what that code starts, and a shell in a terminal."""
    expected = status_lines(daemon.out(box, "cat /proc/self/status"))
    assert len(expected) >= 8
    for language, code in (("python", "import subprocess; print(open('/proc/self/status').read(), subprocess.getoutput('cat /proc/self/status'))"),
                           ("javascript", "console.log(require('fs').readFileSync('/proc/self/status', 'utf8') + require('child_process').execSync('cat /proc/self/status'))")):
        r = daemon.request("POST", f"/v1/sandbox/{box}/api/execute/code", {"code": code, "language": language}, timeout=120)
        assert r.status == 200, r.body
        events = [json.loads(line[6:]) for line in r.body.decode().splitlines() if line.startswith("data: ")]
        text = "".join(e.get("text", "") for e in events if e["type"] == "stdout").replace(" Name:", "\nName:")
        assert status_lines(text) == sorted(expected * 2), (language, text)
    with terminal(daemon, box) as ws:
        ws.send(b"cat /proc/self/status; echo E''ND\n")
        assert status_lines(until(ws, b"END").decode()) == expected


def test_ISO_02_after_adoption(daemon_factory):
    """What a new daemon starts in a sandbox it has taken over."""
    d = daemon_factory("iso2", pool=0).start()
    before = status_lines(d.out("x", "cat /proc/self/status"))
    d.kill()
    d.start()
    for fields in ({}, {"sessionId": "new"}, {"sessionId": "__DISABLE_SESSION__"}):
        assert status_lines(d.out("x", "cat /proc/self/status", **fields)) == before
    for pid, inside in tasks_of(d, "x").items():
        check(pid, inside)
    d.destroy("x")


def test_ISO_03_every_thread(daemon, box):
    daemon.out(box, "true")
    tasks = tasks_of(daemon, box)
    assert 1 in tasks.values() and len(tasks) >= 4

    def confined(pid):
        try:
            texts = [open(f"/proc/{pid}/task/{tid}/status").read() for tid in os.listdir(f"/proc/{pid}/task")]
        except OSError:
            return not os.path.exists(f"/proc/{pid}")
        return all(re.search(r"^Seccomp:\t2$", text, re.M) and re.search(r"^NoNewPrivs:\t1$", text, re.M) for text in texts)

    for pid in tasks:
        wait_for(lambda: confined(pid), what=f"the filter of every thread of {pid}")


def test_ISO_04_ranges_are_disjoint(daemon):
    try:
        uids = set()
        for name in ("iso4-a", "iso4-b"):
            daemon.out(name, "true")
            tasks = tasks_of(daemon, name)
            uids.add(posture.status(next(iter(tasks)))["Uid"].split()[0])
        assert len(uids) == 2
        for uid in uids:
            assert int(uid) >= 65536 and (int(uid) - UID_BASE) % 65536 == 0
    finally:
        daemon.destroy("iso4-a")
        daemon.destroy("iso4-b")


def test_ISO_05_no_supplementary_groups(daemon, box):
    assert daemon.out(box, "id -G") == "0"


def test_ISO_06_agent_program_cannot_be_written(daemon, box):
    before = open(silica.AGENT, "rb").read()
    out = daemon.exec(box, "for f in /proc/1/exe /proc/$$/exe; do (exec 9>>$f) 2>&1 && echo opened $f; done; true")
    assert "opened /proc/1/exe" not in out["stdout"]
    assert daemon.exec(box, "ls -l /proc/1/exe")["exitCode"] != 0  # not even visible
    assert open(silica.AGENT, "rb").read() == before


def test_ISO_07_descriptors(daemon, box):
    for fields in ({}, {"sessionId": "__DISABLE_SESSION__"}):
        listing = daemon.out(box, "ls /proc/self/fd", **fields).split()
        assert listing == ["0", "1", "2", "3"], listing  # 3 is the listing itself


def test_ISO_08_cwd_through_descriptors(daemon, box):
    for n in list(range(0, 12)) + [63, 255]:
        for fields in ({}, {"sessionId": "__DISABLE_SESSION__"}):
            r = daemon.request("POST", f"/v1/sandbox/{box}/api/execute",
                               {"command": "pwd; ls", "cwd": f"/proc/self/fd/{n}", **fields})
            assert b"unreachable" not in r.body
            if r.status == 200 and r.json["exitCode"] == 0:
                assert r.json["stdout"].startswith("/")


def test_ISO_13_chroot_is_refused(daemon, box):
    r = daemon.exec(box, "mkdir -p /tmp/x; python3 -c 'import os; os.chroot(\"/tmp/x\")'")
    assert r["exitCode"] != 0 and "PermissionError" in r["stderr"]


def test_ISO_14_environment(daemon, box):
    env = daemon.out(box, "env")
    for word in ("SILICA", silica.TOKEN, "LISTEN_FDS", "ASAN", daemon.dir):
        assert word not in env
    assert daemon.exec(box, "cat /proc/1/environ")["exitCode"] != 0


def test_ISO_15_process_attributes(daemon, box):
    for fields in ({}, {"sessionId": "__DISABLE_SESSION__"}):
        out = daemon.out(box, "umask; pwd; python3 - <<'E'\n"
                         "import os, signal\n"
                         "print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))\n"
                         "print(os.getsid(0) == os.getppid() or os.getsid(0) > 1)\n"
                         "ign = int([l for l in open('/proc/self/status') if l.startswith('SigIgn')][0].split()[1], 16)\n"
                         "print(bool(ign & ~(1 << (signal.SIGPIPE - 1)) & ~(1 << (25 - 1))))\nE", **fields)
        assert out.split("\n")[:5] == ["0022", "/workspace", "[]", "True", "False"]


def test_ISO_16_missing_feature_refuses(daemon_factory):
    """A step that the kernel refuses is a clear error that names it, never a weaker sandbox (the step is made to fail)."""
    d = daemon_factory("iso16", pool=0)
    wanted = {"clone the first process", "map its ids", "build its root file system", "check its posture"}
    seen = set()
    for at in (f"{plan}:{step}" for plan in ("start", "berth") for step in range(16)):
        d.start(env={"SILICA_FAIL": at})
        r = d.request("PUT", "/v1/sandbox/x", {})
        if r.status == 201:  # behind the last step
            d.destroy("x")
            d.stop()
            continue
        assert r.status == 500 and r.json["code"] == "SANDBOX_START_FAILED", r.body
        seen |= {name for name in wanted if name in r.json["message"]}
        wait_for(lambda: not d.leftovers(), what=f"nothing of {at}")
        d.stop()
    assert seen == wanted
