# SPDX-License-Identifier: Apache-2.0
"""The packet filter among others, and a kernel that does not answer in time (catalogue areas 12 and 13)."""
import contextlib
import os
import subprocess

import pytest
from lab import FORBIDDEN, HOST, SITE, Lab, LabDaemon
from silica import clean, wait_for
from tracer import Tracer, gateway_pid, needs_strace


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    made = Lab(tmp_path_factory.mktemp("lab"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def net(lab):
    d = LabDaemon(lab, "netf", pool=0).start()
    yield d
    d.cleanup()


def nft(lab, text):
    subprocess.run(["nsenter", "-t", str(lab.host), "-n", "nft", "-f", "-"], input=text, text=True, check=True)


def forbidden_reached(d, sandbox):
    """What arrives where it must not, answered or not, and whether the daemon's own port can be connected to."""
    before = len(d.lab.visits())
    d.probe(sandbox, [f"{kind} {a} {port}" for a in FORBIDDEN for kind, port in (("tcp", 80), ("udp", 9000))], wait=0.3)
    host = d.out(sandbox, f"python3 -c \"import socket; s = socket.socket(); s.settimeout(0.3); print(s.connect_ex(('{HOST}', 8787)))\"")
    return [v for v in d.lab.visits()[before:] if v.split()[1] in FORBIDDEN] + (["the daemon's port"] if host == "0" else [])


def reaches(d, sandbox):
    return d.probe(sandbox, [f"tcp {SITE} 80"])[f"tcp {SITE} 80"] == "hello"


def netlink_sockets(pid):
    inodes = {line.split()[-1] for line in open(f"/proc/{pid}/net/netlink")}
    links = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            links.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return [link for link in links if link.startswith("socket:[") and link[8:-1] in inodes]


ACCEPT_ALL = """table inet {name} {{
    chain f {{ type filter hook forward priority {priority}; policy accept; accept; }}
    chain i {{ type filter hook input priority {priority}; policy accept; accept; }}
    chain o {{ type filter hook output priority {priority}; policy accept; accept; }}
}}
"""


def test_NET_11_rules_of_others_open_nothing(lab, net):
    """Another tool accepts everything before and behind us, is flushed, and goes: what we drop stays dropped, what we let through still passes."""
    net.out("among", "true")
    assert reaches(net, "among") and not forbidden_reached(net, "among")
    nft(lab, ACCEPT_ALL.format(name="early", priority=-300) + ACCEPT_ALL.format(name="late", priority=300))
    assert reaches(net, "among") and not forbidden_reached(net, "among")
    nft(lab, "flush table inet early\nflush table inet late\n")
    assert reaches(net, "among") and not forbidden_reached(net, "among")
    nft(lab, "delete table inet early\ndelete table inet late\n")
    assert reaches(net, "among") and not forbidden_reached(net, "among")
    net.destroy("among")


def test_NET_11_rules_of_others_are_left_alone(lab, net):
    nft(lab, ACCEPT_ALL.format(name="theirs", priority=10))
    before = lab.on_host("nft", "list", "table", "inet", "theirs")
    net.out("beside", "true")
    net.destroy("beside")
    assert lab.on_host("nft", "list", "table", "inet", "theirs") == before
    nft(lab, "delete table inet theirs\n")


def test_NET_11_the_whole_rule_set_is_flushed(lab, net):
    """Ours is back at once, with each sandbox's own terms; what was connected in between and is forbidden is ended."""
    r = net.request("PUT", "/v1/sandbox/listed", {"network": {"mode": "allowlist", "allow": [f"{SITE}:80"]}})
    assert r.status == 201, r.body
    net.out("open", "true")
    table = f"silica-{net.instance}"
    for _ in range(2):
        nft(lab, "flush ruleset\n")
        wait_for(lambda: table in lab.on_host("nft", "list", "tables"), what="our table")
        for name in ("open", "listed"):
            wait_for(lambda: reaches(net, name), what="the way out")
        assert not forbidden_reached(net, "open") and not forbidden_reached(net, "listed")
        assert net.probe("listed", ["tcp 203.0.113.1 80"])["tcp 203.0.113.1 80"] != "hello", "it is not on the list"
    assert net.log().count("it is in place again") >= 2
    net.out("later", "true")
    assert reaches(net, "later") and not forbidden_reached(net, "later")
    for name in ("listed", "open", "later"):
        net.destroy(name)


def test_REC_21_netlink_without_buffers_in_the_keeper(lab, net, tmp_path):
    """The kernel's answer is lost: the creation fails with a typed error or works, and leaves nothing."""
    needs_strace()
    before = set(lab.state()["links"])  # the last one of an earlier test may still be going
    with Tracer(net.proc.pid, f"{tmp_path}/trace", "-e", "trace=recvfrom", "-e", "inject=recvfrom:error=ENOBUFS:when=1") as t:
        for i in range(3):
            r = net.request("PUT", f"/v1/sandbox/n{i}", {})
            assert r.status in (200, 201) or r.json["code"], r.body
            net.request("DELETE", f"/v1/sandbox/n{i}")
    assert t.injected()
    wait_for(lambda: clean(net), what="a clean host")
    assert reaches(net, "after")
    net.destroy("after")
    wait_for(lambda: set(lab.state()["links"]) <= before, what="no link is left")


def test_REC_21_netlink_overrun_in_the_gateway(net, tmp_path):
    """More was told than it could hear: it hears what comes next."""
    needs_strace()
    net.out("told", "true")
    gateway = gateway_pid(net)
    only = [x for s in netlink_sockets(gateway) for x in ("-P", s)]
    assert only
    with Tracer(gateway, f"{tmp_path}/trace", *only, "-e", "trace=recvfrom", "-e", "inject=recvfrom:error=ENOBUFS:when=1..3") as t:
        assert reaches(net, "told")
        wait_for(t.injected, what="the overrun")

    def logged():
        assert reaches(net, "told")
        log = net.request("GET", "/v1/sandbox/told/network/log").json
        return [e for e in log["entries"] if e.get("address") == SITE]

    wait_for(logged, what="the log goes on")
    net.destroy("told")
