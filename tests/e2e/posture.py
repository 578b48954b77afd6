# SPDX-License-Identifier: Apache-2.0
"""The posture oracle: what every process of a sandbox must look like from outside, compared exactly."""
import os
import re

NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")

AGENT_CAPS = 0x5FB     # CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE
WORKLOAD_CAPS = 0x4FB  # the same without SETPCAP

RO_ALL = {"ro", "nosuid", "nodev", "noexec"}
ALL = {"rw", "nosuid", "nodev", "noexec"}
DEVICE = {"rw", "nosuid", "noexec"}
KERNEL_MASK_FILE = ("devtmpfs", DEVICE)  # /dev/null of the host
KERNEL_MASK_DIR = ("tmpfs", RO_ALL)

# target: (type, flags); the sandbox must have exactly these
MOUNTS = {
    "/": ("overlay", {"rw", "nosuid", "nodev"}),
    "/proc": ("proc", ALL),
    "/sys": ("sysfs", RO_ALL),
    "/sys/fs": ("tmpfs", RO_ALL),
    "/dev": ("tmpfs", {"ro", "nosuid", "noexec"}),
    "/dev/pts": ("devpts", {"rw", "nosuid", "noexec"}),
    "/dev/shm": ("tmpfs", ALL),
    "/dev/mqueue": ("mqueue", ALL),
    "/dev/.s": ("tmpfs", ALL),
    "/tmp": ("tmpfs", {"rw", "nosuid", "nodev"}),
    "/run": ("tmpfs", {"rw", "nosuid", "nodev"}),
    **{f"/dev/{n}": ("devtmpfs", DEVICE) for n in ("null", "zero", "full", "random", "urandom", "tty")},
}
CGROUP_MOUNTS = {  # which of them exist depends on the host's hierarchies
    **{f"/sys/fs/cgroup/{n}": ("cgroup", RO_ALL) for n in ("memory", "cpu", "pids")},
    "/sys/fs/cgroup": ("cgroup2", RO_ALL),
}
MASKED_FILES = [f"/proc/{n}" for n in (
    "cgroups cmdline config.gz diskstats interrupts iomem ioports kallsyms kcore key-users keys kmsg kpagecgroup kpagecount "
    "kpageflags latency_stats pagetypeinfo partitions sched_debug slabinfo timer_list timer_stats vmallocinfo").split()]
MASKED_DIRS = [f"/proc/{n}" for n in "acpi asound bus/pci scsi".split()] + [f"/sys/{n}" for n in (
    "firmware kernel module block class bus dev power hypervisor devices/virtual/powercap devices/virtual/dmi").split()]
READ_ONLY = [f"/proc/{n}" for n in "bus fs irq sys sysrq-trigger driver dynamic_debug pressure".split()]


def status(pid):
    return dict(re.findall(r"^(\w+):[^\S\n]*(.*)$", open(f"/proc/{pid}/status").read(), re.M))


def mount_table(pid):
    table = {}
    for line in open(f"/proc/{pid}/mountinfo"):
        left, right = line.split(" - ")
        fields = left.split()
        flags = set(fields[5].split(",")) - {"relatime", "noatime"}
        table[fields[4]] = (right.split()[0], flags)  # of stacked mounts the last one counts
    return table


def mount_of(pid, fd):
    """The mount point that an open descriptor lies on."""
    mnt_id = re.search(r"^mnt_id:\s*(\d+)", open(f"/proc/{pid}/fdinfo/{fd}").read(), re.M).group(1)
    for line in open(f"/proc/{pid}/mountinfo"):
        if line.split()[0] == mnt_id:
            return line.split()[4]
    return None


def differences(pid, caps, uid, agent=False):
    """Every way in which the process is not what the recipe promises; empty when all is well."""
    wrong = []

    def expect(what, actual, expected):
        if actual != expected:
            wrong.append(f"{what}: {actual!r}, expected {expected!r}")

    s = status(pid)
    for key in ("CapPrm", "CapEff", "CapBnd"):
        expect(key, int(s[key], 16), caps)
    for key in ("CapInh", "CapAmb"):
        expect(key, int(s[key], 16), 0)
    expect("Seccomp", s["Seccomp"], "2")
    expect("NoNewPrivs", s["NoNewPrivs"], "1")
    expect("Groups", s["Groups"].strip(), "")
    for key in ("Uid", "Gid"):
        expect(key, s[key].split(), [str(uid)] * 4)
    for name in NAMESPACES:
        if os.readlink(f"/proc/{pid}/ns/{name}") == os.readlink(f"/proc/self/ns/{name}"):
            wrong.append(f"the {name} namespace is the host's")
    for name in ("uid_map", "gid_map"):
        expect(name, open(f"/proc/{pid}/{name}").read().split(), ["0", str(uid), "65536"])

    actual = mount_table(pid)
    expected = dict(MOUNTS)
    for path, value in CGROUP_MOUNTS.items():
        if path in actual:
            expected[path] = value
    for path in MASKED_FILES:
        if path in actual:
            expected[path] = KERNEL_MASK_FILE
    for path in MASKED_DIRS:
        if path in actual:
            expected[path] = KERNEL_MASK_DIR
    for path in READ_ONLY:
        if path in actual:
            expected[path] = ("proc", RO_ALL)
    for path in list(actual):
        if re.fullmatch(r"/sys/devices/system/cpu/cpu\d+/thermal_throttle", path):
            expected[path] = KERNEL_MASK_DIR
    for path in sorted(set(actual) | set(expected)):
        expect(f"mount {path}", actual.get(path), expected.get(path))
    if not any(p in actual for p in CGROUP_MOUNTS):
        wrong.append("no control group is shown")

    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
        if agent:
            ok = re.match(r"socket:|anon_inode:\[?(eventpoll|signalfd|timerfd|eventfd|inotify)|pipe:|/dev/null$|/dev/\.s/|/var/tmp/"
                          r"|/proc/\d+/status$", target)  # the last: it looks whether a shell waits
        else:
            ok = re.match(r"socket:|pipe:|/dev/null$|/dev/\.s/|/memfd:", target)
        if agent and not ok:  # its directory of FIFOs
            ok = mount_of(pid, fd) == "/dev/.s"
        if not ok:
            wrong.append(f"descriptor {fd} is {target}")
    return wrong
