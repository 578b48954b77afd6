# SPDX-License-Identifier: Apache-2.0
"""Processes forked ahead: whoever starts several in a row must not see that the later ones were made before they were asked for."""
import concurrent.futures
import os
import signal

import pytest
from conftest import text_of, wait_until

AGAIN = 6  # the first two starts are made as they come, the others come from a spare


def said(api, session, command, **fields):
    return text_of(api.stream(command, session, **fields))


def warm(api, session):
    for _ in range(3):
        assert said(api, session, "echo ready") == "ready\n"


def shells(process):
    """The children of the agent that are a shell or forked from one."""
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/stat") as f:
                state, parent = f.read().rsplit(")", 1)[1].split()[:2]
            with open(f"/proc/{name}/cmdline") as f:
                arguments = f.read()
        except OSError:
            continue
        if int(parent) == process.pid and state != "Z" and arguments == "bash\0--norc\0":
            found.append(int(name))
    return found


def test_the_same_every_time(api, session, tmp_path):
    api.run("cd /tmp; f() { echo function $PLAIN; }; PLAIN=plain", session)
    long = "echo '" + "it is long " * 20000 + "' | wc -c"
    for _ in range(AGAIN):
        assert said(api, session, "f; pwd; echo $OWN; printenv OWN", env={"OWN": "it's"}) == "function plain\n/tmp\nit's\nit's\n"
        assert said(api, session, "pwd", cwd=str(tmp_path)) == f"{tmp_path}\n"
        assert said(api, session, long) == "220001\n"
        events = api.stream("echo never", session, cwd="/no/such 'place'")
        assert text_of(events, "stderr") == "Failed to change directory to '/no/such 'place''\n"
        assert not text_of(events) and events[-1]["exitCode"] == 1
        events = api.stream("if then", session)
        assert text_of(events, "stderr") and events[-1]["exitCode"] == 2
        assert api.stream("exit 3", session)[-1]["exitCode"] == 3
        assert api.stream("kill -9 $BASHPID", session)[-1]["exitCode"] == 137
    assert api.out("pwd; f", session) == "/tmp\nfunction plain"


def test_one_behind_the_other(api, session):
    """Asked for while the next one is being forked: each gets its own text, and the status that the kernel tells."""
    def several(who):
        for i in range(60):
            status = (who * 60 + i) % 256
            events = api.stream(f"echo {who}-{i}; exit {status}", session)
            assert text_of(events) == f"{who}-{i}\n" and events[-1]["exitCode"] == status
            if i % 20 == 19:
                assert api.run(f"LAST{who}={i}", session)["exitCode"] == 0
                assert said(api, session, f"echo $LAST{who}") == f"{i}\n"

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(several, range(4)))


def test_nothing_is_traced_that_is_ours(api, session):
    api.run("set -x", session)
    traces = [text_of(api.stream("echo one", session), "stderr") for _ in range(AGAIN)]
    assert {t.lstrip("+") for t in traces} == {" echo one\n"}  # their number tells how deep bash is


@pytest.mark.parametrize("change, look", [
    ("VALUE=new", "echo $VALUE"), ("export VALUE=new", "printenv VALUE"), ("VALUE() { echo new; }", "VALUE"),
    ("mkdir -p /tmp/new && cd /tmp/new", "basename $PWD"), ("set -f", "case $- in *f*) echo new;; esac"),
    ("umask 0123", "[ $(umask) = 0123 ] && echo new"), ("ulimit -Sn 77", "[ $(ulimit -n) = 77 ] && echo new"),
])
def test_a_command_in_between_is_seen(api, session, change, look):
    warm(api, session)
    assert api.run(change, session)["exitCode"] == 0
    for _ in range(AGAIN):
        assert said(api, session, look) == "new\n"


def test_a_trap_in_between_is_seen(api, session):
    """The shell has something to execute although nobody gave it a command."""
    shell = int(api.out("trap 'COUNT=$((COUNT + 1))' USR1; echo $$", session))
    for n in range(1, 20):
        warm(api, session)
        os.kill(shell, signal.SIGUSR1)
        assert said(api, session, "echo $COUNT") == f"{n}\n"


def test_jobs_of_the_shell_stay_its_own(api, session):
    job = api.out("sleep 60 & echo $!", session)
    warm(api, session)
    assert api.out("echo $!; jobs -p", session) == f"{job}\n{job}"
    assert api.run(f"kill {job}; wait", session)["exitCode"] == 0


def test_pids_are_the_processes_own(api, session):
    pids = [api.start("sleep 60", session)["pid"] for _ in range(AGAIN)]
    assert len(set(pids)) == AGAIN
    groups = {int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[2]) for pid in pids}
    assert groups == set(pids)
    assert api.delete("/api/process/kill-all").json["cleanedCount"] >= AGAIN


def test_a_spare_that_nobody_needs_goes(own_agent):
    process, api = own_agent()

    def spare_seen():
        warm(api, "s")
        return any(len(shells(process)) == 2 for _ in range(20))

    wait_until(spare_seen, "the shell and its spare, before that goes")
    wait_until(lambda: len(shells(process)) == 1, "the shell alone")
    assert said(api, "s", "echo again") == "again\n"


def test_a_spare_that_dies(own_agent):
    process, api = own_agent()
    shell = int(api.out("echo $$", "s"))
    for _ in range(5):
        warm(api, "s")
        for pid in shells(process):
            if pid != shell:
                os.kill(pid, signal.SIGKILL)
                wait_until(lambda pid=pid: not os.path.exists(f"/proc/{pid}"), "the agent has noticed")
        assert said(api, "s", "echo on") == "on\n"
    assert api.out("echo $$", "s") == str(shell)


def test_a_spare_goes_with_its_session(own_agent):
    process, api = own_agent()
    for how in ("delete", "exit", "kill"):
        warm(api, "s")
        if how == "delete":
            assert api.post("/api/session/delete", {"sessionId": "s"}).status == 200
        else:
            assert api.execute("exit 1" if how == "exit" else "kill -9 $$", "s").status == 410
        wait_until(lambda: not shells(process), "nothing is left")


def test_many_sessions_have_a_few_spares(own_agent):
    process, api = own_agent()
    names = [f"s{i}" for i in range(24)]
    for name in names:
        warm(api, name)
    assert len(shells(process)) <= len(names) + 16
    wait_until(lambda: len(shells(process)) == len(names), "the shells alone")
