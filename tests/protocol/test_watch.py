# SPDX-License-Identifier: Apache-2.0
"""File watching: POST /api/watch and POST /api/watch/check."""
import contextlib
import itertools
import re
import threading
import time

import pytest

from streams import EventStream

SESSIONLESS = "__DISABLE_SESSION__"


def sh(api, command):
    result = api.run(command, SESSIONLESS, cwd="/")
    assert result["exitCode"] == 0, result
    return result["stdout"].strip()


@pytest.fixture
def tree(api):
    """A directory below /workspace."""
    path = sh(api, "mkdir -p /workspace && mktemp -d /workspace/watch-XXXXXX")
    yield path
    sh(api, f"rm -rf {path}; rmdir /workspace 2>/dev/null; true")


def watch(api, path, **fields):
    stream = EventStream(api, "/api/watch", {"path": path, **fields})
    first = stream.next()
    assert first["type"] == "watching", first
    return stream


def short(events, tree):
    """(type of event, path below the tree) of all file events."""
    return [(e["eventType"], e["path"][len(tree) + 1 :]) for e in events if e["type"] == "event"]


def until_path(stream, path, kind=None):
    return stream.until(lambda e: e.get("path") == path and kind in (None, e["eventType"]))


def changes(api, tree, command, **fields):
    """All events of a command run in the tree, up to a mark that is made last."""
    with watch(api, tree, **fields) as stream:
        sh(api, f"cd {tree} && {command}")
        time_mark = f"{tree}/mark"
        sh(api, f"touch {time_mark}")
        return short(until_path(stream, time_mark, "create"), tree)[:-1]


# ------------------------------------------------------------------ the stream


def test_watching_comes_first_with_resolved_path_and_id(api, tree):
    with EventStream(api, "/api/watch", {"path": tree + "/./x/.."}) as stream:
        first = stream.next()
    assert first["path"] == tree
    assert re.fullmatch(r"watch-\d+-\d{13}", first["watchId"])
    assert first["type"] == "watching"


def test_relative_path_is_below_workspace(api, tree):
    with EventStream(api, "/api/watch", {"path": f"  {tree[len('/workspace/'):]} "}) as stream:
        assert stream.next()["path"] == tree


def test_headers(api, tree):
    with EventStream(api, "/api/watch", {"path": tree}) as stream:
        assert stream.response.headers["Content-Type"] == "text/event-stream"
        assert stream.response.headers["Cache-Control"] == "no-cache"


def test_create_modify_delete(api, tree):
    assert changes(api, tree, "echo a > f && rm f") == [("create", "f"), ("modify", "f"), ("delete", "f")]


def test_event_shape(api, tree):
    with watch(api, tree) as stream:
        sh(api, f"mkdir {tree}/d; touch {tree}/f")
        events = until_path(stream, f"{tree}/f", "create")
    directory, file = events[0], events[-1]
    assert set(file) == {"type", "eventType", "path", "isDirectory", "timestamp"}
    assert directory["isDirectory"] is True and file["isDirectory"] is False
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", file["timestamp"])


def test_moves(api, tree):
    assert changes(api, tree, "touch a && mv a b") == [("create", "a"), ("move_from", "a"), ("move_to", "b")]


def test_attrib_only_on_request(api, tree):
    sh(api, f"touch {tree}/f")
    assert changes(api, tree, "chmod 600 f") == []
    assert ("attrib", "f") in changes(api, tree, "rm mark; chmod 640 f", events=["attrib", "create"])


def test_events_choose(api, tree):
    assert changes(api, tree, "echo a > f && rm f", events=["delete", "create"]) == [("create", "f"), ("delete", "f")]


def test_new_directories_are_watched(api, tree):
    got = changes(api, tree, "mkdir -p a/b/c && echo x > a/b/c/f && sleep 0.3 && echo y > a/b/c/g")
    for path in ("a", "a/b", "a/b/c", "a/b/c/f", "a/b/c/g"):
        assert ("create", path) in got


def test_files_of_a_directory_that_is_moved_in(api, tree):
    outside = sh(api, "mktemp -d /workspace/out-XXXXXX")
    try:
        sh(api, f"mkdir -p {outside}/d/e && touch {outside}/d/e/f")
        got = changes(api, tree, f"mv {outside}/d . && sleep 0.3 && touch d/e/g")
    finally:
        sh(api, f"rm -rf {outside}")
    assert got[0] == ("move_to", "d")
    assert ("create", "d/e/f") in got and ("create", "d/e/g") in got


def test_moved_directory_has_its_new_name(api, tree):
    sh(api, f"mkdir -p {tree}/a/b/c {tree}/x")
    got = changes(api, tree, "mv a/b x/new && touch x/new/c/f")
    assert got == [("move_from", "a/b"), ("move_to", "x/new"), ("create", "x/new/c/f")]


def test_directory_moved_out_is_no_longer_watched(api, tree):
    outside = sh(api, "mktemp -d /workspace/out-XXXXXX")
    try:
        sh(api, f"mkdir -p {tree}/a/b")
        got = changes(api, tree, f"mv a {outside}/a && sleep 0.4 && touch {outside}/a/b/f")
    finally:
        sh(api, f"rm -rf {outside}")
    assert got == [("move_from", "a")]


def test_deleted_and_made_again(api, tree):
    sh(api, f"mkdir -p {tree}/a/b")
    got = changes(api, tree, "rm -r a && mkdir -p a/b && sleep 0.3 && touch a/b/f")
    assert got[:2] == [("delete", "a/b"), ("delete", "a")]
    assert ("create", "a/b/f") in got


def test_not_recursive(api, tree):
    sh(api, f"mkdir {tree}/a")
    got = changes(api, tree, "touch a/f && touch g && mkdir b && touch b/h", recursive=False)
    assert got == [("create", "g"), ("create", "b")]


def test_symbolic_links_are_not_followed(api, tree):
    outside = sh(api, "mktemp -d /workspace/out-XXXXXX")
    try:
        got = changes(api, tree, f"ln -s {outside} link && sleep 0.2 && touch link/f")
    finally:
        sh(api, f"rm -rf {outside}")
    assert got == [("create", "link")]


def test_watching_a_file(api, tree):
    sh(api, f"touch {tree}/f")
    with watch(api, f"{tree}/f") as stream:
        sh(api, f"echo a >> {tree}/f; echo b > {tree}/other; rm {tree}/f")
        events = stream.rest()
    assert [e.get("eventType", e["type"]) for e in events] == ["modify", "delete", "stopped"]
    assert events[0]["path"] == f"{tree}/f"


def test_stopped_when_the_path_is_deleted(api, tree):
    sh(api, f"mkdir {tree}/d")
    with watch(api, f"{tree}/d") as stream:
        sh(api, f"rmdir {tree}/d")
        events = stream.rest()
    assert events[-1]["type"] == "stopped" and events[-1]["reason"]
    assert events[0]["eventType"] == "delete"


def test_names_of_any_bytes(api, tree):
    got = changes(api, tree, r"""touch 'a "b"' $'c\nd' é""")
    assert got == [("create", 'a "b"'), ("create", "c\nd"), ("create", "é")]


def test_equal_events_collapse(api, tree):
    got = changes(api, tree, "for i in {1..200}; do echo $i >> f; done")
    assert got.count(("create", "f")) == 1
    assert got.count(("modify", "f")) < 200


def make_many(api, tree):
    """20000 files, not all at once: the kernel would drop what an agent that has no processor does not read. Their names are long: a
    connection that nobody reads takes some megabytes before it is full."""
    path = f"{tree}/{'x' * 200}"
    sh(api, f"mkdir {path}")
    for first in range(1, 20001, 2000):
        sh(api, f"cd {path} && seq -f '%g-{'y' * 200}' {first} {first + 1999} | xargs touch")


def test_at_most_1000_pending_and_the_rest_is_counted(api, tree):
    with watch(api, tree, events=["create"]) as stream:
        make_many(api, tree)
        events = stream.until(lambda e: "dropped" in e or e["type"] == "error")
    assert events[-1]["type"] == "event"
    assert events[-1]["dropped"] > 0
    assert len(events) >= 1000


def test_a_slow_reader_does_not_stop_the_rest(api, tree):
    with watch(api, tree) as slow:
        make_many(api, tree)
        with watch(api, tree) as stream, touching(api, tree):  # more than once: the agent may still be at the flood, which is counted, not told
            stream.until(lambda e: e.get("path", "").startswith(f"{tree}/touched-") and e["eventType"] == "create")
        assert slow.next()["type"] == "event"


@contextlib.contextmanager
def touching(api, tree):
    """Makes one file after the other until the block ends."""
    over = threading.Event()

    def work():
        for i in itertools.count():
            sh(api, f"touch {tree}/touched-{i}")
            if over.wait(0.2):
                return

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# ------------------------------------------------------------------ patterns


def test_default_excludes(api, tree):
    got = changes(api, tree, "mkdir .git node_modules && touch .git/a node_modules/b .DS_Store .gitignore")
    assert got == [("create", ".gitignore")]


def test_exclude_replaces_the_default(api, tree):
    assert changes(api, tree, "mkdir node_modules && touch a.log b", exclude=["*.log"]) == [
        ("create", "node_modules"),
        ("create", "b"),
    ]


def test_empty_exclude_excludes_nothing(api, tree):
    assert ("create", "node_modules") in changes(api, tree, "mkdir node_modules", exclude=[])


def test_include_keeps_only_matching_paths(api, tree):
    with watch(api, tree, include=["*.ts", "src"]) as stream:
        sh(api, f"cd {tree} && mkdir -p src/lib other && sleep 0.3 && touch a.ts b.js src/lib/c other/d.tsx other/end.ts")
        got = short(until_path(stream, f"{tree}/other/end.ts", "create"), tree)
    assert {path for _, path in got} == {"src", "src/lib", "a.ts", "src/lib/c", "other/end.ts"}


def test_stars_and_question_marks(api, tree):
    sh(api, f"mkdir -p {tree}/a/b/c")
    got = changes(api, tree, "touch a/x1 a/xy a/b/c/z a/x12", exclude=["a/x?", "a/**/z"])
    assert got == [("create", "a/x12")]


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize("route", ["/api/watch", "/api/watch/check"])
@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "7",
        {},
        {"path": 7},
        {"path": "  "},
        {"path": "/workspace/\0"},
        {"path": "/workspace", "recursive": "yes"},
        {"path": "/workspace", "include": "a"},
        {"path": "/workspace", "include": [7]},
        {"path": "/workspace", "include": [" "]},
        {"path": "/workspace", "include": ["a\0b"]},
        {"path": "/workspace", "exclude": ["[ab]"]},
        {"path": "/workspace", "exclude": ["{a,b}"]},
        {"path": "/workspace", "include": ["a"], "exclude": ["b"]},
        {"path": "/workspace", "events": ["close"]},
        {"path": "/workspace", "include": ["x" * 5000]},
    ],
)
def test_refused(api, tree, route, body):
    response = api.post(route, body)
    assert response.status == 400
    assert response.json["code"] == "VALIDATION_FAILED"
    assert response.json["suggestion"]


def test_include_with_an_empty_exclude_is_fine(api, tree):
    assert changes(api, tree, "touch a.ts b", include=["*.ts", "mark"], exclude=[]) == [("create", "a.ts")]


@pytest.mark.parametrize("path", ["/etc", "../etc", "/workspace/../etc", "/workspacex", "/"])
def test_outside_of_the_workspace(api, tree, path):
    response = api.post("/api/watch", {"path": path})
    assert response.status == 403
    error = response.json
    assert error["code"] == "PERMISSION_DENIED"
    assert error["context"]["path"] == path
    assert error["context"]["workspaceRoot"] == "/workspace"
    assert error["context"]["resolvedPath"].startswith("/")


def test_missing_path(api, tree):
    response = api.post("/api/watch", {"path": f"{tree}/none"})
    assert response.status == 404
    assert response.json["code"] == "FILE_NOT_FOUND"
    assert response.json["context"] == {"path": f"{tree}/none"}


# ------------------------------------------------------------------ sharing


def test_equal_requests_share_a_watcher(api, tree):
    with EventStream(api, "/api/watch", {"path": tree, "exclude": ["a", "b", "a"]}) as one, EventStream(
        api, "/api/watch", {"path": tree + "/", "exclude": ["b", "a"], "recursive": True}
    ) as two, EventStream(api, "/api/watch", {"path": tree, "exclude": ["b"]}) as other:
        first, second, third = one.next(), two.next(), other.next()
        assert first["watchId"] == second["watchId"] != third["watchId"]
        sh(api, f"touch {tree}/f")
        for stream in (one, two, other):
            until_path(stream, f"{tree}/f", "create")


def test_a_watcher_ends_with_its_last_subscriber(api, tree):
    with EventStream(api, "/api/watch", {"path": tree}) as one:
        first = one.next()["watchId"]
    deadline = time.monotonic() + 60
    while True:  # the server notices in its own time
        with EventStream(api, "/api/watch", {"path": tree}) as two:
            if two.next()["watchId"] != first:
                return
        assert time.monotonic() < deadline


# ------------------------------------------------------------------ check


def check(api, tree, since=None, **fields):
    body = {"path": tree, **fields}
    if since is not None:
        body["since"] = since
    response = api.post("/api/watch/check", body)
    assert response.status == 200, response.body
    result = response.json
    assert result["success"] is True and result["timestamp"]
    assert re.fullmatch(r"watch-\d+-\d+:\d+", result["version"])
    return result


def test_check_without_since_is_unchanged(api, tree):
    result = check(api, tree)
    assert result["status"] == "unchanged"
    assert result["version"].endswith(":0")
    assert "reason" not in result


def test_check_sees_changes_at_once(api, tree):
    version = check(api, tree)["version"]
    assert check(api, tree, version)["status"] == "unchanged"
    for i in range(20):
        sh(api, f"mkdir -p {tree}/d{i}; touch {tree}/d{i}/f")
        result = check(api, tree, version)
        assert result["status"] == "changed"
        assert int(result["version"].split(":")[1]) > int(version.split(":")[1])
        version = result["version"]
        assert check(api, tree, version)["status"] == "unchanged"


def test_check_ignores_what_is_excluded(api, tree):
    version = check(api, tree)["version"]
    sh(api, f"mkdir {tree}/node_modules; touch {tree}/node_modules/x")
    assert check(api, tree, version)["status"] == "unchanged"


def test_check_with_an_unknown_id_wants_a_resync(api, tree):
    result = check(api, tree, "watch-0-1:5")
    assert (result["status"], result["reason"]) == ("resync", "expired")
    result = check(api, tree, "watch-0-1:5")
    assert (result["status"], result["reason"]) == ("resync", "restarted")


@pytest.mark.parametrize("since", ["", "  ", "x", "x:", ":7", "x:y", 7, "watch\0:1"])
def test_check_refuses_malformed_versions(api, tree, since):
    response = api.post("/api/watch/check", {"path": tree, "since": since})
    assert response.status == 400
    assert response.json["code"] == "VALIDATION_FAILED"


def test_check_refuses_the_future(api, tree):
    version = check(api, tree)["version"]
    response = api.post("/api/watch/check", {"path": tree, "since": version.split(":")[0] + ":99"})
    assert response.status == 400


def test_check_and_stream_share(api, tree):
    version = check(api, tree)["version"]
    with EventStream(api, "/api/watch", {"path": tree}) as stream:
        assert stream.next()["watchId"] == version.split(":")[0]
    sh(api, f"touch {tree}/f")
    assert check(api, tree, version)["status"] == "changed"


def test_check_after_the_path_was_made_anew(api, tree):
    sh(api, f"mkdir {tree}/d")
    version = check(api, f"{tree}/d")["version"]
    sh(api, f"rmdir {tree}/d && mkdir {tree}/d")
    result = check(api, f"{tree}/d", version)
    assert result["status"] == "resync"
    sh(api, f"touch {tree}/d/f")
    assert check(api, f"{tree}/d", result["version"])["status"] == "changed"


# ------------------------------------------------------------------ limits


def test_overflow_of_the_kernel_queue_is_an_error(own_agent):
    """FSX-19: the agent is stopped while more happens than the kernel remembers."""
    import os
    import pathlib
    import signal
    import tempfile

    process, api = own_agent()
    pathlib.Path("/workspace").mkdir(exist_ok=True)
    limit = int(pathlib.Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with tempfile.TemporaryDirectory(dir="/workspace") as tree:
        with watch(api, tree) as stream:
            version = check(api, tree)["version"]
            process.send_signal(signal.SIGSTOP)
            try:
                for i in range(limit // 2 + 10):
                    path = f"{tree}/{i}"
                    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
                    os.unlink(path)
            finally:
                process.send_signal(signal.SIGCONT)
            events = stream.rest()
        assert events[-1]["type"] == "error"
        assert "lost" in events[-1]["error"]
        assert len(events) <= limit + 1
        assert check(api, tree, version)["status"] == "resync"


def test_limit_of_watches_is_an_error(own_agent):
    """The limit of a user namespace of its own is reached, and told."""
    import os
    import pathlib
    import subprocess
    import tempfile

    agent = os.environ.get("SILICA_AGENT")
    if os.geteuid() != 0 or not agent:
        pytest.skip("needs root for a user namespace with its own limit")
    wrapper = tempfile.NamedTemporaryFile("w", suffix=".sh", delete=False)
    wrapper.write(
        "#!/bin/sh\n"
        f'exec unshare --user --map-root-user sh -c \'echo 5 > /proc/sys/user/max_inotify_watches && exec "$0" "$@"\' {agent} "$@"\n'
    )
    wrapper.close()
    os.chmod(wrapper.name, 0o755)
    probe = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", "echo 5 > /proc/sys/user/max_inotify_watches"],
        capture_output=True,
    )
    if probe.returncode != 0:
        os.unlink(wrapper.name)
        pytest.skip("user namespaces cannot be made here")
    pathlib.Path("/workspace").mkdir(exist_ok=True)
    os.environ["SILICA_AGENT"] = wrapper.name
    try:
        _, api = own_agent()
        with tempfile.TemporaryDirectory(dir="/workspace") as tree:
            for i in range(10):
                os.mkdir(f"{tree}/{i}")
            with EventStream(api, "/api/watch", {"path": tree}) as stream:
                events = stream.rest()
            assert [e["type"] for e in events] == ["error"]
            assert "Too many directories" in events[0]["error"]
            response = api.post("/api/watch/check", {"path": tree})
            assert response.status == 500
            assert response.json["code"] == "WATCH_START_ERROR"
            assert response.json["context"] == {"path": tree}
            with watch(api, tree, recursive=False):
                pass
    finally:
        os.environ["SILICA_AGENT"] = agent
        os.unlink(wrapper.name)
