"""The page of dtrees in Dask's dashboard: fits under way and done, their losses and pace, and what each worker does for them.

It is made anew for everybody who opens it, looks at the scheduler's records twice a second as long as it is open, and sends what has
changed. Nothing is done while nobody looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dtrees.cluster.dashboard import rows
from dtrees.cluster.dashboard.fit_history import FitHistory

#: Its path, and the name of its tab.
PAGE = "dtrees"
_MILLISECONDS_BETWEEN_LOOKS = 500
#: Seconds of work, of messages, of waiting: Dask's orange and red, and grey for what is no use.
_SCAN, _COMMUNICATE, _WAIT = "#ffa51c", "#ef1161", "#c9c9c9"
#: Of curves; those of Bokeh's Category10 that stand out on white.
_COLOURS = (
    "#ef1161",
    "#1f77b4",
    "#2ca02c",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
    "#ff7f0e",
    "#393b79",
    "#637939",
)
#: What the list of fits begins with: nobody has chosen one.
_UNDER_WAY = "the fit under way, or the latest"
_STYLES = {"padding": "4px 0 0 6px", "font-size": "13px", "width": "98%"}


class Histories(Protocol):
    """Who knows the fits of a cluster."""

    def histories(self) -> list[FitHistory]:
        """Return what fits have told, the latest first."""


def make_page(fits: Histories, scheduler: Any, document: Any) -> None:
    """Fill a Bokeh document.

    Parameters
    ----------
    fits : Histories
    scheduler : distributed.Scheduler
        Asked what memory its workers use.
    document : bokeh.document.Document
    """
    page = Page(fits, scheduler)
    document.title = "Dask: dtrees"
    document.add_root(page.root)
    page.update()
    document.add_periodic_callback(page.update, _MILLISECONDS_BETWEEN_LOOKS)


class Page:
    """What somebody who has opened the page sees.

    Parameters
    ----------
    fits : Histories
    scheduler : distributed.Scheduler

    Attributes
    ----------
    root : bokeh.models.LayoutDOM
    """

    def __init__(self, fits: Histories, scheduler: Any) -> None:
        from bokeh.layouts import column, row
        from bokeh.models import ColumnDataSource, Div, Select

        self._fits, self._scheduler = fits, scheduler
        self._sources = {name: ColumnDataSource(data) for name, data in rows.EMPTY.items()}
        # Tables of Bokeh's are not drawn anew when values change, but not their number.
        self._list = Div(sizing_mode="stretch_width", styles=_STYLES | {"max-height": "180px", "overflow-y": "auto"})
        self._heading = Div(sizing_mode="stretch_width", styles=_STYLES)
        self._workers = Div(sizing_mode="stretch_width", styles=_STYLES | {"overflow-x": "auto"})
        self._lines = Div(sizing_mode="stretch_width", styles=_STYLES | {"overflow-y": "auto", "max-height": "260px"})
        self._choice = Select(title="Shown below:", value=_UNDER_WAY, options=[_UNDER_WAY], width=420, styles={"padding-left": "6px"})
        self._choice.on_change("value", lambda attr, old, new: self.update())
        self._losses, self._pace = _curves_figure(self._sources["curves"]), _pace_figure(self._sources["pace"])
        self._seconds = _seconds_figure(self._sources["workers"])
        self.root = column(
            self._list,
            row(self._choice, self._heading, sizing_mode="stretch_width"),
            row(self._losses, self._pace, self._seconds, sizing_mode="stretch_width"),
            self._workers,
            self._lines,
            sizing_mode="stretch_width",
        )

    def update(self) -> None:
        """Show what there is now."""
        histories = self._fits.histories()
        self._set(self._list, "text", rows.fits(histories))
        options = [_UNDER_WAY, *(f"{rows.named(history)} {history.fit}" for history in histories)]
        if self._choice.value not in options:
            self._choice.value = _UNDER_WAY
        self._set(self._choice, "options", options)
        self._show(self._chosen(histories))

    def _chosen(self, histories: Sequence[FitHistory]) -> FitHistory:
        """Return the fit that the user has chosen, else the one that is under way, else the latest."""
        for history in histories:
            if self._choice.value == f"{rows.named(history)} {history.fit}":
                return history
        under_way = [history for history in histories if not history.is_over]
        return (under_way or list(histories) or [FitHistory("")])[0]

    def _show(self, history: FitHistory) -> None:
        workers = self._scheduler.workers
        self._replace("curves", rows.curves(history, _COLOURS))
        self._replace("pace", rows.pace(history))
        seconds = rows.seconds(history)
        self._replace("workers", seconds)
        self._set(self._seconds.y_range, "factors", seconds["worker"][::-1])
        self._set(self._workers, "text", rows.workers(history, workers))
        self._set(self._heading, "text", rows.heading(history))
        self._set(self._lines, "text", rows.lines(history))
        self._set(self._losses, "visible", bool(history.curves) or history.unit == "round")
        self._set(self._pace.title, "text", f"{history.unit.capitalize()}s finished")

    def _replace(self, name: str, data: Mapping[str, list[Any]]) -> None:
        if self._sources[name].data != data:
            self._sources[name].data = dict(data)

    def _set(self, model: Any, name: str, value: object) -> None:
        if getattr(model, name) != value:
            setattr(model, name, value)


def _figure(title: str, x: str, **options: Any) -> Any:
    from bokeh.plotting import figure

    plot = figure(title=title, x_axis_label=x, tools="pan,wheel_zoom,box_zoom,reset", height=320, sizing_mode="stretch_width", **options)
    plot.toolbar.autohide = True
    return plot


def _curves_figure(source: Any) -> Any:
    from bokeh.models import DataRange1d, HoverTool

    plot = _figure("Losses and scores", "round", x_range=DataRange1d(start=0))
    lines = plot.multi_line(xs="xs", ys="ys", line_color="colour", legend_field="name", line_width=2, source=source)
    plot.add_tools(HoverTool(renderers=[lines], tooltips=[("", "@name"), ("round", "$x{0}"), ("", "$y")]))
    plot.legend.location, plot.legend.background_fill_alpha, plot.legend.padding = "top_right", 0.6, 4
    return plot


def _pace_figure(source: Any) -> Any:
    from bokeh.models import DataRange1d

    plot = _figure("Trees finished", "seconds", x_range=DataRange1d(start=0), y_range=DataRange1d(start=0))
    plot.line(x="seconds", y="done", line_color=_SCAN, line_width=2, source=source)
    plot.varea(x="seconds", y1="done", y2="zero", fill_color=_SCAN, fill_alpha=0.15, source=source)
    return plot


def _seconds_figure(source: Any) -> Any:
    from bokeh.models import DataRange1d, FactorRange

    plot = _figure("Seconds of each worker", "seconds", y_range=FactorRange(), x_range=DataRange1d(start=0))
    kinds = {"scan": ("work", _SCAN), "communicate": ("messages", _COMMUNICATE), "wait": ("waiting for others", _WAIT)}
    plot.hbar_stack(
        list(kinds),
        y="worker",
        height=0.6,
        color=[colour for _, colour in kinds.values()],
        legend_label=[label for label, _ in kinds.values()],
        source=source,
    )
    plot.add_layout(plot.legend[0], "below")
    plot.legend.orientation, plot.legend.padding, plot.legend.border_line_alpha = "horizontal", 2, 0.0
    return plot
