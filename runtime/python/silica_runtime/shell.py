# SPDX-License-Identifier: Apache-2.0
"""shell: IPython's shell, with its outputs led to the context instead of a terminal."""

import sys

from IPython.core.autocall import ExitAutocall
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.formatters import DisplayFormatter
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from . import charts, tables
from .results import CHART_MIME, TABLE_MIME

OUT_MAX = 256  # remembered values (Out, _5): bounded, because each keeps its object alive


# Values of these types have no method that makes a picture or a page of them: asking a dozen formatters for nothing
# would take longer than the rest of a small run.
PLAIN = frozenset((int, float, complex, bool, str, bytes, tuple, set, dict, list))


class Formatter(DisplayFormatter):
    """Adds what IPython does not know: chart data of figures, structured tables, plain data as JSON."""

    def is_plain(self, obj):
        kind = type(obj)
        return kind in PLAIN and not any(
            kind in f.type_printers for mime, f in self.formatters.items() if mime != "text/plain"
        )

    def format(self, obj, include=None, exclude=None):
        if include is None and exclude is None and self.is_plain(obj):
            text = self.formatters["text/plain"](obj)
            data, metadata = ({} if text is None else {"text/plain": text}), {}
        else:
            data, metadata = super().format(obj, include, exclude)
        try:
            if isinstance(obj, (dict, list)):
                data["application/json"] = obj
            elif charts.is_figure(obj):
                chart = charts.describe(obj)
                if chart:
                    data[CHART_MIME] = chart
            elif tables.is_table(obj):
                data[TABLE_MIME] = tables.describe(obj)
        except Exception as e:  # extras never cost the user the result itself
            metadata["silica_error"] = f"{type(e).__name__}: {e}"
        return data, metadata


class Hook(DisplayHook):
    """The value of the last expression: kept until the figures are out, which come before it."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.kept = None
        self.outs = []

    def quiet(self):
        return False

    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        self.kept = (format_dict, md_dict or {})

    def log_output(self, format_dict):
        pass

    def finish_displayhook(self):
        pass

    def compute_format_data(self, result):
        if charts.is_figure(result) and charts.is_open(result):
            return {}, {}  # it comes with the open figures
        return super().compute_format_data(result)

    def update_user_ns(self, result):
        names = self.shell.user_ns
        if result is names.get("_oh"):
            return
        if names.get("_", self._) is self._:  # otherwise the user has a variable of that name
            names.update({"_": result, "__": self._, "___": self.__})
        self._, self.__, self.___ = result, self._, self.__
        count = self.prompt_count
        names[f"_{count}"] = result
        names.get("_oh", {})[count] = result
        self.outs.append(count)
        if len(self.outs) > OUT_MAX:
            old = self.outs.pop(0)
            names.pop(f"_{old}", None)
            names.get("_oh", {}).pop(old, None)


class Publisher(DisplayPublisher):
    """display(): straight to the context."""

    emit = None  # set by the context

    def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **kwargs):
        self._validate_data(data, metadata)
        if self.emit:
            self.emit(data, metadata or {})

    def clear_output(self, wait=False):
        pass  # what has been sent cannot be taken back


class Exiter(ExitAutocall):
    def __call__(self, code=None):
        raise SystemExit(code)


class Shell(InteractiveShell):
    displayhook_class = Hook
    display_pub_class = Publisher
    system = InteractiveShell.system_raw  # the command writes to our descriptors itself, as it goes

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.shown = None
        self.exiter = Exiter(self)
        for name in ("exit", "quit"):
            self.user_ns[name] = self.user_ns_hidden[name] = self.exiter

    def init_display_formatter(self):
        self.display_formatter = Formatter(parent=self)
        self.configurables.append(self.display_formatter)

    # Errors are remembered here and told once, by the context, when the run is over.
    def showtraceback(self, exc_tuple=None, *args, **kwargs):
        try:
            self.shown = self._get_exc_info(exc_tuple)
        except ValueError:
            print("No traceback available to show.", file=sys.stderr)

    def showsyntaxerror(self, *args, **kwargs):
        self.shown = self._get_exc_info()

    def enable_gui(self, gui=None):
        pass  # there is no window

    def enable_matplotlib(self, gui=None):
        return gui or "inline", "inline"  # figures are always shown inline

    def ask_exit(self):
        raise SystemExit


def make():
    config = Config()
    config.HistoryManager.enabled = False  # neither a file nor a thread
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.xmode = "Context"
    config.InteractiveShell.banner1 = ""
    config.BaseIPythonApplication.ipython_dir = ""
    return Shell.instance(config=config)
