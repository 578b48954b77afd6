# SPDX-License-Identifier: Apache-2.0
"""The bandwidth of a preview: never more than the limit, nothing lost, and other previews are not slowed."""
import hashlib
import random
import time

from preview import expose, serve, start
from test_previews import WS, upgrade

RATE, SIZE = 2_000_000, 1_500_000
LEAST_S = (SIZE - RATE // 5) / RATE  # a short burst is free


def test_downloads_and_uploads_keep_to_the_limit(daemon_factory):
    d = daemon_factory("pace", args=["--preview-bandwidth", str(RATE)]).start()
    d.out("a", f"cd /workspace && head -c {SIZE} /dev/urandom > big && sha256sum big | cut -c1-64 > sum")
    start(d, "a", "cd /workspace; exec python3 -m http.server 8003 --bind 127.0.0.1", 8003)
    p = expose(d, "a", 8003)
    begun = time.monotonic()
    body = p.get("/big").body
    assert len(body) == SIZE and time.monotonic() - begun >= LEAST_S
    assert hashlib.sha256(body).hexdigest() == d.out("a", "cat /workspace/sum")
    done = [["swallow", None], ["send", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"]]
    q = serve(d, "b", {"/up": done})  # another preview has a pace of its own
    begun = time.monotonic()
    assert q.get("/up", method="PUT", body=random.randbytes(SIZE)).body == b"ok"
    assert time.monotonic() - begun >= LEAST_S


def test_tunnels_keep_to_the_limit(daemon_factory):
    d = daemon_factory("pacews", args=["--preview-bandwidth", str(RATE)]).start()
    p = serve(d, "a", {"/ws": WS})
    data = random.randbytes(SIZE)
    with p.wire() as w:
        upgrade(p, w)
        begun = time.monotonic()
        for i in range(0, SIZE, 50_000):
            w.send(data[i : i + 50_000])
            assert w.exactly(len(data[i : i + 50_000])) == data[i : i + 50_000]
        assert time.monotonic() - begun >= LEAST_S
