"""Sessions for tests: a writer of one, opened and closed."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from freeact_sub.sessions import session_store, state_folder
from freeact_sub.sessions.sqlite import SqliteStore, SqliteWriter


@asynccontextmanager
async def writing(
    store: SqliteStore,
    session_id: str = "s-1",
    *,
    workspace: Path = Path("/work"),
    failures: list[str] | None = None,
    **options: Any,
) -> AsyncIterator[SqliteWriter]:
    """A writer that has made its session; all is on disk when it is left."""
    writer = SqliteWriter(
        store.folder,
        session_id,
        session_folder=store.folder_of(session_id),
        on_failure=(failures if failures is not None else []).append,
        secrets=options.pop("secrets", ()),
    )
    writer.start()
    writer.session(workspace=workspace, model="test:model")
    try:
        yield writer
    finally:
        await writer.aclose()


def root(writer: SqliteWriter, agent_id: str = "agent-1", **columns: Any) -> None:
    """There is a root."""
    defaults = {"key": f"agent:{agent_id}", "parent_id": None, "depth": 0, "tool_call_id": None, "description": ""}
    writer.agent(
        agent_id=agent_id, **{**defaults, "agent_type": None, "model": "m", "mode": "ask", "in_background": 0, **columns}
    )


async def as_after_a_crash(agent: Any, folder: Path) -> SqliteStore:
    """The sessions as they were if the program had been killed in this moment: a copy, in a state folder of its own."""
    await agent.debug.root.shared.features.named("sessions").journal.committed()
    shutil.copytree(state_folder(), folder / "freeact")
    return SqliteStore(folder / "freeact")


def everything_of(session_id: str) -> tuple[object, ...]:
    """All that a session has, to see whether it stays as it is."""
    store = session_store()
    with store.reader(session_id) as reader:
        root = reader.agents()[0]
        files = sorted(path.name for path in store.folder_of(session_id).rglob("*"))
        return store.find(session_id), reader.chain(root.agent_id), reader.runs(), [*reader.events()], files
