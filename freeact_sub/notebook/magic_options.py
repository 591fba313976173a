"""The options of the magics, and how a magic ends: an `AgentMagicError` is an error of its cell, in one line."""

import argparse
import functools
import inspect
import shlex
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn

from freeact_sub.agents import RunResult
from freeact_sub.config.command_options import add_options
from freeact_sub.errors import FreeactError

NOT_AWAITED: Final = (
    "{prog} cannot run here, for nothing can wait for it: write it outside of functions, classes and strings, and "
    "without another magic above or before it{instead}"
)
INSTEAD: Final = " (the agent's block shows its seconds; `--out VARIABLE` keeps the result)"


class AgentMagicError(FreeactError):
    """A magic cannot do as asked, or the run of its cell did not succeed.

    IPython shows one line of it instead of a traceback. No `UsageError`: programs that run notebooks get no text of that.
    """

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class MagicParser(argparse.ArgumentParser):
    """A parser that raises `AgentMagicError` instead of leaving the program."""

    def error(self, message: str) -> NoReturn:
        """Raises AgentMagicError with the message."""
        raise AgentMagicError(f"{self.prog}: {message}")


def plain_parser(prog: str, description: str) -> MagicParser:
    """Makes a parser with `--help`."""
    parser = MagicParser(prog=prog, description=description, add_help=False, allow_abbrev=False)
    parser.add_argument("--help", action="store_true", help="show this text")
    return parser


def _with_settings(prog: str, description: str) -> MagicParser:
    """Makes a parser with the settings of an agent; the caller adds more."""
    settings = MagicParser(add_help=False, argument_default=argparse.SUPPRESS, allow_abbrev=False)
    add_options(settings)
    parser = MagicParser(prog=prog, description=description, parents=[settings], add_help=False, allow_abbrev=False)
    parser.add_argument("--trust", action="store_true", help="let the settings in the folder count as they are, from now on")
    parser.add_argument("--here", action="store_true", help="work in an empty kernel beside this one, not in a copy of it")
    parser.add_argument("--help", action="store_true", help="show this text")
    return parser


def agent_options() -> MagicParser:
    """Makes the parser of `%%agent`."""
    parser = _with_settings(
        "%%agent", "Give this cell's text to an agent. The settings are chosen in the first cell of a conversation."
    )
    parser.add_argument("--name", help="which agent: one of this notebook, or a variable that holds an Agent")
    parser.add_argument("--questions", choices=["auto", "buttons", "input"], default="auto", help="how approvals are asked")
    parser.add_argument("--out", metavar="VARIABLE", help="put the run's result into this variable")
    return parser


def show_options() -> MagicParser:
    """Makes the parser of `%agent_show`."""
    parser = plain_parser("%agent_show", "Draw what was done.")
    parser.add_argument("session", nargs="?", help="id of a stored session, or its beginning; none: the latest run here")
    parser.add_argument("agent", nargs="?", help="id of one agent of it, also of a child that has ended; none: all")
    return parser


def resume_options() -> MagicParser:
    """Makes the parser of `%agent_resume`."""
    parser = _with_settings("%agent_resume", "Go on with a session: its conversation and its variables.")
    parser.add_argument("session", nargs="?", help="its id, or the beginning of it; none: the last one of this folder")
    parser.add_argument("--name", help="by which %%%%agent cells name it")
    return parser


def close_options() -> MagicParser:
    """Makes the parser of `%agent_close`."""
    parser = plain_parser("%agent_close", "End conversations.")
    parser.add_argument("name", nargs="?", help="which agent; all that cells have started where there is no name")
    return parser


def adopt_options() -> MagicParser:
    """Makes the parser of `%agent_adopt`."""
    parser = copy_options("%agent_adopt", "Take over variables of the copy in which an agent works.")
    parser.add_argument(
        "variables", nargs="*", help="their names, with commas or spaces between; none: all that have changed"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask, though the agent has worked unasked")
    return parser


def copy_options(prog: str, description: str) -> MagicParser:
    """Makes the parser of a magic about one copy."""
    parser = plain_parser(prog, description)
    parser.add_argument("--name", help="of the agent; none: the latest one")
    return parser


def parse(parser: MagicParser, line: str) -> argparse.Namespace | None:
    """Parses a magic's line; None if it printed its help."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise AgentMagicError(f"{parser.prog}: {error}") from error
    options = parser.parse_args(words)
    if options.help:
        parser.print_help()
        return None
    return options


def magic(options_of: Callable[[], MagicParser]) -> Callable[[Callable[..., Awaitable[None]]], Any]:
    """Makes a magic of a method, which gets the options. A `FreeactError` becomes an `AgentMagicError` that names the magic.

    The magic returns a coroutine. Where the code that calls it cannot await, it raises an `AgentMagicError` instead.

    Args:
        options_of: Makes its parser.
    """

    def made(method: Callable[..., Awaitable[None]]) -> Any:
        @functools.wraps(method)
        def call(self: Any, line: str, *cell: str) -> Awaitable[None]:
            if not _is_awaited():
                raise AgentMagicError(NOT_AWAITED.format(prog=options_of().prog, instead=INSTEAD if cell else ""))
            return run(self, line, *cell)

        async def run(self: Any, line: str, *cell: str) -> None:
            parser = options_of()
            if (options := parse(parser, line)) is None:
                return
            try:
                await method(self, options, line, *cell)
            except FreeactError as error:
                raise AgentMagicError(f"{parser.prog}: {error}") from error

        return call

    return made


def raise_unless_done(result: RunResult) -> None:
    """Raises FreeactError if a run did not complete, or nothing was done because nobody could be asked."""
    if result.status != "completed":
        why = f": {result.error}" if result.error else ""
        raise FreeactError(f"the run did not complete ({result.status}){why}")
    if result.unattended:
        raise FreeactError("; ".join(result.warnings))


def _is_awaited() -> bool:
    """Returns whether the code that calls a magic is a coroutine's: of a cell with `await`, or of an `async def`."""
    frame, ipython = sys._getframe(2), "IPython.core.interactiveshell"  # noqa: SLF001  # documented
    while frame.f_globals.get("__name__") == ipython and frame.f_back is not None:
        frame = frame.f_back
    return bool(frame.f_code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR))
