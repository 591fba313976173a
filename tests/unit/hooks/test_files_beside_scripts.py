"""What a trusted script could import from its own folder is shown, trusted with it, and not run once it has changed."""

import importlib.util
import json
import marshal
import struct
from pathlib import Path

import pytest
from support.tables import each

from freeact_sub.config.load import load_config
from freeact_sub.config.trust import MAX_FILES, Trust, modules_beside
from freeact_sub.errors import UntrustedError
from freeact_sub.hooks import run_command

CHECK = "import json, sys\njson.load(sys.stdin)\n"
EVIL = "open({mark!r}, 'w')\nfrom io import StringIO\ndef load(f): return {{}}\n"


def compiled(source: str) -> bytes:
    """Python runs it unchecked."""
    return importlib.util.MAGIC_NUMBER + struct.pack("<I", 1) + bytes(8) + marshal.dumps(compile(source, "x", "exec"))


def module(folder: Path, source: str) -> Path:
    (folder / "json.py").write_text(source)
    return folder / "json.py"


def package(folder: Path, source: str) -> Path:
    (folder / "json").mkdir()
    (folder / "json/__init__.py").write_text(source)
    return folder / "json/__init__.py"


def bytecode(folder: Path, source: str) -> Path:
    (folder / "json.pyc").write_bytes(compiled(source))
    return folder / "json.pyc"


def helper_of_helper(folder: Path, source: str) -> Path:
    (folder / "json.py").write_text("from parts import inner\nload = inner.load\n")
    (folder / "parts").mkdir()
    (folder / "parts/inner.py").write_text(source)
    return folder / "parts/inner.py"


MAKERS = (module, package, bytecode, helper_of_helper)


def reviewed(workspace: Path, trust: Trust):
    """The settings, and the paths that a person was shown for them."""
    shown: list[Path] = []
    while True:
        try:
            return load_config(workspace, environment={}, trust=trust), shown
        except UntrustedError as error:
            shown += error.files
            trust.add(error.files)


def hooks(workspace: Path, command: str) -> None:
    (workspace / ".agents").mkdir(exist_ok=True)
    entry = {"type": "command", "command": command}
    (workspace / ".agents/hooks.json").write_text(json.dumps({"hooks": {"Stop": [{"hooks": [entry]}]}}))


@each("command", ["python3 tools/check.py", "tools/check", "cd tools && python3 ../tools/check.py"])
@each("make", MAKERS)
@pytest.mark.process
async def test_imports_of_a_hook_from_its_folder_are_shown_and_not_run_once_changed(make, command, tmp_path):
    workspace, mark = tmp_path / "workspace", tmp_path / "ran"
    (workspace / "tools").mkdir(parents=True)
    (workspace / "tools/check.py").write_text(CHECK)
    (workspace / "tools/check").write_text(f"#!/usr/bin/env python3\n{CHECK}")
    (workspace / "tools/check").chmod(0o755)
    hooks(workspace, command)
    trust = Trust(tmp_path / "own")
    (hook,) = reviewed(workspace, trust)[0].found_hooks.hooks
    assert not (await run_command(hook, b"{}", workspace)).failure
    planted = make(workspace / "tools", EVIL.format(mark=str(mark)))
    answer = await run_command(hook, b"{}", workspace)
    assert "has changed since it was reviewed" in answer.failure
    config, shown = reviewed(workspace, trust)
    assert planted in shown
    planted.write_bytes(planted.read_bytes() + b"\n")
    assert planted in reviewed(workspace, trust)[1]
    assert not mark.exists()
    assert len(config.found_hooks.hooks) == 1


@pytest.mark.parametrize("command", ["python3 check.py", "python3 -c 'import json'", "python3 ./many/check.py"])
@pytest.mark.process
async def test_nothing_is_imported_from_a_folder_that_nobody_looks_through(command, tmp_path):
    workspace, mark = tmp_path / "workspace", tmp_path / "ran"
    (workspace / "many").mkdir(parents=True)
    for folder in (workspace, workspace / "many"):
        (folder / "check.py").write_text(CHECK)
        module(folder, EVIL.format(mark=str(mark)))
    for number in range(110):
        (workspace / f"many/m{number}.py").touch()
    hooks(workspace, command)
    (hook,) = reviewed(workspace, Trust(tmp_path / "own"))[0].found_hooks.hooks
    assert not (await run_command(hook, b"{}", workspace)).failure
    assert not mark.exists()


@pytest.mark.process
async def test_compiled_files_beside_a_helper_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    workspace, mark = tmp_path / "workspace", tmp_path / "ran"
    (workspace / "tools").mkdir(parents=True)
    (workspace / "tools/check.py").write_text("import helper\n")
    (workspace / "tools/helper.py").write_text("x = 1\n")
    hooks(workspace, "python3 tools/check.py")
    (hook,) = reviewed(workspace, Trust(tmp_path / "own"))[0].found_hooks.hooks
    cached = Path(importlib.util.cache_from_source(str(workspace / "tools/helper.py")))
    cached.parent.mkdir()
    cached.write_bytes(compiled(EVIL.format(mark=str(mark))))
    for _ in range(2):
        assert not (await run_command(hook, b"{}", workspace)).failure
    assert not mark.exists()


def test_the_script_of_an_mcp_server_is_trusted_with_what_stands_beside_it(tmp_path):
    workspace, trust = tmp_path / "workspace", Trust(tmp_path / "own")
    (workspace / "server/parts").mkdir(parents=True)
    script = workspace / "server/s.py"
    script.write_text("")
    (workspace / "run.sh").write_text("#!/bin/sh\n")
    servers = {"a": {"command": "python3", "args": ["server/s.py", "x"]}, "b": {"command": "sh", "args": ["run.sh"]}}
    (workspace / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    assert set(reviewed(workspace, trust)[1]) == {workspace / "mcp.json", script, workspace / "run.sh"}
    assert reviewed(workspace, trust)[1] == []
    for name in ("server/s.py", "server/json.py", "server/parts/inner.py", "run.sh"):
        (workspace / name).write_text("changed")
        assert reviewed(workspace, trust)[1] == [workspace / name]


def test_only_so_many_files_beside_a_script_are_looked_through(tmp_path):
    script = tmp_path / "many/check.py"
    script.parent.mkdir()
    for name in ("check.py", *(f"m{number}.py" for number in range(MAX_FILES))):
        (script.parent / name).touch()
    assert len(modules_beside(script, tmp_path) or ()) == MAX_FILES
    (script.parent / "one_more.py").touch()
    assert modules_beside(script, tmp_path) is None
