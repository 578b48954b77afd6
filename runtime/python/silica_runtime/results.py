# SPDX-License-Identifier: Apache-2.0
"""results: from MIME bundles to result events, within limits.

One event per representation, each with exactly one format key; what belongs to all of them (the bundle of the textual
representations as `data`, the chart) rides on the first.
"""

import base64

from .channel import encode_json

CHART_MIME = "application/vnd.silica.chart+json"
TABLE_MIME = "application/vnd.dataresource+json"

TEXT_MAX = 1 << 20  # characters; longer text is cut
VALUE_MAX = 8 << 20  # characters of any other representation; a longer one is left out
DATA_MAX = 256 << 10  # characters of a representation repeated inside `data`
DEPTH_MAX = 40  # the agent reads 64
VALUES_MAX = 200000  # numbers, strings, ... of one JSON value
NUMBER_MAX = 10**300
COUNT_MAX = 1000  # results of one run

_FORMATS = (
    ("png", "image/png"),
    ("jpeg", "image/jpeg"),
    ("svg", "image/svg+xml"),
    ("html", "text/html"),
    ("json", "application/json"),
    ("latex", "text/latex"),
    ("markdown", "text/markdown"),
    ("javascript", "application/javascript"),
)
_BINARY = ("image/png", "image/jpeg", "image/gif", "application/pdf")


def clean(text):
    """Text which survives JSON: lone surrogates become U+FFFD."""
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def cut(text, limit=TEXT_MAX):
    text = clean(str(text))
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut: {len(text)} characters, {limit} shown]"


def plain_json(value):
    """A copy of value that JSON can express, or ValueError/TypeError; bounded in depth and in size."""
    return _plain(value, 0, [VALUES_MAX])


def _plain_key(key):
    if isinstance(key, bool) or key is None:
        return {True: "true", False: "false", None: "null"}[key]
    if isinstance(key, (int, float)):
        return repr(key)
    if isinstance(key, str):
        return clean(str.__str__(key))
    raise TypeError(f"key of type {type(key).__name__}")


def _plain(value, depth, left):
    left[0] -= 1
    if left[0] < 0 or depth > DEPTH_MAX:
        raise ValueError("too large")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return clean(str.__str__(value))
    if isinstance(value, int):
        if not -NUMBER_MAX < value < NUMBER_MAX:
            raise ValueError("not a JSON number")
        return int(value)
    if isinstance(value, float):
        if not -NUMBER_MAX < value < NUMBER_MAX:  # NaN as well
            raise ValueError("not a JSON number")
        return float(value)
    if isinstance(value, dict):
        return {_plain_key(key): _plain(item, depth + 1, left) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth + 1, left) for item in value]
    raise TypeError(f"value of type {type(value).__name__}")


def _json_or_none(value):
    try:
        value = plain_json(value)
        return value if len(encode_json(value)) <= VALUE_MAX else None
    except (TypeError, ValueError, RecursionError, OverflowError):
        return None


def _encode(mime, value):
    """(value for the event, note): a note instead of the value when there is no sending it."""
    if mime == "application/json":
        plain = _json_or_none(value)
        return (plain, None) if plain is not None or value is None else (None, "")
    if isinstance(value, (bytes, bytearray)):
        value = base64.b64encode(value).decode("ascii") if mime in _BINARY else bytes(value).decode("utf-8", "replace")
    elif mime in _BINARY:
        value = "".join(str(value).split())
    value = clean(str(value))
    if len(value) > VALUE_MAX:
        return None, f"[{mime} of {len(value)} characters left out: larger than {VALUE_MAX}]"
    return value, None


def _bundle(data):
    """The textual part of the bundle, for `data`."""
    result = {}
    for mime, value in data.items():
        if mime == CHART_MIME or mime.startswith("image/") and mime != "image/svg+xml" or mime in _BINARY:
            continue
        if isinstance(value, (dict, list)):
            value = _json_or_none(value)
            if value is not None and len(encode_json(value)) <= DATA_MAX:
                result[clean(mime)] = value
        elif isinstance(value, str) and len(value) <= DATA_MAX:
            result[clean(mime)] = clean(value)
    return result


def _foreign_chart(data):
    """Charts of libraries which describe themselves."""
    for mime, value in data.items():
        if not isinstance(value, dict):
            continue
        if mime.startswith("application/vnd.plotly."):
            traces = value.get("data") or [{}]
            names = {"bar": "bar", "pie": "pie", "histogram": "histogram", "heatmap": "heatmap", "box": "box"}
            first = traces[0] if isinstance(traces[0], dict) else {}
            kind = names.get(first.get("type"))
            if not kind:
                kind = "line" if "lines" in str(first.get("mode", "lines")) else "scatter"
            return {"type": kind, "data": traces, "layout": value.get("layout", {}), "library": "plotly"}
        if mime.startswith("application/vnd.vega"):
            mark = value.get("mark", "unknown")
            mark = mark.get("type", "unknown") if isinstance(mark, dict) else mark
            kind = {"point": "scatter", "circle": "scatter", "arc": "pie", "rect": "heatmap", "boxplot": "box"}
            return {"type": kind.get(mark, mark), "data": value, "library": "altair"}
    return None


def events(data, metadata, last):
    """The events of one displayed value; `last`: it is the value of the last expression."""
    data = dict(data)
    notes, found = [], []
    for key, mime in _FORMATS:
        if mime not in data:
            continue
        value, note = _encode(mime, data[mime])
        if note is None:
            extra = metadata.get(mime)
            found.append({key: value, "metadata": _json_or_none(extra) if isinstance(extra, dict) else {}})
        else:
            del data[mime]
            if note:
                notes.append(note)
    text = data.get("text/plain")
    for note in notes:
        found.append({"text": note, "metadata": {}})
    if text is not None and (not found or last and "text/html" in data):
        found.append({"text": cut(text), "metadata": {}})
    elif not found:
        shown = ", ".join(sorted(data)) or "no representation"
        found.append({"text": cut(f"[{shown}]", 1000), "metadata": {}})
    bundle = _bundle(data)
    if len(data) > 1 and bundle:
        found[0]["data"] = bundle
    chart = data.get(CHART_MIME) or _foreign_chart(data)
    chart = _json_or_none(chart) if chart else None
    if chart:
        found[0]["chart"] = chart
    return found
