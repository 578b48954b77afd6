# SPDX-License-Identifier: Apache-2.0
"""Foreground commands: output, directory and variables, texts that break wrappers, the shell's death, time limits, order."""
import json
import os
import threading
import time

import pytest
from conftest import meet, text_of, wait_until

SESSIONLESS = "__DISABLE_SESSION__"


def until(path):
    """A piece of a script: it waits for a file."""
    return f"while [ ! -e {path} ]; do sleep 0.02; done"


# ------------------------------------------------------------------ output


@pytest.mark.parametrize(
    "written, expected",
    [
        ("a\\n", "a"),
        ("a", "a"),
        ("a\\n\\nb\\n\\n", "a\n\nb\n"),
        ("\\n", ""),
        ("a\\r\\n", "a\r"),
        ("", ""),
        ("a\\n\\0", "a"),
        ("\\t\\001\\033[1m", "\t\x01\x1b[1m"),
        ('"q" \\\\ /', '"q" \\ /'),
        ("\\xe2\\x82\\xac", "€"),
        ("\\xe2\\x82", "\ufffd"),
        ("\\xe2\\x82x\\xc0\\xaf", "\ufffdx\ufffd\ufffd"),
        ("\\xed\\xa0\\x80", "\ufffd\ufffd\ufffd"),
        ("\\xf0\\x9f\\x8e\\x89", "🎉"),
    ],
)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_table(api, session, written, expected, stream):
    redirect = " >&2" if stream == "stderr" else ""
    result = api.run(f"printf '{written}'{redirect}", session)
    assert result[stream] == expected
    assert result["stderr" if stream == "stdout" else "stdout"] == ""


def test_answer_members(api, session):
    result = api.run("echo hi", session)
    timestamp, duration = result.pop("timestamp"), result.pop("duration")
    assert timestamp.endswith("Z") and len(timestamp) == 24
    assert isinstance(duration, int) and duration >= 0
    assert result == {
        "success": True,
        "exitCode": 0,
        "stdout": "hi",
        "stderr": "",
        "command": "echo hi",
        "sessionId": session,
    }


@pytest.mark.parametrize("fields", [{}, {"sessionId": SESSIONLESS}])
def test_duration_is_what_the_command_took(api, fields):
    begun = time.monotonic()
    result = api.post("/api/execute", {"command": "sleep 0.3", **fields}).json
    assert 300 <= result["duration"] <= (time.monotonic() - begun) * 1000 + 1


def test_session_id_is_omitted_when_none_was_given(api):
    assert "sessionId" not in api.run("true")


@pytest.mark.parametrize("size", [4095, 65535, 65536, 65537, 262144, 262145, 1000000])
def test_sizes_around_buffers(api, session, size):
    result = api.run(f"head -c {size} /dev/zero | tr '\\0' y; printf e >&2", session)
    assert len(result["stdout"]) == size and result["stderr"] == "e"


def test_characters_are_not_torn_in_large_output(api, session):
    result = api.run("for i in {1..60000}; do printf 'x€'; done", session)
    assert result["stdout"] == "x€" * 60000


def test_large_output_on_both_streams(api, session):
    result = api.run("seq 1 100000; seq 1 100000 >&2", session)
    expected = "\n".join(str(i) for i in range(1, 100001))
    assert result["stdout"] == expected and result["stderr"] == expected


def test_late_output_of_a_background_child_is_not_mixed_into_the_next_command(api, session, directory):
    assert api.out(f"({until(directory + '/go')}; echo late; touch {directory}/done) & echo now", session) == "now"
    assert api.out(f"touch {directory}/go; {until(directory + '/done')}; echo next", session) == "next"


def test_a_background_child_survives_the_loss_of_its_listener(api, session, directory):
    api.run(f"(sleep 0.2; echo late; echo late; touch {directory}/done) & true", session)
    wait_until(lambda: "done" in api.out(f"ls {directory}", SESSIONLESS), "the child")


def test_returns_as_soon_as_the_foreground_part_is_over(api, session):
    begin = time.monotonic()
    assert api.out("sleep 60 & echo hi", session) == "hi"
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize("slow", ["sleep 0.1", "sleep 60 &", "x=$(sleep 0.1)"])
def test_lines_are_counted_alike_however_long_a_command_takes(api, session, other_session, slow):
    """What is over at once and leaves nothing behind is handed to bash with a line less than the rest."""
    def lines(where, before):
        for command in before:
            api.run(command, where)
        return api.out("echo $LINENO", where)

    quick = "x=$(:)" if "$(" in slow else "true"  # texts with a substitution are handed over in another way
    assert lines(session, [quick, quick, "true"]) == lines(other_session, [slow, slow, "true"])


def test_many_children_that_keep_the_output_open(api, session):
    for _ in range(80):
        assert api.out("sleep 60 & echo x", session) == "x"


# ------------------------------------------------------------------ the shell


def test_options_of_the_shell(api, session):
    assert api.out("echo $-", session) == "hBs"
    assert api.out("echo $0", session) == "bash"


def test_children_have_three_descriptors(api, session):
    assert api.out("ls /proc/self/fd", session).split() == ["0", "1", "2", "3"]


def test_locale_is_forced(api, session):
    api.post("/api/session/create", {"id": session, "env": {"LANG": "de_DE", "LC_ALL": "C", "X": "1"}})
    assert api.out("echo $LANG $LC_ALL $X", session) == "C.UTF-8 C.UTF-8 1"


def test_stdin_is_empty(api, session):
    assert api.run("cat", session)["exitCode"] == 0
    assert api.run("read x", session)["exitCode"] == 1


def test_there_is_no_terminal(api, session):
    assert api.run("[ -t 0 ] || [ -t 1 ] || [ -t 2 ]; ", session)["exitCode"] == 1
    assert api.run("echo x > /dev/tty", session)["exitCode"] != 0


def test_nothing_leaks_into_the_namespace(api, session):
    listing = "compgen -v; compgen -A function; compgen -a; trap"
    plain = set(api.out(f"bash --norc -c '{listing}'", session).split())
    api.run("true", session, cwd="/tmp", env={"A": "1"})
    here = set(api.out(listing, session).split())
    assert here - plain <= {"PIPESTATUS", "OLDPWD", "BASH_EXECUTION_STRING"}


def test_unset_variables_stay_unset_after_cwd(api, session):
    api.run("unset OLDPWD", session)
    api.run("true", session, cwd="/tmp")
    assert api.out("echo ${OLDPWD-unset}", session) == "unset"


@pytest.mark.parametrize(
    "before, command, expected",
    [
        ("umask 077", "umask", "0077"),
        ("shopt -s nullglob", "echo /nope*x", ""),
        ("set -o pipefail", "false | true; echo $?", "1"),
        ("set -C; : > /dev/null", "echo $-", "hBCs"),
        ("alias hi='echo aliased'; shopt -s expand_aliases", "hi", "aliased"),
        ("arr=(1 2 3)", "echo ${arr[1]}", "2"),
        ("sleep 0.1 &", "wait $!; echo waited", "waited"),
        ("ulimit -c 0", "ulimit -c", "0"),
        ("IFS=0", "echo ok", "ok"),
        ("cd /tmp; cd /etc", "echo $OLDPWD", "/tmp"),
    ],
)
def test_state_persists(api, session, before, command, expected):
    api.run(before, session)
    assert api.out(command, session) == expected


@pytest.mark.parametrize(
    "place",
    ["mkdir 0 3", "mkdir d e; touch 0 3; ln -s d e0", "touch 0 3; set -C", "ln -s /tmp 3; ln -s nowhere 0", "mkfifo 0 3",
     "rmdir $PWD", "IFS=03", "BASH_ARGV0='x: 7/: y'", "BASH_ARGV0='0/: '"],
)
def test_the_status_is_told_wherever_the_shell_is(api, session, directory, place):
    """bash tells it by a file that cannot be made, under a name that has the status in it."""
    api.run(f"cd {directory}", session)
    assert api.run(place, session)["exitCode"] == 0
    assert api.run("true", session)["exitCode"] == 0
    assert api.run("(exit 3)", session)["exitCode"] == 3
    assert api.run("sleep 0.1; (exit 3)", session)["exitCode"] == 3
    assert api.run("echo $A; (exit 3)", session, cwd="/", env={"A": "a"})["exitCode"] == 3


def test_descriptors_persist(api, session, directory):
    api.run(f"exec 5>{directory}/five", session)
    api.run("echo five >&5", session)
    assert api.out(f"exec 5>&-; cat {directory}/five", session) == "five"


def test_exit_trap_survives_and_runs(api, session, directory):
    api.run(f"trap 'echo bye > {directory}/bye' EXIT", session)
    api.run("true", session)
    assert api.execute("exit 0", session).status == 410
    assert api.out(f"cat {directory}/bye", SESSIONLESS) == "bye\n"


def test_xtrace_shows_the_command_only(api, session):
    api.run("set -x", session)
    trace = api.run("echo a", session, cwd="/", env={"A": "1"})["stderr"]
    assert [line.lstrip("+") for line in trace.splitlines()] == [" echo a"]


@pytest.mark.parametrize(
    "definition",
    [
        "echo(){ :; }; printf(){ :; }; test(){ false; }",
        "eval(){ :; }",
        "builtin(){ :; }",
        "builtin(){ return 1; }",
        "command(){ :; }",
        "cd(){ :; }; export(){ :; }; unset(){ :; }; declare(){ :; }",
        "enable -n echo printf test",
        "shopt -s expand_aliases; alias eval=false builtin=false echo=false",
        ":(){ false; }; true(){ false; }",
        "trap 'true' DEBUG; trap 'true' ERR",
        "PS4='$(false) '; set -x",
        "BASH_ARGV0=other",
        "PATH=/nonexistent",
        "exec 2>/dev/null",
        "set -o posix",
        "set -v",
    ],
)
def test_redefinitions_do_not_break_the_end(api, session, definition):
    assert api.run(definition, session)["exitCode"] == 0
    result = api.run("(exit 5)", session)
    assert result["exitCode"] == 5
    assert api.run("pwd", session, cwd="/etc", env={"A": "1"})["stdout"].endswith("/etc")


# ------------------------------------------------------------------ exit codes


@pytest.mark.parametrize(
    "command, code",
    [
        ("true", 0),
        ("", 0),
        ("   \n\t", 0),
        ("# only a comment", 0),
        ("echo x # comment", 0),
        ("(exit 255)", 255),
        ("sh -c 'kill -9 $$'", 137),
        ("nosuchcommand", 127),
        ("/etc/passwd", 126),
        ("false | true", 0),
        ("! true", 1),
        ("return 3", 2),
        ("false; true", 0),
    ],
)
def test_exit_codes(api, session, command, code):
    assert api.run(command, session)["exitCode"] == code


# ------------------------------------------------------------------ texts


@pytest.mark.parametrize(
    "command, stdout, code",
    [
        ("echo a \\", "a", 0),
        ("echo 'unterminated", "", 2),
        ('echo "unterminated', "", 2),
        ("echo $(unterminated", "", 2),
        ("echo $(if then)", "", 2),
        ("echo $(echo $(if then))", "", 2),
        ("cat <(if then)", "", 2),
        ("echo $(echo ok; echo ok2)", "ok ok2", 0),
        ("cat <(echo ok)", "ok", 0),
        ("echo \"$(cat <<EOF\nit's\nEOF\n)\"", "it's", 0),
        ("echo '$(' ; (exit 4)", "$(", 4),
        ("echo `unterminated", "", 2),
        ("cat <<EOF\nno end", "", 2),
        ("if then", "", 2),
        ("for x in 1", "", 2),
        ("}", "", 2),
        (")", "", 2),
        ("echo a; }; echo b; {", "", 2),
        ("cat <<EOF\nyes\nEOF", "yes", 0),
        ("cat <<'EOF'\n$x `y` \\z '\nEOF", "$x `y` \\z '", 0),
        ("echo \"it's\"", "it's", 0),
        ("echo 'a'\\''b'", "a'b", 0),
        ("echo a\n\n\necho b\n", "a\nb", 0),
        ("f() {\n echo f\n}\nf", "f", 0),
        ("echo a &&\necho b", "a\nb", 0),
        ("echo ü 🎉", "ü 🎉", 0),
        ("echo $((1/0)); echo no", "", 1),
        ("echo ${a b}", "", 1),
        ("break", "", 0),
        ("case x in x) echo y;; esac", "y", 0),
    ],
)
@pytest.mark.parametrize("wrapped", [{}, {"cwd": "/tmp", "env": {"A": "1"}}], ids=["plain", "wrapped"])
def test_texts(api, session, command, stdout, code, wrapped):
    before = api.out("pwd", session)
    result = api.run(command, session, **wrapped)
    assert (result["stdout"], result["exitCode"]) == (stdout, code)
    if code == 2:
        assert result["stderr"]
    assert api.out("echo $PWD${A-}", session) == before


@pytest.mark.parametrize("length", [200, 256, 258, 5000, 70000, 1000000])
def test_long_texts(api, session, length):
    text = "x'" * (length // 2)
    assert api.out(f'cat <<"EOF" | wc -c\n{text}\nEOF', session) == str(length + 1)


def test_a_long_line_break_free_command(api, session):
    assert api.run("echo " + "a" * 200000 + " | wc -c", session)["stdout"] == "200001"


# ------------------------------------------------------------------ cwd and env


def test_cwd_ignores_a_cd_in_the_command(api, session):
    before = api.out("pwd", session)
    assert api.out("cd /usr; pwd", session, cwd="/etc") == "/usr"
    assert api.out("pwd", session) == before


def test_cwd_keeps_the_logical_directory(api, session, directory):
    api.run(f"mkdir {directory}/real; ln -s real {directory}/link; cd {directory}/link", session)
    api.run("true", session, cwd="/etc")
    assert api.out("pwd", session) == f"{directory}/link"
    api.run("cd /", session)


def test_bad_cwd_runs_nothing(api, session, directory):
    result = api.run(f"touch {directory}/x", session, cwd="/no/such 'dir'")
    assert (result["exitCode"], result["stdout"]) == (1, "")
    assert result["stderr"] == "Failed to change directory to '/no/such 'dir''"
    assert api.out(f"ls {directory}", session) == ""


def test_cwd_is_not_expanded(api, session):
    assert api.run("true", session, cwd="~")["exitCode"] == 1
    assert api.run("true", session, cwd="$HOME")["exitCode"] == 1


def test_cwd_is_relative_to_the_shell(api, session, directory):
    api.run(f"mkdir {directory}/-; cd {directory}; CDPATH=/", session)
    assert api.out("pwd", session, cwd="-") == f"{directory}/-"
    api.run("cd /", session)


@pytest.mark.parametrize("value", ["", "a b", "it's", '"q"', "$HOME `id` \\", "line\nbreak", "ü€", "*", "x" * 3000])
def test_env_values_are_literal(api, session, value):
    assert api.out('printf %s "$V"', session, env={"V": value}) == value


def test_env_is_exported_and_restored(api, session):
    api.run("P=plain; export E=exported", session)
    assert api.out("sh -c 'echo $P $E $N'", session, env={"P": "1", "E": "2", "N": "3"}) == "1 2 3"
    assert api.out("declare -p P E; echo ${N-unset}", session) == 'declare -- P="plain"\ndeclare -x E="exported"\nunset'


def test_assignments_to_env_variables_are_lost(api, session):
    api.run("A=old", session)
    api.run("A=new; unset B", session, env={"A": "1", "B": "2"})
    assert api.out("echo $A ${B-unset}", session) == "old unset"


def test_env_keeps_arrays_and_attributes(api, session):
    api.run("arr=(a b c); declare -i n=5", session)
    api.run("true", session, env={"arr": "x", "n": "7"})
    assert api.out("echo ${arr[*]} $n; n=2+3; echo $n", session) == "a b c 5\n5"


def test_env_of_a_readonly_variable(api, session):
    api.run("readonly R=1", session)
    result = api.run("echo $R", session, env={"R": "2"})
    assert result["stdout"] == "1" and "R" in result["stderr"]
    assert api.out("echo alive", session) == "alive"


def test_env_null_is_skipped(api, session):
    api.run("export A=1", session)
    assert api.out("echo $A", session, env={"A": None, "1bad": None}) == "1"


def test_env_bad_name(api, session):
    response = api.execute("true", session, env={"1A": "x"})
    assert response.status == 500
    assert response.json["code"] == "COMMAND_EXECUTION_ERROR"
    assert response.json["message"] == "Invalid environment variable name: 1A"


def test_env_and_cwd_with_errexit_and_nounset(api, session):
    api.run("set -eu", session)
    assert api.out("echo $A; pwd", session, cwd="/etc", env={"A": "1"}) == "1\n/etc"
    assert api.out("echo ok", session) == "ok"


# ------------------------------------------------------------------ set -e and the shell's death


def test_errexit_alone_does_not_end_the_shell(api, session):
    api.run("set -e", session)
    assert api.run("true", session)["exitCode"] == 0
    assert api.run("! true", session)["exitCode"] == 1
    assert api.run("false && true", session)["exitCode"] == 1
    assert api.run("if false; then :; fi", session)["exitCode"] == 0
    assert api.out("echo $-", session) == "ehBs"


@pytest.mark.parametrize(
    "command, code",
    [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exec true", 0),
        ("exec sh -c 'exit 9'", 9),
        ("set -e; false", 1),
        ("set -u; echo $nope", 1),
        ("kill -9 $$", 137),
        ("kill -TERM $$; sleep 5", 143),
        ("echo ${x?gone}", 1),
        ("set -n", 137),
    ],
)
def test_death_of_the_shell(api, session, command, code):
    api.run("X=1", session)
    response = api.execute(command, session)
    assert response.status == 410
    error = response.json
    assert error["code"] == "SESSION_TERMINATED"
    assert error["context"] == {"sessionId": session, "exitCode": code}
    assert error["message"] == f"Session '{session}' shell exited (exit code: {code})"
    assert session not in api.get("/api/session/list").json["data"]
    assert api.out("echo ${X-fresh}", session) == "fresh"


HIDE = "mount -t tmpfs none $(dirname $(readlink /proc/$$/fd/1)) && exec bash --norc"


@pytest.mark.skipif(os.geteuid() != 0, reason="hides a directory from the shell: needs root")
@pytest.mark.parametrize("hidden", [f"exec unshare --mount sh -c '{HIDE}' 0<&10", f"exec unshare --mount sh -c '{HIDE}' 0<&10 >/dev/null 2>&1"])
def test_a_shell_that_does_not_see_its_pipes_any_more(api, session, hidden):
    """It waits for input and executes it, and nobody hears of it."""
    response = api.execute(hidden, session)
    assert response.status == 410 and response.json["context"] == {"sessionId": session, "exitCode": 137}
    assert api.out("echo next", session) == "next"


def test_death_between_commands_is_told_once(api, session, directory):
    api.run(f"({until(directory + '/go')}; kill -9 $$) & true", session)
    api.run(f"touch {directory}/go", SESSIONLESS)

    def dead():
        return api.execute("true", session).status == 410

    wait_until(dead, "the death")
    assert api.run("true", session)["exitCode"] == 0


def test_death_of_a_command_out_of_time_is_told_to_the_next(api, session):
    assert api.execute("sleep 2; exit 6", session, timeoutMs=50).status == 500
    response = api.execute("echo no", session)
    assert response.status == 410 and response.json["context"]["exitCode"] == 6
    assert api.out("echo yes", session) == "yes"


def test_a_busy_shell_without_outputs_is_left_alone(api, session):
    command = "exec >/dev/null 2>&1; end=$((SECONDS+2)); while ((SECONDS < end)); do :; done; X=done"
    assert api.run(command, session)["exitCode"] == 0
    assert api.out("echo $X", session) == "done"


def test_removed_fifos_are_made_again_or_the_shell_is_given_up(own_agent):
    _, api = own_agent()
    api.run("true", "s")
    paths = api.out("readlink /proc/self/fd/1", "s")
    assert paths.endswith("o")
    api.run(f"rm -f {paths}", SESSIONLESS)
    assert api.out("echo again", "s") == "again"
    api.run(f"rm -f {paths[:-1]}c", SESSIONLESS)
    assert api.execute("true", "s").status == 410
    assert api.out("echo fresh", "s") == "fresh"


def test_create_replaces_a_dead_session(api, session):
    pid = api.out("echo $$", session)
    api.run(f"kill -9 {pid}; while [ -e /proc/{pid} ]; do sleep 0.01; done", SESSIONLESS)
    assert api.post("/api/session/create", {"id": session, "env": {"N": "new"}}).status == 200
    assert api.out("echo $N", session) == "new"


def test_waiting_commands_get_a_fresh_shell(api, session):
    first = api.hand_over("POST", "/api/execute", {"command": "sleep 0.4; exit 3", "sessionId": session})
    second = api.execute("echo second", session)
    assert first.getresponse().status == 410
    assert (second.status, second.json["stdout"]) == (200, "second")


# ------------------------------------------------------------------ time limits


def test_timeout_answer(api, session):
    response = api.execute("sleep 2", session, timeoutMs=100)
    assert response.status == 500
    error = response.json
    assert error["code"] == "COMMAND_EXECUTION_ERROR"
    assert error["message"] == (
        f"Failed to execute command 'sleep 2' in session '{session}': Command timeout after 100ms"
    )
    assert error["context"] == {"command": "sleep 2", "stderr": "Command timeout after 100ms"}


def test_timeout_answer_without_the_word_for_old_clients(api, session):
    response = api.execute("sleep 2 # timeout", session, timeoutMs=100, headers={"X-Sandbox-Id": None})
    assert response.status == 500
    text = response.body.decode().lower()
    assert "timeout" not in text and "timed out" not in text
    assert "100 ms" in text


def test_timeout_zero_is_immediate(api, session):
    response = api.execute("sleep 2", session, timeoutMs=0)
    assert response.status == 500 and "Command timeout after 0ms" in response.json["message"]


def test_timeout_of_the_session(api, session):
    api.post("/api/session/create", {"id": session, "commandTimeoutMs": 100})
    assert api.execute("sleep 2", session).status == 500
    assert api.run("sleep 0.7; echo x", session, timeoutMs=50000)["stdout"] == "x"


def test_timeout_of_the_server(own_agent):
    _, api = own_agent(environment={"COMMAND_TIMEOUT_MS": "100"})
    assert api.execute("sleep 60", "s").status == 500


def test_the_occupied_shell_makes_the_next_command_wait(api, session):
    api.execute("sleep 0.6; X=done", session, timeoutMs=100)
    assert api.out("echo $X", session) == "done"


def test_a_command_that_waits_for_the_occupied_shell_can_time_out(api, session, directory):
    api.execute(until(directory + "/go"), session, timeoutMs=50)
    assert api.execute(f"touch {directory}/x", session, timeoutMs=100).status == 500
    api.run(f"touch {directory}/go", SESSIONLESS)
    assert api.out("echo ok", session) == "ok"


def test_output_of_a_command_out_of_time_is_discarded(api, session):
    api.execute("sleep 0.3; echo lost", session, timeoutMs=100)
    assert api.out("echo next", session) == "next"


def test_sessionless_timeout_kills_the_group(api, directory):
    command = f"sh -c '{until(directory + '/go')}; touch {directory}/x'; true"
    result = api.run(command, SESSIONLESS, timeoutMs=500)
    assert result["exitCode"] == 124
    api.run(f"touch {directory}/go; sleep 1", SESSIONLESS)  # in which the file would appear
    assert api.out(f"ls {directory}", SESSIONLESS) == "go\n"


def test_sessionless_timeout_text_starts_on_its_own_line(api):
    result = api.run("printf x >&2; sleep 60", SESSIONLESS, timeoutMs=3000)
    assert result["stderr"] == "x\nCommand timed out after 3000ms"


# ------------------------------------------------------------------ order and deletion


def test_order_of_arrival(api, session):
    api.run("L=", session)
    commands = [{"command": f"sleep 0.05; L=${{L}}{i}", "sessionId": session} for i in range(8)]
    for connection in [api.hand_over("POST", "/api/execute", command) for command in commands]:
        assert connection.getresponse().status == 200
    assert api.out("echo $L", session) == "01234567"


def test_sixty_four_sessions_at_once(api, session):
    results = {}

    def work(i):
        name = f"{session}-{i}"
        api.run(f"X={i}", name)
        results[i] = api.out("echo $X", name)
        api.post("/api/session/delete", {"sessionId": name})

    threads = [threading.Thread(target=work, args=(i,)) for i in range(64)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {i: str(i) for i in range(64)}


def test_delete_waits_for_the_running_command_and_fails_the_waiting_ones(api, session, directory):
    command = f"touch {directory}/runs; {until(directory + '/go')}; echo done"
    first = api.send("POST", "/api/execute", {"command": command, "sessionId": session})
    wait_until(lambda: api.out(f"ls {directory}", SESSIONLESS), "the command")
    delete = api.hand_over("POST", "/api/session/delete", {"sessionId": session})
    last = api.hand_over("POST", "/api/execute", {"command": "echo last", "sessionId": session})
    api.run(f"touch {directory}/go", SESSIONLESS)
    assert json.loads(first.getresponse().read())["stdout"] == "done"
    assert delete.getresponse().status == 200
    refusal = last.getresponse()
    assert refusal.status == 410
    error = json.loads(refusal.read())
    assert error["code"] == "SESSION_DESTROYED"
    assert error["message"] == f"Session '{session}' was destroyed during command execution"
    assert error["context"] == {"sessionId": session}


def test_delete_kills_what_descends_from_the_session(api, session, directory):
    wait = until(directory + "/go")
    api.run(f"({wait}; touch {directory}/a) & (setsid sh -c '{wait}; touch {directory}/b') & true", session)
    api.start(f"{wait}; touch {directory}/c", session)
    assert api.post("/api/session/delete", {"sessionId": session}).status == 200
    api.run(f"touch {directory}/go; sleep 1", SESSIONLESS)  # in which the files would appear
    assert api.out(f"ls {directory}", SESSIONLESS) == "go\n"


def test_the_client_may_leave(api, session, directory):
    api.hand_over("POST", "/api/execute", {"command": f"sleep 0.3; touch {directory}/x", "sessionId": session}).close()
    wait_until(lambda: "x" in api.out(f"ls {directory}", SESSIONLESS), "the file")
    assert api.out("echo ok", session) == "ok"


# ------------------------------------------------------------------ sessionless


def test_sessionless_echoes_the_token(api):
    assert api.run("true", SESSIONLESS)["sessionId"] == SESSIONLESS


def test_sessionless_exit_codes(api):
    assert api.run("exit 3", SESSIONLESS)["exitCode"] == 3
    assert api.run("kill -9 $$", SESSIONLESS)["exitCode"] == 137


def test_sessionless_keeps_nul(api):
    assert api.out("printf 'a\\0b'", SESSIONLESS) == "a\0b"


def test_sessionless_waits_for_the_pipes(api):
    begin = time.monotonic()
    assert api.out("sleep 0.5 & echo hi", SESSIONLESS) == "hi\n"
    assert time.monotonic() - begin > 0.45


def test_sessionless_env_and_cwd(api):
    assert api.out("echo $A; pwd", SESSIONLESS, env={"A": "1"}, cwd="/etc") == "1\n/etc\n"


def test_sessionless_bad_cwd(api):
    response = api.execute("true", SESSIONLESS, cwd="/nope")
    assert response.status == 500 and response.json["code"] == "COMMAND_EXECUTION_ERROR"


def test_sessionless_runs_in_parallel(api, directory):
    meet(api, directory, [SESSIONLESS] * 4)


# ------------------------------------------------------------------ the answer as events

LIVE = {"Accept": "text/event-stream"}


def live(api, command, session, **fields):
    body = {"command": command, "sessionId": session, **fields}
    return list(api.events("POST", "/api/execute", body, headers=LIVE))


def test_live_events(api, session, directory):
    body = {"command": f"echo a; echo b >&2; {until(directory + '/go')}; printf c", "sessionId": session}
    events = []
    for _, event in api.events("POST", "/api/execute", body, headers=LIVE):
        events.append(event)
        if event.get("data") == "a\n":  # while the command runs
            api.run(f"touch {directory}/go", SESSIONLESS)
    assert events[0]["type"] == "start" and events[0]["command"].startswith("echo a")
    assert text_of(events) == "a\nc\n" and text_of(events, "stderr") == "b\n"
    assert events[-1]["type"] == "complete" and events[-1]["exitCode"] == 0


def test_live_keeps_state(api, session):
    live(api, "cd /etc; X=1", session)
    assert api.out("echo $PWD $X", session) == "/etc 1"


def test_live_death_of_the_shell(api, session):
    event = live(api, "echo a; exit 9", session)[-1][1]
    assert (event["type"], event["code"], event["exitCode"]) == ("error", "SESSION_TERMINATED", 9)
    assert event["message"]


def test_live_sessionless(api):
    events = [e for _, e in live(api, "printf 'a\\nb'; exit 3", SESSIONLESS)]
    assert events[0]["type"] == "start" and text_of(events) == "a\nb"
    assert events[-1]["type"] == "complete" and events[-1]["exitCode"] == 3


def test_live_timeout(api, session):
    event = live(api, "sleep 2", session, timeoutMs=100)[-1][1]
    assert (event["type"], event["code"]) == ("error", "COMMAND_EXECUTION_ERROR")


def test_live_everything_arrives(api, session):
    events = [e for _, e in live(api, "seq 1 50000", session)]
    assert text_of(events) == "".join(f"{i}\n" for i in range(1, 50001))


def test_live_a_slow_reader_slows_the_command(api, session, directory):
    command = f"head -c 40000000 /dev/zero | tr '\\0' x; touch {directory}/done"
    body = {"command": command, "sessionId": session}
    connection, response = api.open("POST", "/api/execute", body, LIVE)
    response.read(1000)
    time.sleep(0.7)  # far longer than 40 MB need
    assert api.out(f"ls {directory}", SESSIONLESS) == ""
    total = sum(len(chunk) for chunk in iter(lambda: response.read(1 << 20), b""))
    connection.close()
    assert total > 40000000
    assert api.out(f"ls {directory}", SESSIONLESS) == "done\n"
