# SPDX-License-Identifier: Apache-2.0
"""The real npm client in a real Worker in workerd, with Silica in Docker's place: every public method, over every transport.
The Worker (src/) calls and compares; here are the drive, and what comes from outside: browsers, terminals, crashes."""
import glob
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, urlsplit

import pytest
from engine import Engine
from silica import wait_for
from websocket import Closed, Refused, WebSocket
from wrangler import HERE, Wrangler

TRANSPORTS = ["http", "websocket", "rpc"]
ABREAST = 4  # areas of checks at a time

# Called by the platform, not by a Worker; or not for Workers by the client's own word.
NOT_FOR_WORKERS = {"constructor", "onStart", "onStop", "onError", "onActivityExpired", "callTunnels", "execWithSessionToken", "execStreamWithSessionToken"}


def declared():
    """Every check of the Worker, in the order of the sources."""
    found = []
    for path in sorted(glob.glob(HERE + "/src/*.ts")):
        area = os.path.basename(path).removesuffix(".ts")
        with open(path) as f:
            found += [f"{area}/{title}" for title in re.findall(r"^check\('([^']+)'", f.read(), re.M)]
    return found


def run(worker, names):
    """All checks, the areas beside each other: most of their time is waiting. Gives {name: result}."""
    areas, results = {}, {}
    for name in names:
        areas.setdefault(name.split("/", 1)[0], []).append(name)

    def one(name):
        area, title = name.split("/", 1)
        try:
            r = worker.request("GET", f"/check/{area}/{quote(title, safe='')}")
            return r.json if r.status == 200 else {"ok": False, "error": f"{r.status}: {r.body[:2000]}", "called": []}
        except OSError as e:
            return {"ok": False, "error": f"no answer: {e}", "called": []}

    with ThreadPoolExecutor(ABREAST) as pool:
        for part in pool.map(lambda area: {name: one(name) for name in area}, areas.values()):
            results.update(part)
    return results


@pytest.fixture(scope="module", params=TRANSPORTS)
def worker(request, daemon):
    w = Wrangler(daemon, HERE, {"SANDBOX_TRANSPORT": request.param})
    w.transport, w.called = request.param, set()
    try:
        w.start()
        w.results = run(w, [i.callspec.params["name"] for i in request.session.items
                            if i.originalname == "test_check" and i.callspec.params["worker"] == w.transport])
        yield w
    finally:
        w.cleanup()


@pytest.fixture
def box(worker, request):
    """A fresh sandbox id, destroyed after the test."""
    name = f"{worker.transport}-{request.node.originalname.removeprefix('test_').replace('_', '-')}"[:40].strip("-")
    yield name
    assert worker.request("POST", f"/destroy/{name}").status == 204


def ask(worker, verb, box, argument="", body=""):
    r = worker.request("POST", f"/{verb}/{box}/{argument}", body)
    assert r.status == 200, r.body[:2000]
    return r.json


@pytest.mark.parametrize("name", declared())
def test_check(worker, name):
    result = worker.results[name]
    worker.called.update(result["called"])
    assert result["ok"], result["error"]


def public_methods(declaration, source):
    """The methods of a class or an interface, from the types that the package publishes."""
    body = re.search(declaration + r".*?\{\n(.*?)\n\}", source, re.S).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    return set(re.findall(r"^  (\w+)[<(]", body, re.M))


def test_every_public_method_was_called(worker):
    """The list is the package's own: a newer client with a method more makes this fail."""
    if set(worker.results) != set(declared()):
        pytest.skip("needs all checks to have run")
    types, = glob.glob(HERE + "/node_modules/@cloudflare/sandbox/dist/sandbox-*.d.ts")
    with open(types) as f:
        source = f.read()
    assert "exec" in public_methods(r"declare class Sandbox<", source)
    wanted = {f"sandbox.{m}" for m in public_methods(r"declare class Sandbox<", source) - NOT_FOR_WORKERS}
    wanted |= {f"session.{m}" for m in public_methods(r"interface ExecutionSession ", source)}
    wanted -= {"session.terminal"}  # test_terminal_of_a_session
    assert not wanted - worker.called


# ---- previews, as a browser uses them

@pytest.fixture
def preview(worker, box):
    url = urlsplit(ask(worker, "expose", box, "8080")["url"])
    assert url.netloc.startswith(f"8080-{box}-") and url.netloc.endswith(f".localhost:{worker.port}")
    return url.netloc


def test_preview(worker, box, preview):
    r = worker.request("POST", "/echo?a=1", "hello", {"X-Mine": "yes"}, host=preview)
    assert r.status == 200 and r.headers["x-service"] == "demo"
    assert (r.json["method"], r.json["url"], r.json["body"], r.json["headers"]["x-mine"]) == ("POST", "/echo?a=1", "hello", "yes")
    assert r.json["headers"]["x-forwarded-host"] == preview.split(":")[0]
    assert worker.request("GET", "/teapot", host=preview).status == 418
    assert worker.request("GET", "/redirect", host=preview).headers["location"] == "/echo"
    assert worker.request("GET", "/stream", host=preview).body == b"data: 1\n\ndata: 2\n\n"


def test_preview_of_a_websocket(worker, box, preview):
    ws = WebSocket(("127.0.0.1", worker.port), "/ws", host=preview)
    for word in ("ab", "cd"):
        ws.send(word)
        assert ws.receive() == word * 2
    ws.close()


def test_preview_with_a_wrong_token(worker, box, preview):
    wrong = re.sub(r"-[a-z0-9_]+\.localhost", "-wrong.localhost", preview)
    r = worker.request("GET", "/echo", host=wrong)
    assert (r.status, r.json["code"]) == (404, "INVALID_TOKEN")
    with pytest.raises(Refused):
        WebSocket(("127.0.0.1", worker.port), "/ws", host=wrong)
    assert worker.request("POST", f"/unexpose/{box}/8080").status == 204
    assert worker.request("GET", "/echo", host=preview).status == 404


def test_preview_of_an_earlier_life(worker, box, preview):
    assert worker.request("POST", f"/stop/{box}").status == 204
    wait_for(lambda: worker.request("GET", "/echo", host=preview).status == 410, 60, "the url to be stale")
    assert worker.request("GET", "/echo", host=preview).json["code"] == "STALE_PREVIEW_URL"


# ---- terminals

class Terminal(WebSocket):
    output = b""

    def until(self, text):
        while text not in self.output:
            message = self.receive()
            if isinstance(message, bytes):
                self.output += message
            else:
                self.control = json.loads(message)


def test_terminal(worker, box):
    ask(worker, "exec", box, body="export COLOUR=blue")
    t = Terminal(("127.0.0.1", worker.port), f"/terminal/{box}", headers={"Origin": "http://localhost"})
    t.send(b"stty size; echo $COLOUR-$((6*7)); read -s x; echo \"<$x>\"\n")
    t.until(b"30 100\r\n")
    t.until(b"blue-42")
    t.send(b"typed\n")
    t.until(b"<typed>")
    t.send(b"exit 3\n")
    with pytest.raises(Closed):
        t.until(b"never said")
    assert t.control["type"] == "exit" and t.control["code"] == 3


def test_terminal_of_a_session(worker, box):
    t = Terminal(("127.0.0.1", worker.port), f"/session-terminal/{box}/mine")
    t.send(b"echo in-$((20+1))\n")
    t.until(b"in-21")
    t.close()


# ---- the life of the Worker

def test_adoption_after_a_crash(worker, box, daemon):
    """kill -9 of workerd and wrangler: the next ones find the container running, with its files, processes and sessions."""
    ask(worker, "exec", box, body="echo kept >/workspace/kept; export VARIABLE=kept; cd /tmp")
    ask(worker, "start", box, "there", body="exec sleep 3000")
    worker.kill()
    worker.start()
    assert ask(worker, "process", box, "there") == "running"
    r = ask(worker, "exec", box, body="cat /workspace/kept; echo $VARIABLE; pwd")
    assert r["stdout"].split() == ["kept", "kept", "/tmp"]


def containers(daemon):
    return {name for c in Engine(daemon).call("GET", "/containers/json?all=1").json for name in c["Names"] if not name.endswith("-proxy")}


def test_the_end_of_wrangler(worker, daemon):
    """The last of a transport: what this wrangler has started goes with it."""
    before = containers(daemon)
    ask(worker, "exec", f"{worker.transport}-left", body="true")
    started = containers(daemon) - before
    assert len(started) == 1
    worker.stop()
    wait_for(lambda: not started & containers(daemon), what="the end of its container")
