"""The example of a web page, over real HTTP: prompts and answers go in by POST, events come out by SSE."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from jsonschema import Draft202012Validator
from support.chat_server import ChatCall, ChatReply
from support.cli import chat, environment
from support.programs import ROOT, copy_examples

from freeact_sub.events import AgentEvent, AgentFinished, AgentStarted, ApprovalDecided, ApprovalRequest, QuestionRequest
from freeact_sub.events.__main__ import json_schema

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]
LIMIT_SECONDS = 100


@contextmanager
def served(tmp_path: Path, *model: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """The address of the page. Args: model: the name of one, instead of the script."""
    folder = copy_examples(tmp_path)
    command, env = [sys.executable, str(folder / "services/web.py"), *model], {**environment(), **(env or {})}
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        try:
            yield server.stdout.readline().decode().strip()
        finally:
            server.send_signal(signal.SIGINT)
            _, errors = server.communicate(timeout=LIMIT_SECONDS)
        assert b"Error" not in errors.replace(b"KeyboardInterrupt", b"").replace(b"CancelledError", b""), errors.decode()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[str]:
    with served(tmp_path) as address:
        yield address


def events(client: httpx2.Client, page: str, after: int | None = None) -> Iterator[tuple[AgentEvent, str]]:
    schema = Draft202012Validator(json_schema())
    headers = {} if after is None else {"last-event-id": str(after)}
    with client.stream("GET", f"{page}events", headers=headers) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                message = json.loads(line.removeprefix("data: "))
                assert not list(schema.iter_errors(message["event"]))
                event = AgentEvent.from_json(json.dumps(message["event"]))
                assert message["does"].startswith("asks: ") == isinstance(event, ApprovalRequest | QuestionRequest)
                yield event, message["html"]


def test_a_run_is_seen_and_answered_and_seen_again_by_who_comes_late(page: str) -> None:
    with httpx2.Client(timeout=LIMIT_SECONDS) as client:
        assert "new EventSource" in client.get(page).text
        assert client.get(re.sub(r"/[^/]+/$", "/another-token/", page)).status_code == 404
        assert client.post(f"{page}answer/approval-0", json={"allowed": True}).status_code == 409
        assert client.post(f"{page}prompt", content="Which day?").status_code == 204
        seen = []
        for event, html in events(client, page):
            seen.append(event)
            if isinstance(event, ApprovalRequest):
                assert "asks to run this cell" in html
                assert client.post(f"{page}answer/{event.request_id}", json={"allowed": True}).status_code == 204
                assert client.post(f"{page}answer/{event.request_id}", json={"allowed": False}).status_code == 409
            if isinstance(event, AgentFinished):
                assert (event.status, event.output) == ("completed", "It was a Saturday.")
                break
        assert [event.allowed for event in seen if isinstance(event, ApprovalDecided)] == [True]
        assert [event.seq for event in seen] == list(range(len(seen)))
        late = events(client, page)
        assert [next(late)[0] for _ in seen] == seen
        assert next(events(client, page, after=2))[0] == seen[3]


def test_stop_cancels_the_run_and_the_page_says_that_a_script_answers(page: str) -> None:
    with httpx2.Client(timeout=LIMIT_SECONDS) as client:
        shown = client.get(page).text
        assert "a script answers" in shown
        assert "Approve all" in shown
        assert client.post(f"{page}stop").status_code == 409
        assert client.post(f"{page}prompt", content="Which day?").status_code == 204
        for event, _ in events(client, page):
            if isinstance(event, AgentStarted):
                assert event.model == "function:scripted"
            if isinstance(event, ApprovalRequest):
                assert client.post(f"{page}stop").status_code == 204
            if isinstance(event, AgentFinished):
                assert event.status == "cancelled"
                break
        assert client.post(f"{page}stop").status_code == 409


def test_a_question_is_answered_by_its_fields_and_a_wrong_value_is_refused(tmp_path: Path) -> None:
    form = {"properties": {"port": {"type": "integer", "minimum": 1}, "secure": {"type": "boolean"}}}
    questions = [{"question": "Which database?", "choices": ["SQLite", "PostgreSQL"]}]

    def script(request: dict[str, Any]) -> ChatReply:
        results = [message["content"] for message in request["messages"] if message["role"] == "tool"]
        calls = [ChatCall("ask_user", {"questions": questions}), ChatCall("ask_user", {"form": form})]
        return [calls[len(results)]] if len(results) < 2 else [" and ".join(results)]

    with chat(script) as model, httpx2.Client(timeout=LIMIT_SECONDS) as client:
        env = {"FREEACT_BASE_URL": model.server.base_url}
        with served(tmp_path, "openai-chat:scripted", env=env) as page:
            assert client.post(f"{page}prompt", content="Set it up.").status_code == 204
            for event, html in events(client, page):
                if isinstance(event, QuestionRequest):
                    where, names = f"{page}answer/{event.request_id}", {field.name for field in event.fields}
                    assert names == ({"port", "secure"} if "port" in names else {"Which database?"})
                    assert "Which database?" in html or "port" in names
                    refused = client.post(where, json={"values": {"port": "many", "secure": "yes"}})
                    assert (refused.status_code, "port" in refused.text) == (422, True), refused.text
                    given = {"port": "80", "secure": "no"} if "port" in names else {"Which database?": "DuckDB"}
                    assert client.post(where, json={"values": given}).status_code == 204
                    assert client.post(where, json={"text": None}).status_code == 409
                if isinstance(event, AgentFinished):
                    assert (event.status, event.output) == ("completed", 'DuckDB and {"port": 80, "secure": false}')
                    break


def test_the_web_example_takes_ninety_lines() -> None:
    assert len((ROOT / "examples/services/web.py").read_text().splitlines()) <= 90
