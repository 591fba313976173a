"""A service of ten users over real HTTP: one fork server, walls between users, and an end that leaves nothing."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from support.chat_server import ChatCall, ChatReply
from support.cli import chat, environment
from support.programs import copy_examples
from support.waiting import command_of

from freeact_sub.events import AgentEvent, AgentFinished, CodeExecutionOutputChunk

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]

LIMIT_SECONDS = 200
END_SECONDS = 60
"""On an idle machine it is less than 3 s (`python -m benchmarks agents`); what does not end takes for ever."""
USERS = 10


def run_the_prompt(request: dict[str, Any]) -> ChatReply:
    """Runs the last prompt as a cell, and answers with its output."""
    last = request["messages"][-1]
    if last["role"] == "tool":
        return [str(last["content"])]
    return [ChatCall("execute_ipython_cell", {"code": str(last["content"])})]


@dataclass
class User:
    """One who has opened the page."""

    page: str
    seen: int = -1
    """The number of the last event that was read."""

    def prompt(self, code: str, last: type[AgentEvent]) -> AgentEvent:
        """Send a cell, and read events up to one of this type."""
        with httpx2.Client(timeout=LIMIT_SECONDS) as client:
            assert client.post(f"{self.page}prompt", content=code).status_code == 204
            for event in self.events(client):
                if isinstance(event, last):
                    return event
        raise AssertionError("the stream has ended")

    def events(self, client: httpx2.Client, on_open: Callable[[], object] = lambda: None) -> Iterator[AgentEvent]:
        with client.stream("GET", f"{self.page}events", headers={"last-event-id": str(self.seen)}) as stream:
            on_open()
            for line in stream.iter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    self.seen = int(value)
                elif name == "data":
                    yield AgentEvent.from_json(json.dumps(json.loads(value)["event"]))


@dataclass
class Service:
    """A service at work."""

    process: "subprocess.Popen[bytes]"
    users: list[User]

    def output(self, user: int, code: str) -> str:
        """What a cell of this user prints."""
        event = self.users[user].prompt(code, AgentFinished)
        assert isinstance(event, AgentFinished)
        assert event.status == "completed", event
        return str(event.output).strip()

    def of_all(self, work: Any) -> list[Any]:
        """Do this for all users side by side."""
        with ThreadPoolExecutor(len(self.users)) as pool:
            return [*pool.map(work, range(len(self.users)))]

    def fork_servers(self) -> list[psutil.Process]:
        """Programs of ours below the service that are no forks of another one."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        servers = {process.pid: process for process in below if "forkserver" in command_of(process)}
        return [process for process in servers.values() if process.is_running() and process.ppid() not in servers]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    program, folder = copy_examples(tmp_path) / "services/service.py", tmp_path / "users"
    with chat(run_the_prompt) as model:
        env = environment() | {"FREEACT_BASE_URL": model.server.base_url}
        command = [sys.executable, str(program), str(folder), str(USERS), "openai-chat:scripted"]
        with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            pages = [process.stdout.readline().decode().strip() for _ in range(USERS)]
            try:
                yield Service(process, [User(page) for page in pages])
            finally:
                process.send_signal(signal.SIGTERM)
                _, errors = process.communicate(timeout=LIMIT_SECONDS)
            assert (process.returncode, errors.decode()) == (0, "")


def test_users_share_a_fork_server_and_reach_nothing_of_each_other(service: Service, tmp_path: Path) -> None:
    def begins(user: int) -> str:
        return service.output(user, f"secret = 'of {user}'\nopen('mine.txt', 'w').write(secret)\nprint(secret)")

    assert service.of_all(begins) == [f"of {user}" for user in range(USERS)]
    assert len(service.fork_servers()) == 1
    assert sorted(path.name for path in (tmp_path / "users").iterdir()) == [f"user-{user}" for user in range(USERS)]

    def looks_around(user: int) -> str:
        other = tmp_path / f"users/user-{(user + 1) % USERS}"
        tries = (
            f"open({str(other / 'mine.txt')!r}).read()",
            f"open({str(other / 'theirs.txt')!r}, 'w')",
            f"__import__('os').listdir({str(other)!r})",
            f"__import__('os').kill({service.process.pid}, 0)",
            "__import__('socket').create_connection(('127.0.0.1', 9), timeout=5)",
        )
        attempts = "".join(f"try: {text}; seen.append('reached')\nexcept OSError: pass\n" for text in tries)
        return service.output(user, f"seen = [secret, open('mine.txt').read()]\n{attempts}print(seen)")

    assert service.of_all(looks_around) == [str([f"of {user}"] * 2) for user in range(USERS)]
    assert [(tmp_path / f"users/user-{user}/mine.txt").read_text() for user in range(USERS)] == [
        f"of {user}" for user in range(USERS)
    ]


def test_the_service_ends_soon_with_all_users_at_work_and_leaves_nothing(service: Service) -> None:
    def works(user: int) -> None:
        service.users[user].prompt("print('begun', flush=True)\nwhile True: pass", CodeExecutionOutputChunk)

    def looks_on(user: int) -> list[AgentEvent]:
        with httpx2.Client(timeout=LIMIT_SECONDS) as client:
            return [*service.users[user].events(client, opened.release)]

    service.of_all(works)
    opened, pool = threading.Semaphore(0), ThreadPoolExecutor(USERS)
    looking = [pool.submit(looks_on, user) for user in range(USERS)]
    for _ in looking:
        assert opened.acquire(timeout=LIMIT_SECONDS)
    below = psutil.Process(service.process.pid).children(recursive=True)
    assert len(below) > USERS
    began = time.monotonic()
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(LIMIT_SECONDS) == 0
    assert time.monotonic() - began < END_SECONDS
    assert psutil.wait_procs(below, timeout=LIMIT_SECONDS)[1] == []
    for stream in looking:
        stream.result(LIMIT_SECONDS)  # it ends, and does not break off
    pool.shutdown()
