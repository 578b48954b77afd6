# SPDX-License-Identifier: Apache-2.0
"""Allow-lists, their resolver, changes while a sandbox runs, the log and the limits of the network (catalogue area 12):
asserted by connections that do or do not arrive, in the lab's small internet."""
import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest

from lab import HOST, METADATA, NEIGHBOUR, SITE, Lab, LabDaemon
from lab_names import BULK, NAMES, SITES, Names
from silica import BIN, TOKEN, wait_for
from tracer import gateway_pid

ZONE = {
    "good.example": [f"A {SITE}"],
    "other.example": [f"A {SITES[0]}"],
    "a.wild.example": [f"A {SITES[1]}"],
    "b.c.wild.example": [f"A {SITES[1]}"],
    "wild.example": [f"A {SITES[2]}"],
    "evil.example": [f"A {SITES[2]}"],
    "good.example.evil.example": [f"A {SITES[2]}"],
    "notgood.example": [f"A {SITES[2]}"],
    "alias.example": ["CNAME far.example", "CNAME farther.example", f"A {SITES[0]}",
                      f"EXTRA evil.example A {SITES[2]}"],
    "lan.example": [f"A {NEIGHBOUR}"],
    "mixed.example": [f"A {NEIGHBOUR}", f"A {METADATA}", "A 127.0.0.1", f"A {HOST}", f"A {SITES[0]}"],
    "rebind.example": [["TTL 0", f"A {SITES[0]}"], ["TTL 0", f"A {NEIGHBOUR}"], ["TTL 0", f"A {METADATA}"]],
    "broken.example": ["FAIL"],
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    made = Lab(tmp_path_factory.mktemp("lab"))
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
    d = LabDaemon(lab, "allow", args=["--dns", NAMES]).start()
    yield d
    d.cleanup()


@pytest.fixture
def box(net, request):
    name = "b-" + re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    yield name
    net.destroy(name)


def put(d, box, body, status=(200, 201), **options):
    r = d.request("PUT", f"/v1/sandbox/{box}", body, **options)
    assert r.status in ((status,) if isinstance(status, int) else status), (r.status, r.body)
    return r.json


def allow(d, box, *entries):
    return put(d, box, {"network": {"mode": "allowlist", "allow": list(entries)}})


def reached(d, box, *targets, wait=1.0):
    """The targets, "tcp HOST PORT", that answered."""
    return {t for t, v in d.probe(box, list(targets), wait=wait).items() if v == "hello"}


def log(d, box):
    r = d.request("GET", f"/v1/sandbox/{box}/network/log")
    assert r.status == 200, r.body
    return r.json["entries"]


def logged(d, box, **wanted):
    return [e for e in log(d, box) if all(e.get(k) == v for k, v in wanted.items())]


# ---- what a list opens

def test_names_on_the_list_and_nothing_else(lab, names, net, box):
    r = allow(net, box, "Good.example.", "*.wild.example:80")
    assert r["network"] == {"mode": "allowlist", "allow": ["good.example", "*.wild.example:80"]}
    assert net.request("GET", f"/v1/sandbox/{box}").json["network"] == r["network"]
    before = len(names.asked())
    good = {"tcp good.example 80", "tcp a.wild.example 80", "tcp b.c.wild.example 80"}
    bad = {"tcp other.example 80", "tcp evil.example 80", "tcp wild.example 80", "tcp good.example.evil.example 80",
           "tcp notgood.example 80", "tcp GOOD.example.evil.example. 80", f"tcp {SITES[0]} 80", f"tcp {SITES[2]} 80",
           f"tcp {NEIGHBOUR} 80", f"tcp {METADATA} 80", f"udp {SITES[0]} 9000"}
    assert reached(net, box, *good, *bad) == good
    asked = {line.split()[1] for line in names.asked()[before:]}
    assert asked == {"good.example", "a.wild.example", "b.c.wild.example"}  # nobody hears of the others
    assert reached(net, box, "tcp a.wild.example 25", f"tcp a.wild.example {BULK}") == set()  # one port only
    assert f"tcp {SITE} 80 {HOST}" in lab.visits()


def test_whoever_is_asked_it_is_our_resolver(names, net, box):
    allow(net, box, "good.example")
    ask = ("import socket,struct,sys; q=b'\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0'+b''.join(bytes([len(l)])+l.encode() for l in "
           "sys.argv[2].split('.'))+b'\\0\\0\\1\\0\\1'\n"
           "if sys.argv[3]=='tcp':\n s=socket.create_connection((sys.argv[1],53),30); s.sendall(struct.pack('>H',len(q))+q); "
           "n=struct.unpack('>H',s.recv(2))[0]; a=s.recv(n)\n"
           "else:\n s=socket.socket(2,2); s.settimeout(30); s.sendto(q,(sys.argv[1],53)); a=s.recv(999)\n"
           "print(a[3]&15, struct.unpack('>H',a[6:8])[0], '.'.join(map(str,a[-4:])))")
    net.out(box, f"cat > /tmp/ask.py <<'EOF'\n{ask}\nEOF")
    for server in ("9.9.9.9", SITE, NAMES, "127.0.0.1", METADATA):
        for kind in ("udp", "tcp"):
            assert net.out(box, f"python3 /tmp/ask.py {server} good.example {kind}").split() == ["0", "1", SITE]
            assert net.out(box, f"python3 /tmp/ask.py {server} evil.example {kind}").split()[:2] == ["3", "0"]
    many = ("import socket,struct; q=b'\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0\\4good\\7example\\0\\0\\1\\0\\1'; m=struct.pack('>H',len(q))+q\n"
            "s=socket.create_connection(('9.9.9.9',53),30); s.sendall(m*300); f=s.makefile('rb'); n=0\n"
            "for i in range(300): n+=f.read(struct.unpack('>H',f.read(2))[0])[3]==0x80\n"
            "s.sendall(b'\\xff\\xffxx'); print(n, f.read())")
    assert net.out(box, f"python3 - <<'EOF'\n{many}\nEOF").split() == ["300", "b''"]  # and nonsense ends it
    assert net.exec(box, "getent ahostsv6 good.example | grep -v ::ffff")["exitCode"] != 0  # no IPv6


def test_chains_lead_where_the_listed_name_says(net, box):
    allow(net, box, "alias.example")
    assert reached(net, box, "tcp alias.example 80") == {"tcp alias.example 80"}
    assert reached(net, box, f"tcp {SITES[2]} 80", "tcp far.example 80") == set()  # what came along opens nothing


def test_NET_07_rebinding_and_private_answers(lab, names, net, box):
    allow(net, box, "rebind.example", "lan.example", "mixed.example")
    assert reached(net, box, "tcp rebind.example 80") == {"tcp rebind.example 80"}
    visits = len(lab.visits())
    assert reached(net, box, "tcp rebind.example 80", "tcp lan.example 80", f"tcp {NEIGHBOUR} 80") == set()
    assert reached(net, box, "tcp rebind.example 80", f"tcp {METADATA} 80") == set()
    assert lab.visits()[visits:] == []
    assert logged(net, box, event="name", name="rebind.example", address=NEIGHBOUR, reason="a private address")
    out = net.out(box, "getent ahostsv4 mixed.example | awk '{print $1}' | sort -u").split()
    assert set(out) == {SITES[0], HOST}  # the host's public address may be told, and is not reached
    assert reached(net, box, "tcp mixed.example 80", f"tcp {HOST} 8787") <= {"tcp mixed.example 80"}


def test_networks_and_ports(net, box):
    allow(net, box, f"{SITES[0]}/32:80", f"{NEIGHBOUR}/32:80", "198.51.100.8/30:7000", "198.51.100.8/31:7000")
    assert reached(net, box, f"tcp {SITES[0]} 80", f"tcp {NEIGHBOUR} 80", f"tcp {SITE} 80", f"udp {NEIGHBOUR} 9000",
                   f"tcp {METADATA} 80", "tcp lan.example 80", f"tcp {SITES[0]} 25") == \
        {f"tcp {SITES[0]} 80", f"tcp {NEIGHBOUR} 80"}
    allow(net, box, f"{NEIGHBOUR}", "lan.example")  # a name may lead into a network that is listed
    assert reached(net, box, "tcp lan.example 80", f"udp {NEIGHBOUR} 9000") == \
        {"tcp lan.example 80", f"udp {NEIGHBOUR} 9000"}


def test_a_list_opens_neither_the_host_nor_other_sandboxes(lab, net, box):
    net.request("POST", "/v1/sandbox/nb-other/api/process/start", {"command": "python3 -m http.server 8000", "processId": "web"})
    wait_for(lambda: net.exec("nb-other", "curl -s -o /dev/null http://127.0.0.1:8000/")["exitCode"] == 0, what="a web server")
    other = re.search(r"inet ([\d.]+)/31", net.out("nb-other", "ip -4 addr show dev eth0")).group(1)
    allow(net, box, "10.0.0.0/8", HOST, "192.168.77.0/24", "172.16.0.0/12")
    own = net.request("GET", f"/v1/sandbox/{box}/network").json["address"]
    gateway = own.rsplit(".", 1)[0] + "." + str(int(own.rsplit(".", 1)[1]) - 1)
    targets = [f"tcp {other} 8000", f"tcp {HOST} 8787", f"tcp {gateway} 8787", "tcp 192.168.77.1 8787"]
    assert all("timed out" in v for v in net.probe(box, targets).values())
    assert reached(net, box, f"tcp {NEIGHBOUR} 80", "tcp 10.9.9.9 80") == {f"tcp {NEIGHBOUR} 80", "tcp 10.9.9.9 80"}
    net.destroy("nb-other")


def test_private_networks_are_the_operators_to_open(net, box):
    token = net.request("POST", "/v1/token", {"scope": "create-only"}).json["token"]
    headers = {"Authorization": f"Bearer {token}"}
    body = {"network": {"mode": "allowlist", "allow": ["good.example", "192.168.0.0/16"]}}
    assert put(net, box, body, status=403, headers=headers)["code"] == "FORBIDDEN"
    body["network"]["allow"].pop()
    put(net, box, body, headers=headers)


def test_tunnels(names, net, box):
    """Data in names: what is not listed is never asked for, and what a star stands for is short and not too often."""
    allow(net, box, "*.wild.example", "good.example")
    before = len(names.asked())
    out = net.out(box, "for i in $(seq 40); do getent hosts $i.secret.evil.example; done; "
                  "getent hosts $(printf 'x%.0s' $(seq 60)).$(printf 'y%.0s' $(seq 60)).wild.example; "
                  "getent hosts a.b.c.d.e.wild.example; true")
    assert out == "" and names.asked()[before:] == []
    begun = time.monotonic()
    net.out(box, "python3 - <<'EOF'\nimport socket\nfrom multiprocessing.dummy import Pool\ndef ask(i):\n"
            " try: socket.gethostbyname(f'n{i}.wild.example')\n except OSError: pass\nPool(16).map(ask, range(400))\nEOF", timeout=120)
    assert len(set(names.asked()[before:])) <= 110 + 20 * (time.monotonic() - begun)  # a burst of 100, then 20 each second
    assert logged(net, box, event="name", reason="too many questions")
    assert net.exec(box, "getent hosts good.example")["exitCode"] in (0, 2)
    assert len(log(net, box)) <= 512


def test_a_resolver_that_fails_is_no_way_out(net, box):
    allow(net, box, "broken.example", "missing.example", "good.example")
    assert reached(net, box, "tcp broken.example 80", "tcp missing.example 80", wait=3) == set()
    assert reached(net, box, "tcp good.example 80") == {"tcp good.example 80"}


@pytest.mark.parametrize("network,field", [
    ({"mode": "allowlist", "allow": ["127.0.0.1"]}, "network.allow"), ({"mode": "allowlist", "allow": ["0.0.0.0/0"]}, "network.allow"),
    ({"mode": "allowlist", "allow": ["b\u00fccher.example"]}, "network.allow"), ({"mode": "allowlist", "allow": {}}, "network.allow"),
    ({"mode": "allowlist", "allow": [f"n{i}.example" for i in range(129)]}, "network.allow"),
    ({"mode": "allowlist", "allow": [f"10.0.{i}.0/24" for i in range(33)]}, "network.allow"),
    ({"mode": "allowlist", "deny": []}, "network"), ({"mode": "public", "allow": ["a.example"]}, "network.allow"), ("open", "network.mode")])
def test_what_is_not_understood_is_refused(net, network, field):
    r = net.request("PUT", "/v1/sandbox/never", {"network": network})
    assert r.status == 400 and r.json["context"]["field"] == field, r.body
    assert net.request("GET", "/v1/sandbox/never").status == 404


# ---- changes while it runs

HOLD = r"""
import socket, sys, time
for name in sys.argv[1:]:
    s = socket.create_connection((name, 7000), 30)
    s.sendall(b'echo\n')
    open('/tmp/held', 'a').write(name + '\n')
    globals().setdefault('all', []).append((name, s))
while True:
    for name, s in list(all):
        try:
            s.settimeout(5)
            s.sendall(b'x\n')
            assert s.recv(64)
            open('/tmp/beat-' + name, 'a').write('.')
        except (OSError, AssertionError) as e:
            open('/tmp/lost-' + name, 'w').write(repr(e))
            all.remove((name, s))
    time.sleep(0.05)
"""


def beats(d, box, name):
    return int(d.out(box, f"wc -c < /tmp/beat-{name} 2>/dev/null || echo 0"))


def test_modes_change_while_it_runs(lab, net, box):
    put(net, box, {"network": "none"})
    pid = net.out(box, "echo $$")
    target = "tcp good.example 80"
    assert reached(net, box, f"tcp {SITE} 80") == set()
    for _ in range(2):
        assert put(net, box, {"network": "public"})["network"] == {"mode": "public"}
        assert reached(net, box, target, f"tcp {SITES[0]} 80") == {target, f"tcp {SITES[0]} 80"}
        allow(net, box, "good.example")
        assert reached(net, box, target, f"tcp {SITES[0]} 80") == {target}
        allow(net, box, "other.example")
        assert reached(net, box, target, f"tcp {SITE} 80", "tcp other.example 80") == {"tcp other.example 80"}
        put(net, box, {"network": "none"})
        assert reached(net, box, target, f"tcp {SITE} 80") == set()
        assert re.findall(r"^\d+: (\w+)", net.out(box, "ip -o link"), re.M) == ["lo"]
    assert net.out(box, "echo $$") == pid  # the same shell all the time


def test_connections_that_are_no_longer_allowed_are_cut(net, box):
    allow(net, box, "good.example", "other.example", f"{SITES[1]}:{BULK}")
    net.out(box, f"cat > /tmp/hold.py <<'EOF'\n{HOLD}\nEOF")
    net.request("POST", f"/v1/sandbox/{box}/api/process/start",
                {"command": f"python3 /tmp/hold.py good.example other.example {SITES[1]}", "processId": "hold"})
    for name in ("good.example", "other.example", SITES[1]):
        wait_for(lambda: beats(net, box, name) > 1, what=f"a connection to {name}")
    allow(net, box, "good.example")
    for name in ("other.example", SITES[1]):
        wait_for(lambda: net.exec(box, f"test -e /tmp/lost-{name}")["exitCode"] == 0, what=f"the end of {name}")
    count = beats(net, box, "good.example")
    wait_for(lambda: beats(net, box, "good.example") > count, what="the connection that is still allowed")
    put(net, box, {"network": "public"})
    count = beats(net, box, "good.example")
    wait_for(lambda: beats(net, box, "good.example") > count, what="the same in public")
    put(net, box, {"network": "none"})
    wait_for(lambda: net.exec(box, "test -e /tmp/lost-good.example")["exitCode"] == 0, what="the end of it")


def test_many_changes_at_once_end_as_one_of_them_says(net, box):
    allow(net, box, "good.example")
    answers = []
    lists = [["good.example"], ["other.example"], ["good.example", "other.example"]] * 4
    threads = [threading.Thread(target=lambda x=x: answers.append(
        net.request("PUT", f"/v1/sandbox/{box}", {"network": {"mode": "allowlist", "allow": x}}).status)) for x in lists]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert set(answers) == {200}
    now = net.request("GET", f"/v1/sandbox/{box}").json["network"]["allow"]
    assert reached(net, box, "tcp good.example 80", "tcp other.example 80") == {f"tcp {n} 80" for n in now}


def test_sleep_wake_and_a_list_that_changed_meanwhile(net, box):
    allow(net, box, "good.example")
    assert net.request("POST", f"/v1/sandbox/{box}/sleep").status == 200
    assert reached(net, box, "tcp good.example 80", "tcp other.example 80") == {"tcp good.example 80"}
    assert net.request("POST", f"/v1/sandbox/{box}/sleep").status == 200
    allow(net, box, "other.example")
    assert reached(net, box, "tcp good.example 80", "tcp other.example 80", f"tcp {SITE} 80") == {"tcp other.example 80"}


# ---- the log

def test_the_log_tells_what_was_reached_and_what_was_not(net, box):
    allow(net, box, "good.example")
    assert log(net, box) == []
    assert reached(net, box, "tcp good.example 80", "tcp evil.example 80", f"tcp {NEIGHBOUR} 80") == {"tcp good.example 80"}
    wait_for(lambda: logged(net, box, event="packet", verdict="deny", address=NEIGHBOUR, port=80), what="the refused packet")
    opened = wait_for(lambda: logged(net, box, event="open", address=SITE), what="the connection")[0]
    assert opened["name"] == "good.example" and opened["port"] == 80 and opened["protocol"] == "tcp"
    assert logged(net, box, event="name", verdict="deny", name="evil.example", reason="not on the list")
    assert not logged(net, box, address=SITES[2])
    net.destroy(box)
    assert net.request("GET", f"/v1/sandbox/{box}/network/log").status == 404
    ends = [threading.Thread(target=net.destroy, args=(box,)) for _ in range(3)]
    put(net, box, {})
    reached(net, box, f"tcp {SITES[1]} 80")
    [t.start() for t in ends]
    put(net, box, {})  # the same id, perhaps the very next moment: another sandbox
    [t.join() for t in ends]
    put(net, box, {})
    assert not logged(net, box, address=SITE)


def test_the_log_counts_bytes(net, box):
    put(net, box, {"network": "public"})
    net.out(box, "python3 - <<'EOF'\nimport socket\n"
            f"s=socket.create_connection(('{SITES[0]}',{BULK})); s.sendall(b'send 1000000\\n')\nn=0\n"
            "while d:=s.recv(65536): n+=len(d)\nassert n==1000000\nEOF")
    usage = net.request("GET", f"/v1/sandbox/{box}").json
    assert usage["networkRxBytes"] > 1000000 and 0 < usage["networkTxBytes"] < usage["networkRxBytes"]
    put(net, box, {"network": "none"})  # ends what the kernel still remembers of it
    closed = wait_for(lambda: logged(net, box, event="close", address=SITES[0], port=BULK), what="the end of it")[0]
    assert closed["bytesReceived"] > 1000000 and 0 < closed["bytesSent"] < 1000000
    metrics = net.request("GET", "/metrics").body.decode()
    assert int(re.search(r'silica_network_bytes_total{direction="received"} (\d+)', metrics).group(1)) > 1000000
    assert int(re.search(r"silica_network_connections_total (\d+)", metrics).group(1)) > 0


def test_the_log_of_public_has_names(names, net, box):
    """The host's name servers are asked by the sandbox itself, and what they say is overheard."""
    put(net, box, {"network": "public"})
    targets = {"tcp good.example 80", "tcp alias.example 80"}
    assert reached(net, box, *targets, "tcp lan.example 80", "tcp missing.example 80", f"tcp {SITES[1]} 80") == \
        {*targets, f"tcp {SITES[1]} 80"}
    for name, address in (("good.example", SITE), ("alias.example", SITES[0])):
        wait_for(lambda: logged(net, box, event="open", name=name, address=address, port=80), what="a connection with its name")
    # a name for a private address opens nothing; the log says which name it was
    wait_for(lambda: logged(net, box, event="packet", name="lan.example", address=NEIGHBOUR, reason="a private address"),
             what="a refused packet with its name")
    opened = wait_for(lambda: logged(net, box, event="open", address=SITES[1], port=80), what="a connection by its address")
    assert [e.get("name") for e in opened] == [None]
    # nobody can make up names for the log: only the name servers of the daemon are believed
    names.other(SITES[2])
    lie = ("import socket; q=b'\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0\\4evil\\7example\\0\\0\\1\\0\\1'; "
           f"s=socket.socket(2,2); s.settimeout(30); s.sendto(q,('{SITES[2]}',53)); print(s.recv(999)[-4:] == bytes([198,51,100,10]))")
    assert net.out(box, f"python3 - <<'EOF'\n{lie}\nEOF").strip() == "True"
    assert reached(net, box, f"tcp {SITES[2]} 80") == {f"tcp {SITES[2]} 80"}
    wait_for(lambda: logged(net, box, event="open", address=SITES[2], port=80), what="a connection without a name")
    assert not [e for e in log(net, box) if e["address"] == SITES[2] and "name" in e]
    # another life begins without the names of the last one
    assert net.request("POST", f"/v1/sandbox/{box}/sleep").status == 200
    count = len(logged(net, box, event="open", address=SITE, port=80))
    assert reached(net, box, f"tcp {SITE} 80") == {f"tcp {SITE} 80"}
    entries = wait_for(lambda: logged(net, box, event="open", address=SITE, port=80)[count:], what="one more connection")
    assert "name" not in entries[0]


def test_the_log_is_followed(net, box):
    allow(net, box, "good.example")
    conn = net.connection(30)
    conn.request("GET", f"/v1/sandbox/{box}/network/log?follow=1", headers={"Authorization": "Bearer " + TOKEN})
    r = conn.getresponse()
    assert r.status == 200 and r.getheader("content-type").startswith("text/event-stream")
    net.exec(box, "getent hosts evil.example; curl -s -m 30 http://good.example/")
    seen = []
    while not {"name", "open"} <= {e["event"] for e in seen}:
        line = r.readline()
        assert line, seen
        if line.startswith(b"data: "):
            seen.append(json.loads(line[6:]))
    net.destroy(box)
    while line := r.readline():  # the stream ends with the sandbox
        pass
    conn.close()


# ---- limits

def transfer(d, box, line, n):
    """Bytes a second of a transfer inside the sandbox."""
    script = ("import socket,time; s=socket.create_connection(('%s',%d)); t=time.monotonic()\n"
              "if '%s'=='take':\n s.sendall(b'take\\n'+b'x'*%d); s.shutdown(1); s.recv(99)\n"
              "else:\n s.sendall(b'send %d\\n')\n while s.recv(65536): pass\n"
              "print(%d/(time.monotonic()-t))" % (SITES[0], BULK, line, n, n, n))
    return float(d.out(box, f"python3 - <<'EOF'\n{script}\nEOF", timeout=120))


def test_NET_14_bandwidth_is_limited_both_ways(net, box):
    limit = 1 << 20
    put(net, box, {"network": "public", "limits": {"networkBytesPerSecond": "1MiB"}})
    for line in ("send", "take"):
        # an upper bound only: a busy machine is slower. A twentieth of a second goes at once
        assert transfer(net, box, line, 2 * limit) < limit * 1.1, line
    r = put(net, box, {"limits": {"networkBytesPerSecond": 0}})
    assert r["limits"]["networkBytesPerSecond"] == 0
    assert all(transfer(net, box, line, 8 * limit) > limit * 1.2 for line in ("send", "take"))  # it was the limit
    put(net, box, {"limits": {"networkBytesPerSecond": limit}})  # and again, on the link that is up
    for line in ("send", "take"):
        assert transfer(net, box, line, 2 * limit) < limit * 1.1, line


def open_many(d, box, n, limit):
    """How many of n connections come about, all held at the same time; it waits for as many as the limit, and a moment for more."""
    return int(d.out(box, "python3 - <<'EOF'\nimport socket,time,select\nall=[]\nfor i in range(%d):\n s=socket.socket(); s.setblocking(False)\n"
                     " s.connect_ex(('%s',%d)); all.append(s); time.sleep(0.012)\nopen=lambda: len(select.select([],all,[],0)[1])\n"
                     "end=time.monotonic()+30\nwhile open()<%d and time.monotonic()<end: time.sleep(0.05)\ntime.sleep(0.3)\n"
                     "print(open())\nEOF" % (n, SITES[0], BULK, limit), timeout=120))


def test_connections_are_limited(net, box):
    put(net, box, {"network": "public", "limits": {"connections": 20}})
    assert open_many(net, box, 60, 20) == 20
    assert net.request("GET", f"/v1/sandbox/{box}").json["limits"]["connections"] == 20
    put(net, box, {"limits": {"connections": 40}})
    put(net, box, {"network": "none"})
    put(net, box, {"network": "public"})
    assert open_many(net, box, 60, 40) == 40
    assert wait_for(lambda: logged(net, box, event="packet", reason="too many connections"), what="a note of it")


def test_NET_15_one_sandbox_does_not_use_up_the_ports(net, box):
    put(net, box, {"network": "public"})
    net.out(box, "python3 - <<'EOF'\nimport socket\nfor i in range(3000):\n s=socket.socket(); s.setblocking(False); "
            f"s.connect_ex(('{SITES[1]}', {BULK}))\n globals().setdefault('all', []).append(s)\nEOF", timeout=60)
    assert reached(net, "nb-neighbour", f"tcp {SITES[1]} 80") == {f"tcp {SITES[1]} 80"}
    net.destroy("nb-neighbour")


# ---- the command line

def silica(d, *words):
    return subprocess.run([BIN, *words, "--url", f"unix:{d.path}", "--token", TOKEN], capture_output=True, text=True, timeout=60)


def test_the_command_line(net, box):
    r = silica(net, "create", box, "--network", "allowlist", "--allow", "good.example", "--allow", "*.wild.example:80",
               "--bandwidth", "5M", "--connections", "100")
    assert r.returncode == 0, r.stderr
    shown = json.loads(silica(net, "net", "show", box, "--json").stdout)
    assert shown["network"] == {"mode": "allowlist", "allow": ["good.example", "*.wild.example:80"]}
    assert shown["connections"] == 100 and shown["networkBytesPerSecond"] == 5 << 20 and shown["address"].startswith("10.213.")
    assert "good.example" in silica(net, "net", "show", box).stdout
    assert silica(net, "net", "allow", box, "other.example", SITES[0]).returncode == 0
    assert silica(net, "net", "deny", box, "*.wild.example:80").returncode == 0
    assert net.request("GET", f"/v1/sandbox/{box}").json["network"]["allow"] == ["good.example", "other.example", SITES[0]]
    assert reached(net, box, "tcp other.example 80", "tcp a.wild.example 80") == {"tcp other.example 80"}
    wait_for(lambda: logged(net, box, event="open", address=SITES[0], port=80), what="the connection in the log")
    out = silica(net, "net", "log", box).stdout
    assert "a.wild.example" in out and "(not on the list)" in out and f"{SITES[0]}:80" in out
    assert all(json.loads(line)["time"] for line in silica(net, "net", "log", box, "--json").stdout.splitlines())
    follow = subprocess.Popen([BIN, "net", "log", "-f", box, "--url", f"unix:{net.path}", "--token", TOKEN],
                              stdout=subprocess.PIPE, text=True)
    assert follow.stdout.readline() == out.splitlines(True)[0]  # it begins with what is kept
    follow.kill()
    follow.wait()
    assert silica(net, "net", "mode", box, "none").returncode == 0
    bad = silica(net, "net", "allow", box, "x.example")
    assert bad.returncode == 125 and "has no list" in bad.stderr
    assert silica(net, "net", "mode", box, "allowlist", "127.0.0.1").returncode == 125
    assert silica(net, "net", "deny", box).returncode == silica(net, "net").returncode == silica(net, "net", "x", box).returncode == 125


# ---- the daemon's life

@pytest.fixture
def own(tmp_path):
    lab = Lab(tmp_path)
    names = Names(lab, tmp_path)
    names.zone(ZONE)
    made = []

    def make(name, **kwargs):
        d = LabDaemon(lab, name, **kwargs)
        d.args += ["--dns", NAMES]
        made.append(d)
        return d

    yield lab, names, make
    for d in made:
        d.cleanup()
    names.close()
    lab.close()


def descriptors(d):
    """Of both processes: a socket inside a sandbox would keep its network namespace alive."""
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in (d.proc.pid, gateway_pid(d)))


def test_a_list_holds_without_the_daemon_and_after_its_restart(own):
    lab, names, make = own
    d = make("allowkill", args=["--network-pool", "172.26.0.0/16"], pool=0).start()
    before = lab.state()
    allow(d, "x", "good.example", f"{SITES[1]}:80")
    put(d, "x", {"limits": {"connections": 30, "networkBytesPerSecond": "1MiB"}})
    script = ("import socket,time\nopen('/tmp/begun','w')\nwhile True:\n for a in ('%s','%s','%s','%s'):\n  s=socket.socket(); s.settimeout(0.2)\n"
              "  try: s.connect((a,80)); open('/tmp/r-'+a,'a').write('x')\n  except OSError: pass\n  s.close()\n time.sleep(0.05)\n"
              % (SITE, SITES[0], SITES[1], NEIGHBOUR))
    d.out("x", f"getent hosts good.example && cat > /tmp/loop.py <<'EOF'\n{script}\nEOF")
    d.request("POST", "/v1/sandbox/x/api/process/start", {"command": "python3 /tmp/loop.py", "processId": "loop"})
    count = lambda a: int(d.out("x", f"wc -c < /tmp/r-{a} 2>/dev/null || echo 0"))
    wait_for(lambda: count(SITE) and count(SITES[1]), what="connections")
    d.kill()
    mark = len(lab.visits())
    wait_for(lambda: len([v for v in lab.visits()[mark:] if SITE in v]) > 3, what="connections without a daemon")
    d.start()
    at = count(SITE)
    wait_for(lambda: count(SITE) > at, what="connections to an address from before")  # it was carried over
    assert reached(d, "x", "tcp good.example 80", "tcp other.example 80") == {"tcp good.example 80"}
    assert count(SITES[0]) == count(NEIGHBOUR) == 0
    shown = d.request("GET", "/v1/sandbox/x").json
    assert shown["limits"]["connections"] == 30 and shown["network"]["allow"] == ["good.example", f"{SITES[1]}:80"]
    allow(d, "x", f"{SITES[1]}:80")
    rounds = count(SITES[1])
    wait_for(lambda: count(SITES[1]) > rounds + 1, what="a round that began under the new list")
    at = count(SITE)
    assert reached(d, "x", f"tcp {SITE} 80", f"tcp {SITES[1]} 80") == {f"tcp {SITES[1]} 80"}
    assert count(SITE) == at
    d.stop()
    wait_for(lambda: lab.state()["links"] == before["links"], what="no links")


def test_a_gateway_that_dies_is_followed_by_one_that_resolves(own):
    lab, names, make = own
    d = make("allowgw", args=["--network-pool", "172.25.0.0/16"], pool=0).start()
    allow(d, "x", "good.example")
    assert reached(d, "x", "tcp good.example 80") == {"tcp good.example 80"}
    os.kill(gateway_pid(d), signal.SIGKILL)
    wait_for(lambda: "starting it again" in d.log(), what="the news of its end")

    def works():
        try:
            return reached(d, "x", "tcp good.example 80", "tcp other.example 80") == {"tcp good.example 80"}
        except (OSError, AssertionError, http.client.HTTPException):
            return False

    wait_for(works, what="a resolver again")
    d.out("x", f"cat > /tmp/hold.py <<'EOF'\n{HOLD}\nEOF")
    d.request("POST", "/v1/sandbox/x/api/process/start", {"command": "python3 /tmp/hold.py good.example", "processId": "hold"})
    wait_for(lambda: beats(d, "x", "good.example") > 1, what="a connection")
    allow(d, "x", "good.example", "other.example")  # a list that grows touches nothing
    count = beats(d, "x", "good.example")
    wait_for(lambda: beats(d, "x", "good.example") > count, what="the same connection")
    assert d.exec("x", "test -e /tmp/lost-good.example")["exitCode"] == 1
    wait_for(lambda: logged(d, "x", event="open", address=SITE), what="a log again")


def test_the_daemons_own_list(own):
    lab, names, make = own
    d = make("allowall", args=["--allow", "good.example,*.wild.example:80"], pool=1)
    d.network = "allowlist"
    d.start()
    assert reached(d, "x", "tcp good.example 80", "tcp other.example 80", "tcp a.wild.example 80") == \
        {"tcp good.example 80", "tcp a.wild.example 80"}
    assert d.request("GET", "/v1/sandbox/x").json["network"]["allow"] == ["good.example", "*.wild.example:80"]
    put(d, "x", {"network": "public"})
    assert reached(d, "x", "tcp other.example 80") == {"tcp other.example 80"}


def test_NET_16_five_hundred_sandboxes_leave_nothing(own):
    """In batches, with lists, limits and traffic, some ended by sleep: no link, rule, name space or connection stays."""
    lab, names, make = own
    before = lab.state()
    d = make("allow500", args=["--network-pool", "172.24.0.0/16", "--slots", "64"], pool=2).start()
    begun, fds = time.monotonic(), descriptors(d)
    kinds = [{}, {"network": "none"}, {"network": {"mode": "allowlist", "allow": ["good.example", f"{SITES[1]}:80"]}},
             {"limits": {"connections": 50, "networkBytesPerSecond": "10MiB"}}]
    wrong = []

    def one(i):
        kind = kinds[i % len(kinds)]
        try:
            put(d, f"n{i}", kind)
            if i % 10 == 2:
                assert reached(d, f"n{i}", "tcp good.example 80") == {"tcp good.example 80"}
            if i % 25 == 0:
                assert d.request("POST", f"/v1/sandbox/n{i}/sleep").status == 200
            d.destroy(f"n{i}")
        except Exception as e:  # noqa: BLE001 (told in the main thread)
            wrong.append((i, repr(e)))

    for start in range(0, 500, 10):
        threads = [threading.Thread(target=one, args=(i,)) for i in range(start, start + 10)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert not wrong, wrong[:3]
    assert time.monotonic() - begun < 900  # a bound, not a measurement

    def rest():
        table = lab.on_host("nft", "list", "table", "inet", f"silica-{d.instance}")
        links = [x for x in lab.on_host("ip", "-o", "link").splitlines() if " sil" in x]
        body = lambda name: re.search(rf"(?:set|map) {name} {{(.*?)\n\t}}", table, re.S).group(1)
        used = [s for s in ("listed", "nets_any", "nets_port", "pins", "counts") if "elements" in body(s)]
        objects = re.findall(r"(?:count|connections)_\d+", table)
        tracked = [x for x in lab.on_host("cat", "/proc/net/nf_conntrack").splitlines() if "src=172.24." in x]
        return len(links) > 2 or used or objects or tracked

    wait_for(lambda: not rest(), what="nothing but prepared sandboxes")
    wait_for(lambda: descriptors(d) < fds + 16, what="no descriptor of a sandbox's")  # the pool may be in any state
    d.stop()
    wait_for(lambda: lab.state() == before, what="the host as it was")
