# SPDX-License-Identifier: Apache-2.0
"""Volumes: named disks that outlive sandboxes, are shared by them, and leave nothing behind."""
import http.client
import json
import os
import signal
import subprocess
import threading

import pytest
import silica


@pytest.fixture
def volume(daemon, request):
    """The name of a fresh volume of 64 MiB."""
    name = "v-" + "".join(c if c.isalnum() else "-" for c in request.node.name.lower())[5:45].strip("-")
    r = daemon.request("POST", "/v1/volumes", {"name": name, "size": "64MiB"})
    assert r.status == 201, r.body
    yield name
    for box in daemon.request("GET", f"/v1/volumes/{name}").json.get("sandboxes", []):
        daemon.destroy(box)
    daemon.request("DELETE", f"/v1/volumes/{name}")


@pytest.fixture
def make(daemon, box):
    made = []

    def put(volumes, suffix="", **config):
        r = daemon.request("PUT", f"/v1/sandbox/{box}{suffix}", {"volumes": volumes, **config})
        assert r.status == 201, r.body
        made.append(box + suffix)
        return made[-1]

    yield put
    for name in made:
        daemon.destroy(name)


def at(name, path, read_only=None):
    return {"name": name, "path": path, **({} if read_only is None else {"readOnly": read_only})}


def loops(daemon):
    """Loop devices on files of this daemon's volumes."""
    found = []
    for entry in os.listdir("/sys/block"):
        try:
            with open(f"/sys/block/{entry}/loop/backing_file") as f:
                if f.read().startswith(daemon.data + "/volumes/"):
                    found.append(entry)
        except OSError:
            pass
    return found


def one_device(daemon):
    """Its name; those of volumes that are gone may still be going."""
    return silica.wait_for(lambda: len(found := loops(daemon)) == 1 and found[0], what="a single device")


def test_a_volume_outlives_its_sandbox(daemon, volume, make):
    box = make([at(volume, "/data/deep")])
    assert daemon.out(box, "ls -A /data/deep; stat -c '%u %g %a' /data/deep") == "0 0 755"
    daemon.out(box, "echo kept > /data/deep/file; chown 1000:1000 /data/deep/file; mkdir /data/deep/dir")
    daemon.destroy(box)
    box = make([at(volume, "/elsewhere")])
    assert daemon.out(box, "cat /elsewhere/file; stat -c '%u:%g' /elsewhere/file") == "kept\n1000:1000"


def test_a_volume_survives_sleep(daemon, volume, make):
    box = make([at(volume, "/data")])
    daemon.out(box, "echo one > /data/file; echo two > /own")
    assert daemon.request("POST", f"/v1/sandbox/{box}/sleep").status == 200
    silica.wait_for(lambda: not loops(daemon), what="the device's end while all sleep")
    assert daemon.out(box, "cat /data/file /own") == "one\ntwo"


def test_sandboxes_share_a_volume(daemon, volume, make):
    first, second = make([at(volume, "/a")], "-1"), make([at(volume, "/b")], "-2")
    daemon.out(first, "echo hello > /a/file; chmod 600 /a/file")
    assert daemon.out(second, "cat /b/file; stat -c %U /b/file; echo more >> /b/file") == "hello\nroot"
    assert daemon.out(first, "cat /a/file") == "hello\nmore"
    one_device(daemon)
    shown = daemon.request("GET", f"/v1/volumes/{volume}").json
    assert shown["sandboxes"] == sorted([first, second]) or set(shown["sandboxes"]) == {first, second}


def test_a_read_only_volume(daemon, volume, make):
    writer = make([at(volume, "/data")], "-w")
    daemon.out(writer, "echo text > /data/file")
    reader = make([at(volume, "/data", True)], "-r")
    r = daemon.exec(reader, "cat /data/file; echo x > /data/file; rm /data/file; touch /data/new")
    assert r["stdout"] == "text" and r["stderr"].count("Read-only file system") == 3, r
    r = daemon.exec(reader, "mount -o remount,rw /data")
    assert r["exitCode"] != 0
    assert daemon.exec(reader, "touch /data/new")["exitCode"] != 0
    daemon.out(writer, "echo again >> /data/file")
    assert daemon.out(reader, "cat /data/file") == "text\nagain"


def test_neither_devices_nor_setuid_programs(daemon, volume, make):
    box = make([at(volume, "/data")])
    options = daemon.out(box, "grep ' /data ' /proc/self/mountinfo").split()[5].split(",")
    assert "nosuid" in options and "nodev" in options and "rw" in options, options
    assert daemon.exec(box, "mknod /data/null c 1 3")["exitCode"] != 0


def test_input_and_output_are_limited_there_too(daemon, volume, make):
    make([at(volume, "/data")])
    device = one_device(daemon)
    with open(f"/sys/block/{device}/dev") as f:
        number = f.read().strip() + " "
    files = [f"{d}/{name}" for d in daemon.slot_groups() for name in ("io.max", "blkio.throttle.write_bps_device")]
    files = [f for f in files if os.path.exists(f)]
    if not files:
        pytest.skip("this host has no control group for I/O")
    assert any(number in open(f).read() for f in files)


def test_the_quota_is_the_volume_s_own(daemon, volume, make):
    box = make([at(volume, "/data")])
    r = daemon.exec(box, "head -c 100M /dev/zero > /data/big")
    assert r["exitCode"] != 0 and "No space left" in r["stderr"], r
    assert daemon.out(box, "head -c 20M /dev/zero > /own; stat -c %s /own") == f"{20 << 20}"
    shown = lambda: daemon.request("GET", f"/v1/volumes/{volume}").json  # noqa: E731
    silica.wait_for(lambda: shown()["usedBytes"] > 40 << 20, what="what was written to be counted")
    assert shown()["usedBytes"] <= shown()["sizeBytes"] == 64 << 20, shown()
    daemon.out(box, "rm /data/big; sync")
    silica.wait_for(lambda: shown()["usedBytes"] < 16 << 20, what="the room of a deleted file being given back")


def test_a_volume_in_use_is_not_removed(daemon, volume, make):
    box = make([at(volume, "/data")])
    for _ in range(2):
        r = daemon.request("DELETE", f"/v1/volumes/{volume}")
        assert r.status == 409 and r.json["code"] == "VOLUME_IN_USE" and box in r.json["message"], r.body
        assert daemon.request("POST", f"/v1/sandbox/{box}/sleep").status == 200  # asleep it is in use all the same
    assert daemon.request("PUT", f"/v1/sandbox/{box}", {"volumes": []}).status == 200
    assert daemon.request("DELETE", f"/v1/volumes/{volume}").status in (200, 409)  # of its life before, perhaps
    daemon.destroy(box)
    daemon.request("DELETE", f"/v1/volumes/{volume}")
    assert daemon.request("GET", f"/v1/volumes/{volume}").status == 404


def test_refusals(daemon, volume, box):
    def put(volumes, status, code):
        r = daemon.request("PUT", f"/v1/sandbox/{box}", {"volumes": volumes})
        assert (r.status, r.json["code"]) == (status, code), r.body

    put([at("nowhere", "/data")], 404, "VOLUME_NOT_FOUND")
    for path in ("/", "data", "/proc", "/proc/self", "/sys/fs", "/dev", "/dev/.s", "/opt/silica", "/a/../proc", "/a//b", "/a/",
                 "/a\nb", "/" + "x" * 255, "", "/./a"):
        put([at(volume, path)], 400, "VALIDATION_FAILED")
    for bad in ("text", {"name": volume}, [volume], [{"name": volume}], [{"path": "/a"}], [at("../x", "/a")],
                [{**at(volume, "/a"), "readonly": True}], [{**at(volume, "/a"), "readOnly": "yes"}],
                [at(volume, "/a"), at(volume, "/a")], [at(volume, f"/{i}") for i in range(9)]):
        put(bad, 400, "VALIDATION_FAILED")
    assert daemon.request("GET", f"/v1/sandbox/{box}").status == 404

    def post(body, status, code):
        r = daemon.request("POST", "/v1/volumes", body)
        assert (r.status, r.json["code"]) == (status, code), r.body

    post({"name": volume}, 409, "VOLUME_EXISTS")
    for body in ({}, {"name": ""}, {"name": ".x"}, {"name": "a/b"}, {"name": "x" * 64}, {"name": "x", "size": 1},
                 {"name": "x", "size": "2TiB"}, {"name": "x", "size": "much"}, {"name": "x", "size": -1}, []):
        post(body, 400, "VALIDATION_FAILED")
    assert daemon.request("DELETE", "/v1/volumes/nowhere").status == 404
    assert daemon.request("GET", "/v1/volumes/..%2f..").status == 404


def test_links_of_the_sandbox_are_not_followed(daemon, volume, make):
    box = make([])
    daemon.out(box, "ln -s /proc /link; ln -s / /root-link; echo x > /file")
    for path, why in (("/link/x", "link"), ("/root-link/data", "link"), ("/file", "directory"), ("/file/x", "directory")):
        assert daemon.request("POST", f"/v1/sandbox/{box}/sleep").status == 200
        r = daemon.request("PUT", f"/v1/sandbox/{box}", {"volumes": [at(volume, path)]})  # wakes it
        assert (r.status, r.json["code"]) == (422, "VOLUME_PATH_INVALID") and why in r.json["message"].lower(), r.body
    r = daemon.request("PUT", f"/v1/sandbox/{box}", {"volumes": [at(volume, "/fine/here")]})
    assert r.status == 200, r.body  # nothing is lost
    assert daemon.out(box, "cat /file; stat -c %m /fine/here") == "x\n/fine/here"


def test_one_volume_below_another(daemon, volume, make):
    r = daemon.request("POST", "/v1/volumes", {"name": volume + "-2", "size": 16 << 20})
    assert r.status == 201, r.body
    box = make([at(volume + "-2", "/data/inner"), at(volume, "/data")])
    assert daemon.out(box, "touch /data/inner/x; ls /data; ls /data/inner; stat -c %m /data/inner") == "inner\nx\n/data/inner"
    daemon.destroy(box)
    assert daemon.request("DELETE", f"/v1/volumes/{volume}-2").status == 200


def test_only_admins_give_volumes(daemon, volume, box):
    made = daemon.request("POST", "/v1/token", {"scope": "create-only"}).json
    theirs = {"Authorization": "Bearer " + made["token"]}
    r = daemon.request("PUT", f"/v1/sandbox/{box}", {"volumes": [at(volume, "/data")]}, headers=theirs)
    assert (r.status, r.json["code"]) == (403, "FORBIDDEN"), r.body
    for method, path, body in (("GET", "/v1/volumes", None), ("POST", "/v1/volumes", {"name": "x"}),
                               ("DELETE", f"/v1/volumes/{volume}", None)):
        assert daemon.request(method, path, body, headers=theirs).status == 403
    looks = {"Authorization": "Bearer " + daemon.request("POST", "/v1/token", {"scope": "read-only"}).json["token"]}
    assert volume in [v["name"] for v in daemon.request("GET", "/v1/volumes", headers=looks).json["volumes"]]
    assert daemon.request("POST", "/v1/volumes", {"name": "x"}, headers=looks).status == 403


def test_the_command_line(daemon, box):
    env = {**os.environ, "SILICA_URL": f"http://127.0.0.1:{daemon.port}", "SILICA_TOKEN": silica.TOKEN}

    def run(*args, code=0):
        r = subprocess.run([silica.BIN, *args], env=env, capture_output=True, text=True, timeout=60)
        assert r.returncode == code, r
        return r.stdout if code == 0 else r.stderr

    assert run("volume", "create", "cli", "--size", "32M") == "cli\n"
    assert "already" in run("volume", "create", "cli", code=125)
    assert run("create", box, "--volume", "cli:/data", "--volume", "cli:/again:ro", "--hostname", "cli-host",
               "--workdir", "/data") == box + "\n"
    assert run("exec", box, "--", "pwd; hostname; echo 1 > file; cat /again/file") == "/data\ncli-host\n1\n"
    listed = run("volume", "ls")
    assert "cli" in listed and box in listed, listed
    shown = json.loads(run("volume", "inspect", "cli"))
    assert shown["sizeBytes"] == 32 << 20 and shown["sandboxes"] == [box]
    assert box in run("volume", "rm", "cli", code=125)
    run("rm", box)
    assert run("volume", "rm", "cli") == "cli\n"
    assert "no volume" in run("volume", "inspect", "cli", code=125)
    for bad in ("cli", "cli:data", ":/x", "cli:/x:rw:ro"):
        assert "--volume" in run("create", box, "--volume", bad, code=125)


def test_restarts_and_kill_9(daemon_factory):
    d = daemon_factory("vol").start()
    before = silica.mounts()
    assert d.request("POST", "/v1/volumes", {"name": "v", "size": "32MiB"}).status == 201
    created = d.request("GET", "/v1/volumes/v").json["createdAt"]
    put = {"volumes": [at("v", "/data")]}
    assert d.request("PUT", "/v1/sandbox/one", put).status == 201
    d.out("one", "echo before > /data/file")
    d.kill()
    d.start()
    d.out("one", "cat /data/file; echo after >> /data/file")  # it ran on
    # another one meets the device of the first, which no living keeper has attached
    assert d.request("PUT", "/v1/sandbox/two", put).status == 201
    assert d.out("two", "cat /data/file; echo two >> /data/file") == "before\nafter"
    assert d.out("one", "tail -n 1 /data/file") == "two"
    one_device(d)
    d.stop(signal.SIGTERM)
    d.start()
    shown = d.request("GET", "/v1/volumes/v").json
    assert sorted(shown["sandboxes"]) == ["one", "two"] and shown["createdAt"] == created
    assert d.request("DELETE", "/v1/volumes/v").status == 409
    d.destroy("one")
    d.destroy("two")
    r = d.request("DELETE", "/v1/volumes/v")
    assert r.status == 200, r.body
    assert os.listdir(d.data + "/volumes") == []
    silica.wait_for(lambda: not loops(d), what="the device's end")
    assert silica.mounts() == before


def test_a_half_made_volume_is_swept(daemon_factory):
    d = daemon_factory("volsweep").start()
    d.stop()
    with open(d.data + "/volumes/volume.new", "wb") as f:
        f.truncate(16 << 20)
    d.start()
    assert os.listdir(d.data + "/volumes") == []
    assert d.request("GET", "/v1/volumes").json == {"volumes": [], "count": 0}
    assert d.request("POST", "/v1/volumes", {"name": "a", "size": "16MiB"}).status == 201


def test_many_at_once(daemon, volume, box):
    """All of them want the device that none has attached yet; then all let go of it."""
    names = [f"{box}-{i}" for i in range(8)]
    answers = {}

    def put(name):
        answers[name] = daemon.request("PUT", f"/v1/sandbox/{name}", {"volumes": [at(volume, "/data")]})

    def together(work):
        threads = [threading.Thread(target=work, args=(name,)) for name in names]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    for _ in range(2):
        together(put)
        assert {r.status for r in answers.values()} == {201}, [r.body for r in answers.values()]
        one_device(daemon)
        for name in names:
            daemon.out(name, "echo $HOSTNAME >> /data/all")
        assert daemon.out(names[0], "wc -l < /data/all; rm /data/all") == "8"
        together(daemon.destroy)
        silica.wait_for(lambda: not loops(daemon), what="the device's end")


@pytest.mark.parametrize("how", ["FAIL", "CRASH"])
def test_half_made_sandboxes_let_go_of_their_volumes(daemon_factory, how):
    """Every step from the volumes on fails, or takes the keeper with it."""
    d = daemon_factory("volhalf", pool=0).start()
    put = {"volumes": [at("v", "/data")]}
    assert d.request("POST", "/v1/volumes", {"name": "v", "size": "16MiB"}).status == 201
    assert d.request("PUT", "/v1/sandbox/x", put).status == 201
    d.out("x", "echo kept > /data/file")
    d.destroy("x")
    d.stop()
    failed = 0
    for step in range(6, 30):
        d.start(env={f"SILICA_{how}": f"start:{step}"})
        try:
            if d.request("PUT", "/v1/sandbox/x", put).status in (200, 201):  # behind the last step; its settings are kept
                d.destroy("x")
                d.stop()
                break
        except (OSError, http.client.HTTPException):
            assert how == "CRASH"
        failed += 1
        if how == "CRASH":
            assert d.proc.wait(60) == -signal.SIGKILL
            silica.wait_for(lambda: not d.port_open(), what="the gateway's end")
            d.start()
        silica.wait_for(lambda: not loops(d), what=f"no device after step {step}")
        d.stop()
    assert failed >= 6
    d.start()
    assert d.request("PUT", "/v1/sandbox/x", put).status in (200, 201)
    assert d.out("x", "cat /data/file") == "kept"
    d.destroy("x")
    assert d.request("DELETE", "/v1/volumes/v").status == 200
