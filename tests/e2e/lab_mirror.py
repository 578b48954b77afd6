# SPDX-License-Identifier: Apache-2.0
"""A mirror in the small internet of lab.py: what apt, pip, npm and git want from one, each with a thing of its own."""
import hashlib
import json
import os
import shutil
import subprocess
import sys

from test_settings import npm_package, wheel

PORT = 8080
SUITES = {"debian": ("bookworm", "bookworm-updates"), "debian-security": ("bookworm-security",)}

# Says where it listens once it does.
SERVER = r"""
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[2])
s = http.server.ThreadingHTTPServer((sys.argv[1], 8080), handler)
print("ready", flush=True)
s.serve_forever()
"""

CONTROL = """Package: hello-thing
Version: 1.0
Architecture: all
Maintainer: Nobody <nobody@example.org>
Description: says hello
"""
# what packages do when they are set up: files of another user, modes, a configuration
POSTINST = """#!/bin/sh
set -e
mkdir -p /var/lib/hello-thing
chown www-data:www-data /var/lib/hello-thing
chmod 2750 /var/lib/hello-thing
"""


def write(path, data, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data.encode() if isinstance(data, str) else data)
    os.chmod(path, mode)


def apt(root):
    """An archive with one package in the first suite, and nothing in the others."""
    tree = root + "/build"
    write(f"{tree}/DEBIAN/control", CONTROL)
    write(f"{tree}/DEBIAN/postinst", POSTINST, 0o755)
    write(f"{tree}/DEBIAN/conffiles", "/etc/hello-thing.conf\n")
    write(f"{tree}/etc/hello-thing.conf", "greeting=hello\n")
    write(f"{tree}/usr/bin/hello-thing", "#!/bin/sh\n. /etc/hello-thing.conf\necho $greeting\n", 0o755)
    pool = f"{root}/apt/debian/pool"
    os.makedirs(pool)
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", tree, f"{pool}/hello-thing_1.0_all.deb"], check=True,
                   capture_output=True)
    shutil.rmtree(tree)
    deb = open(f"{pool}/hello-thing_1.0_all.deb", "rb").read()
    entry = f"{CONTROL}Filename: pool/hello-thing_1.0_all.deb\nSize: {len(deb)}\nSHA256: {hashlib.sha256(deb).hexdigest()}\n"
    machine = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout.strip()
    for archive, suites in SUITES.items():
        for suite in suites:
            packages = (entry if suite == "bookworm" else "").encode()
            place = f"main/binary-{machine}/Packages"
            dists = f"{root}/apt/{archive}/dists/{suite}"
            write(f"{dists}/{place}", packages)
            write(f"{dists}/Release", f"Suite: {suite}\nCodename: {suite}\nArchitectures: {machine}\nComponents: main\n"
                  f"Date: Mon, 01 Jan 2024 00:00:00 UTC\nSHA256:\n {hashlib.sha256(packages).hexdigest()} {len(packages)} {place}\n")


def pip(root):
    data, name = wheel(), "silica_sample-1.0-py3-none-any.whl"
    write(f"{root}/simple/silica-sample/{name}", data)
    write(f"{root}/simple/silica-sample/index.html", f'<a href="{name}#sha256={hashlib.sha256(data).hexdigest()}">{name}</a>')


def npm(root, base):
    package = npm_package()
    dist = {"tarball": f"{base}/npm/-/silica-sample-1.0.0.tgz", "shasum": hashlib.sha1(package).hexdigest()}
    version = {"name": "silica-sample", "version": "1.0.0", "dist": dist}
    write(f"{root}/npm/-/silica-sample-1.0.0.tgz", package)
    write(f"{root}/npm/silica-sample",
          json.dumps({"name": "silica-sample", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}))


def git(root):
    """A repository that any web server can give out."""
    tree, env = root + "/work", {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    run = lambda *command: subprocess.run(["git", *command], check=True, capture_output=True, env=env)  # noqa: E731
    write(tree + "/README", "a repository\n")
    run("init", "-q", "-b", "main", tree)
    run("-C", tree, "add", ".")
    run("-C", tree, "-c", "user.name=n", "-c", "user.email=n@example.org", "commit", "-q", "-m", "first")
    run("clone", "-q", "--bare", tree, f"{root}/git/sample.git")
    run("-C", f"{root}/git/sample.git", "update-server-info")
    shutil.rmtree(tree)


class Mirror:
    def __init__(self, lab, tmp, name, address):
        self.base = f"http://{name}:{PORT}"
        apt(tmp)
        pip(tmp)
        npm(tmp, self.base)
        git(tmp)
        self.args = ["--apt-mirror", f"{self.base}/apt/", "--pip-index", f"{self.base}/simple", "--npm-registry", f"{self.base}/npm/"]
        self.proc = subprocess.Popen(["nsenter", "-t", str(lab.world), "-n", sys.executable, "-c", SERVER, address, tmp],
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.proc.stdout.readline() == b"ready\n"

    def close(self):
        self.proc.kill()
        self.proc.wait()
