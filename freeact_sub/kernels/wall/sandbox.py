"""The reach of a kernel: `SandboxPolicy` describes it, `policy_for` derives it from a mode, `support` tests the machine.

The wall itself is `wall.py`; this is the host's side, which decides. A policy's wall is built of pieces; which of them a
machine has is found out by trying them once, in a process of their own. With `required` a kernel is not started where a
piece is missing; with `auto` the missing pieces are left out and `unenforced` names the gaps. A piece that the machine has
and that cannot be built for a kernel all the same ends that kernel's start, whatever the setting. `Gaps` reports the gaps of
a kernel's wall once.
"""

import asyncio
import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Final

from freeact_sub.config.schema import PROTECTED, SETTINGS_FOLDER, KernelConfig, McpServerConfig, own_folders, token_folder
from freeact_sub.errors import KernelStartError
from freeact_sub.kernels.kernel import KernelSpec
from freeact_sub.kernels.wall.programs import LaterProgram, find_later_code
from freeact_sub.kernels.wall.repositories import MAX_FOLDERS, Repositories, find_repositories, outermost
from freeact_sub.modes import Mode
from freeact_sub.pythons import installed
from freeact_sub.pythons.about import installed_in
from freeact_sub.system.safe_files import make_folder

ABI_TRUNCATE: Final = 3
ABI_SIGNALS: Final = 6
ABI_UNIX_SOCKETS: Final = 9
ADDRESS_SPACE_FACTOR: Final = 4
"""Address space that a process may reserve for each byte of memory it may use: many libraries reserve and never use."""
PROBE_SECONDS: Final = 20
NOTHING_KEPT: Final = Repositories(kept=(), complete=True)
NOT_HARDENED: Final = ("/dev", "/proc", "/sys")
"""Folders of the view that follow other rules than listed ones."""
USUAL_PROCESSES: Final = 1024
"""The bound on a kernel's processes where the settings name none."""

START: Final = Path(__file__).parents[1] / "subprocess_start.py"
"""The program of a kernel that is a subprocess."""
LENDER: Final = START.with_name("lender.py")
OWN_SOURCE: Final = Path(str(resources.files("freeact_sub"))).parent
"""The folder of this package; kernels need nothing else of it."""
SYSTEM_FOLDERS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store")
SYSTEM_SETTINGS: Final = (
    *(
        "alternatives",
        "bash.bashrc",
        "ca-certificates",
        "ca-certificates.conf",
        "crypto-policies",
        "fonts",
        "group",
        "host.conf",
    ),
    *(
        "hosts",
        "inputrc",
        "java",
        "ld.so.cache",
        "ld.so.conf",
        "ld.so.conf.d",
        "locale.conf",
        "localtime",
        "magic",
        "mime.types",
    ),
    *("nsswitch.conf", "os-release", "passwd", "pki/tls/certs", "pki/ca-trust", "profile", "protocols", "resolv.conf"),
    *("services", "shells", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone", "gai.conf", "hostname"),
)
"""Files and folders below `/etc` that ordinary programs read: no keys, no password hashes."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on the processes of a kernel."""

    memory_bytes: int | None = None
    """Bytes of each process."""
    processes: int | None = None
    """Threads and processes of the kernel, together."""
    processes_wanted: bool = True
    """Whether the bound is wanted; the absence of a default one is no gap, unless all bounds are required."""
    file_bytes: int | None = None
    """Bytes of each file that is written."""
    cpu_seconds: int | None = None
    """Seconds of each process."""


@dataclass(frozen=True, kw_only=True)
class SandboxPolicy:
    """The openings of the wall around a kernel."""

    mode: Mode
    walled: bool
    """Whether files are restricted to those listed here; if not, neither is the network."""
    readable: tuple[Path, ...] = ()
    """Readable paths, besides the writable ones."""
    writable: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()
    """Writable paths that must not be written, besides those that git obeys (`find_kept`)."""
    hidden: tuple[Path, ...] = ()
    """Folders that cannot be seen, wherever they are."""
    workspace: Path | None = None
    """The workspace, among the writable paths."""
    python: str = sys.executable
    programs: tuple[LaterProgram, ...] = ()
    """Programs that the host starts outside of the wall: their code must not be written."""
    not_readable: tuple[Path, ...] = ()
    """Folders from which installed packages are imported (editable installs) and which are not readable, for a notice."""
    network: bool = True
    limits: Limits = field(default_factory=Limits)
    required: bool = False
    """Whether a kernel is not to be started where a piece of its wall is missing."""


@dataclass(frozen=True, kw_only=True)
class Support:
    """The means that a machine has."""

    landlock: int = 0
    """Version of Landlock; 0: none."""
    seccomp: bool = False
    view: bool = False
    """Whether there are mount namespaces."""
    view_error: int = 0
    """The number of the error with which they failed; 255: another reason."""
    limits: bool = True
    """Whether a process can give up its privileges; its resources are limited only then."""
    root: bool = False
    """Whether kernels run as root, to whom limits on processes do not apply."""
    reason: str = ""
    """The reason why there are no means."""


def policy_for(mode: Mode, config: KernelConfig, workspace: Path) -> SandboxPolicy | None:
    """Returns the wall of a mode; None where the settings turn the sandbox off.

    `plan` reads the workspace and has no network, `auto` writes the workspace and has the network if configured; `ask` and
    `full` leave files and network alone and guard the host, other kernels and limits.
    """
    if config.sandbox == "off":
        return None
    limits = Limits(
        memory_bytes=config.memory_bytes or total_memory(),
        processes=USUAL_PROCESSES if config.max_processes is None else config.max_processes or None,
        processes_wanted=config.max_processes is not None,
        file_bytes=config.max_file_bytes or None,
        cpu_seconds=config.cpu_seconds or None,
    )
    required = config.sandbox == "required"
    if mode in ("ask", "full"):
        return SandboxPolicy(mode=mode, walled=False, hidden=(token_folder().resolve(),), limits=limits, required=required)
    system = (*map(Path, SYSTEM_FOLDERS), *(Path("/etc") / name for name in SYSTEM_SETTINGS))
    python = installed_in(config.python)
    readable = (*system, *map(Path, needed_by(config.python)), *config.readable)
    writable: tuple[Path, ...] = (workspace, *config.writable)
    elsewhere = _not_below(tuple(python.editable), (*readable, *writable, OWN_SOURCE))
    if mode == "plan":
        readable, writable = (*readable, *writable), ()
    own = [folder for folder in own_folders() if is_below(folder, writable)]
    tokens = token_folder().resolve()
    return SandboxPolicy(
        mode=mode,
        walled=True,
        readable=readable,
        writable=writable,
        not_readable=elsewhere,
        protected=(*(workspace / name for name in PROTECTED), *own) if writable else (),
        hidden=(tokens,) if is_below(tokens, (*readable, *writable)) else (),
        workspace=workspace,
        python=config.python,
        programs=(LaterProgram(name="the start of a kernel", command=config.python, env=tuple(config.env.items())),),
        network=config.network and mode == "auto",
        limits=limits,
        required=required,
    )


def needed_by(python: str) -> list[str]:
    """Returns the files and folders that a kernel of a Python reads. Raises: see `installed_in`."""
    return [str(START), str(LENDER), *installed_in(python).own]


def with_programs(policy: SandboxPolicy | None, servers: Mapping[str, McpServerConfig]) -> SandboxPolicy | None:
    """Returns the policy of a kernel beside which the host starts these MCP servers: it must not write their programs."""
    if policy is None or not policy.writable:
        return policy
    programs = tuple(
        LaterProgram(
            name=f"MCP server `{name}`",
            command=server.command,
            args=server.args,
            cwd=server.cwd,
            env=tuple(server.env.items()),
        )
        for name, server in servers.items()
        if server.command is not None and not server.disabled
    )
    return replace(policy, programs=(*policy.programs, *programs))


def with_read_only(policy: SandboxPolicy | None, folders: Iterable[Path]) -> SandboxPolicy | None:
    """Returns the policy of a kernel that reads these folders, and must not write them."""
    if policy is None or not policy.walled:
        return policy
    paths = [place for path in folders for place in {path, Path(os.path.realpath(path))}]
    outside = tuple(path for path in paths if not is_below(path, (*policy.readable, *policy.writable)))
    inside = tuple(path for path in paths if is_below(path, policy.writable))
    return replace(policy, readable=(*policy.readable, *outside), protected=(*policy.protected, *inside))


def look(policy: SandboxPolicy) -> tuple[Support, Repositories]:
    """Returns the machine's means and the paths that a kernel with this policy must not change; reads folders."""
    return support(), find_kept(policy)


@functools.cache
def support() -> Support:
    """Returns the machine's means, tested once, which takes some 50 ms."""
    if sys.platform != "linux":
        # the numbers of system calls mean others there
        return Support(limits=False, reason=f"there is no sandbox for {sys.platform} yet", root=os.getuid() == 0)
    command = [sys.executable, "-I", "-S", str(wall_script()), "--probe"]
    try:
        tried = subprocess.run(command, capture_output=True, timeout=PROBE_SECONDS, check=True, env={})
        return Support(**json.loads(tried.stdout))
    except (subprocess.SubprocessError, ValueError) as error:
        return Support(reason=f"what this machine can do could not be found out: {error}", root=os.getuid() == 0)


def has_wall(config: KernelConfig) -> bool:
    """Returns whether kernels of mode `auto` are kept from files and the network. Blocks, the first time."""
    return config.sandbox != "off" and support().landlock > 0 and support().seccomp


def unenforced(policy: SandboxPolicy, machine: Support) -> tuple[str, ...]:
    """Returns the parts of a policy that this machine cannot enforce, in words."""
    missing = []
    if machine.landlock == 0:
        what = "files outside of the workspace, " if policy.walled else ""
        missing.append(f"{what}memory, environment and signals of other processes (this system has no Landlock)")
    elif machine.landlock < ABI_SIGNALS:
        missing.append(f"signals to other processes (Landlock {machine.landlock}; version {ABI_SIGNALS} is needed)")
    if policy.walled and 0 < machine.landlock < ABI_TRUNCATE:
        missing.append(f"truncation of files outside of the workspace (Landlock {machine.landlock})")
    if not machine.seccomp:
        what = "the network and " if policy.walled and not policy.network else ""
        missing.append(f"{what}dangerous system calls (seccomp cannot be used)")
    if policy.walled and not connections_are_checked(policy, machine):
        where = "in the workspace and in what is readable " if machine.view else ""
        missing.append(f"connections to Unix sockets of other programs {where}(Landlock {ABI_UNIX_SOCKETS} is needed)")
    if policy.walled and not machine.view:
        missing.append("modes and times of files that can be read (mount namespaces cannot be used)")
    if policy.protected and not machine.view:
        what = "freeact's settings, git's repositories, Python environments and programs that are run later"
        missing.append(f"{what}, in the workspace (mount namespaces cannot be used)")
    if policy.walled and policy.hidden and not machine.view:
        missing.append("your sign-ins to MCP servers (mount namespaces cannot be used)")
    missing += _unlimited(policy, machine)
    return tuple(missing)


def _unlimited(policy: SandboxPolicy, machine: Support) -> list[str]:
    if not machine.limits:
        return ["the limits on memory, files and processes, and `sudo` (privileges cannot be given up)"]
    if machine.root and policy.limits.processes is not None and (policy.limits.processes_wanted or policy.required):
        return ["the number of processes (root is exempt; kernel.max_processes = 0 asks for no limit)"]
    return []


def connections_are_checked(policy: SandboxPolicy, machine: Support) -> bool:
    """Returns whether a Unix socket of another program can be kept from a kernel, in any way."""
    return machine.landlock >= ABI_UNIX_SOCKETS or (machine.seccomp and not policy.network)


def check(policy: SandboxPolicy, machine: Support, kept: Repositories = NOTHING_KEPT) -> tuple[str, ...]:
    """Returns a notice about the parts that are not enforced. Args: kept: see `find_kept`.

    Raises:
        KernelStartError: All parts are required.
    """
    missing = (*unenforced(policy, machine), *kept.open)
    if missing and policy.required:
        raise KernelStartError(
            f"this machine cannot enforce the sandbox of mode `{policy.mode}`: {'; '.join(missing)}"
            f"{f' ({machine.reason})' if machine.reason else ''}: set kernel.sandbox = 'auto' to run without it, or run "
            "`freeact-sub doctor`, which says what would help"
        )
    return missing


def find_kept(policy: SandboxPolicy | None) -> Repositories:
    """Returns the paths in writable folders that a kernel with this policy must not change, as they are now."""
    if policy is None or not policy.writable:
        return NOTHING_KEPT
    workspace = policy.writable[0] if policy.workspace is None else policy.workspace
    later = find_later_code(workspace, policy.writable, needed_by(policy.python), policy.programs)
    found = find_repositories(policy.writable, (*policy.protected, *map(Path, later.paths)))
    return replace(found, sources=later.sources, open=(*later.open, *_private_folders_in(policy.writable)))


def _private_folders_in(writable: Iterable[Path]) -> list[str]:
    """Returns the program's private folders that a kernel can write, which come and go while it lives."""
    base = Path(tempfile.gettempdir()).resolve()
    if not is_below(base, [Path(os.path.realpath(path)) for path in writable]):
        return []
    return [f"the program's private folders in {base}, with variables that other kernels read: set TMPDIR to another folder"]


def is_below(path: Path, folders: Iterable[Path]) -> bool:
    """Returns whether the path is one of the folders or in one."""
    return any(path.is_relative_to(folder) for folder in folders)


@functools.lru_cache(maxsize=16)
def _not_below(paths: tuple[str, ...], folders: tuple[Path, ...]) -> tuple[Path, ...]:
    """Returns the paths that are in none of the folders. Cached: it takes milliseconds, and each kernel needs it."""
    return tuple(path for path in map(Path, paths) if not is_below(path, folders))


def pinned(kept: Iterable[str], writable: Iterable[Path]) -> list[str]:
    """Returns the folders around kept paths: were one of them moved, another could be put in its place."""
    roots = outermost(os.path.realpath(path) for path in writable)
    above = {folder for path in kept for folder in map(str, Path(path).parents)}
    return sorted(folder for folder in above if folder not in roots and installed.is_in(folder, roots))


def wire(
    policy: SandboxPolicy, machine: Support, folder: Path, cwd: Path, kept: Repositories = NOTHING_KEPT
) -> dict[str, Any] | None:
    """Returns the policy as the wall reads it, for a kernel with this private folder and working directory.

    None: the machine has no piece of it.
    """
    pieces = ["limits"] if machine.limits else []
    if machine.landlock:
        pieces.append("landlock")
    if machine.seccomp:
        pieces.append("seccomp")
    if machine.view:
        pieces.append("view" if policy.walled else "memory")
    if not pieces:
        return None
    limits = policy.limits
    numbers = {
        "DATA": limits.memory_bytes,
        "AS": limits.memory_bytes and limits.memory_bytes * ADDRESS_SPACE_FACTOR,
        "NPROC": limits.processes,
        "FSIZE": limits.file_bytes,
        "CPU": limits.cpu_seconds,
    }
    # the filter of system calls sees no paths, and so cannot tell a kernel's own sockets from those of others
    may_connect = not policy.walled or policy.network or machine.landlock >= ABI_UNIX_SOCKETS
    return {
        "walled": policy.walled,
        "readable": [str(path) for path in policy.readable],
        "writable": [str(path) for path in policy.writable],
        "kept": list(kept.kept),
        "pinned": pinned(kept.kept, policy.writable),
        "hidden": [str(path) for path in policy.hidden],
        "above": _above(cwd, folder) if machine.view and policy.walled and cwd in policy.writable else "",
        "folder": str(folder),
        "cwd": str(cwd),
        "network": policy.network,
        "connect": may_connect,
        "limits": {name: number for name, number in numbers.items() if number},
        "pieces": pieces,
    }


def _above(workspace: Path, folder: Path) -> str:
    """Returns the folder around the workspace. Empty: it holds more that a branch may not write, or is no part of a view."""
    above = Path(os.path.realpath(workspace)).parent
    others = (Path(os.path.realpath(folder)), *map(Path, NOT_HARDENED))
    return "" if is_below(above, others) or any(is_below(path, (above,)) for path in others) else str(above)


def may_cover(wall: Mapping[str, Any] | None) -> bool:
    """Returns whether a branch of a kernel with this wall may see a copy of the workspace at the workspace's path."""
    return wall is not None and (not wall["walled"] or wall["above"] != "")


def wire_of_branch(origin: Mapping[str, Any], folder: Path, *, without: str = "") -> dict[str, Any]:
    """Returns the wall of a kernel's branch, within the kernel's own: the same, except for the private folder.

    Args:
        origin: The kernel's wall (`wire`). The branch can read its temporary folder.
        folder: The private folder of the branch, inside the kernel's.
        without: The workspace, where the branch has a copy at another path.
    """
    readable = [*(path for path in origin["readable"] if path != without), str(Path(origin["folder"], "tmp"))]
    writable = [path for path in origin["writable"] if path != without]
    above = "" if without else origin["above"]
    return {**origin, "readable": readable, "writable": writable, "above": above, "folder": str(folder)}


def wall_script() -> Path:
    """Returns the file of the wall."""
    return Path(str(resources.files(__package__).joinpath("wall.py")))


def total_memory() -> int:
    """Returns the machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class Gaps:
    """The gaps of all kernels of one provider."""

    def __init__(self, on_notice: Callable[[str], None]) -> None:
        self._on_notice = on_notice
        self._noticed: set[str] = set()

    async def check(self, spec: KernelSpec) -> Repositories:
        """Finds the gaps of a kernel's wall, before the kernel starts, and gives notice of each once.

        Returns:
            The paths in writable folders that the kernel must not change.

        Raises:
            KernelStartError: The sandbox is required and cannot be had whole.
        """
        policy = spec.sandbox
        if policy is None:
            return NOTHING_KEPT
        if policy.protected:
            with contextlib.suppress(OSError):  # a folder that the host cannot make, a kernel cannot make either
                make_folder(spec.workspace / SETTINGS_FOLDER)  # the wall protects what is there
            for folder in set(own_folders()).intersection(policy.protected):
                with contextlib.suppress(OSError):
                    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in policy.hidden if policy.walled else ():
            with contextlib.suppress(OSError):  # as above; a sign-in that comes later is hidden, too
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        machine, kept = await asyncio.to_thread(look, policy)
        missing = check(policy, machine, kept)
        if not kept.complete:
            where = f"among the first {MAX_FOLDERS:,} folders, or not in time"
            missing += (f"repositories of git that were not found {where}, and Python environments in the others",)
        if new := self._new(missing):
            remedy = "; `freeact-sub doctor` names the remedy" if machine.view_error else ""
            self._on_notice(f"the sandbox of mode `{policy.mode}` does not cover: {'; '.join(new)}{remedy}")
        if new := self._new(map(str, policy.not_readable)):
            folders = ", ".join(f'"{path}"' for path in new)
            self._on_notice(
                f"code in mode `{policy.mode}` cannot import the packages that are installed in editable form from these "
                f"folders; kernel.readable = [{folders}] lets it"
            )
        for source in self._new(kept.sources):
            self._on_notice(source_notice(source, policy))
        return kept

    def _new(self, texts: Iterable[str]) -> list[str]:
        """Returns the gaps that are not reported yet."""
        new = [text for text in texts if text not in self._noticed]
        self._noticed.update(new)
        return new


def source_notice(source: str, policy: SandboxPolicy) -> str:
    """Returns why code cannot change the source of a package that is installed in editable form, and the way out."""
    steps = {
        "run this program from an environment of its own (`uv tool install`, `pipx`)": sys.executable,
        "set kernel.python to a Python in which it is not installed": policy.python,
    }
    needed = [step for step, python in steps.items() if source in map(os.path.realpath, installed_in(python).editable)]
    needed = needed or ["start the MCP servers in an environment in which it is not installed"]
    return (
        f"code in mode `{policy.mode}` cannot change {source}: it is installed in editable form in a Python that starts "
        f"outside of the sandbox and may import from there. Mode `ask` can change it, and asks you. "
        f"To let mode `{policy.mode}`, {' and '.join(needed)}"
    )
