"""Questions of models and code to people (`QuestionsFeature`): the tool `ask_user`, and `agent.ask_user` in cells.

Reading from the keyboard in a cell (`input()`) needs no feature: `agents/requests.py`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, Field

from freeact_sub.agents.feature import FeatureAgent, Handler, ToolsFeature
from freeact_sub.agents.life import tree_agent
from freeact_sub.agents.requests import tool_call_id_of, validated
from freeact_sub.approvals import required
from freeact_sub.calls import ToolCall
from freeact_sub.errors import InvalidRequestError
from freeact_sub.events import Answer
from freeact_sub.events.forms import PersonQuestion, QuestionField, form_question
from freeact_sub.kernels import CellClock
from freeact_sub.tools import PlainTool, Tool, ToolContext, ToolResult

MAX_QUESTIONS: Final = 4
MAX_CHOICES: Final = 4
MAX_CHARS: Final = 10_000
"""Characters of a question, and of a choice."""
UNANSWERED: Final = "The user has given no answer ({why}): decide yourself, and say what you assumed."


class AskedQuestion(BaseModel):
    """One question."""

    model_config = {"defer_build": True}
    question: str
    choices: list[str] = Field(default_factory=list)


class AskUserArguments(BaseModel):
    """Arguments of `ask_user`. `tools/ask_user.json` is short: `question_of` checks the rest."""

    model_config = {"defer_build": True}
    questions: list[AskedQuestion] = Field(default_factory=list)
    form: dict[str, Any] = Field(default_factory=dict)


class AskUser(PlainTool):
    """A tool that asks a person through the context's `ask_user`."""

    name = "ask_user"
    arguments = AskUserArguments

    async def run(self, arguments: AskUserArguments, context: ToolContext) -> ToolResult:
        """Ask the person."""
        asked = question_of(arguments)
        answer = await context.ask_user(asked)
        if answer.text is None:
            why = answer.reason or "the user declined"
            return ToolResult(text=UNANSWERED.format(why=why), outcome="failed")
        values = values_of(arguments, answer)
        if isinstance(values, list):
            return ToolResult(text=values[0] if len(values) == 1 else _paired(asked.fields, values))
        return ToolResult(text=json.dumps(values, ensure_ascii=False))


def question_of(arguments: AskUserArguments) -> PersonQuestion:
    """Return the question to a person.

    Raises:
        InvalidRequestError: The arguments do not make a question; the message says why.
    """
    if bool(arguments.questions) == bool(arguments.form):
        raise InvalidRequestError("ask_user takes either `questions` or a `form`")
    if not arguments.form:
        fields = tuple(map(_field, arguments.questions))
        names = [field.name for field in fields]
        if len({*names}) < len(names) or len(names) > MAX_QUESTIONS or not all(name.strip() for name in names):
            raise InvalidRequestError(f"ask_user takes 1 to {MAX_QUESTIONS} different questions")
        return PersonQuestion(prompt="\n".join(names), fields=fields)
    words = [arguments.form.get(key) for key in ("title", "description")]
    prompt = "\n".join(word for word in words if isinstance(word, str) and word.strip())[:MAX_CHARS]
    try:
        return form_question(prompt, arguments.form)
    except ValueError as error:
        raise InvalidRequestError(f"ask_user: {error}") from error


def values_of(arguments: AskUserArguments, answer: Answer) -> list[str] | dict[str, Any]:
    """Return the answers to the questions, in their order; the values of a form by name."""
    values = dict(answer.values or {})
    return values if arguments.form else [str(values[asked.question[:MAX_CHARS]]) for asked in arguments.questions]


def _field(asked: AskedQuestion) -> QuestionField:
    name, choices = asked.question[:MAX_CHARS], tuple(choice[:MAX_CHARS] for choice in asked.choices)
    is_odd = len({*choices}) < len(choices) or not all(choice.strip() for choice in choices)
    if is_odd or len(choices) == 1 or len(choices) > MAX_CHOICES:
        raise InvalidRequestError("ask_user: a question has 2 to 4 different choices, or none")
    return QuestionField(name=name, kind="choice" if choices else "text", choices=choices, other=bool(choices))


def _paired(fields: tuple[QuestionField, ...], values: list[str]) -> str:
    return "\n".join(f"{field.name}\n-> {value}" for field, value in zip(fields, values, strict=True))


class QuestionsFeature(ToolsFeature):
    """Questions of all agents to people."""

    def tools(self, agent: FeatureAgent) -> Sequence[Tool]:
        """Give each agent the tool."""
        del agent
        return (AskUser(),)

    def requests(self, agent: FeatureAgent) -> Mapping[str, Handler]:
        """Let code ask, also in a node."""
        whole = tree_agent(agent)

        async def ask_user(params: Mapping[str, Any], clock: CellClock | None) -> Any:
            arguments = validated(AskUserArguments.model_validate, params, "agent.ask_user")
            whole.rights.check(ToolCall(tool_name="ask_user", args={}))
            answer = await whole.ask_person(question_of(arguments), tool_call_id=tool_call_id_of(clock), clock=clock)
            return values_of(arguments, required(answer))

        return {"ask_user": ask_user}
