# SPDX-License-Identifier: Apache-2.0
"""What is taken out of a sandbox: consistent while it is being written (REC-22), and nothing that is not its own (LEAK-14)."""
import io
import json
import os
import tarfile

import oci
import pytest
from silica import wait_for

WRITER = r"""python3 - <<'P' > /dev/null 2>&1 &
import os
os.makedirs("/opt/marks")
n = 0
while True:
    fd = os.open(f"/opt/marks/{n}", os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"%08d" % n * 500)
    os.fsync(fd)
    os.close(fd)
    n += 1
    with open("/tmp/new", "w") as f: f.write(str(n))
    os.rename("/tmp/new", "/tmp/count")
P"""


def save(d, sandbox, name):
    r = d.request("POST", "/v1/images/save", {"sandbox": sandbox, "name": name}, timeout=120)
    assert r.status == 201, r.body
    return r.json


def count(d, box):
    return int(d.exec(box, "cat /tmp/count")["stdout"] or 0)


def test_REC_22_a_save_in_the_middle_of_writes(daemon, box):
    """Every file that was synced before is in it, whole, and of those that followed a beginning without holes."""
    daemon.out(box, WRITER)
    wait_for(lambda: count(daemon, box) > 20, what="some files")
    for i in range(3):
        synced = count(daemon, box)
        save(daemon, box, f"marks:{i}")
        later = count(daemon, box)
        copy = f"{box}-{i}"[-60:].strip("-")
        assert daemon.request("PUT", f"/v1/sandbox/{copy}", {"image": f"marks:{i}"}).status == 201
        found = json.loads(daemon.out(copy, """python3 -c '
import json, os
print(json.dumps({n: open(f"/opt/marks/{n}").read() for n in os.listdir("/opt/marks")}))'"""))
        daemon.destroy(copy)
        numbers = sorted(map(int, found))
        assert numbers == list(range(len(numbers))), "no holes"
        assert synced <= len(numbers) <= later + 1
        for n in numbers[:-1]:
            assert found[str(n)] == f"{n:08d}" * 500, n
        assert f"{numbers[-1]:08d}" * 500 == found[str(numbers[-1])] or numbers[-1] >= synced, "only the newest may be unfinished"


def last_layer(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as outer:
        read = lambda name: outer.extractfile(name).read()
        index = json.loads(read("index.json"))
        manifest = json.loads(read("blobs/" + index["manifests"][0]["digest"].replace(":", "/")))
        blob = read("blobs/" + manifest["layers"][-1]["digest"].replace(":", "/"))
    return tarfile.open(fileobj=io.BytesIO(blob))


def test_LEAK_14_an_export_holds_only_what_is_the_sandboxs(daemon, box):
    """Ids as they are inside, deletions as archives have them, no attributes or names of the overlay's, nothing of /proc and /dev."""
    if not (os.path.exists(oci.BUSYBOX) and os.path.exists(oci.BASH)):
        pytest.skip("needs the Debian packages busybox-static and bash-static")
    layers = [oci.tar(oci.rootfs()), oci.tar([oci.entry("etc/old", "o"), oci.directory("usr/doc"), oci.entry("usr/doc/x", "x")])]
    r = daemon.request("POST", "/v1/images/import?name=small:1", oci.image(layers), headers={"Content-Type": "application/x-tar"})
    assert r.status == 201, r.body
    assert daemon.request("PUT", f"/v1/sandbox/{box}", {"image": "small:1"}).status == 201
    daemon.out(box, """echo s > /dev/shm/s; mkdir -p /opt/d; echo mine > /opt/mine; chown 65534:1000 /opt/mine; rm /etc/old
        echo x > /opt/d/x; rm -r /usr/doc; mkdir /usr/doc; echo y > /usr/doc/y""")
    save(daemon, box, "leak:14")
    r = daemon.request("GET", "/v1/images/export?name=leak:14&compression=none", timeout=120)
    assert r.status == 200, r.body[:300]
    for word in (daemon.dir, daemon.instance, box):
        assert word.encode() not in r.body, "no path or name of the host's"
    with last_layer(r.body) as layer:
        members = {m.name.rstrip("/"): m for m in layer}
    assert {"opt/mine", "opt/d/x", "usr/doc/y", "etc/.wh.old"} <= set(members)
    assert (members["opt/mine"].uid, members["opt/mine"].gid) == (65534, 1000)
    for name, m in members.items():
        assert 0 <= m.uid < 65536 and 0 <= m.gid < 65536, (name, m.uid, m.gid)
        assert m.isreg() or m.isdir() or m.issym() or m.islnk() or m.isfifo(), f"{name}: no device, such as an overlay's deletion"
        assert not [k for k in m.pax_headers if "overlay" in k or "trusted." in k], (name, m.pax_headers)
        assert not name.startswith(("proc/", "dev/", "sys/", "upper", "work", "lost+found")), name


def test_LEAK_14_a_backup_holds_only_its_directory(daemon, box):
    """An archive of /workspace, unpacked by somebody else."""
    daemon.out(box, "echo mine > /workspace/f; chown 1000:1001 /workspace/f; echo other > /opt/other")
    if daemon.exec(box, "command -v mksquashfs unsquashfs")["exitCode"] != 0:
        pytest.skip("the image has no squashfs tools")
    r = daemon.request("POST", f"/v1/sandbox/{box}/api/backup/create", {"dir": "/workspace", "archivePath": "/var/backups/leak.sqsh"})
    assert r.status == 200, r.body
    listed = daemon.out(box, "unsquashfs -lln -d '' /var/backups/leak.sqsh").splitlines()
    names = [line.rsplit(" ", 1)[1] for line in listed if line[:1] in ("-", "d")]
    assert names == ["", "/f"] and "1000/1001" in listed[-1], listed
