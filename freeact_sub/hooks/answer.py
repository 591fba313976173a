"""`read_answer`: what a hook says by its exit code and its output, or by the value that a function returns.

Exit code 2 is a denial, and standard error its reason. Exit code 0 with a JSON object on standard output is what the
object says; another text is for the model at events that tell it something, and otherwise nothing. All else is a failure.
"""

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from freeact_sub.config.hooks import HookEvent
from freeact_sub.config.parsing import SHOWN, parse_json
from freeact_sub.text import clean, shortened

HookVerdict: TypeAlias = Literal["deny", "ask", "allow"]
"""In the order in which one counts more than another."""
VERDICTS: Final[tuple[HookVerdict, ...]] = ("deny", "ask", "allow")
TEXT_CHARS: Final = 10_000
"""Characters of a text of a hook that a model or a person reads."""
DENIED: Final = 2
"""The exit code of a denial."""
TELLS_MODEL: Final = frozenset(("UserPromptSubmit", "SessionStart", "SubagentStart"))
"""Events at which what a hook prints is for the model."""
OLD_WORDS: Final[Mapping[str, HookVerdict]] = {
    "approve": "allow",
    "allow": "allow",
    "block": "deny",
    "deny": "deny",
    "ask": "ask",
}
MAX_BEGINNINGS: Final = 50
"""Lines that are tried as the beginning of a JSON object."""
WHITE: Final = string.whitespace + "\ufeff"
OUR_KEYS: Final = frozenset(("decision", "hookSpecificOutput", "continue", "systemMessage"))
"""A JSON object with one of these is meant as an answer."""
NO_REASON: Final = "it gave no reason"


@dataclass(frozen=True, kw_only=True)
class HookAnswer:
    """What one hook says, or several together."""

    verdict: HookVerdict | None = None
    """None: nothing."""
    reason: str = ""
    context: str = ""
    """For the model."""
    notice: str = ""
    """For people."""
    ends: bool = False
    """The agent must not go on."""
    failure: str = ""
    """Why it could not say anything."""


SILENT: Final = HookAnswer()


def failed(why: str) -> HookAnswer:
    """The answer of a hook that failed."""
    return HookAnswer(failure=why)


def read_exit(event: HookEvent, code: int, output: str, errors: str) -> HookAnswer:
    """Reads how a command ended. Args: code: negative for a signal."""
    output, errors = clean(output).strip(WHITE), shortened(clean(errors).strip(), TEXT_CHARS)
    if code == DENIED:
        return HookAnswer(verdict="deny", reason=errors or NO_REASON)
    if code < 0:
        return failed(f"it was ended by signal {-code}")
    if code:
        return failed(f"it ended with exit code {code}" + (f": {errors}" if errors else ""))
    if not output.startswith("{"):
        if _has_late_object(output):
            return failed("it printed text before its JSON, which must stand alone on standard output")
        return HookAnswer(context=shortened(output, TEXT_CHARS)) if event in TELLS_MODEL else SILENT
    try:
        value = parse_json(output)
    except ValueError as error:
        return failed(f"what it printed is not JSON: {error}")
    return read_value(event, value)


def _has_late_object(output: str) -> bool:
    """Whether an answer in JSON follows a text, so that it would be lost."""
    for begin in [match.start() for match in re.finditer(r"^[ \t]*\{", output, re.MULTILINE)][:MAX_BEGINNINGS]:
        try:
            value = parse_json(output[begin:])
        except ValueError:
            continue
        return isinstance(value, dict) and not OUR_KEYS.isdisjoint(value)
    return False


def read_value(event: HookEvent, value: Any) -> HookAnswer:
    """Reads the JSON that a command printed, or what a function returned."""
    if value is None or value == {}:
        return SILENT
    if isinstance(value, str):
        return (
            read_exit(event, 0, value, "") if event in TELLS_MODEL else failed(f"it returned the text {SHOWN.repr(value)}")
        )
    if not isinstance(value, Mapping):
        return failed(f"it answered {SHOWN.repr(value)}, which is no object")
    try:
        return _read_object(event, value)
    except ValueError as error:
        return failed(str(error))


def _read_object(event: HookEvent, value: Mapping[str, Any]) -> HookAnswer:
    specific = value.get("hookSpecificOutput", {})
    if not isinstance(specific, Mapping):
        raise ValueError(f"`hookSpecificOutput` must be an object, not {SHOWN.repr(specific)}")  # noqa: TRY004  # one kind
    if (named := specific.get("hookEventName", event)) != event:
        raise ValueError(f"it answers the event {SHOWN.repr(named)}, and was asked about {event}")
    decision = specific.get("decision")
    inner = decision if isinstance(decision, Mapping) else {}
    if "updatedInput" in specific or "updatedInput" in inner:
        raise ValueError("it wants to change the arguments of the call (`updatedInput`), and a hook cannot do that here")
    word = inner.get("behavior", specific.get("permissionDecision", value.get("decision")))
    verdict = None if word is None else OLD_WORDS.get(str(word))
    if word is not None and verdict is None:
        raise ValueError(f"it decides {SHOWN.repr(word)}, which is not one of {', '.join(OLD_WORDS)}")
    reason = _text(inner, "message") or _text(specific, "permissionDecisionReason") or _text(value, "reason")
    notice, context = _text(value, "systemMessage"), _text(specific, "additionalContext")
    if value.get("continue") is False:
        stop = _text(value, "stopReason") or reason or NO_REASON
        return HookAnswer(verdict="deny", reason=stop, notice=notice, context=context, ends=True)
    ends = inner.get("interrupt") is True and verdict == "deny"
    return HookAnswer(
        verdict=verdict, reason=reason or (NO_REASON if verdict else ""), notice=notice, context=context, ends=ends
    )


def _text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name, "")
    if text is None:
        return ""
    if not isinstance(text, str):
        raise ValueError(f"`{name}` must be a text, not {SHOWN.repr(text)}")  # noqa: TRY004  # one kind
    return shortened(clean(text).strip(), TEXT_CHARS)


def together(answers: list[HookAnswer]) -> HookAnswer:
    """What several hooks say: the strictest verdict with its reasons, and all texts."""
    verdict = next((word for word in VERDICTS if any(answer.verdict == word for answer in answers)), None)
    deciding = [answer for answer in answers if answer.verdict == verdict and verdict is not None]
    return HookAnswer(
        verdict=verdict,
        reason=_joined(answer.reason for answer in deciding),
        context=_joined(answer.context for answer in answers),
        notice=_joined(answer.notice for answer in answers),
        ends=any(answer.ends for answer in answers),
    )


def _joined(texts: Any) -> str:
    return "\n".join(dict.fromkeys(text for text in texts if text))
