# SPDX-License-Identifier: Apache-2.0
"""IPv6 where the operator wants it (catalogue area 12): the rules of test_network.py and test_allowlist.py once more, asserted
by connections that do or do not arrive."""
import os
import re
import subprocess
import sys

import pytest

from lab import HOST, SITE, LabDaemon, ns
from lab_ipv6 import FORBIDDEN6, HOST6, NEIGHBOUR6, OTHER6, SITE6, THIRD6, Lab6, needed
from lab_names import NAMES, Names
from silica import BIN, TOKEN, wait_for
from test_network import dropped, first_process, flood, links, settings, table

pytestmark = needed

ZONE = {
    "both.example": [f"A {SITE}", f"AAAA {THIRD6}"],  # an address has one name in the log
    "six.example": [f"AAAA {SITE6}"],
    "other.example": [f"AAAA {OTHER6}"],
    "rebind.example": [f"AAAA {NEIGHBOUR6}", "AAAA fd00:ec2::254", "AAAA ::1", "AAAA 64:ff9b::c0a8:4d02"],
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    made = Lab6(tmp_path_factory.mktemp("lab"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def names(lab, tmp_path_factory):
    made = Names(lab, tmp_path_factory.mktemp("names"))
    made.zone(ZONE)
    yield made
    made.close()


@pytest.fixture(scope="module")
def net(lab, names):
    d = LabDaemon(lab, "six", args=["--dns", NAMES, "--ipv6", "on"]).start()
    yield d
    d.cleanup()


@pytest.fixture
def own_lab(tmp_path):
    made = Lab6(tmp_path)
    yield made
    made.close()


def address6(d, sandbox):
    r = d.request("GET", f"/v1/sandbox/{sandbox}/network").json
    inside = re.findall(r"inet6 (\S+)/127", d.out(sandbox, "ip -6 addr show dev eth0"))
    assert [r["address6"]] == inside
    return r["address6"]


def reached(d, box, *targets, wait=1.0):
    return {t for t, v in d.probe(box, list(targets), wait=wait).items() if v == "hello"}


def allow(d, box, *entries):
    r = d.request("PUT", f"/v1/sandbox/{box}", {"network": {"mode": "allowlist", "allow": list(entries)}})
    assert r.status in (200, 201), r.body
    return r.json


def logged(d, box, **wanted):
    entries = d.request("GET", f"/v1/sandbox/{box}/network/log").json["entries"]
    return [e for e in entries if all(e.get(k) == v for k, v in wanted.items())]


def test_public_addresses_are_reached_over_both(lab, net):
    targets = {f"tcp {SITE6} 80", f"udp {SITE6} 9000", f"tcp {SITE} 80"}
    assert reached(net, "pub", *targets) == targets
    assert f"tcp {SITE6} 80 {HOST6}" in lab.visits()  # under the host's address, never the sandbox's
    assert f"tcp {SITE} 80 {HOST}" in lab.visits()
    wait_for(lambda: logged(net, "pub", event="open", address=SITE6, port=80, protocol="tcp"), what="an entry of the log")
    wait_for(lambda: logged(net, "pub", event="open", address=SITE6, port=9000, protocol="udp"), what="an entry of the log")


def test_ping_and_fragments(net):
    out = net.out("pub", "python3 -c \"import socket; s=socket.socket(10,2,58); s.settimeout(30); "
                  f"s.connect(('{SITE6}',1)); s.send(bytes([128,0,0,0,0,0,0,1])); print(s.recv(99)[0])\"")
    assert out.strip() == "129"
    out = net.out("pub", "python3 -c \"import socket; s=socket.socket(10,2); s.settimeout(30); "
                  f"s.sendto(b'x'*3000, ('{SITE6}',9000)); print(s.recv(99))\"")
    assert "hello" in out


def test_one_address_and_nothing_from_neighbours(lab, net):
    net.out("pub", "true")
    assert address6(net, "pub").startswith("fd51:11ca:2130::")
    inside = net.out("pub", "ip -6 -o addr; ip -6 neigh; ip -6 route")
    assert inside.count("inet6") == 2 and "fe80" not in inside and "PERMANENT" in inside
    assert net.exec("pub", f"ip -6 addr add {NEIGHBOUR6}/128 dev eth0")["exitCode"] != 0
    files = ["/proc/sys/net/ipv6/conf/{}/" + x for x in ("accept_ra", "accept_redirects", "autoconf")]
    wait_for(lambda: {tuple(x or ()) for x in settings(net, files)} == {("0", "0", "0")}, what="the settings of all links")
    addresses = lambda: re.findall(r"^\d+: (sil\S+)\s+inet6", lab.on_host("ip", "-6", "-o", "addr"), re.M)  # noqa: E731
    wait_for(lambda: sorted(addresses()) == links(net), what="one address on each link")


def test_NET_03_04_private_and_special_addresses(lab, net):
    before, counter = len(lab.visits()), dropped(net, "from_box6", "@not_public6")
    targets = [f"{k} {a} {p}" for a in FORBIDDEN6 for k, p in (("tcp", 80), ("udp", 9000))]
    targets += ["tcp ::ffff:192.168.77.2 80", "udp ff02::1 9000", "tcp fe80::1 80", "tcp fc00::1 80"]
    assert reached(net, "pub", *targets) == set()
    assert dropped(net, "from_box6", "@not_public6") >= counter + len(FORBIDDEN6)
    assert lab.visits()[before:] == []
    wait_for(lambda: logged(net, "pub", event="packet", verdict="deny", reason="a private address", address=NEIGHBOUR6),
             what="a refused packet in the log")


def test_mail_is_off(net):
    assert reached(net, "pub", f"tcp {SITE6} 25", f"tcp {SITE6} 80") == {f"tcp {SITE6} 80"}


def test_NET_02_05_neither_the_host_nor_other_sandboxes(lab, net):
    net.request("POST", "/v1/sandbox/web/api/process/start",
                {"command": "python3 -m http.server 8000 --bind ::", "processId": "web"})
    wait_for(lambda: net.exec("web", "curl -s -o /dev/null http://[::1]:8000/")["exitCode"] == 0, what="a web server")
    own, other = address6(net, "pub"), address6(net, "web")
    assert own != other
    gateway = net.out("pub", "ip -6 route show default").split()[2]
    server = subprocess.Popen(["nsenter", "-t", str(lab.host), "-n", sys.executable, "-m", "http.server", "8788", "--bind",
                               "::"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    connect = "import socket; socket.create_connection(('{}', {}), 1)"
    try:
        wait_for(lambda: subprocess.run(["nsenter", "-t", str(lab.host), "-n", sys.executable, "-c", connect.format(HOST6, 8788)],
                                        capture_output=True).returncode == 0, what="the host's service")
        targets = [f"tcp {a} 8788" for a in (HOST6, "fd77::1", gateway)] + [f"tcp {other} 8000"]
        r = net.probe("pub", targets)
        assert all("timed out" in v for v in r.values()), r
        # nor the other way round, nor from the world through the host
        ns(lab.world, "ip", "route", "replace", "fd51:11ca:2130::/64", "via", HOST6)
        for pid in (lab.host, lab.world):
            p = subprocess.run(["nsenter", "-t", str(pid), "-n", sys.executable, "-c", connect.format(other, 8000)],
                               capture_output=True, text=True)
            assert "timed out" in p.stderr or "not permitted" in p.stderr, p.stderr
        # the counter-check: without the rules all of it is reached
        for chain in ("from_box6", "forward", "input", "output"):
            lab.on_host("nft", "flush", "chain", "inet", f"silica-{net.instance}", chain)
        for where in targets:
            _, a, port = where.split()
            assert net.exec("pub", f"curl -s -m 30 -o /dev/null 'http://[{a}]:{port}/'")["exitCode"] == 0, where
    finally:
        server.kill()
        server.wait()
        ns(lab.world, "ip", "route", "del", "fd51:11ca:2130::/64")
        net.stop(15)  # the next one writes its rules anew; sandboxes go on
        net.start()
    assert reached(net, "pub", f"tcp {SITE6} 80", f"tcp {other} 8000", f"tcp {NEIGHBOUR6} 80") == {f"tcp {SITE6} 80"}
    net.destroy("web")


def test_NET_06_spoofed_source(lab, net):
    pid = first_process(net, address6(net, "pub"))
    ns(pid, "ip", "addr", "add", "2e00:bad::1/128", "dev", "lo")
    before, rule = len(lab.visits()), dropped(net, "from_box6", "@boxes6")
    ns(pid, sys.executable, "-c", "import socket; s=socket.socket(10,2); s.bind(('2e00:bad::1', 0)); "
       f"[s.sendto(b'?', ('{SITE6}', 9000)) for _ in range(5)]")
    wait_for(lambda: dropped(net, "from_box6", "@boxes6") >= rule + 5, what="drops by the rule")
    assert lab.visits()[before:] == []
    ns(pid, "ip", "addr", "del", "2e00:bad::1/128", "dev", "lo")


# An advertisement of a router that is none, from an address that only a link's own router may use.
ADVERTISEMENT = r"""
import socket, struct
def checksum(data):
    n = sum(struct.unpack(">%dH" % (len(data) // 2), data))
    while n >> 16:
        n = (n & 0xffff) + (n >> 16)
    return ~n & 0xffff
source, target = (socket.inet_pton(10, a) for a in ("fe80::bad", "ff02::1"))
body = struct.pack(">BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0)
body += struct.pack(">BBBBIII16s", 3, 4, 64, 0xc0, 3600, 3600, 0, socket.inet_pton(10, "2e00:bad::"))
pseudo = source + target + struct.pack(">IHBB", len(body), 0, 0, 58)
body = body[:2] + struct.pack(">H", checksum(pseudo + body)) + body[4:]
packet = struct.pack(">IHBB", 6 << 28, len(body), 58, 255) + source + target + body
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("eth0", 0))
for _ in range(5):
    s.send(bytes.fromhex("333300000001" "0251110100ff" "86dd") + packet)
"""


def test_routers_are_not_believed(lab, net):
    own = address6(net, "pub")
    pid = first_process(net, own)
    link = next(x for x in links(net) if own in table(net) and f'"{x}" . {own}' in table(net))
    for accept in ("0", "2"):  # the interface's own setting, and without it the filter
        lab.on_host("sysctl", "-q", f"net.ipv6.conf.{link}.accept_ra={accept}", f"net.ipv6.conf.{link}.autoconf={accept[-1]}")
        before = dropped(net, "input", "iifname")
        ns(pid, sys.executable, "-c", ADVERTISEMENT)
        wait_for(lambda: dropped(net, "input", "iifname") >= before + 5, what="drops by the rule")
        for believed in ("route", "addr"):
            assert not re.search("fe80::bad|2e00:bad:", lab.on_host("ip", "-6", believed)), believed
    lab.on_host("sysctl", "-q", f"net.ipv6.conf.{link}.accept_ra=0", f"net.ipv6.conf.{link}.autoconf=0")


def test_the_host_is_no_router(lab, net):
    assert lab.on_host("sysctl", "-n", "net.ipv6.conf.up0.force_forwarding", "net.ipv6.conf.all.forwarding").split() == ["1", "0"]
    lab.on_host("ip", "link", "add", "lan0", "type", "veth", "peer", "name", "lan1")
    lab.on_host("ip", "addr", "add", "2e00:200::1/64", "dev", "lan0", "nodad")
    for link in ("lan0", "lan1"):
        lab.on_host("ip", "link", "set", link, "up")
    ns(lab.world, "ip", "route", "add", "2e00:200::/64", "via", HOST6)
    before = dropped(net, "forward", "@closed6")
    ns(lab.world, sys.executable, "-c", "import socket; socket.socket(10,2).sendto(b'?', ('2e00:200::5', 9))")
    wait_for(lambda: dropped(net, "forward", "@closed6") > before, what="a packet dropped by the guard")
    ns(lab.world, "ip", "route", "del", "2e00:200::/64")
    lab.on_host("ip", "link", "del", "lan0")


def test_lists_pin_what_names_say(lab, names, net):
    box = "listed"
    r = allow(net, box, "six.example", "both.example:80", "rebind.example")
    good = {"tcp six.example 80", "udp six.example 9000", "tcp both.example 80"}
    before = len(lab.visits())
    assert reached(net, box, *good, "tcp other.example 80", f"tcp {OTHER6} 80", "tcp rebind.example 80",
                   f"tcp {NEIGHBOUR6} 80", f"udp {OTHER6} 9000") == good
    assert {v.split()[1] for v in lab.visits()[before:]} <= {SITE, SITE6, THIRD6}
    assert net.out(box, "getent ahostsv6 six.example | awk '{print $1}' | sort -u").split() == [SITE6]
    wait_for(lambda: logged(net, box, event="open", name="six.example", address=SITE6, port=80), what="a name in the log")
    assert logged(net, box, event="name", name="rebind.example", address=NEIGHBOUR6, reason="a private address")
    r = subprocess.run([BIN, "net", "log", box], capture_output=True, text=True,
                       env={**os.environ, "SILICA_URL": f"unix:{net.path}", "SILICA_TOKEN": TOKEN, "ASAN_OPTIONS": "detect_leaks=0"})
    assert f"[{SITE6}]:80" in r.stdout, r
    # networks, with and without a port; another list closes what the last one opened
    r = allow(net, box, "[2e00:100::8/128]:80", "fd77::/64")
    assert r["network"]["allow"] == ["[2e00:100::8]:80", "fd77::/64"]
    assert reached(net, box, f"tcp {OTHER6} 80", f"tcp {NEIGHBOUR6} 80", f"udp {OTHER6} 9000", f"tcp {SITE6} 80",
                   f"tcp {FORBIDDEN6[1]} 80") == {f"tcp {OTHER6} 80", f"tcp {NEIGHBOUR6} 80"}
    for mode, wanted in (("none", set()), ("public", {f"tcp {SITE6} 80"})):
        assert net.request("PUT", f"/v1/sandbox/{box}", {"network": mode}).status == 200
        assert reached(net, box, f"tcp {SITE6} 80", f"tcp {NEIGHBOUR6} 80") == wanted
    net.destroy(box)
    wait_for(lambda: not re.search(r"elements = \{[^}]*2e00:", table(net)), what="nothing of it")


HOLD = f"""python3 -c "
import socket
s = socket.socket(10, 2)
s.settimeout(5)
s.connect(('{SITE6}', 9000))
try:
    while True:
        s.send(b'?')
        assert s.recv(9) == b'hello'
        open('/tmp/beats', 'a').write('.')
except OSError:
    open('/tmp/lost', 'w')
" """


def test_connections_that_are_no_longer_allowed_are_cut(net):
    box, beats = "cut", lambda: int(net.out("cut", "wc -c < /tmp/beats 2>/dev/null || echo 0"))
    allow(net, box, "six.example", f"{SITE6}", "other.example")
    net.request("POST", f"/v1/sandbox/{box}/api/process/start", {"command": HOLD, "processId": "hold"})
    wait_for(lambda: beats() > 1, what="a connection")
    allow(net, box, f"{SITE6}")
    count = beats()
    wait_for(lambda: beats() > count, what="a connection that is still allowed")
    allow(net, box, "other.example")
    wait_for(lambda: net.exec(box, "test -e /tmp/lost")["exitCode"] == 0, what="its end")
    own = ":".join(x.zfill(4) for x in address6(net, box).split(":")[-2:])
    tracked = lambda: [x for x in net.lab.on_host("cat", "/proc/net/nf_conntrack").splitlines() if f"{own} dst" in x]  # noqa: E731
    net.request("PUT", f"/v1/sandbox/{box}", {"network": "public"})
    assert reached(net, box, f"udp {SITE6} 9000") and tracked()
    net.destroy(box)
    wait_for(lambda: not tracked(), what="no tracked connection of a sandbox that is gone")


def test_bandwidth_is_limited(net):
    """What is over the limit waits, of whatever family: the link has the limit."""
    r = net.request("PUT", "/v1/sandbox/slow", {"limits": {"networkBytesPerSecond": "256KiB"}})
    assert r.status in (200, 201), r.body
    assert reached(net, "slow", f"tcp {SITE6} 80") == {f"tcp {SITE6} 80"}
    pid = first_process(net, address6(net, "slow"))
    assert "tbf" in ns(pid, "tc", "qdisc", "show", "dev", "eth0") and "rate 2097" in ns(pid, "tc", "qdisc", "show", "dev", "eth0")
    net.destroy("slow")


def test_connections_of_both_families_count_together(net):
    hold = (f"import select,socket,time\nheld=[]\nfor i in range(12):\n for a in ('{SITE}','{SITE6}'):\n"
            "  s=socket.socket(10 if ':' in a else 2,2); s.connect((a,9000)); s.send(b'?'); held.append(s)\n"
            "answered=lambda: len(select.select(held,[],[],0)[0])\nend=time.monotonic()+30\n"
            "while answered()<5 and time.monotonic()<end: time.sleep(0.05)\ntime.sleep(0.5)\nprint(answered())")
    r = net.request("PUT", "/v1/sandbox/few", {"limits": {"connections": 5}})
    assert r.status in (200, 201), r.body
    assert net.out("few", f"python3 - <<'EOF'\n{hold}\nEOF").strip() == "5"
    net.destroy("few")


def test_DOS_27_new_connections_are_limited(lab, net):
    got, seconds = flood(net, "socket.AF_INET6", SITE6)
    assert got <= 310 + 100 * seconds, (got, seconds)  # a burst of 200, then 100 each second


def test_the_host_is_left_as_it_was(own_lab, lab_daemon):
    """Over a killed daemon, one without IPv6, and one with it again: what runs keeps what it may have."""
    before = own_lab.state()
    pool = ["--network-pool", "172.26.0.0/16"]
    both = {f"tcp {SITE6} 80", f"tcp {SITE} 80"}
    d = lab_daemon("sixes", args=[*pool, "--ipv6", "fd12:3456:789a:1::/64"], pool=1).start()
    assert reached(d, "x", *both) == both
    assert address6(d, "x").startswith("fd12:3456:789a:1::ac1a:")
    d.kill()
    d.start()
    assert reached(d, "x", *both, f"tcp {NEIGHBOUR6} 80") == both
    d.stop(15)
    with_ipv6, d.args = d.args, [a for a in d.args if a not in ("--ipv6", "fd12:3456:789a:1::/64")]
    d.start()
    assert "address6" not in d.request("GET", "/v1/sandbox/x/network").json
    assert reached(d, "x", *both) == {f"tcp {SITE} 80"}
    assert own_lab.on_host("sysctl", "-n", "net.ipv6.conf.up0.force_forwarding").strip() == "0"
    assert reached(d, "y", *both) == {f"tcp {SITE} 80"}
    d.stop(15)
    d.args = with_ipv6
    d.start()
    assert reached(d, "x", *both) == both
    assert "address6" not in d.request("GET", "/v1/sandbox/y/network").json  # its link is from before
    assert reached(d, "y", *both) == {f"tcp {SITE} 80"}
    d.destroy("y")
    assert reached(d, "y", *both) == both
    d.stop()
    wait_for(lambda: own_lab.state() == before, what="the host as it was")


def test_what_is_missing_is_said(own_lab, lab_daemon):
    own_lab.on_host("ip", "-6", "route", "del", "default")
    d = lab_daemon("noway", args=["--ipv6", "on"], pool=0)
    d.network = None  # even when nobody insists on a network
    d.start(wait=False)
    assert d.proc.wait(60) != 0 and "no way to the internet over IPv6" in d.log()
    prefix = d.prefix
    d.prefix = [*prefix, "unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc/sys/net/ipv6 && exec "$@"', "sh"]
    d.start(wait=False)
    assert d.proc.wait(60) != 0 and "this kernel has no IPv6" in d.log()
    r = subprocess.run([*d.prefix, BIN, "doctor"], capture_output=True, text=True)
    assert "this kernel has none" in r.stdout, r.stdout
    d.prefix, d.args = prefix, [a for a in d.args if a not in ("--ipv6", "on")]
    d.start()
    assert reached(d, "x", f"tcp {SITE} 80") == {f"tcp {SITE} 80"}
