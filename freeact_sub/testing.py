"""Fakes for tests, ours and yours: a scripted model, a kernel without a process, an approver that answers by rule.

They are public and keep to the protocols of the real things. Offline demos use the scripted model as well::

    model = ScriptedModel([[ToolCallPart("execute_ipython_cell", {"code": "print(6 * 7)"})], "It is 42."])
    async with Agent(config, model=model) as agent:
        result = await ScriptedApprover().drive(agent.run("What is 6 times 7?"))
"""

import asyncio
import contextlib
import io
import json
import pickle
import re
import traceback
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_core import to_jsonable_python

from freeact_sub import events as ev
from freeact_sub.cells import CellError, ExecuteReply, ExecuteResult, ReplyStatus, StreamText
from freeact_sub.config.schema import KernelConfig
from freeact_sub.errors import KernelBranchError, KernelSnapshotError
from freeact_sub.kernels import (
    AuditSettings,
    CellClock,
    CellOutputBuffer,
    CellRun,
    HostRequestHandler,
    KernelPlace,
    KernelSpec,
)
from freeact_sub.kernels.files import OwnFiles
from freeact_sub.kernels.rights import more_than, rights_of
from freeact_sub.kernels.snapshot_reports import LeftOut, LostVariable, RestoreReport, SnapshotReport, Variable
from freeact_sub.modes import Mode

__all__ = [
    "FakeKernel",
    "FakeKernelProvider",
    "Item",
    "Script",
    "ScriptedApprover",
    "ScriptedModel",
    "Turn",
    "first_prompt",
    "prompts",
    "reply",
]

Item: TypeAlias = ModelResponsePart | str | asyncio.Event | Exception
"""A part of a response: text, thinking, a tool call; an event is awaited (a silent model); an error is raised."""

Turn: TypeAlias = Item | Sequence[Item]

Script: TypeAlias = Sequence[Turn] | Mapping[str, Sequence[Turn]] | Callable[[list[ModelMessage], AgentInfo], Turn]
"""Turns of a conversation; or by a text that the conversation's first prompt contains; or a function of the messages."""


class ScriptedModel(FunctionModel):
    """A model that replies from a script.

    The script has one turn for each request, of texts and tool calls::

        model = ScriptedModel([[ToolCallPart("execute_ipython_cell", {"code": "1 + 1"})], "The answer is 2."])
        async with Agent(model=model, kernel_provider=FakeKernelProvider()) as agent:
            assert (await agent.run("How much is 1 + 1?")).output == "The answer is 2."

    A dict has a list of turns for conversations whose first prompt contains the key, and a function returns the turn for the
    messages and the request's parameters.

    There is no cursor: the turn follows from the conversation, so one model serves any number of agents at once. After its
    last turn it replies `(end of script)`.
    """

    def __init__(self, script: "Script", *, chunk_chars: int = 12, name: str = "scripted") -> None:
        """Make the model. Args: chunk_chars: size of streamed pieces of text and arguments. name: the model's name."""
        self._script = script
        self._chunk_chars = chunk_chars
        self.requests = 0
        """Model requests served."""
        super().__init__(self._respond, stream_function=self._stream, model_name=name)

    async def _respond(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[part async for part in self._parts(messages, info)])

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        index = -1
        async for part in self._parts(messages, info):
            index += 1
            match part:
                case ToolCallPart():
                    yield {index: DeltaToolCall(name=part.tool_name, tool_call_id=part.tool_call_id)}
                    for piece in self._pieces(json.dumps(part.args) if isinstance(part.args, dict) else part.args or "{}"):
                        yield {index: DeltaToolCall(json_args=piece)}
                case ThinkingPart():
                    for piece in self._pieces(part.content):
                        yield {index: DeltaThinkingPart(content=piece)}
                case TextPart():
                    for piece in self._pieces(part.content):
                        yield piece
        if index < 0:
            yield ""

    async def _parts(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[ModelResponsePart]:
        self.requests += 1
        turn = self._turn(messages, info)
        for item in [turn] if isinstance(turn, str) or not isinstance(turn, Sequence) else turn:
            if isinstance(item, asyncio.Event):
                await item.wait()
            elif isinstance(item, Exception):
                raise item
            else:
                yield TextPart(item) if isinstance(item, str) else item

    def _turn(self, messages: list[ModelMessage], info: AgentInfo) -> Turn:
        script = self._script
        if callable(script):
            return script(messages, info)
        if isinstance(script, Mapping):
            prompt = first_prompt(messages)
            script = next((turns for key, turns in script.items() if key in prompt), ())
        index = sum(isinstance(message, ModelResponse) for message in messages)
        return script[index] if index < len(script) else "(end of script)"

    def _pieces(self, text: str) -> list[str]:
        """Cut a text into pieces, at least one: pydantic-ai wants one also for an empty text."""
        return [text[start : start + self._chunk_chars] for start in range(0, len(text) or 1, self._chunk_chars)]


def reply(info: AgentInfo, value: Any) -> ModelResponsePart:
    """Return the last response of a model, for a script that is a function of the messages and `info`.

    The response calls the tool that takes the answer, whatever its name and argument; without one, the value is the text.
    """
    if not info.output_tools:
        return TextPart(value if isinstance(value, str) else json.dumps(to_jsonable_python(value)))
    tool, args = info.output_tools[0], to_jsonable_python(value)
    schema = tool.parameters_json_schema
    names = schema.get("properties", {}).keys()
    is_object = isinstance(args, dict) and {*schema.get("required", ())} <= args.keys()
    fits = is_object and (args.keys() <= names or bool(schema.get("additionalProperties")))
    return ToolCallPart(tool.name, args if fits else dict.fromkeys(names, args))


CHILD_NOTE: Final = re.compile(r"\n\nYou are a child agent at depth .*?Answer before your budget is used up\.", re.DOTALL)
HOST_NOTES: Final = re.compile(
    r"\A\[(?:Your kernel is new|This conversation was forked|What came after this was undone)(?:.|\n(?!\n))*\]\n\n"
)
"""The host's notes to a model in front of a prompt: one paragraph."""


def first_prompt(messages: Sequence[ModelMessage]) -> str:
    """Return the prompt that began a conversation, without the host's notes."""
    return next(iter(prompts(messages)), "")


def prompts(messages: Sequence[ModelMessage]) -> list[str]:
    """Return the prompts of a conversation that are texts, as they were given.

    The host's notes are left out: in front of a prompt on a new kernel or a fork, behind it on a child and its budget.
    """
    parts = (part for message in messages if isinstance(message, ModelRequest) for part in message.parts)
    return [
        CHILD_NOTE.sub("", HOST_NOTES.sub("", part.content))
        for part in parts
        if isinstance(part, UserPromptPart) and isinstance(part.content, str)
    ]


class ScriptedApprover:
    """An approver that answers requests by a rule, and keeps all events.

    The rule is a function of the request; the default approves everything. Answers are given while the events are read, in
    the order in which they come.
    """

    def __init__(self, rule: Callable[[ev.ApprovalRequest], ev.Decision | None] | None = None) -> None:
        """Make the approver. Args: rule: decides a request; None leaves it open, to be answered later by the test."""
        self._rule = rule or (lambda _: ev.Decision(allowed=True))
        self.events: list[ev.Event] = []

    async def drive(self, run: Any) -> Any:
        """Read a run to its end; return its result."""
        async for event in run:
            self.events.append(event)
            if isinstance(event, ev.ApprovalRequest) and not event.headless and (decision := self._rule(event)) is not None:
                event.decide(decision)
            elif isinstance(event, ev.QuestionRequest):
                event.skip()
        return await run.result()


class FakeKernel:
    """A kernel without a process, for tests of other things. It runs cells with `exec` in one namespace."""

    def __init__(self, spec: KernelSpec, handler: HostRequestHandler) -> None:
        self.spec = spec
        self._handler = handler
        self._namespace: dict[str, Any] = {}
        self._saved: tuple[Path, bytes] | None = None
        self.cells = 0
        """The number of cells that have begun."""
        self._lost = asyncio.Event()
        self._interrupted = asyncio.Event()
        self.lost_reason: str | None = None
        self.unread = ""
        self.scratch: Path | None = None
        self.may_be_replaced = True
        self.own_files: OwnFiles | None = None

    @contextlib.asynccontextmanager
    async def execute(
        self, code: str, buffer: CellOutputBuffer, clock: CellClock, *, silent: bool = False
    ) -> AsyncIterator[CellRun]:
        """Run a cell. Cells are synchronous; `!sleep …` waits for an interrupt, a loss or its time."""
        self.cells += not silent
        self._interrupted.clear()
        status: ReplyStatus
        if self.lost_reason is not None:
            status = "kernel_lost"
        elif code.lstrip().startswith("!sleep"):
            status = await self._wait(clock)
        else:
            status = self._run(code, buffer)
        buffer.end(ExecuteReply(status=status, execution_count=self.cells, left_out_chars=buffer.left_out_chars))
        yield CellRun(buffer)

    async def ask_host(self, method: str, **params: Any) -> Any:
        """Make a request that code in the kernel can make; raise the error that the code would read."""
        return await self._handler(method, params, None)

    async def interrupt(self) -> None:
        """Interrupt the running cell, if any, and its open requests to the host."""
        self._interrupted.set()

    async def wait_lost(self) -> str:
        """Wait until the kernel's process has ended, and return the reason."""
        await self._lost.wait()
        return self.lost_reason or ""

    def ask_about(self, names: tuple[tuple[str, str], ...]) -> None:
        """Change nothing: nothing is asked here."""

    async def branch(self, spec: KernelSpec, handler: HostRequestHandler) -> "FakeKernel":
        """Make a kernel with the names of this one; values that can be changed are shared, unlike in a real branch."""
        if self.lost_reason is not None:
            raise KernelBranchError(f"a kernel that has ended cannot be branched: {self.lost_reason}")
        if spec.trial is not None:
            raise KernelBranchError("a kernel without a process has no wall for a trial")
        branch = FakeKernel(spec, handler)
        branch._namespace = dict(self._namespace)
        return branch

    async def snapshot(self, folder: Path, *, max_bytes: int | None = None, keep: Collection[str] = ()) -> SnapshotReport:
        """Keep the values that plain pickle takes, whatever their size, without the objects that they share."""
        del max_bytes, keep
        kept: dict[str, bytes] = {}
        lost = []
        for name, value in self._namespace.items():
            if name != "__builtins__":
                try:
                    kept[name] = pickle.dumps(value)
                except Exception as error:  # noqa: BLE001  # border: a type may do anything
                    lost.append(LostVariable(name=name, type=type(value).__name__, reason=str(error), cell=None))
        content = pickle.dumps((kept, lost, rights_of(self.spec)))
        if self._saved != (folder, content):  # as a real one: what has not changed is not written
            folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240  # a test's own
            (folder / "new").write_bytes(content)
            (folder / "new").replace(folder / "fake")
            self._saved = folder, content
        return SnapshotReport(
            kept=tuple(Variable(name=name, line=name) for name in kept),
            lost=tuple(lost),
            size_bytes=len(content),
            written_bytes=len(content),
            pause_seconds=0.0,
            not_forked="",
        )

    async def restore(self, folder: Path, *, allow_more: bool = False) -> RestoreReport:
        """Bring the variables of a snapshot back, modules, search path and working directory included."""
        try:
            kept, lost, rights = pickle.loads((folder / "fake").read_bytes())  # noqa: S301  # a test's own
        except FileNotFoundError as error:
            raise KernelSnapshotError(f"no variables are saved in {folder}") from error
        variables = tuple(Variable(name=name, line=name) for name in kept)
        if variables and (more := more_than(rights_of(self.spec), rights)) and not allow_more:
            left_out = LeftOut(variables=variables, saved_in=rights.name, more=more, continue_in=rights.name)
            return RestoreReport(restored=(), lost=tuple(lost), left_out=(left_out,))
        self._namespace |= {name: pickle.loads(value) for name, value in kept.items()}  # noqa: S301  # the same
        return RestoreReport(restored=variables, lost=tuple(lost))

    def die(self, reason: str = "it was killed by the test") -> None:
        """End like a killed process."""
        self.lost_reason = reason
        self._lost.set()
        self._interrupted.set()

    async def aclose(self) -> None:
        """End the kernel and all processes that its cells started, and remove its files. Can be called again."""
        if self.lost_reason is None:
            self.die("it was closed")

    async def _wait(self, clock: CellClock) -> ReplyStatus:
        clock.start(self._interrupted)
        try:
            await self._interrupted.wait()
        finally:
            clock.stop()
        if self.lost_reason is not None:
            return "kernel_lost"
        return "timeout" if clock.expired else "interrupted"

    def _run(self, code: str, buffer: CellOutputBuffer) -> ReplyStatus:
        output = io.StringIO()
        value = None
        try:
            with contextlib.redirect_stdout(output):
                try:
                    value = eval(compile(code, "<cell>", "eval"), self._namespace)  # noqa: S307  # a test's own code
                except SyntaxError:
                    exec(compile(code, "<cell>", "exec"), self._namespace)  # noqa: S102  # a test's own code
        except Exception as error:  # noqa: BLE001  # border: whatever the cell raises is its output
            buffer.add(StreamText(name="stdout", text=output.getvalue()))
            lines = tuple(traceback.format_exception_only(error))
            buffer.add(CellError(ename=type(error).__name__, evalue=str(error), traceback=lines))
            return "error"
        if output.getvalue():
            buffer.add(StreamText(name="stdout", text=output.getvalue()))
        if value is not None:
            buffer.add(ExecuteResult(data={"text/plain": repr(value)}, execution_count=self.cells))
        return "ok"


class FakeKernelProvider:
    """Provider of `FakeKernel`s."""

    def __init__(self) -> None:
        self.kernels: list[FakeKernel] = []
        """All kernels that were started."""

    def place(self, mode: Mode, settings: KernelConfig, workspace: Path) -> KernelPlace:
        """Return a place without a wall and an environment of its own: it is the test's process."""
        del mode, settings
        return KernelPlace(wall=None, environment={}, description=f"Its working directory is {workspace}.")

    def hook(self, settings: AuditSettings) -> AuditSettings | None:
        """Return the settings unchanged."""
        return settings

    async def start(self, spec: KernelSpec, handler: HostRequestHandler) -> FakeKernel:
        """Start a kernel and wait until it is ready; cancelling leaves nothing behind."""
        self.kernels.append(FakeKernel(spec, handler))
        return self.kernels[-1]

    async def aclose(self) -> None:
        """Release the provider's other resources. Can be called again."""
