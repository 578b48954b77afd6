# SPDX-License-Identifier: Apache-2.0
"""Previews against nginx as a reverse proxy: the same small service behind both, the same load in front."""
import base64
import os
import shutil
import socket
import statistics
import subprocess
import urllib.parse

from harness import OUT

WEB = os.path.join(OUT, "web")
PORT = 8090
NGINX = """worker_processes {workers}; pid {dir}/nginx.pid; error_log {dir}/error.log; daemon off;
events {{ worker_connections 4096; }}
http {{
    access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;
    uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s; keepalive_requests 10000000;
    upstream service {{ server 127.0.0.1:{service}; keepalive 128; keepalive_requests 10000000; }}
    map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
    server {{ listen 127.0.0.1:{port}; location / {{
        proxy_pass http://service; proxy_http_version 1.1; proxy_set_header Host $http_host;
        proxy_set_header Connection $connection_upgrade; proxy_set_header Upgrade $http_upgrade;
        proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Proto $scheme;
        proxy_set_header X-Forwarded-Host $http_host; }} }}
}}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def port_open(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def started(host, argv, port):
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    host.undo.append(lambda: (process.terminate(), process.wait()))
    host.silica.wait_for(lambda: port_open(port) or process.poll() is not None, 20, f"{argv[0]} on port {port}")
    if process.poll() is not None:
        raise RuntimeError(f"{argv[0]} ended: {process.stderr.read().decode()}")
    return process.pid


def nginx(host, service):
    directory, port = os.path.join(host.dir, "nginx"), free_port()
    os.makedirs(directory)
    with open(directory + "/nginx.conf", "w") as f:
        f.write(NGINX.format(dir=directory, service=service, port=port, workers=1))
    started(host, [shutil.which("nginx") or "/usr/sbin/nginx", "-p", directory, "-c", directory + "/nginx.conf"], port)
    return port


def exposed(host, daemon):
    """The service inside a sandbox with room, behind a preview; the port of the gateway and the name."""
    daemon.request("PUT", "/v1/sandbox/web", {"limits": {"cpu": 2, "memory": "1G"}})
    with open(WEB, "rb") as f:
        data = base64.b64encode(f.read()).decode()
    r = daemon.request("POST", "/v1/sandbox/web/api/write", {"path": "/workspace/web", "content": data, "encoding": "base64"})
    assert r.status == 200, r.body
    daemon.exec("web", "chmod 755 /workspace/web")
    daemon.request("POST", "/v1/sandbox/web/api/process/start", {"command": f"exec /workspace/web serve {PORT}", "processId": "web"})
    r = daemon.request("POST", "/v1/sandbox/web/ports", {"port": PORT})
    assert r.status in (200, 201), r.body
    host.silica.wait_for(lambda: any(p["port"] == PORT for p in daemon.request("GET", "/v1/sandbox/web/ports/listening").json["ports"]), 20, "the service")
    return daemon.port, urllib.parse.urlsplit(r.json["url"]).netloc


def service_inside(host, daemon):
    """The service in the sandbox: its pid, its groups."""
    def comm(p):
        with open(f"/proc/{p}/comm") as f:
            return f.read().strip()

    return next((p, g) for p, g in host.silica.sandbox_processes(daemon).items() if comm(p) == "web")


def same_weight(host, daemon, pid):
    """Moves a process into the cpu group of the service in the sandbox, so that a busy machine slows both services alike."""
    for line in service_inside(host, daemon)[1].splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            mounts = [m.split() for m in open("/proc/self/mountinfo") if " - cgroup " in m and "cpu" in m.split()[-1].split(",")]
            with open(mounts[0][4] + path + "/cgroup.procs", "w") as f:
                f.write(str(pid))
            return
    host.report.note("the services could not be given the same cpu weight")


def web(*words, cpus=None):
    place = (lambda: os.sched_setaffinity(0, cpus)) if cpus else None
    r = subprocess.run([WEB, *map(str, words)], capture_output=True, text=True, timeout=120, preexec_fn=place)
    if r.returncode != 0:
        raise RuntimeError(f"web {' '.join(map(str, words))}: {r.stderr.strip()}")
    count, elapsed, p50, p99 = map(int, r.stdout.split())
    return count / (elapsed / 1e9), p50 / 1e3, p99 / 1e3


def interleaved(doors, rounds, measure):
    """{door: (rate, p50, p99)}: medians over rounds in which each door has its turn."""
    seen = {name: [] for name in doors}
    for i in range(rounds):
        names = list(doors)
        for name in names[i % len(names):] + names[:i % len(names)]:
            seen[name].append(measure(*doors[name]))
    return {name: tuple(statistics.median(v[k] for v in values) for k in range(3)) for name, values in seen.items()}


def echoes(host, doors, services):
    """A message there and back. Where client and service happen to share a cpu, nobody has to be woken on another one, which is most
    of the time that a message takes otherwise, and whether they do changes from run to run. So once wherever the kernel puts them, to look at,
    and once apart, as the two are when they are two machines, to compare."""
    rows = []
    cpus = sorted(os.sched_getaffinity(0))
    for size in (64, 16384):
        for where, client, service in (("anywhere", cpus, cpus), ("apart", cpus[:1], cpus[1:])):
            if not service:
                continue
            for pid in services:
                os.sched_setaffinity(pid, service)
            result = interleaved(doors, host.amount(7, 3), lambda port, name: web("echo", port, name, size, host.amount(20000, 3000), cpus=client))
            for name, (_, p50, p99) in result.items():
                rows.append([f"{size} bytes, {where}, {name}", p50, p99, p50 / result["direct"][1]])
            if where == "apart":
                host.report.target(f"WebSocket echo of {size} bytes / direct, client and service apart, p50", result["silica"][1] / result["direct"][1], 1.2, "x")
    host.report.table("Echo through an upgraded connection, one message at a time", ["", "p50 µs", "p99 µs", "x direct"], rows)


def previews(host):
    report = host.report
    report.heading("previews")
    report.note("a static C service (1 KiB answers) directly, behind nginx (one worker, kept upstream connections, no log), and "
                "inside a sandbox behind a preview; the same requests to all of them, both services in one cpu group, one-threaded load on the "
                "same machine")
    daemon = host.daemon(0)
    service = free_port()
    pid = started(host, [WEB, "serve", str(service)], service)
    gateway, name = exposed(host, daemon)
    # the same request through every door: a service's work grows with the head it gets
    doors = {"direct": (service, name), "nginx": (nginx(host, service), name), "silica": (gateway, name)}
    same_weight(host, daemon, pid)
    try:
        rows = []
        for connections in (1, 8, 64):
            ms = host.amount(500, 200)  # many short turns: which processes share a cpu changes from turn to turn, and the rate with it
            result = interleaved(doors, host.amount(21, 7), lambda port, name: web("load", port, name, connections, ms))
            for name, (rate, p50, p99) in result.items():
                rows.append([f"{connections} connections, {name}", rate, rate / result["nginx"][0], p50, p99])
            report.target(f"preview requests/s at {connections} connections / nginx", result["silica"][0] / result["nginx"][0], 1.0, "x", True)
            report.target(f"preview p99 at {connections} connections / nginx", result["silica"][2] / result["nginx"][2], 1.0, "x")
        report.table("Requests of 1 KiB", ["", "requests/s", "x nginx", "p50 µs", "p99 µs"], rows)
        echoes(host, doors, (pid, service_inside(host, daemon)[0]))
    finally:
        daemon.destroy("web")
