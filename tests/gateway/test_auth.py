# SPDX-License-Identifier: Apache-2.0
"""Who is let in (catalogue area 10)."""
import re

import pytest
from conftest import TOKEN, example, routes

# everything the router knows, and what it does not
ROUTES = [(method or "POST", example(pattern)) for method, pattern, flags in routes() if "ROUTE_OPEN" not in flags] + [
    ("OPTIONS", "/v1/sandbox/x/api/execute"),
    ("POST", "/v1/sandbox"),
    ("GET", "/"),
    ("GET", "/nowhere"),
    ("GET", "/v1/sandbox/..%2f"),
    ("POST", "/health"),
]

BAD = [
    {},
    {"Authorization": ""},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer wrong"},
    {"Authorization": f"Bearer {TOKEN}x"},
    {"Authorization": f"Bearer {TOKEN[:-1]}"},
    {"Authorization": f"Basic {TOKEN}"},
    {"Authorization": TOKEN},
    {"Authorization": "Bearer " + "x" * 8000},
    {"X-Authorization": f"Bearer {TOKEN}"},
    {"Cookie": f"token={TOKEN}"},
]


@pytest.mark.parametrize("method,path", ROUTES)
def test_AUTH_01_02_every_route_wants_a_token(gateway, method, path):
    bodies = set()
    for headers in BAD:
        a = gateway.ask(method, path, headers=headers, token=False)
        assert a.status == 401, (headers, a)
        assert a.headers["WWW-Authenticate"] == "Bearer"
        if method != "HEAD":
            assert a.error()["code"] == "UNAUTHORIZED"
        bodies.add(re.sub(rb'"timestamp":"[^"]*"', b"", a.body))
    assert len(bodies) == 1, "all refusals are the same"


def test_AUTH_02_only_health_is_open():
    assert [pattern for _, pattern, flags in routes() if "ROUTE_OPEN" in flags] == ["/health"]


def test_AUTH_01_the_token_in_the_query_is_nothing(gateway):
    assert gateway.get(f"/v1/sandbox?token={TOKEN}&access_token={TOKEN}", token=False).status == 401


def test_AUTH_01_two_headers_are_refused(gateway):
    line = f"Authorization: Bearer {TOKEN}\r\n"
    answer = gateway.raw(f"GET /v1/sandbox HTTP/1.1\r\nHost: x\r\n{line}{line}Connection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 401 ")
    answer = gateway.raw(f"GET /v1/sandbox HTTP/1.1\r\nHost: x\r\n{line}Connection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_AUTH_01_scheme_and_header_in_any_case(gateway):
    for name, scheme in (("authorization", "bearer"), ("AUTHORIZATION", "BEARER"), ("Authorization", "Bearer")):
        assert gateway.get("/v1/sandbox", headers={name: f"{scheme} {TOKEN}"}, token=False).status == 200


def test_AUTH_01_refused_requests_create_nothing(gateway):
    assert gateway.api("never-made", "execute", method="POST", body="{}", token=False).status == 401
    assert gateway.get("/v1/sandbox/never-made").status == 404


def test_health_is_open(gateway):
    a = gateway.get("/health", token=False)
    assert a.status == 200
    h = a.json()
    assert h["status"] == "ok" and h["version"] and isinstance(h["sandboxes"], int)
    head = gateway.ask("HEAD", "/health", token=False)
    assert head.status == 200 and head.body == b""


# ---------------------------------------------------------------- without tokens

def test_off_needs_no_token(open_gateway):
    assert open_gateway.get("/v1/sandbox", token=False).status == 200


@pytest.mark.parametrize("host", ["localhost", "localhost:{port}", "127.0.0.1:{port}", "[::1]:{port}"])
def test_off_local_hosts(open_gateway, host):
    assert open_gateway.get("/v1/sandbox", headers={"Host": host.format(port=open_gateway.port)}).status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "[::1].x",
                                  "evil.example:{port}", "127.0.0.2", "localhost.", "0.0.0.0"])
@pytest.mark.parametrize("path", ["/v1/sandbox", "/v1/sandbox/x/api/ping", "/health"])
def test_AUTH_10_off_foreign_hosts(open_gateway, host, path):
    a = open_gateway.get(path, headers={"Host": host.format(port=open_gateway.port)})
    assert a.status in (400, 403)
    assert open_gateway.get("/v1/sandbox/x").status == 404


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "https://localhost:{port}"])
def test_AUTH_11_off_foreign_origins(open_gateway, origin):
    headers = {"Origin": origin.format(port=open_gateway.port), "Host": f"localhost:{open_gateway.port}"}
    for method, path in ROUTES:
        a = open_gateway.ask(method, path, headers=headers)
        assert a.status == 403, (method, path, a)
        assert not [h for h in a.headers if h.lower().startswith("access-control")]
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json"):
        a = open_gateway.api("x", "execute", method="POST", body='{"command":"id"}',
                             headers={**headers, "Content-Type": kind})
        assert a.status == 403
    assert open_gateway.get("/v1/sandbox/x").status == 404


def test_off_own_origin(open_gateway):
    host = f"localhost:{open_gateway.port}"
    assert open_gateway.get("/v1/sandbox", headers={"Host": host, "Origin": f"http://{host}"}).status == 200


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded",
                                  "multipart/form-data; boundary=x"])
def test_AUTH_11_off_bodies_need_a_type(open_gateway, kind):
    headers = {"Content-Type": kind} if kind else {}
    for method, path in (("PUT", "/v1/sandbox/typed"), ("POST", "/v1/sandbox/typed/api/execute")):
        a = open_gateway.ask(method, path, body="{}", headers=headers)
        assert a.status == 415 and a.error()["code"] == "UNSUPPORTED_MEDIA_TYPE"
    assert open_gateway.get("/v1/sandbox/typed").status == 404


def test_AUTH_11_off_cross_site_without_origin(open_gateway):
    for site in ("cross-site", "same-site"):
        assert open_gateway.get("/v1/sandbox/x/api/ping", headers={"Sec-Fetch-Site": site}).status == 403


def test_AUTH_12_off_preflight_gets_nothing(open_gateway):
    for method, path in ROUTES:
        a = open_gateway.ask("OPTIONS", path, headers={
            "Origin": "http://evil.example", "Access-Control-Request-Method": method})
        assert a.status == 403
        assert not [h for h in a.headers if h.lower().startswith("access-control")]


def test_AUTH_12_off_cors_of_the_agent_is_dropped(open_gateway, gateway):
    a = open_gateway.api("cors", "headers")
    assert a.status == 200
    assert not [h for h in a.headers if h.lower().startswith("access-control")]
    with_token = gateway.api("cors", "headers").headers
    assert with_token["Access-Control-Allow-Origin"] == "*", "which says nothing to a browser that has no token"
    assert "Access-Control-Allow-Credentials" not in with_token
