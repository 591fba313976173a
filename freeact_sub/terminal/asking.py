"""Questions to a person: one key answers, and Enter only where a text is typed.

`agrees` asks for yes or no before a conversation begins, `trusted` so about files with settings. An `Approver` decides the
approval requests of a run without an input line: as where nobody is there, or (`LineApprover`) by asking line by line.
`TypedLines` are lines of a terminal that is left as it is, with its own editing. `KeyGuard` says which keys may answer.
"""

import asyncio
import json
import os
import select
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self, TextIO

from freeact_sub import events as ev
from freeact_sub.config.hooks import HOOKS_FILE
from freeact_sub.config.parsing import parse_jsonc, parse_toml
from freeact_sub.show.questions import YES_NO, Questions, always_means, hint, leave_unasked
from freeact_sub.show.wording import asked_title, own_words, who_asks
from freeact_sub.text import counted, fitted, visible

GUARD_SECONDS: Final = 0.4
ENTER: Final = "\r"
RESTS: Final = {"y": "es", "n": "o", "a": "lways", "p": "roject"}
"""Letters that may follow an answering key if somebody types the whole word."""


class KeyGuard:
    """A guard that lets a key answer once the question has been open for a moment in which nobody typed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Args: clock: seconds that only grow."""
        self._clock = clock
        self._since = self._answered = -GUARD_SECONDS
        self._rest = ""

    def restart(self) -> None:
        """Note that a question opened, or that the person is still typing."""
        self._since = self._clock()

    def answered(self, key: str) -> None:
        """Note that a key answered: the rest of its word and Enter are ignored if they follow at once."""
        self._answered, self._rest = self._clock(), RESTS.get(key, "") + ENTER

    @property
    def is_open(self) -> bool:
        """Whether a key counts."""
        return self._clock() - self._since >= GUARD_SECONDS

    @property
    def may_drop(self) -> bool:
        """Whether the next key may belong to the last answer."""
        return bool(self._rest) and self._clock() - self._answered < GUARD_SECONDS

    def drops(self, text: str) -> bool:
        """Return whether a key belongs to the answer before it; the first one that does not ends the answer."""
        rest = ENTER if text == ENTER else self._rest
        if not text or not self.may_drop or not rest.startswith(text):
            self._rest = ""
            return False
        self._answered, self._rest = self._clock(), rest[len(text) :]
        return True


NO_KEYS: Final = ("n", "\x1b", "\x04", "")
"""`n`, Escape, Ctrl-D, and the end of the input."""


def forget_typed() -> None:
    """Drop what a person typed before a question was shown: it is no answer to it."""
    with suppress(termios.error):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def agrees(question: str, terminal: TextIO | None) -> bool:
    """Return whether a person says yes, by one key, before a conversation begins.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    print(fitted(question, terminal), file=terminal, flush=True)
    with _single_keys():
        _wait_for_silence()
        print(fitted(YES_NO, terminal), end=": ", file=terminal, flush=True)
        while (key := _typed()) not in ("y", *NO_KEYS):
            _wait_for_silence()  # a letter of something else that is being written or pasted is no answer
        _wait_for_silence()  # the rest of a word, and Enter
    with suppress(OSError):  # the terminal is gone
        print("yes" if key == "y" else "no", file=terminal, flush=True)
    return key == "y"


def _typed() -> str:
    """Return the next typed key; of a word its first letter, for it may come at once."""
    with suppress(OSError):  # the terminal is gone
        text = os.read(sys.stdin.fileno(), 64).decode(errors="replace")
        word = text.strip().lower()
        return word[0] if word in ("y", "yes", "n", "no") else text
    return ""


def _wait_for_silence() -> None:
    """Drop typed text until nothing has come for a moment."""
    while select.select([sys.stdin], [], [], GUARD_SECONDS)[0] and _typed():
        pass


@contextmanager
def _single_keys() -> Iterator[None]:
    """Let standard input give each key at once, and show none."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    modes = [*before[:6], [*before[6]]]
    modes[3] &= ~(termios.ICANON | termios.ECHO)
    modes[6][termios.VSUSP] = b"\0"  # the shell would get a terminal that shows nothing
    termios.tcsetattr(descriptor, termios.TCSAFLUSH, modes)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)


MAX_LINES: Final = 600
"""Lines of all files together."""
HEAD: Final = (
    "This workspace has new or changed settings.\nThey decide what agents are told, what runs, and what runs without asking:"
)
ABOUT_HOOKS: Final = "The commands of hooks run with your rights, outside the sandbox."


def trusted(files: Mapping[Path, bytes], terminal: TextIO, *, if_not: str, all_needed: bool) -> dict[Path, bytes]:
    """Show the files and ask whether to trust them; return the trusted ones.

    Args:
        files: Their contents, by path.
        terminal: The stream for the question; the answer is read from standard input.
        if_not: The consequence of no trust.
        all_needed: Nothing is asked if there is too much to show. Else files for which there is no room are left out.
    """
    shown, lines, hidden = dict[Path, bytes](), list[str](), 0
    for path, content in files.items():
        part = ["", visible(str(path)), *_indented(path, content)]
        if len(lines) + len(part) <= MAX_LINES:
            shown[path] = content
            lines += part
        else:
            lines += part[: MAX_LINES - len(lines)] if all_needed else []
            hidden += len(part)
    print(HEAD, *lines, sep="\n", file=terminal)
    if hidden:
        left_out = (
            "these settings will"
            if all_needed
            else f"{counted(len(files) - len(shown), 'file')} that you have not seen will"
        )
        print(f"\n{counted(hidden, 'more line')} not shown, so {left_out} not count.", file=terminal)
        if all_needed or not shown:
            return {}
    about = f"\n{ABOUT_HOOKS}" if any(path.name == HOOKS_FILE.name for path in shown) else ""
    print(f"{about}\nIf you say no, {if_not}.", file=terminal)
    return shown if agrees("Trust these settings?", terminal) else {}


def settings_lines(path: Path, content: bytes) -> list[str]:
    """Return a line for each setting of a file with settings; the lines of a text."""
    text = content.decode(errors="backslashreplace")
    try:
        if path.suffix == ".json":
            return [*flat_lines(parse_jsonc(content))]
        if path.suffix == ".toml":
            return [*flat_lines(parse_toml(content))]
    except ValueError:
        pass
    return visible(text).splitlines()


def _indented(path: Path, content: bytes) -> Iterator[str]:
    return (f"    {line}" for line in settings_lines(path, content))


def flat_lines(value: Any, name: str = "") -> Iterator[str]:
    """Yield a line for each setting in a table of settings. Args: name: the table's."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from flat_lines(item, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for number, item in enumerate(value):
            yield from flat_lines(item, f"{name}[{number}]")
    else:
        shown = visible(f"{name} = {json.dumps(value, ensure_ascii=False, default=str)}")
        yield shown.replace("\n", "\\n")


GONE: Final = "nobody can be asked: standard input was closed"


NOTHING: Final = (None, 0, 0)
"""The place of `Questions` where none is open."""
CLOSED: Final = ("", 0, 0)
"""The place after an answer, when there is nothing to say about the question."""


class Approver:
    """A reader of a run's events that decides the approval requests among them: this one as where nobody is there."""

    def observe(self, event: ev.Event) -> None:
        """Handle an event without waiting."""
        if isinstance(event, ev.ApprovalRequest | ev.QuestionRequest):
            leave_unasked(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ask nothing more."""


class LineApprover(Approver):
    """An approver on a plain terminal: it prints a question and reads a line."""

    def __init__(self, terminal: TextIO) -> None:
        """Args: terminal: where questions are printed; answers are read from standard input."""
        self._terminal = terminal
        self._typed = TypedLines()
        self._questions = Questions()
        self._asked: tuple[str | None, int, int] = NOTHING
        self._gone = False

    def observe(self, event: ev.Event) -> None:
        """Handle an event without waiting."""
        self._questions.observe(event)
        self._ask()

    def __exit__(self, *_: object) -> None:
        self._typed.close()

    def _ask(self) -> None:
        if self._gone:
            self._questions.refuse_all(GONE)
        request = self._questions.current
        if self._asked == self._questions.place:
            return
        goes_on = self._asked[0] == self._questions.current_id
        if self._asked[0] and not goes_on:
            self._print("(this question is closed)")
        self._typed.stop()
        self._asked = self._questions.place
        self._typed.echo(not (isinstance(request, ev.QuestionRequest) and request.secret))
        if request is not None:
            if not goes_on:
                forget_typed()
            lines = question_lines(self._questions, request, who_asks(request))
            self._print("\n".join(field_lines(self._questions) if goes_on else lines))
            self._typed.listen(self._read)

    def _read(self, text: str) -> None:
        if not text:
            self._gone = True
        else:
            self._questions.answer(text.removesuffix("\n"))
            if self._questions.place == self._asked:
                request = self._questions.current
                can_type = hint(request) if isinstance(request, ev.ApprovalRequest) else "type the answer"
                self._print(f"({self._questions.asks_back.replace(' · ', ', ') or can_type})")
            elif self._questions.current_id != self._asked[0]:
                self._asked = CLOSED
        self._ask()

    def _print(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone: the end of its input tells as well
            self._terminal.write(f"{text}\n")  # at once: what is typed as soon as it is read stands in the next line
            self._terminal.flush()


def question_lines(questions: Questions, request: ev.ApprovalRequest | ev.QuestionRequest, who: str) -> list[str]:
    """Return a question in plain lines, in full, with the possible answers.

    Args:
        questions: All open questions.
        request: The current one.
        who: The name of the agent that asks.
    """
    of = f"{questions.number_of(request)} of {len(questions.waiting)}"
    if isinstance(request, ev.QuestionRequest):
        hidden = " (what you type is not shown)" if request.secret else ""
        return [f"Question {of}: {who} {asked_title(request)}{hidden}", own_words(request), *field_lines(questions)]
    notes = filter(None, [always_means(request), hint(request), *questions.others()])
    return [f"Approval {of}: {who} {request.call.question}", request.call.text, *(f"({note})" for note in notes)]


def field_lines(questions: Questions, how: str = "type {hint}") -> list[str]:
    """Return the present field of the current question, in plain lines; none if it has no fields.

    Args:
        questions: All open questions.
        how: Words about the answer.
    """
    if (filling := questions.filling) is None:
        return []
    rows = [f"  {row}" for row in filling.rows]
    return [*filter(None, (filling.refused, filling.title)), *rows, f"({how.format(hint=filling.hint)})"]


class TypedLines:
    """Standard input, a terminal, that is read while somebody listens."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._echoes = True

    def listen(self, on_text: Callable[[str], None]) -> None:
        """Pass on entered lines from now on. Args: on_text: gets lines; an empty text: the input has ended."""
        asyncio.get_running_loop().add_reader(self._input, self._read, on_text)

    def stop(self) -> None:
        """Pass on nothing more."""
        asyncio.get_running_loop().remove_reader(self._input)

    def close(self) -> None:
        """Stop, and leave the terminal as it was."""
        self.stop()
        self.echo(True)

    def echo(self, on: bool) -> None:  # a state
        """Let the terminal show typed text, or hide it."""
        if on is self._echoes:
            return
        self._echoes = on
        with suppress(termios.error):
            modes = termios.tcgetattr(self._input)
            modes[3] = modes[3] | termios.ECHO if on else modes[3] & ~termios.ECHO
            termios.tcsetattr(self._input, termios.TCSANOW, modes)

    def _read(self, on_text: Callable[[str], None]) -> None:
        try:
            content = os.read(self._input, 65536)
        except OSError:  # the terminal is gone
            content = b""
        if not content:
            self.stop()
        on_text(content.decode(errors="replace"))
