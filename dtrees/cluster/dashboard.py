"""The history of fits, compiled from their events, and its page in Dask's dashboard: losses, progress, and each worker's activity.

The history of a fit is small and bounded, however long the fit takes, so that the scheduler can store it. It is built from the events of
:mod:`dtrees.cluster.transport.events` and from what the scheduler itself knows of the fit's workers. A page is created for each viewer;
while it is open, it reads the history twice a second and sends changes. Nothing runs while no page is open.
"""

from __future__ import annotations

import contextlib
import html
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

from dask.utils import format_bytes

from dtrees.engine.plan.plans import Progress
from dtrees.ensemble.displays import COMPILING, duration, figures, in_words

#: Largest number of points of a curve; when it is exceeded, every second point is dropped.
_POINTS = 400
_CURVES, _LINES = 12, 20


@dataclass
class Curve:
    """A loss or score after each round.

    Attributes
    ----------
    points : list of (int, float)
        Rounds, ascending, and the values after them; thinned out if there are many.
    """

    points: list[tuple[int, float]] = field(default_factory=list)
    _stride: int = 1
    _last: tuple[int, float] | None = None

    def add(self, done: int, value: float) -> None:
        """Add a value. If another worker has taken over the fit, its repeated rounds replace the earlier ones."""
        while self.points and self.points[-1][0] >= done:
            self.points.pop()
        if done % self._stride == 0 or not self.points:
            self.points.append((done, value))
        self._last = done, value
        if len(self.points) > _POINTS:
            self.points = self.points[::2]
            self._stride *= 2

    def shown(self) -> list[tuple[int, float]]:
        """Return the points, including the latest value."""
        last = [] if self._last is None or (self.points and self.points[-1][0] >= self._last[0]) else [self._last]
        return [*self.points, *last]


@dataclass
class WorkerShare:
    """The work of one worker for a fit.

    Attributes
    ----------
    columns, rows, bytes : int
        Its part of the table, and the memory of that part.
    scan, wait, communicate : float
        Seconds of its own work, of waiting for slower workers, and of messages while it took part.
    sent, received : int
        Bytes of messages to it, and of its replies.
    trees : int
        Number of whole trees that it has grown.
    lost : bool
        Whether it was lost.
    """

    columns: int = 0
    rows: int = 0
    bytes: int = 0
    scan: float = 0.0
    wait: float = 0.0
    communicate: float = 0.0
    sent: int = 0
    received: int = 0
    trees: int = 0
    lost: bool = False


@dataclass
class FitHistory:
    """The history of a fit, built from its events.

    Attributes
    ----------
    fit : str
        The key of its task.
    label : str
        The label given by its user.
    estimator, unit : str
        The class of the model, and the unit of progress: "tree" or "round".
    compiling : set of str
        The workers of the cluster that currently compile kernels for this fit or for another one that needs the same kernels.
    state : str
        The state of the task in Dask's terms.
    began : float
        The time of its submission (``time.time()``); ``ended`` is the time of its end, or None.
    done, total : int
    seconds : float
        Seconds since the growth of trees began.
    latest : dict
        The fields of the last :class:`~dtrees.engine.plan.plans.Progress`.
    rows, columns : int
        Size of the table.
    failure : str
        The error with which it failed.
    listeners : list of str
        The names of callbacks in its user's own process, which are notified of lost workers and similar events.
    hear : callable or None
        Called with such a notice as a line of text.
    placement, reason : str
    workers : dict from str to WorkerShare
    communicate : float
        Seconds of messages beyond the work of the slowest worker.
    curves : dict from str to Curve
        Losses and scores after each round.
    pace : Curve
        Seconds after each tree or round.
    lines : deque of (float, str)
        Times and texts of other events.
    unusual : deque of str
        Events about lost workers and similar; ``n_unusual`` is their total number.
    n_lost, n_recovered : int
        Number of lost workers, and of losses after which the growth of trees has resumed.
    """

    fit: str
    estimator: str = ""
    unit: str = "tree"
    compiling: Set[str] = frozenset()
    label: str = ""
    state: str = "waiting"
    began: float = field(default_factory=time.time)
    ended: float | None = None
    done: int = 0
    total: int = 0
    seconds: float = 0.0
    latest: dict[str, Any] = field(default_factory=dict)
    rows: int = 0
    columns: int = 0
    placement: str = ""
    reason: str = ""
    workers: dict[str, WorkerShare] = field(default_factory=dict)
    communicate: float = 0.0
    curves: dict[str, Curve] = field(default_factory=dict)
    pace: Curve = field(default_factory=Curve)
    lines: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=_LINES))
    n_lost: int = 0
    n_recovered: int = 0
    failure: str = ""
    unusual: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))
    n_unusual: int = 0
    listeners: list[str] = field(default_factory=list)
    hear: Callable[[FitHistory, str], None] | None = None
    _first: tuple[int, float] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the fit has ended, successfully or not."""
        return self.ended is not None

    @property
    def remaining(self) -> float | None:
        """Estimated seconds until the fit is finished; None if unknown."""
        if self._first is None or self.is_over or self.done <= self._first[0]:
            return None
        pace = (self.seconds - self._first[1]) / (self.done - self._first[0])
        return max(0.0, pace * (self.total - self.done))

    @property
    def outcome(self) -> str:
        """The state as a text."""
        if self.is_over:
            return {"memory": "finished", "erred": "failed"}.get(self.state, "cancelled")
        if self.done:
            return "growing"
        if self.state == "processing":
            return COMPILING if self.compiling else "loading"
        return "waiting"

    def note_state(self, state: str, failure: str = "") -> None:
        """Store the state of the fit's task, and the error with which it failed."""
        if self.is_over and state not in ("waiting", "processing"):
            return
        self.state, self.failure = state, failure
        if failure:
            self._note(f"failed: {failure}")
        self.ended = time.time() if state in ("memory", "erred", "forgotten") else None

    def take(self, event: Mapping[str, Any]) -> None:
        """Add an event; unreadable parts are ignored, as anyone can send events."""
        handle = getattr(self, f"_take_{str(event.get('what')).replace(' ', '_')}", None)
        if handle is not None:
            with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
                handle(event)

    def lose(self, workers: Iterable[str]) -> None:
        """Record that workers are lost or silent."""
        gone = [worker for worker in workers if worker in self.workers and not self.workers[worker].lost]
        for worker in gone:
            self.workers[worker].lost = True
        if gone and not self.is_over:
            self.n_lost += len(gone)
            self.say(f"lost {', '.join(gone)}")

    def say(self, line: str) -> None:
        """Record an unusual event, and notify the listeners of the fit."""
        self._note(line)
        self.unusual.append(line)
        self.n_unusual += 1
        if self.hear is not None:
            self.hear(self, line)

    def _note(self, line: str) -> None:
        self.lines.append((time.time(), line))

    def snapshot(self) -> dict[str, Any]:
        """Return the progress of the fit, for :func:`dtrees.progress` and :func:`dtrees.fits`."""
        names = ("fit", "label", "estimator", "unit", "outcome", "failure", "is_over", "began", "done", "total", "n_unusual")
        return {name: getattr(self, name) for name in names} | {"progress": dict(self.latest), "unusual": list(self.unusual)}

    def _share(self, worker: str) -> WorkerShare:
        return self.workers.setdefault(worker, WorkerShare())

    def _take_began(self, event: Mapping[str, Any]) -> None:
        worker, self.listeners = event["worker"], list(event.get("listeners", ()))
        if event["turn"] == 1:
            self._note(f"coordinated by {worker}")
        else:
            self.say(f"taken over by {worker}")

    def _take_placed(self, event: Mapping[str, Any]) -> None:
        self.placement, self.reason = event["placement"], event["reason"]
        self._note(f"placed {self.placement}: {self.reason}")

    def _take_holding(self, event: Mapping[str, Any]) -> None:
        self.rows, self.columns, rows_of = event["rows"], event["columns"], event.get("rows_of", {})
        for share in self.workers.values():
            share.columns = share.rows = share.bytes = 0
        for worker, (columns, n_bytes) in event["workers"].items():
            share = self._share(worker)
            share.columns, share.rows, share.bytes, share.lost = columns, rows_of.get(worker, self.rows), n_bytes, False

    def _take_round(self, event: Mapping[str, Any]) -> None:
        self.latest = dict(event["progress"])
        progress = Progress(**self.latest)
        self.done, self.total, self.seconds = progress.done, progress.total, progress.seconds
        if self._first is None or self.done < self._first[0] or self.seconds < self._first[1]:
            self._first = self.done, self.seconds
        self.pace.add(self.done, self.seconds)
        for name, value in figures(progress).items():
            if name in self.curves or len(self.curves) < _CURVES:
                self.curves.setdefault(name, Curve()).add(self.done, value)
        self._share_messages(event.get("communicate", self.communicate), event.get("scan", {}))
        for name in ("scan", "wait", "sent", "received"):
            for worker, value in event.get(name, {}).items():
                setattr(self._share(worker), name, value)
        if self.n_recovered < self.n_lost:
            self.n_recovered = self.n_lost
            self.say(f"goes on from {self.unit} {self.done}")

    _take_tree = _take_round

    def _share_messages(self, total: float, workers: Iterable[str]) -> None:
        """Add the time of messages since the last event to the workers present throughout, as all of them wait."""
        spent = total - self.communicate if total >= self.communicate else total  # another coordinator starts from zero
        for worker in workers:
            share = self._share(worker)
            if not share.lost and (share.scan or not self.communicate):
                share.communicate += spent
        self.communicate = total

    def _take_batch(self, event: Mapping[str, Any]) -> None:
        share = self._share(event["worker"])
        share.scan += event["seconds"]
        share.trees += event["trees"]

    def _take_shards_lost(self, event: Mapping[str, Any]) -> None:
        self.lose(event["workers"])

    def _take_shard_moved(self, event: Mapping[str, Any]) -> None:
        what = "rows" if self.placement == "rows" else "columns"
        self.say(f"{what} of a lost worker are loaded again on {event['to']}")


#: The path of the page, and the name of its tab.
PAGE = "dtrees"
_MILLISECONDS_BETWEEN_LOOKS = 500
#: Colors of seconds of work, of messages and of waiting: Dask's orange and red, and grey for idle time.
_SCAN, _COMMUNICATE, _WAIT = "#ffa51c", "#ef1161", "#c9c9c9"
#: Colors of curves: those of Bokeh's Category10 that are visible on white.
_COLOURS = (
    "#ef1161", "#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf", "#ff7f0e", "#393b79", "#637939",
)  # fmt: skip
#: The first entry of the list of fits, selected by default.
_UNDER_WAY = "the fit under way, or the latest"
_STYLES = {"padding": "4px 0 0 6px", "font-size": "13px", "width": "98%"}

#: A table; the columns from number ``left`` on are right-aligned.
_TABLE = """<table style="border-collapse: collapse; font-size: 13px">{% for cells in lines %}{% set tag = "th" if loop.first else "td" %}
<tr>{% for cell in cells %}<{{ tag }} style="padding: 2px 12px 2px 0; text-align: {{ "left" if loop.index0 < left else "right" }};
white-space: nowrap; border-bottom: 1px solid #ececec">{{ cell }}</{{ tag }}>{% endfor %}</tr>{% endfor %}</table>"""
_BAR = """<div style="width: 120px; height: 9px; background: #e4e4e4; display: inline-block; margin-right: 8px">
<div style="width: {share:.0%}; height: 9px; background: #ffa51c"></div></div>{share:.0%}"""


def make_page(histories: Callable[[], list[FitHistory]], scheduler: Any, document: Any) -> None:
    """Fill a Bokeh document with the page.

    Parameters
    ----------
    histories : callable
        Returns the histories of the fits of a cluster, the latest first.
    scheduler : distributed.Scheduler
        Provides the memory use of its workers.
    document : bokeh.document.Document
    """
    page = Page(histories, scheduler)
    document.title = "Dask: dtrees"
    document.add_root(page.root)
    page.update()
    document.add_periodic_callback(page.update, _MILLISECONDS_BETWEEN_LOOKS)


class Page:
    """The page of one viewer.

    Parameters
    ----------
    histories : callable
        Returns the histories of the fits of a cluster, the latest first.
    scheduler : distributed.Scheduler

    Attributes
    ----------
    root : bokeh.models.LayoutDOM
    """

    def __init__(self, histories: Callable[[], list[FitHistory]], scheduler: Any) -> None:
        from bokeh.layouts import column, row
        from bokeh.models import ColumnDataSource, Div, Select

        self._histories, self._scheduler = histories, scheduler
        self._sources = {name: ColumnDataSource(make(FitHistory(""))) for name, make in _PLOTTED.items()}
        # Bokeh's tables are not redrawn when values change but their number does not.
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
        """Show the current state."""
        histories = self._histories()
        self._list.text = _table(map(_fit, histories), left=6)
        options = [_UNDER_WAY, *(f"{_named(history)} {history.fit}" for history in histories)]
        if self._choice.value not in options:
            self._choice.value = _UNDER_WAY
        self._choice.options = options
        self._show(self._chosen(histories))

    def _chosen(self, histories: Sequence[FitHistory]) -> FitHistory:
        """Return the fit selected by the user, otherwise the running one, otherwise the latest."""
        for history in histories:
            if self._choice.value == f"{_named(history)} {history.fit}":
                return history
        under_way = [history for history in histories if not history.is_over]
        return (under_way or list(histories) or [FitHistory("")])[0]

    def _show(self, history: FitHistory) -> None:
        known = self._scheduler.workers
        for name, make in _PLOTTED.items():
            if self._sources[name].data != (data := make(history)):  # of other properties, Bokeh sends changes only
                self._sources[name].data = data
        self._seconds.y_range.factors = self._sources["workers"].data["worker"][::-1]
        self._workers.text = _table((_worker(address, history, known.get(address)) for address in history.workers), left=2)
        self._heading.text = _heading(history)
        self._lines.text = _lines(history)
        self._losses.visible = bool(history.curves) or history.unit == "round"
        self._pace.title.text = f"{history.unit.capitalize()}s finished"


def _figure(title: str, x: str, **options: Any) -> Any:
    from bokeh.plotting import figure

    plot = figure(title=title, x_axis_label=x, tools="pan,wheel_zoom,box_zoom,reset", height=320, sizing_mode="stretch_width", **options)
    plot.toolbar.autohide, plot.x_range.start = True, 0
    return plot


def _curves_figure(source: Any) -> Any:
    from bokeh.models import HoverTool

    plot = _figure("Losses and scores", "round")
    lines = plot.multi_line(xs="xs", ys="ys", line_color="colour", legend_field="name", line_width=2, source=source)
    plot.add_tools(HoverTool(renderers=[lines], tooltips=[("", "@name"), ("round", "$x{0}"), ("", "$y")]))
    plot.legend.location, plot.legend.background_fill_alpha, plot.legend.padding = "top_right", 0.6, 4
    return plot


def _pace_figure(source: Any) -> Any:
    plot = _figure("Trees finished", "seconds")
    plot.y_range.start = 0
    plot.line(x="seconds", y="done", line_color=_SCAN, line_width=2, source=source)
    plot.varea(x="seconds", y1="done", y2="zero", fill_color=_SCAN, fill_alpha=0.15, source=source)
    return plot


def _seconds_figure(source: Any) -> Any:
    plot = _figure("Seconds of each worker", "seconds", y_range=[])
    kinds = {"scan": ("work", _SCAN), "communicate": ("messages", _COMMUNICATE), "wait": ("waiting for others", _WAIT)}
    labels, colours = map(list, zip(*kinds.values(), strict=True))
    plot.hbar_stack(list(kinds), y="worker", height=0.6, color=colours, legend_label=labels, source=source)
    plot.add_layout(plot.legend[0], "below")
    plot.legend.orientation, plot.legend.padding, plot.legend.border_line_alpha = "horizontal", 2, 0.0
    return plot


def _table(rows: Iterable[Mapping[str, Any]], left: int) -> str:
    """Return a table as HTML; the columns from number ``left`` on are right-aligned."""
    from jinja2 import Template

    found = list(rows)
    return Template(_TABLE, autoescape=True).render(lines=[list(found[0]), *(row.values() for row in found)], left=left) if found else ""


def _fit(history: FitHistory) -> dict[str, Any]:
    from markupsafe import Markup

    remaining = history.remaining
    latest = figures(Progress(**history.latest)) if history.latest else {}
    share = 1.0 if history.outcome == "finished" else history.done / history.total if history.total else 0.0
    return {
        "fit": _named(history),
        "key": history.fit,
        "state": history.outcome,
        "progress": Markup(_BAR.format(share=share)),
        "placement": history.placement,
        "last losses": in_words({name: float(f"{value:.4g}") for name, value in latest.items()}),
        "done": f"{history.done:,} of {history.total:,}" if history.total else "",
        "elapsed": duration((history.ended or time.time()) - history.began),
        "remaining": "" if remaining is None else duration(remaining),
        "rows by columns": f"{history.rows:,} by {history.columns:,}" if history.rows else "",
        "lost / replaced": f"{history.n_lost} / {history.n_recovered}" if history.n_lost else "",
    }


def _curves(history: FitHistory) -> dict[str, list[Any]]:
    """Return a row for each loss or score of a fit."""
    points = [curve.shown() for curve in history.curves.values()]
    colours = list(islice(cycle(_COLOURS), len(points)))
    xs, ys = ([[point[i] for point in curve] for curve in points] for i in (0, 1))
    return {"xs": xs, "ys": ys, "name": list(history.curves), "colour": colours}


def _pace(history: FitHistory) -> dict[str, list[Any]]:
    """Return the times at which trees or rounds were finished."""
    points = history.pace.shown()
    return {"seconds": [seconds for _, seconds in points], "done": [done for done, _ in points], "zero": [0] * len(points)}


def _seconds(history: FitHistory) -> dict[str, list[Any]]:
    """Return the seconds of each worker by activity."""
    spent = {kind: [getattr(share, kind) for share in history.workers.values()] for kind in ("scan", "communicate", "wait")}
    return {"worker": [_name(address) for address in history.workers], **spent}


#: The function that returns the data of each plot.
_PLOTTED: dict[str, Callable[[FitHistory], dict[str, list[Any]]]] = {"curves": _curves, "pace": _pace, "workers": _seconds}


def _worker(address: str, history: FitHistory, state: Any) -> dict[str, Any]:
    """Return the row of a worker; ``state`` is what the scheduler knows of it."""
    share = history.workers[address]
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
    """Return a summary of a fit in one line, as HTML."""
    if not history.fit:
        return "No fit yet: what is fitted on this cluster, or submitted to it, appears here."
    words = f"<b>{html.escape(_named(history))}</b> <code>{html.escape(history.fit)}</code>: {history.outcome}"
    if history.failure:
        words += f", {html.escape(history.failure)}"
    if history.placement:
        words += f", {html.escape(history.placement)} ({html.escape(history.reason)})"
    return words


def _lines(history: FitHistory) -> str:
    """Return the events of a fit as HTML, the latest first."""
    lines = [f"{time.strftime('%H:%M:%S', time.localtime(when))} {html.escape(line)}" for when, line in reversed(history.lines)]
    zone = time.strftime("%z", time.localtime(history.began))
    return "<br>".join([f"<b>What happened</b> (time zone {zone[:3]}:{zone[3:]})", *lines])


def _named(history: FitHistory) -> str:
    """Return the name of a fit: its label and its estimator."""
    return f"{history.label} ({history.estimator})" if history.label else history.estimator
