"""Tools for the agent's kernel: `execute_ipython_cell` runs one cell in it, `reset_kernel` restarts it."""

import asyncio
import base64
import binascii
import functools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator
from pydantic_ai import BinaryContent

from freeact_sub.calls import CodeAction
from freeact_sub.cells import CELL_TOOL, CellError, ClearOutput, ExecuteReply, MimeBundle
from freeact_sub.errors import CELL_SECONDS, KernelLostError, LimitReachedError
from freeact_sub.events import CodeExecutionOutput, CodeExecutionOutputChunk
from freeact_sub.kernels import CellClock, CellOutputBuffer, CellRun, Kernel
from freeact_sub.spans import note_here
from freeact_sub.system.closing import end_task
from freeact_sub.system.safe_files import write_new
from freeact_sub.text import own_title
from freeact_sub.tools.tool import CellContext, PlainTool, ToolContext, ToolResult
from freeact_sub.tools.toolset import IMAGE_MARKS, output_file

NO_OUTPUT = "(the cell ran without output; print what you need to see)"
"""The result of a silent cell, for the model only."""
LOST_BEFORE: Final = (
    "[ERROR] The kernel was lost before this cell: {reason}. The variables and imports of earlier cells are gone; "
    "this cell ran in a new kernel.\n"
)
SUFFIXES: Final = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
}
"""Endings of picture files, by media type; the first type in a display counts."""
MAX_SAVED: Final = 100
"""Pictures of one cell that are saved, at most."""

logger = logging.getLogger(__name__)


class ExecuteArguments(BaseModel):
    """Arguments of `execute_ipython_cell`; `tools/execute_ipython_cell.json` describes them."""

    model_config = {"extra": "forbid", "defer_build": True}
    description: Annotated[str, BeforeValidator(lambda given: given if isinstance(given, str) else "")] = ""
    """The title of the cell; a wrong one never costs the model a second try."""
    code: str


class ExecuteIPythonCell:
    """A tool that runs a cell, whose output streams as events; the model reads head and tail."""

    name = CELL_TOOL
    arguments = ExecuteArguments

    def call(self, arguments: ExecuteArguments) -> CodeAction:
        """Return the cell as an action of code."""
        return CodeAction(code=arguments.code, description=own_title(arguments.description))

    async def run(self, arguments: ExecuteArguments, context: ToolContext) -> ToolResult:
        """Run the cell."""
        kernel = await context.kernel.get()
        output = await run_cell(arguments.code, kernel, context)
        if kernel.lost_reason is not None and not kernel.may_be_replaced:
            raise KernelLostError(f"the kernel is lost and is not restarted: {kernel.lost_reason}")
        return ToolResult(
            text=output.text or NO_OUTPUT,
            images=tuple(_images(output.displays)),
            outcome="success" if output.status == "ok" else "failed",
            bounded=True,
            file=output.output_file,
        )


async def run_cell(code: str, kernel: Kernel, context: CellContext) -> CodeExecutionOutput:
    """Run a cell to its end, however it ends; stream its output as events, and return the last one."""
    settings = context.config.kernel
    started, lost_before = time.monotonic(), context.take_loss()
    root = context.config.workspace
    file = output_file(context.output_folder, context.tool_call_id)
    buffer = CellOutputBuffer(model_chars=settings.output_chars, file=file, root=root)
    clock = CellClock(settings.cell_timeout_seconds, tool_call_id=context.tool_call_id, stood_still=context.asked_seconds)
    async with kernel.execute(code, buffer, clock) as cell, _asked_at_limit(clock, context):
        # a task of its own: otherwise each output would wake everything that waits for the cell, up to the model's loop
        raised = await asyncio.create_task(_stream(cell, context), name="output of a cell")
        reply = await cell.reply()
    save = functools.partial(save_pictures, buffer.displays, context.output_folder, context.tool_call_id)
    pictures = await asyncio.to_thread(save, root=root) if buffer.displays else ()
    text = _text(buffer, reply, clock, kernel.lost_reason)
    if kernel.lost_reason is not None:
        context.take_loss()  # the text has it
    ended = CodeExecutionOutput(
        text=f"{LOST_BEFORE.format(reason=lost_before)}{text}" if lost_before else text,
        status=reply.status,
        displays=buffer.displays,
        picture_files=pictures,
        left_out_chars=buffer.left_out_chars,
        output_file=str(buffer.file) if buffer.file else None,
        seconds=time.monotonic() - started,
    )
    await context.emit(ended)
    note_here(status=reply.status, error=raised or ("" if reply.status == "ok" else reply.status))
    return ended


async def _stream(cell: CellRun, context: CellContext) -> str:
    """Emit a cell's output up to its end; return the name of the last error."""
    is_to_clear, raised = False, ""
    async for output in cell:
        if isinstance(output, CellError):
            raised = output.ename
        is_to_clear = is_to_clear or isinstance(output, ClearOutput)
        if is_to_clear and output != ClearOutput(wait=True):
            is_to_clear = False
            await context.emit(CodeExecutionOutputChunk(output=ClearOutput()))
        if not isinstance(output, ClearOutput):
            await context.emit(CodeExecutionOutputChunk(output=output))
    return raised


@asynccontextmanager
async def _asked_at_limit(clock: CellClock, context: CellContext) -> AsyncIterator[None]:
    """Ask whether the cell may go on, inside the block, each time its time is up."""
    if context.at_limit is None or clock.limit is None:
        yield
        return
    clock.at_limit = asyncio.Event()
    asking = asyncio.create_task(_ask_at_limit(clock, clock.at_limit, context.at_limit), name="asks about a cell's time")
    try:
        yield
    finally:
        await end_task(asking)


async def _ask_at_limit(
    clock: CellClock, reached: asyncio.Event, ask: Callable[[LimitReachedError, CellClock], Awaitable[float]]
) -> None:
    while not clock.expired:
        await reached.wait()
        limit = (clock.whole_limit if clock.waited_too_long else clock.limit) or 0.0
        try:
            more = await ask(LimitReachedError(CELL_SECONDS, amount=limit, bound=limit), clock)
        except Exception:  # border: code of a user's feature; the cell must end
            logger.exception("nobody could be asked about the time of a cell")
            more = 0.0
        clock.go_on(more)


def _text(buffer: CellOutputBuffer, reply: ExecuteReply, clock: CellClock, lost: str | None) -> str:
    text = buffer.text
    match reply.status:
        case "timeout" if clock.waited_too_long:
            text += (
                f"\n[ERROR] The cell took longer than {clock.whole_limit:g} s, with the children and `ask`s that it "
                "waited for, and was interrupted."
            )
        case "timeout":
            text += f"\n[ERROR] The cell ran longer than {clock.limit:g} s and was interrupted."
        case "interrupted":
            text += "\n[ERROR] The cell was interrupted."
        case "error" if not text.strip():
            text += "\n[ERROR] The cell failed, and its kernel did not say why."
        case "aborted":
            text += "\n[ERROR] The cell was not run."
    if lost is not None:
        text += (
            f"\n[ERROR] The kernel is gone: {lost}. All its variables and imports are lost, and so may be "
            "what the cell printed last. The cell is not run again; a new kernel starts with your next cell, unless "
            "this run has lost too many."
        )
    return text.strip("\n")


def _images(displays: tuple[MimeBundle, ...]) -> Iterator[BinaryContent]:
    for data in displays:
        for media_type in IMAGE_MARKS:
            if media_type in data:
                try:
                    yield BinaryContent(base64.b64decode(data[media_type]), media_type=media_type)
                except (binascii.Error, ValueError, TypeError):
                    continue
                break


def save_pictures(displays: Sequence[MimeBundle], folder: Path, tool_call_id: str, *, root: Path) -> tuple[str, ...]:
    """Save the pictures among the displays of a cell; return their paths in order. Blocks.

    Args:
        displays: The displays of the cell.
        folder: The folder for the files.
        tool_call_id: The call that ran the cell.
        root: The folder from which `folder` is reached without following a link.
    """
    saved: list[str] = []
    for suffix, content in _pictures(displays):
        file = output_file(folder, tool_call_id, suffix)
        try:
            write_new(file, content, root=root)
        except OSError as error:
            logger.warning("pictures of a cell cannot be written to %s: %s", file, error)
            break
        saved.append(str(file))
        if len(saved) == MAX_SAVED:
            break
    return tuple(saved)


def _pictures(displays: Sequence[MimeBundle]) -> Iterator[tuple[str, bytes]]:
    for data in displays:
        kind = next((kind for kind in SUFFIXES if isinstance(data.get(kind), str)), None)
        if kind is None:
            continue
        text: str = data[kind]
        try:
            content = text.encode("utf-8", "replace") if kind == "image/svg+xml" else base64.b64decode(text)
        except (binascii.Error, ValueError):
            continue
        yield SUFFIXES[kind], content


class ResetArguments(BaseModel):
    """Arguments of `reset_kernel`; `tools/reset_kernel.json` describes them."""

    model_config = {"extra": "forbid", "defer_build": True}


class ResetKernel(PlainTool):
    """A tool that replaces the kernel with a new one."""

    name = "reset_kernel"
    arguments = ResetArguments

    async def run(self, arguments: ResetArguments, context: ToolContext) -> ToolResult:
        """Replace the kernel."""
        del arguments
        await context.kernel.reset()
        return ToolResult(text="The kernel was restarted: all variables and imports are gone.")
