"""The command line: arguments become a `Config`, and a front end of `terminal/` takes over.

Nothing that takes time is imported here at module level, so that `--help` and a mistyped option are answered at
once. What is wrong with the settings is one line on standard error and exit status 2; a traceback only with `--debug`.
"""

import argparse
import functools
import gc
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from freeact_sub.cli.parser import USAGE, parse
from freeact_sub.cli.settings import INTERRUPTED, read_settings
from freeact_sub.cli.streams import (
    asking_terminal,
    can_draw,
    is_interactive,
    is_terminal,
    print_line,
    tell,
)
from freeact_sub.errors import ConfigError, FreeactError
from freeact_sub.system.standard_output import PIPE_CLOSED, is_left

if TYPE_CHECKING:
    from freeact_sub.config.schema import Config
    from freeact_sub.terminal.run_once import Output

FAILED: Final = 1


def main(arguments: list[str] | None = None) -> int:
    """Run the program; returns its exit status.

    Args:
        arguments: The words of the command line. None: those of this process.
    """
    try:
        status = _run_command(sys.argv[1:] if arguments is None else arguments)
    except BrokenPipeError:
        if not is_left():
            raise
        return PIPE_CLOSED
    except SystemExit:  # of the parser, which has written help
        if is_left():
            return PIPE_CLOSED
        raise
    return PIPE_CLOSED if is_left() else status


def _run_command(arguments: list[str]) -> int:
    options = parse(arguments)
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
    except BrokenPipeError as error:
        if is_left():
            return PIPE_CLOSED
        return _fail(error, f"internal error: {error} (--debug shows where)", FAILED, debug=debug)
    except Exception as error:  # noqa: BLE001  # border: a person at a terminal gets a sentence, not a traceback
        text = f"internal error: {type(error).__name__}: {error} (--debug shows where)"
        return _fail(error, text, FAILED, debug=debug)
    finally:
        gc.enable()


def _gateway(options: argparse.Namespace) -> int:
    from freeact_sub.cli.gateways import check  # noqa: PLC0415
    from freeact_sub.config.gateway import GatewayConfig  # noqa: PLC0415

    settings = read_settings(options, looking=True).kernel.gateway
    return check(GatewayConfig(**{**settings.model_dump(), "url": options.url}))


def _kernelspec(options: argparse.Namespace) -> int:
    from freeact_sub.cli.gateways import install  # noqa: PLC0415

    return install(prefix=options.prefix, user=options.user, name=options.name, wall=options.wall, network=options.network)


def _permissions(options: argparse.Namespace) -> int:
    from freeact_sub.show.rule_texts import rules_text, ruling_text  # noqa: PLC0415

    config = read_settings(options, looking=True)
    if options.way == "list":
        print_line(rules_text(config))
        return 0
    verdict, text = ruling_text(config, options.kind, options.call)
    print_line(text)
    return {"allow": 0, "deny": 1, "ask": 3}[verdict]


def _agents(options: argparse.Namespace) -> int:
    from freeact_sub.cli.agents import list_agents  # noqa: PLC0415

    return list_agents(read_settings(options, looking=True))


def _sessions(options: argparse.Namespace) -> int:
    from freeact_sub.cli.sessions import run_way  # noqa: PLC0415

    return run_way(options, read_settings(options, looking=True))


def _converse(options: argparse.Namespace) -> int:
    if any(hasattr(options, name) for name in ("output", "file")):
        return _run(argparse.Namespace(**vars(options), prompt=None))
    if not is_terminal(sys.stdin):
        from freeact_sub.cli.standard_input import piped_prompt  # noqa: PLC0415

        if (prompt := piped_prompt()).strip():
            return _run(argparse.Namespace(**vars(options), prompt=prompt))
    if not is_interactive():
        raise ConfigError("a conversation needs a terminal: without one use `freeact-sub run PROMPT`")
    config = _settings(options)
    session, replay = _session(options, config)
    import asyncio  # noqa: PLC0415  (see the module's docstring; so are all imports in functions here)

    from freeact_sub.terminal.conversation import converse  # noqa: PLC0415

    conversation = converse(
        lambda: _agent(config, session, replay=replay),
        config=config,
        session=session,
        verbose=hasattr(options, "verbose"),
        # `--model` was meant for the first session
        open_session=lambda session, new: _agent(config.choosing(()).model_copy(update=dict(new)), session),
    )
    return asyncio.run(conversation)


def _run(options: argparse.Namespace) -> int:
    if sys.stdout is None:
        raise ConfigError("standard output is closed: there is nowhere to write to")
    path: Path | None = getattr(options, "file", None)
    if options.prompt is None and path is None and is_terminal(sys.stdin):
        raise ConfigError("give the prompt as an argument, as - for standard input, or with --file PATH")
    from freeact_sub.cli.standard_input import read_prompt  # noqa: PLC0415

    prompt, piped = read_prompt(options.prompt, path)
    output = getattr(options, "output", "auto")
    terminal = asking_terminal()
    config = _settings(options, headless=None if terminal is not None else "auto")
    # the agent is closed after its answer: its model is asked whether it needs the children that it has left at work
    config = config.model_copy(update={"subagents": config.subagents.model_copy(update={"detach": False})})
    session, replay = _session(options, config)
    import asyncio  # noqa: PLC0415

    verbose = hasattr(options, "verbose")
    if output == "auto" and is_interactive():
        from freeact_sub.terminal.conversation import converse  # noqa: PLC0415

        talk = converse(lambda: _agent(config, session, replay=replay), config=config, prompt=prompt, verbose=verbose)
        return asyncio.run(talk)
    from freeact_sub.terminal.approver import LineApprover, NoApprover  # noqa: PLC0415
    from freeact_sub.terminal.run_once import run_once  # noqa: PLC0415

    approver = LineApprover(terminal) if terminal is not None and config.headless is None else NoApprover()
    out, log = _outputs(output)
    open_agent = functools.partial(_agent, config, session, replay=replay)
    return asyncio.run(run_once(open_agent, prompt, piped, output=out, log=log, approver=approver, verbose=verbose))


def _outputs(chosen: Any) -> "tuple[Output, Literal['rich', 'plain'] | None]":
    """The forms of standard output, and of the log on standard error: only where the first goes to a pipe or a file."""
    if chosen != "auto":
        return chosen, None
    if is_terminal(sys.stdout):
        return "rich" if can_draw(sys.stdout) else "plain", None
    return "text", None if sys.stderr is None else "rich" if can_draw(sys.stderr) else "plain"


def _settings(options: argparse.Namespace, headless: str | None = None) -> "Config":
    """The settings of a conversation or a run: before anything is typed it is known that there is a model."""
    config = read_settings(options, headless=headless)
    if not hasattr(options, "session"):  # else the session has one
        from freeact_sub.models.names import require_model  # noqa: PLC0415

        require_model(config)
    return config


def _session(options: argparse.Namespace, config: "Config") -> tuple[str, bool]:
    """The session to work in, and whether its cells run again.

    Raises:
        ConfigError: There is nothing to run again.
    """
    replay = hasattr(options, "replay")
    if not hasattr(options, "session"):
        if replay:
            raise ConfigError("--replay runs the cells of a session again: name it by --continue or --resume")
        return "new", False
    from freeact_sub.cli.sessions import chosen  # noqa: PLC0415

    return chosen(options.session, config), replay


def _agent(config: "Config", session: str, *, replay: bool = False) -> Any:
    from freeact_sub import Agent  # noqa: PLC0415

    agent = Agent(config, session=session, replay=replay)
    if not gc.isenabled():  # the first agent
        gc.freeze()
        gc.enable()
    return agent


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
    tell(text)
    return status
