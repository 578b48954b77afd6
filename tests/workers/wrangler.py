# SPDX-License-Identifier: Apache-2.0
"""`wrangler dev` of one project, as a user starts it, with Silica in Docker's place."""
import glob
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile

from silica import BIN, TOKEN, free_port, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
SETTINGS = {"SILICA_TOKEN": TOKEN, "CI": "1", "ASAN_OPTIONS": "detect_leaks=0"}


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)


class Wrangler:
    """A copy of a project in a directory of its own: wrangler writes beside the sources."""

    def __init__(self, daemon, project, variables=None, args=()):
        self.daemon, self.args = daemon, [*args, *(a for k, v in (variables or {}).items() for a in ("--var", f"{k}:{v}"))]
        self.dir = tempfile.mkdtemp(prefix="silica-worker-")
        self.project = shutil.copytree(project, self.dir + "/project", ignore=shutil.ignore_patterns("node_modules", ".wrangler", "*.py", "__pycache__"))
        os.symlink(HERE + "/node_modules", self.project + "/node_modules")
        self.port, self.proc, self.log_path = free_port(), None, self.dir + "/log"

    def start(self):
        """The first answer of the Worker, of whatever status, ends the wait."""
        with open(self.log_path, "ab") as log:
            self.proc = subprocess.Popen(
                [BIN, "wrangler", "--url", f"http://127.0.0.1:{self.daemon.port}", "--host", f"unix://{self.daemon.run_dir}/docker.sock",
                 "dev", "--ip", "127.0.0.1", "--port", str(self.port), *self.args],
                cwd=self.project, env={**os.environ, **SETTINGS, **dict.fromkeys(("HOME", "TMPDIR", "XDG_RUNTIME_DIR"), self.dir)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        wait_for(self.answers, 240, "an answer of the Worker")
        return self

    def answers(self):
        if self.proc.poll() is not None:
            raise AssertionError(f"wrangler ended with {self.proc.returncode}:\n{self.log()}\nthe daemon:\n{self.daemon.log()[-2000:]}")
        try:
            return self.request("GET", "/ready", timeout=30)
        except (OSError, http.client.HTTPException):
            return None

    def request(self, method, path, body=None, headers=None, host=None, timeout=240):
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        h = {"Host": host or f"localhost:{self.port}", **(headers or {})}
        if isinstance(body, (dict, list)):
            body, h["Content-Type"] = json.dumps(body), "application/json"
        try:
            conn.request(method, path, body, h)
            r = conn.getresponse()
            return Answer(r.status, {k.lower(): v for k, v in r.getheaders()}, r.read())
        finally:
            conn.close()

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()[-6000:]

    def processes(self):
        """Wrangler and all below it, by the session they share."""
        found = []
        for stat in glob.glob("/proc/[0-9]*/stat"):
            try:
                fields = open(stat).read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[3]) == self.proc.pid and fields[0] != "Z":
                found.append(int(stat.split("/")[2]))
        return found

    def kill(self):
        """kill -9 of workerd and everything around it: nobody gets to clean up."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.proc.wait()
        wait_for(lambda: not self.processes(), what="the end of workerd")

    def stop(self):
        if self.proc and self.proc.poll() is None:
            self.proc.terminate()
            try:
                self.proc.wait(120)
            except subprocess.TimeoutExpired:
                pass
        if self.proc:
            self.kill()

    def cleanup(self):
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)
