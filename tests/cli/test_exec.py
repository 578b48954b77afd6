# SPDX-License-Identifier: Apache-2.0
"""silica exec: live output, exit codes, what is sent, what is said when it fails."""
import os
import shlex
import signal
import subprocess
import threading

import pytest

from conftest import DEADLINE, read_until


def complete(fake, exit_code=0, **outputs):
    @fake.execute()
    def script(h, r):
        h.events()
        h.event(type="start", command=r.json["command"], timestamp="T")
        for name, data in outputs.items():
            h.event(type=name, data=data, timestamp="T")
        h.event(type="complete", exitCode=exit_code, timestamp="T")
        h.end()


def test_output_is_live(fake, silica):
    seen = threading.Event()

    @fake.execute()
    def script(h, r):
        h.events()
        h.event(type="stdout", data="first\n")
        assert seen.wait(DEADLINE)
        h.event(type="stderr", data="second\n")
        h.event(type="complete", exitCode=0)
        h.end()

    p = silica.start("exec", "demo", "--", "x")
    assert read_until(p.stdout.fileno(), b"first\n") == b"first\n"
    assert p.poll() is None
    seen.set()
    assert read_until(p.stderr.fileno(), b"second\n") == b"second\n"
    assert p.wait(DEADLINE) == 0


def test_partial_lines_and_split_events(fake, silica):
    @fake.execute()
    def script(h, r):
        h.events()
        for byte in b'data: {"type":"stdout","data":"pro\\u00e4mpt> "}\r\n\r\n: ping\n\n':
            h.chunk(bytes([byte]))
        h.chunk(b'data: {"type":"stdout","data":"\\u0000x"}\n\ndata: {"type":"complete","exitCode":0}\n\n')
        h.end()

    r = silica.run("exec", "demo", "x")
    assert (r.returncode, r.stdout, r.stderr) == (0, "pro\u00e4mpt> \0x".encode(), b"")


@pytest.mark.parametrize("code", [0, 1, 42, 127, 137, 255])
def test_exit_code_is_passed_on(fake, silica, code):
    complete(fake, code, stdout="out\n", stderr="err\n")
    r = silica.run("exec", "demo", "--", "x")
    assert (r.returncode, r.stdout, r.stderr) == (code, b"out\n", b"err\n")


def test_request(fake, silica):
    complete(fake)
    words = ["exec", "-e", "A=1", "demo", "--env=B=x=y z", "--cwd", "/tmp", "-s", "build", "--timeout", "1m30s", "--"]
    assert silica.run(*words, "cd /workspace && ls").returncode == 0
    (request,) = fake.requests
    assert request.headers["Accept"] == "text/event-stream"
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers.get_all("Host") == [f"127.0.0.1:{fake.port}"]
    assert request.json == {"command": "cd /workspace && ls", "sessionId": "build", "cwd": "/tmp", "timeoutMs": 90000,
                            "env": {"A": "1", "B": "x=y z"}}


def test_default_session_is_the_servers(fake, silica):
    complete(fake)
    silica.run("exec", "demo", "--", "true")
    assert fake.requests[0].json == {"command": "true"}


@pytest.mark.parametrize("words", [
    ["--", "ls", "-la", "/a b"],
    ["ls", "-la", "/a b"],
    ["echo", "it's", "$HOME", "", "*"],
    ["--", "sh", "-c", "echo -- --help"],
    ["printf", "%s", "--", "-e"],
])
def test_words_are_quoted(fake, silica, words):
    complete(fake)
    assert silica.run("exec", "demo", *words).returncode == 0
    meant = words[1:] if words[0] == "--" else words
    assert shlex.split(fake.requests[0].json["command"]) == meant


def test_one_word_is_shell_text(fake, silica):
    complete(fake)
    silica.run("exec", "demo", "--", "echo $HOME | wc -c; exit 3")
    assert fake.requests[0].json["command"] == "echo $HOME | wc -c; exit 3"


def test_id_is_encoded(fake, silica):
    silica.run("exec", "a/../b", "--", "x")
    assert fake.requests[0].path == "/v1/sandbox/a%2F..%2Fb/api/execute"


def test_json_answer_instead_of_events(fake, silica):
    @fake.execute()
    def script(h, r):
        h.json({"success": False, "exitCode": 3, "stdout": "a\nb", "stderr": "oops", "command": "x"})

    r = silica.run("exec", "demo", "x")
    assert (r.returncode, r.stdout, r.stderr) == (3, b"a\nb\n", b"oops\n")


def test_json_answer_without_output(fake, silica):
    fake.answer("POST", "/v1/sandbox/demo/api/execute", {"exitCode": 0, "stdout": "", "stderr": ""})
    r = silica.run("exec", "demo", "x")
    assert (r.returncode, r.stdout, r.stderr) == (0, b"", b"")


def test_json_flag(fake, silica):
    answer = {"success": False, "exitCode": 4, "stdout": "hi", "stderr": ""}
    fake.answer("POST", "/v1/sandbox/demo/api/execute", answer)
    r = silica.run("exec", "--json", "demo", "x")
    assert r.returncode == 4
    assert __import__("json").loads(r.stdout) == answer
    assert fake.requests[0].headers["Accept"] == "application/json"


TERMINATED = {"code": "SESSION_TERMINATED", "message": "the shell ended"}


def test_shell_exit_in_stream(fake, silica):
    @fake.execute()
    def script(h, r):
        h.events()
        h.event(type="stdout", data="bye\n")
        h.event(type="error", exitCode=7, **TERMINATED)
        h.end()

    r = silica.run("exec", "demo", "--", "echo bye; exit 7")
    assert (r.returncode, r.stdout, r.stderr) == (7, b"bye\n", b"")
    code, shown = silica.terminal("exec", "demo", "--", "echo bye; exit 7")
    assert code == 7
    assert "the shell of the session ended with exit code 7" in shown


def test_shell_exit_as_envelope(fake, silica):
    fake.answer("POST", "/v1/sandbox/demo/api/execute",
                {**TERMINATED, "context": {"sessionId": "default", "exitCode": 9}, "httpStatus": 410}, 410)
    r = silica.run("exec", "demo", "--", "exit 9")
    assert (r.returncode, r.stderr) == (9, b"")


def test_shell_killed_without_exit_code(fake, silica):
    fake.answer("POST", "/v1/sandbox/demo/api/execute", {**TERMINATED, "context": {"exitCode": None}}, 410)
    r = silica.run("exec", "demo", "--", "x")
    assert (r.returncode, r.stderr) == (125, b"silica exec: the shell ended\n")


def test_timeout(fake, silica):
    error = {"code": "COMMAND_EXECUTION_ERROR", "message": "Failed to execute command 'x': Command timeout after 50ms"}
    fake.answer("POST", "/v1/sandbox/demo/api/execute", error, 500)
    r = silica.run("exec", "--timeout", "50ms", "demo", "x")
    assert r.returncode == 124
    assert b"Command timeout after 50ms" in r.stderr
    assert silica.run("exec", "demo", "x").returncode == 125  # the session's own timeout, not ours


def test_error_envelope_with_advice(fake, silica):
    fake.answer("POST", "/v1/sandbox/demo/api/execute",
                {"code": "HOST_FULL", "message": "no room \x1b[31m", "suggestion": "remove one"}, 507)
    r = silica.run("exec", "demo", "x")
    assert (r.returncode, r.stderr) == (125, b"silica exec: no room ?[31m\nremove one\n")


@pytest.mark.parametrize("body,sentence", [
    (b"<html>", b"the answer is not JSON"),
    (b"", b"the answer is not JSON"),
    (b'{"stdout":"x"}', b"did not tell the exit code"),
    (b'{"exitCode":"0"}', b"did not tell the exit code"),
])
def test_strange_answers(fake, silica, body, sentence):
    fake.execute()(lambda h, r: h.raw(body, "application/json"))
    r = silica.run("exec", "demo", "x")
    assert r.returncode == 125
    assert sentence in r.stderr


def test_stream_without_end_is_an_error(fake, silica):
    @fake.execute()
    def script(h, r):
        h.events()
        h.event(type="stdout", data="some\n")
        h.end()

    r = silica.run("exec", "demo", "x")
    assert (r.returncode, r.stdout) == (125, b"some\n")
    assert b"ended before the command did" in r.stderr


def test_connection_lost_in_the_middle(fake, silica):
    @fake.execute()
    def script(h, r):
        h.events()
        h.event(type="stdout", data="some\n")
        h.close_connection = True

    r = silica.run("exec", "demo", "x")
    assert (r.returncode, r.stdout) == (125, b"some\n")
    assert b"closed the connection before its answer was complete" in r.stderr


def test_a_command_is_never_sent_twice(fake, silica):
    @fake.execute()
    def script(h, r):
        h.close_connection = True

    assert silica.run("exec", "demo", "x").returncode == 125
    assert len(fake.requests) == 1


def test_complete_without_exit_code(fake, silica):
    @fake.execute()
    def script(h, r):
        h.events()
        h.event(type="complete")
        h.end()

    r = silica.run("exec", "demo", "x")
    assert r.returncode == 125
    assert b"did not tell the exit code" in r.stderr


def test_large_output_is_complete(fake, silica):
    line = "x" * 1000 + "\n"

    @fake.execute()
    def script(h, r):
        h.events()
        for _ in range(3000):
            h.event(type="stdout", data=line)
        h.event(type="complete", exitCode=0)
        h.end()

    r = silica.run("exec", "demo", "x")
    assert (r.returncode, r.stdout) == (0, line.encode() * 3000)


def test_interrupt_ends_silica_only(fake, silica):
    started, over = threading.Event(), threading.Event()

    @fake.execute()
    def script(h, r):
        h.events()
        h.event(type="stdout", data="begin\n")
        started.set()
        over.wait(DEADLINE)

    try:
        p = silica.start("exec", "demo", "x", stdout=subprocess.PIPE,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        read_until(p.stdout.fileno(), b"begin\n")
        p.send_signal(signal.SIGINT)
        assert p.wait(DEADLINE) == -signal.SIGINT  # which a shell shows as 130
    finally:
        over.set()


def test_reader_gone_is_quiet(fake, silica):
    @fake.execute()
    def script(h, r):
        h.events()
        try:
            while True:
                h.event(type="stdout", data="y\n" * 1000)
        except OSError:
            h.close_connection = True

    p = silica.start("exec", "demo", "yes", preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
    read_until(p.stdout.fileno(), b"y\n")
    p.stdout.close()
    assert p.wait(DEADLINE) == -signal.SIGPIPE
    assert p.stderr.read() == b""


@pytest.mark.parametrize("words,sentence", [
    ([], "the id of the sandbox is missing"),
    (["demo"], "the command is missing"),
    (["demo", "--"], "the command is missing"),
    (["", "x"], "the id of the sandbox is missing"),
    (["--timout", "1s", "demo", "x"], "unknown option '--timout' (did you mean '--timeout'?)"),
    (["--timeout", "soon", "demo", "x"], "--timeout: 'soon' is not a duration"),
    (["--timeout", "0", "demo", "x"], "--timeout: must be more than 0"),
    (["-e", "A", "demo", "x"], "-e: 'A' has no value"),
    (["-e", "A-B=1", "demo", "x"], "-e: 'A-B' cannot be the name of a variable"),
    (["demo", "-e"], "option '-e' needs a value (NAME=VALUE)"),
    (["--json=1", "demo", "x"], "option '--json' takes no value"),
])
def test_wrong_command_lines(fake, silica, words, sentence):
    r = silica.run("exec", *words)
    assert r.returncode == 125
    assert r.stderr.decode().startswith(f"silica exec: {sentence}")
    assert r.stderr.decode().endswith("\nTry 'silica help exec'.\n")
    assert not fake.requests


def test_full_disk_is_an_error(fake, silica):
    complete(fake, stdout="x\n")
    with open("/dev/full", "wb") as full:
        p = silica.start("exec", "demo", "x", stdout=full)
        _, err = p.communicate(timeout=DEADLINE)
    assert p.returncode == 125
    assert err == b"silica exec: cannot write the output: No space left on device\n"
