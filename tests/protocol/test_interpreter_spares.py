# SPDX-License-Identifier: Apache-2.0
"""How many Node processes are kept ready. All but the last tests give the agent a program of their own as `node`, which
says when the test lets it that it has loaded, so that nothing depends on how fast a machine is."""
import os
import signal

import pytest
from conftest import alive, wait_until
from interpreter import ROOT, lab, make  # noqa: F401

SPARES_MAX = 4

NODE = """#!/usr/bin/python3 -SE
import json, os, select, socket
log = os.open(f"DIRECTORY/{os.getpid()}", os.O_WRONLY | os.O_CREAT)
line, rest, waiting = socket.socket(fileno=9), b"", None

def note(word):
    os.write(log, word.encode() + b" ")

def say(kind, request):
    line.sendall(f"\\n{request['nonce']}={kind}0 {{}}\\n".encode())
    note(kind)

note("started")
while True:
    if waiting and os.path.exists("DIRECTORY/gate"):
        say("w", waiting)
        waiting = None
    if not select.select([line], [], [], 0.01 if waiting else None)[0]:
        continue
    piece = line.recv(65536)
    if not piece:
        break
    *texts, rest = (rest + piece).split(b"\\n")
    for request in map(json.loads, texts):
        note(request["op"])
        if request["op"] == "wait":
            waiting = request
        elif request["op"] == "init":
            waiting = None
            say("h", request)
"""


class Fleet:
    """An agent and what it has started."""

    def __init__(self, own_agent, directory, **environment):
        self.directory = directory
        programs = directory / "bin"
        programs.mkdir()
        self.notes = directory / "notes"
        self.notes.mkdir()
        (programs / "node").write_text(NODE.replace("DIRECTORY", str(self.notes)))
        (programs / "node").chmod(0o755)
        self.process, self.api = own_agent(
            environment={"PATH": f"{programs}:/usr/bin:/bin", "SILICA_RUNTIME": str(ROOT / "runtime"), **environment})
        os.sched_setaffinity(self.process.pid, {min(os.sched_getaffinity(0))})  # one processor: one start at a time

    def open_gate(self):
        (self.notes / "gate").touch()

    def create(self, language="javascript"):
        answer = self.api.post("/api/contexts", {"language": language})
        assert answer.status == 200, answer.body
        return answer.json["contextId"]

    def started(self):
        """{pid: words} of every process there ever was."""
        return {int(f.name): f.read_text().split() for f in self.notes.iterdir() if f.name != "gate"}

    def children(self):
        """How many the agent has: also those that have not come so far as to note anything."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as f:
            return len(f.read().split())

    def spares(self, word="started"):
        """The pids of those that live and have no context."""
        return [pid for pid, words in self.started().items() if word in words and "init" not in words and alive(pid)]


@pytest.fixture
def fleet(own_agent, tmp_path):
    return lambda **environment: Fleet(own_agent, tmp_path, **environment)


def test_one_spare_more_with_each_context(fleet):
    fleet = fleet()
    fleet.open_gate()
    for contexts in range(1, SPARES_MAX + 3):
        fleet.create()
        spares = min(contexts, SPARES_MAX)
        wait_until(lambda: len(fleet.spares("w")) == spares, f"{spares} spares are ready")
        assert len(fleet.started()) == contexts + spares


def test_one_spare_for_contexts_far_apart(fleet):
    fleet = fleet(INTERPRETER_SURPLUS_IDLE_MS="1")
    fleet.open_gate()
    for contexts in range(1, 5):
        fleet.create()
        wait_until(lambda: fleet.spares("w"), "a spare is ready")
        assert len(fleet.started()) == contexts + 1


def test_starts_take_turns_on_one_processor(fleet):
    fleet = fleet()
    others = fleet.children()
    for contexts in range(1, SPARES_MAX + 3):
        fleet.create()  # takes a spare that has not loaded
        wait_until(lambda: fleet.spares("wait"), "the next is starting")
        assert fleet.children() == others + contexts + 1, "one processor, one start at a time"
    fleet.open_gate()
    wait_until(lambda: len(fleet.spares("w")) == SPARES_MAX, "there are as many spares as there may be")
    begin = set(fleet.spares())
    for _ in range(SPARES_MAX):
        fleet.create()
    assert not begin & set(fleet.spares()), "all that were ready have been used"
    wait_until(lambda: len(fleet.spares("w")) == SPARES_MAX, "and are replaced")


def test_languages_have_spares_of_their_own(fleet):
    fleet = fleet()
    fleet.open_gate()
    fleet.create("javascript")
    wait_until(lambda: fleet.spares("w"), "one of JavaScript")
    javascript = fleet.spares()
    fleet.create("typescript")
    wait_until(lambda: len(fleet.spares("w")) == 2, "one of each")
    assert set(javascript) < set(fleet.spares())
    typescript = next(words for pid, words in fleet.started().items() if pid in fleet.spares() and pid not in javascript)
    assert typescript == ["started", "load", "wait", "w"]


def test_surplus_ends(fleet):
    fleet = fleet(INTERPRETER_SURPLUS_IDLE_MS="8000")
    fleet.create()
    for _ in range(SPARES_MAX):
        fleet.create()
    fleet.open_gate()
    wait_until(lambda: len(fleet.spares()) > 1, "there are more than one")
    wait_until(lambda: len(fleet.spares()) == 1, "one is left")
    assert len(fleet.api.get("/api/contexts").json["contexts"]) == SPARES_MAX + 1, "contexts are not touched"


@pytest.mark.parametrize("setting, spares", [("0", 0), ("3", 3), ("99", SPARES_MAX), ("-1", 1), ("three", 1), ("2x", 1), ("", 1)])
def test_the_least_number(fleet, setting, spares):
    fleet = fleet(JAVASCRIPT_POOL_MIN_SIZE=setting)
    fleet.open_gate()
    fleet.create()
    wait_until(lambda: len(fleet.spares("w")) == spares, "as many as were wished")
    fleet.create("typescript")
    wait_until(lambda: len(fleet.spares("w")) == spares + 1, "the other language has its own number")
    assert len(fleet.started()) == spares + 3


def test_dead_spares_are_not_handed_out(fleet):
    fleet = fleet(JAVASCRIPT_POOL_MIN_SIZE="3")
    fleet.open_gate()
    fleet.create()
    wait_until(lambda: len(fleet.spares("w")) == 3, "there are three")
    for pid in fleet.spares():
        os.kill(pid, signal.SIGKILL)
    for _ in range(4):
        fleet.create()
    wait_until(lambda: len(fleet.spares("w")) >= 3, "there are as many again")


def test_an_older_runtime_never_says_that_it_has_loaded(fleet):
    fleet = fleet()
    for _ in range(8):
        fleet.create()
        wait_until(fleet.spares, "there is one nevertheless")


def test_nothing_is_left_behind(fleet):
    fleet = fleet(JAVASCRIPT_POOL_MIN_SIZE="4")
    fleet.open_gate()
    fleet.create()
    wait_until(lambda: len(fleet.spares("w")) == 4, "there are four")
    fleet.process.send_signal(signal.SIGTERM)
    fleet.process.wait(60)
    wait_until(lambda: not any(alive(pid) for pid in fleet.started()), "all have ended")


# ---------------------------------------------------------------------- with the real one


@pytest.mark.parametrize("language", ["javascript", "typescript"])
def test_a_burst_of_contexts(lab, make, language):
    for _ in range(2):  # the second finds more of them ready
        contexts = [make(language) for _ in range(6)]
        for i, context in enumerate(contexts):
            assert lab.run(f"globalThis.mine = {i}; undefined", context).error is None
        pids = [lab.run("process.pid", context).text for context in contexts]
        assert len(set(pids)) == 6, "each is a process of its own"
        assert [lab.run("mine", context).text for context in contexts] == [str(i) for i in range(6)]
        assert len({lab.run("Math.random()", context).text for context in contexts}) == 6
