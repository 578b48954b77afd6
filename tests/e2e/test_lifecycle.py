# SPDX-License-Identifier: Apache-2.0
"""The life of a sandbox with the real daemon: frozen, asleep, woken, destroyed; agents that stop, die or hang."""
import concurrent.futures
import json
import os
import signal
import socket
import struct
import threading
import time

import pytest
import silica
from silica import read_until, sandbox_processes, wait_for


@pytest.fixture(scope="module")
def quick(request):
    """A daemon that freezes soon and notices a silent agent soon."""
    d = silica.Daemon("life", pool=0, args=["--freeze-after", "1s", "--agent-silence", "1s"])
    d.start()
    yield d
    d.cleanup()


def state(d, sandbox):
    r = d.request("GET", f"/v1/sandbox/{sandbox}")
    return r.json["state"] if r.status == 200 else None


def life(d, sandbox, verb):
    return d.request("POST", f"/v1/sandbox/{sandbox}/{verb}")


def agent_of(d, sandbox):
    """The host's pid of a sandbox's first process, by the record of its slot."""
    for slot in d.slots():
        try:
            record = open(f"{d.run_dir}/slots/{slot}/record", "rb").read()
        except FileNotFoundError:
            continue
        if b"\0" + sandbox.encode() + b"\0" in record:
            for pid in sandbox_processes(d):
                if struct.pack("<i", pid) in record and ns_pid(pid) == "1":
                    return pid
    raise AssertionError(f"no agent of {sandbox}")


def ns_pid(pid):
    try:
        return open(f"/proc/{pid}/status").read().split("NSpid:")[1].split("\n")[0].split()[-1]
    except (FileNotFoundError, IndexError):
        return None


def start_process(d, sandbox, command, name):
    r = d.request("POST", f"/v1/sandbox/{sandbox}/api/process/start", {"command": command, "processId": name})
    assert r.status == 200, r.body


# ---------------------------------------------------------------- frozen

def test_idle_sandbox_is_frozen_and_thawed(quick):
    d = quick
    pid = d.out("frosty", "cd /tmp; A=5; echo $$")
    wait_for(lambda: state(d, "frosty") == "frozen", what="the freeze")
    usage = d.request("GET", "/v1/sandbox/frosty").json
    assert usage["memoryBytes"] > 0 and usage["tasks"] >= 2, "its processes are there"
    time.sleep(0.5)
    assert d.request("GET", "/v1/sandbox/frosty").json["cpuSeconds"] == usage["cpuSeconds"], "and do nothing"

    def running():  # a moment later it may be frozen again
        assert d.out("frosty", "echo $$ $PWD $A") == f"{pid} /tmp 5", "the session lives on"
        return state(d, "frosty") == "running"

    wait_for(running, what="the thaw")
    d.destroy("frosty")


def test_thaw_is_quick(quick):
    d = quick
    d.out("brisk", "true")

    def seconds():
        begin = time.monotonic()
        d.out("brisk", "true")
        return time.monotonic() - begin

    def added():
        wait_for(lambda: state(d, "brisk") == "frozen", what="the freeze")
        thawed = seconds()
        return thawed - seconds()  # one right behind the other: the machine is as busy for both

    assert any(added() < 0.05 for _ in range(10))  # sanitizers and a shared machine; bench/run has the real figure
    d.destroy("brisk")


def test_background_work_is_never_frozen(quick):
    """A process of startProcess, and a job the agent knows nothing of, both count on."""
    d = quick
    d.out("job", "true")
    start_process(d, "job", "while :; do echo x >> /workspace/ticks; sleep 0.1; done", "ticker")
    d.exec("unknown-job", "(while :; do head -c 3000000 /dev/urandom | sha256sum > /dev/null; echo x >> /workspace/ticks; "
                          "sleep 0.1; done) > /dev/null 2>&1 &")
    end = time.monotonic() + 3.5  # three times the idle time
    while time.monotonic() < end:
        assert state(d, "job") == "running" and state(d, "unknown-job") == "running"
        time.sleep(0.1)
    for sandbox in ("job", "unknown-job"):
        used = lambda: d.request("GET", f"/v1/sandbox/{sandbox}").json["cpuSeconds"]  # noqa: E731 - asks without touching it
        before = used()
        wait_for(lambda: used() > before, what="work that nobody asks for")
        wait_for(lambda: int(d.out(sandbox, "wc -l < /workspace/ticks")) > 5, what=sandbox)
    d.request("DELETE", "/v1/sandbox/job/api/process/kill-all")
    wait_for(lambda: state(d, "job") == "frozen", what="the freeze after the process ended")
    d.destroy("job")
    d.destroy("unknown-job")


def test_frozen_sandbox_sleeps_and_is_destroyed(quick):
    d = quick
    d.request("PUT", "/v1/sandbox/deep", {"sleepAfter": "8s"})
    d.out("deep", "echo kept > /workspace/f")
    wait_for(lambda: state(d, "deep") == "frozen", what="the freeze")
    wait_for(lambda: state(d, "deep") == "asleep", what="the sleep")
    assert d.out("deep", "cat /workspace/f") == "kept"
    wait_for(lambda: state(d, "deep") == "frozen", what="the second freeze")
    begin = time.monotonic()
    d.destroy("deep")
    assert time.monotonic() - begin < 20
    assert state(d, "deep") is None


def test_frozen_sandbox_and_a_killed_daemon(daemon_factory):
    """The next keeper finds it frozen, thaws it, and it answers."""
    d = daemon_factory("frkill", args=["--freeze-after", "1s"]).start()
    pid = d.out("ice", "echo $$")
    wait_for(lambda: state(d, "ice") == "frozen", what="the freeze")
    d.kill()
    d.start()
    assert d.out("ice", "echo $$") == pid


# ---------------------------------------------------------------- asleep

def test_sleep_keeps_files_and_forgets_processes(quick):
    d = quick
    d.out("nap", "echo kept > /workspace/f; echo gone > /tmp/f; export A=1; cd /tmp")
    start_process(d, "nap", "trap 'echo polite > /workspace/end; exit' TERM; echo set; while :; do sleep 0.1; done", "p")
    wait_for(lambda: "set" in d.request("GET", "/v1/sandbox/nap/api/process/p/logs").json["stdout"], what="the trap")
    r = life(d, "nap", "sleep")
    assert r.status == 200 and r.json["state"] == "asleep" and r.json["memoryBytes"] == 0
    assert d.out("nap", "cat /workspace/f /workspace/end; echo ${A-unset}; ls /tmp | wc -l") == "kept\npolite\nunset\n0"
    assert d.request("GET", "/v1/sandbox/nap/api/process/list").json["count"] == 0
    assert life(d, "nap", "wake").json["state"] == "running"
    d.destroy("nap")


def test_sleep_gives_everything_back(daemon_factory):
    d = daemon_factory("gives", pool=0, args=["--kept-disks-for", "100ms"]).start()
    for i in range(3):
        d.out(f"s{i}", "echo x > /workspace/f")
    for i in range(3):
        assert life(d, f"s{i}", "sleep").status == 200
    wait_for(lambda: not d.leftovers() and not sandbox_processes(d), what="an empty host")
    assert len(d.disks()) == 3
    assert [d.out(f"s{i}", "cat /workspace/f") for i in range(3)] == ["x"] * 3


def test_sleep_after_idle_time_and_keep_alive(quick):
    d = quick
    d.request("PUT", "/v1/sandbox/short", {"sleepAfter": 1})
    d.request("PUT", "/v1/sandbox/stays", {"sleepAfter": 1, "keepAlive": True})
    wait_for(lambda: state(d, "short") == "asleep", what="the sleep")
    assert state(d, "stays") == "running"
    time.sleep(2)
    assert state(d, "stays") == "running"
    d.destroy("short")
    d.destroy("stays")


def test_a_running_command_keeps_it_awake(quick):
    d = quick
    d.request("PUT", "/v1/sandbox/awake", {"sleepAfter": 1})
    assert d.out("awake", "sleep 3; echo done") == "done"
    d.destroy("awake")


def test_ephemeral_forgets(quick):
    d = quick
    d.request("PUT", "/v1/sandbox/brief", {"ephemeral": True, "env": {"GREETING": "hi"}, "labels": {"a": "b"}})
    assert d.out("brief", "echo x > /workspace/f; echo $GREETING") == "hi"
    assert life(d, "brief", "sleep").json["state"] == "asleep"
    assert d.out("brief", "ls /workspace | wc -l; echo $GREETING") == "0\nhi"
    assert d.request("GET", "/v1/sandbox/brief").json["labels"] == {"a": "b"}
    d.destroy("brief")


# ---------------------------------------------------------------- starts and ends

def test_fifty_first_uses_are_one_start(quick):
    d = quick
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        out = list(pool.map(lambda i: d.out("crowd", "cat /proc/sys/kernel/random/boot_id; echo $PPID", timeout=60), range(50)))
    assert len(set(out)) == 1
    r = d.request("GET", "/metrics").body.decode()
    assert "silica_start_seconds_count" in r
    d.destroy("crowd")


def test_destroy_during_a_start(daemon_factory):
    d = daemon_factory("dstart", pool=0).start()
    for i in range(10):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            use = pool.submit(d.request, "POST", f"/v1/sandbox/c{i}/api/execute", {"command": "echo up"})
            time.sleep(0.001 * i)
            gone = pool.submit(d.request, "DELETE", f"/v1/sandbox/c{i}")
            assert gone.result().status == 200
            assert use.result().status in (200, 502)
        assert d.out(f"c{i}", "ls /workspace | wc -l") == "0"
        d.destroy(f"c{i}")
    wait_for(lambda: not d.leftovers() and not d.disks(), what="nothing left")


def test_API_11_fifty_destroys_are_one(quick):
    d = quick
    d.out("once", "true")
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda i: d.request("DELETE", "/v1/sandbox/once"), range(50)))
    assert all(a.status == 200 for a in answers) and any(a.json["existed"] for a in answers)
    assert d.out("once", "echo fresh") == "fresh"
    d.destroy("once")


def test_hostile_sandbox_is_destroyed_in_time(quick):
    """Fork bomb, TERM ignored, stopped agent: all at once."""
    d = quick
    d.out("hostile", "true")
    agent = agent_of(d, "hostile")
    start_process(d, "hostile", "trap '' TERM INT HUP; b() { b | b & }; b", "bomb")
    wait_for(lambda: d.request("GET", "/v1/sandbox/hostile").json["tasks"] > 200, what="the bomb")
    os.kill(agent, signal.SIGSTOP)
    begin = time.monotonic()
    d.destroy("hostile")
    assert time.monotonic() - begin < 30
    assert d.out("hostile", "echo fresh") == "fresh", "destroy and use at once gives a fresh one"
    d.destroy("hostile")


# ---------------------------------------------------------------- agents that do not answer

def test_AGT_01_stopped_agent(quick):
    d = quick
    d.out("stopped", "echo kept > /workspace/f; sync")
    agent = agent_of(d, "stopped")
    d.out("bystander", "true")
    os.kill(agent, signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(d.request, "POST", "/v1/sandbox/stopped/api/execute", {"command": "echo hi"}) for _ in range(3)]
        assert d.out("bystander", "echo ok") == "ok", "others do not notice"
        answers = [w.result() for w in waiting]
    assert [a.status for a in answers] == [502] * 3
    assert {a.json["code"] for a in answers} == {"SANDBOX_UNAVAILABLE"}
    assert d.out("stopped", "cat /workspace/f") == "kept", "the next request works"
    agent = agent_of(d, "stopped")
    d.destroy("bystander")
    os.kill(agent, signal.SIGSTOP)
    begin = time.monotonic()
    d.destroy("stopped")
    assert time.monotonic() - begin < 20


def freezer_files(d):
    found = []
    for top in d.slot_groups():
        for name, frozen, thawed in (("freezer.state", "FROZEN", "THAWED"), ("cgroup.freeze", "1", "0")):
            path = f"{top}/{name}"
            if os.path.exists(path) and "/work" not in top.rsplit("silica-", 1)[1]:
                found.append((path, frozen, thawed))
    return found


def is_frozen(path):
    if path.endswith("freezer.state"):
        return open(path).read() == "FROZEN\n"
    return "frozen 1" in open(path.replace("cgroup.freeze", "cgroup.events")).read()


def test_AGT_05_group_frozen_from_outside(daemon_factory):
    """Somebody freezes the group behind our back: callers get an error, then it works again."""
    # with a freeze of its own the daemon would thaw it for the request
    d = daemon_factory("agt5", pool=0, args=["--agent-silence", "1s", "--freeze-after", "0"]).start()
    d.out("iced", "echo kept > /workspace/f; sync")
    files = freezer_files(d)
    assert files
    for path, frozen, _ in files:
        with open(path, "w") as f:
            f.write(frozen)
        wait_for(lambda: is_frozen(path), what="the freeze to take hold")
    r = d.request("POST", "/v1/sandbox/iced/api/execute", {"command": "echo hi"}, timeout=60)
    assert r.status == 502 and r.json["code"] == "SANDBOX_UNAVAILABLE"
    assert d.out("iced", "cat /workspace/f") == "kept"


def test_a_silent_command_is_no_stopped_agent(quick):
    d = quick
    d.request("PUT", "/v1/sandbox/silent", {"keepAlive": True})
    pid = d.out("silent", "echo $$")
    assert d.out("silent", "sleep 6; echo end") == "end"  # longer than the silence and two pings of two seconds
    assert d.out("silent", "echo $$") == pid
    d.destroy("silent")


def stream_of(d, path, body):
    s = socket.create_connection(("127.0.0.1", d.port), timeout=60)
    data = json.dumps(body).encode()
    s.sendall((f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {silica.TOKEN}\r\n"
               f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n").encode() + data)
    return s


def test_AGT_09_killed_in_mid_stream(quick):
    """The agent dies during a stream, an upload and a plain call: each caller sees an end or an error, soon."""
    d = quick
    d.out("dying", "true")
    agent = agent_of(d, "dying")
    stream = stream_of(d, "/v1/sandbox/dying/api/execute/stream", {"command": "while :; do echo line; sleep 0.05; done"})
    read_until(stream, b"line")
    upload = socket.create_connection(("127.0.0.1", d.port), timeout=60)
    upload.sendall((f"POST /v1/sandbox/dying/api/write HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {silica.TOKEN}\r\n"
                    "Content-Type: application/json\r\nContent-Length: 90000000\r\n\r\n").encode() + b'{"content":"' + b"x" * 100000)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(d.request, "POST", "/v1/sandbox/dying/api/execute",
                           {"command": "touch /tmp/called; sleep 600", "sessionId": "__DISABLE_SESSION__"})
        wait_for(lambda: d.exec("dying", "test -e /tmp/called", sessionId="__DISABLE_SESSION__")["exitCode"] == 0, what="the call")
        os.kill(agent, signal.SIGKILL)
        assert call.result(timeout=60).status == 502
    for s in (stream, upload):
        s.settimeout(60)
        got = b""
        try:
            while piece := s.recv(65536):
                got += piece
        except ConnectionResetError:
            pass
        assert not got.endswith(b"0\r\n\r\n"), "a broken stream does not look complete"
        s.close()

    def works_again():  # a caller in the very instant of the death may still be told of it
        r = d.request("POST", "/v1/sandbox/dying/api/execute", {"command": "echo again"})
        assert r.status in (200, 502), r.body
        return r.status == 200 and r.json["stdout"] == "again"

    wait_for(works_again, what="the next life")
    d.destroy("dying")


# ---------------------------------------------------------------- full inside

def test_out_of_memory_inside_is_counted(quick):
    d = quick
    d.request("PUT", "/v1/sandbox/oom", {"limits": {"memory": "256MiB"}})
    r = d.exec("oom", "python3 -c 'x = bytearray(1 << 30)'", sessionId="__DISABLE_SESSION__")
    assert r["exitCode"] == 137, r
    assert d.request("GET", "/v1/sandbox/oom").json["oomKills"] >= 1
    assert d.out("oom", "echo alive") == "alive"
    d.destroy("oom")


def test_disk_full_inside(quick):
    d = quick
    d.request("PUT", "/v1/sandbox/fulldisk", {"limits": {"disk": "128MiB"}})
    r = d.exec("fulldisk", "dd if=/dev/zero of=/workspace/fill bs=1M count=500 2>&1 | tail -1")
    r = d.request("POST", "/v1/sandbox/fulldisk/api/write", {"path": "/workspace/more", "content": "x" * 1000000})
    assert r.status != 200 and r.json["code"], "a typed error, no claim of success"
    assert d.out("fulldisk", "echo alive") == "alive", "commands still run"
    assert life(d, "fulldisk", "sleep").json["state"] == "asleep"
    assert d.out("fulldisk", "rm /workspace/fill; echo ok > /workspace/f; cat /workspace/f") == "ok"
    d.destroy("fulldisk")


# ---------------------------------------------------------------- watching

def read_some(s):
    try:
        return s.recv(65536)
    except OSError:  # closed by the test
        return b""


def test_events_of_a_real_life(quick):
    d = quick
    s = socket.create_connection(("127.0.0.1", d.port), timeout=60)
    s.sendall(f"GET /v1/events?sandbox=watched HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {silica.TOKEN}\r\n\r\n".encode())
    seen, rest = [], read_until(s, b"\r\n\r\n").split(b"\r\n\r\n", 1)[1]  # from here on it hears everything

    def listen():
        nonlocal rest
        while piece := read_some(s):
            rest += piece
            *lines, rest = rest.split(b"\n")
            for line in lines:
                if line.startswith(b"data: "):
                    seen.append(json.loads(line[6:])["type"])

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    d.out("watched", "true")
    wait_for(lambda: state(d, "watched") == "frozen")
    d.out("watched", "true")
    life(d, "watched", "sleep")
    d.out("watched", "true")
    d.destroy("watched")
    expected = ["created", "started", "frozen", "thawed", "asleep", "woken", "destroyed"]
    wait_for(lambda: "destroyed" in seen, what="the last event")
    assert list(dict.fromkeys(seen)) == expected  # who takes his time sees it freeze more than once
    s.shutdown(socket.SHUT_RDWR)
    thread.join(20)
    s.close()


def test_host_full_is_typed(daemon_factory):
    """No room for a third: 429 with Retry-After, nothing half made, and room again after one is gone."""
    d = daemon_factory("hfull", pool=0, args=["--slots", "2"]).start()
    d.out("a", "true")
    d.out("b", "true")
    for r in (d.request("PUT", "/v1/sandbox/c", {}), d.request("POST", "/v1/sandbox/c/api/execute", {"command": "true"})):
        assert r.status == 429 and r.json["code"] == "HOST_FULL" and int(r.headers["retry-after"]) > 0
        assert r.json["context"]["retryAfter"] == int(r.headers["retry-after"])
    assert state(d, "c") is None and len(d.slots()) == 2 and len(d.disks()) == 2
    life(d, "a", "sleep")
    assert d.out("c", "echo room") == "room"
    r = d.request("POST", "/v1/sandbox/a/wake")
    assert r.status == 429 and state(d, "a") == "asleep", "it keeps its files and waits"
    d.destroy("c")
    assert life(d, "a", "wake").status == 200


def test_TIME_03_time_outs(quick):
    d = quick
    d.out("timed", "true")
    for ms in (1, 200, 1000):  # each in a session of its own, where what ran out of time goes on
        begin = time.monotonic()
        r = d.request("POST", "/v1/sandbox/timed/api/execute", {"command": "sleep 30", "timeoutMs": ms, "sessionId": f"s{ms}"})
        took = time.monotonic() - begin
        assert r.status >= 400 and ms / 1000 <= took < ms / 1000 + 15, (ms, took, r.body)  # shared machine; it sleeps for longer
    for ms in (2**31, 2**31 - 1, 2**32, 2**40):
        assert d.out("timed", "echo fine", timeoutMs=ms) == "fine"
    for ms in (0, -1):  # no time at all
        r = d.request("POST", "/v1/sandbox/timed/api/execute", {"command": "sleep 30", "timeoutMs": ms, "sessionId": f"t{ms}"})
        assert r.status >= 400 and "0 ms" in r.json["message"], r.body
    d.destroy("timed")
