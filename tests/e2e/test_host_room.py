# SPDX-License-Identifier: Apache-2.0
"""A host that runs out of disk or of process numbers (catalogue area 5): new sandboxes are refused, those that run go on, and
nothing is lost silently. The daemon lives in a mount namespace of its own, where the shortage is arranged."""
import subprocess

import pytest
import silica
from silica import wait_for


class ShortDaemon(silica.Daemon):
    """prepare: a shell script that runs in the daemon's mount namespace before it starts; $1 is its directory."""

    def __init__(self, name, prepare, **kwargs):
        super().__init__(name, pool=0, **kwargs)
        self.prefix = ["unshare", "-m", "sh", "-ec", f"{prepare}\nshift; exec \"$@\"", "sh", self.dir]

    def beside(self, *command):
        """On the daemon's host: its view of the files."""
        return subprocess.run(["nsenter", "-t", str(self.proc.pid), "-m", *command], capture_output=True, text=True)


@pytest.fixture
def short():
    made = []

    def make(*args, **kwargs):
        made.append(ShortDaemon(*args, **kwargs))
        return made[-1].start()

    yield make
    for d in made:
        d.cleanup()


SMALL_DISK = """mkdir -p "$1/data"
truncate -s 512M "$1/disk.img"
mkfs.ext4 -q -F -m 0 "$1/disk.img"
mount -o loop "$1/disk.img" "$1/data"
"""


def test_DOS_24_process_numbers_run_out(short):
    """Four fifths of the host's process numbers are taken: the next sandbox is refused, the first one works on."""
    d = short("pids", "")
    d.out("first", "true")
    with open(d.dir + "/pid_max", "w") as f:
        f.write("40\n")
    assert d.beside("mount", "--bind", d.dir + "/pid_max", "/proc/sys/kernel/pid_max").returncode == 0

    def refused():
        r = d.request("PUT", "/v1/sandbox/second", {})
        if r.status == 500:  # the host is looked at once in a while; meanwhile what hides its setting keeps /proc from being mounted
            return False
        assert r.status == 429 and r.json["code"] == "HOST_FULL" and "tasks" in r.json["message"], r.body
        return int(r.headers["retry-after"]) > 0

    wait_for(refused, what="the refusal")
    assert d.out("first", "echo still here") == "still here"
    assert d.request("GET", "/v1/sandbox/second").status == 404


def test_DOS_10_disks_are_promised_until_the_host_is_full(short):
    """Disks are sparse, so that more can be promised than there is; when the host's disk is nearly full, no more are made, and
    those that run are not concerned."""
    d = short("disks", SMALL_DISK, args=["--disk-margin", "400M"])
    assert d.request("PUT", "/v1/sandbox/a", {"limits": {"disk": "2GiB"}}).status == 201
    assert d.request("PUT", "/v1/sandbox/b", {"limits": {"disk": "2GiB"}}).status == 201, "4 GiB of 0.5"
    d.out("a", "dd if=/dev/urandom of=/workspace/large bs=1M count=100 conv=fsync 2>/dev/null", timeout=120)

    def refused():
        r = d.request("PUT", "/v1/sandbox/c", {})
        if r.status == 201:
            d.destroy("c")
            return False
        assert r.status == 429 and r.json["code"] == "HOST_FULL" and "disk" in r.json["message"], r.body
        return True

    wait_for(refused, what="the refusal")
    for box in "ab":
        assert d.out(box, "echo fine > /workspace/f; sync /workspace/f; cat /workspace/f") == "fine"
    d.destroy("a")
    wait_for(lambda: d.request("PUT", "/v1/sandbox/c", {}).status == 201, what="room again")


def test_DOS_11_the_disk_below_is_full(short):
    """Somebody fills the data directory: who writes is told, who reads reads on, and after there is room again what was
    confirmed is there and writing works, at the latest in the sandbox's next life."""
    d = short("below", SMALL_DISK, args=["--disk-margin", "1M"])
    d.request("PUT", "/v1/sandbox/s", {"keepAlive": True})
    confirmed = d.out("s", "dd if=/dev/urandom of=/workspace/confirmed bs=1M count=8 conv=fsync 2>/dev/null; sha256sum < /workspace/confirmed")
    fill = f"fallocate -l $(($(stat -f -c '%a * %S' {d.data}))) {d.data}/filler; cat /dev/zero > {d.data}/rest; test -s {d.data}/filler"
    assert d.beside("sh", "-c", fill).returncode == 0
    r = d.exec("s", "dd if=/dev/urandom of=/workspace/more bs=1M count=16 conv=fsync")
    assert r["exitCode"] != 0 and ("No space left" in r["stderr"] or "error" in r["stderr"]), r
    assert d.out("s", "sha256sum < /workspace/confirmed") == confirmed
    assert d.beside("rm", f"{d.data}/filler", f"{d.data}/rest").returncode == 0

    def writes():
        return d.exec("s", "echo again > /workspace/again && sync /workspace/again && cat /workspace/again")["stdout"] == "again"

    if not writes():
        assert d.request("POST", "/v1/sandbox/s/sleep").status == 200
        assert writes(), d.log()[-2000:]
    assert d.request("POST", "/v1/sandbox/s/sleep").status == 200
    assert d.out("s", "sha256sum < /workspace/confirmed") == confirmed
