# SPDX-License-Identifier: Apache-2.0
"""tables: a pandas DataFrame as structured data (frictionless data resource)."""

import json
import sys

ROWS_MAX = 1000
CELLS_MAX = 20000


def is_table(obj):
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(obj, pandas.DataFrame)


def describe(frame):
    """{"schema": {"fields": ...}, "data": [{column: value}, ...]} of the first rows, and how many rows there are."""
    rows = min(ROWS_MAX, max(1, CELLS_MAX // max(1, len(frame.columns))))
    head = frame.head(rows)
    try:
        table = json.loads(head.to_json(orient="table", date_format="iso"))
        table["schema"].pop("pandas_version", None)
    except (NotImplementedError, ValueError, TypeError, OverflowError):
        # several levels of columns, or two columns of one name
        split = json.loads(head.to_json(orient="split", date_format="iso", default_handler=str))
        table = {"schema": {"fields": [{"name": str(name)} for name in frame.columns]}, "data": split["data"]}
    table["rows"] = len(frame)
    return table
