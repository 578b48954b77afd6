# SPDX-License-Identifier: Apache-2.0
"""A directory with a Dockerfile, and the commands that build and use it."""
import os
import subprocess

import silica

DEADLINE = 300


class Project:
    def __init__(self, path, daemon):
        self.path, self.daemon = path, daemon

    def write(self, name, text, mode=0o644):
        p = self.path / name
        p.parent.mkdir(parents=True, exist_ok=True)
        p.write_text(text)
        p.chmod(mode)

    def command(self, *words):
        env = {"PATH": os.environ["PATH"], "SILICA_URL": f"http://127.0.0.1:{self.daemon.port}",
               "SILICA_TOKEN": silica.TOKEN, "SILICA_RUN": self.daemon.run_dir,
               "ASAN_OPTIONS": "detect_leaks=1"}
        return [silica.BIN, *words], {"env": env, "cwd": self.path}

    def run(self, *words, input=None):
        argv, options = self.command(*words)
        stdin = {"input": input} if input is not None else {"stdin": subprocess.DEVNULL}
        return subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE, **stdin, **options)

    def build(self, dockerfile, *words, code=0):
        self.write("Dockerfile", dockerfile)
        r = self.run("image", "build", *words, ".")
        assert r.returncode == code, (r.returncode, r.stdout, r.stderr)
        return r

    def image(self, name):
        r = self.daemon.request("GET", f"/v1/images/{name}")
        assert r.status == 200, r.body
        return r.json

    def start(self, box, image):
        r = self.daemon.request("PUT", f"/v1/sandbox/{box}", {"image": image})
        assert r.status in (200, 201), r.body


def build_boxes(daemon):
    return [s["id"] for s in daemon.request("GET", "/v1/sandbox").json["sandboxes"] if s["id"].startswith("build-")]
