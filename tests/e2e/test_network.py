# SPDX-License-Identifier: Apache-2.0
"""The way out (catalogue area 12): asserted by connections that do or do not arrive, in the lab's small internet."""
import http.client
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from lab import FORBIDDEN, HOST, METADATA, NEIGHBOUR, RESOLVER, SITE, Lab, LabDaemon, ns
from silica import sandbox_processes, wait_for


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    made = Lab(tmp_path_factory.mktemp("lab"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def net(lab):
    d = LabDaemon(lab, "net").start()
    yield d
    d.cleanup()


@pytest.fixture
def own_lab(tmp_path):
    made = Lab(tmp_path)
    yield made
    made.close()


def table(d):
    return d.lab.on_host("nft", "list", "table", "inet", f"silica-{d.instance}")


def dropped(d, chain, rule):
    """The counter of the rule whose text contains all of these words."""
    text = re.search(rf"chain {chain} {{(.*?)\n\t}}", table(d), re.S).group(1)
    line = next(x for x in text.splitlines() if rule in x and "drop" in x)
    return int(re.search(r"counter packets (\d+)", line).group(1))


def links(d):
    text = d.lab.on_host("ip", "-o", "link")
    return sorted(name for name in re.findall(r"^\d+: (sil[0-9a-f]{4}-\d+)@", text, re.M))


def boxes(d):
    return re.findall(r'"(sil[^"]+)" \. ([\d.]+)', table(d))


def address(d, sandbox):
    return re.search(r"inet ([\d.]+)/31", d.out(sandbox, "ip -4 addr show dev eth0")).group(1)


def first_process(d, address):
    """The pid on the host of a process in the sandbox with this address; others may end meanwhile."""
    return next(pid for pid in sandbox_processes(d) if f" {address}/" in
                subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", "addr"], capture_output=True, text=True).stdout)


def flood(d, family, site):
    """Sends 600 datagrams, each from a port of its own: how many arrived, and the seconds that it took."""
    before = len(d.lab.visits())
    took = float(d.out("flood", f"python3 -c \"import socket, time\nt=time.monotonic()\nfor i in range(600):\n s=socket.socket({family},2)\n "
                       f"s.sendto(b'x', ('{site}', 9000))\nprint(time.monotonic()-t)\""))
    arrived = [-1]

    def all_noted():  # by a program of the world, which takes its time
        arrived.append(len(d.lab.visits()) - before)
        time.sleep(0.3)
        return arrived[-1] >= 150 and arrived[-1] == arrived[-2]

    wait_for(all_noted, what="the first of them")
    d.destroy("flood")
    return arrived[-1], took


def settings(d, paths):
    """For each link of a sandbox what these files say; half-made and half-removed links come and go."""
    def read(name):
        try:
            return d.lab.on_host("cat", *(p.format(name) for p in paths)).split()
        except AssertionError:
            return None
    return [read(name) for name in links(d)]


def test_public_addresses_are_reached(lab, net):
    r = net.probe("pub", [f"tcp {SITE} 80", f"udp {SITE} 9000"])
    assert set(r.values()) == {"hello"}, r
    assert f"tcp {SITE} 80 {HOST}" in lab.visits()  # under the host's address, never the sandbox's


def test_NET_13_ping_and_fragments(net):
    net.out("pub", f"ping -c1 -W20 {SITE} || python3 -c \"import socket; s=socket.socket(2,2,1); s.settimeout(20); "
            f"s.connect(('{SITE}',1)); s.send(bytes([8,0,0,0,0,0,0,1])); s.recv(99)\"")
    out = net.out("pub", "python3 -c \"import socket; s=socket.socket(2,2); s.settimeout(30); "
                  f"s.sendto(b'x'*2000, ('{SITE}',9000)); print(s.recv(99))\"")
    assert "hello" in out


def test_names_are_asked_where_the_daemon_says(lab, net):
    assert f"nameserver {RESOLVER}" in net.out("pub", "cat /etc/resolv.conf")
    r = net.probe("pub", [f"udp {RESOLVER} 53", f"tcp {RESOLVER} 53", f"tcp {RESOLVER} 80", f"udp {RESOLVER} 9000",
                          f"udp {NEIGHBOUR} 53"])
    assert r.pop(f"udp {RESOLVER} 53") == r.pop(f"tcp {RESOLVER} 53") == "hello"
    assert all("imeout" in v or "timed out" in v for v in r.values()), r  # port 53 of that host and nothing else


def test_NET_01_none_has_only_loopback(lab, net):
    r = net.request("PUT", "/v1/sandbox/closed", {"network": {"mode": "none"}})
    assert r.status in (200, 201) and r.json["network"] == {"mode": "none"}, r.body
    assert re.findall(r"^\d+: (\w+)", net.out("closed", "ip -o link"), re.M) == ["lo"]
    r = net.probe("closed", [f"tcp {SITE} 80", f"udp {RESOLVER} 53", "tcp 127.0.0.1 1"])
    assert "refused" in r.pop("tcp 127.0.0.1 1")
    assert all("unreachable" in v for v in r.values()), r
    net.destroy("closed")  # that it can change is in test_allowlist.py


@pytest.mark.parametrize("body,status,code", [
    ({"network": {"mode": "open"}}, 400, None), ({"network": "open"}, 400, None), ({"network": 1}, 400, None),
    ({"network": {"mode": "none", "allow": []}}, 400, None), ({"network": {}}, 400, None)])
def test_what_is_not_understood_is_refused(net, body, status, code):
    r = net.request("PUT", "/v1/sandbox/never", body)
    assert r.status == status and (code is None or code in r.body.decode()), r.body
    assert net.request("GET", "/v1/sandbox/never").status == 404


def test_NET_02_the_host_is_unreachable(lab, net):
    own = address(net, "pub")
    gateway = own.rsplit(".", 1)[0] + "." + str(int(own.rsplit(".", 1)[1]) - 1)
    before = dropped(net, "input", "iifname")
    targets = [f"tcp {a} 8787" for a in (HOST, "192.168.77.1", gateway)]
    r = net.probe("pub", targets)
    assert all("timed out" in v for v in r.values()), r
    assert dropped(net, "input", "iifname") > before
    assert "refused" in net.probe("pub", ["tcp 127.0.0.1 8787"])["tcp 127.0.0.1 8787"]  # its own loopback


def test_NET_03_04_private_and_special_addresses(lab, net):
    before, counter = len(lab.visits()), dropped(net, "from_box", "@not_public")
    # the same neighbour in other spellings
    odd = ["3232255234", "0xc0a84d02", "0300.0250.0115.02", "192.168.19714"]
    v6 = [f"tcp ::ffff:{NEIGHBOUR} 80", "tcp 64:ff9b::c0a8:4d02 80", "tcp fe80::1 80", "tcp fd00::1 80"]
    targets = [f"{k} {a} {p}" for a in [*FORBIDDEN, *odd] for k, p in (("tcp", 80), ("udp", 9000))] + v6
    targets += ["udp 224.0.0.1 9000", "udp 240.0.0.1 9000", "udp 192.168.77.255 9000"]
    r = net.probe("pub", targets)
    assert not [t for t, v in r.items() if v == "hello"], r
    assert dropped(net, "from_box", "@not_public") >= counter + len(FORBIDDEN) * 2
    assert lab.visits()[before:] == []
    assert METADATA in FORBIDDEN


def test_mail_is_off(lab, net):
    r = net.probe("pub", [f"tcp {SITE} 25", f"tcp {SITE} 80"])
    assert r[f"tcp {SITE} 80"] == "hello" and "timed out" in r[f"tcp {SITE} 25"], r


def test_NET_05_sandboxes_do_not_reach_each_other(lab, net):
    net.request("POST", "/v1/sandbox/pub2/api/process/start", {"command": "python3 -m http.server 8000", "processId": "web"})
    wait_for(lambda: net.exec("pub2", "curl -s -o /dev/null http://127.0.0.1:8000/")["exitCode"] == 0, what="a web server")
    other = address(net, "pub2")
    assert other != address(net, "pub")
    r = net.probe("pub", [f"tcp {other} 8000", f"udp {other} 9000"])
    assert all("timed out" in v for v in r.values()), r
    # nor does the host, nor its neighbour through the host
    for pid in (lab.host, lab.world):
        if pid == lab.world:
            ns(pid, "ip", "route", "replace", "10.213.0.0/16", "via", HOST)
        p = subprocess.run(["nsenter", "-t", str(pid), "-n", sys.executable, "-c",
                            f"import socket; socket.create_connection(('{other}', 8000), 1)"], capture_output=True, text=True)
        assert "timed out" in p.stderr or "not permitted" in p.stderr, p.stderr
    ns(lab.world, "ip", "route", "del", "10.213.0.0/16")
    net.destroy("pub2")


def test_NET_06_spoofed_source(lab, net):
    own = address(net, "pub")
    pid = first_process(net, own)
    link = next(name for name, a in boxes(net) if a == own)
    send = (f"import socket; s=socket.socket(2,2); s.bind(('10.213.99.99', 0)); "
            f"[s.sendto(b'?', ('{SITE}', 9000)) for _ in range(5)]")
    ns(pid, "ip", "addr", "add", "10.213.99.99/32", "dev", "lo")
    before = len(lab.visits())
    ns(pid, sys.executable, "-c", send)  # first wall: the reverse path
    rule = dropped(net, "from_box", "@boxes")
    for name in (link, "all"):
        lab.on_host("sysctl", "-q", f"net.ipv4.conf.{name}.rp_filter=0")
    ns(pid, sys.executable, "-c", send)  # without it: the filter
    wait_for(lambda: dropped(net, "from_box", "@boxes") >= rule + 5, what="drops by the rule")
    lab.on_host("sysctl", "-q", f"net.ipv4.conf.{link}.rp_filter=1")
    assert lab.visits()[before:] == []
    ns(pid, "ip", "addr", "del", "10.213.99.99/32", "dev", "lo")


def test_NET_12_no_ipv6(lab, net):
    net.out("pub", "true")
    assert {line.split()[5] for line in net.out("pub", "cat /proc/net/if_inet6").splitlines()} <= {"lo"}
    assert not [x for x in lab.on_host("cat", "/proc/net/if_inet6").splitlines() if "sil" in x]
    files = [f"/proc/sys/net/{x}" for x in ("ipv6/conf/{}/disable_ipv6", "ipv4/conf/{}/rp_filter", "ipv4/conf/{}/proxy_arp")]
    wait_for(lambda: {tuple(x or ()) for x in settings(net, files)} == {("1", "1", "0")}, what="the settings of all links")


def test_the_host_is_no_router(lab, net):
    """Forwarding is on for the uplink because of us, and only for our answers."""
    assert lab.on_host("cat", "/proc/sys/net/ipv4/conf/up0/forwarding").strip() == "1"
    assert lab.on_host("cat", "/proc/sys/net/ipv4/ip_forward").strip() == "0"
    lab.on_host("ip", "link", "add", "lan0", "type", "veth", "peer", "name", "lan1")
    lab.on_host("ip", "addr", "add", "172.20.0.1/24", "dev", "lan0")
    for link in ("lan0", "lan1"):
        lab.on_host("ip", "link", "set", link, "up")
    ns(lab.world, "ip", "route", "add", "172.20.0.0/24", "via", HOST)
    before = dropped(net, "forward", "@closed")
    ns(lab.world, sys.executable, "-c", "import socket; socket.socket(2,2).sendto(b'?', ('172.20.0.5', 9))")
    wait_for(lambda: dropped(net, "forward", "@closed") > before, what="a packet dropped by the guard")
    ns(lab.world, "ip", "route", "del", "172.20.0.0/24")
    lab.on_host("ip", "link", "del", "lan0")


def test_others_may_forward_later(own_lab, lab_daemon):
    """Containers of somebody else come after us: their answers pass, and our end does not end theirs."""
    lab = own_lab
    d = lab_daemon("netlater", pool=0).start()
    inner = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
    wait_for(lambda: os.readlink(f"/proc/{inner.pid}/ns/net") != os.readlink("/proc/self/ns/net"), what="a namespace")
    lab.on_host("ip", "link", "add", "c0", "type", "veth", "peer", "name", "c1", "netns", str(inner.pid))
    lab.on_host("ip", "addr", "add", "172.25.0.1/24", "dev", "c0")
    lab.on_host("ip", "link", "set", "c0", "up")
    for command in ("addr add 172.25.0.2/24 dev c1", "link set c1 up", "route add default via 172.25.0.1"):
        ns(inner.pid, "ip", *command.split())
    lab.on_host("nft", "add table ip other; add chain ip other post { type nat hook postrouting priority 100; }; "
                "add rule ip other post ip saddr 172.25.0.0/24 masquerade")
    lab.on_host("sysctl", "-q", "net.ipv4.ip_forward=1")
    reach = f"import socket; print(socket.create_connection(('{SITE}', 80), 30).recv(9))"
    try:
        assert "hello" in ns(inner.pid, sys.executable, "-c", reach)
        assert d.probe("x", [f"tcp {SITE} 80"])[f"tcp {SITE} 80"] == "hello"
        d.stop()
        assert "hello" in ns(inner.pid, sys.executable, "-c", reach)
    finally:
        inner.kill()
        inner.wait()


def test_DOS_27_new_connections_are_limited(lab, net):
    got, seconds = flood(net, "socket.AF_INET", SITE)
    assert got <= 310 + 100 * seconds, (got, seconds)  # a burst of 200, then 100 each second
    assert net.probe("pub", [f"tcp {SITE} 80"])[f"tcp {SITE} 80"] == "hello"  # the others are not concerned


def test_DOS_28_the_hosts_neighbour_table(lab, net):
    """A sandbox's link has two addresses: whomever it sends to, the host looks for nobody on it."""
    ours = address(net, "many")
    before = len(lab.on_host("ip", "neigh", "show", "nud", "all").splitlines())
    first, second, _, _ = ours.split(".")
    net.out("many", f"""python3 -c "
import socket
s = socket.socket(2, 2)
for i in range(5000):
    try: s.sendto(b'x', (f'{first}.{second}.{{i >> 8}}.{{i & 255}}', 9000))
    except OSError: pass
" """)
    assert len(lab.on_host("ip", "neigh", "show", "nud", "all").splitlines()) <= before + 2
    net.destroy("many")


LOOP = """python3 -c "
import socket, time
open('/workspace/begun', 'w')
while True:
    for a in ('{neighbour}', '{metadata}', '{site}'):
        s = socket.socket()
        s.settimeout(0.1)
        try:
            s.connect((a, 80)); open('/workspace/' + a, 'a').write('x')
        except OSError:
            pass
        s.close()
" """.format(neighbour=NEIGHBOUR, metadata=METADATA, site=SITE)


def reached(d, name):
    return {a: int(d.out(name, f"wc -c < /workspace/{a} 2>/dev/null || echo 0")) for a in (NEIGHBOUR, METADATA, SITE)}


def test_NET_09_10_rules_hold_while_others_come_and_go_and_the_daemon_dies(own_lab, lab_daemon):
    lab = own_lab
    lab_before = lab.state()
    d = lab_daemon("net10", args=["--network-pool", "172.31.0.0/16"]).start()
    before = len(lab.visits())
    d.request("POST", "/v1/sandbox/a/api/process/start", {"command": LOOP, "processId": "loop"})
    wait_for(lambda: reached(d, "a")[SITE] > 0, what="a connection to a public address")
    for i in range(12):
        d.out(f"other-{i}", "true")
        d.destroy(f"other-{i}")
    d.kill()
    mark = len(lab.visits())
    wait_for(lambda: len(lab.visits()) > mark, what="the network of a sandbox without a daemon")
    d.start()
    count = reached(d, "a")[SITE]
    wait_for(lambda: reached(d, "a")[SITE] > count, what="connections after the restart")
    r = reached(d, "a")
    assert r[NEIGHBOUR] == r[METADATA] == 0, r
    assert {line.split()[1] for line in lab.visits()[before:]} == {SITE}
    assert len(boxes(d)) >= 1
    d.stop()
    wait_for(lambda: lab.state() == lab_before, what="the host as it was")


def test_NET_16_fifty_sandboxes_leave_nothing(own_lab, lab_daemon):
    lab = own_lab
    before = lab.state()
    d = lab_daemon("net16", args=["--network-pool", "172.30.0.0/16", "--slots", "16"], pool=2).start()
    for i in range(50):  # slots are used again and again
        assert d.probe(f"n{i}", [f"tcp {SITE} 80"])[f"tcp {SITE} 80"] == "hello", i
        d.destroy(f"n{i}")
    wait_for(lambda: len(links(d)) == len(boxes(d)) <= 2, what="only prepared links")

    def orphans():  # removed behind the answer to the delete
        entries = [x for x in lab.on_host("cat", "/proc/net/nf_conntrack").splitlines() if "src=172.30." in x]
        owners = {a for _, a in boxes(d)}
        return [x for x in entries if re.search(r"src=(172\.30\.[\d.]+)", x).group(1) not in owners]

    wait_for(lambda: not orphans(), what="no tracked connection of a sandbox that is gone")
    d.stop()
    wait_for(lambda: lab.state() == before, what="the host as it was")


@pytest.mark.parametrize("how", ["FAIL", "CRASH"])
def test_HYG_02_REC_02_half_made_networks_are_taken_back(own_lab, lab_daemon, how):
    """Every step from the link on fails, or takes the keeper with it."""
    d = lab_daemon("nethalf", args=["--network-pool", "172.28.0.0/16"], pool=0)
    before = own_lab.state()
    for step in ["berth:9", *(f"start:{i}" for i in range(2, 12))]:
        d.start(env={f"SILICA_{how}": step})
        try:
            assert d.request("PUT", "/v1/sandbox/x", {}).status == 500
        except (OSError, http.client.HTTPException):
            assert how == "CRASH"
        if how == "CRASH":
            assert d.proc.wait(60) == -signal.SIGKILL
            wait_for(lambda: not d.port_open(), what="the gateway's end")
            d.start()
        wait_for(lambda: not links(d) and not boxes(d), what=f"no link after {step}")
        d.stop()
        wait_for(lambda: own_lab.state() == before, what="the host as it was")


def test_a_failed_move_takes_its_network_along(own_lab, lab_daemon):
    """A bare sandbox has a link and its place in the filter before anybody moves in."""
    d = lab_daemon("netmove", args=["--network-pool", "172.26.0.0/16"], pool=0, bare=1)
    for step in ("move:0", "move:6", "orphan:0"):
        d.start(env={"SILICA_FAIL": step})
        wait_for(lambda: len(links(d)) == len(boxes(d)) == 1, what="a bare sandbox")
        old = boxes(d)
        status = d.request("PUT", "/v1/sandbox/x", {}).status
        assert status == (201 if step == "orphan:0" else 500)
        if status == 201:
            assert d.probe("x", [f"tcp {SITE} 80"])[f"tcp {SITE} 80"] == "hello"
            d.destroy("x")
        wait_for(lambda: len(links(d)) == len(boxes(d)) == 1 and boxes(d) != old, what=f"the next bare sandbox only, after {step}")
        d.stop()


def test_who_moves_in_has_its_network(lab_daemon):
    d = lab_daemon("netbare", args=["--network-pool", "172.25.0.0/16"], pool=0, bare=1).start()
    for _ in range(3):
        wait_for(lambda: d.slots(), what="a bare sandbox")
        assert d.probe("x", [f"tcp {SITE} 80"])[f"tcp {SITE} 80"] == "hello"
        assert d.request("POST", "/v1/sandbox/x/sleep").status == 200
        wait_for(lambda: len(boxes(d)) == 1, what="the bare one's place only")


def test_a_daemon_without_network_takes_it_from_those_it_adopts(own_lab, lab_daemon):
    d = lab_daemon("netoff", args=["--network-pool", "172.27.0.0/16"], pool=0)
    before = own_lab.state()
    d.start()
    assert d.probe("x", [f"tcp {SITE} 80"])[f"tcp {SITE} 80"] == "hello"
    d.stop(signal.SIGTERM)  # the sandbox goes on
    assert links(d) and boxes(d)
    d.network = "none"
    d.start()
    wait_for(lambda: own_lab.state() == before, what="the host as it was")
    assert d.probe("x", [f"tcp {SITE} 80"])[f"tcp {SITE} 80"] != "hello"


def test_sleep_and_wake(net):
    for _ in range(2):
        assert net.probe("dozer", [f"tcp {SITE} 80"])[f"tcp {SITE} 80"] == "hello"
        assert net.request("POST", "/v1/sandbox/dozer/sleep").status == 200
    net.destroy("dozer")


def test_explicit_wish_without_a_network(daemon_factory):
    d = daemon_factory("nonet", pool=0).start()  # --network none
    r = d.request("PUT", "/v1/sandbox/x", {"network": {"mode": "public"}})
    assert r.status == 422 and "NETWORK_UNAVAILABLE" in r.body.decode(), r.body
    assert d.request("GET", "/v1/sandbox/x").status == 404
    assert re.findall(r"^\d+: (\w+)", d.out("y", "ip -o link"), re.M) == ["lo"]


def test_a_pool_in_use_is_refused(own_lab, lab_daemon):
    own_lab.on_host("ip", "addr", "add", "172.29.0.1/24", "dev", "up0")
    d = lab_daemon("clash", args=["--network-pool", "172.29.0.0/16"]).start(wait=False)
    assert d.proc.wait(60) != 0
    assert "in use on interface up0" in d.log()
    d.network = None  # nobody insists: sandboxes without a network, and a warning
    d.start()
    assert "no network" in d.log()
    assert re.findall(r"^\d+: (\w+)", d.out("y", "ip -o link"), re.M) == ["lo"]
    d.stop()
    own_lab.on_host("ip", "addr", "del", "172.29.0.1/24", "dev", "up0")
    d.start()  # nothing in the way any more: public is the default
    assert d.probe("y", [f"tcp {SITE} 80"])[f"tcp {SITE} 80"] == "hello"


def test_the_probes_can_see(own_lab, lab_daemon):
    """The counter-check: without our rules, what the tests above call unreachable is reached."""
    d = lab_daemon("netopen", pool=0).start()
    d.out("a", "true")
    d.request("POST", "/v1/sandbox/b/api/process/start", {"command": "python3 -m http.server 8000", "processId": "web"})
    wait_for(lambda: d.exec("b", "curl -s -o /dev/null http://127.0.0.1:8000/")["exitCode"] == 0, what="a web server")
    targets = [f"tcp {a} 80" for a in FORBIDDEN if a != "10.213.200.1"] + [f"tcp {SITE} 25"]
    assert not [t for t, v in d.probe("a", targets).items() if v == "hello"]
    for chain in ("from_box", "forward", "input", "output"):
        own_lab.on_host("nft", "flush", "chain", "inet", f"silica-{d.instance}", chain)
    assert set(d.probe("a", targets).values()) == {"hello"}
    for where in (HOST, address(d, "b")):
        port = 8787 if where == HOST else 8000
        assert d.exec("a", f"curl -s -m 30 -o /dev/null http://{where}:{port}/health")["exitCode"] == 0


