# SPDX-License-Identifier: Apache-2.0
import ctypes
import json
import os
import shutil
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e"), os.path.join(HERE, "..", "protocol")]
import silica
import standins

CLONE_NEWNET = 0x40000000
OLDEST_NODE = 20


def missing():
    if os.geteuid() != 0:
        return "needs root"
    if not os.path.isdir(silica.IMAGES + "/base/rootfs"):
        return f"needs the base image in {silica.IMAGES} (scripts/image makes it)"
    for program in ("node", "npm", "git"):
        if not shutil.which(program):
            return f"needs {program}"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    return None if int(version.strip("v\n").split(".")[0]) >= OLDEST_NODE else f"needs Node {OLDEST_NODE}, not {version.strip()}"


def pytest_collection_modifyitems(items):
    why = missing()
    if why:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=why))


def installed():
    """Whether node_modules is what package-lock.json wants."""
    try:
        with open(HERE + "/node_modules/.package-lock.json") as f:
            there = json.load(f)["packages"]
    except OSError:
        return False
    with open(HERE + "/package-lock.json") as f:
        wanted = json.load(f)["packages"]
    return all(there[p]["version"] == v["version"] for p, v in wanted.items() if p in there) and "node_modules/wrangler" in there


@pytest.fixture(scope="session")
def packages():
    """The npm packages, fetched when they are not there yet."""
    if not installed():
        r = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=HERE, capture_output=True, text=True)
        if r.returncode != 0:
            pytest.skip("npm cannot fetch the packages: " + r.stderr.strip()[-200:])


@pytest.fixture(scope="session")
def own_network(packages):
    """A network of our own for all that follows, the daemon and wrangler, too: a loopback with one address that a sandbox takes
    for the internet. It goes with the last process in it."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        pytest.skip("cannot make a network namespace: " + os.strerror(ctypes.get_errno()))
    for args in (["link", "set", "lo", "up"], ["addr", "add", standins.ADDRESS + "/32", "dev", "lo"]):
        subprocess.run(["ip", *args], check=True)


@pytest.fixture(scope="session")
def daemon(own_network):
    d = silica.Daemon("workers", pool=2)
    try:
        yield d.start()
        assert d.proc.poll() is None and "Sanitizer" not in d.log(), "the daemon broke:\n" + d.log()[-6000:]
    finally:
        d.cleanup()


@pytest.fixture(scope="session")
def services(own_network):
    s = standins.Services()
    yield s
    s.close()
