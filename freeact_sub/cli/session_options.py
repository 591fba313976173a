"""The options and commands of the command line for sessions. It imports nothing slow."""

import argparse
from pathlib import Path
from typing import Any

from freeact_sub.modes import MODES


def add_session_options(parser: argparse.ArgumentParser, *, chooses: bool) -> None:
    """Adds `--continue` and `--resume`. Args: chooses: `--resume` alone shows a list to choose from."""
    group = parser.add_mutually_exclusive_group()
    last = "continue the latest session of this folder"
    group.add_argument("--continue", dest="session", action="store_const", const=".", default=argparse.SUPPRESS, help=last)
    number: Any = {"nargs": "?", "const": ""} if chooses else {}
    text = "continue a session; without ID choose from a list" if chooses else "continue a session"
    group.add_argument("--resume", dest="session", metavar="ID", default=argparse.SUPPRESS, help=text, **number)


def add_sessions(commands: Any, place: argparse.ArgumentParser) -> None:
    """Adds `sessions` and the commands below it. Args: place: options of each."""
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
