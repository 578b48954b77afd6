# SPDX-License-Identifier: Apache-2.0
"""POST /api/list-files: one test per statement of the protocol."""
import pytest
from files import STAMP, call, fails, names, sh, write


# ---------------------------------------------------------------- list-files


def test_list_members(api, directory):
    write(api, f"{directory}/b.txt", "123456")
    sh(api, f"touch -d 2026-01-02T03:04:05.123456789Z {directory}/b.txt; chmod 640 {directory}/b.txt")
    answer = call(api, "list-files", path=directory)
    assert STAMP.match(answer.pop("timestamp"))
    assert answer == {
        "success": True,
        "path": directory,
        "files": [
            {
                "name": "b.txt",
                "absolutePath": f"{directory}/b.txt",
                "relativePath": "b.txt",
                "type": "file",
                "size": 6,
                "modifiedAt": "2026-01-02T03:04:05.1234567890",
                "mode": "rw-r-----",
                "permissions": {"readable": True, "writable": True, "executable": False},
            }
        ],
        "count": 1,
        "exitCode": 0,
    }


def test_list_time_before_1970(api, directory):
    sh(api, f"touch -d 1969-12-31T23:59:58.5Z {directory}/old")
    assert call(api, "list-files", path=directory)["files"][0]["modifiedAt"] == "1969-12-31T23:59:58.5000000000"


def test_list_types(api, directory):
    sh(api, f"cd {directory}; touch f; mkdir d; ln -s /etc l; ln -s nowhere m; mkfifo p")
    files = call(api, "list-files", path=directory)["files"]
    assert {f["name"]: f["type"] for f in files} == {"f": "file", "d": "directory", "l": "symlink", "m": "symlink", "p": "other"}
    assert {f["name"]: f["size"] for f in files}["l"] == 4  # of the link


@pytest.mark.parametrize("mode", ["777", "000", "421", "4755", "1777"])
def test_list_modes(api, directory, mode):
    sh(api, f"touch {directory}/f; chmod {mode} {directory}/f")
    file = call(api, "list-files", path=directory)["files"][0]
    bits = int(mode, 8)
    assert file["mode"] == "".join("rwx"[i % 3] if bits >> (8 - i) & 1 else "-" for i in range(9))
    assert file["permissions"] == {"readable": bool(bits & 0o400), "writable": bool(bits & 0o200), "executable": bool(bits & 0o100)}


def test_list_trailing_slash_is_not_doubled(api, directory):
    write(api, f"{directory}/a", "x")
    file = call(api, "list-files", path=f"{directory}/")["files"][0]
    assert (file["absolutePath"], file["relativePath"]) == (f"{directory}/a", "a")


def test_list_relative_path_gives_relative_absolute_paths(api, directory, session):
    write(api, f"{directory}/sub/a", "x")
    api.run(f"cd {directory}", session)
    file = call(api, "list-files", path="sub", sessionId=session)["files"][0]
    assert (file["absolutePath"], file["relativePath"]) == ("sub/a", "a")


def test_list_recursive(api, directory):
    sh(api, f"cd {directory}; mkdir -p a/b/c; touch a/1 a/b/2 a/b/c/3; ln -s .. a/b/loop")
    assert names(api, directory) == ["a"]
    assert names(api, directory, recursive=True) == ["a", "a/1", "a/b", "a/b/2", "a/b/c", "a/b/c/3", "a/b/loop"]
    files = call(api, "list-files", path=directory, options={"recursive": True})["files"]
    assert all(f["absolutePath"] == f"{directory}/{f['relativePath']}" for f in files)
    assert all(f["name"] == f["relativePath"].rsplit("/")[-1] for f in files)


def test_list_hidden(api, directory):
    sh(api, f"cd {directory}; mkdir -p .git/x; touch .env seen .git/config .git/.secret")
    assert names(api, directory) == ["seen"]
    assert names(api, directory, includeHidden=True) == [".env", ".git", "seen"]
    assert names(api, directory, recursive=True) == [".git/config", ".git/x", "seen"]
    assert names(api, directory, recursive=True, includeHidden=True) == [".env", ".git", ".git/.secret", ".git/config", ".git/x", "seen"]


def test_list_of_a_hidden_directory(api, directory):
    write(api, f"{directory}/.hidden/a", "x")
    assert names(api, f"{directory}/.hidden") == ["a"]


def test_list_names_with_tab_and_newline(api, directory):
    write(api, f"{directory}/a\nb\tc\"d\\", "x")
    assert names(api, directory) == ["a\nb\tc\"d\\"]


def test_list_empty_directory(api, directory):
    answer = call(api, "list-files", path=directory)
    assert (answer["files"], answer["count"]) == ([], 0)


def test_list_missing(api, directory):
    error = fails(api, "list-files", 404, "FILE_NOT_FOUND", path=f"{directory}/no")
    assert error["context"] == {"path": f"{directory}/no", "operation": "directory.list"}


def test_list_of_a_file(api, directory):
    write(api, f"{directory}/f", "x")
    fails(api, "list-files", 400, "NOT_DIRECTORY", path=f"{directory}/f")


def test_list_10000_files(api, directory):
    sh(api, f"cd {directory} && seq -f %05.0f 1 10000 | xargs touch")
    answer = call(api, "list-files", path=directory)
    assert answer["count"] == 10000 and sorted(f["name"] for f in answer["files"]) == [f"{i:05}" for i in range(1, 10001)]
