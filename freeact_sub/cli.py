"""The command line: arguments become a `Config`, and a front end of `terminal/` takes over.

Nothing but the standard library is imported here at module level, so that `--help` and a mistyped option are answered at
once. What is wrong with the settings is one line on standard error and exit status 2; a traceback only with `--debug`.
"""

import argparse
import functools
import os
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from freeact_sub.errors import ConfigError, FreeactError, UntrustedError
from freeact_sub.modes import MODES

if TYPE_CHECKING:
    from freeact_sub.config import Config
    from freeact_sub.terminal.run import Output

FAILED, USAGE, INTERRUPTED = 1, 2, 130
DUMB_TERMINALS = ("", "dumb", "unknown")


def main(arguments: list[str] | None = None) -> int:
    """Run the program; returns its exit status.

    Args:
        arguments: The words of the command line. None: those of this process.
    """
    options = _parser().parse_args(arguments)
    debug = getattr(options, "debug", False)
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


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"freeact-sub: {message} (freeact-sub --help lists what there is)\n")


def _turns(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of turns: give 1 or more")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    common = _Parser(add_help=False, argument_default=argparse.SUPPRESS, allow_abbrev=False)
    common.add_argument("--model", metavar="NAME", help="a pydantic-ai model name: anthropic:…, openai-chat:…")
    common.add_argument("--base-url", metavar="URL", help="of an OpenAI-compatible server, with openai-chat:NAME")
    common.add_argument(
        "--code-actions",
        choices=("tool", "block", "auto"),
        help="how the model says which code to run: tool calls, fenced blocks, or (auto, the default) either",
    )
    common.add_argument("--workspace", metavar="DIR", type=Path, help="the folder to work in (default: this one)")
    common.add_argument("--mcp", metavar="FILE", type=Path, help="an mcp.json with the MCP servers to use")
    common.add_argument("--max-turns", metavar="N", type=_turns, help="model responses the root agent may use in a run")
    common.add_argument("--mode", choices=MODES, help="how much runs without a question (default: ask)")
    common.add_argument(
        "--headless",
        choices=("allow", "deny", "auto"),
        help="ask nobody: what would be asked is allowed, denied, or (auto) allowed in the modes auto and full only",
    )
    common.add_argument("--yes", action="store_true", help="the same as --headless allow")
    common.add_argument("--sandbox", choices=("off", "auto", "required"), help="the wall around kernels (default: auto)")
    common.add_argument(
        "--trust",
        action="store_true",
        help="let the settings in the workspace count as they are, from now on, without a question",
    )
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser = _Parser(
        prog="freeact-sub",
        description="An agent that acts by running code in its own Jupyter kernel, and hands work to child agents. "
        "Without a command: a conversation in the terminal.",
        epilog="Exit status: 0 completed, 1 failed or a limit reached, 2 wrong usage or settings, 130 interrupted. "
        "Settings: .freeact/config.toml in the workspace, FREEACT_… variables, then these options.",
        parents=[common],
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"freeact-sub {version('freeact-sub')}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    run = commands.add_parser(
        "run",
        help="run one prompt and end",
        description="Run one prompt and end with the answer.",
        parents=[common],
        allow_abbrev=False,
    )
    run.add_argument("prompt", nargs="?", metavar="PROMPT", help="what to do; - reads it from standard input")
    run.add_argument("--file", metavar="PATH", type=Path, help="read the prompt from a file")
    run.add_argument(
        "--output",
        choices=("auto", "plain", "json", "text"),
        default="auto",
        help="auto: drawn in a terminal, else plain; plain: lines of text; json: one event a line; text: the answer only",
    )
    commands.add_parser(
        "agents",
        help="which named types of child agents there are",
        description="List the named types of child agents, and what is wrong with files of others.",
        epilog="Exit status: 0, or 1 if a file is wrong.",
        parents=[common],
        allow_abbrev=False,
    )
    _add_permissions(commands, common)
    return parser


def _add_permissions(commands: Any, common: argparse.ArgumentParser) -> None:
    permissions = commands.add_parser("permissions", help="which rules there are, and what they decide", allow_abbrev=False)
    ways = permissions.add_subparsers(dest="way", metavar="WAY", parser_class=_Parser, required=True)
    check = ways.add_parser(
        "check",
        help="what is decided about a call, and by which rule",
        description="Print what is decided about a call, the rule that decides, and the file it stands in.",
        epilog="Exit status: 0 allowed, 1 denied, 3 asked for, 2 wrong usage or settings.",
        parents=[common],
        allow_abbrev=False,
    )
    check.add_argument("call", metavar="CALL", help="a command; or what --kind says")
    check.add_argument(
        "--kind",
        choices=("shell", "write", "connect", "mcp", "tool", "spawn", "code"),
        default="shell",
        help="shell: a command (the default); write: a path; connect: HOST:PORT; mcp: SERVER/TOOL; tool: a name",
    )
    ways.add_parser("list", help="all rules, those that win first", parents=[common], allow_abbrev=False)


def _permissions(options: argparse.Namespace) -> int:
    from freeact_sub.terminal.permissions import check, list_rules  # noqa: PLC0415

    config = _config(options, looking=True)
    return check(config, options.kind, options.call) if options.way == "check" else list_rules(config)


def _agents(options: argparse.Namespace) -> int:
    from freeact_sub.terminal.agents import list_agents  # noqa: PLC0415

    return list_agents(_config(options, looking=True))


def _converse(options: argparse.Namespace) -> int:
    if not _is_interactive():
        raise ConfigError("a conversation needs a terminal: use `freeact-sub run PROMPT`")
    config = _config(options)
    import asyncio  # noqa: PLC0415  (see the module's docstring; so are all imports in functions here)

    from freeact_sub.terminal.conversation import converse  # noqa: PLC0415

    return asyncio.run(converse(lambda: _agent(config)))


def _run(options: argparse.Namespace) -> int:
    if sys.stdout is None:
        raise ConfigError("standard output is closed: there is nowhere to write to")
    prompt = _prompt(options)
    terminal = _asking_terminal()
    config = _config(options, headless=None if terminal is not None else "auto")
    import asyncio  # noqa: PLC0415

    if options.output == "auto" and _is_interactive():
        from freeact_sub.terminal.conversation import converse  # noqa: PLC0415

        return asyncio.run(converse(lambda: _agent(config), prompt=prompt))
    from freeact_sub.terminal.run import run_once  # noqa: PLC0415

    output: Output = options.output if options.output != "auto" else "rich" if _can_draw(sys.stdout) else "plain"
    from freeact_sub.terminal.asking import LineAsker, NoAsker  # noqa: PLC0415

    asker = LineAsker(terminal) if terminal is not None and config.headless is None else NoAsker()
    return asyncio.run(run_once(lambda: _agent(config), prompt, output=output, asker=asker))


def _asking_terminal() -> TextIO | None:
    """Where a person can be asked; None if nobody can."""
    if not _is_terminal(sys.stdin):
        return None
    return next((stream for stream in (sys.stderr, sys.stdout) if _is_terminal(stream)), None)


def _config(options: argparse.Namespace, *, headless: str | None = None, looking: bool = False) -> "Config":
    """The settings.

    Args:
        options: The command line.
        headless: What counts where no setting and no option names it.
        looking: Nothing is started with them: what nobody has looked at counts, and is told.
    """
    from freeact_sub.config import load_config, user_folder  # noqa: PLC0415
    from freeact_sub.trust import Trust  # noqa: PLC0415

    names = ("model", "base_url", "code_actions", "profile", "mode", "headless")
    settings: dict[str, Any] = {name: getattr(options, name, None) for name in names}
    settings["budget"] = {"turns": getattr(options, "max_turns", None)}
    settings["kernel"] = {"sandbox": getattr(options, "sandbox", None)}
    if hasattr(options, "yes"):
        settings["headless"] = "allow"
    workspace = getattr(options, "workspace", None)
    if workspace is not None and not workspace.is_dir():
        raise ConfigError(f"--workspace: {workspace} is not a directory")
    trust: Trust | None = Trust(user_folder())
    load = functools.partial(load_config, workspace, arguments=settings, mcp_file=getattr(options, "mcp", None))
    try:
        config = load(trust=trust)
    except UntrustedError as error:
        if looking and not hasattr(options, "trust"):
            _tell(f"note: {error}")
            trust = None
        elif not _vouched(options, error):
            raise
        elif trust is not None:
            try:
                trust.add(error.files)
            except ConfigError as problem:
                _tell(f"note: {problem}")
        config = load(trust=trust)
    return config if config.headless is not None or headless is None else config.model_copy(update={"headless": headless})


def _vouched(options: argparse.Namespace, error: UntrustedError) -> bool:
    """Whether somebody has looked at the files, or does so now."""
    if hasattr(options, "trust"):
        return True
    terminal = _asking_terminal()
    if terminal is None or error.headless:
        return False
    from freeact_sub.terminal.trusting import ask  # noqa: PLC0415

    return ask(error.files, terminal)


def _agent(config: "Config") -> Any:
    from freeact_sub.agents import Agent  # noqa: PLC0415

    return Agent(config)


def _prompt(options: argparse.Namespace) -> str:
    path: Path | None = getattr(options, "file", None)
    if (options.prompt is None) == (path is None):
        raise ConfigError("give the prompt either as an argument, or as - for standard input, or with --file PATH")
    try:
        if path is not None:
            prompt = path.read_text(encoding="utf-8")
        elif options.prompt == "-":
            prompt = sys.stdin.read() if sys.stdin is not None else ""
        else:
            prompt = str(options.prompt)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the prompt from {path or 'standard input'}: {error}") from error
    if not prompt.strip():
        raise ConfigError("the prompt is empty")
    return prompt


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
}


def _fail(error: BaseException, text: str, status: int, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    _tell(text)
    return status


def _tell(text: str) -> None:
    print(f"freeact-sub: {' '.join(text.split())}", file=sys.stderr)  # noqa: T201  (the user interface)
