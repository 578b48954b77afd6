# SPDX-License-Identifier: Apache-2.0
"""charts: what a matplotlib figure shows, as data.

Lines, points, bars, wedges and images are read from the finished figure. Histograms and box plots leave only
rectangles and lines behind, so those two methods of Axes note what they were given (install()).
"""

import functools
import sys
import weakref

POINTS_MAX = 5000  # of one series; more are thinned out evenly
SERIES_MAX = 50
AXES_MAX = 16

_noted = weakref.WeakKeyDictionary()  # Axes: [(series, artists), ...]


def is_figure(obj):
    figure = sys.modules.get("matplotlib.figure")
    return figure is not None and isinstance(obj, figure.Figure)


def is_open(figure):
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    return helpers is not None and any(m.canvas.figure is figure for m in helpers.Gcf.figs.values())


def _value(v):
    """One coordinate as JSON: a number, a date as text, None for what is missing."""
    if v is None or isinstance(v, (str, bool)):
        return v
    if hasattr(v, "isoformat"):
        return v.isoformat()
    if type(v).__module__ == "numpy" and type(v).__name__ == "datetime64":
        return str(v)
    try:
        number = float(v)
    except (TypeError, ValueError):
        return str(v)
    if number != number or number in (float("inf"), float("-inf")):
        return None
    return int(number) if number.is_integer() and abs(number) < 1 << 53 else number


def _values(sequence):
    items = list(sequence)
    if len(items) > POINTS_MAX:
        step = -(-len(items) // POINTS_MAX)
        items = items[::step]
    return [_value(item) for item in items]


def _label(artist):
    label = artist.get_label() if hasattr(artist, "get_label") else None
    return None if not label or str(label).startswith("_") else str(label)


def _series(kind, label, **members):
    series = {"type": kind}
    if label:
        series["label"] = label
    series.update(members)
    return series


def _categories(axis):
    """{position: name} of an axis whose values are names."""
    units = axis.get_units()
    mapping = getattr(units, "_mapping", None)
    if mapping:
        return {float(at): str(name) for name, at in mapping.items()}
    names = {}
    formatter = axis.get_major_formatter()
    if type(formatter).__name__ in ("FixedFormatter", "FuncFormatter"):
        for at, text in zip(axis.get_majorticklocs(), axis.get_majorticklabels()):
            if text.get_text():
                names[float(at)] = text.get_text()
    return names


def _bars(axes, container):
    horizontal = getattr(container, "orientation", None) == "horizontal"
    names = _categories(axes.yaxis if horizontal else axes.xaxis)
    at, size = [], []
    for bar in container.patches[:POINTS_MAX]:
        if horizontal:
            middle, length = bar.get_y() + bar.get_height() / 2, bar.get_width()
        else:
            middle, length = bar.get_x() + bar.get_width() / 2, bar.get_height()
        at.append(names.get(round(float(middle), 9), middle))
        size.append(length)
    members = {"x": _values(size), "y": _values(at)} if horizontal else {"x": _values(at), "y": _values(size)}
    return _series("bar", _label(container), orientation="horizontal" if horizontal else "vertical", **members)


def _pie(axes, wedges):
    texts = [t.get_text() for t in axes.texts]
    series = _series("pie", None, values=[], labels=[])
    for i, wedge in enumerate(wedges):
        series["values"].append(_value(round((wedge.theta2 - wedge.theta1) / 360, 9)))
        label = _label(wedge)
        series["labels"].append(label if label is not None else (texts[i] if i < len(texts) else ""))
    return series


def _image(image):
    array = image.get_array()
    shape = tuple(int(n) for n in array.shape)
    series = _series("heatmap", _label(image), shape=list(shape))
    if len(shape) == 2 and shape[0] * shape[1] <= POINTS_MAX * 2:
        series["z"] = [[_value(v) for v in row] for row in array.tolist()]
    return series


def _axes_series(axes):
    """What one Axes shows, in the order: noted plots, bars, wedges, points, lines, images."""
    from matplotlib.collections import PathCollection, QuadMesh
    from matplotlib.container import BarContainer
    from matplotlib.patches import Wedge

    found, used = [], set()
    for series, artists in _noted.get(axes, ()):
        drawn = [a() for a in artists]
        if any(a is not None and a.axes is axes for a in drawn):  # not removed since
            found.append(series)
        used.update(id(a) for a in drawn if a is not None)
    for container in axes.containers:
        if isinstance(container, BarContainer) and not any(id(p) in used for p in container.patches):
            found.append(_bars(axes, container))
            used.update(id(p) for p in container.patches)
            if container.errorbar is not None:
                used.update(id(line) for line in container.errorbar.lines if not isinstance(line, tuple))
    wedges = [p for p in axes.patches if isinstance(p, Wedge)]
    if wedges:
        found.append(_pie(axes, wedges))
    for collection in axes.collections:
        if isinstance(collection, PathCollection):
            points = collection.get_offsets()
            x = [names.get(float(p[0]), p[0]) for names in [_categories(axes.xaxis)] for p in points]
            found.append(_series("scatter", _label(collection), x=_values(x), y=_values(p[1] for p in points)))
        elif isinstance(collection, QuadMesh):
            found.append(_series("heatmap", _label(collection)))
    for line in axes.get_lines():
        if id(line) in used:
            continue
        marks = line.get_linestyle() in ("None", "none", " ", "") and line.get_marker() not in ("None", None, "")
        x, y = line.get_xdata(orig=True), line.get_ydata(orig=True)
        found.append(_series("scatter" if marks else "line", _label(line), x=_values(x), y=_values(y)))
    found.extend(_image(image) for image in axes.images)
    return found[:SERIES_MAX]


def _axes_layout(axes):
    layout = {
        "xlabel": axes.get_xlabel(),
        "ylabel": axes.get_ylabel(),
        "xscale": axes.get_xscale(),
        "yscale": axes.get_yscale(),
        "xlim": _values(axes.get_xlim()),
        "ylim": _values(axes.get_ylim()),
    }
    if axes.get_title():
        layout["title"] = axes.get_title()
    return layout


def describe(figure):
    """The chart member of a figure's result, or None when it shows no data."""
    shown = []
    for axes in figure.axes[:AXES_MAX]:
        series = _axes_series(axes)
        if series:
            shown.append((axes, series))
    if not shown:
        return None
    chart = {"type": shown[0][1][0]["type"], "library": "matplotlib"}
    heading = getattr(figure, "_suptitle", None)
    title = (heading.get_text() if heading else "") or shown[0][0].get_title()
    if title:
        chart["title"] = title
    if len(shown) == 1:
        chart["data"] = shown[0][1]
        chart["layout"] = _axes_layout(shown[0][0])
    else:
        chart["data"] = [dict(s, axes=i) for i, (_, series) in enumerate(shown) for s in series]
        chart["layout"] = {"axes": [_axes_layout(axes) for axes, _ in shown]}
    return chart


def _note(axes, series, artists):
    if len(_noted.setdefault(axes, [])) < SERIES_MAX:
        _noted[axes].append((series, [weakref.ref(a) for a in artists]))


def _flat(artists):
    for artist in artists:
        if isinstance(artist, (list, tuple)):
            yield from _flat(artist)
        elif hasattr(artist, "axes"):
            yield artist


def _note_histogram(axes, result):
    counts, edges, drawn = result
    groups = [drawn] if hasattr(drawn, "patches") or not len(drawn) or hasattr(drawn[0], "axes") else list(drawn)
    if len(groups) == 1:
        counts = [counts]
    for values, group in zip(counts, groups):
        artists = list(_flat(list(group.patches) if hasattr(group, "patches") else list(group)))
        label = _label(group) or (_label(artists[0]) if artists else None)
        _note(axes, _series("histogram", label, bins=_values(edges), counts=_values(values)), artists)


def _note_boxes(axes, stats, result):
    boxes = []
    for s in stats:
        box = {"label": str(s.get("label", ""))}
        for ours, theirs in (("min", "whislo"), ("q1", "q1"), ("median", "med"), ("q3", "q3"), ("max", "whishi")):
            box[ours] = _value(s.get(theirs))
        box["outliers"] = _values(s.get("fliers", ()))
        boxes.append(box)
    _note(axes, _series("box", None, boxes=boxes), list(_flat(list(result.values()))))


def install():
    """Once, in the zygote, after matplotlib was imported."""
    from matplotlib.axes import Axes

    plain_hist, plain_bxp = Axes.hist, Axes.bxp

    @functools.wraps(plain_hist)
    def hist(self, *args, **kwargs):
        result = plain_hist(self, *args, **kwargs)
        try:
            _note_histogram(self, result)
        except Exception:
            pass  # an unusual histogram is drawn all the same
        return result

    @functools.wraps(plain_bxp)
    def bxp(self, bxpstats, *args, **kwargs):
        result = plain_bxp(self, bxpstats, *args, **kwargs)
        try:
            _note_boxes(self, bxpstats, result)
        except Exception:
            pass  # the same for box plots
        return result

    Axes.hist, Axes.bxp = hist, bxp
