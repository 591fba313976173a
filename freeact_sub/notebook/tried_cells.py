"""The effects of a cell that a person is asked about, as HTML, and a yes that is to what the person has seen."""

from typing import Final

from freeact_sub.events import ApprovalRequest, Decision, Effects
from freeact_sub.show.effect_lines import EffectLine, LineKind, effect_lines
from freeact_sub.show.safe_html import bundle_html, escaped, is_picture

CLASSES: Final[dict[LineKind, str]] = {"added": "fsub-yes", "removed": "fsub-no", "warning": "fsub-bad"}
PICTURES: Final = 3


def effects_html(effects: Effects) -> str:
    """What is shown below the code. Empty: trials are off."""
    if effects.off:
        return ""
    lines = "\n".join(map(_line, effect_lines(effects)))
    pictures = [*map(bundle_html, filter(is_picture, effects.displays))][:PICTURES]
    return f'<pre class="fsub-text">{lines}</pre>{"".join(pictures)}'


def _line(line: EffectLine) -> str:
    text = escaped(line.text)
    return f'<span class="{CLASSES[line.kind]}">{text}</span>' if line.kind in CLASSES else text


async def seen_otherwise(request: ApprovalRequest, decision: Decision, seen: Effects | None) -> Effects | None:
    """Return what the cell would now do, if that is not what a person has seen. None: the decision counts.

    Args:
        request: The question about the cell.
        decision: What the person has decided.
        seen: The effects that are shown. None: they are not there yet.
    """
    if not decision.allowed or seen is None or seen.status == "refused":
        return None
    now = await request.effects_ready(decision.code)
    return None if now.shows_as(seen) else now
