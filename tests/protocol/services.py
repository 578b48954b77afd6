# SPDX-License-Identifier: Apache-2.0
"""Small services that run inside the sandbox."""
import contextlib
import json

# Answers by path; prints its port. Every request is logged as one line "METHOD PATH".
HTTP = r"""
import http.server, json, sys, threading, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wanted = threading.Semaphore(0)  # pieces of /stream

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while True:
                size = int(self.rfile.readline(), 16)
                parts.append(self.rfile.read(size))
                self.rfile.readline()
                if not size:
                    return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def handle_any(self):
        path, _, query = self.path.partition("?")
        body = self.body()
        print(self.command, self.path, flush=True)
        port = self.server.server_address[1]
        if path.startswith("/status/"):
            self.answer(int(path[8:]), b"x")
        elif path.startswith("/redirect/"):
            left = int(path[10:])
            self.answer(302, Location=f"/redirect/{left - 1}" if left else "/status/200")
        elif path == "/away":
            self.answer(302, Location="https://away.invalid/")
        elif path == "/absolute":
            self.answer(301, Location=f"http://127.0.0.1:{port}/status/204")
        elif path == "/stall":
            time.sleep(3600)
        elif path == "/cut":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")
            self.wfile.flush()
            self.close_connection = True
        elif path == "/garbage":
            self.wfile.write(b"this is not http\r\n\r\n")
            self.close_connection = True
        elif path == "/big":
            self.answer(200, b"0123456789abcdef" * (1 << 20))
        elif path == "/stream":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for i in range(3):
                self.wfile.write(b"2\r\n%d\n\r\n" % i)
                self.wfile.flush()
                self.wanted.acquire(timeout=60)
            self.wfile.write(b"0\r\n\r\n")
        elif path == "/next":
            self.wanted.release()
            self.answer(200)
        else:
            text = json.dumps({"method": self.command, "path": self.path, "length": len(body),
                               "body": body[:1000].decode("latin-1"), "headers": dict(self.headers)})
            self.answer(200, text.encode(), Content_Type="application/json", X_Service="yes",
                        Connection="X-Hop", X_Hop="1")

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = handle_any

    def log_message(self, *_):
        pass

import socketserver
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    address_family = ADDRESS_FAMILY
server = Server((ADDRESS, PORT), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@contextlib.contextmanager
def python(api, script, process_id=None):
    """Runs a script in the sandbox; yields (process id, first line it prints)."""
    fields = {"processId": process_id} if process_id else {}
    # sessionless: no shell of a session that could get in the way
    started = api.start(f"exec python3 -u - <<'END'\n{script}\nEND\n", "__DISABLE_SESSION__", cwd="/", **fields)
    name = started["processId"]
    connection, response = api.open("GET", f"/api/process/{name}/stream")
    try:
        text = ""
        while "\n" not in text:
            line = response.readline()
            assert line, "the service ended"
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                assert event["type"] != "exit", api.get(f"/api/process/{name}/logs").json
                text += event["data"] if event["type"] == "stdout" else ""
    finally:
        connection.close()
    try:
        yield name, text.split("\n")[0]
    finally:
        api.delete(f"/api/process/{name}")


@contextlib.contextmanager
def http_service(api, process_id=None, port=0, six=False):
    """A web server in the sandbox; yields (process id, port)."""
    script = HTTP.replace("ADDRESS_FAMILY", "__import__('socket').AF_INET6" if six else "__import__('socket').AF_INET")
    script = script.replace("ADDRESS", "'::1'" if six else "'127.0.0.1'").replace("PORT", str(port))
    with python(api, script, process_id) as (name, line):
        yield name, int(line)


def free_port(api):
    """A port of the sandbox on which nobody listens, nor will: the kernel gives none of these to outgoing connections."""
    code = """
import random, socket
while True:
    s = socket.socket()
    try:
        s.bind(("127.0.0.1", random.randrange(20000, 32000)))
    except OSError:
        continue
    print(s.getsockname()[1])
    break
"""
    return int(api.out(f"python3 -c '{code}'", "__DISABLE_SESSION__", cwd="/"))
