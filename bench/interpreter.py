#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""interpreter: how long code contexts take, and what they weigh.

    SILICA_AGENT=build/bin/silica-agent [SILICA_DATA=/var/lib/silica] bench/interpreter.py

Starts the agent as a plain program with the Python of this machine and the Node packages of the base image, and compares the
first Python context with a bare import of the same packages. Times are milliseconds.
"""
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "protocol"))

from conftest import start_agent  # noqa: E402
from interpreter import find_python, prepare  # noqa: E402

IMPORTS = "import numpy, pandas, matplotlib.pyplot, IPython.core.interactiveshell"


class Client:
    """One kept connection and nothing that takes time of its own."""

    def __init__(self, address):
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, path, body):
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nX-Sandbox-Id: bench\r\nContent-Length: {len(data)}\r\n\r\n"
        begin = time.perf_counter()
        self.socket.sendall(head.encode() + data)
        answer = b""
        while not self.complete(answer):
            answer += self.socket.recv(1 << 20)
        return (time.perf_counter() - begin) * 1e3, answer

    @staticmethod
    def complete(answer):
        head, found, body = answer.partition(b"\r\n\r\n")
        if not found:
            return False
        if b"chunked" in head:
            return body.endswith(b"0\r\n\r\n")
        length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        return len(body) >= int(length.split(b":")[1])

    def create(self, language):
        took, answer = self.send("/api/contexts", {"language": language})
        assert b" 200 " in answer[:20], answer
        return took, json.loads(answer.partition(b"\r\n\r\n")[2])["contextId"]

    def run(self, context, code):
        return self.send("/api/execute/code", {"context_id": context, "code": code})


def show(name, times):
    times = sorted(times)
    print(f"{name:<44} p50 {statistics.median(times):8.2f}   p90 {times[int(len(times) * 0.9)]:8.2f}   n {len(times)}")


def bare_import(python, environment):
    begin = time.perf_counter()
    subprocess.run([python, "-c", IMPORTS], env=environment, check=True)
    return (time.perf_counter() - begin) * 1e3


def private_kib(pid):
    return sum(int(line.split()[1]) for line in open(f"/proc/{pid}/smaps_rollup") if line.startswith("Private"))


def main():
    with tempfile.TemporaryDirectory() as directory:
        environment = prepare(pathlib.Path(directory))
        python = find_python()
        bare_import(python, environment)  # the first one also reads the disk
        bare, first = [], []
        for last in (False, False, True):  # interleaved: the machine is the same for both
            bare.append(bare_import(python, environment))
            process, api = start_agent(environment=environment)
            client = Client(api.address)
            first.append(client.create("python")[0])
            if not last:
                process.terminate()
                process.communicate()
        show("bare import of the same packages", bare)
        show("first Python context", first)
        print(f"{'':<44} ratio {statistics.median(first) / statistics.median(bare):.2f}")
        for language in ("javascript", "typescript"):  # nothing is known yet about how many will be asked for
            other, other_api = start_agent(environment=environment)
            fresh = Client(other_api.address)
            fresh.create(language)
            time.sleep(1)
            show(f"{language} contexts 2 to 6, back to back", [fresh.create(language)[0] for _ in range(5)])
            other.terminate()
            other.communicate()
        for language, pause in (("python", 0.1), ("javascript", 0.5), ("typescript", 0.8)):
            if language != "python":
                show(f"first {language} context", [client.create(language)[0]])
            spaced = []
            for _ in range(10):
                time.sleep(pause)
                took, context = client.create(language)
                spaced.append(took)
            show(f"further {language} context, {int(pause * 1000)} ms apart", spaced)
            show(f"further {language} context, back to back", [client.create(language)[0] for _ in range(5)])
            time.sleep(0.5)
            show(f"{language}: 1+1", [client.run(context, "1+1")[0] for _ in range(500)])
        _, context = client.create("python")
        _, answer = client.run(context, "import os; os.getpid()")
        pid = int(json.loads(answer.partition(b"data: ")[2].partition(b"\n")[0])["text"])
        print(f"{'a further Python context after one run':<44} {private_kib(pid)} KiB private")
        process.terminate()
        process.communicate()


if __name__ == "__main__":
    main()
