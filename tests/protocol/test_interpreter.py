# SPDX-License-Identifier: Apache-2.0
"""Code contexts: their routes, the order and form of events, time-outs and interrupts; interpreter.md sections 1-6, 10-12, 14."""
import concurrent.futures
import http.client
import json
import re
import time

import pytest
from conftest import wait_until
from interpreter import Lab, Run, folder, javascript, lab, make, python, typescript  # noqa: F401

UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


# ---------------------------------------------------------------------- contexts


def test_health(lab):
    answer = lab.api.get("/api/interpreter/health").json
    assert answer["success"] is True and answer["status"] == "healthy" and ISO.fullmatch(answer["timestamp"])


def test_create_list_delete(lab):
    one, two = lab.create("python"), lab.create("javascript")
    listed = {c["id"]: c for c in lab.list()}
    assert listed[one]["language"] == "python" and listed[two]["language"] == "javascript"
    ids = [c["id"] for c in lab.list()]
    assert ids.index(one) < ids.index(two), "in order of creation"
    answer = lab.delete(one)
    assert answer.status == 200 and answer.json["success"] is True and answer.json["contextId"] == one
    ids = [c["id"] for c in lab.list()]
    assert one not in ids and two in ids
    lab.delete(two)


def test_create_answer_has_the_members_of_all_releases(lab, folder):
    body = {"language": "python", "cwd": str(folder)}
    answer = lab.api.post("/api/contexts", body).json
    assert answer["success"] is True and answer["language"] == "python" and answer["cwd"] == str(folder)
    assert UUID4.fullmatch(answer["contextId"]) and answer["id"] == answer["contextId"]
    assert all(ISO.fullmatch(answer[key]) for key in ("createdAt", "lastUsed", "timestamp"))
    entry = next(c for c in lab.list() if c["id"] == answer["id"])
    assert set(entry) >= {"id", "language", "cwd", "createdAt", "lastUsed"}
    lab.delete(answer["id"])


@pytest.mark.parametrize(
    "name, language",
    [("python3", "python"), ("PYTHON", "python"), ("js", "javascript"), ("Node", "javascript"), ("ts", "typescript"), (None, "python")],
)
def test_language_names(lab, name, language):
    answer = lab.api.post("/api/contexts", {"language": name} if name else {}).json
    assert answer["language"] == language
    lab.delete(answer["contextId"])


def test_last_used_moves(lab, python):
    def used():
        return next(c for c in lab.list() if c["id"] == python)

    before = used()
    lab.run("import time; time.sleep(0.02)", python)
    after = used()
    assert after["lastUsed"] > before["lastUsed"] and after["createdAt"] == before["createdAt"]


def test_delete_unknown(lab):
    answer = lab.delete("nowhere")
    assert answer.status == 404 and answer.json["code"] == "CONTEXT_NOT_FOUND"
    assert answer.json["message"] == "Code context 'nowhere' not found" and answer.json["context"]["contextId"] == "nowhere"


def test_cwd_and_variables_are_real(lab, make, folder):
    there = f"{folder}/not/yet"
    for language, code in (
        ("python", "import os\nprint(os.getcwd(), os.environ['A'], os.environ['B'])"),
        ("javascript", "console.log(process.cwd(), process.env.A, process.env.B)"),
        ("typescript", "console.log(process.cwd(), process.env.A as string, process.env.B)"),
    ):
        context = make(language, cwd=there, env_vars={"A": "1", "B": "zwei é", "C": None})
        assert lab.run(code, context).stdout == f"{there} 1 zwei é\n"
    assert folder.exists("not/yet")


def test_env_vars_by_their_other_name(lab, make):
    assert lab.run("import os; os.environ['X']", make("python", envVars={"X": "y"})).text == "'y'"


def test_default_context_keeps_its_state(lab):
    lab.run("kept_by_default = 7")
    assert lab.run("kept_by_default").text == "7"
    assert lab.run("globalThis.k = 3; k", language="javascript").text == "3"
    assert lab.run("k + 1", language="js").text == "4"
    by_language = [c["language"] for c in lab.list()]
    assert by_language.count("python") == 1 and by_language.count("javascript") == 1


# ---------------------------------------------------------------------- the stream


def test_content_type_is_exact(lab, python):
    answer = lab.raw("1", python)
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/event-stream"


def test_stream_is_pure_ascii(lab, python, javascript):
    for context, code in ((python, "print('häß 😀')\n'ü😀'"), (javascript, "console.log('häß 😀'); 'ü😀'")):
        body = lab.raw(code, context).body
        assert body.isascii()
        run = Run([json.loads(line[6:]) for line in body.decode().split("\n") if line])
        assert run.stdout == "häß 😀\n" and run.text == "'ü😀'"


def test_a_character_printed_in_two_pieces(lab, python):
    run = lab.run("import os, time\nos.write(1, b'\\xc3'); time.sleep(0.05); n = os.write(1, b'\\xa9\\n')", python)
    assert run.stdout == "é\n"


def test_bytes_that_are_no_text(lab, python):
    assert lab.run("import os; n = os.write(1, b'a\\xff\\x00b')", python).stdout == "a\ufffd\x00b"


def test_events_arrive_while_the_code_runs(lab, python, folder):
    events = lab.stream(f"print('one')\n{folder.waiting('a')}display('two')\n{folder.waiting('b')}'three'", python)
    assert next(events)[1]["type"] == "stdout"
    folder.write("a", "")
    assert next(events)[1]["type"] == "result"
    folder.write("b", "")
    assert [e["type"] for _, e in events] == ["result", "execution_complete"]


def test_the_order_of_output_and_results(lab, python):
    code = "import sys\nfor i in range(20):\n    print(i)\n    display(i)"
    kinds = [(e["type"], e["text"].strip()) for e in lab.run(code, python).events[:-1]]
    assert kinds == [(kind, str(i)) for i in range(20) for kind in ("stdout", "result")]


def test_execution_count_counts(lab, python):
    assert [lab.run("1", python).last["execution_count"] for _ in range(3)] == [1, 2, 3]


def test_empty_code(lab, python, javascript):
    for context in (python, javascript):
        for code in ("", "  \n"):
            assert [e["type"] for e in lab.run(code, context).events] == ["execution_complete"]


def test_unknown_context(lab):
    answer = lab.refused("1", "nowhere")
    assert answer.status == 404
    assert answer.json["error"] == answer.json["message"] == "Context nowhere not found"
    assert answer.json["code"] == "CONTEXT_NOT_FOUND" and answer.json["details"] == {"contextId": "nowhere"}


def test_language_must_be_the_context_s(lab, python):
    answer = lab.refused("1", python, language="javascript")
    assert answer.status == 500 and answer.json["code"] == "CODE_EXECUTION_ERROR"
    assert "was created for python, cannot execute javascript code" in answer.json["error"]
    assert answer.json["details"]["contextId"] == python
    assert lab.run("1", python, language="python3").text == "1"


# ---------------------------------------------------------------------- old clients


def lines_of(answer):
    return [line for line in answer.body.decode().split("\n") if line]


def test_an_unknown_client_gets_both_forms(lab, own_lab):
    context = own_lab.create()
    answer = own_lab.raw("print(1)\n2", context, headers={"X-Sandbox-Id": None, "Accept": "text/event-stream"})
    bare = [json.loads(line) for line in lines_of(answer) if not line.startswith("data: ")]
    framed = [json.loads(line[6:]) for line in lines_of(answer) if line.startswith("data: ")]
    assert bare == framed and len(bare) == 3
    own_lab.api.get("/api/version")
    answer = own_lab.raw("3", context, headers={"X-Sandbox-Id": None, "Accept": "text/event-stream"})
    assert all(line.startswith("data: ") for line in lines_of(answer))


def test_release_0_3_gets_bare_lines(lab, own_lab):
    own_lab.api.post("/api/session/create", {"id": "default", "isolation": True})
    answer = own_lab.raw("print(1)\n2", own_lab.create(), headers={"X-Sandbox-Id": None})
    events = [json.loads(line) for line in lines_of(answer)]
    assert [e["type"] for e in events] == ["stdout", "result", "execution_complete"]


@pytest.fixture
def own_lab(lab, own_agent):
    """An agent which no other client has spoken to."""
    if not lab.process:
        pytest.skip("needs an agent of its own")
    environment = dict(
        line.split("=", 1) for line in open(f"/proc/{lab.process.pid}/environ").read().split("\0") if "=" in line
    )
    _, api = own_agent(environment=environment)
    return Lab(api)


# ---------------------------------------------------------------------- no interpreter


def test_without_python(lab, own_agent):
    if not lab.process:
        pytest.skip("needs an agent of its own")
    _, api = own_agent(environment={"PATH": "/nonexistent"})
    answer = api.post("/api/contexts", {"language": "python"})
    assert answer.status == 501 and answer.json["code"] == "PYTHON_NOT_AVAILABLE"
    assert "Python interpreter not available" in answer.json["message"] and "-python" in answer.json["message"]
    assert answer.json["context"]["originalError"]
    answer = api.post("/api/contexts", {"language": "javascript"})
    assert answer.status == 501 and answer.json["code"] == "JAVASCRIPT_NOT_AVAILABLE"
    assert "JavaScript runtime not available" in answer.json["message"]
    assert api.get("/api/contexts").json["contexts"] == []


def test_python_without_the_packages(lab, own_agent, tmp_path):
    if not lab.process:
        pytest.skip("needs an agent of its own")
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\necho 'ModuleNotFoundError: No module named IPython' >&2\nexit 1\n")
    broken.chmod(0o755)
    environment = open(f"/proc/{lab.process.pid}/environ").read().split("\0")
    runtime = next(line[15:] for line in environment if line.startswith("SILICA_RUNTIME="))
    _, api = own_agent(environment={"PATH": f"{tmp_path}:/usr/bin:/bin", "SILICA_RUNTIME": runtime})
    answer = api.post("/api/contexts", {"language": "python"})
    assert answer.status == 500 and answer.json["code"] == "INTERNAL_ERROR"
    assert "python executor exited with code 1" in answer.json["message"]
    assert "No module named IPython" in answer.json["message"]
    assert Lab(api).refused("1").status == 500, "nor does the default context hang"
    assert api.get("/api/contexts").json["contexts"] == []


def test_no_interpreter_before_the_first_context(lab, own_agent):
    if not lab.process:
        pytest.skip("needs an agent of its own")
    process, api = own_agent()
    api.get("/api/interpreter/health"), api.get("/api/contexts"), api.get("/api/ping")
    assert interpreters_of(process.pid) == []


def interpreters_of(pid):
    """Command lines of the interpreters below a process."""
    import subprocess

    table = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True).stdout
    rows = [line.split(None, 2) for line in table.splitlines()]
    family, found = {str(pid)}, []
    for _ in range(4):
        family |= {row[0] for row in rows if row[1] in family}
    for row in rows:
        if row[0] in family and len(row) == 3 and ("zygote.py" in row[2] or "main.js" in row[2]):
            found.append(row[2])
    return found


# ---------------------------------------------------------------------- many at once


def test_runs_of_one_context_wait_for_each_other(lab, javascript):
    lab.run("let counter = 0;", javascript)
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        runs = list(pool.map(lambda _: lab.run("counter++; counter;", javascript), range(5)))
    assert sorted(run.text for run in runs) == ["1", "2", "3", "4", "5"]


def test_contexts_run_in_parallel(lab, make, folder):
    one, two = make(), make()
    slow = lab.stream(f"print('on', flush=True)\n{folder.waiting('go')}'slow'", one)
    assert next(slow)[1]["text"] == "on\n"
    assert lab.run("'quick'", two).text == "'quick'"
    folder.write("go", "")
    assert Run([event for _, event in slow]).text == "'slow'"


def test_fifty_contexts_at_once(lab):
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        contexts = list(pool.map(lambda _: lab.create("python"), range(50)))
        assert len(set(contexts)) == 50
        list(pool.map(lambda pair: lab.run(f"mine = {pair[0]}", pair[1]), enumerate(contexts)))
        values = list(pool.map(lambda c: lab.run("mine * 2", c).text, contexts))
        assert values == [str(i * 2) for i in range(50)]
        assert all(answer.status == 200 for answer in pool.map(lab.delete, contexts))
    assert not set(contexts) & {c["id"] for c in lab.list()}


def test_many_runs_do_not_grow(lab, python, javascript):
    memory = {
        python: "int(next(l for l in open('/proc/self/status') if l.startswith('VmRSS')).split()[1])",
        javascript: "gc && gc(); Number(/VmRSS:\\s+(\\d+)/.exec(require('fs').readFileSync('/proc/self/status','utf8'))[1])",
    }
    lab.run("var gc = globalThis.gc", javascript)
    for context, code in memory.items():
        for i in range(100):
            assert lab.run(f"x = {i};\n[x, 10]", context).results[0]["json"] == [i, 10]
        sizes = [int(lab.run(code, context).text)]
        for _ in range(3):  # a heap that has its size for a while stays as it is, a leak goes on
            for i in range(500):
                assert lab.run(f"x = {i};\n[x, 10]", context).results[0]["json"] == [i, 10]
            sizes.append(int(lab.run(code, context).text))
            if sizes[-1] - sizes[-2] < 12 * 1024:
                break
        else:
            pytest.fail(f"{sizes} KiB, each after 500 runs")


# ---------------------------------------------------------------------- time and interrupts


@pytest.mark.parametrize(
    "language, code",
    [
        ("python", "while True: pass"),
        ("python", "import time; time.sleep(60)"),
        ("python", "import asyncio; await asyncio.sleep(60)"),
        ("python", "!sleep 60"),
        ("javascript", "while (true) {}"),
        ("javascript", "await new Promise(() => {})"),
        ("typescript", "for (;;) { const x: number = 1 }"),
    ],
)
def test_timeout_interrupts_and_keeps_the_state(lab, make, language, code):
    context = make(language)
    lab.run("kept = 1" if language == "python" else "var kept = 1", context)
    begin = time.monotonic()
    run = lab.run(code, context, timeout_ms=1000)
    assert 0.9 < time.monotonic() - begin < 30
    if code.startswith("!"):  # IPython reports an interrupted command itself and goes on
        assert run.error["ename"] in ("TimeoutError", "KeyboardInterrupt")
    else:
        assert run.error["ename"] == "TimeoutError" and "Execution timeout" in run.error["evalue"]
    assert lab.run("kept", context).text == "1"


def test_code_that_ignores_the_interrupt_is_killed(lab, python):
    lab.run("lost = 1", python)
    code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    run = lab.run(code, python, timeout_ms=1000)
    assert run.error["ename"] == "TimeoutError" and "killed" in run.error["evalue"]
    assert lab.run("'lost' in globals()", python).text == "False"


def test_timeout_of_a_context(lab, make):
    context = make("python", timeout=200)
    assert lab.run("while True: pass", context).error["ename"] == "TimeoutError"
    assert lab.run("import time; time.sleep(0.4); 1", context, timeout_ms=50000).text == "1"


def test_timeout_of_the_environment(lab, own_agent):
    if not lab.process:
        pytest.skip("needs an agent of its own")
    environment = dict(line.split("=", 1) for line in open(f"/proc/{lab.process.pid}/environ").read().split("\0") if "=" in line)
    _, api = own_agent(environment={**environment, "INTERPRETER_EXECUTION_TIMEOUT_MS": "200"})
    assert Lab(api).run("while True: pass").error["ename"] == "TimeoutError"


def test_output_before_a_timeout_is_not_lost(lab, python):
    run = lab.run("print('seen')\ndisplay('too')\nwhile True: pass", python, timeout_ms=3000)
    assert run.stdout == "seen\n" and run.text == "'too'"
    assert "silica_runtime" not in "".join(run.error["traceback"]) and any("while True" in line for line in run.error["traceback"])


@pytest.mark.parametrize("language, code", [("python", "while True: pass"), ("javascript", "while (true) {}")])
def test_interrupt_route(lab, make, language, code):
    context = make(language)
    lab.run("kept = 5" if language == "python" else "let kept = 5", context)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(lab.run, code, context)
        answers = []

        def interrupted():
            answers.append(lab.api.post(f"/api/contexts/{context}/interrupt").json)
            return answers[-1]["interrupted"]

        wait_until(interrupted, "the code runs")
        assert running.result(60).error["ename"] == "KeyboardInterrupt"
    assert lab.run("kept", context).text == "5"
    answer = lab.api.post(f"/api/contexts/{context}/interrupt")
    assert answer.status == 200 and answer.json["interrupted"] is False
    assert lab.api.post("/api/contexts/nowhere/interrupt").status == 404


def test_a_client_that_leaves(lab, python, folder):
    for cancel in (True, False):
        code = f"import time\nprint('on', flush=True)\ntime.sleep({50 if cancel else 0.5})\nopen('{folder}/mark', 'w').write('x')"
        connection, response = lab.api.open("POST", "/api/execute/code", {"context_id": python, "code": code, "cancel_on_disconnect": cancel})
        assert b"on" in response.readline()
        response.close()
        connection.close()
        assert lab.run("1", python).text == "1", "waits for the abandoned run"
        assert folder.exists("mark") is not cancel


def test_delete_ends_a_run(lab):
    context = lab.create()
    lines = lab.stream("print('on', flush=True)\nwhile True: pass", context)
    next(lines)
    assert lab.delete(context).status == 200
    events = [event for _, event in lines]
    assert events[-1]["type"] == "error" and "deleted" in events[-1]["evalue"]
    assert lab.refused("1", context).status == 404


def test_a_slow_reader_slows_the_code(lab, python):
    """The stream waits in the code, not in the agent's memory."""
    body = json.dumps({"context_id": python, "code": "for i in range(200): print('x' * 50000)"})
    connection = http.client.HTTPConnection(*lab.api.address, timeout=60)
    connection.request("POST", lab.api.prefix + "/api/execute/code", body, {**lab.api.headers, "Content-Type": "application/json"})
    response = connection.getresponse()
    time.sleep(0.5)
    if lab.process:
        status = open(f"/proc/{lab.process.pid}/status").read()
        assert int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) < 300 * 1024
    text = response.read().decode()
    run = Run([json.loads(line[6:]) for line in text.split("\n") if line])
    assert len(run.stdout) == 200 * 50001 and run.error is None
    connection.close()
