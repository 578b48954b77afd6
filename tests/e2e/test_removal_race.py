# SPDX-License-Identifier: Apache-2.0
"""A sandbox whose first process dies in the very moment in which it is removed: one end, one answer, a keeper that lives on."""
import os
import signal
import threading

from silica import sandbox_processes

ABREAST, ROUNDS = 12, 6  # many at once keep the ledger busy, which widens the moment


def first_processes(daemon):
    """PID 1 of every sandbox, the prepared ones as well."""
    found = []
    for pid in sandbox_processes(daemon):
        try:
            with open(f"/proc/{pid}/status") as f:
                if next(line for line in f if line.startswith("NSpid:")).split()[-1] == "1":
                    found.append(pid)
        except (OSError, StopIteration):
            pass
    return found


def test_an_end_beside_a_removal(daemon):
    names = [f"racer-{i}" for i in range(ABREAST)]
    for _ in range(ROUNDS):
        for name in names:
            assert daemon.out(name, "echo here").strip() == "here"
        pids = first_processes(daemon)
        assert len(pids) >= ABREAST
        answers = []
        removals = [threading.Thread(target=lambda n=n: answers.append(daemon.destroy(n)["success"])) for n in names]
        for t in removals:
            t.start()
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for t in removals:
            t.join(60)
        assert answers == [True] * ABREAST, daemon.log()[-4000:]
    assert daemon.proc.poll() is None and "Sanitizer" not in daemon.log(), daemon.log()[-4000:]
