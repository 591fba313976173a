"""What benchmarks do with cells and prompts, whatever they measure."""

from collections.abc import Iterable

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart

from freeact_sub.kernels import CellClock, CellOutputBuffer, Kernel


async def run_cell(kernel: Kernel, code: str) -> str:
    """Runs a cell without a limit and returns what it has printed.

    Raises:
        RuntimeError: It failed; the text is its output.
    """
    buffer = CellOutputBuffer()
    async with kernel.execute(code, buffer, CellClock(None)) as cell:
        if (await cell.reply()).status != "ok":
            raise RuntimeError(buffer.text)
    return buffer.text


def latest_prompt(messages: Iterable[ModelMessage]) -> tuple[str, int]:
    """The last prompt of a conversation, and how many responses came after it."""
    prompt, answers = "", 0
    for message in messages:
        if isinstance(message, ModelResponse):
            answers += 1
        elif isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, UserPromptPart):
                    prompt, answers = str(part.content), 0
    return prompt, answers
