"""Tools that get an answer: of a model (`ask`, one request without tools or kernel), of the parent or of a person."""

import json
from typing import Any, Final

from pydantic import BaseModel, Field

from freeact_sub.errors import FreeactError, InvalidRequestError
from freeact_sub.events import Answer
from freeact_sub.events.form_schema import form_question
from freeact_sub.events.forms import PersonQuestion, QuestionField
from freeact_sub.tools.tool import HarmlessTool, ToolContext, ToolResult


class AskArguments(BaseModel):
    """See `tools/ask.json`."""

    model_config = {"extra": "forbid", "defer_build": True}
    prompt: str = Field(min_length=1)
    model: str = ""
    label: str = ""


class Ask(HarmlessTool):
    """Asks a model through the function that the agent placed in the context."""

    name = "ask"
    arguments = AskArguments

    async def run(self, arguments: AskArguments, context: ToolContext) -> ToolResult:
        """See `Tool`."""
        return ToolResult(text=await context.ask(arguments.prompt, arguments.model or None))


class AskParentArguments(BaseModel):
    """See `tools/ask_parent.json`."""

    model_config = {"extra": "forbid", "defer_build": True}
    question: str = Field(min_length=1)


class AskParent(HarmlessTool):
    """Asks the parent. Only background children have it: a parent that waits for its child cannot answer."""

    name = "ask_parent"
    arguments = AskParentArguments

    async def run(self, arguments: AskParentArguments, context: ToolContext) -> ToolResult:
        """See `Tool`."""
        if context.ask_parent is None:
            raise FreeactError("your parent is waiting for you and cannot answer: decide yourself, and say what you assumed")
        return ToolResult(text=await context.ask_parent(arguments.question))


MAX_QUESTIONS: Final = 4
MAX_CHOICES: Final = 4
MAX_CHARS: Final = 10_000
"""Of a question, and of a choice."""
UNANSWERED: Final = "The user has given no answer ({why}): decide yourself, and say what you assumed."


class AskedQuestion(BaseModel):
    """One question."""

    model_config = {"defer_build": True}
    question: str
    choices: list[str] = Field(default_factory=list)


class AskUserArguments(BaseModel):
    """See `tools/ask_user.json`, which is short: `question_of` says what else there is to it."""

    model_config = {"defer_build": True}
    questions: list[AskedQuestion] = Field(default_factory=list)
    form: dict[str, Any] = Field(default_factory=dict)


class AskUser(HarmlessTool):
    """Asks through the function that the agent placed in the context."""

    name = "ask_user"
    arguments = AskUserArguments

    async def run(self, arguments: AskUserArguments, context: ToolContext) -> ToolResult:
        """See `Tool`."""
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
    """What a person is asked.

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
    """The answers to the questions, in their order; the values of a form by name."""
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
