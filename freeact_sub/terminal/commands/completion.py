"""Completions for Tab and the menu below the line: `/` commands, and files after `@`."""

from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from freeact_sub.terminal.commands.mentions import matching_files, mention_of


class LineCompleter(Completer):
    """Completes the input line."""

    def __init__(self, offers: Callable[[str], Iterable[tuple[str, str]]]) -> None:
        """Args: offers: see `Keyboard.offers`."""
        self._offers = offers

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """See prompt_toolkit."""
        del complete_event
        line = document.text_before_cursor
        if line.startswith("/") and "\n" not in line:
            for text, words in self._offers(line):
                yield Completion(text, -len(line), display=text.partition(" ")[2] or text, display_meta=words)
            return
        word = document.get_word_before_cursor(WORD=True)
        if word.startswith("@"):
            for name in matching_files(word[1:].removeprefix('"'), Path.cwd()):
                yield Completion(mention_of(name), -len(word))
