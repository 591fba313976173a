"""An agent of a cell and `%%agent` one after the other, in any order; and cells that fail end."""

import nbformat
import pytest
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from notebook_kernel import notebook_kernel
from support.chat_server import ChatServer

pytestmark = pytest.mark.kernel

MINE = """
%load_ext freeact_sub.notebook
from freeact_sub import Agent, Config
from freeact_sub.testing import FakeKernelProvider, ScriptedModel
def made(answer): return Agent(Config(), model=ScriptedModel(lambda m, i: f"{answer} {len(m)}"), kernel_provider=FakeKernelProvider())
"""
CLOSED = "async with made('mine') as agent:\n    result = await display_run(agent, 'Hello.')"
OPEN = "agent = await made('mine').open()\nresult = await display_run(agent, 'Hello.')"


def answers(request):
    return [f"the notebook's {len(request['messages'])}"]


@pytest.fixture
async def notebook(tmp_path):
    async with ChatServer(answers) as server, notebook_kernel(tmp_path) as kernel:
        await kernel.run(MINE)
        kernel.options = f"--model openai-chat:local --base-url {server.base_url} --yes"
        yield kernel
        await kernel.run("%agent_close\nif agent.is_open: await agent.aclose()")


async def test_a_closed_agent_is_in_nobodys_way(notebook):
    mine = await notebook.run(CLOSED)
    first = await notebook.run(f"%%agent {notebook.options}\nFirst")
    again = await notebook.run(CLOSED)
    second = await notebook.run("%%agent --out other\nSecond")
    said = await notebook.run("print(result.output, '|', other.output)")
    for cell in (mine, first, again, second):
        assert cell.reply["status"] == "ok", cell.text
    assert said.text.strip() == "mine 1 | the notebook's 4"


async def test_the_magic_goes_on_with_an_open_agent_that_is_called_agent(notebook):
    await notebook.run(OPEN)
    mine = await notebook.run("%%agent --out result\nAnd?")
    assert "mine 3" in mine.html
    own = await notebook.run(f"%%agent {notebook.options}\nFirst")  # settings can only be those of another agent
    assert "the notebook's 2" in own.html, own.text
    more = await notebook.run("%%agent\nSecond")  # whose conversation goes on from then on
    assert "the notebook's 4" in more.html


async def test_the_magic_first(notebook):
    first = await notebook.run(f"%%agent {notebook.options}\nFirst")
    mine = await notebook.run(OPEN)
    second = await notebook.run("%%agent\nSecond")
    assert "the notebook's 2" in first.html, first.text
    assert "mine 1" in mine.html
    assert "the notebook's 4" in second.html


async def test_a_named_agent_that_is_closed_is_said(notebook):
    await notebook.run(CLOSED)
    named = await notebook.run("%%agent --name agent\nHello")
    chosen = await notebook.run("%%agent --name agent --mode full\nHello")
    assert "'agent' is your own agent and is not open: `await agent.open()` first" in named.text
    assert "'agent' is your own agent: choose its settings where you make it" in chosen.text


TURN = "await asyncio.sleep(0)"
ONLY_ASYNC = f"%load_ext freeact_sub.notebook\nimport asyncio\n{TURN}"
FAILING = {
    "wrong options": "%%agent --nonsense\nHello",
    "no prompt": "%%agent\n\n",
    "a name that nobody has": "%agent_close nobody",
    "a usage error of a person": f"{TURN}\nfrom IPython.core.error import UsageError\nraise UsageError('no')",
    "an error with a traceback": f"{TURN}\n1 / 0",
}


async def by_nbclient(folder, *sources):
    """The cells of a notebook as nbclient has run them; each is waited for one minute."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    (folder / "sockets").mkdir()
    manager = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=str(folder / "sockets/k"))
    client = NotebookClient(
        notebook, km=manager, timeout=60, allow_errors=True, resources={"metadata": {"path": str(folder)}}
    )
    await client.async_execute(cleanup_kc=True)
    return notebook.cells


async def test_a_cell_that_fails_after_nothing_but_async_cells_ends(tmp_path):
    _, *failed, last = await by_nbclient(tmp_path, ONLY_ASYNC, *FAILING.values(), f"{TURN}\n'alive'")
    assert all(cell.execution_count for cell in failed)
    assert "ZeroDivisionError" in str(failed[-1].outputs)
    assert "alive" in str(last.outputs)


async def test_a_reply_has_no_traceback_of_an_earlier_cell(tmp_path):
    async with notebook_kernel(tmp_path) as kernel:
        await kernel.run(ONLY_ASYNC)
        await kernel.run("1 / 0")
        replies = [(await kernel.run(source)).reply for source in FAILING.values()]
        fine = await kernel.run(TURN)
    assert [reply["status"] for reply in replies] == ["error"] * len(FAILING)
    assert ["ZeroDivisionError" in str(reply["traceback"]) for reply in replies] == [False] * 4 + [True]
    assert fine.reply["status"] == "ok"
