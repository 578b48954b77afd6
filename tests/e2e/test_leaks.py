# SPDX-License-Identifier: Apache-2.0
"""Information leaks and kernel surface from inside (catalogue areas 2 and 3)."""
import json
import os
import re
import socket
import subprocess

import posture
import silica


def test_LEAK_01_masked_files_are_empty(daemon, box):
    for path in posture.MASKED_FILES + posture.MASKED_DIRS:
        r = daemon.exec(box, f"if [ -d {path} ]; then ls -A {path}; else cat {path} 2>/dev/null; fi; true")
        assert r["stdout"] == "", (path, r["stdout"][:100])


def test_LEAK_02_kernel_settings_cannot_be_written(daemon, box):
    out = daemon.out(box, "for f in /proc/sys/kernel/hostname /proc/sys/kernel/core_pattern /proc/sys/vm/drop_caches "
                          "/proc/sys/net/ipv4/ip_forward /proc/sys/user/max_user_namespaces /sys/devices/system/cpu/cpu0/online "
                          "/proc/sysrq-trigger /proc/sys/kernel/modprobe; do [ -e $f ] && (echo x > $f) 2>/dev/null && echo wrote $f; done; true")
    assert out == ""
    assert daemon.out(box, "find /proc/sys /sys -type f -writable 2>/dev/null | head -n 5") == ""


def test_LEAK_03_kernel_log(daemon, box):
    assert daemon.exec(box, "dmesg")["exitCode"] != 0
    assert daemon.exec(box, "test -e /dev/kmsg")["exitCode"] != 0


def test_LEAK_04_host_processes_are_invisible(daemon, box):
    pids = [int(p) for p in daemon.out(box, "ls /proc | grep -E '^[0-9]+$'").split()]
    assert 1 not in pids  # the agent hides
    assert len(pids) < 12
    assert daemon.exec(box, f"kill -0 {os.getpid()}")["exitCode"] != 0


def test_LEAK_06_no_host_names(daemon, box):
    text = daemon.out(box, "cat /proc/self/mountinfo /proc/self/cgroup /proc/self/environ /proc/self/cmdline | tr '\\0' '\\n'; hostname")
    for word in (daemon.dir, daemon.instance, socket.gethostname()):
        assert not re.search(rf"\b{re.escape(word)}\b", text), word
    assert all(line.endswith(":/") or line.endswith("/work") for line in daemon.out(box, "cat /proc/self/cgroup").split("\n"))


def test_LEAK_07_no_abstract_sockets(daemon, box):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("\0silica-test-abstract")
        s.listen()
        assert "silica-test-abstract" not in daemon.out(box, "cat /proc/net/unix")
        r = daemon.exec(box, "python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('\\0silica-test-abstract')\"")
        assert r["exitCode"] != 0


def test_LEAK_09_nothing_is_shared_between_sandboxes(daemon, box):
    try:
        daemon.out(box, "for d in /tmp /dev/shm /run /workspace /var/tmp; do echo secret > $d/leak; done; ipcmk -M 4096 >/dev/null")
        out = daemon.out("other-box", "cat /tmp/leak /dev/shm/leak /run/leak /workspace/leak /var/tmp/leak 2>/dev/null; ipcs -m | grep -c 0x; true")
        assert out == "0"
        assert "ps" and daemon.out("other-box", "ps ax | grep -c '[s]leep'; true") == "0"
    finally:
        daemon.destroy("other-box")


def test_LEAK_10_deleted_bytes_do_not_come_back(daemon, box):
    daemon.out(box, "for i in $(seq 1 200000); do echo PATTERN-7f3a; done > /workspace/f; sync")
    daemon.destroy(box)
    assert daemon.out(box, "grep -rl PATTERN-7f3a /workspace /tmp /var/tmp 2>/dev/null; true") == ""
    # nor in what is given out without having been written: blocks of the disk, pages of memory
    assert daemon.out(box, "fallocate -l 30M /workspace/g && tr -d '\\0' < /workspace/g | wc -c") == "0"
    assert daemon.out(box, "python3 -c 'import mmap; print(mmap.mmap(-1, 64 << 20).find(b\"PATTERN\"))'") == "-1"

    def written():  # the disk that was removed may still be going
        return [n for n in daemon.disks() if subprocess.run(["grep", "-sqF", "PATTERN-7f3a", f"{daemon.data}/disks/{n}"]).returncode == 0]

    assert daemon.disks()
    silica.wait_for(lambda: not written(), what="no disk with the pattern")


def test_LEAK_12_no_core_dumps(daemon, box):
    daemon.exec(box, "ulimit -c unlimited; cd /workspace; sleep 100 & kill -SEGV $!; wait")
    assert daemon.out(box, "ls /workspace") == ""


def test_LEAK_13_errors_tell_nothing_of_the_host(daemon, box):
    api = f"/v1/sandbox/{box}/api"
    bad = [("PUT", "/v1/sandbox/bad!", {}), ("PUT", f"/v1/sandbox/{box}", {"image": "none-such"}), ("GET", "/v1/sandbox/unknown-one", None), ("GET", "/nowhere", None),
           ("PUT", f"/v1/sandbox/{box}", {"limits": {"memoryBytes": 1}}), ("PUT", f"/v1/sandbox/{box}", []), ("PUT", f"/v1/sandbox/{box}", {"env": 5}),
           ("PUT", f"/v1/sandbox/{box}", {"sleepAfter": "soon"}), ("PUT", f"/v1/sandbox/{box}", {"network": "open"}), ("PUT", f"/v1/sandbox/{box}", {"volumes": 1}),
           ("GET", "/v1/sandbox?state=odd", None), ("POST", "/v1/token", {"scope": "emperor"}), ("DELETE", "/v1/token/nothing", None), ("GET", "/v1/images/export?name=x:1", None),
           ("POST", "/v1/images/save", {"sandbox": "nobody"}), ("POST", "/v1/images/import", None), ("POST", f"/v1/sandbox/{box}/ports", {"port": 1}),
           ("DELETE", f"/v1/sandbox/{box}/ports/9", None), ("POST", f"/v1/sandbox/{box}/nothing", {}), ("PATCH", f"/v1/sandbox/{box}", {}),
           ("POST", f"{api}/execute", {"cwd": "/none", "command": "x", "sessionId": "__DISABLE_SESSION__"}), ("POST", f"{api}/execute", {}), ("GET", f"{api}/nothing", None),
           ("POST", f"{api}/read", {"path": "/none"}), ("POST", f"{api}/write", {"path": "/proc/x", "content": ""}), ("POST", f"{api}/delete", {"path": "/none"}),
           ("POST", f"{api}/rename", {"oldPath": "/none", "newPath": "/x"}), ("POST", f"{api}/list-files", {"path": "/none"}), ("GET", f"{api}/process/none", None),
           ("POST", f"{api}/execute/code", {"code": "1", "language": "cobol"}), ("POST", f"{api}/git/checkout", {"repoUrl": "file:///none"}),
           ("POST", f"{api}/backup/restore", {"dir": "/x", "archivePath": "/none"})]
    for method, path, body in bad:
        r = daemon.request(method, path, body)
        assert r.status >= 400, (method, path, r.body)
        for word in (daemon.dir.encode(), silica.IMAGES.encode(), b"/run/", b"src/", b"0x"):
            assert word not in r.body, r.body


def test_SEC_05_namespaces_are_refused(daemon, box):
    for flag in ("-U", "-n", "-m", "-p", "-i", "-u", "-C"):
        assert daemon.exec(box, f"unshare {flag} true")["exitCode"] != 0, flag


def test_SEC_06_threads_work(daemon, box):
    said = daemon.out(box, "python3 -c \"import os, threading; t=[threading.Thread(target=os.write, args=(1, b'%d ' % i)) for i in range(3)]; "
                           "[x.start() for x in t]; [x.join() for x in t]\"")
    assert sorted(said.split()) == ["0", "1", "2"]
    assert daemon.out(box, "node -e \"const {Worker}=require('worker_threads'); new Worker('console.log(1+1)',{eval:true})\"") == "2"


def test_SEC_15_setuid_files_are_inert(daemon, box):
    assert daemon.out(box, "cp /usr/bin/id /workspace/id; chmod 4755 /workspace/id; setpriv --reuid 1000 --regid 1000 --clear-groups /workspace/id -u") == "1000"


def test_SEC_20_agent_cannot_be_traced(daemon, box):
    code = ("import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "print(libc.ptrace(0x4206, 1, 0, 0), ctypes.get_errno())\n"
            "class V(ctypes.Structure): _fields_ = [('b', ctypes.c_void_p), ('n', ctypes.c_size_t)]\n"
            "b = ctypes.create_string_buffer(8); l = V(ctypes.addressof(b), 8); r = V(0x400000, 8)\n"
            "print(libc.process_vm_readv(1, ctypes.byref(l), 1, ctypes.byref(r), 1, 0))\n"
            "try: open('/proc/1/mem', 'rb'); print('opened')\nexcept OSError as e: print('refused')\n"
            "print(libc.process_vm_writev(1, ctypes.byref(l), 1, ctypes.byref(r), 1, 0))\n"
            "fd = libc.syscall(434, 1, 0); print(libc.syscall(438, fd, 0, 0), ctypes.get_errno() in (1, 9, 38))\n")  # pidfd_open, pidfd_getfd
    out = daemon.out(box, f"python3 - <<'E'\n{code}E").split("\n")
    assert out[0].startswith("-1 ") and out[1:] == ["-1", "refused", "-1", "-1 True"], out


def test_AGT_03_signals_from_inside_are_ignored(daemon, box):
    daemon.exec(box, "for s in 9 15 19 2 1 10 12; do kill -$s 1; done")
    assert daemon.out(box, "echo alive") == "alive"


def test_DOS_36_signal_flood(daemon, box):
    daemon.out(box, "python3 -c \"import os\nfor _ in range(20000): os.kill(1, 10)\"")
    assert daemon.out(box, "echo alive") == "alive"


def test_SEC_22_a_checker_finds_nothing(daemon, box):
    """What public container checkers look for, as our own script: capabilities, mounts, sockets, devices, kernel files, calls, metadata services."""
    with open(os.path.join(os.path.dirname(__file__), "inside_checker.py")) as f:
        assert daemon.request("POST", f"/v1/sandbox/{box}/api/write", {"path": "/workspace/checker.py", "content": f.read()}).status == 200
    for fields in ({}, {"sessionId": "__DISABLE_SESSION__"}):
        assert json.loads(daemon.out(box, "python3 /workspace/checker.py", **fields)) == {}
    planted = daemon.out(box, "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/run/docker.sock\")'; API_TOKEN=x python3 /workspace/checker.py")
    assert json.loads(planted) == {"sockets": ["/run/docker.sock", "/var/run/docker.sock"], "secrets": ["API_TOKEN=x"]}, "it can find"
