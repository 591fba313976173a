"""The ways in which agents act. `Mode`: how much without a question, from the least to the most; see docs/security.md."""

from typing import Final, Literal, TypeAlias, get_args

Mode: TypeAlias = Literal["plan", "ask", "auto", "full"]
"""`plan`: nothing is written or connected to. `ask`: what matters is asked. `auto`: unasked in the wall. `full`: unasked."""

Headless: TypeAlias = Literal["allow", "deny", "auto"]
"""The answer to a question if nobody answers. `auto`: yes in the modes `auto` and `full`, else no."""

CodeActions: TypeAlias = Literal["tool", "block", "auto"]
"""How a model says which code to run, see `Config.code_actions`."""

NoAnswer: TypeAlias = Literal["empty", "small"]
"""Which final texts are no answer, see `Config.answer_check`."""

Profile: TypeAlias = Literal["small", "full"]
"""How much models read about each tool."""

Thinking: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much an agent's model thinks before it answers; a model that has no such level uses the nearest."""

History: TypeAlias = Literal["none", "all"] | int
"""What a child reads of its parent's conversation; a number: the last exchanges, each a prompt with all that follows it."""

INHERIT: Final = "inherit"
"""The name that stands for the model of the agent that starts a child."""

MODES: Final[tuple[Mode, ...]] = get_args(Mode)

Wall: TypeAlias = Literal["read-only", "workspace", "open"]
"""The wall around the kernel. `workspace`: it writes only there, and does not connect. `open`: no such bounds."""
WALLS: Final[tuple[Wall, ...]] = ("read-only", "workspace", "open")
WALL_OF: Final[dict[Mode, Wall]] = {"plan": "read-only", "ask": "open", "auto": "workspace", "full": "open"}


def narrower(one: Mode, other: Mode) -> Mode:
    """The one of two modes that asks, or forbids, more."""
    return min(one, other, key=MODES.index)
