# SPDX-License-Identifier: Apache-2.0
"""silica docker: every call wrangler makes, and what else people try, against a scripted engine."""
import json
import os
import urllib.parse

import pytest

IMAGE = {"Id": "sha256:" + "ab" * 32, "RepoTags": ["cloudflare-dev/sandbox:1a2b3c4d", "cloudflare-dev/sandbox:00000000"],
         "Size": 12345678, "Config": {"ExposedPorts": {"3000/tcp": {}, "8080/tcp": {}}, "Env": ["A=1"]}}
TAG = "cloudflare-dev/sandbox:1a2b3c4d"


@pytest.fixture
def docker(silica, unix_fake, tmp_path):
    """Runs the tool the way wrangler does: one path, called docker."""
    path = tmp_path / "docker"
    path.symlink_to(silica.binary)
    silica.binary = str(path)
    host = "unix://" + unix_fake.url.removeprefix("unix:")

    def run(*words, env=None, **kwargs):
        return silica.run(*words, env={"WRANGLER_DOCKER_HOST": host, **(env or {})}, **kwargs)

    run.host, run.engine, run.silica = host, unix_fake, silica
    unix_fake.answer("GET", "/info", {"Name": "silica", "ServerVersion": "1", "SecurityOptions": [], "Containers": 2, "Images": 3,
                                      "OperatingSystem": "Linux"})
    unix_fake.answer("GET", f"/images/{TAG}/json", IMAGE)
    return run


def test_info(docker):
    r = docker("info")
    assert r.returncode == 0 and b"Server Version: 1" in r.stdout


def test_info_with_the_engine_named_and_a_template(docker):
    r = docker("--host", docker.host, "info", "--format", "{{json .SecurityOptions}}", env={"WRANGLER_DOCKER_HOST": "unix:///nowhere"})
    assert (r.returncode, r.stdout) == (0, b"[]\n"), r.stderr
    r = docker("info", "--format", "{{json .DriverStatus}}")
    assert (r.returncode, r.stdout) == (0, b"null\n")


def test_info_without_an_engine(docker):
    r = docker("info", env={"WRANGLER_DOCKER_HOST": "unix:///nowhere/docker.sock"})
    assert r.returncode == 1 and b"silica serve" in r.stderr
    r = docker("info", env={"WRANGLER_DOCKER_HOST": "tcp://127.0.0.1:1"})
    assert r.returncode == 1 and b"unix://" in r.stderr


def test_where_the_engine_is_looked_for(docker, tmp_path):
    good = docker.host
    assert docker("info", env={"WRANGLER_DOCKER_HOST": "", "DOCKER_HOST": good}).returncode == 0
    assert docker("info", env={"WRANGLER_DOCKER_HOST": good, "DOCKER_HOST": "unix:///nowhere"}).returncode == 0
    run = tmp_path / "run"
    run.mkdir()
    (run / "docker.sock").symlink_to(good.removeprefix("unix://"))
    assert docker("info", env={"WRANGLER_DOCKER_HOST": "", "SILICA_RUN": str(run)}).returncode == 0


def test_inspect_templates_of_wrangler(docker):
    r = docker("image", "inspect", TAG, "--format", "{{ range .RepoTags }}{{ . }}\n{{ end }}")
    assert r.returncode == 0 and r.stdout.decode().split() == IMAGE["RepoTags"]
    r = docker("image", "inspect", TAG, "--format", "{{ len .Config.ExposedPorts }}")
    assert (r.returncode, r.stdout) == (0, b"2\n")


def test_inspect_whole_and_wrong(docker):
    assert json.loads(docker("image", "inspect", TAG).stdout) == [IMAGE]
    assert json.loads(docker("inspect", "-f", "{{json .Config}}", TAG).stdout) == IMAGE["Config"]
    docker.engine.answer("GET", "/images/none/json", {"message": "no such image: none"}, 404)
    r = docker("image", "inspect", "none")
    assert r.returncode == 1 and b"no such image: none" in r.stderr and r.stdout == b""
    r = docker("image", "inspect", TAG, "--format", "{{ frobnicate . }}")
    assert r.returncode == 1 and b"frobnicate" in r.stderr


def test_ps_by_ancestor(docker):
    docker.engine.answer("GET", "/containers/json",
                         [{"Id": "c1" * 32, "Names": ["/workerd-a"], "Image": TAG, "State": "running", "Status": "Up"},
                          {"Id": "c2" * 32, "Names": ["/workerd-b"], "Image": TAG, "State": "exited", "Status": "Exited (0)"}])
    r = docker("ps", "-a", "--filter", f"ancestor={TAG}", "--format", "{{.ID}}")
    assert (r.returncode, r.stdout.decode().split()) == (0, ["c1" * 6, "c2" * 6]), r.stderr
    query = urllib.parse.parse_qs(docker.engine.requests[-1].path.partition("?")[2])
    assert query["all"] == ["1"] and json.loads(query["filters"][0]) == {"ancestor": [TAG]}
    r = docker("ps", "-aq", "--no-trunc", "--filter", f"ancestor={TAG}")
    assert r.stdout.decode().split() == ["c1" * 32, "c2" * 32]
    r = docker("ps", "-a", "--filter", f"ancestor={TAG}")
    assert b"workerd-a" in r.stdout and b"Exited (0)" in r.stdout
    assert docker("ps", "--filter", "ancestor").returncode == 1


def test_rm(docker):
    docker.engine.answer("DELETE", "/containers/c1", {})
    docker.engine.answer("DELETE", "/containers/c2", {"message": "No such container: c2"}, 404)
    r = docker("rm", "--force", "c1")
    assert (r.returncode, r.stdout) == (0, b"c1\n"), r.stderr
    assert docker.engine.requests[-1].path == "/containers/c1?force=true"
    assert docker("rm", "-f", "c1").returncode == 0
    assert docker.engine.requests[-1].path == "/containers/c1?force=true"
    r = docker("rm", "--force", "c2")
    assert r.returncode == 1 and b"No such container: c2" in r.stderr


def test_tag_and_rmi(docker):
    done = []
    docker.engine.on("POST", f"/images/{TAG}/tag")(lambda h, r: (done.append(r.path.partition("?")[2]), h.json({}, 201)))
    docker.engine.on("DELETE", "/images/cloudflare-dev/other:7")(lambda h, r: (done.append("rmi"), h.json([], 200)))
    assert docker("tag", TAG, "cloudflare-dev/other:7").returncode == 0
    r = docker("rmi", "cloudflare-dev/other:7")
    assert r.returncode == 0 and b"Untagged: cloudflare-dev/other:7" in r.stdout
    assert done == ["repo=cloudflare-dev/other&tag=7", "rmi"]


def test_pull(docker):
    assert docker("pull", TAG, "--platform", "linux/amd64").returncode == 0
    assert docker("pull", "cloudflare/proxy-everything:3cb1195@sha256:0ef6716c").returncode == 0
    assert docker("pull", "mine:1", env={"MINIFLARE_CONTAINER_EGRESS_IMAGE": "mine:1"}).returncode == 0
    docker.engine.answer("GET", "/images/alpine:3/json", {"message": "no such image"}, 404)
    r = docker("pull", "alpine:3")
    assert r.returncode == 1 and b"silica image import" in r.stderr


def test_login_reads_the_password_and_sends_nothing(docker):
    r = docker("login", "--password-stdin", "--username", "u", "registry.example", input=b"secret\n")
    assert r.returncode == 0 and b"Login Succeeded" in r.stdout
    assert b"secret" not in r.stdout + r.stderr
    assert docker.engine.requests == []


def test_context_ls(docker):
    r = docker("context", "ls", "--format", "json")
    assert json.loads(r.stdout) == {"Current": True, "Description": "Silica", "DockerEndpoint": docker.host, "Error": "", "Name": "silica"}


def test_images(docker):
    docker.engine.answer("GET", "/images/json", [IMAGE])
    r = docker("images")
    assert TAG.encode() in r.stdout and b"abababababab" in r.stdout and b"11 MiB" in r.stdout
    assert docker("image", "ls", "-q").stdout == b"abababababab\n"


def test_unknown_commands_and_options(docker):
    r = docker("imagse")
    assert r.returncode == 1 and b"did you mean 'images'" in r.stderr
    assert docker("swarm", "init").returncode == 1
    assert docker("image", "frob").returncode == 1
    assert docker("rm").returncode == 1
    assert docker("ps", "--nonsense").returncode == 1
    assert docker().returncode == 125


def test_under_the_name_silica(silica, unix_fake):
    unix_fake.answer("GET", "/version", {"Version": "1.0", "ApiVersion": "1.47"})
    r = silica.run("docker", "--host", "unix://" + unix_fake.url.removeprefix("unix:"), "version")
    assert r.returncode == 0 and b"API version: 1.47" in r.stdout
    assert b"docker" in silica.run("help").stdout
    assert b"WRANGLER_DOCKER_BIN" in silica.run("help", "docker").stdout


# ---------------------------------------------------------------------- build

class Images:
    """The part of the server that a build without steps needs."""

    def __init__(self, fake):
        self.images = {"base": {"id": "base", "names": [], "createdAt": "2026-01-01T00:00:00.000Z",
                                "config": {"env": ["PATH=/bin"], "workdir": "/workspace", "user": "root"}}}
        self.saved, self.tagged = [], {}
        fake.on("POST", "/v1/images/save")(self.save)
        fake.on("POST", "/v1/images/tag")(self.tag)
        fake.on("GET", "/v1/images")(lambda h, r: h.json({"images": list(self.images.values())}))
        scripts = fake.scripts

        class Any(dict):  # names of results are digests that the test does not know
            def get(inner, key, default=None):
                if key[0] == "GET" and key[1].startswith("/v1/images/"):
                    return lambda h, r: self.get(h, key[1].removeprefix("/v1/images/"))
                return dict.get(inner, key, default)

        fake.scripts = Any(scripts)

    def get(self, h, name):
        image = self.images.get(name)
        h.json(image, 200) if image else h.json({"code": "IMAGE_NOT_FOUND", "message": "there is no such image"}, 404)

    def save(self, h, r):
        self.saved.append(r.json)
        image = {"id": "f" * 63 + str(len(self.saved)), "names": [r.json["name"]], "config": r.json["config"]}
        self.images[r.json["name"]] = self.images[image["id"]] = image
        h.json(image, 201)

    def tag(self, h, r):
        self.tagged[r.json["name"]] = r.json["image"]
        h.json(self.images[r.json["image"]])


@pytest.fixture
def images(fake):
    return Images(fake)


def wrangler_build(docker, directory, text, *extra):
    return docker("build", "--load", "-t", TAG, "--platform", "linux/amd64", "--provenance=false", *extra, "-f", "-", str(directory),
                  input=text.encode())


def test_the_build_of_wrangler(docker, images, tmp_path):
    r = wrangler_build(docker, tmp_path, "FROM docker.io/cloudflare/sandbox:0.12.10\nEXPOSE 8080\n", "--build-arg", "A=B")
    assert r.returncode == 0, r.stderr
    assert images.saved == [{"image": "base", "name": images.saved[0]["name"], "config": {
        "env": ["PATH=/bin"], "entrypoint": ["/container-server/sandbox"], "cmd": None, "exposedPorts": ["3000/tcp", "8080/tcp"],
        "workdir": "/workspace", "user": None, "labels": {}}}]
    assert list(images.tagged) == [TAG]
    assert r.stdout.decode().strip() == "f" * 63 + "1"
    assert b"no ARG takes the build argument A" in r.stderr
    again = wrangler_build(docker, tmp_path, "FROM docker.io/cloudflare/sandbox:0.12.10\nEXPOSE 8080\n", "--network", "default")
    assert again.returncode == 0 and len(images.saved) == 1  # a new tag for a known image


def test_a_busy_server_is_waited_for(docker, images, fake, tmp_path):
    busy = [{"code": "TOO_MANY_IMAGE_OPERATIONS", "message": "four run already"}] * 3
    fake.on("POST", "/v1/images/save")(lambda h, r: h.json(busy.pop(), 429) if busy else images.save(h, r))
    r = wrangler_build(docker, tmp_path, "FROM base\nENV A=1\n")
    assert r.returncode == 0 and not busy and len(images.saved) == 1, r.stderr


def test_a_build_that_cannot_be(docker, images, tmp_path):
    r = wrangler_build(docker, tmp_path, "FROM base\nFRMO x\n")
    assert r.returncode != 0 and b"line 2" in r.stderr
    r = wrangler_build(docker, tmp_path / "nowhere", "FROM base\n")
    assert r.returncode != 0 and b"build context" in r.stderr
    r = docker("build", "-t", "x", str(tmp_path))
    assert r.returncode != 0 and b"Dockerfile" in r.stderr
    assert docker("build", "--push", ".").returncode == 1
    assert docker("build").returncode == 1
    assert images.saved == []


def test_pull_and_tag_of_a_known_name_make_an_image(docker, images):
    docker.engine.answer("GET", "/images/cloudflare/sandbox:1/json", {"message": "no such image"}, 404)
    assert docker("pull", "cloudflare/sandbox:1").returncode == 0
    assert docker("tag", "cloudflare/sandbox:1", TAG).returncode == 0
    assert list(images.tagged) == ["cloudflare/sandbox:1", TAG] and len(images.saved) == 1


def test_a_server_that_breaks_off(docker, fake, tmp_path, closed_port):
    fake.answer("GET", "/v1/images/base", {}, 404)
    fake.on("GET", "/v1/images/thing")(lambda h, r: h.connection.shutdown(2))
    r = wrangler_build(docker, tmp_path, "FROM thing\n")
    assert r.returncode == 125 and b"line 1" in r.stderr
    fake.answer("GET", "/v1/images/base", {"code": "UNAUTHORIZED", "message": "a token is needed"}, 401)
    r = wrangler_build(docker, tmp_path, "FROM base\n")
    assert r.returncode == 125 and b"SILICA_TOKEN" in r.stderr and b"line" not in r.stderr
    docker.silica.url = f"http://127.0.0.1:{closed_port}"
    r = wrangler_build(docker, tmp_path, "FROM base\n")
    assert r.returncode == 125 and b"silica serve" in r.stderr and b"line" not in r.stderr
    docker.silica.url = fake.url
    fake.on("GET", "/v1/images/base")(lambda h, r: h.json([1, 2], 200))
    r = wrangler_build(docker, tmp_path, "FROM base\n")
    assert r.returncode == 125
