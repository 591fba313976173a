"""Choices for agents. `Mode`: the actions without a question, from the least to the most (docs/security.md)."""

from typing import Final, Literal, TypeAlias, get_args

Mode: TypeAlias = Literal["plan", "ask", "auto", "full"]
"""A mode. `plan`: nothing is written or connected to. `ask`: important actions are asked. `auto`: unasked in the wall.
`full`: unasked."""

Headless: TypeAlias = Literal["allow", "deny", "auto"]
"""The answer to a question if nobody answers. `auto`: yes in the modes `auto` and `full`, else no."""

CodeActions: TypeAlias = Literal["tool", "block", "auto"]
"""The form in which a model submits code (`Config.code_actions`)."""

NoAnswer: TypeAlias = Literal["empty", "small"]
"""The final texts that are no answer (`Config.answer_check`)."""

Profile: TypeAlias = Literal["small", "full"]
"""The length of the tools' descriptions for models."""

Thinking: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
"""The amount of thinking before an answer; a model without the level uses the nearest."""

History: TypeAlias = Literal["none", "all"] | int
"""The share of its parent's conversation that a child reads; a number: the last exchanges, each a prompt with all that
follows it."""

INHERIT: Final = "inherit"
"""The name that stands for the model of the agent that starts a child."""

MODES: Final[tuple[Mode, ...]] = get_args(Mode)

Wall: TypeAlias = Literal["read-only", "workspace", "open"]
"""The wall around the kernel. `workspace`: it writes only there, and does not connect. `open`: no such bounds."""
WALLS: Final[tuple[Wall, ...]] = ("read-only", "workspace", "open")
WALL_OF: Final[dict[Mode, Wall]] = {"plan": "read-only", "ask": "open", "auto": "workspace", "full": "open"}


def narrower(one: Mode, other: Mode) -> Mode:
    """Return the one of two modes that asks, or forbids, more."""
    return min(one, other, key=MODES.index)
