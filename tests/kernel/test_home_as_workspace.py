"""A workspace that holds the program's own settings and sessions, as the home directory does, and one that holds `/tmp`."""

import tempfile

import pytest
from support.kernels import PROVIDERS, open_kernel, run_cell
from support.sandbox import NEEDS_A_WALL, sandboxed

from freeact_sub.config.schema import KernelConfig
from freeact_sub.errors import KernelBranchError, KernelStartError
from freeact_sub.kernels.files.own_files import lay_over
from freeact_sub.kernels.local import LocalKernelProvider
from freeact_sub.system.private_folders import KernelFolder

pytestmark = [pytest.mark.kernel, NEEDS_A_WALL]

ATTACK = """
import os, shutil
from pathlib import Path
worked = []
for name in ('.config/freeact/config.toml', '.config/freeact/permissions.toml', '.local/state/freeact/sessions.db',
             '.local/state/freeact/sessions/20990101-0000-000000/variables/x'):
    for work in (lambda: Path(name).parent.mkdir(parents=True, exist_ok=True), lambda: Path(name).write_text('x'),
                 lambda: os.rename(Path(name).parts[0], 'moved'), lambda: os.rename(Path(name).parents[-3], 'moved'),
                 lambda: shutil.rmtree(Path(name).parents[-3]), lambda: os.symlink('/tmp', Path(name).parents[-3])):
        try: work()
        except FileExistsError: continue
        except OSError: continue
        if Path(name).exists() or not Path('.config/freeact').is_dir() or not Path('.local/state/freeact').is_dir():
            worked.append(name)
Path('.bashrc').write_text('')
print(worked)
"""


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("kind", ["local", "fork"])
async def test_what_the_program_obeys_later_cannot_be_written(kind, is_there, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    if is_there:
        (home / ".config/freeact").mkdir(parents=True)
        (home / ".local/state/freeact/sessions").mkdir(parents=True)
    provider = PROVIDERS[kind]()
    try:
        async with open_kernel(provider, home, **sandboxed("auto", home)) as kernel:
            ran = await run_cell(kernel, ATTACK)
    finally:
        await provider.aclose()
    assert (ran.status, ran.text) == ("ok", "[]\n")
    assert [path.name for path in (home / ".config/freeact").iterdir()] == ["mcp-tokens"]


@pytest.mark.parametrize("kind", ["local", "fork"])
@pytest.mark.parametrize("mode", ["plan", "auto", "ask", "full"])
async def test_sign_ins_to_mcp_servers_are_not_seen_in_any_mode(mode, kind, tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    tokens = home / ".config/freeact/mcp-tokens"
    tokens.mkdir(parents=True)
    (tokens / "a.json").write_text("secret")
    attack = f"""
import os, subprocess
tried = {{}}
for place in ({str(tokens)!r}, '/proc/self/root{tokens}', '/proc/self/cwd/.config/freeact/mcp-tokens'):
    tried[place] = (os.path.exists(place + '/a.json'), os.listdir(place))
print(set(map(str, tried.values())))
print(subprocess.run(['cat', {str(tokens / "a.json")!r}], capture_output=True, text=True).stdout)
for work in (lambda: open({str(tokens / "a.json")!r}, 'w'), lambda: os.rmdir({str(tokens)!r}),
             lambda: os.rename({str(tokens)!r}, {str(tokens)!r} + '2')):
    try: work(); print('worked')
    except OSError: pass
"""
    provider = PROVIDERS[kind]()
    try:
        async with open_kernel(provider, home, **sandboxed(mode, home)) as kernel:
            ran = await run_cell(kernel, attack)
    finally:
        await provider.aclose()
    assert (ran.status, ran.text) == ("ok", "{'(False, [])'}\n\n")
    assert (tokens / "a.json").read_text() == "secret"


async def test_no_branch_has_a_copy_of_sign_ins(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    tokens = home / ".config/freeact/mcp-tokens"
    tokens.mkdir(parents=True)
    (tokens / "a.json").write_text("secret")
    with pytest.raises(KernelBranchError, match="the workspace holds your sign-ins to MCP servers"):
        await lay_over(home, KernelFolder.__new__(KernelFolder), 0, None, lay=no_overlay)


async def no_overlay(_):
    return "not needed"


async def attacked(home, attack):
    """What a cell in a home folder puts out, and what people are told of its wall."""
    told: list[str] = []
    provider = LocalKernelProvider(on_notice=told.append)
    try:
        async with open_kernel(provider, home, **sandboxed("auto", home)) as kernel:
            return await run_cell(kernel, attack), told
    finally:
        await provider.aclose()


@pytest.mark.parametrize("is_there", [True, False])
async def test_code_of_the_home_folder_that_runs_later_is_kept_or_told(is_there, tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("IPYTHONDIR", raising=False)
    names = (".ipython/profile_default/startup/a.py", ".npm/_npx/1/node_modules/x/index.js", ".local/share/uv/tools/x/y")
    home.mkdir()
    for name in names if is_there else ():
        (home / name).parent.mkdir(parents=True)
        (home / name).touch()
    attack = f"""
import os
worked = []
for name in {names!r}:
    try: os.makedirs(os.path.dirname(name), exist_ok=True); open(name, 'w').write('x'); worked.append(name)
    except OSError: pass
print(worked)
"""
    ran, told = await attacked(home, attack)
    assert (ran.text == "[]\n") == is_there
    assert any(".ipython, which does not exist yet" in text for text in told) != is_there


async def test_what_shells_and_programs_of_the_user_obey_cannot_be_written(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    for name in (
        ".ssh/config",
        ".config/autostart/a.desktop",
        ".local/bin/ls",
        "bin/ls",
        "dotfiles/zshrc",
        ".gitconfig",
        "notes/a",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    (home / ".zshrc").symlink_to("dotfiles/zshrc")
    attack = """
import os, pathlib
def attempt(work):
    try: work()
    except OSError: return False
    return True
home = pathlib.Path.home()
tries = {
    'ssh': lambda: (home / '.ssh/config').write_text('x'),
    'new': lambda: (home / '.ssh/rc').write_text('x'),
    'start': lambda: (home / '.config/autostart/b.desktop').write_text('x'),
    'program': lambda: (home / '.local/bin/ls').write_text('x'),
    'bin': lambda: (home / 'bin/git').write_text('x'),
    'link': lambda: (home / '.zshrc').write_text('x'),
    'behind': lambda: (home / 'dotfiles/zshrc').write_text('x'),
    'moved': lambda: os.rename(home / '.ssh', home / 'ssh'),
    'replaced': lambda: ((home / 'mine').write_text('x'), os.replace(home / 'mine', home / '.gitconfig')),
    'notes': lambda: (home / 'notes/a').write_text('x'),
}
print([name for name, work in tries.items() if attempt(work)])
"""
    ran, told = await attacked(home, attack)
    assert ran.text == "['notes']\n", ran
    assert any("new hidden files in" in text for text in told)


async def test_private_folders_in_the_workspace_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    told: list[str] = []
    provider = LocalKernelProvider(on_notice=told.append)
    try:
        async with open_kernel(provider, tmp_path, **sandboxed("auto", tmp_path)):
            pass
        required = KernelConfig(sandbox="required", max_processes=0)
        with pytest.raises(KernelStartError, match="the program's private folders in"):
            async with open_kernel(provider, tmp_path, **sandboxed("auto", tmp_path, required)):
                pass
    finally:
        await provider.aclose()
    assert any("the program's private folders in" in text for text in told)
