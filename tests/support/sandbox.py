"""What tests of the wall share: what there is outside of it, and code to reach for it."""

import contextlib
import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.kernels.local import LocalKernelProvider
from freeact_sub.kernels.wall.sandbox import SandboxPolicy, policy_for, support
from freeact_sub.pythons.about import installed_in

MACHINE = support()
NEEDS_A_WALL = pytest.mark.skipif(
    MACHINE.landlock < 6 or not MACHINE.seccomp or not MACHINE.view,
    reason="needs Linux with Landlock 6, seccomp and mount namespaces",
)

MIB = 2**20
LIMITED = KernelConfig(sandbox="auto", memory_bytes=1024 * MIB, max_file_bytes=4 * MIB)
WALLED = ("plan", "auto")
ALL = ("plan", "ask", "auto", "full")
PROVIDERS = {"local": LocalKernelProvider, "fork": lambda: ForkKernelProvider(spares=0)}
SECRET = "the-secret-of-the-host"

PREPARED = """
import ctypes, errno, os, resource, shutil, signal, socket, stat, struct, subprocess, sys, tempfile
from pathlib import Path
libc = ctypes.CDLL(None, use_errno=True)
def called(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def run(*command):
    subprocess.run(command, check=True, capture_output=True)
"""


NUMBERS = {"SYS_INIT_MODULE": (175, 105), "SYS_KEYCTL": (250, 219)}


@contextmanager
def outside_world(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """What kernels try to reach: files outside, a home with a key, listeners, and a workspace with a way out."""
    for name in ("workspace/.freeact", "workspace/.git", "workspace/vendor/library", "outside", "home/.ssh", "program"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "workspace/.git/config").write_text("[core]\n")
    (tmp_path / "workspace/vendor/library/.git").write_text("gitdir: ../../.git\n")
    (tmp_path / "workspace/.agents").symlink_to("elsewhere")
    (tmp_path / "workspace/mcp.json").write_text("{}")
    (tmp_path / "program/.env").write_text(SECRET)
    (tmp_path / "outside/file").write_text(SECRET)
    (tmp_path / "home/.ssh/id_ed25519").write_text(SECRET)
    (tmp_path / "workspace/way-out").symlink_to(tmp_path / "outside")
    with (
        contextlib.chdir(tmp_path),
        socket.socket() as listener,
        socket.socket(socket.AF_UNIX) as by_path,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as stream,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.syspath_prepend(str(tmp_path / "program"))  # as of a script that uses the library
        installed_in.cache_clear()
        listener.bind(("127.0.0.1", 0))
        by_path.bind("outside/socket")
        abstract.bind(f"\0freeact-test-{os.getpid()}")
        stream.bind("workspace/stream")
        datagram.bind("workspace/datagram")
        for item in (listener, by_path, abstract, stream):
            item.listen()
        libc = ctypes.CDLL(None)
        segment = libc.shmget(shm_key := os.getpid(), 4096, 0o1600)
        memory = Path("/dev/shm", f"freeact-test-{os.getpid()}")
        memory.touch()
        yield {
            "SHM_NAME": memory.name,
            "SHM_KEY": shm_key,
            "OUTSIDE": str(tmp_path / "outside"),
            "HOME": str(tmp_path / "home"),
            "PROGRAM": str(tmp_path / "program"),
            "HOST": os.getpid(),
            "PORT": listener.getsockname()[1],
            "ABSTRACT": f"freeact-test-{os.getpid()}",
            **{name: values[os.uname().machine == "aarch64"] for name, values in NUMBERS.items()},
        }
        libc.shmctl(segment, 0, None)
        memory.unlink()


def sandboxed(mode: str, workspace: Path, config: KernelConfig = LIMITED) -> dict[str, SandboxPolicy | None]:
    return {"sandbox": policy_for(mode, config, workspace)}


def replace_config(config: KernelConfig, **values: object) -> KernelConfig:
    return KernelConfig(**{**config.model_dump(), **values})
