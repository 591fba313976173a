"""A user's program, which type checkers read; `test_types.py` runs them over it, and nobody runs it."""

import contextlib
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, assert_type

from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ToolCallPart

from freeact_sub import (
    Agent,
    AgentEvent,
    AgentFinished,
    AgentInfo,
    ApprovalRequest,
    Budget,
    Callbacks,
    Changes,
    Child,
    ChildRequest,
    CodeAction,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    Compacted,
    Config,
    Continuation,
    Decision,
    Effects,
    Event,
    FanOut,
    Hook,
    KernelConfig,
    KernelNode,
    LimitReachedError,
    McpServerConfig,
    NoModel,
    QuestionRequest,
    ResponseChunk,
    Rule,
    Run,
    RunResult,
    SessionStore,
    StoredSession,
    SubagentsConfig,
    TaskError,
    UndoReport,
    Usage,
    compare_models,
    dispatch,
    export_session,
    fork_session,
    list_sessions,
    load_config,
    session_events,
)
from freeact_sub.rlm import RLM
from freeact_sub.strategies import (
    LATS,
    BeamSearch,
    Debate,
    Member,
    Mixture,
    ModelPlayer,
    PlanResult,
    SearchResult,
    Vote,
    agent_function,
    debate,
    mixture,
    parallel,
    pipeline,
    plan_and_execute,
    search,
    vote,
)
from freeact_sub.testing import FakeKernelProvider, ScriptedApprover, ScriptedModel


class Report(BaseModel):
    title: str


CONFIGS = [
    Config(workspace="."),
    Config(workspace=Path()),
    Config(kernel={"sandbox": "required", "preload": ["data"]}),
    Config(kernel=KernelConfig(python=Path("/usr/bin/python3"), readable=["/data"], preload=["data"])),
    Config(budget={"requests": 50}),
    Config(budget=Budget(requests=50, cost_usd=0.5)),
    Config(mcp_servers={"a": {"command": "server", "args": ["--quiet"]}}),
    Config(mcp_servers={"a": McpServerConfig(url="http://127.0.0.1:8000/mcp")}),
    Config(fallback_models=["small"], models={"small": "openai-chat:small"}),
    Config(subagents={"max_depth": 2}, permission_files=["rules.toml"], instruction_files=[Path("NOTES.md")]),
    Config(subagents=SubagentsConfig(budget={"turns": 3}, allow_agents=["reader"])),
    Config(mode="auto", headless="deny", model_settings={"temperature": 0.1}),
]
BUDGETS = [Budget(cost_usd="0.50"), Budget(cost_usd=1), Budget(cost_usd=Decimal(1)), Budget(seconds=3, depth=1)]


async def answers() -> None:
    async with Agent(load_config()) as agent:
        assert_type(agent, Agent[str])
        assert_type(agent.run("go"), Run[str])
        result = await agent.run("go").result()
        assert_type(result, RunResult[str])
        assert_type(result.output, str)
        assert_type(result.text, str)
        assert_type(await agent.run("go"), RunResult[str])
        assert_type((await agent.run("go", output=Report)).output.title, str)
        assert_type(result.usage, Usage)
    async with Agent(Config(), output_type=Report) as reporter:
        assert_type(reporter, Agent[Report])
        assert_type((await reporter.run("go").result()).output.title, str)
        async with reporter.run("go") as run:
            assert_type(run, Run[Report])
            async for event in run:
                assert_type(event, Event)
    both = Agent[Report | str](Config(), output_type=[Report, str])
    assert_type((await both.run("go").result()).output, Report | str)
    assert_type(Agent(output_type=int).run_sync("go").output, int)


async def streams(agent: Agent) -> None:
    events: AsyncIterator[Event] = agent.stream("go")
    async for event in events:
        if isinstance(event, ApprovalRequest):
            event.approve()
        elif isinstance(event, AgentFinished):
            assert_type(event.output, str)
    async with contextlib.aclosing(agent.stream("go")) as stream:
        async for event in stream:
            assert_type(event, Event)


async def children(agent: Agent[Report]) -> None:
    assert_type(await agent.task("go"), RunResult[str])
    assert_type(await agent.task("go", output=int, max_turns=3), RunResult[int])
    assert_type((await agent.task("go", output=Report, budget={"turns": 2})).output, Report)
    assert_type((await agent.task("go", output=list[int])).output, list[int])
    assert_type((await agent.task("go", output=Literal["yes", "no"])).output, Any)
    assert_type(await agent.spawn("go"), Child)
    node: KernelNode | None = (await agent.spawn_and_run(ChildRequest(prompt="go", keep=True))).node
    if node is not None:
        await agent.adopt(node)

    async def program() -> list[int]:
        assert_type(await agent.ask("go"), str)
        assert_type(await agent.ask("go", output=Report), Report)
        return [await agent.ask("go", output=int, history=["one", "two"])]

    assert_type((await agent.run_program(program).result()).output, list[int])


async def values_in_and_out(agent: Agent, frame: object) -> None:
    assert_type(agent.run("go", inputs={"frame": frame}), Run[str])
    assert_type(agent.run("go", output=Report), Run[Report])
    assert_type(agent.run(["what is it?", Path("a.png")]), Run[str])
    assert_type((await agent.run("go", output=list[int]).result()).output, list[int])
    assert_type(await agent.get("n", output=int), int)
    await agent.put(frame=frame, n=1)
    assert_type((await agent.execute("n")).text, str)


def price(item: str) -> float:
    return len(item)


OWN_TOOLS = [Agent(tools=[price], deps=3, models={"small": "openai-chat:small"})]


def policy(request: ApprovalRequest) -> Decision | bool | None:
    if isinstance(request.call, CodeAction):
        return Decision(allowed=True, remember="session")
    return False if isinstance(request.call, FanOut) else None


async def slow_policy(request: ApprovalRequest) -> bool:
    effects: Effects = await request.effects_ready()
    return not effects.files


def answer(event: dict[str, Any]) -> None:
    print(event)


def keep(event: Event) -> None:
    print(event.seq)


def keep_any(event: AgentEvent) -> None:
    print(event.seq)


def parts(store: SessionStore, events: list[Event], history: list[ModelMessage]) -> None:
    Agent(Config(), taps=[events.append, keep, keep_any, print], approve=policy, store=store, session="new")
    Agent(approve=slow_policy, hooks=[Hook("PreToolUse", answer)], history=history)
    Agent(model=ScriptedModel([ToolCallPart("f", {}), "ok"]), kernel_provider=FakeKernelProvider())
    Agent(model=NoModel(), output_type=Report, model_settings={"temperature": 0})
    assert_type(Agent.resume("20261122-1754-9f3a1c", at=1), Agent[str])


async def questions(run: Run[str]) -> None:
    async for event in run:
        match event:
            case ApprovalRequest():
                event.approve(remember="session", pattern="shell:git *")
                event.approve(code="1", model="small")
                event.deny("no")
                event.decide(Decision(allowed=False, reason="no"))
            case QuestionRequest():
                event.answer("yes")
                event.answer({"name": 1})
                event.skip()
            case ResponseChunk() | CodeExecutionOutputChunk() | CodeExecutionOutput():
                assert_type(event.text, str)
    run.answer("approval-1", Decision(allowed=True))
    assert_type(run.send("faster"), bool)
    assert_type(await ScriptedApprover().drive(run), Any)


async def of_an_agent(agent: Agent, frame: object) -> None:
    assert_type(agent.history, list[ModelMessage])
    assert_type(agent.agents(), tuple[AgentInfo, ...])
    assert_type(agent.allowed, tuple[Rule, ...])
    agent.mode = "auto"
    agent.keep_undo()
    assert_type(await agent.undo(), UndoReport)
    assert_type(await agent.diff(), str)
    assert_type(await agent.effects(), Effects)
    assert_type(await agent.compact("names"), Compacted | None)
    assert_type(await agent.fork(), str)
    assert_type(await agent.variables(), dict[str, str])
    assert_type(agent.run_cell("1"), Run[str])
    agent.follow_background(keep)
    agent.run([agent.skill("csv"), "go"], pictures=())
    node = await agent.branch("copy", own_files=True)
    async with node:
        assert_type((await node.execute("1")).status == "ok", bool)
        await node.execute_asked("1")
        assert_type(await agent.promote(node), Changes)
        child = await agent.task("go", branch_of=node, history="all", inputs={"frame": frame}, check="answer > 1")
        assert_type(child.output, str)
    await agent.run_parallel(["one", ChildRequest(prompt="two")])
    try:
        await agent.task("go")
    except TaskError as error:
        print(error.result.text)
    except LimitReachedError as limit:
        print(limit.bound)


async def with_strategies(agent: Agent[Report]) -> None:
    async def worked() -> Debate:
        assert_type(await vote(agent, "How many?", 5, output=int), Vote)
        assert_type(await mixture(agent, "Why?", [Member(name="a"), "small"]), Mixture)
        assert_type(await plan_and_execute(agent, "Do it."), PlanResult)
        await parallel([lambda: agent.ask("a"), lambda: agent.ask("b")])
        await pipeline(["begin"], agent.ask, agent.ask)
        async with await agent.branch("data") as data:
            found = await search(agent, "Find it.", tree=LATS(), root=data)
            assert_type(found, SearchResult)
            await search(agent, "Find it.", tree=BeamSearch(), player=ModelPlayer(agent, "Find it."))
        return await debate(agent, "Is it prime?", judge=Member(name="judge"))

    assert_type((await agent.run_program(worked, budget=Budget(tokens=50_000))).output, Debate)

    @agent_function(agent, budget={"turns": 3})
    async def outliers(values: list[float]) -> list[int]:
        """The positions of outliers."""
        raise NotImplementedError

    assert_type(await outliers([1.0]), list[int])


async def sessions() -> None:
    assert_type(list_sessions(), list[StoredSession])
    await fork_session("20261122-1754-9f3a1c", 1)
    for event in session_events("20261122-1754-9f3a1c"):
        keep(event)
    assert_type(export_session("20261122-1754-9f3a1c", "html"), str)
    assert_type(await compare_models("20261122-1754-9f3a1c", ["small"]), list[Continuation])
    assert_type(RLM(model="small").completion("text", "?").response, str)


async def questions_of_rows(agent: Agent, frame: object) -> None:
    await agent.run_program(lambda: agent.map(frame, "Is {name} red?", output=Report))
    await agent.run_program(lambda: agent.ask_many(["one", "two"], output=int))


async def called(agent: Agent) -> None:
    await dispatch(
        agent.run("go"), Callbacks(on_text=lambda event: print(event.text), on_approval=lambda event: event.approve())
    )
