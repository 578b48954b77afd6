# SPDX-License-Identifier: Apache-2.0
"""Python contexts: what a notebook does; interpreter.md section 7 and the documented examples."""
import base64
import io

import pytest
from interpreter import folder, lab, make, python  # noqa: F401

Image = pytest.importorskip("PIL.Image")

FORMATS = ("text", "html", "png", "jpeg", "svg", "latex", "markdown", "javascript", "json")


def picture(result):
    image = Image.open(io.BytesIO(base64.b64decode(result["png"], validate=True)))
    image.load()
    return image.convert("RGB")


def formats(run):
    """The one format key of every result."""
    found = []
    for result in run.results:
        keys = [key for key in FORMATS if key in result]
        assert len(keys) == 1 and isinstance(result["metadata"], dict), result
        found.append(keys[0])
    return found


# ---------------------------------------------------------------------- the documented examples


def test_circle_area(lab, python):
    lab.run("import math; radius = 5", python)
    assert lab.run("math.pi * radius ** 2", python).results[0]["text"] == "78.53981633974483"


def test_sum_with_print(lab):
    run = lab.run('\ndata = [1, 2, 3, 4, 5]\nprint(f"Sum: {sum(data)}")\nsum(data)\n', language="python")
    assert run.stdout == "Sum: 15\n" and run.results[0]["text"] == "15"


def test_division_by_zero(lab):
    error = lab.run("x = 1 / 0", language="python").error
    assert error["ename"] == "ZeroDivisionError" and error["evalue"] == "division by zero"
    assert isinstance(error["traceback"], list) and all(isinstance(line, str) for line in error["traceback"])
    assert any("x = 1 / 0" in line for line in error["traceback"])


def test_sine_plot(lab):
    run = lab.run(
        "import matplotlib.pyplot as plt\nimport numpy as np\n\nx = np.linspace(0, 10, 100)\nplt.plot(x, np.sin(x))\nplt.show()",
        language="python",
    )
    assert formats(run) == ["png"] and run.stderr == ""
    assert base64.b64decode(run.results[0]["png"]).startswith(b"\x89PNG\r\n\x1a\n")
    image = picture(run.results[0])
    assert image.width > 300 and image.height > 200
    curve = [(i % image.width, i // image.width) for i, (r, g, b) in enumerate(image.getdata()) if b > 150 and r < 100]
    columns = {x for x, _ in curve}
    assert len(columns) > image.width / 2, "a blue line from left to right"
    assert max(y for _, y in curve) - min(y for _, y in curve) > image.height / 2, "which goes up and down"
    chart = run.results[0]["chart"]
    assert chart["type"] == "line" and chart["library"] == "matplotlib"
    assert len(chart["data"][0]["x"]) == 100 and abs(chart["data"][0]["y"][-1] - -0.5440211) < 1e-6


def test_table(lab):
    run = lab.run("import pandas as pd\ndf = pd.DataFrame({'Name': ['Alice', 'Bob'], 'Age': [25, 30]})\ndf", language="python")
    assert formats(run) == ["html", "text"]
    assert "<table" in run.results[0]["html"] and "Alice" in run.results[0]["html"]
    assert "Alice" in run.results[1]["text"]
    data = run.results[0]["data"]
    assert data["text/plain"] == run.results[1]["text"] and "<table" in data["text/html"]
    table = data["application/vnd.dataresource+json"]
    assert [f["name"] for f in table["schema"]["fields"]] == ["index", "Name", "Age"]
    assert table["data"][1] == {"index": 1, "Name": "Bob", "Age": 30} and table["rows"] == 2


def test_guide(lab, python):
    run = lab.run('\nprint("Hello from Code Interpreter!")\nresult = 2 + 2\nprint(f"2 + 2 = {result}")\n', python)
    assert run.stdout == "Hello from Code Interpreter!\n2 + 2 = 4\n" and run.results == [] and run.error is None
    lab.run("import pandas as pd\nimport numpy as np\ndata = [1, 2, 3, 4, 5]", python)
    assert lab.run('mean = np.mean(data)\nprint(f"Mean: {mean}")', python).stdout == "Mean: 3.0\n"


# ---------------------------------------------------------------------- values


@pytest.mark.parametrize(
    "code, text",
    [("1+1", "2"), ("'abc'", "'abc'"), ("(1, 2)", "(1, 2)"), ("{3}", "{3}"), ("1.5;", "1.5"), ("b'x'", "b'x'"), ("range(3)", "range(0, 3)")],
)
def test_text(lab, python, code, text):
    run = lab.run(code, python)
    assert formats(run) == ["text"] and run.text == text and run.stdout == ""


def test_nothing_for_none(lab, python):
    assert lab.run("None", python).results == [] and lab.run("x = 5", python).results == []


def test_dict_and_list_are_json(lab, python):
    run = lab.run("{'a': [1, 2.5, None, True, 'é'], 'b': {'c': ()}}", python)
    assert formats(run) == ["json"] and run.results[0]["json"] == {"a": [1, 2.5, None, True, "é"], "b": {"c": []}}
    assert "'a'" in run.results[0]["data"]["text/plain"]
    assert lab.run("[1, 2]", python).results[0]["json"] == [1, 2]


@pytest.mark.parametrize("code", ["[float('nan')]", "{'x': {1, 2}}", "[object()]", "a = []; a.append(a); a", "{(1, 2): 3}", "[10 ** 400]"])
def test_what_json_cannot_say_is_text(lab, python, code):
    run = lab.run(code, python)
    assert formats(run) == ["text"] and run.error is None


def test_display_comes_first_then_figures_then_the_value(lab, python):
    run = lab.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\ndisplay('a')\ndisplay({'b': 1})\n'last'", python)
    assert formats(run) == ["text", "json", "png", "text"]
    assert run.results[0]["text"] == "'a'" and run.results[3]["text"] == "'last'"


def test_mime_types(lab, python):
    run = lab.run(
        "from IPython.display import *\n"
        "for x in (HTML('<b>'), Latex('$x$'), Markdown('# h'), JSON({'a': 1}), Javascript('1'),\n"
        "          SVG(\"<svg xmlns='http://www.w3.org/2000/svg'/>\")):\n    display(x)\n",
        python,
    )
    assert formats(run) == ["html", "latex", "markdown", "json", "javascript", "svg"]
    assert run.results[0]["html"] == "<b>" and run.results[3]["json"] == {"a": 1}


def test_repr_methods_of_any_object(lab, python):
    run = lab.run(
        "class Thing:\n    def _repr_html_(self): return '<i>thing</i>'\n    def _repr_latex_(self): return '$t$'\n"
        "    def __repr__(self): return 'Thing'\nThing()",
        python,
    )
    assert formats(run) == ["html", "latex", "text"] and run.results[0]["data"]["text/plain"] == "Thing"
    run = lab.run("class Both:\n    def _repr_mimebundle_(self, **kw): return {'text/plain': 'p', 'text/markdown': '*m*'}\nBoth()", python)
    assert formats(run) == ["markdown"] and run.results[0]["data"] == {"text/plain": "p", "text/markdown": "*m*"}


def test_pictures(lab, python):
    run = lab.run("from PIL import Image\nImage.new('RGB', (3, 2), (255, 0, 0))", python)
    assert formats(run) == ["png"] and picture(run.results[0]).getpixel((1, 1)) == (255, 0, 0)
    run = lab.run(
        "import io\nfrom IPython.display import Image as Show\nbuffer = io.BytesIO()\nImage.new('RGB', (8, 8)).save(buffer, 'JPEG')\n"
        "Show(buffer.getvalue(), format='jpeg', width=40)",
        python,
    )
    assert formats(run) == ["jpeg"] and base64.b64decode(run.results[0]["jpeg"]).startswith(b"\xff\xd8")
    assert run.results[0]["metadata"] == {"width": 40}


# ---------------------------------------------------------------------- figures


def test_several_figures_without_show(lab, python):
    run = lab.run("import matplotlib.pyplot as plt\nfor i in range(3):\n    plt.figure()\n    plt.plot([i, 1])\n    plt.title(str(i))", python)
    assert formats(run) == ["png"] * 3 and [r["chart"]["title"] for r in run.results] == ["0", "1", "2"]
    assert lab.run("plt.get_fignums()", python).results[0]["json"] == []


def test_a_figure_as_value_is_shown_once(lab, python):
    assert formats(lab.run("import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1, 2])\nfig", python)) == ["png"]
    assert formats(lab.run("fig", python)) == ["png"], "also when it is closed by now"


def test_svg_on_request(lab, python):
    run = lab.run("%config InlineBackend.figure_formats = ['svg']\nimport matplotlib.pyplot as plt\nplt.plot([1, 2]);", python)
    assert formats(run)[0] == "svg" and "<svg" in run.results[0]["svg"]


CHARTS = {
    "line": ("plt.plot([1, 2], [3, 4], label='L')", {"type": "line", "label": "L", "x": [1, 2], "y": [3, 4]}),
    "scatter": ("plt.scatter([1, 2], [3, 4])", {"type": "scatter", "x": [1, 2], "y": [3, 4]}),
    "bar": ("plt.bar(['a', 'b'], [3, 4])", {"type": "bar", "orientation": "vertical", "x": ["a", "b"], "y": [3, 4]}),
    "barh": ("plt.barh(['a', 'b'], [3, 4])", {"type": "bar", "orientation": "horizontal", "x": [3, 4], "y": ["a", "b"]}),
    "pie": ("plt.pie([1, 3], labels=['a', 'b'])", {"type": "pie", "values": [0.25, 0.75], "labels": ["a", "b"]}),
    "histogram": ("plt.hist([1, 1, 2, 4], bins=[1, 2, 3, 4])", {"type": "histogram", "bins": [1, 2, 3, 4], "counts": [2, 1, 1]}),
    "heatmap": ("plt.imshow([[1, 2], [3, 4]])", {"type": "heatmap", "shape": [2, 2], "z": [[1, 2], [3, 4]]}),
    "pandas": ("import pandas as pd\npd.DataFrame({'v': [5, 6]}, index=['p', 'q']).plot.bar()", {"type": "bar", "label": "v", "orientation": "vertical", "x": ["p", "q"], "y": [5, 6]}),
}


@pytest.mark.parametrize("kind", CHARTS)
def test_charts(lab, python, kind):
    code, series = CHARTS[kind]
    run = lab.run(f"import matplotlib.pyplot as plt\n{code}\nplt.title('T'); plt.xlabel('X')\nNone", python)
    chart = run.results[0]["chart"]
    assert chart["type"] == series["type"] and chart["title"] == "T" and chart["layout"]["xlabel"] == "X"
    assert chart["data"] == [series]


def test_box_plot(lab, python):
    run = lab.run("import matplotlib.pyplot as plt\nplt.boxplot([[1, 2, 3, 4, 50], [2, 3, 4]])\nNone", python)
    chart = run.results[0]["chart"]
    assert chart["type"] == "box" and len(chart["data"]) == 1, "its lines are not told a second time"
    first = chart["data"][0]["boxes"][0]
    assert (first["q1"], first["median"], first["q3"], first["outliers"]) == (2, 3, 4, [50])


# ---------------------------------------------------------------------- state, magics, errors


def test_state_persists(lab, python):
    lab.run("import collections, os\nx = 42\ndef f(n): return n + x\nclass C: pass\nos.chdir('/')", python)
    assert lab.run("print(x, f(1), C.__name__, collections.OrderedDict.__name__, os.getcwd())", python).stdout == "42 43 C OrderedDict /\n"
    lab.run("5 * 5", python)
    assert lab.run("_ + 1", python).text == "26"


def test_top_level_await(lab, python):
    run = lab.run("import asyncio\nawait asyncio.sleep(0)\nasync def f(): return 'later'\nawait f()", python)
    assert run.text == "'later'"
    assert lab.run("asyncio.run(f())", python).text == "'later'"


def test_magics(lab, python, folder):
    assert lab.run("!echo out; echo err >&2", python).stdout == "out\n"
    assert lab.run("!echo out; echo err >&2", python).stderr == "err\n"
    assert lab.run("%%bash\nfor i in 1 2; do echo $i; done", python).stdout == "1\n2\n"
    assert lab.run("found = !echo captured\nfound[0]", python).text == "'captured'"
    assert "Wall time" in lab.run("%time 1", python).stdout
    lab.run(f"%%writefile {folder}/m.py\nvalue = 9", python)
    assert lab.run(f"%cd -q {folder}\nimport m\nm.value", python).text == "9"
    assert "usage" in lab.run("%pip --help", python).stdout.lower()
    lab.run("%matplotlib inline", python)
    assert lab.run("%nosuchmagic", python).error["ename"] == "UsageError"
    assert lab.run("%%time\n1/0", python).error["ename"] == "ZeroDivisionError"


def test_output_of_subprocesses_and_descriptors(lab, python):
    run = lab.run("import subprocess, os\nsubprocess.run('echo sub; echo sub2 >&2', shell=True, check=True)\nn = os.write(1, b'raw\\n')", python)
    assert run.stdout == "sub\nraw\n" and run.stderr == "sub2\n"


def test_warnings_go_to_stderr(lab, python):
    run = lab.run("import warnings\nwarnings.warn('careful')", python)
    assert "UserWarning: careful" in run.stderr and run.stdout == ""


def test_traceback_starts_at_the_user_s_code(lab, python):
    run = lab.run("def outer():\n    inner()\ndef inner():\n    raise ValueError('ü')\nouter()", python)
    assert run.error["ename"] == "ValueError" and run.error["evalue"] == "ü" and run.stdout == ""
    text = "\n".join(run.error["traceback"])
    assert "silica" not in text and "IPython/core" not in text and "\x1b" not in text
    assert text.index("----> 5 outer()") < text.index("----> 2     inner()") < text.index("----> 4     raise ValueError")


@pytest.mark.parametrize("code, name", [("x = = 1", "SyntaxError"), ("if True:\nprint(1)", "IndentationError"), ("def f(:", "SyntaxError")])
def test_syntax_errors_are_errors(lab, python, code, name):
    run = lab.run("ran = True\n" + code, python)
    assert run.error["ename"] == name and "line" in run.error["evalue"] and run.stdout == ""
    assert lab.run("'ran' in globals()", python).text == "False", "nothing of it was run"


def test_chained_exceptions(lab, python):
    text = "\n".join(lab.run("try:\n    {}['k']\nexcept KeyError as e:\n    raise RuntimeError('r') from e", python).error["traceback"])
    assert "KeyError" in text and "RuntimeError" in text


def test_sys_exit(lab, python):
    lab.run("kept = 1", python)
    for code in ("import sys; sys.exit(3)", "exit()", "quit", "raise SystemExit(4)"):
        run = lab.run(code, python)
        assert run.error["ename"] == "SystemExit" and run.stderr == ""
    assert lab.run("kept", python).text == "1"


def test_input_gives_a_clear_error(lab, python):
    run = lab.run("name = input('who? ')", python)
    assert run.error["ename"] == "EOFError" and "input()" in run.error["evalue"]
    assert lab.run("import sys; sys.stdin.read()", python).text == "''"


def test_multiprocessing(lab, python):
    run = lab.run("import multiprocessing as mp\ndef square(x): return x * x\nwith mp.get_context('fork').Pool(2) as p: r = p.map(square, [1, 2, 3])\nr", python)
    assert run.results[0]["json"] == [1, 4, 9]


def test_a_forked_child_does_not_speak_for_the_context(lab, python):
    run = lab.run("import os\npid = os.fork()\nif pid == 0: display('child'); 1/0\nos.waitpid(pid, 0)\n'parent'", python)
    assert [r["text"] for r in run.results] == ["'parent'"] and run.error is None


def test_contexts_throw_different_dice(lab, make):
    code = "import random, numpy, uuid\n(random.random(), numpy.random.rand(), uuid.uuid4().hex)"
    assert len({lab.run(code, make()).text for _ in range(3)}) == 3
