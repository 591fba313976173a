"""Private names of `argparse`, for the options of a parser and the judging of commands, which have no public names.

Where Python has another name, a mistyped option gets no suggestion, and an unknown command argparse's own error.
"""

import argparse
from typing import Any


class OpenParser(argparse.ArgumentParser):
    """A parser that lists its options and lets subclasses check commands."""

    def known_options(self) -> set[str]:
        """Return the options of this command and of all commands below it."""
        found = {option for action in getattr(self, "_actions", ()) for option in action.option_strings}
        return found.union(*(below.known_options() for below in self.commands().values()))

    def commands(self) -> "dict[str, OpenParser]":
        """Return the commands directly below this one."""
        actions = (action for action in getattr(self, "_actions", ()) if isinstance(action.choices, dict))
        return {name: below for action in actions for name, below in action.choices.items()}

    def check_command(self, command: str, known: list[str]) -> None:
        """Called with each unknown command. Raises: argparse.ArgumentError: with the message for the user."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.dest in ("command", "way") and action.choices is not None and value not in action.choices:
            self.check_command(value, list(action.choices))
        super()._check_value(action, value)
