"""One prompt, run to one answer without an input line: for pipes, logs and programs.

Reading goes on while a person is asked: questions are queued by the `Approver`. Writing happens in a thread, so a reader of
the pipe that is slow slows the agents, but never the event loop; one that has gone away ends the run quietly.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, TypeAlias

from rich.console import Console

from freeact_sub import events as ev
from freeact_sub.errors import FreeactError
from freeact_sub.show.agent_story import Stories
from freeact_sub.system.process import PIPE_CLOSED
from freeact_sub.terminal.asking import Approver
from freeact_sub.terminal.attachments import Piped, with_attachments
from freeact_sub.terminal.drawing.parts import make_console
from freeact_sub.terminal.drawing.story import Story
from freeact_sub.terminal.interrupts import INTERRUPTED, Interrupts
from freeact_sub.terminal.plain_lines import PlainLines
from freeact_sub.terminal.result import OneResult
from freeact_sub.text import clean, fitted, one_line

if TYPE_CHECKING:  # slow to import: the caller does it, at its time
    from pydantic_ai import BinaryContent

    from freeact_sub.agent import Agent
    from freeact_sub.agents import Run, RunResult

OpenAgent: TypeAlias = "Callable[[], Agent]"
"""A function that makes the agent. Called in a thread, because its imports take a second or two."""

PrepareAgent: TypeAlias = "Callable[[], AbstractAsyncContextManager[Agent]]"
"""A function that makes the agent, or a context manager that opens one and prepares its kernel. Called as `OpenAgent`."""

OpenSession: TypeAlias = "Callable[[str, Mapping[str, Any]], Agent]"
"""A function that makes the agent of a session: `new`, or the id of one to continue. The given settings replace the
program's. Called in a thread."""

Output: TypeAlias = Literal["rich", "plain", "json", "text", "result"]
"""Drawn blocks, lines of text, one JSON object a line, the answer alone, or one JSON object at the end (`OneResult`)."""
NOTHING: Final = Piped()

Log: TypeAlias = Literal["rich", "plain"]


async def run_once(
    open_agent: PrepareAgent,
    prompt: str,
    piped: Piped = NOTHING,
    *,
    output: Output,
    log: Log | None = None,
    approver: Approver,
    verbose: bool = False,
) -> int:
    """Run a prompt, and write its events to standard output; return the program's exit status.

    Args:
        open_agent: Makes the agent.
        prompt: The prompt. Attachments that it names by `@` go along.
        piped: Data that goes along.
        output: The form of the output.
        log: The form in which everything is written to standard error too.
        approver: Answers the approval requests.
        verbose: Draw everything that every agent does.
    """
    return await _OneRun(output, log, approver, verbose=verbose).follow(open_agent, prompt, piped)


def exit_status(result: "RunResult") -> int:
    """Return 0: completed; 130: interrupted; 1: another ending, or nothing done because nobody was there."""
    return 1 if result.unattended else {"completed": 0, "cancelled": INTERRUPTED}.get(result.status, 1)


class _OneRun:
    def __init__(self, output: Output, log: Log | None, approver: Approver, *, verbose: bool) -> None:
        self._views = Stories()
        self._writes_result = output == "result"
        self._answers_alone = output in ("text", "result") and log is None
        self._tells = log is not None or (output in ("rich", "plain") and sys.stdout.isatty())
        """Whether standard error has the story, with its warnings."""
        self._pipe = Pipe(sys.stdout, encoding="utf-8" if output in ("json", "result") else sys.stdout.encoding)
        self._writers = [(self._pipe, _writer(output, self._views, sys.stdout, verbose=verbose, complains=log is None))]
        if log is not None:
            log_writer = _writer(log, self._views, sys.stderr, verbose=verbose)
            self._writers.append((Pipe(sys.stderr, encoding=sys.stderr.encoding), log_writer))
        self._approver = approver
        self._run: Run | None = None
        self._interrupted = False
        self._main = asyncio.current_task()

    async def follow(self, open_agent: PrepareAgent, prompt: str, piped: Piped) -> int:
        try:
            with Interrupts(self._interrupt), self._approver:
                async with await asyncio.to_thread(open_agent) as agent:
                    text, pictures = await with_attachments(prompt, prompt, agent.servers, Path.cwd())
                    text, pictures = await asyncio.to_thread(_with_data, agent, text, pictures, piped)
                    async with agent.run(text, pictures=pictures) as self._run:
                        self._run.pictures = "unseen" if self._answers_alone else "saved"
                        async for event in self._run:
                            await self._show(event)
                        result = await self._run.result()
        except asyncio.CancelledError:
            if not self._interrupted or self._main is None:
                raise
            self._main.uncancel()
            await self._write_result(OneResult(status="cancelled", error="it was cancelled"))
            return INTERRUPTED
        await self._write_result(OneResult.of(result, agent.session_id))
        if self._answers_alone or (result.unattended and not self._tells):
            for warning in result.warnings:
                _complain(one_line(clean(warning), 500))
        return PIPE_CLOSED if self._pipe.closed else exit_status(result)

    async def _write_result(self, result: OneResult) -> None:
        if self._writes_result:
            await self._pipe.write(f"{result.to_json()}\n")

    async def _show(self, event: ev.Event) -> None:
        if self._run is not None and isinstance(event, ev.AgentStarted) and (self._interrupted or self._pipe.closed):
            self._run.cancel()  # the cancel came before there was a run
        self._views.observe(event)
        for pipe, text_of in self._writers:
            await pipe.write(text_of(event))
        if self._pipe.closed and self._run is not None:
            self._run.cancel()
        self._approver.observe(event)

    def _interrupt(self, must_end: bool) -> None:
        del must_end  # every interrupt ends a program that runs one prompt
        self._interrupted = True
        if sys.stderr.isatty():
            _complain("stopping; Ctrl-C again quits at once")
        if self._run is not None:
            self._run.cancel()
        elif self._main is not None:
            self._main.cancel()


class Pipe:
    """A standard stream, written to in a thread."""

    def __init__(self, stream: TextIO, *, encoding: str) -> None:
        """Args: stream: where it writes. encoding: of the text; what it cannot express is written as an escape."""
        self._stream = stream
        self._encoding = encoding
        self.closed = False
        """Whether the reader of the output is gone."""

    async def write(self, text: str) -> None:
        """Write all of the text; drop it if nobody reads any more.

        Raises:
            FreeactError: Writing failed for another reason, such as a full disk.
        """
        if text and not self.closed:
            try:
                await asyncio.to_thread(self._write, text.encode(self._encoding, errors="backslashreplace"))
            except BrokenPipeError:
                self.closed = True
            except OSError as error:
                name = "standard error" if self._stream is sys.stderr else "standard output"
                raise FreeactError(f"cannot write to {name}: {error.strerror}") from error

    def _write(self, content: bytes) -> None:
        rest = memoryview(content)
        while rest:  # not through Python's buffer, which would try again, and complain, when the program ends
            rest = rest[os.write(self._stream.fileno(), rest) :]


def _with_data(
    agent: "Agent", prompt: str, pictures: "list[BinaryContent]", piped: Piped
) -> "tuple[str, list[BinaryContent]]":
    from pydantic_ai import BinaryContent  # noqa: PLC0415  # slow to import

    from freeact_sub.agents.life import OUTPUT_FOLDER  # noqa: PLC0415  # slow to import

    workspace = agent.config.workspace
    data = piped.section(workspace, workspace / OUTPUT_FOLDER / agent.agents()[0].agent_id)
    if piped.picture is not None:
        pictures = [*pictures, BinaryContent(piped.picture, media_type=piped.media_type)]
    return "\n\n".join([prompt, *data]), pictures


def _writer(
    output: Output, views: Stories, stream: TextIO, *, verbose: bool, complains: bool = False
) -> Callable[[ev.Event], str]:
    match output:
        case "plain":
            return PlainLines(views).write
        case "json":
            return lambda event: event.to_json() + "\n"
        case "text" | "result":
            return lambda event: _answer(event, complains=complains, answers=output == "text")
        case "rich":
            return _drawing(Story(views, verbose=verbose, whole="--verbose"), make_console(stream))


def _drawing(story: Story, console: Console) -> Callable[[ev.Event], str]:
    def draw(event: ev.Event) -> str:
        drawn = story.draw(event)
        if drawn is None:
            return ""
        with console.capture() as capture:
            console.print(drawn)
        return capture.get()

    return draw


def _answer(event: ev.Event, *, complains: bool, answers: bool) -> str:
    """Return the root's answer, if `answers`. Args: complains: print the reason of a missing answer to standard error."""
    if not isinstance(event, ev.AgentFinished) or event.parent_id is not None:
        return ""
    if event.status != "completed" and complains:
        _complain(f"{event.status}: {one_line(event.error, 500)}")
    return clean(event.output).rstrip("\n") + "\n" if event.output and answers else ""


def _complain(text: str) -> None:
    with suppress(OSError):  # nobody reads it
        print(fitted(f"freeact-sub: {text}", sys.stderr), file=sys.stderr, flush=True)  # noqa: T201  (the user interface)
