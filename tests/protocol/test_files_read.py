# SPDX-License-Identifier: Apache-2.0
"""POST /api/read and /api/read/stream: one test per statement of the protocol."""
import base64
import threading
import time

import pytest
from conftest import wait_until
from files import NO_SESSION, STAMP, call, fails, read, sh, write


# ---------------------------------------------------------------- read


def test_read_members(api, directory):
    write(api, f"{directory}/notes.txt", "hello\n")
    answer = read(api, f"{directory}/notes.txt")
    assert STAMP.match(answer.pop("timestamp"))
    assert answer == {
        "success": True,
        "path": f"{directory}/notes.txt",
        "content": "hello\n",
        "encoding": "utf-8",
        "isBinary": False,
        "mimeType": "text/plain",
        "size": 6,
        "exitCode": 0,
    }


def test_read_echoes_the_path_as_sent(api, directory, session):
    write(api, f"{directory}/a.txt", "x")
    api.run(f"cd {directory}", session)
    assert read(api, "./a.txt", sessionId=session)["path"] == "./a.txt"


def test_read_relative_path_follows_the_sessions_directory(api, directory, session):
    write(api, f"{directory}/deep/er/a.txt", "there")
    api.run(f"cd {directory}/deep", session)
    assert read(api, "er/a.txt", sessionId=session)["content"] == "there"
    assert read(api, "../deep/er/a.txt", sessionId=session)["content"] == "there"


def test_read_default_session(api, directory):
    write(api, f"{directory}/a.txt", "d")
    before = api.out("pwd")
    api.run(f"cd {directory}")
    try:
        response = api.post("/api/read", {"path": "a.txt"})
        assert response.json["content"] == "d"
        assert api.post("/api/read", {"path": "a.txt", "sessionId": ""}).json["content"] == "d"
    finally:
        api.run(f"cd {before}")


def test_read_looks_for_the_session_only_in_the_body(api, directory, session):
    write(api, f"{directory}/only-here.txt", "d")
    api.run(f"cd {directory}", session)
    for headers in ({"X-Session-Id": session}, {"Authorization": f"Bearer {session}"}):
        assert api.post("/api/read", {"path": "only-here.txt"}, headers=headers).status == 404
    assert api.post(f"/api/read?session={session}", {"path": "only-here.txt"}).status == 404


def test_read_sessionless_is_relative_to_workspace(api):
    if api.run("test -d /workspace -a -w /workspace", sessionId=NO_SESSION)["exitCode"] != 0:
        pytest.skip("no /workspace")
    name = f"silica-test-{time.monotonic_ns()}.txt"
    try:
        write(api, name, "w")
        assert read(api, f"/workspace/{name}")["content"] == "w"
    finally:
        call(api, "delete", path=name)


def test_read_creates_the_session(api, session):
    read(api, "/proc/version", sessionId=session)
    assert session in api.get("/api/session/list").json["data"]


def test_read_waits_for_the_running_command(api, directory, session):
    path = f"{directory}/gate"
    sh(api, f"mkfifo {path}")
    done = []
    command = threading.Thread(target=lambda: done.append(api.run(f"cat {path}; echo late >{directory}/f.txt", session)))
    command.start()
    wait_until(lambda: sh(api, f"pgrep -xf 'cat {path}' || true"), "cat runs")
    answers = []
    reader = threading.Thread(target=lambda: answers.append(read(api, f"{directory}/f.txt", sessionId=session)))
    reader.start()
    assert read(api, "/proc/version")["success"]  # another session is not held up
    assert not answers
    sh(api, f"echo go >{path}")
    command.join(60)
    reader.join(60)
    assert answers[0]["content"] == "late\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf8"])
def test_read_encoding_text_is_always_text(api, directory, encoding):
    write(api, f"{directory}/a.png", b"\x89PNG")
    answer = read(api, f"{directory}/a.png", encoding=encoding)
    assert (answer["encoding"], answer["isBinary"], answer["content"]) == ("utf-8", False, "\ufffdPNG")


def test_read_encoding_base64_is_always_base64(api, directory):
    write(api, f"{directory}/a.txt", "hello")
    answer = read(api, f"{directory}/a.txt", encoding="base64")
    assert (answer["encoding"], answer["isBinary"], answer["content"]) == ("base64", True, "aGVsbG8=")
    assert answer["mimeType"] == "text/plain" and answer["size"] == 5


@pytest.mark.parametrize("encoding", ["latin1", "", None, 7])
def test_read_other_encodings_mean_detect(api, directory, encoding):
    write(api, f"{directory}/a.png", b"\x89PNG")
    write(api, f"{directory}/a.txt", "t")
    assert read(api, f"{directory}/a.png", encoding=encoding)["encoding"] == "base64"
    assert read(api, f"{directory}/a.txt", encoding=encoding)["encoding"] == "utf-8"


def test_read_utf8_of_an_old_client_means_detect(api, directory):
    write(api, f"{directory}/a.png", b"\x89PNG")
    body = {"path": f"{directory}/a.png", "encoding": "utf8", "sessionId": NO_SESSION}
    assert api.post("/api/read", body, headers={"X-Sandbox-Id": None}).json["encoding"] == "base64"


def test_read_invalid_utf8_becomes_replacement_characters(api, directory):
    write(api, f"{directory}/a.txt", b"a\xffb\xc3(\xe2\x82")
    answer = read(api, f"{directory}/a.txt")
    assert answer["content"] == "a\ufffdb\ufffd(\ufffd"
    assert answer["size"] == 7


def test_read_drops_the_byte_order_mark(api, directory):
    write(api, f"{directory}/a.txt", b"\xef\xbb\xbfhi")
    answer = read(api, f"{directory}/a.txt")
    assert (answer["content"], answer["size"]) == ("hi", 5)


def test_read_nul_in_text(api, directory):
    write(api, f"{directory}/a.txt", "a\0b")
    assert read(api, f"{directory}/a.txt")["content"] == "a\0b"


def test_read_base64_is_padded_and_on_one_line(api, directory):
    data = bytes(range(256)) * 700 + b"x"
    write(api, f"{directory}/a.bin", data)
    answer = read(api, f"{directory}/a.bin")
    assert answer["content"] == base64.b64encode(data).decode()
    assert answer["mimeType"] == "application/octet-stream"


def test_read_follows_symlinks(api, directory):
    write(api, f"{directory}/a.txt", "t")
    sh(api, f"ln -s a.txt {directory}/link.txt")
    assert read(api, f"{directory}/link.txt")["content"] == "t"


@pytest.mark.parametrize("path", ["/tmp", "/dev/null", "/nope/nope", "/dev/zero", "/proc/version/x"])
def test_read_not_found(api, path):
    error = fails(api, "read", 404, "FILE_NOT_FOUND", path=path)
    assert error["context"] == {"path": path, "operation": "file.read"}
    assert path in error["message"] and "suggestion" in error


def test_read_pseudo_file_to_its_end(api):
    answer = read(api, "/proc/version")
    assert answer["content"].startswith("Linux version") and answer["size"] == len(answer["content"])


def test_read_limit_is_32_mib(api, directory):
    sh(api, f"truncate -s 33554432 {directory}/fits.bin; truncate -s 33554433 {directory}/large.bin")
    answer = read(api, f"{directory}/fits.bin", encoding="base64")
    assert answer["size"] == 33554432
    assert answer["content"] == base64.b64encode(bytes(33554432)).decode()
    error = fails(api, "read", 413, "FILE_TOO_LARGE", path=f"{directory}/large.bin")
    assert error["context"] == {
        "path": f"{directory}/large.bin",
        "operation": "file.read",
        "actualSize": 33554433,
        "maxSize": 33554432,
    }


def test_read_of_several_pieces_keeps_characters_whole(api, directory):
    text = "aä€😀" * 100000
    write(api, f"{directory}/long.txt", text)
    answer = read(api, f"{directory}/long.txt")
    assert answer["content"] == text and answer["size"] == len(text.encode())


MIME = {
    "text/plain": "txt text ini conf log",
    "text/markdown": "md markdown",
    "text/html": "html htm",
    "text/css": "css",
    "text/javascript": "js mjs cjs jsx ts mts cts tsx",
    "application/json": "json map",
    "application/json5": "json5",
    "text/yaml": "yaml yml",
    "application/toml": "toml",
    "application/xml": "xml",
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "application/x-sh": "sh",
    "application/x-httpd-php": "php",
    "text/x-c": "c h cc cpp",
    "text/x-java-source": "java",
    "text/x-lua": "lua",
    "application/rls-services+xml": "rs",
    "application/x-perl": "pl",
    "application/x-sql": "sql",
    "application/x-tex": "tex",
    "application/x-msdownload": "bat exe dll",
    "text/rtf": "rtf",
    "text/calendar": "ics",
    "text/x-vcard": "vcf",
    "text/vtt": "vtt",
    "text/mdx": "mdx",
    "text/less": "less",
    "text/stylus": "styl",
    "text/x-scss": "scss",
    "text/x-sass": "sass",
    "text/coffeescript": "coffee",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpg jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/avif": "avif",
    "image/tiff": "tif tiff",
    "image/x-icon": "ico",
    "image/x-ms-bmp": "bmp",
    "audio/mpeg": "mp3",
    "audio/x-wav": "wav",
    "audio/ogg": "ogg",
    "audio/x-flac": "flac",
    "audio/x-m4a": "m4a",
    "video/mp4": "mp4",
    "video/webm": "webm",
    "video/quicktime": "mov",
    "video/x-msvideo": "avi",
    "video/x-matroska": "mkv",
    "font/ttf": "ttf",
    "font/otf": "otf",
    "font/woff": "woff",
    "font/woff2": "woff2",
    "application/pdf": "pdf",
    "application/zip": "zip",
    "application/gzip": "gz",
    "application/x-tar": "tar",
    "application/x-bzip2": "bz2",
    "application/x-xz": "xz",
    "application/x-7z-compressed": "7z",
    "application/x-rar-compressed": "rar",
    "application/wasm": "wasm",
    "application/java-archive": "jar",
    "application/msword": "doc",
    "application/vnd.ms-excel": "xls",
    "application/vnd.ms-powerpoint": "ppt",
    "application/x-x509-ca-cert": "pem crt",
    "application/manifest+json": "webmanifest",
    "application/atom+xml": "atom",
    "application/rss+xml": "rss",
    "application/geo+json": "geojson",
    "application/xhtml+xml": "xhtml",
}
TEXT_APPLICATION = {"json", "toml", "xml", "x-sh", "x-httpd-php"}


def is_text(mime):
    kind, _, sub = mime.partition("/")
    return kind == "text" or sub.endswith(("+json", "+xml")) or (kind == "application" and sub in TEXT_APPLICATION)


@pytest.mark.parametrize("mime", MIME)
def test_read_mime_type_by_extension(api, directory, mime):
    for extension in MIME[mime].split():
        path = f"{directory}/file.{extension}"
        write(api, path, "x")
        answer = read(api, path)
        assert (answer["mimeType"], answer["isBinary"]) == (mime, not is_text(mime)), extension


@pytest.mark.parametrize("name", ["a.PNG", ".png", "png", "a.py", "a.go", "Makefile", "a.lock", "a.tar.nope"])
def test_read_mime_type_by_content(api, directory, name):
    write(api, f"{directory}/{name}", "plain words\n")
    answer = read(api, f"{directory}/{name}")
    assert (answer["mimeType"], answer["isBinary"]) == ("text/plain", False)


@pytest.mark.parametrize(
    "content, mime, binary",
    [
        (b"", "inode/x-empty", False),
        (b"#!/usr/bin/env python3\nx\n", "text/x-script.python", False),
        (b"#!/bin/sh\n", "text/x-shellscript", False),
        (b'{"a":[1]}', "application/json", False),
        (b"\0\1\2\3", "application/octet-stream", True),
        (b"caf\xe9\n", "application/octet-stream", True),
        (b"\x89PNG\r\n\x1a\n\0", "image/png", True),
        (b"\x1f\x8b\x08\0", "application/gzip", True),
        (b"SQLite format 3\0rest", "application/vnd.sqlite3", True),
        (b"%PDF-1.4\n", "application/pdf", True),
    ],
)
def test_read_content_types(api, directory, content, mime, binary):
    write(api, f"{directory}/unknown", content)
    answer = read(api, f"{directory}/unknown")
    assert (answer["mimeType"], answer["isBinary"]) == (mime, binary)
    expected = base64.b64encode(content).decode() if binary else content.decode()
    assert answer["content"] == expected


def test_read_of_a_program_is_binary(api):
    answer = read(api, "/bin/true")
    assert answer["mimeType"] in ("application/x-pie-executable", "application/x-executable", "application/x-sharedlib")
    assert answer["isBinary"]


# ---------------------------------------------------------------- parts (additions)


def test_read_bytes_from_offset(api, directory):
    write(api, f"{directory}/a.txt", "0123456789")
    answer = read(api, f"{directory}/a.txt", offset=3, length=4)
    assert (answer["content"], answer["size"], answer["offset"], answer["length"]) == ("3456", 10, 3, 4)
    assert read(api, f"{directory}/a.txt", offset=8)["content"] == "89"
    assert read(api, f"{directory}/a.txt", length=2)["content"] == "01"
    assert read(api, f"{directory}/a.txt", offset=99, length=1)["content"] == ""


def test_read_lines(api, directory):
    write(api, f"{directory}/a.txt", "one\ntwo\nthree\nfour")
    part = lambda **kw: read(api, f"{directory}/a.txt", **kw)["content"]
    assert part(startLine=2, endLine=3) == "two\nthree\n"
    assert part(startLine=1, endLine=1) == "one\n"
    assert part(startLine=4) == "four"
    assert part(endLine=2) == "one\ntwo\n"
    assert part(startLine=5) == ""
    answer = read(api, f"{directory}/a.txt", startLine=2, endLine=2)
    assert (answer["offset"], answer["length"], answer["size"]) == (4, 4, 18)


def test_read_lines_of_a_long_file(api, directory):
    sh(api, f"seq 1 400000 >{directory}/n.txt")
    assert read(api, f"{directory}/n.txt", startLine=399999, endLine=399999)["content"] == "399999\n"
    answer = read(api, f"{directory}/n.txt", startLine=100001, endLine=200000)
    assert answer["content"] == "".join(f"{i}\n" for i in range(100001, 200001))


def test_read_part_of_a_file_beyond_the_limit(api, directory):
    sh(api, f"truncate -s 40000000 {directory}/l.bin; printf end >>{directory}/l.bin")
    answer = read(api, f"{directory}/l.bin", offset=40000000, encoding="utf-8")
    assert (answer["content"], answer["size"]) == ("end", 40000003)
    fails(api, "read", 413, "FILE_TOO_LARGE", path=f"{directory}/l.bin", offset=1)


@pytest.mark.parametrize("fields", [{"offset": -1}, {"length": "x"}, {"startLine": 0}, {"startLine": 3, "endLine": 2}, {"offset": 1, "startLine": 1}])
def test_read_bad_part(api, fields):
    fails(api, "read", 400, "VALIDATION_FAILED", path="/proc/version", **fields)


# ---------------------------------------------------------------- read/stream


def stream(api, path, **fields):
    body = {"path": path, "sessionId": NO_SESSION, **fields}
    return [e for _, e in api.events("POST", "/api/read/stream", body)]


def test_stream_text(api, directory):
    write(api, f"{directory}/a.txt", "hällo\n")
    assert stream(api, f"{directory}/a.txt") == [
        {"type": "metadata", "mimeType": "text/plain", "size": 7, "isBinary": False, "encoding": "utf-8"},
        {"type": "chunk", "data": "hällo\n"},
        {"type": "complete", "bytesRead": 7},
    ]


def test_stream_binary_in_chunks_of_65535(api, directory):
    data = bytes(i % 251 for i in range(140000))
    write(api, f"{directory}/a.png", data)
    events = stream(api, f"{directory}/a.png")
    assert events[0] == {"type": "metadata", "mimeType": "image/png", "size": 140000, "isBinary": True, "encoding": "base64"}
    chunks = [e["data"] for e in events if e["type"] == "chunk"]
    assert [len(base64.b64decode(c)) for c in chunks] == [65535, 65535, 8930]
    assert base64.b64decode("".join(chunks)) == data
    assert events[-1] == {"type": "complete", "bytesRead": 140000}


def test_stream_characters_cut_by_chunks(api, directory):
    text = "€" * 50000  # 65535 is a multiple of 3, so shift by one
    write(api, f"{directory}/a.txt", "x" + text)
    events = stream(api, f"{directory}/a.txt")
    chunks = [e["data"] for e in events if e["type"] == "chunk"]
    assert "".join(chunks) == "x" + text
    assert len(chunks[0].encode()) == 65533  # the character at the border comes with the next chunk


def test_stream_empty_file(api, directory):
    write(api, f"{directory}/e.txt", "")
    assert [e["type"] for e in stream(api, f"{directory}/e.txt")] == ["metadata", "complete"]
    assert stream(api, f"{directory}/e.txt")[-1]["bytesRead"] == 0


def test_stream_invalid_utf8(api, directory):
    write(api, f"{directory}/a.txt", b"a\xffb\xe2\x82")
    events = stream(api, f"{directory}/a.txt")
    assert "".join(e["data"] for e in events if e["type"] == "chunk") == "a\ufffdb\ufffd"
    assert events[-1]["bytesRead"] == 5


@pytest.mark.parametrize("path", ["/nope", "/tmp", "/dev/zero", "", None, "a\0b", "x" * 5000])
def test_stream_errors_are_one_event(api, path):
    events = stream(api, path)
    assert len(events) == 1 and events[0]["type"] == "error" and events[0]["error"]
    if path in ("/nope", "/tmp"):
        assert events[0]["error"] == f"File not found: {path}"


def test_stream_bad_body_is_an_envelope(api):
    response = api.post("/api/read/stream", "{")
    assert response.status == 500 and response.json["code"] == "INTERNAL_ERROR"


def test_stream_has_no_size_limit(api, directory):
    sh(api, f"truncate -s 50000000 {directory}/l.bin")
    body = {"path": f"{directory}/l.bin", "sessionId": NO_SESSION}
    total, last = 0, None
    for _, event in api.events("POST", "/api/read/stream", body):
        if event["type"] == "chunk":
            total += len(event["data"]) // 4 * 3 - event["data"][-2:].count("=")
        last = event
    assert total == 50000000 and last == {"type": "complete", "bytesRead": 50000000}


def test_stream_of_a_pseudo_file(api):
    events = stream(api, "/proc/version")
    text = "".join(e["data"] for e in events if e["type"] == "chunk")
    assert text.startswith("Linux version") and events[0]["size"] == len(text)


def test_stream_does_not_hold_the_session(api, directory, session):
    sh(api, f"truncate -s 50000000 {directory}/l.bin")
    connection, response = api.open("POST", "/api/read/stream", {"path": f"{directory}/l.bin", "sessionId": session})
    try:
        response.readline()
        assert api.out("echo free", session) == "free"  # while nobody reads the stream
    finally:
        connection.close()
