# SPDX-License-Identifier: Apache-2.0
"""Image archives made by hand, good and hostile ones: layers as lists of tar entries, layouts as bytes."""
import gzip
import hashlib
import io
import json
import os
import tarfile

BUSYBOX, BASH = "/bin/busybox", "/bin/bash-static"  # Debian's busybox-static and bash-static
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


def sha(data):
    return hashlib.sha256(data).hexdigest()


def entry(name, data=None, kind=tarfile.REGTYPE, mode=0o644, link="", uid=0, gid=0, mtime=1700000000, pax=None, dev=(0, 0)):
    t = tarfile.TarInfo(name)
    t.type, t.mode, t.linkname, t.uid, t.gid, t.mtime = kind, mode, link, uid, gid, mtime
    t.devmajor, t.devminor = dev
    if pax:
        t.pax_headers = pax
    data = data.encode() if isinstance(data, str) else data
    if kind == tarfile.REGTYPE:
        t.size = len(data or b"")
    return t, data


def directory(name, mode=0o755, **kw):
    return entry(name, kind=tarfile.DIRTYPE, mode=mode, **kw)


def symlink(name, target, **kw):
    return entry(name, kind=tarfile.SYMTYPE, link=target, mode=0o777, **kw)


def hardlink(name, target, **kw):
    return entry(name, kind=tarfile.LNKTYPE, link=target, **kw)


def tar(entries, format=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as t:
        for info, data in entries:
            t.addfile(info, io.BytesIO(data) if data else None)
    return out.getvalue()


def rootfs():
    """A layer that a sandbox can live on: a static busybox with its names, and a static bash."""
    with open(BUSYBOX, "rb") as f:
        program = f.read()
    with open(BASH, "rb") as f:
        bash = f.read()
    names = ["sh", "ls", "cat", "echo", "id", "stat", "pwd", "env", "mkdir", "rm", "touch", "ln", "readlink", "test", "find", "wc", "sleep",
             "sha256sum", "tr", "cut", "head", "dd", "mv", "chmod", "chown", "mkfifo", "true"]
    shell = 'root:x:0:0:root:/root:/bin/sh\nworker:x:1000:1000::/home/worker:/bin/sh\n'
    return [directory("bin"), entry("bin/busybox", program, mode=0o755), *[hardlink(f"bin/{n}", "bin/busybox", mode=0o755) for n in names],
            entry("bin/bash", bash, mode=0o755),
            *[directory(d) for d in ("dev", "proc", "sys", "etc", "root", "run", "usr", "var", "home", "workspace", "app")],
            directory("tmp", mode=0o1777), directory("home/worker", uid=1000, gid=1000),
            entry("etc/passwd", shell), entry("etc/group", "root:x:0:\nworker:x:1000:\n")]


def pack(raw, compression):
    if compression == "gzip":
        return gzip.compress(raw, 1, mtime=0)
    if compression == "zstd":
        import subprocess
        return subprocess.run(["zstd", "-q", "-c"], input=raw, stdout=subprocess.PIPE, check=True).stdout
    return raw


def layout(layers, config=None, compression="gzip", name=None, created="2026-01-02T03:04:05Z", arch=ARCH, change=None):
    """An OCI layout as {path: bytes}; layers are tar bytes. change(manifest, config, files) may spoil it."""
    files, descriptors = {}, []
    suffix = {"gzip": "+gzip", "zstd": "+zstd", None: ""}[compression]
    for raw in layers:
        blob = pack(raw, compression)
        files["blobs/sha256/" + sha(blob)] = blob
        descriptors.append({"mediaType": "application/vnd.oci.image.layer.v1.tar" + suffix, "digest": "sha256:" + sha(blob),
                            "size": len(blob)})
    cfg = {"created": created, "architecture": arch, "os": "linux", "config": config or {},
           "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha(raw) for raw in layers]}}
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": descriptors}
    if change:
        change(manifest, cfg, files)
    text = json.dumps(cfg).encode()
    files["blobs/sha256/" + sha(text)] = text
    manifest.setdefault("config", {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "sha256:" + sha(text),
                                   "size": len(text)})
    text = json.dumps(manifest).encode()
    files["blobs/sha256/" + sha(text)] = text
    descriptor = {"mediaType": manifest["mediaType"], "digest": "sha256:" + sha(text), "size": len(text)}
    if name:
        descriptor["annotations"] = {"org.opencontainers.image.ref.name": name}
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [descriptor]}).encode()
    files["oci-layout"] = b'{"imageLayoutVersion":"1.0.0"}'
    return files


def archive(files, **kw):
    """The layout's files as one tar."""
    return tar([entry(name, data) for name, data in files.items()], **kw)


def image(layers, **kw):
    return archive(layout(layers, **kw))


def docker_archive(layers, config=None, tags=("app:1",), legacy=True):
    """What `docker save` writes: of old with a directory a layer."""
    files, names = [], []
    for i, raw in enumerate(layers):
        where = f"{sha(raw)[:40]}{i}"
        files += [directory(where), entry(where + "/VERSION", "1.0"), entry(where + "/json", "{}"), entry(where + "/layer.tar", raw)]
        names.append(where + "/layer.tar")
    text = json.dumps({"architecture": ARCH, "os": "linux", "config": config or {}, "created": "2020-01-01T00:00:00Z",
                       "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha(r) for r in layers]}}).encode()
    manifest = [{"Config": sha(text) + ".json", "RepoTags": list(tags), "Layers": names}]
    files += [entry(sha(text) + ".json", text), entry("manifest.json", json.dumps(manifest)), entry("repositories", "{}")]
    return tar(files)
