# SPDX-License-Identifier: Apache-2.0
"""silica ports, expose and unexpose."""
import json

PORT = {"port": 8000, "url": "http://8000-demo-tok.localhost:8787/", "name": "web", "exposedAt": "2026-01-02T03:04:05.678Z"}


def test_expose(fake, silica):
    fake.answer("POST", "/v1/sandbox/demo/ports", PORT, 201)
    r = silica.run("expose", "demo", "8000", "--name", "web", "--address-token", "tok")
    assert (r.returncode, r.stdout) == (0, PORT["url"].encode() + b"\n")
    assert fake.requests[-1].json == {"port": 8000, "name": "web", "token": "tok"}
    silica.run("expose", "demo", "8000")
    assert fake.requests[-1].json == {"port": 8000}


def test_expose_refused(fake, silica):
    fake.answer("POST", "/v1/sandbox/demo/ports", {"code": "INVALID_PORT_NUMBER", "message": "port 3000 is reserved"}, 400)
    r = silica.run("expose", "demo", "3000")
    assert r.returncode == 125 and b"port 3000 is reserved" in r.stderr
    for words in (["demo"], [], ["demo", "x"], ["demo", "0"], ["demo", "70000"], ["demo", "8000", "8001"]):
        assert silica.run("expose", *words).returncode == 125
    assert len(fake.requests) == 1


def test_unexpose(fake, silica):
    fake.answer("DELETE", "/v1/sandbox/demo/ports/8000", {"success": True, "port": 8000})
    r = silica.run("unexpose", "demo", "8000")
    assert (r.returncode, r.stdout, r.stderr) == (0, b"", b"")
    assert silica.run("unexpose", "demo", "8001").returncode == 125


def test_ports(fake, silica):
    answer = {"ports": [PORT, {**PORT, "port": 8001, "name": None}], "count": 2}
    fake.answer("GET", "/v1/sandbox/demo/ports", answer)
    rows = [line.split("\t") for line in silica.run("ports", "demo").stdout.decode().splitlines()]
    assert rows[0] == ["PORT", "URL", "NAME", "EXPOSED"] and rows[1][:3] == ["8000", PORT["url"], "web"] and rows[2][2] == "-"
    assert silica.run("ports", "demo", "-q").stdout.decode().split() == [PORT["url"]] * 2
    assert json.loads(silica.run("ports", "demo", "--json").stdout) == answer


def test_listening(fake, silica):
    fake.answer("GET", "/v1/sandbox/demo/ports/listening", {"ports": [{"port": 80, "address": "::", "process": "nginx"},
                                                                      {"port": 8000, "address": "127.0.0.1"}]})
    rows = [line.split("\t") for line in silica.run("ports", "demo", "--listening").stdout.decode().splitlines()]
    assert rows == [["PORT", "ADDRESS", "PROCESS"], ["80", "::", "nginx"], ["8000", "127.0.0.1", "-"]]
    assert silica.run("ports", "demo", "-lq").stdout == b"80\n8000\n"
