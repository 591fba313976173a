"""Attempts to get out of a kernel, by the row of the table in `docs/security.md` that they are a part of."""

from dataclasses import dataclass

from support.sandbox import ALL, WALLED


@dataclass(frozen=True, kw_only=True)
class EscapeAttempt:
    """Code that tries to get out; OUTSIDE, HOST, SIBLING, PORT and the like stand for what the test has put up."""

    row: str
    """Its name in the table."""
    code: str
    modes: tuple[str, ...]
    errors: tuple[str, ...] = ("PermissionError",)


def outside(row: str, code: str, *errors: str) -> EscapeAttempt:
    """An attempt that a mode with walled files must stop."""
    return EscapeAttempt(row=row, code=code, modes=WALLED, errors=errors or ("PermissionError",))


def others(row: str, code: str, *errors: str) -> EscapeAttempt:
    """An attempt that every mode must stop."""
    return EscapeAttempt(row=row, code=code, modes=ALL, errors=errors or ("PermissionError",))


GONE = ("PermissionError", "FileNotFoundError")
"""What is outside is not there at all, in the view."""
READ_ONLY = ("PermissionError", "OSError")

ATTEMPTS = {
    # writing
    "open": outside("write outside", "open(OUTSIDE + '/new', 'w')", *GONE),
    "open to append": outside("write outside", "open(OUTSIDE + '/file', 'a')", *GONE),
    "os.open": outside("write outside", "os.open(OUTSIDE + '/new', os.O_CREAT | os.O_WRONLY)", *GONE),
    "os.truncate": outside("write outside", "os.truncate(OUTSIDE + '/file', 0)", *GONE),
    "os.remove": outside("write outside", "os.remove(OUTSIDE + '/file')", *GONE),
    "os.mkdir": outside("write outside", "os.mkdir(OUTSIDE + '/folder')", *GONE),
    "shutil.copy": outside("write outside", "Path(tempfile.gettempdir(), 'x').write_text('x'); shutil.copy(tempfile.gettempdir() + '/x', OUTSIDE + '/new')", *GONE),
    "rename": outside("write outside", "Path(tempfile.gettempdir(), 'x').write_text('x'); os.rename(tempfile.gettempdir() + '/x', OUTSIDE + '/new')", *GONE, "OSError"),
    "hard link": outside("write outside", "os.link(OUTSIDE + '/file', tempfile.gettempdir() + '/link')", *GONE, "OSError"),
    "libc.open": outside("write outside", "called(libc.open(OUTSIDE.encode() + b'/new', os.O_CREAT | os.O_WRONLY, 0o600))", *GONE),
    "system file": outside("write outside", "open('/usr/freeact-test', 'w')", *READ_ONLY),
    "/etc": outside("write outside", "open('/etc/freeact-test', 'w')", *READ_ONLY),
    "subprocess": outside("write outside", "run('touch', OUTSIDE + '/new')", "CalledProcessError"),
    "shell": outside("write outside", "run('sh', '-c', 'echo x > ' + OUTSIDE + '/new')", "CalledProcessError"),
    "symlink in the workspace": outside("write outside by a link", "open('way-out/new', 'w')", *GONE),
    "own symlink": outside("write outside by a link", "os.symlink(OUTSIDE, tempfile.gettempdir() + '/s'); open(tempfile.gettempdir() + '/s/new', 'w')", *GONE),
    "/proc/self/root": outside("write outside by a link", "open('/proc/self/root' + OUTSIDE + '/new', 'w')", *GONE),
    "/proc/self/fd": outside("write outside by a link", "f = os.open('/', os.O_PATH); open(f'/proc/self/fd/{f}' + OUTSIDE + '/new', 'w')", *GONE),
    "/proc/self/fd of the log": EscapeAttempt(row="write outside by a link", code="open('/proc/self/fd/3/../../etc/x', 'w')", modes=WALLED, errors=(*GONE, *READ_ONLY, "NotADirectoryError")),
    "/proc/1/root": outside("write outside by a link", "open('/proc/1/root' + OUTSIDE + '/new', 'w')", *GONE),
    "remount": outside("mounts and namespaces", "called(libc.mount(None, b'/usr', None, 32, None))"),
    "new namespace": outside("mounts and namespaces", "called(libc.unshare(0x10020000))"),
    "terminal of the host": outside("write outside", "[open(f'/dev/pts/{n}', 'w') for n in range(3)]", *GONE),
    "the workspace in plan": EscapeAttempt(row="write the workspace", code="open('new', 'w')", modes=("plan",), errors=READ_ONLY),
    "mode of a system file": outside("modes and times", "os.chmod('/usr', 0o755)", *READ_ONLY),
    "time of a file of Python": outside("modes and times", "os.utime(os.__file__)", *READ_ONLY),
    "mode of the workspace in plan": EscapeAttempt(row="write the workspace", code="os.chmod('.', 0o755)", modes=("plan",), errors=READ_ONLY),
    "mode of the settings": outside("settings", "os.chmod('.freeact', 0o755)", *READ_ONLY),
    "shared memory by name": others("shared memory", "open('/dev/shm/' + SHM_NAME)", "FileNotFoundError", "PermissionError"),
    "System V memory": others("shared memory", "called(libc.shmget(SHM_KEY, 1, 0))", "FileNotFoundError"),
    "settings of the host": EscapeAttempt(row="settings", code="open('.freeact/config.toml', 'w')", modes=WALLED, errors=READ_ONLY),
    "settings moved away": EscapeAttempt(row="settings", code="os.rename('.freeact', 'other')", modes=WALLED, errors=READ_ONLY),
    "settings of MCP servers replaced": outside("settings", "Path('new').write_text('x'); os.rename('new', 'mcp.json')", *READ_ONLY),
    "settings that are a link": outside("settings", "os.remove('.agents')", *READ_ONLY),
    "git's settings": outside("repositories", "open('.git/config', 'a')", *READ_ONLY),
    "git's settings elsewhere": outside("repositories", "open('.git/commondir', 'w')", *READ_ONLY),
    "a repository moved": outside("repositories", "os.rename('.git', 'moved')", *READ_ONLY),
    "a repository moved by a shell": outside("repositories", "run('mv', '.git', 'moved')", "CalledProcessError"),
    "a folder above a repository moved": outside("repositories", "os.rename('vendor', 'moved')", *READ_ONLY),
    "a pointer to a repository replaced": outside("repositories", "Path('new').write_text('x'); os.rename('new', 'vendor/library/.git')", *READ_ONLY),
    **{
        f"set-uid file by {name}": outside("set-uid files", f"f = tempfile.gettempdir() + '/made'; {code}", *errors)
        for name, (code, *errors) in {
            "chmod": ("open(f, 'w'); os.chmod(f, 0o4755)", "PermissionError"),
            "fchmod": ("os.fchmod(open(f, 'w').fileno(), 0o4755)", "PermissionError"),
            "fchmodat": ("open(f, 'w'); called(libc.fchmodat(-100, f.encode(), 0o4755, 0))", "PermissionError"),
            "fchmodat2": ("open(f, 'w'); called(libc.syscall(452, -100, f.encode(), 0o4755, 0))", "PermissionError"),
            "open": ("os.path.exists(f) and os.remove(f); os.open(f, os.O_CREAT | os.O_WRONLY, 0o4755)", "PermissionError"),
            "O_TMPFILE": ("os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_WRONLY, 0o4755)", "PermissionError"),
            "openat2": ("called(libc.syscall(437, -100, (f + '2').encode(), struct.pack('=QQQ', os.O_WRONLY | os.O_CREAT, 0o4755, 0), 24))", "OSError"),
            "mknod": ("os.mknod(f + '3', stat.S_IFREG | 0o4755)", "PermissionError"),
            "a subprocess": ("open(f, 'w'); run('chmod', 'u+s', f)", "CalledProcessError"),
        }.items()
    },
    **{
        f"{kind} lease on a file of Python{how}": outside("leases", code.format(number=number), "PermissionError", "CalledProcessError")
        for kind, number in {"write": 1, "read": 0}.items()
        for how, code in {
            "": "import fcntl; fcntl.fcntl(os.open(os.__file__, os.O_RDONLY), 1024, {number})",
            " by libc": "called(libc.fcntl(os.open(os.__file__, os.O_RDONLY), 1024, {number}))",
            " with more bits": "called(libc.syscall(72 if os.uname().machine == 'x86_64' else 25, os.open(os.__file__, os.O_RDONLY), ctypes.c_long(1024 + 2**40), {number}))",
            ", kept by another process": "run(sys.executable, '-I', '-S', '-c', 'import fcntl, os; fcntl.fcntl(os.open(os.__file__, os.O_RDONLY), 1024, {number})')",
        }.items()
    },
    "lease on the folder of Python": outside("leases", "called(libc.fcntl(os.open(os.path.dirname(os.__file__), os.O_RDONLY), 1040, struct.pack('=IHH', 0, 0, 0)))"),
    "lease on a file of the workspace": EscapeAttempt(row="leases", code="import fcntl; open('mine', 'w').close(); fcntl.fcntl(os.open('mine', os.O_RDONLY), 1024, 1)", modes=("auto",)),
    # reading
    "file beside the program": outside("private files", "open(PROGRAM + '/.env').read()", *GONE),
    "key in the home directory": outside("private files", "open(HOME + '/.ssh/id_ed25519').read()", *GONE),
    "key by a subprocess": outside("private files", "run('cat', HOME + '/.ssh/id_ed25519')", "CalledProcessError"),
    "password hashes": outside("private files", "open('/etc/shadow').read()", *GONE),
    "environment of the host": others("environments", "open(f'/proc/{HOST}/environ', 'rb').read()"),
    "environment of the parent": others("environments", "open(f'/proc/{os.getppid()}/environ', 'rb').read()"),
    "environment by a subprocess": others("environments", "run('cat', f'/proc/{HOST}/environ')", "CalledProcessError"),
    # the network
    "socket": outside("network", "socket.create_connection(('127.0.0.1', PORT))", "OSError"),
    "IPv6 socket": outside("network", "socket.socket(socket.AF_INET6)", "OSError"),
    "datagram": outside("network", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)", "OSError"),
    "netlink": outside("network", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", "OSError"),
    "ctypes socket": outside("network", "called(libc.socket(2, 1, 0))", "OSError"),
    "socket by a subprocess": outside("network", "run('bash', '-c', f'exec 3<>/dev/tcp/127.0.0.1/{PORT}')", "CalledProcessError"),
    "io_uring": outside("network", "called(libc.syscall(425, 1, ctypes.create_string_buffer(120)))"),
    "Unix socket of another program": outside("Unix sockets", "socket.socket(socket.AF_UNIX).connect(OUTSIDE + '/socket')", *GONE),
    "socket in the workspace": outside("Unix sockets", "socket.socket(socket.AF_UNIX).connect('stream')"),
    "messages in the workspace": outside("Unix sockets", "socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect('stream')"),
    "datagram in the workspace": outside("Unix sockets", "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', 'datagram')"),
    "raw socket in the workspace": outside("Unix sockets", "socket.socket(socket.AF_UNIX, socket.SOCK_RAW).sendto(b'x', 'datagram')"),
    "datagram of a pair": outside("Unix sockets", "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b'x', 'datagram')"),
    "raw socket of a pair": outside("Unix sockets", "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW); a.sendto(b'x', 'datagram')"),
    "pair connected anew": outside("Unix sockets", "a, b = socket.socketpair(); b.close(); a.connect('stream')"),
    "socket in the workspace by a subprocess": outside("Unix sockets", "run(sys.executable, '-I', '-S', '-c', 'import socket; socket.socket(socket.AF_UNIX).connect(\"stream\")')", "CalledProcessError"),
    "descriptor of another program": outside("Unix sockets", "s = socket.socket(socket.AF_UNIX); s.connect('stream'); socket.recv_fds(s, 1, 1)"),
    "abstract socket of another program": others("abstract sockets", "socket.socket(socket.AF_UNIX).connect('\\0' + ABSTRACT)"),
    # host, fork server, siblings
    **{
        f"{name} of {whom}": others(row, code.replace("PID", pid))
        for whom, pid in {"the host": "HOST", "the parent": "os.getppid()", "a sibling": "SIBLING"}.items()
        for name, (row, code) in {
            "kill": ("signals", "os.kill(PID, signal.SIGCONT)"),
            "pidfd": ("signals", "signal.pidfd_send_signal(os.pidfd_open(PID), signal.SIGCONT)"),
            "ptrace": ("memory of others", "called(libc.ptrace(0x4206, PID, None, None))"),
            "memory": ("memory of others", "open(f'/proc/{PID}/mem', 'r+b')"),
            "process_vm_readv": ("memory of others", "b = ctypes.create_string_buffer(16); v = struct.pack('QQ', ctypes.addressof(b), 8); called(libc.process_vm_readv(PID, v, 1, v, 1, 0))"),
            "open files": ("memory of others", "os.readlink(f'/proc/{PID}/fd/0')"),
            "limits": ("limits of others", "resource.prlimit(PID, resource.RLIMIT_CORE, (0, 0))"),
        }.items()
    },
    "sibling's sockets": others("sockets of a sibling",
        "found = 0\nfor n in range(1, 6):\n    s = socket.socket(socket.AF_UNIX)\n    try: s.connect(f'{FOLDER}/k-{n}'); found += 1\n    except OSError as e: error = e\nassert not found\nraise error",
        *GONE,
    ),
    "sibling's key": others("sockets of a sibling", "open(FOLDER + '/kernel.json').read()", *GONE),
    # limits
    "raise a limit": others("raise a limit", "soft, hard = resource.getrlimit(resource.RLIMIT_DATA)\nresource.setrlimit(resource.RLIMIT_DATA, (hard, hard * 2))", "ValueError", "PermissionError"),
    "fill the memory": others("fill the memory", "bytearray(2 * 2**30)", "MemoryError"),
    "fill the memory in a subprocess": others("fill the memory", "run(sys.executable, '-I', '-S', '-c', 'bytearray(2 * 2**30)')", "CalledProcessError"),
    "fill the disk": others("huge file", "open(tempfile.gettempdir() + '/big', 'wb').write(bytes(5 * 2**20))", "OSError"),
    "set-uid": others("new privileges", "assert open('/proc/self/status').read().split('NoNewPrivs:')[1].split()[0] == '1'; raise PermissionError"),
    "kernel modules": others("kernel modules and keyrings", "called(libc.syscall(SYS_INIT_MODULE, None, 0, b''))"),
    "keyrings": others("kernel modules and keyrings", "called(libc.syscall(SYS_KEYCTL, 0, -3, 0))"),
}  # fmt: skip
