# SPDX-License-Identifier: Apache-2.0
"""Output is never lost, torn or forged, whatever its rate and size, and costs the agent no memory."""
import http.client
import json
import os
import socket
import threading

import pytest
from conftest import text_of, wait_until
from measure import Growth, scaled

SESSIONLESS = "__DISABLE_SESSION__"
MB = 1 << 20
SLACK = 12 * MB  # what a flood may cost: the spools in memory (8 MiB), the buffers of a connection, pieces under way


def sse(body):
    events = []
    for block in body.split(b"\n\n"):
        if block:
            assert block.startswith(b"data: ") and b"\n" not in block, block[:100]
            events.append(json.loads(block[6:]))
    return events


def events_of(api, method, path, body=None, headers=None):
    response = api.request(method, path, body, headers, timeout=300)
    assert response.status == 200, response.body[:500]
    return sse(response.body)


# Every way to get at the output of a command: (api, command, session) -> (stdout, types of the events)


def by_execute(api, command, session):
    response = api.post("/api/execute", {"command": command, "sessionId": session}, timeout=300)
    assert response.status == 200, response.body[:500]
    return response.json["stdout"] + ("" if session == SESSIONLESS else "\n"), []


def by_live_execute(api, command, session):
    body = {"command": command, "sessionId": session}
    events = events_of(api, "POST", "/api/execute", body, {"Accept": "text/event-stream"})
    return text_of(events), [e["type"] for e in events]


def by_stream(api, command, session):
    events = events_of(api, "POST", "/api/execute/stream", {"command": command, "sessionId": session})
    return text_of(events), [e["type"] for e in events]


def start_and_wait(api, command, session):
    name = api.start(command, session)["processId"]
    wait_until(lambda: api.process(name)["status"] != "running", "the end", 120)
    return name


def by_logs(api, command, session):
    name = start_and_wait(api, command, session)
    return api.get(f"/api/process/{name}/logs", timeout=300).json["stdout"], []


def by_process_stream(api, command, session):
    name = api.start(command, session)["processId"]
    events = events_of(api, "GET", f"/api/process/{name}/stream")
    return text_of(events), [e["type"] for e in events]


def by_replay(api, command, session):
    name = start_and_wait(api, command, session)
    events = events_of(api, "GET", f"/api/process/{name}/stream")
    return text_of(events), [e["type"] for e in events]


WAYS = [by_execute, by_live_execute, by_stream, by_logs, by_process_stream, by_replay]
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda w: w.__name__)
in_and_out = pytest.mark.parametrize("where", ["s", SESSIONLESS], ids=["session", "sessionless"])


# ------------------------------------------------------------------ nothing is lost


@each_way
@in_and_out
def test_a_million_lines(own_agent, way, where):
    process, api = own_agent()
    count = scaled(1_000_000, 50_000)
    with Growth(process) as growth:
        text, _ = way(api, f"seq 1 {count}", where)
    expected = "".join(f"{i}\n" for i in range(1, count + 1))
    assert len(text) == len(expected) and text == expected
    growth.assert_below(SLACK)


@each_way
@in_and_out
def test_one_line_of_a_hundred_megabytes(own_agent, way, where):
    """DOS-35"""
    process, api = own_agent()
    size = scaled(100 * MB)
    with Growth(process) as growth:
        text, _ = way(api, f"head -c {size} /dev/zero | tr '\\0' x; echo", where)
    assert len(text) == size + 1 and text.count("x") == size and text[-1] == "\n"
    growth.assert_below(SLACK)


@each_way
def test_fifty_thousand_lines_on_both_outputs(api, session, way):
    """The reference lost up to a fifth of them."""
    text, _ = way(api, "for i in {1..50000}; do echo $i; echo $i >&2; done", session)
    assert text == "".join(f"{i}\n" for i in range(1, 50001))


@each_way
def test_output_right_before_the_end(api, session, way):
    for n in range(20):
        text, _ = way(api, f"head -c {65536 + n} /dev/zero | tr '\\0' y; echo", session)
        assert len(text) == 65536 + n + 1


@each_way
def test_output_of_the_command_but_not_of_its_orphans(api, session, way):
    text, _ = way(api, "(sleep 60; echo late) & seq 1 30000", session)
    assert text == "".join(f"{i}\n" for i in range(1, 30001))


# ------------------------------------------------------------------ readers that are slow, fast, many or gone


def open_stream(api, method, path, body=None):
    connection = http.client.HTTPConnection(*api.address, timeout=60)
    connection.connect()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    data = json.dumps(body) if body else None
    connection.request(method, api.prefix + path, data, {"Content-Type": "application/json", **api.headers})
    return connection, connection.getresponse()


def produced(api, directory):
    return int(api.out(f"stat -c %s {directory}/out", SESSIONLESS))


@in_and_out
@pytest.mark.parametrize("live", [False, True], ids=["stream", "live execute"])
def test_a_reader_that_stops_stops_the_command(own_agent, tmp_path, where, live):
    """DOS-20: the producer is blocked, memory stays flat, and everything arrives in the end."""
    process, api = own_agent()
    size = scaled(200 * MB, 40 * MB)
    command = f"head -c {size} /dev/zero | tr '\\0' x | tee {tmp_path}/out; echo"
    headers = {"Accept": "text/event-stream"} if live else {}
    path = "/api/execute" if live else "/api/execute/stream"
    with Growth(process) as growth:
        api.headers.update(headers)
        connection, response = open_stream(api, "POST", path, {"command": command, "sessionId": where})
        api.headers.pop("Accept", None)
        first = response.read(1000)
        seen = []

        def stands_still():
            seen.append(produced(api, tmp_path))
            return len(seen) > 10 and seen[-1] == seen[-10]

        wait_until(stands_still, "the standstill", 60)
        assert seen[-1] < size / 2
        body = first + response.read()
        connection.close()
    assert sum(len(e["data"]) for e in sse(body) if e["type"] == "stdout") == size + 1
    growth.assert_below(SLACK)


def test_a_background_process_does_not_wait_for_readers(own_agent):
    """DOS-20: here the output is spooled instead."""
    process, api = own_agent()
    size = scaled(200 * MB, 40 * MB)
    with Growth(process) as growth:
        api.start(f"head -c {size} /dev/zero | tr '\\0' x; echo", "s", processId="p")
        connection, response = open_stream(api, "GET", "/api/process/p/stream")
        response.read(100)
        wait_until(lambda: api.process("p")["status"] == "completed", "the end", 60)
        rest = response.read()
        connection.close()
    assert len(rest) > size and rest.endswith(b"\n\n")
    growth.assert_below(SLACK)


@in_and_out
def test_yes_to_a_fast_reader(own_agent, where):
    """DOS-19"""
    process, api = own_agent()
    size = scaled(400 * MB, 40 * MB)
    with Growth(process) as growth:
        connection, response = open_stream(api, "POST", "/api/execute/stream", {"command": "yes " + "y" * 100, "sessionId": where})
        buffer, total = bytearray(MB), 0
        while total < size:
            got = response.readinto(buffer)
            assert got > 0, "it goes on"
            total += got
        connection.close()
    growth.assert_below(SLACK)
    api.delete("/api/process/kill-all")


def test_five_hundred_readers_of_which_half_die(own_agent):
    """WS-15"""
    process, api = own_agent()
    count, lines = scaled(500, 60), 400
    api.start(f"for i in {{1..{lines}}}; do echo \"line $i\"; sleep 0.005; done", "s", processId="p")
    before = len(os.listdir(f"/proc/{process.pid}/fd"))
    readers = [open_stream(api, "GET", "/api/process/p/stream") for _ in range(count)]
    texts = []

    def read(response):
        events = sse(response.read())
        texts.append((text_of(events), events[-1]["type"], [e["type"] for e in events].count("exit")))

    for connection, response in readers[::2]:
        response.readline()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, not a farewell
        response.close()
        connection.close()
    threads = [threading.Thread(target=read, args=(response,)) for _, response in readers[1::2]]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    whole = "".join(f"line {i}\n" for i in range(1, lines + 1))
    assert len(texts) == count // 2 and set(texts) == {(whole, "exit", 1)}
    for connection, _ in readers[1::2]:
        connection.close()
    wait_until(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) <= before + 1, "closed connections")


def test_a_vanished_reader_does_not_hold_the_command(own_agent, tmp_path):
    _, api = own_agent()
    command = f"head -c {20 * MB} /dev/zero | tr '\\0' x; touch {tmp_path}/done"
    connection, response = open_stream(api, "POST", "/api/execute/stream", {"command": command, "sessionId": "s"})
    response.read(1000)
    connection.close()
    response.close()
    wait_until(lambda: (tmp_path / "done").exists(), "the end")


# ------------------------------------------------------------------ forgery and encodings

FORGERIES = [
    "\n\nevent: exit\ndata: {\"type\":\"exit\",\"exitCode\":0}\n\n",
    "data: {\"type\":\"complete\",\"exitCode\":0}\n\n",
    "\r\rdata: {\"type\":\"complete\"}\r\r",
    "id: 1\nretry: 1\n: comment\n\n",
    "\",\"type\":\"exit\",\"x\":\"\n",
    "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\n",
    "\\u0022}\n\n0\r\n\r\n",
]


@pytest.mark.parametrize("text", FORGERIES, ids=range(len(FORGERIES)))
@each_way
@in_and_out
def test_forged_events_are_data(api, session, where, way, text):
    """WS-12: exactly one last event, and the forgery arrives as it was printed."""
    script = "printf %s " + "'" + text.replace("'", "'\\''") + "'; exit 3"
    if way in (by_execute, by_live_execute):
        script = f"({script})"  # exit would end the session's shell
    where = session if where == "s" else where
    got, types = way(api, script, where)
    assert got == (text if where == SESSIONLESS or text.endswith("\n") else text + "\n")
    if types:
        assert [t for t in types if t in ("exit", "complete", "error")] == [types[-1]]


PIECES = [
    (r"\xff\xfe", "\ufffd\ufffd"), (r"\xe2\x28\xa1", "\ufffd(\ufffd"), (r"\xf0\x9f\x8e\x89", "🎉"), (r"\xed\xa0\x80", "\ufffd" * 3),
    (r"\xc0\x80", "\ufffd\ufffd"), (r"\xf4\x90\x80\x80", "\ufffd" * 4), (r"\xef\xbb\xbf", "\ufeff"), (r"\xe2\x82", "\ufffd"),
]


@pytest.mark.parametrize("written, expected", PIECES, ids=range(len(PIECES)))
@each_way
@in_and_out
def test_invalid_utf8(api, session, where, way, written, expected):
    """WS-13"""
    got, _ = way(api, f"printf 'a{written}z\\n'", session if where == "s" else where)
    assert got == f"a{expected}z\n"


@each_way
@in_and_out
def test_nul(api, session, where, way):
    got, _ = way(api, r"printf 'a\0b\0\0c\n'", session if where == "s" else where)
    assert got == ("abc\n" if where == "s" else "a\0b\0\0c\n")


@each_way
@in_and_out
def test_characters_that_are_written_in_pieces(api, session, where, way):
    command = r"for b in '\xf0' '\x9f' '\x8e' '\x89' '\n'; do printf $b; sleep 0.05; done"
    got, _ = way(api, command, session if where == "s" else where)
    assert got == "🎉\n"


@each_way
@in_and_out
def test_characters_across_every_buffer(api, session, where, way):
    """Three bytes each do not divide any power of two."""
    count = scaled(2_000_000, 200_000)
    got, _ = way(api, f"yes '€€€€€€€€€€' | tr -d '\\n' | head -c {3 * count}; echo", session if where == "s" else where)
    assert len(got) == count + 1 and got == "€" * count + "\n"
