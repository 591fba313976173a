"""What a model, its code and a program choose for a child: model, thinking, conversation, tools. It never gets more."""

import inspect
from dataclasses import dataclass, field, fields
from typing import Any

import pytest
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ToolCallPart
from support.agents import allow, cell, of_kind, read, task
from support.tables import each

from freeact_sub import ChildRequest
from freeact_sub.calls import CHOSEN, ChildChoices, SpawnCall
from freeact_sub.config.schema import Config, ModelsConfig
from freeact_sub.errors import ConfigError, InvalidRequestError
from freeact_sub.events import AgentStarted, ApprovalRequest, Decision, Notice, ToolOutput
from freeact_sub.kernels.guest.agent import AgentProxy
from freeact_sub.testing import ScriptedModel, prompts
from freeact_sub.tools import load_definition
from freeact_sub.tools.children import TaskArguments


class Seen:
    """A script that notes what each agent is sent, by its prompt."""

    def __init__(self, turns):
        self.turns, self.tools, self.prompts, self.instructions = turns, {}, {}, {}

    def __call__(self, messages, info):
        read = prompts(messages)
        prompt = read[-1].split("\n")[-1]
        self.tools[prompt] = {tool.name for tool in info.function_tools}
        self.prompts[prompt] = [text.split("\n")[0] for text in read]
        self.instructions[prompt] = info.instructions
        last = max(n for n, m in enumerate(messages) for part in m.parts if part.part_kind == "user-prompt")
        done = sum(message.kind == "response" for message in messages[last:])
        turns = self.turns.get(prompt, ["done"])
        return turns[done] if done < len(turns) else "done"


def named(config=None, **models):
    """Settings with models by name, each a scripted one."""
    return {"headless": "allow", "models": ModelsConfig(**models), **(config or {})}


def other(name):
    return ScriptedModel(lambda messages, info: f"{name} answers", name=name)


@dataclass
class Settings(AbstractCapability[Any]):
    """Notes how much thinking each agent's requests ask for."""

    seen: list[Any] = field(default_factory=list)

    async def before_model_request(self, ctx, request_context):
        self.seen.append((request_context.model_settings or {}).get("thinking"))
        return request_context


def models_of(events):
    return {event.prompt: event.model.rpartition(":")[2] for event in of_kind(events, AgentStarted)}


async def test_the_model_names_a_model_of_the_settings_or_its_own(make):
    script = Seen({"root": [[task("a", model="small"), task("b", model="inherit"), task("c")], "done"]})
    small = other("small-one")
    async with make(script, config=named({"subagents": {"model": "small"}}, small=small)) as agent:
        events, result = await read(agent.run("root"))
    assert result.status == "completed"
    models = models_of(events)
    assert (models["a"], models["c"]) == ("small-one", "small-one")
    assert models["b"] == models["root"] != "small-one"
    assert "argument `model` of task: small." in script.instructions["root"]


@pytest.mark.parametrize("wrong", ["smal", "openai-chat:gpt-9", "https://x"])
async def test_a_model_that_no_setting_names_is_refused_with_the_names_that_there_are(make, wrong):
    script = Seen({"root": [task("a", model=wrong), "done"]})
    async with make(script, config=named(small=other("s"), big=other("b"))) as agent:
        events, _ = await read(agent.run("root"))
    [output] = of_kind(events, ToolOutput)
    assert f"there is no model {wrong!r}" in output.content
    assert "did you mean 'small'?" in output.content or "big, inherit, small" in output.content
    assert len(of_kind(events, AgentStarted)) == 1


def test_no_model_may_be_called_inherit():
    with pytest.raises(ConfigError, match="inherit"):
        Config(models=ModelsConfig(inherit="test"))


async def test_thinking_is_sent_with_each_request_of_the_child_and_of_those_below_it(make):
    turns = {"root": [task("a", thinking="high"), task("b", thinking="off"), task("c"), "done"], "a": [task("d"), "done"]}
    settings = Settings()
    async with make(Seen(turns), config=named({"subagents": {"max_depth": 2}}), capabilities=[settings]) as agent:
        await read(agent.run("root"))
    assert settings.seen == [None, "high", "high", "high", None, False, None, None, None]


@each(
    ("history", "expected"),
    [("all", ["first", "second", "third", "a"]), (2, ["second", "third", "a"]), (1, ["third", "a"]),
     (9, ["first", "second", "third", "a"]), (0, ["a"]), ("none", ["a"])],
)  # fmt: skip
async def test_a_child_reads_as_much_of_the_conversation_as_was_chosen(make, history, expected):
    script = Seen({"second": [cell("1"), "done"], "third": [task("a", history=history), "done"]})
    async with make(script, config=named()) as agent:
        for prompt in ("first", "second", "third"):
            await read(agent.run(prompt))
    assert script.prompts["a"] == expected


async def test_a_list_of_tools_holds_for_the_model_and_its_code_and_all_below(make):
    turns = {
        "root": [task("a", tools=["execute_ipython_cell", "task"]), "done"],
        "a": [[task("b"), ToolCallPart("reset_kernel", {})], "done"],
    }
    script = Seen(turns)
    async with make(script, config=named({"subagents": {"max_depth": 2}})) as agent:
        events, _ = await read(agent.run("root"))
    assert script.tools["a"] == {"execute_ipython_cell", "task"}
    assert script.tools["b"] == {"execute_ipython_cell"}
    assert any("reset_kernel" in event.content for event in of_kind(events, ToolOutput) if event.depth == 1)


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        (["execute_ipython_cel"], "did you mean 'execute_ipython_cell'?"),
        (["reset_kernel"], "it has execute_ipython_cell, task"),
    ],
)
async def test_a_list_gives_a_child_no_tool_that_its_parent_has_not(make, tools, words):
    turns = {"root": [task("a", tools=["execute_ipython_cell", "task"]), "done"], "a": [task("b", tools=tools), "done"]}
    script = Seen(turns)
    async with make(script, config=named({"subagents": {"max_depth": 2}})) as agent:
        events, _ = await read(agent.run("root"))
    assert "b" not in script.tools
    assert any(words in event.content for event in of_kind(events, ToolOutput))


@each("choices", [{"history": True}, {"history": "some"}, {"history": -1}, {"thinking": "much"}, {"tools": "task"}])
async def test_a_choice_of_a_program_that_has_another_form_is_refused(make, choices):
    async with make(Seen({}), config=named()) as agent:
        with pytest.raises(InvalidRequestError, match=r"history|thinking|tools"):
            await agent.spawn_and_run(ChildRequest(prompt="a", **choices))


async def test_a_resumed_child_keeps_its_tools_and_its_thinking(make):
    script, settings = Seen({}), Settings()
    async with make(script, config=named(), capabilities=[settings]) as agent:
        first = await agent.spawn_and_run(ChildRequest(prompt="a", tools=("execute_ipython_cell",), thinking="low"))
        await agent.spawn_and_run(ChildRequest(prompt="again", resume=first.agent_id))
        with pytest.raises(InvalidRequestError, match="keeps its type, its tools"):
            await agent.spawn_and_run(ChildRequest(prompt="more", resume=first.agent_id, tools=("ask",)))
    assert script.tools["again"] == {"execute_ipython_cell"}
    assert settings.seen == ["low", "low"]


def asked(events):
    return [(event.call.question, event.suggested) for event in of_kind(events, ApprovalRequest)]


async def test_a_person_sees_what_was_chosen_and_to_allow_children_allows_no_other_model(make):
    turns = {
        "root": [task("a"), task("b"), task("c", model="big", history="all", tools=["ask"]), task("d", model="big"), "done"]
    }

    def always(request):
        return Decision(allowed=True, remember="session")

    async with make(Seen(turns), config={"models": ModelsConfig(big=other("big"))}) as agent:
        events, _ = await read(agent.run("root"), always)
    assert asked(events) == [
        ("asks to start a child agent", ("spawn:default",)),
        (
            "asks to start a child agent with the model big; this whole conversation; only the tools ask",
            ("spawn:model big",),
        ),
    ]


@pytest.mark.features("agent_types")
async def test_a_dear_model_of_a_type_and_the_parents_own_are_seen_too(make, tmp_path):
    (tmp_path / "types").mkdir()
    (tmp_path / "types/judge.md").write_text("---\ndescription: Judges.\nmodel: big\n---\n")
    turns = {"root": [task("a"), task("b", agent="judge"), task("c", model="inherit"), "done"]}
    config = {
        "agent_folders": (tmp_path / "types",),
        "models": ModelsConfig(big=other("big"), small=other("small")),
        "subagents": {"model": "small"},
    }
    async with make(Seen(turns), config=config) as agent:
        events, _ = await read(agent.run("root"), allow)
    assert [suggested for _, suggested in asked(events)] == [
        ("spawn:default",),
        ("spawn:model big",),
        ("spawn:model inherit",),
    ]


@pytest.mark.features("agent_types")
async def test_a_type_says_how_much_its_model_thinks_and_what_stands_in_for_it(make, tmp_path):
    (tmp_path / "types").mkdir()
    head = "description: Judges.\nmodel: big\nfallback_models: [small]\nthinking: high"
    (tmp_path / "types/judge.md").write_text(f"---\n{head}\n---\n")
    (tmp_path / "types/bad.md").write_text("---\ndescription: Bad.\nfallback_models: [small]\n---\n")
    broken = ScriptedModel(lambda messages, info: ModelHTTPError(503, "big"), name="big")
    config = named({"agent_folders": (tmp_path / "types",), "rate_limit_seconds": 0}, big=broken, small=other("small"))
    settings = Settings()
    async with make(Seen({"root": [task("a", agent="judge"), "done"]}), config=config, capabilities=[settings]) as agent:
        events, _ = await read(agent.run("root"))
    [output] = of_kind(events, ToolOutput)
    assert output.content.endswith("small answers")
    assert settings.seen == [None, "high", None]
    [notice] = [event.content for event in of_kind(events, Notice)]
    assert "line 3: `fallback_models` stand in for `model`: name that too" in notice


def test_a_person_can_judge_each_choice_that_has_words():
    judged = {field.name for field in fields(SpawnCall)}
    assert set(CHOSEN) <= judged & set(ChildChoices.model_fields)
    request = ChildRequest(prompt="x", model="big", thinking="low", history=1, tools=(), own_files=True)
    assert request.call().child == (
        "a child agent with the model big; thinking low; the last 1 exchange; only the tools (none); files of its own"
    )


def test_each_choice_stands_in_the_tool_and_in_the_signature_for_cells():
    told = load_definition("task").parameters_json_schema["properties"]
    in_cells = inspect.signature(AgentProxy.task).parameters
    for name in ChildChoices.model_fields:
        assert told[name]["description"], name
        assert in_cells[name].kind is inspect.Parameter.KEYWORD_ONLY, name
        assert f"\n    {name}: " in inspect.getdoc(AgentProxy.task), name


def test_the_number_of_turns_that_a_model_names_counts_more_than_its_budget():
    asked = TaskArguments(prompt="x", max_turns=3, budget={"turns": 9, "tokens": 100})
    assert (asked.request.budget.turns, asked.request.budget.tokens) == (3, 100)


def test_the_description_of_task_stays_short():
    tool = load_definition("task")
    told = [tool.description or "", *(item["description"] for item in tool.parameters_json_schema["properties"].values())]
    assert sum(map(len, told)) / 4 < 350  # about four characters are a token
