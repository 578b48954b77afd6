# SPDX-License-Identifier: Apache-2.0
"""silica wrangler: finds the project's wrangler, says what is missing, and gives it our engine."""
import json
import os
import signal

import pytest
from conftest import DEADLINE


@pytest.fixture
def project(silica, fake, unix_fake, tmp_path):
    """A project whose wrangler is a shell script, in a PATH with a Node of our choice."""
    fake.answer("GET", "/health", {"status": "ok"})
    unix_fake.answer("GET", "/_ping", "OK")
    unix_fake.answer("GET", "/info", {"ServerVersion": "1"})
    p = Project(silica, "unix://" + unix_fake.url.removeprefix("unix:"), tmp_path)
    p.program("bin/node", "echo v22.1.0")
    p.program("bin/npx", "exit 1")
    return p


class Project:
    def __init__(self, silica, host, path):
        self.silica, self.host, self.path = silica, host, path
        self.work = path / "work"
        (self.work / "deeper").mkdir(parents=True)

    def program(self, name, text):
        p = self.path / name
        p.parent.mkdir(parents=True, exist_ok=True)
        p.write_text("#!/bin/sh\n" + text + "\n")
        p.chmod(0o755)

    def install(self, text, node=">=20.0.0"):
        self.program("work/node_modules/.bin/wrangler", text)
        package = self.work / "node_modules/wrangler"
        package.mkdir(exist_ok=True)
        (package / "package.json").write_text(json.dumps({"version": "4.99.0", "engines": {"node": node}}))

    def env(self, extra=None):
        return {"PATH": f"{self.path}/bin:/usr/bin:/bin", "WRANGLER_DOCKER_HOST": self.host, "XDG_RUNTIME_DIR": str(self.path), **(extra or {})}

    def run(self, *words, env=None, cwd=None):
        return self.silica.run("wrangler", *words, env=self.env(env), cwd=cwd or self.work)

    def leftovers(self):
        return list(self.path.glob("silica-wrangler-*"))


def test_it_gets_our_engine(project):
    project.install('echo "$@"; env | grep -E "DOCKER|METRICS"; ls -l "$WRANGLER_DOCKER_BIN"; "$WRANGLER_DOCKER_BIN" info; exit 3')
    r = project.run("dev", "--port", "1", cwd=project.work / "deeper")
    out = r.stdout.decode()
    assert r.returncode == 3, r.stderr
    assert out.startswith("dev --port 1\n")
    assert f"WRANGLER_DOCKER_HOST={project.host}" in out and f"DOCKER_HOST={project.host}" in out
    assert "WRANGLER_SEND_METRICS=false" in out and "-rwx------" in out
    assert "Server Version: 1" in out
    assert project.leftovers() == []


def test_settings_of_the_caller_stay(project):
    project.install("echo $WRANGLER_SEND_METRICS")
    assert project.run("dev", env={"WRANGLER_SEND_METRICS": "true"}).stdout == b"true\n"


def test_a_token_file_reaches_the_tool(project):
    token = project.path / "token file"
    token.write_text("secret")
    project.install('cat "$WRANGLER_DOCKER_BIN"')
    out = project.run("--token-file", str(token), "dev").stdout.decode()
    assert f"--token-file '{token}'" in out and "secret" not in out


@pytest.mark.parametrize("prepare, says", [
    (lambda p: None, "there is no package.json"),
    (lambda p: (p.work / "package.json").write_text("{}"), "npm install --save-dev wrangler"),
    (lambda p: p.install("true", node=">=99.0.0"), "wants Node >=99.0.0"),
    (lambda p: (p.install("true"), p.program("bin/node", "exit 1")), "there is no Node"),
])
def test_what_is_missing_is_said(project, prepare, says):
    prepare(project)
    r = project.run("dev")
    assert r.returncode == 125 and says in r.stderr.decode(), r.stderr


def test_no_npx(project):
    (project.path / "bin/npx").unlink()
    r = project.run("dev", env={"PATH": f"{project.path}/bin"})
    assert r.returncode == 125 and b"there is no npx" in r.stderr


def test_no_server_and_no_engine(project, closed_port):
    project.install("true")
    r = project.run("--url", f"http://127.0.0.1:{closed_port}", "dev")
    assert r.returncode == 125 and b"silica serve" in r.stderr
    r = project.run("dev", env={"WRANGLER_DOCKER_HOST": "unix:///nowhere.sock"})
    assert r.returncode == 125 and b"unix:///nowhere.sock" in r.stderr
    assert project.leftovers() == []


def test_nothing_to_do(project):
    assert b"'dev'" in project.run().stderr


def test_a_signal_is_passed_on_and_nothing_stays(project):
    project.install("trap 'echo ended; exit 5' TERM; echo ready; while :; do sleep 0.05; done")
    p = project.silica.start("wrangler", "dev", env=project.env(), cwd=project.work)
    assert p.stdout.readline() == b"ready\n"
    assert len(project.leftovers()) == 1
    p.send_signal(signal.SIGTERM)
    assert p.wait(DEADLINE) == 5
    assert p.stdout.read() == b"ended\n"
    assert project.leftovers() == []
