"""`Picker`: a person chooses a session in the alternate screen: this folder's first, then others, then runs of one prompt.

Arrow keys move, typing searches ids, titles, folders and prompts, Enter chooses, Escape and Ctrl-C leave.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import BufferControl, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import Output
from rich.cells import cell_len, set_cell_size

from freeact_sub.errors import FreeactError
from freeact_sub.show.wording import ago, session_facts, session_title
from freeact_sub.terminal.drawing.parts import filled
from freeact_sub.text import visible

if TYPE_CHECKING:
    from freeact_sub.sessions import SessionStore, StoredSession

ESCAPE_SECONDS: Final = 0.1
WIDE: Final = 76
"""Columns from which on a session shows more than its age."""
READING: Final = "reading the sessions …"
HINTS: Final = ("Enter resumes", "Esc leaves", "type to search", "↑ ↓ move")
GROUPS: Final = ("this folder", "other folders", "runs of one prompt")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One session."""

    session: "StoredSession"
    group: int
    """Its place in `GROUPS`."""
    text: str
    """What is searched, in small letters."""
    is_open: bool
    """Another program has it open."""


def choices_of(store: "SessionStore", workspace: Path, without: str | None = None) -> list[Choice]:
    """All sessions that have a prompt, in the order of the list. Args: without: the id of one to leave out.

    Raises:
        SessionError: They cannot be read.
    """
    sessions = [session for session in store.sessions() if session.title and session.session_id != without]
    prompts: dict[str, list[str]] = {}
    for session_id, prompt in store.prompts():
        prompts.setdefault(session_id, []).append(prompt)
    found = []
    for session in sessions:
        words = [session.session_id, session.title, str(session.workspace), *prompts.get(session.session_id, ())]
        group = 2 if session.once else 0 if session.workspace == workspace else 1
        is_open = store.is_open(session.session_id)
        found.append(Choice(session=session, group=group, text="\n".join(words).lower(), is_open=is_open))
    return sorted(found, key=lambda choice: (choice.group, choice.group == 2 and choice.session.workspace != workspace))


def matching(choices: Sequence[Choice], query: str) -> list[Choice]:
    """The choices that have all words of a query."""
    words = query.lower().split()
    return [choice for choice in choices if all(word in choice.text for word in words)]


def choice_line(choice: Choice, columns: int, now: float) -> str:
    """A session in one row: its title, and at the right end its age and size."""
    session = choice.session
    facts = session_facts(session, now) if columns >= WIDE else ago(session.updated, now)
    if choice.is_open:
        facts = f"open elsewhere · {facts}" if columns >= WIDE else "open"
    title = visible(session_title(session))
    if choice.group == 1 and columns >= WIDE:
        title = f"{visible(session.workspace.name)}: {title}"
    room = max(columns - cell_len(facts) - 2, 8)
    return set_cell_size(f"{filled(title, room)}  {facts}", columns)


class Picker:
    """Lets a person choose once. `chosen` is the id of the session afterwards; None: none was chosen."""

    def __init__(self, load: Callable[[], list[Choice]]) -> None:
        """Args: load: reads the sessions; called in another thread."""
        self.chosen: str | None = None
        self._load = load
        self._choices: list[Choice] | None = None
        self._problem = ""
        self._at = self._top = 0
        self._query = Buffer(multiline=False, on_text_changed=lambda _: self._begin())
        self._application: Application[None] | None = None

    def leave(self) -> None:
        """Ends it; does nothing if it has ended."""
        if self._application is not None and self._application.is_running and not self._application.is_done:
            self._application.exit()

    def application(self, source: Input, output: Output) -> Application[None]:
        """The application that draws it. Args: source, output: the terminal."""
        query = Window(BufferControl(self._query, input_processors=[BeforeInput("resume: ")]), height=1)
        self._application = Application(
            layout=Layout(
                HSplit(
                    [
                        query,
                        Window(FormattedTextControl(self._shown), wrap_lines=False),
                        Window(FormattedTextControl(self._status), height=1, style="reverse"),
                    ]
                ),
                focused_element=query,
            ),
            key_bindings=self._keys(),
            full_screen=True,
            input=source,
            output=output,
        )
        self._application.ttimeoutlen = ESCAPE_SECONDS
        self._application.pre_run_callables.append(self._read)
        return self._application

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        moves = {"up": -1, "down": 1, "c-p": -1, "c-n": 1}
        for key, step in moves.items():
            keys.add(key, eager=True)(lambda _, step=step: self._move(step))
        keys.add("pageup", eager=True)(lambda _: self._move(-self._rows))
        keys.add("pagedown", eager=True)(lambda _: self._move(self._rows))
        for key in ("escape", "c-c", "c-d"):
            keys.add(key, eager=True)(lambda _: self.leave())
        keys.add("enter", eager=True)(lambda _: self._choose())
        return keys

    def _read(self) -> None:
        async def read() -> None:
            try:
                self._choices = await asyncio.to_thread(self._load)
            except FreeactError as error:
                self._choices, self._problem = [], str(error)
            if self._application is not None:
                self._application.invalidate()

        if self._application is not None:
            self._application.create_background_task(read())

    def _begin(self) -> None:
        self._at = self._top = 0

    def _move(self, step: int) -> None:
        self._at = min(max(self._at + step, 0), max(len(self._found) - 1, 0))

    def _choose(self) -> None:
        if self._found:
            self.chosen = self._found[self._at].session.session_id
            self.leave()

    @property
    def _found(self) -> list[Choice]:
        return matching(self._choices or [], self._query.text)

    @property
    def _size(self) -> tuple[int, int]:
        assert self._application is not None
        size = self._application.output.get_size()
        return size.rows, size.columns

    @property
    def _rows(self) -> int:
        return max(self._size[0] - 2, 1)

    def _shown(self) -> StyleAndTextTuples:
        if self._choices is None:
            return [("", READING)]
        found, now, columns = self._found, time.time(), self._size[1]
        if not found:
            return [("", self._problem or ("no match" if self._choices else "no session to resume"))]
        lines: list[tuple[str, str]] = []
        selected = 0
        for number, choice in enumerate(found):
            if not number or found[number - 1].group != choice.group:
                lines.append(("bold", GROUPS[choice.group]))
            is_selected = number == self._at
            selected = len(lines) if is_selected else selected
            mark = "> " if is_selected else "  "
            lines.append(("reverse" if is_selected else "", mark + choice_line(choice, columns - 2, now)))
        self._top = min(max(self._top, selected - self._rows + 1), max(selected - 1, 0))
        shown = lines[self._top : self._top + self._rows]
        return [(style, f"{text}\n") for style, text in shown]

    def _status(self) -> str:
        line = f" {len(self._found):,} of {len(self._choices):,}" if self._choices is not None else f" {READING}"
        columns = self._size[1]
        for hint in HINTS:
            if cell_len(f"{line} · {hint}") <= columns:
                line = f"{line} · {hint}"
        return line


def pick(load: Callable[[], list[Choice]]) -> str | None:
    """Lets a person choose where no conversation has the terminal. Returns: the id. None: none was chosen."""
    from prompt_toolkit.input import create_input  # noqa: PLC0415
    from prompt_toolkit.output import create_output  # noqa: PLC0415

    picker = Picker(load)
    picker.application(create_input(), create_output()).run()
    return picker.chosen
