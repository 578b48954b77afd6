# SPDX-License-Identifier: Apache-2.0
"""/rpc through the gateway, into real sandboxes."""
import os
import sys

import pytest
from silica import TOKEN, wait_for

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "protocol"))
from rpc import UNDEFINED, Rpc, bytes_of, chunk
from websocket import Closed, Refused

AUTH = {"Authorization": f"Bearer {TOKEN}"}


def connect(daemon, box, headers=AUTH, **kw):
    return Rpc(("127.0.0.1", daemon.port), f"/v1/sandbox/{box}/rpc", headers=headers, **kw)


def read_all(rpc, pipe):
    """A stream to its end; acknowledges every piece."""
    data, number = [], pipe
    while True:
        _, (_, target, (method,), args) = rpc.receive_json()
        number += 1
        assert target == pipe
        rpc.say("resolve", number, UNDEFINED)
        if method == "close":
            rpc.expect("release", pipe, 1)
            return b"".join(data)
        data.append(bytes_of(args[0]))


def test_calls(daemon, box):
    with connect(daemon, box) as rpc:
        assert rpc.call("utils.ping") == "healthy"
        result = rpc.call("commands.execute", "id -u; pwd", "s")
        assert result["stdout"].split() == ["0", "/workspace"]
        error = rpc.refused("files.readFile", "/nope", "s")
        assert error[4]["code"] == "FILE_NOT_FOUND"


def test_streams_both_ways(daemon, box):
    with connect(daemon, box) as rpc:
        pipe = rpc.pipe()
        call = rpc.push("files.writeFileStream", "up.bin", ["readable", pipe], "s")
        data = os.urandom(3_000_000)
        for at in range(0, len(data), 100_000):
            number = rpc.stream(pipe, "write", chunk(data[at:at + 100_000]))
            rpc.expect("resolve", number, UNDEFINED)
        number = rpc.stream(pipe, "close")
        rpc.expect("resolve", number, UNDEFINED)
        rpc.say("pull", call)
        assert rpc.receive_json()[2]["bytesWritten"] == len(data)
        read = rpc.push("files.readFile", "/workspace/up.bin", "s", {"encoding": "none"})
        rpc.say("pull", read)
        rpc.expect("pipe")
        _, _, value = rpc.receive_json()
        assert value["size"] == len(data)
        assert read_all(rpc, value["content"][1]) == data


@pytest.mark.parametrize("language, code, expected", [("python", "print(6 * 7)", "42\n"), ("javascript", "console.log(6 * 7)", "42\n")])
def test_code(daemon, box, language, code, expected):
    with connect(daemon, box, timeout=60) as rpc:
        context = rpc.call("interpreter.createCodeContext", {"language": language})
        call = rpc.push("interpreter.runCodeStream", context["id"], code, UNDEFINED, {"onStdout": ["export", -1]})
        rpc.say("pull", call)
        text = ""
        while (message := rpc.receive_json())[0] == "push":
            number = rpc.receive_json()[1]
            text += message[1][3][0]["text"]
            rpc.say("resolve", number, UNDEFINED)
            rpc.expect("release", number, 1)
        assert message == ["release", -1, 1] and text == expected
        rpc.expect("resolve", call, UNDEFINED)


def test_who_may(daemon, box):
    with pytest.raises(Refused) as refused:
        connect(daemon, box, headers={})
    assert refused.value.status == 401
    with pytest.raises(Refused) as refused:
        connect(daemon, box, headers={**AUTH, "Origin": "http://elsewhere.example"})
    assert refused.value.status == 403


def test_a_connection_ends_with_its_sandbox(daemon, box):
    with connect(daemon, box) as rpc:
        rpc.push("commands.executeStream", "sleep 1000", "s")
        assert rpc.is_alive()
        daemon.destroy(box)
        with pytest.raises((Closed, ConnectionError)):
            while True:
                rpc.receive()


def test_an_open_connection_keeps_the_sandbox_awake(daemon_factory):
    """And its end lets it go to sleep: nothing is left open behind the gateway."""
    d = daemon_factory("rpc-sleep")
    d.start()
    d.request("PUT", "/v1/sandbox/a", {"sleepAfter": "1s"})

    def state():
        return d.request("GET", "/v1/sandbox/a").json["state"]

    with connect(d, "a") as rpc:
        assert rpc.is_alive()
        pid = rpc.call("commands.execute", "echo $$", "s")["stdout"]
        d.request("PUT", "/v1/sandbox/b", {"sleepAfter": "1s"})
        d.out("b", "true")
        wait_for(lambda: d.request("GET", "/v1/sandbox/b").json["state"] == "asleep", what="the other one sleeps")
        assert rpc.call("commands.execute", "echo $$", "s")["stdout"] == pid
    wait_for(lambda: state() == "asleep", what="it sleeps")
