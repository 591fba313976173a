"""The options of the magics: each parser prints its help and ends in a `UsageError`, as IPython's own magics do."""

import argparse
import functools
import shlex
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from IPython.core.error import UsageError

from freeact_sub.config.command_options import add_options
from freeact_sub.errors import FreeactError


class MagicParser(argparse.ArgumentParser):
    """Ends in a `UsageError` instead of leaving the program."""

    def error(self, message: str) -> NoReturn:
        """See `argparse`."""
        raise UsageError(f"{self.prog}: {message}")


def plain_parser(prog: str, description: str) -> MagicParser:
    """A parser with `--help`."""
    parser = MagicParser(prog=prog, description=description, add_help=False, allow_abbrev=False)
    parser.add_argument("--help", action="store_true", help="show this text")
    return parser


def _with_settings(prog: str, description: str) -> MagicParser:
    """A parser with the settings of an agent; the caller adds more."""
    settings = MagicParser(add_help=False, argument_default=argparse.SUPPRESS, allow_abbrev=False)
    add_options(settings)
    parser = MagicParser(prog=prog, description=description, parents=[settings], add_help=False, allow_abbrev=False)
    parser.add_argument("--trust", action="store_true", help="let the settings in the folder count as they are, from now on")
    parser.add_argument("--here", action="store_true", help="work in an empty kernel beside this one, not in a copy of it")
    parser.add_argument("--help", action="store_true", help="show this text")
    return parser


def agent_options() -> MagicParser:
    """Those of `%%agent`."""
    parser = _with_settings(
        "%%agent", "Give this cell's text to an agent. The settings are chosen in the first cell of a conversation."
    )
    parser.add_argument("--name", help="which agent: one of this notebook, or a variable that holds an Agent")
    parser.add_argument("--questions", choices=["auto", "buttons", "input"], default="auto", help="how approvals are asked")
    parser.add_argument("--out", metavar="VARIABLE", help="put the run's result into this variable")
    return parser


def show_options() -> MagicParser:
    """Those of `%agent_show`."""
    parser = plain_parser("%agent_show", "Draw what was done.")
    parser.add_argument("session", nargs="?", help="id of a stored session, or its beginning; none: the latest run here")
    parser.add_argument("agent", nargs="?", help="id of one agent of it, also of a child that has ended; none: all")
    return parser


def resume_options() -> MagicParser:
    """Those of `%agent_resume`."""
    parser = _with_settings("%agent_resume", "Go on with a session: its conversation and its variables.")
    parser.add_argument("session", nargs="?", help="its id, or the beginning of it; none: the last one of this folder")
    parser.add_argument("--name", help="by which %%%%agent cells name it")
    return parser


def close_options() -> MagicParser:
    """Those of `%agent_close`."""
    parser = plain_parser("%agent_close", "End conversations.")
    parser.add_argument("name", nargs="?", help="which agent; all that cells have started where there is no name")
    return parser


def adopt_options() -> MagicParser:
    """Those of `%agent_adopt`."""
    parser = copy_options("%agent_adopt", "Take over variables of the copy in which an agent works.")
    parser.add_argument(
        "variables", nargs="*", help="their names, with commas or spaces between; none: all that have changed"
    )
    parser.add_argument("--whole", action="store_true", help="the copy becomes this kernel, with all that it has")
    parser.add_argument("--yes", action="store_true", help="do not ask, though the agent has worked unasked")
    return parser


def copy_options(prog: str, description: str) -> MagicParser:
    """Those of a magic about one copy."""
    parser = plain_parser(prog, description)
    parser.add_argument("--name", help="of the agent; none: the latest one")
    return parser


def parse(parser: MagicParser, line: str) -> argparse.Namespace | None:
    """The options of a magic's line; None if it printed its help."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{parser.prog}: {error}") from error
    options = parser.parse_args(words)
    if options.help:
        parser.print_help()
        return None
    return options


def magic(options_of: Callable[[], MagicParser]) -> Callable[[Callable[..., Awaitable[None]]], Any]:
    """Makes a magic of a method, which gets the options. A `FreeactError` becomes a `UsageError` that names the magic.

    Args:
        options_of: Makes its parser.
    """

    def made(method: Callable[..., Awaitable[None]]) -> Any:
        @functools.wraps(method)
        async def run(self: Any, line: str, *cell: str) -> None:
            parser = options_of()
            if (options := parse(parser, line)) is None:
                return
            try:
                await method(self, options, line, *cell)
            except FreeactError as error:
                raise UsageError(f"{parser.prog}: {error}") from error

        return run

    return made
