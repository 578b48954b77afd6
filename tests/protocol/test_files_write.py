# SPDX-License-Identifier: Apache-2.0
"""POST /api/write: one test per statement of the protocol."""
import base64
import time

import pytest
from conftest import wait_until
from files import NO_SESSION, STAMP, call, fails, names, read, sh, write


# ---------------------------------------------------------------- write


def test_write_members(api, directory):
    answer = write(api, f"{directory}/a.txt", "hello")
    assert STAMP.match(answer.pop("timestamp"))
    assert answer == {"success": True, "path": f"{directory}/a.txt", "exitCode": 0}
    assert sh(api, f"cat {directory}/a.txt") == "hello"


def test_write_creates_parents(api, directory):
    write(api, f"{directory}/a/b/c.txt", "x")
    assert sh(api, f"stat -c %a {directory}/a/b") == "755"


@pytest.mark.parametrize("encoding", [None, "utf8", "utf-8", "nope", 5])
def test_write_encodings_other_than_base64_are_text(api, directory, encoding):
    write(api, f"{directory}/a.txt", "aGk=ä", encoding=encoding)
    assert sh(api, f"cat {directory}/a.txt") == "aGk=ä"


def test_write_base64(api, directory):
    data = bytes(range(256))
    write(api, f"{directory}/a.bin", data)
    assert read(api, f"{directory}/a.bin", encoding="base64")["content"] == base64.b64encode(data).decode()


def test_write_base64_without_padding(api, directory):
    call(api, "write", path=f"{directory}/a", content="aGVsbG8", encoding="base64")
    assert sh(api, f"cat {directory}/a") == "hello"


@pytest.mark.parametrize("content", ["aGk=\n", "a b", "aGk*", "-_-_", "ä"])
def test_write_bad_base64(api, directory, content):
    error = fails(api, "write", 400, "VALIDATION_FAILED", path=f"{directory}/a", content=content, encoding="base64")
    entry = error["context"]["validationErrors"][0]
    assert (entry["field"], entry["code"]) == ("content", "INVALID_BASE64")
    assert not call(api, "exists", path=f"{directory}/a")["exists"]


def test_write_truncates_in_place(api, directory):
    path = f"{directory}/a.txt"
    write(api, path, "long content")
    sh(api, f"chmod 750 {path}; ln {path} {directory}/other")
    before = sh(api, f"stat -c %i:%a {path}")
    write(api, path, "short")
    assert sh(api, f"stat -c %i:%a {path}") == before
    assert sh(api, f"cat {directory}/other") == "short"
    write(api, path, "")
    assert sh(api, f"stat -c %s {path}") == "0"


def test_write_follows_symlinks(api, directory):
    write(api, f"{directory}/real/a.txt", "old")
    sh(api, f"ln -s real/a.txt {directory}/link")
    write(api, f"{directory}/link", "new")
    assert sh(api, f"test -L {directory}/link && cat {directory}/real/a.txt") == "new"


def test_write_through_a_dangling_symlink_creates_its_target(api, directory):
    sh(api, f"ln -s target {directory}/link")
    write(api, f"{directory}/link", "new")
    assert sh(api, f"cat {directory}/target") == "new"


def test_write_new_files_have_mode_0644(api, directory):
    write(api, f"{directory}/a.txt", "x")
    assert sh(api, f"stat -c %a {directory}/a.txt") == "644"


def test_write_large_content_keeps_mode_owner_links_and_symlinks(api, directory):
    path = f"{directory}/a.txt"
    first, second = "a" * 3_000_000, "b" * 2_000_000
    write(api, path, first)
    sh(api, f"chmod 750 {path}; ln -s a.txt {directory}/link")
    write(api, f"{directory}/link", second)
    assert sh(api, f"stat -c %a:%s {path}; test -L {directory}/link") == "750:2000000"
    sh(api, f"ln {path} {directory}/other")
    write(api, path, first)
    assert sh(api, f"cmp {path} {directory}/other && stat -c %s {path}") == "3000000"
    assert names(api, directory, includeHidden=True) == ["a.txt", "link", "other"]


def test_write_to_a_directory(api, directory):
    error = fails(api, "write", 500, "FILESYSTEM_ERROR", path=directory, content="x")
    assert error["context"]["stderr"].startswith("EISDIR: ")
    assert (error["context"]["path"], error["operation"]) == (directory, "file.write")


@pytest.mark.parametrize("content", [None, 5, {}])
def test_write_without_content(api, directory, content):
    fails(api, "write", 500, "FILESYSTEM_ERROR", path=f"{directory}/a", content=content)
    assert not call(api, "exists", path=f"{directory}/a")["exists"]


def test_write_below_a_file(api, directory):
    write(api, f"{directory}/file", "x")
    fails(api, "write", 400, "NOT_DIRECTORY", path=f"{directory}/file/below", content="x")


def test_write_name_too_long(api, directory):
    fails(api, "write", 400, "NAME_TOO_LONG", path=f"{directory}/{'n' * 256}", content="x")


def test_write_symlink_loop(api, directory):
    sh(api, f"ln -s b {directory}/a; ln -s a {directory}/b")
    fails(api, "write", 500, "TOO_MANY_LINKS", path=f"{directory}/a", content="x")


def test_write_read_only_file_system(api):
    response = api.post("/api/write", {"path": "/sys/nope", "content": "x", "sessionId": NO_SESSION})
    assert response.json["code"] in ("READ_ONLY", "PERMISSION_DENIED")


def test_write_busy_program(api, directory):
    sh(api, f"cp /bin/sleep {directory}/prog")
    process = api.start(f"{directory}/prog 60", processId=f"busy-{time.monotonic_ns()}")
    try:
        wait_until(lambda: api.run(f"pgrep -xf '{directory}/prog 60'", sessionId=NO_SESSION)["exitCode"] == 0, "it runs")
        fails(api, "write", 409, "RESOURCE_BUSY", path=f"{directory}/prog", content="x")
    finally:
        api.delete(f"/api/process/{process['processId']}")


def test_write_empty_content(api, directory):
    write(api, f"{directory}/e", "")
    assert sh(api, f"stat -c %s {directory}/e") == "0"


def test_write_30_mb(api, directory):
    text = "zeile\n" * 5_000_000
    write(api, f"{directory}/l.txt", text)
    assert read(api, f"{directory}/l.txt")["content"] == text
