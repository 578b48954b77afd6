# SPDX-License-Identifier: Apache-2.0
"""The environment of a sandbox: image -> sandbox -> session -> export -> command, through the gateway, over sleep and restart."""
import json
import os
import shlex
import sys

import pytest
import silica

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "protocol"))
from terminal import Terminal

SESSIONLESS = "__DISABLE_SESSION__"


def image_environment():
    with open(silica.IMAGES + "/base/env") as f:
        return dict(line.rstrip("\n").split("=", 1) for line in f if "=" in line)


def typed(daemon, box, script, sessionId="default", env=None):
    """What a program prints in a new terminal of the session; one command's variables are typed in front of it."""
    before = "".join(f"{name}={shlex.quote(value)} " for name, value in (env or {}).items())
    path = f"/v1/sandbox/{box}/ws/pty?sessionId={sessionId}"
    with Terminal(("127.0.0.1", daemon.port), path, headers={"Authorization": f"Bearer {silica.TOKEN}"}) as t:
        out = t.ready().ask(before + script)
        t.leave()
        return out


def seen(daemon, box, names, **fields):
    """The variables as programs see them, by every way to run one."""
    script = "python3 -c 'import json, os, sys; print(json.dumps([os.environ.get(n) for n in sys.argv[1:]]))' " + " ".join(names)
    api = f"/v1/sandbox/{box}/api"
    found = [daemon.out(box, script, **fields)]
    stream = daemon.request("POST", f"{api}/execute/stream", {"command": script, **fields})
    events = [json.loads(line[6:]) for line in stream.body.split(b"\n") if line.startswith(b"data: ")]
    found.append("".join(e["data"] for e in events if e["type"] == "stdout"))
    started = daemon.request("POST", f"{api}/process/start", {"command": script, **fields})
    assert started.status == 200, started.body
    name = started.json["processId"]
    daemon.request("GET", f"{api}/process/{name}/stream")  # until its end
    found.append(daemon.request("GET", f"{api}/process/{name}/logs").json["stdout"])
    found.append(typed(daemon, box, script, **fields))
    values = [json.loads(text) for text in found]
    assert all(v == values[0] for v in values), values
    return values[0]


@pytest.fixture
def made(daemon, box):
    def make(**config):
        r = daemon.request("PUT", f"/v1/sandbox/{box}", config)
        assert r.status == 201, r.body
        return box

    return make


def test_the_image_s_environment(daemon, box):
    image = image_environment()
    for name, value in image.items():
        if name not in ("LANG", "LC_ALL"):  # a session's own
            assert seen(daemon, box, [name]) == [value]
        assert seen(daemon, box, [name], sessionId=SESSIONLESS) == [value]


def test_the_sandbox_s_environment(daemon, made):
    box = made(env={"FROM": "sandbox", "TEXT": "it's $HOME \"x\"\nüñ", "EMPTY": ""})
    for fields in ({}, {"sessionId": "other"}, {"sessionId": SESSIONLESS}):
        assert seen(daemon, box, ["FROM", "TEXT", "EMPTY"], **fields) == ["sandbox", "it's $HOME \"x\"\nüñ", ""]


def test_every_layer_wins_over_the_ones_below(daemon, made):
    image = image_environment()
    name = next(n for n in image if n not in ("LANG", "LC_ALL", "HOME", "PATH")) if set(image) - {"LANG", "LC_ALL", "HOME", "PATH"} else "HOME"
    box = made(env={name: "/tmp"})
    assert seen(daemon, box, [name]) == ["/tmp"] and image[name] != "/tmp"
    session = f"/v1/sandbox/{box}/api/session/create"
    assert daemon.request("POST", session, {"id": "s", "env": {name: "/etc"}}).status == 200
    assert seen(daemon, box, [name], sessionId="s") == ["/etc"]
    daemon.out(box, f"export {name}=/usr", sessionId="s")
    assert seen(daemon, box, [name], sessionId="s") == ["/usr"]
    assert seen(daemon, box, [name], sessionId="s", env={name: "/var"}) == ["/var"]
    assert seen(daemon, box, [name], sessionId="s") == ["/usr"]
    assert seen(daemon, box, [name]) == ["/tmp"]
    assert seen(daemon, box, [name], sessionId=SESSIONLESS, env={name: "/var"}) == ["/var"]


def test_settings_of_the_agent_come_the_same_way(daemon, made):
    box = made(env={"SANDBOX_VERSION": "7.7", "COMMAND_TIMEOUT_MS": "300", "SILICA_LOG_LIMIT": "4M"})
    api = f"/v1/sandbox/{box}/api"
    assert daemon.request("GET", f"{api}/version").json["version"] == "7.7"
    assert daemon.request("POST", f"{api}/execute", {"command": "sleep 1"}).status == 500
    daemon.request("POST", f"{api}/process/start", {"command": "head -c 9000000 /dev/zero | tr '\\0' x; echo", "processId": "p"})
    daemon.request("GET", f"{api}/process/p/stream")
    logs = daemon.request("GET", f"{api}/process/p/logs").json
    assert logs["dropped"] == 9000001 - (4 << 20) and len(logs["stdout"]) == 4 << 20


def test_one_sandbox_s_environment_is_not_another_s(daemon, made):
    box = made(env={"SECRET": "mine"})
    assert seen(daemon, box, ["SECRET"]) == ["mine"]
    assert daemon.out("neighbour-of-secret", "env | grep -c SECRET || true") == "0"
    daemon.destroy("neighbour-of-secret")
    log = daemon.log()
    assert "mine" not in [word for line in log.splitlines() for word in line.split()]


def test_the_host_s_environment_stays_outside(daemon, box):
    names = daemon.out(box, "env -0 | tr '\\0\\n' '\\n ' | cut -d= -f1").split("\n")
    known = set(image_environment()) | {"PWD", "OLDPWD", "SHLVL", "_", "LANG", "LC_ALL", "HOME", "USER", "SHELL", "PATH", "HOSTNAME", "TERM"}
    unexpected = {n for n in names if n and n not in known and not n.startswith("SANDBOX_")}
    assert not unexpected & set(os.environ), unexpected


def test_resume_of_a_stream_through_the_gateway(daemon, box):
    """Last-Event-ID and the query reach the agent; a repeated POST goes on instead of running again."""
    path = f"/v1/sandbox/{box}/api/execute/stream"
    body = {"command": "echo run >> /tmp/runs; for i in 1 2 3 4 5; do echo $i; done"}
    first = daemon.request("POST", path + "?ids=1", body).body.decode().split("\n\n")
    ids = [block.split("id: ")[1] for block in first if block]
    assert len(ids) == 7  # start, five lines, complete
    rest = daemon.request("POST", path, body, headers={"Last-Event-ID": ids[2]}).body.decode()
    data = [json.loads(line[6:])["data"] for line in rest.split("\n") if line.startswith('data: {"type":"stdout"')]
    assert data == ["3\n", "4\n", "5\n"]
    assert daemon.request("POST", path, body, headers={"Last-Event-ID": ids[-1]}).status == 204
    assert daemon.out(box, "cat /tmp/runs") == "run"
