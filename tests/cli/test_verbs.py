# SPDX-License-Identifier: Apache-2.0
"""The other verbs: listing, creating, showing, removing, raw requests, help; connection and token."""
import json
import os
import re

import pytest
from conftest import DEADLINE


def sandbox(name, **more):
    return {"id": name, "state": "running", "image": "base", "createdAt": "2026-01-02T03:04:05.678Z",
            "lastUsedAt": "2026-01-02T03:04:05.678Z", "memoryBytes": 3 << 20, "tasks": 5, "labels": {}, **more}


LIST = {"sandboxes": [sandbox("demo", labels={"team": "blue", "tier": "1"}),
                      sandbox("a-sandbox-with-quite-a-long-identifier", state="asleep", memoryBytes=None),
                      sandbox("b", labels={"team": "red"})]}


# ---- ls

def test_ls_for_programs(fake, silica):
    fake.answer("GET", "/v1/sandbox", LIST)
    r = silica.run("ls")
    assert (r.returncode, r.stderr) == (0, b"")
    rows = [line.split("\t") for line in r.stdout.decode().splitlines()]
    assert rows[0] == ["ID", "STATE", "IMAGE", "CREATED", "USED", "MEMORY", "TASKS", "LABELS"]
    assert rows[1][0:3] == ["demo", "running", "base"]
    assert rows[1][5:] == ["3 MiB", "5", "team=blue,tier=1"]
    assert rows[2][0] == "a-sandbox-with-quite-a-long-identifier"
    assert rows[2][5] == "-"
    assert re.fullmatch(r"\d+ (s|min|h|d|y)|now", rows[1][3])


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_ls_fits_the_terminal(fake, silica, columns):
    fake.answer("GET", "/v1/sandbox", LIST)
    code, shown = silica.terminal("ls", env={"COLUMNS": str(columns)})
    assert code == 0
    lines = shown.splitlines()
    assert len(lines) == 4
    if columns > 60:  # the other columns alone need more than 60
        assert max(map(len, lines)) <= columns
    assert ("a-sandbox-with-quite-a-long-identifier" in shown) == (columns == 200)


def test_ls_label_quiet_json(fake, silica):
    fake.answer("GET", "/v1/sandbox", LIST)
    assert silica.run("ls", "-q").stdout.split() == [s["id"].encode() for s in LIST["sandboxes"]]
    assert silica.run("ls", "-q", "--label", "team=blue").stdout == b"demo\n"
    assert silica.run("ls", "-q", "--label", "team=blue", "-l", "tier=2").stdout == b""
    assert json.loads(silica.run("ls", "--json").stdout) == LIST
    assert json.loads(silica.run("ls", "--json", "--label", "team=red").stdout) == {"sandboxes": [LIST["sandboxes"][2]]}


def test_ls_empty(fake, silica):
    fake.answer("GET", "/v1/sandbox", {"sandboxes": []})
    assert silica.run("ls").stdout.count(b"\n") == 1
    assert silica.run("ls", "--json").stdout == b'{"sandboxes":[]}\n'


def test_ls_of_another_server(fake, silica):
    fake.answer("GET", "/v1/sandbox", {"hello": "world"})
    r = silica.run("ls")
    assert r.returncode == 125
    assert b"is this a Silica server?" in r.stderr


# ---- create, show, rm, health

def test_create(fake, silica):
    fake.answer("PUT", "/v1/sandbox/build", sandbox("build"))
    r = silica.run("create", "build", "--image", "base", "--size", "basic", "--memory", "4G", "--disk=8G", "--cpus",
                   "1.5", "--tasks", "100", "-e", "CI=1", "-l", "team=blue", "--sleep-after", "30m", "--keep-alive")
    assert (r.returncode, r.stdout, r.stderr) == (0, b"build\n", b"")
    assert fake.requests[0].json == {
        "image": "base", "instanceType": "basic", "env": {"CI": "1"}, "labels": {"team": "blue"}, "sleepAfter": 1800,
        "keepAlive": True, "limits": {"memoryBytes": 4 << 30, "diskBytes": 8 << 30, "cpu": 1.5, "tasks": 100}}


def test_create_says_only_what_was_said(fake, silica):
    fake.answer("PUT", "/v1/sandbox/x", sandbox("x"))
    assert silica.run("create", "x").returncode == 0
    assert fake.requests[0].json == {}


def test_create_chooses_a_name(fake, silica):
    class Any(dict):
        def get(self, key, default=None):
            return lambda h, r: h.json(sandbox(r.path.rsplit("/", 1)[1]))

    fake.scripts = Any()
    names = {silica.run("create").stdout.decode().strip() for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch("[a-z0-9]{12}", name) for name in names)


@pytest.mark.parametrize("words,sentence", [
    (["--size", "baisc"], "--size: there is no size 'baisc' (did you mean 'basic'?)"),
    (["--memory", "lots"], "--memory: 'lots' is not a size; use for example 512M"),
    (["--tasks", "-1"], "--tasks: -1 is out of range"),
    (["--cpus", "two"], "--cpus: 'two' is not a number of cores"),
    (["--label", "blue"], "--label: 'blue' is not a label; write KEY=VALUE"),
    (["--sleep-after", "0s"], "--sleep-after: must be more than 0"),
    (["a", "b"], "'b' is one argument too many"),
])
def test_create_refuses(fake, silica, words, sentence):
    r = silica.run("create", *words)
    assert r.returncode == 125
    assert r.stderr.decode().startswith(f"silica create: {sentence}")
    assert not fake.requests


def test_show(fake, silica):
    fake.answer("GET", "/v1/sandbox/demo", sandbox("demo", limits={"memoryBytes": 1 << 30}, note="a\x1bb"))
    shown = dict(re.split(r":\s+", line, maxsplit=1) for line in silica.run("show", "demo").stdout.decode().splitlines())
    assert shown["id"] == "demo"
    assert shown["limits.memoryBytes"] == "1073741824 (1 GiB)"
    assert shown["createdAt"].startswith("2026-01-02T03:04:05.678Z (")
    assert shown["note"] == "a?b"
    assert json.loads(silica.run("show", "demo", "--json").stdout)["limits"] == {"memoryBytes": 1 << 30}


def test_show_of_nothing(fake, silica):
    fake.answer("GET", "/v1/sandbox/demo", {"code": "SANDBOX_NOT_FOUND", "message": "there is no sandbox 'demo'"}, 404)
    r = silica.run("show", "demo")
    assert (r.returncode, r.stderr) == (125, b"silica show: there is no sandbox 'demo'\n")


def test_rm_goes_on_after_a_failure(fake, silica):
    fake.answer("DELETE", "/v1/sandbox/a", {"success": True})
    fake.answer("DELETE", "/v1/sandbox/b", {"code": "SANDBOX_NOT_FOUND", "message": "there is none"}, 404)
    fake.on("DELETE", "/v1/sandbox/c")(lambda h, r: (h.send_response(204), h.end_headers()))
    r = silica.run("rm", "a", "b", "c")
    assert (r.returncode, r.stdout, r.stderr) == (125, b"a\nc\n", b"silica rm: b: there is none\n")
    assert fake.connections == 1  # kept between requests


def test_kept_connection_may_be_closed_by_the_server(fake, silica):
    def script(h, r):
        h.json({"success": True})
        h.close_connection = True  # without saying so

    for name in "abc":
        fake.scripts["DELETE", f"/v1/sandbox/{name}"] = script
    assert silica.run("rm", "a", "b", "c").stdout == b"a\nb\nc\n"


def test_rm_all(fake, silica):
    fake.answer("GET", "/v1/sandbox", LIST)
    for s in LIST["sandboxes"]:
        fake.answer("DELETE", f"/v1/sandbox/{s['id']}", {"success": True})
    code, shown = silica.terminal("rm", "--all", type_in=b"n\n")
    assert code == 125
    assert "Remove 3 sandboxes with all processes and files? [y/N]" in shown
    assert "nothing was removed" in shown
    assert [r.method for r in fake.requests] == ["GET"]

    code, shown = silica.terminal("rm", "--all", type_in=b"y\n")
    assert code == 0
    assert sum(r.method == "DELETE" for r in fake.requests) == 3
    code, shown = silica.terminal("rm", "--all", "--yes")
    assert (code, "[y/N]" in shown) == (0, False)
    assert silica.run("rm", "--all").returncode == 0  # nobody is there to be asked
    assert sum(r.method == "DELETE" for r in fake.requests) == 9


def test_rm_needs_a_name(fake, silica):
    assert b"the id of a sandbox (or --all) is missing" in silica.run("rm").stderr
    assert silica.run("rm", "--all", "demo").returncode == 125
    assert not fake.requests


def test_health(fake, silica):
    fake.answer("GET", "/health", {"status": "ok", "version": "1.2.3"})
    r = silica.run("health")
    assert r.returncode == 0
    assert re.search(rb"^status: +ok$", r.stdout, re.M)
    assert json.loads(silica.run("health", "--json").stdout) == {"status": "ok", "version": "1.2.3"}


# ---- api

def test_api(fake, silica):
    @fake.on("POST", "/v1/x")
    def script(h, r):
        h.raw(b"<" + r.body + b">", "text/plain")

    assert silica.run("api", "POST", "/v1/x?a=b", "-d", '{"a":1}').stdout == b'<{"a":1}>'
    assert fake.requests[0].headers["Content-Type"] == "application/json"
    assert fake.requests[0].path == "/v1/x?a=b"
    big = os.urandom(5 << 20)
    r = silica.run("api", "POST", "/v1/x", "-d", "@-", "-H", "content-type: application/octet-stream", input=big)
    assert r.stdout == b"<" + big + b">"
    assert fake.requests[1].headers.get_all("Content-Type") == ["application/octet-stream"]


def test_api_error_status(fake, silica):
    fake.answer("GET", "/nope", {"code": "X"}, 404)
    r = silica.run("api", "-i", "GET", "/nope")
    assert (r.returncode, r.stdout) == (125, b'{"code": "X"}')
    assert r.stderr == b"HTTP 404 application/json\nsilica api: the server answered with HTTP status 404\n"


@pytest.mark.parametrize("words", [[], ["GET"], ["get", "/x"], ["GET", "x"], ["GET", "/x", "y"], ["GET", "/a b"],
                                   ["GET", "/x", "-H", "no colon"], ["GET", "/x", "-d", "@/nonexistent"]])
def test_api_refuses(fake, silica, words):
    r = silica.run("api", *words)
    assert r.returncode == 125
    assert r.stderr.startswith(b"silica api: ")
    assert not fake.requests


# ---- where the server is, and the token

def test_connection_refused(silica, closed_port):
    r = silica.run("ls", "--url", f"http://127.0.0.1:{closed_port}")
    assert r.returncode == 125
    assert r.stderr.decode() == (f"silica ls: cannot connect to http://127.0.0.1:{closed_port}: Connection refused\n"
                                 "Is 'silica serve' running there? Another place is named with --url or SILICA_URL.\n")


def test_url_that_cannot_be(fake, silica):
    assert b"https is not supported yet" in silica.run("ls", "--url", "https://x:1").stderr
    r = silica.run("ls", env={"SILICA_URL": "127.0.0.1:80"})
    assert r.returncode == 125
    assert b"it begins with http:// or unix:" in r.stderr


def test_unix_socket(unix_fake, silica):
    unix_fake.answer("GET", "/v1/sandbox", {"sandboxes": []})
    assert silica.run("ls", "--url", unix_fake.url).returncode == 0
    assert unix_fake.requests[0].headers["Host"] == "localhost"
    r = silica.run("ls", "--url", "unix:/nonexistent.sock")
    assert b"cannot connect to unix:/nonexistent.sock: No such file or directory" in r.stderr


def test_base_path(fake, silica):
    fake.answer("GET", "/silica/v1/sandbox", {"sandboxes": []})
    assert silica.run("ls", "--url", fake.url + "/silica/").returncode == 0


def test_what_answers_is_not_http(silica, tmp_path):
    import socket
    import threading
    with socket.create_server(("127.0.0.1", 0)) as server:
        def talk():
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH\r\n")
                connection.recv(1000)
        thread = threading.Thread(target=talk)
        thread.start()
        r = silica.run("ls", "--url", f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join()
    assert r.returncode == 125
    assert b"does not speak HTTP" in r.stderr


def token_seen(fake, silica, *words, **kwargs):
    fake.requests.clear()
    fake.answer("GET", "/v1/sandbox", {"sandboxes": []})
    r = silica.run(*words, **kwargs)
    assert r.returncode == 0, r.stderr
    return fake.requests[0].headers.get("Authorization")


def test_token_is_found(fake, silica, tmp_path):
    assert token_seen(fake, silica, "ls") is None
    (silica.data / "admin.token").write_text("from-data\n")
    assert token_seen(fake, silica, "ls") == "Bearer from-data"
    env = {"SILICA_TOKEN": "from-env"}
    assert token_seen(fake, silica, "ls", env=env) == "Bearer from-env"
    assert token_seen(fake, silica, "ls", "--token", "from-flag", env=env) == "Bearer from-flag"
    file = tmp_path / "file"
    file.write_text("from-file\r\n")
    assert token_seen(fake, silica, "ls", "--token-file", str(file), env=env) == "Bearer from-file"
    assert token_seen(fake, silica, "--token", "early", "ls", env=env) == "Bearer early"


def test_token_of_this_machine_stays_here(fake, silica):
    (silica.data / "admin.token").write_text("secret\n")
    elsewhere = f"http://0.0.0.0:{fake.port}"  # reaches us, and is not the name of a loopback address
    assert token_seen(fake, silica, "ls", "--url", elsewhere) is None
    assert token_seen(fake, silica, "ls", "--url", elsewhere, "--token", "x") == "Bearer x"


def test_token_problems(fake, silica, tmp_path):
    r = silica.run("ls", "--token-file", str(tmp_path / "none"))
    assert b"cannot read the token file" in r.stderr
    (tmp_path / "empty").touch()
    assert b"is empty" in silica.run("ls", "--token-file", str(tmp_path / "empty")).stderr
    assert b"contains a character that no token has" in silica.run("ls", "--token", "a\nb").stderr
    assert not fake.requests


def test_unauthorized_says_what_to_do(fake, silica):
    fake.answer("GET", "/v1/sandbox", {"code": "UNAUTHORIZED", "message": "wrong token"}, 401)
    r = silica.run("ls")
    assert r.returncode == 125
    assert b"admin.token' cannot be read: No such file or directory" in r.stderr
    assert b"--token-file or SILICA_TOKEN" in r.stderr
    assert b"does not let us in: wrong token" in silica.run("ls", "--token", "x").stderr


# ---- help and the table of verbs

VERBS = ["serve", "doctor", "exec", "ls", "create", "show", "rm", "health", "api", "help"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_teaches(silica, verb):
    r = silica.run("help", verb)
    assert (r.returncode, r.stderr) == (0, b"")
    text = r.stdout.decode()
    assert text.startswith(f"silica {verb}: ")
    assert f"\nUsage: silica {verb}" in text
    examples = text.split("\nExamples:\n")[1].splitlines()
    assert len(examples) >= 2 and all(line.startswith("  ") for line in examples)
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize("verb", [v for v in VERBS if v not in ("serve", "doctor")])
def test_help_flag(silica, verb):
    expected = silica.run("help", verb).stdout
    for flag in ("-h", "--help"):
        r = silica.run(verb, flag)
        assert (r.returncode, r.stdout) == (0, expected)


def test_overview(silica):
    overview = silica.run("help").stdout.decode()
    assert all(re.search(rf"^  {verb} ", overview, re.M) for verb in VERBS)
    for words in ([], ["-h"], ["--help"]):
        r = silica.run(*words)
        assert (r.returncode, r.stdout.decode()) == (0, overview)


def test_version(silica):
    for flag in ("--version", "-V"):
        r = silica.run(flag)
        assert r.returncode == 0
        assert re.fullmatch(rb"silica \S+\n", r.stdout)


@pytest.mark.parametrize("words,sentence", [
    (["exce"], "silica: unknown command 'exce' (did you mean 'exec'?)\nTry 'silica help'.\n"),
    (["frobnicate"], "silica: unknown command 'frobnicate'\nTry 'silica help'.\n"),
    (["help", "lst"], "silica: unknown command 'lst' (did you mean 'ls'?)\nTry 'silica help'.\n"),
    (["--ulr", "x", "ls"], "silica: unknown option '--ulr' (did you mean '--url'?)\nTry 'silica help'.\n"),
    (["ls", "--jsn"], "silica ls: unknown option '--jsn' (did you mean '--json'?)\nTry 'silica help ls'.\n"),
    (["ls", "demo"], "silica ls: 'demo' is one argument too many\nTry 'silica help ls'.\n"),
    (["ls", "--token"], "silica ls: option '--token' needs a value (TOKEN)\nTry 'silica help ls'.\n"),
    (["token"], "silica token: create, ls or rm is missing\nTry 'silica help token'.\n"),
    (["volume", "craete", "x"], "silica volume: 'craete' is not create, ls, inspect or rm (did you mean 'create'?)\nTry 'silica help volume'.\n"),
    (["volume", "rm"], "silica volume: the name of a volume is missing\nTry 'silica help volume'.\n"),
    (["volume", "ls", "x"], "silica volume: 'x' is one argument too many\nTry 'silica help volume'.\n"),
    (["volume", "create", "x", "--size", "big"], "silica volume: --size: 'big' is not a size; use for example 512M, 2G or 1.5GiB\nTry 'silica help volume'.\n"),
    (["token", "create", "admin", "--expires", "soon"], "silica token: --expires: 'soon' is not a duration; use for example 500ms, 10s, 1m30s or 2h\nTry 'silica help token'.\n"),
    (["net", "show"], "silica net: the id of the sandbox is missing\nTry 'silica help net'.\n"),
    (["net", "frob", "demo"], "silica net: 'frob' is not show, mode, allow, deny or log\nTry 'silica help net'.\n"),
    (["image", "--json", "build", "."], "silica image: the options of build stand behind the word 'build'\n"),
    (["image", "save", "demo"], "silica image: a name for the image is missing\nTry 'silica help image'.\n"),
    (["events", "--sandbox", "a b"], "silica events: a sandbox id is made of letters, digits, '-', '_' and '.'\nTry 'silica help events'.\n"),
    (["logs", "a/b", "p"], "silica logs: a sandbox id is made of letters, digits, '-', '_' and '.'\nTry 'silica help logs'.\n"),
    (["expose", "demo", "eighty"], "silica expose: the port: 'eighty' is not a whole number\nTry 'silica help expose'.\n"),
    (["wake"], "silica wake: the id of a sandbox is missing\nTry 'silica help wake'.\n"),
])
def test_mistakes_are_answered(fake, silica, words, sentence):
    r = silica.run(*words)
    assert (r.returncode, r.stdout, r.stderr.decode()) == (125, b"", sentence)
    assert not fake.requests


def test_global_options_on_both_sides(fake, silica):
    fake.answer("GET", "/v1/sandbox", {"sandboxes": []})
    silica.url = None
    assert silica.run("--url", fake.url, "ls", "--json").returncode == 0
    assert silica.run("ls", "--json", f"--url={fake.url}").returncode == 0


def test_output_that_cannot_be_written(fake, silica):
    fake.answer("GET", "/v1/sandbox", LIST)
    with open("/dev/full", "wb") as full:
        p = silica.start("ls", stdout=full)
        _, err = p.communicate(timeout=DEADLINE)
    assert p.returncode == 125
    assert err == b"silica: cannot write the output: No space left on device\n"


def test_verbs_for_programs_are_hidden(silica):
    assert b"gateway" not in silica.run("help").stdout
    assert b"unknown command 'gateway'" in silica.run("help", "gateway").stderr
