# SPDX-License-Identifier: Apache-2.0
"""execute/stream: events, nothing lost, bounded memory, nothing comes back from the child."""
import time

import pytest
from conftest import text_of, wait_until

SESSIONLESS = "__DISABLE_SESSION__"


def test_event_shapes(api, session):
    events = api.stream("echo out; echo err >&2", session)
    assert [e["type"] for e in events][0] == "start"
    assert events[0]["command"] == "echo out; echo err >&2"
    assert sorted(e["type"] for e in events[1:-1]) == ["stderr", "stdout"]
    assert events[-1]["type"] == "complete"
    assert all(e["timestamp"].endswith("Z") for e in events)


@pytest.mark.parametrize("name", [None, SESSIONLESS], ids=["session", "sessionless"])
@pytest.mark.parametrize("command, code", [("exit 3", 3), ("false", 1), ("true", 0), ("kill -9 $BASHPID", 137)])
def test_exit_codes(api, session, name, command, code):
    assert api.stream(command, name or session)[-1]["exitCode"] == code


def test_syntax_error(api, session):
    api.run("X=1", session)
    events = api.stream("if then", session)
    assert text_of(events, "stderr") and events[-1]["exitCode"] == 2
    assert api.out("echo $X", session) == "1"


def test_bad_cwd(api, session):
    events = api.stream("echo no", session, cwd="/nope")
    assert text_of(events, "stderr") == "Failed to change directory to '/nope'\n"
    assert text_of(events) == "" and events[-1]["exitCode"] == 1


@pytest.mark.parametrize(
    "written, lines",
    [("a\\nb\\n", ["a\n", "b\n"]), ("a", ["a\n"]), ("\\n\\n", ["\n", "\n"]), ("a\\n\\nb", ["a\n", "\n", "b\n"]), ("", [])],
)
def test_lines(api, session, written, lines):
    events = api.stream(f"printf '{written}'", session)
    assert [e["data"] for e in events if e["type"] == "stdout"] == lines


def test_partial_lines_wait_for_their_end(api, session):
    events = api.stream("printf a; sleep 0.2; printf 'b\\n'", session)
    assert [e["data"] for e in events if e["type"] == "stdout"] == ["ab\n"]


def test_nothing_is_lost(api, session):
    events = api.stream("seq 1 50000", session)
    assert text_of(events) == "".join(f"{i}\n" for i in range(1, 50001))


def test_a_line_of_three_megabytes(api, session):
    events = api.stream("head -c 3000000 /dev/zero | tr '\\0' x", session)
    assert text_of(events) == "x" * 3000000 + "\n"


def test_invalid_utf8_and_nul(api, session):
    assert text_of(api.stream("printf 'a\\0b\\xff\\n'", session)) == "ab\ufffd\n"


def test_characters_survive_long_lines(api, session):
    events = api.stream("for i in {1..60000}; do printf 'x€'; done", session)
    assert text_of(events) == "x€" * 60000 + "\n"


def test_the_child_sees_the_session(api, session):
    api.run("cd /etc; V=shell; f(){ echo $V; }", session)
    assert text_of(api.stream("f; pwd", session)) == "shell\n/etc\n"


def test_nothing_comes_back(api, session):
    api.run("cd /tmp; V=1", session)
    api.stream("cd /etc; V=2; export W=3", session)
    assert api.out("echo $PWD $V ${W-unset}", session) == "/tmp 1 unset"


def test_cwd_and_env(api, session):
    events = api.stream("pwd; echo $A", session, cwd="/etc", env={"A": "it's"})
    assert text_of(events) == "/etc\nit's\n"
    assert api.out("echo ${A-unset}", session) == "unset"


def test_signals_are_not_ignored(api, session):
    assert "0000000000000000" in text_of(api.stream("grep SigIgn /proc/self/status", session))


def test_jobs_of_the_session_are_untouched(api, session):
    api.run("sleep 60 & first=$!", session)
    api.stream("true", session)
    assert api.out('[ "$!" = "$first" ] && jobs | wc -l', session) == "1"


def test_children_have_three_descriptors(api, session):
    assert text_of(api.stream("ls /proc/self/fd", session)).split() == ["0", "1", "2", "3"]


def test_a_running_stream_does_not_hold_the_lock(api, session):
    events = api.events("POST", "/api/execute/stream", {"command": "sleep 60", "sessionId": session})
    assert next(events)[1]["type"] == "start"
    begin = time.monotonic()
    assert api.out("echo free", session) == "free"
    assert time.monotonic() - begin < 30
    events.close()


def test_descendants_do_not_delay_completion(api, session):
    begin = time.monotonic()
    events = api.stream("(sleep 60; echo late) & echo hi", session)
    assert text_of(events) == "hi\n" and time.monotonic() - begin < 30


def test_the_command_survives_its_listener(api, session, directory):
    events = api.events(
        "POST", "/api/execute/stream", {"command": f"sleep 0.3; echo x; touch {directory}/x", "sessionId": session}
    )
    next(events)
    events.close()
    wait_until(lambda: "x" in api.out(f"ls {directory}", SESSIONLESS), "the file")


def test_sessionless_chunks_are_raw(api):
    assert text_of(api.stream("printf 'a\\0b'", SESSIONLESS)) == "a\0b"


def test_sessionless_characters_are_not_torn(api):
    assert text_of(api.stream("printf '\\xe2'; sleep 0.2; printf '\\x82\\xac'", SESSIONLESS)) == "€"


def test_sessionless_bad_cwd(api):
    response = api.post("/api/execute/stream", {"command": "true", "sessionId": SESSIONLESS, "cwd": "/nope"})
    assert response.status == 500 and response.json["code"] == "STREAM_START_ERROR"


def test_timeout_is_ignored(api, session):
    assert api.stream("sleep 0.3; echo done", session, timeoutMs=50)[-1]["exitCode"] == 0


def test_blank_command(api, session):
    response = api.post("/api/execute/stream", {"command": " \n", "sessionId": session})
    assert response.status == 400 and response.json["code"] == "INVALID_COMMAND"


def test_bad_variable_name(api, session):
    response = api.post("/api/execute/stream", {"command": "true", "sessionId": session, "env": {"a-b": "1"}})
    assert response.status == 500 and response.json["code"] == "STREAM_START_ERROR"


def test_a_slow_reader_slows_the_command(api, session, directory):
    command = f"head -c 60000000 /dev/zero | tr '\\0' x; touch {directory}/done"
    connection, response = api.open("POST", "/api/execute/stream", {"command": command, "sessionId": session})
    response.read(1000)
    time.sleep(0.7)  # far longer than 60 MB need
    assert api.out(f"ls {directory}", SESSIONLESS) == ""
    total = sum(len(chunk) for chunk in iter(lambda: response.read(1 << 20), b""))
    connection.close()
    assert total > 60000000


def test_a_deleted_session_ends_its_streams(api, session):
    events = api.events("POST", "/api/execute/stream", {"command": "sleep 30", "sessionId": session})
    assert next(events)[1]["type"] == "start"
    api.post("/api/session/delete", {"sessionId": session})
    assert list(events)[-1][1]["exitCode"] == 137


def test_streams_of_a_dead_shell_go_on(api, session):
    events = api.events("POST", "/api/execute/stream", {"command": "sleep 0.4; echo end", "sessionId": session})
    assert next(events)[1]["type"] == "start"
    assert api.execute("exit 1", session).status == 410
    rest = [e for _, e in events]
    assert text_of(rest) == "end\n" and rest[-1]["exitCode"] == 0


@pytest.mark.parametrize("length", [300, 100000])
def test_long_texts(api, session, length):
    text = "y'" * (length // 2)
    assert text_of(api.stream(f'cat <<"EOF" | wc -c\n{text}\nEOF', session)) == f"{length + 1}\n"
