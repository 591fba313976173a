"""What a run asks, as forms for clients, and what clients answer."""

import pytest

from freeact_sub.calls import CodeAction, ShellCommand
from freeact_sub.events import Answer, ApprovalRequest, Decision, QuestionField, QuestionRequest
from freeact_sub.events.answers import ASKED
from freeact_sub.events.forms import fields_of
from freeact_sub.mcp_server.pending import answer_by_form, answer_by_values, form_of, message_of

FIELDS = (
    QuestionField(name="name", prompt="Your name", least=1, most=20),
    QuestionField(name="mail", prompt="Address", format="email", required=False),
    QuestionField(name="count", prompt="How many", kind="integer", least=1, most=9, default=3),
    QuestionField(name="share", prompt="Which part", kind="number", least=0.5),
    QuestionField(name="sure", prompt="Sure", kind="boolean"),
    QuestionField(name="one", prompt="Which", kind="choice", choices=("a", "b"), labels=("The a", "The b")),
    QuestionField(name="some", prompt="Which ones", kind="choices", choices=("a", "b"), least=1, most=2),
)


@pytest.fixture
def answers():
    """The answers to the request with the id `1`, which is open."""
    given = []

    class Receiver:
        def answer(self, _request_id, answer):
            given.append(answer)
            return True

        def shown(self, _request_id):
            pass

    ASKED["1"] = Receiver()
    yield given
    del ASKED["1"]


def question(*fields, **more):
    return QuestionRequest(request_id="1", prompt="What?", fields=fields, **more)


def approval(*suggested, call=None):
    return ApprovalRequest(
        request_id="1", call=call or ShellCommand(command="rm x"), suggested=suggested, path=("root", "child")
    )


def test_the_form_of_a_question_reads_as_its_fields():
    assert fields_of(form_of(question(*FIELDS))) == FIELDS


def test_a_choice_that_allows_other_texts_is_a_text():
    (read,) = fields_of(form_of(question(QuestionField(name="x", kind="choice", choices=("a", "b"), other=True))))
    assert (read.kind, "a, b" in read.prompt) == ("text", True)


def test_the_whole_action_is_in_the_message_and_always_only_where_it_means_something():
    code = "\n".join(f"line_{number}()" for number in range(500))
    message = message_of(approval(call=CodeAction(code=code)))
    assert "root > child" in message
    assert code in message
    assert form_of(approval())["properties"]["decision"]["enum"] == ["yes", "no"]
    with_always = form_of(approval("shell:rm *"))["properties"]["decision"]
    assert with_always["enum"] == ["yes", "always", "no"]
    assert "shell:rm *" in with_always["description"]


@pytest.mark.parametrize(
    ("action", "content", "decision"),
    [
        ("accept", {"decision": "yes"}, Decision(allowed=True)),
        ("accept", {"decision": "always"}, Decision(allowed=True, remember="session")),
        ("accept", {"decision": "no", "reason": "not now"}, Decision(allowed=False, reason="not now")),
        ("decline", {"decision": "yes"}, Decision(allowed=False, reason="the person declined")),
        ("cancel", None, Decision(allowed=False, reason="the person did not decide")),
    ],
)
def test_decisions(answers, action, content, decision):
    answer_by_form(approval("shell:rm *"), action, content)
    assert answers == [decision]


@pytest.mark.parametrize("content", [None, {}, {"decision": "YES"}, {"decision": True}, {"decision": "always"}])
def test_nothing_else_is_a_yes(answers, content):
    answer_by_form(approval(), "accept", content)
    assert [each.allowed for each in answers] == [False]
    with pytest.raises(ValueError, match="yes, no"):
        answer_by_values(approval(), content or {})
    assert len(answers) == 1


def test_answers_to_questions(answers):
    answer_by_form(question(), "accept", {"answer": "42"})
    answer_by_form(question(*FIELDS), "accept", {"name": "Ada"})
    answer_by_form(question(), "decline", None)
    assert answers == [Answer(text="42"), Answer(values={"name": "Ada"}), Answer(reason="the person declined")]
