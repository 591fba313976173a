"""Variables that are saved from one kernel and come back in another."""

import asyncio
import os
import re
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from support.branches import branched, text_of
from support.elsewhere import CANNOT_FORK
from support.kernels import open_kernel
from support.waiting import eventually, is_running, until_there

from freeact_sub.errors import KernelSnapshotError
from freeact_sub.kernels import snapshots
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.kernels.kernel import AuditSettings
from freeact_sub.kernels.local import LocalKernelProvider

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(CANNOT_FORK, reason="elsewhere the kernel itself saves, within its own bounds"),
    pytest.mark.asyncio(loop_scope="module"),
]

GATE = f"""
import os
class Gate:
    def wait(self):
        {until_there("open", indented=8)}
    def __getstate__(self):
        with open("saving", "w") as file: file.write(str(os.getpid()))
        os.rename("saving", "begun")
        self.wait()
        return {{}}
gate = Gate()
"""
"""A variable that takes until a file is there to be pickled."""
MODULE = "__import__('sys').modules['freeact_guest.saved.{}']"


@asynccontextmanager
async def kernel_in(provider, folder, **kwargs):
    folder.mkdir(exist_ok=True)
    async with open_kernel(provider, folder, **kwargs) as kernel:
        yield kernel


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_provider(tmp_path_factory):
    provider = ForkKernelProvider(spares=0)
    async with open_kernel(provider, tmp_path_factory.mktemp("first")):
        pass
    yield provider
    await provider.aclose()


@pytest_asyncio.fixture(loop_scope="module")
async def kernel(shared_provider, tmp_path):
    async with kernel_in(shared_provider, tmp_path / "work") as kernel:
        yield kernel


def lost_of(report):
    return {variable.name: variable for variable in report.lost}


def names_of(variables):
    return {variable.name for variable in variables}


async def saver_of(tmp_path):
    """The process that saves, once it waits at the gate."""
    begun = tmp_path / "work" / "begun"
    await eventually(begun.exists)
    return int(begun.read_text())


async def is_clean(kernel, pid):
    """Neither the process that has saved nor its files are there."""
    await eventually(lambda: not is_running(pid))
    assert kernel.scratch is None or not [name for name in os.listdir(kernel.scratch) if name.startswith("saved-")]


async def test_what_variables_share_they_share_when_they_are_back(shared_provider, kernel, tmp_path):
    code = """
import numpy as np, functools, dataclasses, enum, xml.dom.minidom
shared = [1]
one, two = {"it": shared}, {"it": shared}
loop = []; loop.append(loop)
array = np.arange(100_000.0).reshape(100, 1000); view = array[10:20, ::-2]; column = array.T[3]
objects = np.array([shared, None], dtype=object)
counter = 1
class Base:
    kept = shared
    def __init__(self): self.own = [2]
    def of_global(self): return counter
class Derived(Base):
    def __init__(self): super().__init__()
first, second = Derived(), Derived()
method = first.of_global
@dataclasses.dataclass
class Point: x: int = 0
points = [Point(1), Point(2)]
class Color(enum.Enum): RED = 1
red = Color.RED
def bump():
    global counter
    counter += 1
    return counter
def make():
    count = [0]
    def up(): count[0] += 1
    def get(): return count[0]
    return up, get
up, get = make()
@functools.lru_cache(maxsize=7)
def cached(x): return x + counter
"""
    await text_of(kernel, code)
    report = await kernel.snapshot(tmp_path / "store")
    assert report.lost == ()
    assert report.not_forked == ""
    async with kernel_in(shared_provider, tmp_path / "work") as new:
        back = await new.restore(tmp_path / "store")
        assert (back.lost, names_of(back.restored)) == ((), names_of(report.kept))
        assert "array: numpy.ndarray, shape (100, 1000)" in {variable.line for variable in back.restored}
        check = """
import inspect
assert one["it"] is two["it"] is shared is objects[0] is Base.kept is first.kept, "shared"
assert loop[0] is loop
view[0, 0] = -1.0; column[7] = -2.0
assert array[10, 999] == -1.0 and array[7, 3] == -2.0 and np.shares_memory(array, view), "views"
assert type(first) is type(second) is Derived and first.own is not second.own and method.__self__ is first
assert [type(point) is Point for point in points] == [True, True] and points == [Point(1), Point(2)] and red is Color.RED
assert (bump(), counter, first.of_global(), cached(1), cached.cache_info().maxsize) == (2, 2, 2, 3, 7), "live globals"
up(); up()
assert get() == 2, "closures"
assert "counter += 1" in inspect.getsource(bump)
xml.dom.minidom.parseString("<a/>")
"""
        await text_of(new, check)
        again = await new.snapshot(tmp_path / "store")  # what was restored is saved like any other
        assert (again.lost, names_of(again.kept)) == ((), names_of(report.kept) | {"inspect"})


async def test_what_cannot_be_kept_is_named_with_type_reason_and_cell(shared_provider, kernel, tmp_path):
    await text_of(
        kernel,
        "import sqlite3, threading\nshared = [1]; lock = threading.Lock()\nmixed = [shared, lock]; good = {'a': shared}",
    )
    code = """
generator = (i for i in range(3)); database = sqlite3.connect(":memory:"); file = open("/dev/null"); thread = threading.Thread()
class Broken:
    def __reduce__(self): raise ValueError("not this one")
broken = Broken(); deep = []; _ = deep
for _i in range(200_000): deep = [deep]
"""
    await text_of(kernel, code)
    report = await kernel.snapshot(tmp_path / "store")
    lost = lost_of(report)
    expected = {"generator", "database", "file", "thread", "broken", "lock", "mixed", "deep"}
    assert lost.keys() == expected
    assert {name: lost[name].cell for name in expected} == dict.fromkeys(expected, 2) | {"lock": 1, "mixed": 1}
    assert (lost["database"].type, lost["file"].reason) == ("sqlite3.Connection", "an open file: open it again")
    assert lost["broken"].reason == "not this one"
    assert {"shared", "good", "Broken"} <= names_of(report.kept)
    async with kernel_in(shared_provider, tmp_path / "work") as new:
        back = await new.restore(tmp_path / "store")
        assert lost_of(back) == lost
        assert await text_of(new, "good['a'] is shared, 'lock' in globals(), agent, In[-1]") != ""


async def test_only_what_has_changed_is_written_and_what_is_old_goes(kernel, tmp_path):
    store = tmp_path / "store"
    await text_of(
        kernel,
        "import numpy as np\na, b = np.zeros(100_000), np.ones(100_000)\nclass C: pass\nc = C(); f = lambda: a\ns = {'x', 'y'}",
    )
    first = await kernel.snapshot(store)
    files = set(os.listdir(store))
    assert first.written_bytes == first.size_bytes > 1_600_000
    assert (await kernel.snapshot(store)).written_bytes == 0
    assert set(os.listdir(store)) == files
    await text_of(kernel, "a[0] = 1")
    changed = await kernel.snapshot(store)
    assert 800_000 <= changed.written_bytes < 1_000_000
    assert changed.size_bytes == first.size_bytes
    assert len(set(os.listdir(store)) & files) == len(files) - 1
    assert len(os.listdir(store)) == len(files)


async def test_the_next_cell_runs_meanwhile_and_its_files_are_its_own(shared_provider, kernel, tmp_path):
    await text_of(
        kernel,
        f"{GATE}\nimport subprocess\nx = [1]; cat = subprocess.Popen(['cat'], stdin=subprocess.PIPE); cat_ = cat; del cat",
    )
    saving = asyncio.create_task(kernel.snapshot(tmp_path / "store"))
    pid = await saver_of(tmp_path)
    # `cat` ends at the end of its input, and the process that saves does not keep that open
    assert await text_of(kernel, "x.append(2); cat_.stdin.close(); cat_.wait(), x") == "(0, [1, 2])\n"
    assert not saving.done()
    (tmp_path / "work" / "open").touch()
    report = await saving
    assert names_of(report.kept) >= {"gate", "x"}
    await is_clean(kernel, pid)
    async with kernel_in(shared_provider, tmp_path / "work") as new:
        await new.restore(tmp_path / "store")
        assert await text_of(new, "x") == "[1]\n"


async def test_a_cancelled_snapshot_leaves_nothing_but_the_one_before(kernel, tmp_path):
    store = tmp_path / "store"
    await text_of(kernel, "x = 1")
    await kernel.snapshot(store)
    before = {path.name: path.read_bytes() for path in store.iterdir()}
    await text_of(kernel, f"x = 2\n{GATE}")
    saving = asyncio.create_task(kernel.snapshot(store))
    pid = await saver_of(tmp_path)
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    await is_clean(kernel, pid)
    assert {path.name: path.read_bytes() for path in store.iterdir()} == before
    await text_of(kernel, "del gate")
    assert names_of((await kernel.snapshot(store)).kept) >= {"x"}


async def test_a_kernel_that_ends_meanwhile_ends_what_saves(shared_provider, tmp_path):
    async with kernel_in(shared_provider, tmp_path / "work") as kernel:
        await text_of(kernel, GATE)
        saving = asyncio.create_task(kernel.snapshot(tmp_path / "store"))
        pid = await saver_of(tmp_path)
        await kernel.aclose()
    with pytest.raises(KernelSnapshotError, match="ended"):
        await saving
    await eventually(lambda: not is_running(pid))
    assert not (tmp_path / "store").exists()
    with pytest.raises(KernelSnapshotError, match="has ended"):
        await kernel.snapshot(tmp_path / "store")


async def test_code_of_a_type_that_hangs_costs_its_own_variables(kernel, tmp_path):
    await text_of(kernel, f"x = 1\n{GATE}\n{MODULE.format('files')}.GROUP_SECONDS = 0.5")
    report = await kernel.snapshot(tmp_path / "store")
    assert lost_of(report).keys() == {"gate"}
    assert "took more than" in lost_of(report)["gate"].reason
    assert "x" in names_of(report.kept)


async def test_what_does_not_stop_is_killed_at_the_hosts_deadline(kernel, tmp_path, monkeypatch):
    await text_of(kernel, f"x = 1\n{GATE}\nimport signal\nwait = Gate.__getstate__")
    await text_of(
        kernel,
        "def deaf(self): signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); return wait(self)\nGate.__getstate__ = deaf",
    )
    monkeypatch.setattr(snapshots, "SAVE_SECONDS", 0.1)
    monkeypatch.setattr(snapshots, "END_SECONDS", 3.0)
    with pytest.raises(KernelSnapshotError, match="took more than"):
        await kernel.snapshot(tmp_path / "store")
    begun = tmp_path / "work" / "begun"
    await is_clean(kernel, int(begun.read_text()) if begun.exists() else 0)
    assert await text_of(kernel, "x") == "1\n"


async def test_a_group_past_the_bounds_is_left_out_and_the_rest_is_kept(kernel, tmp_path):
    await text_of(kernel, "import numpy as np\nbig = np.zeros(1_000_000); also = [big]; text = 'x' * 600_000; x = 1")
    report = await kernel.snapshot(tmp_path / "store", max_bytes=500_000)
    assert lost_of(report).keys() == {"big", "also", "text"}
    assert "500,000 bytes" in lost_of(report)["big"].reason
    assert "x" in names_of(report.kept)
    assert report.size_bytes < 500_000


async def test_without_a_fork_the_kernel_saves_what_is_small_and_quick(shared_provider, kernel, tmp_path):
    code = f"import numpy as np\nbig = np.zeros(10_000_000); x = 1; f = lambda: x\n{MODULE.format('snapshots')}.why_not_forked = lambda: 'it uses a GPU'"
    await text_of(kernel, code)
    report = await kernel.snapshot(tmp_path / "store")
    assert report.not_forked == "it uses a GPU"
    assert "big" in lost_of(report)
    assert re.search(r"8,388,608 bytes|0\.\d+ s|no time", lost_of(report)["big"].reason)
    async with kernel_in(shared_provider, tmp_path / "work") as new:
        back = await new.restore(tmp_path / "store")
        assert names_of(back.restored) == names_of(report.kept)


async def test_without_cloudpickle_what_cells_define_is_left_out_with_that_reason(shared_provider, kernel, tmp_path):
    await text_of(
        kernel,
        "import sys; sys.modules['cloudpickle.cloudpickle'] = sys.modules['cloudpickle'] = None\nclass C: pass\nc = C(); x = [1]; y = {1: x}\ndef f(): pass",
    )
    report = await kernel.snapshot(tmp_path / "store")
    assert lost_of(report).keys() == {"C", "c", "f"}
    assert "there is no cloudpickle" in lost_of(report)["f"].reason
    async with kernel_in(shared_provider, tmp_path / "work") as new:
        await new.restore(tmp_path / "store")
        assert await text_of(new, "y[1] is x") == "True\n"


async def test_what_is_gone_or_cannot_be_read_is_named_and_the_rest_comes_back(shared_provider, kernel, tmp_path):
    (tmp_path / "work" / "mine.py").write_text("class Thing: pass")
    await text_of(
        kernel,
        "import numpy as np, sys\nsys.path.insert(0, 'lib')\nfrom mine import Thing\nimport mine\nbig = np.zeros(100_000); thing = Thing(); x = 1",
    )
    await kernel.snapshot(tmp_path / "store")
    (tmp_path / "work" / "mine.py").unlink()
    max((tmp_path / "store").iterdir(), key=lambda path: path.stat().st_size).unlink()
    async with kernel_in(shared_provider, tmp_path / "work") as new:
        back = await new.restore(tmp_path / "store", allow_more=True)
        assert lost_of(back).keys() == {"big", "thing", "mine", "Thing"}
        assert lost_of(back)["big"].reason == "its file is gone"
        assert await text_of(new, "x, 'lib' in sys.path") == "(1, True)\n"
        with pytest.raises(KernelSnapshotError, match="no variables are saved"):
            await new.restore(tmp_path / "nothing")


async def test_nothing_is_asked_for_saving_and_code_of_a_type_can_ask_for_nothing_there(shared_provider, tmp_path):
    asked = []

    async def handle(method, params, clock):
        asked.append((method, params))

    code = """
import os
class Program:
    def __getstate__(self): os.system("true"); return {}
class Asker:
    def __getstate__(self): return {"answer": agent.ask("?")}
program, asker, x = Program(), Asker(), 1
"""
    folder = tmp_path / "work"
    folder.mkdir()
    async with open_kernel(shared_provider, folder, handle, audit=AuditSettings(writable=(folder,))) as kernel:
        await text_of(kernel, code)
        report = await kernel.snapshot(tmp_path / "store")
        await text_of(kernel, "x = 2")  # and no program counts as started by it
        assert lost_of(report).keys() == {"program", "asker"}
        assert "while variables are saved" in lost_of(report)["asker"].reason
        await text_of(kernel, "del program, asker")
        await kernel.snapshot(tmp_path / "store")
        await kernel.restore(tmp_path / "store")
    assert asked == []


async def test_odd_names_and_texts_cost_nothing_else(shared_provider, kernel, tmp_path):
    code = """
import sys
globals()["not a name"] = 1; globals()["n" * 5000] = 2; globals()["half" + chr(0xdc80)] = 3; globals()[4] = 4
sys.path += ["p" * 20_000, chr(0xdc80), None]
f = eval(compile("lambda: 5", "file " + chr(0xdc80), "eval"))
big = 10 ** 5000
class Odd:
    def __init__(self, text): self.text = text
    def __reduce__(self): raise ValueError(self.text)
odd, worse = Odd("half " + chr(0xdc80)), Odd("long" * 100_000)
class Worst(Exception):
    def __str__(self): raise KeyError
class Last:
    def __reduce__(self): raise Worst
last = Last()
"""
    await text_of(kernel, code)
    report = await kernel.snapshot(tmp_path / "store")
    assert lost_of(report).keys() == {"odd", "worse", "last"}
    assert names_of(report.kept) == {"sys", "not a name", "f", "big", "Odd", "Worst", "Last"}
    async with kernel_in(shared_provider, tmp_path / "work") as new:
        await new.restore(tmp_path / "store")
        assert await text_of(new, "f(), big == 10 ** 5000, globals()['not a name']") == "(5, True, 1)\n"


async def test_a_branch_is_saved_like_its_kernel(shared_provider, kernel, tmp_path):
    await text_of(kernel, "x = [1]; y = [x]\nclass C: pass\nc = C()")
    async with branched(kernel) as branch:
        await text_of(branch, "x.append(2)")
        reports = await asyncio.gather(branch.snapshot(tmp_path / "branch"), kernel.snapshot(tmp_path / "kernel"))
        assert [names_of(report.kept) for report in reports] == [{"x", "y", "C", "c"}] * 2
    async with kernel_in(shared_provider, tmp_path / "work") as new:
        await new.restore(tmp_path / "branch")
        assert await text_of(new, "y[0] is x, x, type(c) is C") == "(True, [1, 2], True)\n"


async def test_a_plain_kernel_is_forked_to_save_as_well(tmp_path):
    provider = LocalKernelProvider()
    async with kernel_in(provider, tmp_path / "work") as kernel:
        await text_of(kernel, "x = [1]; y = [x]\ndef f(): return x\nlock = __import__('threading').Lock()")
        report = await kernel.snapshot(tmp_path / "store")
        assert (names_of(report.kept), lost_of(report).keys(), report.not_forked) == ({"x", "y", "f"}, {"lock"}, "")
        await text_of(kernel, "del x, y, f")
        await kernel.restore(tmp_path / "store")
        assert await text_of(kernel, "f() is x is y[0]") == "True\n"
    await provider.aclose()


async def test_what_cannot_be_read_is_named_and_what_was_read_before_it_is_there(kernel, shared_provider, tmp_path):
    code = """
rows = [1]
class Once:
    def __init__(self): self.rows = rows
    def __reduce__(self): return (eval, ("1 / 0",))
once, after, other = Once(), [rows], 3
"""
    await text_of(kernel, code)
    await kernel.snapshot(tmp_path / "store")
    async with kernel_in(shared_provider, tmp_path / "work") as new:
        back = await new.restore(tmp_path / "store")
        assert {name: lost.reason for name, lost in lost_of(back).items()} == dict.fromkeys(
            ("once", "after"), "division by zero"
        )
        assert "[1] 3" in await text_of(new, "print(rows, other)")
    manifest = tmp_path / "store/manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"format":3', '"format":1'))
    assert manifest.read_text() != text
    async with kernel_in(shared_provider, tmp_path / "work") as new:
        reasons = {lost.reason for lost in (await new.restore(tmp_path / "store")).lost}
    assert reasons == {"it was saved by another version of this program"}


async def test_variables_that_could_not_be_read_keep_their_own_values_when_others_of_the_group_are_saved_again(
    kernel, shared_provider, tmp_path
):
    code = """
rows = [1]
class Late:
    def __init__(self): self.rows = rows
    def __reduce__(self): return (eval, ("1 / __import__('os').path.exists('here')",))
late, after = Late(), [rows]
"""
    await text_of(kernel, code)
    await kernel.snapshot(tmp_path / "store")
    async with kernel_in(shared_provider, tmp_path / "work") as new:
        left = names_of((await new.restore(tmp_path / "store")).lost)
        assert left == {"late", "after"}
        await new.snapshot(tmp_path / "store", keep=left)
    (tmp_path / "work/here").touch()
    async with kernel_in(shared_provider, tmp_path / "work") as new:
        await new.restore(tmp_path / "store")
        assert await text_of(new, "late, after, rows") == "(1.0, [[1]], [1])\n"
