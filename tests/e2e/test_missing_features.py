# SPDX-License-Identifier: Apache-2.0
"""Hosts that lack something (catalogue area 17): `silica doctor` names it, the daemon says so or does without as documented.

What is missing is taken away from one process: capabilities, a private mount table, or strace answering as an old kernel would."""
import json
import os
import subprocess

import pytest
import silica
from lab import RESOLVER, SITE, Lab, LabDaemon
from tracer import needs_strace


def doctor(*prefix, agent=silica.AGENT, image="base"):
    r = subprocess.run([*prefix, silica.BIN, "doctor", "--json", "--data", os.path.dirname(silica.IMAGES), "--agent", agent, "--image", image],
                       capture_output=True, text=True, timeout=180, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
    said = json.loads(r.stdout)
    layers = {line["layer"]: line for line in said["layers"]}
    missing = {name for name, line in layers.items() if line["verdict"] == "missing"}
    assert said["missing"] == len(missing) and r.returncode == (1 if missing else 0), r
    assert all(line["detail"] for line in layers.values())
    return layers, missing


def without(*calls):
    """strace as a prefix: these calls fail as said, in all processes."""
    options = [x for call in calls for x in ("-e", f"inject={call}")]
    names = ",".join(call.split(":")[0] for call in calls)
    return ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={names}", *options]


def in_mounts(script):
    return ["unshare", "--mount", "sh", "-c", script + ' && exec "$@"', "sh"]


def test_OPS_01_a_host_with_everything():
    layers, missing = doctor()
    assert not missing, missing
    assert "made in" in layers["a whole sandbox"]["detail"]


NAMESPACES = {f"{kind} namespace" for kind in ("user", "mount", "pid", "network", "ipc", "uts", "cgroup")}


@pytest.mark.parametrize("prefix,expected,word", [
    (without("clone3:error=EPERM"), NAMESPACES | {"id-mapped mounts"}, "Operation not permitted"),
    (without("fsopen:error=ENODEV"), {"overlay", "ext4", "tmpfs", "devpts", "mqueue"}, "modprobe"),
    (without("mount_setattr:error=EINVAL"), {"id-mapped mounts"}, "5.19"),
    (without("seccomp:error=EINVAL"), {"seccomp"}, "CONFIG_SECCOMP"),
    (["strace", "-f", "-qq", "-o", "/dev/null", "-P", "/dev/loop-control", "-e", "trace=open,openat", "-e", "inject=open,openat:error=ENXIO"],
     {"loop devices"}, "modprobe loop"),
], ids=["namespaces", "filesystems", "idmap", "seccomp", "loop"])
def test_OPS_01_kernels_without(prefix, expected, word):
    needs_strace()
    layers, missing = doctor(*prefix)
    assert missing == expected
    assert all(word in layers[name]["detail"] for name in expected)
    assert "a whole sandbox" not in layers, "what cannot work is not tried"


def test_OPS_01_optional_layers_are_no_failure():
    needs_strace()
    layers, missing = doctor(*without("landlock_create_ruleset:error=ENOSYS"))
    assert not missing and layers["landlock"]["verdict"] == "optional"


def test_OPS_01_control_groups():
    own = [line.split()[4] for line in open("/proc/self/mountinfo") if " - cgroup " in line and "memory" in line.split(" - ")[1]]
    if not own:
        pytest.skip("the memory controller is in the one tree of version 2")
    layers, missing = doctor(*in_mounts(f"umount --lazy {own[0]}"))
    assert missing == {"memory limit"} and "missing" in layers["memory limit"]["detail"]


@pytest.mark.parametrize("lost", ["mknod", "sys_admin", "setpcap"])
def test_OPS_01_capabilities(lost):
    layers, missing = doctor("setpriv", "--bounding-set", f"-{lost}")
    assert missing == {"rights"} and f"CAP_{lost.upper()}" in layers["rights"]["detail"]


def test_OPS_01_not_root():
    if subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", "test", "-x", silica.BIN]).returncode != 0:
        pytest.skip("nobody else can execute the program here")
    layers, missing = doctor("setpriv", "--reuid=65534", "--clear-groups")
    assert missing == {"rights"} and "root" in layers["rights"]["detail"]


def test_OPS_01_files():
    layers, missing = doctor(agent="/nothing/agent", image="no-such-image")
    assert missing == {"image", "agent"}
    assert "no-such-image" in layers["image"]["detail"] and "/nothing/agent" in layers["agent"]["detail"]


# ------------------------------------------------------------------ the daemon

def refusal(d):
    """The last words of a daemon that does not start."""
    d.start(wait=False)
    assert d.proc.wait(60) != 0
    return d.log().strip().splitlines()[-1]


def test_OPS_03_without_sys_resource(daemon_factory):
    d = daemon_factory("ops3r", pool=0)
    d.prefix = ["setpriv", "--bounding-set", "-sys_resource"]
    d.start()
    assert d.out("x", "echo fine") == "fine"
    d.destroy("x")


def test_OPS_03_without_loop_devices(daemon_factory):
    d = daemon_factory("ops3l", pool=0)
    d.prefix = in_mounts("mount --bind /dev/null /dev/loop-control")
    d.start(wait=False)
    silica.wait_for(lambda: d.proc.poll() is not None or d.healthy(), what="its start or its end")
    if d.proc.poll() is None:
        r = d.request("PUT", "/v1/sandbox/x", {})
        assert r.status >= 500 and "loop" in r.json["message"], r.body
        assert d.request("GET", "/v1/sandbox/x").status == 404
        silica.wait_for(lambda: not d.disks(), what="no disk")
    else:
        assert "loop" in d.log().splitlines()[-1], d.log()


@pytest.fixture
def lab(tmp_path):
    made = Lab(tmp_path)
    yield made
    made.close()


@pytest.fixture
def lab_daemon(lab):
    made = []

    def make(name, network, extra):
        d = LabDaemon(lab, name, pool=0)
        d.network = network
        d.prefix = [*d.prefix, *extra]
        made.append(d)
        return d

    yield make
    for d in made:
        d.cleanup()


def test_OPS_03_without_a_packet_filter(lab_daemon):
    """Who asks for a network is told; otherwise sandboxes run without one, and never with an open one."""
    no_filter = ["setpriv", "--bounding-set", "-net_admin"]
    d = lab_daemon("ops3p", "public", no_filter)
    assert "packet filter" in refusal(d), d.log()
    d = lab_daemon("ops3n", None, no_filter)
    d.start()
    assert "sandboxes have no network" in d.log()
    assert "unreachable" in d.probe("x", [f"tcp {SITE} 80"])[f"tcp {SITE} 80"]
    r = d.request("PUT", "/v1/sandbox/y", {"network": "public"})
    assert r.status >= 400 and r.json["code"] == "NETWORK_UNAVAILABLE", r.body


def test_OPS_03_without_ipv6(lab, lab_daemon):
    """Nothing of it is needed."""
    lab.on_host("sysctl", "-q", "-w", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
    d = lab_daemon("ops3v", "public", [])
    d.start()
    r = d.probe("x", [f"tcp {SITE} 80", f"udp {RESOLVER} 53"])
    assert set(r.values()) == {"hello"}, r
    d.stop()
    d = lab_daemon("ops3w", "public", [])
    d.args += ["--listen", "[::1]:8788"]
    assert "[::1]:8788" in refusal(d)
