"""Private names of `argparse`: it lists the options of a parser, and lets a subclass judge a command, by no public name.

Where Python has another name, a mistyped option gets no suggestion, and an unknown command argparse's own error.
"""

import argparse
from typing import Any


class OpenParser(argparse.ArgumentParser):
    """A parser that lists its options and lets subclasses check commands."""

    def known_options(self) -> set[str]:
        """The options of this command and of all commands below it."""
        found: set[str] = set()
        for action in getattr(self, "_actions", ()):
            found.update(action.option_strings)
            for below in action.choices.values() if isinstance(action.choices, dict) else ():
                found |= below.known_options()
        return found

    def check_command(self, command: str, known: list[str]) -> None:
        """Called with each unknown command. Raises: argparse.ArgumentError: with the message for the user."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.dest in ("command", "way") and action.choices is not None and value not in action.choices:
            self.check_command(value, list(action.choices))
        super()._check_value(action, value)
