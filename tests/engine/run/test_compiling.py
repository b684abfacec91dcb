"""What is compiled before it is needed."""

from __future__ import annotations

from dtrees.engine.run.compiling import compile_division
from dtrees.split.node.partition import divide_many, mark_many


def test_division() -> None:
    compile_division()
    assert mark_many.signatures
    assert divide_many.signatures
