# SPDX-License-Identifier: Apache-2.0
"""Attacks and faults on files; the names begin with the ids of the fault catalogue."""
import base64
import os
import socket
import threading
import urllib.parse

import pytest
from conftest import wait_until
from files import NO_SESSION, call, names, read, sh, write

ENDPOINTS = ["read", "write", "list-files", "delete", "exists"]


def memory_kib(process):
    with open(f"/proc/{process.pid}/status") as f:
        return int(next(line for line in f if line.startswith("VmRSS")).split()[1])


def make_deep(api, path, levels, last="", each=""):
    """Directories below each other; deeper than any path can name, so one has to go there step by step."""
    script = [f"import os; os.chdir('{path}')", f"for i in range({levels}):", " os.mkdir('d'); os.chdir('d')", f" {each or 'pass'}", last]
    sh(api, 'python3 -c "' + "\n".join(script) + '"')


def traversals():
    ups = ["..", "%2e%2e", "%252e%252e", "..%c0%af", "%c0%ae%c0%ae", "..\\", "....//", ".%2e", "..;", "．．"]
    shapes = ["{0}/{0}/{0}/{0}/{0}/{0}/{1}", "/{0}/{0}/{1}", "//{0}//{1}", "{2}/{0}/{0}/{0}/{0}/{1}", "{2}/./{0}/{1}", "\\{0}\\{1}"]
    return [(up, shape) for up in ups for shape in shapes]


@pytest.mark.parametrize("up, shape", traversals())
def test_fsx_01_dot_dot_variants(api, directory, session, up, shape):
    """Whatever the spelling, the name is taken as the kernel takes it: inside, or an error; nothing is decoded twice."""
    api.run(f"cd {directory}", session)
    path = shape.format(up, "silica-canary-nowhere", directory)
    plain = os.path.normpath(os.path.join(directory, path))
    assert api.post("/api/read", {"path": path, "sessionId": session}).status == 404
    assert api.post("/api/delete", {"path": path, "sessionId": session}).status == 404
    assert api.post("/api/list-files", {"path": path, "sessionId": session}).status == 404
    if up == ".." or not path.startswith("/") or path.startswith(directory):  # nothing is left outside of the directory
        write(api, path, "c", sessionId=session)
        assert sh(api, f"cat -- '{plain}'") == "c"
        sh(api, f"rm -- '{plain}'")
    assert api.get("/file/" + urllib.parse.quote(path.lstrip("/"), safe="/%\\;")).status in (400, 404)


@pytest.mark.parametrize("route", ENDPOINTS)
def test_fsx_02_nul_in_a_path(api, route):
    response = api.post(f"/api/{route}", '{"path":"/etc/passwd\\u0000.png","content":"x"}')
    assert response.status == 400


def test_fsx_02_nul_in_a_url(api):
    for method in ("GET", "PUT", "DELETE"):
        assert api.request(method, "/file/etc/passwd%00.png", b"x" if method == "PUT" else None).status == 400


def test_fsx_03_symlinks_stay_inside(api, directory):
    sh(api, f"ln -s /etc/hostname {directory}/x")
    response = api.post("/api/read", {"path": f"{directory}/x", "sessionId": NO_SESSION})
    if response.status == 200:
        assert response.json["content"].strip() == sh(api, "cat /etc/hostname").strip()
    else:
        assert response.status in (403, 404)


@pytest.mark.parametrize("path", ["/proc/1/root/etc/passwd", "/proc/self/cwd/../etc/passwd", "/proc/self/fd/0", "/proc/self/mem", "/proc/kmsg"])
def test_fsx_04_magic_links(api, path):
    response = api.post("/api/read", {"path": path, "sessionId": NO_SESSION})
    if path.endswith("passwd") and response.status == 200:
        assert response.json["content"].rstrip("\n") == sh(api, "cat /etc/passwd").rstrip("\n")
    assert api.get("/api/ping").status == 200


def test_fsx_05_exchange_race(api, directory):
    """A directory and a symlink change places while paths through them are used: always one of the two, never a third."""
    sh(api, f"mkdir {directory}/in {directory}/out; echo in >{directory}/in/f; echo out >{directory}/out/f; ln -s out {directory}/link")
    script = f"""
import ctypes, os
c = ctypes.CDLL(None)
while not os.path.exists('{directory}/stop'):
    for _ in range(100):
        c.renameat2(-100, b'{directory}/in', -100, b'{directory}/link', 2)
"""
    process = api.start(f"python3 -c \"{script}\"", sessionId=NO_SESSION)
    try:
        seen = {read(api, f"{directory}/in/f")["content"] for _ in range(300)}
        listed = [names(api, directory, recursive=True, includeHidden=True) for _ in range(100)]
    finally:
        sh(api, f"touch {directory}/stop")
        api.wait_process(process["processId"])
    assert seen <= {"in\n", "out\n"}
    for entries in listed:
        assert set(entries) <= {"in", "in/f", "out", "out/f", "link", "link/f", "stop"}


def test_fsx_06_recursive_delete_removes_only_links(api, directory):
    sh(api, f"mkdir -p {directory}/keep {directory}/t/sub; echo safe >{directory}/keep/f")
    sh(api, f"ln -s / {directory}/t/root; ln -s {directory}/keep {directory}/t/sub/keep; ln -s .. {directory}/t/sub/up")
    assert api.delete(f"/file{directory}/t?recursive=true").status == 200
    assert names(api, directory, recursive=True) == ["keep", "keep/f"]
    assert sh(api, "test -d /etc && echo there") == "there"


def test_fsx_07_symlink_loops_and_3000_levels(api, directory):
    sh(api, f"mkdir {directory}/t; cd {directory}/t; ln -s . loop; ln -s ../t up")
    assert names(api, f"{directory}/t", recursive=True) == ["loop", "up"]
    make_deep(api, f"{directory}/t", 3000, "open('bottom', 'w')")
    files = call(api, "list-files", path=f"{directory}/t", options={"recursive": True})["files"]
    assert len(files) == 3003
    assert max(files, key=lambda f: len(f["relativePath"]))["relativePath"] == "d/" * 3000 + "bottom"
    assert api.delete(f"/file{directory}/t?recursive=true").status == 200
    assert names(api, directory) == []


def test_fsx_07_deep_tree_moves_to_another_file_system(api, directory):
    target = sh(api, "mktemp -d -p /dev/shm")
    try:
        sh(api, f"mkdir {directory}/t")
        make_deep(api, f"{directory}/t", 1000, each="open('f', 'w')")
        call(api, "move", sourcePath=f"{directory}/t", destinationPath=target)
        files = call(api, "list-files", path=f"{target}/t", options={"recursive": True})["files"]
        assert len(files) == 2000 and names(api, directory) == []
    finally:
        sh(api, f"rm -rf {target}")


def test_fsx_08_fifo_socket_device(api, directory):
    sh(api, f"mkfifo {directory}/fifo; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('{directory}/sock')\"")
    for path in (f"{directory}/fifo", f"{directory}/sock", "/dev/zero", "/dev/tty", "/dev/null"):
        assert api.post("/api/read", {"path": path, "sessionId": NO_SESSION}).status == 404
        assert api.get("/file" + path).status == 404
        events = [e for _, e in api.events("POST", "/api/read/stream", {"path": path, "sessionId": NO_SESSION})]
        assert [e["type"] for e in events] == ["error"]
        response = api.post("/api/write", {"path": path, "content": "x", "sessionId": NO_SESSION})
        assert response.status == 500


def test_fsx_09_growing_file_ends(api, directory):
    sh(api, f"head -c 3000000 /dev/zero >{directory}/log.bin")
    process = api.start(f"while [ ! -e {directory}/stop ]; do head -c 500000 /dev/zero >>{directory}/log.bin; sleep 0.01; done", sessionId=NO_SESSION)
    try:
        events = [e for _, e in api.events("POST", "/api/read/stream", {"path": f"{directory}/log.bin", "sessionId": NO_SESSION})]
        assert events[-1]["type"] == "complete" and events[-1]["bytesRead"] == events[0]["size"]
        assert api.get(f"/file{directory}/log.bin").status == 200
    finally:
        sh(api, f"touch {directory}/stop")
        api.wait_process(process["processId"])


@pytest.mark.parametrize("path", ["/proc/kallsyms", "/proc/cpuinfo"])
def test_fsx_09_pseudo_files_end_at_a_limit(api, path):
    response = api.post("/api/read", {"path": path, "sessionId": NO_SESSION})
    assert response.status in (200, 403, 404, 413)
    if path == "/proc/cpuinfo":
        assert response.status == 200 and response.json["size"] > 0


def test_fsx_10_sparse_terabyte(own_agent, tmp_path):
    process, api = own_agent()
    with open(tmp_path / "sparse.bin", "wb") as f:
        f.truncate(1 << 40)
    path = str(tmp_path / "sparse.bin")
    assert api.post("/api/read", {"path": path, "sessionId": NO_SESSION}).status == 413
    assert read(api, path, offset=(1 << 40) - 10, encoding="base64")["content"] == base64.b64encode(bytes(10)).decode()
    before = memory_kib(process)
    connection, response = api.open("POST", "/api/read/stream", {"path": path, "sessionId": NO_SESSION})
    got = 0
    while got < 100_000_000:
        got += len(response.read(1 << 20))
    connection.close()
    raw, response = api.open("GET", f"/file{path}")
    assert response.headers["Content-Length"] == str(1 << 40)
    response.read(10_000_000)
    raw.close()
    assert api.get("/api/ping").status == 200
    assert memory_kib(process) - before < 8192


@pytest.fixture
def small_disk(api):
    """A directory on a file system of 2 MiB."""
    path = sh(api, "mktemp -d")
    if api.run(f"mount -t tmpfs -o size=2m none {path}", sessionId=NO_SESSION)["exitCode"] != 0:
        sh(api, f"rmdir {path}")
        pytest.skip("cannot mount a small file system here")
    yield path
    sh(api, f"umount {path} && rmdir {path}")


def test_fsx_11_full_disk(api, small_disk):
    write(api, f"{small_disk}/small.txt", "before")
    sh(api, f"head -c 900000 /dev/urandom >{small_disk}/large.bin")
    kept = sh(api, f"sha256sum <{small_disk}/large.bin")
    sh(api, f"head -c 3000000 /dev/zero >{small_disk}/filler 2>/dev/null || true")

    def no_space(response):
        assert response.status == 500 and response.json["code"] == "NO_SPACE", response.body[:300]
        assert response.json["suggestion"]

    for content in ("x" * 900_000, "x" * 1_500_000):
        for name in ("small.txt", "new.txt", "sub/new.txt"):
            no_space(api.post("/api/write", {"path": f"{small_disk}/{name}", "content": content, "sessionId": NO_SESSION}))
    no_space(api.request("PUT", f"/file{small_disk}/large.bin", b"y" * 1_200_000))
    with socket.create_connection(api.address, timeout=60) as s:  # its length is not known beforehand
        head = "".join(f"{k}: {v}\r\n" for k, v in api.headers.items())
        s.sendall(f"PUT {api.prefix}/file{small_disk}/large.bin HTTP/1.1\r\nHost: x\r\n{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        s.sendall(b"10000\r\n" + b"y" * 65536 + b"\r\n10000\r\n")
        assert s.recv(4096).startswith(b"HTTP/1.1 500 ")
    assert read(api, f"{small_disk}/small.txt")["content"] == "before"
    assert sh(api, f"sha256sum <{small_disk}/large.bin") == kept
    assert names(api, small_disk, includeHidden=True, recursive=True) == ["filler", "large.bin", "small.txt", "sub"]
    write(api, f"{small_disk}/large.bin", "fits, it is shorter")


def test_fsx_11_move_to_a_full_disk(api, directory, small_disk):
    sh(api, f"mkdir {directory}/t; echo 1 >{directory}/t/a; head -c 3000000 /dev/urandom >{directory}/t/b")
    response = api.post("/api/move", {"sourcePath": f"{directory}/t", "destinationPath": small_disk, "sessionId": NO_SESSION})
    assert response.status == 500 and response.json["code"] == "NO_SPACE"
    assert names(api, small_disk, includeHidden=True) == []
    assert names(api, directory, recursive=True) == ["t", "t/a", "t/b"]


@pytest.mark.parametrize("size", [10, 200_000, 3_000_000])
def test_fsx_12_concurrent_writers(api, directory, size):
    path = f"{directory}/shared.txt"
    contents = [chr(ord("a") + i) * (size - i) for i in range(20)]
    failures = []

    def one(i):
        response = api.post("/api/write", {"path": path, "content": contents[i], "sessionId": NO_SESSION})
        if response.status != 200:
            failures.append(response.body)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not failures
    assert read(api, path)["content"] in contents
    assert names(api, directory, includeHidden=True) == ["shared.txt"]


def test_fsx_13_file_replaced_by_a_directory_during_the_write(api, directory):
    path = f"{directory}/f"
    write(api, path, "old")
    with socket.create_connection(api.address, timeout=60) as s:
        head = "".join(f"{k}: {v}\r\n" for k, v in api.headers.items())
        s.sendall(f"PUT {api.prefix}/file{path} HTTP/1.1\r\nHost: x\r\n{head}Content-Length: 100000\r\n\r\n".encode())
        s.sendall(b"n" * 50000)
        wait_until(lambda: len(names(api, directory, includeHidden=True)) == 2, "the upload has begun")
        sh(api, f"rm {path} && mkdir {path}")
        s.sendall(b"n" * 50000)
        answer = s.recv(4096)
    assert answer.startswith(b"HTTP/1.1 4"), answer
    assert sh(api, f"stat -c %F {path}") == "directory"
    assert names(api, directory, includeHidden=True, recursive=True) == ["f"]


@pytest.mark.parametrize("name", ["n" * 255, "new\nline", "tab\there", "".join(map(chr, range(1, 32))), "\x7f\u202e\u200b", "ä" * 127, "-", "…\\'\""])
def test_fsx_14_names(api, directory, name):
    path = f"{directory}/{name}"
    write(api, path, "content")
    assert names(api, directory) == [name]
    assert read(api, path, encoding="utf-8")["content"] == "content"
    call(api, "rename", oldPath=path, newPath=f"{directory}/plain")
    call(api, "rename", oldPath=f"{directory}/plain", newPath=path)
    call(api, "delete", path=path)
    assert names(api, directory) == []


def test_fsx_14_invalid_utf8_in_names(api, directory):
    sh(api, f"cd {directory} && touch $'bad\\xff\\xfename' && mkdir $'d\\xc3' && touch $'d\\xc3/\\xe2\\x82'")
    assert names(api, directory, recursive=True) == ["bad\ufffd\ufffdname", "d\ufffd", "d\ufffd/\ufffd"]
    raw = urllib.parse.quote(directory.encode() + b"/bad\xff\xfename")
    assert api.get(f"/file{raw}").status == 200
    assert api.delete(f"/file{raw}").status == 200


def test_fsx_18_slow_download(own_agent, tmp_path):
    process, api = own_agent()
    path = str(tmp_path / "big.bin")
    with open(path, "wb") as f:
        f.truncate(500_000_000)
    (tmp_path / "many").mkdir()
    for i in range(20000):
        (tmp_path / "many" / f"{i:0200}").touch()
    before = memory_kib(process)
    slow = [
        api.open("GET", f"/file{path}"),
        api.open("POST", "/api/read/stream", {"path": path, "sessionId": NO_SESSION}),
        api.open("POST", "/api/list-files", {"path": str(tmp_path / "many"), "sessionId": NO_SESSION}),
    ]
    for _ in range(20):
        for _, response in slow:
            assert response.read(1024)
        assert api.get("/api/ping").status == 200
    assert memory_kib(process) - before < 16384
    for connection, _ in slow:
        connection.close()


def test_fsx_21_permission_bits(api, directory):
    """The agent is root inside the sandbox: modes do not stop it. Where root itself is refused, the answer says so."""
    sh(api, f"cd {directory}; echo secret >f; chmod 000 f; mkdir d; echo in >d/g; chmod 000 d; echo o >o; chown 65534:65534 o; chmod 600 o")
    if sh(api, "id -u") != "0":
        assert api.post("/api/read", {"path": f"{directory}/f", "sessionId": NO_SESSION}).status == 403
        return
    assert read(api, f"{directory}/f")["content"] == "secret\n"
    assert read(api, f"{directory}/d/g")["content"] == "in\n"
    write(api, f"{directory}/o", "mine")
    assert sh(api, f"stat -c %u:%a {directory}/o") == "65534:600"
    write(api, f"{directory}/f", "written")
    assert sh(api, f"stat -c %a {directory}/f; cat {directory}/f") == "0\nwritten"


def test_vanished_clients_leave_nothing(own_agent, tmp_path):
    process, api = own_agent()
    sized = tmp_path / "l.bin"
    with open(sized, "wb") as f:
        f.truncate(30_000_000)
    api.get("/api/ping")
    fds = lambda: len(os.listdir(f"/proc/{process.pid}/fd"))
    base = fds()
    requests = [
        ("POST", "/api/read", {"path": str(sized)}),
        ("POST", "/api/read/stream", {"path": str(sized)}),
        ("POST", "/api/list-files", {"path": "/usr", "options": {"recursive": True}}),
        ("GET", f"/file{sized}", None),
    ]
    for _ in range(5):
        for method, path, body in requests:
            if body:
                body = {**body, "sessionId": NO_SESSION}
            connection, response = api.open(method, path, body)
            response.read(10)
            connection.close()
            response.close()
    for _ in range(5):
        with socket.create_connection(api.address) as s:
            s.sendall(b"POST /api/write HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"path\":")
        with socket.create_connection(api.address) as s:
            s.sendall(f"PUT /file{tmp_path}/u HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc".encode())
    api.get("/api/ping")  # all of them have been taken
    wait_until(lambda: fds() <= base + 1, "descriptors are closed")
    wait_until(lambda: os.listdir(tmp_path) == ["l.bin"], "broken uploads are cleaned up")
