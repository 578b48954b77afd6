# SPDX-License-Identifier: Apache-2.0
"""Files as plain bodies: GET, HEAD, PUT and DELETE /file/<path>; an addition to the protocol."""
import hashlib
import http.client
import os
import socket
import threading
import time
import urllib.parse

import pytest
from conftest import wait_until
from files import names, read, sh, write


def url(path):
    return "/file" + urllib.parse.quote(path)


def put(api, path, data, status=200, headers=None):
    response = api.request("PUT", url(path), data, headers=headers)
    assert response.status == status, response.body[:500]
    return response.json


def get(api, path, status=200, headers=None):
    response = api.get(url(path), headers=headers)
    assert response.status == status, response.body[:500]
    return response


def fails(api, method, path, status, code, body=None, headers=None):
    response = api.request(method, path, body, headers=headers)
    assert response.status == status, response.body[:500]
    assert response.json["code"] == code
    return response.json


def test_raw_round_trip(api, directory):
    data = bytes(range(256)) * 5000
    answer = put(api, f"{directory}/a/b/data.bin", data)
    assert answer.pop("timestamp")
    assert answer == {"success": True, "path": f"{directory}/a/b/data.bin", "size": len(data), "created": True}
    response = get(api, f"{directory}/a/b/data.bin")
    assert response.body == data and response.headers["Content-Length"] == str(len(data))
    assert put(api, f"{directory}/a/b/data.bin", b"x")["created"] is False


def test_raw_empty_file(api, directory):
    assert put(api, f"{directory}/e", b"")["size"] == 0
    response = get(api, f"{directory}/e")
    assert response.body == b"" and response.headers["Content-Type"] == "inode/x-empty"


@pytest.mark.parametrize("name, mime", [("a.png", "image/png"), ("a.md", "text/markdown"), ("a", "text/plain")])
def test_raw_content_type(api, directory, name, mime):
    put(api, f"{directory}/{name}", b"plain")
    response = get(api, f"{directory}/{name}")
    assert response.headers["Content-Type"] == mime
    assert response.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("name", ["a b", "ä€😀", "100%", "a+b", "q?x=1#y", "line\nbreak", "back\\slash", "n" * 255])
def test_raw_names(api, directory, name):
    put(api, f"{directory}/{name}", name.encode())
    assert get(api, f"{directory}/{name}").body == name.encode()
    assert names(api, directory) == [name]


def test_raw_chunked_upload(api, directory):
    pieces = [b"a" * 100000, b"b" * 7, b"c" * 100000]
    connection = http.client.HTTPConnection(*api.address, timeout=60)
    connection.request("PUT", api.prefix + url(f"{directory}/c"), body=iter(pieces), headers=api.headers, encode_chunked=True)
    assert connection.getresponse().status == 200
    connection.close()
    assert get(api, f"{directory}/c").body == b"".join(pieces)


def test_raw_upload_mode(api, directory):
    put(api, f"{directory}/new.sh", b"#!/bin/sh\necho ran\n", headers={"X-File-Mode": "0755"})
    assert sh(api, f"{directory}/new.sh") == "ran"
    put(api, f"{directory}/plain", b"x")
    assert sh(api, f"stat -c %a {directory}/plain") == "644"
    fails(api, "PUT", url(f"{directory}/bad"), 400, "VALIDATION_FAILED", b"x", {"X-File-Mode": "rwx"})
    fails(api, "PUT", url(f"{directory}/bad"), 400, "VALIDATION_FAILED", b"x", {"X-File-Mode": "77777"})
    assert names(api, directory) == ["new.sh", "plain"]


def test_raw_upload_keeps_mode_owner_attributes_and_symlinks(api, directory):
    put(api, f"{directory}/f", b"old")
    sh(api, f"chown 12:34 {directory}/f; chmod 4710 {directory}/f; ln -s f {directory}/l")
    put(api, f"{directory}/l", b"new")
    assert sh(api, f"stat -c %a:%u:%g {directory}/f; cat {directory}/l") == "4710:12:34\nnew"
    assert names(api, directory, includeHidden=True) == ["f", "l"]


def test_raw_upload_to_a_file_with_two_names_changes_both(api, directory):
    put(api, f"{directory}/f", b"old")
    sh(api, f"ln {directory}/f {directory}/g")
    put(api, f"{directory}/f", b"new")
    assert get(api, f"{directory}/g").body == b"new"


def test_raw_upload_is_not_seen_before_it_is_complete(api, directory):
    put(api, f"{directory}/f", b"old")
    with socket.create_connection(api.address, timeout=60) as s:
        head = "".join(f"{k}: {v}\r\n" for k, v in api.headers.items())
        s.sendall(f"PUT {api.prefix}{url(directory + '/f')} HTTP/1.1\r\nHost: x\r\n{head}Content-Length: 100000\r\n\r\n".encode())
        s.sendall(b"n" * 50000)
        wait_until(lambda: len(names(api, directory, includeHidden=True)) == 2, "the upload has begun")
        assert get(api, f"{directory}/f").body == b"old"
    wait_until(lambda: names(api, directory, includeHidden=True) == ["f"], "the broken upload is cleaned up")
    assert get(api, f"{directory}/f").body == b"old"


def test_raw_upload_to_a_directory(api, directory):
    fails(api, "PUT", url(directory), 400, "IS_DIRECTORY", b"x")
    fails(api, "PUT", url(directory + "/new/"), 400, "IS_DIRECTORY", b"x")


def test_raw_upload_below_a_file(api, directory):
    put(api, f"{directory}/f", b"x")
    fails(api, "PUT", url(f"{directory}/f/g"), 400, "NOT_DIRECTORY", b"x")


def test_raw_head(api, directory):
    put(api, f"{directory}/a.txt", b"12345")
    response = api.request("HEAD", url(f"{directory}/a.txt"))
    assert (response.status, response.body) == (200, b"")
    assert response.headers["Content-Length"] == "5" and response.headers["Accept-Ranges"] == "bytes"
    assert api.request("HEAD", url(f"{directory}/no")).status == 404


@pytest.mark.parametrize(
    "value, expected, shown",
    [
        ("bytes=0-0", b"0", "bytes 0-0/10"),
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-3", b"789", "bytes 7-9/10"),
        ("bytes=-99", b"0123456789", "bytes 0-9/10"),
        ("bytes=5-99", b"56789", "bytes 5-9/10"),
    ],
)
def test_raw_range(api, directory, value, expected, shown):
    put(api, f"{directory}/a", b"0123456789")
    response = get(api, f"{directory}/a", 206, {"Range": value})
    assert (response.body, response.headers["Content-Range"]) == (expected, shown)
    assert response.headers["Content-Length"] == str(len(expected))


@pytest.mark.parametrize("value", ["bytes=10-", "bytes=99-100", "bytes=-0"])
def test_raw_range_not_satisfiable(api, directory, value):
    put(api, f"{directory}/a", b"0123456789")
    response = get(api, f"{directory}/a", 416, {"Range": value})
    assert response.headers["Content-Range"] == "bytes */10" and response.body == b""


@pytest.mark.parametrize("value", ["bytes=0-1,3-4", "lines=1-2", "bytes=4-2", "bytes=x", "bytes=1", "bytes=99999999999999999999-"])
def test_raw_range_that_is_ignored(api, directory, value):
    put(api, f"{directory}/a", b"0123456789")
    assert get(api, f"{directory}/a", 200, {"Range": value}).body == b"0123456789"


def test_raw_conditions(api, directory):
    put(api, f"{directory}/a", b"0123456789")
    first = get(api, f"{directory}/a")
    etag, modified = first.headers["ETag"], first.headers["Last-Modified"]
    assert get(api, f"{directory}/a", 304, {"If-None-Match": f'"x", W/{etag}'}).body == b""
    assert get(api, f"{directory}/a", 304, {"If-Modified-Since": modified}).body == b""
    assert get(api, f"{directory}/a", 206, {"Range": "bytes=1-2", "If-Range": etag}).body == b"12"
    put(api, f"{directory}/a", b"abcdefghij")
    assert get(api, f"{directory}/a").headers["ETag"] != etag
    assert get(api, f"{directory}/a", 200, {"If-None-Match": etag}).body == b"abcdefghij"
    assert get(api, f"{directory}/a", 200, {"Range": "bytes=1-2", "If-Range": etag}).body == b"abcdefghij"
    assert get(api, f"{directory}/a", 200, {"If-Modified-Since": "Thu, 01 Jan 1970 00:00:00 GMT"}).body == b"abcdefghij"


@pytest.mark.parametrize("path", ["/dev/zero", "/nope", "/proc/version/x"])
def test_raw_not_found(api, path):
    fails(api, "GET", url(path), 404, "FILE_NOT_FOUND")


def test_raw_get_of_a_directory(api, directory):
    fails(api, "GET", url(directory), 400, "IS_DIRECTORY")


def test_raw_pseudo_file(api):
    assert get(api, "/proc/version").body.startswith(b"Linux version")


@pytest.mark.parametrize("path", ["/file/", "/file/a%00b", "/file/%", "/file/a%2", "/file/%zz"])
def test_raw_bad_path(api, path):
    for method in ("GET", "PUT", "DELETE"):
        fails(api, method, path, 400, "VALIDATION_FAILED", b"x" if method == "PUT" else None)


def test_raw_path_too_long(api):
    fails(api, "GET", "/file/" + "x" * 4096, 400, "NAME_TOO_LONG")
    fails(api, "GET", "/file/" + "x" * 300, 400, "NAME_TOO_LONG")


def test_raw_delete(api, directory):
    put(api, f"{directory}/a", b"x")
    assert api.delete(url(f"{directory}/a")).json["success"] is True
    fails(api, "DELETE", url(f"{directory}/a"), 404, "FILE_NOT_FOUND")


def test_raw_delete_of_a_directory_must_be_asked_for(api, directory):
    put(api, f"{directory}/d/a", b"x")
    fails(api, "DELETE", url(f"{directory}/d"), 400, "IS_DIRECTORY")
    assert api.delete(url(f"{directory}/d") + "?recursive=true").status == 200
    assert names(api, directory) == []
    fails(api, "DELETE", "/file/..?recursive=true", 409, "RESOURCE_BUSY")


def test_raw_delete_of_a_wide_and_deep_tree(api, directory):
    sh(api, f"mkdir {directory}/t && cd {directory}/t && for i in $(seq 60); do mkdir d$i && cd d$i && seq -f f%.0f 40 | xargs touch; done")
    sh(api, f"cd {directory}/t && seq -f w%.0f 5000 | xargs mkdir")
    assert api.delete(url(f"{directory}/t") + "?recursive=true").status == 200
    assert names(api, directory) == []


def test_raw_names_that_are_not_utf8(api, directory):
    name = directory.encode() + b"/caf\xe9\xff.txt"
    assert api.request("PUT", "/file" + urllib.parse.quote(name), b"latin").status == 200
    assert names(api, directory) == ["caf\ufffd\ufffd.txt"]
    assert api.get("/file" + urllib.parse.quote(name)).body == b"latin"
    assert api.delete("/file" + urllib.parse.quote(name)).status == 200
    assert names(api, directory) == []


def test_raw_200_mb_while_others_are_served(api, directory):
    size, piece = 200 * 1024 * 1024, os.urandom(1024 * 1024)
    digest = hashlib.sha256(piece * (size // len(piece))).hexdigest()
    stop, longest, rounds, begin = threading.Event(), [0.0], [0], time.monotonic()

    def ping():
        while not stop.is_set():
            asked = time.monotonic()
            assert api.get("/api/ping").status == 200
            longest[0] = max(longest[0], time.monotonic() - asked)
            rounds[0] += 1

    thread = threading.Thread(target=ping)
    thread.start()
    try:
        connection = http.client.HTTPConnection(*api.address, timeout=60)
        body = (piece for _ in range(size // len(piece)))
        connection.request("PUT", api.prefix + url(f"{directory}/big"), body=body, headers={**api.headers, "Content-Length": str(size)})
        response = connection.getresponse()
        assert response.status == 200 and response.read()
        connection.request("GET", api.prefix + url(f"{directory}/big"), headers=api.headers)
        response = connection.getresponse()
        received = hashlib.sha256()
        while data := response.read(1 << 20):
            received.update(data)
        connection.close()
    finally:
        stop.set()
        thread.join(30)
    assert received.hexdigest() == digest
    assert rounds[0] > 3 and longest[0] < max(5, (time.monotonic() - begin) / 4)  # never as long as one of the two


def test_raw_and_json_routes_see_the_same_file(api, directory):
    put(api, f"{directory}/a.txt", "ä".encode())
    assert read(api, f"{directory}/a.txt")["content"] == "ä"
    write(api, f"{directory}/a.txt", "b")
    assert get(api, f"{directory}/a.txt").body == b"b"
