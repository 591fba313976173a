"""What a named type does to the agents that have it."""

import re

import pytest
from pydantic_ai import FunctionToolset
from pydantic_ai.messages import ToolCallPart
from support.agents import cell, finished, of_kind, read, task

from freeact_sub import Config
from freeact_sub.config.schema import McpServerConfig
from freeact_sub.errors import SpawnForbiddenError
from freeact_sub.events import AgentFinished, AgentStarted, Notice, ToolOutput
from freeact_sub.features.agent_types import load_agent_types
from freeact_sub.testing import first_prompt

pytestmark = pytest.mark.features("agent_types")


@pytest.fixture
def types(tmp_path):
    """Writes types into the workspace; returns the settings that find them."""

    def write(**texts):
        folder = tmp_path / "types"
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            head, _, body = text.partition("|")
            (folder / f"{name}.md").write_text(f"---\ndescription: About {name}.\n{head.strip()}\n---\n{body}")
        return {"agent_folders": (folder,), "headless": "allow"}

    return write


class Recorder:
    """A script that notes what each agent was told and offered."""

    def __init__(self, turns):
        self.turns = turns
        self.instructions = {}
        self.tools = {}

    def __call__(self, messages, info):
        prompt = first_prompt(messages).split("\n")[0]
        self.instructions[prompt] = info.instructions or ""
        self.tools[prompt] = {tool.name for tool in info.function_tools}
        turns = next((turns for key, turns in self.turns.items() if prompt.startswith(key)), ["done"])
        done = sum(message.kind == "response" for message in messages)
        return turns[done] if done < len(turns) else "done"


@pytest.mark.features("background", "memory", "plan", "questions")
async def test_a_child_of_a_type_has_its_prompt_and_tools_and_its_parent_is_told_of_types(make, types):
    config = types(
        reader="mode: plan\ntools: {deny: [reset_kernel]}|Read only.",
        writer="tools: {allow: [execute_ipython_cell]}|Write.",
        broken="modle: x|",
    )
    script = Recorder({"root": [[task("read it", agent="reader"), task("write it", agent="writer")], "done"]})
    async with make(script, config=config) as agent:
        events, result = await read(agent.run("root"))
    assert result.status == "completed"
    assert "- reader: About reader.\n  - writer: About writer." in script.instructions["root"]
    assert "About reader" not in script.instructions["read it"]
    assert script.instructions["read it"].endswith("Read only.")
    spawning = {"delegate", "subagents", "task"}
    assert (
        script.tools["root"]
        == {"ask", "ask_user", "execute_ipython_cell", "remember", "reset_kernel", "update_plan"} | spawning
    )
    assert script.tools["read it"] == {"ask", "ask_user", "execute_ipython_cell", "remember", "update_plan"}
    assert script.tools["write it"] == {"execute_ipython_cell"}
    [notice] = of_kind(events, Notice)
    file = config["agent_folders"][0] / "broken.md"
    assert notice.content.startswith(f"{file}, line 3: `modle`: there is no setting 'modle': did you mean 'mode'?; ")


async def test_a_type_that_there_is_not_and_one_that_is_not_allowed_are_answers(make, types):
    config = types(reader="", writer="") | {"subagents": {"allow_agents": ["reader"]}}
    script = Recorder({"root": [[task("a", agent="raeder"), task("b", agent="writer"), task("c", agent="reader")], "done"]})
    async with make(script, config=config) as agent:
        events, result = await read(agent.run("root"))
    assert result.status == "completed"
    outputs = sorted(event.content for event in of_kind(events, ToolOutput))
    assert (
        outputs[0]
        == "[ERROR] forbidden: this agent may not start agents of type 'writer' (`allow_agents`); it may start: reader"
    )
    assert outputs[1] == "[ERROR] there is no agent type 'raeder': did you mean 'reader'?"
    assert re.match(r"\[agent-\w+: completed", outputs[2])
    assert "writer" not in script.instructions["root"]


async def test_allow_agents_of_a_type_narrows_for_all_below(make, types):
    config = types(boss="allow_agents: [worker]", worker="", other="") | {"subagents": {"max_depth": 3}}
    script = Recorder(
        {
            "root": [task("one", agent="boss"), "done"],
            "one": [task("two", agent="worker"), "done"],
            "two": [task("three", agent="other"), "done"],
        }
    )
    async with make(script, config=config) as agent:
        events, _ = await read(agent.run("root"))
    [refused] = [event for event in of_kind(events, ToolOutput) if event.depth == 2]
    assert "may not start agents of type 'other'" in refused.content
    assert "it may start: worker" in refused.content


async def test_a_plain_child_that_a_typed_agent_started_can_be_resumed_by_it(make, types):
    config = types(boss="allow_agents: []") | {"subagents": {"max_depth": 2}}

    def script(messages, info):
        if first_prompt(messages).startswith("one"):
            read_so_far = [part.content for m in messages for part in m.parts if part.part_kind == "tool-return"]
            return [task("two"), *(task("on", resume=text[1:15]) for text in read_so_far[:1]), "done"][len(read_so_far)]
        return "answer"

    async with make(script, config=config) as agent:
        await agent.task("one", agent="boss")
        assert [info.depth for info in agent.agents()] == [0, 1, 2]
        events, _ = await read(agent.run_program(lambda: agent.task("one more", agent="boss")))
    outputs = [event.content for event in of_kind(events, ToolOutput)]
    assert [re.match(r"\[agent-\w+: completed", text) is not None for text in outputs] == [True, True], outputs


@pytest.mark.features("memory", "plan", "questions")
async def test_denied_tools_of_a_type_are_denied_to_descendants_and_selected_ones_are_not(make, types):
    config = types(boss="tools: {allow: [task, 'res*'], deny: [reset_kernel]}", worker="") | {"subagents": {"max_depth": 2}}
    script = Recorder({"root": [task("one", agent="boss"), "done"], "one": [task("two", agent="worker"), "done"]})
    async with make(script, config=config) as agent:
        await read(agent.run("root"))
    assert script.tools["one"] == {"task"}
    assert script.tools["two"] == {"ask", "ask_user", "execute_ipython_cell", "remember", "update_plan"}


async def test_a_plain_child_has_its_parent_s_type(make, types):
    config = types(boss="mode: plan|You are the boss.") | {"subagents": {"max_depth": 2}, "mode": "auto"}
    script = Recorder({"root": [task("one", agent="boss"), "done"], "one": [task("two"), "done"]})
    async with make(script, config=config) as agent:
        await read(agent.run("root"))
        modes = [node.policy.mode for node in agent.debug.agents.values()]
    assert script.instructions["two"].endswith("You are the boss.")
    assert modes == ["auto", "plan", "plan"]


@pytest.mark.parametrize(
    ("mode", "file", "argument", "expected"),
    [
        ("ask", "full", None, "ask"),
        ("full", "auto", "full", "auto"),
        ("full", "auto", "plan", "plan"),
        ("plan", "full", None, "plan"),
        ("auto", "", "ask", "ask"),
    ],
)
async def test_a_type_never_has_more_than_the_agent_that_starts_it(make, types, mode, file, argument, expected):
    config = types(kind=f"mode: {file}" if file else "") | {"mode": mode}
    script = Recorder({"root": [task("one", agent="kind", mode=argument), "done"]})
    async with make(script, config=config) as agent:
        await read(agent.run("root"))
        assert [node.policy.mode for node in agent.debug.agents.values()] == [mode, expected]


async def test_a_type_s_budget_stands_between_the_default_and_the_call(make, types):
    config = types(kind="budget: {turns: 3, seconds: 50}\nmax_depth: 1") | {"subagents": {"max_depth": 4}}
    script = Recorder({"root": [[task("one", agent="kind"), task("two", agent="kind", max_turns=2)], "done"]})
    async with make(script, config=config) as agent:
        await read(agent.run("root"))
        given = [node.run.account.budget for node in agent.debug.agents.values()]
        budgets = [(budget.turns, budget.seconds, budget.depth) for budget in given]
    assert budgets[1:] == [(3, 50, 0), (2, 50, 0)]


async def test_a_type_has_its_own_model_and_a_wrong_one_is_an_answer(make, types):
    config = types(own="model: small\ntools: {allow: []}", wrong="model: nobody:x") | {"models": {"small": "test"}}
    script = Recorder({"root": [[task("one", agent="own"), task("two", agent="wrong")], "done"]})
    async with make(script, config=config) as agent:
        events, _ = await read(agent.run("root"))
    wrong, right = sorted((event.content for event in of_kind(events, ToolOutput)), key=lambda text: "[ERROR]" not in text)
    assert "success (no tool calls)" in right
    assert wrong.startswith("[ERROR] ")
    assert "nobody" in wrong


async def test_a_type_says_how_its_agents_and_those_below_act(make, types):
    config = types(writer="code_actions: block") | {"subagents": {"max_depth": 2}}
    script = Recorder(
        {
            "root": [[task("child", agent="writer"), task("plain")], "done"],
            "child": ["```python\ntask('grandchild')\n```", "done"],
        }
    )
    async with make(script, config=config) as agent:
        _, result = await read(agent.run("root"))
    assert result.status == "completed"
    acting_by_blocks = {name for name, text in script.instructions.items() if "You act by writing Python code." in text}
    assert acting_by_blocks == {"child", "grandchild"}
    assert {name for name, tools in script.tools.items() if not tools} == acting_by_blocks


async def test_a_type_s_output_is_a_value(make, types):
    config = types(judge="output: {type: object, properties: {mark: {type: integer}}, required: [mark]}")

    def script(messages, info):
        if info.output_tools:
            return ToolCallPart(info.output_tools[0].name, {"mark": 3})
        return "done" if messages[-1].parts[0].part_kind == "tool-return" else task("judge it", agent="judge")

    async with make(script, config=config) as agent:
        events, _ = await read(agent.run("root"))
    assert of_kind(events, AgentFinished)[0].output == '{"mark": 3}'


@pytest.mark.features("mcp_client")
async def test_a_type_s_mcp_servers(make, types):
    config = types(none="mcp: []", one="mcp: [a]") | {
        "mcp_servers": {name: McpServerConfig(command="/no/such/program") for name in "ab"}
    }
    script = Recorder({"root": [[task("first", agent="none"), task("second", agent="one")], "done"]})
    async with make(script, config=config) as agent:
        await read(agent.run("root"))
    assert "explains one: a, b." in script.instructions["root"]
    assert "explains one: a." in script.instructions["second"]
    assert "agent.mcp" not in script.instructions["first"]


@pytest.mark.features("mcp_client")
async def test_servers_of_a_type_s_own_are_for_its_agents_and_those_below(make, types, monkeypatch):
    monkeypatch.setenv("WAREHOUSE_KEY", "a-secret-key")
    own = "mcp: []\nmcp_servers: {c: {command: /no/such/program, env: {KEY: '${WAREHOUSE_KEY}'}}}"
    config = types(keeper=own, other="mode: plan") | {
        "mcp_servers": {"a": McpServerConfig(command="/no/such/program")},
        "subagents": {"max_depth": 2},
    }
    script = Recorder(
        {
            "root": [[task("kept", agent="keeper"), task("plain")], "done"],
            "kept": [[task("below"), task("other", agent="other")], "done"],
        }
    )
    async with make(script, config=config) as agent:
        await read(agent.run("root"))
        assert {*agent.config.mcp_servers} == {"a"}
    had = {prompt: re.findall(r"explains one: (.*?)\.", text) for prompt, text in script.instructions.items()}
    assert had == {"root": ["a"], "plain": ["a"], "kept": ["c"], "below": ["c"], "other": ["c"]}


@pytest.mark.parametrize(
    ("heads", "problem"),
    [
        (["mcp_servers: {a: {command: x}}"], "there is a server 'a' already: list it in `mcp`"),
        (["mcp_servers: {c: {}}"], "needs either `command` or `url`"),
        (["mcp_servers: {'c d': {command: x}}"], "'c d' is not a name of letters"),
        (["mcp_servers: {c: {command: '${NO_SUCH_VARIABLE}'}}"], "NO_SUCH_VARIABLE"),
        (["mcp_servers: {c: {command: x}}", "mcp_servers: {c: {command: y}}"], "has another server 'c'"),
        (["mcp_servers: {c: {command: x}}", "mcp_servers: {c: {command: x}}"], None),
    ],
)
def test_wrong_servers_of_a_type_are_told(types, tmp_path, heads, problem):
    folders = types(**{f"t{number}": head for number, head in enumerate(heads)})["agent_folders"]
    servers = {"a": McpServerConfig(command="/no/such/program")}
    found = load_agent_types(Config(workspace=tmp_path, agent_folders=folders, mcp_servers=servers))
    assert [problem in text for text in found.problems] == ([] if problem is None else [True])
    assert len(found.types) == len(heads) - (problem is not None)


async def test_a_tool_that_is_none_is_told_once_the_user_s_own_are_known(make, types):
    own = FunctionToolset()

    @own.tool_plain
    def order() -> str:
        return "ordered"

    config = types(buyer="tools: {allow: [order]}", typist="tools: {allow: [oder]}")
    script = Recorder(
        {
            "root": [[task("buy", agent="buyer"), task("type", agent="typist")], "done"],
            "buy": [ToolCallPart("order", {}), "done"],
        }
    )
    async with make(script, config=config, toolsets=[own]) as agent:
        events, _ = await read(agent.run("root"))
    assert script.tools["buy"] == {"order"}
    [failed] = [event for event in of_kind(events, AgentFinished) if event.status == "failed"]
    assert "there is no tool 'oder': did you mean 'order'?" in failed.error


async def test_a_tool_that_is_not_offered_is_not_run(make, types):
    config = types(kind="tools: {deny: [execute_ipython_cell]}")
    script = Recorder({"root": [task("one", agent="kind"), "done"], "one": [cell("1 + 1"), "I could not"]})
    async with make(script, config=config) as agent:
        events, _ = await read(agent.run("root"))
        assert len(of_kind(events, AgentFinished)) == 2
    assert not [event for event in of_kind(events, ToolOutput) if event.depth == 1 and event.outcome == "success"]
    assert finished(events)[""].status == "completed"


@pytest.mark.features("memory", "plan", "questions")
async def test_an_agent_without_task_starts_no_child_by_any_way(make, types):
    config = types(alone="tools: {deny: [task]}|Work alone.", helper="") | {"subagents": {"max_depth": 3}}
    agents = []
    tools = FunctionToolset()

    @tools.tool_plain
    async def use_the_sdk() -> str:
        try:
            return str((await agents[0].spawn_and_run("by the SDK")).status)
        except SpawnForbiddenError as error:
            return str(error)

    plan = ToolCallPart("delegate", {"plan": "p", "subtasks": [{"task": "by a plan"}]})
    below = task("plain below", agent="helper")
    calls = [ToolCallPart("use_the_sdk", {}), plan, below, ToolCallPart("subagents", {"action": "list"})]
    script = Recorder({"root": [task("work", agent="alone"), "done"], "work": [[call] for call in calls]})
    async with make(script, config=config | {"mode": "full"}, toolsets=[tools]) as agent:
        agents.append(agent)
        events, result = await read(agent.run("root"))
    assert result.status == "completed"
    assert script.tools["work"] == {
        "ask",
        "ask_user",
        "execute_ipython_cell",
        "remember",
        "reset_kernel",
        "update_plan",
        "use_the_sdk",
    }
    assert len(of_kind(events, AgentStarted)) == 2, "the root and the one that works alone"
    told = [event.content for event in of_kind(events, ToolOutput) if event.tool_name == "use_the_sdk"]
    assert "type 'alone'" in told[0]
    assert "`tools.deny`" in told[0]


async def test_without_the_feature_there_are_no_types(make, types):
    script = Recorder({"root": [task("a", agent="reader"), "done"]})
    async with make(script, config=types(reader=""), features=()) as agent:
        events, result = await read(agent.run("root"))
    assert result.status == "completed"
    [refused] = of_kind(events, ToolOutput)
    assert refused.content == "[ERROR] there is no agent type 'reader': there are none"
    assert "Types of child agents" not in script.instructions["root"]
