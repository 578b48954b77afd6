# SPDX-License-Identifier: Apache-2.0
"""Host hygiene (catalogue area 14): what is made is gone afterwards, however it ended."""
import http.client
import os
import signal
import subprocess

import silica
from silica import clean, ids_in_use, mounts, sandbox_processes, wait_for

PLANS = (("start", 10), ("berth", 9))  # the two of a creation, and the least number of their steps; behind the last one nothing fails
MOST_STEPS = 64


def test_HYG_01_DOS_33_two_hundred_cycles(daemon_factory):
    d = daemon_factory("hyg1", pool=2).start()
    before_mounts, before_ids = mounts(), ids_in_use()
    d.out("warm", "true")
    d.destroy("warm")

    def keeper_fds():
        return len(os.listdir(f"/proc/{d.proc.pid}/fd"))

    def pool_full():
        return len(d.slots()) == 2

    wait_for(pool_full, what="a full pool")
    before_fds = keeper_fds()
    for i in range(200):
        name = f"cycle-{i}"
        assert d.out(name, f"echo {i} > /workspace/f && cat /workspace/f") == str(i)
        assert d.destroy(name)["existed"] is True
    wait_for(lambda: len(d.slots()) <= 2, what="only the prepared sandboxes")
    assert mounts() == before_mounts
    wait_for(lambda: pool_full() and keeper_fds() <= before_fds + 8, what="no descriptors are left")  # the pool may be filling up
    d.stop()
    wait_for(lambda: clean(d), what="a clean host")
    wait_for(lambda: set(ids_in_use()) <= set(before_ids), what="no process of a sandbox")


def test_HYG_02_failed_creates_leave_nothing(daemon_factory):
    """Each step of the plan is made to fail in turn."""
    d = daemon_factory("hyg2", pool=0)
    before = mounts()
    for plan, fewest in PLANS:
        for step in range(MOST_STEPS):
            d.start(env={"SILICA_FAIL": f"{plan}:{step}"})
            r = d.request("PUT", "/v1/sandbox/x", {})
            if r.status == 201:
                d.destroy("x")
                d.stop()
                break
            assert r.status == 500, (plan, step, r.body)
            assert d.request("GET", "/v1/sandbox/x").status == 404
            wait_for(lambda: clean(d), what=f"a clean host after {plan}:{step} failed")
            d.stop()
        assert step >= fewest
    assert mounts() == before
    d.start()  # and without the fault it works
    assert d.out("x", "echo fine") == "fine"


def test_REC_02_kill_at_every_step_of_creation(daemon_factory):
    """kill -9 of the keeper at each step; the next start sweeps what was half made."""
    d = daemon_factory("rec2", pool=0)
    before = mounts()
    for plan, fewest in PLANS:
        for step in range(MOST_STEPS):
            d.start(env={"SILICA_CRASH": f"{plan}:{step}"})
            try:
                if d.request("PUT", "/v1/sandbox/x", {}).status in (200, 201):
                    d.destroy("x")
                    d.stop()
                    break
            except (OSError, http.client.HTTPException):
                pass
            assert d.proc.wait(60) == -signal.SIGKILL
            wait_for(lambda: not d.port_open(), what="the gateway's end")
            d.start()
            wait_for(lambda: clean(d), what=f"a clean host after a crash at {plan}:{step}")
            d.stop()
        assert step >= fewest
    assert mounts() == before
    d.start()
    assert d.out("x", "echo fine") == "fine"


def test_HYG_03_nothing_in_the_hosts_mount_table(daemon, box):
    daemon.out(box, "true")
    assert not [m for m in mounts() if daemon.dir in m]


def test_REC_01_daemon_killed_while_sandboxes_run(daemon_factory):
    """kill -9 and restart: processes, sessions and files go on; nothing is lost."""
    d = daemon_factory("rec1", pool=1).start()
    d.out("keep", "cd /tmp; export A=7; echo data > /workspace/f")
    d.request("POST", "/v1/sandbox/keep/api/process/start",
              {"command": "for i in $(seq 1 600); do echo line $i; sleep 0.1; done", "processId": "ticker"})
    pid = d.out("keep", "echo $$")
    d.kill()
    assert sandbox_processes(d)
    d.start()
    assert d.out("keep", "echo $$ $PWD $A; cat /workspace/f") == f"{pid} /tmp 7\ndata"
    p = d.request("GET", "/v1/sandbox/keep/api/process/ticker").json["process"]
    assert p["status"] == "running"
    d.destroy("keep")
    wait_for(lambda: not d.disks() or len(d.disks()) <= 1, what="the disk's end")


def test_REC_05_sandbox_died_while_the_daemon_was_down(daemon_factory):
    d = daemon_factory("rec5", pool=0).start()
    d.out("dead", "echo kept > /workspace/f; sync")
    d.kill()
    for pid in sandbox_processes(d):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    wait_for(lambda: not sandbox_processes(d), what="the processes' end")
    d.start()
    assert d.request("GET", "/v1/sandbox/dead").json["state"] in ("asleep", "stopped")
    assert d.out("dead", "cat /workspace/f") == "kept"


def test_AGT_02_killed_agent(daemon_factory):
    """The first process is killed: the sandbox is reported, cleaned, and works again with its files."""
    d = daemon_factory("agt2", pool=0).start()
    d.out("victim", "echo kept > /workspace/f; sync")
    for pid in sandbox_processes(d):
        try:
            if open(f"/proc/{pid}/status").read().split("NSpid:")[1].split("\n")[0].split()[-1] == "1":
                os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, FileNotFoundError):
            pass
    wait_for(lambda: not sandbox_processes(d), what="the end of all processes")

    def works_again():  # a caller in the very instant of the death may still be told of it
        r = d.request("POST", "/v1/sandbox/victim/api/execute", {"command": "cat /workspace/f"})
        assert r.status in (200, 502), r.body
        return r.status == 200 and r.json["stdout"] == "kept"

    wait_for(works_again, what="the next life")


def test_REC_18_second_daemon_refuses(daemon_factory):
    d = daemon_factory("rec18", pool=0).start()
    r = subprocess.run([silica.BIN, "serve", "--data", d.data, "--run", d.run_dir, "--images", silica.IMAGES, "--agent",
                        silica.AGENT, "--listen", "127.0.0.1:0", "--token", silica.TOKEN], capture_output=True, text=True,
                       timeout=60)
    assert r.returncode != 0 and "already serves" in r.stderr
    assert d.request("GET", "/health").status == 200


def test_REC_16_sigterm_keeps_sandboxes_sigint_puts_them_to_sleep(daemon_factory):
    d = daemon_factory("rec16", pool=1).start()
    pid = d.out("s", "echo x > /workspace/f; echo $$")
    d.stop(signal.SIGTERM)
    assert sandbox_processes(d)
    d.start()
    assert d.out("s", "echo $$") == pid
    d.stop(signal.SIGINT)
    wait_for(lambda: not sandbox_processes(d) and not d.leftovers(), what="no process and no leftover")
    d.start()
    assert d.out("s", "cat /workspace/f") == "x"
