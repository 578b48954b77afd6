# SPDX-License-Identifier: Apache-2.0
"""errors: an exception as the user should see it: from his own first line on."""

import asyncio
import os
import sys
import traceback

import IPython
from IPython.core.async_helpers import get_asyncio_loop
from IPython.core.error import UsageError

from .results import clean, cut

LINES_MAX = 400
VALUE_MAX = 64 << 10
_RUNTIME = os.path.dirname(__file__) + os.sep
_HIDDEN = (_RUNTIME, os.path.dirname(IPython.__file__) + os.sep, os.path.dirname(asyncio.__file__) + os.sep)


def _first_user_frame(shell, tb):
    """Where the user's code begins: the first frame of a cell, else the first which is not part of the machinery."""
    known = shell.compile._filename_map
    frame = tb
    while frame is not None:
        if frame.tb_frame.f_code.co_filename in known:
            return frame
        frame = frame.tb_next
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith(_HIDDEN):
        tb = tb.tb_next
    return tb


def _without_runtime(tb):
    """Cuts off what user code has called of ours: input(), the signal handler."""
    last = tb
    while last is not None and last.tb_next is not None:
        if last.tb_next.tb_frame.f_code.co_filename.startswith(_RUNTIME):
            last.tb_next = None
        last = last.tb_next
    return tb


def _lines(shell, kind, value, tb):
    if issubclass(kind, SyntaxError):
        start = _first_user_frame(shell, tb)
        frames = traceback.extract_tb(start) if start is not None else []
        frames = [] if frames and frames[-1].filename.startswith(_HIDDEN) else frames
        return shell.SyntaxTB.structured_traceback(kind, value, frames)
    if issubclass(kind, (UsageError, SystemExit)):
        return []
    start = _without_runtime(_first_user_frame(shell, tb))
    return shell.InteractiveTB.structured_traceback(kind, value, start, tb_offset=0)


def describe(shell, shown):
    """The error event of what shell.showtraceback was given."""
    kind, value, tb = shown
    try:
        text = "\n".join(_lines(shell, kind, value, tb))
    except BaseException:  # hostile __str__, sources that changed meanwhile, no memory
        try:
            text = "".join(traceback.format_exception(kind, value, _first_user_frame(shell, tb), limit=50))
        except BaseException:
            text = ""
    lines = text.strip("\n").split("\n") if text else []
    if lines and not lines[0].strip("-"):
        del lines[0]  # IPython's ruler
    if len(lines) > LINES_MAX:
        lines = lines[: LINES_MAX // 2] + [f"[{len(lines) - LINES_MAX} lines left out]"] + lines[-LINES_MAX // 2 :]
    try:
        message = str(value)
        if issubclass(kind, SyntaxError) and value.filename in shell.compile._filename_map:
            message = f"{value.msg} (line {value.lineno})"  # without the cell's internal name
    except BaseException as e:
        message = f"<unprintable {kind.__name__}: str() raised {type(e).__name__}>"
    return {
        "ename": clean(kind.__name__),
        "evalue": cut(message, VALUE_MAX),
        "traceback": [cut(line, 4096) for line in lines],
    }


def interruptible_runner(coroutine):
    """Runs a cell with top-level await; an interrupt cancels this cell, not the tasks it has started."""
    loop = get_asyncio_loop()
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except (KeyboardInterrupt, SystemExit):
        task.cancel()
        try:
            loop.run_until_complete(task)
        except BaseException:
            pass  # what it says about being cancelled
        raise
    finally:
        sys.stdout.flush()
