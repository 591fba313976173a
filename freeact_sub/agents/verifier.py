"""Checks of an answer before it is accepted: by the starter's `check`, and by the type's `verify` (`Verifier`).

Code that a parent's model has written runs in a branch of the child's kernel, which is dropped afterwards: it sees the
child's variables, and changes none. It needs approval like a cell of the parent, and so do its actions.
A function of the program is the program's own and runs in it.
"""

import ast
import asyncio
import inspect
import warnings
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from freeact_sub.agents.answers import Refusal
from freeact_sub.agents.call import permit
from freeact_sub.agents.feature import Asker
from freeact_sub.agents.life import TreeAgent
from freeact_sub.agents.requests import action_of, reply_to_check
from freeact_sub.calls import CodeAction
from freeact_sub.cells import ExecuteReply
from freeact_sub.errors import FreeactError, InvalidRequestError, KernelError
from freeact_sub.kernels import CellClock, CellOutputBuffer, HostRequestHandler, Kernel, put_values
from freeact_sub.modes import MODES
from freeact_sub.system.closing import carry_out
from freeact_sub.text import clean, one_line, shortened

Check: TypeAlias = str | Callable[[Any], Any]
"""A check: code that looks at `answer`, or a function of it. It fails if it raises, or if its value is false."""
MAX_CODE_CHARS: Final = 20_000
PROBLEM_CHARS: Final = 1_500
LINE_CHARS: Final = 500
AGAIN: Final = (
    "Your answer was checked, and is not accepted:\n{problem}\nCorrect what is wrong, and give your whole final answer "
    "again. It is checked once more."
)
NO_SYNTAX: Final = "check: it is not Python that can be run: {why}"


class CopiedKernel(Protocol):
    """The kernel of the agent that has answered."""

    async def copy(self, handler: HostRequestHandler | None = None) -> Kernel:
        """Branch the live kernel; the caller closes it or passes it to `exchange`. Args: handler: None: this agent's."""
        ...


@dataclass(kw_only=True, eq=False)
class Verifier:
    """Checks of the answers of one run, each time that it ends."""

    check: Check | None = None
    verify: Callable[[Any], Awaitable[str]] | None = None
    """The `verify` of a type that only a parent's kernel knows: returns what is wrong with an answer, or nothing."""
    starter: TreeAgent | None = None
    """The agent that started the run."""
    of_program: bool = False
    """Whether the check is the program's own, and so runs unasked."""
    verified: bool = False
    """Whether the last answer has passed."""
    unverified: str = ""
    """The reason why it has not. Empty: it has, or there is no check."""
    _sent_back: bool = False

    async def reason_to_go_on(self, answer: Any, agent: TreeAgent, kernel: CopiedKernel, *, may_go_on: bool) -> str:
        """Check an answer. Return the text that sends it back to the model, at most once. Empty: accepted.

        Args:
            answer: The answer.
            agent: The agent that gave it.
            kernel: The agent's.
            may_go_on: Whether the agent can make another request.
        """
        self.verified, self.unverified = False, ""
        if isinstance(answer, Refusal):
            return ""
        try:
            problem, was_checked = await self._problem(answer, agent, kernel)
        except (FreeactError, TimeoutError) as error:
            self.unverified = f"its check could not run: {str(error) or 'it took too long'}"
            return ""
        self.verified = was_checked and not problem
        if not problem:
            return ""
        problem = shortened(clean(problem).strip(), PROBLEM_CHARS)
        last = one_line(problem.splitlines()[-1] if problem else "", LINE_CHARS)  # of a traceback
        self.unverified = f"the check of the answer has failed{' again' if self._sent_back else ''}: {last}"
        if self._sent_back or not may_go_on:
            return ""
        self._sent_back = True
        return AGAIN.format(problem=problem)

    async def _problem(self, answer: Any, agent: TreeAgent, kernel: CopiedKernel) -> tuple[str, bool]:
        problems = []
        if callable(own := getattr(type(answer), "verify", None)) and not isinstance(answer, str):
            problems.append(await _called(own, answer, agent))
        if self.verify is not None:
            problems.append(await self.verify(answer))
        if callable(self.check):
            problems.append(await _called(self.check, answer, agent))
        elif self.check is not None and not any(problems):
            problems.append(await self._run(self.check, answer, agent, kernel))
        return next(filter(None, problems), ""), bool(problems)

    async def _run(self, code: str, answer: Any, agent: TreeAgent, kernel: CopiedKernel) -> str:
        starter = self.starter or agent
        if not self.of_program:
            call = CodeAction(code=code, description="check of a child's answer")
            with agent.run.clocks_paused():
                decision = await permit(call, Asker(agent=stricter(starter, agent), by="check"))
                code = (decision and decision.code) or code
        host = CheckHost(starter, agent)
        copy = await kernel.copy(host.reply)
        try:
            await put_values({"answer": answer}, copy)
            buffer = CellOutputBuffer(model_chars=PROBLEM_CHARS)
            reply = await _cell(as_check(code), copy, buffer, agent)
            if copy.lost_reason is not None:
                raise KernelError(copy.lost_reason)
            if reply.status == "timeout":
                raise TimeoutError
        finally:
            await carry_out(copy.aclose())
        return "" if reply.status == "ok" else buffer.text or f"it has ended: {reply.status}"


def stricter(starter: TreeAgent, agent: TreeAgent) -> TreeAgent:
    """Return the agent whose rules count for a check: its kernel may lack the wall that the starter's mode relies on."""
    return min(starter, agent, key=lambda each: MODES.index(each.policy.mode))


class CheckHost:
    """The host of a check's code."""

    def __init__(self, starter: TreeAgent, agent: TreeAgent) -> None:
        self._starter, self._agent = starter, agent

    async def reply(self, method: str, params: Mapping[str, Any], clock: CellClock | None) -> str | None:
        """Reply to the check's code: actions need the approval that the parent's need; nothing else is there."""
        if method == "files":  # what a check reads, its child has not read
            return None
        if method != "check":
            raise FreeactError(f"a check has no {method!r}: it looks at what the child has, and at files")
        call = action_of(params, self._agent.shared.config.workspace)
        with self._agent.run.clocks_paused():
            asker = Asker(agent=stricter(self._starter, self._agent), by="check", clock=clock)
            return reply_to_check(await permit(call, asker))


async def _cell(code: str, kernel: Kernel, buffer: CellOutputBuffer, agent: TreeAgent) -> ExecuteReply:
    clock = CellClock(agent.shared.config.kernel.cell_timeout_seconds)
    async with kernel.execute(code, buffer, clock) as cell:
        async for _ in cell:
            pass
        return await cell.reply()


async def _called(check: Callable[[Any], Any], answer: Any, agent: TreeAgent) -> str:
    """Call a function of the program, in a thread if it is not async; return what is wrong, or nothing.

    Raises:
        TimeoutError: The function takes longer than a cell may.
    """
    async with asyncio.timeout(agent.shared.config.kernel.cell_timeout_seconds):
        if inspect.iscoroutinefunction(check):
            value, error = check(answer), None
        else:
            value, error = await asyncio.to_thread(_caught, lambda: check(answer))
        if inspect.isawaitable(value):
            try:
                value = await value
            except (asyncio.CancelledError, KeyboardInterrupt):
                raise
            except BaseException as raised:  # noqa: BLE001  # border: code of the SDK's user; any error is a verdict
                error = raised
    if error is None:
        verdict, error = _caught(lambda: "" if value is None or value else f"it gave {value!r}")
    return verdict if error is None else _sentence(error)


def _caught(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Return the value of a call, or its error, `sys.exit` and `pytest.fail` too. It may run in a thread."""
    try:
        return call(), None
    except BaseException as error:  # noqa: BLE001  # as above
        return None, error


def _sentence(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  # an error that cannot be shown
        return type(error).__name__


def checked_check(check: Check) -> Check:
    """Return a check that can be run.

    Raises:
        InvalidRequestError: The check cannot be run.
    """
    if isinstance(check, str):
        as_check(check)
    elif not callable(check):
        raise InvalidRequestError(f"check: it is code or a function, not {check!r:.100}")
    return check


def as_check(code: str) -> str:
    """Return code that raises an error if its last line, an expression, is false.

    Raises:
        InvalidRequestError: The code is not Python, or too long.
    """
    if len(code) > MAX_CODE_CHARS:
        raise InvalidRequestError(f"check: it has more than {MAX_CODE_CHARS:,} characters: shorten it")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the code, such as odd escapes
            tree = compile(code, "check", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidRequestError(NO_SYNTAX.format(why=error)) from error
    if not isinstance(tree, ast.Module) or not tree.body:
        raise InvalidRequestError(NO_SYNTAX.format(why="there is none"))
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        return code
    lines = code.encode().splitlines(keepends=True)
    start = sum(map(len, lines[: last.lineno - 1])) + last.col_offset
    end = sum(map(len, lines[: (last.end_lineno or last.lineno) - 1])) + (last.end_col_offset or 0)
    data = code.encode()
    before, shown = data[:start].decode(), data[start:end].decode()
    raises = f"raise AssertionError({f'the check is false: {shown}'!r} + f' (answer = {{answer!r:.300}})')"
    return f"{before}_is_right = (\n{shown}\n)\nif not _is_right:\n    {raises}"
