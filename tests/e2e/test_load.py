# SPDX-License-Identifier: Apache-2.0
"""Load: a burst of creations, many idle sandboxes, many idle, slow or busy connections: all are served."""
import concurrent.futures
import contextlib
import os
import resource
import socket
import threading
import time

import pytest
import silica
from silica import TOKEN, read_until, sandbox_processes, wait_for
from tracer import gateway_pid

BURST = 100
IDLE = 200
CONNECTIONS = 10_000


@pytest.fixture(scope="module")
def roomy():
    d = silica.Daemon("load", pool=4)
    d.start()
    yield d
    d.cleanup()


def everybody(count, work):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def test_a_burst_of_creations_all_succeed(roomy):
    answers = everybody(BURST, lambda i: roomy.out(f"burst-{i}", f"echo {i} > /workspace/me; cat /workspace/me", timeout=120))
    assert answers == [str(i) for i in range(BURST)]
    everybody(16, lambda k: [roomy.destroy(f"burst-{i}") for i in range(k, BURST, 16)])
    wait_for(lambda: not any("burst" in b["id"] for b in roomy.request("GET", "/v1/sandbox").json["sandboxes"]), what="all are gone")


def test_many_idle_sandboxes_keep_their_own_state(roomy):
    everybody(8, lambda k: [roomy.out(f"idle-{i}", f"cd /tmp && secret={i}") for i in range(k, IDLE, 8)])
    assert roomy.out("probe", "echo here") == "here"
    everybody(8, lambda k: [check_state(roomy, i) for i in range(k, IDLE, 8)])
    everybody(8, lambda k: [roomy.destroy(f"idle-{i}") for i in range(k, IDLE, 8)])
    roomy.destroy("probe")
    wait_for(lambda: len(sandbox_processes(roomy)) <= 4 * 4, what="only the pool's processes are left")


def check_state(daemon, i):
    assert daemon.out(f"idle-{i}", "echo $PWD $secret") == f"/tmp {i}"


def gateway_cpu(daemon):
    """Seconds of processor time that the gateway has used."""
    with open(f"/proc/{gateway_pid(daemon)}/stat") as f:
        return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CONNECTIONS + 200:
        pytest.skip(f"this process may open only {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_HTTP_14_ten_thousand_idle_connections(roomy, many_files):
    """Every one is served; beyond the server's limit the one that is idle for longest is closed. Who waits for an answer stays."""
    ask = f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{roomy.port}\r\n\r\n".encode()
    body = '{"command":"while [ ! -e /tmp/go ]; do sleep 0.05; done; echo done"}'
    held = []
    try:
        waiting = socket.create_connection(("127.0.0.1", roomy.port), timeout=60)
        waiting.sendall((f"POST /v1/sandbox/conns/api/execute HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
                         f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode())
        wait_for(lambda: roomy.request("GET", "/v1/sandbox/conns").status == 200, what="the request to be under way")
        for _ in range(CONNECTIONS):
            s = socket.create_connection(("127.0.0.1", roomy.port), timeout=30)
            held.append(s)
            s.sendall(ask)
            assert s.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert held[0].recv(1) == b"", "the oldest has made room"
        held[-1].sendall(ask)
        assert held[-1].recv(4096).startswith(b"HTTP/1.1 200 "), "the newest is there"

        def idle():
            used = gateway_cpu(roomy)
            time.sleep(1)
            return gateway_cpu(roomy) - used < 0.1

        wait_for(idle, what="who only waits costs nothing")
        roomy.out("conns", "touch /tmp/go", sessionId="other")
        assert read_until(waiting, b"done").startswith(b"HTTP/1.1 200 "), "a request is not idle, however long it takes"
    finally:
        for s in (*held, waiting):
            s.close()
    roomy.destroy("conns")


SLOW = {
    "head": lambda token: b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: b",
    "body": lambda token: (f"POST /v1/sandbox/slow/api/execute HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
                           "Content-Type: application/json\r\nContent-Length: 65536\r\n\r\n{").encode(),
    "read": lambda token: (f"GET /v1/sandbox HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n").encode() * 20,
}


def test_HTTP_13_slow_clients(roomy, many_files):
    """Heads, bodies and answers that take for ever, on as many connections as there are and more: a newcomer is served."""
    roomy.out("slow", "true")
    held = []
    try:
        for kind, count in (("body", 500), ("read", 500), ("head", 4000)):
            for _ in range(count):
                s = socket.socket()
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                s.connect(("127.0.0.1", roomy.port))
                s.setblocking(False)
                s.send(SLOW[kind](TOKEN))
                held.append(s)
        assert roomy.request("GET", "/health", auth=False).status == 200
        assert roomy.out("newcomer", "echo served") == "served"
        for s in held[-100:]:
            with contextlib.suppress(OSError):
                s.send(b"c")  # a byte now and then keeps no slow head alive
        assert roomy.out("newcomer", "echo again") == "again"
    finally:
        for s in held:
            s.close()
    for name in ("slow", "newcomer"):
        roomy.destroy(name)


def test_HTTP_23_load_mixed_with_creations(roomy):
    """Many connections ask without pause while sandboxes come and go: not one error."""
    stop, counts, failures = threading.Event(), [], []

    def client(i):
        conn, n = roomy.connection(60), 0
        try:
            while not stop.is_set():
                path = "/health" if i % 2 else "/v1/sandbox/load/api/ping"
                conn.request("GET", path, headers={"Authorization": "Bearer " + TOKEN})
                r = conn.getresponse()
                r.read()
                assert r.status == 200, r.status
                n += 1
        except Exception as e:
            failures.append(e)
        finally:
            conn.close()
        counts.append(n)

    roomy.out("load", "true")
    threads = [threading.Thread(target=client, args=(i,)) for i in range(64)]
    for t in threads:
        t.start()
    for i in range(12):
        assert roomy.out(f"amid-{i}", f"echo {i}") == str(i)
        roomy.destroy(f"amid-{i}")
    stop.set()
    for t in threads:
        t.join(60)
    assert not failures and len(counts) == 64 and min(counts) > 0, (failures[:3], counts)
    roomy.destroy("load")
