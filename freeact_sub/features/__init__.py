"""The features of an agent, one folder each: a `Feature` (`agents/feature.py`), and all that belongs to it.

`default_features` is the only list of their order round a call, outermost first. The core names none of them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freeact_sub.agents.feature import Feature


def default_features() -> "Sequence[Feature]":
    """Return new objects of all features, in their order."""
    from freeact_sub.features.files import Files  # noqa: PLC0415  # an agent without features imports none
    from freeact_sub.features.receipts import Receipts  # noqa: PLC0415

    return [
        Files(),  # first: its reports are in before receipts look at the files
        Receipts(),  # a call that was denied has none, so the gate comes before
    ]
