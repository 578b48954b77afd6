# SPDX-License-Identifier: Apache-2.0
"""LEAK-15: no byte that nobody has written leaves a program. Builds with sanitizers fill fresh memory with patterns (0xbe on the heap, by the
address sanitizer; 0xfe on the stack, by the compiler), and every answer that a test gets is searched for them."""

PATTERNS = (b"\xbe" * 8, b"\xfe" * 8)


def checked(data):
    """The data, if all of it was written."""
    for pattern in PATTERNS:
        at = data.find(pattern)
        assert at < 0, f"memory that nobody has written, at {at} of {len(data)}: {data[max(at - 60, 0):at + 40]!r}"
    return data
