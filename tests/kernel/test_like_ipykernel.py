"""The same cells put out the same in a stock ipykernel and in ours; the differences stand in docs/kernels.md."""

import re
from collections import defaultdict
from pathlib import Path

import pytest
import pytest_asyncio
from support.elsewhere import CANNOT_FORK
from support.jupyter_cells import CELLS, LATE
from support.kernels import PROVIDERS, no_host, open_kernel, run_cell, spec
from support.stock_kernel import folded, run_in_nbclient, run_in_stock, shapes

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(CANNOT_FORK, reason="forked kernels"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
]

PAGE = Path(__file__).parents[2] / "docs" / "kernels.md"
ROW = re.compile(r"^\| `([^`]+)` \| ([a-z, ]+) \|", re.MULTILINE)
OF_NBCLIENT = {
    "a page or proposed code stands in no notebook": {
        *("pycat", "pinfo", "pinfo function", "pinfo source", "pdoc", "psource", "page", "psearch", "load", "next input")
    },
    "output of an earlier cell is dropped": {"task awaited", "timer awaited"},
    "a later cell replaces the display where it stands": {"display id"},
    "it starts the kernel with another option": {"sys argv"},
}
WAYS = ("fork", "local", "branch")


def in_order(name, shapes):
    """A stock kernel may send what it reads from descriptors before or after what follows."""
    return sorted(shapes, key=str) if name in LATE else shapes


async def run_in_ours(kernel):
    found = {}
    for name, code in CELLS.items():
        ran = await run_cell(kernel, code)
        found[name] = [*shapes(ran.outputs), ("status", ran.status)]
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def found(tmp_path_factory):
    """What each cell puts out, by the way in which it was run."""

    def folder(name):
        return tmp_path_factory.mktemp(name)

    results = {"stock": await run_in_stock(CELLS, folder("stock")), "nbclient": await run_in_nbclient(CELLS, folder("nb"))}
    for name in ("fork", "local"):
        provider = PROVIDERS[name]()
        try:
            async with open_kernel(provider, folder(name)) as kernel:
                results[name] = await run_in_ours(kernel)
            if name == "fork":
                async with open_kernel(provider, folder("origin")) as origin:
                    await run_cell(origin, "None")
                    branch = await origin.branch(spec(origin.spec.workspace), no_host)
                    try:
                        results["branch"] = await run_in_ours(branch)
                    finally:
                        await branch.aclose()
        finally:
            await provider.aclose()
    return results


async def test_differences_from_a_stock_kernel_are_those_of_the_table(found):
    differing = defaultdict(list)
    for name in CELLS:
        for way in WAYS:
            if in_order(name, found[way][name]) != in_order(name, found["stock"][name]):
                differing[name].append(way)
                print(f"{name} ({way})\n  stock {found['stock'][name]}\n  ours  {found[way][name]}")
    documented = {name: ways.split(", ") for name, ways in ROW.findall(PAGE.read_text(encoding="utf-8"))}
    assert {name: list(WAYS) if ways == ["all"] else ways for name, ways in documented.items()} == differing


async def test_nbclient_keeps_the_same_of_a_stock_kernel(found):
    """Which shows that the comparison does not depend on how the messages are read."""
    differing = {}
    for name, shown in found["nbclient"].items():
        if name in LATE:
            continue
        stock = folded(shape for shape in found["stock"][name] if shape[0] != "status")
        if shown != stock:
            differing[name] = (stock, shown)
    print(differing)
    assert set(differing) == set().union(*OF_NBCLIENT.values())
