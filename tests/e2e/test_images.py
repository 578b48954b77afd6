# SPDX-License-Identifier: Apache-2.0
"""The image store through the real daemon: archives made here become images that sandboxes run on."""
import gzip
import io
import json
import os
import signal
import subprocess
import tarfile
import threading

import oci
import pytest
import silica

TINY = None


def tiny():
    """The bytes of a layer with a shell and some tools, made once."""
    global TINY
    TINY = TINY or oci.tar(oci.rootfs())
    return TINY


@pytest.fixture(autouse=True, scope="module")
def programs():
    for path in (oci.BUSYBOX, oci.BASH):
        if not os.path.exists(path):
            pytest.skip(f"needs {path} (Debian packages busybox-static and bash-static)")


def load(d, archive, name=None, status=201, headers=None):
    r = d.request("POST", "/v1/images/import" + (f"?name={name}" if name else ""), archive,
                  headers={"Content-Type": "application/x-tar", **(headers or {})}, timeout=120)
    assert r.status == status, (r.status, r.body)
    return r.json["images"][0] if status == 201 else r.json


def create(d, sandbox, image, status=201, **fields):
    r = d.request("PUT", f"/v1/sandbox/{sandbox}", {"image": image, **fields})
    assert r.status == status, (r.status, r.body)
    return r.json


def images(d):
    return {i["id"]: i for i in d.request("GET", "/v1/images").json["images"]}


def save(d, status=201, **body):
    r = d.request("POST", "/v1/images/save", body, timeout=120)
    assert r.status == status, (r.status, r.body)
    return r.json


def remove(d, name, status=200, query=""):
    r = d.request("DELETE", f"/v1/images/{name}{query}")
    assert r.status == status, (r.status, r.body)
    return r.json


def stored(d):
    """What is in the store, by directory."""
    return {kind: sorted(os.listdir(f"{d.data}/{kind}")) for kind in ("layers", "images", "names", "staging")}


EMPTY = {"layers": [], "images": [], "names": [], "staging": []}


def wait_empty(d):
    silica.wait_for(lambda: stored(d) == EMPTY, what="an empty store")


def workers(d, verb=b"image-worker"):
    """The image workers of this daemon: children of its keeper."""
    found = []
    for pid in os.listdir("/proc"):
        try:
            if pid.isdigit() and verb in open(f"/proc/{pid}/cmdline", "rb").read():
                status = open(f"/proc/{pid}/status").read()
                if f"PPid:\t{d.proc.pid}\n" in status:
                    found.append((int(pid), status))
        except OSError:
            pass  # it ended meanwhile
    return found


# ------------------------------------------------------------------ import

@pytest.mark.parametrize("compression", ["gzip", "zstd", None])
def test_import_and_run(daemon, box, compression):
    config = {"Env": ["GREETING=hello", "PATH=/bin"], "WorkingDir": "/app", "User": "worker", "Entrypoint": ["/bin/run"], "Cmd": ["a", "b"],
              "ExposedPorts": {"3000/tcp": {}, "53/udp": {}}, "Labels": {"team": "blue"}, "Healthcheck": {"Test": ["NONE"]},
              "Volumes": {"/data": {}}}
    layer = oci.tar([oci.directory("app"), oci.entry("app/hello", "hi\n"), oci.entry("etc/.wh.group", "")])
    made = load(daemon, oci.image([tiny(), layer], config=config, compression=compression, name="docker.io/library/run:1"))
    assert made["names"] == ["run:1"]
    assert made["config"] == {"env": ["GREETING=hello", "PATH=/bin"], "workdir": "/app", "user": "worker", "entrypoint": ["/bin/run"],
                              "cmd": ["a", "b"], "exposedPorts": ["3000/tcp", "53/udp"], "labels": {"team": "blue"}}
    assert [x["digest"] for x in made["layers"]] == ["sha256:" + oci.sha(tiny()), "sha256:" + oci.sha(layer)]
    assert len(made["notes"]) == 2 and made["createdAt"] == "2026-01-02T03:04:05Z" and made["size"] > 4_000_000
    shown = create(daemon, box, "run:1")
    assert shown["image"] == made["id"] and shown["imageNames"] == ["run:1"]
    assert daemon.out(box, "pwd; cat hello; echo $GREETING; id -u; ls /etc").split() == ["/app", "hi", "hello", "1000", "passwd"]
    assert images(daemon)[made["id"]]["sandboxes"] == 1
    # the same archive again is the same image, and nothing is unpacked twice
    assert load(daemon, oci.image([tiny(), layer], config=config, compression=compression, name="run:1"))["id"] == made["id"]


def test_docker_archives(daemon, box):
    layer = oci.tar([oci.entry("mark", "docker\n")])
    made = load(daemon, oci.docker_archive([tiny(), layer], config={"Env": ["A=1"]}, tags=["saved:1", "saved:2"]))
    assert sorted(made["names"]) == ["saved:1", "saved:2"]
    create(daemon, box, "saved:2")
    assert daemon.out(box, "cat /mark").strip() == "docker"


def test_docker_archive_with_links_between_layers(daemon):
    """Old engines write a layer twice as a symbolic link to the first."""
    raw = oci.tar([oci.entry("same", "x")])
    text = json.dumps({"architecture": oci.ARCH, "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": ["sha256:" + oci.sha(raw)] * 2}}).encode()
    archive = oci.tar([oci.entry("a/layer.tar", raw), oci.symlink("b/layer.tar", "../a/layer.tar"), oci.entry("c.json", text),
                       oci.entry("manifest.json", json.dumps([{"Config": "c.json", "RepoTags": None, "Layers": ["a/layer.tar", "b/layer.tar"]}]))])
    made = load(daemon, archive)
    assert made["names"] == [] and len(made["layers"]) == 1  # the same layer twice is once


def test_compressed_outside_and_streamed(daemon):
    archive = gzip.compress(oci.image([oci.tar([oci.entry("outer", "1")])], name="outer:1"))
    assert load(daemon, archive)["names"] == ["outer:1"]
    r = daemon.request("POST", "/v1/images/import?name=streamed", iter([archive[:100], archive[100:]]), headers={"Accept": "text/event-stream"})
    events = [json.loads(line[6:]) for line in r.body.decode().splitlines() if line.startswith("data: ")]
    assert r.status == 200 and events[-1]["type"] == "complete" and "streamed:latest" in events[-1]["images"][0]["names"]


def test_platforms(daemon):
    """Of an index the manifest for this machine is taken; an image for another one is refused."""
    good, other = oci.layout([oci.tar([oci.entry("good", "1")])]), oci.layout([oci.tar([oci.entry("other", "1")])], arch="s390x")
    inner = []
    for files, arch in ((other, "s390x"), (good, oci.ARCH)):
        inner.append({**json.loads(files["index.json"])["manifests"][0], "platform": {"os": "linux", "architecture": arch}})
    index = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": inner}).encode()
    files = {**other, **good, "blobs/sha256/" + oci.sha(index): index}
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [
        {"mediaType": "application/vnd.oci.image.index.v1+json", "digest": "sha256:" + oci.sha(index), "size": len(index)}]}).encode()
    made = load(daemon, oci.archive(files), "platforms")
    assert made["layers"][0]["digest"] == "sha256:" + oci.sha(oci.tar([oci.entry("good", "1")]))
    assert "s390x" in load(daemon, oci.image([oci.tar([])], arch="s390x"), status=422)["message"]


def test_what_a_layer_can_hold(daemon, box):
    deep = "/".join(["d" * 40] * 5)
    sparse = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.name", "sparse"), ("GNU.sparse.realsize", str(1 << 30))]
    sparse_map = b"1\n1048576\n5\n".ljust(512, b"\0") + b"hello"
    entries = [
        oci.directory("odd", mode=0o2775, uid=1000, gid=1000, mtime=1234567890),
        oci.entry("odd/file", "content", mode=0o4755, uid=1000, gid=1001, mtime=1111111111, pax={"SCHILY.xattr.user.note": "yes", "mtime": "1111111111.5"}),
        oci.hardlink("odd/link", "odd/file"), oci.symlink("odd/dangling", "/etc/../../outside"),
        oci.entry("odd/pipe", kind=tarfile.FIFOTYPE, mode=0o600), oci.entry("odd/device", kind=tarfile.CHRTYPE, dev=(1, 3)),
        oci.entry(deep + "/" + "n" * 200, "long"), oci.entry("äöü ☃\n", "unicode"), oci.entry("odd/nobody", "", uid=4000000, gid=3),
        oci.entry("GNUSparseFile.0/sparse", sparse_map, pax=dict(sparse)),
        oci.entry("implicit/parents/are/made", "x\n"),
    ]
    made = load(daemon, oci.image([tiny(), oci.tar(entries)]), "odd:1")
    assert any("device" in note for note in made["notes"])
    create(daemon, box, "odd:1")
    out = lambda c: daemon.out(box, c).strip()
    assert out("stat -c '%a %u %g %Y' /odd /odd/file").splitlines() == ["2775 1000 1000 1234567890", "4755 1000 1001 1111111111"]
    assert out("stat -c '%h %i' /odd/file") == out("stat -c '%h %i' /odd/link")
    assert out("readlink /odd/dangling") == "/etc/../../outside"
    assert out("test -p /odd/pipe && test ! -e /odd/device && echo ok") == "ok"
    assert out(f"cat /{deep}/{'n' * 200}") == "long"
    assert out("cat /implicit/parents/are/made; stat -c '%u %g' /odd/nobody").split() == ["x", "65534", "3"]
    assert out("cat /äöü*") == "unicode"
    assert out("stat -c %s /sparse; dd if=/sparse bs=1 skip=1048576 count=5 2>/dev/null").split() == [str(1 << 30), "hello"]
    tree = f"{daemon.data}/layers/{made['layers'][1]['digest'][7:]}/tree"
    assert os.getxattr(tree + "/odd/file", "user.note") == b"yes" and os.stat(tree + "/sparse").st_blocks < 1000


def test_deletions_between_layers(daemon, box):
    one = oci.tar([oci.directory("a"), oci.entry("a/1", "1"), oci.entry("a/2", "2"), oci.directory("b"), oci.entry("b/old", "o"),
                   oci.directory("c"), oci.entry("c/old", "o"), oci.entry("gone", "g"), oci.directory("e"), oci.entry("e/f", "x")])
    two = oci.tar([oci.entry("a/.wh.1", ""), oci.directory("b"), oci.entry("b/.wh..wh..opq", ""), oci.entry("b/new", "n"),
                   oci.entry(".wh.c", ""), oci.directory("c"), oci.entry("c/new", "n"), oci.entry(".wh.gone", ""), oci.entry(".wh.e", "")])
    load(daemon, oci.image([tiny(), one, two]), "wh:1")
    create(daemon, box, "wh:1")
    assert daemon.out(box, "ls /a /b /c; ls -d /gone /e 2>/dev/null || true").split() == ["/a:", "2", "/b:", "new", "/c:", "new"]
    assert daemon.out(box, "mkdir /e; ls -A /e; rm -r /b; mkdir /b; ls -A /b; echo done").split() == ["done"]


def test_many_layers(daemon, box):
    layers = [tiny()] + [oci.tar([oci.entry(f"layer-{i}", str(i)), oci.entry("top", str(i))]) for i in range(127)]
    load(daemon, oci.image(layers), "many:128")
    create(daemon, box, "many:128")
    assert daemon.out(box, "cat /top; echo; ls -d /layer-* | wc -l").split() == ["126", "127"]
    reply = load(daemon, oci.image(layers + [oci.tar([oci.entry("more", "")])]), status=413)
    assert reply["code"] == "IMAGE_TOO_LARGE"


# ------------------------------------------------------------------ names

def test_names(daemon):
    made = load(daemon, oci.image([oci.tar([oci.entry("n", "1")])]), "docker.io/library/named")
    get = lambda name: daemon.request("GET", f"/v1/images/{name}")
    for name in ("named", "named:latest", "docker.io/named", "index.docker.io/library/named:latest", made["id"], "sha256:" + made["id"],
                 made["id"][:12], "named%3Alatest"):
        assert get(name).json["id"] == made["id"], name
    assert get("base").json["id"] == "base" and get("nothing").status == 404 and get(made["id"][:7]).status == 404
    for bad in ("UPPER", "a//b", "a:b:c", "-x", "a/", "x" * 300, "a%00b"):
        assert get(bad).status in (400, 404), bad
        r = daemon.request("POST", "/v1/images/tag", {"image": "named", "name": bad.replace("%00", "\0")})
        assert r.status == 400, (bad, r.body)
    other = load(daemon, oci.image([oci.tar([oci.entry("n", "2")])]), "other:1")
    r = daemon.request("POST", "/v1/images/tag", {"image": made["id"], "name": "localhost:5000/team/x:1a2b"})
    assert r.status == 200 and sorted(r.json["names"]) == ["localhost:5000/team/x:1a2b", "named:latest"]
    r = daemon.request("POST", "/v1/images/tag", {"image": "other:1", "name": "named"})
    assert r.json["id"] == other["id"] and get("named").json["id"] == other["id"]
    assert get("localhost:5000/team/x:1a2b").json["id"] == made["id"]


def test_a_sandbox_keeps_its_image(daemon, box):
    first = load(daemon, oci.image([tiny(), oci.tar([oci.entry("v", "1")])]), "moving:1")
    create(daemon, box, "moving:1")
    load(daemon, oci.image([tiny(), oci.tar([oci.entry("v", "2")])]), "moving:1")
    assert daemon.request("POST", f"/v1/sandbox/{box}/sleep").status == 200
    assert daemon.out(box, "cat /v") == "1"
    assert images(daemon)[first["id"]]["names"] == []
    shown = daemon.request("GET", f"/v1/sandbox/{box}").json
    assert shown["image"] == first["id"] and shown["imageNames"] == []  # the name is another one's now
    assert create(daemon, box, "moving:1", status=409)["code"] == "SANDBOX_EXISTS"


def test_read_only_tokens_may_look(daemon):
    secret = daemon.request("POST", "/v1/token", {"scope": "read-only"}).json["token"]
    h = {"Authorization": "Bearer " + secret}
    assert daemon.request("GET", "/v1/images", headers=h).status == 200
    assert daemon.request("GET", "/v1/images/base", headers=h).status == 200
    for method, path in (("POST", "import"), ("GET", "export?name=base"), ("POST", "save"), ("POST", "tag"), ("POST", "prune"), ("DELETE", "base")):
        assert daemon.request(method, "/v1/images/" + path, headers=h).status == 403, path


# ------------------------------------------------------------------ save and export

@pytest.mark.parametrize("asleep", [False, True])
def test_save_and_start(daemon, box, asleep):
    load(daemon, oci.image([tiny(), oci.tar([oci.entry("etc/old", "o"), oci.entry("usr/a/b", "x")])], config={"Env": ["A=1", "PATH=/bin"]}), "parent:1")
    create(daemon, box, "parent:1")
    daemon.out(box, "echo new > /root/file; rm /etc/old; rm -r /usr; mkdir /usr; touch /usr/only; ln -s /root/file /l; ln /root/file /root/hard;"
                    "mkfifo /root/p; chown 5:6 /root/file; chmod 4711 /root/file; mkdir -p /root/deep/er; echo d > /root/deep/er/f")
    if asleep:
        assert daemon.request("POST", f"/v1/sandbox/{box}/sleep").status == 200
    made = save(daemon, sandbox=box, name="child:1", config={"env": {"B": "2", "A": None}, "workdir": "/root", "cmd": ["serve"], "labels": {"x": "y"}})
    assert made["config"] == {"env": ["PATH=/bin", "B=2"], "workdir": "/root", "cmd": ["serve"], "labels": {"x": "y"}}
    assert len(made["layers"]) == 3 and made["parent"] == images(daemon)[made["parent"]]["id"] and made["names"] == ["child:1"]
    create(daemon, box + "-2", "child:1")
    seen = daemon.out(box + "-2", "pwd; cat file /l hard deep/er/f; ls /usr; ls /etc; stat -c '%u %g %a %h' file; test -p p && echo pipe; echo $A$B")
    assert seen.split() == ["/root", "new", "new", "new", "d", "only", "group", "passwd", "5", "6", "4711", "2", "pipe", "2"]
    assert daemon.out(box, "cat /root/file").strip() == "new"  # the first one goes on, or wakes, as it was
    # the same content saved again is the same layer
    assert save(daemon, sandbox=box, name="child:2")["layers"] == made["layers"]
    daemon.destroy(box + "-2")


def test_save_keeps_processes_running(daemon, box):
    load(daemon, oci.image([tiny()]), "proc:1")
    create(daemon, box, "proc:1")
    daemon.out(box, "> /root/ticks; (while true; do echo x >> /root/ticks; sleep 0.01; done) >/dev/null 2>&1 &")
    count = lambda: int(daemon.out(box, "wc -l < /root/ticks"))
    silica.wait_for(lambda: count() > 5, what="the process's work")
    threads = [threading.Thread(target=save, args=(daemon,), kwargs={"sandbox": box, "name": f"proc:s{i}"}) for i in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    before = count()
    silica.wait_for(lambda: count() > before + 5, what="the process after the save")


def test_save_on_base(daemon, box):
    daemon.out(box, "echo mine > /opt/mine && rm -r /usr/share/doc && mkdir /usr/share/doc")
    made = save(daemon, sandbox=box, name="team/dev:1", config={"exposedPorts": ["3000", "4000/udp"], "user": "root"})
    assert made["layers"][0] == {"image": "base"} and made["config"]["exposedPorts"] == ["3000/tcp", "4000/udp"]
    create(daemon, box + "-2", "team/dev:1")
    assert daemon.out(box + "-2", "cat /opt/mine; ls -A /usr/share/doc | wc -l; python3 -c 'print(6*7)'").split() == ["mine", "0", "42"]
    # an image of an image, without a sandbox: only the configuration differs
    other = save(daemon, image="team/dev:1", name="team/dev:2", config={"env": ["EXTRA=1"]})
    assert other["layers"] == made["layers"] and other["config"]["env"][-1] == "EXTRA=1" and other["parent"] == made["id"]
    daemon.destroy(box + "-2")


def test_save_refused(daemon, box):
    assert save(daemon, 404, sandbox="nobody")["code"] == "SANDBOX_NOT_FOUND"
    assert save(daemon, 404, image="nothing:1")["code"] == "IMAGE_NOT_FOUND"
    for body in ({}, {"sandbox": box, "image": "base"}, {"sandbox": "/"}, {"image": "base", "name": 5}, {"image": "base", "name": "UP"}):
        assert save(daemon, 400, **body)["code"] in ("VALIDATION_FAILED", "INVALID_IMAGE_NAME"), body
    for config in ([], {"env": 5}, {"env": [5]}, {"workdir": "rel"}, {"cmd": "x"}, {"exposedPorts": ["x"]}, {"exposedPorts": ["70000"]},
                   {"labels": {"a": 1}}, {"unknown": 1}, {"user": "x" * 300}, {"env": ["A=" + "x" * 200000]}):
        reply = save(daemon, 400, image="base", config=config)
        assert reply["code"] == "VALIDATION_FAILED" and reply["context"]["field"] == "config", (config, reply)


def export(d, name, query=""):
    r = d.request("GET", f"/v1/images/export?name={name}{query}", timeout=120)
    assert r.status == 200, r.body
    return r.body


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_export(daemon, box, tmp_path, compression):
    load(daemon, oci.image([tiny(), oci.tar([oci.directory("d"), oci.entry("d/x", "1"), oci.entry("y", "2")])], config={"Env": ["A=1"], "Cmd": ["run"]}), "out:1")
    create(daemon, box, "out:1")
    daemon.out(box, "rm /y; rm -r /d; mkdir /d; echo z > /d/z; ln /d/z /d/zz; chown 7:8 /d/z; touch /" + "n" * 150)
    saved = save(daemon, sandbox=box, name="out:2")
    (tmp_path / "out.tar").write_bytes(export(daemon, "out:2", f"&compression={compression}"))
    run = lambda *a: subprocess.run(a, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    # other tools read it
    seen = json.loads(run("skopeo", "inspect", "--config", "oci-archive:out.tar"))
    assert seen["config"] == {"Env": ["A=1"], "Cmd": ["run"]} and len(seen["rootfs"]["diff_ids"]) == 3
    assert seen["rootfs"]["diff_ids"][2] == saved["layers"][2]["digest"]  # what was saved here keeps its name
    run("skopeo", "copy", "--insecure-policy", "oci-archive:out.tar", "oci:layout:x")
    run("umoci", "unpack", "--image", "layout:x", "bundle")
    root = tmp_path / "bundle/rootfs"
    assert not (root / "y").exists() and sorted(os.listdir(root / "d")) == ["z", "zz"] and (root / ("n" * 150)).exists()
    st = os.stat(root / "d/z")
    assert (st.st_uid, st.st_gid, st.st_nlink) == (7, 8, 2)
    run("skopeo", "copy", "--insecure-policy", "docker-archive:out.tar", "docker-archive:again.tar:re:2")
    # and so do we, also what those tools made of it
    back = load(daemon, (tmp_path / "out.tar").read_bytes(), "back:1")
    assert back["layers"][2] == saved["layers"][2] and back["config"] == saved["config"]
    assert "re:2" in load(daemon, (tmp_path / "again.tar").read_bytes())["names"]
    create(daemon, box + "-2", "re:2")
    assert daemon.out(box + "-2", "ls /d; test ! -e /y && cat /d/zz").split() == ["z", "zz", "z"]
    daemon.destroy(box + "-2")


def test_export_refused(daemon):
    for query, status in (("", 400), ("?name=nothing:1", 404), ("?name=base&compression=xz", 400)):
        assert daemon.request("GET", "/v1/images/export" + query).status == status


# ------------------------------------------------------------------ removal

def test_shared_layers_and_nothing_left(daemon_factory):
    d = daemon_factory("img-rm").start()
    a = load(d, oci.image([tiny(), oci.tar([oci.entry("a", "a")])]), "a:1")
    b = load(d, oci.image([tiny(), oci.tar([oci.entry("b", "b")])]), "b:1")
    assert len(stored(d)["layers"]) == 3
    create(d, "user", "a:1")
    assert remove(d, "a:1", 409)["code"] == "IMAGE_IN_USE"
    assert remove(d, a["id"], 409)["code"] == "IMAGE_IN_USE"
    assert remove(d, "b:1") == {"success": True, "untagged": ["b:1"], "deleted": [b["id"]]}
    silica.wait_for(lambda: len(stored(d)["layers"]) == 2, what="the layer's end")
    assert d.request("POST", "/v1/sandbox/user/sleep").status == 200
    assert remove(d, "a:1", 409)["code"] == "IMAGE_IN_USE"  # asleep it still stands on it
    assert d.out("user", "cat /a") == "a"
    assert remove(d, "a:1", query="?force=true") == {"success": True, "untagged": ["a:1"], "deleted": []}
    assert d.request("POST", "/v1/images/prune").json["deleted"] == []
    d.destroy("user")
    pruned = d.request("POST", "/v1/images/prune").json
    assert pruned["deleted"] == [a["id"]] and pruned["layers"] == 2 and pruned["bytes"] > 4_000_000
    wait_empty(d)
    assert remove(d, "base", 409)["code"] == "IMAGE_IN_USE" and os.path.isdir(silica.IMAGES + "/base/rootfs")


def test_names_and_ids_removed(daemon):
    made = load(daemon, oci.image([oci.tar([oci.entry("r", "r")])]), "r:1")
    daemon.request("POST", "/v1/images/tag", {"image": "r:1", "name": "r:2"})
    assert "2 names" in remove(daemon, made["id"], 409)["message"]
    assert remove(daemon, "r:1") == {"success": True, "untagged": ["r:1"], "deleted": []}
    assert remove(daemon, "r:1", 404)["code"] == "IMAGE_NOT_FOUND"
    daemon.request("POST", "/v1/images/tag", {"image": "r:2", "name": "r:3"})
    assert remove(daemon, made["id"][:12], query="?force=1")["deleted"] == [made["id"]]
    assert daemon.request("GET", "/v1/images/r:2").status == 404 and daemon.request("GET", "/v1/images/r:3").status == 404


def test_a_rebuilt_base_makes_images_stale(daemon_factory, tmp_path, monkeypatch):
    """What changed against one tree makes no sense on another."""
    plain = tmp_path / "images/small"
    plain.mkdir(parents=True)

    def build():
        (plain / "rootfs.new").mkdir()
        with tarfile.open(fileobj=io.BytesIO(tiny())) as t:
            t.extractall(plain / "rootfs.new")
        (plain / "rootfs.new").rename(plain / "rootfs")
    build()
    (plain / "config.json").write_text('{"env": ["PATH=/bin"]}')
    (plain / "env").write_text("PATH=/bin\n")
    monkeypatch.setattr(silica, "IMAGES", str(tmp_path / "images"))
    d = daemon_factory("img-stale", pool=0, args=["--image", "small"]).start()
    d.out("first", "echo 1 > /mine")
    assert save(d, sandbox="first", name="on-small:1")["layers"][0] == {"image": "small"}
    create(d, "second", "on-small:1")
    assert d.out("second", "cat /mine").strip() == "1"
    d.destroy("second")
    (plain / "rootfs").rename(plain / "rootfs.old")
    build()
    r = d.request("PUT", "/v1/sandbox/third", {"image": "on-small:1"})
    assert r.status == 409 and r.json["code"] == "IMAGE_STALE" and "small" in r.json["message"], r.body
    assert save(d, 409, image="on-small:1", config={"user": "root"})["code"] == "IMAGE_STALE"
    remove(d, "on-small:1")


# ------------------------------------------------------------------ life

def stalled_import(d, archive, n):
    """An import that has sent n bytes of its archive and waits."""
    conn = d.connection(60)
    conn.putrequest("POST", "/v1/images/import?name=stalled")
    conn.putheader("Authorization", "Bearer " + silica.TOKEN)
    conn.putheader("Content-Type", "application/x-tar")
    conn.putheader("Content-Length", str(len(archive)))
    conn.endheaders(archive[:n])
    return conn


def test_worker_is_confined(daemon_factory):
    d = daemon_factory("img-cage").start()
    archive = oci.image([tiny()], compression=None)
    conn = stalled_import(d, archive, 100_000)
    pid, status = silica.wait_for(lambda: [w for w in workers(d) if "Seccomp:\t2" in w[1]], what="the confined worker")[0]
    field = lambda name: next(line.split(None, 1)[1] for line in status.splitlines() if line.startswith(name + ":"))
    uids = set(map(int, field("Uid").split()))
    assert all(u >= silica.UID_BASE for u in uids) and field("NoNewPrivs") == "1", status
    assert int(field("CapEff"), 16) == int(field("CapPrm"), 16) == 0b11011 and int(field("CapBnd"), 16) == 0 and int(field("CapInh"), 16) == 0
    for ns in ("user", "mnt", "pid", "net", "ipc", "uts"):
        assert os.readlink(f"/proc/{pid}/ns/{ns}") != os.readlink(f"/proc/self/ns/{ns}"), ns
    assert set(os.listdir(f"/proc/{pid}/root/")) <= {"part-0", "part-1", "part-2", "part-3", "part-4"}  # the staging directory is all it has
    with open(f"/proc/{pid}/mountinfo") as f:
        assert len(f.readlines()) == 1
    conn.send(archive[100_000:])
    assert conn.getresponse().status == 201
    conn.close()
    silica.wait_for(lambda: not workers(d), what="the worker's end")


def test_caller_gone_and_too_many_at_once(daemon_factory):
    d = daemon_factory("img-gone").start()
    archive = oci.image([tiny()], compression=None)
    conns = [stalled_import(d, archive, 50_000) for _ in range(4)]
    silica.wait_for(lambda: len(workers(d)) == 4, what="four workers")
    assert load(d, archive, status=429)["code"] == "TOO_MANY_IMAGE_OPERATIONS"
    assert d.request("GET", "/v1/images").status == 200  # questions are still answered
    assert d.request("POST", "/v1/images/tag", {"image": "base", "name": "mine:1"}).status == 200
    for c in conns[:3]:
        c.close()
    conns[3].send(archive[50_000:])
    assert conns[3].getresponse().status == 201
    conns[3].close()
    silica.wait_for(lambda: not workers(d) and not stored(d)["staging"], what="the end of the others")
    remove(d, "stalled")
    remove(d, "mine:1")
    wait_empty(d)


def test_kill_of_the_keeper_leaves_nothing(daemon_factory):
    """REC-02 for images: whatever was half done is gone after the next start, what was done is there."""
    d = daemon_factory("img-kill").start()
    load(d, oci.image([tiny()]), "kept:1")
    archive = oci.image([oci.tar([oci.entry("big", os.urandom(3 << 20))])], compression=None)
    conn = stalled_import(d, archive, 2 << 20)
    silica.wait_for(lambda: workers(d) and stored(d)["staging"], what="the worker")
    pids = [w[0] for w in workers(d)]
    d.kill()
    conn.close()
    silica.wait_for(lambda: not any(os.path.exists(f"/proc/{p}") for p in pids), what="the worker's end")
    assert stored(d)["staging"]
    d.start()
    silica.wait_for(lambda: not stored(d)["staging"], what="the clean-up")
    assert stored(d)["names"] == ["kept=1"]
    create(d, "after", "kept:1")
    assert d.out("after", "echo ok").strip() == "ok"


def test_kill_of_the_gateway(daemon_factory):
    """Its import ends with it; the next gateway hears nothing of what it did not ask for."""
    d = daemon_factory("img-gate").start()
    archive = oci.image([tiny()], compression=None)
    conn = stalled_import(d, archive, 100_000)
    silica.wait_for(lambda: workers(d), what="the worker")
    gateway = lambda: [w[0] for w in workers(d, b"gateway")]
    first = gateway()
    os.kill(first[0], signal.SIGKILL)
    conn.close()
    silica.wait_for(lambda: not workers(d) and not stored(d)["staging"], what="the worker's end")
    silica.wait_for(lambda: gateway() not in ([], first) and d.healthy(), what="the next gateway")
    second = gateway()
    load(d, archive, "after:1")
    assert gateway() == second and "nobody asked" not in d.log()


def test_restart_keeps_images_and_sandboxes(daemon_factory):
    d = daemon_factory("img-again").start()
    made = load(d, oci.image([tiny(), oci.tar([oci.entry("v", "1")])]), "again:1")
    create(d, "box", "again:1")
    d.kill()
    d.start()
    assert images(d)[made["id"]]["names"] == ["again:1"] and images(d)[made["id"]]["sandboxes"] == 1
    assert d.out("box", "cat /v") == "1"
    assert save(d, sandbox="box", name="again:2")["parent"] == made["id"]  # adopted: its disk is mounted by its processes only


# ------------------------------------------------------------------ the command line

def test_command_line(daemon, box, tmp_path):
    def cli(*args, code=0, verb=("image",), **kw):
        env = {**os.environ, "SILICA_URL": f"http://127.0.0.1:{daemon.port}", "SILICA_TOKEN": silica.TOKEN, "ASAN_OPTIONS": "detect_leaks=0"}
        r = subprocess.run([silica.BIN, *verb, *args], env=env, capture_output=True, **kw)
        assert r.returncode == code, (args, r)
        return r.stdout if kw.get("input") is not None or code == 0 and "export" in args else r.stdout.decode() + r.stderr.decode()
    files = oci.layout([tiny(), oci.tar([oci.entry("cli", "1")])], name="cli:1")
    for name, data in files.items():
        path = tmp_path / "layout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (tmp_path / "a.tar").write_bytes(oci.archive(files))
    first = cli("import", str(tmp_path / "a.tar")).split()
    assert first[0] == "cli:1" and cli("import", str(tmp_path / "layout"), "--name", "cli:dir").split() == ["cli:dir", first[1]]
    assert cli("import", "-", "--name", "cli:pipe", input=(tmp_path / "a.tar").read_bytes()).split()[1].decode() == first[1]
    assert "cli:pipe" in cli("ls") and json.loads(cli("ls", "--json"))["count"] >= 2
    create(daemon, box, "cli:1")
    rows = dict(line.split("\t", 1) for line in cli("ls", verb=()).splitlines())
    assert rows[box].split("\t")[:2] == ["running", "cli:1"]  # a name, not the id
    daemon.out(box, "echo 2 > /cli")
    made = cli("save", box, "cli:2", "-e", "A=1", "--cmd", "x", "--cmd", "y", "--label", "a=b", "--expose", "80").strip()
    shown = json.loads(cli("inspect", "cli:2"))
    assert shown["id"] == made and shown["config"]["cmd"] == ["x", "y"] and shown["config"]["labels"] == {"a": "b"}
    cli("export", "cli:2", str(tmp_path / "out.tar"))
    assert tarfile.is_tarfile(tmp_path / "out.tar") and not (tmp_path / "out.tar.part").exists()
    assert cli("tag", "cli:2", "cli:3").strip() == made
    assert cli("rm", "cli:2", "cli:3", "cli:pipe", "cli:dir").split() == ["cli:2", "cli:3", "cli:pipe", "cli:dir"]
    assert "stands on" in cli("rm", "cli:1", code=125)
    (tmp_path / "bad.tar").write_bytes(b"x" * 3_000_000)
    assert "not a tar archive" in cli("import", str(tmp_path / "bad.tar"), code=125)
    assert "no image" in cli("export", "nothing:1", str(tmp_path / "none.tar"), code=125) and not (tmp_path / "none.tar").exists()
    assert "removed" in cli("prune")


def test_everything_at_once(daemon_factory):
    """Operations of all kinds against each other: each answer is a documented one, and in the end nothing is left."""
    d = daemon_factory("img-crowd", pool=0).start()
    fine = {200, 201, 404, 409, 429}
    seen, wrong = set(), []

    def call(*args, **kw):
        r = d.request(*args, timeout=120, **kw)
        seen.add(r.status)
        if r.status not in fine:
            wrong.append((args[:2], r.status, r.body[:300]))
        return r

    def work(n):
        for i in range(3):
            box, name = f"c{n}-{i}", f"crowd:{n % 3}"
            call("POST", f"/v1/images/import?name={name}", oci.image([tiny(), oci.tar([oci.entry("n", str(n + i))])]), headers={"Content-Type": "application/x-tar"})
            call("PUT", f"/v1/sandbox/{box}", {"image": name})
            call("POST", f"/v1/sandbox/{box}/api/execute", {"command": "echo x > /root/x"})
            call("POST", "/v1/images/save", {"sandbox": box, "name": f"crowd:s{n}"})
            call("GET", f"/v1/images/export?name=crowd:s{n}")
            call("POST", "/v1/images/tag", {"image": f"crowd:s{n}", "name": f"crowd:t{i}"})
            call("POST", "/v1/images/prune")
            call("DELETE", f"/v1/images/{name}")
            call("DELETE", f"/v1/sandbox/{box}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong, wrong[:5]
    assert {200, 201} <= seen and d.proc.poll() is None and "gateway ended" not in d.log()
    for box in d.request("GET", "/v1/sandbox").json["sandboxes"]:
        d.destroy(box["id"])
    for image in images(d).values():
        if image["id"] != "base":
            remove(d, image["id"], query="?force=1")
    def tidied():
        assert d.request("POST", "/v1/images/prune").status == 200
        return stored(d) == EMPTY

    # layers of an import that failed wait for its next try, and those that were being read when their image went, for whoever tidies up:
    # again and again, because who reads or removes may still be busy with it behind its last answer
    silica.wait_for(tidied, what="an empty store")
