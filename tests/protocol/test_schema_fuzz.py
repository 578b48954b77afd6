# SPDX-License-Identifier: Apache-2.0
"""Requests made up at random from the shapes of the real ones (API-13): a typed answer to each, and never a fault.

SILICA_FUZZ_REQUESTS  how many (600); SILICA_FUZZ_SEED  which ones
"""
import json
import os
import random

from test_hostile import check_typed, healthy, knock, method_of, places, replaced, table
from test_hostile import den, target  # noqa: F401

REQUESTS = int(os.environ.get("SILICA_FUZZ_REQUESTS", 600))
SEED = int(os.environ.get("SILICA_FUZZ_SEED", 7))

# what a mutated field may say: nothing in here names a file that exists or does anything as a command
WORDS = ["", " ", "x", "true", "false", "null", "0", "-1", "1e9", "utf-8", "base64", "python", "javascript", "h", "made", "none",
         "exit 3", "((", "'", '"', "$(", "cat <<E", "\\", "é", "🎉", "\u202e", "a\nb", "a\u0000b", "\x7f", "%00", "%s%n", "=x", "A=", "-x"]
NUMBERS = [0, 1, -1, 2, 65535, 65536, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, -(2**63), 0.5, -0.0, 1e308, 1e-300]
QUERIES = ["", "", "", "?", "?x", "?sessionId=", "?sessionId=%00", "?a=" + "b" * 2000, "?%zz", "?#", "?a[]=1&a[]=2"]
TYPES = ["application/json", "application/json", "text/plain", "", "application/json; charset=utf-16", "multipart/form-data", "x/y"]


class Maker:
    def __init__(self, seed, directory):
        self.random, self.bodies = random.Random(seed), table(directory)

    def value(self, depth=0):
        kind = self.random.randrange(9 if depth < 3 else 6)
        if kind < 2:
            return self.random.choice(WORDS)
        if kind == 2:
            return "".join(chr(self.random.choice([self.random.randrange(0x21, 0x2b), self.random.randrange(0xa1, 0xd800)]))
                           for _ in range(self.random.randrange(40)))
        if kind == 3:
            return self.random.choice([None, True, False])
        if kind < 6:
            return self.random.choice(NUMBERS)
        if kind == 6:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return {self.random.choice(WORDS): self.value(depth + 1) for _ in range(self.random.randrange(4))}

    def body(self, body):
        for _ in range(self.random.randrange(1, 4)):
            fields = list(places(body)) if isinstance(body, dict) else []
            kind = self.random.randrange(8)
            if kind < 5 and fields:
                place = self.random.choice(fields)
                # a command or code of random characters might do something
                harmless = {"command", "code"} & set(place)
                body = replaced(body, place, self.random.choice(WORDS) if harmless else self.value())
            elif kind == 5 and fields:
                body = {k: v for k, v in body.items() if k != self.random.choice(fields)[0]}
            elif kind == 6 and isinstance(body, dict):
                body = {**body, self.random.choice(WORDS): self.value()}
        return body

    def text(self, body):
        text = json.dumps(body, ensure_ascii=self.random.random() < 0.5).encode("utf-8", "surrogatepass")
        kind = self.random.randrange(12)
        if kind == 0:
            return text[:self.random.randrange(len(text) + 1)]
        if kind == 1:  # a byte of the syntax or of a text changes; the command's own are left alone
            at = self.random.randrange(len(text))
            return text[:at] + bytes([self.random.choice(b'{}[],:"\\ \x00\xff')]) + text[at + 1:] if b"command" not in text else text
        return text

    def request(self):
        path = self.random.choice(list(self.bodies))
        method = method_of(path) if self.random.random() < 0.95 else self.random.choice(["GET", "PUT", "DELETE", "PATCH", "HEAD"])
        headers = {"Content-Type": self.random.choice(TYPES)}
        if self.random.random() < 0.2:
            headers["X-Session-Id"] = self.random.choice(["h", "", "x" * 300, "made", "../x"])
        return method, path + self.random.choice(QUERIES), self.text(self.body(self.bodies[path])), headers


# The protocol answers 500 to much that is the caller's fault, bodies that are no JSON among it: what may be said then.
SAID_WITH_500 = {"INTERNAL_ERROR", "BACKUP_CREATE_FAILED", "BACKUP_RESTORE_FAILED", "COMMAND_EXECUTION_ERROR", "STREAM_START_ERROR",
                 "GIT_OPERATION_FAILED", "GIT_CLONE_FAILED", "GIT_NETWORK_ERROR", "FILESYSTEM_ERROR", "SECURITY_VALIDATION_FAILED", "TUNNEL_NOT_FOUND",
                 "CLOUDFLARED_NOT_FOUND", "PROCESS_ERROR", "CODE_EXECUTION_ERROR", "PORT_ERROR", "PORT_OPERATION_ERROR"}


def test_API_13_made_up_requests(target, den):
    process, api = target
    made, seen = Maker(SEED, den), {}
    for i in range(REQUESTS):
        method, path, body, headers = made.request()
        answer = knock(api, method, path, body, headers)
        what = (i, method, path, body[:300], headers)
        if answer.status == 502:
            assert json.loads(answer.body)["code"] == "GIT_NETWORK_ERROR", what  # a clone that takes too long
        elif method != "HEAD":
            check_typed(answer, what)
        if answer.status >= 500:
            seen.setdefault(json.loads(answer.body)["code"], what)
        if i % 250 == 249:
            for name in api.get("/api/session/list").json["data"]:
                if name != "h":
                    api.post("/api/session/delete", {"sessionId": name})
    assert process.poll() is None
    assert set(seen) <= SAID_WITH_500, {k: v for k, v in seen.items() if k not in SAID_WITH_500}
    healthy(api)
