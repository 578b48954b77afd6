#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FUZ-03: compares our JSON reader with Python's, made strict, on generated and mutated documents.

usage: json_differential.py PATH-OF-JSON-TOOL [COUNT [SEED]]

Both must accept or both must reject; what our side writes again must be strict JSON with the same values, the
same order of members and the same numbers to the last bit. The last line is "N passed, M failed".
"""
import json
import math
import random
import subprocess
import sys

MAX_DEPTH = 64


class Rejected(Exception):
    pass


def strict_number(token):
    value = float(token)
    if math.isinf(value):
        raise Rejected("out of range")
    return value


def no_constant(name):
    raise Rejected(name)


class Members(list):
    """The members of an object in order, duplicates included."""


def check(value, depth=0):
    """Rejects what our contract forbids beyond the grammar."""
    if isinstance(value, str):
        if any(c == "\0" or 0xD800 <= ord(c) <= 0xDFFF for c in value):
            raise Rejected("NUL or lone surrogate")
    elif isinstance(value, list):
        if depth == MAX_DEPTH:
            raise Rejected("too deep")
        for child in value:
            if isinstance(value, Members):
                check(child[0], depth + 1)
                child = child[1]
            check(child, depth + 1)


def strict_loads(data):
    try:
        value = json.loads(
            data.decode("utf-8", "strict"),
            parse_constant=no_constant,
            parse_float=strict_number,
            parse_int=strict_number,
            object_pairs_hook=Members,
        )
        check(value)
    except (ValueError, RecursionError) as e:
        raise Rejected(str(e)) from e
    return value


def same(a, b):
    """Equality that tells -0.0 from 0.0, True from 1.0 and an object from an array."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a.hex() == b.hex()
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return a == b


def last_wins(value):
    """The plain value: what a program sees that asks for members by name."""
    if isinstance(value, Members):
        return {k: last_wins(v) for k, v in value}
    if isinstance(value, list):
        return [last_wins(v) for v in value]
    return value


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def space(self):
        r = self.random
        return "".join(r.choice(" \t\r\n") for _ in range(r.choice((0, 0, 0, 0, 1, 1, 3))))

    def digits(self, low, high):
        return "".join(self.random.choice("0123456789") for _ in range(self.random.randint(low, high)))

    def number(self):
        r = self.random
        kind = r.randrange(10)
        if kind < 3:
            return str(r.randint(-1000, 1000))
        if kind == 3:  # neighbours of a double, and the points between them
            value = math.ldexp(r.getrandbits(53) + 2**53, r.randint(-1126, 900))
            return r.choice((repr(value), "%.30g" % value, "%.800g" % value, "%.19e" % value))
        if kind == 4:
            return str(r.getrandbits(r.randint(50, 70)) * r.choice((-1, 1)))
        if kind == 5:  # around the ends of the range
            return "%s.%se%d" % (r.randint(1, 9), self.digits(1, 20), r.choice((-325, -324, -323, -308, 307, 308, 309)))
        text = r.choice(("", "-")) + r.choice(("0", str(r.randint(1, 9)) + self.digits(0, 25)))
        if r.random() < 0.6:
            text += "." + self.digits(1, r.choice((3, 20, 20, 400)))
        if r.random() < 0.5:
            text += r.choice("eE") + r.choice(("", "+", "-")) + self.digits(1, 3)
        return text

    def string(self):
        r = self.random
        parts = []
        for _ in range(r.choice((0, 1, 2, 5, 10, 40))):
            kind = r.randrange(12)
            if kind < 5:
                parts.append("".join(chr(r.randint(0x20, 0x7F)) for _ in range(r.randint(1, 12))))
                parts[-1] = parts[-1].replace("\\", "/").replace('"', "'")
            elif kind == 5:
                parts.append("\\" + r.choice('"\\/bfnrt'))
            elif kind == 6:
                code = r.choice((0x1, 0x1F, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, r.randint(1, 0xD7FF)))
                parts.append(r.choice(("\\u%04x", "\\u%04X")) % code)
            elif kind == 7:
                parts.append("\\u%04x\\u%04x" % (r.randint(0xD800, 0xDBFF), r.randint(0xDC00, 0xDFFF)))
            elif kind == 8:
                parts.append(chr(r.randint(0x10000, 0x10FFFF)))
            elif kind == 9:
                parts.append(chr(r.choice((0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFD, 0xFFFF, 0x2028))))
            else:
                parts.append(chr(r.randint(0xA0, 0x2FFF)))
        return '"' + "".join(parts) + '"'

    def value(self, depth):
        r = self.random
        kind = r.randrange(10 if depth > 0 else 6)
        if kind < 2:
            return self.number()
        if kind < 5:
            return self.string()
        if kind == 5:
            return r.choice(("true", "false", "null"))
        items = [self.value(depth - 1) for _ in range(r.choice((0, 1, 2, 3, 6)))]
        if kind < 8:
            return "[" + self.space() + (self.space() + "," + self.space()).join(items) + self.space() + "]"
        keys = [r.choice(('"a"', '"b"', '""', '"\\u0061"', self.string())) for _ in items]
        members = (k + self.space() + ":" + self.space() + v for k, v in zip(keys, items))
        return "{" + self.space() + (self.space() + "," + self.space()).join(members) + self.space() + "}"

    def document(self):
        r = self.random
        text = self.space() + self.value(r.randrange(5)) + self.space()
        if r.random() < 0.02:  # around the depth limit
            n = r.randint(58, 66)
            left, right = r.choice((("[", "]"), ('{"k":', "}"), ('[0,{"a":', "}]")))
            n = n // left.count("[") // 2 if len(left) > 5 else n
            text = left * n + text + right * n
        return text.encode("utf-8")

    SNIPPETS = [
        b'"', b"\\", b"\\u", b"\\ud800", b"\\udc00", b"\\u0000", b"\\x", b"{", b"}", b"[", b"]", b",", b":", b"-", b"+",
        b".", b"e", b"E", b"0", b"1", b"00", b"1e400", b"NaN", b"Infinity", b"-Infinity", b"true", b"nul", b" ", b"\n",
        b"\f", b"\0", b"\x1f", b"\x7f", b"\x80", b"\xc0\x80", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
        b"\xf0\x9f\x98\x80", b"\xff", b"\xef\xbb\xbf", b"//", b"/**/", b"'", b",]", b",}", b"1.", b".5", b"0x1",
        b"\xc2\xa0", b"\xe2\x80\xa8",
    ]  # fmt: skip

    def mutate(self, data, other):
        r = self.random
        data = bytearray(data)
        for _ in range(r.choice((1, 1, 1, 2, 4))):
            at = r.randint(0, len(data))
            kind = r.randrange(8)
            if kind == 0 and at < len(data):
                data[at] ^= 1 << r.randrange(8)
            elif kind == 1 and at < len(data):
                data[at] = r.randrange(256)
            elif kind == 2:
                del data[at : at + r.randint(1, 4)]
            elif kind in (3, 4):
                data[at:at] = r.choice(self.SNIPPETS)
            elif kind == 5:
                del data[at:]
            elif kind == 6:
                start = r.randint(0, len(data))
                data[at:at] = data[start : start + r.randint(1, 20)]
            else:
                start = r.randint(0, len(other))
                data[at : at + r.randint(0, 10)] = other[start : start + r.randint(1, 20)]
        return bytes(data)


def ask(tool, data):
    """What the tool makes of data: the text written again, or None when it rejects."""
    tool.stdin.write(b"%d\n%s" % (len(data), data))
    tool.stdin.flush()
    answer = tool.stdout.readline().split()
    if answer == [b"reject"]:
        return None
    if len(answer) != 2 or answer[0] != b"ok":
        raise SystemExit("json_differential: the tool died or answered %r to %r" % (answer, data))
    return tool.stdout.read(int(answer[1]))


def compare(data, written):
    """None when all is well, else what is wrong. Also returns whether Python accepts."""
    try:
        expected = strict_loads(data)
    except Rejected as e:
        return (None if written is None else "accepted, but Python rejects: %s" % e), False
    if written is None:
        return "rejected, but Python accepts", True
    try:
        actual = strict_loads(written)
    except Rejected as e:
        return "wrote what is not JSON: %s: %r" % (e, written), True
    if not same(expected, actual):
        return "wrote other values: %r" % written, True
    if last_wins(expected) != last_wins(actual):
        return "another duplicate wins: %r" % written, True
    return None, True


def main():
    path = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 24000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 8259
    generator = Generator(seed)
    passed = failed = accepted = 0
    previous = b"[1]"

    with subprocess.Popen([path, "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tool:
        for i in range(count):
            data = document = generator.document()
            if i % 2:
                data = generator.mutate(document, previous)
            previous = document
            written = ask(tool, data)
            problem, valid = compare(data, written)
            if problem is None and i % 500 < 2:  # the plain way: one text, an exit code
                one = subprocess.run([path], input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                if one.returncode != (0 if valid else 1) or one.stdout != (written or b""):
                    problem = "alone: exit code %d, output %r" % (one.returncode, one.stdout)
            accepted += valid
            if problem is None:
                passed += 1
            else:
                failed += 1
                if failed <= 20:
                    print("%r: %s" % (data, problem))
        tool.stdin.close()
        if tool.wait() != 0:
            failed += 1
            print("the tool ended with exit code %d" % tool.returncode)

    print("%d documents that Python accepts, %d that it rejects (seed %d)" % (accepted, count - accepted, seed))
    if min(accepted, count - accepted) < count // 5:
        failed += 1
        print("one kind is too rare for the comparison to mean much")
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
