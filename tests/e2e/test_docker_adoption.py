# SPDX-License-Identifier: Apache-2.0
"""Containers outlive whoever made them, and whoever keeps them."""
import os
import signal

from engine import Engine, sidecar_call, through, wait_status
from silica import wait_for
from tracer import gateway_pid


def answers(engine):
    try:
        return engine.call("GET", "/_ping").status == 200
    except OSError:
        return False


def check_adopted(engine, port, secret):
    """What a restarted workerd does."""
    assert engine.status("kept") == "running"
    assert engine.host_port("kept-proxy") == port
    assert sidecar_call(port, "PUT", "/egress", {"port": 4711}).status == 204
    assert sidecar_call(port, "GET", "/ca").body == secret
    assert through(port, 3000, "POST", "/api/read", {"path": "/tmp/mark"}).json["content"] == "x"
    assert engine.inspect("ended")["State"]["ExitCode"] == 42 and engine.status("ended") == "exited"
    assert engine.status("created") == "created"


def test_7_adoption(daemon_factory):
    daemon = daemon_factory("adopt").start()
    engine = Engine(daemon)
    port = engine.pair("kept")
    engine.start("kept")
    engine.create("created")
    engine.run("ended", "/bin/sh", "-c", "exit 42")
    assert engine.wait("ended").result().json == {"StatusCode": 42}
    through(port, 3000, "POST", "/api/write", {"path": "/tmp/mark", "content": "x"})
    secret = sidecar_call(port, "GET", "/ca").body

    # the gateway dies
    old = gateway_pid(daemon)
    os.kill(old, signal.SIGKILL)
    wait_for(lambda: gateway_pid(daemon) != old and answers(engine), what="a new gateway")
    check_adopted(engine, port, secret)

    # the keeper dies, and with it the gateway
    daemon.kill()
    daemon.start()
    wait_for(lambda: answers(engine), what="the engine")
    check_adopted(engine, port, secret)

    # the code of a container that was adopted, and so is nobody's child
    waiting = engine.wait("kept")
    assert engine.call("POST", "/containers/kept/kill?signal=SIGTERM").status == 204
    assert waiting.result().json == {"StatusCode": 0}
    engine.run("late", "/bin/sh", "-c", "while test ! -e /tmp/go; do sleep 0.05; done; exit 23")
    daemon.kill()
    daemon.start()
    wait_for(lambda: answers(engine), what="the engine")
    waiting = engine.wait("late")
    eid = engine.call("POST", "/containers/late/exec", {"Cmd": ["touch", "/tmp/go"]}).json["Id"]
    assert engine.call("POST", f"/exec/{eid}/start", {"Detach": True}).status == 200
    assert waiting.result().json == {"StatusCode": 23}
    for name in ("kept", "kept-proxy", "created", "ended", "late"):
        engine.remove(name)


def test_end_while_the_gateway_is_away(daemon_factory):
    daemon = daemon_factory("away").start()
    engine = Engine(daemon)
    engine.run("short", "/bin/sh", "-c", "sleep 0.3; exit 9")
    os.kill(gateway_pid(daemon), signal.SIGKILL)
    wait_for(lambda: answers(engine), what="a new gateway")
    wait_status(engine, "short", "exited")
    assert engine.inspect("short")["State"]["ExitCode"] == 9
    engine.remove("short")


def test_removal_survives(daemon_factory):
    daemon = daemon_factory("removal").start()
    engine = Engine(daemon)
    engine.run("gone", "sleep", "1000")
    engine.remove("gone")
    daemon.kill()
    daemon.start()
    wait_for(lambda: answers(engine), what="the engine")
    assert engine.inspect("gone") is None
    assert engine.call("GET", "/containers/json?all=1").json == []
    wait_for(lambda: len([d for d in daemon.disks() if d.endswith(".img")]) <= daemon.pool, what="the end of its disk")
