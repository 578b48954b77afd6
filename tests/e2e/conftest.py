# SPDX-License-Identifier: Apache-2.0
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import silica
from lab import LabDaemon


def missing():
    if os.geteuid() != 0:
        return "needs root"
    if not os.path.isdir(silica.IMAGES + "/base/rootfs"):
        return f"needs the base image in {silica.IMAGES} (scripts/image makes it)"
    for path in (silica.BIN, silica.AGENT):
        if not os.path.exists(path):
            return f"needs {path}"
    return None


def pytest_collection_modifyitems(items):
    why = missing()
    if why:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=why))


def cleaned_up(construct):
    """Yields a function that constructs daemons, which are cleaned up afterwards."""
    made = []

    def make(name="t", **kwargs):
        made.append(construct(name, **kwargs))
        return made[-1]

    yield make
    for d in made:
        d.cleanup()


@pytest.fixture
def daemon_factory():
    yield from cleaned_up(silica.Daemon)


@pytest.fixture
def lab_daemon(own_lab):
    """Daemons in a lab of the test's own."""
    yield from cleaned_up(lambda name, **kwargs: LabDaemon(own_lab, name, **kwargs))


@pytest.fixture(scope="module")
def daemon(request):
    """One daemon for a file of tests that do not disturb each other."""
    d = silica.Daemon(request.module.__name__.removeprefix("test_")[:12].replace("_", "-"))
    d.start()
    yield d
    d.cleanup()


@pytest.fixture
def box(daemon, request):
    """A fresh sandbox id, destroyed after the test."""
    name = "b-" + "".join(c if c.isalnum() else "-" for c in request.node.name.lower())[:50].strip("-")
    yield name
    daemon.destroy(name)
