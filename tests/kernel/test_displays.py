"""Many displays of a cell: all of them, in their order, while the cell runs, and with an interrupt in their midst."""

import asyncio
import json

import pytest
import pytest_asyncio
from support.kernels import open_kernel, run_cell
from support.waiting import until_there

from freeact_sub.cells import DisplayData, StreamText
from freeact_sub.kernels import CellClock, CellOutputBuffer
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider

pytestmark = [pytest.mark.kernel, pytest.mark.asyncio(loop_scope="module")]

ALL_KINDS = """
from IPython.display import HTML
for number in range(200):
    display(number)
    print(f"printed {number}")
    display(HTML(f"<b>{number}</b>"))
    print(f"flushed {number}", flush=True)
    get_ipython().kernel.session.send(get_ipython().kernel.iopub_socket, "stream", {"name": "stdout", "text": f"sent {number}\\n"}, parent=get_ipython().kernel.get_parent())
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider(tmp_path_factory):
    provider = ForkKernelProvider(spares=0)  # in others, text that a timer sends may overtake a display
    async with open_kernel(provider, tmp_path_factory.mktemp("first")):
        pass
    yield provider
    await provider.aclose()


@pytest_asyncio.fixture(loop_scope="module")
async def kernel(provider, tmp_path):
    async with open_kernel(provider, tmp_path) as kernel:
        yield kernel


def words(outputs):
    """The lines that were shown, in their order; a line may come in two pieces."""
    shown = ""
    for output in outputs:
        if isinstance(output, StreamText):
            shown += output.text
        elif isinstance(output, DisplayData):
            shown += f"{output.data.get('text/html') or output.data['text/plain']}\n"
    return shown.splitlines()


async def test_displays_and_texts_come_in_their_order(kernel):
    ran = await run_cell(kernel, ALL_KINDS)
    kinds = ("{}", "printed {}", "<b>{}</b>", "flushed {}", "sent {}")
    assert words(ran.outputs) == [kind.format(number) for number in range(200) for kind in kinds]


async def test_displays_of_threads_all_come(kernel):
    code = """
import threading
threads = [threading.Thread(target=lambda first: [display(first + n) for n in range(200)], args=(1000 * k,)) for k in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]; None
"""
    shown = [int(word) for word in words((await run_cell(kernel, code)).outputs)]
    assert [[n for n in shown if n // 1000 == k] for k in range(4)] == [
        list(range(1000 * k, 1000 * k + 200)) for k in range(4)
    ]


async def test_a_display_is_there_while_its_cell_runs_though_nothing_follows(kernel, tmp_path):
    waits = f"for n in range(5): display(n)\n{until_there('go')}"
    shown = []
    async with asyncio.timeout(240), kernel.execute(waits, CellOutputBuffer(), CellClock(None)) as cell:
        async for output in cell:
            shown += words([output])
            if len(shown) == 5:
                (tmp_path / "go").touch()
        assert (await cell.reply()).status == "ok"
    assert shown == ["0", "1", "2", "3", "4"]


async def test_displays_around_an_interrupt_are_whole(kernel):
    for count in (1, 2, 7, 30, 200):
        buffer, shown = CellOutputBuffer(), []
        async with kernel.execute("n = 0\nwhile True:\n    display(n)\n    n += 1", buffer, CellClock(None)) as cell:
            async for output in cell:
                shown += words([output])
                if len(shown) >= count:
                    break
        assert shown == [str(n) for n in range(len(shown))]
        ran = await run_cell(kernel, "display(n)\nimport json\nprint(json.dumps({'n': n}))")
        [displayed, printed] = words(ran.outputs)
        assert int(displayed) == json.loads(printed)["n"] >= count - 1
