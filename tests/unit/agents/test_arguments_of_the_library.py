"""Wrong arguments of the library: each is refused where it is given, by a sentence that names it and the way out."""

import sys
import typing
from functools import partial

import pydantic_ai
import pytest
from pydantic import BaseModel
from support.tables import each

import freeact_sub
from freeact_sub import (
    Agent,
    ChildRequest,
    Config,
    ConfigError,
    Decision,
    FreeactError,
    InvalidRequestError,
    SessionError,
    session_events,
)
from freeact_sub.errors import speaking_of_options
from freeact_sub.sessions.store import newest, session_store
from freeact_sub.testing import FakeKernelProvider, ScriptedModel


class Plain:
    """Nothing that anybody asks for."""


class Point(BaseModel):
    x: int


class OldDict(typing.TypedDict):
    x: int


def own(x: int) -> int:
    return x


async def later(event):
    pass


LISTS = ("tools", "hooks", "features", "toolsets", "capabilities", "taps", "history")
SINGLE = ("kernel_provider", "factory", "store", "approve", "models", "model_settings", "model")
ITEMS = [(name, item) for name in LISTS for item in (Plain(), "text", None)]
ITEMS += [("hooks", print), ("toolsets", own), ("capabilities", own), ("features", Plain), ("taps", Plain), ("taps", later)]


@pytest.mark.features("hooks", "sessions")
@each(("name", "item"), ITEMS)
def test_an_item_of_another_kind_is_refused_by_the_arguments_name(make, name, item):
    with pytest.raises(FreeactError, match=name):
        make(["ok"], **{name: [item]})


@each("name", LISTS)
@each("value", [own, Plain(), "text", {"a": 1}, 5])
def test_a_value_that_is_no_list_is_refused_with_the_arguments_name(make, name, value):
    with pytest.raises(ConfigError, match=rf"{name} takes a list, .*{name}=\[\.\.\.\]"):
        make(["ok"], **{name: value})


@each("name", SINGLE)
@each("value", [Plain(), [1], FakeKernelProvider, 5])
def test_a_single_part_of_another_kind_is_refused_by_the_arguments_name(tmp_path, name, value):
    given = {"model": ScriptedModel(["ok"]), "kernel_provider": FakeKernelProvider(), name: value}
    with pytest.raises(ConfigError, match=f"^{name}: "):
        Agent(Config(workspace=tmp_path), **given)


def test_hints_lead_to_what_is_meant(make):
    for options, hint in [
        ({"toolsets": [pydantic_ai.Agent()]}, "toolsets=other.toolsets"),
        ({"toolsets": [own]}, r"tools=\[own\]"),
        ({"kernel_provider": "local"}, r"Config\(kernel=\{'provider': 'local'\}\)"),
        ({"session": True}, "'new', or the id of a session"),
        ({"models": {"small": 5}}, "'small' must be the name of a model"),
    ]:
        with pytest.raises(ConfigError, match=hint):
            make(["ok"], **options)


@each("first", ["openai:gpt-5", "test", ScriptedModel(["x"]), {"model": "test"}, 5, Config])
def test_the_first_argument_is_the_settings_and_the_error_names_the_model_s(first):
    with pytest.raises(ConfigError, match=r"model=|Config\(\*\*"):
        Agent(first)


async def test_prompts_programs_and_values_are_checked_before_anything_runs(make):
    async with make(["ok"]) as agent:
        begun = agent.ask("x")
        wrong = {
            "the prompt is empty": [partial(agent.run, prompt) for prompt in ("", " \n", [], ["", " "])],
            "a prompt is a text": [partial(agent.run, None), partial(agent.run, 5)],
            "inputs are values by their names": [partial(agent.run, "x", inputs=[1])],
            "pictures are a list": [partial(agent.run, "x", pictures=5), partial(agent.run, "x", pictures=["a.png"])],
            "budget": [partial(agent.run, "x", budget=5), partial(agent.run, "x", budget={"token": 5})],
            "without parameters": [partial(agent.run_program, given) for given in (begun, 5, agent.ask, own)],
            "code is a text": [partial(agent.run_cell, 5)],
            "takes a function of an event": [partial(agent.follow_background, 5)],
            "a message is a text": [partial(agent.run("x").send, 5)],
        }
        for words, calls in wrong.items():
            for call in calls:
                with pytest.raises(InvalidRequestError, match=words):
                    call()
        with pytest.raises(InvalidRequestError, match="rules"):
            agent.allowed = "code"
        for call, words in ((agent.run_parallel, "not one text"), (agent.execute, "code is a text")):
            with pytest.raises(InvalidRequestError, match=words):
                await call("ab" if call == agent.run_parallel else 5)
        with pytest.raises(InvalidRequestError, match="'my var'"):
            await agent.put(**{"my var": 1})
        assert "async function" in (await agent.run_program(lambda: 5)).error
        assert agent.scripted.requests == 0


REFUSED = [Point(x=1), {"a": 1}, [1], "Point", 5, Plain(), Plain, *([OldDict] if sys.version_info < (3, 12) else [])]


@each("output", REFUSED)
async def test_the_type_of_an_answer_is_checked_at_the_call(make, output):
    with pytest.raises(InvalidRequestError, match="output is a type"):
        make(["ok"], output_type=output)
    async with make(["ok"]) as agent:
        with pytest.raises(InvalidRequestError, match=r"agent\.run: output is a type"):
            agent.run("x", output=output)
        with pytest.raises(InvalidRequestError, match=r"agent\.task: output is a type"):
            await agent.task("x", output=output)
        assert "output is a type" in (await agent.run_program(lambda: agent.ask("x", output=output))).error


WRONG_OF_CHILDREN = [
    ("mode", "fulll"), ("thinking", "lots"), ("history", "al"), ("tools", "x"), ("budget", 5), ("agent", 5), ("resume", 5),
    ("branch", "yes"), ("keep", 1), ("own_files", "no"), ("description", 5), ("scope", 5), ("check", 5), ("model", 5),
]  # fmt: skip


@each(("name", "value"), WRONG_OF_CHILDREN)
async def test_choices_for_a_child_are_checked_before_it_begins(make, name, value):
    async with make(["ok"]) as agent:
        for call in (
            lambda: agent.task("x", **{name: value}),
            lambda: agent.spawn_and_run(ChildRequest(prompt="x", **{name: value})),
        ):
            with pytest.raises(FreeactError, match={"thinking": "thinking", "mode": "mode"}.get(name, name)):
                await call()
        assert len(agent.agents()) == 1


@each(
    ("fields", "words"),
    [
        ({"remember": "always"}, "remember is 'session' or 'project', or None"),
        ({"remember": "al ways?"}, "remember is"),
        ({"remember": "Session"}, "remember is"),
        ({"remember": True}, "remember is"),
        ({"remember": ""}, "remember is"),
        ({"allowed": "yes"}, "allowed is True or False"),
        ({"allowed": None}, "allowed is True or False"),
        ({"allowed": False, "remember": "session"}, "a denial is for this call only"),
        ({"pattern": "code"}, "give `remember` too"),
        ({"code": 5}, "code is a text"),
        ({"reason": None}, "reason is a text"),
    ],
)
def test_a_decision_takes_the_words_that_it_knows(fields, words):
    with pytest.raises((ValueError, TypeError), match=words):
        Decision(**{"allowed": True, **fields})


def test_a_misspelt_name_of_the_package_is_told_the_right_one():
    for name, meant in (("Agnet", "Agent"), ("ApprovalReqest", "ApprovalRequest"), ("Aproval", "")):
        with pytest.raises(AttributeError, match=f"'{meant}'\\?" if meant else name):
            getattr(freeact_sub, name)
    with pytest.raises(AttributeError, match="'_zzz'$"):
        getattr(freeact_sub, "_zzz")  # noqa: B009


async def test_the_uses_of_a_run_that_are_none_say_how_it_is_used(make):
    async with make(["ok"]) as agent:
        with pytest.raises(TypeError, match="async for"):
            list(agent.run("x"))
        with pytest.raises(TypeError, match=r"async for event in agent\.stream"):
            list(agent.stream("x"))
        with pytest.raises(TypeError, match=r"await agent\.run"):
            await agent.stream("x")
        for name in ("output", "text", "error"):
            with pytest.raises(AttributeError, match=rf"\(await agent\.run\(\.\.\.\)\)\.{name}"):
                getattr(agent.run("x"), name)
        with pytest.raises(AttributeError, match="'outptu'"):
            _ = agent.run("x").outptu


def test_errors_name_arguments_in_a_program_and_options_on_the_command_line():
    def told():
        with pytest.raises(ConfigError) as error:
            Agent()
        return str(error.value)

    assert "Agent(model=" in told()
    assert "--" not in told()
    with speaking_of_options():
        assert "--model PROVIDER:NAME" in told()


def test_errors_about_sessions_speak_of_the_library_to_programs(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def told(call):
        with pytest.raises(SessionError) as error:
            call()
        return str(error.value)

    asked = {
        "by id": (lambda: Agent.resume("nobody"), "list_sessions()", "freeact-sub sessions list"),
        "events": (lambda: [*session_events("nobody")], "list_sessions()", "freeact-sub sessions list"),
        "the latest": (lambda: newest(session_store(), tmp_path), "session='new'", "--continue"),
    }
    for name, (call, argument, command) in asked.items():
        text = told(call)
        assert argument in text, name
        assert "--" not in text, name
        assert "freeact-sub" not in text, name
        with speaking_of_options():
            assert command in told(call), name
