"""What a client answers to a question is the decision; what it cannot be asked is no decision of a person."""

import gzip
import json
from pathlib import Path
from typing import Any

from acp import RequestError
from jsonschema import Draft202012Validator
from support.acp_client import SCHEMA
from support.tables import each

from freeact_sub.acp.connection import Client
from freeact_sub.acp.permissions import answer_to, decision_on, property_of
from freeact_sub.calls import CodeAction, FanOut
from freeact_sub.events import ApprovalRequest, QuestionField, QuestionRequest


class OneClient:
    """Gives one answer, and notes what it was asked."""

    def __init__(self, answer: Any, **capabilities: Any) -> None:
        self.answer, self.capabilities = answer, capabilities
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def can(self, *path: str) -> bool:
        return path[0] in self.capabilities

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        self.asked.append((method, params))
        assert check("RequestPermissionRequest" if "permission" in method else "CreateElicitationRequest", params) == []
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def check(name: str, value: Any) -> list[str]:
    schema = json.loads(gzip.decompress(SCHEMA.read_bytes()))
    validator = Draft202012Validator({"$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": f"#/$defs/{name}"})
    return [error.message for error in validator.iter_errors(value)]


def selected(option: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


@each(
    ("said", "can"),
    [
        ({"fs": {"readTextFile": True}}, True),
        ({"fs": {"readTextFile": {}}}, True),
        ({"fs": {"readTextFile": False}}, False),
        ({"fs": {"readTextFile": None}}, False),
        ({"fs": True}, False),
        ({}, False),
    ],
)
def test_a_client_can_what_it_says_that_it_can(said: dict[str, Any], can: bool) -> None:
    client = Client()
    client.capabilities = said
    assert client.can("fs", "readTextFile") == can


CALL = ApprovalRequest(request_id="approval-1", call=CodeAction(code="1"), suggested=("code:*",))


@each(
    ("answer", "allowed", "remember", "nobody", "words"),
    [
        (selected("once"), True, None, False, ""),
        (selected("session"), True, "session", False, ""),
        (selected("project"), True, "project", False, ""),
        (selected("no"), False, None, False, "the user denied it"),
        (selected("ONCE"), False, None, True, "'ONCE', which was not offered"),
        ({"outcome": {"outcome": "cancelled"}}, False, None, True, "cancelled the question"),
        ({"outcome": {"outcome": "selected"}}, False, None, True, "no answer that can be used"),
        ({"outcome": True}, False, None, True, "no answer that can be used"),
        ({}, False, None, True, "no answer that can be used"),
        (RequestError(-32601, "Method not found"), False, None, True, "could not ask its user: Method not found"),
        (ConnectionError("the client is gone"), False, None, True, "the client is gone"),
    ],
)
async def test_a_call(answer: Any, allowed: bool, remember: str | None, nobody: bool, words: str) -> None:
    decision = await decision_on(OneClient(answer), "s", CALL, Path("/w"))  # type: ignore[arg-type]
    assert (decision.allowed, decision.remember, decision.nobody) == (allowed, remember, nobody)
    assert words in decision.reason


async def test_what_cannot_be_remembered_is_not_offered_and_not_remembered() -> None:
    client = OneClient(selected("session"))
    lasting = ApprovalRequest(request_id="approval-1", call=CodeAction(code="1"))
    decision = await decision_on(client, "s", lasting, Path("/w"))  # type: ignore[arg-type]
    assert (decision.allowed, decision.nobody) == (False, True)
    assert [option["kind"] for option in client.asked[0][1]["options"]] == ["allow_once", "reject_once"]


def asked(*fields: QuestionField, **more: Any) -> QuestionRequest:
    return QuestionRequest(request_id="question-1", prompt="Which?", fields=fields, **more)


async def test_a_cheaper_model_of_a_quote_is_an_option() -> None:
    call = FanOut(what="map", more=57, bound="$4.00", cheaper={"small": (0.2, 0.12, 0.38)})
    client = OneClient(selected("model small"))
    decision = await decision_on(client, "session-1", ApprovalRequest(request_id="approval-1", call=call), Path("/w"))
    assert (decision.allowed, decision.model) == (True, "small")
    names = [option["name"] for option in client.asked[0][1]["options"]]
    assert names == ["Allow", "Allow with small: $0.20 ($0.12 to $0.38)", "Deny"]


async def test_a_question_by_buttons() -> None:
    color = QuestionField(name="color", kind="choice", choices=("r", "b"), labels=("red", "blue"))
    client = OneClient(selected("choice-1"))
    assert (await answer_to(client, "s", asked(color))).values == {"color": "b"}  # type: ignore[arg-type]
    assert [option["name"] for option in client.asked[0][1]["options"]] == ["red", "blue", "No answer"]
    agree = QuestionField(name="agree", kind="boolean")
    page = asked(agree, url="https://example.org/page")
    client = OneClient(selected("choice-1"))
    assert (await answer_to(client, "s", page)).values == {"agree": False}  # type: ignore[arg-type]
    assert "https://example.org/page" in json.dumps(client.asked)
    for option, nobody in (("no", False), ("choice-9", True), ("nonsense", True)):
        answer = await answer_to(OneClient(selected(option)), "s", asked(color))  # type: ignore[arg-type]
        assert (answer.text, answer.values, answer.nobody) == (None, None, nobody)
        assert answer.reason


async def test_a_question_for_a_text_needs_forms() -> None:
    client = OneClient(selected("once"))
    answer = await answer_to(client, "s", asked())  # type: ignore[arg-type]
    assert (answer.nobody, client.asked) == (True, [])
    assert "cannot ask its user for a text" in answer.reason
    forms = OneClient({"action": "accept", "content": {"answer": "Ada"}}, elicitation={"form": {}})
    assert (await answer_to(forms, "s", asked())).text == "Ada"  # type: ignore[arg-type]
    for said, nobody in (
        ({"action": "decline"}, False),
        ({"action": "cancel"}, True),
        ({}, True),
        ({"action": "accept"}, True),
    ):
        client = OneClient(said, elicitation={"form": {}})
        answer = await answer_to(client, "s", asked())  # type: ignore[arg-type]
        assert (answer.text, answer.values, answer.nobody) == (None, None, nobody)


@each(
    "field",
    [
        QuestionField(name="a", prompt="How many?", kind="integer", least=1, most=5, default=2),
        QuestionField(name="a", kind="number", least=0.5),
        QuestionField(name="a", kind="boolean", default=True),
        QuestionField(name="a", kind="text", least=1, most=80, format="email"),
        QuestionField(name="a", kind="choice", choices=("r", "b"), labels=("red", "blue"), default="r"),
        QuestionField(name="a", kind="choice", choices=("r", "b"), other=True),
        QuestionField(name="a", kind="choices", choices=("r", "b"), least=1, most=2, default=["r"]),
    ],
)
async def test_every_kind_of_field_is_a_part_of_a_form(field: QuestionField) -> None:
    assert check("ElicitationPropertySchema", property_of(field)) == []
    client = OneClient({"action": "cancel"}, elicitation={"form": {}})
    await answer_to(client, "s", asked(field))  # type: ignore[arg-type]
    assert list(client.asked[0][1]["requestedSchema"]["properties"]) == ["a"]
