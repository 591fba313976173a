"""Values between kernels of gateways: moved where both see one disk, else sent in pieces."""

import asyncio
from functools import partialmethod

import pytest
from support.gateways import Proxy, behind
from support.kernels import open_kernel, run_cell
from support.waiting import eventually

from freeact_sub.kernels import give_values, hand_over
from freeact_sub.kernels.gateway.kernel import GatewayKernel

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize(("from_other", "sees_it"), [(False, True), (False, False), (True, True)])
async def test_values_are_moved_at_one_gateway_and_else_sent_in_pieces(
    gateways, start, tmp_path, monkeypatch, from_other, sees_it
):
    """The same bytes arrive, also when the connections drop in the middle; nothing of them is left where they were."""
    if not sees_it:  # a wall, or another machine
        monkeypatch.setattr(GatewayKernel, "move_values", partialmethod(_moved_into_no_folder, GatewayKernel.move_values))
    async with Proxy(gateways[0]).running() as proxy, Proxy(gateways[1]).running() as other:
        here = start(behind(proxy))
        there = start(behind(other)) if from_other else here
        async with open_kernel(there, tmp_path) as source, open_kernel(here, tmp_path) as target:
            await run_cell(source, "import hashlib, os; big = os.urandom(30_000_000)")
            expected = (await run_cell(source, "print(hashlib.sha256(big).hexdigest())")).text
            name = await give_values(source, ["big"])
            before = len(other.plain()) + len(proxy.plain())
            moving = asyncio.create_task(hand_over(name, source, target))
            if from_other:
                await eventually(lambda: moving.done() or len(other.plain()) + len(proxy.plain()) > before + 10_000_000)
                proxy.cut()
                other.cut()
            await moving
            assert (await run_cell(target, "import hashlib; print(hashlib.sha256(big).hexdigest())")).text == expected
            folder = "import os; print(os.listdir(os.environ['TMPDIR']))"
            assert (await run_cell(source, folder)).text == (await run_cell(target, folder)).text == "[]\n"
            went_through = len(proxy.plain()) + len(other.plain()) - before
            assert (went_through > 30_000_000) == (from_other or not sees_it)


async def _moved_into_no_folder(self, move, name, target):
    ask = GatewayKernel.ask_of_values

    async def elsewhere(kernel, buffers=None, **content):
        if content["op"] == "move":
            content["folder"] += "-of-another-machine"
        return await ask(kernel, buffers, **content)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(GatewayKernel, "ask_of_values", elsewhere)
        moved = await move(self, name, target)
    assert not moved
    return moved
