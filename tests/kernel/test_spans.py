"""Tracing: what a cell's code asks for lies under the cell's span, also where the agent was opened in another one."""

import importlib
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.instrumented import InstrumentationSettings
from support import sdk_mcp_server
from support.agents import cell, read, task
from support.gateways import behind
from support.programs import ROOT

from freeact_sub import Agent, ApprovalDeniedError, ChildRequest, Config, Decision
from freeact_sub.spans import CONVERSATION
from freeact_sub.strategies import vote
from freeact_sub.testing import ScriptedModel, first_prompt

pytestmark = pytest.mark.kernel

CODE = """
import asyncio
await asyncio.gather(agent.task("child"), agent.ask("question"), agent.mcp.demo.add(a=1, b=2))
"""


@pytest.fixture(scope="session")
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
        agents = named(own, "invoke_agent")
        assert sorted(span.name for span in agents) == ["invoke_agent ask", *["invoke_agent freeact-sub"] * 2]
        assert len({span.attributes["gen_ai.agent.id"] for span in agents}) == 2, "the root asks the question"
        cells = [span for span in own if "execute_ipython_cell" in span.name]
        assert len(cells) == 1
        inner = [span for span in named(own, "invoke_agent") if cells[0].name in above(span, own)]
        assert len(inner) == 2
        [mcp] = named(own, "MCP call")
        assert cells[0].name in above(mcp, own)
        [conversation] = {
            span.attributes[CONVERSATION] for span in own if span is not request and "MCP send" not in span.name
        }
        named_call = {"freeact_sub.server": "demo", "freeact_sub.tool": "add"}
        assert dict(mcp.attributes) == named_call | {CONVERSATION: conversation}
        approvals = named(own, "approval")
        assert sorted(span.attributes["freeact_sub.call"] for span in approvals) == ["code", "mcp", "spawn"]
        assert {span.attributes["freeact_sub.decision"] for span in approvals} == {"allowed"}
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


@pytest.mark.slow
async def test_behind_a_gateway_the_tree_is_the_same(gateways, tmp_path, exporter):
    exporter.clear()
    config = Config(workspace=tmp_path, mode="full", kernel=behind(gateways[0]))
    async with Agent(config, model=script([cell("await agent.task('child')")]), capabilities=[Instrumentation()]) as agent:
        await read(agent.run("root"))
    spans = exporter.get_finished_spans()
    [root, child] = sorted(named(spans, "invoke_agent"), key=lambda span: span.start_time)
    assert {span.context.trace_id for span in spans} == {root.context.trace_id}
    assert above(child, spans)[-2:] == ["execute_tool execute_ipython_cell", root.name]
    assert all("invoke_agent" in above(start, spans)[-1] for start in named(spans, "kernel start"))


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


SECRET = "secret-words"
FAILING = f"""
print((await agent.shell("printf %s $TRACEPARENT > parent; exit 3 # {SECRET}", reason="because")).exit_code)
open("{SECRET}.txt", "w").write("{SECRET}")
!touch {SECRET}
raise ValueError("{SECRET}")
"""


async def test_commands_actions_and_cells_tell_how_they_ended_and_nothing_of_what_was_said(tmp_path, exporter):
    exporter.clear()
    model = script([cell(FAILING)], "done")
    config = Config(workspace=tmp_path, mode="ask")
    silent = Instrumentation(settings=InstrumentationSettings(include_content=False))
    async with Agent(config, model=model, capabilities=[silent], session="new") as agent:
        await read(agent.run("root"))
        session = agent.session_id
    spans = exporter.get_finished_spans()
    [ran] = [span for span in spans if "execute_ipython_cell" in span.name]
    assert (ran.attributes["freeact_sub.status"], ran.attributes["error.type"]) == ("error", "ValueError")
    assert ran.status.status_code is StatusCode.ERROR
    [command] = named(spans, "command")
    assert (command.attributes["process.exit.code"], command.attributes["error.type"]) == (3, "3")
    assert command.status.status_code is StatusCode.ERROR
    assert ran.name in above(command, spans)
    trace_id, span_id = (tmp_path / "parent").read_text().split("-")[1:3]
    assert (int(trace_id, 16), int(span_id, 16)) == (command.context.trace_id, command.context.span_id), (
        "a program that is traced itself goes on below it"
    )
    actions = named(spans, "action")
    assert [(span.name, span.attributes["freeact_sub.call"]) for span in actions] == [("action shell", "shell")]
    assert {span.attributes[CONVERSATION] for span in spans if span.name != "kernel start"} == {session}
    assert SECRET not in "".join(span.to_json() for span in spans)


async def test_the_program_of_the_documentation_makes_the_tree_of_its_pictures(tmp_path, exporter, monkeypatch):
    exporter.clear()
    monkeypatch.syspath_prepend(ROOT / "docs")
    await importlib.import_module("make_traces").run(tmp_path)
    spans = exporter.get_finished_spans()
    assert len({span.context.trace_id for span in spans}) == 1
    tools = {
        span.name for span in spans if "execute_tool" in span.name and "execute_tool" not in "".join(above(span, spans))
    }
    assert tools == {"execute_tool execute_ipython_cell", "execute_tool task"}
    below = {span.name for span in spans if above(span, spans)[:1] == ["execute_tool execute_ipython_cell"]}
    assert below >= {"approval spawn", "command", "invoke_agent ask", "invoke_agent freeact-sub"}
    assert {span.attributes["error.type"] for span in spans if "error.type" in span.attributes} == {"1", "AssertionError"}


async def test_a_denied_action_and_a_program_have_spans(tmp_path, exporter):
    exporter.clear()

    async def labels():
        await vote(agent, "child", 2)
        return (await agent.spawn_and_run(ChildRequest(prompt="child"))).output

    config = Config(workspace=tmp_path, mode="ask")
    async with Agent(config, model=script([cell("!touch x")]), capabilities=[Instrumentation()]) as agent:
        await read(agent.run("root"), lambda request: Decision(allowed=request.call.kind != "shell"))
        _, result = await read(agent.run_program(labels))
        assert result.output == "answer"
    spans = exporter.get_finished_spans()
    [action] = named(spans, "action")
    assert action.attributes["error.type"] == ApprovalDeniedError.__name__
    [asked] = named(spans, "approval shell")
    assert asked.attributes["freeact_sub.decision"] == "denied"
    assert above(asked, spans)[0] == action.name
    [program] = named(spans, "invoke_workflow")
    assert program.name == "invoke_workflow labels"
    below = [span for span in named(spans, "invoke_agent") if program.name in above(span, spans)]
    assert sorted(span.name for span in below) == ["invoke_agent ask", "invoke_agent ask", "invoke_agent freeact-sub"], (
        "those of a strategy, and a child"
    )
    assert {span.attributes[CONVERSATION] for span in below} == {program.attributes[CONVERSATION]}
