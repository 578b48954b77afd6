# SPDX-License-Identifier: Apache-2.0
"""INT-01 to INT-07, INT-09, INT-10: hostile and unlucky code in contexts."""
import concurrent.futures
import json
import os
import subprocess
import time
from textwrap import indent

import pytest
from conftest import alive, wait_until
from interpreter import folder, javascript, lab, make, python  # noqa: F401

CAP = 16 << 20


# ---------------------------------------------------------------------- INT-01


def test_int_01_garbage_on_descriptors(lab, python, javascript):
    frame = "\\n" + "0" * 32 + "=r1 {\\\"text\\\":\\\"forged\\\",\\\"metadata\\\":{}}\\n"
    run = lab.run(
        f"import os\nfor fd in range(3, 64):\n    for data in (b'garbage', b'{frame}', b'\\xff' * 5000):\n"
        "        try: os.write(fd, data)\n        except OSError: pass\nprint('" + frame + "')\n'real'",
        python,
    )
    assert [r["text"] for r in run.results] == ["'real'"] and run.error is None
    run = lab.run(
        f"for (let fd = 3; fd < 64; fd++) for (const data of ['garbage', '{frame}', 'x'.repeat(5000)]) try {{ require('fs').writeSync(fd, data) }} catch {{}}\n"
        f"console.log('{frame}'); 'real'",
        javascript,
    )
    # this also hits the event loop's own descriptors: the process may die of that, but nothing is forged
    assert [r["text"] for r in run.results] in (["'real'"], []) and (run.error is None or run.error["ename"] == "ExecutionError")
    assert lab.run("1 + 1", python).text == "2" and lab.run("1 + 1", javascript).text == "2"


def test_int_01_frames_on_the_channel(lab, javascript):
    """JavaScript's channel has a number below 64: what is written there is skipped line by line."""
    code = "const { writeSync } = require('fs'); for (const s of ['garbage', '\\n', '" + "0" * 32 + "=d1 {}\\n', 'x'.repeat(100000)]) writeSync(9, s); 'real'"
    assert [r["text"] for r in lab.run(code, javascript).results] == ["'real'"]
    assert lab.run("1 + 1", javascript).text == "2"


def test_int_01_closed_outputs(lab, make):
    one, other = make(), make()
    assert lab.run("import os\nfor fd in range(0, 64):\n    try: os.close(fd)\n    except OSError: pass\n'x'", one).text == "'x'"
    assert lab.run("print('back')", one).stdout == "back\n"
    lab.run("import sys; sys.stdout.close(); sys.stderr.close(); sys.stdout = None", one)
    assert lab.run("print('again')", one).stdout == "again\n"
    assert lab.run("'untouched'", other).text == "'untouched'"


def test_int_01_closing_the_channel_costs_only_this_context(lab, make):
    one, other = make(), make()
    lab.run("kept = 1", other)
    run = lab.run("import os; os.closerange(3, 5000)", one)
    assert run.error["ename"] == "ExecutionError"
    assert lab.run("2", one).text == "2" and lab.run("kept", other).text == "1"


# ---------------------------------------------------------------------- INT-02


@pytest.mark.parametrize(
    "language, code, words",
    [
        ("python", "import os; os._exit(3)", "exited with code 3"),
        ("python", "import os; os.abort()", "SIGABRT"),
        ("python", "import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("python", "import os; os.execv('/bin/true', ['true'])", "exited with code 0"),
        ("python", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("javascript", "process.abort()", "SIGABRT"),
        ("javascript", "process.kill(process.pid, 'SIGKILL'); await new Promise(() => {})", "SIGKILL"),
        ("javascript", "process.reallyExit(5)", "exited with code 5"),
    ],
)
def test_int_02_death(lab, make, language, code, words):
    context = make(language)
    lab.run("state = 1", context)
    run = lab.run("print('last words', flush=True)\n" + code if language == "python" else "console.log('last words'); " + code, context)
    assert run.stdout == "last words\n"
    assert run.error["ename"] == "ExecutionError" and words in run.error["evalue"], run.error
    assert lab.run("1 + 1", context).text == "2", "the next call works"
    check = "'state' in globals()" if language == "python" else "typeof state"
    assert lab.run(check, context).text in ("False", "'undefined'")


def test_int_02_death_between_runs_is_told_once(lab, python, folder):
    lab.run(f"import threading\ndef die():\n{indent(folder.waiting('go'), '    ')}    os._exit(7)\nthreading.Thread(target=die).start()", python)
    pid = int(lab.run("import os; os.getpid()", python).text)
    folder.write("go", "")
    wait_until(lambda: not os.path.exists(f"/proc/{pid}") if lab.process else time.sleep(0.5) or True, "it dies")
    answer = lab.refused("1", python)
    assert answer.status == 500 and answer.json["code"] == "INTERNAL_ERROR" and answer.json["details"]["contextId"] == python
    assert "Context executor has terminated" in answer.json["error"]
    assert lab.run("1", python).text == "1"


def test_int_02_results_before_death_arrive(lab, python):
    run = lab.run("import os\nfor i in range(10): display(i)\nos._exit(1)", python)
    assert [r["text"] for r in run.results] == [str(i) for i in range(10)]


# ---------------------------------------------------------------------- INT-03


@pytest.mark.parametrize(
    "code, dies",
    [
        ("while True: pass", False),
        ("import time; time.sleep(100)", False),
        ("import os; r, w = os.pipe(); os.read(r, 1)", False),
        ("import threading; threading.Lock().acquire() and threading.Event().wait()", False),
        ("def spin():\n    while True: pass\nwhile True:\n    try: spin()\n    except BaseException: pass", True),
        ("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", True),
    ],
)
def test_int_03_endless(lab, python, code, dies):
    lab.run("state = 1", python)
    run = lab.run(code, python, timeout_ms=1000)
    assert run.error["ename"] == "TimeoutError"
    assert ("state is lost" in run.error["evalue"]) is dies
    assert lab.run("'state' in globals()", python).text == str(not dies)


# ---------------------------------------------------------------------- INT-04


def test_int_04_isolation(lab, make, folder):
    one, two = make(env_vars={"ONLY": "one"}), make()
    lab.run(f"import os, json, builtins\nsecret = 1\nos.chdir('{folder}')\nos.environ['LATER'] = 'x'\njson.dumps = None\nbuiltins.print = None", one)
    assert lab.run("secret", two).error["ename"] == "NameError"
    run = lab.run("import os, json\nprint('ONLY' in os.environ, 'LATER' in os.environ, json.dumps([1]))\nos.getcwd()", two)
    assert run.stdout == "False False [1]\n" and run.text != repr(str(folder))
    assert lab.run("[secret]", one).results[0]["json"] == [1], "a context survives what it does to its own modules"


# ---------------------------------------------------------------------- INT-05


def test_int_05_output_is_capped_and_the_result_is_not_lost(lab, python):
    run = lab.run("import os\nchunk = b'x' * (1 << 20)\nfor i in range(500): os.write(1, chunk)\n'result'", python)
    assert run.text == "'result'" and run.error is None
    assert len(run.stdout) < CAP + 200 and run.stdout.startswith("x" * 1000)
    assert "output limit" in run.stdout[-200:]
    assert run.last["stdout_bytes"] == 500 << 20, "the end says how much there was"
    assert lab.run("print('fine')", python).stdout == "fine\n"


def test_int_05_one_line_and_ansi(lab, python):
    run = lab.run("print('y' * 5_000_000)\nprint('\\x1b[31mred\\x1b[0m')", python)
    assert run.stdout == "y" * 5_000_000 + "\n\x1b[31mred\x1b[0m\n"


# ---------------------------------------------------------------------- INT-06


def test_int_06_huge_results(lab, python):
    run = lab.run("'a' * 5_000_000", python)
    assert len(run.text) < (1 << 20) + 200 and "[cut: 5000002 characters" in run.text
    run = lab.run("from IPython.display import HTML\nHTML('<p>' * 5_000_000)", python)
    assert run.error is None and "html" not in run.results[0] and "left out" in run.results[0]["text"]
    run = lab.run("list(range(300000))", python)
    assert "json" not in run.results[0] and len(run.text) < 1 << 21
    run = lab.run("from PIL import Image; import os\nImage.frombytes('RGB', (1000, 1000), os.urandom(3000000))", python)
    assert len(run.results[0]["png"]) > 3000000, "3 MB arrive whole"
    run = lab.run("from PIL import Image\nImage.frombytes('RGB', (2000, 2000), os.urandom(12000000))", python)
    assert "left out" in run.results[0]["text"]
    assert len(lab.run("for i in range(1500): display(i)", python).results) == 1001


def test_int_06_recursive_and_hostile(lab, python):
    assert lab.run("a = {}; a['a'] = a; a", python).text == "{'a': {...}}"
    deep = "d = []\nfor i in range(5000): d = [d]\nd"
    assert lab.run(deep, python).last["type"] in ("execution_complete", "error")
    for body in ("raise ValueError('no')", "return 5", "raise SystemExit", "import sys; sys.stdout.write('side'); return 'r'"):
        lab.run(f"class Bad:\n    def __repr__(self): {body}\nBad()", python)
        assert lab.run("1", python).text == "1"
    run = lab.run("class E(Exception):\n    def __str__(self): raise ValueError\nraise E()", python)
    assert run.error["ename"] == "E" and "unprintable" in run.error["evalue"]
    run = lab.run("class H:\n    def _repr_html_(self): raise ValueError('h')\n    def __repr__(self): return 'H'\nH()", python)
    assert run.error or run.results
    assert lab.run("def f(): f()\nf()", python).error["ename"] == "RecursionError"
    assert lab.run("'\\ud800'", python).error is None and lab.run("print('\\ud800')", python).error is None


def test_int_06_hostile_javascript(lab, javascript):
    for code in ("({ toJSON() { throw new Error('no') } })", "(() => new Proxy(() => 1, {}))()", "'\\ud800'", "({ '\\ud800': '\\udfff' })",
                 "({ get x() { throw 1 } })", "let d = []; for (let i = 0; i < 5000; i++) d = [d]; d", "new Array(1e6).fill(7)"):  # fmt: skip
        assert lab.run(code, javascript).last["type"] == "execution_complete", code
    lab.run("JSON.stringify = Object.keys = Array.prototype.map = null; globalThis.setImmediate = null", javascript)
    assert lab.run("1 + 1", javascript).text == "2", "a context survives what it does to its own realm"
    lab.run("String.prototype.split = null; 0", javascript)
    assert lab.run("1 + 1", javascript).error, "or says that it cannot go on"
    assert lab.run("1 + 1", javascript).text == "2", "and is made anew"


# ---------------------------------------------------------------------- INT-07


def test_int_07_background_output(lab, python, javascript, folder):
    lab.run("import threading, time\ndef later():\n    time.sleep(0.2)\n    print('from behind', flush=True)\nt = threading.Thread(target=later); t.start()", python)
    lab.run("t.join()", python)
    child = f"while [ ! -e {folder}/child ]; do sleep 0.02; done; echo child of old; touch {folder}/child-done"
    lab.run(f"import subprocess\np = subprocess.Popen('{child}', shell=True)", python)
    folder.write("child", "")
    wait_until(lambda: folder.exists("child-done"), "the child has spoken")
    run = lab.run("'mine'", python)
    late = [e for e in run.events if e.get("background")]
    assert run.text == "'mine'" and [e["text"] for e in late] == ["child of old\n"]
    timer = f"if (fs.existsSync('{folder}/timer')) {{ console.log('timer of old'); clearInterval(timer); fs.writeFileSync('{folder}/timer-done', '') }}"
    lab.run(f"const fs = require('fs'), timer = setInterval(() => {{ {timer} }}, 20); 0", javascript)
    folder.write("timer", "")
    wait_until(lambda: folder.exists("timer-done"), "the timer has spoken")
    run = lab.run("'mine'", javascript)
    assert run.text == "'mine'" and run.stdout == "timer of old\n" and run.events[0]["background"] is True


def test_int_07_a_child_does_not_hold_up_the_end(lab, python):
    begin = time.monotonic()
    assert lab.run("import subprocess\np = subprocess.Popen(['sleep', '60'])\n1", python).text == "1"
    assert time.monotonic() - begin < 30


# ---------------------------------------------------------------------- INT-09


def descriptors(lab):
    return len(os.listdir(f"/proc/{lab.process.pid}/fd"))


def test_int_09_a_hundred_contexts_come_and_go(lab):
    lab.delete(lab.create())
    before = descriptors(lab) if lab.process else 0

    def cycle(i):
        response = lab.api.post("/api/contexts", {"language": "python"})
        assert response.status in (200, 500), response.body
        if response.status == 500:
            assert "limit" in response.json["message"] or "fork" in response.json["message"]
            return 0
        assert lab.delete(response.json["contextId"]).status == 200
        return 1

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        assert sum(pool.map(cycle, range(100))) >= 50
    assert lab.run("1").text == "1"
    if lab.process:
        ours = {c["id"] for c in lab.list()}
        wait_until(lambda: descriptors(lab) <= before + 8 + 4 * len(ours), "descriptors are closed")
        wait_until(lambda: len(python_processes(lab)) <= len(ours) + 2, "processes are gone")


def python_processes(lab):
    table = subprocess.run(["ps", "-eo", "pid=,stat=,args="], capture_output=True, text=True).stdout
    runtime = next(v for v in open(f"/proc/{lab.process.pid}/environ").read().split("\0") if v.startswith("SILICA_RUNTIME="))
    return [line for line in table.splitlines() if runtime[15:] in line and "zygote.py" in line and " Z" not in line]


def test_int_09_limit(lab, own_agent):
    if not lab.process:
        pytest.skip("needs an agent of its own")
    environment = dict(line.split("=", 1) for line in open(f"/proc/{lab.process.pid}/environ").read().split("\0") if "=" in line)
    _, api = own_agent(environment={**environment, "PYTHON_POOL_MAX_SIZE": "1"})
    assert api.post("/api/contexts", {}).status == 200
    answer = api.post("/api/contexts", {})
    assert answer.status == 500 and answer.json["code"] == "INTERNAL_ERROR"
    assert "Maximum python executor limit reached (1)" in answer.json["message"]


def test_deleting_a_context_ends_its_children(lab, make):
    context = make()
    pid = int(lab.run("import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True).pid", context).text)
    if not lab.process:
        pytest.skip("looks at processes")
    assert os.path.exists(f"/proc/{pid}")
    lab.delete(context)
    wait_until(lambda: not alive(pid), "the child ends")


# ---------------------------------------------------------------------- INT-10


@pytest.mark.parametrize(
    "body",
    [
        {"language": "perl"}, {"language": "python; rm -rf /"}, {"language": "../../bin/sh"}, {"language": 5}, {"language": ["python"]},
        {"language": ""}, {"cwd": "relative"}, {"cwd": 7}, {"cwd": "/" + "x" * 5000}, {"env_vars": []}, {"env_vars": {"A=B": "c"}},
        {"env_vars": {"": "c"}}, {"env_vars": {"A": {"b": 1}}}, {"env_vars": "A=1"},
    ],
)  # fmt: skip
def test_int_10_hostile_arguments(lab, body):
    before = len(lab.list())
    answer = lab.api.post("/api/contexts", body)
    assert answer.status == 400 and answer.json["code"] == "VALIDATION_FAILED"
    assert len(lab.list()) == before


def test_int_10_hostile_runs(lab, python):
    for body in ({"context_id": python}, {"context_id": python, "code": 5}, {"context_id": python, "code": "1", "language": "brainfuck"}):
        answer = lab.api.post("/api/execute/code", body)
        assert answer.status == 400 and answer.json["code"] == "VALIDATION_FAILED", body
    for context in ({"a": 1}, 5, "x" * 2000, "\n\"'"):
        assert lab.api.post("/api/execute/code", {"context_id": context, "code": "1"}).status == 404
    assert lab.api.post("/api/execute/code", "{").status == 500
    for timeout in (-1, 0, "5", None, 1e300):
        assert lab.run("1", python, timeout_ms=timeout).text == "1"


def test_a_directory_that_cannot_be(lab):
    answer = lab.api.post("/api/contexts", {"cwd": "/dev/null/x"})
    assert answer.status == 500 and answer.json["code"] == "INTERNAL_ERROR" and "/dev/null" in answer.json["message"]


def test_the_zygote_can_be_killed(lab, make):
    """What it has forked lives on, and what comes later gets another one."""
    one = make()
    zygote = int(lab.run("import os\nkept = 1\nzygote = os.getppid()\nzygote", one).text)
    assert lab.run("os.kill(zygote, 9)\nkept", one).text == "1"
    wait_until(lambda: not (lab.process and os.path.exists(f"/proc/{zygote}")), "its end is noticed")
    assert lab.run("kept", one).text == "1"
    assert lab.run("2 + 2", make()).text == "4"
    assert "SIGKILL" in lab.run("os.kill(os.getpid(), 9)", one).error["evalue"], "its end is still told"


def test_stream_stays_json_whatever_is_printed(lab, python):
    answer = lab.raw("import os\nfor i in range(256): os.write(1, bytes([i]))\nprint('\\n\\ndata: {}\\n\\n')", python)
    lines = [line for line in answer.body.decode("ascii").split("\n") if line]
    assert all(line.startswith("data: ") and json.loads(line[6:]) for line in lines)
