"""The page of benchmarks, from stored results and ``page.md`` beside this file: ``python -m benchmarks.page RESULTS docs/benchmarks.md``.

RESULTS is the folder that ``python -m benchmarks --out`` and ``python -m benchmarks.versions --out`` write. Lines of the template:

``{{machine NAME ...}}``
    the machine and versions of benchmarks
``{{ratios NAME ...}}``
    a table of benchmarks, a row for each work, a column for each peer with its time divided by dtrees'; ratios below 1 are bold
``{{values NAME ...: heading, heading}}``
    the same with the measured values instead of ratios; the optional headings are those of the works and of dtrees

A section is left out if none of its tables has results.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click

from benchmarks.results import Results, Row, read, table

_TEMPLATE = Path(__file__).with_name("page.md")
_PLACE = re.compile(r"^\{\{(machine|ratios|values) ?([^:}]*)(?:: (.*?))?\}\}$", re.MULTILINE)


def fill(template: str, results: Mapping[str, Results]) -> str:
    """Return the page."""
    sections = re.split(r"^(?=## )", template, flags=re.MULTILINE)
    filled = (_PLACE.sub(lambda place: _fill(place, results), section) for section in sections if _is_measured(section, results))
    return "".join(filled).rstrip() + "\n"


def _is_measured(section: str, results: Mapping[str, Results]) -> bool:
    names = [name for _, names, _ in _PLACE.findall(section) for name in names.split()]
    return not names or any(name in results for name in names)


def _fill(place: re.Match[str], results: Mapping[str, Results]) -> str:
    kind, names, headings = place.groups()
    found = [results[name] for name in names.split() if name in results]
    if kind == "machine":
        return "\n\n".join(dict.fromkeys(one.machine for one in found))
    rows = [row for one in found for row in one.rows]
    work, ours = (headings or "work, dtrees").rsplit(", ", 1)
    peers = list(dict.fromkeys(row.peer for row in rows if row.peer))
    return table([work, ours, *peers], _lines(rows, peers, ratios=kind == "ratios"))


def _lines(rows: Iterable[Row], peers: Iterable[str], *, ratios: bool) -> Iterator[list[str]]:
    works: dict[str, dict[str, Row]] = {}
    for row in rows:
        works.setdefault(row.work, {})[row.peer] = row
    for work, found in works.items():
        ours = next(iter(found.values())).ours
        yield [work, str(ours), *((_ratio if ratios else _value)(found.get(peer)) for peer in peers)]


def _ratio(row: Row | None) -> str:
    if row is None or row.ratio is None:
        return ""
    text = f"{row.ratio:.0f}" if row.ratio >= 10 else f"{row.ratio:.1f}" if row.ratio >= 2 else f"{row.ratio:.2f}"
    return f"**{text}**" if row.ratio < 1 else text


def _value(row: Row | None) -> str:
    return "" if row is None else str(row.theirs)


@click.command()
@click.argument("results", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("page", type=click.Path(dir_okay=False, path_type=Path))
def main(results: Path, page: Path) -> None:
    """Write the page of benchmarks from a folder of results."""
    page.write_text(fill(_TEMPLATE.read_text(encoding="utf-8"), read(results)), encoding="utf-8")


if __name__ == "__main__":
    main()
