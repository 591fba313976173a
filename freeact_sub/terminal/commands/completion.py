"""What Tab, and the menu below the line, offer: `/` commands, and files after `@`."""

from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from freeact_sub.terminal.commands.mentions import matching_files
from freeact_sub.terminal.commands.table import COMMANDS


class LineCompleter(Completer):
    """Completes the input line."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """See prompt_toolkit."""
        del complete_event
        line = document.text_before_cursor
        if line.startswith("/") and not any(char.isspace() for char in line):
            for command in COMMANDS:
                if command.name.startswith(line):
                    yield Completion(command.name, -len(line), display_meta=command.words)
            return
        word = document.get_word_before_cursor(WORD=True)
        if word.startswith("@"):
            for name in matching_files(word[1:], Path.cwd()):
                yield Completion(f"@{name}", -len(word))
