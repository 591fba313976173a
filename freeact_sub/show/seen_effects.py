"""A yes to a cell is to the effects that the person has seen."""

from typing import TypeGuard

from freeact_sub.calls import CodeAction
from freeact_sub.events import ApprovalRequest, Decision, Effects


def is_tried(request: ApprovalRequest) -> bool:
    """Whether front ends show what a call would do, or why that is not known."""
    effects = request.effects
    return isinstance(request.call, CodeAction) and (effects is None or not effects.off)


def are_seen(effects: Effects | None) -> TypeGuard[Effects]:
    """Whether there are effects to which a yes can be. Without them it is to the code."""
    return effects is not None and effects.status != "refused"


async def seen_otherwise(request: ApprovalRequest, decision: Decision, seen: Effects | None) -> Effects | None:
    """Return what the cell would now do, if that is not what a person has seen. None: the decision counts.

    A person is asked again once. Whoever has seen that the cell was tried again decides: its files may change all the time.

    Args:
        request: The question about the cell.
        decision: What the person has decided.
        seen: The effects that are shown. None: they are not there yet.
    """
    if not decision.allowed or not are_seen(seen) or seen.outdated_by:
        return None
    now = await request.effects_ready(decision.code)
    return None if now.shows_as(seen) else now
