# SPDX-License-Identifier: Apache-2.0
"""What an idle agent costs."""
import os

import pytest
from conftest import wait_until
from test_sandbox_mode import sandbox, sandbox_factory  # noqa: F401  (fixtures)


def is_static():
    agent = os.environ.get("SILICA_AGENT")
    if not agent:
        return False
    with open(agent, "rb") as f:
        return b"/lib64/ld-linux" not in f.read(4096)


def pss(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Pss:"))


@pytest.mark.skipif(not is_static(), reason="counts for the static agent that sandboxes run")
def test_idle_memory(sandbox, api):  # noqa: F811
    """At most 300 KB, also after it has worked; pages that were needed for a moment are given back. Those of the program are shared
    with other agents: there is one."""
    sandbox.boot()
    sandbox.out("seq 1 100000")
    wait_until(lambda: pss(sandbox.agent_pid()) <= 300, f"300 KB; now it has {pss(sandbox.agent_pid())} KB")
