# SPDX-License-Identifier: Apache-2.0
"""Who runs a sandbox's commands, where they start and what it is called; the operator's proxy, certificates and mirrors."""
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile

import pytest
import silica

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "protocol"))
from websocket import WebSocket

SESSIONLESS = "__DISABLE_SESSION__"


def make(daemon, box, status=201, **config):
    r = daemon.request("PUT", f"/v1/sandbox/{box}", config)
    assert r.status == status, r.body
    return r.json


def by_process(daemon, box, command, **fields):
    api = f"/v1/sandbox/{box}/api/process"
    started = daemon.request("POST", f"{api}/start", {"command": command, **fields})
    assert started.status == 200, started.body
    name = started.json["processId"]
    daemon.request("GET", f"{api}/{name}/stream")  # until its end
    return daemon.request("GET", f"{api}/{name}/logs").json["stdout"].strip()


def by_terminal(daemon, box, command):
    seen = b""
    with WebSocket(("127.0.0.1", daemon.port), f"/v1/sandbox/{box}/ws/pty?sessionId=t",
                   headers={"Authorization": f"Bearer {silica.TOKEN}"}) as ws:
        ws.send(f"stty -echo; echo be''gin; {command}; echo e''nd\n".encode())
        while b"end\r\n" not in seen:
            message = ws.receive()
            if isinstance(message, bytes):
                seen += message
    return seen.split(b"begin\r\n")[1].split(b"end\r\n")[0].decode().replace("\r", "").strip()


def by_code(daemon, box, code, language="python"):
    context = daemon.request("POST", f"/v1/sandbox/{box}/api/contexts", {"language": language})
    assert context.status == 200, context.body
    r = daemon.request("POST", f"/v1/sandbox/{box}/api/execute/code", {"context_id": context.json["contextId"], "code": code})
    assert r.status == 200, r.body
    events = [json.loads(line[6:]) for line in r.body.split(b"\n") if line.startswith(b"data: ")]
    return "".join(e["text"] for e in events if e["type"] == "stdout").strip()


def every_way(daemon, box, command):
    """What a command prints, by every way to run one."""
    found = {daemon.out(box, command), daemon.out(box, command, sessionId=SESSIONLESS).strip(), by_process(daemon, box, command),
             by_process(daemon, box, command, sessionId=SESSIONLESS), by_terminal(daemon, box, command)}
    assert len(found) == 1, found
    return found.pop()


# ------------------------------------------------------------------ user

def test_a_user_by_name(daemon, box):
    assert make(daemon, box, user="www-data")["user"] == "www-data"
    assert every_way(daemon, box, 'echo $(id -u):$(id -g) $(id -un) "$HOME" "$USER"; pwd') == "33:33 www-data /var/www www-data\n/workspace"
    assert by_code(daemon, box, "import os; print(os.getresuid(), os.getresgid(), os.getgroups(), os.getcwd())") == \
        "(33, 33, 33) (33, 33, 33) [] /workspace"
    assert by_code(daemon, box, "console.log(process.getuid(), process.cwd())", "javascript") == "33 /workspace"
    assert daemon.out(box, "grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status | sort -u -k2").endswith("0000000000000000")
    # its own directory, and nothing of root's
    daemon.out(box, "echo text > file; stat -c %U file .")
    r = daemon.exec(box, "touch /etc/x /root/x; cat /etc/shadow; kill -9 1; ls /proc/1")
    assert r["stdout"] == "" and len(r["stderr"].splitlines()) == 5, r


def test_files_are_the_user_s(daemon, box):
    make(daemon, box, user="www-data")
    api = f"/v1/sandbox/{box}/api"
    assert daemon.request("POST", f"{api}/write", {"path": "/workspace/file", "content": "one\n"}).status == 200
    assert daemon.request("POST", f"{api}/mkdir", {"path": "/workspace/a/b", "recursive": True}).status == 200
    assert daemon.out(box, "stat -c %U:%G file a a/b; echo two >> file; touch a/b/c; cat file") == "www-data:www-data\n" * 3 + "one\ntwo"
    for path in ("/etc/new", "/root/new"):
        r = daemon.request("POST", f"{api}/write", {"path": path, "content": "x"})
        assert r.status == 403 and r.json["code"] == "PERMISSION_DENIED", r.body
    assert daemon.request("POST", f"{api}/read", {"path": "/etc/shadow"}).status == 403
    assert daemon.request("POST", f"{api}/read", {"path": "/etc/passwd"}).status == 200
    assert daemon.request("PUT", f"/v1/sandbox/{box}/file/workspace/raw", b"x").status in (200, 201, 204)
    assert daemon.out(box, "stat -c %U raw") == "www-data"


def test_processes_of_a_user_are_seen_and_ended(daemon, box):
    make(daemon, box, user="www-data")
    api = f"/v1/sandbox/{box}/api/process"
    script = "setsid sleep 1000 & sleep 2000 & (trap '' TERM; sleep 3000) & echo ready; wait"
    started = daemon.request("POST", f"{api}/start", {"command": script, "processId": "tree"})
    assert started.status == 200, started.body
    silica.wait_for(lambda: "ready" in daemon.request("GET", f"{api}/tree/logs").json["stdout"])
    silica.wait_for(lambda: daemon.exec(box, "pgrep -c sleep")["stdout"].strip() == "3", what="the three, which may have been forked only")
    assert daemon.request("DELETE", f"{api}/tree").status == 200
    silica.wait_for(lambda: daemon.exec(box, "pgrep -c sleep")["stdout"] == "0", what="the end of the tree")
    r = daemon.request("POST", f"/v1/sandbox/{box}/api/execute", {"command": "sleep 1000", "timeoutMs": 300, "sessionId": "late"})
    assert r.status != 200 or r.json["exitCode"] != 0, r.body
    assert daemon.out(box, "echo alive") == "alive"


def test_numbers_and_groups(daemon, box):
    make(daemon, box, user="1000:1001")
    assert daemon.out(box, 'id -u; id -g; id -G; echo "$HOME"; touch x; stat -c %u:%g x') == "1000\n1001\n1001\n/\n1000:1001"
    daemon.destroy(box)
    make(daemon, box, user="games:www-data")
    assert daemon.out(box, "id -un; id -gn") == "games\nwww-data"
    daemon.destroy(box)
    make(daemon, box, user="12345")
    assert daemon.out(box, "id -u; id -g") == "12345\n0"
    daemon.destroy(box)
    make(daemon, box, user="root")
    assert daemon.out(box, 'id -u; echo "$HOME"; touch /etc/x') == "0\n/root"


def test_members_of_groups(daemon, box):
    make(daemon, box)
    daemon.out(box, "echo 'friends:x:777:www-data,games' >> /etc/group; useradd -m -u 1234 someone; usermod -aG friends someone")
    make(daemon, box, status=200, user="someone")
    daemon.request("POST", f"/v1/sandbox/{box}/sleep")
    assert daemon.out(box, 'id; cd ~; pwd; touch y') == "uid=1234(someone) gid=1234(someone) groups=1234(someone),777(friends)\n/home/someone"


def test_an_unknown_user(daemon, box):
    r = daemon.request("PUT", f"/v1/sandbox/{box}", {"user": "nobody-here"})
    assert (r.status, r.json["code"]) == (400, "USER_NOT_FOUND") and "nobody-here" in r.json["message"], r.body
    assert daemon.request("GET", f"/v1/sandbox/{box}").status == 404
    # of one that exists: told by whatever would run something, and nothing is lost
    make(daemon, box)
    daemon.out(box, "echo kept > file; useradd later")
    make(daemon, box, status=200, user="gone:nogroup-here")
    assert daemon.request("POST", f"/v1/sandbox/{box}/sleep").status == 200
    r = daemon.request("POST", f"/v1/sandbox/{box}/api/execute", {"command": "id"})
    assert (r.status, r.json["code"]) == (400, "USER_NOT_FOUND") and "gone" in r.json["message"], r.body
    r = daemon.request("PUT", f"/v1/sandbox/{box}", {"user": "later"})
    assert daemon.request("POST", f"/v1/sandbox/{box}/sleep").status == 200
    assert daemon.out(box, "id -un; cat file") == "later\nkept"


# ------------------------------------------------------------------ workdir, hostname

def test_workdir(daemon, box):
    assert make(daemon, box, workdir="/srv/app/src", user="www-data")["workdir"] == "/srv/app/src"
    assert every_way(daemon, box, "pwd; stat -c %U .") == "/srv/app/src\nwww-data"
    assert by_code(daemon, box, "import os; print(os.getcwd())") == "/srv/app/src"
    daemon.request("POST", f"/v1/sandbox/{box}/api/write", {"path": "relative", "content": "x"})
    assert daemon.out(box, "cat /srv/app/src/relative") == "x"
    assert daemon.out(box, "pwd", cwd="/tmp") == "/tmp"


def test_hostname(daemon, box):
    assert make(daemon, box, hostname="web-1.example")["hostname"] == "web-1.example"
    shown = "hostname; cat /etc/hostname; python3 -c 'import socket; print(socket.gethostbyname(socket.gethostname()))'"
    assert every_way(daemon, box, shown) == "web-1.example\nweb-1.example\n127.0.1.1"
    daemon.request("POST", f"/v1/sandbox/{box}/sleep")
    assert daemon.out(box, "hostname; grep -c web-1 /etc/hosts") == "web-1.example\n1"
    make(daemon, box, status=200, hostname="")
    daemon.request("POST", f"/v1/sandbox/{box}/sleep")
    assert daemon.out(box, "hostname") == "sandbox"


def test_they_are_kept(daemon_factory):
    d = daemon_factory("set").start()
    assert d.request("POST", "/v1/volumes", {"name": "v", "size": "16MiB"}).status == 201
    wanted = {"user": "www-data", "workdir": "/srv/x", "hostname": "kept", "volumes": [{"name": "v", "path": "/data", "readOnly": False}]}
    make(d, "box", **wanted)
    command = "id -un; pwd; hostname; touch /data/$RANDOM; stat -c %U /data"
    expected = "www-data\n/srv/x\nkept\nwww-data"
    assert d.out("box", command) == expected
    d.kill()
    d.start()
    assert d.out("box", command) == expected
    d.stop()  # all sleep
    d.start()
    shown = d.request("GET", "/v1/sandbox/box").json
    assert {k: shown[k] for k in wanted} == wanted
    assert d.out("box", command) == expected


@pytest.mark.parametrize("field,values", [
    ("user", ["-x", "a b", "a:b:c", ":", "a:", ":b", "65536", "1.5/", "x" * 33, 7, ["root"]]),
    ("workdir", ["relative", "/a\nb", "/" + "x" * 255, 7]),
    ("hostname", ["-a", "a-", "a..b", ".a", "a_b", "x" * 64, "a b", 7]),
])
def test_refusals(daemon, box, field, values):
    for value in values:
        r = daemon.request("PUT", f"/v1/sandbox/{box}", {field: value})
        assert (r.status, r.json["code"]) == (400, "VALIDATION_FAILED"), (value, r.body)
        assert r.json["context"]["field"] == field, r.body
    assert daemon.request("GET", f"/v1/sandbox/{box}").status == 404


# ------------------------------------------------------------------ what the operator gives to all

def certificate(directory, name):
    key, pem = f"{directory}/{name}.key", f"{directory}/{name}.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", pem,
                    "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
    return key, pem


SERVER = r"""
import http.server, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/tmp/cert", "/tmp/key")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8443), http.server.SimpleHTTPRequestHandler)
server.socket = context.wrap_socket(server.socket, server_side=True)
print("ready", flush=True)
server.serve_forever()
"""


def start_service(daemon, box, name, command):
    r = daemon.request("POST", f"/v1/sandbox/{box}/api/process/start", {"command": command, "processId": name, "sessionId": SESSIONLESS})
    assert r.status == 200, r.body
    silica.wait_for(lambda: "ready" in daemon.request("GET", f"/v1/sandbox/{box}/api/process/{name}/logs").json["stdout"],
                    what=f"{name} to be ready")


def put_file(daemon, box, path, data):
    r = daemon.request("PUT", f"/v1/sandbox/{box}/file{path}", data)
    assert r.status in (200, 201, 204), r.body


def test_certificates(daemon_factory, tmp_path):
    key, pem = certificate(tmp_path, "operator")
    text = open(pem).read()
    d = daemon_factory("ca", args=["--sandbox-ca", pem]).start()
    make(d, "box", user="www-data")
    put_file(d, "box", "/tmp/cert", text.encode())
    put_file(d, "box", "/tmp/key", open(key, "rb").read())
    put_file(d, "box", "/tmp/server.py", SERVER.encode())
    start_service(d, "box", "server", "cd /tmp && python3 server.py")
    url = "https://localhost:8443/cert"
    assert d.out("box", f"curl -sS {url}") == text.strip()
    assert d.out("box", f"python3 -c \"import urllib.request; print(urllib.request.urlopen('{url}').status)\"") == "200"
    assert d.out("box", f"node -e \"fetch('{url}').then(r => console.log(r.status), e => console.log(e.cause))\"") == "200"
    # the image's own are still there, once
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    original = open(silica.IMAGES + "/base/rootfs" + bundle).read()
    for _ in range(2):
        inside = d.out("box", f"cat {bundle}")
        assert inside.startswith(original.strip()) and inside.count(text.strip()) == 1
        d.request("POST", "/v1/sandbox/box/sleep")
    # other certificates take their place
    _, second = certificate(tmp_path, "second")
    d.stop()
    d.args = ["--sandbox-ca", second]
    d.start()
    inside = d.out("box", f"cat {bundle}")
    assert text.strip() not in inside and inside.count(open(second).read().strip()) == 1 and inside.startswith(original.strip())
    assert original == open(silica.IMAGES + "/base/rootfs" + bundle).read()


def test_proxies(daemon_factory):
    d = daemon_factory("proxy", args=["--sandbox-proxy", "http://user:pw@10.0.0.1:3128", "--sandbox-no-proxy", "example.org,.internal"]).start()
    names = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"]
    assert d.out("box", "; ".join(f"echo ${n}" for n in names)).split() == ["http://user:pw@10.0.0.1:3128"] * 4
    assert d.out("box", "echo $NO_PROXY; echo $no_proxy").split() == ["localhost,127.0.0.1,::1,example.org,.internal"] * 2
    make(d, "own", env={"HTTP_PROXY": "http://mine:1", "http_proxy": ""})
    assert d.out("own", "echo $HTTP_PROXY [$http_proxy] $HTTPS_PROXY") == "http://mine:1 [] http://user:pw@10.0.0.1:3128"
    d.stop()
    d.args = ["--sandbox-proxy", "host"]
    d.start(env={"https_proxy": "http://10.0.0.2:1", "NO_PROXY": "x.y"})
    assert d.out("box", "echo [$HTTP_PROXY] $HTTPS_PROXY $NO_PROXY") == "[] http://10.0.0.2:1 localhost,127.0.0.1,::1,x.y"


def wheel():
    """A package that pip can install: two files and their hashes."""
    out = io.BytesIO()
    files = {"silica_sample.py": "answer = 42\n",
             "silica_sample-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: silica-sample\nVersion: 1.0\n",
             "silica_sample-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    with zipfile.ZipFile(out, "w") as z:
        for name, text in files.items():
            z.writestr(name, text)
        z.writestr("silica_sample-1.0.dist-info/RECORD", "".join(f"{n},,\n" for n in files))
    return out.getvalue()


def npm_package():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as t:
        for name, text in (("package/package.json", json.dumps({"name": "silica-sample", "version": "1.0.0", "main": "i.js"})),
                           ("package/i.js", "module.exports = 42\n")):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            t.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def test_packages_from_mirrors(daemon_factory):
    """A mirror of all three kinds, served inside the sandbox itself: it has no network but its own."""
    base = "http://localhost:8080"
    d = daemon_factory("mirror", args=["--pip-index", f"{base}/simple", "--npm-registry", f"{base}/npm/", "--apt-mirror", f"{base}/apt/"]).start()
    make(d, "box", user="www-data", env={"HOME": "/tmp/home"})
    d.out("box", "mkdir -p /tmp/home")
    data, package = wheel(), npm_package()
    name = "silica_sample-1.0-py3-none-any.whl"
    put_file(d, "box", f"/tmp/www/simple/silica-sample/{name}", data)
    put_file(d, "box", "/tmp/www/simple/silica-sample/index.html",
             f'<a href="{name}#sha256={hashlib.sha256(data).hexdigest()}">{name}</a>'.encode())
    dist = {"tarball": f"{base}/npm/-/silica-sample-1.0.0.tgz", "shasum": hashlib.sha1(package).hexdigest()}
    put_file(d, "box", "/tmp/www/npm/-/silica-sample-1.0.0.tgz", package)
    put_file(d, "box", "/tmp/www/npm/silica-sample", json.dumps(
        {"name": "silica-sample", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "silica-sample", "version": "1.0.0", "dist": dist}}}).encode())
    put_file(d, "box", "/tmp/www/apt/debian/note", b"here")
    start_service(d, "box", "www", "cd /tmp/www && python3 -c \"import http.server as h; s = h.ThreadingHTTPServer(('127.0.0.1', 8080), "
                                   "h.SimpleHTTPRequestHandler); print('ready', flush=True); s.serve_forever()\"")
    d.out("box", "python3 -m venv --system-site-packages /tmp/venv && /tmp/venv/bin/pip install -q silica-sample", timeout=120)
    assert d.out("box", "/tmp/venv/bin/python -c 'import silica_sample; print(silica_sample.answer)'") == "42"
    d.out("box", "mkdir -p /tmp/app && cd /tmp/app && npm install --no-audit --no-fund silica-sample", timeout=120)
    assert d.out("box", "cd /tmp/app && node -p 'require(\"silica-sample\")'") == "42"
    sources = d.out("box", "cat /etc/apt/sources.list.d/* /etc/apt/sources.list 2>/dev/null | grep -v '^#'")
    assert f"{base}/apt/debian/" in sources and f"{base}/apt/debian-security/" in sources and "deb.debian.org" not in sources, sources
    r = d.exec("box", "apt-get update -o Dir::State=/tmp/apt -o Dir::Cache=/tmp/apt 2>&1; grep -c 'GET /apt/debian' /tmp/nothing")
    assert "localhost:8080" in r["stdout"] and "deb.debian.org" not in r["stdout"], r
    d.request("POST", "/v1/sandbox/box/sleep")
    assert d.out("box", "cat /etc/apt/sources.list.d/* /etc/apt/sources.list 2>/dev/null | grep -v '^#'") == sources


def test_bad_settings_of_the_operator(tmp_path):
    key, pem = certificate(tmp_path, "x")
    both = tmp_path / "both.pem"
    both.write_text(open(pem).read() + open(key).read())
    (tmp_path / "empty").write_text("nothing\n")

    def serve(*args):
        r = subprocess.run([silica.BIN, "serve", "--data", f"{tmp_path}/data", "--run", f"{tmp_path}/run", "--network", "none", *args],
                           capture_output=True, text=True, timeout=60)
        assert r.returncode != 0
        return r.stderr

    assert "URL" in serve("--sandbox-proxy", "10.0.0.1:3128")
    assert "URL" in serve("--pip-index", "socks5://x")
    assert "URL" in serve("--apt-mirror", "http://a b")
    assert "no certificates" in serve("--sandbox-ca", f"{tmp_path}/empty")
    assert "private key" in serve("--sandbox-ca", str(both))
    assert "open" in serve("--sandbox-ca", f"{tmp_path}/missing")
    assert "needs --sandbox-proxy" in serve("--sandbox-no-proxy", "x")
    assert not os.path.exists(f"{tmp_path}/data")


def test_the_image_s_user_and_directory(daemon, box):
    make(daemon, box)
    daemon.out(box, "useradd -m -u 1500 imageuser")
    r = daemon.request("POST", "/v1/images/save", {"sandbox": box, "name": "settings:1", "config": {"user": "imageuser", "workdir": "/srv/image"}},
                       timeout=120)
    assert r.status == 201, r.body
    try:
        daemon.destroy(box)
        make(daemon, box, image="settings:1")
        assert every_way(daemon, box, "id -un; pwd; stat -c %U .") == "imageuser\n/srv/image\nimageuser"
        daemon.destroy(box)
        make(daemon, box, image="settings:1", user="www-data", workdir="/srv/own")
        assert every_way(daemon, box, "id -un; pwd; stat -c %U .") == "www-data\n/srv/own\nwww-data"
        daemon.destroy(box)
        make(daemon, box, image="settings:1", user="root")
        assert daemon.out(box, 'id -un; echo "$HOME"; pwd') == "root\n/root\n/srv/image"
    finally:
        daemon.destroy(box)
        daemon.request("DELETE", "/v1/images/settings:1")
