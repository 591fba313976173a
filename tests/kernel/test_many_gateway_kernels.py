"""Many kernels at once over two gateways: 200 with `THOROUGH=1`, else a few, which share the gateways of other tests."""

import asyncio
import sys
from contextlib import ExitStack

import pytest
from support.agents import cell, of_kind, read, root_text
from support.gateways import SETTINGS, behind, serve
from support.thorough import THOROUGH
from support.waiting import until_there

from freeact_sub import Agent, Config
from freeact_sub.cli.serving import install_kernelspec
from freeact_sub.events import AgentFinished, CodeExecutionOutput, CodeExecutionOutputChunk
from freeact_sub.kernels.gateway.server import live
from freeact_sub.testing import ScriptedModel, first_prompt

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(1800)]
CHILDREN = 100 if THOROUGH else 3  # of each of two agents


@pytest.fixture
def two_gateways(request, tmp_path):
    """Where 200 are to be alive, they are forked: they share memory."""
    if not THOROUGH:
        yield request.getfixturevalue("gateways"), {}
        return
    install_kernelspec(tmp_path, sys.executable)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(serve("gateway", tmp_path / name, *SETTINGS, JUPYTER_PATH=str(tmp_path))) for name in "ab"
        ]
        yield servers, {"kernel": "freeact"}


async def test_of_many_kernels_alive_at_once_no_output_ending_or_cost_is_lost(two_gateways, tmp_path):
    servers, settings = two_gateways
    go_on = tmp_path / "go on"
    root = f"""
import asyncio
results = await asyncio.gather(*(agent.task(f"child {{n}}.") for n in range({CHILDREN})))
print(sum(r.output == f"answer {{n}}" for n, r in enumerate(results)), {{r.status for r in results}})
"""
    wait = f"""
print("alive", flush=True)
{until_there(go_on)}
print("value", {{n}} ** 2)
"""

    def script(messages, info):
        prompt = first_prompt(messages)
        if prompt == "root":
            return [cell(root)] if len(messages) == 1 else "done"
        n = int(prompt.partition("child ")[2].partition(".")[0])
        return [cell(wait.format(n=n))] if len(messages) == 1 else f"answer {n}"

    alive, at_once = set(), []

    def on_event(event):
        if isinstance(event, CodeExecutionOutputChunk) and event.depth:
            alive.add(event.agent_id)
            if len(alive) == 2 * CHILDREN and not at_once:
                at_once.extend(live[server.url] for server in servers)
                go_on.touch()

    more = {"start_timeout_seconds": 900, "cell_timeout_seconds": None, "max_live": 500}
    kernel = behind(*servers, **settings).model_copy(update=more)
    config = Config(workspace=tmp_path, mode="full", kernel=kernel, subagents={"max_concurrent": CHILDREN})

    async def run():
        model = ScriptedModel(script)
        async with Agent(config, model=model) as agent:
            events, result = await read(agent.run("root"), on_event=on_event)
        assert result.status == "completed"
        assert f"{CHILDREN} {{'completed'}}" in root_text(events)
        told = {event.agent_id: event.text.split()[-1] for event in of_kind(events, CodeExecutionOutput) if event.depth}
        assert sorted(map(int, told.values())) == [n**2 for n in range(CHILDREN)]
        endings = [event.status for event in of_kind(events, AgentFinished) if event.depth]
        assert endings == ["completed"] * CHILDREN
        assert result.tree_usage.turns == model.requests == 2 + 2 * CHILDREN

    await asyncio.gather(run(), run())
    assert sum(at_once) == 2 * (CHILDREN + 1)
    assert abs(at_once[0] - at_once[1]) <= 2
    assert not any(live[server.url] for server in servers)
