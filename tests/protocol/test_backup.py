# SPDX-License-Identifier: Apache-2.0
"""POST /api/backup/create, /api/backup/restore and /api/backup/upload-parts."""
import json
import os

import pytest

from services import python

SESSIONLESS = "__DISABLE_SESSION__"

# An upload store: PUT by path. /fail-N fails N times first, /no-etag has no tag; prints one line of JSON per request. The
# titles of all processes are searched for the signature that is part of every URL.
STORE = r"""
import glob, http.server, json, os, socketserver, ssl, subprocess, sys, tempfile, hashlib

work = tempfile.mkdtemp()
subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-keyout", f"{work}/key", "-out", f"{work}/cert", "-days", "2", "-subj", "/CN=localhost",
                "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
failures = {}

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        leak = False
        for name in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                title = open(name, "rb").read()
            except OSError:
                continue
            leak = leak or (b"Sig-c0ffee" in title and b"import glob" not in title)
        length = self.headers.get("Content-Length")
        body = self.rfile.read(int(length)) if length else b""
        path = self.path.split("?")[0]
        status = 200
        if path.startswith("/fail-"):
            failures[self.path] = failures.get(self.path, 0) + 1
            status = 500 if failures[self.path] <= int(path.split("-")[1]) else 200
        line = json.dumps({"path": path, "status": status, "length": length, "leak": leak,
                           "chunked": self.headers.get("Transfer-Encoding"), "type": self.headers.get("Content-Type"),
                           "md5": hashlib.md5(body).hexdigest()})
        os.write(1, line.encode() + b"\n")
        self.send_response(status)
        if path != "/no-etag":
            self.send_header("ETag", '"' + hashlib.md5(body).hexdigest() + '"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

server = Server(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(f"{work}/cert", f"{work}/key")
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print(server.server_address[1], f"{work}/cert", flush=True)
server.serve_forever()
"""


def sh(api, command, session=SESSIONLESS):
    result = api.run(command, session, cwd="/")
    assert result["exitCode"] == 0, result
    return result["stdout"].strip("\n")


@pytest.fixture(scope="module", autouse=True)
def tools(api):
    if api.run("test -x /usr/bin/mksquashfs && test -x /usr/bin/unsquashfs", SESSIONLESS, cwd="/")["exitCode"] != 0:
        pytest.skip("the sandbox has no squashfs-tools")


@pytest.fixture
def archive(api):
    name = f"/var/backups/test-{os.getpid()}-{os.urandom(4).hex()}.sqsh"
    yield name
    sh(api, f"rm -rf {name} {name}.*")


@pytest.fixture
def tree(api):
    path = sh(api, "mktemp -d /tmp/backup-XXXXXX")
    sh(api, f"cd {path} && mkdir -p src/lib node_modules/x empty && echo one > src/a && echo two > src/lib/b && "
            "echo big > node_modules/x/y && ln -s src/a link && chmod 750 src/lib && chmod 600 src/a")
    yield path
    sh(api, f"rm -rf {path}")


def create(api, tree, archive, **fields):
    return api.post("/api/backup/create", {"dir": tree, "archivePath": archive, **fields})


def made(api, tree, archive, **fields):
    response = create(api, tree, archive, **fields)
    assert response.status == 200, response.body
    return response.json


def restored(api, tree, archive, **fields):
    response = api.post("/api/backup/restore", {"dir": tree, "archivePath": archive, **fields})
    assert response.status == 200, response.body
    return response.json


def listing(api, archive):
    """The paths in an archive."""
    lines = sh(api, f"unsquashfs -l {archive}").split("\n")
    return {line[len("squashfs-root/"):] for line in lines if line.startswith("squashfs-root/")}


def refused(response, operation):
    assert response.status == 400, response.body
    error = response.json
    assert error["code"] == "INVALID_BACKUP_CONFIG"
    assert error["operation"] == operation
    assert error["suggestion"]


# ------------------------------------------------------------------ create


def test_create_answer(api, tree, archive, session):
    result = made(api, tree, archive, sessionId=session)
    assert result == {"success": True, "sizeBytes": int(sh(api, f"stat -c %s {archive}")), "archivePath": archive}
    assert {"src/a", "src/lib/b", "node_modules/x/y", "empty", "link"} <= listing(api, archive)


def test_create_replaces_an_older_archive(api, tree, archive, session):
    made(api, tree, archive, sessionId=session)
    sh(api, f"rm -r {tree}/src")
    made(api, tree, archive, sessionId=session)
    assert "src" not in listing(api, archive)


def test_create_sessionless(api, tree, archive):
    assert made(api, tree, archive, sessionId=SESSIONLESS)["success"] is True


@pytest.mark.parametrize("compression", [None, {}, {"format": "gzip"}, {"format": "zstd", "threads": 2}, {"threads": 1}])
def test_compression(api, tree, archive, session, compression):
    fields = {} if compression is None else {"compression": compression}
    made(api, tree, archive, sessionId=session, **fields)
    expected = (compression or {}).get("format", "lz4")
    assert f"Compression {expected}" in sh(api, f"unsquashfs -s {archive}")


@pytest.mark.parametrize("pattern", ["node_modules", "**/node_modules", "node_modules/**", "**/node_modules/**", "node_mod*"])
def test_excludes(api, tree, archive, session, pattern):
    made(api, tree, archive, sessionId=session, excludes=[pattern])
    paths = listing(api, archive)
    assert not any(p.startswith("node_modules") for p in paths)
    assert "src/a" in paths
    assert api.run(f"ls {archive}.exclude", SESSIONLESS, cwd="/")["exitCode"] != 0


def test_excludes_at_any_depth(api, tree, archive, session):
    made(api, tree, archive, sessionId=session, excludes=["b"])
    assert "src/lib/b" not in listing(api, archive)


def test_excluded_paths_take_nothing_else_with_them(api, tree, archive, session):
    sh(api, f"cd {tree} && mkdir -p deep/src && touch deep/src/a deep/src/keep src/keep")
    made(api, tree, archive, sessionId=session, excludes=["src/a"])
    paths = listing(api, archive)
    assert "src/a" not in paths and "deep/src/a" not in paths
    assert {"src/keep", "deep/src/keep", "src/lib/b"} <= paths


@pytest.mark.parametrize("patterns", [[], ["**"], [""]])
def test_empty_excludes(api, tree, archive, session, patterns):
    made(api, tree, archive, sessionId=session, excludes=patterns)
    assert "node_modules/x/y" in listing(api, archive)


def test_gitignore(api, tree, archive, session):
    sh(api, f"cd {tree} && git init -q . && printf 'node_modules\\n*.o\\n/conf\\n' > .gitignore && "
            "touch conf src/conf src/x.o 'src/[a]*?.o' $'new\\nline.o'")
    made(api, tree, archive, sessionId=session, gitignore=True)
    paths = listing(api, archive)
    assert {"src/a", ".gitignore", "src/conf"} <= paths
    assert "conf" not in paths
    assert not any(p.endswith(".o") or p.startswith("node_modules/x/") for p in paths)


def test_gitignore_outside_of_a_work_tree(api, tree, archive, session):
    made(api, tree, archive, sessionId=session, gitignore=True)
    assert "node_modules/x/y" in listing(api, archive)


def test_gitignore_off_by_default(api, tree, archive, session):
    sh(api, f"cd {tree} && git init -q . && echo node_modules > .gitignore")
    made(api, tree, archive, sessionId=session)
    assert "node_modules/x/y" in listing(api, archive)


def test_directory_is_missing(api, archive, session):
    response = create(api, "/tmp/no such directory", archive, sessionId=session)
    assert response.status == 500
    error = response.json
    assert error["code"] == "BACKUP_CREATE_FAILED"
    assert error["context"]["dir"] == "/tmp/no such directory"
    assert error["operation"] == error["context"]["operation"] == "backup.create"


def test_mksquashfs_fails(api, tree, session):
    archive = "/var/backups/no/such/dir.sqsh"
    response = create(api, tree, archive, sessionId=session)
    assert response.status == 500
    context = response.json["context"]
    assert context["exitCode"] != 0 and context["stderr"]
    assert context["archivePath"] == archive


def test_odd_names(api, tree, session):
    archive = f"/var/backups/it's \"odd\" $(x)-{os.urandom(4).hex()}.sqsh"
    odd = f"{tree}/a 'b' $(touch {tree}/proof)"
    sh(api, f"mkdir -p {tree}/'a '\"'b'\"' $(touch {tree}'; true")
    assert api.post("/api/mkdir", {"path": odd, "recursive": True}).status in (200, 404)
    sh(api, f"mkdir -p \"{tree}/a 'b' \\$(touch {tree}/proof)\"")
    try:
        assert made(api, odd, archive, sessionId=session)["archivePath"] == archive
        assert restored(api, odd, archive, sessionId=session)["dir"] == odd
    finally:
        sh(api, "rm -f /var/backups/it*odd*.sqsh")
    assert api.run(f"ls {tree}/proof", SESSIONLESS, cwd="/")["exitCode"] != 0


DIRS = ["", None, 7, "relative", "/etc", "/", "/workspacex", "/workspace/../etc", "/tmp/a..b", "/tmp/" + "x" * 4096, "/var", "/var/tmpx", "/tmp/a\0b"]
ARCHIVES = ["", None, "/tmp/a.sqsh", "/var/backups", "/var/backups/", "/var/backups/../x", "/var/backupsx/a", "/var/backups/" + "x" * 4096]


@pytest.mark.parametrize("directory", DIRS)
def test_refused_dirs(api, archive, directory):
    refused(create(api, directory, archive), "backup.create")
    refused(api.post("/api/backup/restore", {"dir": directory, "archivePath": archive}), "backup.restore")


@pytest.mark.parametrize("name", ARCHIVES)
def test_refused_archives(api, tree, name):
    refused(create(api, tree, name), "backup.create")
    refused(api.post("/api/backup/restore", {"dir": tree, "archivePath": name}), "backup.restore")


@pytest.mark.parametrize(
    "fields",
    [
        {"gitignore": "yes"},
        {"excludes": "a"},
        {"excludes": [7]},
        {"excludes": ["a\nb"]},
        {"excludes": ["a\0b"]},
        {"compression": "lz4"},
        {"compression": {"format": "xz"}},
        {"compression": {"format": 7}},
        {"compression": {"threads": 0}},
        {"compression": {"threads": 1.5}},
        {"compression": {"threads": "2"}},
    ],
)
def test_refused_options(api, tree, archive, fields):
    refused(create(api, tree, archive, **fields), "backup.create")


# ------------------------------------------------------------------ restore


def picture(api, tree):
    return sh(api, f"cd {tree} && find . -printf '%P %y %m %l\\n' | sort; find . -type f -exec md5sum {{}} + | sort")


def test_restore_makes_the_directory_what_it_was(api, tree, archive, session):
    before = picture(api, tree)
    made(api, tree, archive, sessionId=session)
    sh(api, f"cd {tree} && rm -rf src link && echo changed > node_modules/x/y && mkdir .hidden && touch new .hidden/f && chmod 700 .")
    sh(api, f"chmod 755 {tree}")
    mode = sh(api, f"unsquashfs -ll {archive} | grep ' squashfs-root$'")
    result = restored(api, tree, archive, sessionId=session)
    assert result["success"] is True and result["dir"] == tree
    assert result["method"] in ("extract", "mount")
    after = picture(api, tree)
    assert mode.startswith("drwx------")
    assert after == before


def test_restore_to_a_new_directory(api, tree, archive, session):
    made(api, tree, archive, sessionId=session)
    restored(api, f"{tree}/a/new/place", archive, sessionId=session)
    assert sh(api, f"cat {tree}/a/new/place/src/lib/b") == "two"


def test_restore_keeps_the_directory_itself(api, tree, archive, session):
    made(api, tree, archive, sessionId=session)
    api.run(f"cd {tree}", session)
    if restored(api, tree, archive, sessionId=session)["method"] == "extract":
        assert api.run("cat src/a", session)["stdout"] == "one"


def test_restore_twice(api, tree, archive, session):
    made(api, tree, archive, sessionId=session)
    before = picture(api, tree)
    for _ in range(2):
        restored(api, tree, archive, sessionId=session)
    assert picture(api, tree) == before


def test_restore_under_odd_shell_options(api, tree, archive, session):
    made(api, tree, archive, sessionId=session)
    api.run("set -euxfC; shopt -s nullglob failglob", session)
    restored(api, tree, archive, sessionId=session)
    assert sh(api, f"cat {tree}/src/a") == "one"


def test_missing_archive(api, tree, archive, session):
    response = api.post("/api/backup/restore", {"dir": tree, "archivePath": archive, "sessionId": session})
    assert response.status == 500
    error = response.json
    assert error["code"] == "BACKUP_RESTORE_FAILED"
    assert (error["context"]["dir"], error["context"]["archivePath"]) == (tree, archive)
    assert error["operation"] == "backup.restore"


def test_torn_archive_costs_nothing(api, tree, archive, session):
    sh(api, f"head -c 300000 /dev/urandom > {tree}/noise")
    made(api, tree, archive, sessionId=session)
    sh(api, f"truncate -s 150000 {archive}")
    before = picture(api, tree)
    response = api.post("/api/backup/restore", {"dir": tree, "archivePath": archive, "sessionId": session})
    assert response.status == 500
    assert response.json["code"] == "BACKUP_RESTORE_FAILED"
    assert picture(api, tree) == before


# ------------------------------------------------------------------ upload-parts


@pytest.fixture(scope="module")
def store(api):
    with python(api, STORE) as (name, line):
        port, cert = line.split()
        yield name, int(port), cert
        sh(api, f"rm -rf $(dirname {cert})")


@pytest.fixture
def upload(api, store, session, archive):
    """upload(parts) -> response; the archive has 1000000 bytes."""
    name, port, cert = store
    sh(api, f"mkdir -p /var/backups && head -c 1000000 /dev/urandom > {archive}")
    api.run(f"export CURL_CA_BUNDLE={cert}", session)

    def send(parts):
        body = [
            {"partNumber": n, "url": f"https://localhost:{port}{path}?X-Amz-Signature=Sig-c0ffee&n={n}-{os.urandom(4).hex()}", "offset": offset, "size": size}
            for n, path, offset, size in parts
        ]
        return api.post("/api/backup/upload-parts", {"archivePath": archive, "parts": body, "sessionId": session})

    def log():
        lines = api.get(f"/api/process/{name}/logs").json["stdout"].split("\n")[1:]
        return [json.loads(line) for line in lines if line]

    send.log = log
    yield send


def md5_of(api, archive, offset, size):
    return sh(api, f"tail -c +{offset + 1} {archive} | head -c {size} | md5sum").split()[0]


def test_upload(api, upload, archive):
    before = len(upload.log())
    response = upload([(3, "/c", 700000, 300000), (1, "/a", 0, 350000), (2, "/b", 350000, 350000)])
    assert response.status == 200, response.body
    assert response.json == {
        "success": True,
        "parts": [
            {"partNumber": 1, "etag": '"' + md5_of(api, archive, 0, 350000) + '"'},
            {"partNumber": 2, "etag": '"' + md5_of(api, archive, 350000, 350000) + '"'},
            {"partNumber": 3, "etag": '"' + md5_of(api, archive, 700000, 300000) + '"'},
        ],
    }
    for line in upload.log()[before:]:
        assert line["type"] == "application/octet-stream"
        assert line["length"] in ("350000", "300000")
        assert not line["chunked"]
        assert not line["leak"]
    assert sh(api, f"ls -d {archive}*") == archive  # nothing is left beside it


def test_upload_of_many_parts(api, upload, archive):
    response = upload([(i + 1, f"/p{i}", i * 1000, 1000) for i in range(100)])
    assert response.status == 200, response.body
    assert [p["partNumber"] for p in response.json["parts"]] == list(range(1, 101))
    assert response.json["parts"][41]["etag"] == '"' + md5_of(api, archive, 41000, 1000) + '"'


def test_upload_is_tried_three_times(api, upload):
    before = len(upload.log())
    assert upload([(1, "/fail-2", 0, 1000)]).status == 200
    assert [line["status"] for line in upload.log()[before:]] == [500, 500, 200]


def test_upload_gives_up(api, upload, archive):
    before = len(upload.log())
    response = upload([(1, "/fail-9", 0, 1000)])
    assert response.status == 500
    assert response.json["code"] == "BACKUP_CREATE_FAILED"
    assert b"c0ffee" not in response.body
    assert len(upload.log()) - before == 3


def test_upload_without_etag_fails_at_once(api, upload):
    before = len(upload.log())
    response = upload([(1, "/no-etag", 0, 1000)])
    assert (response.status, response.json["code"]) == (500, "BACKUP_CREATE_FAILED")
    assert len(upload.log()) - before == 1


def test_upload_outside_of_the_archive(api, upload):
    assert upload([(1, "/a", 999999, 2)]).status == 500


def test_upload_of_a_missing_archive(api, store, archive, session):
    part = {"partNumber": 1, "url": "https://localhost/x", "offset": 0, "size": 1}
    response = api.post("/api/backup/upload-parts", {"archivePath": archive, "parts": [part], "sessionId": session})
    assert (response.status, response.json["code"]) == (500, "BACKUP_CREATE_FAILED")


GOOD_PART = {"partNumber": 1, "url": "https://localhost/x", "offset": 0, "size": 1}


@pytest.mark.parametrize(
    "parts",
    [
        None,
        [],
        "x",
        [7],
        [{**GOOD_PART, "partNumber": 0}],
        [{**GOOD_PART, "partNumber": 1.5}],
        [{**GOOD_PART, "url": "http://localhost/x"}],
        [{**GOOD_PART, "url": "file:///etc/passwd"}],
        [{**GOOD_PART, "url": "https://"}],
        [{**GOOD_PART, "url": "https://a b"}],
        [{**GOOD_PART, "url": "https://a\nurl = file:///etc/passwd"}],
        [{**GOOD_PART, "offset": -1}],
        [{**GOOD_PART, "size": 0}],
    ],
)
def test_refused_parts(api, archive, parts):
    refused(api.post("/api/backup/upload-parts", {"archivePath": archive, "parts": parts}), "backup.create")


def test_refused_archive_of_upload(api):
    refused(api.post("/api/backup/upload-parts", {"archivePath": "/etc/passwd", "parts": [GOOD_PART]}), "backup.create")
