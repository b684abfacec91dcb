"""The page of dtrees in Dask's dashboard: fits under way and done, their losses and pace, and what each worker does for them.

It is made anew for everybody who opens it, looks at the scheduler's records twice a second as long as it is open, and sends what has
changed. Nothing is done while nobody looks.
"""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dask.utils import format_bytes

from dtrees.cluster.dashboard.fit_history import FitHistory, WorkerShare
from dtrees.engine.plan.plans import Progress
from dtrees.ensemble.callbacks import duration, figures, in_words

#: Its path, and the name of its tab.
PAGE = "dtrees"
_MILLISECONDS_BETWEEN_LOOKS = 500
#: Seconds of work, of messages, of waiting: Dask's orange and red, and grey for what is no use.
_SCAN, _COMMUNICATE, _WAIT = "#ffa51c", "#ef1161", "#c9c9c9"
#: Of curves; those of Bokeh's Category10 that stand out on white.
_COLOURS = (
    "#ef1161", "#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf", "#ff7f0e", "#393b79", "#637939",
)  # fmt: skip
#: What the list of fits begins with: nobody has chosen one.
_UNDER_WAY = "the fit under way, or the latest"
_STYLES = {"padding": "4px 0 0 6px", "font-size": "13px", "width": "98%"}

#: The columns of each plot, without rows.
_EMPTY: dict[str, dict[str, list[Any]]] = {
    "curves": {"xs": [], "ys": [], "name": [], "colour": []},
    "pace": {"seconds": [], "done": [], "zero": []},
    "workers": {"worker": [], "scan": [], "communicate": [], "wait": []},
}
_CELL = 'style="padding: 2px 12px 2px 0; text-align: {}; white-space: nowrap; border-bottom: 1px solid #ececec"'
_BAR = """<div style="width: 120px; height: 9px; background: #e4e4e4; display: inline-block; margin-right: 8px">
<div style="width: {share:.0%}; height: 9px; background: #ffa51c"></div></div>{share:.0%}"""


def make_page(histories: Callable[[], list[FitHistory]], scheduler: Any, document: Any) -> None:
    """Fill a Bokeh document.

    Parameters
    ----------
    histories : callable
        Returns what the fits of a cluster have told, the latest first.
    scheduler : distributed.Scheduler
        Asked what memory its workers use.
    document : bokeh.document.Document
    """
    page = Page(histories, scheduler)
    document.title = "Dask: dtrees"
    document.add_root(page.root)
    page.update()
    document.add_periodic_callback(page.update, _MILLISECONDS_BETWEEN_LOOKS)


class Page:
    """What somebody who has opened the page sees.

    Parameters
    ----------
    histories : callable
        Returns what the fits of a cluster have told, the latest first.
    scheduler : distributed.Scheduler

    Attributes
    ----------
    root : bokeh.models.LayoutDOM
    """

    def __init__(self, histories: Callable[[], list[FitHistory]], scheduler: Any) -> None:
        from bokeh.layouts import column, row
        from bokeh.models import ColumnDataSource, Div, Select

        self._histories, self._scheduler = histories, scheduler
        self._sources = {name: ColumnDataSource(data) for name, data in _EMPTY.items()}
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
        histories = self._histories()
        self._set(self._list, "text", _fits(histories))
        options = [_UNDER_WAY, *(f"{_named(history)} {history.fit}" for history in histories)]
        if self._choice.value not in options:
            self._choice.value = _UNDER_WAY
        self._set(self._choice, "options", options)
        self._show(self._chosen(histories))

    def _chosen(self, histories: Sequence[FitHistory]) -> FitHistory:
        """Return the fit that the user has chosen, else the one that is under way, else the latest."""
        for history in histories:
            if self._choice.value == f"{_named(history)} {history.fit}":
                return history
        under_way = [history for history in histories if not history.is_over]
        return (under_way or list(histories) or [FitHistory("")])[0]

    def _show(self, history: FitHistory) -> None:
        workers = self._scheduler.workers
        self._replace("curves", _curves(history, _COLOURS))
        self._replace("pace", _pace(history))
        seconds = _seconds(history)
        self._replace("workers", seconds)
        self._set(self._seconds.y_range, "factors", seconds["worker"][::-1])
        self._set(self._workers, "text", _workers(history, workers))
        self._set(self._heading, "text", _heading(history))
        self._set(self._lines, "text", _lines(history))
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


class _Markup(str):
    """Text that is HTML already."""


def _table(found: Sequence[Mapping[str, Any]], left: int) -> str:
    """Return a table as HTML, the columns from number ``left`` on to the right."""
    if not found:
        return ""
    aligned = ["left" if i < left else "right" for i in range(len(found[0]))]
    head = _row("th", found[0], aligned)
    body = "".join(_row("td", row.values(), aligned) for row in found)
    return f'<table style="border-collapse: collapse; font-size: 13px">{head}{body}</table>'


def _row(tag: str, values: Iterable[object], aligned: Iterable[str]) -> str:
    cells = (f"<{tag} {_CELL.format(side)}>{_escaped(value)}</{tag}>" for value, side in zip(values, aligned, strict=True))
    return f"<tr>{''.join(cells)}</tr>"


def _escaped(value: object) -> str:
    return value if isinstance(value, _Markup) else html.escape(str(value))


def _fits(histories: Sequence[FitHistory]) -> str:
    """Return a table of fits as HTML."""
    return _table([_fit(history) for history in histories], left=6)


def _fit(history: FitHistory) -> dict[str, Any]:
    remaining = history.remaining
    latest = figures(Progress(**history.latest)) if history.latest else {}
    share = 1.0 if history.outcome == "finished" else history.done / history.total if history.total else 0.0
    return {
        "fit": _named(history),
        "key": history.fit,
        "state": history.outcome,
        "progress": _Markup(_BAR.format(share=share)),
        "placement": history.placement,
        "last losses": in_words({name: float(f"{value:.4g}") for name, value in latest.items()}),
        "done": f"{history.done:,} of {history.total:,}" if history.total else "",
        "elapsed": duration((history.ended or time.time()) - history.began),
        "remaining": "" if remaining is None else duration(remaining),
        "rows by columns": f"{history.rows:,} by {history.columns:,}" if history.rows else "",
        "lost / made up for": f"{history.n_lost} / {history.n_recovered}" if history.n_lost else "",
    }


def _curves(history: FitHistory, colours: Sequence[str]) -> dict[str, list[Any]]:
    """Return a row for each loss or score of a fit."""
    points = {name: curve.shown() for name, curve in history.curves.items()}
    return {
        "xs": [[x for x, _ in curve] for curve in points.values()],
        "ys": [[y for _, y in curve] for curve in points.values()],
        "name": list(points),
        "colour": [colours[i % len(colours)] for i in range(len(points))],
    }


def _pace(history: FitHistory) -> dict[str, list[Any]]:
    """Return when trees or rounds were finished."""
    points = history.pace.shown()
    return {"seconds": [seconds for _, seconds in points], "done": [done for done, _ in points], "zero": [0] * len(points)}


def _seconds(history: FitHistory) -> dict[str, list[Any]]:
    """Return what the seconds of each worker were spent on."""
    shares = history.workers
    return {
        "worker": [_name(address) for address in shares],
        "scan": [share.scan for share in shares.values()],
        "communicate": [share.communicate for share in shares.values()],
        "wait": [share.wait for share in shares.values()],
    }


def _workers(history: FitHistory, known: Mapping[str, Any]) -> str:
    """Return a table of the workers of a fit as HTML; ``known`` are those of the scheduler."""
    return _table([_worker(address, share, history, known.get(address)) for address, share in history.workers.items()], left=2)


def _worker(address: str, share: WorkerShare, history: FitHistory, state: Any) -> dict[str, Any]:
    return {
        "worker": _name(address),
        "state": "lost" if share.lost else "gone" if state is None else state.status.name,
        "columns": f"{share.columns:,}" if share.columns else "",
        "rows": f"{share.rows:,}" if share.columns else "",
        "memory planned": format_bytes(share.bytes) if share.bytes else "",
        "used / limit": "" if state is None else _memory(state),
        "sent to it": format_bytes(share.sent) if share.sent else "",
        "received": format_bytes(share.received) if share.received else "",
        "whole trees": f"{share.trees:,}" if share.trees else "",
        "work": f"{share.scan:,.1f} s",
        "messages": f"{share.communicate:,.1f} s",
        "waiting": f"{share.wait:,.1f} s",
    }


def _name(address: str) -> str:
    return address.partition("://")[2] or address


def _memory(state: Any) -> str:
    limit = f" / {format_bytes(state.memory_limit)}" if state.memory_limit else ""
    return f"{format_bytes(int(state.metrics.get('memory', 0)))}{limit}"


def _heading(history: FitHistory) -> str:
    """Return what is told of a fit in a line, as HTML."""
    if not history.fit:
        return "No fit yet: what is fitted on this cluster, or submitted to it, appears here."
    words = f"<b>{html.escape(_named(history))}</b> <code>{html.escape(history.fit)}</code>: {history.outcome}"
    if history.failure:
        words += f", {html.escape(history.failure)}"
    if history.placement:
        words += f", {html.escape(history.placement)} ({html.escape(history.reason)})"
    return words


def _lines(history: FitHistory) -> str:
    """Return what happened to a fit, as HTML, the latest first."""
    told = [f"{time.strftime('%H:%M:%S', time.localtime(when))} {html.escape(line)}" for when, line in reversed(history.lines)]
    zone = time.strftime("%z", time.localtime(history.began))
    return "<br>".join([f"<b>What happened</b> (time zone {zone[:3]}:{zone[3:]})", *told])


def _named(history: FitHistory) -> str:
    """Return what a fit is called: by its user, and what is fitted."""
    return f"{history.label} ({history.estimator})" if history.label else history.estimator
