# SPDX-License-Identifier: Apache-2.0
"""One environment made of layers: image -> session -> export -> command, the same for every way to run something."""
import json
import os
import shlex
import signal

import pytest
from conftest import start_agent, text_of
from interpreter import prepare
from terminal import Terminal

SESSIONLESS = "__DISABLE_SESSION__"
VALUES = ["", "a b", "it's", '"q" $HOME `id` \\', "line\nbreak", "tab\tü€🎉", "=x=", "-n", "x" * 5000]


def by_execute(api, script, session, env):
    return api.run(script, session, env=env)["stdout"]


def by_live_execute(api, script, session, env):
    body = {"command": script, "sessionId": session, "env": env}
    events = [e for _, e in api.events("POST", "/api/execute", body, headers={"Accept": "text/event-stream"})]
    return text_of(events).removesuffix("\n")


def by_stream(api, script, session, env):
    return text_of(api.stream(script, session, env=env)).removesuffix("\n")


def by_process(api, script, session, env):
    name = api.start(script, session, env=env)["processId"]
    return text_of(api.wait_process(name)).removesuffix("\n")


def by_background(api, script, session, env):
    name = api.run(script, session, env=env, background=True)["processId"]
    return text_of(api.wait_process(name)).removesuffix("\n")


def by_terminal(api, script, session, env):
    """A new shell on a terminal; what is one command's there is typed in front of it."""
    typed = "".join(f"{name}={shlex.quote(value)} " for name, value in (env or {}).items() if value is not None)
    with Terminal.open(api, session) as t:
        out = t.ready().ask(typed + script)
        t.leave()
        return out


WAYS = [by_execute, by_live_execute, by_stream, by_process, by_background]
EVERY_WAY = [*WAYS, by_terminal]


@pytest.fixture(scope="module")
def agent():
    """One whose own environment, which stands for the image's, is known."""
    if os.environ.get("SILICA_BASE_URL"):
        pytest.skip("needs an agent of its own")
    process, api = start_agent(environment={"IMAGE": "image", "LAYERED": "image", "LC_ALL": "POSIX"})
    yield api
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert b"Sanitizer" not in errors, errors.decode()


# The layers that are set, and what must be seen; each layer says its own name.
LAYERS = [
    ((), "image"),
    (("session",), "session"),
    (("export",), "export"),
    (("command",), "command"),
    (("session", "export"), "export"),
    (("session", "command"), "command"),
    (("export", "command"), "command"),
    (("session", "export", "command"), "command"),
]


@pytest.mark.parametrize("way", EVERY_WAY, ids=lambda w: w.__name__)
@pytest.mark.parametrize("layers, expected", LAYERS, ids=lambda v: "+".join(v) if isinstance(v, tuple) else "")
def test_the_later_layer_wins(agent, session, way, layers, expected):
    agent.post("/api/session/create", {"id": session, "env": {"LAYERED": "session"} if "session" in layers else {}})
    if "export" in layers:
        agent.run("export LAYERED=export", session)
    env = {"LAYERED": "command"} if "command" in layers else None
    # seen by a program, not only by the shell
    assert way(agent, "printenv LAYERED IMAGE", session, env) == f"{expected}\nimage"
    # and gone afterwards
    before = "export" if "export" in layers else "session" if "session" in layers else "image"
    assert agent.out("printenv LAYERED", session) == before
    agent.post("/api/session/delete", {"sessionId": session})


@pytest.mark.parametrize("way", EVERY_WAY, ids=lambda w: w.__name__)
def test_sessionless(agent, way):
    assert way(agent, "printenv LAYERED IMAGE", SESSIONLESS, None).rstrip("\n") == "image\nimage"
    assert way(agent, "printenv LAYERED IMAGE", SESSIONLESS, {"LAYERED": "command"}).rstrip("\n") == "command\nimage"


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
@pytest.mark.parametrize("session", ["values", SESSIONLESS])
@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.__name__)
def test_values_are_literal(agent, way, session, value):
    script = "python3 -c 'import json, os; print(json.dumps([os.environ[\"V\"], os.environ[\"W\"]]))'"
    assert json.loads(way(agent, script, session, {"V": value, "W": value + value})) == [value, value + value]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_values_of_a_session_are_literal(agent, session, value):
    agent.post("/api/session/create", {"id": session, "env": {"V": value}})
    script = "python3 -c 'import json, os; print(json.dumps(os.environ[\"V\"]))'"
    for way in EVERY_WAY:
        assert json.loads(way(agent, script, session, None)) == value
    agent.post("/api/session/delete", {"sessionId": session})


@pytest.mark.parametrize("way", EVERY_WAY, ids=lambda w: w.__name__)
@pytest.mark.parametrize("session", ["nulls", SESSIONLESS])
def test_null_neither_sets_nor_unsets(agent, way, session):
    out = way(agent, "printenv IMAGE; printenv NEW || echo unset", session, {"IMAGE": None, "NEW": None, "1-bad": None})
    assert out.rstrip("\n") == "image\nunset"


def test_what_set_env_vars_of_the_client_sends(agent, session):
    """export KEY='value' and unset KEY, as internal commands."""
    agent.run("export A='it'\\''s'", session, origin="internal")
    for way in EVERY_WAY:
        assert way(agent, "printenv A", session, None) == "it's"
    agent.run("unset A", session, origin="internal")
    for way in EVERY_WAY:
        assert way(agent, "printenv A || echo unset", session, None) == "unset"


def test_unexported_variables_are_the_shell_s_only(agent, session):
    agent.run("PLAIN=1", session)
    for way in WAYS:
        assert way(agent, "echo $PLAIN; printenv PLAIN || echo unset", session, None) == "1\nunset"
    assert by_terminal(agent, "echo -${PLAIN-unset}", session, None) == "-unset"  # a program of its own


def test_the_locale_of_sessions_wins_over_all_but_the_command(agent, session):
    agent.post("/api/session/create", {"id": session, "env": {"LC_ALL": "C"}})
    for way in WAYS:
        assert way(agent, "echo $LC_ALL", session, None) == "C.UTF-8"
        assert way(agent, "echo $LC_ALL", session, {"LC_ALL": "C"}) == "C"
        assert way(agent, "echo $LC_ALL", SESSIONLESS, None).rstrip("\n") == "POSIX"
    assert by_terminal(agent, "printenv LC_ALL", session, None) == "C.UTF-8"
    assert by_terminal(agent, "printenv LC_ALL", session, {"LC_ALL": "C"}) == "C"
    assert by_terminal(agent, "printenv LC_ALL", SESSIONLESS, None) == "POSIX"
    agent.post("/api/session/delete", {"sessionId": session})


def test_nothing_else_is_added(agent, session):
    """What a program of a session sees beyond the agent's environment: the locale, and what bash itself exports."""
    names = set(agent.out("env -0 | tr '\\0\\n' '\\n ' | cut -d= -f1", session).split("\n"))
    known = set(os.environ) | {"IMAGE", "LAYERED", "LC_ALL", "LANG", "_", "SHLVL", "PWD", "OLDPWD"}
    assert names <= known | {""}, names - known


@pytest.mark.parametrize("language, code", [
    ("python", "import os; print(os.environ.get('LAYERED'), os.environ.get('IMAGE'))"),
    ("javascript", "console.log(process.env.LAYERED, process.env.IMAGE)"),
])
def test_code_contexts(own_agent, tmp_path, language, code):
    _, api = own_agent(environment={"IMAGE": "image", "LAYERED": "image", **prepare(tmp_path)})
    for env, expected in ((None, "image image\n"), ({"LAYERED": "context"}, "context image\n"), ({"LAYERED": None}, "image image\n")):
        body = {"language": language, "cwd": str(tmp_path)}
        made = api.post("/api/contexts", body if env is None else {**body, "env_vars": env})
        assert made.status == 200, made.body
        run = {"context_id": made.json["contextId"], "code": code}
        events = [e for _, e in api.events("POST", "/api/execute/code", run)]
        assert "".join(e["text"] for e in events if e["type"] == "stdout") == expected, events
