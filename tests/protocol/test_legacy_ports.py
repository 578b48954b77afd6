# SPDX-License-Identifier: Apache-2.0
"""The port routes of clients up to 0.10."""
import hashlib
import http.client
import json
import socket

import pytest

from services import free_port, http_service, python

OLD = {"X-Sandbox-Id": None}


@pytest.fixture
def port(api):
    number = free_port(api)
    yield number
    api.delete(f"/api/exposed-ports/{number}")


def expose(api, port, **fields):
    return api.post("/api/expose-port", {"port": port, "sessionId": "s", **fields}, headers=OLD)


def exposed(api):
    response = api.get("/api/exposed-ports?session=s", headers=OLD)
    assert response.status == 200
    return response.json


# ------------------------------------------------------------------ the list


def test_empty_after_start(own_agent):
    _, api = own_agent()
    result = exposed(api)
    assert (result["ports"], result["count"], result["success"]) == ([], 0, True)


def test_expose_answer(api, port):
    response = expose(api, port, name="web")
    assert response.status == 200
    result = response.json
    assert (result["success"], result["port"], result["name"]) == (True, port, "web")
    assert result["url"] == f"http://localhost:{port}"
    assert result["exposedAt"].endswith("Z") and result["timestamp"].endswith("Z")


def test_list(api, port):
    expose(api, port, name="web")
    result = exposed(api)
    entry = next(p for p in result["ports"] if p["port"] == port)
    assert entry["url"] == f"http://localhost:{port}"
    assert (entry["name"], entry["status"]) == ("web", "active")
    assert entry["exposedAt"].endswith("Z")
    assert result["count"] == len(result["ports"])


def test_name_is_optional(api, port):
    assert "name" not in expose(api, port).json


def test_expose_again_is_a_conflict(api, port):
    expose(api, port, name="web")
    response = expose(api, port)
    assert response.status == 409
    error = response.json
    assert error["code"] == "PORT_ALREADY_EXPOSED"
    assert error["context"] == {"port": port, "portName": "web"}


def test_expose_again_by_release_03(api, port):
    for _ in range(2):
        assert api.post("/api/expose-port", {"port": port, "name": "web"}, headers=OLD).status == 200
    assert [p["port"] for p in exposed(api)["ports"]].count(port) == 1


@pytest.mark.parametrize("bad", [0, 65536, -1, 1.5, "8080", None])
def test_bad_numbers(api, bad):
    response = expose(api, bad)
    assert response.status == 400
    assert response.json["code"] == "INVALID_PORT_NUMBER"
    assert response.json["context"]["port"] == bad
    assert response.json["context"]["reason"]


def test_delete(api, port):
    expose(api, port)
    response = api.delete(f"/api/exposed-ports/{port}?session=s", headers=OLD)
    assert response.status == 200
    assert (response.json["success"], response.json["port"]) == (True, port)
    assert port not in [p["port"] for p in exposed(api)["ports"]]
    response = api.delete(f"/api/exposed-ports/{port}?session=s", headers=OLD)
    assert (response.status, response.json["code"]) == (404, "PORT_NOT_EXPOSED")
    assert response.json["context"]["port"] == port


def test_unexpose(api, port):
    expose(api, port)
    response = api.request("DELETE", "/api/unexpose-port", {"port": port}, headers=OLD)
    assert response.status == 200
    assert (response.json["success"], response.json["port"]) == (True, port)
    response = api.request("DELETE", "/api/unexpose-port", {"port": port}, headers=OLD)
    assert (response.status, response.json["error"]) == (404, "Port is not exposed")


def test_too_many(own_agent):
    _, api = own_agent()
    for i in range(1024):
        assert expose(api, 2000 + i).status == 200
    response = expose(api, 5000)
    assert (response.status, response.json["code"]) == (500, "PORT_OPERATION_ERROR")


# ------------------------------------------------------------------ the proxy


@pytest.fixture(scope="module")
def service(api):
    with http_service(api) as (_, number):
        expose(api, number)
        yield number
        api.delete(f"/api/exposed-ports/{number}")


def through(api, method, port, path, body=None, headers=None):
    return api.request(method, f"/proxy/{port}{path}", body, headers={**OLD, **(headers or {})})


def test_one_segment(api, service):
    response = through(api, "GET", service, "")
    assert response.status == 200
    assert response.json["path"] == "/"


def test_query_without_a_path(api, service):
    assert through(api, "GET", service, "?a=1&b=%20").json["path"] == "/?a=1&b=%20"


def test_longer_paths_and_query(api, service):
    assert through(api, "GET", service, "/a/b%2Fc/?q=x%20y&z").json["path"] == "/a/b%2Fc/?q=x%20y&z"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_methods(api, service, method):
    assert through(api, method, service, "/m").json["method"] == method


def test_head(api, service):
    response = through(api, "HEAD", service, "/m")
    assert (response.status, response.body) == (200, b"")
    assert int(response.headers["Content-Length"]) > 0


def test_body_and_headers_arrive(api, service):
    response = through(api, "POST", service, "/x", body="hello", headers={"X-Own": "a, b", "Content-Type": "text/x"})
    seen = response.json
    assert (seen["body"], seen["length"]) == ("hello", 5)
    headers = {k.lower(): v for k, v in seen["headers"].items()}
    assert headers["x-own"] == "a, b"
    assert headers["content-type"] == "text/x"
    assert headers["host"] == f"localhost:{service}"


def test_hop_by_hop_headers_stay_behind(api, service):
    response = through(
        api, "GET", service, "/x", headers={"Connection": "X-Private", "X-Private": "1", "Keep-Alive": "5", "TE": "trailers"}
    )
    sent = {k.lower() for k in response.json["headers"]}
    assert not sent & {"x-private", "keep-alive", "te", "proxy-connection"}
    assert "X-Hop" not in response.headers
    assert response.headers["X-Service"] == "yes"


@pytest.mark.parametrize("status", [201, 204, 301, 404, 500, 503])
def test_status_passes(api, service, status):
    path = "/away" if status == 301 else f"/status/{status}"
    response = through(api, "GET", service, path)
    assert response.status == (302 if status == 301 else status)
    if status == 301:
        assert response.headers["Location"] == "https://away.invalid/"


def test_large_answer(api, service):
    body = through(api, "GET", service, "/big").body
    assert hashlib.md5(body).digest() == hashlib.md5(b"0123456789abcdef" * (1 << 20)).digest()


def test_large_body(api, service):
    seen = through(api, "POST", service, "/up", body=b"x" * (20 << 20)).json
    assert seen["length"] == 20 << 20


def test_chunked_body(api, service):
    connection = http.client.HTTPConnection(*api.address, timeout=60)
    headers = {k: v for k, v in api.headers.items() if k != "X-Sandbox-Id"}
    connection.request("POST", f"{api.prefix}/proxy/{service}/c", body=iter([b"one ", b"two"]), headers=headers, encode_chunked=True)
    response = connection.getresponse()
    assert json.loads(response.read())["body"] == "one two"
    connection.close()


def test_answers_come_as_they_are_made(api, service):
    connection, response = api.open("GET", f"/proxy/{service}/stream", headers=OLD)
    for i in range(3):
        assert response.readline() == b"%d\n" % i
        through(api, "GET", service, "/next")  # only now the next is made
    assert response.read() == b""
    connection.close()


def test_back_pressure(api):
    """A client that reads nothing stops the service, not the memory of the server."""
    script = """
import socket, sys
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(8)
print(s.getsockname()[1], flush=True)
c, _ = s.accept(); c.recv(65536)
c.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 1000000000\\r\\n\\r\\n")
sent = 0
c.settimeout(2)
try:
    while True:
        sent += c.send(b"x" * 65536)
except TimeoutError:
    print("stopped after", sent, flush=True)
"""
    with python(api, script) as (name, line):
        expose(api, int(line))
        connection, response = api.open("GET", f"/proxy/{line}/", headers=OLD)
        api.wait_process(name)
        text = api.get(f"/api/process/{name}/logs").json["stdout"]
        connection.close()
        api.delete(f"/api/exposed-ports/{line}")
    assert "stopped after" in text
    assert int(text.split()[-1]) < 64 << 20


def test_answer_that_breaks_off(api, service):
    connection, response = api.open("GET", f"/proxy/{service}/cut", headers=OLD)
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        response.read()
    connection.close()


def test_no_http(api, service):
    response = through(api, "GET", service, "/garbage")
    assert (response.status, response.json["error"], response.json["port"]) == (502, "Proxy error", service)


def test_not_exposed(api):
    number = free_port(api)
    response = through(api, "GET", number, "/x")
    assert response.status == 404
    assert (response.json["error"], response.json["port"]) == ("Port not found", number)
    assert response.json["message"]


def test_nobody_listens(api, port):
    expose(api, port)
    response = through(api, "GET", port, "/x")
    assert response.status == 502
    assert (response.json["error"], response.json["port"]) == ("Proxy error", port)


@pytest.mark.parametrize("path", ["/proxy/", "/proxy/x", "/proxy/99999/", "/proxy/-1", "/proxy/80x/"])
def test_no_port_at_all(api, path):
    assert api.get(path, headers=OLD).status == 404


def test_client_that_leaves(api, service):
    for _ in range(20):
        with socket.create_connection(api.address) as s:
            s.sendall(f"GET {api.prefix}/proxy/{service}/big HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            s.recv(1000)
    assert through(api, "GET", service, "/x").status == 200
