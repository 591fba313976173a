"""Features: the core runs without one, a user's own takes part, and one that fails harms nobody."""

import asyncio
import logging
import subprocess
import sys
from dataclasses import replace

import pytest
from pydantic_ai.messages import ToolCallPart
from support.agents import of_kind, read
from support.providers import installed
from support.tables import each

from freeact_sub import (
    Advice,
    Adviser,
    AgentFinished,
    AgentStarted,
    ApprovalDeniedError,
    ApprovalRequest,
    CodeAction,
    ConfigError,
    EndedCall,
    Feature,
    FreeactError,
    Hook,
    InvalidRequestError,
    Notice,
    RunPart,
    SpawnForbiddenError,
    ToolCall,
    ToolOutput,
    default_features,
)
from freeact_sub.agents.feature import KernelFeature, KernelPart
from freeact_sub.channel import hearing
from freeact_sub.config.entry_points import FEATURES
from freeact_sub.config.schema import McpServerConfig
from freeact_sub.features.skills.skill import HEAD

CELL = ToolCallPart("execute_ipython_cell", {"code": "print(1)"})

BARE = """
import asyncio, sys
from pathlib import Path
from pydantic_ai.messages import ToolCallPart
from freeact_sub import Agent, ApprovalRequest, Config
from freeact_sub.testing import FakeKernelProvider, ScriptedModel

def script(messages, info):
    child = "child" in str(messages[0].parts[-1].content)
    cell = ToolCallPart("execute_ipython_cell", {"code": "print(6 * 7)"})
    task = ToolCallPart("task", {"prompt": "child", "description": "a child"})
    return ([cell, "done"] if child else [cell, task, "done"])[len(messages) // 2]

async def main():
    asked = 0
    config, features = Config(workspace=Path(sys.argv[1])), () if sys.argv[2] == "bare" else None
    async with Agent(config, model=ScriptedModel(script), kernel_provider=FakeKernelProvider(), features=features) as agent:
        async with agent.run("root") as run:
            async for event in run:
                if isinstance(event, ApprovalRequest):
                    asked += event.approve() or 1
            result = await run.result()
    assert (result.status, asked, result.receipts is None) == ("completed", 3, features == ()), (result, asked)
    print(*[name for name in sys.modules if name.startswith(tuple(sys.argv[3:]))])

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("features", "not_imported"),
    [
        ("bare", ["freeact_sub.features."]),
        ("default", ["freeact_sub.mcp.", "freeact_sub.features.mcp_client.toolset", "mcp."]),
    ],
    ids=["an agent without features imports none", "an agent without MCP servers imports nothing of them"],
)
def test_an_agent_imports_only_what_it_uses(tmp_path, features, not_imported):
    program = [sys.executable, "-c", BARE, tmp_path, features, *not_imported]
    ended = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (ended.stdout.strip(), ended.stderr) == ("", "")


class Audit(Feature):
    """A user's feature: tells of each call around it, denies one, and has its say on the answer."""

    def __init__(self):
        self.told = []

    def attach(self, root):
        return [hearing(lambda event: self.told.append(f"finished {event.status}"), AgentFinished)]

    def run(self, agent):
        return AuditOfRun(self.told)


class AuditOfRun(RunPart):
    def __init__(self, told):
        self._told = told

    async def opening(self, said, *, is_prompt):
        self._told.append(f"opening {said}" if is_prompt else f"message {said}")
        return "Be brief."

    async def call(self, call, proceed):
        self._told.append(f"begins {call.name}")
        ended = await proceed()
        self._told.append(f"ended {ended.outcome}")
        return ended.noted("[it was audited]")

    async def answer(self, text):
        self._told.append(f"answer {text}")
        return "" if self._told.count(f"answer {text}") > 1 else "Are you sure?"

    def ended(self, result):
        self._told.append(f"ended {result.status}")


async def test_a_users_feature_takes_part(make):
    audit, read = Audit(), []

    def script(messages, info):
        read.append(str(messages[-1].parts))
        return [CELL, "done", "done"][len(messages) // 2]

    async with make(script, config={"mode": "full"}, features=[*default_features(), audit]) as agent:
        assert (await agent.run("root").result()).output == "done"
    assert audit.told == [
        "opening root",
        "begins execute_ipython_cell",
        "ended success",
        "answer done",
        "answer done",
        "ended completed",
        "finished completed",
    ]
    assert ["Be brief." in read[0], "[it was audited]" in read[1], "Are you sure?" in read[2]] == [True] * 3


class Broken(Feature):
    def run(self, agent):
        return BrokenPart()


class BrokenPart(RunPart):
    async def closing(self, ending, kernel):
        raise ValueError("closing")

    def facts(self, ending):
        raise ValueError("facts")

    def ended(self, result):
        raise ValueError("ended")


async def test_a_feature_that_fails_at_the_end_costs_no_answer(make):
    async with make(["done"], features=[Broken(), *default_features()]) as agent:
        result = await agent.run("root").result()
    assert (result.status, result.output, result.receipts.nothing_was_run) == ("completed", "done", True)


class Careful(Feature):
    """Lets no child write, and starts none with a forbidden word."""

    def __init__(self):
        self.started = []

    def run(self, agent):
        return CarefulPart(self.started)


class CarefulPart(RunPart):
    def __init__(self, started):
        self.started = started

    async def child(self, child, proceed):
        if "forbidden" in child.request.prompt:
            raise SpawnForbiddenError("that word is forbidden")
        started = await proceed(replace(child, request=child.request.replace(mode="plan", description="careful")))
        self.started.append((child.request.prompt, child.by, child.waits))
        return started


async def test_a_feature_changes_and_refuses_children_whoever_starts_them(make):
    calls = [ToolCallPart("task", {"prompt": prompt}) for prompt in ("one", "forbidden")]
    background = ToolCallPart("task", {"prompt": "two", "background": True})
    script = {"root": [calls, background, ToolCallPart("subagents", {"action": "wait"}), "done"]}
    careful = Careful()
    async with make(script, config={"headless": "allow"}, features=[*default_features(), careful]) as agent:
        events, result = await read(agent.run("root"))
        assert result.status == "completed", result.error
        started = {event.prompt: (event.mode, event.description) for event in of_kind(events, AgentStarted)}
        assert started == {"root": ("ask", ""), "one": ("plan", "careful"), "two": ("plan", "careful")}
        assert any("that word is forbidden" in event.content for event in of_kind(events, ToolOutput))
        with pytest.raises(SpawnForbiddenError, match="that word is forbidden"):
            await agent.spawn("forbidden")
        assert (await agent.spawn_and_run("three")).status == "completed"
    assert careful.started == [("one", "model", True), ("two", "model", False), ("three", "program", True)]


async def test_a_method_of_a_missing_feature_names_it(make):
    async with make(["done"], features=()) as agent:
        with pytest.raises(FreeactError, match="this agent has no undo"):
            await agent.undo()


def part_of(**methods):
    """A feature whose parts have these methods."""
    part = type("Part", (RunPart,), methods)
    return type("Mine", (Feature,), {"run": lambda _self, _agent: part()})()


async def test_each_part_has_a_bound_of_its_own_at_the_end(make, caplog):
    closed = []

    async def hang(self, ending, kernel):
        await asyncio.Event().wait()

    async def close(self, ending, kernel):
        closed.append(ending.status)

    slow = part_of(closing=hang, closing_seconds=0.05)
    with caplog.at_level(logging.ERROR):
        async with make(["done"], features=[slow, part_of(closing=close)]) as agent:
            result = await agent.run("root").result()
    assert (result.status, closed) == ("completed", ["completed"])
    assert "closing of a feature failed: Part" in caplog.text


async def test_an_adviser_denies_asks_and_answers(make):
    class Says(Adviser):
        source = "my company"

        def __init__(self, verdict):
            self.verdict = verdict

        def hears(self, call):
            return isinstance(call, CodeAction)

        async def before(self, call):
            return Advice(verdict=self.verdict, reason="of the night")

    seen = {}
    for mode, verdict in (("full", "deny"), ("full", "ask"), ("ask", "allow")):
        says = Says(verdict)
        feature = part_of(advisers=lambda _self, _asker, says=says: [says])
        asked = []
        async with make([CELL, "done"], config={"mode": mode}, features=[feature]) as agent, agent.run("root") as run:
            async for event in run:
                if isinstance(event, ApprovalRequest) and not event.headless:
                    asked.append(event.reason)
                    event.approve()
        seen[verdict] = (asked, agent.provider.kernels[0].cells)
    assert seen == {"deny": ([], 0), "ask": (["my company asks: of the night"], 1), "allow": ([], 1)}


async def test_a_feature_reads_what_is_said_before_the_model(make):
    """It adds to the prompt, and a message that it refuses is not read."""
    read, release = [], asyncio.Event()

    async def opening(self, said, *, is_prompt):
        if said == "secret":
            raise ApprovalDeniedError("this is secret")
        return f"[{'prompt' if is_prompt else 'message'} seen]"

    async def tool() -> str:
        run.send("secret")
        run.send("and be quick")
        release.set()
        return "ok"

    def script(messages, info):
        read.append(str(messages[-1].parts))
        return [ToolCallPart("tool", {}), "done"][len(messages) // 2]

    notices = []
    agent = make(script, config={"mode": "full"}, features=[part_of(opening=opening)], tools=[tool])
    async with agent, agent.run("root") as run:
        async for event in run:
            if isinstance(event, Notice):
                notices.append(event.content)
            elif isinstance(event, ApprovalRequest):
                event.approve()
        assert (await run.result()).output == "done"
    assert "[prompt seen]" in read[0]
    assert ("and be quick" in read[1], "[message seen]" in read[1], "secret" in read[1]) == (True, True, False)
    assert notices == ["this is secret"]


def test_an_object_belongs_to_one_agent(make):
    feature = Audit()
    make(["done"], features=[feature])
    with pytest.raises(InvalidRequestError, match="this Audit belongs to another agent: make a new one for each Agent"):
        make(["done"], features=[feature])


WRONG = type("Wrong", (Feature,), {"run": lambda *_: object()})
"""Its objects belong to one agent each, so each test makes one."""


@each(
    ("options", "problem"),
    [
        ({"features": [Audit]}, "features: the class Audit is no Feature"),
        ({"features": [print]}, "features: a builtin_function_or_method is no Feature"),
        ({"features": [], "hooks": [Hook("Stop", print)]}, r"hooks: leave it out.*default_features\(hooks\)"),
        ({"features": [], "session": "new"}, "session: nothing records it.*`features` has no `sessions`"),
        ({"features": [WRONG]}, "Wrong.run returned a object"),
    ],
)
def test_wrong_features_are_refused_by_name(make, options, problem):
    features = [each() if each is WRONG else each for each in options["features"]]
    with pytest.raises(InvalidRequestError, match=problem):
        make(["done"], **{**options, "features": features})


async def test_a_feature_reads_the_conversation_and_tells_the_model_something(make):
    """It changes the prompt, adds to the system prompt, and says something between two requests."""
    read, told = [], []

    class Tells(Feature):
        def instructions(self, agent):
            return f"- You are at depth {agent.depth}."

        def run(self, agent):
            return TellsOfRun(agent.run)

    class TellsOfRun(RunPart):
        def __init__(self, run):
            self.run = run

        async def opening(self, said, *, is_prompt):
            self.run.prompt = [*self.run.prompt, "Please."]
            told.append(self.run.tell("too early"))
            return ""

        async def call(self, call, proceed):
            told.append(self.run.tell("A cell has run."))
            told.append([message.kind for message in self.run.conversation])
            return await proceed()

        def ended(self, result):
            told.append(self.run.tell("too late"))

    def script(messages, info):
        read.append((info.instructions, str(messages[-1].parts)))
        return [CELL, "done"][len(messages) // 2]

    async with make(script, config={"mode": "full"}, features=[*default_features(), Tells()]) as agent:
        assert (await agent.run("root").result()).output == "done"
    assert told == [None, True, ["request", "response", "request"], False]
    assert "\n- You are at depth 0.\n- A call may be denied" in read[0][0]
    assert "root\\n\\nPlease." in read[0][1]
    assert ["A cell has run." in said for _, said in read] == [False, True]


MODULE = """
from freeact_sub import Feature

class Counts(Feature):
    name = "counts"

def fails():
    raise ValueError("no licence")
"""


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("counts = other_kernels:Counts", ""),
        ("counts = other_kernels:Gone", "the feature `counts` cannot be loaded from `other_kernels:Gone`: AttributeError"),
        ("counts = nowhere:Counts", "the feature `counts` cannot be loaded from `nowhere:Counts`: ModuleNotFoundError"),
        ("counts = other_kernels:fails", "the feature `counts` cannot be made: ValueError: no licence"),
        ("counts = builtins:dict", "the feature `counts` cannot be made: its entry point makes a dict, and no Feature"),
    ],
)
async def test_a_package_gives_all_agents_its_features(make, tmp_path, entry, problem):
    with installed(tmp_path / "site", entry, group=FEATURES.name, module=MODULE):
        if problem:
            with pytest.raises(ConfigError, match=problem):
                default_features()
            return
        async with make(["done"], features=default_features()) as agent:
            assert (await agent.run("root")).output == "done"
            features = [type(feature).__name__ for feature in agent.debug.root.shared.features]
        make(["done"], features=())
    assert features == [*(type(feature).__name__ for feature in default_features()), "Counts"], "behind ours"


async def test_a_bare_agent_has_no_tools_of_features_and_says_what_it_lacks(make):
    seen = []

    def script(messages, info):
        seen.append(([tool.name for tool in info.function_tools], HEAD in info.instructions, "MCP" in info.instructions))
        return "done"

    server = McpServerConfig(command="/no/such/program")
    async with make(script, config={"mcp_servers": {"a": server}}, features=()) as agent:
        events, _ = await read(agent.run("root"))
        assert not of_kind(events, Notice)
        with pytest.raises(FreeactError, match="this agent has no skills: it was made without that feature"):
            agent.skill("x")
        with pytest.raises(FreeactError, match="this agent has no MCP servers: it was made without that feature"):
            _ = agent.servers
        with pytest.raises(FreeactError, match="this agent has no sessions: it was made without that feature"):
            _ = agent.sessions
        with pytest.raises(FreeactError, match="this agent has no sessions: it was made without that feature"):
            await agent.fork()
        assert (agent.session_id, agent.is_kept) == (None, False)
        agent.mode = "plan"
        kernel = agent.provider.kernels[0]
        assert kernel.spec.mcp_servers == ()
        for method in ("skill", "ask_user", "children", "mcp_tools"):
            with pytest.raises(FreeactError, match=f"unknown request '{method}': this agent has no feature that answers it"):
                await kernel.ask_host(method)
    assert seen == [(["execute_ipython_cell", "reset_kernel", "ask", "task", "delegate"], False, False)]


class Beside(KernelFeature):
    """Keeps something beside each kernel, with a tool for the model and a request for code."""

    def __init__(self):
        self.parts = []

    def kernel_part(self, agent, kernel):
        self.parts.append(BesidePart(agent))
        return self.parts[-1]


class BesidePart(KernelPart):
    def __init__(self, holder):
        self.holders, self.closed = [holder.label], 0

    def assign(self, holder):
        self.holders.append(holder.label)

    def requests(self, calls):
        async def answer(params, clock):
            ended = EndedCall(value=calls.agent.label, text="", outcome="success")
            return await calls.carry_out(
                "look", ToolCall(tool_name="look", args={}, harmless=True), {}, clock, ended_later(ended)
            )

        return {"look": answer}

    async def aclose(self):
        self.closed += 1
        raise ValueError("it is not closed well")


def ended_later(ended):
    async def work():
        return ended

    return work


async def test_a_part_beside_a_kernel_changes_hands_with_it_and_is_closed_once(make, caplog):
    beside = Beside()
    async with make(lambda messages, info: "answer", config={"mode": "full"}, features=[Beside(), beside]) as agent:
        kept = await agent.task("keeps", keep=True)
        child = kept.agent_id

        async def program():
            looks = []
            for _ in range(2):  # by the node, then by the one that has taken its place
                looks.append(await agent.provider.kernels[-1].ask_host("look"))
                again = await agent.task("on", resume=child)
            branch = await again.node.branch()
            await branch.close()
            await again.node.close()
            return looks

        looks = (await agent.run_program(program)).output
        assert looks == [f"node {child}"] * 2
    holders = [part.holders for part in beside.parts]
    assert holders[:2] == [[agent.agent_id], [child, f"node {child}"] * 3]
    assert (len(holders), *{part.closed for part in beside.parts}) == (3, 1)
    assert "closing an agent's kernel failed" in caplog.text
