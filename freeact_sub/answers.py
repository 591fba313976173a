"""What a person types in answer to a question, the same in the terminal and in a notebook."""

import re
from typing import Final

from freeact_sub.events import ApprovalRequest, Decision, Remember
from freeact_sub.text import one_line

HINT: Final = "y yes · n no · a always in this session · or type why not"
KINDS: Final = "code|spawn|shell|file|write|connect|mcp|tool"
_ALWAYS: Final = re.compile(rf"(?i:(a|always|p|project))(?:\s+((?:{KINDS})(?::.*)?))?", re.DOTALL)


def always_means(request: ApprovalRequest) -> str:
    """What "always" would allow, and how to say something else; empty where nothing can be allowed for longer."""
    if not request.suggested:
        return ""
    patterns = one_line(", ".join(request.suggested), 200)
    return f"a allows {patterns} · p the same in this project for ever · after either, a pattern of your own"


def read_answer(text: str) -> Decision | None:
    """The decision that a line stands for; None for an empty line, which decides nothing."""
    answer = text.strip()
    if always := _ALWAYS.fullmatch(answer):
        remember: Remember = "session" if always[1][0] in "aA" else "project"
        return Decision(allowed=True, remember=remember, pattern=always[2])
    match answer.lower():
        case "":
            return None
        case "y" | "yes":
            return Decision(allowed=True)
        case "n" | "no":
            return Decision(allowed=False)
        case _:
            return Decision(allowed=False, reason=answer)
