"""A copy of a notebook's kernel is a whole kernel for Jupyter, and as many as there are change nothing in their origin."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest
from jupyter_client import BlockingKernelClient
from jupyter_kernel_test import msgspec_v5
from notebook_kernel import LIMIT_SECONDS, notebook_kernel
from support import kernel_samples
from support.chat_server import ChatCall, ChatServer, by_turn
from support.thorough import sample
from support.waiting import eventually, is_running

pytestmark = pytest.mark.kernel

MINE = """
%load_ext freeact_sub.notebook
import hashlib, json, os, pickle, random
import numpy as np, pandas as pd
class Point:
    def __init__(self, x): self.x = x
df, p, rows = pd.DataFrame({"a": np.arange(100_000), "b": 1.5}), Point(1), [[1], [2]]
log = open("log.txt", "w+")
log.write("begun")
def digest():
    kept = [df, vars(p), rows, np.random.get_state(), random.getstate(), log.tell(), log.closed, os.getcwd()]
    return hashlib.sha256(pickle.dumps(kept)).hexdigest(), len(os.environ)
"""
WORK = """
df["c"] = df.a * 2
p.x, rows[0][0] = 7, 9
np.random.seed(1), random.seed(1)
os.environ["MINE"] = "no"
print("PID", os.getpid())
with open("connection.json", "w") as file:
    json.dump(get_ipython().kernel.parent.get_connection_info(), file, default=bytes.decode)
"""
DIGEST = "print(digest(), len(In), len(list(get_ipython().history_manager.get_range())))"


def words_after(page, word):
    return page.html.split(f"{word} ")[1].split("\n")[0].split("<")[0].split()


@asynccontextmanager
async def copied(folder):
    """A notebook's kernel with an agent whose cells work; the options of its `%%agent` cells."""
    script = by_turn([ChatCall("execute_ipython_cell", {"code": WORK})], ["done"])
    async with ChatServer(script) as server, notebook_kernel(folder) as notebook:
        await notebook.run(MINE)
        yield notebook, f"--model openai-chat:local --base-url {server.base_url} --yes --sandbox off"


async def test_copies_at_once_change_nothing_in_the_notebook_and_nothing_stays_of_them(tmp_path):
    names = sample([f"number{index}" for index in range(10)], 3)
    async with copied(tmp_path) as (notebook, options):
        before = await notebook.run(DIGEST)
        pages = [await notebook.run(f"%%agent {options} --name {name}\nWork.") for name in names]
        copies = [int(words_after(page, "PID")[0]) for page in pages]
        assert all(map(is_running, copies))
        after = await notebook.run(DIGEST)
        adopted = await notebook.run(f"%agent_adopt p rows --yes --name {names[0]}\nprint(p.x, rows, 'c' in df)")
        await notebook.run("%agent_close")
        await eventually(lambda: not any(map(is_running, copies)))
    *digest, cells, kept = before.text.split()
    assert after.text.split() == [*digest, str(int(cells) + len(names) + 1), str(int(kept) + len(names) + 1)]
    assert len(set(copies)) == len(names)
    assert adopted.text.splitlines() == ["Taken over: p, rows", "7 [[9], [2]] False"]
    assert (tmp_path / "log.txt").read_text() == "begun"


@pytest.fixture(scope="class")
def copy(request, tmp_path_factory):
    """The notebook and its agents live in a thread: these tests are no coroutines."""
    ready, over = threading.Event(), threading.Event()
    folder = tmp_path_factory.mktemp("notebook")

    async def live():
        async with copied(folder) as (notebook, options):
            await notebook.run(f"%%agent {options}\nWork.")
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: (asyncio.run(live()), ready.set()))
    thread.start()
    assert ready.wait(LIMIT_SECONDS)
    client = request.cls.kc = BlockingKernelClient(connection_file=str(folder / "connection.json"))
    try:
        client.load_connection_file()
        client.start_channels()
        client.wait_for_ready(timeout=LIMIT_SECONDS)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(
                msgspec_v5.schema_fragments, "freeact_request", {}
            )  # what code asks of its host is no Jupyter message
            yield
    finally:
        client.stop_channels()
        over.set()
        thread.join()


@pytest.mark.usefixtures("copy")
class TestCopy(kernel_samples.PythonKernel):
    """Jupyter's own tests of a kernel. A copy keeps no history."""

    completion_samples = [{"text": "zi", "matches": {"zip"}}, {"text": "Poi", "matches": {"Point"}}]
    code_execute_result = [{"code": "1+2+3", "result": "6"}, {"code": "p.x", "result": "7"}]

    @classmethod
    def setUpClass(cls):
        pass

    @classmethod
    def tearDownClass(cls):
        pass
