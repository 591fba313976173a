"""`Resources`: what clients can attach: the sessions of the folder, their transcripts, and long outputs as a whole."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError

from freeact_sub.config.schema import Config
from freeact_sub.errors import SessionError
from freeact_sub.events import CodeExecutionOutput
from freeact_sub.export import export_session
from freeact_sub.sessions import StoredSession, session_store
from freeact_sub.system.safe_files import beneath

SESSIONS: Final = "freeact://sessions"
MAX_SESSIONS: Final = 100
"""In the list, the latest ones."""
MAX_BYTES: Final = 20_000_000
"""Of an output."""


def output_address(session_id: str, file: str | None) -> str | None:
    """Return the address of the whole output of a cell. Args: file: where it is. None: nothing was shortened."""
    return None if file is None else f"{SESSIONS}/{session_id}/outputs/{quote(Path(file).name)}"


class Resources:
    """See above. Only sessions of the server's folder are there."""

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
