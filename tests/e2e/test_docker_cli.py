# SPDX-License-Identifier: Apache-2.0
"""silica docker against the real engine: the calls of one session of wrangler, in its order."""
import json

import pytest

from engine import Engine
from project import Project

TAG = "cloudflare-dev/sandbox:1a2b3c4d"


@pytest.fixture
def project(tmp_path, daemon):
    return Project(tmp_path, daemon)


@pytest.fixture
def engine(daemon):
    e = Engine(daemon)
    yield e
    for c in e.call("GET", "/containers/json?all=1").json:
        e.remove(c["Id"], expect=(204, 404))


def docker(project, *words, input=None, code=0):
    r = project.run("docker", *words, input=input)
    assert r.returncode == code, (words, r.returncode, r.stdout, r.stderr)
    return r.stdout


def wrangler_build(project, text, tag=TAG):
    return docker(project, "build", "--load", "-t", tag, "--platform", "linux/amd64", "--provenance=false", "--build-arg", "A=1",
                  "--network", "host", "-f", "-", ".", input=text)


def test_a_session_of_wrangler(project, engine):
    docker(project, "info")
    project.write("server.py", "print('mine')\n")
    wrangler_build(project, "FROM docker.io/cloudflare/sandbox:0.12.10\nARG A\nCOPY server.py /app/\nRUN echo $A > /app/a\nEXPOSE 3000\n")
    tags = docker(project, "image", "inspect", TAG, "--format", "{{ range .RepoTags }}{{ . }}\n{{ end }}").split()
    assert TAG in tags
    assert int(docker(project, "image", "inspect", TAG, "--format", "{{ len .Config.ExposedPorts }}")) == 1
    docker(project, "pull", "cloudflare/proxy-everything:3cb1195@sha256:0ef6716c", "--platform", "linux/amd64")
    host = f"unix://{project.daemon.run_dir}/docker.sock"
    assert isinstance(json.loads(docker(project, "--host", host, "info", "--format", "{{json .SecurityOptions}}")), list)

    engine.create("app-one", image=TAG)
    engine.start("app-one")
    ids = docker(project, "ps", "-a", "--filter", f"ancestor={TAG}", "--format", "{{.ID}}").split()
    assert len(ids) == 1
    assert docker(project, "ps", "-a", "--filter", "ancestor=other:1", "--format", "{{.ID}}") == ""
    assert "app-one" in docker(project, "ps")
    docker(project, "rm", "--force", *ids)
    assert engine.inspect("app-one") is None


def test_every_start_has_a_new_tag_for_the_same_image(project):
    text = "FROM cloudflare/sandbox:1\nRUN echo once > /once\n"
    first = wrangler_build(project, text, "cloudflare-dev/again:00000001")
    assert wrangler_build(project, text, "cloudflare-dev/again:00000002") == first
    docker(project, "rmi", "cloudflare-dev/again:00000001")
    docker(project, "image", "inspect", "cloudflare-dev/again:00000001", code=1)
    assert json.loads(docker(project, "image", "inspect", "cloudflare-dev/again:00000002"))[0]["Id"] == "sha256:" + first.strip()


def test_images_of_earlier_starts_are_forgotten(project):
    for i in range(11):
        wrangler_build(project, f"FROM base\nENV N={i}\n", f"cloudflare-dev/many:{i:08x}")
        wrangler_build(project, f"FROM base\nENV N={i}\n", f"cloudflare-dev/many:{i + 100:08x}")
    docker(project, "tag", "cloudflare-dev/many:00000000", "cloudflare-dev/other:1", code=1)
    names = [n for image in project.daemon.request("GET", "/v1/images").json["images"] for n in image["names"]]
    left = {int(n.partition(":")[2], 16) for n in names if n.startswith("cloudflare-dev/many:")}
    assert left == {*range(2, 11), *range(102, 111)}  # this one and the eight newest others, with all their tags
    wrangler_build(project, "FROM base\nENV N=2\n", "cloudflare-dev/many:ffffffff")  # the oldest again
    docker(project, "image", "inspect", "cloudflare-dev/many:ffffffff")


def test_an_image_by_a_well_known_name(project):
    docker(project, "pull", "cloudflare/sandbox:0.9", "--platform", "linux/amd64")
    docker(project, "tag", "cloudflare/sandbox:0.9", "cloudflare-dev/named:1")
    config = json.loads(docker(project, "inspect", "--format", "{{json .Config}}", "cloudflare-dev/named:1"))
    assert config["Entrypoint"] == ["/container-server/sandbox"] and "3000/tcp" in config["ExposedPorts"]
    # what was pulled still has the server that Dockerfiles copy
    wrangler_build(project, "FROM base\nCOPY --from=cloudflare/sandbox:0.9 /container-server/sandbox /sandbox\nENTRYPOINT [\"/sandbox\"]\n", "copied:1")
    docker(project, "pull", "nobody/knows:1", code=1)


def test_the_entrypoint_of_a_built_image_is_the_program(project, engine):
    wrangler_build(project, "FROM debian:12\nENV WHO=me\nRUN echo temporary > /tmp/t && mkdir /run/service\n"
                            "CMD [\"sh\", \"-c\", \"test $WHO = me && test -f /tmp/t && test -d /run/service && exit 7\"]\n", "program:1")
    engine.create("program", image="program:1")
    engine.start("program")
    assert engine.wait("program").result().json["StatusCode"] == 7


def test_tmp_of_plain_and_built_images(project, box):
    """base keeps /tmp in memory; an image of the store has what its steps put there, and the sandbox's disk behind it."""
    daemon = project.daemon
    assert daemon.out(box, "stat -f -c %T /tmp /run") == "tmpfs\ntmpfs"
    project.build("FROM base\nRUN echo x > /tmp/x && rm -rf /run/* && echo y > /run/y\n", "-t", "tmp:1")
    other = box + "2"
    project.start(other, "tmp:1")
    try:
        assert daemon.out(other, "cat /tmp/x /run/y; stat -c %a /tmp") == "x\ny\n1777"
        assert "tmpfs" not in daemon.out(other, "stat -f -c %T /tmp /run")
    finally:
        daemon.destroy(other)
