# SPDX-License-Identifier: Apache-2.0
"""apt-get, pip, npm and git as people use them, from a mirror in the lab's small internet: in mode public and with a list."""
import shutil

import pytest

from lab import SITE, Lab, LabDaemon
from lab_mirror import PORT, Mirror
from lab_names import NAMES, SITES, Names

pytestmark = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="this machine cannot make Debian packages")

MIRROR = "mirror.example"


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("lab"))
    names = Names(lab, tmp_path_factory.mktemp("names"))
    names.zone({MIRROR: [f"A {SITE}"], "other.example": [f"A {SITES[0]}"]})
    mirror = Mirror(lab, str(tmp_path_factory.mktemp("mirror")), MIRROR, SITE)
    d = LabDaemon(lab, "packages", args=["--dns", NAMES, *mirror.args]).start()
    yield d
    d.cleanup()
    for made in (mirror, names, lab):
        made.close()


@pytest.fixture(params=["public", "allowlist"])
def box(net, request):
    """A sandbox that reaches the mirror; with a list, nothing but it."""
    network = {"mode": "allowlist", "allow": [f"{MIRROR}:{PORT}"]} if request.param == "allowlist" else {"mode": "public"}
    name = f"pkg-{request.param}"
    r = net.request("PUT", f"/v1/sandbox/{name}", {"network": network})
    assert r.status == 201, r.body
    yield name
    net.destroy(name)


# The mirror has no signature, which the sandbox's own root may accept.
TRUST = "sed -i 's,^Signed-By:.*,Trusted: yes,' /etc/apt/sources.list.d/*.sources"


@pytest.mark.parametrize("user", ["root", "_apt"])  # who downloads: as the image says, and as other images have it
def test_apt_get(net, box, user):
    assert net.out(box, "id -u").strip() == "0"
    who = f"-o APT::Sandbox::User={user}"
    net.out(box, TRUST)
    r = net.exec(box, f"apt-get {who} update", timeout=120)
    assert r["exitCode"] == 0 and MIRROR in r["stdout"] and "W:" not in r["stderr"], r
    r = net.exec(box, f"DEBIAN_FRONTEND=noninteractive apt-get {who} install -y hello-thing", timeout=120)
    assert r["exitCode"] == 0 and "Setting up hello-thing (1.0)" in r["stdout"] and "W:" not in r["stderr"], r
    assert net.out(box, "hello-thing").strip() == "hello"
    assert net.out(box, "stat -c '%U:%G %a' /var/lib/hello-thing").strip() == "www-data:www-data 2750"
    assert net.out(box, "dpkg -s hello-thing | grep Status").strip() == "Status: install ok installed"
    assert net.request("POST", f"/v1/sandbox/{box}/sleep").status == 200  # what is installed is on its disk
    assert net.out(box, "hello-thing").strip() == "hello"
    assert net.exec(box, "apt-get remove -y --purge hello-thing", timeout=120)["exitCode"] == 0
    assert net.exec(box, "hello-thing")["exitCode"] == 127


def test_git_pip_and_npm(net, box):
    net.out(box, f"git clone -q http://{MIRROR}:{PORT}/git/sample.git /workspace/sample", timeout=60)
    assert net.out(box, "cat /workspace/sample/README; git -C /workspace/sample log --format=%s").split("\n")[:2] == ["a repository", "first"]
    net.out(box, "python3 -m venv --system-site-packages /tmp/venv && /tmp/venv/bin/pip install -q silica-sample", timeout=120)
    assert net.out(box, "/tmp/venv/bin/python -c 'import silica_sample; print(silica_sample.answer)'").strip() == "42"
    net.out(box, "mkdir -p /tmp/app && cd /tmp/app && npm install --no-audit --no-fund silica-sample", timeout=120)
    assert net.out(box, "cd /tmp/app && node -p 'require(\"silica-sample\")'").strip() == "42"
    elsewhere = net.exec(box, "curl -s -m 30 http://other.example/ -o /dev/null")["exitCode"]
    assert (elsewhere == 6) == box.endswith("allowlist"), elsewhere  # 6: there is no such name
