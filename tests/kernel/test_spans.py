"""Tracing: what a cell's code asks for lies under the cell's span, also where the agent was opened in another one."""

import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.messages import ModelResponse
from support import sdk_mcp_server
from support.agents import cell, read, task

from freeact_sub import Agent, Config
from freeact_sub.testing import ScriptedModel, first_prompt

CODE = """
import asyncio
await asyncio.gather(agent.task("child"), agent.ask("question"), agent.mcp.demo.add(a=1, b=2))
"""


@pytest.fixture(scope="module")
def exporter():
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)  # once in a process
    return exporter


def script(*turns):
    def turn(messages, info):
        if "root" not in first_prompt(messages):
            return "answer"
        number = sum(isinstance(message, ModelResponse) for message in messages)
        return turns[number % (len(turns) + 1)] if number % (len(turns) + 1) < len(turns) else "done"

    return ScriptedModel(turn)


def above(span, spans):
    """The names of the spans around one, from the inside."""
    by_id = {span.context.span_id: span for span in spans}
    names = []
    while span.parent is not None and span.parent.span_id in by_id:
        span = by_id[span.parent.span_id]
        names.append(span.name)
    return names


def named(spans, words):
    return [span for span in spans if words in span.name]


async def test_what_code_asks_for_lies_under_its_cell_in_each_run_of_a_long_lived_agent(tmp_path, exporter):
    server = {"command": sys.executable, "args": (sdk_mcp_server.__file__,)}
    config = Config(workspace=tmp_path, mcp_servers={"demo": server})
    tracer = trace.get_tracer("test")
    exporter.clear()
    with tracer.start_as_current_span("opening"):
        agent = Agent(config, model=script([cell(CODE)]), capabilities=[Instrumentation()])
        await agent.open()
    try:
        for name in ("first request", "second request"):
            with tracer.start_as_current_span(name):
                _, result = await read(agent.run("root"))
            assert result.status == "completed"
    finally:
        await agent.aclose()
    spans = exporter.get_finished_spans()
    for name in ("first request", "second request"):
        [request] = named(spans, name)
        own = [span for span in spans if span.context.trace_id == request.context.trace_id]
        assert len(named(own, "invoke_agent")) == 3, "the root, the child, and the question"
        cells = [span for span in own if "execute_ipython_cell" in span.name]
        assert len(cells) == 1
        inner = [span for span in named(own, "invoke_agent") if cells[0].name in above(span, own)]
        assert len(inner) == 2
        [mcp] = named(own, "MCP call")
        assert cells[0].name in above(mcp, own)
        assert dict(mcp.attributes) == {"freeact_sub.server": "demo", "freeact_sub.tool": "add"}
        approvals = named(own, "approval")
        assert sorted(span.attributes["freeact_sub.call"] for span in approvals) == ["code", "mcp", "spawn"]
        assert all(name in above(span, own) for span in approvals)
        starts = named(own, "kernel start")
        assert starts, "the child's kernel"
        assert all(cells[0].name in above(span, own) for span in starts if not span.attributes["freeact_sub.branch"])
    [opening] = named(spans, "opening")
    assert "kernel start" in {span.name for span in spans if span.context.trace_id == opening.context.trace_id}, (
        "of the root, which is opened with it"
    )


async def test_children_of_the_task_tool_lie_under_their_call(tmp_path, exporter):
    exporter.clear()
    config = Config(workspace=tmp_path, mode="full")
    async with Agent(config, model=script([task("child")]), capabilities=[Instrumentation()]) as agent:
        with trace.get_tracer("test").start_as_current_span("request"):
            await read(agent.run("root"))
    spans = exporter.get_finished_spans()
    child = min(named(spans, "invoke_agent"), key=lambda span: span.end_time)
    assert any("task" in name for name in above(child, spans))
    assert above(child, spans)[-1] == "request"


@pytest.mark.parametrize("branched", [False, True])
async def test_a_kernel_that_starts_before_any_span_lies_where_it_is_first_used(branched, tmp_path, exporter):
    exporter.clear()
    config = Config(workspace=tmp_path, mode="full")
    turns = [[cell("1 + 1")], task("child", branch=True)] if branched else [[cell("1 + 1")]]
    async with Agent(config, model=script(*turns), capabilities=[Instrumentation()]) as agent:
        for _ in range(2):
            await read(agent.run("root"))
    spans = exporter.get_finished_spans()
    starts = named(spans, "kernel start")
    assert len(starts) == (3 if branched else 1)
    for start in starts:
        assert any("invoke_agent" in name for name in above(start, spans))
        assert start.start_time < start.end_time


async def test_a_kernel_that_is_started_again_lies_in_the_run_that_lost_it(tmp_path, exporter):
    exporter.clear()
    config = Config(workspace=tmp_path, mode="full")
    died = [cell("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")]
    async with Agent(config, model=script(died, [cell("1")]), capabilities=[Instrumentation()]) as agent:
        await read(agent.run("root"))
    spans = exporter.get_finished_spans()
    starts = named(spans, "kernel start")
    assert len(starts) == 2
    assert all(any("invoke_agent" in name for name in above(start, spans)) for start in starts)
