# SPDX-License-Identifier: Apache-2.0
"""kill -9 at every step of a removal, a wake-up, a save, an adoption and a write of the gateway (REC-03); the steps of a creation are in
test_hygiene.py. And a newer or older daemon that takes over what runs (REC-17)."""
import http.client
import os
import shutil
import signal

import pytest
import silica
from silica import clean, mounts, sandbox_processes, wait_for


def ask(d, method, path, body=None):
    """The status, or None when the daemon died before it answered."""
    try:
        return d.request(method, path, body).status
    except (OSError, http.client.HTTPException):
        return None


def died(d):
    assert d.proc.wait(60) == -signal.SIGKILL
    wait_for(lambda: not d.port_open(), what="the gateway's end")


def crash(d, where, method, path, body=None):
    """A daemon that dies there while it does this; then one that does not."""
    d.start(env={"SILICA_CRASH": where})
    status = ask(d, method, path, body)
    if status is not None:
        return status
    died(d)
    d.start()
    return None


def remove_and_look(d, name):
    assert ask(d, "DELETE", f"/v1/sandbox/{name}") == 200
    wait_for(lambda: clean(d), what="a clean host")


@pytest.mark.parametrize("step", range(4))
def test_REC_03_removal(daemon_factory, step):
    """Behind the first step it is gone for good, before it nothing has happened; either way nothing is left over."""
    d = daemon_factory("rec03r", pool=0).start()
    before = mounts()
    d.out("x", "echo kept > /workspace/f; sync")
    d.stop(signal.SIGTERM)
    assert crash(d, f"end:{step}", "DELETE", "/v1/sandbox/x") is None
    if step == 0:
        assert d.out("x", "cat /workspace/f") == "kept"
    else:
        wait_for(lambda: not d.disks() and not d.slots(), what="the sweep at the start")
        assert d.out("x", "ls /workspace; echo new") == "new", "the id is as good as new"
    remove_and_look(d, "x")
    assert mounts() == before


@pytest.mark.parametrize("step", ["start:3", "berth:5", "start:7", "start:11"])
def test_REC_03_wake_up(daemon_factory, step):
    """A sleeping sandbox keeps its files, wherever its start is interrupted (attach, clone, root, record)."""
    d = daemon_factory("rec03w", pool=0).start()
    d.out("x", "echo kept > /workspace/f")
    d.stop()
    assert crash(d, step, "POST", "/v1/sandbox/x/api/execute", {"command": "true"}) is None
    wait_for(lambda: len(d.disks()) == 1 and not d.leftovers(), what="the sweep at the start")
    assert d.out("x", "cat /workspace/f") == "kept"
    remove_and_look(d, "x")


def test_REC_03_save(daemon_factory):
    """At every message of the image worker: afterwards the image is whole or not there, the sandbox goes on, and no part lies about."""
    d = daemon_factory("rec03s", pool=0).start()
    d.out("x", "echo saved > /opt/f")
    d.stop(signal.SIGTERM)
    step = 0
    while crash(d, f"image:{step}", "POST", "/v1/images/save", {"sandbox": "x", "name": "saved:1"}) is None:
        assert d.out("x", "cat /opt/f") == "saved", "it is not left standing still"
        wait_for(lambda: not os.listdir(d.data + "/staging"), what=f"no part is left of step {step}")
        listed = [i for i in d.request("GET", "/v1/images").json["images"] if "saved:1" in i.get("names", [])]
        if listed:
            assert ask(d, "PUT", "/v1/sandbox/y", {"image": "saved:1"}) == 201
            assert d.out("y", "cat /opt/f") == "saved"
            d.destroy("y")
        d.stop(signal.SIGTERM)
        step += 1
        assert step < 20
    assert step >= 3, "layer, image and name are steps of their own"
    assert ask(d, "PUT", "/v1/sandbox/y", {"image": "saved:1"}) == 201
    assert d.out("y", "cat /opt/f") == "saved"


@pytest.mark.parametrize("step", range(2))
def test_REC_03_adoption(daemon_factory, step):
    """The new daemon dies while it takes over: the next one does."""
    d = daemon_factory("rec03a", pool=0).start()
    shell = d.out("x", "A=7; echo $$")
    d.stop(signal.SIGTERM)
    d.start(env={"SILICA_CRASH": f"adopt:{step}"}, wait=False)
    died(d)
    d.start()
    assert d.out("x", "echo $$ $A") == f"{shell} 7"
    remove_and_look(d, "x")


@pytest.mark.parametrize("step", range(2))
def test_REC_03_expose(daemon_factory, step):
    """The gateway dies before or behind the write: the port is exposed or not, and asking again makes it so."""
    d = daemon_factory("rec03e", pool=0, args=["--preview-domain", "localhost"]).start()
    d.out("x", "true")
    d.stop(signal.SIGTERM)
    d.start(env={"SILICA_CRASH": f"store:{step}"})
    assert ask(d, "POST", "/v1/sandbox/x/ports", {"port": 8080}) is None
    d.kill()
    d.start()
    exposed = [p["port"] for p in d.request("GET", "/v1/sandbox/x/ports").json["ports"]]
    assert exposed == ([8080] if step else [])
    assert ask(d, "POST", "/v1/sandbox/x/ports", {"port": 8080}) in (200, 201)
    assert [p["port"] for p in d.request("GET", "/v1/sandbox/x/ports").json["ports"]] == [8080]


def other_build():
    """A second build of the daemon: the release beside the agent, or whatever SILICA_OTHER_BIN names."""
    path = os.environ.get("SILICA_OTHER_BIN", os.path.join(os.path.dirname(silica.AGENT), "silica"))
    if not os.path.exists(path):
        pytest.skip(f"needs a second build of the daemon ({path})")
    return path


def test_REC_17_upgrade_in_place(daemon_factory, tmp_path, monkeypatch):
    """Another build with another agent takes over and gives back: what runs goes on with the agent it has, what is new gets the new one."""
    agents = [str(tmp_path / f"agent-{i}") for i in range(2)]
    for i, path in enumerate(agents):
        shutil.copy(silica.AGENT, path)
        with open(path, "ab") as f:
            f.write(bytes(i))  # tells them apart by their size
    builds = [(silica.BIN, agents[0]), (other_build(), agents[1]), (silica.BIN, agents[0])]
    d = daemon_factory("rec17", pool=1)
    shells = {}
    for i, (program, agent) in enumerate(builds):
        monkeypatch.setattr(silica, "BIN", program)
        monkeypatch.setattr(silica, "AGENT", agent)
        d.start()
        for name, shell in shells.items():
            assert d.out(name, "echo $$ $A; cat /workspace/f") == f"{shell} {name}\n{name}"
            assert d.request("POST", f"/v1/sandbox/{name}/api/write", {"path": "/workspace/f", "content": name + "\n"}).status == 200
        shells[f"s{i}"] = d.out(f"s{i}", f"A=s{i}; echo s{i} > /workspace/f; echo $$")
        d.stop(signal.SIGTERM)
    sizes = sorted({os.stat(f"/proc/{pid}/exe").st_size for pid in sandbox_processes(d) if first(pid)})
    assert len(sizes) == 2 and sizes[1] == sizes[0] + 1, "both agents run"
    d.start()
    for name in shells:
        d.destroy(name)


def first(pid):
    try:
        with open(f"/proc/{pid}/status") as f:
            return next(line for line in f if line.startswith("NSpid")).split()[-1] == "1"
    except OSError:
        return False
