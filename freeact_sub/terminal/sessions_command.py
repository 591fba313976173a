"""`freeact-sub sessions`, `--continue` and `--resume`: a person lists, reads, exports, chooses and removes sessions.

The parsers are built at each start of the program: what takes time is imported where it is used.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from freeact_sub.errors import ConfigError
from freeact_sub.terminal.standard_output import print_line, write_out
from freeact_sub.text import counted, one_line

if TYPE_CHECKING:
    from freeact_sub.config.schema import Config
    from freeact_sub.sessions import StoredSession

TITLE_CHARS: Final = 60
SHOWN: Final = 20
"""Sessions that a list shows at a time."""


def add_options(parser: argparse.ArgumentParser, *, chooses: bool) -> None:
    """Adds `--continue` and `--resume`. Args: chooses: `--resume` alone shows a list to choose from."""
    group = parser.add_mutually_exclusive_group()
    last = "continue the latest session of this folder"
    group.add_argument("--continue", dest="session", action="store_const", const=".", default=argparse.SUPPRESS, help=last)
    number: Any = {"nargs": "?", "const": ""} if chooses else {}
    text = "continue a session; without ID choose from a list" if chooses else "continue a session"
    group.add_argument("--resume", dest="session", metavar="ID", default=argparse.SUPPRESS, help=text, **number)
    again = "run the session's cells again, with approvals, instead of reading its variables from files"
    parser.add_argument("--replay", action="store_true", default=argparse.SUPPRESS, help=again)


def add_command(commands: Any, common: argparse.ArgumentParser, parser_class: type[argparse.ArgumentParser]) -> Any:
    """Adds `sessions`; returns its subparsers, to which others add."""
    sessions = commands.add_parser("sessions", help="list, show, export, fork and remove sessions", allow_abbrev=False)
    ways = sessions.add_subparsers(dest="way", metavar="WAY", parser_class=parser_class, required=True)
    listed = ways.add_parser("list", help="list the sessions of this folder", parents=[common], allow_abbrev=False)
    listed.add_argument("--all", action="store_true", dest="everywhere", help="list those of all folders")
    show = ways.add_parser("show", help="print the transcript", parents=[common], allow_abbrev=False)
    show.add_argument("session_id", metavar="ID", help="the session's id, or the beginning of it")
    show.add_argument("--agent", metavar="ID", help="only the agent of this id or key, for example a child")
    export = ways.add_parser(
        "export",
        help="write a session to a file: a page, a notebook, a text, or its events",
        description="Write the work of all agents of a session to a file to hand to somebody.",
        parents=[common],
        allow_abbrev=False,
    )
    export.add_argument("session_id", metavar="ID", help="the session's id, or the beginning of it")
    forms = "html: one page without scripts; ipynb: a notebook that runs; md: text; jsonl: one event per line"
    export.add_argument("--to", choices=("html", "ipynb", "md", "jsonl"), default="html", help=f"{forms} (default: html)")
    export.add_argument("-o", "--out", metavar="FILE", type=Path, help="the file (default: standard output)")
    fork = ways.add_parser("fork", help="copy a session, so that both can continue", parents=[common], allow_abbrev=False)
    fork.add_argument("session_id", metavar="ID", help="the session's id, or the beginning of it")
    remove = ways.add_parser("rm", help="remove a session", parents=[common], allow_abbrev=False)
    remove.add_argument("session_id", metavar="ID", help="the session's id, or the beginning of it")
    ways.add_parser(
        "prune",
        help="archive old sessions, and remove the oldest above the limit",
        description="Archive the sessions that are older than sessions.archive_after_days, and remove the oldest while all "
        "take more than sessions.max_bytes. It happens by itself once a day.",
        parents=[common],
        allow_abbrev=False,
    )
    return ways


def run_way(options: argparse.Namespace, config: "Config") -> int:
    """Runs the subcommand; returns the exit status."""
    match options.way:
        case "list":
            return _list(None if options.everywhere else config.workspace)
        case "show":
            return _show(options.session_id, options.agent)
        case "export":
            return _export(options.session_id, options.to, options.out)
        case "fork":
            return _fork(options.session_id)
        case "rm":
            return _remove(options.session_id)
        case _:
            return _prune(config)


def chosen(choice: str | None, workspace: Path) -> str:
    """The session that the options of a start name: an id, or `new`. Args: choice: `.`: the newest. Empty: ask. None: new.

    Raises:
        SessionError: There is no such session.
        ConfigError: Nobody is there to choose.
    """
    if choice is None:
        return "new"
    from freeact_sub.sessions import SessionStore, state_folder  # noqa: PLC0415

    store = SessionStore(state_folder())
    if choice == ".":
        return store.newest(workspace).session_id
    return store.find(choice).session_id if choice else _ask(store.sessions())


def _ask(sessions: "list[StoredSession]") -> str:
    """Lets a person choose: by number, or by words that narrow the list."""
    found = asked = [session for session in sessions if session.title]
    if not asked:
        raise ConfigError("no session to resume: start without --resume")
    while True:
        for number, session in enumerate(found[:SHOWN], 1):
            print_line(f"{number:>3}  {session_line(session, folder=True)}")
        if len(found) > SHOWN:
            print_line(f"     and {len(found) - SHOWN} more")
        sys.stderr.write("number, words to search for, or Enter to quit: ")
        sys.stderr.flush()
        text = sys.stdin.readline().strip()
        if not text:
            raise ConfigError("no session was chosen")
        if text.isdecimal() and 1 <= int(text) <= min(len(found), SHOWN):
            return found[int(text) - 1].session_id
        words = text.lower().split()
        narrowed = [
            session for session in asked if all(word in session_line(session, folder=True).lower() for word in words)
        ]
        if not narrowed:
            print_line(f"     no match: {text}")
        found = narrowed or found


def _list(workspace: Path | None) -> int:
    from freeact_sub.sessions import list_sessions  # noqa: PLC0415

    sessions = [session for session in list_sessions(workspace) if session.title]
    for session in sessions:
        print_line(session_line(session, folder=workspace is None))
    if not sessions:
        print_line("no sessions" if workspace is None else f"no sessions in {workspace} (--all lists those of all folders)")
    return 0


def session_line(session: "StoredSession", *, folder: bool) -> str:
    """A session as a person reads it. Args: folder: name its folder."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(session.updated))
    agents = counted(session.agents, "agent")
    cost = session.usage.cost_text or f"{session.usage.tokens_text} tokens"
    notes = [session.status or "open", *(["archived"] if session.archived else []), agents, cost]
    where = f"  {session.workspace}" if folder else ""
    return f"{session.session_id}  {when}  {one_line(session.title, TITLE_CHARS)}  ({', '.join(notes)}){where}"


def _show(session_id: str, agent: str | None) -> int:
    from freeact_sub.sessions import SessionStore, state_folder  # noqa: PLC0415
    from freeact_sub.show.agent_view import Views  # noqa: PLC0415
    from freeact_sub.terminal.plain_lines import PlainLines  # noqa: PLC0415

    store = SessionStore(state_folder())
    session = store.find(session_id)
    views = Views()
    lines = PlainLines(views)
    with store.reader(session.session_id) as reader:
        wanted = None if agent is None else reader.agent(agent).agent_id
        print_line(session_line(session, folder=True))
        for event in reader.events():
            views.observe(event)
            if wanted in (None, event.agent_id):
                write_out(lines.write(event))
    return 0


def _export(session_id: str, to: Any, file: Path | None) -> int:
    from freeact_sub.export import export_session  # noqa: PLC0415

    text = export_session(session_id, to, file=file)
    if file is None:
        write_out(text)
    else:
        print_line(f"written: {file}")
    return 0


def _fork(session_id: str) -> int:
    from freeact_sub.sessions import SessionStore, state_folder  # noqa: PLC0415

    print_line(SessionStore(state_folder()).fork(session_id))
    return 0


def _remove(session_id: str) -> int:
    from freeact_sub.sessions import SessionStore, state_folder  # noqa: PLC0415
    from freeact_sub.sessions.sweeping import remove_session  # noqa: PLC0415

    store = SessionStore(state_folder())
    session = store.find(session_id)
    remove_session(store, session.session_id)
    print_line(f"removed: {session_line(session, folder=True)}")
    return 0


def _prune(config: "Config") -> int:
    import threading  # noqa: PLC0415

    from freeact_sub.sessions import SessionStore, state_folder  # noqa: PLC0415
    from freeact_sub.sessions.sweeping import sweep  # noqa: PLC0415

    settings = config.sessions
    swept = sweep(
        SessionStore(state_folder()),
        config.workspace,
        archive_after_days=settings.archive_after_days,
        max_bytes=settings.max_bytes,
        stop=threading.Event(),
    )
    print_line(f"archived: {', '.join(swept.archived) or 'none'}; removed: {', '.join(swept.removed) or 'none'}")
    return 0
