"""The command line: arguments become a `Config`, and a front end of `terminal/` takes over.

Nothing that takes time is imported here at module level, so that `--help` and a mistyped option are answered at
once. What is wrong with the settings is one line on standard error and exit status 2; a traceback only with `--debug`.
"""

import argparse
import contextlib
import difflib
import functools
import gc
import os
import shlex
import signal
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from freeact_sub import __version__
from freeact_sub.config.command_options import add_options, load_arguments
from freeact_sub.config.prompt_words import read_prompt, standard_input, with_run
from freeact_sub.errors import ConfigError, FreeactError, UntrustedError
from freeact_sub.modes import MODES
from freeact_sub.terminal import sessions_command

if TYPE_CHECKING:
    from freeact_sub.config.schema import Config
    from freeact_sub.terminal.run_once import Output

FAILED, USAGE, INTERRUPTED = 1, 2, 130
DUMB_TERMINALS = ("", "dumb", "unknown")


def main(arguments: list[str] | None = None) -> int:
    """Run the program; returns its exit status.

    Args:
        arguments: The words of the command line. None: those of this process.
    """
    options = _parsed(sys.argv[1:] if arguments is None else arguments)
    debug = getattr(options, "debug", False)
    gc.disable()  # collecting what imports have made, which stays, takes a tenth of the start
    try:
        return _COMMANDS[options.command](options)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ConfigError as error:
        return _fail(error, str(error), USAGE, debug=debug)
    except FreeactError as error:
        return _fail(error, str(error), FAILED, debug=debug)
    except Exception as error:  # noqa: BLE001  # border: a person at a terminal gets a sentence, not a traceback
        text = f"internal error: {type(error).__name__}: {error} (--debug shows where)"
        return _fail(error, text, FAILED, debug=debug)
    finally:
        gc.enable()


class _PromptFoundError(Exception):
    """The first word is a prompt, not a command."""


def _parsed(words: list[str]) -> argparse.Namespace:
    """The options. A prompt alone, or after `-p` as in other programs, means `run PROMPT`."""
    words = with_run(words)
    try:
        return _parser().parse_args(words)
    except _PromptFoundError as found:
        at = words.index(str(found))
        return _parser().parse_args([*words[:at], "run", *words[at:]])


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"freeact-sub: {' '.join(message.split())} (see freeact-sub --help)\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Overrides argparse: several words are a prompt; an unknown command is an error that suggests the nearest one."""
        if action.dest == "command" and action.choices is not None and value not in action.choices:
            if len(value.split()) > 1:
                raise _PromptFoundError(value)
            near = difflib.get_close_matches(value, list(action.choices), n=1)
            meant = f"did you mean `{near[0]}`?" if near else f"for a prompt, `{_run_command(value)}`"
            raise argparse.ArgumentError(None, f"unknown command {_short(value)!r} ({', '.join(action.choices)}): {meant}")
        super()._check_value(action, value)


def _run_command(prompt: str) -> str:
    return f"freeact-sub run {shlex.quote(prompt) if prompt == _short(prompt) else 'PROMPT'}"


def _short(text: str) -> str:
    return textwrap.shorten(text, 80, placeholder=" ...")


def _parser() -> argparse.ArgumentParser:
    common = _Parser(add_help=False, argument_default=argparse.SUPPRESS, allow_abbrev=False)
    add_options(common)
    common.add_argument(
        "--trust",
        action="store_true",
        help="trust the settings in the workspace as they are, from now on",
    )
    common.add_argument("--verbose", action="store_true", help="show everything that every agent does, children included")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser = _Parser(
        prog="freeact-sub",
        description="An agent that acts by running code in its own Jupyter kernel, and hands work to child agents. "
        "Without a command: a conversation in the terminal; with a prompt alone, `-p PROMPT` or one on standard input: run.",
        epilog="Exit status: 0 completed, 1 failed, a limit reached, or all denied as nobody was there to ask, "
        "2 wrong usage or settings, 130 interrupted. "
        "Settings: .freeact/config.toml in the workspace, FREEACT_… variables, then these options.",
        parents=[common],
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"freeact-sub {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    run = commands.add_parser(
        "run",
        help="run one prompt and exit",
        description="Run one prompt and end with the answer.",
        parents=[common],
        allow_abbrev=False,
    )
    run.add_argument("prompt", nargs="?", metavar="PROMPT", help="what to do; - or nothing: read it from standard input")
    run.add_argument("--file", metavar="PATH", type=Path, help="read the prompt from a file")
    run.add_argument(
        "--output",
        choices=("auto", "plain", "json", "text"),
        default="auto",
        help="auto: rich in a terminal, else plain; plain: lines of text; json: one event per line; text: only the answer",
    )
    run.add_argument("--quiet", action="store_const", dest="output", const="text", help="the same as --output text")
    commands.add_parser(
        "agents",
        help="list the types of child agents",
        description="List the named types of child agents, and what is wrong with files of others.",
        epilog="Exit status: 0, or 1 if a file is wrong.",
        parents=[common],
        allow_abbrev=False,
    )
    _add_permissions(commands, common)
    _add_gateway(commands, common)
    sessions_command.add_options(parser, chooses=True)
    sessions_command.add_options(run, chooses=False)
    sessions_command.add_command(commands, common, _Parser)
    return parser


def _add_permissions(commands: Any, common: argparse.ArgumentParser) -> None:
    permissions = commands.add_parser("permissions", help="list the permission rules, or check a call", allow_abbrev=False)
    ways = permissions.add_subparsers(dest="way", metavar="WAY", parser_class=_Parser, required=True)
    check = ways.add_parser(
        "check",
        help="show the decision about a call, and the rule that makes it",
        description="Print what is decided about a call, the rule that decides, and the file it stands in.",
        epilog="Exit status: 0 allowed, 1 denied, 3 asked for, 2 wrong usage or settings.",
        parents=[common],
        allow_abbrev=False,
    )
    check.add_argument("call", metavar="CALL", help="a shell command, or a call of another --kind")
    check.add_argument("--kind", default="shell", help="the kind of CALL (default: shell); `--kind help` lists them")
    ways.add_parser("list", help="list all rules, in order of precedence", parents=[common], allow_abbrev=False)


def _add_gateway(commands: Any, common: argparse.ArgumentParser) -> None:
    gateway = commands.add_parser("gateway", help="check a Jupyter gateway", allow_abbrev=False)
    ways = gateway.add_subparsers(dest="way", metavar="WAY", parser_class=_Parser, required=True)
    check = ways.add_parser(
        "check",
        help="start a kernel there and test what agents need",
        description="Start a kernel at a gateway, try what matters, and print the lines to start the gateway with.",
        epilog="Exit status: 0 nothing is missing, 1 something is, 2 wrong usage or settings. "
        "The token: FREEACT_KERNEL__GATEWAY__TOKEN.",
        parents=[common],
        allow_abbrev=False,
    )
    check.add_argument("url", metavar="URL", help="the URL of the gateway")
    kernelspec = commands.add_parser("kernelspec", help="install a kernelspec for a gateway", allow_abbrev=False)
    install = kernelspec.add_subparsers(dest="way", metavar="WAY", parser_class=_Parser, required=True).add_parser(
        "install",
        help="make the gateway on this machine fork its kernels, behind a wall",
        description="On a gateway's machine: write a kernelspec whose kernels are forked, behind a wall.",
        allow_abbrev=False,
    )
    install.add_argument("--name", default="freeact", help="the name of the kernelspec (default: freeact)")
    install.add_argument("--user", action="store_true", help="install for this user instead of this Python")
    install.add_argument("--prefix", type=Path, metavar="DIR", help="install below this folder")
    install.add_argument(
        "--wall", choices=("none", *MODES), default="auto", help="the mode that has this wall (default: auto)"
    )
    install.add_argument("--network", action="store_true", help="leave kernels the network behind the wall of auto")


def _gateway(options: argparse.Namespace) -> int:
    from freeact_sub.config.gateway import GatewayConfig  # noqa: PLC0415
    from freeact_sub.terminal.gateways import check  # noqa: PLC0415

    settings = _config(options, looking=True).kernel.gateway
    return check(GatewayConfig(**{**settings.model_dump(), "url": options.url}))


def _kernelspec(options: argparse.Namespace) -> int:
    from freeact_sub.terminal.gateways import install  # noqa: PLC0415

    return install(prefix=options.prefix, user=options.user, name=options.name, wall=options.wall, network=options.network)


def _permissions(options: argparse.Namespace) -> int:
    from freeact_sub.terminal.permissions_command import check, list_rules  # noqa: PLC0415

    config = _config(options, looking=True)
    return check(config, options.kind, options.call) if options.way == "check" else list_rules(config)


def _agents(options: argparse.Namespace) -> int:
    from freeact_sub.terminal.agents_command import list_agents  # noqa: PLC0415

    return list_agents(_config(options, looking=True))


def _sessions(options: argparse.Namespace) -> int:
    return sessions_command.run_way(options, _config(options, looking=True))


def _converse(options: argparse.Namespace) -> int:
    if not _is_terminal(sys.stdin) and (prompt := standard_input()).strip():
        return _run(argparse.Namespace(**vars(options), prompt=prompt, output="auto"))
    if not _is_interactive():
        raise ConfigError("a conversation needs a terminal: use `freeact-sub run PROMPT`")
    config = _config(options)
    session, replay = sessions_command.chosen(getattr(options, "session", None), config.workspace), _replays(options)
    import asyncio  # noqa: PLC0415  (see the module's docstring; so are all imports in functions here)

    from freeact_sub.system.deferred_imports import lean_imports  # noqa: PLC0415

    with lean_imports():
        from freeact_sub.terminal.conversation import converse  # noqa: PLC0415

    conversation = converse(
        lambda: _agent(config, session, replay=replay),
        config=config,
        session=session,
        verbose=hasattr(options, "verbose"),
        open_session=lambda session, settings: _agent(config.model_copy(update=dict(settings)), session),
    )
    return asyncio.run(conversation)


def _run(options: argparse.Namespace) -> int:
    if sys.stdout is None:
        raise ConfigError("standard output is closed: there is nowhere to write to")
    path: Path | None = getattr(options, "file", None)
    if options.prompt is None and path is None and _is_terminal(sys.stdin):
        raise ConfigError("give the prompt either as an argument, or as - for standard input, or with --file PATH")
    prompt = read_prompt(options.prompt, path)
    terminal = _asking_terminal()
    config = _config(options, headless=None if terminal is not None else "auto")
    session, replay = sessions_command.chosen(getattr(options, "session", None), config.workspace), _replays(options)
    import asyncio  # noqa: PLC0415

    from freeact_sub.system.deferred_imports import lean_imports  # noqa: PLC0415

    verbose = hasattr(options, "verbose")
    if options.output == "auto" and _is_interactive():
        with lean_imports():
            from freeact_sub.terminal.conversation import converse  # noqa: PLC0415

        talk = converse(lambda: _agent(config, session, replay=replay), config=config, prompt=prompt, verbose=verbose)
        return asyncio.run(talk)
    with lean_imports():
        from freeact_sub.terminal.approver import LineApprover, NoApprover  # noqa: PLC0415
        from freeact_sub.terminal.run_once import run_once  # noqa: PLC0415

    output: Output = options.output if options.output != "auto" else "rich" if _can_draw(sys.stdout) else "plain"
    approver = LineApprover(terminal) if terminal is not None and config.headless is None else NoApprover()
    run = run_once(lambda: _agent(config, session, replay=replay), prompt, output=output, approver=approver, verbose=verbose)
    return asyncio.run(run)


def _asking_terminal() -> TextIO | None:
    """The terminal that can ask a person; None if nobody can be asked."""
    if not _is_terminal(sys.stdin):
        return None
    return next((stream for stream in (sys.stderr, sys.stdout) if _is_terminal(stream)), None)


def _config(options: argparse.Namespace, *, headless: str | None = None, looking: bool = False) -> "Config":
    """The settings.

    Args:
        options: The command line.
        headless: The value of `headless` if no setting and no option has one.
        looking: The settings are only shown, so untrusted files count too, with a note.
    """
    from freeact_sub.system.deferred_imports import lean_imports  # noqa: PLC0415

    with _ctrl_c_leaves(), lean_imports():
        from freeact_sub.config.load import load_config  # noqa: PLC0415
        from freeact_sub.config.schema import user_folder  # noqa: PLC0415
        from freeact_sub.config.trust import Trust  # noqa: PLC0415

    trust: Trust | None = Trust(user_folder())
    load = functools.partial(load_config, **load_arguments(options))
    try:
        config = load(trust=trust)
    except UntrustedError as error:
        if looking and not hasattr(options, "trust"):
            _tell(f"note: {error}")
            trust = None
        elif not _vouched(options, error):
            if not error.only_texts:
                raise
            _tell(f"note: not read: {error}")
            load.keywords["arguments"] |= {"instruction_files": (), "command_folders": ()}
        elif trust is not None:
            try:
                trust.add(error.files)
            except ConfigError as problem:
                _tell(f"note: {problem}")
        config = load(trust=trust)
    return config if config.headless is not None or headless is None else config.model_copy(update={"headless": headless})


@contextlib.contextmanager
def _ctrl_c_leaves() -> Iterator[None]:
    """Makes Ctrl-C end the program at once: inside the import of an extension `KeyboardInterrupt` can become any error."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _vouched(options: argparse.Namespace, error: UntrustedError) -> bool:
    """Whether somebody has trusted the files, or does so now."""
    if hasattr(options, "trust"):
        return True
    terminal = _asking_terminal()
    if terminal is None or error.headless:
        return False
    from freeact_sub.terminal.trust_question import ask  # noqa: PLC0415

    return ask(error.files, terminal)


def _replays(options: argparse.Namespace) -> bool:
    """Raises: ConfigError: there is nothing to run again."""
    if hasattr(options, "replay") and not hasattr(options, "session"):
        raise ConfigError("--replay runs the cells of a session again: name it by --continue or --resume")
    return hasattr(options, "replay")


def _agent(config: "Config", session: str, *, replay: bool = False) -> Any:
    from freeact_sub import Agent  # noqa: PLC0415

    agent = Agent(config, session=session, replay=replay)
    if not gc.isenabled():  # the first agent
        gc.freeze()
        gc.enable()
    return agent


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def _can_draw(stream: TextIO | None) -> bool:
    return _is_terminal(stream) and os.environ.get("TERM", "") not in DUMB_TERMINALS


def _is_interactive() -> bool:
    return _is_terminal(sys.stdin) and _can_draw(sys.stdout)


_COMMANDS: dict[str | None, Callable[[argparse.Namespace], int]] = {
    None: _converse,
    "run": _run,
    "agents": _agents,
    "permissions": _permissions,
    "gateway": _gateway,
    "kernelspec": _kernelspec,
    "sessions": _sessions,
}


def _fail(error: BaseException, text: str, status: int, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    _tell(text)
    return status


def _tell(text: str) -> None:
    print(f"freeact-sub: {' '.join(text.split())}", file=sys.stderr)  # noqa: T201  (the user interface)
