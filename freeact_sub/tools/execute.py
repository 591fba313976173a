"""`execute_ipython_cell`: run one cell in the agent's kernel."""

import base64
import binascii
import itertools
import re
import time
from collections.abc import Iterator
from contextlib import aclosing

from pydantic import BaseModel
from pydantic_ai import BinaryContent

from freeact_sub.calls import CodeAction
from freeact_sub.cells import ClearOutput, ExecuteReply, MimeBundle
from freeact_sub.events import CodeExecutionOutput, CodeExecutionOutputChunk
from freeact_sub.kernels import CellClock, CellOutputBuffer
from freeact_sub.tools.tool import ToolContext, ToolResult

IMAGE_STARTS = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff", "image/gif": b"GIF8", "image/webp": b"RIFF"}
"""What models read, and how its data begin."""
MAX_IMAGE_BYTES = 4_000_000
"""Providers refuse larger ones, and a refused picture in the history would end the conversation."""
MAX_IMAGES_TO_MODEL = 5

NO_OUTPUT = "(the cell ran without output; print what you need to see)"

_cell_numbers = itertools.count(1)


class ExecuteArguments(BaseModel):
    """See `tools/execute_ipython_cell.json`."""

    model_config = {"extra": "forbid"}
    code: str


class ExecuteIPythonCell:
    """Runs a cell: output streams as events, the model reads head and tail."""

    name = "execute_ipython_cell"
    arguments = ExecuteArguments

    def call(self, arguments: ExecuteArguments) -> CodeAction:
        """See `Tool`."""
        return CodeAction(code=arguments.code)

    async def run(self, arguments: ExecuteArguments, context: ToolContext) -> ToolResult:
        """See `Tool`."""
        kernel = await context.kernel.get()
        settings = context.config.kernel
        started = time.monotonic()
        # the name cannot be guessed from another agent's, and two runs in one workspace do not write the same file
        name = re.sub(r"\W", "_", context.tool_call_id)[:40] or "cell"
        file = context.output_folder / f"{next(_cell_numbers):04}-{name}.txt"
        buffer = CellOutputBuffer(model_chars=settings.output_chars, file=file, root=context.config.workspace)
        clock = CellClock(settings.cell_timeout_seconds, tool_call_id=context.tool_call_id)
        reply = ExecuteReply(status="aborted")
        async with aclosing(kernel.execute(arguments.code, buffer, clock)) as outputs:
            async for output in outputs:
                if isinstance(output, ExecuteReply):
                    reply = output
                elif not isinstance(output, ClearOutput):
                    await context.emit(CodeExecutionOutputChunk(output=output))
        text = self._text(buffer, reply, settings.cell_timeout_seconds, kernel.lost_reason)
        await context.emit(
            CodeExecutionOutput(
                text=text,
                status=reply.status,
                displays=buffer.displays,
                left_out_chars=buffer.left_out_chars,
                output_file=str(buffer.file) if buffer.file else None,
                seconds=time.monotonic() - started,
            )
        )
        images = list(_images(buffer.displays)) if settings.show_images_to_model else []
        shown = [image for image in images if _is_sound(image)][:MAX_IMAGES_TO_MODEL]
        if len(shown) < len(images):
            hidden = len(images) - len(shown)
            text += f"\n[{hidden} of {len(images)} pictures are not shown to you: too many, too large, or damaged]"
        return ToolResult(text=text, images=tuple(shown), outcome="success" if reply.status == "ok" else "failed")

    def _text(self, buffer: CellOutputBuffer, reply: ExecuteReply, timeout: float | None, lost: str | None) -> str:
        text = buffer.text
        match reply.status:
            case "timeout":
                text += f"\n[ERROR] The cell ran longer than {timeout:g} s and was interrupted."
            case "interrupted":
                text += "\n[ERROR] The cell was interrupted."
            case "aborted":
                text += "\n[ERROR] The cell was not run."
        if lost is not None:
            text += (
                f"\n[ERROR] The kernel is gone: {lost}. All its variables and imports are lost. "
                "The cell is not run again; a new kernel starts with your next cell."
            )
        return text.strip("\n") or NO_OUTPUT


def _is_sound(image: BinaryContent) -> bool:
    return len(image.data) <= MAX_IMAGE_BYTES and image.data.startswith(IMAGE_STARTS[image.media_type])


def _images(displays: tuple[MimeBundle, ...]) -> Iterator[BinaryContent]:
    for data in displays:
        for media_type in IMAGE_STARTS:
            if media_type in data:
                try:
                    yield BinaryContent(base64.b64decode(data[media_type]), media_type=media_type)
                except (binascii.Error, ValueError, TypeError):
                    continue
                break
