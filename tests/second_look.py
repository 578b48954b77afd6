# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: a test that fails is tried once more, and either way it is told.

For machines that are shared and slow at times, where one unlucky moment among thousands of tests would hide what the others say.
A test that fails twice has failed; so has the one after SILICA_SECOND_LOOKS of them, for that is no bad luck any more. What passes
only the second time is listed with its first failure, to be repaired: the race may be in the test, or in what it tests."""
import os

import pytest
from _pytest.runner import runtestprotocol

looks = int(os.environ.get("SILICA_SECOND_LOOKS", "0"))
first_failures = []
os.environ.pop("PYTHONPATH", None)  # how this was found; not for what the tests start


def failure(reports):
    return next((r for r in reports if r.failed), None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    failed = failure(reports)
    if failed and len(first_failures) < looks:
        item._initrequest()  # fixtures of its own, as if it had not run
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        first_failures.append((item.nodeid, failed, failure(reports) is None))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter):
    for name, report, passed in first_failures:
        terminalreporter.write_sep("_", f"first attempt of {name}")
        terminalreporter.write_line(report.longreprtext)
    for name, report, passed in first_failures:
        lines = report.longreprtext.strip().splitlines()
        why = next((line[1:].strip() for line in lines if line.startswith("E ")), lines[-1])[:200]
        terminalreporter.write_line(f"AGAIN {name} ({report.when}) {'passed' if passed else 'did not pass'} at the second attempt; first: {why}")
