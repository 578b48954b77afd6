# SPDX-License-Identifier: Apache-2.0
"""POST /api/port-watch."""
import threading
import time

import pytest

from conftest import wait_until
from services import free_port, http_service, python
from streams import EventStream


def watch(api, port, **fields):
    return [e for _, e in api.events("POST", "/api/port-watch", {"port": port, **fields})]


@pytest.fixture(scope="module")
def service(api):
    with http_service(api) as (_, port):
        yield port


def test_http_ready(api, service):
    assert watch(api, service) == [
        {"type": "watching", "port": service},
        {"type": "ready", "port": service, "statusCode": 200},
    ]


def test_tcp_ready_has_no_status(api, service):
    assert watch(api, service, mode="tcp") == [{"type": "watching", "port": service}, {"type": "ready", "port": service}]


def test_path_and_missing_slash(api, service):
    assert watch(api, service, path="status/204")[-1]["statusCode"] == 204


def test_path_with_spaces_and_letters(api, service):
    assert watch(api, service, path="/a b/é?q=1#frag")[-1]["statusCode"] == 200


def test_any_other_mode_is_http(api, service):
    assert watch(api, service, mode="other")[-1]["statusCode"] == 200


def test_status_range(api, service):
    assert watch(api, service, path="/status/404", statusMin=400, statusMax=404)[-1]["statusCode"] == 404


def test_redirects_are_followed(api, service):
    assert watch(api, service, path="/redirect/3", statusMax=299)[-1]["statusCode"] == 200
    assert watch(api, service, path="/absolute", statusMax=299)[-1]["statusCode"] == 204


def test_redirects_that_leave_count_as_they_are(api, service):
    assert watch(api, service, path="/away")[-1]["statusCode"] == 302


def test_too_many_redirects_end_as_redirect(api, service):
    assert watch(api, service, path="/redirect/9")[-1]["statusCode"] == 302


@pytest.mark.parametrize("path", ["/status/500", "/status/404", "/garbage"])
def test_not_yet(api, service, path):
    with EventStream(api, "/api/port-watch", {"port": service, "path": path, "interval": 100}) as stream:
        assert stream.next()["type"] == "watching"
        stream.nothing_for(0.8)


def test_ipv6_loopback(api):
    with http_service(api, six=True) as (_, port):
        assert watch(api, port)[-1]["type"] == "ready"
        assert watch(api, port, mode="tcp")[-1]["type"] == "ready"


def test_ready_when_the_service_appears(api):
    port = free_port(api)
    with EventStream(api, "/api/port-watch", {"port": port, "interval": 100}) as stream:
        assert stream.next() == {"type": "watching", "port": port}
        with http_service(api, port=port):
            assert stream.next() == {"type": "ready", "port": port, "statusCode": 200}
            assert stream.next() is None


def test_interval_is_at_least_100_ms(api):
    script = """
import socket, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(64)
print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept(); print(time.monotonic(), flush=True); c.close()
"""
    with python(api, script) as (name, port):
        def times():
            return [float(t) for t in api.get(f"/api/process/{name}/logs").json["stdout"].split("\n")[1:] if t]

        with EventStream(api, "/api/port-watch", {"port": int(port), "interval": 1}):
            wait_until(lambda: len(times()) > 5, "attempts")
        seen = times()
    assert min(b - a for a, b in zip(seen, seen[1:])) > 0.09


def test_a_stalled_service_is_not_ready_and_does_not_stop_others(api, service):
    with EventStream(api, "/api/port-watch", {"port": service, "path": "/stall", "interval": 100}) as stream:
        stream.next()
        assert watch(api, service)[-1]["type"] == "ready"
        stream.nothing_for(1)


def test_unknown_process(api, service):
    assert watch(api, service, processId="no such") == [
        {"type": "watching", "port": service},
        {"type": "error", "port": service, "error": "Process not found"},
    ]


def test_finished_process(api, service, process_id):
    api.start("exit 3", "__DISABLE_SESSION__", processId=process_id, cwd="/")
    api.wait_process(process_id)
    assert watch(api, service, processId=process_id)[-1] == {"type": "process_exited", "port": service, "exitCode": 3}


def test_process_that_serves(api, process_id):
    with http_service(api, process_id) as (name, port):
        assert name == process_id
        assert watch(api, port, processId=process_id)[-1]["type"] == "ready"


def test_exit_is_noticed_at_once(api, process_id):
    port = free_port(api)
    api.start("sleep 0.5; exit 7", "__DISABLE_SESSION__", processId=process_id, cwd="/")
    begin = time.monotonic()
    events = watch(api, port, processId=process_id, interval=10000)
    assert events[-1] == {"type": "process_exited", "port": port, "exitCode": 7}
    assert time.monotonic() - begin < 9  # before the next look at the port


def test_a_watch_holds_nothing_back(api, process_id):
    """The command's output is not waited for by those who only wait for its port."""
    port = free_port(api)
    api.start("head -c 20000000 /dev/zero | tr '\\0' x; exit 4", "__DISABLE_SESSION__", processId=process_id, cwd="/")
    assert watch(api, port, processId=process_id)[-1]["exitCode"] == 4


@pytest.mark.parametrize("port", [0, 65536, -1, 1.5, "80", None])
def test_ports_that_are_none(api, port):
    events = watch(api, port)
    assert [e["type"] for e in events] == ["watching", "error"]


def test_no_json(api):
    response = api.post("/api/port-watch", "{")
    assert response.status == 500
    assert response.json["code"] == "INTERNAL_ERROR"


def test_many_watches_at_once(api):
    port = free_port(api)
    ended = []

    def follow():
        ended.append(watch(api, port, interval=100)[-1])

    threads = [threading.Thread(target=follow) for _ in range(50)]
    for thread in threads:
        thread.start()
    with http_service(api, port=port):
        for thread in threads:
            thread.join(60)
    assert ended == [{"type": "ready", "port": port, "statusCode": 200}] * 50
