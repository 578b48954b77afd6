# SPDX-License-Identifier: Apache-2.0
"""An event stream that stays open while a test does something else."""
import json

import pytest


class EventStream:
    def __init__(self, api, path, body, headers=None, timeout=60):
        self.connection, self.response = api.open("POST", path, body, headers, timeout)
        assert self.response.status == 200, self.response.read()[:500]
        self.seen = []

    def next(self):
        """The next event, or None at the end."""
        while True:
            line = self.response.readline()
            if not line:
                return None
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                self.seen.append(event)
                return event

    def until(self, wanted):
        """Reads up to the first event for which wanted(event) is true; returns all that were read, it included."""
        first = len(self.seen)
        while True:
            event = self.next()
            assert event is not None, f"the stream ended: {self.seen[first:]}"
            if wanted(event):
                return self.seen[first:]

    def nothing_for(self, seconds):
        """Nothing comes in this time. The stream cannot be read afterwards."""
        self.connection.sock.settimeout(seconds)
        with pytest.raises(TimeoutError):
            self.next()

    def rest(self):
        first = len(self.seen)
        while self.next() is not None:
            pass
        return self.seen[first:]

    def close(self):
        self.response.close()
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
