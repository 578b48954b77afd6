# SPDX-License-Identifier: Apache-2.0
"""Runs inside a sandbox: one small stressor for each class of what the kernel offers, a moment each, four at a time (DOS-40).
Prints a line per class. What is refused is fine; what matters is who else notices."""
import ctypes
import mmap
import os
import random
import select
import signal
import socket
import sys
import threading
import time

SECONDS = float(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
CLASSES = {}


def stressor(f):
    CLASSES[f.__name__] = f
    return f


@stressor
def cpu():
    sum(i * i for i in range(10000))


@stressor
def fork():
    if os.fork() == 0:
        os._exit(0)
    os.wait()


@stressor
def execute():
    os.spawnv(os.P_WAIT, "/bin/true", ["true"])


@stressor
def orphans():
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.01)
        os._exit(0)
    os.wait()


@stressor
def threads():
    started = [threading.Thread(target=time.sleep, args=(0.001,)) for _ in range(16)]
    for t in started:
        t.start()
    for t in started:
        t.join()


@stressor
def memory():
    m = mmap.mmap(-1, 8 << 20)
    for at in range(0, 8 << 20, 4096):
        m[at] = 1
    m.madvise(mmap.MADV_DONTNEED)
    m.resize(4 << 20)
    m.close()


@stressor
def memory_locks():
    m = mmap.mmap(-1, 1 << 20)
    libc.mlock(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(m))), 1 << 20)
    libc.mlockall(3)
    libc.munlockall()


@stressor
def pipes():
    r, w = os.pipe()
    os.set_blocking(w, False)
    libc.fcntl(w, 1031, 1 << 20)
    try:
        while True:
            os.write(w, b"x" * 65536)
    except BlockingIOError:
        pass
    os.close(r), os.close(w)


@stressor
def splices():
    a, b = os.pipe()
    os.write(b, b"x" * 4096)
    f = os.open("/dev/null", os.O_WRONLY)
    os.splice(a, f, 4096)
    os.close(a), os.close(b), os.close(f)


@stressor
def sockets():
    a, b = socket.socketpair()
    a.send(b"x" * 1000)
    b.recv(1000)
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.connect(server.getsockname())
        server.accept()[0].close()


@stressor
def descriptors_in_flight():
    a, b = socket.socketpair()
    try:
        for _ in range(50):
            socket.send_fds(a, [b"x"], [a.fileno(), b.fileno()])
    except OSError:
        pass  # too many for one user: the kernel's own bound


@stressor
def datagrams():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for _ in range(100):
            s.sendto(b"x" * 1000, ("127.0.0.1", 9))


@stressor
def files():
    name = f"/workspace/stress-{os.getpid()}"
    with open(name, "wb") as f:
        f.write(os.urandom(65536))
        os.ftruncate(f.fileno(), 1 << 30)
        os.posix_fallocate(f.fileno(), 0, 1 << 20)
        libc.fallocate(f.fileno(), 3, 0, 4096)
        os.fsync(f.fileno())
    os.link(name, name + "-l"), os.symlink(name, name + "-s"), os.rename(name, name + "-r")
    for end in ("-l", "-s", "-r"):
        os.unlink(name + end)


@stressor
def directories():
    name = f"/workspace/dir-{os.getpid()}"
    os.makedirs(name + "/a/b/c", exist_ok=True)
    os.removedirs(name + "/a/b/c")


@stressor
def attributes():
    name = f"/workspace/attribute-{os.getpid()}"
    with open(name, "w") as f:
        try:
            for i in range(20):
                os.setxattr(f.fileno(), f"user.{i}", b"x" * 100)
        except OSError:
            pass
        os.chmod(name, random.getrandbits(9))
        os.utime(name)
    os.unlink(name)


@stressor
def locks():
    import fcntl
    with open(f"/workspace/lock-{os.getpid()}", "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        for i in range(100):
            fcntl.lockf(f, fcntl.LOCK_EX, 1, 2 * i)


@stressor
def watches():
    fd = libc.inotify_init()
    for path in (b"/tmp", b"/workspace", b"/etc"):
        libc.inotify_add_watch(fd, path, 0xfff)
    os.close(fd)


@stressor
def timers():
    signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
    time.sleep(0.005)
    signal.setitimer(signal.ITIMER_REAL, 0)


@stressor
def signals():
    for _ in range(200):
        os.kill(os.getpid(), signal.SIGUSR1)


@stressor
def polls():
    p = select.epoll()
    made = [os.eventfd(1) for _ in range(50)]
    for fd in made:
        p.register(fd)
    p.poll(0)
    p.close()
    for fd in made:
        os.close(fd)


@stressor
def ipc():
    shared = libc.shmget(0, 1 << 20, 0o600)
    semaphores = libc.semget(0, 10, 0o600)
    queue = libc.msgget(0, 0o600)
    libc.shmctl(shared, 0, None), libc.semctl(semaphores, 0, 0), libc.msgctl(queue, 0, None)


@stressor
def terminals():
    a, b = os.openpty()
    os.write(a, b"x" * 100)
    os.close(a), os.close(b)


@stressor
def processes_seen():
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            for name in ("stat", "maps", "status", "fd"):
                try:
                    open(f"/proc/{pid}/{name}").read()
                except OSError:
                    pass


@stressor
def kernel_files():
    for top, _, names in os.walk("/sys"):
        for name in names[:5]:
            try:
                fd = os.open(f"{top}/{name}", os.O_RDONLY | os.O_NONBLOCK)
                os.read(fd, 100)
                os.close(fd)
            except OSError:
                pass
        if random.random() < 0.02:
            break


@stressor
def priorities():
    os.nice(0)
    for policy in (os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_IDLE, os.SCHED_FIFO):
        try:
            os.sched_setscheduler(0, policy, os.sched_param(0 if policy != os.SCHED_FIFO else 50))
        except OSError:
            pass
    os.sched_yield()


@stressor
def traces():
    pid = os.fork()
    if pid == 0:
        libc.ptrace(0, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(pid, os.WUNTRACED)
    libc.ptrace(7, pid, 0, 0)
    os.kill(pid, signal.SIGKILL)
    try:
        os.waitpid(pid, 0)
    except OSError:
        pass


@stressor
def odd_calls():
    for number in (165, 166, 155, 272, 308, 246, 175, 321, 298, 323, 425, 101, 310, 250, 248, 300, 304, 435):
        libc.syscall(number, 0, 0, 0, 0, 0, 0)


@stressor
def random_bytes():
    os.getrandom(65536)


@stressor
def faults():
    if os.fork() == 0:
        ctypes.string_at(0)
    os.wait()


def run(name):
    """In a process of its own: whatever becomes of it."""
    pid = os.fork()
    if pid:
        return pid
    for n in (signal.SIGUSR1, signal.SIGALRM):
        signal.signal(n, lambda *_: None)
    end, rounds = time.monotonic() + SECONDS, 0
    try:
        while time.monotonic() < end:
            CLASSES[name]()
            rounds += 1
        print(name, rounds, flush=True)
        os._exit(0)
    except Exception as e:
        print(name, repr(e), flush=True)
    finally:
        os._exit(1)


waiting, running = list(CLASSES), {}
while waiting or running:
    while waiting and len(running) < 4:
        name = waiting.pop(0)
        running[run(name)] = name
    pid, status = os.wait()
    if status:
        print(running.get(pid), "failed with", status, flush=True)
    running.pop(pid, None)
print("all", len(CLASSES))
