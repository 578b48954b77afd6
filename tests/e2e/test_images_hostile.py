# SPDX-License-Identifier: Apache-2.0
"""Archives that lie, overflow or reach outside: refused with a typed error, and nothing stays. Names carry the number
of the fault they stand for."""
import gzip
import json
import os
import tarfile

import oci
import pytest
import silica
from test_images import create, load, programs, stored, tiny, wait_empty, workers  # noqa: F401


@pytest.fixture(scope="module")
def small(request):
    """A daemon that takes images of 64 MiB at most."""
    d = silica.Daemon("img-small", args=["--image-limit", "64M"])
    d.start()
    yield d
    d.cleanup()


def layer(*entries):
    return oci.image([oci.tar(list(entries))])


def refused(d, archive, code="INVALID_IMAGE", status=422):
    reply = load(d, archive, "bad:1", status=status)
    assert reply["code"] == code, reply
    wait_empty(d)
    return reply["message"]


OUTSIDE = "/tmp/silica-test-outside"

FSX15 = {
    "absolute": [oci.entry(OUTSIDE, "x")],
    "dotdot": [oci.entry("../../../.." + OUTSIDE, "x")],
    "dotdot-inside": [oci.directory("a"), oci.entry("a/../../b", "x")],
    "dotdot-end": [oci.directory("a/..")],
    "symlink-then-file": [oci.symlink("a", "/tmp"), oci.entry("a/silica-test-outside", "x")],
    "symlink-parent": [oci.symlink("a", ".."), oci.entry("a/x", "x")],
    "symlink-to-dir-then-file": [oci.directory("d"), oci.symlink("d/e", "/"), oci.entry("d/e/tmp/silica-test-outside", "x")],
    "hardlink-outside": [oci.hardlink("passwd", "../../../../etc/passwd")],
    "hardlink-absolute": [oci.hardlink("passwd", "/etc/passwd")],
    "hardlink-missing": [oci.hardlink("x", "nothing")],
    "hardlink-through-symlink": [oci.symlink("a", "/etc"), oci.hardlink("x", "a/passwd")],
    "hardlink-to-directory": [oci.directory("d"), oci.hardlink("x", "d")],
    "pax-path-override": [oci.entry("harmless", "x", pax={"path": "../" * 8 + OUTSIDE[1:]})],
    "pax-linkpath-override": [oci.hardlink("x", "harmless", pax={"linkpath": "/etc/passwd"})],
    "directory-and-file": [oci.directory("x"), oci.entry("x/y", "1"), oci.entry("x", "2")],
    "path-through-file": [oci.entry("x", "1"), oci.entry("x/y", "2")],
    "whiteout-outside": [oci.entry("../.wh.x", "")],
    "symlink-to-nothing": [oci.symlink("x", "")],
    "no-name": [oci.entry("./", "content", kind=tarfile.REGTYPE)],
}


@pytest.mark.parametrize("name", FSX15)
def test_fsx_15_names_that_lead_outside(small, name):
    refused(small, layer(*FSX15[name]))
    assert not os.path.exists(OUTSIDE)


def test_fsx_15_symlinks_are_replaced_and_not_followed(daemon, box):
    """A later entry of the same name takes the link's place; what the link pointed to stays untouched."""
    load(daemon, oci.image([tiny(), oci.tar([oci.symlink("x", "/etc/passwd"), oci.entry("x", "mine"), oci.symlink("y", "/etc"), oci.directory("y"),
                                            oci.entry("y/passwd", "mine")])]), "replaced:1")
    create(daemon, box, "replaced:1")
    assert daemon.out(box, "cat /x /y/passwd; head -c 4 /etc/passwd") == "minemine" + "root"


def test_fsx_15_devices_and_privileges_have_no_effect(daemon, box):
    entries = [oci.entry("null", kind=tarfile.CHRTYPE, dev=(1, 3)), oci.entry("disk", kind=tarfile.BLKTYPE, dev=(8, 0)),
               oci.entry("setuid", "#!/bin/bash\n", mode=0o6755, pax={"SCHILY.xattr.security.capability": "x", "SCHILY.xattr.trusted.overlay.opaque": "y"})]
    made = load(daemon, oci.image([tiny(), oci.tar(entries)]), "devices:1")
    create(daemon, box, "devices:1")
    assert daemon.out(box, "test ! -e /null && test ! -e /disk && stat -c %a /setuid").strip() == "6755"
    root = next(line.split() for line in daemon.out(box, "cat /proc/self/mounts").splitlines() if line.split()[1] == "/")
    assert {"nosuid", "nodev"} <= set(root[3].split(",")), root
    tree = f"{daemon.data}/layers/{made['layers'][1]['digest'][7:]}/tree"
    assert os.listxattr(tree + "/setuid") == []
    assert os.stat(f"{daemon.data}/layers").st_mode & 0o777 == 0o700  # nobody on the host gets to set-user-id files


def test_fsx_16_bombs(small):
    zeros = gzip.compress(b"\0" * (1 << 20)) * 200  # members one behind the other: 200 MiB out of 200 KB
    head = tarfile.TarInfo("zeros")
    head.size = 200 << 20
    raw = head.tobuf() + b"\0" * (200 << 20) + b"\0" * 1024
    assert "bytes" in refused(small, oci.image([raw]), "IMAGE_TOO_LARGE", 413)
    refused(small, zeros, "IMAGE_TOO_LARGE", 413)
    files = oci.layout([oci.tar([oci.entry("x", "1")])])
    files["padding"] = b"\0" * (100 << 20)
    refused(small, gzip.compress(oci.archive(files), 1), "IMAGE_TOO_LARGE", 413)
    huge = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.name", "s"), ("GNU.sparse.realsize", str(1 << 60))]
    refused(small, layer(oci.entry("GNUSparseFile.0/s", b"0\n".ljust(512, b"\0"), pax=dict(huge))), "IMAGE_TOO_LARGE", 413)
    refused(small, layer(oci.directory("/".join(["d"] * 300))))
    refused(small, layer(oci.entry("x" * 256, "")))
    refused(small, layer(oci.entry("/".join(["y" * 200] * 30), "")), "IMAGE_TOO_LARGE", 413)
    many = oci.tar([oci.entry(f"f{i}", "") for i in range(20000)])
    refused(small, many, "IMAGE_TOO_LARGE", 413)


def test_fsx_17_cut_anywhere(small):
    """Every cut of the archive and of a layer is an error."""
    inner = oci.tar([oci.entry("a", "1"), oci.entry("b", "2" * 600)])[:4 * 512 + 1024 + 1024]
    whole = oci.archive(oci.layout([inner], compression=None), format=tarfile.USTAR_FORMAT)
    end = len(whole.rstrip(b"\0"))
    for at in range(0, end + 511, 512):
        refused(small, whole[:at] or b"\0", "INVALID_IMAGE")
    for at in range(100, end, 3001):
        refused(small, whole[:at])
    for cut in (10, 100, 200):  # a damaged gzip, with the digests of the damaged bytes
        raw = oci.tar([oci.entry("a", os.urandom(2000))])

        def spoil(manifest, config, files):
            name = "blobs/" + manifest["layers"][0]["digest"].replace(":", "/")
            blob = files.pop(name)[:-cut]
            files["blobs/sha256/" + oci.sha(blob)] = blob
            manifest["layers"][0].update(digest="sha256:" + oci.sha(blob), size=len(blob))
        refused(small, oci.image([raw], change=spoil))


def spoilers():
    def flip(manifest, config, files):
        name = "blobs/" + manifest["layers"][0]["digest"].replace(":", "/")
        files[name] = files[name][:-9] + bytes([files[name][-9] ^ 1]) + files[name][-8:]

    def swap(manifest, config, files):  # a layer that is fine, but not the one that was promised
        blob = gzip.compress(oci.tar([oci.entry("evil", "1")]))
        files["blobs/" + manifest["layers"][0]["digest"].replace(":", "/")] = blob
        manifest["layers"][0]["size"] = len(blob)

    def swap_both(manifest, config, files):  # the manifest's digest fits, the configuration's does not
        blob = gzip.compress(oci.tar([oci.entry("evil", "1")]))
        files["blobs/sha256/" + oci.sha(blob)] = blob
        manifest["layers"][0].update(digest="sha256:" + oci.sha(blob), size=len(blob))

    def edit(path, value):
        def change(manifest, config, files):
            target = {"manifest": manifest, "config": config}
            *way, last = path
            for step in way:
                target = target[step]
            target[last] = value
        return change

    def lose(manifest, config, files):
        del files["blobs/" + manifest["layers"][0]["digest"].replace(":", "/")]

    return {
        "flipped-bit": flip, "swapped-layer": swap, "swapped-layer-with-its-digest": swap_both, "missing-layer": lose,
        "wrong-size": edit(("manifest", "layers", 0, "size"), 5), "no-size": edit(("manifest", "layers", 0, "size"), None),
        "sha512": edit(("manifest", "layers", 0, "digest"), "sha512:" + "0" * 128), "digest-path": edit(("manifest", "layers", 0, "digest"), "sha256:../../../etc/passwd"),
        "layers-no-list": edit(("manifest", "layers"), {}), "diff-ids-missing": edit(("config", "rootfs"), {}),
        "diff-ids-more": edit(("config", "rootfs", "diff_ids"), ["sha256:" + "0" * 64] * 2), "env-no-list": edit(("config", "config"), {"Env": "A=1"}),
        "env-too-long": edit(("config", "config"), {"Env": ["A=" + "x" * 300000]}), "env-too-many": edit(("config", "config"), {"Env": [f"A{i}=1" for i in range(2000)]}),
        "nul-in-env": edit(("config", "config"), {"Env": ["A=\0"]}), "relative-workdir": edit(("config", "config"), {"WorkingDir": "../x"}),
        "odd-port": edit(("config", "config"), {"ExposedPorts": {"x/y": {}}}), "entrypoint-text": edit(("config", "config"), {"Entrypoint": "x"}),
        "config-elsewhere": edit(("manifest", "config"), {"digest": "sha256:" + "1" * 64, "size": 3}),
    }


@pytest.mark.parametrize("name", spoilers())
def test_lists_that_lie(small, name):
    refused(small, oci.image([oci.tar([oci.entry("x", "1")])], change=spoilers()[name]))


@pytest.mark.parametrize("name, archive", [
    ("empty", b"\0" * 1024), ("text", b"hello" * 1000), ("html", b"<html>" + b" " * 2000), ("no-lists", oci.tar([oci.entry("x", "1")])),
    ("index-no-json", oci.tar([oci.entry("index.json", "{")])), ("index-empty", oci.tar([oci.entry("index.json", '{"manifests":[]}')])),
    ("index-deep", oci.tar([oci.entry("index.json", "[" * 100000)])), ("index-huge", oci.tar([oci.entry("index.json", b" " * (9 << 20))])),
    ("manifest-no-list", oci.tar([oci.entry("manifest.json", "{}")])), ("manifest-empty", oci.tar([oci.entry("manifest.json", "[]")])),
    ("manifest-paths", oci.tar([oci.entry("manifest.json", '[{"Config":"../../etc/passwd","Layers":["/etc/passwd"]}]')])),
    ("device", oci.tar([oci.entry("index.json", kind=tarfile.CHRTYPE)])),
    ("link-loop", oci.tar([oci.symlink("index.json", "b"), oci.symlink("b", "index.json")])),
    ("link-outside", oci.tar([oci.symlink("index.json", "/etc/passwd")])),
])
def test_not_an_image(small, name, archive):
    status, code = (413, "IMAGE_TOO_LARGE") if name == "index-huge" else (422, "INVALID_IMAGE")
    refused(small, archive, code, status)


def test_an_index_that_names_itself(small):
    """Lists nested for ever end at a depth."""
    files = oci.layout([oci.tar([])])
    descriptor = json.loads(files["index.json"])["manifests"][0]
    for _ in range(10):
        text = json.dumps({"manifests": [descriptor]}).encode()
        files["blobs/sha256/" + oci.sha(text)] = text
        descriptor = {"mediaType": "application/vnd.oci.image.index.v1+json", "digest": "sha256:" + oci.sha(text), "size": len(text)}
    files["index.json"] = json.dumps({"manifests": [descriptor]}).encode()
    assert "nested" in refused(small, oci.archive(files))


def test_good_layers_of_a_bad_image_do_not_stay(small):
    good, bad = oci.tar([oci.entry("good", os.urandom(1000))]), oci.tar([oci.entry("../bad", "x")])
    assert "layer 2 of 2" in refused(small, oci.image([good, bad]))
    load(small, oci.image([good]), "kept:1")  # while another image has it, it stays
    assert load(small, oci.image([good, bad]), status=422)["code"] == "INVALID_IMAGE"
    silica.wait_for(lambda: stored(small)["layers"] == [oci.sha(good)], what="the good layer alone")
    assert small.request("DELETE", "/v1/images/kept:1").status == 200
    wait_empty(small)


@pytest.mark.parametrize("target", ["/", "/proc/1/root", "../../../.."])
def test_iso_09_mount_points_that_are_links(daemon_factory, target):
    d = daemon_factory("img-iso9").start()
    links = [oci.symlink(name, target) for name in ("dev", "proc", "sys", "tmp", "run")]
    entries = [e for e in oci.rootfs() if e[0].name not in ("dev", "proc", "sys", "tmp", "run")] + links
    before = set(os.listdir("/"))
    load(d, oci.image([oci.tar(entries)]), "evil:1")
    r = d.request("PUT", "/v1/sandbox/evil", {"image": "evil:1"})
    if r.status == 201:  # or real directories were used
        assert d.exec("evil", "test -d /proc/self && echo ok")["stdout"].strip() == "ok"
    else:
        assert r.status in (422, 500, 502) and r.json["code"], r.body
    assert set(os.listdir("/")) == before
    d.out("other", "true")  # the daemon is well


def test_iso_10_masks_through_links(daemon_factory):
    with open("/proc/sys/kernel/core_pattern") as f:
        before = f.read()
    d = daemon_factory("img-iso10").start()
    entries = oci.rootfs() + [oci.symlink("dev/null", "/proc/sys/kernel/core_pattern"), oci.symlink("dev/console", "/proc/sys/kernel/core_pattern")]
    load(d, oci.image([oci.tar(entries)]), "evil:1")
    create(d, "evil", "evil:1")
    d.exec("evil", "echo hacked > /dev/null; echo hacked > /proc/sys/kernel/core_pattern; cat /proc/kcore")
    with open("/proc/sys/kernel/core_pattern") as f:
        assert f.read() == before


def test_a_saved_tree_that_is_a_trap(daemon, box):
    """What a sandbox leaves behind for whoever reads its disk: pipes, sockets, loops, depth, odd names."""
    load(daemon, oci.image([tiny()]), "trap:0")
    create(daemon, box, "trap:0")
    daemon.out(box, "mkfifo /pipe; ln -s / /loop; ln -s /proc/1/root/etc/shadow /shadow; mkdir /dark; chmod 0 /dark; echo x > /dark/f; chmod 0 /dark/f;"
                    "touch $'/new\\nline' $'/\\xff\\xfe'; touch /.wh.innocent; mkdir /opq; touch /opq/.wh..wh..opq")
    made = daemon.request("POST", "/v1/images/save", {"sandbox": box, "name": "trap:1"})
    assert made.status == 201, made.body
    create(daemon, box + "-2", "trap:1")
    assert daemon.out(box + "-2", "test -p /pipe && cat /dark/f; readlink /loop; readlink /shadow").split() == ["x", "/", "/proc/1/root/etc/shadow"]
    daemon.destroy(box + "-2")
    deep = "cd /; i=0; while [ $i -lt 300 ]; do mkdir d && cd d || break; i=$((i+1)); done; echo $i"
    assert daemon.out(box, deep).strip() == "300"
    r = daemon.request("POST", "/v1/images/save", {"sandbox": box, "name": "trap:2"})
    assert r.status == 413 and r.json["code"] == "IMAGE_TOO_LARGE", r.body
    silica.wait_for(lambda: not workers(daemon) and stored(daemon)["staging"] == [], what="nothing half made")
