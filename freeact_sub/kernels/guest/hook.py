"""Asks before code in a kernel starts a program, changes a file outside its folders, or connects.

Runs in kernels: standard library and IPython only. Python's audit events report each action before it happens, whoever does
it: `!cmd`, `subprocess`, a library. Actions that are always allowed return at once. All else is a request to the host
(`check`): the code waits for its reply, in any thread, and gets a `PermissionError` if it is no.

A question shows the start of a program as the command that a shell would read, and the name of a host instead of the address
that was found for it.

This is a question put to honest code, not a wall. It sees what Python does by itself: not what a started program does, nor
what a library does in C (`ctypes`, the files of Arrow).
"""

import contextlib
import errno
import functools
import ipaddress
import os
import re
import shlex
import socket
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import borrowed_starts, doors, stack
from .borrowed_starts import check_texts
from .kept import ADVICE
from .line import WALLED, Line
from .used import MAX_PENDING, UsedFiles
from .writable import (
    WRITING,
    Files,
    absolute,
    as_text,
    folder_of,
    is_only_read,
    keep_notes_of_ipython,
    real_path,
    report_opens_in_folders,
)


class Watch:
    """Questions about audit events."""

    def __init__(self, files: Files, line: Line, no_network: str = "") -> None:
        self.files = files
        self.line = line
        self.no_network = no_network
        self.names = Names()
        self.environment = dict(os.environ)
        self.is_on = True
        self.asking = threading.local()
        """Fields of each thread: `now` is true while it asks about an event, or must not ask."""
        self.allowed_peers: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()
        """Addresses to which a socket may send."""
        self.refused: tuple[Any, tuple[Any, ...]] = (None, ())
        """The words of the last denied program, and the reason."""
        self.handlers: dict[str, Callable[..., None]] = {
            "open": self.on_open,
            "freeact.open": self.on_open,
            "sqlite3.connect": self.on_database,
            "os.rename": self.on_rename,
            "os.remove": lambda path, folder=-1, *_: self.change(path, "remove", folder, follow=False),
            "os.rmdir": lambda path, folder=-1, *_: self.change(path, "remove", folder, follow=False),
            "os.mkdir": lambda path, _mode=0, folder=-1, *_: self.make(path, "create", folder),
            "os.symlink": self.on_symlink,
            "os.link": self.on_link,
            "os.truncate": lambda path, *_: self.change(path, "write"),
            "os.chmod": lambda path, _mode=0, folder=-1, *_: self.change(path, "change", folder),
            "os.chown": lambda path, _user=0, _group=0, folder=-1, *_: self.change(path, "change", folder),
            "os.utime": lambda path, _times=None, _ns=None, folder=-1, *_: self.change(path, "change", folder),
            "os.setxattr": lambda path, *_: self.change(path, "change"),
            "os.removexattr": lambda path, *_: self.change(path, "change"),
            "shutil.rmtree": lambda path, *_: self.change(path, "remove", follow=False, announced=True),
            "shutil.copytree": lambda _source, target, *_: self.change(target, "create", missing=True, announced=True),
            "shutil.move": self.on_move,
            "os.chdir": lambda *_: self.files.forget(),
            "subprocess.Popen": self.on_popen,
            "os.system": lambda command, *_: self.run("/bin/sh", ["sh", "-c", command]),
            "os.posix_spawn": self.on_spawn,
            borrowed_starts.EVENT: self.run,
            "os.exec": self.on_exec,
            "pty.spawn": lambda argv, *_: self.run(argv[0], argv),
            "os.fork": self.on_fork,
            "os.forkpty": self.on_fork,
            "socket.__new__": self.on_socket,
            "socket.bind": self.on_bind,
            "socket.connect": self.on_connect,
            "socket.sendto": self.on_send,
            "socket.sendmsg": self.on_send,
        }

    def renew(self, ask: Callable[..., Any], settings: dict[str, Any] | None) -> None:
        """Ask a new host from now on; nothing is allowed yet. Args: settings: as for `install`."""
        self.line = Line(ask)
        self.names.found.clear()
        self.allowed_peers.clear()
        self.refused = (None, ())
        self.is_on = settings is not None
        if settings is not None:
            self.files.set(settings["folders"], settings["asked"])
            self.no_network = settings["no_network"]
            ADVICE.text = settings.get("advice", "")
        self.asking.now = False

    # files

    def on_open(self, path: Any, _mode: Any, flags: int, folder: int = -1) -> None:
        if isinstance(path, int):
            return
        if folder >= 0:
            path = os.path.join(folder_of(folder), os.fsdecode(path))
        exists = os.path.lexists(path)
        if exists or flags & os.O_CREAT:
            operation = "append" if flags & os.O_APPEND else "write" if exists else "create"
            self.change(path, operation, missing=True)

    def on_database(self, path: Any, *_: Any) -> None:
        name = os.fsdecode(path)
        if name.startswith("file:"):
            if re.search(r"[?&](mode=(ro|memory)|immutable=1)", name):
                return
            name = re.sub(r"^file:(//(localhost)?(?=/))?|[?#].*$", "", name)
        if name not in ("", ":memory:"):
            self.change(name, "write", missing=True)

    def on_rename(self, source: Any, target: Any, source_folder: int = -1, target_folder: int = -1, *_: Any) -> None:
        self.change(source, "rename", source_folder, follow=False)
        self.change(target, "rename", target_folder, follow=False, missing=True)
        if source_folder >= 0 or os.path.islink(source) or os.path.isdir(source):
            self.files.forget()

    def on_symlink(self, _source: Any, target: Any, folder: int = -1, *_: Any) -> None:
        self.make(target, "link", folder)
        self.files.forget()

    def on_link(self, source: Any, target: Any, source_folder: int = -1, target_folder: int = -1, *_: Any) -> None:
        self.change(source, "link", source_folder)  # write access to the new name is write access to the old one
        self.make(target, "link", target_folder)

    def on_move(self, source: Any, target: Any, *_: Any) -> None:
        self.change(source, "rename", follow=False, announced=True)
        self.change(target, "rename", missing=True, announced=True)

    def make(self, path: Any, operation: str, folder: int = -1) -> None:
        """Ask about a name to create; if it exists, the call fails by itself."""
        if folder >= 0 or not os.path.lexists(path):
            self.change(path, operation, folder, follow=False, missing=True)

    def change(
        self,
        path: Any,
        operation: str,
        folder: int = -1,
        *,
        follow: bool = True,
        missing: bool = False,
        announced: bool = False,
    ) -> None:
        """Ask about a file to change.

        Args:
            path: As named by the code. A writable descriptor was asked about when it was opened.
            operation: The change.
            folder: A descriptor of the folder that the path is relative to. -1: none.
            follow: If the path is a link, its target changes.
            missing: It need not exist; otherwise the call fails by itself.
            announced: As for `stack.is_part_of_another`.
        """
        if isinstance(path, int):
            if not is_only_read(path):
                return
            path = folder_of(path)
        name = os.fsdecode(path)
        if "\0" in name:
            return  # the call fails by itself
        if folder >= 0:
            name = os.path.join(folder_of(folder), name)
        if not missing and not os.path.lexists(name):
            return
        real, named = real_path(name, follow=follow), absolute(name)
        if self.files.is_free(real, operation) and (named == real or self.files.is_free(named, operation)):
            return
        if not stack.is_part_of_another(real, operation, self.files.is_free, announced=announced):
            self.line.ask(kind="write", path=as_text(real), named=as_text(named), operation=operation)

    # programs

    def on_popen(self, executable: Any, args: Any, cwd: Any, env: Any, *_: Any) -> None:
        self.run(executable, [args] if isinstance(args, str | bytes | os.PathLike) else list(args), cwd, env)

    def on_spawn(self, path: Any, argv: Any, env: Any, *_: Any) -> None:
        check_texts((path, *argv))
        if not stack.is_part_of_popen():
            self.run(path, argv, env=env)

    def on_exec(self, path: Any, argv: Any, env: Any = None, *_: Any) -> None:
        check_texts((path, *argv))
        if not os.access(path, os.X_OK) or (self.line.is_forked and stack.is_forked_for_a_terminal()):
            return
        try:
            with doors.opened(self.line.is_forked):  # the kernel itself does not become a program behind a wall
                self.run_once(path, argv, env=env)
        except doors.ToBeWalledError:
            doors.enter()

    def on_fork(self, *_: Any) -> None:
        call = stack.pexpect_call()  # its child closes everything it could ask with, so ask here
        if call is None:
            self.line.open()
            return
        if call["argv"] is self.refused[0]:
            stack.close_terminal()
        self.run_once(call["command"], call["argv"], call.get("cwd"), call.get("env"))

    def run_once(self, executable: Any, argv: Any, cwd: Any = None, env: Any = None) -> None:
        """Do as `run`, for another attempt after a denial: in the next folder of `PATH`, or without `forkpty`."""
        refused, denied = self.refused
        if argv is refused:
            raise PermissionError(*denied)
        try:
            self.run(executable, argv, cwd, env)
        except PermissionError as error:
            self.refused = (argv, error.args)
            raise

    def run(self, executable: Any, argv: Any, cwd: Any = None, env: Any = None) -> None:
        """Ask about a program to start."""
        words = [os.fsdecode(word) for word in argv] or [""]
        script = stack.script_for(words)
        words[0] = os.fsdecode(executable or words[0])
        command = shown_command(words, script, os.environ if env is None else env, self.environment)
        self.start(command, cwd)

    def start(self, command: str, cwd: Any) -> None:
        """Ask about a command to run. Raises: ToBeWalledError: It may run behind the wall for programs that only read."""
        ADVICE.on_command(command)
        self.files.forget()
        place = as_text(absolute(os.fsdecode(cwd or ".")))
        how = {"wall": doors.can_wall(), "library": stack.is_of_library()}
        if self.line.ask(kind="shell", command=as_text(command), cwd=place, **how) == WALLED:
            raise doors.ToBeWalledError

    # network

    def on_socket(self, _connection: Any, family: int, *_: Any) -> None:
        if self.no_network and family in (socket.AF_INET, socket.AF_INET6):
            raise PermissionError(errno.EACCES, self.no_network)

    def on_bind(self, connection: Any, address: Any) -> None:
        if connection.family == socket.AF_UNIX and address and os.fsdecode(address)[:1] != "\0":
            self.make(address, "create")

    def on_connect(self, connection: Any, address: Any, *_: Any) -> None:
        if connection.family == socket.AF_UNIX:
            path = os.fsdecode(address)
            if path and not path.startswith("\0"):
                self.change(path, "write")
        elif connection.family in (socket.AF_INET, socket.AF_INET6):
            self.connect(str(address[0]) or "localhost", int(address[1]))

    def on_send(self, connection: Any, address: Any = None, *_: Any) -> None:
        if address is None:
            return  # connected already
        allowed = self.allowed_peers.setdefault(connection, set())
        if address not in allowed:
            self.on_connect(connection, address)
            allowed.add(address)

    def connect(self, host: str, port: int) -> None:
        """Ask about a connection. Further addresses from the same lookup need no new question."""
        name, verdicts = self.names.found.get(host, (host, {}))
        if port not in verdicts:
            try:
                others = [ip for ip, (_, found) in self.names.found.items() if found is verdicts and ip != host]
                self.line.ask(kind="connect", host=as_text(name), port=port, ip=host if is_ip(host) else "", others=others)
                verdicts[port] = None
            except PermissionError as error:
                verdicts[port] = error.args
        if verdicts[port] is not None:
            raise PermissionError(*verdicts[port])


Hook = Callable[[str, tuple[Any, ...]], None]


def make_hook(watch: Watch, used: UsedFiles, is_service_thread: Callable[[], bool]) -> Hook:
    """Return the function that Python calls for each audit event: it asks, and notes in `used` what is not denied.

    One function does both: for most files, a second hook would cost as much as all of this.
    """
    free, are_free, pending, asked = watch.files.free, watch.files.are_free, used.pending, watch.handlers
    writing = WRITING
    ask, note, now = _make_ask(watch, is_service_thread), used.hook(), time.monotonic

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            # for most files the first lines are all; each name that is looked up counts at each of 20,000
            if flags & writing:
                if path.__class__ is str:
                    if path in free and free[path].until > now():
                        pending[path] = flags  # at most MAX_FREE more than are noted below
                        return
                    if len(pending) < MAX_PENDING and are_free(path):
                        pending[path] = flags
                        return
                ask(event, args)
            note(event, args)
        elif event in asked:
            ask(event, args)
            note(event, args)

    return hook


def _make_ask(watch: Watch, is_service_thread: Callable[[], bool]) -> Hook:
    handlers, asking = watch.handlers, watch.asking

    def ask(event: str, args: tuple[Any, ...]) -> None:
        if getattr(asking, "now", False) or not watch.is_on or is_service_thread():
            return
        asking.now = True
        denied: BaseException | None = None
        try:
            handlers[event](*args)
        except (PermissionError, doors.ToBeWalledError) as error:
            denied = error
        finally:
            asking.now = False
        if denied is not None:
            raise denied.with_traceback(None)

    return ask


WATCHES: list[Watch] = []
"""The watch of this process or of the kernel it branched from; Python cannot remove audit hooks."""


def install(shell: Any, ask: Callable[..., Any], settings: dict[str, Any] | None, used: UsedFiles) -> None:
    """Add the audit hook, which also notes used files; a branch already has it and switches to its own settings.

    Settings: as in `AuditSettings`, the kernel's own folder among the `folders`. None: nothing needs a question.
    """
    if settings is not None:
        keep_notes_of_ipython(shell)  # while nothing is asked: a branch would wait for ever for a host that has ended
        shell.kernel.control_handlers["freeact_rules"] = on_rules
    for watch in WATCHES:
        watch.renew(ask, settings)
    if WATCHES or settings is None:
        return
    watch = Watch(Files(settings["folders"], settings["asked"]), Line(ask), settings["no_network"])
    WATCHES.append(watch)
    ADVICE.text = settings.get("advice", "")

    def is_service_thread() -> bool:
        kernel = shell.kernel  # a branch has another one
        iopub = getattr(kernel, "iopub_thread", None)
        threads = (getattr(kernel, "control_thread", None), getattr(iopub, "thread", None))
        return threading.current_thread() in threads

    shell.events.register("pre_run_cell", lambda _cell: watch.files.forget())
    shell.events.register("post_run_cell", lambda _result: ADVICE.on_end_of_cell())
    report_opens_in_folders(watch.asking)
    borrowed_starts.install()
    used.add_hook(make_hook(watch, used, is_service_thread))
    doors.install(watch.asking)


def on_rules(_stream: Any, _idents: Any, message: dict[str, Any]) -> None:
    """Take the changed rules. Called in the control thread."""
    for watch in WATCHES:
        watch.files.ask_about(message["content"]["asked"])


@contextlib.contextmanager
def nothing_asked() -> Iterator[None]:
    """Ask nothing about the kernel's own work in this thread. In a branch this ends with `install`."""
    for watch in WATCHES:
        watch.asking.now = True
    try:
        yield
    finally:
        for watch in WATCHES:
            watch.asking.now = False


SHELLS = {folder + name for folder in ("", "/bin/", "/usr/bin/") for name in ("sh", "bash", "dash")}
TELLING = re.compile(
    r"(LD_|DYLD_|PYTHON|GIT_|BASH|SHELL|PERL|RUBY|NODE_|SSL_|SSH_|XDG_|LESS|RIPGREP_).*|ENV|IFS|HOME|VISUAL|BROWSER|GLOBIGNORE"
    r"|.*(PATH|PAGER|EDITOR|PROXY|_proxy|OPTIONS|OPTS?|MAKEFLAGS|_RSH)"
)
"""Variables that change what a program loads, runs or talks to."""

PROTECTING = re.compile("GIT_(CONFIG_COUNT|NO_LAZY_FETCH|PAGER)")
"""Variables that keep git from starting programs that a folder's settings name; a program without them is shown as one."""


def shown_command(words: list[str], script: str | None, env: Any, known: Mapping[str, str]) -> str:
    """Return the command that starts a program; a shell's own command as it is.

    Args:
        words: The program and its arguments.
        script: Its input, as far as that is known.
        env: Its environment.
        known: The environment that the kernel was started with.
    """
    assigned = _assigned(env, known)
    is_shell = words[0] in SHELLS and not assigned
    if is_shell and len(words) == 3 and words[1] == "-c":
        return words[2]
    if is_shell and len(words) == 1 and script is not None:
        return script
    command = " ".join([*assigned, shlex.join(words)])
    return command + (f" <<'END_OF_SCRIPT'\n{script}\nEND_OF_SCRIPT" if script is not None else "")


def _assigned(env: Any, known: Mapping[str, str]) -> list[str]:
    """Return the variables that matter: new ones since the kernel's start, and missing ones that protect git."""
    new = {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
    changed = [name for name, value in new.items() if TELLING.fullmatch(name) and known.get(name) != value]
    gone = sorted(name for name in known if PROTECTING.fullmatch(name) and name not in new)
    without = ["env", *(f"-u {name}" for name in gone)] if gone else []
    return [*(f"{name}={shlex.quote(new[name])}" for name in changed), *without]


MAX_NAMES = 1000


class Names:
    """Hosts by address."""

    def __init__(self) -> None:
        self.found: OrderedDict[str, tuple[str, dict[int, Any]]] = OrderedDict()
        """The host of each address, and for each of its ports None or the reason of a denial."""
        find = socket.getaddrinfo

        @functools.wraps(find)
        def getaddrinfo(*args: Any, **kwargs: Any) -> Any:
            found = find(*args, **kwargs)
            self.remember(args[0] if args else kwargs.get("host"), found)
            return found

        socket.getaddrinfo = getaddrinfo

    def remember(self, host: Any, found: list[Any]) -> None:
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
        verdicts: dict[int, Any] = {}
        for *_, address in found:
            if name and name != address[0]:
                self.found[str(address[0])] = (name, verdicts)
                self.found.move_to_end(str(address[0]))
        while len(self.found) > MAX_NAMES:
            self.found.popitem(last=False)


def is_ip(host: str) -> bool:
    """Whether a host is an address, not a name."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
