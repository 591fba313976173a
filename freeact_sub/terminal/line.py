"""`InputLine`: the text that a person types, and the meaning of each key at the moment.

At an open question and an empty line a single key is an answer. Text typed before the question appeared is kept and
returns after the last question; keys typed before it never answer it (`KeyGuard`).
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from prompt_toolkit import search
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, emacs_mode, has_completions, is_searching, vi_navigation_mode
from prompt_toolkit.history import FileHistory, ThreadedHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from freeact_sub.system.process import state_folder
from freeact_sub.terminal.asking import ENTER, KeyGuard
from freeact_sub.terminal.attachments import NamedFiles, Pastes, mention_of, mentioned_names
from freeact_sub.terminal.surface import Expected, Keyboard, Purpose

PROMPTS: Final[dict[Purpose, str]] = {"reason": "why not: ", "code": "run instead (Alt-Enter enters it): "}

PROMPTS_LOOKED_AT: Final = 100
"""The last earlier prompts whose files are offered first."""
ARROWS: Final[dict[object, str]] = {Keys.Left: "←", Keys.Right: "→", Keys.Up: "↑", Keys.Down: "↓"}


class InputLine:
    """The input line: its buffer and its keys."""

    def __init__(self, keyboard: Keyboard) -> None:
        self._keyboard = keyboard
        history = ThreadedHistory(KeptPrompts(history_file(), keyboard.tell))
        self.buffer = Buffer(
            multiline=True,
            completer=ThreadedCompleter(LineCompleter(keyboard.offers, history.get_strings)),
            complete_while_typing=Condition(lambda: self._lent is None and not self.expects),
            history=history,
        )
        self.expects: Expected = ""
        """The kind of input that the open question expects."""
        self._question: str | None = None
        self._lent: Purpose | None = None
        self._guard = KeyGuard()
        self.is_held = False
        """Whether the open question is not drawn yet, or not whole: no key answers it."""
        self._draft = Document()
        self.pastes = Pastes()

    @property
    def keys_count(self) -> bool:
        """Whether a single key answers the open question now."""
        return not self.is_held and self._guard.is_open

    def release(self) -> None:
        """Note that the question can be read: keys count after a moment."""
        self.is_held = False
        self._guard.restart()

    @property
    def text(self) -> str:
        """The text that is typed and not entered."""
        return self.buffer.text

    def prompt(self) -> str:
        """Return the text in front of the line."""
        mark = "[nav] " if vi_navigation_mode() and not self.takes_keys() else ""
        if self._lent is not None:
            return mark + PROMPTS[self._lent]
        return mark + ("> " if self._question is None else "? ")

    def change(self, question_id: str | None) -> bool:
        """Note the open question; return False if it is open already.

        Text typed so far is taken off the line, for it was no answer to this question; text typed before the first
        question comes back after the last.
        """
        if question_id == self._question:
            return False
        if self._question is None:
            self._draft = self.buffer.document
        self._question, self._lent = question_id, None
        self.buffer.reset(self._draft if question_id is None else Document())
        self.is_held = question_id is not None
        return True

    def lend(self, purpose: Purpose, text: str = "") -> None:
        """Let the person write a text for the open question; `Keyboard.written` receives it."""
        self._lent = purpose
        self.buffer.reset(Document(text))

    def clear(self) -> bool:
        """Empty the line, or end the text for a question; return False if it was empty."""
        had_text = bool(self.buffer.text) or self._lent is not None
        self._lent = None
        self.buffer.reset()
        return had_text

    def give(self, text: str) -> None:
        """Put a text at the start of the line; while a question is open, at the start of the text kept until after it."""
        if not text:
            return
        is_free = self._question is None and self._lent is None
        present = self.buffer.text if is_free else self._draft.text
        document = Document("\n".join(part for part in (text, present) if part))
        if is_free:
            self.buffer.reset(document)
        else:
            self._draft = document

    def bindings(self) -> KeyBindings:
        """Return the bindings of all keys."""
        keys = KeyBindings()
        asks, writes_code = Condition(self.takes_keys), Condition(lambda: self._lent == "code")
        typing = ~is_searching
        keys.add(Keys.Any, filter=asks & typing)(self._key)
        keys.add("right", filter=asks & typing)(self._key)
        fills = Condition(lambda: self.expects == "form")
        for arrow in ("left", "up", "down"):
            keys.add(arrow, filter=asks & fills & typing)(self._key)
        keys.add(Keys.Any, filter=typing & Condition(lambda: self._guard.may_drop))(self._after_answer)
        keys.add("enter", filter=typing & ~writes_code)(self._enter)
        keys.add("escape", "enter", filter=typing & writes_code)(self._enter)
        keys.add("escape", "enter", filter=typing & ~writes_code)(lambda event: event.current_buffer.insert_text("\n"))
        keys.add("enter", filter=is_searching)(self._accept_search)
        keys.add(Keys.BracketedPaste, filter=typing & ~asks & Condition(lambda: self._lent is None))(self._paste)
        empty = Condition(lambda: self._question is None and self._lent is None and not self.buffer.text)
        keys.add("up", filter=typing & empty)(self._up)
        keys.add("s-tab", filter=typing & ~has_completions)(lambda _: self._keyboard.next_mode())
        for action in self._keyboard.actions:
            counts = typing & Condition(action.counts)
            keys.add(*action.keys, filter=counts & empty if action.at_empty else counts)(lambda _, do=action.do: do())
        # with the keys of vi it ends the writing first
        keys.add("escape", filter=typing & (emacs_mode | vi_navigation_mode | asks))(self._escape)
        keys.add("c-z")(lambda event: self._keyboard.stop() or event.app.suspend_to_background())
        keys.add("c-d", filter=typing & Condition(lambda: not self.buffer.text))(lambda _: self._keyboard.ask_to_leave())
        return keys

    def _escape(self, event: KeyPressEvent) -> None:
        """Close the menu, or a text for a question; otherwise pass the key to the `Keyboard`."""
        if len(event.key_processor.key_buffer) != 1:
            return  # it begins a sequence of the terminal that nobody knows
        if self.buffer.complete_state is not None:
            self.buffer.cancel_completion()
        elif self._lent is not None or (self._question is not None and self.buffer.text):
            self.clear()
        else:
            self._keyboard.escape()

    def takes_keys(self) -> bool:
        """Return whether a key may be an answer: a question is open, and nothing is being written."""
        return self._question is not None and self._lent is None and not self.buffer.text

    def _key(self, event: KeyPressEvent) -> None:
        """Take a key at an open question: an answer, the beginning of a text, or meant for what stood there before."""
        pressed = event.key_sequence[-1].key
        is_paste = pressed == Keys.BracketedPaste
        text = event.data.replace("\r\n", "\n").replace("\r", "\n") if is_paste else event.data
        writes = is_paste or text.isprintable()
        if not self.keys_count:
            self._guard.restart()
            if writes:
                self._draft = Document(self._draft.text + text)
        elif not is_paste and self._keyboard.answer_key(ARROWS.get(pressed, text)):
            if writes and not text.isspace():  # an arrow moves the mark, Space marks, and Enter may follow at once
                self._guard.answered(text)
        elif writes:
            self.buffer.insert_text(text)

    def _after_answer(self, event: KeyPressEvent) -> None:
        """Take a key right after an answer: the rest of its word, or something else."""
        if not self._guard.drops(event.data):
            event.app.key_processor.feed(event.key_sequence[-1], first=True)

    def _paste(self, event: KeyPressEvent) -> None:
        self.buffer.insert_text(self.pastes.folded(event.data))

    def _up(self, event: KeyPressEvent) -> None:
        if waiting := self._keyboard.take_back():
            self.buffer.reset(Document(waiting))
        else:
            event.current_buffer.auto_up(count=event.arg)

    def offer(self, beginning: str) -> None:
        """Put the beginning of a command into the line, with the menu of possible continuations."""
        self.put_back(beginning)
        self.buffer.start_completion()

    def put_back(self, text: str) -> None:
        """Put an entered text that has no meaning into the line again."""
        self.buffer.reset(Document(text))

    def _enter(self, event: KeyPressEvent) -> None:
        text, lent = self.buffer.text, self._lent
        if (
            lent is None
            and self._question is None
            and re.search(r"(?<!\\)(?:\\\\)*\\$", self.buffer.document.text_before_cursor)
        ):
            self.buffer.delete_before_cursor()
            self.buffer.insert_text("\n")
            return
        if lent is None and (self._guard.drops(ENTER) or (self.takes_keys() and not self.keys_count)):
            return
        self._lent = None
        event.app.vi_state.reset()
        if self._question is None and lent is None and text.strip():
            self._remember(self.pastes.unfolded(text))
        self.buffer.reset()
        if lent is not None:
            self._keyboard.written(lent, text)
        else:
            self._keyboard.enter(text)

    def _remember(self, text: str) -> None:
        entered = self.buffer.history.get_strings()
        if not entered or entered[-1] != text:
            self.buffer.history.append_string(text)

    def _accept_search(self, event: KeyPressEvent) -> None:
        del event
        search.accept_search()  # the line can be changed before it is entered
        self.buffer.cursor_position = len(self.buffer.text)


class KeptPrompts(FileHistory):
    """Earlier prompts in a file. Where it cannot be written, they are known until the program ends, which is told once."""

    def __init__(self, filename: str, tell: Callable[[str], None]) -> None:
        """Args: filename: the file. tell: prints a note for the person."""
        super().__init__(filename)
        self._tell = tell
        self._is_told = False

    def store_string(self, string: str) -> None:
        """Store a prompt."""
        try:
            super().store_string(string)
        except OSError as error:
            if not self._is_told:
                self._is_told = True
                self._tell(
                    f"from now on prompts are not kept for the arrow keys ({error.strerror or error}); the work goes on"
                )


class LineCompleter(Completer):
    """Completions of `/` commands, of files after `@`, and of the offers of MCP servers."""

    def __init__(
        self, offers: Callable[[str], Iterable[tuple[str, str]]], prompts: Callable[[], Sequence[str]] = tuple
    ) -> None:
        """Args: offers: see `Keyboard`. prompts: returns earlier prompts: files that they name are offered first."""
        self._offers, self._prompts = offers, prompts
        self._files = NamedFiles(Path.cwd())

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the completions of a document."""
        del complete_event
        line = document.text_before_cursor
        if line.startswith("/") and "\n" not in line:
            for text, words in self._offers(line):
                yield Completion(text, -len(line), display=text.partition(" ")[2] or text, display_meta=words)
            return
        word = document.get_word_before_cursor(WORD=True)
        if word.startswith("@"):
            used = [name for prompt in self._prompts()[-PROMPTS_LOOKED_AT:] for name in mentioned_names(prompt)]
            named = [(mention_of(name), "") for name in self._files.matching(word[1:].removeprefix('"'), used)]
            offered = [*self._offers(word)]
            for text, words in [*named, *offered] if word == "@" else [*offered, *named]:
                yield Completion(text, -len(word), display_meta=words)


def history_file(folder: Path | None = None) -> str:
    """Return the private file with earlier prompts; `os.devnull` if it cannot be made.

    Args:
        folder: The folder of the conversations. None: the present one.
    """
    digest = hashlib.sha256(os.fsencode(folder or Path.cwd())).hexdigest()[:16]
    file = state_folder() / "prompts" / digest
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        return os.devnull
    return os.fspath(file) if os.access(file, os.R_OK | os.W_OK) else os.devnull
