"""Parameters that are declared once: of what a class annotates are made ``__init__``, the checks of a fit, and the documentation.

A class declares parameters as a dataclass does its fields, and describes them in its docstring, without their defaults::

    @with_parameters
    class Depth:
        max_depth: int | None = parameter(default=None, allowed=[POSITIVE_INTEGER, None])

An estimator has the parameters of its bases, with other defaults where it gives others. Its docstring gets their descriptions, and those
of attributes and the notes of its bases. (It is no dataclass: Dask would take equal parameters for equal models.)
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from dtrees.ensemble.compat import BaseEstimator
from dtrees.ensemble.input.other_names import show_signature

C = TypeVar("C", bound=type)


class _Declared(NamedTuple):
    """A parameter: its default, what it may be in scikit-learn's notation, and whether it is passed by name only."""

    default: Any
    allowed: list[Any] | None
    kw_only: bool
    annotation: str = "Any"


#: What each class declares itself.
_declared: dict[type, dict[str, _Declared]] = {}


def parameter(*, default: Any, allowed: list[Any] | None = None, kw_only: bool = True) -> Any:
    """Return the declaration of a parameter; ``allowed`` are constraints in scikit-learn's notation, by default those of a base."""
    return _Declared(default, allowed, kw_only)


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(parameter,))
def with_parameters(cls: C) -> C:
    """Decorate a class that declares parameters; one that is an estimator gets ``__init__``, constraints and documentation."""
    own = _declared[cls] = {}
    for name, annotation in inspect.get_annotations(cls).items():
        if not annotation.startswith("ClassVar"):
            given = vars(cls)[name]
            known = given if isinstance(given, _Declared) else _Declared(given, None, True)
            own[name] = known._replace(annotation=annotation)
            setattr(cls, name, known.default)
    if issubclass(cls, BaseEstimator):
        _make_estimator(cls)
    return cls


def _make_estimator(cls: Any) -> None:
    """Set what follows from the parameters of a class and its bases; an inherited one keeps its place."""
    found: dict[str, _Declared] = {}
    for base in cls.__mro__:
        for name, known in _declared.get(base, {}).items():
            over = found.pop(name, known)
            found[name] = over._replace(allowed=over.allowed or known.allowed, kw_only=over.kw_only and known.kw_only)
    found = dict(sorted(found.items(), key=lambda item: item[1].kw_only))
    cls._parameter_constraints = {name: known.allowed for name, known in found.items()}
    fields = [(name, known.annotation, dataclasses.field(default=known.default, kw_only=known.kw_only)) for name, known in found.items()]
    made: Any = dataclasses.make_dataclass(cls.__name__, fields, namespace={"__module__": cls.__module__}, repr=False, eq=False)
    cls.__init__ = made.__init__
    show_signature(cls)
    if cls.__doc__:  # Python may leave docstrings out
        cls.__doc__ = _description(cls, {name: known.default for name, known in found.items()})


def _description(cls: type, defaults: Mapping[str, Any]) -> str:
    """Return the docstring of an estimator with what its bases say."""
    own, *of_bases = [_sections(base.__doc__ or "") for base in cls.__mro__ if base.__module__.startswith("dtrees.")]
    parameters, attributes = (_entries([own, *of_bases], title) for title in ("Parameters", "Attributes"))
    sections = {
        "Parameters": "\n".join(_with_default(parameters[name], default) for name, default in defaults.items()),
        "Attributes": "\n".join(attributes.values()),
        **next(({"Notes": one["Notes"]} for one in of_bases if "Notes" in one), {}),
    }
    others = {title: text for title, text in own.items() if title not in ("", *sections)}
    return "\n\n".join([own[""], *(f"{title}\n{'-' * len(title)}\n{text}" for title, text in (sections | others).items())])


def _sections(docstring: str) -> dict[str, str]:
    """Return the sections of a docstring by their titles; what comes before them has none."""
    first, *rest = re.split(r"^(\w+)\n-+\n", inspect.cleandoc(docstring), flags=re.MULTILINE)
    return {"": first.strip(), **{title: text.strip() for title, text in zip(rest[::2], rest[1::2], strict=True)}}


def _entries(docstrings: list[dict[str, str]], title: str) -> dict[str, str]:
    """Return the entries of a section of docstrings by their names, each from the first that has it."""
    found: dict[str, str] = {}
    for sections in docstrings:
        for entry in re.split(r"\n(?=\S)", sections[title]) if title in sections else ():
            found.setdefault(entry.partition(" : ")[0], entry)
    return found


def _with_default(entry: str, default: Any) -> str:
    """Return the description of a parameter with its default."""
    first, end, rest = entry.partition("\n")
    return f"{first}, default={json.dumps(default) if isinstance(default, str) else repr(default)}{end}{rest}"
