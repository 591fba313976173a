"""Structured results of the tools, with a text for models; and `Resources`, which clients can attach.

Resources are the sessions of the folder, their transcripts, and long outputs as a whole.
"""

import asyncio
import json
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from mcp_types import CallToolResult, ContentBlock, ImageContent, TextContent
from pydantic import BaseModel, Field

from freeact_sub.agents import RunResult
from freeact_sub.cells import ReplyStatus
from freeact_sub.config.schema import Config
from freeact_sub.errors import SessionError
from freeact_sub.events import ApprovalRequest, CodeExecutionOutput
from freeact_sub.events.ending import RunStatus
from freeact_sub.export import export_session
from freeact_sub.kernels.files import Changes
from freeact_sub.mcp_server.pending import form_of, message_of
from freeact_sub.mcp_server.served import Asked, ServedAgent
from freeact_sub.sessions import StoredSession, session_store
from freeact_sub.system.safe_files import beneath

PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
SESSIONS: Final = "freeact://sessions"
MAX_SESSIONS: Final = 100
"""Maximum number of sessions in the list, the latest ones."""
MAX_BYTES: Final = 20_000_000
"""Maximum size of an output."""


class RunReport(BaseModel):
    """How a run ended."""

    session_id: str = Field(description="names the session in later calls, and its kernel")
    status: RunStatus = Field(description="`completed`, or why there is no answer")
    answer: str = Field(description="the answer; if the run is not completed, the model's last text")
    error: str = Field("", description="why it is not completed")
    input_tokens: int = Field(0, description="of the agent and its children, as the next three")
    output_tokens: int = 0
    requests: int = 0
    cost_usd: float | None = Field(None, description="null: not known")
    seconds: float = Field(0.0, description="without the time in which a question was open")
    files_written: list[str] = []
    files_removed: list[str] = []
    receipts: str = Field("", description="what it has really run, as the host saw it")
    missing_files: list[str] = Field([], description="files that the answer names, if none of them exists")
    warnings: list[str] = []


class CellReport(BaseModel):
    """How a cell ended."""

    kernel_id: str = Field(description="names the kernel in later calls")
    status: ReplyStatus = Field(description="`ok`, or how the cell failed; `text` ends with the traceback")
    text: str = Field(description="what it printed, and its value; head and tail if it is long")
    seconds: float = 0.0
    output: str | None = Field(None, description="the resource with the whole output, if `text` is shortened")


class BranchReport(BaseModel):
    """A new kernel that begins as a copy."""

    kernel_id: str
    session_id: str = Field(description="the session that it belongs to, and ends with")
    description: str = ""


class ChangesReport(BaseModel):
    """Paths relative to the workspace."""

    added: list[str] = []
    changed: list[str] = []
    deleted: list[str] = []
    left_out: list[str] = Field([], description="never taken over: settings, what git obeys, and special files")


class VariablesReport(BaseModel):
    """The variables of a kernel."""

    kernel_id: str
    variables: dict[str, str] = Field(description="by name, a line with type and size, or the value of a number")


class CopyReport(BaseModel):
    """A copy of a session on disk."""

    session_id: str = Field(description="the copy; it is opened, with the variables of now, when a call names it")


class DoneReport(BaseModel):
    """Something is done."""

    done: bool = Field(description="false: there was nothing to do any more")


class QuestionReport(BaseModel):
    """A question that waits."""

    request_id: str
    kind: Literal["approval", "question"]
    message: str
    answer: dict[str, Any] = Field(description="the JSON schema of the values that answer it")


class StatusReport(BaseModel):
    """How far a session is."""

    session_id: str
    status: Literal["idle", "working", "asking", "ended"] = Field(
        description="`ended`: `result` is how the last run ended; `asking`: it waits for the answers to `questions`"
    )
    doing: str = Field("", description="what happened last, in one line")
    questions: list[QuestionReport] = []
    result: RunReport | None = None
    branches: list[str] = Field([], description="the kernel ids of its branches")


def run_report(session_id: str, result: RunResult[Any]) -> RunReport:
    """Return the report of a run."""
    usage = result.tree_usage
    return RunReport(
        session_id=session_id,
        status=result.status,
        answer=result.text,
        error=result.error,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        requests=usage.turns,
        cost_usd=None if usage.cost_usd is None else float(usage.cost_usd),
        seconds=round(result.seconds, 3),
        files_written=[*result.files_written],
        files_removed=[*result.files_removed],
        receipts="" if result.receipts is None else str(result.receipts),
        missing_files=[*result.missing_files],
        warnings=[*result.warnings],
    )


def run_result(report: RunReport) -> CallToolResult:
    """Return the result of a call that ran a prompt."""
    text = report.answer if report.status == "completed" else f"{report.status}: {report.error}\n{report.answer}".strip()
    facts = f"\n\n(session {report.session_id}{f'; receipts: {report.receipts}' if report.receipts else ''})"
    return _result(report, text + facts, is_error=report.status != "completed")


def cell_result(kernel_id: str, output: CodeExecutionOutput, resource: str | None) -> CallToolResult:
    """Return the result of a call that ran a cell. Args: resource: the address of the whole output."""
    seconds = round(output.seconds, 3)
    report = CellReport(kernel_id=kernel_id, status=output.status, text=output.text, seconds=seconds, output=resource)
    pictures = [picture for display in output.displays if (picture := _picture(display)) is not None]
    whole = f"\n(the whole output: {resource})" if resource else ""
    text = f"{output.text or '(no output)'}{whole}\n(kernel {kernel_id}, {output.status})"
    return _result(report, text, pictures)


def changes_result(changes: Changes) -> CallToolResult:
    """Return the result of a call that compared or took over files."""
    report = ChangesReport(
        added=[*changes.added], changed=[*changes.changed], deleted=[*changes.deleted], left_out=[*changes.left_out]
    )
    return plain_result(report)


def status_report(served: ServedAgent) -> StatusReport:
    """Return the report on the state of a session."""
    last, live = served.last_run, served.live
    ended = last.result if live is None and last is not None and last.prompt else None
    questions = [] if live is None else [_question(asked) for asked in live.asked.values()]
    status: Literal["idle", "working", "asking", "ended"] = "idle" if ended is None else "ended"
    if live is not None:
        status = "asking" if questions else "working"
    return StatusReport(
        session_id=served.session_id,
        status=status,
        doing="" if live is None else live.news,
        questions=questions,
        result=None if ended is None else run_report(served.session_id, ended),
        branches=[*served.nodes],
    )


def plain_result(report: BaseModel) -> CallToolResult:
    """Return a report as the result of a call, also as JSON text."""
    return _result(report, json.dumps(report.model_dump(mode="json"), ensure_ascii=False))


def _question(asked: Asked) -> QuestionReport:
    kind: Literal["approval", "question"] = "approval" if isinstance(asked, ApprovalRequest) else "question"
    return QuestionReport(request_id=asked.request_id, kind=kind, message=message_of(asked), answer=form_of(asked))


def _picture(display: dict[str, Any]) -> ImageContent | None:
    for kind in PICTURES:
        if isinstance(data := display.get(kind), str):
            return ImageContent(data=data.replace("\n", ""), mime_type=kind)
    return None


def _result(
    report: BaseModel, text: str, pictures: list[ImageContent] | None = None, *, is_error: bool = False
) -> CallToolResult:
    content: list[ContentBlock] = [TextContent(text=text), *(pictures or [])]
    return CallToolResult(content=content, structured_content=report.model_dump(mode="json"), is_error=is_error)


def output_address(session_id: str, file: str | None) -> str | None:
    """Return the address of the whole output of a cell. Args: file: its path. None: nothing was shortened."""
    return None if file is None else f"{SESSIONS}/{session_id}/outputs/{quote(Path(file).name)}"


class Resources:
    """The resources of the sessions in the server's folder."""

    def __init__(self, config: Config) -> None:
        self._workspace = config.workspace
        self._store = session_store(config.sessions)

    def add_to(self, server: MCPServer[Any]) -> None:
        """Add the resources to a server."""
        server.resource(
            SESSIONS, name="sessions", description="The sessions of this folder, latest first", mime_type="application/json"
        )(self.sessions)
        server.resource(
            f"{SESSIONS}/{{session_id}}/transcript",
            name="transcript",
            description="What the agents of a session have said and done",
            mime_type="text/markdown",
        )(self.transcript)
        server.resource(
            f"{SESSIONS}/{{session_id}}/outputs/{{name}}",
            name="output",
            description="The whole output of a cell, where a result has shortened it",
            mime_type="text/plain",
        )(self.output)

    async def sessions(self) -> str:
        """Return the sessions as JSON."""
        found = await asyncio.to_thread(self._store.sessions, self._workspace)
        return json.dumps([_listed(session) for session in found[:MAX_SESSIONS]], ensure_ascii=False)

    async def transcript(self, session_id: str) -> str:
        """Return what the agents of a session have said and done."""
        return await asyncio.to_thread(self._transcript, session_id)

    async def output(self, session_id: str, name: str) -> str:
        """Return the whole output of a cell."""
        return await asyncio.to_thread(self._output, session_id, name)

    def _transcript(self, session_id: str) -> str:
        self._check(session_id)
        return export_session(session_id, "md", store=self._store)

    def _output(self, session_id: str, name: str) -> str:
        self._check(session_id)
        with self._store.reader(session_id) as reader:
            files = [event.output_file for event in reader.events() if isinstance(event, CodeExecutionOutput)]
        for file in files:
            if file is not None and Path(file).name == name:
                return _text(self._workspace / file, self._workspace)
        raise ResourceNotFoundError(f"there is no output {name!r} in session {session_id}")

    def _check(self, session_id: str) -> None:
        """Raise ResourceNotFoundError unless it is a session of this folder."""
        try:
            stored = self._store.find(session_id)
        except SessionError:
            stored = None
        if stored is None or stored.session_id != session_id or stored.workspace != self._workspace:
            raise ResourceNotFoundError(f"there is no session {session_id!r} here")


def _text(path: Path, root: Path) -> str:
    try:
        with open(path, "rb", opener=beneath(root)) as file:  # pathlib's has no opener
            return file.read(MAX_BYTES).decode("utf-8", errors="replace")
    except (OSError, ValueError) as error:
        raise ResourceNotFoundError(f"the output cannot be read: {error}") from error


def _listed(session: StoredSession) -> dict[str, Any]:
    return {
        "session_id": session.session_id,
        "title": session.title,
        "updated": session.updated,
        "status": session.status,
        "transcript": f"{SESSIONS}/{session.session_id}/transcript",
    }
