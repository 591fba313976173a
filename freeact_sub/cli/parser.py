"""The command line: all commands, their options, and the function of each (`main`).

This module imports nothing slow, so that `--help` and mistyped options respond at once.
"""

import argparse
import difflib
import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from freeact_sub import __version__
from freeact_sub.cli.borrowed_argparse import OpenParser
from freeact_sub.config.command_options import add_options, add_place, add_servers, add_settings
from freeact_sub.modes import MODES

USAGE: Final = 2
"""The exit status for wrong usage or settings."""
PROMPT_OPTIONS: Final = ("-p", "--print", "--prompt")
"""Names of the option in other programs."""
COMMON: Final[dict[str, Any]] = {"add_help": False, "argument_default": argparse.SUPPRESS, "allow_abbrev": False}
ADD: str = """examples:
  freeact-sub mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
  freeact-sub mcp add linear https://mcp.linear.app/mcp
  freeact-sub mcp add --user search https://example.org/mcp --header 'Authorization: Bearer ${SEARCH_KEY}'"""


class _PromptFoundError(Exception):
    """A first word that is a prompt, not a command."""


def parse(words: list[str]) -> argparse.Namespace:
    """Parse the words. A prompt alone, or after `-p` as in other programs, means `run PROMPT`."""
    words = _with_run(words)
    parser = command_line()
    try:
        try:
            return parser.parse_args(words)
        except _PromptFoundError as found:
            at = words.index(str(found))
            return command_line().parse_args([*words[:at], "run", *words[at:]])
    except _UsageError as error:
        what = _unknown_option(words, parser.known_options()) or str(error)
        parser.exit(USAGE, f"freeact-sub: {' '.join(what.split())} (see {error.prog} --help)\n")


def _unknown_option(words: Sequence[str], known: set[str]) -> str:
    """Return a message for the first unknown option, with the nearest known one; empty if all are known."""
    end = words.index("--") if "--" in words else len(words)
    options = (word.partition("=")[0] for word in words[:end] if word.startswith("--"))
    unknown = next((option for option in options if option not in known), None)
    if unknown is None:
        return ""
    near = difflib.get_close_matches(unknown, sorted(known), n=2, cutoff=0.8)
    meant = f": did you mean {' or '.join(near)}?" if near else ""
    return f"unknown option {_short(unknown)}{meant}"


def _with_run(words: Sequence[str]) -> list[str]:
    """Return the words with `run PROMPT` in place of `-p PROMPT`."""
    end = words.index("--") if "--" in words else len(words)
    at = next((index for index, word in enumerate(words[:end]) if word in PROMPT_OPTIONS), None)
    if at is None or {"sessions", "fork"} <= {*words[:at]}:  # it has such an option itself
        return [*words]
    return [*words[:at], *([] if "run" in words[:at] else ["run"]), *words[at + 1 :]]


class _UsageError(Exception):
    """An error in the words."""

    def __init__(self, message: str, prog: str) -> None:
        """Args: prog: the command whose words are wrong, as it is typed."""
        super().__init__(message)
        self.prog = prog


class _Parser(OpenParser):
    gathers = ""
    """The name of the argument that takes several words, which may stand before, between and after the options."""

    def error(self, message: str) -> NoReturn:
        raise _UsageError(message, self.prog)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse as `ArgumentParser` does, which gives such an argument only the words up to the next option."""
        options, left = super().parse_known_args(args, namespace)
        if self.gathers and left:
            end = left.index("--") if "--" in left else len(left)
            if not any(word.startswith("-") and word != "-" for word in left[:end]):
                setattr(options, self.gathers, [*getattr(options, self.gathers), *left[:end], *left[end + 1 :]])
                left = []
        return options, left

    def add_ways(self, *names: str) -> Any:
        """Begin the commands below this one. Args: names: all of them, for the usage and for the error if none is given."""
        return self.add_subparsers(dest="way", metavar=f"{{{','.join(names)}}}", parser_class=_Parser, required=True)

    def check_command(self, command: str, known: list[str]) -> None:
        """Refuse the command, suggesting the nearest one; several words as the first are a prompt."""
        is_first = "run" in known
        if is_first and len(command.split()) > 1:
            raise _PromptFoundError(command)
        near = difflib.get_close_matches(command, known, n=1)
        other = f"for a prompt, `{_run_command(command)}`" if is_first else "choose one of these"
        meant = f"did you mean `{near[0]}`?" if near else other
        raise argparse.ArgumentError(None, f"unknown command {_short(command)!r} ({', '.join(known)}): {meant}")


def _run_command(prompt: str) -> str:
    return f"freeact-sub run {shlex.quote(prompt) if prompt == _short(prompt) else 'PROMPT'}"


def _short(text: str) -> str:
    return textwrap.shorten(text, 80, placeholder=" ...")


def command_line() -> _Parser:
    """Return the parser of all commands."""
    common, looking, place = _Parser(**COMMON), _Parser(**COMMON), _Parser(**COMMON)
    add_options(common)
    add_settings(looking)
    add_place(place)
    for options in (common, looking, place):
        trust = "trust the settings in the workspace as they are, from now on"
        options.add_argument("--trust", action="store_true", help=trust)
        options.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser = _Parser(
        prog="freeact-sub",
        description="An agent that acts by running code in its own Jupyter kernel, and hands work to child agents. "
        "Without a command it starts a conversation. With a prompt, as an argument, by `-p PROMPT` or on standard input, it "
        "runs this prompt and exits.",
        epilog="Exit status: 0 completed, 1 failed, a limit reached, or every call denied because nobody could be asked, "
        "2 wrong usage or settings, 130 interrupted. "
        "Settings: ~/.config/freeact/config.toml, .freeact/config.toml in the workspace, FREEACT_… variables, "
        "then these options.",
        parents=[common],
        allow_abbrev=False,
    )
    parser.set_defaults(main="freeact_sub.cli.commands:converse")
    parser.add_argument("--version", action="version", version=f"freeact-sub {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    run = commands.add_parser(
        "run",
        help="run one prompt and exit",
        description="Run one prompt, print the answer, and exit.",
        parents=[common],
        allow_abbrev=False,
    )
    run.set_defaults(main="freeact_sub.cli.commands:run")
    what = "the task; data on standard input is added to it; - or nothing: standard input is the prompt"
    run.add_argument("prompt", nargs="?", metavar="PROMPT", help=what)
    _add_run_options(parser)
    _add_run_options(run)
    detach = "leave it at work, and print how to attach a terminal: its questions wait"
    run.add_argument("--detach", action="store_true", default=argparse.SUPPRESS, help=detach)
    _add_attach(commands, common)
    commands.add_parser(
        "agents",
        help="list the types of child agents",
        description="List the named types of child agents, and errors in their files.",
        epilog="Exit status: 0, or 1 if a file is wrong.",
        parents=[place],
        allow_abbrev=False,
    ).set_defaults(main="freeact_sub.cli.commands:list_agents")
    _add_skills(commands, place)
    _add_permissions(commands, looking)
    _add_gateway(commands, looking)
    add_session_options(parser, chooses=True)
    add_session_options(run, chooses=False)
    add_sessions(commands, place)
    _add_rlm(commands, common)
    _add_map(commands, common)
    add_mcp(commands, place)
    doctor = commands.add_parser(
        "doctor",
        help="check what works on this machine, and how to fix the rest",
        description="Start a kernel, copy it, and look for the wall, models, keys and Pythons. Report what is missing, and "
        "how to fix it. Nothing is sent to other machines.",
        epilog="Exit status: 0 agents can work here, 1 they cannot yet, 2 wrong usage or settings.",
        parents=[looking],
        allow_abbrev=False,
    )
    doctor.add_argument(
        "--apparmor",
        action="store_true",
        help="print an AppArmor profile that lets kernels have their wall, and nothing else",
    )
    doctor.set_defaults(main="freeact_sub.cli.doctor:examine")
    add_mcp_server(commands, common)
    _add_acp(commands, common)
    shown = commands.add_parser("help", help="show the help of a command", allow_abbrev=False)
    shown.set_defaults(main="freeact_sub.cli.commands:show_help")
    shown.add_argument("words", nargs="*", metavar="COMMAND", help="such as run, or mcp add (default: all commands)")
    return parser


def _add_run_options(parser: argparse.ArgumentParser, *, file: bool = True) -> None:
    if file:
        parser.add_argument(
            "--file", metavar="PATH", type=Path, default=argparse.SUPPRESS, help="run one prompt, read from a file"
        )
    parser.add_argument(
        "--output",
        choices=("auto", "plain", "json", "text", "result"),
        default=argparse.SUPPRESS,
        help="how one prompt is shown: auto: drawn in a terminal, else the answer, with a log on standard error; "
        "plain: lines of text; "
        "json: one event per line; text: only the answer; "
        "result: at the end one JSON object with answer, status, cost, session and files",
    )
    whole = "show everything that all agents do, children included"
    parser.add_argument("--verbose", action="store_true", default=argparse.SUPPRESS, help=whole)
    quiet = "the same as --output text"
    parser.add_argument("--quiet", action="store_const", dest="output", const="text", default=argparse.SUPPRESS, help=quiet)


def _add_attach(commands: Any, common: argparse.ArgumentParser) -> None:
    attach = commands.add_parser(
        "attach",
        help="come back to a conversation at work, from any terminal",
        description="Show a conversation that was left at work by /detach, by `run --detach` or by closing its terminal, "
        "and its open question. Without ID the latest of this folder. A conversation that has ended is resumed.",
        parents=[common],
        allow_abbrev=False,
    )
    attach.set_defaults(main="freeact_sub.cli.attach:attach")
    attach.add_argument("session_id", nargs="?", metavar="ID", help="the session's id, or the beginning of it")
    kill = commands.add_parser(
        "kill",
        help="end a conversation at work",
        description="End the program that is at work on a session, with its kernels and all that they have started. The "
        "session stays, and can be resumed.",
        epilog="Exit status: 0 ended, 1 no program is at work on it.",
        allow_abbrev=False,
    )
    kill.set_defaults(main="freeact_sub.cli.attach:kill")
    kill.add_argument("session_id", metavar="ID", help="the session's id, or the beginning of it")


def _add_skills(commands: Any, place: argparse.ArgumentParser) -> None:
    skills = commands.add_parser("skills", help="list, check and create skills", allow_abbrev=False)
    skills.set_defaults(main="freeact_sub.cli.skills:run_way")
    ways = skills.add_ways("list", "check", "new")
    ways.add_parser(
        "list",
        help="list the skills, and errors in their files",
        epilog="Exit status: 0, or 1 if a file is wrong.",
        parents=[place],
        allow_abbrev=False,
    )
    check = ways.add_parser(
        "check",
        help="check skills against the open format",
        epilog="Exit status: 0 all are right, 1 one is not, 2 wrong usage or settings.",
        parents=[place],
        allow_abbrev=False,
    )
    check.gathers = "paths"
    check.add_argument("paths", nargs="*", metavar="FOLDER", help="the folder of a skill (default: all that are found)")
    new = ways.add_parser("new", help="create a skill in this folder", parents=[place], allow_abbrev=False)
    new.add_argument("name", metavar="NAME", help="small letters, digits and -")


def _add_permissions(commands: Any, looking: argparse.ArgumentParser) -> None:
    permissions = commands.add_parser("permissions", help="list the permission rules, or check a call", allow_abbrev=False)
    permissions.set_defaults(main="freeact_sub.cli.commands:permissions")
    ways = permissions.add_ways("check", "list")
    check = ways.add_parser(
        "check",
        help="show the decision about a call, and the rule behind it",
        description="Print the decision about a call, the rule behind it, and the rule's file.",
        epilog="Exit status: 0 allowed, 1 denied, 3 needs approval, 2 wrong usage or settings.",
        parents=[looking],
        allow_abbrev=False,
    )
    check.add_argument("call", metavar="CALL", help="a shell command, or a call of another --kind")
    check.add_argument("--kind", default="shell", help="the kind of CALL (default: shell); `--kind help` lists them")
    ways.add_parser("list", help="list all rules, in order of precedence", parents=[looking], allow_abbrev=False)


def _add_gateway(commands: Any, looking: argparse.ArgumentParser) -> None:
    gateway = commands.add_parser("gateway", help="check a Jupyter gateway", allow_abbrev=False)
    gateway.set_defaults(main="freeact_sub.cli.serving:check")
    ways = gateway.add_ways("check")
    check = ways.add_parser(
        "check",
        help="start a kernel there and test what agents need",
        description="Start a kernel at a gateway, test what agents need, and print the options that the gateway needs.",
        epilog="Exit status: 0 if nothing is missing, 1 if something is, 2 for wrong usage or settings. "
        "The token: FREEACT_KERNEL__GATEWAY__TOKEN.",
        parents=[looking],
        allow_abbrev=False,
    )
    check.add_argument("url", metavar="URL", help="the URL of the gateway")
    kernelspec = commands.add_parser(
        "kernelspec", help="install a kernelspec for notebooks or a gateway", allow_abbrev=False
    )
    kernelspec.set_defaults(main="freeact_sub.cli.serving:install")
    install = kernelspec.add_ways("install").add_parser(
        "install",
        help="install kernels that are forked",
        description="Write a kernelspec whose kernels are forked: for your own notebooks without a wall, on a "
        "gateway's machine behind a --wall.",
        allow_abbrev=False,
    )
    install.add_argument("--name", default="freeact", help="the name of the kernelspec (default: freeact)")
    install.add_argument("--user", action="store_true", help="install for this user instead of this Python")
    install.add_argument("--prefix", type=Path, metavar="DIR", help="install below this folder")
    install.add_argument(
        "--wall", choices=("none", *MODES), default="none", help="the mode that has this wall (default: none)"
    )
    install.add_argument("--network", action="store_true", help="allow kernels network access behind the wall of mode auto")


def _add_rlm(commands: Any, common: argparse.ArgumentParser) -> None:
    rlm = commands.add_parser(
        "rlm",
        help="answer a question about files that are too long for a prompt",
        description="Answer a question about files, or about standard input, by a recursive language model: a model reads "
        "the text by code, in a kernel without network, and asks models about parts of it.",
        epilog="Exit status: 0 completed, 1 failed or a limit reached, 2 wrong usage or settings, 130 interrupted.",
        usage="%(prog)s [OPTION ...] [FILE ...] QUESTION",  # what argparse makes of the words repeats both
        parents=[common],
        allow_abbrev=False,
    )
    rlm.set_defaults(main="freeact_sub.cli.commands:answer")
    rlm.gathers = "words"
    rlm.add_argument(
        "words", nargs="+", metavar="FILE ... QUESTION", help="text files (- or none: standard input), then a question"
    )
    rlm.add_argument(
        "--sub-model",
        metavar="NAME",
        default=argparse.SUPPRESS,
        help="the model that reads parts (default: the model of --model)",
    )
    rlm.add_argument(
        "--depth",
        type=int,
        choices=(1, 2, 3),
        default=argparse.SUPPRESS,
        help="how many levels of models run code; the last level makes plain requests (default: 1)",
    )
    _add_run_options(rlm, file=False)


def _add_acp(commands: Any, common: argparse.ArgumentParser) -> None:
    commands.add_parser(
        "acp",
        help="serve an editor or a notebook over the Agent Client Protocol",
        description="Serve an editor or a notebook over the Agent Client Protocol (ACP) on standard input and output. The "
        "client starts it; each session has its own folder. Without a mode in the settings it is auto.",
        parents=[common],
        allow_abbrev=False,
    ).set_defaults(
        main="freeact_sub.cli.serving:serve_acp", usual={"mode": "auto"}
    )  # its user is asked in a card for each action


def _add_map(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "map",
        help="ask the same question about each row of a file",
        description="Ask a model the same question about each row of a file, and write the rows with the answers as new "
        "columns. With --out, answers are kept beside the result, and the same call again asks only what is missing.",
        epilog="Exit status: 0 all rows have an answer, 1 some have none, 2 wrong usage or settings, 130 interrupted.",
        parents=[common],
        allow_abbrev=False,
    )
    parser.set_defaults(main="freeact_sub.cli.map:map_file")
    parser.add_argument("data", metavar="FILE", help="the rows: .csv, .tsv or .jsonl; - is standard input")
    parser.add_argument("template", metavar="TEMPLATE", help="the question, with columns in braces: 'Classify {text}'")
    parser.add_argument(
        "--out",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="the result: .csv, .tsv, .jsonl (default: standard output)",
    )
    parser.add_argument(
        "--output",
        dest="fields",
        metavar="FIELDS",
        default=argparse.SUPPRESS,
        help="the fields of an answer: 'topic: price|delivery|other, angry: bool, reason'; types: text, int, float, bool, "
        "list (default: one text, the column answer)",
    )
    bound = "the most to spend: dollars, as 3 or $0.50, or '200000 tokens'"
    parser.add_argument("--budget", metavar="AMOUNT", default=argparse.SUPPRESS, help=bound)


def add_mcp(commands: Any, place: argparse.ArgumentParser) -> None:
    """Add the command. Args: place: the options for the place of work."""
    parser = commands.add_parser("mcp", help="list, add, check and sign in to MCP servers", allow_abbrev=False)
    parser.set_defaults(main="freeact_sub.cli.mcp:run_way")
    ways = parser.add_ways("list", "add", "remove", "login", "logout", "check")
    servers = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS, allow_abbrev=False)
    add_servers(servers)
    shared = {"parents": [place, servers], "allow_abbrev": False}
    ways.add_parser("list", help="list the servers", **shared)
    add = ways.add_parser(
        "add",
        help="add a server to mcp.json",
        description="Add a server to the mcp.json of the workspace, or to your own.",
        epilog=ADD,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **shared,
    )
    add.add_argument("name", metavar="NAME", help="its name here")
    add.add_argument("target", nargs="+", metavar="URL | -- COMMAND", help="its address, or the command that starts it")
    add.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'", help="a header for a URL")
    add.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable for a command")
    add.add_argument("--client-id", metavar="ID", help="a client that you have registered with the server's provider")
    add.add_argument("--callback-port", metavar="PORT", type=int, help="the port of its http://localhost:PORT/callback")
    remove = ways.add_parser("remove", help="remove a server from mcp.json", **shared)
    remove.add_argument("name", metavar="NAME", help="its name")
    for way in (add, remove):
        way.add_argument("--user", action="store_true", default=False, help="write to your own mcp.json, for all workspaces")
    login = ways.add_parser(
        "login",
        help="sign in to a server in the browser",
        description="Open a page in the browser to sign in to an HTTP server. The tokens are kept in your own folder.",
        **shared,
    )
    logout = ways.add_parser("logout", help="remove the tokens of a server", **shared)
    for way in (login, logout):
        way.add_argument("name", metavar="NAME", help="its name, or its URL")
    check = ways.add_parser(
        "check",
        help="connect to the servers, and list what they offer",
        description="Connect to servers and print their tools, resources and prompts, or why that is not possible.",
        epilog="Exit status: 0 all can be used, 1 one cannot, 2 wrong usage or settings.",
        **shared,
    )
    check.add_argument("names", nargs="*", metavar="NAME", help="the servers (default: all)")


def add_mcp_server(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `mcp-server`, which is an MCP server. Args: common: the options for settings."""
    server = commands.add_parser(
        "mcp-server",
        help="serve agents and live kernels to other programs over MCP",
        description="Serve MCP on standard input and output: other agents and editors get live Python kernels that can be "
        "branched, and agents that do whole tasks. The mode is auto unless a setting says otherwise.",
        epilog="Exit status: 0 the client has left, 2 wrong usage or settings.",
        parents=[common],
        allow_abbrev=False,
    )
    # the client's user allows its calls; the wall holds what the code does
    server.set_defaults(main="freeact_sub.cli.serving:serve_mcp", usual={"mode": "auto"})
    server.add_argument(
        "--http",
        metavar="PORT",
        type=int,
        choices=range(65536),
        default=argparse.SUPPRESS,
        help="serve over HTTP on this port of 127.0.0.1 instead (0: any); the address and a token are printed",
    )


def add_session_options(parser: argparse.ArgumentParser, *, chooses: bool) -> None:
    """Add `--continue` and `--resume`. Args: chooses: `--resume` alone shows a list to choose from."""
    group = parser.add_mutually_exclusive_group()
    last = "continue the latest session of this folder"
    group.add_argument("--continue", dest="session", action="store_const", const=".", default=argparse.SUPPRESS, help=last)
    number: Any = {"nargs": "?", "const": ""} if chooses else {}
    text = "continue a session; without ID choose from a list" if chooses else "continue a session"
    group.add_argument("--resume", dest="session", metavar="ID", default=argparse.SUPPRESS, help=text, **number)


def add_sessions(commands: Any, place: argparse.ArgumentParser) -> None:
    """Add `sessions` and the commands below it. Args: place: options of each."""
    sessions = commands.add_parser("sessions", help="list, show, export, fork and remove sessions", allow_abbrev=False)
    sessions.set_defaults(main="freeact_sub.cli.sessions:run_way")
    ways = sessions.add_ways("list", "show", "export", "fork", "rm", "prune")
    listed = ways.add_parser("list", help="list the sessions of this folder", parents=[place], allow_abbrev=False)
    listed.add_argument("--all", action="store_true", dest="everywhere", help="list those of all folders")
    show = ways.add_parser("show", help="print the transcript", parents=[place], allow_abbrev=False)
    show.add_argument("session_id", metavar="ID", help="the session's id, or the beginning of it")
    show.add_argument(
        "--agent", metavar="ID", help="print only one agent: its short id, such as a3f2, or a part of its name"
    )
    export = ways.add_parser(
        "export",
        help="write a session to a file: a page, a notebook, a text, or its events",
        description="Write the work of all agents of a session to a file for other people.",
        parents=[place],
        allow_abbrev=False,
    )
    export.add_argument("session_id", metavar="ID", help="the session's id, or the beginning of it")
    forms = "html: one page without scripts; ipynb: a notebook that runs; md: text; jsonl: one event per line"
    export.add_argument("--to", choices=("html", "ipynb", "md", "jsonl"), default="html", help=f"{forms} (default: html)")
    export.add_argument("-o", "--out", metavar="FILE", type=Path, help="the file (default: standard output)")
    _add_fork(ways, place)
    remove = ways.add_parser("rm", help="remove a session", parents=[place], allow_abbrev=False)
    remove.add_argument("session_id", metavar="ID", help="the session's id, or the beginning of it")
    ways.add_parser(
        "prune",
        help="archive old sessions, and remove the oldest above the limit",
        description="Archive the sessions that are older than sessions.archive_after_days, and remove the oldest while all "
        "take more than sessions.max_bytes. It happens by itself once a day.",
        parents=[place],
        allow_abbrev=False,
    )


def _add_fork(ways: Any, place: argparse.ArgumentParser) -> None:
    fork = ways.add_parser(
        "fork",
        help="copy a session, also as it was at an earlier prompt; let models continue it side by side",
        description="Copy a session, so that both can continue. With --at, the copy is as the session was after that prompt,"
        " with its own copy of the workspace. With --model, each of these models continues a copy of its own, and a table "
        "compares them: status, cost, time, files, answer. Your workspace stays as it is.",
        epilog="Exit status: 0 completed, 1 one of the models failed or was denied all, 2 wrong usage or settings, "
        "130 interrupted.",
        parents=[place],
        allow_abbrev=False,
    )
    fork.add_argument("session_id", metavar="ID", help="the session's id, or the beginning of it")
    at = "after which prompt: its number as `sessions show` writes it; 0: before all; -1: before the last (default: now)"
    fork.add_argument("--at", type=int, metavar="N", default=argparse.SUPPRESS, help=at)
    models = "models that continue it, separated by commas, at most four at a time"
    fork.add_argument("--model", dest="models", metavar="NAMES", default=argparse.SUPPRESS, help=models)
    prompt = "what they are asked (default: the prompt that followed in the session, again)"
    fork.add_argument("--prompt", metavar="TEXT", default=argparse.SUPPRESS, help=prompt)
    mode = "which calls run; nobody is asked, so plan and ask deny the others (default: that of the settings, else auto)"
    fork.add_argument("--mode", choices=MODES, default=argparse.SUPPRESS, help=mode)
