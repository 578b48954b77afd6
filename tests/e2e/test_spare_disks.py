# SPDX-License-Identifier: Apache-2.0
"""Disks that are used again: a sandbox that is destroyed early and has written little leaves one that is as new."""
import os

import pytest
from silica import clean, wait_for

LOOK = ("stat -c '%n %F %a %u:%g %h %s %b' / /workspace /home /root /opt /var/tmp /etc/passwd; ls -laR --time-style=+ /workspace /home /root /opt /var/tmp; getfattr -d -m - / 2>/dev/null;"
        "find / -xdev -mmin -60 | sort; df --output=size,used,itotal,iused / | tail -1")
DIRTY = ("chmod 700 /; chown 33:33 /workspace /; mkdir -p /workspace/x/y /opt/z; echo secret > /workspace/x/y/f; ln -s /etc /opt/l; rm -r /home /etc/passwd; mkfifo /root/p;"
         "truncate -s 1G /var/tmp/large; echo unseen > /root/gone; exec 7< /root/gone; rm /root/gone; sync")


@pytest.fixture
def d(daemon_factory):
    return daemon_factory("spare", pool=1).start()


def ready(d, running):
    """A sandbox waits in the pool: its record is the last thing that is made."""
    wait_for(lambda: sum(os.path.exists(f"{d.run_dir}/slots/{slot}/record") for slot in d.slots()) == running + 1, what="a sandbox in the pool")


def images(d):
    return {name: os.stat(f"{d.data}/disks/{name}").st_ino for name in d.disks() if name.endswith(".img")}


def used_up(d, box, command):
    """Destroys a sandbox that has run this. Returns its image, if that is still there."""
    ready(d, 0)
    (mine,) = images(d).items()
    d.out(box, command + "\ntrue")
    d.destroy(box)
    return {mine} & images(d).items()


def next_on(d, image):
    """The sandbox that gets the image of one that is gone, if it was used again: the one after the next."""
    for i in range(2):
        ready(d, i)
        looked = d.out(f"next{i}", LOOK)
    found = image & images(d).items()
    for i in range(2):
        d.destroy(f"next{i}")
    return looked if found else None


def test_a_used_disk_is_as_new(d):
    ready(d, 0)
    fresh = d.out("a", LOOK)
    d.destroy("a")
    again = 0
    for i in range(8):
        wait_for(lambda: len(d.disks()) == 1, what="the spare disk's end")
        image = used_up(d, f"a{i}", DIRTY)
        looked = next_on(d, image) if image else None
        if looked:  # otherwise it was not needed within the moment for which it is kept
            again += 1
            assert looked == fresh
        if again == 3:
            break
    assert again == 3
    wait_for(lambda: len(d.disks()) == len(d.loops()) == 1, what="the spare disk's end")


@pytest.mark.parametrize("command", ["head -c 3M /dev/urandom > /workspace/much", "cd /workspace; for i in $(seq 200); do > f$i; done"])
def test_much_is_not_removed_but_forgotten(d, command):
    assert not used_up(d, "a", command)


def test_who_writes_until_the_end(d):
    """How much there is, is looked at when nobody is left to add something."""
    for i in range(4):
        d.out(f"w{i}", "nohup bash -c 'while :; do head -c 128k /dev/zero > /workspace/$((n++)); done' >/dev/null 2>&1 &")
        d.destroy(f"w{i}")
        assert d.out(f"n{i}", "ls -A /workspace; df --output=iused / | tail -1") == d.out(f"m{i}", "ls -A /workspace; df --output=iused / | tail -1")
        d.destroy(f"n{i}")
        d.destroy(f"m{i}")


def test_who_sleeps_or_lives_long_keeps_his_disk(d):
    assert used_up(d, "a", "true")
    ready(d, 0)
    d.out("b", "echo mine > /workspace/f")
    assert d.request("POST", "/v1/sandbox/b/sleep").status == 200
    kept = images(d)
    for i in range(3):
        d.out(f"c{i}", "true")
        d.destroy(f"c{i}")
    assert d.out("b", "cat /workspace/f") == "mine"
    assert kept.items() & images(d).items()


@pytest.mark.parametrize("step", [0, 1, 3, 8, 10, 12])
def test_a_start_that_fails_on_it(daemon_factory, step):
    """Before the disk is looked at or behind it: it goes with the start."""
    d = daemon_factory("unlucky", pool=1).start(env={"SILICA_FAIL": f"start:{step}:2"})
    assert used_up(d, "a", "echo old > /workspace/f")
    ready(d, 0)
    assert d.out("b", "ls /workspace; echo new") == "new"
    assert d.request("POST", "/v1/sandbox/c/api/execute", {"command": "true"}).status == 500
    wait_for(lambda: len(d.disks()) == len(d.loops()) == len(d.slots()) == 1, what="nothing but a sandbox")
    d.destroy("b")
    wait_for(lambda: clean(d), what="a clean host")


def test_a_keeper_that_is_killed_leaves_it_to_the_next(d):
    (image,) = used_up(d, "a", DIRTY) or [None]
    assert image
    d.kill()
    d.start()
    assert d.out("b", "ls -A /workspace; cat /etc/passwd | head -c 4") == "root"
    d.destroy("b")
    wait_for(lambda: len(d.disks()) == len(d.loops()) == 1, what="nothing but the pool")


def test_the_end_of_the_daemon_removes_it(d):
    assert used_up(d, "a", DIRTY)
    d.stop()
    assert clean(d) and not d.disks()
