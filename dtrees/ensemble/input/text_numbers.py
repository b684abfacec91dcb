"""Text that is a number to a reader, and not to a parser: with a currency, with groups of digits, with a decimal comma."""

from __future__ import annotations

import re

#: What reads such text as numbers.
HOW_TO_READ = "astype(float), decimal= and thousands= of pandas.read_csv, or --decimal and --thousands of the command line"
_CURRENCY = r"[$\u00a2-\u00a5\u20a0-\u20cf]"
_DIGITS = r"(\d{1,3}(?P<group>[.,'\u2019 \u00a0\u202f])\d{3}((?P=group)\d{3})*|\d+)([.,]\d*)?|[.,]\d+"
_NUMBER = re.compile(rf"\s*[-+]?\s*{_CURRENCY}?\s*[-+]?({_DIGITS})([eE][-+]?\d+)?\s*({_CURRENCY}|%)?\s*")


def looks_like_number(text: str) -> bool:
    """Return whether a text is a number to a reader.

    Examples
    --------
    >>> [looks_like_number(text) for text in ["7", "-1.5e3", "1,5", "$1,234.50", "1.234,5 \u20ac", "12 %"]]
    [True, True, True, True, True, True]
    >>> [looks_like_number(text) for text in ["", "a1", "2024-01-31", "1.2.3", "12:30"]]
    [False, False, False, False, False]
    """
    return _NUMBER.fullmatch(text) is not None
