# SPDX-License-Identifier: Apache-2.0
"""Names for the small internet of lab.py: a name server with a zone that tests write, and a service that holds
connections open, sends and takes any number of bytes."""
import json
import subprocess
import sys

from lab import ns
from silica import wait_for

NAMES = "192.168.77.54"  # where the name server is; private, as a company's would be
SITES = ["198.51.100.8", "198.51.100.9", "198.51.100.10"]  # more public services
BULK = 7000

# {"name": ["A 1.2.3.4", "AAAA 2000::1", "CNAME other", "EXTRA other A 1.2.3.4", "TTL 5", "FAIL"]}; a list of lists is gone through, one
# answer after the other. Every question is written down as "TYPE name".
SERVER = r"""
import json, socket, struct, sys
zone_path, log_path, address = sys.argv[1:4]
s = socket.socket(type=socket.SOCK_DGRAM)
s.bind((address, 53))
log = open(log_path, "a")
turns = {}
def pack(name):
    return b"".join(bytes([len(l)]) + l.encode() for l in name.split(".") if l) + b"\0"
print("ready", file=log, flush=True)
while True:
    data, peer = s.recvfrom(4096)
    at, labels = 12, []
    while data[at]:
        labels.append(data[at + 1:at + 1 + data[at]].decode("latin-1").lower())
        at += 1 + data[at]
    name, kind = ".".join(labels), struct.unpack(">H", data[at + 1:at + 3])[0]
    print(kind, name, file=log, flush=True)
    records = json.load(open(zone_path)).get(name)
    if records and isinstance(records[0], list):
        turn = turns[name] = turns.get(name, -1) + 1
        records = records[min(turn, len(records) - 1)]
    code, ttl, answers = (3, 60, []) if records is None else (0, 60, [])
    owner = name
    for text in records or []:
        word = text.split()
        if word[0] == "TTL":
            ttl = int(word[1])
        elif word[0] == "FAIL":
            code = 2
        elif word[0] == "CNAME":
            answers.append((owner, 5, pack(word[1])))
            owner = word[1]
        elif word[0] == "EXTRA":
            answers.append((word[1], 1, socket.inet_aton(word[3])))
        elif word[0] == "A" and kind == 1:
            answers.append((owner, 1, socket.inet_aton(word[1])))
        elif word[0] == "AAAA" and kind == 28:
            answers.append((owner, 28, socket.inet_pton(socket.AF_INET6, word[1])))
    out = data[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(answers), 0, 0) + data[12:at + 5]
    for o, t, d in answers:
        out += pack(o) + struct.pack(">HHIH", t, 1, ttl, len(d)) + d
    s.sendto(out, peer)
"""

# One line says what to do: "send N", "take" (answers with how many bytes came), "echo".
BULK_SERVER = r"""
import socket, threading
def serve(c):
    f = c.makefile("rwb")
    word = f.readline().split()
    if word and word[0] == b"send":
        left = int(word[1])
        while left:
            n = min(left, 65536)
            c.sendall(b"x" * n)
            left -= n
    elif word and word[0] == b"take":
        n = 0
        while data := c.recv(65536):
            n += len(data)
        c.sendall(b"%d\n" % n)
    else:
        while line := f.readline():
            f.write(line)
            f.flush()
    c.close()
def quietly(c):
    try:
        serve(c)
    except OSError:
        pass
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", 7000))
s.listen(4096)
print("ready", flush=True)
while True:
    threading.Thread(target=quietly, args=(s.accept()[0],), daemon=True).start()
"""


class Names:
    def __init__(self, lab, tmp):
        self.lab, self.zone_path, self.log_path = lab, f"{tmp}/zone.json", f"{tmp}/names.log"
        self.zone({})
        for address in (f"{NAMES}/24", *(f"{a}/32" for a in SITES)):
            ns(lab.world, "ip", "addr", "add", address, "dev", "net0")
        enter = ["nsenter", "-t", str(lab.world), "-n", sys.executable, "-c"]
        self.servers = [subprocess.Popen([*enter, SERVER, self.zone_path, self.log_path, NAMES])]
        self.bulk = subprocess.Popen([*enter, BULK_SERVER], stdout=subprocess.PIPE)
        assert self.bulk.stdout.readline() == b"ready\n"
        wait_for(lambda: "ready" in self.asked(), what="the name server")

    def other(self, address):
        """A name server of somebody else, with the same zone."""
        enter = ["nsenter", "-t", str(self.lab.world), "-n", sys.executable, "-c"]
        ready = self.asked().count("ready")
        self.servers.append(subprocess.Popen([*enter, SERVER, self.zone_path, self.log_path, address]))
        wait_for(lambda: self.asked().count("ready") > ready, what="the other name server")

    def zone(self, names):
        with open(self.zone_path, "w") as f:
            json.dump(names, f)

    def asked(self):
        try:
            return open(self.log_path).read().splitlines()
        except FileNotFoundError:
            return []

    def close(self):
        for p in (*self.servers, self.bulk):
            p.kill()
            p.wait()
