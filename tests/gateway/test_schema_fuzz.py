# SPDX-License-Identifier: Apache-2.0
"""Requests to the gateway's own routes, made up at random from the shapes of the real ones (API-13), and bodies that
claim to be compressed (HTTP-22).

SILICA_FUZZ_REQUESTS  how many (1500); SILICA_FUZZ_SEED  which ones
"""
import gzip
import json
import os
import random
import zlib

import pytest
from conftest import example, routes

REQUESTS = int(os.environ.get("SILICA_FUZZ_REQUESTS", 1500))
SEED = int(os.environ.get("SILICA_FUZZ_SEED", 7))

SHAPES = {
    "/v1/token": {"scope": "one-sandbox", "sandbox": "mine", "name": "n", "expiresIn": "1h"},
    "/v1/sandbox/{id}": {"image": "base", "instanceType": "lite", "env": {"A": "1"}, "labels": {"a": "b"}, "sleepAfter": "5m",
                         "keepAlive": True, "ephemeral": False, "limits": {"memory": "256MiB", "cpu": 1, "tasks": 64, "diskBytes": 1 << 28},
                         "network": {"mode": "allowlist", "allow": ["example.org", "10.0.0.0/8"]},
                         "volumes": [{"name": "v", "path": "/data"}]},
    "/v1/sandbox/{id}/ports": {"port": 8080, "name": "web", "token": "t", "public": True},
    "/v1/images/tag": {"source": "base", "target": "x:1"},
    "/v1/images/save": {"sandbox": "fuzz-1", "name": "x:1"},
    "/v1/volumes": {"name": "v", "sizeBytes": 1 << 24},
    None: {"command": "true"},
}
WORDS = ["", " ", "x", "true", "null", "0", "1e9", "5m", "-1s", "admin", "read-only", "base", "public", "none", "..", "a/b", "a\nb",
         "a\u0000b", "\x7f", "é", "🎉", "\u202e", "=x", "A=", "x" * 70, "x" * 5000, "256MiB", "10.0.0.0/33", "*.", "::1"]
NUMBERS = [0, 1, -1, 80, 65535, 65536, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, 0.5, -0.0, 1e308, 1e-300]
IDS = ["fuzz-1", "fuzz-2", "fuzz-3", "A", "-", "x" * 63, "x" * 64, "x" * 200, "..", "%2e%2e", "a%00b", "%zz", "caf%C3%A9", "a%2Fb"]


class Maker:
    def __init__(self, seed):
        self.random, self.routes = random.Random(seed), routes()

    def value(self, depth=0):
        kind = self.random.randrange(7 if depth < 3 else 5)
        if kind < 2:
            return self.random.choice(WORDS)
        if kind == 2:
            return self.random.choice([None, True, False])
        if kind < 5:
            return self.random.choice(NUMBERS)
        if kind == 5:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return {self.random.choice(WORDS): self.value(depth + 1) for _ in range(self.random.randrange(4))}

    def mutated(self, value):
        if isinstance(value, dict) and value and self.random.random() < 0.9:
            copy = dict(value)
            key = self.random.choice(list(copy))
            kind = self.random.randrange(6)
            if kind == 0:
                del copy[key]
            elif kind == 1:
                copy[self.random.choice(WORDS)] = self.value()
            else:
                copy[key] = self.mutated(copy[key])
            return copy
        return self.value()

    def text(self, body):
        for _ in range(self.random.randrange(1, 4)):
            body = self.mutated(body)
        text = json.dumps(body, ensure_ascii=self.random.random() < 0.5).encode("utf-8", "surrogatepass")
        kind = self.random.randrange(12)
        if kind == 0:
            return text[:self.random.randrange(len(text) + 1)]
        if kind == 1:
            at = self.random.randrange(len(text))
            return text[:at] + bytes([self.random.choice(b'{}[],:"\\ \x00\xff')]) + text[at + 1:]
        return text

    def request(self):
        method, pattern, _ = self.random.choice(self.routes)
        path = example(pattern, self.random.choice(IDS[:3] if self.random.random() < 0.7 else IDS))
        method = method or self.random.choice(["POST", "PUT", "PATCH", "DELETE"])
        if self.random.random() < 0.05:
            method = self.random.choice(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
        if self.random.random() < 0.2:
            path += self.random.choice(["?", "?x", "?limit=", "?sandbox=%00", "?since=-1", "?%zz", "?a=" + "b" * 2000])
        body = None if method in ("GET", "HEAD") else self.text(SHAPES.get(pattern, SHAPES[None]))
        return method, path, body


def test_API_13_made_up_requests(make_gateway):
    """An answer in its class to each, with its error envelope, and the gateway is the same one afterwards."""
    g = make_gateway()
    made, pid = Maker(SEED), g.pid
    for i in range(REQUESTS):
        method, path, body = made.request()
        if path.startswith("/v1/events") or path.endswith("/network/log"):
            continue  # streams that do not end
        a = g.ask(method, path, body=body, headers={"Content-Type": "application/json"})
        what = (i, method, path, body and body[:300], a)
        assert a.status < 500 or b"pretended error" in a.body, what  # of the keeper, which has no images
        if a.status >= 400 and method != "HEAD" and a.status != 426:  # which says in plain text that it wants a WebSocket
            assert a.headers["Content-Type"].startswith("application/json") and a.error()["code"], what
        if i % 100 == 99:
            for t in g.get("/v1/token").json()["tokens"]:
                g.ask("DELETE", f"/v1/token/{t['id']}")
    assert g.get("/health").status == 200 and g.pid == pid


@pytest.mark.parametrize("coding,pack", [("gzip", gzip.compress), ("deflate", zlib.compress), ("br", lambda d: d), ("x-unknown", lambda d: d)])
def test_HTTP_22_compressed_bodies_are_not_inflated(gateway, coding, pack):
    """To the gateway's own routes a body is what it is: JSON or not. To the agent it goes on unread, with its header."""
    bomb = pack(b'{"labels":{"a":"' + b"x" * (64 << 20) + b'"}}') if pack in (gzip.compress, zlib.compress) else b"\x0b\x02\x80"
    before = gateway.memory()
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    a = gateway.ask("PUT", "/v1/sandbox/packed", body=bomb, headers=headers)
    assert a.status in (400, 413, 415), a
    assert gateway.get("/v1/sandbox/packed").status == 404
    seen = gateway.api("packed", "echo", method="POST", body=bomb, headers=headers).json()
    assert seen["bodyLength"] == len(bomb) and ["Content-Encoding", coding] in seen["headers"]
    assert gateway.memory() - before < 16 << 20
    gateway.delete("packed")
