# SPDX-License-Identifier: Apache-2.0
"""FUZ-09, LEAK-15: the agent under valgrind: no jump, call or answer depends on memory that nobody has written. It takes the build with the ordinary
C library beside the one under test, because valgrind must see the allocations."""
import os
import shutil
import signal

import pytest
from conftest import start_agent

AGENT = os.path.join(os.path.dirname(os.environ.get("SILICA_AGENT", "")), "../release/src/agent/silica-agent")

pytestmark = [pytest.mark.skipif(not os.path.exists(AGENT), reason="runs beside the static agent, with the release build"),
              pytest.mark.skipif(not shutil.which("valgrind"), reason="needs valgrind")]


@pytest.fixture
def watched(monkeypatch, tmp_path):
    wrapper = tmp_path / "agent"
    wrapper.write_text(f'#!/bin/sh\nexec valgrind -q --error-exitcode=99 --log-file={tmp_path}/log.%p --track-origins=no {AGENT} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("SILICA_AGENT", str(wrapper))
    process, api = start_agent()
    yield api
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=180)
    lines = [line for f in tmp_path.glob("log.*") for line in f.read_text().splitlines(True)]
    said = "".join(line for line in lines if not line.startswith("--"))  # about system calls that valgrind is too old for
    assert not said and process.returncode == 0, said[:5000]


def test_FUZ_09_requests_of_every_area(watched, tmp_path):
    api = watched
    assert api.out("echo $((6 * 7))").strip() == "42"
    assert api.out("export A=1; cd /tmp", session="s") == "" and api.out("echo $A $PWD", session="s").strip() == "1 /tmp"
    assert "ok" in str(api.stream("echo ok; echo bad >&2"))
    api.start("seq 1 2000", processId="p")
    api.wait_process("p")
    assert api.get("/api/process/p/logs").json["stdout"].endswith("2000\n")
    path = str(tmp_path / "d")
    for route, body in (("mkdir", {"path": path}), ("write", {"path": path + "/f", "content": "é" * 4000}),
                        ("write", {"path": path + "/b", "content": "AAEC", "encoding": "base64"}), ("list-files", {"path": path}), ("exists", {"path": path}),
                        ("rename", {"oldPath": path + "/b", "newPath": path + "/c"}), ("delete", {"path": path + "/c"})):
        assert api.post(f"/api/{route}", body).status == 200, route
    assert api.post("/api/read", {"path": path + "/f"}).json["content"] == "é" * 4000
    for method, route, body in (("GET", "/nothing", None), ("POST", "/api/execute", "{"), ("POST", "/api/read", {"path": "/nothing"}), ("POST", "/api/execute", {"command": 1})):
        assert api.request(method, route, body).status >= 400
    assert api.get("/api/session/list").status == 200 and api.get("/api/ports").status == 200
