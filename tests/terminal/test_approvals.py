import io
import itertools
import os
import sys
from unittest.mock import Mock

import pytest
from support.sample_events import CHILD, request
from support.tables import each

from freeact_sub.calls import CodeAction, FanOut
from freeact_sub.events import ApprovalDecided, ApprovalRequest, Decision
from freeact_sub.show.questions import Questions, hint
from freeact_sub.terminal.asking import LineApprover
from freeact_sub.terminal.card import DecisionKeys, key_line


class AskedRequest:
    """Requests that note how they were answered."""

    def __init__(self) -> None:
        self.answers: dict[str, Decision] = {}
        self.questions = Questions()

    def ask(self, *names: str) -> None:
        for name in names:
            self.questions.observe(self.request(name))

    def request(self, name: str) -> ApprovalRequest:
        def answer(decision: Decision) -> bool:
            return self.answers.setdefault(name, decision) is decision

        return request(name, CodeAction(code=name), answer, **CHILD)


@each(
    ("text", "decision"),
    [
        ("y", Decision(allowed=True)),
        (" YES \n", Decision(allowed=True)),
        ("a", Decision(allowed=True, remember="session")),
        ("always", Decision(allowed=True, remember="session")),
        ("p", Decision(allowed=True, remember="project")),
        ("a shell:git *", Decision(allowed=True, remember="session", pattern="shell:git *")),
        ("A shell:Make", Decision(allowed=True, remember="session", pattern="shell:Make")),
        ("p write:Out/**", Decision(allowed=True, remember="project", pattern="write:Out/**")),
        ("a better way is make", Decision(allowed=False, reason="a better way is make")),
        ("n", Decision(allowed=False)),
        ("No", Decision(allowed=False)),
        ("not in this folder", Decision(allowed=False, reason="not in this folder")),
        *((text, Decision(allowed=True)) for text in ("ok", "Okay!", "sure", "yep", "yes please", "ok, do it", "go ahead.")),
        *((text, Decision(allowed=False)) for text in ("no thanks", "No!")),
        *((text, Decision(allowed=False, reason=text)) for text in ("never", "nope", "don\u2019t")),
        ("no, use make", Decision(allowed=False, reason="no, use make")),
        ("not ok", Decision(allowed=False, reason="not ok")),
    ],
)
def test_what_is_typed_is_the_answer(text: str, decision: Decision) -> None:
    asked = AskedRequest()
    asked.ask("one")
    assert asked.questions.answer(text)
    assert asked.answers == {"one": decision}
    assert asked.questions.current is None


@each("text", ["oki", "ja", "ok?", "y/n", "👍", "不要", "yes, for this file", "yes no", "please run this", "always this"])
@each("confirmed", [True, False])
def test_what_may_be_a_yes_is_asked_back_before_it_is_a_denial(text: str, confirmed: bool) -> None:
    asked = AskedRequest()
    asked.ask("one")
    assert asked.questions.answer(text)
    assert not asked.answers
    assert asked.questions.asks_back == f"deny with the reason {text!r}? y yes · n no"
    assert asked.questions.answer("y" if confirmed else "n")
    assert asked.questions.asks_back == ""
    if not confirmed:
        assert not asked.answers
        assert asked.questions.answer("ok")
    assert asked.answers == {"one": Decision(allowed=False, reason=text) if confirmed else Decision(allowed=True)}


@pytest.mark.parametrize("given", ["2", "small"])
def test_a_number_or_a_name_chooses_a_cheaper_model_by_line_and_by_key(given: str) -> None:
    call = FanOut(what="map", bound="$4.00", cheaper={"medium": (0.4, 0.3, 0.5), "small": (0.2, 0.1, 0.3)})
    decided = list[Decision]()
    for by_key in {False, given.isdecimal()}:
        questions = Questions()
        questions.observe(request("q", call, lambda decision: decided.append(decision) or True))
        assert key_line(questions, counts=True).startswith("y yes · n no · 1 medium · 2 small")
        keys = DecisionKeys(questions, None, lambda _: None)  # type: ignore[arg-type]  # no key here needs the screen
        assert not keys.press("3")
        assert keys.press(given) if by_key else questions.answer(given)
        assert questions.current is None
    assert {*decided} == {Decision(allowed=True, model="small")}


@pytest.mark.parametrize(("models", "numbers"), [(["small"], "1"), (["medium", "small"], "1 to 2")])
def test_what_can_be_typed_names_the_numbers_of_cheaper_models(models: list[str], numbers: str) -> None:
    call = FanOut(what="map", bound="$4.00", cheaper=dict.fromkeys(models, (0.2, 0.1, 0.3)))
    asked = request("q", call, lambda _decision: True)
    assert hint(asked) == f"y yes, n no, {numbers} yes with another model, or type why not"


def test_another_line_than_yes_or_no_is_an_answer_of_its_own() -> None:
    asked = AskedRequest()
    asked.ask("one")
    for text in ("oki", "hm"):
        assert asked.questions.answer(text)
        assert asked.questions.asks_back == f"deny with the reason {text!r}? y yes · n no"
    assert asked.questions.answer("not in this folder")
    assert asked.answers == {"one": Decision(allowed=False, reason="not in this folder")}


def test_what_is_asked_back_belongs_to_its_question() -> None:
    asked = AskedRequest()
    asked.ask("one", "two")
    asked.questions.answer("oki")
    asked.questions.observe(ApprovalDecided(**CHILD, request_id="one", allowed=False))
    assert asked.questions.asks_back == ""
    asked.questions.answer("y")
    assert asked.answers == {"two": Decision(allowed=True)}
    asked.ask("three", "four")
    asked.questions.answer("oki")
    asked.questions.answer("/2")
    asked.questions.answer("y")
    assert asked.answers["four"] == Decision(allowed=True)
    assert asked.questions.asks_back == ""


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_an_empty_line_answers_nothing(text: str) -> None:
    asked = AskedRequest()
    asked.ask("one")
    assert not asked.questions.answer(text)
    assert asked.questions.current_id == "one"
    assert not asked.answers


def test_without_a_question_nothing_is_answered() -> None:
    assert not Questions().answer("y")


def test_questions_are_answered_in_the_order_in_which_they_came() -> None:
    asked = AskedRequest()
    asked.ask("one", "two")
    asked.questions.answer("n")
    asked.ask("three")
    asked.questions.answer("y")
    asked.questions.answer("because of that")
    assert [(name, decision.allowed) for name, decision in asked.answers.items()] == [
        ("one", False),
        ("two", True),
        ("three", False),
    ]


@pytest.mark.parametrize("order", list(itertools.permutations(["one", "two", "three"])))
def test_questions_are_withdrawn_in_any_order(order: tuple[str, ...]) -> None:
    asked = AskedRequest()
    asked.ask("one", "two", "three")
    left = ["one", "two", "three"]
    for name in order:
        asked.questions.observe(ApprovalDecided(**CHILD, request_id=name, allowed=False))
        left.remove(name)
        assert [item.request_id for item in asked.questions.waiting] == left
        assert asked.questions.current_id == (left[0] if left else None)
    assert not asked.answers


def test_another_question_can_be_answered_first() -> None:
    asked = AskedRequest()
    asked.ask("one", "two", "three", "four", "five", "six", "seven")
    assert asked.questions.others()[0] == "/2 bbbb: run code: two"
    assert asked.questions.others()[-1] == "… and 2 more"
    for text in ("/0", "/8"):
        assert not asked.questions.answer(text)
        assert asked.questions.current_id == "one"
    assert asked.questions.answer("/3")
    assert asked.questions.current_id == "three"
    assert asked.questions.answer("no threes")
    assert asked.answers == {"three": Decision(allowed=False, reason="no threes")}
    assert [item.request_id for item in asked.questions.waiting] == ["one", "two", "four", "five", "six", "seven"]


def test_a_pattern_that_is_none_leaves_the_question_open() -> None:
    def answer(decision: Decision) -> bool:
        if decision.pattern:
            raise ValueError(decision.pattern)
        return True

    questions = Questions()
    questions.observe(request("one", CodeAction(code="1"), answer))
    assert not questions.answer("a shell:")
    assert questions.current_id == "one"
    assert questions.answer("a")


def test_an_answer_that_is_reported_afterwards_takes_nothing_else_away() -> None:
    asked = AskedRequest()
    asked.ask("one", "two")
    asked.questions.answer("y")
    asked.questions.observe(ApprovalDecided(**CHILD, request_id="one", allowed=True))
    assert asked.questions.current_id == "two"


def test_all_can_be_answered_at_once() -> None:
    asked = AskedRequest()
    asked.ask("one", "two")
    asked.questions.refuse_all("gone")
    assert {decision.reason for decision in asked.answers.values()} == {"gone"}
    assert asked.questions.current is None


async def test_a_question_is_written_at_once_so_that_an_answer_stands_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    written: list[str] = []
    with open(reading) as stdin, open(writing, "w"), monkeypatch.context() as patched:
        patched.setattr(sys, "stdin", stdin)
        with LineApprover(Mock(spec=io.TextIOWrapper, write=written.append)) as approver:
            approver.observe(AskedRequest().request("one"))
            approver.observe(AskedRequest().request("two"))
    (text,) = written
    assert text.startswith("Approval 1 of 1: ")
    assert text.endswith("or type why not)\n")
