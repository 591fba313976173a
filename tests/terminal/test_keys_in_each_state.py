"""Escape and Ctrl-C in each state of a conversation: the table of docs/terminal.md, in a pseudo-terminal."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.terminal import CONVERSATION, CTRL_C, CTRL_D, CTRL_R, ENTER, ESCAPE, READY, Terminal

from freeact_sub.terminal.screen import KEYS_SECONDS

CTRL_O, CTRL_U = "\x0f", "\x15"
MARK = "no agent is named state"
"""Stands in the scrollback where a state begins."""

Step = Callable[[Terminal], None]

pytestmark = pytest.mark.e2e


def types(text: str, *shown: str) -> Step:
    def step(terminal: Terminal) -> None:
        terminal.press(text)
        terminal.wait_at_bottom(*(shown or (f"> {text}",)))

    return step


def enters(line: str, *shown: str) -> Step:
    def step(terminal: Terminal) -> None:
        terminal.enter(line)
        terminal.wait_at_bottom(*shown)

    return step


def asked(*more: tuple[str, str]) -> Step:
    """A card stands there. Args: more: keys that are pressed then, and what is shown after each."""

    def step(terminal: Terminal) -> None:
        terminal.enter("sleep")
        terminal.wait_at_bottom("Approval 1 of 1", "y yes")
        for key, shown in more:
            terminal.answer(key) if len(key) == 1 else terminal.press(key)
            terminal.wait_at_bottom(shown)

    return step


def runs(terminal: Terminal) -> None:
    asked()(terminal)
    terminal.answer("y")
    terminal.wait_gone("Approval")


def writes_beside(terminal: Terminal) -> None:
    enters("silent", "1 agent at work")(terminal)
    types("half")(terminal)


def queued(*lines: str) -> Step:
    def step(terminal: Terminal) -> None:
        enters("silent", "1 agent at work")(terminal)
        for line in lines:
            terminal.enter(line)
            terminal.wait_at_bottom(f"queued: {line}")

    return step


# What comes of it


def nothing(terminal: Terminal) -> None:
    """What stands in the line stays, and is written on."""
    terminal.wait_until_whole()
    line = terminal.screen.display[terminal.screen.cursor.y].rstrip()
    time.sleep(KEYS_SECONDS * 2)  # for longer the key and the next one do not belong together
    terminal.press("x")
    expected = "> x" if line == ">" else f"{line}x"
    terminal.wait_until(lambda: expected in terminal.bottom.splitlines(), f"{expected!r} to stand in the line")


def gone(text: str, *stays: str) -> Step:
    def step(terminal: Terminal) -> None:
        terminal.wait_gone(text)
        terminal.wait_at_bottom(*stays)

    return step


def said(text: str, *shown: str) -> Step:
    def step(terminal: Terminal) -> None:
        terminal.wait_until(lambda: text in terminal.shown.rpartition(MARK)[2], f"{text} to be said")
        terminal.wait_at_bottom(*shown, READY)

    return step


cancelled = said("✗ cancelled")
brought_back = said("not run: !echo south", "> north")
says_how_to_leave = said("Ctrl-D or /exit quits.")


PASTE = "\x1b[200~" + "line\n" * 20 + "\x1b[201~"
STATES: dict[str, tuple[Step, Step, Step]] = {
    "idle": (types("", READY), nothing, says_how_to_leave),
    "typing": (types("half a li"), nothing, gone("half a li", READY)),
    "a menu is open": (types("/co", "/compact", "/copy"), gone("/compact", "> /co"), gone("/co", READY)),
    "a folded paste": (types(PASTE, "> [20 lines]"), nothing, gone("[20 lines]", READY)),
    "history is searched": (types(CTRL_R, "I-search"), gone("I-search"), gone("I-search")),
    "a session is picked": (enters("/resume", "Esc leaves"), gone("Esc leaves", READY), gone("Esc leaves", READY)),
    "the model is silent": (enters("silent", "1 agent at work"), cancelled, cancelled),
    "the model writes": (enters("slow never", "the beginning of a text"), cancelled, cancelled),
    "typing beside a run": (writes_beside, cancelled, cancelled),
    "a cell runs": (runs, cancelled, cancelled),
    "a command runs": (enters("!sleep 1000", "1 agent at work"), cancelled, cancelled),
    "a prompt and a command are queued": (queued("north", "!echo south"), brought_back, brought_back),
    "a command is queued": (queued("!echo south"), gone("queued:", "> !echo south"), gone("queued:", "> !echo south")),
    "a card": (asked(), cancelled, cancelled),
    "a reason": (asked(("r", "why not:"), ("half", "why not: half")), gone("why not: half", "Approval 1 of 1"), cancelled),
    "code is changed": (asked(("e", "run instead")), gone("run instead", "Approval 1 of 1"), cancelled),
    "free text at a card": (asked(("o", "? o"), ("ki", "? oki")), gone("oki", "Approval 1 of 1"), cancelled),
    "a text is asked back": (
        asked(("o", "? o"), ("ki", "? oki"), (f"{ENTER}", "deny with")),
        gone("deny with", "y yes"),
        cancelled,
    ),
    "pages": (types(CTRL_O, "q closes"), gone("q closes", READY), gone("q closes", READY)),
    "the conversation is summarised": (enters("/compact", "1 agent at work"), cancelled, cancelled),
}
"""How each state is reached from rest, and what comes of Escape and of Ctrl-C in it."""


def come_to_rest(terminal: Terminal) -> None:
    """Cancel what is still open, empty the line, and the screen."""
    if READY not in terminal.bottom:
        terminal.press(CTRL_C)
    terminal.wait_at_bottom(READY)
    terminal.press(CTRL_U)
    terminal.press("/")
    terminal.wait_at_bottom("list commands and keys")
    terminal.press(CTRL_U)
    terminal.wait_gone("list commands and keys")


@pytest.mark.parametrize(("key", "column"), [(ESCAPE, 1), (CTRL_C, 2)], ids=["escape", "ctrl-c"])
def test_each_state(key: str, column: int, tmp_path: Path) -> None:
    env = {"PYDANTIC_AI_NO_BANNER": "1", "SESSION": "new", "EDITOR": "", "VISUAL": ""}
    with Terminal([sys.executable, str(CONVERSATION)], cwd=tmp_path, env=env, rows=24) as terminal:
        terminal.wait_at_bottom(READY)
        terminal.enter("count")
        terminal.wait_for("1 prompts, 0 answers")
        for name, state in STATES.items():
            terminal.wait_at_bottom(READY)
            terminal.enter(f"/show state {name}")
            terminal.wait_for(f"{MARK} {name}")
            try:
                state[0](terminal)
                terminal.press(key)
                state[column](terminal)
                come_to_rest(terminal)
            except AssertionError as error:
                raise AssertionError(f"in the state: {name}\n{error}\n{terminal.bottom}") from error
        terminal.press(CTRL_D)
        assert terminal.wait_end() == 0


def test_while_it_starts_and_while_it_ends(tmp_path: Path) -> None:
    env = {"PYDANTIC_AI_NO_BANNER": "1", "STARTS_WITH": "go"}
    with Terminal([sys.executable, str(CONVERSATION)], cwd=tmp_path, env=env) as terminal:
        terminal.wait_at_bottom("starting …")
        terminal.press("half")
        terminal.wait_at_bottom("> half")
        terminal.press(CTRL_C)
        terminal.wait_gone("half")
        terminal.press(CTRL_C)
        terminal.wait_at_bottom("Ctrl-D or /exit quits.", "starting …")
        terminal.press(CTRL_D)
        (tmp_path / "go").touch()
        assert terminal.wait_end() == 0


def test_ctrl_b_says_why_a_cell_stays_in_front(tmp_path: Path) -> None:
    with Terminal([sys.executable, str(CONVERSATION)], cwd=tmp_path, env={"PYDANTIC_AI_NO_BANNER": "1"}) as terminal:
        terminal.wait_at_bottom(READY)
        runs(terminal)
        terminal.press("\x02")
        terminal.wait_at_bottom("not moved: a cell has its kernel's main thread")
        terminal.press(CTRL_C)
        terminal.wait_at_bottom(READY)
        terminal.press("ab\x02c")
        terminal.wait_at_bottom("> acb")
        terminal.press(CTRL_C)
        terminal.wait_at_bottom(READY)
        terminal.press(CTRL_D)
        assert terminal.wait_end() == 0
