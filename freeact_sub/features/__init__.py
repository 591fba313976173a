"""The features of an agent, one folder each: a `Feature` (`agents/feature.py`), and all that belongs to it.

`default_features` is the only list of their order round a call, outermost first. The core names none of them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freeact_sub.agents.feature import Feature
    from freeact_sub.hooks import Hook


def default_features(hooks: "Sequence[Hook]" = ()) -> "Sequence[Feature]":
    """Return new objects of all features, in their order. Args: hooks: functions of the program, besides those of files."""
    from freeact_sub.features.compaction import Compaction  # noqa: PLC0415
    from freeact_sub.features.effects import EffectsOfCells  # noqa: PLC0415
    from freeact_sub.features.files import Files  # noqa: PLC0415  # an agent without features imports none
    from freeact_sub.features.hooks import Hooks  # noqa: PLC0415
    from freeact_sub.features.receipts import Receipts  # noqa: PLC0415
    from freeact_sub.features.sessions import Sessions  # noqa: PLC0415
    from freeact_sub.features.undo import Undoable  # noqa: PLC0415

    return [
        Sessions(),  # outermost: a call is on disk before anything of it happens
        Files(),  # before receipts: its reports are in before receipts look at the files
        EffectsOfCells(),  # its trials end before anybody looks at the files
        Receipts(),  # a call that was denied has none, so the gate comes before
        Hooks(hooks),  # innermost: they hear the result as the model reads it, and their notes stand in no receipt
        Compaction(),
        Undoable(),  # last: a prompt that hooks refuse is none that can be undone
    ]
