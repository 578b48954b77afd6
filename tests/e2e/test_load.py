# SPDX-License-Identifier: Apache-2.0
"""Load: a burst of creations, many idle sandboxes, many idle connections: all served, or refused honestly."""
import concurrent.futures
import resource
import socket

import pytest
import silica
from silica import TOKEN, sandbox_processes, wait_for

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
    wait_for(lambda: len(sandbox_processes(roomy)) <= 4 * 4, 30, "only the pool's processes are left")


def check_state(daemon, i):
    assert daemon.out(f"idle-{i}", "echo $PWD $secret") == f"/tmp {i}"


def test_idle_connections_are_kept_or_refused_with_503(roomy):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < CONNECTIONS + 200:
        pytest.skip(f"this process may open only {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ask = f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{roomy.port}\r\n\r\n".encode()
    kept, refused = [], 0
    try:
        for _ in range(CONNECTIONS):
            s = socket.create_connection(("127.0.0.1", roomy.port), timeout=30)
            s.sendall(ask)
            status = s.recv(4096).split(b"\r\n")[0]
            if status == b"HTTP/1.1 200 OK":
                kept.append(s)
            else:
                assert status.startswith(b"HTTP/1.1 503 "), status
                refused += 1
                s.close()
        assert len(kept) + refused == CONNECTIONS and len(kept) >= 4096
        run = f'POST /v1/sandbox/conns/api/execute HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\nContent-Length: 18\r\n\r\n{{"command":"true"}}'
        kept[0].sendall(run.encode())
        assert kept[0].recv(4096).startswith(b"HTTP/1.1 200 "), "those who are in are served"
        for s in kept[1:]:
            s.sendall(ask)
        assert all(s.recv(4096).startswith(b"HTTP/1.1 200 ") for s in kept[1:]), "and stay"
    finally:
        for s in kept:
            s.close()
    wait_for(lambda: roomy.request("GET", "/health", auth=False).status == 200, what="there is room again")
    roomy.destroy("conns")
