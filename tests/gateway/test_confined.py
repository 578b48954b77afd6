# SPDX-License-Identifier: Apache-2.0
"""The gateway without rights: what it cannot do any more, and that it works all the same."""
import os
import shutil
import tempfile

import pytest
from conftest import Gateway

UID = 64123

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="giving up root needs root")


@pytest.fixture(scope="module")
def confined():
    directory = tempfile.mkdtemp(prefix="silica-confined-")
    os.chown(directory, UID, UID)
    try:
        g = Gateway(directory, "--uid", str(UID))
        yield g
        assert g.end() == 0
    finally:
        shutil.rmtree(directory)


def status(g):
    with open(f"/proc/{g.pid}/status") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


def test_it_works(confined):
    assert confined.put("x", {"env": {"A": "1"}, "labels": {"a": "b"}}).status == 201
    assert confined.count("x")["env"] == "A=1\n"
    assert confined.api("x", "y", method="POST", body=b"z" * 300000).json()["bodyLength"] == 300000
    confined.kill_gateway()
    assert confined.get("/v1/sandbox/x").json()["labels"] == {"a": "b"}
    assert confined.delete("x").json()["existed"] is True


def test_rights(confined):
    s = status(confined)
    assert s["Uid"].split() == [str(UID)] * 4 and s["Gid"].split() == [str(UID)] * 4
    assert s["Groups"].strip() == ""
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(s[kind], 16) == 0
    assert s["NoNewPrivs"] == "1" and s["Seccomp"] == "2"


def test_root_directory_and_files(confined):
    assert os.readlink(f"/proc/{confined.pid}/root") == confined.directory
    assert os.readlink(f"/proc/{confined.pid}/cwd") == confined.directory
    for name in os.listdir(confined.directory):
        st = os.stat(os.path.join(confined.directory, name))
        assert st.st_uid == UID and name.startswith("state.db") and st.st_mode & 0o077 == 0, name


def test_limits(confined):
    with open(f"/proc/{confined.pid}/limits") as f:
        limits = {line[:26].strip(): line[26:].split() for line in f}
    assert limits["Max core file size"][:2] == ["0", "0"]
    assert limits["Max open files"][0] == limits["Max open files"][1]


def test_descriptors(confined):
    """Nothing came along with the fork but what was configured."""
    kinds, pipes = [], []
    for fd in os.listdir(f"/proc/{confined.pid}/fd"):
        target = os.readlink(f"/proc/{confined.pid}/fd/{fd}")
        if int(fd) == 0:
            assert target == "/dev/null"
        elif target.startswith("pipe:") and int(fd) > 2:
            pipes.append(target)
        elif int(fd) > 2:
            kinds.append(target.split(":")[0])
    allowed = {"socket", "anon_inode", confined.directory, f"{confined.directory}/state.db",
               f"{confined.directory}/state.db-wal", "/dev/null"}
    assert set(kinds) <= allowed, kinds
    assert len(pipes) == 2 and len(set(pipes)) == 1, pipes  # its own, for uploads: both ends are here
