# SPDX-License-Identifier: Apache-2.0
"""POST /api/git/checkout."""
import json
import time

import pytest

from services import free_port, python

SESSIONLESS = "__DISABLE_SESSION__"

# Serves the repositories below ROOT with git's own CGI program. /private wants me:s@cret word. Every request looks
# through the titles of all processes for the secret. /stall accepts and says nothing.
SERVER = r"""
import base64, glob, http.server, os, socketserver, subprocess, sys, time

ROOT = sys.argv[1] if len(sys.argv) > 1 else "ROOT_HERE"
SECRET = "s@cret word"

class Handler(http.server.BaseHTTPRequestHandler):
    def handle_any(self):
        for name in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                title = open(name, "rb").read()
            except OSError:
                continue
            for form in (b"s@cret", b"s%40cret", b"c0ffee-token"):
                if form in title and b"import base64" not in title:
                    print("LEAK", name, title, flush=True)
        print("request", self.path, flush=True)
        path, _, query = self.path.partition("?")
        if path.startswith("/stall"):
            time.sleep(3600)
        if path.startswith("/private/"):
            want = "Basic " + base64.b64encode(b"me:" + SECRET.encode()).decode()
            if self.headers.get("Authorization") != want:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="x"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            path = path[len("/private"):]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        env = {**os.environ, "GIT_PROJECT_ROOT": ROOT, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
               "QUERY_STRING": query, "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("Content-Type", ""),
               "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
               "GIT_PROTOCOL": self.headers.get("Git-Protocol", "")}
        out = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True).stdout
        head, _, rest = out.partition(b"\r\n\r\n")
        status, headers = 200, []
        for line in head.decode().split("\r\n"):
            name, _, value = line.partition(": ")
            if name == "Status":
                status = int(value.split()[0])
            else:
                headers.append((name, value))
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest)

    do_GET = do_POST = handle_any

    def log_message(self, *_):
        pass

class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def root(api):
    """A directory with the bare repository r.git: branches main and dev, three commits on main."""
    path = api.out("mktemp -d /tmp/git-XXXXXX", SESSIONLESS, cwd="/").strip()
    script = f"""
set -e
cd {path}
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q -b main work
cd work
for i in 1 2 3; do echo $i > f; git add f; git commit -q -m $i; done
git checkout -q -b dev
echo dev > f; git commit -q -a -m dev
git checkout -q main
git clone -q --bare . ../r.git
git -C ../r.git config uploadpack.allowFilter true
mkdir -p /workspace
"""
    result = api.run(script, SESSIONLESS, cwd="/")
    assert result["exitCode"] == 0, result
    yield path
    api.run(f"rm -rf {path}; rmdir /workspace 2>/dev/null; true", SESSIONLESS, cwd="/")


@pytest.fixture(scope="module")
def server(api, root):
    with python(api, SERVER.replace("ROOT_HERE", root)) as (name, port):
        yield name, int(port)


@pytest.fixture
def target(api, root):
    path = api.out("mktemp -d /tmp/clone-XXXXXX", SESSIONLESS, cwd="/").strip()
    yield path + "/t"
    api.run(f"rm -rf {path}", SESSIONLESS, cwd="/")


def checkout(api, url, **fields):
    headers = fields.pop("headers", None)
    return api.post("/api/git/checkout", {"repoUrl": url, **fields}, headers=headers)


def server_log(api, server):
    return api.get(f"/api/process/{server[0]}/logs").json["stdout"]


def good(api, url, **fields):
    response = checkout(api, url, **fields)
    assert response.status == 200, response.body
    return response.json


# ------------------------------------------------------------------ success


def test_answer(api, root, target, session):
    url = f"file://{root}/r.git"
    result = good(api, url, targetDir=target, sessionId=session)
    assert result.pop("timestamp").endswith("Z")
    stderr = result.pop("stderr")
    assert "Cloning into" in stderr
    assert result == {
        "success": True,
        "repoUrl": url,
        "branch": "main",
        "targetDir": target,
        "stdout": "",
        "exitCode": 0,
    }
    assert api.out(f"cat {target}/f", session) == "3"


def test_branch(api, root, target, session):
    assert good(api, f"file://{root}/r.git", branch="dev", targetDir=target, sessionId=session)["branch"] == "dev"
    assert api.out(f"cat {target}/f", session) == "dev"


def test_depth(api, root, target, session):
    good(api, f"file://{root}/r.git", depth=1, targetDir=target, sessionId=session)
    assert api.out(f"git -C {target} rev-list --count HEAD", session) == "1"


def test_without_depth_all_commits(api, root, target, session):
    good(api, f"file://{root}/r.git", targetDir=target, sessionId=session)
    assert api.out(f"git -C {target} rev-list --count HEAD", session) == "3"


def test_default_target(api, root, session):
    name = f"{root}/default-name.git"
    api.run(f"cp -r {root}/r.git {name}", session)
    try:
        assert good(api, name, sessionId=session)["targetDir"] == "/workspace/default-name"
        assert api.out("cat /workspace/default-name/f", session) == "3"
    finally:
        api.run("rm -rf /workspace/default-name", session)


def test_relative_target_follows_the_session(api, root, target, session):
    directory = target.rsplit("/", 1)[0]
    api.run(f"cd {directory}", session)
    assert good(api, f"{root}/r.git", targetDir="here", sessionId=session)["targetDir"] == "here"
    assert api.out(f"cat {directory}/here/f", session) == "3"


def test_commit_without_a_branch(api, root, target, session):
    api.run(f"git -C {root}/r.git tag v1 main~1", session)
    assert good(api, f"file://{root}/r.git", branch="v1", targetDir=target, sessionId=session)["branch"] == "v1"


def test_arguments_are_only_arguments(api, root, target, session):
    odd = target + "/it's $(touch x) \"q\""
    assert good(api, f"file://{root}/r.git", targetDir=odd, sessionId=session)["targetDir"] == odd
    assert api.run(f"ls {target}", session)["stdout"] == "it's $(touch x) \"q\""


def test_nothing_is_left_in_the_shell(api, root, target, session):
    before = api.out("set -x 2>/dev/null; { set +x; } 2>/dev/null; compgen -v; declare -F; pwd", session)
    good(api, f"file://{root}/r.git", targetDir=target, sessionId=session)
    after = api.out("set -x 2>/dev/null; { set +x; } 2>/dev/null; compgen -v; declare -F; pwd", session)
    assert before == after


@pytest.mark.parametrize("option", ["set -e", "set -u", "set -x", "set -f", "set -C", "set -o pipefail"])
def test_shell_options_do_not_matter(api, root, target, session, option):
    api.run(option, session)
    assert good(api, f"file://{root}/r.git", targetDir=target, sessionId=session)["branch"] == "main"
    assert api.run("true", session)["exitCode"] == 0


def test_sessionless(api, root, target):
    assert good(api, f"file://{root}/r.git", targetDir=target, sessionId=SESSIONLESS)["branch"] == "main"


def test_session_from_the_header(api, root, target, session):
    good(api, f"file://{root}/r.git", targetDir=target, headers={"X-Session-Id": session})
    assert session in api.get("/api/session/list").json["data"]


def test_http(api, server, target, session):
    result = good(api, f"http://127.0.0.1:{server[1]}/r.git", targetDir=target, sessionId=session)
    assert result["branch"] == "main"
    assert api.out(f"git -C {target} config remote.origin.partialclonefilter", session) == "blob:none"


def test_runs_under_the_lock(api, root, target, session):
    command = api.hand_over("POST", "/api/execute", {"command": f"sleep 0.7; ls {target}", "sessionId": session})
    good(api, f"file://{root}/r.git", targetDir=target, sessionId=session)
    assert json.loads(command.getresponse().read())["exitCode"] == 2  # it was not there yet


# ------------------------------------------------------------------ credentials


@pytest.mark.parametrize("session_kind", ["session", "sessionless"])
def test_credentials_work_and_are_never_in_a_title(api, server, target, session, session_kind):
    before = len(server_log(api, server))
    where = session if session_kind == "session" else SESSIONLESS
    url = f"http://me:s%40cret%20word@127.0.0.1:{server[1]}/private/r.git"
    result = good(api, url, targetDir=target, sessionId=where)
    assert result["repoUrl"] == url
    assert "cret" not in result["stderr"]
    log = server_log(api, server)[before:]
    assert "request /private/r.git/" in log
    assert "LEAK" not in log
    # what a later fetch needs is where git itself puts it
    assert api.out(f"git -C {target} config remote.origin.url", session) == url
    assert api.run(f"git -C {target} fetch", session)["exitCode"] == 0
    assert "LEAK" in server_log(api, server)[before:]  # a plain git shows it: the server would have seen ours


def test_own_git_configuration_stays(api, server, target, session):
    api.run("export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=clone.defaultRemoteName GIT_CONFIG_VALUE_0=mine", session)
    url = f"http://me:s%40cret%20word@127.0.0.1:{server[1]}/private/r.git"
    good(api, url, targetDir=target, sessionId=session)
    assert api.out(f"git -C {target} remote", session) == "mine"


def test_wrong_password(api, server, target, session):
    before = len(server_log(api, server))
    url = f"http://me:c0ffee-token@127.0.0.1:{server[1]}/private/r.git"
    response = checkout(api, url, targetDir=target, sessionId=session)
    assert response.status == 500
    assert response.json["code"] == "GIT_OPERATION_FAILED"
    assert b"c0ffee" not in response.body
    assert response.json["context"]["repository"] == f"http://******@127.0.0.1:{server[1]}/private/r.git"
    assert "LEAK" not in server_log(api, server)[before:]


def test_token_as_user(api, server, target, session):
    url = f"http://c0ffee-token@127.0.0.1:{server[1]}/private/r.git"
    response = checkout(api, url, targetDir=target, sessionId=session)
    assert response.status == 500
    assert b"c0ffee" not in response.body


def test_set_x_shows_no_secret(api, server, target, session):
    api.run("set -x", session)
    url = f"http://me:c0ffee-token@127.0.0.1:{server[1]}/private/r.git"
    assert b"c0ffee" not in checkout(api, url, targetDir=target, sessionId=session).body


def test_query_values_are_redacted(api, server, target, session):
    query = "token=c0ffee1&X-Amz-Signature=c0ffee2&X-Amz-Credential=c0ffee3&X-Amz-Security-Token=c0ffee4&secret=c0ffee5&password=c0ffee6&keep=me"
    response = checkout(api, f"http://127.0.0.1:{server[1]}/none.git?{query}", targetDir=target, sessionId=session)
    assert response.status >= 400
    assert b"c0ffee" not in response.body
    assert "token=REDACTED&" in response.json["context"]["repository"]
    assert "keep=me" in response.json["context"]["repository"]


def test_control_characters_in_credentials(api, session):
    response = checkout(api, "http://me:a%0ab@127.0.0.1/r.git", sessionId=session)
    assert (response.status, response.json["code"]) == (400, "INVALID_GIT_URL")


# ------------------------------------------------------------------ failures


def failure(response, status, code):
    assert response.status == status, response.body
    error = response.json
    assert error["code"] == code
    assert error["httpStatus"] == status
    assert error["message"] and error["error"] == error["message"]
    return error


def test_missing_repository(api, root, target, session):
    error = failure(checkout(api, f"file://{root}/none.git", targetDir=target, sessionId=session), 500, "GIT_OPERATION_FAILED")
    context = error["context"]
    assert context["repository"] == f"file://{root}/none.git"
    assert context["targetDir"] == target
    assert context["exitCode"] == 128
    assert "does not appear to be a git repository" in context["stderr"]


def test_repository_not_found_text(api, root, target, session):
    hook = "echo 'remote: Repository not found.' >&2; exit 128"
    api.run(f"git() {{ {hook}; }}; export -f git; timeout() {{ shift 3; \"$@\"; }}", session)
    error = failure(checkout(api, f"file://{root}/r.git", targetDir=target, sessionId=session), 404, "GIT_REPOSITORY_NOT_FOUND")
    assert error["suggestion"]


@pytest.mark.parametrize(
    "text, status, code",
    [
        ("Permission denied (publickey).", 401, "GIT_AUTH_FAILED"),
        ("Access denied", 401, "GIT_AUTH_FAILED"),
        ("it does not exist", 404, "GIT_REPOSITORY_NOT_FOUND"),
        ("path already exists", 500, "GIT_CLONE_FAILED"),
        ("error: pathspec 'x' did not match", 404, "GIT_BRANCH_NOT_FOUND"),
        ("Authentication failed", 401, "GIT_AUTH_FAILED"),
        ("bad credentials", 401, "GIT_AUTH_FAILED"),
        ("something else", 500, "GIT_CLONE_FAILED"),
    ],
)
def test_failures_by_text(api, root, target, session, text, status, code):
    api.run(f"git() {{ echo \"{text}\" >&2; return 1; }}; timeout() {{ shift 3; \"$@\"; }}", session)
    error = failure(checkout(api, f"file://{root}/r.git", targetDir=target, sessionId=session), status, code)
    assert error["context"]["exitCode"] == 1


def test_missing_branch(api, root, target, session):
    response = checkout(api, f"file://{root}/r.git", branch="none", targetDir=target, sessionId=session)
    error = failure(response, 500, "GIT_OPERATION_FAILED")
    assert "none" in error["context"]["stderr"]


def test_target_is_not_empty(api, root, target, session):
    api.run(f"mkdir -p {target} && touch {target}/f", session)
    error = failure(checkout(api, f"file://{root}/r.git", targetDir=target, sessionId=session), 500, "GIT_OPERATION_FAILED")
    assert "already exists" in error["context"]["stderr"]


def test_timeout(api, server, target, session):
    begin = time.monotonic()
    response = checkout(api, f"http://127.0.0.1:{server[1]}/stall/r.git", timeoutMs=700, targetDir=target, sessionId=session)
    error = failure(response, 502, "GIT_NETWORK_ERROR")
    assert error["context"]["exitCode"] == 124
    assert 0.6 < time.monotonic() - begin < 30
    assert api.run("echo on", session)["stdout"] == "on"


def test_timeout_text_for_clients_that_repeat(api, server, target, session):
    response = checkout(
        api, f"http://127.0.0.1:{server[1]}/stall/r.git", timeoutMs=300, targetDir=target, sessionId=session,
        headers={"X-Sandbox-Id": None},
    )
    failure(response, 502, "GIT_NETWORK_ERROR")
    assert "timed out" not in response.json["message"].lower() and "timeout" not in response.json["message"].lower()


def test_nobody_listens(api, target, session):
    response = checkout(api, f"http://127.0.0.1:{free_port(api)}/r.git", targetDir=target, sessionId=session)
    failure(response, 500, "GIT_OPERATION_FAILED")


# ------------------------------------------------------------------ hostile URLs (API-10)


@pytest.mark.parametrize(
    "url",
    [
        "--upload-pack=touch PROOF",
        "-u touch${IFS}PROOF",
        "-oProxyCommand=touch PROOF",
        "ext::sh -c touch% PROOF",
        "ssh://-oProxyCommand=touch%20PROOF/x",
        "fd::17/foo",
        "a; touch PROOF",
        "$(touch PROOF)",
        "`touch PROOF`",
        "'; touch PROOF; '",
    ],
)
def test_hostile_urls_are_harmless(api, root, target, session, url):
    proof = f"{root}/proof"
    response = checkout(api, url.replace("PROOF", proof), targetDir=target, sessionId=session, timeoutMs=10000)
    assert response.status >= 400
    assert api.run(f"ls {proof}", session)["exitCode"] != 0
    assert api.run("echo on", session)["stdout"] == "on"


def test_ext_is_refused_even_if_allowed_by_the_user(api, root, target, session):
    proof = f"{root}/proof"
    api.run("export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=protocol.ext.allow GIT_CONFIG_VALUE_0=always", session)
    assert checkout(api, f"ext::sh -c touch% {proof}", targetDir=target, sessionId=session).status >= 400
    assert api.run(f"ls {proof}", session)["exitCode"] != 0


@pytest.mark.parametrize("field, value", [("branch", "--upload-pack=touch PROOF"), ("targetDir", "--upload-pack=touch PROOF"), ("depth", "1; touch PROOF")])
def test_hostile_fields_are_harmless(api, root, target, session, field, value):
    proof = f"{root}/proof"
    directory = target.rsplit("/", 1)[0]
    api.run(f"cd {directory}", session)
    fields = {"targetDir": target, field: value.replace("PROOF", proof)}
    checkout(api, f"file://{root}/r.git", sessionId=session, **fields)
    assert api.run(f"ls {proof}", session)["exitCode"] != 0


# ------------------------------------------------------------------ validation


@pytest.mark.parametrize("url", [None, "", "   ", 7, "x" * 2049, ["a"], "file:///tmp/a\0b"])
def test_refused_urls(api, url):
    error = failure(checkout(api, url), 400, "INVALID_GIT_URL")
    assert error["context"]["validationErrors"][0]["field"]


def test_blanks_around_the_url(api, root, target, session):
    url = f"  file://{root}/r.git "
    assert good(api, url, targetDir=target, sessionId=session)["repoUrl"] == url


@pytest.mark.parametrize("timeout", [0, -1, 1.5, "1"])
def test_refused_timeouts(api, root, timeout):
    error = failure(checkout(api, f"file://{root}/r.git", timeoutMs=timeout), 400, "VALIDATION_FAILED")
    problem = error["context"]["validationErrors"][0]
    assert (problem["field"], problem["code"]) == ("timeoutMs", "INVALID_TIMEOUT")


@pytest.mark.parametrize("directory", ["", 7, "x" * 4097, "/tmp/a\0b"])
def test_refused_directories(api, root, directory):
    error = failure(checkout(api, f"file://{root}/r.git", targetDir=directory), 400, "VALIDATION_FAILED")
    problem = error["context"]["validationErrors"][0]
    assert (problem["field"], problem["code"]) == ("targetDirectory", "INVALID_PATH")


def test_shell_that_dies_meanwhile(api, root, target, session):
    api.run("timeout() { kill -9 $$; }", session)
    response = checkout(api, f"file://{root}/r.git", targetDir=target, sessionId=session)
    assert (response.status, response.json["code"]) == (410, "SESSION_TERMINATED")
