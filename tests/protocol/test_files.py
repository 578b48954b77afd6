# SPDX-License-Identifier: Apache-2.0
"""The file routes: delete, mkdir, exists, and what all of them have in common."""
import http.client
import json
import shlex

import pytest
from conftest import wait_until
from files import NO_SESSION, STAMP, call, fails, names, read, sh, write


# ---------------------------------------------------------------- delete


def test_delete(api, directory):
    write(api, f"{directory}/a", "x")
    answer = call(api, "delete", path=f"{directory}/a")
    assert STAMP.match(answer.pop("timestamp"))
    assert answer == {"success": True, "path": f"{directory}/a", "exitCode": 0}
    assert not call(api, "exists", path=f"{directory}/a")["exists"]


def test_delete_missing(api, directory):
    error = fails(api, "delete", 404, "FILE_NOT_FOUND", path=f"{directory}/a")
    assert error["context"] == {"path": f"{directory}/a", "operation": "file.delete"}


def test_delete_directory(api, directory):
    error = fails(api, "delete", 400, "IS_DIRECTORY", path=directory)
    assert error["context"]["path"] == directory and "suggestion" in error


def test_delete_removes_the_link_itself(api, directory):
    write(api, f"{directory}/a", "x")
    sh(api, f"ln -s a {directory}/link; mkdir {directory}/d; ln -s d {directory}/dirlink")
    call(api, "delete", path=f"{directory}/link")
    call(api, "delete", path=f"{directory}/dirlink")
    assert names(api, directory) == ["a", "d"]


def test_delete_dangling_link_is_not_found(api, directory):
    sh(api, f"ln -s nowhere {directory}/link")
    fails(api, "delete", 404, "FILE_NOT_FOUND", path=f"{directory}/link")


def test_delete_fifo(api, directory):
    sh(api, f"mkfifo {directory}/p")
    call(api, "delete", path=f"{directory}/p")
    assert names(api, directory) == []


# ---------------------------------------------------------------- mkdir


def test_mkdir(api, directory):
    answer = call(api, "mkdir", path=f"{directory}/d")
    assert STAMP.match(answer.pop("timestamp"))
    assert answer == {"success": True, "path": f"{directory}/d", "recursive": False, "stdout": "", "stderr": "", "exitCode": 0}
    assert sh(api, f"stat -c %F:%a {directory}/d") == "directory:755"


def test_mkdir_recursive(api, directory):
    for _ in range(2):  # existing directories are fine
        assert call(api, "mkdir", path=f"{directory}/a/b/c", recursive=True)["recursive"] is True
    call(api, "mkdir", path=f"{directory}/x/y/", recursive=True)
    assert sh(api, f"test -d {directory}/a/b/c -a -d {directory}/x/y; echo $?") == "0"


@pytest.mark.parametrize("path", ["d", "no/parent"])
def test_mkdir_existing_or_without_parent(api, directory, path):
    sh(api, f"mkdir {directory}/d")
    error = fails(api, "mkdir", 500, "FILESYSTEM_ERROR", path=f"{directory}/{path}")
    assert error["context"]["exitCode"] == 1 and error["context"]["stderr"].startswith("mkdir: ")
    assert error["context"]["path"] == f"{directory}/{path}" and error["context"]["options"] == {"recursive": False}
    assert error["operation"] == "directory.create"


def test_mkdir_over_a_file(api, directory):
    write(api, f"{directory}/f", "x")
    fails(api, "mkdir", 500, "FILESYSTEM_ERROR", path=f"{directory}/f", recursive=True)
    fails(api, "mkdir", 400, "NOT_DIRECTORY", path=f"{directory}/f/d", recursive=True)


# ---------------------------------------------------------------- exists


def test_exists(api, directory):
    answer = call(api, "exists", path=directory)
    assert STAMP.match(answer.pop("timestamp")) and answer.pop("exitCode") == 0
    assert answer == {"success": True, "path": directory, "exists": True}
    assert call(api, "exists", path=f"{directory}/no")["exists"] is False


def test_exists_follows_symlinks(api, directory):
    sh(api, f"ln -s nowhere {directory}/l; ln -s . {directory}/m")
    assert call(api, "exists", path=f"{directory}/l")["exists"] is False
    assert call(api, "exists", path=f"{directory}/m")["exists"] is True


def test_exists_is_false_in_a_dead_session(api, session):
    pid = api.out("echo $$", session)
    sh(api, f"kill -9 {pid}")
    wait_until(lambda: api.run(f"test -d /proc/{pid} && grep -q '^State:[^Z]*$' /proc/{pid}/status", sessionId=NO_SESSION)["exitCode"], "it is dead")
    assert call(api, "exists", path="/", sessionId=session)["exists"] is False
    assert call(api, "exists", path="/", sessionId=session)["exists"] is True  # a fresh shell


def test_read_in_a_dead_session(api, session):
    pid = api.out("echo $$", session)
    sh(api, f"kill -9 {pid}")
    wait_until(lambda: api.run(f"test -d /proc/{pid} && grep -q '^State:[^Z]*$' /proc/{pid}/status", sessionId=NO_SESSION)["exitCode"], "it is dead")
    error = fails(api, "read", 410, "SESSION_TERMINATED", path="/proc/version", sessionId=session)
    assert error["context"]["sessionId"] == session


# ---------------------------------------------------------------- bodies and paths

ROUTES = ["read", "write", "delete", "mkdir", "list-files", "exists"]
ALL_ROUTES = ROUTES + ["rename", "move", "read/stream"]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("path", ["", None, 5, ["/tmp"]])
def test_path_must_be_a_non_empty_string(api, route, path):
    error = fails(api, route, 400, "VALIDATION_FAILED", path=path, content="x")
    entries = error["context"]["validationErrors"]
    assert [(e["field"], e["code"]) for e in entries] == [("path", "INVALID_PATH")] and entries[0]["message"]
    assert "suggestion" in error


@pytest.mark.parametrize("route", ROUTES)
def test_path_with_nul(api, route):
    error = fails(api, route, 400, "VALIDATION_FAILED", path="/tmp/a\0b", content="x")
    assert error["context"]["validationErrors"][0]["code"] == "INVALID_PATH"


@pytest.mark.parametrize("route", ROUTES)
def test_path_longer_than_4096_units(api, route):
    fails(api, route, 400, "VALIDATION_FAILED", path="/" + "x" * 4096, content="x")
    fails(api, route, 400, "VALIDATION_FAILED", path="/" + "😀" * 2048, content="x")  # two units each


def test_path_with_two_problems_has_two_entries(api):
    error = fails(api, "read", 400, "VALIDATION_FAILED", path="\0" + "x" * 4096)
    assert len(error["context"]["validationErrors"]) == 2


def test_path_of_4096_units_is_the_file_systems_business(api):
    fails(api, "read", 400, "NAME_TOO_LONG", path="/" + "x" * 4095)
    assert call(api, "exists", path="/" + "x" * 4095)["exists"] is False


@pytest.mark.parametrize("route", ALL_ROUTES)
@pytest.mark.parametrize("body", ["", "{", "not json", '{"path":"/tmp",}'])
def test_invalid_json(api, route, body):
    response = api.post(f"/api/{route}", body)
    assert response.status == 500
    assert response.json["code"] == "INTERNAL_ERROR"
    assert response.json["message"].startswith("Failed to parse request body: ")


@pytest.mark.parametrize("route", ALL_ROUTES)
def test_only_post(api, route):
    assert api.get(f"/api/{route}").status == 404


def test_session_id_with_nul(api):
    fails(api, "read", 400, "VALIDATION_FAILED", path="/proc/version", sessionId="a\0b")


def test_unknown_fields_are_ignored(api):
    assert read(api, "/proc/version", whatever=[1, {}])["success"]


def test_body_above_128_mib_is_refused(api):
    connection = http.client.HTTPConnection(*api.address, timeout=60)
    connection.putrequest("POST", api.prefix + "/api/write")
    for name, value in {**api.headers, "Content-Length": str(128 * 1024 * 1024 + 1)}.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    assert (response.status, response.read(), response.headers["Connection"]) == (413, b"", "close")
    connection.close()


def test_quoting_is_never_needed(api, directory):
    name = "a'b \"c\" $(touch pwned) `x` ; # *.txt"
    write(api, f"{directory}/{name}", "q")
    assert read(api, f"{directory}/{name}")["content"] == "q"
    call(api, "rename", oldPath=f"{directory}/{name}", newPath=f"{directory}/-rf")
    assert sh(api, f"ls -A {shlex.quote(directory)}") == "-rf"
    call(api, "delete", path=f"{directory}/-rf")
    assert json.dumps(names(api, directory, includeHidden=True)) == "[]"
