# SPDX-License-Identifier: Apache-2.0
"""A real sandbox whose agent is a liar (lying_agent.c): it is given up, and nobody else notices (catalogue area 6)."""
import concurrent.futures
import os
import shutil
import subprocess

import pytest
import silica
from silica import wait_for
from tracer import gateway_pid

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture(scope="module")
def liar(tmp_path_factory):
    """A daemon all of whose sandboxes have the liar for an agent; without LIE it is an honest one."""
    if not shutil.which("musl-gcc"):
        pytest.skip("needs musl-gcc")
    program = str(tmp_path_factory.mktemp("liar") / "agent")
    subprocess.run(["musl-gcc", "-std=gnu17", "-D_GNU_SOURCE", "-O1", "-static", "-I", f"{silica.ROOT}/src",
                    f"{HERE}/lying_agent.c", "-o", program], check=True)
    d = silica.Daemon("liar", pool=0, args=["--agent-silence", "1s", "--agent", program])
    d.start()
    assert create(d, "honest").status == 201
    yield d
    d.cleanup()


def create(d, name, lie=None):
    return d.request("PUT", f"/v1/sandbox/{name}", {"keepAlive": True, "env": {"LIE": lie} if lie else {}})


def ping(d, name, timeout=60):
    return d.request("GET", f"/v1/sandbox/{name}/api/ping", timeout=timeout)


def state(d, name):
    return d.request("GET", f"/v1/sandbox/{name}").json["state"]


def memory(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS:"))


@pytest.fixture
def unharmed(liar):
    """Neither of the daemon's processes dies, grows or keeps descriptors, and a neighbour is served."""
    def files():
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]

    pids = [liar.proc.pid, gateway_pid(liar)]
    ping(liar, "honest")
    before, descriptors = [memory(pid) for pid in pids], files()
    yield
    assert ping(liar, "honest").body == b"ok"
    assert [liar.proc.pid, gateway_pid(liar)] == pids and liar.proc.poll() is None
    assert all(memory(pid) - b < 32 << 20 for pid, b in zip(pids, before))
    wait_for(lambda: all(now <= then + 2 for now, then in zip(files(), descriptors)), what="no descriptor is left")


@pytest.mark.parametrize("lie", ["control-short", "control-huge", "control-unknown", "control-descriptors", "control-flood",
                                 "control-place-flood", "control-exit-flood"])
def test_AGT_06_lies_on_the_keepers_line(liar, unharmed, lie):
    """Wrong lengths, unknown messages, descriptors nobody asked for, floods: the line is cut and the sandbox ended."""
    r = create(liar, lie, lie)
    assert r.status in (201, 502), r.body
    wait_for(lambda: state(liar, lie) != "running", what="the sandbox is given up")
    assert ping(liar, "honest").body == b"ok"
    liar.destroy(lie)


@pytest.mark.parametrize("lie", ["http-garbage", "http-lengths", "http-huge-head", "http-flood"])
def test_AGT_06_answers_that_are_none(liar, unharmed, lie):
    create(liar, lie, lie)
    for _ in range(20):
        r = ping(liar, lie)
        assert r.status == 502 and r.json["code"] == "SANDBOX_UNAVAILABLE", r.body
    liar.destroy(lie)


def test_AGT_06_answers_to_nobody(liar, unharmed):
    create(liar, "nobody", "http-nobody")
    for _ in range(20):
        r = ping(liar, "nobody")
        assert r.status == 200 and r.body == b"ok", "each caller gets the one answer that is his"
    liar.destroy("nobody")


def test_AGT_06_an_agent_that_takes_no_connections(liar, unharmed):
    """Its queue is full at once: that is its own callers' trouble, the keeper does not wait in it."""
    create(liar, "deaf", "http-deaf")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(ping, liar, "deaf") for _ in range(8)]
        assert ping(liar, "honest", timeout=5).body == b"ok"
        assert {w.result().status for w in waiting} == {502}
    liar.destroy("deaf")


def test_AGT_08_one_byte_per_second(liar, unharmed):
    """Not silent, but it answers nothing in time, pings included: given up after the silence that is allowed."""
    create(liar, "slow", "http-drip")
    r = ping(liar, "slow")
    assert r.status == 502 and r.json["code"] == "SANDBOX_UNAVAILABLE", r.body
    liar.destroy("slow")
