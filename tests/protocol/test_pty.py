# SPDX-License-Identifier: Apache-2.0
"""Terminals (/ws/pty): a real shell on a real pty, shared, replayed, resized, and its end."""
import hashlib
import json
import os
import threading

import pytest
from conftest import alive, wait_until
from terminal import Terminal
from websocket import Closed, Refused, WebSocket


@pytest.fixture
def terminal(api, session):
    with Terminal.open(api, session) as t:
        yield t.ready()


def test_ready_then_output(api, session):
    with Terminal.open(api, session) as t:
        t.ready()
        assert t.controls == [{"type": "ready"}]
        assert t.ask("echo $((6*7))") == "42"


def test_session_id_is_required(api):
    for path in ("/ws/pty", "/ws/pty?sessionId=", "/ws/pty?cols=80"):
        with pytest.raises(Refused) as refused:
            WebSocket.of(api, path)
        assert refused.value.status == 400 and refused.value.body == b"sessionId query parameter required"


def test_a_real_terminal(terminal):
    assert terminal.ask("[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo yes") == "yes"
    assert terminal.ask("tty").startswith("/dev/pts/")
    assert terminal.ask("echo $TERM; stty size") == "xterm-256color\n24 80"
    # its own session and controlling terminal, and job control works
    assert terminal.ask("ps -o sid= -p $$ | tr -d ' '") == terminal.ask("echo $$")
    assert terminal.ask("ps -o tty= -p $$").startswith("pts/")
    assert terminal.ask("set -o | grep monitor | tr -s ' \\t' ' '") == "monitor on"
    assert terminal.ask("ls /proc/$$/fd | sort -n | head -3 | tr '\\n' ' '") == "0 1 2"


def test_keys_and_interrupt(terminal):
    terminal.type("bash -c 'stty -echo; echo arm\"\"ed; exec cat'\n")
    terminal.until(b"armed")
    terminal.type("κόσμε\n")
    terminal.until("κόσμε\r\n".encode())
    terminal.type("\x03")
    terminal.type("echo code-$?; stty echo\n")
    terminal.until(b"code-130")


def test_sizes(api, session):
    with Terminal.open(api, session, "&cols=101&rows=33") as t:
        t.ready()
        assert t.ask("stty size") == "33 101"
        t.type("bash -c 'trap \"echo caught-\"\"winch; exit\" WINCH; echo arm\"\"ed; while :; do sleep 0.02; done'\n")
        t.until(b"armed")
        t.send_json({"type": "resize", "cols": 120, "rows": 40})
        t.until(b"caught-winch")
        assert t.ask("stty size") == "40 120"
        t.send_json({"type": "resize", "cols": 0, "rows": 40})
        assert t.until_control("error")["message"] == "Invalid dimensions: cols and rows must be positive"
        t.controls.clear()
        t.send("{nonsense")
        assert t.until_control("error")["message"] == "Invalid control message"
        t.send_json({"type": "dance"})
        assert t.ask("stty size") == "40 120"


def test_strange_sizes_are_defaults(api, session):
    with Terminal.open(api, session, "&cols=abc&rows=-3") as t:
        assert t.ready().ask("stty size") == "24 80"


def test_environment_and_directory_of_the_session(api, session):
    api.run("cd /usr/share; export FROM_SESSION=$'a\\nb c'; plain=1", session)
    with Terminal.open(api, session) as t:
        t.ready()
        assert t.ask("pwd") == "/usr/share"
        assert t.ask('printf "<%s>" "$FROM_SESSION" "$plain" "$PROMPT_COMMAND"') == "<a\nb c><><>"
        t.ask("cd /; export FROM_SESSION=changed")
        assert api.out("pwd; echo $FROM_SESSION", session).split() == ["/usr/share", "a", "b", "c"]
        assert t.ask("echo $FROM_SESSION") == "changed"


def test_directory_that_is_gone(api, session, directory):
    api.run(f"mkdir {directory}/d; cd {directory}/d; rmdir {directory}/d", session)
    with Terminal.open(api, session) as t:
        t.ready()
        assert t.ask("echo alive") == "alive"


def test_other_shells(api, session):
    with Terminal.open(api, session, "&shell=sh") as t:
        assert t.ready().ask("echo $0") == "sh"


def test_shell_that_does_not_exist(api, session):
    with Terminal.open(api, session, "&shell=no-such-shell") as t:
        message = t.until_control("error")["message"]
        assert "no-such-shell" in message
        with pytest.raises(Closed) as closed:
            t.step()
        assert closed.value.code == 1011 and closed.value.reason == message
    with Terminal.open(api, session) as t:  # the failure has left nothing behind
        assert t.ready().ask("echo ok") == "ok"


def test_waits_for_a_running_command(api, session, directory):
    gate = f"{directory}/gate"
    api.run(f"mkfifo {gate}", sessionId="__DISABLE_SESSION__")
    command = threading.Thread(target=lambda: api.run(f"export LATE=1; cat {gate}", session))
    command.start()
    busy = f"pgrep -f 'cat {gate}$'"
    wait_until(lambda: api.run(busy, sessionId="__DISABLE_SESSION__")["exitCode"] == 0, "the command runs")
    with Terminal.open(api, session) as t:
        t.type("echo typed-''early\n")  # before ready: kept
        api.run(f"echo > {gate}", sessionId="__DISABLE_SESSION__")
        t.ready()
        t.until(b"typed-early")
        assert t.ask("echo $LATE") == "1"
    command.join()


def test_exit_is_told(api, session):
    with Terminal.open(api, session) as one, Terminal.open(api, session) as two:
        one.ready(), two.ready()
        one.type("echo last-''words; exit 7\n")
        for t in (one, two):
            assert t.until_control("exit") == {"type": "exit", "code": 7}
            assert b"last-words" in t.output
            with pytest.raises(Closed) as closed:
                t.step()
            assert closed.value.code == 1000
    with Terminal.open(api, session) as t:  # the next one gets a new shell
        assert t.ready().ask("echo new") == "new" and b"last-words" not in t.output


def test_all_output_before_the_exit(api, session):
    with Terminal.open(api, session) as t:
        t.ready()
        t.type("exec seq 1 200000\n")
        assert t.until_control("exit")["code"] == 0
        lines = t.output.split(b"\x1b[?2004l")[-1].split()
        assert lines == [b"%d" % i for i in range(1, 200001)]


def test_exit_while_others_hold_the_terminal(api, session):
    with Terminal.open(api, session) as t:
        t.ready()
        t.type("(trap '' HUP; exec sleep 30) & disown; exit 3\n")
        assert t.until_control("exit")["code"] == 3


def test_several_clients(api, session):
    with Terminal.open(api, session) as one, Terminal.open(api, session, "&cols=200") as two:
        one.ready(), two.ready()
        one.type("echo from-''one\n")
        two.until(b"from-one")
        two.type("echo from-''two\n")
        one.until(b"from-two")
        assert two.ask("stty size") == "24 80"  # the first decides, then the last resize
        two.send_json({"type": "resize", "cols": 90, "rows": 30})
        assert two.ask("stty size") == "30 90"


def test_reconnect_gets_the_replay_first(api, session):
    with Terminal.open(api, session) as t:
        t.ready()
        pid = t.ask("kept=value; echo $$")
    with Terminal.open(api, session) as t:
        first = t.receive()
        assert isinstance(first, bytes) and pid.encode() in first
        assert json.loads(t.receive()) == {"type": "ready"}
        assert t.ask("echo $kept $$") == f"value {pid}"


def test_replay_is_bounded(api, session):
    with Terminal.open(api, session) as t:
        t.ready()
        t.type("seq 1 200000; echo all-''done\n")
        t.until(b"all-done")
        assert b"\n1000\r\n" in t.output
    with Terminal.open(api, session) as t:
        first = t.receive()
        assert len(first) == 256 * 1024 and b"\r\n200000\r\nall-done" in first


def test_it_runs_on_without_clients(api, session, directory):
    with Terminal.open(api, session) as t:
        t.ready()
        t.type(f"while [ ! -e {directory}/go ]; do sleep 0.02; done; seq 1 100000 | tail -1; touch {directory}/done\n")
        t.until(b"touch")  # the shell has echoed, so it has read
    api.run(f"touch {directory}/go", sessionId="__DISABLE_SESSION__")
    wait_until(lambda: api.run(f"test -e {directory}/done", sessionId="__DISABLE_SESSION__")["exitCode"] == 0, "it goes on")
    with Terminal.open(api, session) as t:
        t.until(b"\r100000\r\n")


def test_deleting_the_session_ends_it(api, session):
    with Terminal.open(api, session) as t:
        t.ready()
        pid = t.ask("sleep 1000 & echo $$")
        assert api.post("/api/session/delete", {"sessionId": session}).status == 200
        assert t.until_control("exit")["code"] == 137
        with pytest.raises(Closed) as closed:
            t.step()
        assert closed.value.code == 1000
    assert api.run(f"ps -o pid= -s {pid.split()[-1]}", sessionId="__DISABLE_SESSION__")["stdout"] == ""


def test_death_of_the_sessions_shell_ends_it(api, session):
    with Terminal.open(api, session) as t:
        t.ready()
        api.execute("exit 5", session)
        assert t.until_control("exit")["code"] == 129


def test_slow_reader(api, session, other_session):
    """A client that stops reading stops its own program, costs bounded memory, and disturbs nobody (WS-10)."""
    with Terminal.open(api, session, receive_buffer=8192) as stuck, Terminal.open(api, other_session) as fine:
        stuck.ready(), fine.ready()
        pid = stuck.ask("echo $$")
        stuck.type("exec 2>/dev/null; cat /dev/zero | tr '\\0' x\n")

        def blocked():
            state = api.out(f"ps -o stat=,wchan= -s {pid} | grep -c write", sessionId="__DISABLE_SESSION__")
            return state.strip() not in ("", "0")

        wait_until(blocked, "the program waits for its reader")
        for i in range(10):
            assert fine.ask(f"echo {i}") == str(i)
        # a second reader moves it on; the one that does not read is sent away
        with Terminal.open(api, session) as reader:
            reader.ready()
            while len(reader.output) < 3 << 20:
                reader.step()
        code = None
        try:
            while True:
                stuck.step()
        except Closed as closed:
            code = closed.code
        assert code == 1013
    api.post("/api/session/delete", {"sessionId": other_session})


def test_much_input(api, session, directory):
    with Terminal.open(api, session) as t:
        t.ready()
        shell = t.ask("echo $$")
        t.ask("stty raw -echo")
        t.type(f"head -c 2000000 | md5sum > {directory}/sum; stty sane\n")
        wait_until(lambda: "head" in api.out(f"ps -o comm= -s {shell}", sessionId="__DISABLE_SESSION__"), "head runs")
        data = os.urandom(1 << 16) * 31
        sent = data[:2000000]
        for at in range(0, len(sent), 100000):
            t.send(sent[at:at + 100000])
        wait_until(lambda: hashlib.md5(sent).hexdigest() in api.out(f"cat {directory}/sum", sessionId="__DISABLE_SESSION__"), "all arrived")


def test_open_and_leave_many_times(api, session):
    for _ in range(30):
        Terminal.open(api, session).drop()
    with Terminal.open(api, session) as t:
        assert t.ready().ask("echo still") == "still"


def test_no_terminal_is_left_after_shutdown(own_agent):
    process, api = own_agent()
    t = Terminal.open(api, "s").ready()
    pid = int(t.ask("echo $$").split()[-1])
    process.terminate()
    process.wait(timeout=60)
    assert not alive(pid)
