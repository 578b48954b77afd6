# SPDX-License-Identifier: Apache-2.0
"""/rpc message by message: numbers, answers, releases, streams both ways, callbacks, and what ends a session."""
import json
import os
import random
import select
import socket
import threading

import pytest
from conftest import wait_until
from interpreter import prepare
from measure import SANITIZED, Growth, scaled
from rpc import UNDEFINED, Rpc, bytes_of, chunk
from websocket import Closed

NONE = "__DISABLE_SESSION__"


@pytest.fixture
def rpc(api):
    with Rpc.of(api, "/rpc") as ws:
        yield ws


# ------------------------------------------------------------------ calls

def test_a_call(rpc):
    rpc.send('["push",["pipeline",0,["utils","ping"],[]]]')
    rpc.send('["pull",1]')
    rpc.expect("resolve", 1, "healthy")
    rpc.send('["release",1,1]')
    rpc.next = 2
    assert rpc.is_alive()


def test_nothing_is_said_before_a_pull(rpc):
    first = rpc.push("utils.ping")
    second = rpc.push("utils.ping")
    rpc.say("pull", second)
    rpc.expect("resolve", second, "healthy")
    rpc.say("pull", first)
    rpc.expect("resolve", first, "healthy")


def test_a_failing_call(rpc, session):
    got = rpc.refused("files.readFile", "/nope", session, UNDEFINED)
    assert got == ["error", "Error", "File not found: /nope", None,
                   {"code": "FILE_NOT_FOUND", "details": {"path": "/nope", "operation": "file.read"}}]


def test_arrays_in_errors_are_escaped(rpc, session):
    details = rpc.refused("files.readFile", "", session)[4]["details"]
    (only,) = details["validationErrors"]
    assert only[0]["field"] == "path"


def test_undefined_and_missing_arguments(rpc):
    got = rpc.call("commands.execute", "echo $A-$B", NONE, {"env": {"A": "1", "B": UNDEFINED}, "cwd": UNDEFINED})
    assert got["stdout"].strip() == "1-" and set(got) == {"success", "exitCode", "stdout", "stderr", "command", "timestamp"}
    assert rpc.call("commands.execute", "echo x", NONE)["stdout"].strip() == "x"
    assert rpc.refused("commands.execute")[4]["code"] == "COMMAND_EXECUTION_ERROR"


def test_values_of_every_kind_are_accepted(rpc):
    id = rpc.number()
    rpc.say("push", {"a": [[1, [["x"]], UNDEFINED]], "u": UNDEFINED, "d": ["date", 0], "b": ["bigint", "12345678901234567890"],
                     "i": ["inf"], "n": ["nan"], "f": ["export", -9]})
    rpc.say("pull", id)
    rpc.expect("release", -9, 1)
    rpc.expect("resolve", id, {"a": [[1, [["x"]], None]], "d": "1970-01-01T00:00:00.000Z", "b": 12345678901234567890,
                               "i": None, "n": None})


def test_bytes_are_no_text(rpc, directory):
    assert rpc.refused("files.writeFile", f"{directory}/x", ["bytes", "aGk"], NONE)[4]["code"] == "VALIDATION_FAILED"


def test_two_pulls_one_answer(rpc):
    id = rpc.push("utils.ping")
    rpc.say("pull", id)
    rpc.say("pull", id)
    rpc.expect("resolve", id, "healthy")
    assert rpc.is_alive()  # the next message is about another number


def test_released_before_the_answer(rpc, session, directory):
    id = rpc.push("commands.execute", f"echo done > {directory}/mark", session)
    rpc.say("pull", id)
    rpc.say("release", id, 1)
    wait_until(lambda: rpc_exists(rpc, f"{directory}/mark"), "the command ran all the same")


def rpc_exists(rpc, path):
    id = rpc.push("files.exists", path, NONE)
    rpc.say("pull", id)
    while True:
        kind, got, value = rpc.receive_json()
        if got == id:
            rpc.say("release", id, 1)
            return value["exists"]


def test_answers_to_unknown_numbers_are_ignored(rpc):
    rpc.say("resolve", 99, "x")
    rpc.say("reject", -3, ["error", "Error", "y"])
    rpc.say("resolve", 7, {"f": ["export", -4]})
    rpc.expect("release", -4, 1)  # but what came along is given back
    assert rpc.is_alive()


def test_binary_frames_are_text(rpc):
    rpc.send(b'["push",["pipeline",0,["utils","ping"],[]]]')
    rpc.send(b'["pull",1]')
    rpc.expect("resolve", 1, "healthy")


def test_unknown_methods(rpc):
    assert rpc.refused("files.nope") == ["error", "TypeError", "'files.nope' is not a function."]
    assert rpc.refused("nope") == ["error", "TypeError", "'nope' is not a function."]
    assert rpc.refused("files.readFile.x") == ["error", "TypeError", "'files.readFile.x' is not a function."]
    id = rpc.push("files.nope", {"f": ["export", -1]})
    rpc.say("pull", id)
    rpc.expect("release", -1, 1)
    assert rpc.receive_json()[0] == "reject"


def test_order_and_overlap(rpc, session, directory):
    fifo = f"{directory}/gate"
    rpc.call("commands.execute", f"mkfifo {fifo}", NONE)
    slow = rpc.push("commands.execute", f"cat {fifo}", session)
    rpc.say("pull", slow)
    assert rpc.is_alive()
    rpc.push("commands.execute", f"echo go > {fifo}", NONE)
    kind, id, value = rpc.receive_json()
    assert (kind, id, value["stdout"].strip()) == ("resolve", slow, "go")


# ------------------------------------------------------------------ values before they are there

def test_pipelining(rpc, session, directory):
    rpc.call("files.writeFile", f"{directory}/a", "text", session)
    read = rpc.push("files.readFile", f"{directory}/a", session)
    write = rpc.push("files.writeFile", f"{directory}/b", ["pipeline", read, ["content"]], session)
    rpc.say("release", read, 1)  # before it is there
    rpc.say("pull", write)
    assert rpc.receive_json()[2]["bytesWritten"] == 4
    rpc.say("push", ["pipeline", write, ["success"]])
    success = rpc.number()
    rpc.say("pull", success)
    rpc.expect("resolve", success, True)
    rpc.say("push", ["pipeline", write, ["path"], []])
    called = rpc.number()
    rpc.say("pull", called)
    rpc.expect("reject", called, ["error", "TypeError", "'path' is not a function."])


def test_a_stream_is_no_argument(rpc, session, directory):
    read = rpc.push("files.readFileStream", "/etc/passwd", session)
    write = rpc.push("files.writeFile", f"{directory}/b", ["pipeline", read], session)
    rpc.say("release", read, 1)
    rpc.say("pull", write)
    kind, id, error = rpc.receive_json()
    assert (kind, id) == ("reject", write)
    read = rpc.push("files.readFileStream", "/etc/passwd", session)
    write = rpc.push("files.writeFile", f"{directory}/b", ["pipeline", read], session)
    rpc.say("pull", write)
    assert rpc.receive_json()[2][4]["code"] == "VALIDATION_FAILED"
    rpc.say("pull", read)  # it can be read all the same
    rpc.expect("pipe")


def test_a_value_that_failed_fails_what_uses_it(rpc, session, directory):
    read = rpc.push("files.readFile", f"{directory}/nope", session)
    write = rpc.push("files.writeFile", f"{directory}/b", ["pipeline", read, ["content"]], session)
    rpc.say("pull", write)
    assert rpc.receive_json()[2][4]["code"] == "FILE_NOT_FOUND"
    assert rpc.call("files.exists", f"{directory}/b", session)["exists"] is False


def test_too_many_references(rpc):
    id = rpc.push("utils.ping")
    call = rpc.push("commands.execute", "true", NONE, {"env": {str(i): ["pipeline", id] for i in range(100)},
                                                       "f": [[["export", -i] for i in range(1, 5001)]]})
    rpc.say("pull", call)
    released = [rpc.receive_json() for _ in range(5000)]  # also those beyond what is kept
    assert sorted(-id for kind, id, count in released if kind == "release" and count == 1) == list(range(1, 5001))
    assert rpc.receive_json()[2][4]["code"] == "VALIDATION_FAILED"


def test_parts_of_the_api(rpc):
    rpc.say("push", ["pipeline", 0, ["utils"]])
    id = rpc.number()
    rpc.say("pull", id)
    kind, got, (form, stub) = rpc.receive_json()
    assert (kind, got, form) == ("resolve", id, "export") and stub < 0
    rpc.say("release", id, 1)
    ping = rpc.push("ping", target=stub)
    rpc.say("pull", ping)
    rpc.expect("resolve", ping, "healthy")
    rpc.say("release", stub, 1)
    rpc.push("ping", target=stub)
    assert rpc.end() == ("Error", f"no such entry on exports table: {stub}")


# ------------------------------------------------------------------ what ends a session

@pytest.mark.parametrize("message, name, text", [
    ('{"a":1}', "Error", 'bad RPC message: {"a":1}'),
    ('["nonsense",[1]]', "Error", 'bad RPC message: ["nonsense",[1]]'),
    ('["pull","1"]', "Error", 'bad RPC message: ["pull","1"]'),
    ('["push"]', "Error", 'bad RPC message: ["push"]'),
    ('["release",1]', "Error", 'bad RPC message: ["release",1]'),
    ('["release",0,-1]', "Error", 'bad RPC message: ["release",0,-1]'),
    ('["pull",99]', "Error", "no such export ID: 99"),
    ('["release",99,1]', "Error", "no such export ID: 99"),
    ('["release",0,2]', "Error", "refcount would go negative: 1 < 2"),
    ('["push",["pipeline",7,["x"],[]]]', "Error", "no such entry on exports table: 7"),
    ('["push",["pipeline",0,["utils","ping"],[["pipeline",1,["x"]]]]]', "Error", "no such entry on exports table: 1"),
    ('["push",["what",1]]', "TypeError", "unknown special value in an expression"),
    ('["push",["pipeline",0,["utils","ping"],[["what"]]]]', "TypeError", "unknown special value in an expression"),
    ('["push",[1,2]]', "TypeError", "unknown special value in an expression"),
])
def test_fatal(rpc, message, name, text):
    rpc.send(message)
    assert rpc.end() == (name, text)


def test_text_that_is_no_json(rpc):
    rpc.send("[")
    name, text = rpc.end()
    assert name == "SyntaxError" and text


def test_a_long_bad_message_is_cut(rpc):
    rpc.send(json.dumps(["nonsense", "ü" * 100000]))
    name, text = rpc.end()
    assert text.startswith('bad RPC message: ["nonsense"') and len(text.encode()) <= 512


def test_pull_after_release(rpc):
    id = rpc.push("utils.ping")
    rpc.say("release", id, 1)
    rpc.say("pull", id)
    assert rpc.end() == ("Error", f"no such export ID: {id}")


def test_abort_of_the_client(rpc):
    rpc.say("abort", ["error", "Error", "enough"])
    with pytest.raises(Closed) as closed:
        rpc.receive()
    assert (closed.value.code, closed.value.reason) == (3000, "enough")


def test_too_many_results_not_released(rpc):
    with pytest.raises(Closed):
        for _ in range(16400):
            rpc.push("utils.nope")
        rpc.say("pull", 1)
        while True:
            message = rpc.receive_json()
            assert message[0] == "abort", message
            assert "not released" in message[1][2]


def test_a_session_that_ends_leaves_others_alone(api):
    with Rpc.of(api, "/rpc") as one, Rpc.of(api, "/rpc") as other:
        assert one.is_alive() and other.is_alive()
        one.send("nonsense")
        one.end()
        assert other.is_alive()


# ------------------------------------------------------------------ streams to the client

def start_stream(rpc, method, *args):
    """(number of the call, of the server's pipe)"""
    id = rpc.push(method, *args)
    rpc.say("pull", id)
    rpc.expect("pipe")
    kind, got, (form, pipe) = rpc.receive_json()
    assert (kind, got, form) == ("resolve", id, "readable")
    rpc.say("release", id, 1)
    return pipe


def test_a_stream(rpc, session):
    pipe = start_stream(rpc, "commands.executeStream", "echo a; echo b >&2", session, UNDEFINED)
    assert pipe == 1
    text, number = "", pipe
    while True:
        kind, (form, target, (method,), args) = rpc.receive_json()
        number += 1  # every message of the server has the next number
        assert (kind, form, target) == ("stream", "pipeline", pipe)
        if method == "close":
            assert args == []
            break
        assert method == "write" and len(args) == 1
        text += bytes_of(args[0]).decode()
        rpc.say("resolve", number, UNDEFINED)
    rpc.say("resolve", number, UNDEFINED)
    rpc.expect("release", pipe, 1)
    events = [dict(line.split(": ", 1) for line in block.split("\n")) for block in text.split("\n\n") if block]
    assert all(json.loads(e["data"])["type"] == e["event"] for e in events)
    assert [e["event"] for e in events][0] == "start" and events[-1]["event"] == "complete"
    assert rpc.is_alive()


def test_a_stream_begins_with_the_pull(rpc, session, directory):
    id = rpc.push("commands.executeStream", f"echo x; touch {directory}/mark", session)
    wait_until(lambda: rpc_exists(rpc, f"{directory}/mark"), "the command has run")
    rpc.say("pull", id)
    rpc.expect("pipe")
    assert rpc.receive_json()[:2] == ["resolve", id]


def test_a_cancelled_stream(rpc, session, directory):
    mark = f"{directory}/ticks"
    pipe = start_stream(rpc, "commands.executeStream", f": > {mark}; while sleep 0.02; do echo tick; echo >> {mark}; done", session)
    assert b"event: start" in bytes_of(rpc.receive_json()[1][3][0])
    rpc.say("reject", pipe + 1, ["error", "Error", "enough"])
    while True:
        message = rpc.receive_json()
        if message[0] != "stream":
            break
    assert message == ["release", pipe, 1]  # and no close
    wait_until(lambda: rpc_exists(rpc, mark), "the command has begun")
    before = rpc.call("files.readFile", mark, NONE)["size"]
    wait_until(lambda: rpc.call("files.readFile", mark, NONE)["size"] > before, "the command goes on")
    rpc.call("processes.killAllProcesses")


def test_disposed_before_it_began(rpc, session):
    for _ in range(20):
        id = rpc.push("commands.executeStream", "echo x", session)
        rpc.say("release", id, 1)
    assert rpc.is_alive()


def test_a_source_that_breaks(own_agent):
    """The session is deleted under a stream of its own process: the stream has an end all the same."""
    _, api = own_agent()
    with Rpc.of(api, "/rpc") as rpc:
        pipe = start_stream(rpc, "commands.executeStream", "sleep 100", "s")
        with Rpc.of(api, "/rpc") as other:
            other.call("utils.deleteSession", "s")
        while rpc.receive_json()[1][2] != ["close"]:
            pass
        assert pipe == 1


def read_window(rpc, pipe):
    """Takes what comes without acknowledging it; returns (numbers, bytes) when nothing more comes."""
    numbers, size = [], 0
    while not numbers or rpc.buffer or select.select([rpc.sock], [], [], 2)[0]:
        message = rpc.receive_json()
        assert message[1][2] == ["write"], message
        numbers.append(pipe + 1 + len(numbers))
        size += len(message[1][3][0][1])
    return numbers, size


def test_a_reader_that_stalls_stops_the_command(own_agent):
    """Back pressure: a window of unacknowledged bytes, whatever the command could write."""
    process, api = own_agent()
    total = scaled(100 << 20, 40 << 20)
    with Rpc.of(api, "/rpc") as rpc, Growth(process) as growth:
        pipe = start_stream(rpc, "commands.executeStream", f"head -c {total} /dev/zero | tr '\\0' x", NONE)
        numbers, size = read_window(rpc, pipe)
        assert size < 4 << 20, size
        with Rpc.of(api, "/rpc") as other:
            assert other.is_alive()
        for number in numbers:  # and now it goes on
            rpc.say("resolve", number, UNDEFINED)
        number, text = numbers[-1], 0
        while True:
            _, (_, _, (method,), args) = rpc.receive_json()
            number += 1
            rpc.say("resolve", number, UNDEFINED)
            if method == "close":
                break
            text += len(bytes_of(args[0]))
        rpc.expect("release", pipe, 1)
        assert text + size * 3 // 4 > total
    growth.assert_below(24 << 20)


@pytest.fixture
def big(own_agent, tmp_path):
    """(process, api, path of a file of 4 MB)"""
    process, api = own_agent()
    path = tmp_path / "big"
    path.write_bytes(b"x" * (4 << 20))
    return process, api, str(path)


def test_a_client_that_does_not_read(big):
    process, api, path = big
    count = scaled(400, 40)
    with Growth(process) as growth, Rpc.of(api, "/rpc", receive_buffer=4096, timeout=20) as rpc:
        asking = threading.Thread(target=ask_without_reading, args=(rpc, path, count), daemon=True)
        asking.start()
        with Rpc.of(api, "/rpc") as other:
            while asking.is_alive() and rpc.next < count:
                assert other.is_alive()  # others are served
            for _ in range(300):
                assert other.is_alive()
    asking.join(timeout=60)
    assert not asking.is_alive()
    growth.assert_below(480 << 20)


def ask_without_reading(rpc, path, count):
    try:
        for _ in range(count):
            rpc.say("pull", rpc.push("files.readFile", path, NONE))
    except OSError:
        pass  # closed by the test


def test_more_answers_than_memory(big):
    """Answers wait for those before them to be taken; none is refused."""
    process, api, path = big
    count = scaled(100, 8)
    with Growth(process) as growth, Rpc.of(api, "/rpc") as rpc:
        for _ in range(count):
            rpc.say("pull", rpc.push("files.readFile", path, NONE))
        for _ in range(count):
            kind, id, value = rpc.receive_json()
            assert kind == "resolve" and len(value["content"]) == 4 << 20, (kind, str(value)[:200])
            rpc.say("release", id, 1)
        assert rpc.is_alive()
    growth.assert_below(480 << 20)


# ------------------------------------------------------------------ streams from the client

def test_an_upload(rpc, directory):
    path = f"{directory}/x"
    pipe = rpc.pipe()
    call = rpc.push("files.writeFileStream", path, ["readable", pipe], NONE)
    write = rpc.stream(pipe, "write", chunk(b"\x00\x01\x02"))
    rpc.say("pull", call)
    rpc.expect("resolve", write, UNDEFINED)
    close = rpc.stream(pipe, "close")
    rpc.expect("resolve", close, UNDEFINED)
    rpc.say("release", pipe, 1)
    kind, id, value = rpc.receive_json()
    value.pop("timestamp")
    assert (kind, id, value) == ("resolve", call, {"success": True, "path": path, "bytesWritten": 3})


def test_an_upload_before_anybody_reads_it(rpc, directory):
    path = f"{directory}/x"
    pipe = rpc.pipe()
    writes = [rpc.stream(pipe, "write", chunk(bytes([i]) * 1000)) for i in range(10)]
    close = rpc.stream(pipe, "close")
    assert rpc.is_alive()  # nothing is acknowledged: nobody has taken it
    call = rpc.push("files.writeFileStream", path, ["readable", pipe], NONE)
    rpc.say("release", pipe, 1)
    rpc.say("pull", call)
    for number in [*writes, close]:
        rpc.expect("resolve", number, UNDEFINED)
    assert rpc.receive_json()[2]["bytesWritten"] == 10000


def test_acknowledged_when_taken(api, rpc, session, directory):
    """The session's lock is held: the file waits, and so does the client."""
    fifo = f"{directory}/gate"
    api.run(f"mkfifo {fifo}", NONE)
    rpc.push("commands.execute", f"cat {fifo}", session)
    pipe = rpc.pipe()
    call = rpc.push("files.writeFileStream", f"{directory}/x", ["readable", pipe], session)
    write = rpc.stream(pipe, "write", chunk(b"x" * 100000))
    assert rpc.is_alive()
    api.run(f"echo go > {fifo}", NONE)
    rpc.expect("resolve", write, UNDEFINED)
    rpc.say("pull", call)
    close = rpc.stream(pipe, "close")
    assert {rpc.receive_json()[1], rpc.receive_json()[1]} == {call, close}


@pytest.mark.parametrize("how", ["abort", "release", "text"])
def test_an_upload_that_breaks_off(rpc, directory, how):
    path = f"{directory}/x"
    rpc.call("files.writeFile", path, "old", NONE)
    pipe = rpc.pipe()
    call = rpc.push("files.writeFileStream", path, ["readable", pipe], NONE)
    rpc.say("pull", call)
    write = rpc.stream(pipe, "write", chunk(b"new"))
    rpc.expect("resolve", write, UNDEFINED)
    if how == "abort":
        number = rpc.stream(pipe, "abort", ["error", "Error", "no more"])
        rpc.expect("resolve", number, UNDEFINED)
    elif how == "text":
        number = rpc.stream(pipe, "write", "text")
        assert rpc.receive_json()[:2] == ["reject", number]
    else:
        rpc.say("release", pipe, 1)
    kind, id, error = rpc.receive_json()
    assert (kind, id, error[4]["code"]) == ("reject", call, "FILESYSTEM_ERROR")
    if how != "release":
        late = rpc.stream(pipe, "write", chunk(b"late"))
        assert rpc.receive_json()[:2] == ["reject", late]
    assert rpc.call("files.readFile", path, NONE)["content"] == "old"
    assert rpc.call("files.listFiles", directory, NONE, {"includeHidden": True})["count"] == 1


def test_the_client_leaves_in_the_middle_of_an_upload(api, directory):
    path = f"{directory}/x"
    with Rpc.of(api, "/rpc") as rpc:
        pipe = rpc.pipe()
        rpc.push("files.writeFileStream", path, ["readable", pipe], NONE)
        write = rpc.stream(pipe, "write", chunk(b"half"))
        rpc.expect("resolve", write, UNDEFINED)
    wait_until(lambda: api.out(f"ls -A {directory}", NONE) == "", "nothing is left")


def test_a_readable_can_be_used_once(rpc, directory):
    pipe = rpc.pipe()
    rpc.push("files.writeFileStream", f"{directory}/a", ["readable", pipe], NONE)
    second = rpc.push("files.writeFileStream", f"{directory}/b", ["readable", pipe], NONE)
    rpc.say("pull", second)
    assert rpc.receive_json()[2][4]["code"] == "VALIDATION_FAILED"


def test_streams_nobody_wants_are_stopped(rpc):
    pipe = rpc.pipe()
    rpc.push("utils.ping", ["readable", pipe])
    write = rpc.stream(pipe, "write", chunk(b"x"))
    assert rpc.receive_json()[:2] == ["reject", write]


def test_a_flood_nobody_reads_is_bounded(own_agent):
    if SANITIZED:
        pytest.skip("moves 300 MB through memory")
    process, api = own_agent()
    data = chunk(b"x" * (4 << 20))
    with Growth(process) as growth, Rpc.of(api, "/rpc") as rpc:
        pipe = rpc.pipe()
        for _ in range(70):
            rpc.stream(pipe, "write", data)
        assert rpc.receive_json()[0] == "reject"
    growth.assert_below(400 << 20)
    with Rpc.of(api, "/rpc") as rpc:  # what was held is given back
        assert rpc.is_alive()
        pipe = rpc.pipe()
        for _ in range(10):
            rpc.stream(pipe, "write", data)
        assert rpc.is_alive()


# ------------------------------------------------------------------ callbacks

@pytest.fixture
def lab(own_agent, tmp_path):
    _, api = own_agent(environment=prepare(tmp_path))
    with Rpc.of(api, "/rpc", timeout=60) as rpc:
        yield rpc


def run_code(rpc, code, ids):
    names = ("onStdout", "onStderr", "onResult", "onError")
    context = rpc.call("interpreter.createCodeContext", {"language": "javascript"})
    assert context["createdAt"][0] == "date" and isinstance(context["createdAt"][1], int)
    call = rpc.push("interpreter.runCodeStream", context["id"], code, "javascript",
                    {name: ["export", id] for name, id in zip(names, ids)})
    rpc.say("pull", call)
    return call


def test_callbacks(lab):
    call = run_code(lab, 'console.log(1); console.error(2); [1]', (-1, -2, -3, -4))
    number, seen = 0, []
    for _ in range(3):
        kind, (form, target, path, args) = lab.receive_json()
        number += 1
        assert (kind, form, path) == ("push", "pipeline", [])
        lab.expect("pull", number)
        seen.append((target, args[0]))
        lab.say("resolve", number, UNDEFINED)
        lab.expect("release", number, 1)
    assert [t for t, _ in seen] == [-1, -2, -3]
    assert seen[0][1]["text"] == "1\n" and isinstance(seen[0][1]["timestamp"], int)
    assert seen[2][1]["json"] == [[1]]
    for id in (-1, -2, -3, -4):
        lab.expect("release", id, 1)
    lab.expect("resolve", call, UNDEFINED)


def test_a_callback_that_fails_fails_the_call(lab):
    call = run_code(lab, 'console.log(1); console.log(2)', (-1, -2, -3, -4))
    lab.receive_json()
    lab.expect("pull", 1)
    lab.say("reject", 1, ["error", "RangeError", "no", None, {"why": [["x"]]}])
    lab.expect("release", 1, 1)
    for id in (-1, -2, -3, -4):
        lab.expect("release", id, 1)
    lab.expect("reject", call, ["error", "RangeError", "no", None, {"why": [["x"]]}])


def test_the_client_leaves_in_the_middle_of_callbacks(lab):
    run_code(lab, 'for (let i = 0; i < 1e5; i++) console.log(i)', (-1, -2, -3, -4))
    lab.receive_json()
    lab.drop()


# ------------------------------------------------------------------ connections

def descriptors(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def test_connections_leave_nothing(own_agent):
    process, api = own_agent()
    with Rpc.of(api, "/rpc") as rpc:
        assert rpc.is_alive()
    api.run("true", NONE)
    before = descriptors(process)
    for i in range(50):
        with Rpc.of(api, "/rpc") as rpc:
            for method, args in (("utils.ping", ()), ("commands.executeStream", ("echo x; sleep 0.05; echo y", NONE)),
                                 ("commands.execute", ("sleep 0.01", NONE)), ("nope", ())):
                rpc.say("pull", rpc.push(method, *args))
            pipe = rpc.pipe()
            rpc.push("files.writeFileStream", "/tmp/silica-never", ["readable", pipe], NONE)
            if i % 2:
                rpc.receive_json()
    wait_until(lambda: descriptors(process) <= before, "all connections are gone")


class Storyteller:
    """Sends mostly sensible messages in a senseless order."""

    def __init__(self, rpc, rng, directory):
        self.rpc, self.rng, self.directory = rpc, rng, directory
        self.ids, self.pipes, self.exports, self.heard = [0], [], 0, 0

    def any_id(self):
        return self.rng.choice(self.ids[-8:] + ([self.rng.randrange(-3, 40)] if self.rng.random() < 0.01 else []))

    def value(self):
        rng = self.rng
        kind = rng.randrange(10)
        if kind == 0 and self.pipes:
            return ["readable", rng.choice(self.pipes)]
        if kind == 1:
            return ["pipeline", self.any_id(), rng.choice([[], ["content"], ["path"], ["files", 0, "name"], ["stdout"]])]
        if kind == 2:
            self.exports -= 1
            return rng.choice([["export", self.exports], {"onStdout": ["export", self.exports], "x": UNDEFINED}])
        if kind == 3:
            return rng.choice([UNDEFINED, ["date", 5], ["bytes", "AAAA"], ["nan"], [[1, [[2]]]], ["error", "E", "m"]])
        return rng.choice([f"{self.directory}/{rng.randrange(4)}", "text", NONE, {"encoding": "none"}, {"recursive": True}, 7, None])

    def call(self):
        rng = self.rng
        path = f"{self.directory}/{rng.randrange(4)}"
        return rng.choice([
            ("utils.ping", []), ("files.readFile", [path, NONE, {"encoding": rng.choice(["none", "utf-8"])}]),
            ("files.writeFile", [path, self.value(), NONE]), ("files.listFiles", [self.directory, NONE]),
            ("files.readFileStream", [path, NONE]), ("commands.executeStream", ["seq 1 2000", NONE]),
            ("commands.execute", ["echo x", NONE]), ("files.deleteFile", [path, NONE]), ("nope", [self.value()]),
            ("files", []), ("files.exists", [self.value(), NONE]),
            ("files.writeFileStream", [path, ["readable", rng.choice(self.pipes or [99])], NONE]),
            ("interpreter.runCodeStream", ["nobody", "1", UNDEFINED, {"onStdout": ["export", -100]}]),
        ])

    def step(self):
        rng, rpc = self.rng, self.rpc
        kind = rng.randrange(12)
        if kind <= 3:
            method, args = self.call()
            self.ids.append(rpc.push(method, *args, target=0 if rng.random() < 0.9 else self.any_id()))
        elif kind <= 5:
            rpc.say("pull", self.any_id())
        elif kind == 6 and len(self.ids) > 1:
            id = self.ids.pop(rng.randrange(1, len(self.ids)))
            self.pipes = [p for p in self.pipes if p != id]
            rpc.say("release", id, 1)
        elif kind == 7:
            self.pipes.append(rpc.pipe())
            self.ids.append(self.pipes[-1])
        elif kind <= 9 and self.pipes:
            method = rng.choice(["write"] * 6 + ["close", "abort", "nope"])
            rpc.stream(rng.choice(self.pipes), method, *([chunk(rng.randbytes(rng.choice([0, 10, 50000])))] if method == "write" else []))
        elif kind == 10:
            self.heard += 1
            rpc.say(rng.choice(["resolve", "resolve", "reject"]), self.heard, rng.choice([UNDEFINED, ["error", "E", "no"], {"f": ["export", -50]}]))
        elif rng.random() < 0.1:
            self.ids.append(rpc.number())
            rpc.say(rng.choice(["push", "stream"]), self.value())


def drain(rpc):
    """Reads along, so that neither side waits for the other."""
    try:
        while True:
            rpc.receive()
    except (Closed, OSError, AssertionError):
        pass


def test_random_stories(own_agent, tmp_path):
    """Whatever a client says in whatever order: the agent lives, and nothing is left of it."""
    process, api = own_agent()
    for name in range(3):
        (tmp_path / str(name)).write_text(f"content {name}\n" * 3000)
    api.run("true", NONE)
    before = descriptors(process)
    for seed in range(150):
        with Rpc.of(api, "/rpc") as rpc:
            reader = threading.Thread(target=drain, args=(rpc,), daemon=True)
            reader.start()
            teller = Storyteller(rpc, random.Random(seed), str(tmp_path))
            try:
                for _ in range(80):
                    teller.step()
            except OSError:
                pass  # a wrong number has ended the session
            rpc.sock.shutdown(socket.SHUT_RDWR)
            reader.join(timeout=60)
        assert process.poll() is None, seed
    wait_until(lambda: descriptors(process) <= before, "all connections are gone")
    with Rpc.of(api, "/rpc") as rpc:
        assert rpc.is_alive()


def test_only_websockets(api):
    assert api.get("/rpc").status == 404
