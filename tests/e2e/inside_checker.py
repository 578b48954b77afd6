# SPDX-License-Identifier: Apache-2.0
"""Run inside a sandbox: looks for what public container checkers look for, and prints one line of JSON {finding: detail}.

Nothing found is {}. Each check is a function that yields what a way out or a secret would look like."""
import ctypes
import errno
import glob
import json
import os
import socket
import stat
import struct

# CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID NET_BIND_SERVICE: over the sandbox's own files and processes
HARMLESS = 0x4FB


def status():
    with open("/proc/self/status") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


def capabilities():
    s = status()
    for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"):
        if int(s[name], 16) & ~HARMLESS:
            yield f"{name} {s[name]}"
    if s["NoNewPrivs"] != "1" or s["Seccomp"] != "2":
        yield "privileges can be gained"


def ids():
    for name in ("uid_map", "gid_map"):
        for line in open(f"/proc/self/{name}"):
            if int(line.split()[1]) < 65536:
                yield f"{name}: {line.strip()}"


def mounts():
    for line in open("/proc/self/mountinfo"):
        left, right = line.split(" - ")
        fields, kind, source = left.split(), right.split()[0], right.split()[1]
        if fields[6:] and any(f.startswith(("shared:", "master:")) for f in fields[6:]):
            yield f"propagates: {line.strip()}"
        if "rw" in fields[5].split(",") and kind in ("sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "bpf", "configfs"):
            yield f"writable {kind} at {fields[4]}"
        if source.startswith("/dev/") and fields[4] not in ("/",) and kind in ("ext4", "xfs", "btrfs"):
            yield f"disk at {fields[4]}"


def sockets():
    names = ("docker.sock", "containerd.sock", "crio.sock", "podman.sock", "kubelet.sock", "dockershim.sock", "buildkitd.sock")
    for top in ("/run", "/var/run", "/var", "/tmp", "/etc", "/mnt", "/host"):
        for folder, _, files in os.walk(top):
            for name in files:
                path = os.path.join(folder, name)
                try:
                    if name in names or (stat.S_ISSOCK(os.lstat(path).st_mode) and top in ("/run", "/var/run")):
                        yield path
                except OSError:
                    pass
    listed = open("/proc/net/unix").read().splitlines()[1:]
    for line in listed:
        if "@" in line:
            yield f"abstract socket {line.split()[-1]}"


def devices():
    allowed = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
    for folder, _, files in os.walk("/dev"):
        for name in files:
            path = os.path.join(folder, name)
            try:
                mode = os.lstat(path).st_mode
            except OSError:
                continue
            if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and name not in allowed and not folder.startswith("/dev/pts")):
                yield path
    for kind, major, minor in (("block", 7, 0), ("block", 254, 0), ("char", 1, 1), ("char", 10, 229)):
        path = f"/tmp/node-{major}-{minor}"
        try:
            os.mknod(path, 0o600 | (stat.S_IFBLK if kind == "block" else stat.S_IFCHR), os.makedev(major, minor))
            os.close(os.open(path, os.O_RDONLY))
            yield f"{kind} {major}:{minor} can be made and opened"
        except OSError:
            pass


def kernel():
    for path in ("/proc/kcore", "/proc/kallsyms", "/proc/kmsg", "/proc/sched_debug", "/proc/timer_list", "/proc/keys", "/proc/slabinfo",
                 "/sys/kernel/debug/x", "/sys/firmware/dmi/tables/DMI", "/sys/kernel/vmcoreinfo", "/dev/kmsg", "/dev/mem"):
        try:
            if open(path, "rb").read(16):
                yield f"readable {path}"
        except OSError:
            pass
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/panic_on_oom", "/proc/sysrq-trigger",
                 "/sys/kernel/uevent_helper", "/proc/sys/fs/binfmt_misc/register"):
        try:
            os.close(os.open(path, os.O_WRONLY))
            yield f"writable {path}"
        except OSError:
            pass
    for path in glob.glob("/sys/fs/cgroup/**/release_agent", recursive=True) + glob.glob("/sys/fs/cgroup/**/devices.allow", recursive=True):
        if os.access(path, os.W_OK):
            yield f"writable {path}"


def calls():
    libc = ctypes.CDLL(None, use_errno=True)
    for name, number, args in (("unshare", 272, (0x10000000,)), ("setns", 308, (0, 0)), ("mount", 165, (b"none", b"/mnt", b"tmpfs", 0, 0)),
                               ("bpf", 321, (0, 0, 0)), ("perf_event_open", 298, (0, 0, -1, -1, 0)), ("init_module", 175, (0, 0, b"")),
                               ("kexec_load", 246, (0, 0, 0, 0)), ("add_key", 248, (b"user", b"x", b"y", 1, -3)), ("userfaultfd", 323, (0,)),
                               ("io_uring_setup", 425, (1, 0)), ("open_by_handle_at", 304, (-100, 0, 0)), ("ptrace", 101, (16, 1, 0, 0)),
                               ("pivot_root", 155, (b"/", b"/")), ("fsopen", 430, (b"tmpfs", 0)), ("iopl", 172, (3,)), ("reboot", 169, (0, 0, 0, 0))):
        ctypes.set_errno(0)
        if libc.syscall(number, *args) >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
            yield f"{name}: {errno.errorcode.get(ctypes.get_errno(), 'works')}"


def metadata():
    for address in ("169.254.169.254", "100.100.100.200", "192.0.0.192", "169.254.170.2"):
        with socket.socket() as s:
            s.settimeout(0.3)
            if s.connect_ex((address, 80)) == 0:
                yield address


def secrets():
    for path in ("/var/run/secrets/kubernetes.io", "/root/.docker/config.json", "/root/.aws", "/root/.kube", "/etc/shadow-", "/.dockerenv.key", "/root/.ssh/id_rsa"):
        if os.path.exists(path) and os.path.isfile(path) and os.path.getsize(path):
            yield path
    for name, value in os.environ.items():
        if any(word in name.upper() for word in ("TOKEN", "SECRET", "PASSWORD", "API_KEY", "LISTEN_FD", "SILICA")):
            yield f"{name}={value[:8]}"


def neighbours():
    numbers = sorted(int(p) for p in os.listdir("/proc") if p.isdigit())
    for pid in numbers:
        try:
            os.readlink(f"/proc/{pid}/ns/pid")
        except OSError:
            continue
        if os.readlink(f"/proc/{pid}/ns/pid") != os.readlink("/proc/self/ns/pid"):
            yield f"process {pid} of another namespace"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        import fcntl
        for _, name in socket.if_nameindex():
            flags = struct.unpack("H", fcntl.ioctl(s, 0x8913, struct.pack("16s24x", name.encode()))[16:18])[0]
            if flags & 0x100:  # promiscuous
                yield f"interface {name} hears everything"


def main():
    found = {}
    for check in (capabilities, ids, mounts, sockets, devices, kernel, calls, metadata, secrets, neighbours):
        seen = list(check())
        if seen:
            found[check.__name__] = seen
    print(json.dumps(found))


if __name__ == "__main__":
    main()
