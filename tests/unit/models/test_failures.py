"""A run that ends because a model does not give what is asked for says what was wrong with it."""

import pytest
from pydantic import BaseModel, field_validator
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ToolCallPart
from support.agents import read
from support.tables import each

from freeact_sub import ChildRequest
from freeact_sub.config.network_variables import proxy_for
from freeact_sub.models.failures import is_near


class Count(BaseModel):
    number: int
    unit: str = ""

    @field_validator("unit")
    @classmethod
    def _known(cls, value):
        if value == "parsec":
            raise ValueError("a parsec is no unit of counts")
        return value


def wrong(**answer):
    def script(messages, info):
        return ToolCallPart(info.output_tools[0].name, answer) if info.output_tools else "no"

    return script


CASES = [
    ({"number": "many"}, "number: Input should be a valid integer"),
    ({}, "number: Field required"),
    ({"number": 1, "unit": "parsec"}, "unit: a parsec is no unit of counts"),
]


@pytest.mark.parametrize(("answer", "said"), CASES)
async def test_a_typed_child_says_what_was_wrong_with_its_answer(make, answer, said):
    async with make(wrong(**answer), config={"mode": "full"}) as agent:
        result = await agent.spawn_and_run(ChildRequest(prompt="count", output_type=Count))
    assert result.status == "failed"
    assert said in result.error
    assert "\n" not in result.error


@pytest.mark.parametrize(("answer", "said"), CASES)
async def test_the_root_and_a_question_say_it_too(make, answer, said):
    async with make(wrong(**answer), output_type=Count, config={"mode": "full"}) as agent:
        _, result = await read(agent.run("count"))
        asked = await agent.run_program(lambda: agent.ask("count", output=Count)).result()
    assert (result.status, said in result.error) == ("failed", True)
    assert (asked.status, said in asked.error) == ("failed", True)


async def test_a_schema_of_a_named_type_says_it_too(make, tmp_path):
    head = "description: x\noutput: {type: object, properties: {number: {type: integer}}, required: [number]}"
    (tmp_path / "counter.md").write_text(f"---\n{head}\n---\n", encoding="utf-8")
    async with make(wrong(number="many"), config={"mode": "full", "agent_folders": (tmp_path,)}) as agent:
        result = await agent.spawn_and_run(ChildRequest(prompt="count", agent="counter"))
    assert result.status == "failed"
    assert "'many' is not of type 'integer'" in result.error


@each("loop", ["plain", "a user's capability"])
@each(
    ("call", "said"),
    [
        (ToolCallPart("search_the_web", {"query": "x"}), "called the tool 'search_the_web' 6 times"),
        (ToolCallPart("execute_ipython_cell", {"cod": 1}), "called the tool 'execute_ipython_cell' 6 times"),
        (ToolCallPart("", {}), "called the tool '' 6 times"),
    ],
)
async def test_a_call_that_a_model_repeats_ends_in_our_own_words(make, call, said, loop):
    capabilities = [] if loop == "plain" else [AbstractCapability()]
    async with make(lambda *_: call, config={"mode": "full"}, capabilities=capabilities) as agent:
        _, result = await read(agent.run("go"))
    assert result.status == "failed"
    assert said in result.error
    assert "execute_ipython_cell" in result.error  # what there is
    assert "another model" in result.error
    assert "retries" not in result.error
    assert "pydantic" not in result.error


@each(
    ("address", "near"),
    [
        ("http://127.0.0.1:8080/v1/", True),
        ("http://[::1]:8080/v1", True),
        ("http://192.168.1.20:11434/v1", True),
        ("http://localhost:1234/v1", True),
        ("http://gpu-box:8000/v1", True),
        ("https://api.openai.com/v1/", False),
        ("https://8.8.8.8/v1", False),
    ],
)
def test_who_asks_a_server_of_a_provider_is_not_told_to_start_it(address, near):
    assert is_near(address) is near


@pytest.mark.parametrize(
    ("address", "proxy"),
    [("http://10.0.0.1/v1", "inner:1"), ("https://example.org", "outer:2"), ("http://127.0.0.1:1/v1", "")],
)
def test_a_proxy_that_stands_between_is_named_without_its_password(monkeypatch, address, proxy):
    for name, value in {"HTTP_PROXY": "http://u:secret@inner:1", "ALL_PROXY": "outer:2", "NO_PROXY": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("REQUEST_METHOD", raising=False)
    assert proxy_for(address) == proxy
