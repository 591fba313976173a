"""What a copy of a notebook's kernel can do with the libraries that people use; one that hangs in a copy is named instead.

Those that are not installed here are left out; `pip install scikit-learn torch polars duckdb ipympl` brings all.
"""

from importlib.util import find_spec

import pytest
from notebook_kernel import notebook_kernel
from support.chat_server import ChatCall, ChatServer, by_turn

pytestmark = pytest.mark.kernel

BOOSTED = "m = HistGradientBoostingRegressor(max_iter=3).fit(X, y); "
LINEAR = "linear.zero_grad(); linear(torch.rand(3000, 300)).sum().backward(); "
GROUPED = "rows = pl.DataFrame({'a': range(1000)}).group_by('a').len().height; "
SUMMED = "total = conn.sql('select sum(a) from t').fetchall(); "
# library: what the notebook has done with it, what the agent does then and prints; None: the kernel is not copied
LIBRARIES = {
    "sklearn": (
        "import numpy as np\nfrom sklearn.ensemble import HistGradientBoostingRegressor\n"
        "X = np.random.rand(2000, 4); y = X[:, 0]; " + BOOSTED,
        BOOSTED + "print('IS', m.score(X, y) > 0)",
        "IS True",
    ),
    "torch": (
        "import torch\nlinear = torch.nn.Linear(300, 300); " + LINEAR,
        LINEAR + "print('IS', linear.weight.grad.shape)",
        "IS torch.Size([300, 300])",
    ),
    "polars": ("import polars as pl\n" + GROUPED, "pass", None),
    "duckdb": (
        "import duckdb\nconn = duckdb.connect(); conn.sql('create table t as select range a from range(1000)'); " + SUMMED,
        SUMMED + "print('IS', total)",
        "IS [(499500,)]",
    ),
    "ipympl": (
        "%matplotlib widget\nimport matplotlib.pyplot as plt\nfigure, axes = plt.subplots(); axes.plot([1, 2]); plt.show()",
        "axes.plot([3, 4])\ndisplay(figure)\nprint('IS', len(axes.lines))",
        "IS 2",
    ),
}
MINE = """
%load_ext freeact_sub.notebook
import asyncio, multiprocessing, sqlite3
import matplotlib.pyplot as plt
figure, axes = plt.subplots()
def numbers():
    yield from range(5)
numbered = numbers()
next(numbered)
conn, memory = sqlite3.connect("points.db"), sqlite3.connect(":memory:")
for each in (conn, memory):
    each.execute("create table points (x)")
    each.execute("insert into points values (1)")
    each.commit()
ticks = 0
async def tick():
    global ticks
    while True:
        ticks += 1
        await asyncio.sleep(0.01)
ticking = asyncio.create_task(tick())
await asyncio.to_thread(int)
forked = multiprocessing.get_context("fork").Process(target=int)
forked.start()
forked.join()
"""
WORK = """
axes.plot([1, 2])
display(figure)
print("NEXT", next(numbered))
try:
    conn.execute("insert into points values (2)")
except sqlite3.OperationalError as error:
    print("LOST", error)
again = sqlite3.connect("points.db")
again.execute("insert into points values (3)")
again.commit()
print("MEMORY", memory.execute("select * from points").fetchall())
seen = ticks
for _ in range(100):
    await asyncio.to_thread(int)
print("TICKS", ticks - seen)
"""
MINE_AFTERWARDS = """
print(len(axes.lines), next(numbered), conn.execute("select * from points").fetchall())
seen = ticks
while ticks == seen:
    await asyncio.to_thread(int)
"""
WAL = "conn.execute('pragma journal_mode = wal'); conn.execute('insert into points values (4)'); conn.commit()"


def cell(code):
    return [ChatCall("execute_ipython_cell", {"code": code})]


async def test_pictures_generators_databases_and_tasks_of_the_loop(tmp_path):
    async with ChatServer(by_turn(cell(WORK), ["done"], ["again"])) as server, notebook_kernel(tmp_path) as notebook:
        mine = await notebook.run(MINE)
        worked = await notebook.run(
            f"%%agent --model openai-chat:local --base-url {server.base_url} --yes --sandbox off\nWork."
        )
        adopted = await notebook.run("%agent_adopt numbered, conn, axes --yes")
        afterwards = await notebook.run(MINE_AFTERWARDS)
        await notebook.run(WAL)
        refused = await notebook.run("%%agent\nAnd now?")
    assert mine.reply["status"] == worked.reply["status"] == "ok", mine.text + worked.text
    for words in ("NEXT 1", "LOST disk I/O error", "MEMORY [(1,)]", "TICKS 0", "data:image/png"):
        assert words in worked.html, worked.html
    assert "numbered: generator cannot be pickled" in adopted.text
    assert "conn: Connection cannot be pickled" in adopted.text
    assert afterwards.text.splitlines()[0] == "1 1 [(1,), (3,)]"
    assert f"in WAL mode, which a copy could not read: {tmp_path}/points.db" in refused.text


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_library_works_in_a_copy_or_is_named(tmp_path, library):
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    mine, work, printed = LIBRARIES[library]
    async with ChatServer(by_turn(cell(work), ["done"])) as server, notebook_kernel(tmp_path) as notebook:
        before = await notebook.run(f"%load_ext freeact_sub.notebook\n{mine}")
        worked = await notebook.run(f"%%agent --model openai-chat:local --base-url {server.base_url} --yes\nWork.")
    assert before.reply["status"] == worked.reply["status"] == "ok", before.text + worked.text
    if printed is None:
        assert f"cannot be copied: threads of {library} are running, which do not survive a copy" in worked.text
    else:
        assert printed in worked.html, worked.html + worked.text
