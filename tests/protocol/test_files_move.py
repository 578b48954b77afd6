# SPDX-License-Identifier: Apache-2.0
"""POST /api/rename and /api/move: one test per statement of the protocol."""
import pytest
from files import STAMP, call, fails, names, read, sh, write


# ---------------------------------------------------------------- rename, move

KEYS = {"rename": ("oldPath", "newPath"), "move": ("sourcePath", "destinationPath")}


def relocate(api, route, source, target, status=200, **fields):
    old, new = KEYS[route]
    return call(api, route, status, **{old: source, new: target}, **fields)


def relocate_fails(api, route, status, code, source, target):
    old, new = KEYS[route]
    return fails(api, route, status, code, **{old: source, new: target})


@pytest.fixture
def elsewhere(api, directory):
    """A directory on another file system."""
    path = sh(api, "mktemp -d -p /dev/shm")
    if sh(api, f"stat -c %d {path}") == sh(api, f"stat -c %d {directory}"):
        pytest.skip("there is only one file system")
    yield path
    sh(api, f"rm -rf {path}")


def test_rename_members(api, directory):
    write(api, f"{directory}/a", "x")
    answer = relocate(api, "rename", f"{directory}/a", f"{directory}/b")
    assert STAMP.match(answer.pop("timestamp"))
    assert answer == {
        "success": True,
        "path": f"{directory}/a",
        "oldPath": f"{directory}/a",
        "newPath": f"{directory}/b",
        "exitCode": 0,
    }


def test_move_members(api, directory):
    write(api, f"{directory}/a", "x")
    answer = relocate(api, "move", f"{directory}/a", f"{directory}/b")
    assert STAMP.match(answer.pop("timestamp"))
    assert answer == {
        "success": True,
        "path": f"{directory}/a",
        "newPath": f"{directory}/b",
        "sourcePath": f"{directory}/a",
        "destinationPath": f"{directory}/b",
        "exitCode": 0,
    }


@pytest.mark.parametrize("route", KEYS)
class TestRelocate:
    def test_into_a_directory(self, api, directory, route):
        write(api, f"{directory}/a", "x")
        sh(api, f"mkdir {directory}/d")
        relocate(api, route, f"{directory}/a", f"{directory}/d")
        assert names(api, directory, recursive=True) == ["d", "d/a"]

    def test_overwrites_a_file(self, api, directory, route):
        write(api, f"{directory}/a", "new")
        write(api, f"{directory}/b", "old")
        relocate(api, route, f"{directory}/a", f"{directory}/b")
        assert read(api, f"{directory}/b")["content"] == "new" and names(api, directory) == ["b"]

    def test_creates_no_parents(self, api, directory, route):
        write(api, f"{directory}/a", "x")
        error = relocate_fails(api, route, 500, "FILESYSTEM_ERROR", f"{directory}/a", f"{directory}/no/b")
        old, new = KEYS[route]
        assert error["context"][old] == f"{directory}/a" and error["context"][new] == f"{directory}/no/b"
        assert error["context"]["exitCode"] == 1 and error["context"]["stderr"].startswith("mv: ")
        assert names(api, directory) == ["a"]

    def test_missing_source(self, api, directory, route):
        relocate_fails(api, route, 404, "FILE_NOT_FOUND", f"{directory}/a", f"{directory}/b")

    @pytest.mark.parametrize("bad", ["", None, "a\0b", "x" * 4097])
    def test_invalid_path(self, api, directory, route, bad):
        error = relocate_fails(api, route, 500, "SECURITY_VALIDATION_FAILED", bad, f"{directory}/b")
        assert error["context"][KEYS[route][1]] == f"{directory}/b"
        assert len(error["context"]["errors"]) == 1 and isinstance(error["context"]["errors"][0], str)

    def test_directory_into_itself(self, api, directory, route):
        sh(api, f"mkdir -p {directory}/d/e")
        relocate_fails(api, route, 500, "FILESYSTEM_ERROR", f"{directory}/d", f"{directory}/d/e")
        assert names(api, directory, recursive=True) == ["d", "d/e"]

    def test_onto_a_directory_with_content(self, api, directory, route):
        sh(api, f"mkdir -p {directory}/a {directory}/b/a/full")
        relocate_fails(api, route, 409, "FILE_EXISTS", f"{directory}/a", f"{directory}/b")
        assert names(api, directory) == ["a", "b"]

    def test_onto_itself(self, api, directory, route):
        write(api, f"{directory}/a", "x")
        relocate_fails(api, route, 409, "FILE_EXISTS", f"{directory}/a", f"{directory}/a")
        assert read(api, f"{directory}/a")["content"] == "x"

    def test_onto_another_name_of_the_file(self, api, directory, route):
        write(api, f"{directory}/a", "x")
        sh(api, f"ln {directory}/a {directory}/b")
        relocate(api, route, f"{directory}/a", f"{directory}/b")
        assert names(api, directory) == ["b"]

    def test_dangling_symlink(self, api, directory, route):
        sh(api, f"ln -s nowhere {directory}/l")
        relocate(api, route, f"{directory}/l", f"{directory}/m")
        assert sh(api, f"readlink {directory}/m") == "nowhere"

    def test_relative_paths(self, api, directory, session, route):
        write(api, f"{directory}/a", "x")
        api.run(f"cd {directory}", session)
        answer = relocate(api, route, "a", "b", sessionId=session)
        assert (answer["path"], answer["newPath"]) == ("a", "b")
        assert names(api, directory) == ["b"]

    def test_file_to_another_file_system(self, api, directory, elsewhere, route):
        data = bytes(range(256)) * 9000
        write(api, f"{directory}/a.bin", data)
        sh(api, f"chmod 640 {directory}/a.bin; touch -d 2001-02-03T04:05:06.789 {directory}/a.bin")
        before = sh(api, f"stat -c %a:%y:%s {directory}/a.bin; sha256sum <{directory}/a.bin")
        relocate(api, route, f"{directory}/a.bin", elsewhere)
        assert sh(api, f"stat -c %a:%y:%s {elsewhere}/a.bin; sha256sum <{elsewhere}/a.bin") == before
        assert names(api, directory) == [] and names(api, elsewhere, includeHidden=True) == ["a.bin"]

    def test_tree_to_another_file_system(self, api, directory, elsewhere, route):
        sh(
            api,
            f"""cd {directory} && mkdir -p t/sub/deep t/locked && echo 1 >t/a && echo 2 >t/sub/deep/b &&
            ln -s a t/link && ln -s /etc t/sub/out && mkfifo t/pipe && chmod 700 t/sub && chmod 755 t/sub/deep/b &&
            : >t/locked/f && chmod 555 t/locked && touch -d 2001-02-03T04:05:06 t/sub/deep/b t/sub t &&
            touch -h -d 2002-02-03T04:05:06 t/link""",
        )
        look = "cd {} && find t -printf '%P %y %m %TF %TT %l\\n' | sort"
        before = sh(api, look.format(directory))
        relocate(api, route, f"{directory}/t", elsewhere)
        assert sh(api, look.format(elsewhere)) == before
        assert names(api, directory, includeHidden=True) == []
        assert sh(api, "test -d /etc && echo kept") == "kept"

    def test_sparse_file_to_another_file_system(self, api, directory, elsewhere, route):
        sh(api, f"truncate -s 300G {directory}/s; printf mid | dd of={directory}/s bs=1 seek=200000000000 conv=notrunc 2>/dev/null")
        relocate(api, route, f"{directory}/s", f"{elsewhere}/s")
        assert sh(api, f"stat -c %s {elsewhere}/s; dd if={elsewhere}/s bs=1 skip=200000000000 count=3 2>/dev/null") == "322122547200\nmid"
        assert int(sh(api, f"stat -c %b {elsewhere}/s")) < 10000


def test_move_copy_that_fails_leaves_nothing(api, directory, elsewhere):
    sh(api, f"mkdir {directory}/t; truncate -s 1000 {directory}/t/a")
    sh(api, f"mkdir -p {elsewhere}/t/full")
    relocate_fails(api, "move", 409, "FILE_EXISTS", f"{directory}/t", elsewhere)
    assert names(api, elsewhere, includeHidden=True, recursive=True) == ["t", "t/full"]
    assert names(api, directory, recursive=True) == ["t", "t/a"]
