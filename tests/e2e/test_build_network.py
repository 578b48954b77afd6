# SPDX-License-Identifier: Apache-2.0
"""Build steps and the network: what a RUN reaches is what a sandbox reaches, in the lab's small internet."""
import pytest

from lab import NEIGHBOUR, SITE, Lab, LabDaemon
from project import Project

FETCH = "python3 -c \"import socket; s = socket.create_connection(('{0}', 80), 3); s.settimeout(60); print(s.recv(16).decode())\""


class LabProject(Project):
    """The commands run on the lab's host, where the daemon listens."""

    def command(self, *words):
        argv, options = super().command(*words)
        options["env"]["SILICA_URL"] = "http://127.0.0.1:8787"
        return [*self.daemon.prefix, *argv], options


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("lab"))
    d = LabDaemon(lab, "buildnet").start()
    yield d
    d.cleanup()
    lab.close()


@pytest.fixture
def project(tmp_path, daemon):
    return LabProject(tmp_path, daemon)


def test_a_step_fetches_what_the_image_then_has(project, daemon):
    before = len(daemon.lab.visits())
    project.build(f"FROM debian:12\nRUN {FETCH.format(SITE)} > /fetched\n", "-t", "net:1")
    assert any(SITE in line for line in daemon.lab.visits()[before:])
    project.start("fetched", "net:1")
    assert daemon.out("fetched", "cat /fetched") == "hello"


def test_a_step_does_not_reach_the_neighbours(project, daemon):
    before = len(daemon.lab.visits())
    r = project.build(f"FROM debian:12\nRUN {FETCH.format(NEIGHBOUR)} > /fetched\n", "-t", "net:2", code=1)
    assert "timed out" in r.stderr + r.stdout or "refused" in r.stderr + r.stdout or "unreachable" in r.stderr + r.stdout
    assert not any(NEIGHBOUR in line for line in daemon.lab.visits()[before:])


def test_a_build_without_network(project, daemon):
    before = len(daemon.lab.visits())
    project.build(f"FROM debian:12\nRUN {FETCH.format(SITE)} > /fetched\n", "-t", "net:3", "--network", "none", "--no-cache", code=1)
    assert len(daemon.lab.visits()) == before
