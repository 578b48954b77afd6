# SPDX-License-Identifier: Apache-2.0
"""strace around processes that already run: what they call, and calls made to fail."""
import contextlib
import os
import signal
import subprocess

import pytest
from silica import wait_for


def needs_strace():
    if subprocess.run(["strace", "-V"], capture_output=True).returncode != 0:
        pytest.skip("needs strace")


class Tracer:
    """with Tracer(pid, path, "-e", "inject=..."): every thread that the process has now; not its children, which are sandboxes."""

    def __init__(self, pid, path, *options):
        self.pid, self.path, self.options = pid, path, options

    def __enter__(self):
        threads = [x for task in os.listdir(f"/proc/{self.pid}/task") for x in ("-p", task)]
        self.proc = subprocess.Popen(["strace", "-qq", "-o", self.path, *self.options, *threads], stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            wait_for(self.attached, what="the tracer")
        except AssertionError:
            self.__exit__()
            raise
        return self

    def attached(self):
        assert self.proc.poll() is None, self.proc.stderr.read()
        tracers = set()
        for task in os.listdir(f"/proc/{self.pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{self.pid}/task/{task}/status") as f:  # it may end meanwhile
                tracers |= {line.split()[1] for line in f if line.startswith("TracerPid")}
        return "0" not in tracers

    def __exit__(self, *_):
        self.proc.send_signal(signal.SIGINT)  # lets go of them unharmed
        try:
            self.proc.wait(60)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
        self.proc.stderr.close()

    def lines(self):
        with open(self.path, errors="replace") as f:
            return f.read().splitlines()

    def injected(self):
        return sum("(INJECTED)" in line for line in self.lines())


def gateway_pid(d):
    """The keeper's child that talks to the network."""
    def find():
        for pid in open(f"/proc/{d.proc.pid}/task/{d.proc.pid}/children").read().split():
            with contextlib.suppress(OSError):  # others come and go
                if open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")[1:2] == [b"gateway"]:
                    return int(pid)
        return None
    return wait_for(find, what="the gateway's process")
