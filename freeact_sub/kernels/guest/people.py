"""Asks a person in the middle of a cell: `agent.ask_user`.

Sent into every kernel as source, with the standard library only.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from . import schemas


class AskingFunction:
    """Ask the user, and wait for the answer: `await agent.ask_user(...)`, or without `await` in plain code.

    ::

        database = await agent.ask_user("Which database?", ["SQLite", "PostgreSQL"])
        name, why = await agent.ask_user([("Which name?", ["a", "b"]), "Why?"])
        values = await agent.ask_user(form={"properties": {"port": {"type": "integer"}}, "required": ["port"]})

    Args:
        question: A question, or a list of up to four: each a text, or a pair of a text and its choices.
        choices: Two to four answers to choose from. The user may write another one.
        form: Instead of questions: a dataclass, a pydantic model or a JSON schema, of texts, numbers, booleans and enums.

    Returns:
        The answer as text; for a list, a list of texts; for a form, a value of its type.

    Raises:
        RuntimeError: The user does not answer, or nobody is there; the message says why.
        ValueError: There are too many questions or choices, or the form has a field of another kind.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        """Args: call: sends a request; returns a coroutine where the caller's caller can await one."""
        self._call = call

    def __call__(self, question: Any = None, choices: Any = (), *, form: Any = None) -> Any:  # noqa: D102  # the class says it
        many = isinstance(question, list | tuple)
        asked = question if many else [] if question is None else [(question, choices)]
        params: dict[str, Any] = {"questions": [_asked(one) for one in asked]}
        schema, decode = (form, None) if form is None or isinstance(form, dict) else schemas.schema_of(form)
        if schema is not None:
            params["form"] = schema

        def value_of(given: Any) -> Any:
            if schema is None:
                return given if many else given[0]
            return given if decode is None else decode(given)

        reply = self._call("ask_user", **params)
        return _later(reply, value_of) if inspect.isawaitable(reply) else value_of(reply)

    def __repr__(self) -> str:
        return "<agent.ask_user(question, choices), which asks the user>"


def _asked(one: Any) -> dict[str, Any]:
    question, choices = one if isinstance(one, list | tuple) else (one, ())
    if isinstance(choices, str):
        raise TypeError("choices must be a list of texts")
    return {"question": question, "choices": list(choices)}


async def _later(reply: Awaitable[Any], value_of: Callable[[Any], Any]) -> Any:
    return value_of(await reply)
