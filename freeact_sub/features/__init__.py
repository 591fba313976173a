"""Features of an agent, one file or folder each: a `Feature` (`agents/feature.py`), and all that belongs to it.

`default_features` is the only list of their order around a call, outermost first. The core names none of them. Features of
other packages follow: the entry points of the group `freeact_sub.features`.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from freeact_sub.config.entry_points import FEATURES
from freeact_sub.errors import ConfigError

if TYPE_CHECKING:
    from freeact_sub.agents.feature import Feature
    from freeact_sub.hooks import Hook


def default_features(hooks: "Sequence[Hook]" = ()) -> "Sequence[Feature]":
    """Return new objects of all features, in their order; other packages' come last, by the name of the entry point.

    Args:
        hooks: Functions of the program, besides those of files.

    Raises:
        ConfigError: A feature of another package cannot be loaded or made.
    """
    from freeact_sub.features.agent_types import AgentTypesFeature  # noqa: PLC0415  # an agent without features imports none
    from freeact_sub.features.background import BackgroundFeature  # noqa: PLC0415
    from freeact_sub.features.compaction import CompactionFeature  # noqa: PLC0415
    from freeact_sub.features.early import EarlyFeature  # noqa: PLC0415
    from freeact_sub.features.effects import EffectsFeature  # noqa: PLC0415
    from freeact_sub.features.files import FilesFeature, ReceiptsFeature  # noqa: PLC0415
    from freeact_sub.features.hooks import HooksFeature  # noqa: PLC0415
    from freeact_sub.features.instructions import InstructionsFeature  # noqa: PLC0415
    from freeact_sub.features.limits import LimitsFeature  # noqa: PLC0415
    from freeact_sub.features.mcp_client.client import McpClientFeature  # noqa: PLC0415
    from freeact_sub.features.memory import MemoryFeature  # noqa: PLC0415
    from freeact_sub.features.plan import PlanFeature  # noqa: PLC0415
    from freeact_sub.features.questions import QuestionsFeature  # noqa: PLC0415
    from freeact_sub.features.quotes import QuotesFeature  # noqa: PLC0415
    from freeact_sub.features.sessions.feature import SessionsFeature  # noqa: PLC0415
    from freeact_sub.features.skills.feature import SkillsFeature  # noqa: PLC0415
    from freeact_sub.features.undo import UndoFeature  # noqa: PLC0415

    return [
        AgentTypesFeature(),  # beside calls; the rights of the root come first
        McpClientFeature(),  # beside calls; models read of servers before skills
        QuotesFeature(),  # outside of what is known already, which it does not count
        SessionsFeature(),  # outermost: a call is on disk before anything of it happens
        FilesFeature(),  # before receipts: its reports are in before receipts look at the files
        EffectsFeature(),  # its trials end before anybody looks at the files
        ReceiptsFeature(),  # a call that was denied has none, so the gate comes before
        BackgroundFeature(),  # its tools come first; hooks hear of an answer when no child is left behind
        EarlyFeature(),  # before hooks: they hear of an answer that counts
        HooksFeature(hooks),  # innermost: they hear the result as the model reads it, and their notes stand in no receipt
        CompactionFeature(),  # beside calls; it hears hooks before it shortens
        UndoFeature(),  # after hooks: a prompt that they refuse is none that can be undone
        SkillsFeature(),  # after hooks: nor is a skill announced that came with it
        InstructionsFeature(),  # beside calls; it hears what files report
        LimitsFeature(),  # beside calls
        QuestionsFeature(),  # these only give tools, and models read theirs in this order
        PlanFeature(),
        MemoryFeature(),
        *_installed(),
    ]


def _installed() -> "Iterator[Feature]":
    """Make the features of other packages. None is left out silently: users rely on them."""
    from freeact_sub.agents.feature import Feature  # noqa: PLC0415

    for name in sorted(FEATURES.installed()):
        make = FEATURES.load(name)
        try:
            feature = make()
        except Exception as error:  # border: the code of another package
            raise ConfigError(f"the feature `{name}` cannot be made: {type(error).__name__}: {error}") from error
        if not isinstance(feature, Feature):
            made = f"a {type(feature).__name__}, and no Feature"
            raise ConfigError(f"the feature `{name}` cannot be made: its entry point makes {made}")
        yield feature
