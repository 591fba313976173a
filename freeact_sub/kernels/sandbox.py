"""What a kernel can reach: `SandboxPolicy` says it, `policy_for` makes it of a mode, `support` tells what a machine can do.

The wall itself is `guest/wall.py`; this is the host's side, which decides. A policy's wall is built of pieces; which of them
a machine has is found out by trying them once, in a process of their own. With `required` a kernel is not started where a
piece is missing; with `auto` the missing pieces are left out and `unenforced` says in words what that means. A piece that
the machine has and that cannot be built for a kernel all the same ends that kernel's start, whatever the setting.
"""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Final

from freeact_sub.config import PROTECTED, KernelConfig, user_folder
from freeact_sub.errors import KernelStartError
from freeact_sub.modes import Mode

ABI_TRUNCATE: Final = 3
ABI_SIGNALS: Final = 6
ABI_UNIX_SOCKETS: Final = 9
ADDRESS_SPACE_FACTOR: Final = 4
"""Address space that a process may reserve for each byte of memory it may use: many libraries reserve and never use."""
PROBE_SECONDS: Final = 20
USUAL_PROCESSES: Final = 1024
"""The bound on a kernel's processes where the settings name none."""

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
"""Below `/etc`: what ordinary programs read. No keys, no password hashes."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on the processes of a kernel; None: none."""

    memory_bytes: int | None = None
    """Of each process."""
    processes: int | None = None
    """Of all threads and processes of the kernel."""
    processes_wanted: bool = True
    """False: nobody has asked for this bound, so it is not missed where it cannot be held, unless all is required."""
    file_bytes: int | None = None
    """Of each file that is written."""
    cpu_seconds: int | None = None
    """Of each process."""


@dataclass(frozen=True, kw_only=True)
class SandboxPolicy:
    """What the wall around a kernel leaves open."""

    mode: Mode
    walled: bool
    """Files are restricted to what is listed here; else they are not, and neither is the network."""
    readable: tuple[Path, ...] = ()
    """Besides what is writable."""
    writable: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()
    """Within what is writable, and not to be written."""
    network: bool = True
    limits: Limits = field(default_factory=Limits)
    required: bool = False
    """A kernel is not to be started where a piece of its wall is missing."""


@dataclass(frozen=True, kw_only=True)
class Support:
    """What a machine can do."""

    landlock: int = 0
    """Version of Landlock; 0: none."""
    seccomp: bool = False
    view: bool = False
    """Mount namespaces."""
    root: bool = False
    """Kernels run as root, to whom limits on processes do not apply."""
    reason: str = ""
    """Why there is nothing, where there is nothing."""


def policy_for(mode: Mode, config: KernelConfig, workspace: Path) -> SandboxPolicy | None:
    """The wall of a mode; None where the settings turn the sandbox off.

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
        return SandboxPolicy(mode=mode, walled=False, limits=limits, required=required)
    system = (*map(Path, SYSTEM_FOLDERS), *(Path("/etc") / name for name in SYSTEM_SETTINGS))
    readable = (*system, *python_folders(config.python), *config.readable)
    writable: tuple[Path, ...] = (workspace, *config.writable)
    if mode == "plan":
        readable, writable = (*readable, *writable), ()
    own = [folder for folder in (user_folder().resolve(),) if any(folder.is_relative_to(root) for root in writable)]
    return SandboxPolicy(
        mode=mode,
        walled=True,
        readable=readable,
        writable=writable,
        protected=(*(workspace / name for name in PROTECTED), *own) if writable else (),
        network=config.network and mode == "auto",
        limits=limits,
        required=required,
    )


@functools.cache
def support() -> Support:
    """What this machine can do, tried once; takes some 50 ms then."""
    if sys.platform != "linux":
        return Support(reason=f"there is no sandbox for {sys.platform} yet")
    command = [sys.executable, "-I", "-S", str(wall_script()), "--probe"]
    try:
        tried = subprocess.run(command, capture_output=True, timeout=PROBE_SECONDS, check=True, env={})
        return Support(**json.loads(tried.stdout))
    except (subprocess.SubprocessError, ValueError) as error:
        return Support(reason=f"what this machine can do could not be found out: {error}", root=os.getuid() == 0)


def unenforced(policy: SandboxPolicy, machine: Support) -> tuple[str, ...]:
    """What of a policy this machine cannot enforce, in words; empty: all of it holds."""
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
        missing.append("connections to Unix sockets of other programs (mount namespaces cannot be used)")
    if policy.walled and not machine.view:
        missing.append("modes and times of files that can be read (mount namespaces cannot be used)")
    if policy.protected and not machine.view:
        missing.append("freeact's settings and git's hooks in the workspace (mount namespaces cannot be used)")
    missed = policy.limits.processes is not None and (policy.limits.processes_wanted or policy.required)
    if missed and (machine.root or not sys.platform.startswith("linux")):
        missing.append("the number of processes (root is exempt; kernel.max_processes = 0 asks for no limit)")
    return tuple(missing)


def connections_are_checked(policy: SandboxPolicy, machine: Support) -> bool:
    """Whether a Unix socket of another program can be kept from a kernel, in whatever way."""
    return machine.view or machine.landlock >= ABI_UNIX_SOCKETS or (machine.seccomp and not policy.network)


def check(policy: SandboxPolicy, machine: Support) -> tuple[str, ...]:
    """What is not enforced, for a notice.

    Raises:
        KernelStartError: All of it is required.
    """
    missing = unenforced(policy, machine)
    if missing and policy.required:
        raise KernelStartError(
            f"this machine cannot enforce the sandbox of mode `{policy.mode}`: {'; '.join(missing)}"
            f"{f' ({machine.reason})' if machine.reason else ''}: set kernel.sandbox = 'auto' to run without that"
        )
    return missing


def wire(policy: SandboxPolicy, machine: Support, folder: Path, cwd: Path) -> dict[str, Any]:
    """The policy as the wall reads it, for a kernel with this private folder and working directory."""
    pieces = ["limits"]
    if machine.landlock:
        pieces.append("landlock")
    if machine.seccomp:
        pieces.append("seccomp")
    if machine.view and policy.walled:
        pieces.append("view")
    limits = policy.limits
    numbers = {
        "DATA": limits.memory_bytes,
        "AS": limits.memory_bytes and limits.memory_bytes * ADDRESS_SPACE_FACTOR,
        "NPROC": limits.processes,
        "FSIZE": limits.file_bytes,
        "CPU": limits.cpu_seconds,
    }
    may_connect = not policy.walled or policy.network or machine.view or machine.landlock >= ABI_UNIX_SOCKETS
    return {
        "walled": policy.walled,
        "readable": [str(path) for path in policy.readable],
        "writable": [str(path) for path in policy.writable],
        "protected": [str(path) for path in policy.protected],
        "folder": str(folder),
        "cwd": str(cwd),
        "network": policy.network,
        "connect": may_connect,
        "limits": {name: number for name, number in numbers.items() if number},
        "pieces": pieces,
    }


def wire_of_branch(origin: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The wall of a kernel's branch, within the kernel's own: the same, but for the private folder.

    Args:
        origin: The kernel's wall (`wire`). What it has in its temporary folder the branch can read.
        folder: The private folder of the branch, in that of the kernel.
    """
    readable = [*origin["readable"], str(Path(origin["folder"], "tmp"))]
    return {**origin, "readable": readable, "folder": str(folder)}


def private_environment(policy: SandboxPolicy | None, private: Path) -> Mapping[str, str]:
    """Variables that turn programs to the kernel's own folder, where those of the user cannot be written."""
    variables = {"TMPDIR": str(private)}
    if policy is not None and policy.walled:
        names = {
            "IPYTHONDIR": "ipython",
            "MPLCONFIGDIR": "matplotlib",
            "XDG_CACHE_HOME": "cache",
            "XDG_CONFIG_HOME": "config",
        }
        variables |= {name: str(private / place) for name, place in names.items()}
    return variables


def wall_script() -> Path:
    """The file of the wall."""
    return Path(str(resources.files("freeact_sub.kernels.guest").joinpath("wall.py")))


def total_memory() -> int:
    """The machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@functools.cache
def python_folders(python: str) -> tuple[Path, ...]:
    """What a Python needs to read: where it lives, its libraries, and what it finds besides.

    Raises:
        KernelStartError: It cannot be run.
    """
    if python == sys.executable:
        found = [python, sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path]
    else:
        code = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path[1:]]))"
        try:
            ran = subprocess.run([python, "-c", code], capture_output=True, timeout=PROBE_SECONDS, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            raise KernelStartError(f"cannot run the kernels' Python {python}: {error}") from error
        found = [python, *json.loads(ran.stdout)]
    folders = {Path(path).absolute() for path in found if path}
    too_much = {Path("/"), Path.home(), Path("/tmp")}  # noqa: S108  # it is left out
    return tuple(sorted(folder for folder in folders - too_much if folder.exists()))
