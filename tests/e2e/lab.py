# SPDX-License-Identifier: Apache-2.0
"""A small internet for tests: a network namespace for the daemon's host, and one that plays the world around it.

Everything lives in these two namespaces and ends with them; the machine's own network is not touched.
"""
import http.client
import json
import os
import socket
import subprocess
import sys

import silica
from silica import wait_for

HOST = "203.0.113.10"  # the daemon's host on its uplink
SITE = "198.51.100.7"  # a public service
NEIGHBOUR = "192.168.77.2"  # somebody on the host's local network
METADATA = "169.254.169.254"
RESOLVER = "192.168.77.53"
# every address the world answers at, if a packet gets there
FORBIDDEN = [NEIGHBOUR, METADATA, "10.9.9.9", "100.64.0.5", "172.16.5.5", "192.0.0.5", "198.18.0.5", "10.213.200.1"]
WORLD = ["203.0.113.1", SITE, RESOLVER, *FORBIDDEN]

# Answers on TCP and UDP wherever it is reached, and writes down who reached it: "tcp ADDRESS PORT FROM".
LISTENER = r"""
import socket, sys, threading
lock = threading.Lock()
log = open(sys.argv[1], "a")
def note(*what):
    with lock:
        log.write(" ".join(map(str, what)) + "\n")
        log.flush()
def tcp(port):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("0.0.0.0", port))
    s.listen(1024)
    note("ready")
    while True:
        c, peer = s.accept()
        note("tcp", c.getsockname()[0], port, peer[0])
        c.sendall(b"hello")
        c.close()
def udp(port, address):
    s = socket.socket(type=socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    s.bind((address, port))
    note("ready")
    while True:
        data, peer = s.recvfrom(2048)
        note("udp", address, port, peer[0])
        s.sendto(b"hello", peer)
work = [(tcp, (p,)) for p in (25, 53, 80)] + [(udp, (p, a)) for p in (53, 9000) for a in sys.argv[2:]]
for f, args in work[1:]:
    threading.Thread(target=f, args=args, daemon=True).start()
work[0][0](*work[0][1])
"""

# Tries each "tcp|udp ADDRESS PORT" at once; one line of JSON {target: "hello" or the error}. Connections come about in the kernel,
# without delay; the answer is a program's, which on a busy machine takes its time.
PROBE = r"""
import json, socket, sys, threading
found = {}
def go(target):
    kind, address, port = target.split()
    try:
        family, kind_, _, _, where = socket.getaddrinfo(address, int(port), 0,
            socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind_) as s:
            s.settimeout(WAIT)
            s.connect(where)
            if kind == "udp":
                s.send(b"?")
            s.settimeout(3 * WAIT if kind == "udp" else 30)
            found[target] = s.recv(16).decode() or "closed"
    except OSError as e:
        found[target] = type(e).__name__ + " " + str(e)
threads = [threading.Thread(target=go, args=(t,)) for t in json.loads(TARGETS)]
[t.start() for t in threads]
[t.join() for t in threads]
print(json.dumps(found))
"""


def ns(pid, *command, **options):
    r = subprocess.run(["nsenter", "-t", str(pid), "-n", *command], capture_output=True, text=True, **options)
    assert r.returncode == 0, (command, r.stderr)
    return r.stdout


class Lab:
    def __init__(self, tmp):
        self.log_path = f"{tmp}/world.log"
        self.holders = [subprocess.Popen(["unshare", "-n", "sleep", "infinity"]) for _ in range(2)]
        own = os.readlink("/proc/self/ns/net")
        for p in self.holders:
            wait_for(lambda p=p: os.readlink(f"/proc/{p.pid}/ns/net") != own, what="a namespace")
        self.host, self.world = (p.pid for p in self.holders)
        self.on_host("ip", "link", "add", "up0", "type", "veth", "peer", "name", "net0", "netns", str(self.world))
        for link in ("lo", "up0"):
            self.on_host("ip", "link", "set", link, "up")
        for address in (f"{HOST}/24", "192.168.77.1/24"):
            self.on_host("ip", "addr", "add", address, "dev", "up0")
        self.on_host("ip", "route", "add", "default", "via", "203.0.113.1")
        for link in ("lo", "net0"):
            ns(self.world, "ip", "link", "set", link, "up")
        for address in WORLD:
            prefix = 24 if address.startswith(("203.0.113.", "192.168.77.")) else 32
            ns(self.world, "ip", "addr", "add", f"{address}/{prefix}", "dev", "net0")
        self.listener = subprocess.Popen(["nsenter", "-t", str(self.world), "-n", sys.executable, "-c", LISTENER,
                                          self.log_path, *WORLD])
        sockets = 3 + 2 * len(WORLD)
        wait_for(lambda: self.seen().count("ready") == sockets, what="the world's services")

    def on_host(self, *command):
        return ns(self.host, *command)

    def seen(self):
        try:
            return open(self.log_path).read().splitlines()
        except FileNotFoundError:
            return []

    def visits(self):
        return [line for line in self.seen() if line != "ready"]

    def state(self):
        """What the daemon could leave behind on its host."""
        return {"links": sorted(line.split(":")[1].strip() for line in self.on_host("ip", "-o", "link").splitlines()),
                "rules": self.on_host("nft", "list", "ruleset"), "routes": self.on_host("ip", "route"),
                "routes6": self.on_host("ip", "-6", "route"), "addresses6": self.on_host("ip", "-6", "-o", "addr").replace(" tentative", ""),
                "forwarding": self.on_host("sysctl", "-n", "net.ipv4.ip_forward", "net.ipv4.conf.up0.forwarding"),
                "forwarding6": self.on_host("sysctl", "-en", "net.ipv6.conf.all.forwarding",
                                            "net.ipv6.conf.up0.force_forwarding"),
                "accounting": self.on_host("sysctl", "-n", "net.netfilter.nf_conntrack_acct")}

    def close(self):
        for p in (self.listener, *self.holders):
            p.kill()
            p.wait()


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class LabDaemon(silica.Daemon):
    """A daemon in the lab's host; spoken to over a unix socket, which needs no network."""
    network = "public"

    def __init__(self, lab, name, args=(), **kwargs):
        super().__init__(name, args=["--dns", RESOLVER, *args], **kwargs)
        self.lab = lab
        self.path = self.dir + "/api"
        self.args += ["--listen", f"unix:{self.path}", "--listen", "0.0.0.0:8787"]
        self.prefix = ["nsenter", "-t", str(lab.host), "-n"]

    def connection(self, timeout):
        return UnixConnection(self.path, timeout)

    def port_open(self):
        with socket.socket(socket.AF_UNIX) as s:
            return s.connect_ex(self.path) == 0

    def probe(self, sandbox, targets, wait=1.0):
        text = PROBE.replace("TARGETS", repr(json.dumps(targets))).replace("WAIT", str(wait))
        return json.loads(self.out(sandbox, f"python3 - <<'EOF'\n{text}\nEOF"))
