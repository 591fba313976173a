"""What an MCP server asks in the middle of a call reaches a person, over both transports and in both eras of the protocol.

The servers are as the SDK makes them: each speaks both eras.
"""

import asyncio
import sys
from collections.abc import Iterator

import pytest
from pydantic_ai.messages import ToolCallPart
from support import asking_mcp_server
from support.agents import cell, of_kind
from support.elsewhere import CANNOT_FORK
from support.mcp_host import McpHost, http_server
from support.waiting import outlast

from freeact_sub import Agent, Config
from freeact_sub.config.schema import KernelConfig, McpServerConfig
from freeact_sub.errors import McpError
from freeact_sub.events import Answer, CodeExecutionOutput, QuestionAnswered, QuestionRequest, ToolOutput
from freeact_sub.testing import ScriptedModel

pytestmark = [pytest.mark.mcp, pytest.mark.skipif(CANNOT_FORK, reason="forked kernels")]
WAIT_SECONDS = 60
BOOKED = {"people": "4", "day": "Sunday"}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with http_server(asking_mcp_server.__file__) as port:
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture(params=["stdio", "http"])
def server_of(request):
    """The server over both transports."""

    def config(**settings):
        if request.param == "http":
            return McpServerConfig(url=request.getfixturevalue("address"), **settings)
        return McpServerConfig(command=sys.executable, args=(asking_mcp_server.__file__,), **settings)

    return config


@pytest.fixture
def run_asking(tmp_path):
    """Run a script with the server; each question gets what the next answer does with it."""

    async def run(server, script, *answers, **config):
        left, events = list(answers), []
        settings = Config(workspace=tmp_path, mcp_servers={"asking": server}, **{"mode": "full", **config})
        async with Agent(settings, model=ScriptedModel(script)) as agent:
            running = agent.run("root")
            async for event in running:
                events.append(event)
                if isinstance(event, QuestionRequest) and not event.headless:
                    assert event in running.open_requests
                    await left.pop(0)(event)
            assert (await running.result()).status == "completed"
        assert not left
        return events

    return run


def calls_of(tool):
    """The calls of a model up to the answer: a server of both eras fails to ask at the first one of a tool of the newer."""
    call = [ToolCallPart(f"asking_{tool}", {})]
    return [call, call] if tool.endswith("_anew") else [call]


def gives(given):
    async def answer(event):
        assert event.answer(given)

    return answer


async def declines(event):
    event.decline()


def told(events):
    return [event.content for event in of_kind(events, ToolOutput)]


BOOKED_TEXT = 'accept {"people":4,"day":"Sunday","smoking":false,"note":null}'
FORMS = {
    "book": BOOKED_TEXT,
    "book_resolved": BOOKED_TEXT,
    "book_anew": "accept {'people': 4, 'day': 'Sunday', 'smoking': False}",
}
"""The tools that ask for a booking, by what they say then."""


@pytest.mark.parametrize("tool", FORMS)
async def test_a_form_is_asked_and_its_defaults_are_filled_in(run_asking, server_of, tool):
    events = await run_asking(server_of(), [*calls_of(tool), "done"], gives(BOOKED))
    *failed, last = told(events)
    assert last == FORMS[tool]
    assert all("may have acted, or not" in text for text in failed)
    (request,) = of_kind(events, QuestionRequest)
    assert (request.server, request.prompt, request.url) == ("asking", "When do you come?", "")
    assert [(field.name, field.kind, field.required) for field in request.fields][:3] == [
        ("people", "integer", True), ("day", "choice", True), ("smoking", "boolean", False),
    ]  # fmt: skip
    assert request.tool_call_id is not None


@pytest.mark.parametrize("tool", FORMS)
async def test_code_in_a_cell_calls_and_its_clock_stands_still(run_asking, server_of, tool):
    async def late(event):
        await outlast(limit)  # that of the cell, and of the call
        assert event.answer(BOOKED)

    limit = 3
    server, kernel = server_of(call_timeout_seconds=limit), KernelConfig(cell_timeout_seconds=limit)
    first = [gives(BOOKED)] if tool == "book_anew" else []  # for it the server is started once more
    script = [*(calls_of(tool) if first else ()), [cell(f"print(await agent.mcp.asking.{tool}())")], "done"]
    events = await run_asking(server, script, *first, late, kernel=kernel)
    assert [event.text for event in of_kind(events, CodeExecutionOutput)] == [FORMS[tool]]
    *_, request = of_kind(events, QuestionRequest)
    assert request.tool_call_id is not None


@pytest.mark.parametrize("tool", ["pay", "pay_anew"])
@pytest.mark.parametrize(("answer", "action"), [(gives("yes"), "accept"), (gives("no"), "decline"), (declines, "decline")])
async def test_a_page_is_shown_and_not_opened(run_asking, server_of, monkeypatch, tool, answer, action):
    monkeypatch.setattr("webbrowser.open", lambda *_: pytest.fail("nothing opens a page by itself"))
    events = await run_asking(server_of(), [*calls_of(tool), "done"], answer)
    assert told(events)[-1].split()[0] == action
    (request,) = of_kind(events, QuestionRequest)
    assert (request.server, request.url) == ("asking", asking_mcp_server.URL)


async def test_a_call_that_needs_a_page_is_made_again_once_it_was_opened(run_asking, server_of):
    events = await run_asking(server_of(), [[ToolCallPart("asking_log_in", {})], "done"], gives("yes"))
    assert told(events) == ["logged in"]
    assert of_kind(events, QuestionRequest)[0].url == "https://login.example.org/"


async def test_a_question_without_fields_is_a_yes_or_a_no(run_asking, server_of):
    script = [[ToolCallPart("asking_confirm", {})], [ToolCallPart("asking_confirm", {})], "done"]
    events = await run_asking(server_of(), script, gives("yes"), gives("no"))
    assert told(events) == ["accept {}", "decline None"]


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "file:///etc/passwd", "https://you@evil.example/", "https://a\u202eb.example/", "http://"]
)
async def test_an_address_that_is_no_page_or_hides_where_it_leads_is_asked_of_nobody(run_asking, server_of, url):
    events = await run_asking(server_of(), [[ToolCallPart("asking_bad_page", {"url": url})], "done"])
    assert not of_kind(events, QuestionRequest)
    assert "only a web page" in told(events)[0] or "hides where it leads" in told(events)[0]


@pytest.mark.parametrize("tool", ["book", "book_anew"])
async def test_where_nobody_is_there_it_is_cancelled_at_once_and_the_model_reads_why(run_asking, server_of, tool):
    events = await run_asking(server_of(), [*calls_of(tool), "done"], headless="allow")
    first, _, note = told(events)[-1].partition("\n")
    assert first.split()[0] == "cancel"
    assert note == "[the MCP server 'asking' asked the user, and got no answer: nobody is there to answer]"
    assert of_kind(events, QuestionAnswered)[0].reason == "nobody is there to answer"


@pytest.mark.parametrize("tool", ["book", "book_anew"])
async def test_a_cancel_withdraws_the_question_and_the_connection_works_on(tmp_path, server_of, tool):
    model = ScriptedModel([*calls_of(tool), "never", *calls_of(tool)[-1:], "done"])
    settings = Config(workspace=tmp_path, mcp_servers={"asking": server_of()}, mode="full")
    async with Agent(settings, model=model) as agent:
        run = agent.run("root")
        async for event in run:
            if isinstance(event, QuestionRequest):
                assert run.cancel()
                first = event
        assert (await run.result()).status == "cancelled"
        assert run.open_requests == ()
        assert not first.answer(BOOKED)
        result = await asyncio.wait_for(agent.run("again").result(), WAIT_SECONDS)
    assert result.status == "completed"


async def test_the_time_without_a_question_counts(tmp_path, server_of):
    async def answer(_):
        return Answer(values={"people": 2, "day": "Sunday"}, text="")

    async with McpHost(tmp_path).servers(asking=server_of(call_timeout_seconds=2)) as servers:
        with pytest.raises(McpError, match="did not respond within 2 s"):
            await servers.call("asking", "book", {"seconds": 20}, answer)


@pytest.mark.parametrize("how", ["stateless", "json"])
async def test_a_server_that_cannot_ask_in_the_older_era_is_asked_in_the_newer(run_asking, how):
    with http_server(asking_mcp_server.__file__, 0, how) as port:
        server = McpServerConfig(url=f"http://127.0.0.1:{port}/mcp")
        script = [[ToolCallPart(f"asking_{tool}", {})] for tool in ("book_resolved", "book_anew")]
        events = await run_asking(server, [*script, "done"], gives(BOOKED), gives(BOOKED))
    assert told(events) == [FORMS["book_resolved"], FORMS["book_anew"]]


async def test_a_tool_of_the_newer_era_keeps_nothing_of_the_others_state(tmp_path, server_of):
    """It is called beside the connection over which the others are, and both end with their agent."""

    async def answer(_):
        return Answer(values={"people": 2, "day": "Sunday"}, text="")

    async with McpHost(tmp_path).servers(asking=server_of()) as servers:
        assert (await servers.call("asking", "book_anew", {}, answer)).is_error
        for tool in ("book", "book_anew", "book", "book_anew"):
            assert (await servers.call("asking", tool, {}, answer)).text.startswith("accept")


@pytest.mark.parametrize("code", [-32603, -32600, 0])
async def test_a_tool_that_acts_and_fails_acts_once_for_each_call(tmp_path, server_of, code):
    acts = tmp_path / "acts"
    async with McpHost(tmp_path).servers(asking=server_of()) as servers:
        for number in range(1, 4):
            result = await servers.call("asking", "act", {"file": str(acts), "code": code})
            assert result.is_error
            assert "the disk is full" in result.text
            assert acts.read_text().count("act") == number
