# SPDX-License-Identifier: Apache-2.0
"""Our WebSockets against those of the npm package `ws`: its client with our server, our client with its server, and
the same bytes to both servers.

SILICA_NODE_MODULES  a directory with the packages of tests/clients/websocket/package.json; without it npm installs them
SILICA_BIN           the silica command, for the part about our client
"""
import json
import os
import random
import shutil
import struct
import subprocess
import tempfile

import pytest
from websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, WebSocket, frame

CLIENTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "clients", "websocket")


@pytest.fixture(scope="module")
def node():
    """Starts scripts of tests/clients/websocket under node."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("node and npm are not installed")
    given = os.environ.get("SILICA_NODE_MODULES")
    directory = tempfile.mkdtemp(prefix="silica-clients-")
    modules = given or directory + "/node_modules"
    if not given:
        shutil.copy(CLIENTS + "/package.json", directory)
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"],
                              cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
        if done.returncode:
            shutil.rmtree(directory)
            pytest.skip("npm cannot install the packages: " + " ".join(done.stdout.split())[-200:])
    running = []

    def start(script, *arguments):
        process = subprocess.Popen(["node", f"{CLIENTS}/{script}", *arguments], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True, env={**os.environ, "NODE_PATH": modules})
        running.append(process)
        return process

    yield start
    for process in running:
        process.stdin.close()
        process.wait(timeout=60)
        process.stdout.close()
    shutil.rmtree(directory)


def test_their_client(api, node):
    process = node("ws_client.js", f"ws://{api.address[0]}:{api.address[1]}{api.prefix}/ws")
    seen = json.loads(process.stdout.readline())
    assert seen["extensions"] == "" and seen["close"] == 3210 and seen["pongs"] == ["first", "between"]
    assert seen["answers"].pop("pieces") == {"status": 200, "stdout": "κόσμε\n"}
    assert len(seen["answers"]) == 20 and all(a["status"] == 200 for a in seen["answers"].values())


def test_our_client(node):
    silica = os.environ.get("SILICA_BIN")
    if not silica:
        pytest.skip("SILICA_BIN is not set")
    server = node("ws_terminal.js")
    port = int(server.stdout.readline())
    done = subprocess.run([silica, "shell", "box", "--url", f"http://127.0.0.1:{port}", "--token", "t" * 40],
                          input="some keys", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 42 and done.stderr == ""
    assert done.stdout.startswith("replay:" + "." * 100000)
    assert "SOME KEYS" in done.stdout and "<pong>" in done.stdout


# ------------------------------------------------------------------ the same bytes to both

def pieces(rng, payload, text):
    """One message in random fragments, with pings and pongs between them."""
    cuts = sorted(rng.randrange(len(payload) + 1) for _ in range(rng.randrange(4)))
    parts = [payload[a:b] for a, b in zip([0, *cuts], [*cuts, len(payload)])]
    data = b""
    for i, part in enumerate(parts):
        opcode = CONTINUATION if i else TEXT if text else BINARY
        data += frame(opcode, part, final=i == len(parts) - 1)
        if rng.random() < 0.3:
            data += frame(rng.choice([PING, PONG]), bytes(rng.randrange(126)))
    return data


def good_text(rng):
    alphabet = ["a", "{", "\x00", "\x7f", "\x80", "߿", "ࠀ", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"]
    return "".join(rng.choices(alphabet, k=rng.choice([0, 1, 20, 130, 20000]))).encode()


def fault(rng):
    """The end of a story: something wrong, or a close."""
    bad_text = rng.choice([b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff", b"ab\xe2\x82", b"\xf0\x9d\x84"])
    return rng.choice([
        lambda: frame(TEXT, b"x" * 10 + bad_text),
        lambda: frame(TEXT, b"a", final=False) + frame(CONTINUATION, bad_text),
        lambda: frame(rng.choice([3, 4, 5, 6, 7, 11, 12, 13, 14, 15]), b"x"),
        lambda: frame(BINARY, b"x", reserved=rng.choice([1, 2, 3, 4, 5, 6, 7])),
        lambda: frame(BINARY, b"x" * rng.randrange(1, 200), masked=False),
        lambda: frame(CONTINUATION, b"x", final=rng.random() < 0.5),
        lambda: frame(BINARY, b"x", final=False) + frame(TEXT, b"y"),
        lambda: frame(PING, b"x" * rng.choice([126, 200])),
        lambda: frame(rng.choice([PING, PONG, CLOSE]), b"", final=False),
        lambda: frame(BINARY, b"x" * 8, length=(64, rng.choice([1 << 40, 1 << 62, (1 << 64) - 1]))),
        lambda: frame(CLOSE, b"x"),
        lambda: frame(CLOSE, struct.pack(">H", rng.choice([0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535]))),
        lambda: frame(CLOSE, struct.pack(">H", 1000) + bad_text),
        lambda: frame(CLOSE, struct.pack(">H", rng.choice([1000, 1001, 1011, 1014, 3000, 4999])) + "gut".encode()),
        lambda: frame(CLOSE),
    ])()


def story(address, path, headers, data):
    """Answers, pongs with their lengths, and the close code."""
    seen = []
    with WebSocket(address, path, headers=headers) as ws:
        ws.close_code = 0  # the test's bytes say what is said
        ws.raw(data)
        while True:
            opcode, final, payload = ws.frame()
            if opcode == CLOSE:
                return seen, struct.unpack(">H", payload[:2])[0] if payload else 1005
            seen.append("answer" if opcode == TEXT else (opcode, len(payload)))


def test_same_bytes_same_story(api, node):
    server = node("ws_echo.js")
    theirs = ("127.0.0.1", int(server.stdout.readline()))
    for seed in range(300):
        rng = random.Random(seed)
        data = b""
        for _ in range(rng.randrange(5)):
            text = rng.random() < 0.5
            # what we are sent must be no request: it is answered at once with an error, as theirs answers
            data += pieces(rng, good_text(rng) if text else rng.randbytes(rng.choice([0, 5, 126, 70000])), text)
        data += fault(rng)
        expected = story(theirs, "/", {}, data)
        got = story(api.address, api.prefix + "/ws", api.headers, data)
        assert sorted(map(str, got[0])) == sorted(map(str, expected[0])), seed
        assert got[1] == expected[1], seed
