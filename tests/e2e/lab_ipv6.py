# SPDX-License-Identifier: Apache-2.0
"""IPv6 for the small internet of lab.py. Its public addresses are of a part of the address space that nobody has yet."""
import os
import subprocess
import sys

import pytest

from lab import LISTENER, Lab, ns
from silica import wait_for

HOST6 = "2e00:51::10"  # the daemon's host on its uplink
ROUTER6 = "2e00:51::1"
SITE6, OTHER6, THIRD6 = "2e00:100::7", "2e00:100::8", "2e00:100::9"  # public services
NEIGHBOUR6 = "fd77::2"  # somebody in the host's private network
# every address the world answers at, if a packet gets there: private, metadata, and IPv4 in disguise
FORBIDDEN6 = [NEIGHBOUR6, "fd00:ec2::254", "fd20:ce::254", "fec0::7", "64:ff9b::c0a8:4d02", "2002:c0a8:4d02::1", "2001::7",
              "2001:db8::7", "3fff::7", "4000::7", "100::7"]
WORLD6 = [ROUTER6, SITE6, OTHER6, THIRD6, *FORBIDDEN6]

# lab.py's, with sockets of the other family
LISTENER6 = LISTENER.replace('s = socket.socket()', 's = socket.socket(socket.AF_INET6)') \
    .replace('s = socket.socket(type=socket.SOCK_DGRAM)', 's = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)') \
    .replace('s.bind(("0.0.0.0", port))', 's.setsockopt(41, 26, 1); s.bind(("::", port))')


def missing():
    """Why this machine cannot play; None: it can."""
    if not os.path.exists("/proc/sys/net/ipv6/conf/lo/force_forwarding"):
        return "this kernel has no IPv6, or cannot forward it for one interface"
    return None


needed = pytest.mark.skipif(missing() is not None, reason=str(missing()))


class Lab6(Lab):
    def __init__(self, tmp):
        super().__init__(tmp)
        for address in (f"{HOST6}/64", "fd77::1/64"):
            self.on_host("ip", "addr", "add", address, "dev", "up0", "nodad")
        for address in WORLD6:
            prefix = 64 if address in (ROUTER6, NEIGHBOUR6) else 128
            ns(self.world, "ip", "addr", "add", f"{address}/{prefix}", "dev", "net0", "nodad")
        self.on_host("ip", "route", "add", "default", "via", ROUTER6)
        before = self.seen().count("ready")
        self.listener6 = subprocess.Popen(["nsenter", "-t", str(self.world), "-n", sys.executable, "-c", LISTENER6,
                                           self.log_path, *WORLD6])
        wait_for(lambda: self.seen().count("ready") == before + 3 + 2 * len(WORLD6), what="the world's services")

    def close(self):
        self.listener6.kill()
        self.listener6.wait()
        super().close()
