"""The command line: the parser names a function for each command, such as the conversation in the terminal.

Nothing slow is imported at module level, so that `--help` and mistyped options respond at once. Wrong settings end the
program with one line on standard error and exit status 2; `--debug` adds a traceback.
"""

import argparse
import contextlib
import functools
import gc
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

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
from freeact_sub.errors import ConfigError, FreeactError, speaking_of_options
from freeact_sub.system.process import PIPE_CLOSED, output_is_left, renew_signals

if TYPE_CHECKING:
    from freeact_sub.agents.rights import AgentType
    from freeact_sub.config.schema import Config
    from freeact_sub.terminal.attachments import Piped
    from freeact_sub.terminal.run_once import Output

FAILED: Final = 1
Settings: TypeAlias = "Callable[..., Config]"
"""A function that reads the settings of a command line (`read_settings`)."""
Command: TypeAlias = Callable[[argparse.Namespace, Settings], int]
"""The function of a command, named as `main` in `parser.py`: gets the options and returns the exit status."""


def main(arguments: list[str] | None = None) -> int:
    """Run the program and return its exit status.

    Args:
        arguments: The words of the command line. None: this process's.
    """
    renew_signals()
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")  # it would stand between the program's own lines
    try:
        with speaking_of_options():
            status = _run_command(sys.argv[1:] if arguments is None else arguments)
    except BrokenPipeError:
        if not output_is_left():
            raise
        return PIPE_CLOSED
    except SystemExit:  # of the parser, which has written help
        if output_is_left():
            return PIPE_CLOSED
        raise
    return PIPE_CLOSED if output_is_left() else status


def _run_command(arguments: list[str]) -> int:
    options = parse(arguments)
    gc.disable()  # collecting what imports have made, which stays, takes a tenth of the start
    try:
        _check_folder()
        module, _, name = options.main.partition(":")
        command: Command = getattr(importlib.import_module(module), name)
        return command(options, functools.partial(read_settings, options))
    except KeyboardInterrupt:
        _write_ending("cancelled", "it was cancelled", options)
        return INTERRUPTED
    except ConfigError as error:
        return _fail(error, str(error), USAGE, options)
    except FreeactError as error:
        return _fail(error, str(error), FAILED, options)
    except BrokenPipeError as error:
        if output_is_left():
            return PIPE_CLOSED
        return _fail(error, f"internal error: {error} (--debug shows where)", FAILED, options)
    except Exception as error:  # noqa: BLE001  # border: a person at a terminal gets a sentence, not a traceback
        text = f"internal error: {type(error).__name__}: {error} (--debug shows where)"
        return _fail(error, text, FAILED, options)
    finally:
        gc.enable()


def _check_folder() -> None:
    try:
        Path.cwd()
    except OSError as error:
        raise ConfigError(f"the current folder cannot be used ({error.strerror}): change into another one") from error


def show_help(options: argparse.Namespace, _settings: Settings) -> int:
    """Show the help of a command, as its `--help` does (`freeact-sub help [COMMAND]`)."""
    parse([*options.words, "--help"])
    return 0


def permissions(options: argparse.Namespace, settings: Settings) -> int:
    """Show the rules, or the decision about a call (`freeact-sub permissions`)."""
    from freeact_sub.show.rule_texts import rules_text, ruling_text  # noqa: PLC0415

    config = settings(looking=True)
    if options.way == "list":
        print_line(rules_text(config))
        return 0
    verdict, text = ruling_text(config, options.kind, options.call)
    print_line(text)
    return {"allow": 0, "deny": 1, "ask": 3}[verdict]


def converse(options: argparse.Namespace, settings: Settings) -> int:
    """Converse in the terminal, or run one prompt from standard input or an option (`freeact-sub`)."""
    if any(hasattr(options, name) for name in ("output", "file")):
        return run(argparse.Namespace(**vars(options), prompt=None), settings)
    if not is_terminal(sys.stdin):
        from freeact_sub.cli.streams import piped_prompt  # noqa: PLC0415

        if (prompt := piped_prompt()).strip():
            return run(argparse.Namespace(**vars(options), prompt=prompt), settings)
    if not is_interactive():
        raise ConfigError("a conversation needs a terminal: without one use `freeact-sub run PROMPT`")
    from freeact_sub.detached.host import Link, start_hosted  # noqa: PLC0415

    host = start_hosted()
    if host is not None and not isinstance(host, Link):
        from freeact_sub.detached.client import Terminal  # noqa: PLC0415

        return Terminal(host).relay()
    config = _with_python(_with_model(options, settings()), options)
    session = _session(options, config)
    import asyncio  # noqa: PLC0415  (see the module's docstring; so are all imports in functions here)

    from freeact_sub.terminal import conversation  # noqa: PLC0415

    talk = conversation.converse(
        lambda: _agent(config, session),
        config=config,
        session=session,
        verbose=hasattr(options, "verbose"),
        plain=_is_plain(config),
        open_session=functools.partial(_open_session, config),
        host=host,
    )
    return asyncio.run(talk)


def run(options: argparse.Namespace, settings: Settings) -> int:
    """Run one prompt (`freeact-sub run`)."""
    if sys.stdout is None:
        raise ConfigError("standard output is closed: open it, for example with >FILE")
    path: Path | None = getattr(options, "file", None)
    if options.prompt is None and path is None and is_terminal(sys.stdin):
        raise ConfigError("give the prompt as an argument, as - for standard input, or with --file PATH")
    from freeact_sub.cli.streams import read_prompt  # noqa: PLC0415

    prompt, piped = read_prompt(options.prompt, path)
    output = getattr(options, "output", "auto")
    detaches = hasattr(options, "detach")
    if detaches and (output != "auto" or piped.picture is not None or piped.text):
        raise ConfigError("--detach has no output, and no data from standard input: give neither (@FILE in the prompt)")
    chosen = _with_model(options, settings(headless=None if detaches or asking_terminal() is not None else "auto"))
    config = _with_python(chosen, options, may_refuse=True)
    # the agent is closed after its answer: its model is asked whether it needs the children that it has left at work
    config = config.model_copy(update={"subagents": config.subagents.model_copy(update={"detach": False})})
    session = _session(options, config)
    import asyncio  # noqa: PLC0415

    open_agent = functools.partial(_agent, config, session)
    host = None
    if detaches:
        from freeact_sub.cli.attach import begin_detached  # noqa: PLC0415

        begun = begin_detached()
        if isinstance(begun, int):
            return begun
        host = begun
    if host is not None or (output == "auto" and is_interactive()):
        from freeact_sub.terminal import conversation  # noqa: PLC0415

        talk = conversation.converse(
            open_agent,
            config=config,
            prompt=prompt,
            verbose=hasattr(options, "verbose"),
            plain=_is_plain(config),
            host=host,
        )
        return asyncio.run(talk)
    return run_prompt(options, config, open_agent, prompt, piped)


def run_prompt(options: argparse.Namespace, config: "Config", open_agent: Any, prompt: str, piped: "Piped") -> int:
    """Run one prompt without an input line, and write the output that `--output` names."""
    import asyncio  # noqa: PLC0415

    from freeact_sub.terminal.asking import Approver, LineApprover  # noqa: PLC0415
    from freeact_sub.terminal.run_once import run_once  # noqa: PLC0415

    terminal = asking_terminal()
    approver = LineApprover(terminal) if terminal is not None and config.headless is None else Approver()
    out, log = _outputs(getattr(options, "output", "auto"))
    verbose = hasattr(options, "verbose")
    return asyncio.run(run_once(open_agent, prompt, piped, output=out, log=log, approver=approver, verbose=verbose))


def _is_plain(config: "Config") -> bool:
    return config.terminal.plain or not can_draw(sys.stdout)


def _outputs(chosen: Any) -> "tuple[Output, Literal['rich', 'plain'] | None]":
    """Return the forms of standard output, and of the log on standard error if the first goes to a pipe or a file."""
    if chosen != "auto":
        return chosen, None
    if is_terminal(sys.stdout):
        return "rich" if can_draw(sys.stdout) else "plain", None
    return "text", None if sys.stderr is None else "rich" if can_draw(sys.stderr) else "plain"


def _with_python(config: "Config", options: argparse.Namespace, *, may_refuse: bool = False) -> "Config":
    from freeact_sub.cli.first_start import with_project_python  # noqa: PLC0415

    return with_project_python(config, options, may_refuse=may_refuse)


def _with_model(options: argparse.Namespace, config: "Config") -> "Config":
    """Return the settings of a conversation or a run, after checking that a model is set."""
    if hasattr(options, "session"):  # it has one
        return config
    from freeact_sub.cli.first_start import with_model, with_package  # noqa: PLC0415
    from freeact_sub.models.build import check_name  # noqa: PLC0415

    config = with_model(config)
    check_name(config)
    return with_package(config)


def _session(options: argparse.Namespace, config: "Config") -> str:
    if not hasattr(options, "session"):
        return "new"
    from freeact_sub.cli.sessions import chosen  # noqa: PLC0415

    return chosen(options.session, config)


def _open_session(config: "Config", session: str, new: Mapping[str, Any]) -> Any:
    """Make the agent of another conversation; `--model` was meant for the first one. Args: new: the choices since."""
    from freeact_sub.config.load import is_of_another_provider  # noqa: PLC0415

    address = {"base_url": None} if is_of_another_provider(new.get("model"), config.model) else {}
    return _agent(config.choosing(()).model_copy(update={**address, **new}), session)


def _agent(config: "Config", session: str) -> Any:
    from freeact_sub import Agent  # noqa: PLC0415

    agent = Agent(config, session=session)
    if not gc.isenabled():  # the first agent
        gc.freeze()
        gc.enable()
    return agent


def _fail(error: BaseException, text: str, status: int, options: argparse.Namespace) -> int:
    if getattr(options, "debug", False):
        traceback.print_exception(error)
    tell(text)
    _write_ending("failed", text, options)
    return status


def _write_ending(status: 'Literal["failed", "cancelled"]', error: str, options: argparse.Namespace) -> None:
    """Write the object of `--output result` for a prompt that has no result."""
    if getattr(options, "output", None) == "result" and sys.stdout is not None:
        from freeact_sub.terminal.result import OneResult  # noqa: PLC0415

        with contextlib.suppress(OSError):  # nobody reads it, or the disk is full
            print(OneResult(status=status, error=error).to_json(), flush=True)  # noqa: T201  (the user interface)


def list_agents(_options: argparse.Namespace, settings: Settings) -> int:
    """List the named types of agents (`freeact-sub agents`). Errors in their files go to standard error; then return 1."""
    from freeact_sub.config.schema import AGENT_TYPES, user_folder  # noqa: PLC0415
    from freeact_sub.features.agent_types import load_agent_types  # noqa: PLC0415
    from freeact_sub.features.skills.feature import unknown_skills  # noqa: PLC0415
    from freeact_sub.features.skills.skill import load_skills  # noqa: PLC0415
    from freeact_sub.text import one_line, visible  # noqa: PLC0415

    config = settings(looking=True)
    found = load_agent_types(config)
    skills = load_skills(config.skill_contents.values()).skills
    problems = [*found.problems, *unknown_skills(found.types.values(), skills)]
    for kind in found.types.values():
        print_line(f"{kind.name}: {one_line(kind.description, 200)}{_details_of(kind)}\n    {kind.file}")
    if not found.types and not problems:
        folders = f"{AGENT_TYPES} of the workspace, and {user_folder() / AGENT_TYPES.name}"
        print_line(f"no agent types: write NAME.md into {folders}")
    for problem in problems:
        sys.stderr.write(f"freeact-sub: {visible(problem)}\n")
    return 1 if problems else 0


def _details_of(kind: "AgentType") -> str:
    parts = {
        "model": kind.model,
        "code_actions": kind.code_actions,
        "mode": kind.mode,
        "tools": None if kind.allow is None else " ".join(kind.allow) or "none",
        "not": " ".join(kind.deny) or None,
        "mcp": None if kind.mcp is None else " ".join(kind.mcp) or "none",
        "own servers": " ".join(kind.servers) or None,
        "skills": None if kind.skills is None else " ".join(kind.skills) or "none",
        "budget": str(kind.budget) or None,
    }
    known = [f"{name} {value}" for name, value in parts.items() if value is not None]
    return f" ({'; '.join(known)})" if known else ""


def answer(options: argparse.Namespace, settings: Settings) -> int:
    """Answer a question about files of any length by a recursive language model (`freeact-sub rlm FILE ... QUESTION`)."""
    *files, question = options.words
    context = _context(files)
    config = settings(headless="auto")
    from freeact_sub.models.build import require_model  # noqa: PLC0415

    require_model(config)
    from freeact_sub.rlm import RLM  # noqa: PLC0415
    from freeact_sub.terminal.run_once import NOTHING  # noqa: PLC0415

    sub_model = getattr(options, "sub_model", None)
    rlm = RLM(sub_model=sub_model, max_depth=getattr(options, "depth", 1), config=config)
    open_agent = functools.partial(rlm.agent, context)
    return run_prompt(options, config, open_agent, rlm.prompt(context, question), NOTHING)


def _context(files: list[str]) -> Any:
    """Return the text of one file, or of standard input; of several files, their texts by name."""
    from freeact_sub.cli.streams import piped_prompt  # noqa: PLC0415

    if not files and is_terminal(sys.stdin):
        raise ConfigError("name the files that the question is about, or pipe a text into the program")
    texts = {name: piped_prompt() if name == "-" else _text(Path(name)) for name in files or ["-"]}
    return texts if len(texts) > 1 else next(iter(texts.values()))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
