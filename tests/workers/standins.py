# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for the two services the examples call: a language model that says what a test tells it to, and GitHub, with
repositories served over http by git itself."""
import http.server
import json
import os
import shutil
import subprocess
import tempfile
import threading

ADDRESS = "192.0.2.1"  # on the loopback of our own network: outside from a sandbox's point of view
GIT_ENV = {"GIT_AUTHOR_NAME": "Test", "GIT_AUTHOR_EMAIL": "test@example.org", "GIT_COMMITTER_NAME": "Test",
           "GIT_COMMITTER_EMAIL": "test@example.org", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "PATH": os.environ["PATH"]}


def text(value):
    return {"type": "text", "text": value}


def tool(name, **arguments):
    return {"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": arguments}


class Services(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="silica-git-")
        self.reset()
        super().__init__((ADDRESS, 0), Handler)
        self.url = f"http://{ADDRESS}:{self.server_port}"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def reset(self):
        self.answers, self.asked, self.comments = [], [], []

    def say(self, *blocks):
        """One more answer of the model; they are given in this order."""
        self.answers.append(list(blocks))

    def repository(self, name, *commits):
        """A repository with a commit per dict of {path: content}; gives its URL and the hashes."""
        bare, tree, hashes = f"{self.dir}/{name}.git", f"{self.dir}/{name}", []

        def git(*args):
            return subprocess.run(["git", *args], cwd=tree, env=GIT_ENV, check=True, capture_output=True, text=True).stdout.strip()

        os.makedirs(tree)
        git("init", "-q", "-b", "main")
        for i, files in enumerate(commits):
            for path, content in files.items():
                os.makedirs(os.path.dirname(f"{tree}/{path}") or tree, exist_ok=True)
                with open(f"{tree}/{path}", "w") as f:
                    f.write(content)
            git("add", "-A")
            git("commit", "-q", "-m", f"commit {i + 1}")
            hashes.append(git("rev-parse", "HEAD"))
        git("clone", "-q", "--bare", tree, bare)
        return f"{self.url}/git/{name}.git", hashes

    def close(self):
        self.shutdown()
        self.server_close()
        shutil.rmtree(self.dir, ignore_errors=True)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_one(self):
        path, body = self.path.split("?")[0], self.body()
        if path.startswith("/git/"):
            return self.git(body)
        if path == "/v1/messages" and self.command == "POST":
            return self.message(json.loads(body))
        if path.startswith("/repos/") and path.endswith("/comments") and self.command == "POST":
            self.server.comments.append({"path": path, "authorization": self.headers.get("Authorization"), **json.loads(body)})
            return self.answer(201, {"id": len(self.server.comments)})
        return self.answer(404, {"message": "Not Found"})

    do_GET = do_POST = handle_one

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        data = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def message(self, request):
        self.server.asked.append({**request, "key": self.headers.get("x-api-key")})
        if not self.server.answers:
            return self.answer(529, {"type": "error", "error": {"type": "overloaded_error", "message": "the test has said nothing more"}})
        content = self.server.answers.pop(0)
        called = any(block["type"] == "tool_use" for block in content)
        self.answer(200, {"id": "msg_1", "type": "message", "role": "assistant", "model": request["model"], "content": content,
                          "stop_reason": "tool_use" if called else "end_turn", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}})

    def git(self, body):
        path, _, query = self.path.removeprefix("/git").partition("?")
        env = {**GIT_ENV, "GIT_PROJECT_ROOT": self.server.dir, "GIT_HTTP_EXPORT_ALL": "1", "REQUEST_METHOD": self.command, "PATH_INFO": path,
               "QUERY_STRING": query, "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
               "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""), "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
               "REMOTE_ADDR": self.client_address[0]}
        out = subprocess.run(["git", "-c", "safe.directory=*", "http-backend"], input=body, env=env, capture_output=True).stdout
        head, _, content = out.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.send(int(fields.pop("Status", "200").split()[0]), fields, content)

    def answer(self, status, value):
        self.send(status, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def send(self, status, headers, content):
        self.send_response(status)
        for k, v in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(k, v)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass
