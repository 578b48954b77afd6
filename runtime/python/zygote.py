# SPDX-License-Identifier: Apache-2.0
"""zygote: loads the data packages and a shell once, then forks one process per context.

Started by the agent with its control socket (SOCK_SEQPACKET) as standard input. Messages are single packets:
  agent -> zygote   {"nonce": "..."} with three descriptors: the context's channel, standard output, standard error
  zygote -> agent   {"ready": true} once; {"pid": n} with the new process's pidfd, or {"error": "..."}, in the order of the
                    requests; {"exit": n, "code": c} when a context has ended (c < 0: by signal -c)
Forking takes some milliseconds, so once there has been a context, one more process waits for its descriptors; it is
forked when nothing else is to be done. The zygote runs no user code and imports nothing from the user's directories.
"""

import gc

gc.disable()  # nothing of what is loaded here will ever be garbage

import _socket  # noqa: E402
import array  # noqa: E402
import collections  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import select  # noqa: E402
import signal  # noqa: E402

from silica_runtime import channel, context  # noqa: E402

SPARE_DELAY_MS = 30
RIGHTS_SPACE = _socket.CMSG_SPACE(4 * 4)

Child = collections.namedtuple("Child", "pid pidfd socket")


def send(socket, message, fds=()):
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    socket.sendmsg([json.dumps(message).encode("ascii")], rights)


def receive(socket):
    """(message, descriptors); the message is None when the other side is gone."""
    try:
        data, ancillary, _, _ = socket.recvmsg(4096, RIGHTS_SPACE, _socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return None, []
    fds = array.array("i")
    for level, kind, payload in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    return (json.loads(data) if data else None), list(fds)


class Zygote:
    def __init__(self, control_fd, shell):
        self.shell = shell
        self.control = _socket.socket(fileno=control_fd)
        self.poll = select.poll()
        self.poll.register(control_fd, select.POLLIN)
        self.children = {}  # pidfd: pid
        self.spare = None
        self.used = False

    def fork(self):
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            for pidfd in self.children:
                os.close(pidfd)
            for socket in (self.control, ours):
                socket.close()
            become_context(self.shell, theirs)
        theirs.close()
        pidfd = os.pidfd_open(pid)
        self.children[pidfd] = pid
        self.poll.register(pidfd, select.POLLIN)
        return Child(pid, pidfd, ours)

    def hand_out(self, nonce, fds):
        """Makes a context of the spare, or of a new process."""
        self.used = True
        while True:
            child, self.spare = self.spare, None
            fresh = child is None
            try:
                child = child or self.fork()
                send(child.socket, {"nonce": nonce}, fds)
            except OSError as e:
                if child and not fresh:
                    continue  # the spare was killed
                send(self.control, {"error": f"fork: {e.strerror}"})
                return
            child.socket.close()
            send(self.control, {"pid": child.pid}, [child.pidfd])
            return

    def reap(self, pidfd):
        self.poll.unregister(pidfd)
        pid = self.children.pop(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        if self.spare and self.spare.pid == pid:
            self.spare = None
        else:
            send(self.control, {"exit": pid, "code": os.waitstatus_to_exitcode(status)})

    def serve(self):
        while True:
            ready = self.poll.poll(SPARE_DELAY_MS if self.used and not self.spare else None)
            if not ready:
                try:
                    self.spare = self.fork()
                except OSError:
                    self.used = False  # no room now; tried again after the next context
            for fd, _ in ready:
                if fd != self.control.fileno():
                    self.reap(fd)
                    continue
                request, fds = receive(self.control)
                if request is None:
                    return
                if len(fds) == 3:
                    self.hand_out(request["nonce"], fds)
                else:
                    send(self.control, {"error": "a request needs three descriptors"})
                for received in fds:
                    os.close(received)


def become_context(shell, socket):
    """In the new process; does not return."""
    code = 1
    try:
        os.setsid()
        new = context.Context(shell)
        new.prepare()
        message, fds = receive(socket)
        socket.close()
        if message is not None:
            os.dup2(fds[1], 1)
            os.dup2(fds[2], 2)
            line, *spares = [channel.move_high(fd) for fd in fds]
            new.serve(channel.Channel(line, message["nonce"]), spares)
        code = 0
    except BaseException:  # the last words of a broken runtime; the agent sees the end itself
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    control = channel.move_high(0)
    os.open("/dev/null", os.O_RDONLY)  # becomes 0
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    shell = context.make_shell()
    context.warm(shell)
    gc.freeze()  # the collector of a context never touches, and so never copies, what all share
    zygote = Zygote(control, shell)
    send(zygote.control, {"ready": True})
    zygote.serve()
