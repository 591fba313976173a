"""The wall around one kernel: the reach of its process, and of all that it starts. Linux; standard library only.

    python -I -S wall.py POLICY_JSON PROGRAM [ARGUMENT ...]     build the wall, then become the program
    python -I -S wall.py --probe                                print what this machine can do, as one JSON object

`build` runs in the process that becomes the kernel, while it has one thread and before any code of a model: called by the
fork server in the forked child, or by this script between process guard and kernel. The policy names each piece, and
`build` raises if one is not available: the caller must not start the kernel then. In the order of building:

- *view*: a mount namespace with nothing in it but the listed paths, so that sockets of other programs (a message bus, a
  terminal multiplexer, sibling kernels) have no path, and read-only paths are mounted so, down to modes and times of files,
  the host's own settings in the workspace included. An ordinary user gets a user namespace with it, in which processes are
  counted anew;
- *memory*, where there is no view: a `/dev/shm` and System V memory of the kernel's own, which end with it;
- *limits*: memory, processes, file size, processor time, no core files;
- no capabilities but the ones that ordinary work with files needs, and no new privileges (`sudo` does nothing);
- *landlock*: files by path, and a domain of its own: no ptrace of anything outside of it (which covers `/proc/PID/mem` and
  `/proc/PID/environ`), no signal to it, no abstract socket of it;
- *seccomp*: system calls that neither of these covers (`seccomp.py`).

Policy: `walled` (bool: files are restricted to `readable` and `writable`; else not at all), `readable`, `writable`, `kept`
(in what is writable, and read-only), `pinned` (folders above these: not to be moved; lists of paths), `above` (the folder
around the workspace, if a branch may have a copy laid over that; else empty), `folder` (the kernel's own), `cwd`, `network`
(bool), `limits` (resource name to number), `pieces` (list of names), `connect` (bool: Unix sockets outside can be connected
to).
"""

import ctypes
import errno
import json
import os
import resource
import signal
import stat
import struct
import sys
import types
from collections.abc import Callable
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 24, 47, 4
SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD, SYS_LANDLOCK_RESTRICT = 444, 445, 446

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_BLOCK, REFER, TRUNCATE, IOCTL_DEV, RESOLVE_UNIX = 1 << 11, 1 << 13, 1 << 14, 1 << 15, 1 << 16
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
READ = EXECUTE | READ_FILE | READ_DIR
FILE_RIGHTS_BY_ABI = {1: (1 << 13) - 1, 2: REFER, 3: TRUNCATE, 5: IOCTL_DEV, 9: RESOLVE_UNIX}
"""The rights that each version of Landlock added."""
TCP_BIND_AND_CONNECT, ABSTRACT_SOCKETS_AND_SIGNALS = 3, 3

FILE_CAPABILITIES = {0, 1, 3, 4, 6, 7}
"""Capabilities that root keeps: chown, override of file modes, ownership checks, set-id bits, set group, set user."""


class WallError(Exception):
    """A piece of the wall could not be built; the message names it."""


def prepare(policy: dict[str, Any]) -> None:
    """Makes the parts of a wall that a process can make before it forks: the walls of its forks take less time."""
    if "seccomp" in policy["pieces"]:
        load("seccomp").code(**filtered(policy))


def build(policy: dict[str, Any]) -> None:
    """Puts the wall around this process, for good."""
    seccomp, view = load("seccomp"), load("view")  # afterwards their files cannot be read
    counted_anew = False
    if "view" in policy["pieces"]:
        counted_anew = view.enter_view(policy)
    elif "memory" in policy["pieces"]:
        counted_anew = view.take_own_memory(policy["hidden"])
    if "limits" in policy["pieces"]:
        set_limits(policy["limits"], counted_anew)
    give_up_privileges()
    if "landlock" in policy["pieces"]:
        restrict_files(policy)
    if "seccomp" in policy["pieces"]:
        seccomp.install(**filtered(policy))


def filtered(policy: dict[str, Any]) -> dict[str, bool]:
    """Returns the arguments of `seccomp.install`."""
    return {**{name: policy[name] for name in ("walled", "network", "connect")}, "join": bool(policy["above"])}


def failure(piece: str) -> WallError:
    """Returns the error of the last system call."""
    number = ctypes.get_errno()
    return WallError(f"{piece} could not be set up: {os.strerror(number)}")


def load(name: str) -> Any:
    """Loads a module beside this file; none is part of a package where they run."""
    if f"freeact_{name}" not in sys.modules:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
        module = types.ModuleType(f"freeact_{name}")
        with open(path, "rb") as file:
            exec(compile(file.read(), path, "exec"), module.__dict__)  # our own source
        sys.modules[f"freeact_{name}"] = module
    return sys.modules[f"freeact_{name}"]


def set_limits(limits: dict[str, int], counted_anew: bool) -> None:
    """Lowers the limits, so that they cannot be raised again."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, wanted in limits.items():
        number = getattr(resource, f"RLIMIT_{name}")
        bound = wanted
        if name == "NPROC" and not counted_anew and os.getuid() != 0:  # root is exempt, and counting takes its time
            bound = wanted + tasks_of_this_user()  # the limit is on all that a user runs, not on what a process has started
        hard = resource.getrlimit(number)[1]
        value = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(number, (value, value))


def tasks_of_this_user() -> int:
    """Returns the number of threads that run under our user id."""
    count, me = 0, os.getuid()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == me:
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue
    return count


def give_up_privileges() -> None:
    """Drops capabilities, and gains none any more by `sudo` and set-uid programs."""
    drop_capabilities()
    if LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise failure("no-new-privileges")


def drop_capabilities(of_root: set[int] | None = None) -> None:
    """Drops the capabilities that root does not need for files; an ordinary user in its own namespace keeps none.

    Args:
        of_root: Capabilities that root keeps. None: `FILE_CAPABILITIES`.
    """
    keep: set[int] = (FILE_CAPABILITIES if of_root is None else of_root) if os.getuid() == 0 else set()
    LIBC.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for number in range(64):
        # refused without the capability to do so, and then none is there
        if number not in keep and LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) and ctypes.get_errno() == errno.EINVAL:
            break  # this system knows no more
    header = struct.pack("=Ii", 0x20080522, 0)
    current = ctypes.create_string_buffer(24)
    if LIBC.capget(header, current):
        raise failure("capabilities")
    permitted = struct.unpack("=6I", current.raw)[1] & sum(1 << number for number in keep)
    if LIBC.capset(header, struct.pack("=6I", permitted, permitted, 0, 0, 0, 0)):
        raise failure("capabilities")


def landlock_abi() -> int:
    """Returns the version of Landlock that this kernel has; 0: none."""
    version: int = LIBC.syscall(SYS_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    return max(0, version)


def restrict_files(policy: dict[str, Any]) -> None:
    """Enters a Landlock domain."""
    abi = landlock_abi()
    if abi == 0:
        raise WallError("landlock could not be set up: this system has none")
    every = sum(rights for version, rights in FILE_RIGHTS_BY_ABI.items() if version <= abi)
    if policy["walled"]:
        files, network = every, TCP_BIND_AND_CONNECT if abi >= 4 and not policy["network"] else 0
    else:
        # a domain of an older Landlock needs some right to files: one that nobody misses
        files, network = (MAKE_BLOCK | REFER if abi < 6 else 0), 0
    scoped = ABSTRACT_SOCKETS_AND_SIGNALS if abi >= 6 else 0
    ruleset = new_ruleset(abi, files, network, scoped)
    if policy["walled"]:
        allow_paths(ruleset, policy, every & ~RESOLVE_UNIX)
    elif files:
        allow(ruleset, "/", REFER)
    restrict(ruleset)
    os.close(ruleset)


def new_ruleset(abi: int, files: int, network: int, scoped: int) -> int:
    """Returns the descriptor of rules that allow none of these rights yet."""
    attributes = struct.pack("=QQQ", files, network, scoped)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset: int = LIBC.syscall(SYS_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        raise failure("landlock")
    return ruleset


def restrict(ruleset: int) -> None:
    """Restricts the calling thread, and all that it starts, to the rules."""
    if LIBC.syscall(SYS_LANDLOCK_RESTRICT, ruleset, 0):
        raise failure("landlock")


def allow_paths(ruleset: int, policy: dict[str, Any], every: int) -> None:
    """Adds the rules of a policy whose files are walled."""
    for path in (*policy["readable"], "/proc", "/sys"):
        allow(ruleset, path, READ & every)
    for name in (*load("view").DEVICES, "ptmx", "pts"):
        allow(ruleset, f"/dev/{name}", (READ | WRITE_FILE | TRUNCATE | IOCTL_DEV) & ~EXECUTE & every)
    if "view" in policy["pieces"]:
        allow(ruleset, "/dev/shm", every & ~EXECUTE)  # it is this kernel's own
        allow(ruleset, "/", READ_DIR)  # there is nothing in it but what is listed
        if policy["above"]:  # for files of a branch's overlay the rule of this folder counts, not that of the workspace
            allow(ruleset, policy["above"], every)  # its other entries are mounted, and read-only unless they are writable
    for path in (*policy["writable"], policy["folder"]):
        allow(ruleset, path, every)


def allow(ruleset: int, path: str, rights: int) -> None:
    """Adds a rule for a path and all below it; a missing path is skipped."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR):
            return
        raise
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= OF_FILES
        if LIBC.syscall(SYS_LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", rights, descriptor), 0):
            raise failure(f"landlock (the rule for {path})")
    finally:
        os.close(descriptor)


def probe() -> dict[str, Any]:
    """Tests the machine's means, in processes of their own."""
    policy = {"walled": True, "readable": ["/usr"], "writable": [], "folder": "/usr", "cwd": "/usr"}
    policy |= {"pinned": [], "kept": ["/usr"], "hidden": [], "above": "", "pieces": []}
    view_error = error_of(lambda: load("view").enter_view(policy), False)
    return {
        "landlock": landlock_abi() if not error_of(lambda: restrict_files({**policy, "network": False}), True) else 0,
        "seccomp": not error_of(lambda: load("seccomp").install(walled=True, network=False, connect=False, join=True), True),
        "view": not view_error,
        "view_error": view_error,
        "limits": not error_of(give_up_privileges, False),
        "root": os.getuid() == 0,
    }


def error_of(piece: Callable[[], Any], no_new_privileges: bool) -> int:
    """Returns the number of the error with which a forked process fails to set the piece up. 0: it works; 255: no number."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            if no_new_privileges:
                LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            piece()
            code = 0
        except OSError as error:
            code = error.errno or code
        except (WallError, KeyError, AttributeError):
            pass  # that it does not work is what was asked
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 255


def main(arguments: list[str]) -> None:
    """Runs this file as a script; see its top."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored by whoever has started this, it hides how a process has ended
    if arguments == ["--probe"]:
        print(json.dumps(probe()))
        return
    try:
        build(json.loads(arguments[0]))
    except (WallError, OSError) as error:
        sys.exit(f"the sandbox could not be set up: {error}")
    os.execvp(arguments[1], arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
