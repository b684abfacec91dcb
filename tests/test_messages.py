"""The errors, warnings and notes that a user can meet, listed in ``messages.txt`` to be read as one text.

``python -m tests.test_messages`` writes the list; read the difference afterwards: a message is one sentence, or two, that says what
came, what is wanted, and what to do.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_PACKAGE, _LIST = Path(__file__).parents[1] / "dtrees", Path(__file__).with_name("messages.txt")
_CALLS = re.compile(r"(warnings\.)?warn|_?logger\.(warning|error)|click\.echo|display\.note")
#: Words that are not the field's, and phrases that are hard to read.
_PLAIN = re.compile(r"(?i)\b(none such|so many|what is of|lest|anew|made up|parcels?)\b")


def _text(node: ast.expr) -> str:
    """Return a message as it is written, with names in braces in place of values."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(_text, values))
        case ast.FormattedValue(value=value):
            return f"{{{ast.unparse(value)}}}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
        case _:
            return f"{{{ast.unparse(node)}}}"


def _messages() -> Iterator[str]:
    """Yield the module, the kind and the text of each message, in the order of the source."""
    for path in sorted(_PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = node.exc if isinstance(node, ast.Raise) else node
            if isinstance(call, ast.Call) and (isinstance(node, ast.Raise) or _CALLS.fullmatch(ast.unparse(call.func))):
                texts = [_text(one) for one in call.args if isinstance(one, ast.Constant | ast.JoinedStr | ast.BinOp)]
                yield f"{path.relative_to(_PACKAGE).with_suffix('')} {ast.unparse(call.func)}: {' | '.join(texts)}"


def test_messages_are_those_of_the_list() -> None:
    found = list(_messages())
    assert found == _LIST.read_text(encoding="utf-8").splitlines(), "run python -m tests.test_messages, and read what has changed"
    assert [one for one in found if _PLAIN.search(one.partition(": ")[2])] == []


if __name__ == "__main__":
    _LIST.write_text("".join(f"{one}\n" for one in _messages()), encoding="utf-8")
