# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: a test that hangs is a test that fails, with the place where it waits.

Without it one lost answer would cost the whole run, and nobody would learn which. The limit is far beyond what any test needs on a slow
machine: it is no measurement. Set-up and clean-up have the same time again."""
import contextlib
import os
import signal

import pytest

LIMIT_S = int(os.environ.get("SILICA_TEST_LIMIT", "900"))


class Hung(BaseException):
    """Nothing that a test expects, and so nothing that it catches."""


@contextlib.contextmanager
def limited(what):
    def over(number, frame):
        raise Hung(f"{what} took more than {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup(item):
    with limited("the set-up"):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    with limited("the test"):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item):
    with limited("the clean-up"):
        yield
