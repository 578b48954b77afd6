# SPDX-License-Identifier: Apache-2.0
"""Every program in examples/ started as its README says and used as its README says; the language model and GitHub are stand-ins."""
import base64
import hashlib
import hmac
import io
import json
import os
import shutil
import subprocess
import tarfile
from urllib.parse import urlsplit

import pytest
from silica import ROOT, wait_for
from standins import text, tool
from wrangler import HERE, Wrangler

EXAMPLES = os.path.join(ROOT, "examples")
TESTED = {"minimal", "code-executor", "data-analysis", "review-bot", "test-pipeline", "one-shot", "workspace", "ci-build", "coding-agent", "scheduled-job"}


@pytest.fixture
def start(daemon, services):
    services.reset()
    started = []

    def begin(name, **variables):
        w = Wrangler(daemon, os.path.join(EXAMPLES, name), variables)
        started.append(w)
        return w.start()

    yield begin
    for w in started:
        w.cleanup()


def model(services):
    return {"ANTHROPIC_API_KEY": "key-of-the-test", "ANTHROPIC_BASE_URL": services.url}


def test_minimal(start):
    w = start("minimal")
    assert w.request("GET", "/run").json == {"output": "5050", "exitCode": 0, "success": True}
    assert w.request("GET", "/file").json["content"].startswith("written at 20")
    assert w.request("GET", "/other").status == 404


def test_code_executor(start, services):
    w = start("code-executor", **model(services))
    services.say(text("```python\nprint(2 ** 100)\n```"))
    r = w.request("POST", "/ask", {"question": "How much is two to the hundredth?"})
    assert r.status == 200, r.body
    assert r.json["success"] and r.json["output"].strip() == str(2**100) and "```" not in r.json["code"]
    asked, = services.asked
    assert asked["key"] == "key-of-the-test" and asked["messages"][0]["content"] == "How much is two to the hundredth?"
    services.say(text("raise SystemExit('no idea')"))
    r = w.request("POST", "/ask", {"question": "Why?"})
    assert not r.json["success"] and "no idea" in r.json["error"]
    assert w.request("POST", "/ask", {"question": ""}).status == 400


def form(**fields):
    boundary = "form-of-the-test"
    more = {"file": '; filename="table.csv"\r\nContent-Type: text/csv'}
    parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{k}"{more.get(k, "")}\r\n\r\n{v}\r\n' for k, v in fields.items()]
    return "".join(parts) + f"--{boundary}--\r\n", {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def test_data_analysis(start, services):
    w = start("data-analysis", **model(services))
    services.say(tool("analyse", code="mean = df.groupby('city').temperature.mean()\nprint(mean.idxmax(), mean.max())\nmean.plot.bar()\nmean.to_frame()"))
    body, headers = form(file="city,temperature\nOslo,5\nRome,21\nOslo,7\nRome,23\n", question="Where is it warmest?")
    r = w.request("POST", "/", body, headers)
    assert r.status == 200, r.body
    assert r.json["findings"].strip() == "Rome 22.0" and "<table" in r.json["table"]
    assert base64.b64decode(r.json["chart"].removeprefix("data:image/png;base64,")).startswith(b"\x89PNG")
    assert "temperature" in services.asked[0]["messages"][0]["content"]
    assert w.request("POST", "/", "nothing").status == 400


def test_review_bot(start, services):
    url, (base, head) = services.repository("reviewed", {"sum.py": "def add(a, b):\n    return a + b\n"}, {"sum.py": "def add(a, b):\n    return a - b\n"})
    w = start("review-bot", GITHUB_API_URL=services.url, GITHUB_TOKEN="token-of-the-test", WEBHOOK_SECRET="secret", **model(services))
    event = json.dumps({"action": "opened", "repository": {"name": "reviewed", "clone_url": url, "owner": {"login": "someone"}},
                        "pull_request": {"number": 7, "title": "A better sum", "head": {"ref": "main", "sha": head}, "base": {"ref": "main", "sha": base}}})

    def deliver(secret):
        signature = hmac.new(secret.encode(), event.encode(), hashlib.sha256).hexdigest()
        return w.request("POST", "/webhook", event, {"X-GitHub-Event": "pull_request", "X-Hub-Signature-256": "sha256=" + signature})

    assert deliver("guessed").status == 401
    services.say(text("sum.py:2 subtracts."))
    assert deliver("secret").status == 202
    comment = wait_for(lambda: services.comments and services.comments[0], 180, "the comment")
    assert comment["path"] == "/repos/someone/reviewed/issues/7/comments" and "token-of-the-test" in comment["authorization"]
    assert "sum.py:2 subtracts." in comment["body"] and head[:7] in comment["body"]
    question = services.asked[0]["messages"][0]["content"]
    assert "-    return a + b" in question and "+    return a - b" in question and "commit 2" in question


def pipeline(w, url, **more):
    r = w.request("POST", "/", {"repository": url, **more})
    assert r.status == 200, r.body
    events = [json.loads(line) for line in r.body.splitlines()]
    return events, {e["step"]: e["status"] for e in events if e.get("status") in ("passed", "failed")}


def test_test_pipeline(start, services):
    w = start("test-pipeline")
    package = {"package.json": json.dumps({"name": "p", "version": "1.0.0", "scripts": {"test": "node --test"}}),
               "add.test.js": "const t = require('node:test'), a = require('node:assert');\nt('adds', () => a.equal(1 + 1, 2));\n"}
    url, _ = services.repository("good", package)
    events, steps = pipeline(w, url)
    assert steps == {"clone": "passed", "install": "passed", "test": "passed"}, events
    assert "pass 1" in "".join(e.get("output", "") for e in events)

    test = "import unittest\n\nclass T(unittest.TestCase):\n    def test(self):\n        self.fail('broken')\n"
    url, _ = services.repository("bad", {"setup.py": "", "test_it.py": test})
    events, steps = pipeline(w, url)
    assert steps == {"clone": "passed", "test": "failed"} and events[-1]["exitCode"] == 1, events
    assert "broken" in "".join(e.get("output", "") for e in events)
    assert pipeline(w, url, branch="none")[1] == {"clone": "failed"}
    assert w.request("POST", "/", {"repository": "no url"}).status == 400


def test_one_shot(start, daemon):
    w = start("one-shot")
    r = w.request("POST", "/", {"code": "print('said')\n{'a': 1}"})
    assert r.status == 200 and r.json["stdout"].strip() == "said" and r.json["results"][0]["json"] == {"a": 1} and r.json["error"] is None, r.body
    assert w.request("POST", "/", {"code": "const n: number = 40; n + 2", "language": "typescript"}).json["results"][0]["text"] == "42"
    assert w.request("POST", "/", {"code": "1 / 0"}).json["error"]["name"] == "ZeroDivisionError"
    assert w.request("POST", "/", {"code": "open('/tmp/x')"}).json["error"]["name"] == "FileNotFoundError"  # nothing is left of others
    assert w.request("POST", "/", {"code": "1", "language": "cobol"}).status == 400


def test_workspace(start):
    w = start("workspace")

    def ask(user, method, path, body=None):
        return w.request(method, path, body, {"X-User": user})

    assert "Your workspace" in ask("ann", "GET", "/files/README.md").body.decode()
    assert ask("ann", "PUT", "/files/site/index.html", "<h1>Ann</h1>").status == 204
    assert ask("ann", "POST", "/exec", {"command": "cd site && export WHO=ann"}).json["exitCode"] == 0
    assert ask("ann", "POST", "/exec", {"command": "pwd; echo $WHO"}).json["stdout"].split() == ["/workspace/site", "ann"]
    assert "site/index.html" in [f["path"] for f in ask("ann", "GET", "/files").json]
    assert ask("bob", "GET", "/files/site/index.html").status == 404
    served = ask("ann", "POST", "/serve", {"command": "python3 -m http.server 8080 --bind 127.0.0.1 -d /workspace/site", "port": 8080})
    assert served.status == 200, served.body
    assert w.request("GET", "/", host=urlsplit(served.json["url"]).netloc).body == b"<h1>Ann</h1>"
    assert ask("ann", "DELETE", "/files/site/index.html").status == 204
    assert ask("ann", "DELETE", "/").status == 204 and ask("bob", "DELETE", "/").status == 204
    assert ask("ann", "GET", "/files/site/index.html").status == 404
    assert ask("Not a name", "GET", "/files").status == 401


def test_ci_build(start, services):
    script = "mkdir -p dist && echo built from $(cat source.txt) >dist/out.txt"
    package = json.dumps({"name": "p", "version": "1.0.0", "scripts": {"build": script}})
    url, (first, second) = services.repository("built", {"package.json": package, "source.txt": "one"}, {"source.txt": "two"})
    w = start("ci-build")
    for commit, word in ((first, "one"), (second, "two")):
        r = w.request("POST", "/builds", {"repository": url, "commit": commit})
        assert r.status == 200 and r.json["success"] and not r.json["cached"], r.body
        artifact = w.request("GET", r.json["artifact"])
        with tarfile.open(fileobj=io.BytesIO(artifact.body), mode="r:gz") as t:
            assert t.extractfile("dist/out.txt").read().decode().strip() == f"built from {word}"
        assert b"npm run build" in w.request("GET", r.json["log"]).body
    assert w.request("POST", "/builds", {"repository": url, "commit": second}).json["cached"]
    r = w.request("POST", "/builds", {"repository": url, "commit": second, "command": "echo wrong >&2; exit 3"})
    assert r.status == 422 and r.json["exitCode"] == 3 and "wrong" in r.json["output"]
    assert w.request("POST", "/builds", {"repository": url, "commit": "$(reboot)"}).status == 400


def test_coding_agent(start, services):
    test = "from hello import greet\nassert greet('x') == 'hello x', greet('x')\nprint('fine')\n"
    url, _ = services.repository("worked-on", {"hello.py": "def greet(name):\n    return 'helo ' + name\n", "test.py": test})
    w = start("coding-agent", **model(services))
    services.say(text("Let me see."), tool("shell", command="python3 test.py"))
    services.say(tool("write_file", path="hello.py", content="def greet(name):\n    return 'hello ' + name\n"))
    services.say(tool("shell", command="python3 test.py; cat 'no such file'"))
    services.say(text("The greeting is spelled right now."))
    r = w.request("POST", "/", {"repository": url, "task": "The test fails. Mend it."})
    assert r.status == 200, r.body
    assert r.json["summary"] == "The greeting is spelled right now." and len(r.json["steps"]) == 3
    assert "-    return 'helo ' + name" in r.json["diff"] and "+    return 'hello ' + name" in r.json["diff"]
    results = [m["content"][0]["content"] for m in services.asked[-1]["messages"] if m["role"] == "user" and isinstance(m["content"], list)]
    assert "AssertionError" in results[0] and "fine" in results[2] and "exit code 1" in results[2]


def test_scheduled_job(start):
    w = start("scheduled-job")
    assert w.request("GET", "/reports").json == []
    r = w.request("GET", "/cdn-cgi/handler/scheduled?cron=0+6+*+*+*&time=1767225600000")
    assert r.status == 200, r.body
    assert w.request("GET", "/reports").json == ["2026-01-01.json"]
    report = w.request("GET", "/reports/2026-01-01.json").json
    assert report["day"] == "2026-01-01" and sum(report["throws"].values()) == 6000
    assert w.request("GET", "/reports/2025-01-01.json").status == 404


def test_every_example_is_tested():
    assert {name for name in os.listdir(EXAMPLES) if os.path.isdir(os.path.join(EXAMPLES, name))} == TESTED
    for name in TESTED:
        assert {"package.json", "wrangler.jsonc", "Dockerfile", "README.md", "src"} <= set(os.listdir(os.path.join(EXAMPLES, name))), name


@pytest.mark.parametrize("project", ["examples", "tests/workers"])
def test_types(packages, tmp_path, project):
    """What wrangler only strips: the programs are well-typed against the client's own declarations."""
    copy = shutil.copytree(os.path.join(ROOT, project), tmp_path / "copy", ignore=shutil.ignore_patterns("node_modules", ".wrangler"))
    (copy / "node_modules").symlink_to(HERE + "/node_modules")
    r = subprocess.run([HERE + "/node_modules/.bin/tsc", "-p", "."], cwd=copy, capture_output=True, text=True)
    assert r.returncode == 0, r.stdout
