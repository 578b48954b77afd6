# SPDX-License-Identifier: Apache-2.0
"""silica image build: real Dockerfiles, real sandboxes, real images."""
import os
import signal
import subprocess
import tarfile

import pytest

import silica
from project import DEADLINE, Project, build_boxes


@pytest.fixture
def project(tmp_path, daemon):
    return Project(tmp_path, daemon)


def test_the_smallest_documented_dockerfile(project, box):
    r = project.build("FROM docker.io/cloudflare/sandbox:0.12.10\n\nEXPOSE 8080\nEXPOSE 3001\n", "-t", "small:1")
    assert "NOTE" in r.stderr and "taken instead: base" in r.stderr
    image = project.image("small:1")
    assert image["id"] == r.stdout.strip()
    assert set(image["config"]["exposedPorts"]) == {"3000/tcp", "8080/tcp", "3001/tcp"}
    assert image["config"]["entrypoint"] == ["/container-server/sandbox"]
    project.start(box, "small:1")
    assert project.daemon.out(box, "python3 -c 'print(6*7)'") == "42"


def test_run_copy_and_settings_are_in_the_image(project, box):
    project.write("app/main.py", "print('main')\n")
    project.write("app/lib/util.py", "X = 1\n")
    project.write("start.sh", "#!/bin/sh\necho started\n", 0o755)
    project.build("""
        FROM python:3.12-slim
        ENV APP_HOME=/srv/app GREETING="hello there"
        WORKDIR $APP_HOME
        COPY app .
        COPY start.sh /usr/local/bin/start
        RUN echo "$GREETING from $PWD" > made.txt && mkdir -p /var/lib/thing
        LABEL team=blue
        CMD ["start"]
        """, "-t", "app:run", "--label", "extra=1")
    config = project.image("app:run")["config"]
    assert config["workdir"] == "/srv/app" and config["cmd"] == ["start"]
    assert "GREETING=hello there" in config["env"]
    assert config["labels"] == {"team": "blue", "extra": "1"}
    project.start(box, "app:run")
    assert project.daemon.out(box, "cat /srv/app/made.txt") == "hello there from /srv/app"
    assert project.daemon.out(box, "start && python3 /srv/app/main.py && ls /srv/app/lib") == "started\nmain\nutil.py"
    assert project.daemon.out(box, "stat -c %U:%G:%a /srv/app/main.py /usr/local/bin/start") == "root:root:644\nroot:root:755"
    assert project.daemon.out(box, "ls -d /.silica-build 2>/dev/null || echo none") == "none"


def test_several_stages(project, box):
    project.write("src.txt", "source\n")
    r = project.build("""
        FROM node:22 AS build
        COPY src.txt /work/
        RUN mkdir /work/dist && cp /work/src.txt /work/dist/out.txt && ln -s out.txt /work/dist/link && chown 1000:1000 /work/dist/out.txt
        FROM debian:12 AS never
        RUN exit 9
        FROM build AS more
        RUN echo more > /work/dist/more.txt
        FROM cloudflare/sandbox:1.0
        COPY --from=more /work/dist /app
        COPY --from=0 /work/dist/out.txt /renamed.txt
        COPY --from=build --chown=5:6 --chmod=600 /work/dist/*.txt /owned/
        """, "-t", "stages")
    assert "never" not in r.stderr  # nobody needs it
    project.start(box, "stages:latest")
    out = project.daemon.out
    assert out(box, "ls /app && cat /app/link") == "link\nmore.txt\nout.txt\nsource"
    assert out(box, "cat /renamed.txt") == "source"
    assert out(box, "stat -c %u:%g:%a /app/out.txt /owned/out.txt") == "1000:1000:644\n5:6:600"
    assert out(box, "ls /work 2>/dev/null | wc -l") == "0"  # only what was copied


def test_target_builds_that_stage(project):
    text = "FROM base AS one\nENV STAGE=one\nFROM base AS two\nRUN exit 3\n"
    project.build(text, "-t", "target:1", "--target", "one")
    assert "STAGE=one" in project.image("target:1")["config"]["env"]
    r = project.build(text, "--target", "three", code=125)
    assert "no stage is called 'three'" in r.stderr


def test_an_unchanged_build_runs_nothing(project):
    project.write("data.txt", "one\n")
    text = "FROM base\nRUN head -c 8 /dev/urandom | od -An -tx1 > /random\nCOPY data.txt /data.txt\nRUN wc -c /data.txt > /count\nCMD [\"a\"]\n"
    first = project.build(text, "-t", "cache:1")
    assert "CACHED" not in first.stderr
    again = project.build("# a comment\n" + text, "-t", "cache:2")
    assert again.stdout == first.stdout
    assert again.stderr.count("CACHED") == 3

    settings = project.build(text.replace('["a"]', '["b"]'), "-t", "cache:3")  # no step looks at CMD
    assert settings.stderr.count("CACHED") == 3 and settings.stdout != first.stdout

    project.write("data.txt", "other\n")
    changed = project.build(text, "-t", "cache:4")
    assert changed.stderr.count("CACHED") == 1 and changed.stdout != first.stdout

    fresh = project.build(text, "-t", "cache:5", "--no-cache")
    assert "CACHED" not in fresh.stderr and fresh.stdout != changed.stdout


def test_a_step_goes_on_from_the_cached_one_before_it(project, box):
    project.build("FROM base\nRUN echo kept > /a && echo temporary > /tmp/t && mkdir -p /run/x\nRUN true\n")
    r = project.build("FROM base\nRUN echo kept > /a && echo temporary > /tmp/t && mkdir -p /run/x\nRUN cat /a /tmp/t && ls -d /run/x\n", "-t", "goes-on")
    assert r.stderr.count("CACHED") == 1
    assert "    kept\n    temporary\n    /run/x\n" in r.stderr


def test_a_failing_step_tells_its_output_and_exit_code(project):
    r = project.build("FROM base\nRUN echo fine\n\nRUN echo this is why >&2; exit 42\nRUN echo never\n", "-t", "fails:1", code=1)
    assert "    this is why\n" in r.stderr
    assert "line 4" in r.stderr and "exit code 42" in r.stderr
    assert "never\n" not in r.stderr.replace("RUN echo never", "")
    assert r.stdout == ""
    assert project.daemon.request("GET", "/v1/images/fails:1").status == 404
    assert build_boxes(project.daemon) == []


def test_output_is_shown_as_lines(project):
    r = project.build(r"""FROM base
RUN printf 'first\rsecond\rthird\nx\r\n\033[31mred\033[0m \033]0;title\007'; printf '\n\nno newline'; exit 3
""", code=1)
    assert "\n    third\n    x\n    red " in r.stderr and "\n    no newline\n" in r.stderr
    assert "\033" not in r.stderr and "\007" not in r.stderr and "first\n" not in r.stderr


@pytest.mark.parametrize("text, says", [
    ("FROM base\nCOPPY a b\n", "line 2: there is no instruction 'COPPY'"),
    ("FROM nobody/nothing:9\n", "there is no image 'nobody/nothing:9'"),
    ("FROM base\nCOPY missing.txt /\n", "line 2: there is no 'missing.txt' in the build context"),
    ("FROM base\nCOPY --from=base /no/such /x\n", "there is no '/no/such'"),
    ("FROM base\nUSER nobody-here\nRUN true\n", "failed with exit code 125"),
    ("RUN x\n", "before the first FROM"),
])
def test_mistakes(project, text, says):
    r = project.build(text, code=1 if "exit code" in says else 125)
    assert says in r.stderr, r.stderr
    assert build_boxes(project.daemon) == []


def test_dockerignore(project, box):
    project.write(".dockerignore", "# comment\n*.log\n!keep.log\nnode_modules\n**/secret\n")
    for name in ("a.txt", "b.log", "keep.log", "node_modules/x/y.js", "deep/er/secret", "deep/er/open"):
        project.write(name, name)
    project.build("FROM base\nCOPY . /ctx/\n", "-t", "ignore:1")
    project.start(box, "ignore:1")
    found = project.daemon.out(box, "cd /ctx && find . -type f | sort")
    assert found.split() == ["./.dockerignore", "./Dockerfile", "./a.txt", "./deep/er/open", "./keep.log"]
    r = project.build("FROM base\nCOPY b.log /\n", code=125)
    assert "excluded by .dockerignore" in r.stderr


def test_args_and_environment_have_their_scopes(project):
    r = project.build("""ARG VERSION=1
FROM base AS first
RUN echo "first [$VERSION]"
ARG VERSION
ARG OTHER=other-$VERSION
ENV SEEN=$VERSION
RUN echo "second [$VERSION] [$OTHER] [$SEEN]"
FROM base
ARG OTHER
RUN echo "third [$VERSION] [$OTHER] [$SEEN]"
COPY --from=first /etc/hostname /x
""", "--build-arg", "VERSION=7", "--build-arg", "UNUSED=x")
    assert "    first []\n" in r.stderr
    assert "    second [7] [other-7] [7]\n" in r.stderr
    assert "    third [] [] []\n" in r.stderr
    assert "no ARG takes the build argument UNUSED" in r.stderr


def test_users_shells_and_texts(project, box):
    r = project.build("""FROM base
RUN useradd -m -u 4321 -G users worker
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN false | true || echo pipefail
USER worker
WORKDIR /home/worker/app
RUN id -un && id -Gn && echo $HOME && touch mine
COPY --chown=worker <<EOF <<'RAW' /home/worker/texts/
value $HOME_OF
EOF
value $HOME_OF
RAW
RUN <<EOF
#!/usr/bin/env python3
import os
print("python", os.getuid())
EOF
""", "-t", "users:1")
    assert "    pipefail\n" in r.stderr and "    worker\n    worker users\n    /home/worker\n" in r.stderr
    assert "    python 4321\n" in r.stderr
    assert project.image("users:1")["config"]["user"] == "worker"
    project.start(box, "users:1")
    assert project.daemon.out(box, "stat -c %U /home/worker/app/mine /home/worker/texts/EOF") == "worker\nworker"
    assert project.daemon.out(box, "cat /home/worker/texts/EOF /home/worker/texts/RAW") == "value \nvalue $HOME_OF"


def test_an_image_with_a_user_as_base(project, box):
    project.build("FROM base\nRUN useradd -m -u 77 app\nWORKDIR /home/app\nUSER app\nENV KEEP=1\nCMD [\"x\"]\n", "-t", "parent:1")
    project.write("f", "f")
    r = project.build("FROM parent:1\nCOPY f f\nRUN id -un && pwd && touch mine && echo keep=$KEEP\nUSER root\nRUN id -un > /who\n", "-t", "child:1")
    assert "    app\n    /home/app\n    keep=1\n" in r.stderr
    config = project.image("child:1")["config"]
    assert config["workdir"] == "/home/app" and config["cmd"] == ["x"] and "KEEP=1" in config["env"]
    project.start(box, "child:1")
    assert project.daemon.out(box, "cat /who; stat -c %U /home/app/f /home/app/mine") == "root\nroot\napp"


def test_mounts_are_there_only_while_the_command_runs(project, box):
    project.write("package.json", '{"name": "thing"}\n')
    project.write("src/a.txt", "a")
    r = project.build("""FROM base AS tools
RUN mkdir /tools && echo tool > /tools/t
FROM base
WORKDIR /app
RUN mkdir -p /cache && echo kept > /cache/kept && echo own > /app/own.txt
RUN --mount=type=cache,target=/cache --mount=type=bind,source=package.json,target=package.json --mount=from=tools,source=/tools,target=/mnt/tools \\
    cat package.json && cat /mnt/tools/t && ls -A /cache && echo x > /cache/x && cp package.json copy.json
RUN --mount=type=bind,target=. ls && echo result > /result
""", "-t", "mounts:1")
    assert '    {"name": "thing"}\n    tool\n' in r.stderr and "    kept\n" not in r.stderr
    assert "    Dockerfile\n    package.json\n    src\n" in r.stderr
    project.start(box, "mounts:1")
    assert project.daemon.out(box, "ls -A /app /cache /mnt; cat /result; ls -d /.silica* 2>/dev/null | wc -l") == \
        "/app:\ncopy.json\nown.txt\n\n/cache:\nkept\n\n/mnt:\nresult\n0"


def test_add_unpacks_archives(project, box):
    project.write("tree/a", "a")
    with tarfile.open(project.path / "tree.tar.gz", "w:gz") as t:
        t.add(project.path / "tree", "tree")
    project.build("FROM base\nADD tree.tar.gz tree/a /unpacked/\nCOPY tree.tar.gz /copied/\n", "-t", "add:1")
    project.start(box, "add:1")
    assert project.daemon.out(box, "cd /unpacked && find . -type f | sort; ls /copied") == "./a\n./tree/a\ntree.tar.gz"


def test_the_documented_custom_image(project, box):
    """An image of one's own that gets the sandbox server by COPY --from."""
    r = project.build("""FROM python:3.12-slim
COPY --from=docker.io/cloudflare/sandbox:0.12.10 /container-server/sandbox /sandbox
RUN echo custom > /etc/custom
EXPOSE 3000
ENTRYPOINT ["/sandbox"]
CMD ["sleep", "infinity"]
""", "-t", "custom:1")
    assert "process 1" in r.stderr
    config = project.image("custom:1")["config"]
    assert config["entrypoint"] == ["/container-server/sandbox"] and config["cmd"] == ["sleep", "infinity"]
    project.start(box, "custom:1")
    assert project.daemon.out(box, "cat /etc/custom; /sandbox echo through") == "custom\nthrough"


def test_a_large_context_and_odd_names(project, box):
    big = os.urandom(1 << 20) * 24
    (project.path / "big.bin").write_bytes(big)
    odd = "with blank 'quote' \"double\" $dollar \\back ümlaut"
    project.write(odd, "odd")
    project.write("long/" + "d" * 120 + "/" + "f" * 150, "long")
    project.build("FROM base\nCOPY . /all/\n", "-t", "large:1")
    project.start(box, "large:1")
    assert project.daemon.out(box, "wc -c < /all/big.bin") == str(len(big))
    assert project.daemon.out(box, "ls /all | grep ümlaut") == odd
    assert project.daemon.out(box, f"cat /all/long/{'d' * 120}/{'f' * 150}") == "long"


def test_a_dockerfile_from_standard_input_and_quiet(project):
    r = project.run("image", "build", "-q", "-t", "stdin:1", "-f", "-", ".", input="FROM base\nENV A=1\n")
    assert r.returncode == 0 and r.stderr == "" and len(r.stdout.strip()) == 64, (r.stdout, r.stderr)


def test_interrupting_a_build_leaves_no_sandbox(project):
    project.write("Dockerfile", "FROM base\nRUN echo waiting && sleep 300\n")
    argv, options = project.command("image", "build", ".")
    p = subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, **options)
    for line in p.stderr:
        if line.strip() == "waiting":
            break
    assert len(build_boxes(project.daemon)) == 1
    p.send_signal(signal.SIGINT)
    assert p.wait(DEADLINE) == 130
    p.stderr.close()
    silica.wait_for(lambda: build_boxes(project.daemon) == [], what="the sandbox's end")


def test_networks_of_steps(project):
    r = project.build("FROM base\nRUN tail -n +3 /proc/net/dev | cut -d: -f1\n", "--network", "none")
    assert "    lo\n" in r.stderr and "eth" not in r.stderr
    r = project.build("FROM base\n", "--network", "bridge", code=125)
    assert "is not default, none, public or host" in r.stderr
