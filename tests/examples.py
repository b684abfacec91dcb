"""The number of hypothesis examples of a property: few in every run, many in thorough runs."""

import os

from hypothesis import settings

#: The environment variable that selects thorough runs, with the value "thorough".
VARIABLE = "DTREES_HYPOTHESIS"
THOROUGH = os.environ.get(VARIABLE) == "thorough"
#: Fewest in a quick run.
_FEWEST = 25


def examples(most: int) -> settings:
    """Return settings with ``most`` examples for a thorough run, and a tenth of them, or some more, for a quick one.

    >>> examples(100).max_examples in (100, 25)
    True
    """
    return settings(max_examples=most if THOROUGH else min(most, max(_FEWEST, most // 10)))
