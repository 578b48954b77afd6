# SPDX-License-Identifier: Apache-2.0
"""REC-15: the nth allocation of a program fails, for n = 1, 2, ... until a request needs no more. Builds with failpoints count in the file
that SILICA_ALLOC names (src/base/failpoint_alloc.c)."""
import struct

ENOUGH = 400  # allocations that one request may need


class Allocations:
    def __init__(self, path):
        self.path = str(path)
        open(self.path, "wb").close()
        self.fail_in(-1)

    def fail_in(self, n):
        with open(self.path, "r+b") as f:
            f.write(struct.pack("=q", n))

    def left(self):
        with open(self.path, "rb") as f:
            return struct.unpack("=q", f.read(8))[0]

    def each(self, request):
        """Calls request() once for every allocation it makes; returns how many there were."""
        for n in range(1, ENOUGH):
            self.fail_in(n)
            request(n)
            left = self.left()
            self.fail_in(-1)
            if left > 0:
                return n - 1
        raise AssertionError(f"a request needs more than {ENOUGH} allocations")
