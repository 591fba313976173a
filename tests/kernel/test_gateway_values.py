"""Values between kernels of gateways: moved where somebody sees both folders, else sent in pieces."""

import asyncio

import pandas as pd
import pytest
from support.gateways import Proxy, behind
from support.kernels import open_kernel, run_cell
from support.waiting import eventually

from freeact_sub.errors import KernelValueError
from freeact_sub.kernels import give_values, hand_over, put_values, take_value
from freeact_sub.kernels.gateway.kernel import GatewayKernel

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(900)]


async def test_values_are_moved_where_somebody_sees_both_folders_and_else_sent_in_pieces(
    gateways, start, tmp_path, monkeypatch
):
    """The same bytes arrive, also when the connections drop in the middle; nothing of them is left where they were."""
    ask, sees = GatewayKernel.ask_of_values, ""

    async def asked(kernel, buffers=None, **content):
        if content["op"] == "move" and sees == "kernels":
            await ask(kernel, buffers, **content)  # and the answer is lost with the connection
        elif content["op"] == "move":
            content["folder"] += "-behind-a-wall"
        answer, received = await ask(kernel, buffers, **content)
        if content["op"] == "mark" and sees == "nobody":
            answer = {"folder": f"{answer['folder']}-of-another-machine"}
        return answer, received

    monkeypatch.setattr(GatewayKernel, "ask_of_values", asked)
    async with Proxy(gateways[0]).running() as proxy, Proxy(gateways[1]).running() as other:
        here, there = start(behind(proxy)), start(behind(other))
        async with open_kernel(there, tmp_path) as source, open_kernel(here, tmp_path) as target:
            await run_cell(source, "import hashlib, os; big = os.urandom(30_000_000)")
            expected = (await run_cell(source, "print(hashlib.sha256(big).hexdigest())")).text
            for sees in ("kernels", "this program", "nobody"):
                name = await give_values(source, ["big"])
                before = len(other.plain()) + len(proxy.plain())
                moving = asyncio.create_task(hand_over(name, source, target))
                if sees == "nobody":
                    await eventually(lambda: moving.done() or len(other.plain()) + len(proxy.plain()) > before + 10_000_000)
                    proxy.cut()
                    other.cut()
                await moving
                went_through = len(proxy.plain()) + len(other.plain()) - before
                assert (went_through > 30_000_000) == (sees == "nobody")
                assert (await run_cell(target, "import hashlib; print(hashlib.sha256(big).hexdigest())")).text == expected
                folder = "import os; big = None; print(os.listdir(os.environ['TMPDIR']))"
                assert (await run_cell(target, folder)).text == "[]\n"
                assert (await run_cell(source, folder.replace("big = None; ", ""))).text == "[]\n"


async def test_a_program_puts_values_in_and_takes_them_out_as_data(gateways, start, tmp_path):
    frame = pd.DataFrame({"n": range(200_000), "text": ["a", "b"] * 100_000})
    async with open_kernel(start(behind(gateways[0])), tmp_path) as kernel:
        assert await put_values({"frame": frame}, kernel) == ["frame: pandas.DataFrame, shape (200000, 2)"]
        await run_cell(kernel, "half = frame[frame.n % 2 == 0]")
        back = await take_value("half", kernel, output=pd.DataFrame, trust=False, seconds=60)
        pd.testing.assert_frame_equal(back, frame[frame.n % 2 == 0])
        with pytest.raises(KernelValueError, match="not defined"):
            await take_value("nothing", kernel, output=None, trust=False, seconds=60)
        assert (await run_cell(kernel, "import os; print(os.listdir(os.environ['TMPDIR']))")).text == "[]\n"
