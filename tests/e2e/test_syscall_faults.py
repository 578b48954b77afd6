# SPDX-License-Identifier: Apache-2.0
"""System calls that fail in the keeper and in the gateway (catalogue area 13), and which files they open at all (area 4)."""
import http.client
import os
import re

import pytest
import silica
from silica import clean, mounts, wait_for
from tracer import Tracer, gateway_pid, needs_strace


@pytest.fixture(scope="module", autouse=True)
def strace():
    needs_strace()


@pytest.fixture(scope="module")
def keeper():
    """One daemon without a pool, so that every creation is made while we look."""
    d = silica.Daemon("faults", pool=0).start()
    attempt(d, "warm")
    yield d
    d.cleanup()


def fds(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def attempt(d, name):
    """A whole life; every answer is a success that is true or a typed error."""
    answers = []
    for method, path, body in (("PUT", f"/v1/sandbox/{name}", {}), ("POST", f"/v1/sandbox/{name}/api/execute", {"command": "echo ok"}),
                               ("DELETE", f"/v1/sandbox/{name}", None)):
        try:
            r = d.request(method, path, body)
        except (OSError, http.client.HTTPException):
            answers.append(None)  # the connection itself was the victim
            continue
        assert r.status in (200, 201) or (r.status >= 400 and r.json["code"]), (method, r.status, r.body)
        if method == "POST" and r.status == 200:
            assert r.json["stdout"] == "ok", r.body
        answers.append(r.status)
    return answers


# call: the errors that it can have; each of the keeper's threads has it once
KEEPER_CALLS = {"clone3": "EAGAIN", "openat": "EMFILE EINTR", "openat2": "EAGAIN", "socket": "ENOMEM", "socketpair": "EMFILE", "mount": "ENOMEM",
                "fsopen": "ENOMEM", "fsmount": "EMFILE", "open_tree": "EMFILE", "mount_setattr": "ENOMEM", "ioctl": "ENOMEM EBUSY",
                "memfd_create": "EMFILE", "epoll_wait": "EINTR", "epoll_ctl": "ENOMEM", "recvmsg": "EINTR EAGAIN", "sendmsg": "EAGAIN EINTR",
                "poll": "EINTR ENOMEM", "recvfrom": "ENOMEM", "mkdirat": "ENOSPC", "write": "ENOSPC", "connect": "EAGAIN", "waitid": "EINTR"}


@pytest.mark.parametrize("call", KEEPER_CALLS)
def test_REC_14_calls_of_the_keeper_fail(keeper, tmp_path, call):
    d = keeper
    before_mounts, before = mounts(), fds(d.proc.pid)
    for error in KEEPER_CALLS[call].split():
        with Tracer(d.proc.pid, f"{tmp_path}/trace", "-e", f"trace={call}", "-e", f"inject={call}:error={error}:when=1"):
            attempt(d, "x")
        assert d.proc.poll() is None, d.log()[-2000:]
    assert attempt(d, "x") == [201, 200, 200], "without the fault it works"
    wait_for(lambda: clean(d), what=f"a clean host after {call} failed")
    wait_for(lambda: fds(d.proc.pid) <= before + 2, what=f"no descriptor is lost after {call} failed")
    assert mounts() == before_mounts


GATEWAY_CALLS = {"accept4": "EMFILE EINTR ECONNABORTED", "epoll_wait": "EINTR", "epoll_ctl": "ENOMEM", "sendmsg": "EAGAIN EINTR", "recvmsg": "EINTR EAGAIN",
                 "writev": "EAGAIN", "memfd_create": "EMFILE", "fdatasync": "EIO", "pwrite64": "ENOSPC"}


@pytest.mark.parametrize("call", GATEWAY_CALLS)
def test_REC_14_calls_of_the_gateway_fail(keeper, tmp_path, call):
    """REC-10 and REC-11 are among them: the state database cannot be written, and nobody is told that it was."""
    d = keeper
    for error in GATEWAY_CALLS[call].split():
        with Tracer(gateway_pid(d), f"{tmp_path}/trace", "-e", f"trace={call}", "-e", f"inject={call}:error={error}:when=1"):
            attempt(d, "x")
        wait_for(d.healthy, what="health")
    assert attempt(d, "x") == [201, 200, 200], "without the fault it works"
    wait_for(lambda: clean(d), what=f"a clean host after {call} failed")
    assert d.proc.poll() is None


@pytest.mark.parametrize("call,error", [("fdatasync", "EIO"), ("pwrite64", "ENOSPC"), ("pwrite64", "EIO")])
def test_REC_11_what_is_not_on_disk_is_not_acknowledged(daemon_factory, tmp_path, call, error):
    """The keeper's ledger fails for as long as we look: no creation is acknowledged; afterwards all is well, also for a keeper
    that reads the ledger anew."""
    d = daemon_factory("rec11", pool=0).start()
    d.out("old", "echo kept > /workspace/f")
    with Tracer(d.proc.pid, f"{tmp_path}/trace", "-P", d.data + "/keeper.db-wal", "-P", d.data + "/keeper.db", "-e", f"trace={call}",
                "-e", f"inject={call}:error={error}") as t:
        r = d.request("PUT", "/v1/sandbox/new", {})
        assert r.status >= 500 and r.json["code"], r.body
        assert d.request("GET", "/v1/sandbox/old").status == 200
    assert t.injected()
    assert d.request("PUT", "/v1/sandbox/new", {}).status in (200, 201)
    d.out("new", "echo new > /workspace/f")
    d.kill()
    d.start()
    assert [d.out(n, "cat /workspace/f") for n in ("old", "new")] == ["kept", "new"]


def test_REC_21_control_groups_that_cannot_be_removed_yet(keeper, tmp_path):
    """The first attempts of every thread fail; it is tried again until they are gone."""
    d = keeper
    d.out("x", "true")
    with Tracer(d.proc.pid, f"{tmp_path}/trace", "-e", "trace=unlinkat,rmdir", "-e", "inject=unlinkat,rmdir:error=EBUSY:when=1..3") as t:
        assert d.destroy("x")["existed"] is True
    assert t.injected()
    wait_for(lambda: clean(d), what="a clean host")
    assert attempt(d, "x") == [201, 200, 200]
    wait_for(lambda: clean(d), what="a clean host")


def test_REC_21_what_somebody_else_has_removed(keeper):
    """The disk's file and the slot's are gone (ENOENT wherever the keeper looks): it is removed all the same."""
    d = keeper
    d.out("x", "true")
    slot = f"{d.run_dir}/slots/{d.slots()[0]}"
    for path in [f"{d.data}/disks/{name}" for name in d.disks()] + [f"{slot}/{name}" for name in os.listdir(slot)]:
        os.unlink(path)
    assert d.destroy("x")["existed"] is True
    wait_for(lambda: clean(d), what="a clean host")
    assert attempt(d, "x") == [201, 200, 200]
    wait_for(lambda: clean(d), what="a clean host")


def test_FSX_20_the_host_opens_no_file_of_a_sandbox(daemon_factory, tmp_path):
    """While files are read, written, listed and removed through the API, neither keeper nor gateway opens anything of the sandbox: all of
    it happens inside."""
    d = daemon_factory("fsx20", pool=0).start()
    d.out("f", "mkdir -p /workspace/d && ln -s /etc/passwd /workspace/link && echo x > /workspace/marked")

    def api(path, body):
        r = d.request("POST", f"/v1/sandbox/f/api/{path}", body)
        assert r.status == 200, (path, r.body)
        return r

    with Tracer(d.proc.pid, f"{tmp_path}/keeper", "-e", "trace=%file,open_by_handle_at") as keeper, \
            Tracer(gateway_pid(d), f"{tmp_path}/gateway", "-e", "trace=%file,open_by_handle_at") as gateway:
        for name in ("marked-a", "d/marked-b"):
            api("write", {"path": f"/workspace/{name}", "content": "text" * 1000})
            assert api("read", {"path": f"/workspace/{name}"}).json["content"] == "text" * 1000
        api("read", {"path": "/workspace/link"})
        api("mkdir", {"path": "/workspace/deep/er", "recursive": True})
        api("list-files", {"path": "/workspace"})
        api("exists", {"path": "/workspace/marked"})
        api("rename", {"oldPath": "/workspace/marked-a", "newPath": "/workspace/marked-c"})
        api("move", {"sourcePath": "/workspace/marked-c", "destinationPath": "/workspace/deep/er/marked-d"})
        api("delete", {"path": "/workspace/deep/er/marked-d"})
        d.out("f", "cat /workspace/marked")
    for lines in (keeper.lines(), gateway.lines()):
        opened = [line for line in lines if re.search(r'"[^"]*(workspace|marked|/disks/|passwd|/proc/\d+/(root|cwd|fd))', line)]
        assert not opened, opened[:5]
