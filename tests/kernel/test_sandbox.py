"""What the wall leaves open, what it needs of a machine. Attempts to get out: `test_escapes.py`."""

import asyncio
import contextlib
import os
import socket
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from support.kernels import no_host, open_kernel, run_cell, spec
from support.sandbox import (
    LIMITED,
    MACHINE,
    NEEDS_A_WALL,
    PREPARED,
    PROVIDERS,
    outside_world,
    replace_config,
    sandboxed,
)
from support.waiting import LOADED_MACHINE_SECONDS, turns

from freeact_sub.cells import CellError
from freeact_sub.config.schema import KernelConfig
from freeact_sub.errors import KernelStartError
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.kernels.local import LocalKernelProvider
from freeact_sub.kernels.wall.sandbox import (
    Limits,
    SandboxPolicy,
    Support,
    check,
    policy_for,
    unenforced,
)

pytestmark = [pytest.mark.kernel, NEEDS_A_WALL]


@pytest.fixture
def world(tmp_path):
    """What there is outside of the wall."""
    with outside_world(tmp_path) as names:
        yield names


@pytest.fixture(params=PROVIDERS)
async def provider(request):
    provider = PROVIDERS[request.param]()
    yield provider
    await provider.aclose()


async def test_what_is_allowed_works_inside_the_wall(provider, tmp_path):
    code = """
import multiprocessing, os, sqlite3, subprocess, tempfile, threading
from pathlib import Path
Path("made").write_text("x")
Path("made").rename("moved")
with tempfile.NamedTemporaryFile("w") as file:
    file.write("x")
    assert file.name.startswith(os.environ["TMPDIR"])
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(abs, [-1, -2]))
with multiprocessing.get_context("spawn").Pool(1) as pool:
    print(pool.map(abs, [-3]))
print(subprocess.run(["sh", "-c", "cat moved | tr x y; ls / > /dev/null && echo there"], capture_output=True, text=True, check=True).stdout)
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE); child.terminate(); print(child.wait())
!echo from the shell
import asyncio; await asyncio.to_thread(int)
"""
    async with open_kernel(provider, tmp_path, **sandboxed("auto", tmp_path)) as kernel:
        ran = await run_cell(kernel, code)
        assert ran.status == "ok", ran.text
        for text in ("[1, 2]", "[3]", "ythere", "-15", "from the shell"):
            assert text in ran.text
        assert (await run_cell(kernel, "while True: pass", limit=0.3)).status == "timeout"
        assert (await run_cell(kernel, "1")).text == "1\n"
    assert (tmp_path / "moved").read_text() == "x"


@pytest.mark.parametrize("mode", ["ask", "full"])
async def test_files_and_network_are_free_where_a_person_or_nobody_guards_them(mode, world, provider, tmp_path):
    names = "".join(f"{name} = {value!r}\n" for name, value in world.items())
    async with open_kernel(provider, tmp_path, **sandboxed(mode, tmp_path)) as kernel:
        ran = await run_cell(
            kernel, f"{PREPARED}{names}\nopen(OUTSIDE + '/new', 'w')\nsocket.create_connection(('127.0.0.1', PORT))"
        )
    assert ran.status == "ok"
    assert (tmp_path / "outside/new").exists()


async def test_auto_has_the_network_if_it_is_configured_and_configured_folders(world, provider, tmp_path):
    config = replace_config(LIMITED, network=True, readable=(tmp_path / "home",), writable=(tmp_path / "outside",))
    names = "".join(f"{name} = {value!r}\n" for name, value in world.items())
    workspace = tmp_path / "workspace"
    async with open_kernel(provider, workspace, **sandboxed("auto", workspace, config)) as kernel:
        await run_cell(kernel, PREPARED + names)
        good = "socket.create_connection(('127.0.0.1', PORT)); open(HOME + '/.ssh/id_ed25519'); open(OUTSIDE + '/new', 'w')"
        assert (await run_cell(kernel, good)).status == "ok"
        assert "Read-only file system" in (await run_cell(kernel, "open(HOME + '/x', 'w')")).text
        assert (await run_cell(kernel, "socket.socket(socket.AF_VSOCK)")).status == "error"


async def test_a_spare_belongs_to_one_policy(tmp_path):
    provider = ForkKernelProvider(spares=1)
    try:
        first = await provider.start(spec(tmp_path, **sandboxed("auto", tmp_path)), no_host)
        await provider.refilled()
        second = await provider.start(spec(tmp_path, **sandboxed("plan", tmp_path)), no_host)
        third = await provider.start(spec(tmp_path, **sandboxed("auto", tmp_path)), no_host)
        assert (await run_cell(second, "open('x', 'w')")).status == "error"
        assert (await run_cell(third, "open('x', 'w')")).status == "ok"
        await asyncio.gather(*(kernel.aclose() for kernel in (first, second, third)))
    finally:
        await provider.aclose()


async def test_a_kernel_dies_with_what_started_it_in_its_namespace_too(provider, tmp_path):
    async with open_kernel(provider, tmp_path, **sandboxed("auto", tmp_path)) as kernel:
        parent = int((await run_cell(kernel, "import os; os.getppid()")).text)
        os.kill(parent, 9)
        await asyncio.wait_for(kernel.wait_lost(), 60)


async def test_what_is_missing_is_told_once_or_refused(tmp_path):
    old = Support(landlock=2, seccomp=True)
    policy = policy_for("auto", LIMITED, tmp_path)
    assert policy is not None
    missing = unenforced(policy, old)
    assert [any(word in what for what in missing) for word in ("signals", "truncation", "settings")] == [True] * 3
    assert check(policy, old) == missing
    with pytest.raises(KernelStartError, match="cannot enforce the sandbox of mode `auto`: signals"):
        check(replace(policy, required=True), old)
    whole = Support(landlock=6, seccomp=True, view=True)
    assert check(replace(policy, required=True), whole) == ()
    assert unenforced(policy, replace(whole, view=False)) == missing[-2:]
    assert unenforced(policy, replace(whole, root=True)) == ()  # nobody has asked for a bound on processes
    assert "processes" in unenforced(replace(policy, required=True), replace(whole, root=True))[0]
    wanted = policy_for("auto", replace_config(LIMITED, max_processes=1024), tmp_path)
    assert "processes" in unenforced(wanted, replace(whole, root=True))[0]
    none = unenforced(policy, Support())
    assert "files" in none[0]
    assert "network" in none[1]
    assert policy_for("plan", KernelConfig(sandbox="off"), tmp_path) is None


async def test_the_notice_comes_once_and_required_starts_nothing(tmp_path):
    notices: list[str] = []
    provider = LocalKernelProvider(on_notice=notices.append)
    required = replace_config(LIMITED, sandbox="required", max_processes=0)
    try:
        async with open_kernel(provider, tmp_path, **sandboxed("auto", tmp_path)):
            assert notices == []
        for _ in range(2):
            async with open_kernel(
                provider, tmp_path, **sandboxed("auto", tmp_path, replace_config(LIMITED, max_processes=9999))
            ):
                pass
        async with open_kernel(provider, tmp_path, **sandboxed("auto", tmp_path, required)):
            pass
        policy = policy_for("auto", replace_config(required, max_processes=10), tmp_path)
        if MACHINE.root:
            with pytest.raises(KernelStartError, match="number of processes"):
                await provider.start(spec(tmp_path, sandbox=policy), no_host)
    finally:
        await provider.aclose()
    assert len(notices) == (1 if MACHINE.root else 0)


async def test_a_wall_that_cannot_be_built_is_no_kernel(provider, tmp_path):
    policy = SandboxPolicy(mode="auto", walled=True, readable=(Path("/usr"),), writable=(), limits=Limits())
    with pytest.raises(KernelStartError, match="sandbox|wall|No such file|cannot"):
        await provider.start(spec(tmp_path, sandbox=policy), no_host)


async def test_what_is_written_may_lie_in_what_is_only_read_and_the_other_way_round(provider, tmp_path):
    inner = tmp_path / "readable/workspace"
    for path in (inner / "venv", tmp_path / "elsewhere"):
        path.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    config = replace_config(LIMITED, readable=(tmp_path / "readable", inner / "venv", tmp_path / "link"))
    code = f"import os\nopen('x', 'w')\nopen('venv/x', 'w')\nprint(os.listdir('..'), os.listdir({str(tmp_path / 'link')!r}))\nopen('../x', 'w')"
    async with open_kernel(provider, inner, **sandboxed("auto", inner, config)) as kernel:
        ran = await run_cell(kernel, code)
    assert "['workspace'] []" in ran.text
    assert [output.ename for output in ran.outputs if isinstance(output, CellError)] in (["OSError"], ["PermissionError"])
    assert (inner / "venv/x").exists()
    assert not (tmp_path / "readable/x").exists()


async def test_with_the_network_unix_sockets_can_be_connected_to_and_that_is_told(tmp_path):
    config, notices = replace_config(LIMITED, network=True), []
    provider = LocalKernelProvider(on_notice=notices.append)
    try:
        async with open_kernel(provider, tmp_path, **sandboxed("auto", tmp_path, config)) as kernel:
            ran = await run_cell(
                kernel,
                "import multiprocessing\nwith multiprocessing.Manager() as manager: print(manager.list([3]))",
            )
    finally:
        await provider.aclose()
    assert ran.text == "[3]\n"
    assert any("Unix sockets" in notice for notice in notices) == (MACHINE.landlock < 9)


async def test_output_of_forked_processes_is_shown_behind_the_wall(tmp_path):
    code = """
import os
for number in range(3):
    if os.fork() == 0:
        print(str(number) * 500_000, flush=True)
        os._exit(0)
for _ in range(3): os.wait()
"""
    for mode in ("plan", "auto"):
        provider = ForkKernelProvider(spares=0)
        try:
            async with open_kernel(provider, tmp_path, **sandboxed(mode, tmp_path)) as kernel:
                seen = (await run_cell(kernel, code, model_chars=10_000_000)).text
                async with asyncio.timeout(LOADED_MACHINE_SECONDS):
                    while not all(seen.count(str(number)) == 500_000 for number in range(3)):  # it may come in pieces
                        seen += (await run_cell(kernel, "None", model_chars=10_000_000)).text
        finally:
            await provider.aclose()
        assert [seen.count(str(number)) for number in range(3)] == [500_000] * 3


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_a_kernel_somebody_else_has_connected_to_while_it_started_is_not_used(kind, tmp_path):
    """The sockets have a path for a moment: whoever gets in then is found out."""
    provider, connected, stop = PROVIDERS[kind](), [], asyncio.Event()
    temporary = Path(tempfile.gettempdir())

    async def intrude() -> None:
        while not stop.is_set():
            with contextlib.suppress(FileNotFoundError):  # a folder is removed while its parent is read
                for path in temporary.glob("fa-*/**/k-2"):
                    if str(path) not in before:  # of other kernels, or connected to already
                        connect(path)
            await turns()

    def connect(path: Path) -> None:
        intruder = socket.socket(socket.AF_UNIX)
        connected.append(intruder)
        with contextlib.suppress(OSError):
            intruder.connect(str(path))
            before.add(str(path))

    before = {str(path) for path in temporary.glob("fa-*/**/k-2")}
    intruding = asyncio.create_task(intrude())
    try:
        with pytest.raises(KernelStartError, match="another process connected"):
            await provider.start(spec(tmp_path, **sandboxed("full", tmp_path)), no_host)
    finally:
        stop.set()
        await intruding
        for intruder in connected:
            intruder.close()
        await provider.aclose()
