# SPDX-License-Identifier: Apache-2.0
"""What the tests of the file routes share."""
import base64
import re

NO_SESSION = "__DISABLE_SESSION__"
STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")


def sh(api, command, **fields):
    """Runs a command that must succeed, outside of every session."""
    result = api.run(command, sessionId=NO_SESSION, **fields)
    assert result["exitCode"] == 0, result["stderr"]
    return result["stdout"].removesuffix("\n")


def call(api, route, status=200, **body):
    body.setdefault("sessionId", NO_SESSION)
    response = api.post(f"/api/{route}", body)
    assert response.status == status, response.body[:500]
    assert response.headers["Content-Type"] == "application/json"
    return response.json


def fails(api, route, status, code, **body):
    error = call(api, route, status, **body)
    assert error["code"] == code
    assert error["httpStatus"] == status
    assert error["message"] and error["error"] == error["message"]
    assert STAMP.match(error["timestamp"])
    if "operation" in error["context"]:
        assert error["operation"] == error["context"]["operation"]
    return error


def write(api, path, content, **fields):
    if isinstance(content, bytes):
        fields["encoding"] = "base64"
        content = base64.b64encode(content).decode()
    return call(api, "write", path=path, content=content, **fields)


def read(api, path, **fields):
    return call(api, "read", path=path, **fields)


def names(api, path, **options):
    return sorted(f["relativePath"] for f in call(api, "list-files", path=path, options=options)["files"])
