# SPDX-License-Identifier: Apache-2.0
"""Logs from a byte offset, streams that go on where they broke off, and what is kept of an endless log."""
import json
import re

import pytest
from conftest import text_of, wait_until

SESSIONLESS = "__DISABLE_SESSION__"


def logs(api, process_id, query=""):
    response = api.get(f"/api/process/{process_id}/logs{query}")
    assert response.status == 200, response.body
    return response.json


def read_all(api, process_id, stream="stdout", limit=7):
    """Every piece of a finished process's log, one call after the other."""
    offset, pieces = 0, []
    while True:
        answer = logs(api, process_id, f"?offset={offset}&stream={stream}&limit={limit}")
        assert answer["offset"] == offset
        if answer["nextOffset"] == offset:
            assert answer[stream] == ""
            return pieces
        pieces.append(answer[stream])
        offset = answer["nextOffset"]


# ------------------------------------------------------------------ logs


def test_offset(api, session, process_id):
    api.start("echo one; echo two; echo err >&2", session, processId=process_id)
    api.wait_process(process_id)
    answer = logs(api, process_id, "?offset=4")
    assert (answer["stdout"], answer["stderr"], answer["offset"], answer["nextOffset"]) == ("two\n", "", 4, 8)
    answer = logs(api, process_id, "?offset=1&stream=stderr")
    assert (answer["stdout"], answer["stderr"], answer["offset"], answer["nextOffset"]) == ("", "rr\n", 1, 4)
    assert "dropped" not in answer


def test_without_a_query_nothing_is_added(api, session, process_id):
    api.start("echo one", session, processId=process_id)
    api.wait_process(process_id)
    assert set(logs(api, process_id)) == {"success", "processId", "stdout", "stderr", "timestamp"}


def test_offset_at_and_beyond_the_end(api, session, process_id):
    api.start("echo one", session, processId=process_id)
    api.wait_process(process_id)
    for offset in (4, 5, 2**63 - 1):
        answer = logs(api, process_id, f"?offset={offset}")
        assert (answer["stdout"], answer["offset"], answer["nextOffset"]) == ("", 4, 4)


@pytest.mark.parametrize("query", ["offset=-1", "offset=x", "offset=", "offset=1x", "offset=99999999999999999999999",
                                   "limit=0", "limit=-1", "limit=a", "stream=both", "stream=", "offset=1&stream=%00",
                                   "stream=" + "x" * 500])
def test_bad_queries(api, session, process_id, query):
    api.start("true", session, processId=process_id)
    response = api.get(f"/api/process/{process_id}/logs?{query}")
    assert response.status == 400 and response.json["code"] == "VALIDATION_FAILED"


@pytest.mark.parametrize("limit", [1, 4, 5, 7, 64])
def test_pieces_do_not_cut_characters(api, session, process_id, limit):
    api.start("for i in {1..40}; do printf 'a€🎉ü'; done; echo", session, processId=process_id)
    api.wait_process(process_id)
    pieces = read_all(api, process_id, limit=limit)
    assert "".join(pieces) == "a€🎉ü" * 40 + "\n"
    assert all(len(p.encode()) <= max(limit, 4) for p in pieces)


def test_pieces_of_invalid_text(api, process_id):
    api.start(r"printf 'a\xff\xf0\x9f\xf0\x9f\x8e\xe2\x82'", SESSIONLESS, processId=process_id)
    api.wait_process(process_id)
    whole = logs(api, process_id)["stdout"]
    assert "".join(read_all(api, process_id, limit=4)) == whole == "a\ufffd\ufffd\ufffd\ufffd"


def test_polling_a_running_process(api, session, process_id, directory):
    command = f"echo one; printf par; while [ ! -e {directory}/go ]; do sleep 0.02; done; echo tial; echo end"
    api.start(command, session, processId=process_id)
    wait_until(lambda: logs(api, process_id)["stdout"], "output")
    first = logs(api, process_id, "?offset=0")
    assert (first["stdout"], first["nextOffset"]) == ("one\n", 4)
    assert logs(api, process_id, "?offset=4")["nextOffset"] == 4
    api.run(f"touch {directory}/go", SESSIONLESS)
    api.wait_process(process_id)
    assert logs(api, process_id, "?offset=4")["stdout"] == "partial\nend\n"


def test_a_character_under_way_waits_for_its_rest(api, process_id, directory):
    command = f"printf 'x\\xe2\\x82'; while [ ! -e {directory}/go ]; do sleep 0.02; done; printf '\\xac'"
    api.start(command, SESSIONLESS, processId=process_id)
    wait_until(lambda: logs(api, process_id)["stdout"], "output")
    first = logs(api, process_id, "?offset=0")
    assert (first["stdout"], first["nextOffset"]) == ("x", 1)
    api.run(f"touch {directory}/go", SESSIONLESS)
    api.wait_process(process_id)
    assert logs(api, process_id, "?offset=1")["stdout"] == "€"


def test_large_logs_from_an_offset(api, session, process_id):
    api.start("seq 1 300000", session, processId=process_id)
    api.wait_process(process_id)
    text = "".join(f"{i}\n" for i in range(1, 300001))
    assert logs(api, process_id, "?offset=1500000")["stdout"] == text[1500000:]
    assert logs(api, process_id, "?offset=1500000&limit=100000")["stdout"] == text[1500000:1600000]


# ------------------------------------------------------------------ streams that go on


class Stream:
    """Events with their ids; may be dropped at any event."""

    def __init__(self, api, method, path, body=None, last=None):
        headers = {} if last is None else {"Last-Event-ID": last}
        self.connection, self.response = api.open(method, path, body, headers)

    def __iter__(self):
        event = ident = None
        while line := self.response.readline():
            if line.startswith(b"data: "):
                assert event is None, "one line of data per event"
                event = json.loads(line[6:])
            elif line.startswith(b"id: "):
                ident = line[4:].strip().decode()
            else:
                assert line == b"\n"
                yield ident, event
                event = ident = None

    def close(self):
        self.connection.close()


def collect(api, method, path, body=None, every=3):
    """All events of a stream that breaks off after every few of them."""
    seen, last, connections = [], None, 0
    query = "?ids=1"
    while True:
        connections += 1
        stream = Stream(api, method, path + query, body, last)
        if stream.response.status == 204:
            return seen, connections
        assert stream.response.status == 200, stream.response.read()
        for n, (ident, event) in enumerate(stream):
            assert re.fullmatch(r"[0-9a-f]{16}-\d+-\d+(-end)?", ident)
            seen.append(event)
            last, query = ident, ""
            if n + 1 == every:
                break
        stream.close()


def test_no_ids_unless_asked_for(api, session, process_id):
    """Plain clients see data lines only: the events helper accepts nothing else."""
    api.start("echo a", session, processId=process_id)
    api.wait_process(process_id)
    api.stream("echo a", session)


@pytest.mark.parametrize("name", [None, SESSIONLESS], ids=["session", "sessionless"])
def test_a_broken_process_stream_goes_on(api, session, process_id, name):
    command = "for i in {1..50}; do echo \"ü $i\"; echo \"e $i\" >&2; done; exit 3"
    api.start(command, name or session, processId=process_id)
    seen, connections = collect(api, "GET", f"/api/process/{process_id}/stream")
    assert text_of(seen) == "".join(f"ü {i}\n" for i in range(1, 51))
    assert text_of(seen, "stderr") == "".join(f"e {i}\n" for i in range(1, 51))
    assert [e["type"] for e in seen].count("process_info") == 1
    assert [e["exitCode"] for e in seen if e["type"] == "exit"] == [3] and seen[-1]["type"] == "exit"
    if name is None:
        assert connections > 20


def test_a_broken_execute_stream_goes_on_and_does_not_run_again(api, session, directory):
    command = f"echo run >> {directory}/runs; for i in {{1..30}}; do echo $i; sleep 0.01; done; printf end"
    body = {"command": command, "sessionId": session}
    seen, connections = collect(api, "POST", "/api/execute/stream", body)
    assert text_of(seen) == "".join(f"{i}\n" for i in range(1, 31)) + "end\n"
    assert [e["type"] for e in seen].count("start") == 1 and seen[0]["processId"].startswith("proc_")
    assert seen[-1]["type"] == "complete" and connections > 5
    assert api.out(f"cat {directory}/runs", SESSIONLESS) == "run\n"


def test_the_id_of_an_execute_stream_is_good_for_its_process(api, session):
    stream = Stream(api, "POST", "/api/execute/stream?ids=1", {"command": "echo a; echo b", "sessionId": session})
    events = iter(stream)
    _, start = next(events)
    ident, first = next(events)
    assert first["data"] == "a\n"
    stream.close()
    path = f"/api/process/{start['processId']}/stream"
    rest = [e for _, e in Stream(api, "GET", path, last=ident)]
    assert text_of(rest) == "b\n" and rest[-1]["type"] == "exit"


def test_resuming_inside_a_very_long_line(api, session, process_id):
    api.start("for i in {1..60000}; do printf 'x€'; done", session, processId=process_id)
    api.wait_process(process_id)
    seen, connections = collect(api, "GET", f"/api/process/{process_id}/stream", every=1)
    assert text_of(seen) == "x€" * 60000 + "\n" and connections > 3


def test_an_id_of_an_earlier_process_starts_at_the_beginning(api, session, process_id):
    api.start("echo old; echo older", session, processId=process_id)
    api.wait_process(process_id)
    path = f"/api/process/{process_id}/stream"
    ident = [i for i, _ in Stream(api, "GET", path + "?ids=1")][1]
    api.start("echo new", session, processId=process_id)
    api.wait_process(process_id)
    events = [e for _, e in Stream(api, "GET", path, last=ident)]
    assert [e["type"] for e in events] == ["process_info", "stdout", "exit"] and text_of(events) == "new\n"


@pytest.mark.parametrize("last", ["", "0", "x", "1-2", "1-2-3-4", "0000000000000000-1-1", "-1-1-1", "f" * 40 + "-0-0"])
def test_ids_that_are_none_of_ours(api, session, process_id, last):
    api.start("echo a", session, processId=process_id)
    api.wait_process(process_id)
    events = list(Stream(api, "GET", f"/api/process/{process_id}/stream", last=last))
    assert [e["type"] for _, e in events] == ["process_info", "stdout", "exit"] and all(i for i, _ in events)


def test_an_execute_stream_that_is_forgotten_is_not_run_again(api, session, directory):
    body = {"command": f"touch {directory}/x", "sessionId": session}
    response = api.post("/api/execute/stream", body, headers={"Last-Event-ID": "00000000000000ff-0-0"})
    assert response.status == 404 and response.json["code"] == "PROCESS_NOT_FOUND"
    assert api.out(f"ls {directory}", SESSIONLESS) == ""


# ------------------------------------------------------------------ endless logs

LIMIT = 4 << 20


@pytest.fixture
def small_logs(own_agent):
    _, api = own_agent(environment={"SILICA_LOG_LIMIT": "4M"})
    return api


def flood(count=40_000):
    """Twice as much as is kept, in lines of which an event each is not too many."""
    return f"seq -f %0200.0f 1 {count}", "".join(f"{i:0200d}\n" for i in range(1, count + 1))


def test_the_newest_part_of_a_log_is_kept(small_logs):
    command, text = flood()
    small_logs.start(command, "s", processId="p")
    last = small_logs.wait_process("p")[-1]
    assert last["exitCode"] == 0
    answer = logs(small_logs, "p")
    assert answer["stdout"] == text[-LIMIT:] and answer["dropped"] == len(text) - LIMIT
    answer = logs(small_logs, "p", "?offset=1000")
    assert answer["offset"] == len(text) - LIMIT and answer["dropped"] == len(text) - LIMIT - 1000
    assert answer["stdout"] == text[-LIMIT:] and answer["nextOffset"] == len(text)
    answer = logs(small_logs, "p", f"?offset={len(text) - 10}")
    assert answer["stdout"] == text[-10:] and "dropped" not in answer


def test_a_stream_tells_what_is_gone(small_logs):
    command, text = flood()
    small_logs.start(command, "s", processId="p")
    small_logs.wait_process("p")
    for path in ("/api/process/p/stream", "/api/process/p/stream?ids=1"):
        events = [e for _, e in Stream(small_logs, "GET", path)]
        assert text_of(events) == text[-LIMIT:]
        dropped = [e for e in events if e["type"] == "dropped"]
        assert [(e["stream"], e["bytes"]) for e in dropped] == [("stdout", len(text) - LIMIT)]


def test_a_live_stream_loses_nothing(small_logs):
    """The command waits for its reader, however small the log."""
    command, text = flood()
    events = small_logs.stream(command, "s")
    assert text_of(events) == text and "dropped" not in {e["type"] for e in events}


def test_execute_tells_what_is_gone(small_logs):
    command, text = flood()
    answer = small_logs.run(command, "s")
    assert answer["stdout"] == text[:-1][-LIMIT + 1:] and answer["dropped"] == len(text) - LIMIT
