# SPDX-License-Identifier: Apache-2.0
"""/rpc with the library of the official client (npm `capnweb`) and with that client's own control client, under node.

SILICA_NODE_MODULES_RPC  a directory with the packages of tests/clients/rpc/package.json; without it npm installs them
"""
import json
import os
import re
import shutil
import subprocess

import pytest
from conftest import wait_until
from interpreter import prepare
from measure import SANITIZED, memory

CLIENTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "clients", "rpc")


def names(script):
    """The checks of a script, so that each is a test of its own."""
    with open(f"{CLIENTS}/{script}") as f:
        return re.findall(r"^  async '([^']+)'\(", f.read(), re.M)


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A directory with our scripts beside the packages: modules are looked for from where a script is."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("node and npm are not installed")
    directory = str(tmp_path_factory.mktemp("rpc-clients"))
    for name in os.listdir(CLIENTS):
        if name != "node_modules":
            shutil.copy(f"{CLIENTS}/{name}", directory)
    given = os.environ.get("SILICA_NODE_MODULES_RPC")
    if given:
        os.symlink(given, directory + "/node_modules")
        return directory
    done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"],
                          cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    if done.returncode:
        pytest.skip("npm cannot install the packages: " + " ".join(done.stdout.split())[-200:])
    return directory


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """(agent, api, directory for files, environment of the agent)"""
    from conftest import start_agent
    if os.environ.get("SILICA_BASE_URL"):
        pytest.skip("needs an agent of its own")
    environment = prepare(tmp_path_factory.mktemp("rpc-lab"))
    process, api = start_agent(environment=environment)
    directory = str(tmp_path_factory.mktemp("rpc-files"))
    yield process, api, directory
    process.terminate()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0 and b"Sanitizer" not in errors, errors.decode()


def run(packages, served, script, *arguments, timeout=900):
    _, api, directory = served
    url = f"ws://{api.address[0]}:{api.address[1]}{api.prefix}/rpc"
    done = subprocess.run(["node", f"{packages}/{script}", url, directory, json.dumps(api.headers), *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout)
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stderr[-2000:]
    return {r["check"]: r["error"] for r in results}


@pytest.fixture(scope="module")
def checked(packages, served):
    return run(packages, served, "rpc_checks.mjs")


@pytest.fixture(scope="module")
def official(packages, served):
    return run(packages, served, "official_checks.mjs")


@pytest.mark.parametrize("check", names("rpc_checks.mjs"))
def test_capnweb(checked, check):
    assert check in checked and checked[check] is None, checked.get(check)


@pytest.mark.parametrize("check", names("official_checks.mjs"))
def test_official_client(official, check):
    assert check in official and official[check] is None, official.get(check)


def test_no_growth(packages, served, checked):
    """Ten thousand calls more, and the agent is no larger than after the first ten thousand."""
    process = served[0]
    before = memory(process)
    again = run(packages, served, "rpc_checks.mjs", "ten thousand calls leave nothing")
    assert again == {"ten thousand calls leave nothing": None}
    if not SANITIZED:  # they keep what is freed
        wait_until(lambda: memory(process) - before < 2 << 20, "as small as before")
