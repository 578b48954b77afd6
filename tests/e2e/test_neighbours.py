# SPDX-License-Identifier: Apache-2.0
"""What one sandbox does must not reach another, the host or the daemon's records (several catalogue areas)."""
import concurrent.futures
import json
import os
import shutil
import stat
import subprocess
import time
import urllib.parse

import pytest
import silica
from silica import sandbox_processes, wait_for


@pytest.fixture
def pair(daemon, request):
    names = [f"{side}-{abs(hash(request.node.name)) % 10**8}" for side in "ab"]
    yield names
    for name in names:
        daemon.destroy(name)


def python(daemon, sandbox, text, **fields):
    return daemon.exec(sandbox, f"python3 - <<'PYTHON'\n{text}\nPYTHON", **fields)


# ------------------------------------------------------------------ nothing leaks


def test_LEAK_05_processes_names_and_users(daemon, pair):
    a, b = pair
    daemon.out(a, "useradd -m alice 2>/dev/null || echo 'alice:x:1234:1234::/home/alice:/bin/sh' >> /etc/passwd; exec -a markedA sleep 1000 &")
    wait_for(lambda: "markedA" in daemon.out(a, "ps ax -o args"), what="the process in the background")
    assert "markedA" not in daemon.out(b, "ps ax -o args")
    assert daemon.exec(b, "grep alice /etc/passwd")["exitCode"] == 1


def test_LEAK_08_ipc_objects(daemon, pair):
    a, b = pair
    made = python(daemon, a, """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.shmget(4711, 4096, 0o1666), libc.semget(4711, 1, 0o1666), libc.msgget(4711, 0o1666))
""")
    assert made["exitCode"] == 0, made
    host = subprocess.run(["ipcmk", "-M", "4096", "-p", "0666"], capture_output=True, text=True)
    try:
        for sandbox in pair:
            keys = daemon.out(sandbox, "cat /proc/sysvipc/shm | tail -n +2 | wc -l; ls /dev/mqueue 2>/dev/null | wc -l")
            assert keys.split() == (["1", "0"] if sandbox == a else ["0", "0"]) or "-1" in made["stdout"]
    finally:
        if host.returncode == 0:
            subprocess.run(["ipcrm", "-m", host.stdout.split()[-1]], check=False)


def test_LEAK_11_an_id_range_used_again_brings_nothing_along(daemon_factory):
    d = daemon_factory("leak11", pool=0, args=["--slots", "2"]).start()
    seen = set()
    for i in range(6):
        name = f"r{i}"
        seen.add(d.out(name, "cat /proc/self/uid_map").split()[1])
        assert d.out(name, "ls -A /workspace /tmp /root/.cache 2>/dev/null | grep -c secret; true") == "0"
        d.out(name, "echo x > /workspace/secret; echo x > /tmp/secret; mkdir -p /root/.cache; echo x > /root/.cache/secret")
        d.destroy(name)
    assert len(seen) <= 2, "ranges were used again"


# ------------------------------------------------------------------ exhaustion stays at home


def test_DOS_09_unlinked_files_count(daemon, pair):
    a, b = pair
    daemon.request("PUT", f"/v1/sandbox/{a}", {"limits": {"disk": "64MiB"}})
    r = python(daemon, a, """
import os
held, error = [], None
try:
    for i in range(200):
        f = open(f"/workspace/f{i}", "wb"); held.append(f); os.unlink(f.name)
        f.write(os.urandom(1 << 20)); f.flush()
except OSError as e:
    error = e.errno
print(len(held), error)
""")
    count, error = r["stdout"].split()
    assert int(count) <= 65 and error == "28", r
    assert daemon.out(b, "echo fine > /workspace/f; cat /workspace/f") == "fine"


def test_DOS_22_asynchronous_io_pool(daemon, pair):
    """The pool of the whole host cannot be drawn empty: the call is refused to everybody."""
    a, _ = pair
    before = int(open("/proc/sys/fs/aio-nr").read())
    r = python(daemon, a, """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
context = ctypes.c_ulong(0)
print(libc.syscall(206, 65536, ctypes.byref(context)), ctypes.get_errno())
""")
    assert r["stdout"].split() == ["-1", "1"] or r["stdout"].split()[1] in ("38", "11"), r
    assert int(open("/proc/sys/fs/aio-nr").read()) < before + 65536


def test_DOS_23_terminals(daemon, pair):
    a, b = pair
    r = python(daemon, a, """
import os
held = []
try:
    while len(held) < 5000: held.append(os.open("/dev/ptmx", os.O_RDWR))
except OSError as e:
    print("error", e.errno)
print(len(held))
""")
    assert r["stdout"].startswith("error"), r
    assert daemon.out(b, "python3 -c 'import pty; print(len(pty.openpty()))'") == "2"


def test_DOS_25_ipc_objects_run_out_at_home(daemon, pair):
    a, b = pair
    python(daemon, a, """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
n = 0
while n < 100000 and libc.semget(0, 250, 0o600) >= 0: n += 1
while n < 200000 and libc.msgget(0, 0o600) >= 0: n += 1
print(n)
""")
    r = python(daemon, b, """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.semget(0, 1, 0o600) >= 0 or ctypes.get_errno() in (1, 38))
""")
    assert r["stdout"] == "True", r


def test_DOS_32_two_hundred_creations_at_once(daemon_factory):
    """Some may be told to come back; those that were made work, and in the end all are there."""
    d = daemon_factory("dos32", pool=2).start()

    end = time.monotonic() + 600

    def one(i):
        while time.monotonic() < end:
            r = d.request("POST", f"/v1/sandbox/s{i}/api/execute", {"command": f"echo {i}"}, timeout=120)
            if r.status == 200:
                return r.json["stdout"] == str(i)
            assert r.status in (429, 503) and int(r.headers["retry-after"]) > 0, r.body
            time.sleep(0.2)
        return False

    with concurrent.futures.ThreadPoolExecutor(200) as pool:
        assert all(pool.map(one, range(200)))


def test_DOS_38_deep_directories_are_removed(daemon, pair):
    a, _ = pair
    r = python(daemon, a, """
import os
os.chdir("/workspace")
for i in range(20000):
    os.mkdir("d"); os.chdir("d")
print("deep")
""")
    assert r["stdout"] == "deep", r
    assert daemon.destroy(a)["existed"] is True
    wait_for(lambda: a not in {s["id"] for s in daemon.request("GET", "/v1/sandbox").json["sandboxes"]}, what="it is gone")


def test_DOS_39_many_small_files_are_removed(daemon, pair):
    a, b = pair
    r = python(daemon, a, """
import os
os.chdir("/workspace")
for i in range(50000): os.close(os.open(f"f{i}", os.O_CREAT | os.O_WRONLY))
print("made")
""", timeout=120)
    assert r["stdout"] == "made", r
    assert daemon.destroy(a)["existed"] is True
    assert daemon.out(b, "echo still here") == "still here"


# ------------------------------------------------------------------ agent


def test_AGT_14_input_that_nobody_reads(daemon, pair):
    a, _ = pair
    r = daemon.exec(a, "head -c 50000000 /dev/zero | (sleep 0.2; exec true); echo ${PIPESTATUS[1]}")
    assert r["stdout"] == "0"
    assert daemon.exec(a, "cat | wc -c")["stdout"].strip() == "0", "commands have no input"


def test_AGT_15_two_hundred_commands_at_once(daemon, pair):
    a, _ = pair
    daemon.out(a, "true")
    with concurrent.futures.ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(lambda i: daemon.out(a, f"echo {i}; echo e{i} >&2", timeout=120), range(200)))
    assert answers == [str(i) for i in range(200)]


def test_INT_08_a_memory_bomb_in_one_context(daemon, pair):
    a, _ = pair
    daemon.request("PUT", f"/v1/sandbox/{a}", {"limits": {"memory": "512MiB"}})

    def context():
        r = daemon.request("POST", f"/v1/sandbox/{a}/api/contexts", {"language": "python"})
        assert r.status == 200, r.body
        return r.json["contextId"] if "contextId" in r.json else r.json["id"]

    def run(where, code):
        r = daemon.request("POST", f"/v1/sandbox/{a}/api/execute/code", {"context_id": where, "code": code}, timeout=120)
        assert r.status == 200, r.body
        return [json.loads(line[6:]) for line in r.body.decode().splitlines() if line.startswith("data: ")]

    quiet, bomb = context(), context()
    run(quiet, "kept = 42")
    events = run(bomb, "hoard = []\nwhile True: hoard.append(bytearray(1 << 20))")
    assert any(e["type"] == "error" for e in events), events
    assert any("42" in json.dumps(e) for e in run(quiet, "kept")), "the other context has kept its state"
    assert any("2" in json.dumps(e) for e in run(bomb, "1 + 1")), "and the bomb's own is there again"


# ------------------------------------------------------------------ privileges


def test_SEC_16_file_capabilities_are_inert(daemon, pair):
    a, _ = pair
    r = daemon.exec(a, "cp /bin/cat /workspace/cat && python3 -c \"import os; os.setxattr('/workspace/cat', 'security.capability', "
                       "bytes.fromhex('0100000200200000000000000000000000000000'))\" ; /workspace/cat /proc/self/status | grep CapEff")
    effective = int(r["stdout"].split()[-1], 16)
    plain = int(daemon.out(a, "grep CapEff /proc/self/status").split()[-1], 16)
    assert effective & ~plain == 0, "no capability is gained"
    assert not effective & (1 << 21), "least of all CAP_SYS_ADMIN"


def test_SEC_24_a_flood_of_odd_system_calls(daemon, pair):
    a, b = pair
    r = python(daemon, a, """
import ctypes, os, random, signal, time
libc = ctypes.CDLL(None, use_errno=True)
random.seed(7)
workers = set()
for worker in range(4):
    pid = os.fork()
    workers.add(pid)
    if pid == 0:
        for i in range(20000):
            number = random.choice([random.randrange(0, 470), random.getrandbits(16), random.getrandbits(31)])
            if number in (15, 60, 231, 57, 58, 56, 435, 62, 200, 34, 61, 247, 130, 23, 7, 270, 271, 35, 230, 128, 232, 281, 441, 202, 449, 219, 0, 19, 295, 327, 17, 47, 45, 299, 43, 288): continue
            arguments = [random.choice([0, 1, -1, 4096, random.getrandbits(47), random.getrandbits(63)]) for _ in range(6)]
            libc.syscall(number, *[ctypes.c_ulong(x) for x in arguments])
        os._exit(0)
ends = time.monotonic() + 8  # a call that waits for ever is its worker's last; an alarm of its own may be among what it calls off
while workers and time.monotonic() < ends:
    workers -= {pid for pid in workers if os.waitpid(pid, os.WNOHANG)[0]}
    time.sleep(0.05)
for pid in workers:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
print("ended")
""", timeout=120)
    assert "ended" in r["stdout"], r
    assert daemon.out(b, "echo fine") == "fine"
    assert daemon.out(a, "echo alive") == "alive"


# ------------------------------------------------------------------ API


HOSTILE_IDS = ["", ".", "..", "../x", "..%2fx", "%2e%2e", "a/b", "a%2fb", "a%00b", "a b", "a\tb", "a%0ab", "-a", "a-", "é", "ａ", "😀",
               "a" * 64, "a" * 128, "a" * 129, "a" * 5000, "www", "API", "admin", "root", "system", "cloudflare", "workers", "a;b", "a|b", "a'b",
               'a"b', "a\\b", "$(id)", "`id`", "a?b=c", "a#b", "%", "%zz", "%u0061", "a\u200bb", "con\u0301"]


@pytest.mark.parametrize("hostile", HOSTILE_IDS, ids=lambda s: ascii(s)[:24])
def test_API_07_hostile_ids(daemon, hostile):
    path = hostile if "%" in hostile else urllib.parse.quote(hostile, safe="/.;$()'\\|?#")
    path = path.replace("#", "%23").replace("?", "%3f")
    r = daemon.request("PUT", f"/v1/sandbox/{path}", {})
    assert r.status in (400, 404, 405, 414, 431), (r.status, r.body[:200])
    assert not sandbox_named(daemon, hostile)


def sandbox_named(daemon, name):
    return name in {s["id"] for s in daemon.request("GET", "/v1/sandbox").json["sandboxes"]}


def test_API_07_ids_at_the_limits_are_fine(daemon):
    for name in ("a", "A1", "9", "x" * 63, "a-b-c"):
        assert daemon.request("PUT", f"/v1/sandbox/{name}", {}).status in (200, 201), name
        daemon.destroy(name)


def test_API_14_unknown_fields(daemon, pair):
    a, _ = pair
    r = daemon.request("PUT", f"/v1/sandbox/{a}", {"color": "blue", "labels": {"k": "v"}})
    assert r.status == 201 and "color" not in r.json and r.json["labels"] == {"k": "v"}, r.body
    assert daemon.request("POST", f"/v1/sandbox/{a}/api/execute", {"command": "echo ok", "future": [1, {"x": 2}]}).json["stdout"] == "ok"


# ------------------------------------------------------------------ records


def test_AUTH_08_tokens_of_a_real_daemon(daemon_factory):
    """In no file, no log, no child's arguments, environment or memory files: only their hashes are."""
    d = daemon_factory("auth8", pool=0).start()
    made = d.request("POST", "/v1/token", {"scope": "admin", "name": "written"}).json["token"]
    assert d.request("GET", "/v1/sandbox", headers={"Authorization": f"Bearer {made}"}).status == 200
    assert d.request("GET", "/v1/sandbox", headers={"Authorization": f"Bearer {made}x"}).status == 401
    assert made not in d.out("t8", "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'")
    secrets = [made.encode(), silica.TOKEN.encode()]
    found = [d.log_path]
    for path in (d.data, d.run_dir):
        found += [f"{top}/{name}" for top, _, names in os.walk(path) for name in names
                  if os.path.isfile(f"{top}/{name}") and "/disks" not in top]
    with open(f"/proc/{d.proc.pid}/task/{d.proc.pid}/children") as f:
        children = f.read().split()
    found += [f"/proc/{pid}/{name}" for pid in [*children, *sandbox_processes(d)] for name in ("cmdline", "environ")]
    assert children and sandbox_processes(d)
    for path in found:
        try:
            with open(path, "rb") as f:
                data = f.read()
        except OSError:
            continue  # a process that has ended
        assert not [s for s in secrets if s in data], path


@pytest.mark.parametrize("where", ["0.0.0.0:8787", "[::]:8787", "192.0.2.7:8787"])
def test_AUTH_13_without_a_token_only_on_this_machine(tmp_path, where):
    """In a network of its own, which has such an address, so that only the rule can be the reason."""
    serve = [silica.BIN, "serve", "--no-auth", "--network", "none", "--data", f"{tmp_path}/data", "--run", f"{tmp_path}/run",
             "--images", silica.IMAGES, "--agent", silica.AGENT, "--listen", "127.0.0.1:8786", "--listen", where]
    script = "ip link set lo up && ip addr add 192.0.2.7/32 dev lo && exec \"$@\""
    r = subprocess.run(["unshare", "-n", "sh", "-c", script, "sh", *serve], capture_output=True, text=True, timeout=60,
                       env={"PATH": os.environ["PATH"], "ASAN_OPTIONS": "detect_leaks=0"})
    assert r.returncode not in (0, None) and "--no-auth is for loopback and unix sockets" in r.stderr, r.stderr
    assert not os.path.exists(f"{tmp_path}/run/slots")


def test_AUTH_14_modes_of_sockets_and_files(daemon_factory):
    d = daemon_factory("auth14", pool=0).start()
    d.out("m", "true")
    for path in (d.data, d.run_dir):
        for top, folders, files in os.walk(path):
            if "/images" in top or "/layers" in top:
                continue
            for name in files:
                s = os.lstat(f"{top}/{name}")
                if stat.S_ISSOCK(s.st_mode) or name.endswith((".db", ".db-wal", ".img", ".token")):
                    reachable = all(os.stat(p).st_mode & 0o001 for p in parents(f"{top}/{name}", d.dir))
                    assert not s.st_mode & 0o077 or not reachable, f"{top}/{name}: {oct(s.st_mode)}"


def parents(path, stop):
    while (path := os.path.dirname(path)) != stop:
        yield path


def test_REC_09_the_data_directory_is_full(daemon_factory):
    """Typed errors while there is no room, deletion works, and everything does again afterwards."""
    d = daemon_factory("rec9", pool=0)
    os.makedirs(d.data)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m,mode=0700", "silica-test", d.data], check=True)
    try:
        d.args += ["--disk-margin", "1MiB"]
        d.start()
        d.out("old", "echo kept > /workspace/f; sync")
        with open(d.data + "/ballast", "wb") as f:
            try:
                while True:
                    f.write(bytes(1 << 16))
            except OSError:
                pass
        time.sleep(0.3)  # the host is looked at five times a second
        r = d.request("POST", "/v1/sandbox/new/api/execute", {"command": "true"})
        assert r.status in (429, 503, 507), (r.status, r.body)
        assert d.request("GET", "/v1/sandbox").status == 200
        assert d.request("DELETE", "/v1/sandbox/new").status == 200
        os.unlink(d.data + "/ballast")
        use = {"command": "echo works"}  # that there is room is noticed within a fifth of a second
        wait_for(lambda: d.request("POST", "/v1/sandbox/new/api/execute", use).status == 200, what="the room")
        assert d.out("old", "cat /workspace/f") == "kept"
        d.destroy("old")
        d.destroy("new")
        d.stop()
    finally:
        if d.proc and d.proc.poll() is None:
            d.stop()
        subprocess.run(["umount", "--lazy", d.data], check=False)


def test_REC_19_leftovers_of_a_dead_daemon_are_taken_over(daemon_factory):
    d = daemon_factory("rec19").start()
    d.out("a", "echo x > /workspace/f; export kept=yes")
    d.kill()
    names = {name for _, _, files in os.walk(d.run_dir) for name in files}
    assert any("sock" in name for name in names), "its sockets are still there"
    d.start()
    assert d.out("a", "echo $kept") == "yes"
    second = silica.Daemon("rec19b")
    second.data, second.run_dir, second.instance = d.data, d.run_dir, d.instance
    with pytest.raises(AssertionError, match="ended with"):
        second.start()
    assert d.out("a", "cat /workspace/f") == "x", "a second daemon on the same directories is refused"
    shutil.rmtree(second.dir)


def test_OPS_04_nothing_can_forge_a_line_of_the_log(daemon_factory):
    d = daemon_factory("ops4", args=["--log-format", "json"] if log_format_known() else ()).start()
    evil = "x\n2026-01-01T00:00:00.000Z error forged: line\x1b[2J\r"
    for path in (f"/v1/sandbox/{urllib.parse.quote(evil)}", f"/{urllib.parse.quote(evil)}"):
        d.request("GET", path)
    d.request("PUT", "/v1/sandbox/l", {"labels": {"k": evil}, "env": {"K": evil}})
    d.request("POST", "/v1/sandbox/l/api/execute", {"command": "echo " + evil, "sessionId": evil})
    assert not any(line.startswith("2026-01-01T00:00:00.000Z error forged") for line in d.log().splitlines())
    assert "\x1b" not in d.log()


def log_format_known():
    return "--log-format" in subprocess.run([silica.BIN, "help", "serve"], capture_output=True, text=True).stdout


def test_OPS_06_no_secrets_in_the_log(daemon_factory):
    d = daemon_factory("ops6").start()
    secret = "hunter2hunter2"
    d.request("PUT", "/v1/sandbox/s", {"env": {"PASSWORD": secret}})
    d.out("s", f"echo {secret}", env={"KEY": secret})
    d.request("GET", f"/v1/sandbox?token={secret}")
    d.request("GET", "/v1/sandbox", headers={"Authorization": f"Bearer {secret}"})
    assert secret not in d.log() and silica.TOKEN not in d.log()


def test_no_processes_are_left(daemon):
    """Last in this file: what the tests above have started is gone."""
    wait_for(lambda: len(daemon.request("GET", "/v1/sandbox").json["sandboxes"]) == 0, what="no sandbox is left")
    wait_for(lambda: len(sandbox_processes(daemon)) <= 4, what="only the prepared sandbox runs")
