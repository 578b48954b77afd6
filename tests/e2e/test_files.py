# SPDX-License-Identifier: Apache-2.0
"""Files as plain bodies, through the gateway, which passes long ones on inside the kernel."""
import hashlib
import os
import socket

import pytest
from silica import TOKEN, wait_for

MiB = 1 << 20


def digest(daemon, box, path):
    return daemon.out(box, f"sha256sum < {path}").split()[0]


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 200000, 33 * MiB + 17])
def test_what_is_sent_is_what_is_there(daemon, box, size):
    data = os.urandom(size)
    r = daemon.request("PUT", f"/v1/sandbox/{box}/file/workspace/f", data)
    assert r.status in (200, 201, 204), r.body
    assert digest(daemon, box, "/workspace/f") == hashlib.sha256(data).hexdigest()
    r = daemon.request("GET", f"/v1/sandbox/{box}/file/workspace/f")
    assert r.status == 200 and r.body == data


def test_in_pieces_of_any_size(daemon, box):
    """What arrives slowly is passed on as it comes."""
    data = os.urandom(3 * MiB)
    with socket.create_connection(("127.0.0.1", daemon.port), 60) as s:
        s.sendall(f"PUT /v1/sandbox/{box}/file/workspace/f HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n"
                  f"Content-Length: {len(data)}\r\n\r\n".encode())
        at, n = 0, 1
        while at < len(data):
            s.sendall(data[at:at + n])
            at, n = at + n, n * 7 % 100003
        answer = b""
        while piece := s.recv(65536):
            answer += piece
    assert answer.split(b" ")[1] in (b"200", b"201", b"204"), answer
    assert digest(daemon, box, "/workspace/f") == hashlib.sha256(data).hexdigest()


def test_who_leaves_in_the_middle_leaves_nothing(daemon, box):
    daemon.out(box, "echo old > /workspace/f")
    with socket.create_connection(("127.0.0.1", daemon.port), 60) as s:
        s.sendall(f"PUT /v1/sandbox/{box}/file/workspace/f HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
                  f"Content-Length: {64 * MiB}\r\n\r\n".encode() + os.urandom(8 * MiB))
        wait_for(lambda: daemon.request("GET", f"/v1/sandbox/{box}").json["activeRequests"] == 1, what="the upload")
    wait_for(lambda: daemon.request("GET", f"/v1/sandbox/{box}").json["activeRequests"] == 0, what="the end of the upload")
    wait_for(lambda: daemon.out(box, "ls -A /workspace; cat /workspace/f") == "f\nold", what="the old file alone")


def test_a_full_disk_is_told(daemon, box):
    assert daemon.request("PUT", f"/v1/sandbox/{box}", {"limits": {"disk": "64M"}}).status == 201
    r = daemon.request("PUT", f"/v1/sandbox/{box}/file/workspace/f", bytes(100 * MiB))
    assert r.json["code"] == "NO_SPACE", (r.status, r.body)
    assert daemon.out(box, "ls -A /workspace; echo fine") == "fine"
