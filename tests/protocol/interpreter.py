# SPDX-License-Identifier: Apache-2.0
"""What the tests of the code interpreter share: an agent that finds interpreters, contexts, and runs as a client sees them."""
import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest
from conftest import Api, start_agent

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMAGES = pathlib.Path(os.environ.get("SILICA_DATA", "/var/lib/silica")) / "images"


def works(command):
    try:
        return subprocess.run(command, capture_output=True, timeout=300).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def find_python():
    """One that has the packages of the image; it is also the one that Debian's packages are for."""
    for candidate in ("/usr/bin/python3", shutil.which("python3")):
        if candidate and works([candidate, "-c", "import numpy, pandas, matplotlib, IPython, PIL"]):
            return candidate
    return None


def find_node(images):
    for candidate in (*images, shutil.which("node")):
        check = "process.exit(require('vm').constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER ? 0 : 1)"
        if candidate and works([candidate, "-e", check]):
            return candidate
    return None


def find_modules():
    """The pinned packages of the runtime: from the image, or where somebody has put them."""
    named = os.environ.get("SILICA_NODE_MODULES")
    candidates = [pathlib.Path(named)] if named else []
    candidates.append(IMAGES / "base/rootfs/opt/silica/runtime/node/node_modules")
    return next((c for c in candidates if (c / "acorn").is_dir() and (c / "amaro").is_dir()), None)


def prepare(directory):
    """An environment in which a plain agent finds its interpreters; skips the tests when there are none."""
    python = find_python()
    node = find_node([str(IMAGES / "base/rootfs/usr/local/bin/node")])
    modules = find_modules()
    if not python:
        pytest.skip("no python3 with numpy, pandas, matplotlib, IPython and PIL")
    if not node or not modules:
        pytest.skip("no node 20.12 or newer with acorn and amaro: build the base image, or set SILICA_NODE_MODULES")
    programs = directory / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to(python)
    (programs / "node").symlink_to(node)
    runtime = directory / "runtime"
    shutil.copytree(ROOT / "runtime", runtime, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    (runtime / "node/node_modules").symlink_to(modules)
    return {
        "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
        "SILICA_RUNTIME": str(runtime),
        "HOME": str(directory),
        "MPLBACKEND": "Agg",
        "PYTHONDONTWRITEBYTECODE": "",
    }


class Run:
    """One execution, put together the way the client does it."""

    def __init__(self, events):
        self.events = events
        self.stdout = "".join(e["text"] for e in events if e["type"] == "stdout")
        self.stderr = "".join(e["text"] for e in events if e["type"] == "stderr")
        self.results = [e for e in events if e["type"] == "result"]
        errors = [e for e in events if e["type"] == "error"]
        self.error = errors[0] if errors else None
        self.last = events[-1]
        assert len(errors) <= 1
        assert self.last["type"] in ("error", "execution_complete"), self.last
        assert sum(e["type"] in ("error", "execution_complete") for e in events) == 1

    @property
    def text(self):
        return self.results[-1].get("text")


class Lab:
    """The interpreter's routes."""

    def __init__(self, api, process=None):
        self.api = api
        self.process = process

    def create(self, language="python", **fields):
        response = self.api.post("/api/contexts", {"language": language, **fields})
        assert response.status == 200, response.body[:500]
        return response.json["contextId"]

    def delete(self, context):
        return self.api.delete(f"/api/contexts/{context}")

    def list(self):
        return self.api.get("/api/contexts").json["contexts"]

    def stream(self, code, context=None, headers=None, **fields):
        """Yields (seconds since the request, event); checks what holds for every stream."""
        body = {"code": code, **fields}
        if context is not None:
            body["context_id"] = context
        for at, event in self.api.events("POST", "/api/execute/code", body, headers):
            yield at, event

    def run(self, code, context=None, **fields):
        return Run([event for _, event in self.stream(code, context, **fields)])

    def refused(self, code, context=None, **fields):
        body = {"code": code, **fields}
        if context is not None:
            body["context_id"] = context
        response = self.api.post("/api/execute/code", body)
        assert response.status >= 400, response.body[:500]
        return response

    def raw(self, code, context=None, headers=None, **fields):
        body = {"code": code, **fields}
        if context is not None:
            body["context_id"] = context
        return self.api.post("/api/execute/code", body, headers=headers)


def make_lab(tmp_path_factory, **extra):
    url = os.environ.get("SILICA_BASE_URL")
    if url:
        return Lab(Api(url, json.loads(os.environ.get("SILICA_HEADERS", "{}"))))
    process, api = start_agent(environment={**prepare(tmp_path_factory.mktemp("lab")), **extra})
    return Lab(api, process)


def end_lab(lab):
    if not lab.process:
        return
    lab.process.send_signal(signal.SIGTERM)
    _, errors = lab.process.communicate(timeout=120)
    assert lab.process.returncode == 0, errors.decode()
    assert b"Sanitizer" not in errors, errors.decode()


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    lab = make_lab(tmp_path_factory)
    yield lab
    end_lab(lab)


@pytest.fixture
def make(lab):
    """make(language, ...) -> context id; the contexts are deleted afterwards."""
    made = []

    def create(language="python", **fields):
        made.append(lab.create(language, **fields))
        return made[-1]

    yield create
    for context in made:
        lab.delete(context)


class Folder:
    """A directory where the contexts are, which need not be where the tests are."""

    def __init__(self, api):
        self.api = api
        self.path = api.out("mktemp -d", sessionId="__DISABLE_SESSION__").strip()

    def __str__(self):
        return self.path

    def write(self, name, content):
        body = {"path": f"{self.path}/{name}", "content": content}
        self.api.out(f"mkdir -p $(dirname {body['path']})", sessionId="__DISABLE_SESSION__")
        assert self.api.post("/api/write", body).status == 200

    def waiting(self, name):
        """Python code that goes on when a file is there."""
        return f"import os, time\nwhile not os.path.exists('{self.path}/{name}'): time.sleep(0.02)\n"

    def exists(self, name):
        return self.api.post("/api/exists", {"path": f"{self.path}/{name}"}).json["exists"]


@pytest.fixture
def folder(lab):
    folder = Folder(lab.api)
    yield folder
    lab.api.run(f"rm -rf {folder}", sessionId="__DISABLE_SESSION__")


@pytest.fixture
def python(make):
    return make("python")


@pytest.fixture
def javascript(make):
    return make("javascript")


@pytest.fixture
def typescript(make):
    return make("typescript")
