# SPDX-License-Identifier: Apache-2.0
"""backend: matplotlib's Agg, except that show() shows: the open figures become results at once."""

from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg  # noqa: F401

publish = None  # set by the context: called with a figure


class FigureManager(FigureManagerBase):
    def show(self):
        publish_figures([self.canvas.figure])


class FigureCanvas(FigureCanvasAgg):
    manager_class = FigureManager


def publish_figures(figures):
    """Publishes and closes; a figure that cannot be drawn does not keep the others from being shown."""
    failed = None
    for figure in figures:
        try:
            if publish and (figure.axes or figure.lines or figure.texts or figure.images or figure.patches):
                publish(figure)
        except Exception as e:
            failed = failed or e
        finally:
            Gcf.destroy_fig(figure)
    if failed:
        raise failed


def open_figures():
    return [manager.canvas.figure for manager in Gcf.get_all_fig_managers()]


def show(*args, **kwargs):
    publish_figures(open_figures())
