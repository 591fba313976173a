"""The filter of system calls that neither Landlock nor the lack of capabilities covers. Standard library only.

A classic BPF program that the Linux kernel runs at each system call. It knows x86_64 and aarch64; calls of another
architecture (32-bit programs, x32) are refused whole, for their numbers mean other things. A refused call fails with
`EPERM`, which Python raises as `PermissionError`; a socket of a family that is not allowed with `EOPNOTSUPP`, for libzmq
aborts its process at any other error.
"""

import ctypes
import errno
import functools
import os
import struct

LIBC = ctypes.CDLL(None, use_errno=True)
Line = tuple[int, int, int, int]

SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32 = 0x40000000
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
LOAD, MASK, EQUAL, GREATER_OR_EQUAL, ANY_BIT, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT, THIRD_ARGUMENT, FOURTH_ARGUMENT = 0, 4, 16, 24, 32, 40
"""Offsets in the filter's data; for an argument, of its lower half."""
AF_UNIX, SOCK_STREAM, SOCK_SEQPACKET, SOCK_TYPE_MASK = 1, 1, 5, 0xF
NETWORK_FAMILIES = (2, 10, 16)
"""Families of network sockets: IPv4, IPv6, netlink."""
CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x00020000
NEW_NAMESPACES = 0x7E020000
"""The flags of `clone` for new namespaces."""

# name: (x86_64, aarch64)
ALWAYS = {
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "open_by_handle_at": (304, 265),
    "pidfd_getfd": (438, 438),
}
"""System calls that a kernel's code does not need, or that endanger the rest of the machine."""
WALLED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
"""Further system calls to refuse where files are walled: ways around a filter, and new namespaces."""
SHARED = {
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semctl": (66, 191),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgctl": (71, 187),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}
"""Further system calls to refuse in a trial, for memory and queues that it would share with its origin."""
SCHEDULING = {
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
}
"""System calls on scheduling, of others too. In a trial they do nothing, and do not fail: libzmq would abort."""
MODES = (
    (90, None, SECOND_ARGUMENT),  # chmod
    (91, 52, SECOND_ARGUMENT),  # fchmod
    (268, 53, THIRD_ARGUMENT),  # fchmodat
    (452, 452, THIRD_ARGUMENT),  # fchmodat2
    (85, None, SECOND_ARGUMENT),  # creat
    (133, None, SECOND_ARGUMENT),  # mknod
    (259, 33, THIRD_ARGUMENT),  # mknodat
)
"""System calls that set a file's mode: number on x86_64, on aarch64, index of the mode's argument."""
OPENS = ((2, None, SECOND_ARGUMENT, THIRD_ARGUMENT), (257, 56, THIRD_ARGUMENT, FOURTH_ARGUMENT))
"""`open` and `openat`, as above: where the flags are, and the mode."""
CREATES = 0o100 | 0o20000000
OPENAT2 = (437, 437)
SET_UID, SET_GID = 0o4000, 0o2000
CLONE, CLONE3, PRLIMIT = (56, 220), (435, 435), (302, 261)
SET_ATTRIBUTE = ((188, 5), (189, 6), (190, 7), (463, 463))
"""`setxattr`, `lsetxattr`, `fsetxattr`, `setxattrat`."""
FCNTL = (72, 25)
LEASES = (1024, 1040)
"""`F_SETLEASE`, `F_SETDELEG`: to open a file with one takes 45 s, even if its holder can only read it."""
SOCKET, SOCKETPAIR, CONNECT, BIND, SETNS = (41, 198), (53, 199), (42, 203), (49, 200), (308, 268)
CHANGES = {
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "truncate": (76, 45),
}
"""Changes of files by name or by a descriptor that can only read, which Landlock lets pass."""
SIGNALS = {
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
}
IOCTL = (16, 29)
TERMINAL_IOCTLS, IOCTL_GROUP = 0x5400, 0xFFFFFF00
TERMINAL_CHANGES = (0x5412, 0x541C, 0x541D, 0x5423)
"""`TIOCSTI`, which types for the user, `TIOCLINUX`, `TIOCCONS`, `TIOCSETD`."""
TRUNCATES, ACCESS_MODE, WRITE_ONLY, READ_AND_WRITE = 0o1000, 3, 1, 2
ALL_THREADS = 1
"""A flag: the filter is that of the other threads, too."""


def install(*, walled: bool, network: bool, connect: bool, join: bool, trial: bool = False) -> None:
    """Filters the system calls of this process from now on, for good; it must have given up new privileges.

    Args:
        walled: Files are restricted, so ways around that are refused as well.
        network: Internet sockets are allowed.
        connect: Unix sockets can be connected to.
        join: A branch enters the namespaces that were made for it, for users and for mounts.
        trial: System V memory and queues are refused, which a branch shares with its origin.
    """
    put(code(walled=walled, network=network, connect=connect, join=join, trial=trial))


def refuse_names() -> None:
    """Refuses to name sockets of this process from now on, so that no other program reaches it. After `install`."""
    machine = os.uname().machine
    number = BIND[0 if machine == "x86_64" else 1]
    lines = [(LOAD, 0, 0, NUMBER), (EQUAL, 0, 1, number), refuse(errno.EACCES), (RETURN, 0, 0, ALLOW)]
    put(b"".join(struct.pack("=HBBI", *line) for line in lines), flags=ALL_THREADS)


def refuse_changes(*, signals: bool) -> None:
    """Refuses all changes of files that Landlock lets pass. After `install`. Args: signals: refuse to send them, too."""
    put(code_against_changes(signals=signals))


@functools.cache
def code_against_changes(*, signals: bool) -> bytes:
    """Returns the filter's instructions, for a machine whose programs `install` has not refused."""
    column = 0 if os.uname().machine == "x86_64" else 1
    lines: list[Line] = [(LOAD, 0, 0, NUMBER)]
    for numbers in [*CHANGES.values(), *(SIGNALS.values() if signals else ())]:
        if (number := numbers[column]) is not None:
            lines += [(EQUAL, 0, 1, number), refuse(errno.EPERM)]
    lines += [(EQUAL, 0, 1, OPENAT2[column]), refuse(errno.ENOSYS)]  # it keeps its flags where a filter cannot see them
    for *numbers, flags, _ in OPENS:
        if (number := numbers[column]) is not None:  # only the newer Landlocks guard what is opened to be read and emptied
            writes = [(EQUAL, 2, 0, WRITE_ONLY), (EQUAL, 1, 0, READ_AND_WRITE)]
            test = [(ANY_BIT, 0, 4, TRUNCATES), (MASK, 0, 0, ACCESS_MODE), *writes, refuse(errno.EPERM)]
            lines += call(number, [(LOAD, 0, 0, flags), *test])
    # file systems have such calls of their own, which change files through a descriptor that can only read
    allowed = [(MASK, 0, 0, IOCTL_GROUP), (EQUAL, 1, 0, TERMINAL_IOCTLS), refuse(errno.ENOTTY)]
    for change in TERMINAL_CHANGES:
        allowed += [(LOAD, 0, 0, SECOND_ARGUMENT), (EQUAL, 0, 1, change), refuse(errno.EPERM)]
    lines += call(IOCTL[column], [(LOAD, 0, 0, SECOND_ARGUMENT), *allowed])
    return b"".join(struct.pack("=HBBI", *line) for line in [*lines, (RETURN, 0, 0, ALLOW)])


def put(instructions: bytes, flags: int = 0) -> None:
    """Filters by these instructions. Raises: OSError: Linux refuses them."""
    lines = ctypes.create_string_buffer(instructions, len(instructions))
    filter_program = struct.pack("@HP", len(instructions) // 8, ctypes.addressof(lines))
    if LIBC.syscall(SYS_SECCOMP[os.uname().machine], 1, flags, filter_program):
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")


@functools.cache
def code(*, walled: bool, network: bool, connect: bool, join: bool, trial: bool = False) -> bytes:
    """Returns the filter's instructions as the system takes them; arguments as of `install`.

    Raises:
        OSError: The machine is of an unknown kind.
    """
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no system call filter is known for {machine}")
    return b"".join(struct.pack("=HBBI", *line) for line in program(machine, walled, network, connect, join, trial))


def program(machine: str, walled: bool, network: bool, connect: bool, join: bool, trial: bool = False) -> list[Line]:
    """Returns the filter's instructions: (operation, jump if true, jump if false, value)."""
    column = 0 if machine == "x86_64" else 1
    lines = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, ARCHITECTURES[machine]), refuse(errno.EPERM), (LOAD, 0, 0, NUMBER)]
    if machine == "x86_64":
        lines += [(GREATER_OR_EQUAL, 0, 1, X32), refuse(errno.EPERM)]
    for numbers in [*ALWAYS.values(), *(WALLED.values() if walled else ()), *(SHARED.values() if trial else ())]:
        lines += [(EQUAL, 0, 1, numbers[column]), refuse(errno.EPERM)]
    # another process's limits are not ours to set
    lines += call(PRLIMIT[column], [(LOAD, 0, 0, FIRST_ARGUMENT), (EQUAL, 1, 0, 0), refuse(errno.EPERM)])
    for numbers in SCHEDULING.values() if trial else ():
        lines += [(EQUAL, 0, 1, numbers[column]), refuse(0)]
    if walled:
        # clone3 keeps its flags where a filter cannot see them; the C library then takes clone
        lines += [(EQUAL, 0, 1, CLONE3[column]), refuse(errno.ENOSYS)]
        lines += call(CLONE[column], [(LOAD, 0, 0, FIRST_ARGUMENT), (ANY_BIT, 0, 1, NEW_NAMESPACES), refuse(errno.EPERM)])
        kinds = [(EQUAL, 2, 0, CLONE_NEWUSER), (EQUAL, 1, 0, CLONE_NEWNS)] if join else []
        lines += call(SETNS[column], [(LOAD, 0, 0, SECOND_ARGUMENT), *kinds, refuse(errno.EPERM)])
        if join and os.getuid() == 0:  # a file could be given capabilities, for whoever runs it later
            for numbers in SET_ATTRIBUTE:
                lines += [(EQUAL, 0, 1, numbers[column]), refuse(errno.EOPNOTSUPP)]
        for command in LEASES:
            lines += call(FCNTL[column], [(LOAD, 0, 0, SECOND_ARGUMENT), (EQUAL, 0, 1, command), refuse(errno.EPERM)])
        families = (AF_UNIX, *NETWORK_FAMILIES) if network else (AF_UNIX,)
        lines += call(SOCKET[column], only_families(families))
        lines += no_set_id(column, SET_UID | SET_GID if os.getuid() == 0 else SET_UID)
    if not connect:
        # a datagram socket needs no connection to reach others
        lines += [(EQUAL, 0, 1, CONNECT[column]), refuse(errno.EACCES)]
        for numbers in (SOCKET, SOCKETPAIR):
            lines += call(numbers[column], only_connected())
    return [*lines, (RETURN, 0, 0, ALLOW)]


def call(number: int, lines: list[Line]) -> list[Line]:
    """Returns lines for one system call; a call that they do not refuse passes to the next."""
    return [(EQUAL, 0, len(lines) + 1, number), *lines, (LOAD, 0, 0, NUMBER)]


def only_families(families: tuple[int, ...]) -> list[Line]:
    """Refuses sockets of all other families."""
    count = len(families)
    tests = [(EQUAL, count - index, 0, family) for index, family in enumerate(families)]
    return [(LOAD, 0, 0, FIRST_ARGUMENT), *tests, refuse(errno.EOPNOTSUPP)]


def only_connected() -> list[Line]:
    """Refuses sockets that can send to an address without a connection: datagrams, which raw Unix sockets are too."""
    types = [(EQUAL, 2, 0, SOCK_STREAM), (EQUAL, 1, 0, SOCK_SEQPACKET)]
    return [(LOAD, 0, 0, SECOND_ARGUMENT), (MASK, 0, 0, SOCK_TYPE_MASK), *types, refuse(errno.EACCES)]


def no_set_id(column: int, bits: int) -> list[Line]:
    """Refuses modes with these bits: such a file runs as this user for any other user.

    An ordinary user may set the group's bit: folders that a team shares have it.
    """
    lines: list[Line] = []
    for *numbers, mode in MODES:
        if (number := numbers[column]) is not None:
            lines += call(number, [(LOAD, 0, 0, mode), (ANY_BIT, 0, 1, bits), refuse(errno.EPERM)])
    for *numbers, flags, mode in OPENS:
        if (number := numbers[column]) is not None:
            # without the flag to create, anything may stand where the mode would be
            created = [(LOAD, 0, 0, flags), (ANY_BIT, 0, 3, CREATES), (LOAD, 0, 0, mode), (ANY_BIT, 0, 1, bits)]
            lines += call(number, [*created, refuse(errno.EPERM)])
    # it keeps flags and mode where a filter cannot see them; programs then take openat
    return [*lines, (EQUAL, 0, 1, OPENAT2[column]), refuse(errno.ENOSYS)]


def refuse(number: int) -> Line:
    """Returns the line that ends the filter: the call fails with this error."""
    return (RETURN, 0, 0, ERRNO | number)
