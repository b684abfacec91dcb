"""What the page in Dask's dashboard shows of fits, as columns of values."""

from __future__ import annotations

import html
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dask.utils import format_bytes

from dtrees.cluster.dashboard.fit_history import FitHistory, WorkerShare
from dtrees.engine.plan.plans import Progress
from dtrees.ensemble.evaluation.displays import duration, figures, in_words

#: The columns of each plot, without rows.
EMPTY: dict[str, dict[str, list[Any]]] = {
    "curves": {"xs": [], "ys": [], "name": [], "colour": []},
    "pace": {"seconds": [], "done": [], "zero": []},
    "workers": {"worker": [], "scan": [], "communicate": [], "wait": []},
}
_CELL = 'style="padding: 2px 12px 2px 0; text-align: {}; white-space: nowrap; border-bottom: 1px solid #ececec"'
_BAR = """<div style="width: 120px; height: 9px; background: #e4e4e4; display: inline-block; margin-right: 8px">
<div style="width: {share:.0%}; height: 9px; background: #ffa51c"></div></div>{share:.0%}"""


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


def fits(histories: Sequence[FitHistory]) -> str:
    """Return a table of fits as HTML."""
    return _table([_fit(history) for history in histories], left=6)


def _fit(history: FitHistory) -> dict[str, Any]:
    remaining = history.remaining
    latest = figures(Progress(**history.latest)) if history.latest else {}
    share = 1.0 if history.outcome == "finished" else history.done / history.total if history.total else 0.0
    return {
        "fit": named(history),
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


def curves(history: FitHistory, colours: Sequence[str]) -> dict[str, list[Any]]:
    """Return a row for each loss or score of a fit."""
    points = {name: curve.shown() for name, curve in history.curves.items()}
    return {
        "xs": [[x for x, _ in curve] for curve in points.values()],
        "ys": [[y for _, y in curve] for curve in points.values()],
        "name": list(points),
        "colour": [colours[i % len(colours)] for i in range(len(points))],
    }


def pace(history: FitHistory) -> dict[str, list[Any]]:
    """Return when trees or rounds were finished."""
    points = history.pace.shown()
    return {"seconds": [seconds for _, seconds in points], "done": [done for done, _ in points], "zero": [0] * len(points)}


def seconds(history: FitHistory) -> dict[str, list[Any]]:
    """Return what the seconds of each worker were spent on."""
    shares = history.workers
    return {
        "worker": [_name(address) for address in shares],
        "scan": [share.scan for share in shares.values()],
        "communicate": [share.communicate for share in shares.values()],
        "wait": [share.wait for share in shares.values()],
    }


def workers(history: FitHistory, known: Mapping[str, Any]) -> str:
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


def heading(history: FitHistory) -> str:
    """Return what is told of a fit in a line, as HTML."""
    if not history.fit:
        return "No fit yet: what is fitted on this cluster, or submitted to it, appears here."
    words = f"<b>{html.escape(named(history))}</b> <code>{html.escape(history.fit)}</code>: {history.outcome}"
    if history.failure:
        words += f", {html.escape(history.failure)}"
    if history.placement:
        words += f", {html.escape(history.placement)} ({html.escape(history.reason)})"
    return words


def lines(history: FitHistory) -> str:
    """Return what happened to a fit, as HTML, the latest first."""
    told = [f"{time.strftime('%H:%M:%S', time.localtime(when))} {html.escape(line)}" for when, line in reversed(history.lines)]
    zone = time.strftime("%z", time.localtime(history.began))
    return "<br>".join([f"<b>What happened</b> (time zone {zone[:3]}:{zone[3:]})", *told])


def named(history: FitHistory) -> str:
    """Return what a fit is called: by its user, and what is fitted."""
    return f"{history.label} ({history.estimator})" if history.label else history.estimator
