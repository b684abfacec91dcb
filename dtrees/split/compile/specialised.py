"""Functions with a version for each type of named tuple, so that one kernel source serves every criterion at no run-time cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.errors import TypingError
from numba.extending import overload

from dtrees.split.compile.kernels import PART_OPTIONS


def specialised(declaration: Callable[..., Any], otherwise: Callable[..., Any] | None = None) -> Any:
    """Return a function of which kernels compile the version for the type of the first argument, a named tuple.

    The decorated function is a declaration: a name, parameters, and a docstring for all versions. The result's ``of(*kinds)`` is a
    decorator that adds the version for classes of named tuples. A kernel that calls the function with a type without a version does not
    compile, unless ``otherwise`` is given (:func:`optional`). There is no branch at run time. A version does not count references: if it
    returns arrays, also in a tuple, only kernels that do not count them either may call it (``lean_kernel`` and similar). If Python
    calls the function, it compiles a version first.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> class Circle(NamedTuple):
    ...     radius: float
    >>> @specialised
    ... def width(shape):
    ...     '''Return the width of a shape.'''
    >>> @width.of(Circle)
    ... def _(shape):
    ...     return 2.0 * shape.radius
    >>> width(Circle(1.5))
    3.0
    """
    versions: dict[type, Callable[..., Any]] = {}
    name = declaration.__name__

    def run(*arguments: Any) -> Any:
        return entry(*arguments)

    def choose(first: Any, *rest: Any) -> Callable[..., Any]:
        kind = getattr(first, "instance_class", first)
        found = versions.get(kind, otherwise)
        if found is None:
            raise TypingError(f"{name} has no version for {getattr(kind, '__name__', kind)}; add one with @{name}.of(...)")
        return found

    def of(*kinds: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def add(version: Callable[..., Any]) -> Callable[..., Any]:
            versions.update(dict.fromkeys(kinds, version))
            return version

        return add

    run.__name__, run.__qualname__, run.__doc__, run.__module__ = name, name, declaration.__doc__, declaration.__module__
    run.of, run.versions = of, versions  # type: ignore[attr-defined]
    overload(run, strict=False, jit_options=PART_OPTIONS)(choose)
    entry = njit(lambda *arguments: run(*arguments), nogil=True, error_model="numpy", _nrt=False)
    return run


def always(first, *rest):
    """Return True: the version, for the kinds that have it, of a function that tells whether a kind has some property."""
    return True


def optional(declaration: Callable[..., Any]) -> Any:
    """Return a function as :func:`specialised` does; the decorated function serves all types without a version of their own."""
    return specialised(declaration, declaration)
