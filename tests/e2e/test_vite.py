# SPDX-License-Identifier: Apache-2.0
"""Hot reload of a real Vite development server inside a sandbox, in a real Chromium outside, through a preview."""
import base64
import contextlib
import http.server
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import threading

import pytest
from preview import expose, start, write
from silica import ROOT, wait_for

CLIENTS = os.path.join(ROOT, "tests", "clients")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
INDEX = '<!doctype html><title>{title}</title><script type="module" src="/main.js"></script>'
MAIN = """import { value } from './value.js'
const page = Math.random()
const report = v => fetch('http://127.0.0.1:PORT/', { method: 'POST', mode: 'no-cors', body: JSON.stringify({ page, value: v, host: location.host }) })
report(value)
import.meta.hot.accept('./value.js', m => report(m.value))
"""


def modules():
    """The packages of tests/clients, installed where they are when they are not there yet."""
    if not os.path.exists(os.path.join(CLIENTS, "node_modules", "vite")):
        if not shutil.which("npm"):
            pytest.skip("needs npm, to fetch Vite")
        r = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=CLIENTS, capture_output=True, text=True)
        if r.returncode != 0:
            pytest.skip("npm cannot fetch Vite: " + r.stderr.strip()[-200:])
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as t:
        t.add(os.path.join(CLIENTS, "node_modules"), "node_modules")
    return out.getvalue()


class Reports(http.server.ThreadingHTTPServer):
    """What the page says about itself."""

    def __init__(self):
        self.seen = seen = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def wait(self, value, seconds=180, other_than=None):
        def found():
            return next((r for r in self.seen if r["value"] == value and r["page"] != other_than), None)

        try:
            return wait_for(found, seconds, f"a page that shows {value!r}")
        except AssertionError as e:
            raise AssertionError(f"{e}; reports: {self.seen}") from None


@pytest.fixture
def reports():
    r = Reports()
    yield r
    r.shutdown()
    r.server_close()


@pytest.fixture
def browser():
    if not CHROMIUM:
        pytest.skip("needs Chromium")
    directory, processes = tempfile.mkdtemp(prefix="silica-chromium-"), []

    def visit(url):
        log = open(directory + "/log", "ab")
        processes.append(subprocess.Popen(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", f"--user-data-dir={directory}/profile", url],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "HOME": directory}))
        log.close()

    yield visit
    for p in processes:
        p.terminate()
        try:
            p.wait(60)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
    shutil.rmtree(directory, ignore_errors=True)


def test_hot_reload(daemon, reports, browser):
    box = "vite"
    r = daemon.request("PUT", f"/v1/sandbox/{box}", {"limits": {"cpu": 2, "memory": "1G"}})
    assert r.status == 201, r.body
    try:
        r = daemon.request("POST", f"/v1/sandbox/{box}/api/write", {
            "path": "/workspace/modules.tgz", "content": base64.b64encode(modules()).decode(), "encoding": "base64"})
        assert r.status == 200, r.body
        daemon.out(box, "cd /workspace && tar xzf modules.tgz && node_modules/.bin/vite --version", timeout=300)
        write(daemon, box, "/workspace/index.html", INDEX.format(title="one"))
        write(daemon, box, "/workspace/main.js", MAIN.replace("PORT", str(reports.server_port)))
        write(daemon, box, "/workspace/value.js", "export const value = 'first'\n")
        start(daemon, box, "cd /workspace; exec node node_modules/vite/bin/vite.js --port 5173 --strictPort", 5173)  # on ::1 or 127.0.0.1
        p = expose(daemon, box, 5173)

        browser(p.url)
        first = reports.wait("first")
        assert first["host"] == p.host

        def change(name, text, *wanted):
            """Written again until it is seen: the page may speak before it hears of changes."""
            for _ in range(12):
                write(daemon, box, f"/workspace/{name}", text)
                with contextlib.suppress(AssertionError):
                    return reports.wait(*wanted)
            return reports.wait(*wanted)

        for value in ("second", "third"):
            shown = change("value.js", f"export const value = '{value}'\n", value, 15)
            assert shown["page"] == first["page"]  # replaced in place, not loaded again
        assert {r["page"] for r in reports.seen} == {first["page"]}
        change("index.html", INDEX.format(title="two"), "third", 15, first["page"])
    finally:
        daemon.destroy(box)
