# SPDX-License-Identifier: Apache-2.0
"""The tunnels of /rpc, with a program in the place of cloudflared that says what it says."""
import json
import os
import pathlib
import signal

import pytest
from conftest import wait_until
from rpc import UNDEFINED, Rpc

# Ends with code 9 when the file end-PORT appears. The token chooses how it fails.
CLOUDFLARED = r"""#!/usr/bin/python3
import http.server, json, os, pathlib, sys, threading, time

here = pathlib.Path(__file__).parent
url = sys.argv[sys.argv.index("--url") + 1]
port = url.rsplit(":", 1)[1]
(here / f"argv-{port}").write_text(json.dumps(sys.argv[1:]))
token = sys.argv[sys.argv.index("--token") + 1] if "--token" in sys.argv else ""

class Handler(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Handler.asked += 1
        ready = int(self.path == "/ready" and Handler.asked > 2)
        body = json.dumps({"status": 200 if ready else 503, "readyConnections": ready}).encode()
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass

def say(text):
    print(json.dumps({"level": "info", "message": text}), file=sys.stderr, flush=True)

if token == "fails":
    say('Post "https://api.trycloudflare.com/tunnel": no network')
    sys.exit(3)
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
say("Requesting new quick Tunnel on trycloudflare.com...")
say("|  https://four-words-in-row.trycloudflare.com  |")
if token != "silent":
    say(f"Starting metrics server on 127.0.0.1:{server.server_port}/metrics")
while not (here / f"end-{port}").exists():
    time.sleep(0.02)
sys.exit(9)
"""


@pytest.fixture
def tunnels(own_agent, tmp_path):
    """(directory of the program, process, api)"""
    program = tmp_path / "cloudflared"
    program.write_text(CLOUDFLARED)
    program.chmod(0o755)
    process, api = own_agent(environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    return tmp_path, process, api


def running(directory):
    """The pids of the programs of this directory."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if len(words) > 2 and words[1] == bytes(directory / "cloudflared"):
            found.append(int(entry.parent.name))
    return found


def test_quick_and_named(tunnels):
    directory, _, api = tunnels
    with Rpc.of(api, "/rpc") as rpc:
        quick = rpc.call("tunnels.runQuickTunnel", "q", 8080)
        assert quick.pop("createdAt").endswith("Z")
        assert quick == {"id": "q", "port": 8080, "url": "https://four-words-in-row.trycloudflare.com",
                         "hostname": "four-words-in-row.trycloudflare.com"}
        named = rpc.call("tunnels.runNamedTunnel", "n", "tok'en", 8081)
        assert (named["url"], named["hostname"]) == ("", "")
        expected = ["tunnel", "--metrics", "127.0.0.1:0", "--no-autoupdate"]
        assert json.loads((directory / "argv-8080").read_text()) == expected + ["--output", "json", "--url", "http://localhost:8080"]
        assert json.loads((directory / "argv-8081").read_text()) == expected + ["run", "--token", "tok'en", "--url", "http://localhost:8081"]
        (listed,) = rpc.call("tunnels.listTunnels")
        assert [t["id"] for t in listed] == ["q", "n"]
        assert rpc.refused("tunnels.runQuickTunnel", "q", 8082)[4]["code"] == "TUNNEL_ALREADY_RUNNING"
        assert rpc.call("tunnels.destroyTunnel", "q") == {"success": True, "id": "q"}
        assert rpc.refused("tunnels.destroyTunnel", "q")[4]["code"] == "TUNNEL_NOT_FOUND"
        assert rpc.refused("tunnels.runQuickTunnel", "x", 0)[4]["code"] == "VALIDATION_FAILED"
        assert rpc.refused("tunnels.runQuickTunnel", "", 80)[4]["code"] == "VALIDATION_FAILED"


def test_runs(tunnels):
    _, _, api = tunnels
    with Rpc.of(api, "/rpc") as rpc:
        wanted = {"tunnelId": "t", "runId": "1", "mode": "quick", "port": 8080}
        both = [rpc.push("tunnels.ensureTunnelRun", wanted) for _ in range(2)]  # at the same time: one start
        for id in both:
            rpc.say("pull", id)
        answers = {id: value for _, id, value in (rpc.receive_json(), rpc.receive_json())}
        assert sorted(a["started"] for a in answers.values()) == [False, True]
        run = answers[both[0]]["run"]
        assert run.pop("startedAt").endswith("Z")
        assert run == {**wanted, "url": "https://four-words-in-row.trycloudflare.com",
                       "hostname": "four-words-in-row.trycloudflare.com"}
        for other in ({"port": 8081}, {"runId": "2"}, {"runId": "2", "tunnelId": "u"}, {"mode": "named", "token": "x"}):
            error = rpc.refused("tunnels.ensureTunnelRun", {**wanted, **other})
            assert error[4]["code"] == "TUNNEL_RUN_CONFLICT", other
            assert error[4]["details"]["activeRunId"] == "1" and error[4]["details"]["activeTunnelId"] == "t"
        assert rpc.call("tunnels.listTunnels") == [[]]  # runs are not in it
        assert rpc.call("tunnels.stopTunnelRun", {"tunnelId": "t", "runId": "2"}) == {"stopped": False}
        assert rpc.call("tunnels.stopTunnelRun", {"tunnelId": "t", "runId": "1"}) == {"stopped": True}
        assert rpc.call("tunnels.stopTunnelRun", {"tunnelId": "t", "runId": "1"}) == {"stopped": False}
        again = rpc.call("tunnels.ensureTunnelRun", {**wanted, "mode": "named", "token": "x"})
        assert again["started"] is True and "url" not in again["run"]


def test_the_agent_ends_before_the_tunnels_output(tunnels):
    """The program is dead, but the end of what it says has not been seen: the record must not be lost (the sanitizer looks)."""
    directory, process, api = tunnels
    with Rpc.of(api, "/rpc") as rpc:
        assert rpc.call("tunnels.runQuickTunnel", "q", 8080)["id"] == "q"
    (pid,) = running(directory)
    with open(f"/proc/{pid}/fd/2", "wb"):
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def test_a_start_that_fails_is_forgotten(tunnels):
    _, _, api = tunnels
    with Rpc.of(api, "/rpc") as rpc:
        for _ in range(2):
            error = rpc.refused("tunnels.runNamedTunnel", "f", "fails", 8080)
            assert error[4]["code"] == "TUNNEL_START_ERROR"
            assert "code 3" in error[2] and "no network" in error[2]
        assert rpc.call("tunnels.listTunnels") == [[]]


def test_stopped_before_it_was_ready(tunnels):
    _, _, api = tunnels
    with Rpc.of(api, "/rpc") as rpc:
        start = rpc.push("tunnels.runNamedTunnel", "s", "silent", 8080)
        rpc.say("pull", start)
        stop = rpc.push("tunnels.destroyTunnel", "s")
        rpc.say("pull", stop)
        answers = {id: (kind, value) for kind, id, value in (rpc.receive_json(), rpc.receive_json())}
        assert answers[start][1][4]["code"] == "TUNNEL_START_ERROR"
        assert answers[stop] == ("resolve", {"success": True, "id": "s"})


def test_its_end_is_told_to_the_newest_connection(tunnels):
    directory, _, api = tunnels
    with Rpc.of(api, "/rpc") as old, Rpc.of(api, "/rpc") as new:
        assert old.is_alive() and new.is_alive()
        old.call("tunnels.runQuickTunnel", "q", 8080)
        old.call("tunnels.ensureTunnelRun", {"tunnelId": "t", "runId": "r", "mode": "named", "port": 8081, "token": "x"})
        (directory / "end-8080").touch()
        new.expect("push", ["pipeline", 0, ["onTunnelExit"], ["q", 8080, 9]])
        new.expect("pull", 1)
        new.say("resolve", 1, UNDEFINED)
        new.expect("release", 1, 1)
        (directory / "end-8081").touch()
        new.expect("push", ["pipeline", 0, ["onTunnelExit"], ["t", 8081, 9, "r"]])
        new.expect("pull", 2)
        new.say("reject", 2, ["error", "Error", "not interested"])
        new.expect("release", 2, 1)
        assert old.is_alive() and old.call("tunnels.listTunnels") == [[]]


def test_without_the_program(own_agent, tmp_path):
    _, api = own_agent(environment={"PATH": str(tmp_path)})
    with Rpc.of(api, "/rpc") as rpc:
        error = rpc.refused("tunnels.runQuickTunnel", "q", 8080)
        assert error[4] == {"code": "CLOUDFLARED_NOT_FOUND", "details": {"id": "q", "port": 8080, "binary": "cloudflared"}}


def test_tunnels_end_with_the_agent(tunnels):
    directory, process, api = tunnels
    with Rpc.of(api, "/rpc") as rpc:
        rpc.call("tunnels.runQuickTunnel", "q", 8080)
        assert running(directory)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    wait_until(lambda: not running(directory), "cloudflared is gone")
