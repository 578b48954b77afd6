# SPDX-License-Identifier: Apache-2.0
"""How much, and what it costs the agent.

SILICA_TEST_SCALE  a factor for the sizes of floods and crowds; without it 1, and 0.05 for an agent with sanitizers
"""
import os


def sanitized():
    agent = os.environ.get("SILICA_AGENT")
    if not agent or os.environ.get("SILICA_BASE_URL"):
        return False
    with open(agent, "rb") as f:
        return b"__asan_init" in f.read()


SANITIZED = sanitized()
SCALE = float(os.environ.get("SILICA_TEST_SCALE", 0.05 if SANITIZED else 1))


def scaled(n, least=1):
    return max(least, int(n * SCALE))


def memory(process, field="VmRSS"):
    """Bytes of a process; VmHWM is the most it ever had."""
    with open(f"/proc/{process.pid}/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(field + ":"))


def reset_peak(process):
    with open(f"/proc/{process.pid}/clear_refs", "w") as f:
        f.write("5")


class Growth:
    """The most memory an agent has used within the block, beyond what it had before. Sanitizers keep freed memory."""

    def __init__(self, process):
        self.process = process

    def __enter__(self):
        reset_peak(self.process)
        self.before = memory(self.process)
        return self

    def __exit__(self, *_):
        self.bytes = memory(self.process, "VmHWM") - self.before
        print(f"the agent has grown by {self.bytes >> 10} KiB, from {self.before >> 10}")

    def assert_below(self, limit):
        if not SANITIZED:
            assert self.bytes < limit, f"the agent has grown by {self.bytes} bytes"
