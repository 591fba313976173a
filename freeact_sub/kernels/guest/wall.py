"""The wall around one kernel: what its process, and all that it starts, can reach. Linux; standard library only.

    python -I -S wall.py POLICY_JSON PROGRAM [ARGUMENT ...]     build the wall, then become the program
    python -I -S wall.py --probe                                print what this machine can do, as one JSON object

`build` runs in the process that becomes the kernel, while it has one thread and before any code of a model: called by the
fork server in the forked child, or by this script between process guard and kernel. Each piece is asked for by name in the
policy, and one that cannot be had raises: the caller must not start the kernel then. In the order of building:

- *view*: a mount namespace with nothing in it but what the policy lists, so that sockets of other programs (a message bus,
  a terminal multiplexer, sibling kernels) have no path, and what may not be written is mounted read-only, down to modes
  and times of files, the host's own settings in the workspace included.
  An ordinary user gets a user namespace with it, in which processes are counted anew;
- *limits*: memory, processes, file size, processor time, no core files;
- no capabilities but those that ordinary work with files needs, and no new privileges (`sudo` does nothing);
- *landlock*: files by path, and a domain of its own: no ptrace of anything outside of it (which covers `/proc/PID/mem` and
  `/proc/PID/environ`), no signal to it, no abstract socket of it;
- *seccomp*: what neither of these covers (`seccomp.py`).

Policy: `walled` (bool: files are restricted to `readable` and `writable`; else not at all), `readable`, `writable`,
`protected` (lists of paths), `folder` (the kernel's own), `cwd`, `network` (bool), `limits` (resource name to number),
`pieces` (list of names), `connect` (bool: Unix sockets outside can be connected to).
"""

import ctypes
import errno
import json
import os
import resource
import stat
import struct
import sys
import types
from collections.abc import Callable
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 24, 47, 4
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 2, 4, 8, 4096, 16384, 1 << 18, 2
SYS_MOUNT_SETATTR, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, 0x8000, 1
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD, SYS_LANDLOCK_RESTRICT = 444, 445, 446

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_BLOCK, REFER, TRUNCATE, IOCTL_DEV, RESOLVE_UNIX = 1 << 11, 1 << 13, 1 << 14, 1 << 15, 1 << 16
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
READ = EXECUTE | READ_FILE | READ_DIR
FILE_RIGHTS_BY_ABI = {1: (1 << 13) - 1, 2: REFER, 3: TRUNCATE, 5: IOCTL_DEV, 9: RESOLVE_UNIX}
"""What each version of Landlock has added."""
TCP_BIND_AND_CONNECT, ABSTRACT_SOCKETS_AND_SIGNALS = 3, 3

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
FILE_CAPABILITIES = {0, 1, 3, 4, 6, 7}
"""What root keeps: chown, override of file modes, ownership checks, set-id bits, change of group and of user."""
SHM_BYTES = 1 << 30


class WallError(Exception):
    """A piece of the wall could not be built; the text names it."""


def build(policy: dict[str, Any]) -> None:
    """Put the wall around this process, for good."""
    seccomp = load_seccomp()  # afterwards its file cannot be read
    counted_anew = "view" in policy["pieces"] and enter_view(policy)
    if "limits" in policy["pieces"]:
        set_limits(policy["limits"], counted_anew)
    drop_capabilities()
    if LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise failure("no-new-privileges")
    if "landlock" in policy["pieces"]:
        restrict_files(policy)
    if "seccomp" in policy["pieces"]:
        seccomp.install(walled=policy["walled"], network=policy["network"], connect=policy["connect"])


def failure(piece: str) -> WallError:
    """The error of the last system call."""
    number = ctypes.get_errno()
    return WallError(f"{piece} could not be set up: {os.strerror(number)}")


def load_seccomp() -> Any:
    """`seccomp.py` beside this file; neither is part of a package where they run."""
    if "freeact_seccomp" not in sys.modules:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "seccomp.py")
        module = types.ModuleType("freeact_seccomp")
        with open(path, "rb") as file:
            exec(compile(file.read(), path, "exec"), module.__dict__)  # our own source
        sys.modules["freeact_seccomp"] = module
    return sys.modules["freeact_seccomp"]


def set_limits(limits: dict[str, int], counted_anew: bool) -> None:
    """Lower the limits, also those that could be raised again."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, wanted in limits.items():
        number = getattr(resource, f"RLIMIT_{name}")
        bound = wanted
        if name == "NPROC" and not counted_anew:
            bound = wanted + tasks_of_this_user()  # the limit is on all that a user runs, not on what a process has started
        hard = resource.getrlimit(number)[1]
        value = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(number, (value, value))


def tasks_of_this_user() -> int:
    """How many threads run under our user id."""
    count, me = 0, os.getuid()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == me:
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue
    return count


def drop_capabilities() -> None:
    """Keep what root needs for files; what an ordinary user has got in a namespace of its own goes whole."""
    keep: set[int] = FILE_CAPABILITIES if os.getuid() == 0 else set()
    LIBC.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for number in range(64):
        if number not in keep:
            LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)  # refused without the capability to do so, and then none is there
    header = struct.pack("=Ii", 0x20080522, 0)
    current = ctypes.create_string_buffer(24)
    if LIBC.capget(header, current):
        raise failure("capabilities")
    permitted = struct.unpack("=6I", current.raw)[1] & sum(1 << number for number in keep)
    if LIBC.capset(header, struct.pack("=6I", permitted, permitted, 0, 0, 0, 0)):
        raise failure("capabilities")


# --- landlock


def landlock_abi() -> int:
    """The version of Landlock that this kernel has; 0: none."""
    version: int = LIBC.syscall(SYS_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    return max(0, version)


def restrict_files(policy: dict[str, Any]) -> None:
    """Enter a Landlock domain."""
    abi = landlock_abi()
    if abi == 0:
        raise WallError("landlock could not be set up: this system has none")
    every = sum(rights for version, rights in FILE_RIGHTS_BY_ABI.items() if version <= abi)
    if policy["walled"]:
        files, network = every, TCP_BIND_AND_CONNECT if abi >= 4 and not policy["network"] else 0
    else:
        # what makes a domain of an older Landlock must be some right to files: one that nobody misses
        files, network = (MAKE_BLOCK | REFER if abi < 6 else 0), 0
    scoped = ABSTRACT_SOCKETS_AND_SIGNALS if abi >= 6 else 0
    attributes = struct.pack("=QQQ", files, network, scoped)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = LIBC.syscall(SYS_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        raise failure("landlock")
    if policy["walled"]:
        allow_paths(ruleset, policy, every & ~RESOLVE_UNIX)
    elif files:
        allow(ruleset, "/", REFER)
    if LIBC.syscall(SYS_LANDLOCK_RESTRICT, ruleset, 0):
        raise failure("landlock")
    os.close(ruleset)


def allow_paths(ruleset: int, policy: dict[str, Any], every: int) -> None:
    """Add the rules of a policy whose files are walled."""
    for path in (*policy["readable"], "/proc", "/sys"):
        allow(ruleset, path, READ & every)
    for name in (*DEVICES, "ptmx", "pts"):
        allow(ruleset, f"/dev/{name}", (READ | WRITE_FILE | TRUNCATE | IOCTL_DEV) & ~EXECUTE & every)
    if "view" in policy["pieces"]:
        allow(ruleset, "/dev/shm", every & ~EXECUTE)  # it is this kernel's own
        allow(ruleset, "/", READ_DIR)  # there is nothing in it but what is listed
    for path in (*policy["writable"], policy["folder"]):
        allow(ruleset, path, every)


def allow(ruleset: int, path: str, rights: int) -> None:
    """Add a rule for a path and what is below it; what does not exist is passed over."""
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


# --- view


def enter_view(policy: dict[str, Any]) -> bool:
    """Leave the machine's file tree for one that holds only what is listed.

    Returns:
        Whether it came with a user namespace.
    """
    new_user = new_namespaces()
    cwd = policy["cwd"]
    links, readable = placements([*policy["readable"], "/proc", "/sys"])
    more_links, writable = placements([*policy["writable"], policy["folder"]])
    readable = {path for path in readable - writable if not below(path, writable)}
    protected = [path for path in policy["protected"] if os.path.exists(path)]
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=4m")
    os.mkdir("/tmp/old")
    if LIBC.syscall(SYS_PIVOT_ROOT[os.uname().machine], b"/tmp", b"/tmp/old"):
        raise failure("view (pivot_root)")
    os.chdir("/")
    for path in sorted(readable | writable):  # what is within another comes after it
        bind(f"/old{path}", path)
        if path in readable and path != "/proc":  # Landlock guards it, and says better what is wrong
            make_read_only(path)
    for path in protected:
        mount(path, path, None, MS_BIND | MS_REC)
        make_read_only(path)
    make_devices()
    for path, target in (links | more_links).items():
        if not below(path, readable | writable):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(target, path)
    if LIBC.umount2(b"/old", MNT_DETACH):
        raise failure("view (umount)")
    os.rmdir("/old")
    os.makedirs("/tmp", exist_ok=True)
    os.chdir(cwd)
    return new_user


def new_namespaces() -> bool:
    """Enter new namespaces for mounts and System V memory, with one for users where that is needed; whether it was."""
    user, group = os.getuid(), os.getgid()
    if LIBC.unshare(CLONE_NEWNS | CLONE_NEWIPC) == 0:
        return False
    if LIBC.unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUSER):
        raise failure("view (namespaces)")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    return True


def placements(paths: list[str]) -> tuple[dict[str, str], set[str]]:
    """Which symbolic links and which mounts give the paths their names in an empty tree."""
    links: dict[str, str] = {}
    mounts: set[str] = set()
    todo = list(paths)
    while todo:
        path = todo.pop()
        parts, current = os.path.normpath(path).strip("/").split("/"), ""
        for index, part in enumerate(parts):
            current += f"/{part}"
            if os.path.islink(current):
                links[current] = target = os.readlink(current)
                todo.append(os.path.join(os.path.dirname(current), target, *parts[index + 1 :]))
                break
        else:
            if os.path.exists(current):
                mounts.add(current)
    return links, {path for path in mounts if not below(path, mounts)}


def below(path: str, others: set[str]) -> bool:
    """Whether the path is below one of the others."""
    return any(path.startswith(f"{other}/") for other in others)


def bind(source: str, target: str) -> None:
    """Mount what is at the source at the target too, with all that is mounted below it."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
    mount(source, target, None, MS_BIND | MS_REC)


def make_read_only(path: str) -> None:
    """Make the mount at the path, and all below it, read-only: also modes, owners and times, which Landlock lets pass."""
    attributes = struct.pack("=4Q", MOUNT_ATTR_RDONLY, 0, 0, 0)
    size = ctypes.c_size_t(len(attributes))
    if LIBC.syscall(SYS_MOUNT_SETATTR, -1, os.fsencode(path), AT_RECURSIVE, attributes, size):
        raise failure(f"view (read-only mount of {path})")


def make_devices() -> None:
    """The few devices that programs need; terminals and shared memory of our own."""
    for name in DEVICES:
        if os.path.exists(f"/old/dev/{name}"):
            bind(f"/old/dev/{name}", f"/dev/{name}")
    for name in ("pts", "shm"):
        os.makedirs(f"/dev/{name}")
    mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={SHM_BYTES}")
    for name, target in (
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
        ("stderr", "fd/2"),
    ):
        os.symlink(target, f"/dev/{name}")


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """The system call."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    if LIBC.mount(*encoded, ctypes.c_ulong(flags), None if options is None else options.encode()):
        raise failure(f"view (mount of {target})")


# --- as a script


def probe() -> dict[str, Any]:
    """What this machine can do, tried in processes of their own."""
    policy = {"walled": True, "readable": ["/usr"], "writable": [], "protected": [], "folder": "/usr", "cwd": "/usr"}
    return {
        "landlock": landlock_abi() if works(lambda: restrict_files({**policy, "network": False, "pieces": []}), True) else 0,
        "seccomp": works(lambda: load_seccomp().install(walled=True, network=False, connect=False), True),
        "view": works(lambda: enter_view(policy), False),
        "root": os.getuid() == 0,
    }


def works(piece: Callable[[], Any], no_new_privileges: bool) -> bool:
    """Whether a forked process can set the piece up."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if no_new_privileges:
                LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            piece()
            code = 0
        except (WallError, OSError, KeyError, AttributeError):
            pass  # that it does not work is what was asked
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def main(arguments: list[str]) -> None:
    """See the top of this file."""
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
