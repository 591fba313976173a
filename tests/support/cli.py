"""The installed program, with a chat server for it to talk to."""

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.chat_server import ChatReply, ChatServer
from support.warm import PROGRAM, run_program

from freeact_sub.testing import CHILD_NOTE

LIMIT_SECONDS = 240


@dataclass
class Chat:
    """A chat server that runs, as the command line names it."""

    server: ChatServer
    options: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.options = ["--model", "openai-chat:scripted", "--base-url", self.server.base_url]

    def read_by_model(self) -> str:
        """All that the model has been sent, in its last request."""
        return str(self.server.requests[-1]["messages"])


@contextmanager
def chat(script: Callable[[dict[str, Any]], ChatReply], *, models: Sequence[dict[str, Any]] = ()) -> Iterator[Chat]:
    """Run a chat server beside the test, in a thread. Args: models: what it lists."""
    started: threading.Event = threading.Event()
    chats: list[Chat] = []
    stops: list[Callable[[], None]] = []

    async def serve() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        async with ChatServer(script, models=models) as server:
            chats.append(Chat(server))
            stops.append(lambda: loop.call_soon_threadsafe(stop.set) and None)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert started.wait(LIMIT_SECONDS)
    try:
        yield chats[0]
    finally:
        stops[0]()
        thread.join()


def environment() -> dict[str, str]:
    """The environment of the program: nobody's settings, and no keys."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FREEACT_")}
    return {name: value for name, value in kept.items() if not name.endswith("_API_KEY") and name != "HF_TOKEN"}


def run(*arguments: str, cwd: Path, stdin: str | None = None, check: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, without a terminal."""
    done = run_program([PROGRAM, *arguments], cwd=cwd, env=environment(), stdin=stdin or "", timeout=LIMIT_SECONDS)
    assert check is None or done.returncode == check, (done.returncode, done.stdout, done.stderr)
    return done


def prompt_of(request: dict[str, Any]) -> str:
    """The first prompt of a conversation, without what a child is told of itself."""
    first = next(str(message["content"]) for message in request["messages"] if message["role"] == "user")
    return CHILD_NOTE.sub("", first)


def turn_of(request: dict[str, Any]) -> int:
    """How many answers of the model the conversation has."""
    return sum(message["role"] == "assistant" for message in request["messages"])


def texts_of(request: dict[str, Any]) -> Sequence[str]:
    """What the tools have answered in this conversation."""
    return [str(message["content"]) for message in request["messages"] if message["role"] == "tool"]
