"""Kernels that only run cells: what a provider of another package must write, and what its agents then cannot do."""

import pytest
from support.agents import cell

from freeact_sub import ChildRequest
from freeact_sub.errors import InvalidRequestError, KernelBranchError, KernelError, KernelSnapshotError
from freeact_sub.events import CodeExecutionOutput
from freeact_sub.kernels import BranchingKernel, branching, own_files_of
from freeact_sub.testing import FakeKernel, FakeKernelProvider


class PlainKernel:
    """Has what `Kernel` has, and nothing of `BranchingKernel`."""

    def __init__(self, spec, handler):
        self._kernel = FakeKernel(spec, handler)
        self.execute, self.interrupt = self._kernel.execute, self._kernel.interrupt
        self.wait_lost, self.ask_about, self.aclose = self._kernel.wait_lost, self._kernel.ask_about, self._kernel.aclose
        self.unread, self.scratch, self.may_be_replaced = "", None, True

    @property
    def lost_reason(self):
        return self._kernel.lost_reason


class PlainProvider(FakeKernelProvider):
    async def start(self, spec, handler):
        self.kernels.append(PlainKernel(spec, handler))
        return self.kernels[-1]


async def test_an_agent_runs_cells_in_a_kernel_that_cannot_be_branched(make):
    async with make(
        [[cell("1 + 1")], "done"], config={"mode": "full"}, kernel_provider=PlainProvider(), session="new"
    ) as agent:
        events = [event async for event in agent.stream("count")]
        with pytest.raises(KernelBranchError, match="PlainKernel can neither be branched nor have its variables saved"):
            await agent.branch()
        child = await agent.spawn_and_run(ChildRequest(prompt="x", branch=True))
    assert [event.text.strip() for event in events if isinstance(event, CodeExecutionOutput)] == ["2"]
    assert (child.status, "neither be branched" in child.error) == ("failed", True)


def test_abilities_of_a_kernel_are_known_by_its_members():
    plain, fake = PlainKernel(None, None), FakeKernel(None, None)
    assert branching(fake) is fake
    assert isinstance(fake, BranchingKernel)
    assert own_files_of(plain) is None
    with pytest.raises(KernelSnapshotError):
        branching(plain, KernelSnapshotError)


@pytest.mark.parametrize("scratch", [None, "shared"])
async def test_values_in_a_kernel_without_our_package_say_what_it_lacks(make, tmp_path, scratch):
    async with make(["done"], config={"mode": "full"}, kernel_provider=PlainProvider()) as agent:
        assert (await agent.execute("a = 5; print(a)")).text == "5"
        if scratch is not None:
            folder = tmp_path / scratch
            folder.mkdir()
            agent.provider.kernels[0].scratch = folder
        for call in (lambda: agent.put(a=1), lambda: agent.get("a"), lambda: agent.get("a", trust=True), agent.variables):
            with pytest.raises(KernelError, match=r"this kernel exchanges no values .*freeact_sub\.kernels\.guest"):
                await call()
        assert "this kernel exchanges no values" in (await agent.run("x", inputs={"a": 1})).error
        with pytest.raises(InvalidRequestError, match="my var"):
            await agent.put(**{"my var": 1})
