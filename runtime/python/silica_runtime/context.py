# SPDX-License-Identifier: Apache-2.0
"""context: one context's life: runs what the agent sends, tells results, errors and the end of each run.

Requests:  {"op":"init","cwd":...,"env":{...}}   once, first; answered by "h" (here), with an error text if it failed
           {"op":"run","run":n,"count":c,"code":...}
           {"op":"ack"}                          a result was taken
Messages:  h0 {...}  here        b<n> {}  the run begins: from now on it can be interrupted
           a<n> {...}  a result, and the code waits for the ack        r<n> {...}  a result after the code
           e<n> {...}  the error        d<n> {}  the run is over
What the code prints does not pass through here: descriptors 1 and 2 are pipes to the agent. All that was printed is in
them before a message follows, and nothing more is printed before the message was taken, so the agent keeps the order by
emptying the pipes when a message arrives.
"""

import builtins
import collections
import faulthandler
import gc
import os
import signal
import sys
import threading
import warnings

from . import backend, channel, errors, results, shell as shell_module

CELLS_MAX = 500  # sources kept for tracebacks


def make_shell():
    """The shell all contexts start from; in the zygote."""
    import matplotlib

    matplotlib.use("module://silica_runtime.backend")
    import IPython.display  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import numpy  # noqa: F401
    import pandas  # noqa: F401
    from IPython.core.pylabtools import select_figure_formats
    from matplotlib_inline.config import InlineBackend

    from . import charts

    charts.install()
    shell = shell_module.make()
    inline = InlineBackend.instance(parent=shell)  # so that %config InlineBackend.figure_formats works
    inline.shell = shell
    shell.configurables.append(inline)
    select_figure_formats(shell, {"png"}, bbox_inches="tight")
    return shell


def warm(shell):
    """Runs a little of everything once, so that no context has to load it."""
    shell.run_cell("1 + 1\n", store_history=False)
    shell.run_cell("1 / 0\n", store_history=False)
    errors.describe(shell, shell.shown)
    shell.reset(new_session=False)
    shell.shown = shell.displayhook.kept = None
    shell.displayhook.outs.clear()
    shell.displayhook._ = shell.displayhook.__ = ""


def _input(prompt=""):
    raise EOFError("input() cannot ask here: nobody sits at a keyboard; put the value into the code")


class Context:
    def __init__(self, shell):
        self.shell = shell
        self.line = None
        self.run = 0
        self.left = 0  # results this run may still send
        self.cells = collections.deque()

    # ------------------------------------------------------------------ life

    def prepare(self):
        """What can be done before it is known for whom; descriptors 1 and 2 are not ours yet."""
        gc.enable()
        signal.signal(signal.SIGINT, self.on_interrupt)
        for name in ("stdout", "stderr"):
            self.make_stream(name)
        sys.path[0] = ""
        builtins.input = _input
        warnings.filterwarnings("ignore", message="To exit: use")
        self.shell.display_pub.emit = self.emit
        self.shell.loop_runner = errors.interruptible_runner
        backend.publish = self.publish_figure
        sys.modules["numpy"].random.seed()  # otherwise all contexts would throw the same dice
        faulthandler.enable(2)
        os.register_at_fork(after_in_child=self.forked)

    def serve(self, line, spares):
        """spares: copies of descriptors 1 and 2, for code that closes them."""
        self.line = line
        self.spares = spares
        self.files = [os.fstat(fd).st_ino for fd in spares]
        while True:
            request = line.receive()
            if request is None:
                return
            if request["op"] == "run":
                self.execute(request)
            elif request["op"] == "init":
                line.send("h", 0, channel.encode_json(self.init(request)))

    def init(self, request):
        for name, value in request.get("env", {}).items():
            os.environ[name] = value
        for entry in reversed(request.get("env", {}).get("PYTHONPATH", "").split(":")):
            if entry:
                sys.path.insert(1, entry)
        try:
            os.chdir(request["cwd"])
        except OSError as e:
            return {"error": f"{request['cwd']}: {e.strerror}"}
        return {}

    def forked(self):
        """In a child made by user code: it has no part in the protocol."""
        self.line.close()

    def on_interrupt(self, number, frame):
        if self.run and self.line.ours and not self.line.interrupt_deferred():
            raise KeyboardInterrupt

    # ------------------------------------------------------------------ output

    def flush(self):
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass  # closed, or replaced by something that cannot be flushed

    def make_stream(self, name):
        number = 1 if name == "stdout" else 2
        stream = open(number, "w", 1, "utf-8", "backslashreplace", closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)

    def repair_streams(self):
        """Code may close or replace what it prints to; the next run starts with working streams."""
        for fd, spare, file in zip((1, 2), self.spares, self.files):
            try:
                if os.fstat(fd).st_ino == file:
                    continue
            except OSError:
                pass
            os.dup2(spare, fd)
        for name in ("stdout", "stderr"):
            if getattr(getattr(sys, name, None), "closed", True):
                self.make_stream(name)

    def tell(self, event, last):
        """From the code's own thread it waits, so that what is printed next comes next; other threads have no order."""
        waits = not last and self.run and threading.current_thread() is threading.main_thread()
        self.line.send("a" if waits else "r", self.run, channel.encode_json(event), hold=last)
        if waits and self.line.ours:
            self.line.wait_ack()

    def emit(self, data, metadata, last=False):
        self.flush()
        for event in results.events(data, metadata, last):
            self.left -= 1
            if self.left < 0:
                if self.left == -1:
                    text = f"[further results left out: more than {results.COUNT_MAX} in one run]"
                    self.tell({"text": text, "metadata": {}}, last)
                return
            self.tell(event, last)

    def publish_figure(self, figure):
        self.emit(*self.shell.display_formatter.format(figure))

    # ------------------------------------------------------------------ a run

    def execute(self, request):
        run = request["run"]
        self.left = results.COUNT_MAX
        shell = self.shell
        shell.shown = shell.displayhook.kept = None
        shell.execution_count = request["count"]
        self.run = run
        try:
            self.line.send("b", run, "{}")
            self.execute_cell(request["code"])
        except BaseException:  # an interrupt between the lines, or a shell that user code has taken apart
            shell.shown = sys.exc_info()
        self.run = 0
        self.line.forget_interrupt()
        if not self.line.ours:  # a copy of us, made by os.fork in the cell
            self.flush()
            os._exit(0)
        if shell.shown:
            self.line.send("e", run, channel.encode_json(errors.describe(shell, shell.shown)), hold=True)
        shell.shown = shell.displayhook.kept = None
        self.flush()
        self.repair_streams()
        self.forget_cells()
        self.line.send("d", run, "{}")

    def execute_cell(self, code):
        shell = self.shell
        shell.run_cell(code, store_history=False)
        figures = backend.open_figures()
        if figures:
            try:
                backend.publish_figures(figures)
            except Exception:
                shell.showtraceback()
        if shell.displayhook.kept:
            self.emit(*shell.displayhook.kept, last=True)

    def forget_cells(self):
        import linecache

        known = self.shell.compile._filename_map
        if len(known) <= len(self.cells):
            return
        for name in list(known)[len(self.cells) :]:
            self.cells.append(name)
        while len(self.cells) > CELLS_MAX:
            name = self.cells.popleft()
            known.pop(name, None)
            linecache.cache.pop(name, None)
            linecache._ipython_cache.pop(name, None)
