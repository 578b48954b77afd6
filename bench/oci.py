# SPDX-License-Identifier: Apache-2.0
"""An OCI bundle with the recipe of a default sandbox, as far as the runtimes know it."""
import json
import os

CAPS = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
        "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_SETFCAP"]
ID_BASE, ID_COUNT = 0x5FFF0000, 65536


def config(rootfs, args, user_namespace):
    namespaces = ["pid", "network", "ipc", "uts", "mount", "cgroup"] + ["user"] * user_namespace
    linux = {
        "namespaces": [{"type": n} for n in namespaces],
        "resources": {"memory": {"limit": 1 << 30}, "pids": {"limit": 512}, "cpu": {"quota": 100000, "period": 100000}},
        "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/sys/firmware"],
        "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
    }
    if user_namespace:
        linux["uidMappings"] = linux["gidMappings"] = [{"containerID": 0, "hostID": ID_BASE, "size": ID_COUNT}]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False, "user": {"uid": 0, "gid": 0}, "args": args, "cwd": "/", "noNewPrivileges": True,
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "capabilities": {k: CAPS for k in ("bounding", "effective", "permitted")},
        },
        "root": {"path": rootfs, "readonly": True},
        "hostname": "bench",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
             "options": ["nosuid", "strictatime", "mode=755", "size=64k"]},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
             "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "size=64m"]},
        ],
        "linux": linux,
    }


def bundle(directory, rootfs, args, user_namespace=True):
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "config.json"), "w") as f:
        json.dump(config(rootfs, args, user_namespace), f)
    return directory
