"""The effects of a cell that a person is asked about, as HTML."""

from typing import Final

from freeact_sub.events import Effects
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
