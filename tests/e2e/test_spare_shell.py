# SPDX-License-Identifier: Apache-2.0
"""A prepared sandbox has a shell running; who gets the sandbox finds it as good as a new one."""
import os

from silica import sandbox_processes, wait_for


def shells(daemon):
    """Host pids of all shells in the daemon's sandboxes."""
    found = set()
    for pid in sandbox_processes(daemon):
        try:
            with open(f"/proc/{pid}/cmdline") as f:
                if f.read() == "bash\0--norc\0":
                    found.add(pid)
        except OSError:
            pass  # it has ended
    return found


def prepared(daemon):
    wait_for(lambda: len(daemon.slots()) == 1 and shells(daemon), what="a prepared sandbox with a shell")
    return shells(daemon)


def inside(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(line.split()[-1] for line in f if line.startswith("NSpid"))


def age(pid):
    with open(f"/proc/{pid}/stat") as stat, open("/proc/uptime") as uptime:
        began = int(stat.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
        return float(uptime.read().split()[0]) - began


def test_the_first_session_takes_it(daemon_factory):
    d = daemon_factory("spare", pool=1)
    d.start()
    (shell,) = prepared(d)
    number = inside(shell)
    wait_for(lambda: age(shell) > 6, what="a shell that is a while old")
    mine, seconds, line = d.out("first", "echo $$ $SECONDS $LINENO; X=kept").split()
    assert (mine, line) == (number, "2")
    assert int(seconds) < 5  # the clock was set anew
    assert d.out("first", "echo $X $$") == f"kept {number}"
    assert shell in shells(d)
    d.destroy("first")
    wait_for(lambda: shell not in shells(d), what="the end of the shell")


def test_a_sandbox_with_variables_of_its_own_gets_a_new_one(daemon_factory):
    d = daemon_factory("spare-env", pool=1)
    d.start()
    old = prepared(d)
    assert d.request("PUT", "/v1/sandbox/env", {"env": {"COLOUR": "blue"}}).status == 201
    assert d.out("env", "echo $COLOUR $LINENO") == "blue 2"
    wait_for(lambda: not old & shells(d), what="the end of the shell that was not wanted")
    d.destroy("env")


def test_a_session_with_a_directory_of_its_own_gets_a_new_one(daemon_factory):
    d = daemon_factory("spare-cwd", pool=1)
    d.start()
    old = prepared(d)
    body = {"id": "elsewhere", "cwd": "/tmp", "env": {"COLOUR": "red"}}
    assert d.request("POST", "/v1/sandbox/cwd/api/session/create", body).status == 200
    assert d.out("cwd", "echo $COLOUR $PWD", sessionId="elsewhere") == "red /tmp"
    assert d.out("cwd", "echo [$COLOUR] $PWD") == "[] /workspace"
    wait_for(lambda: not old & shells(d), what="the end of the shell that was not wanted")
    d.destroy("cwd")


def test_an_idle_sandbox_does_not_keep_it(daemon_factory):
    d = daemon_factory("spare-idle", pool=1)
    d.start()
    old = prepared(d)
    assert d.request("PUT", "/v1/sandbox/idle", {}).status == 201
    wait_for(lambda: not old & shells(d), what="the end of the shell that nobody uses")
    assert d.out("idle", "echo here") == "here"
    d.destroy("idle")


def test_who_replaces_bash_gets_that_from_the_next_session_on(daemon_factory):
    """The image's shell of sessions is a build of its own; it does not stand in for somebody else's bash."""
    program = "readlink /proc/$$/exe; cat /proc/$$/comm"
    d = daemon_factory("spare-bash", pool=1)
    d.start()
    prepared(d)
    assert d.out("own", program) == "/usr/bin/bash-static\nbash"
    d.out("own", "cp /bin/bash /bin/bash.new && mv /bin/bash.new /bin/bash")  # the same, but of today
    assert d.request("POST", "/v1/sandbox/own/api/session/create", {"id": "later"}).status == 200
    assert d.out("own", program, sessionId="later") == "/usr/bin/bash\nbash"
    assert d.out("own", program) == "/usr/bin/bash-static\nbash"
    assert d.request("POST", "/v1/sandbox/own/sleep").status == 200
    assert d.out("own", program) == "/usr/bin/bash\nbash"  # woken into a sandbox whose shell waits already
    d.destroy("own")
