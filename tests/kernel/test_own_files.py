"""Branches that work in a copy of the workspace, in real kernels: overlays where the machine has them, else copies."""

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.agents import cell
from support.sandbox import NEEDS_A_WALL
from support.waiting import eventually, is_running, turns, wait_until

from freeact_sub import ChildRequest, WorkspaceConflictError
from freeact_sub.system.private_folders import sweep

pytestmark = pytest.mark.kernel

TREE = "import pathlib\nprint(sorted((str(p), p.read_text()) for p in pathlib.Path('.').rglob('*') if p.is_file() and not {'.freeact', '__pycache__'}.intersection(p.parts)))"


def files(tmp_path):
    here = [
        path for path in tmp_path.rglob("*") if path.is_file() and not {".freeact", "__pycache__"}.intersection(path.parts)
    ]
    return str(sorted((str(path.relative_to(tmp_path)), path.read_text()) for path in here))


@pytest.fixture
def workspace(tmp_path):
    for name in ("one", "folder/two", "folder/three", "module.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("original\n" if name != "module.py" else "value = 1\n")
    return tmp_path


@pytest.mark.parametrize("mode", ["auto", "full"])
async def test_siblings_never_see_each_others_files_and_one_is_taken_over(make, workspace, mode):
    async with make({}, mode=mode) as agent:
        start = await agent.branch()
        await start.execute("import sys, os\nlog = open('one', 'a+')\nsys.path.insert(0, os.getcwd())")
        before = files(workspace)
        left, right = [await start.branch(own_files=True) for _ in range(2)]
        for node in (left, right):
            name = "left" if node is left else "right"
            code = f"log.write('{name}'); log.close(); os.rename('folder/two', 'folder/moved'); os.remove('folder/three')\n"
            code += f"open('module.py', 'w').write('value = {len(name)}')\nimport module; print(module.value)\n!echo {name} > shell"
            ran = await node.execute(code)
            assert ran.text == str(len(name)), ran.text
        assert files(workspace) == before
        assert (await start.execute(TREE)).text == before
        deeper = await left.branch()
        await deeper.execute("open('folder/moved', 'a').write('deeper'); open('only', 'w').close()")
        assert (await left.execute(TREE)).text != (await deeper.execute(TREE)).text
        assert (await right.diff()).added == ("folder/moved", "shell")
        changes = await deeper.diff()
        assert changes.added == ("folder/moved", "only", "shell")
        assert (changes.changed, changes.deleted) == (("module.py", "one"), ("folder/three", "folder/two"))
        assert await agent.promote(deeper) == changes
        assert (await deeper.execute(TREE)).text == files(workspace)
        with pytest.raises(WorkspaceConflictError) as caught:
            await agent.promote(right)
        assert caught.value.conflicts == ("folder/moved", "module.py", "one", "shell")
        assert (await start.diff()).paths == ()


SET_UP = """
import os, pathlib, sqlite3
here = pathlib.Path.cwd()
parent, folder, one = os.open(here.parent, os.O_PATH), os.open('.', os.O_RDONLY), os.open('one', os.O_PATH)
database = sqlite3.connect(here / 'data.db'); database.execute('create table t (x)'); database.commit()
"""
IN_A_BRANCH = """
assert pathlib.Path.cwd() == here
(here / 'one').write_text(NAME)
for way in (f'/proc/self/fd/{one}', f'/proc/self/fd/{folder}/one', f'/proc/self/fd/{parent}/{here.name}/one', '/proc/self/cwd/one'):
    assert open(way).read() == NAME, way
for where, name in ((folder, 'made'), (parent, f'{here.name}/made too')):
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=where))
database = sqlite3.connect(here / 'data.db'); database.execute('insert into t values (?)', [NAME]); database.commit()
print(database.execute('select x from t').fetchall(), sorted(os.listdir()))
"""


@pytest.mark.parametrize("mode", ["auto", "full"])
async def test_paths_and_descriptors_of_before_lead_to_the_branchs_own_files(make, workspace, mode):
    async with make({}, mode=mode) as agent:
        root = await agent.branch()
        assert (await root.execute(SET_UP)).status == "ok"
        database, listed = (workspace / "data.db").read_bytes(), sorted([*os.listdir(workspace), "made", "made too"])
        names: list[str] = []
        nodes = [root]
        for name in ("first", "second", "third"):
            nodes.append(await nodes[-1].branch(own_files=name != "second"))
            if (await nodes[-1].own_files()).kind == "copy":
                pytest.skip("no overlays here")
            names.append(name)
            ran = await nodes[-1].execute(IN_A_BRANCH.replace("NAME", repr(name)))
            assert ran.text == f"{[(each,) for each in names]} {listed}", ran.text
            assert (await nodes[-1].diff()).changed == ("data.db", "one")
        assert (await nodes[1].execute("print(open('one').read())")).text == "first"
        assert (workspace / "one").read_text() == "original\n"
        assert (workspace / "data.db").read_bytes() == database
        assert (await root.execute("print(database.execute('select x from t').fetchall())")).text == "[]"


@NEEDS_A_WALL
async def test_beside_the_private_folders_a_copy_is_at_another_path_and_the_workspace_out_of_reach(make):
    with tempfile.TemporaryDirectory() as name:
        await stays_out_of_reach(make, Path(name))


async def stays_out_of_reach(make, workspace):
    (workspace / "one").write_text("original")
    async with make({}, mode="auto", workspace=workspace) as agent:
        node = await agent.branch(own_files=True)
        attempts = f"""
import os
folder = {str(workspace)!r}
for attempt in (lambda: open(folder + '/one').read(), lambda: open(folder + '/new', 'w'),
                lambda: os.rename('one', folder + '/moved'), lambda: os.link(folder + '/one', 'linked')):
    try:
        print('worked', attempt())
    except OSError as error:
        print(type(error).__name__)
"""
        told = (await node.execute(attempts)).text.split()
        assert told[:2] == ["PermissionError"] * 2
        assert {*told[2:]} <= {"PermissionError", "OSError"}
        ours = (await node.own_files()).root
        other = await agent.branch(own_files=True)
        reached = await other.execute(f"try:\n    print(open({str(ours / 'one')!r}).read())\nexcept OSError as e: print(e)")
        assert "denied" in reached.text, "a sibling's copy is not to be read"


async def test_a_child_works_in_its_copy_and_leaves_it_as_a_node(make, workspace):
    script = {"work": [[cell("open('one', 'w').write('changed'); x = 1")], "done"]}
    async with make(script, mode="auto") as agent:
        result = await agent.spawn_and_run(ChildRequest(prompt="work", branch=True, own_files=True, keep=True))
        assert (result.status, (workspace / "one").read_text()) == ("completed", "original\n")
        assert result.files_written == (), "nobody else has them"
        assert (await result.node.diff()).changed == ("one",)
        with pytest.raises(Exception, match="own copy of the workspace"):
            await agent.adopt(result.node)
        await agent.adopt(result.node, ["x"])
        await agent.promote(result.node)
        assert (workspace / "one").read_text() == "changed"


async def test_random_programs_of_siblings_change_nobody_elses_files(make, workspace):
    draw = random.Random(7)
    async with make({}, mode="auto") as agent:
        nodes = [await agent.branch(own_files=True) for _ in range(2)]
        known = [files(workspace)] * 2
        for _ in range(6):
            index = draw.randrange(2)
            name = draw.choice(["one", "folder/two", "new", "module.py"])
            step = draw.choice([f"open({name!r}, 'a').write('x')", f"os.remove({name!r})", f"os.rename({name!r}, 'moved')"])
            await nodes[index].execute(f"import os\ntry:\n    {step}\nexcept OSError: pass")
            known[index] = (await nodes[index].execute(TREE)).text
            assert (await nodes[1 - index].execute(TREE)).text == known[1 - index]


async def test_a_cancel_while_a_copy_is_made_leaves_nothing(make, workspace):
    async with make({}, mode="auto") as agent:
        first = await agent.branch()
        for number in (1, 5, 20):
            making = asyncio.create_task(agent.branch(own_files=True))
            await turns(number)
            making.cancel()
            await asyncio.wait({making})
        assert (await first.execute("1")).text == "1"
        assert (await (await agent.branch(own_files=True)).execute(TREE)).text == files(workspace)


HOST = """
import asyncio, json, os, signal, sys
from pathlib import Path
from freeact_sub import Agent, Config
from freeact_sub.testing import ScriptedModel
async def main():
    async with Agent(Config(workspace=Path(sys.argv[1]), mode="auto"), model=ScriptedModel({})) as agent:
        node = await agent.branch(own_files=True)
        own = await node.own_files()
        pid = (await node.execute("import os; open('one', 'w').close(); print(os.getpid())")).text
        print(json.dumps([int(pid), str(own.folder.path)]), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


def test_a_host_that_is_killed_leaves_no_process_no_mount_and_at_the_next_start_no_folder(workspace):
    ran = subprocess.run(
        [sys.executable, "-c", HOST, str(workspace)], capture_output=True, text=True, timeout=240, check=False
    )
    assert ran.stdout, ran.stderr
    pid, folder = json.loads(ran.stdout)
    wait_until(lambda: not is_running(pid))
    assert (workspace / "one").read_text() == "original\n"
    mounts = Path("/proc/self/mounts").read_text()
    assert folder not in mounts
    assert str(workspace) not in mounts
    sweep()
    wait_until(lambda: not os.path.exists(folder))


async def test_a_copy_goes_with_its_node(make, workspace):
    async with make({}, mode="auto") as agent:
        node = await agent.branch(own_files=True)
        folder = (await node.own_files()).folder.path
        await node.execute("open('one', 'w').close()")
        await node.close()
        await eventually(lambda: not folder.exists())
        with pytest.raises(Exception, match="closed"):
            await node.diff()
