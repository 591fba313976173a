"""Conversations at work without a terminal: `freeact-sub attach`, `kill`, and the beginning of `run --detach`."""

import argparse
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from freeact_sub.cli.streams import is_interactive, print_line
from freeact_sub.detached import sockets
from freeact_sub.detached.client import Terminal, attach_words, wait_until_begun
from freeact_sub.detached.host import END_SECONDS, Link, start_hosted
from freeact_sub.detached.sockets import LiveHost, Wire, live_hosts
from freeact_sub.errors import ConfigError, SessionError

if TYPE_CHECKING:
    from freeact_sub.cli.commands import Settings

KILL_SECONDS: Final = END_SECONDS + 5
USUAL_TERM: Final = "xterm-256color"
STATES: Final = {"working": "working", "waiting": "waiting for you", "done": "open"}


def begin_detached() -> Link | int:
    """Go on as a program without a terminal. Returns: in the program its link, in the caller the exit status.

    Raises:
        ConfigError: The system cannot.
    """
    host = start_hosted(detached=True)
    if host is None:
        raise ConfigError("--detach is not possible here: no pseudo-terminal, or no private folder for sessions")
    if isinstance(host, Link):
        os.environ.setdefault("TERM", USUAL_TERM)  # a caller without a terminal has none, and those that attach do
        return host
    status, session = wait_until_begun(host)
    if session:
        print_line(f"detached: {attach_words(session)}")
    return status


def attach(options: argparse.Namespace, settings: "Settings") -> int:
    """Show a conversation that has a program; continue any other (`freeact-sub attach [ID]`)."""
    if not is_interactive():
        raise ConfigError("attach needs a terminal: `freeact-sub sessions show ID` prints a session")
    wanted: str | None = options.session_id
    hosts = live_hosts(wakes=True)
    if wanted is None:
        here = [host for host in hosts if host.workspace == str(_workspace(options))]
        if not here:
            for host in hosts:
                print_line(f"{attach_words(host.session)}  ({STATES[host.state]})  {host.workspace}")
            others = "; those above are in other folders" if hosts else ""
            raise ConfigError(f"nothing is at work in this folder{others} (freeact-sub --continue resumes its last session)")
        found: LiveHost | None = here[0]
    else:
        found = _live(hosts, wanted)
    if found is not None:
        with suppress(OSError), sockets.connect(found.name) as connection:
            try:
                return Terminal(Wire(connection), attaches=True).relay()
            except EOFError:
                print_line(f"{found.session} is ending")
                _wait_for_end(connection)
        wanted = found.session
    from freeact_sub.cli.commands import converse  # noqa: PLC0415

    return converse(argparse.Namespace(**vars(options), session=wanted or "."), settings)


def _workspace(options: argparse.Namespace) -> Path:
    return Path(getattr(options, "workspace", None) or Path.cwd()).resolve()


def _live(hosts: Sequence[LiveHost], wanted: str) -> LiveHost | None:
    """Return the conversation of an id or a beginning of one. Raises: FreeactError: It is empty, or several fit."""
    if not wanted:
        raise ConfigError("the session's id is empty: freeact-sub sessions list names them")
    found = [host for host in hosts if host.session.startswith(wanted)]
    found = [host for host in found if host.session == wanted] or found
    if len(found) > 1:
        raise SessionError(f"{wanted} is the beginning of several: {', '.join(host.session for host in found)}")
    return found[0] if found else None


def _why_no_host(wanted: str, settings: "Settings") -> str:
    """Return the reason why a session has no host: its program is another one, or it has none."""
    from freeact_sub.sessions import session_store  # noqa: PLC0415  # slow to import

    store = session_store(settings(looking=True).sessions)
    with suppress(SessionError):  # there is no such session
        session = store.find(wanted).session_id
        if store.is_open(session):
            return f"{session} is open in a program that is no conversation of a terminal: end it where it runs"
    return f"no program is at work on a session {wanted} (freeact-sub sessions list)"


def _wait_for_end(connection: socket.socket, seconds: float | None = None) -> None:
    """Wait until a host has ended, which ends after its program. Raises: OSError: It is gone already, or takes too long."""
    connection.settimeout(seconds)
    while connection.recv(sockets.PIECE):
        pass


def kill(options: argparse.Namespace, settings: "Settings") -> int:
    """End a conversation that has a program, with all that it has started (`freeact-sub kill ID`)."""
    host = _live(live_hosts(wakes=True), options.session_id)
    if host is None:
        raise SessionError(_why_no_host(options.session_id, settings))
    try:
        with sockets.connect(host.name) as connection:
            Wire(connection).put(sockets.END)
            _wait_for_end(connection, KILL_SECONDS)
    except TimeoutError:
        raise SessionError(f"{host.session} does not end in {KILL_SECONDS:g} s: end its host, process {host.name}") from None
    except OSError:  # it is gone
        pass
    print_line(f"ended: {host.session} (freeact-sub --resume {host.session} continues it)")
    return 0
