"""Asks a person for lines that code reads from a keyboard: `input()`, `getpass`, debuggers, `sys.stdin`.

Sent into every kernel as source: standard library and IPython only. The question is a request to the host, like all others,
and not Jupyter's `input_request`: it can come from any thread and also between cells, and it ends with its cell. Another
Jupyter program that runs a cell in this kernel, and says that it takes input requests, gets those. `agent.ask_user`
(`AskingFunction`) asks in the middle of a cell as well.
"""

import builtins
import getpass
import inspect
import io
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from IPython.core.error import StdinNotImplementedError

from . import schemas
from .borrowed_kernel import may_ask

WAY_OUT = "put the value into the code, or ask for it in your reply"


class KernelInput:
    """Questions on behalf of the code in one kernel that reads lines."""

    def __init__(self, kernel: Any, ask_host: Callable[..., Any]) -> None:
        """Args: ask_host: sends a method and its parameters, and waits for the answer."""
        self._ask_host = ask_host
        self._home = os.getpid()
        self._kernel = kernel
        self._raw_input, self._getpass = kernel.raw_input, kernel.getpass
        self.stdin = Stdin(self.line)

    def input(self, prompt: Any = "") -> str:
        """Ask for a line, in place of the built-in function."""
        if sys.stdin is not self.stdin:  # the code has put something else there, such as a text
            print(prompt, end="", flush=True)  # noqa: T201  # as the original
            if line := sys.stdin.readline():
                return line.removesuffix("\n")
            raise EOFError("EOF when reading a line")
        if self._asks_itself:
            return str(self._raw_input(prompt))
        return self._ask("input()", str(prompt))

    def getpass(self, prompt: str = "Password: ", *arguments: Any, **options: Any) -> str:
        """Ask for a secret, in place of `getpass.getpass`. The answer is neither shown nor recorded."""
        if self._asks_itself:
            return str(self._getpass(prompt, *arguments, **options))
        return self._ask("getpass()", str(prompt), secret=True)

    def line(self) -> str:
        """Return a line of standard input; empty at its end, which is where nobody answers."""
        try:
            return f"{self._ask('sys.stdin', '')}\n"
        except StdinNotImplementedError:
            return ""

    @property
    def _asks_itself(self) -> bool:
        """Whether the kernel asks the program that has sent the cell."""
        return may_ask(self._kernel)

    def _ask(self, what: str, prompt: str, *, secret: bool = False) -> str:
        if os.getpid() != self._home:
            raise StdinNotImplementedError(f"{what} gets no answer (a forked process cannot ask): {WAY_OUT}")
        try:
            return str(self._ask_host("question", prompt=prompt, secret=secret))
        except (RuntimeError, ValueError) as error:
            why = str(error)
        raise StdinNotImplementedError(f"{what} gets no answer ({why}): {WAY_OUT}")


class Stdin(io.TextIOWrapper):
    """`sys.stdin`. Programs that get it find `/dev/null`."""

    def __init__(self, line: Callable[[], str]) -> None:
        try:
            null = io.FileIO(0, closefd=False)
        except OSError:  # whoever has started the kernel has closed it
            null = io.FileIO(os.devnull)
        super().__init__(io.BufferedReader(null), encoding="utf-8", errors="replace")
        self._line = line
        self._rest = ""

    def readline(self, size: int | None = -1) -> str:  # type: ignore[override]  # the stub has a narrower type
        """Return a line, cut to the size."""
        text = self._rest or self._line()
        end = len(text) if size is None or size < 0 else size
        self._rest = text[end:]
        return text[:end]

    def read(self, size: int | None = -1) -> str:
        """Return one answer, which is all there is; a person can write several lines into it."""
        return self.readline(size)

    def readlines(self, hint: int = -1) -> list[str]:  # type: ignore[override]  # as above
        """Return the lines of one answer."""
        del hint
        return self.read().splitlines(keepends=True)


def install(kernel: Any, ask_host: Callable[..., Any]) -> None:
    """Ask through the host for all that this kernel's code reads. Called again in a branch."""
    keyboard = KernelInput(kernel, ask_host)
    # ipykernel puts its own functions into the two places for the time of each cell
    kernel.raw_input = builtins.input = keyboard.input
    kernel.getpass = getpass.getpass = keyboard.getpass
    sys.stdin = keyboard.stdin
    sys.breakpointhook = sys.__breakpointhook__  # that of ipykernel's debugger does nothing unless one is attached


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
