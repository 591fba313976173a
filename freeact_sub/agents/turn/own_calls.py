"""The ids of calls that the program's own code makes, such as `agent.execute`; whoever makes them may note which."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_NOTED: Final[ContextVar[set[str] | None]] = ContextVar("freeact_sub_own_calls", default=None)


@contextmanager
def calls_noted(ids: set[str]) -> Iterator[None]:
    """Add the id of each call that the block makes. Events about a call have it as their `tool_call_id`."""
    token = _NOTED.set(ids)
    try:
        yield
    finally:
        _NOTED.reset(token)


def new_own_call(prefix: str) -> str:
    """Return an id for a call of the program."""
    call_id = f"{prefix}{secrets.token_hex(8)}"
    if (ids := _NOTED.get()) is not None:
        ids.add(call_id)
    return call_id
