"""Sessions as files: what agents did is in them, what is hostile in it does nothing."""

import json
import re
from html.parser import HTMLParser

import nbformat
import pytest
from pydantic_ai.messages import ToolCallPart
from support.agents import cell, read, task
from support.sample_events import ROOT, one_of_each, picture, request
from support.tables import each

from freeact_sub.calls import McpCall
from freeact_sub.cells import CellError, DisplayData, ExecuteResult, StreamText
from freeact_sub.config.budget import Usage
from freeact_sub.config.schema import McpServerConfig
from freeact_sub.errors import SessionError
from freeact_sub.events import (
    AgentEvent,
    AgentFinished,
    AgentStarted,
    ApprovalDecided,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    PlanUpdated,
    Response,
    StrategyProgress,
    ToolCallStarted,
    ToolOutput,
)
from freeact_sub.events.ending import FileReceipt, Receipts
from freeact_sub.events.progress import PlanStep, SearchedState
from freeact_sub.export import FORMATS, export_events, export_session
from freeact_sub.export.document import fenced, report_of, seconds_of, timeline_of
from freeact_sub.sessions import state_folder
from freeact_sub.sessions.sqlite import SqliteStore
from freeact_sub.testing import first_prompt

HOSTILE = (
    "</pre></style><script>alert(1)</script><img src=x onerror=alert(1)>\"'```\n````\n[a](javascript:x)\x1b[2J\u202e--><b>"
)
CHILD = {"agent_id": "agent-c", "parent_id": ROOT["agent_id"], "depth": 1}
CELL = {**ROOT, "tool_call_id": "cell"}
TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "h1",
        "h2",
        "h3",
        "p",
        "a",
        "div",
        "span",
        "table",
        "tr",
        "th",
        "td",
    ),
    *(
        "section",
        "article",
        "pre",
        "code",
        "ul",
        "li",
        "ol",
        "img",
        "details",
        "summary",
        "em",
        "strong",
        "br",
        "hr",
        "tbody",
    ),
    *("thead", "blockquote", "s"),
    *("svg", "g", "rect", "path", "text"),
}


class ParsedPage(HTMLParser):
    """Notes what could do something."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.text += data


def chunk(output, **header):
    return CodeExecutionOutputChunk(**{**CELL, **header}, output=output)


def ran(code, outputs=(), *, status="ok", time=1.0, **header):
    """The events of a cell."""
    header = {**CELL, **header}
    yield ToolCallStarted(**header, tool_name="execute_ipython_cell", args={"code": code}, time=time)
    yield from (CodeExecutionOutputChunk(**header, output=output, time=time) for output in outputs)
    yield CodeExecutionOutput(**header, text="", status=status, seconds=0.5, time=time)
    yield ToolOutput(**header, tool_name="execute_ipython_cell", content="(no output)", time=time)


def ended(**values):
    return AgentFinished(**{**ROOT, "status": "completed", **values})


@each("text", ["something to read", HOSTILE, "", "\x00\ud800 half", "x" * 30_000])
def test_every_kind_of_event_is_in_every_format_and_nothing_in_it_acts(text):
    events = one_of_each(text)
    page = ParsedPage(export_events(events, "html", title=text[:100]))
    assert set(page.tags) <= TAGS
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert not [value for name, value in page.attributes if name == "src" and not value.startswith("data:image/")]
    links = [value for name, value in page.attributes if name == "href"]
    assert all(value.startswith("#agent-") for value in links)
    book = export_events(events, "ipynb").encode("utf-8", "backslashreplace")  # as it is written to a file
    nbformat.validate(nbformat.reads(book.decode(), 4))
    assert export_events(events, "md")
    lines = export_events(events, "jsonl").splitlines()
    assert [AgentEvent.from_json(line).to_json() for line in lines] == [event.to_json() for event in events]


def test_a_search_is_a_picture_of_its_tree_and_other_strategies_a_line():
    def step(number, node_id, score, **node):
        state = SearchedState(
            node_id=node_id, parent=node_id.rpartition(".")[0], action=f"try({node_id})", score=score, **node
        )
        return StrategyProgress(**CELL, strategy="search", strategy_id="s", step=number, node=state, best="10.0")

    steps = [
        step(1, "10", 0.5),
        step(2, "2", 0.1, state="failed"),
        step(3, "10.0", 0.7),
        step(4, "10.0", 0.9, terminal=True),
    ]
    lost = step(5, "7.7.7", 0.2)
    vote = StrategyProgress(**CELL, strategy="vote", strategy_id="v", step=3, of=5)
    source = export_events([AgentStarted(**ROOT, prompt="x"), *steps, lost, vote, ended()], "html")
    assert [source.count(tag) for tag in ("<svg", "<rect", "<path", 'class="best"', 'class="failed"')] == [1, 5, 4, 2, 1]
    assert source.index("0.10 try(2)") < source.index("0.90 try(10.0) ✓") < source.index("0.50 try(10)<")
    assert "0.70" not in source
    assert "Strategy vote <span class=quiet>3 steps, did not end" in source
    assert "Strategy search: 5 steps; the best of 4 nodes: 0.90 try(10.0)" in export_events([*steps, lost], "md")
    deep = [step(number, "." * number, 0.5) for number in range(500)]  # as code in a cell may name its nodes
    assert export_events(deep, "html").count("<rect") == 501


@each("to", FORMATS)
def test_a_session_in_which_nothing_happened_is_a_file_too(to):
    text = export_events([], to)
    assert to == "jsonl" or "An empty session" in text


def test_the_page_needs_nothing_but_itself_and_forbids_the_rest():
    source = export_events(one_of_each(), "html")
    page = ParsedPage(source)
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in [value for _, value in page.attributes]
    assert not re.search(r"url\(|@import|https?://", source)
    for words in ("prefers-color-scheme: dark", "@media print", "width=device-width"):
        assert words in source


def test_what_an_agent_did_is_told_in_order_with_pictures_questions_files_and_costs():
    call = McpCall(server="units", tool="convert", args={"value": 1})
    events = [
        AgentStarted(**ROOT, prompt="Plot it", model="m", mode="ask", time=1.0),
        *ran("print(1)", [StreamText(name="stdout", text="one\n"), StreamText(name="stdout", text="two\n"), picture()]),
        request("r", call, time=2.0, tool_call_id="mcp"),
        ApprovalDecided(**ROOT, request_id="r", allowed=False, reason="not today", time=5.0),
        Response(**ROOT, content="It is **done**."),
        ended(
            output="It is **done**.",
            files_written=("a.png",),
            usage=Usage(turns=2, input_tokens=7),
            time=6.0,
            receipts=Receipts(cells_run=1, files_written=(FileReceipt(path="a.png", sha256="e3b0c44298fc1c14", size=9),)),
            missing_files=("b<>.csv",),
        ),
    ]
    (agent,) = report_of(events).agents
    kinds = [type(item).__name__ for item in agent.items]
    assert kinds == ["Prompt", "CallStep", "Approval", "Said", "End"]
    assert str(agent.items[1].outputs[0]) == "one\ntwo\n"
    assert (agent.items[2].decision.allowed, agent.items[2].decision.reason) == (False, "not today")
    source = export_events(events, "html")
    assert source.count("data:image/png;base64,") == 1
    assert source.count("<strong>done</strong>") == 1  # the answer is the last text, and is told once
    page = ParsedPage(source).text
    made = (
        "receipts: 1 cell",
        "written: a.png (9 bytes, sha256 e3b0c44298fc)",
        "no file that the answer names exists: b<>.csv",
    )
    for words in ("Plot it", "two", "not today", "a.png", "tokens 7", "after 3.0 s", *made):
        assert words in page
    document = export_events(events, "md")
    assert "```python\nprint(1)\n```" in document
    assert "- a.png" in document
    assert all(line in document for line in made)


def test_calls_that_code_makes_side_by_side_keep_their_results():
    use = {**CELL, "tool_name": "ask"}
    events = [
        AgentStarted(**ROOT, prompt="go"),
        ToolCallStarted(**CELL, tool_name="execute_ipython_cell", args={"code": "gather()"}),
        ToolCallStarted(**use, args={"prompt": "a"}),
        ToolCallStarted(**use, args={"prompt": "b"}),
        ToolOutput(**use, content="first"),
        ToolOutput(**use, content="second", outcome="failed"),
        CodeExecutionOutput(**CELL, text="", status="ok"),
        *ran("later()"),  # the same id, in a later turn
    ]
    items = report_of(events).agents[0].items[1:]
    assert [(item.result, item.outcome) for item in items if item.code is None] == [
        ("first", "success"),
        ("second", "failed"),
    ]
    assert [(item.code, item.reaches_out) for item in items if item.code is not None] == [
        ("gather()", True),
        ("later()", False),
    ]


def test_a_display_that_is_updated_is_shown_as_it_was_at_last():
    def bar(text, **more):
        return DisplayData(data={"text/plain": text}, display_id="bar", **more)

    events = [AgentStarted(**ROOT, prompt="go"), *ran("bar()", [bar("10 %")]), chunk(bar("100 %", update=True))]
    (shown,) = report_of(events).agents[0].items[1].outputs
    assert shown.data == {"text/plain": "100 %"}


def test_a_run_that_was_cut_off_is_told_as_that():
    events = [AgentStarted(**ROOT, prompt="go", time=1.0), ToolCallStarted(**CELL, tool_name="x", args={}, time=9.0)]
    (agent,) = report_of(events).agents
    assert (agent.status, seconds_of(agent)) == ("interrupted", 8.0)
    page = export_events(events, "html")
    assert "did not end" in ParsedPage(page).text
    assert '<span class="bad">interrupted</span>' in page
    assert '<span class="good">completed</span>' in export_events(
        [events[0], AgentFinished(**ROOT, status="completed", time=9.0)], "html"
    )


def test_the_critical_path_goes_through_the_child_that_was_waited_for():
    def life(agent_id, began, finished, parent=ROOT["agent_id"]):
        header = {"agent_id": agent_id, "parent_id": parent, "depth": 1}
        yield AgentStarted(**header, prompt="x", time=began)
        yield AgentFinished(**header, status="completed", time=finished)

    events = [
        AgentStarted(**ROOT, prompt="go", time=100.0),
        *life("short", 101.0, 103.0),
        *life("long", 101.0, 106.0),
        *life("inner", 102.0, 105.0, parent="long"),
        ended(time=110.0),
    ]
    found = timeline_of(report_of(events))
    path = [(span.agent.agent_id, span.began, span.ended) for span in found.critical]
    assert path == [
        (ROOT["agent_id"], 0.0, 1.0),
        ("long", 1.0, 2.0),
        ("inner", 2.0, 5.0),
        ("long", 5.0, 6.0),
        (ROOT["agent_id"], 6.0, 10.0),
    ]
    assert found.seconds == sum(ended - began for _, began, ended in path)


def test_the_night_between_two_prompts_takes_no_room():
    events = []
    for begin in (0.0, 40_000.0):
        events += [AgentStarted(**ROOT, prompt="go", time=begin + 1), ended(time=begin + 3)]
    found = timeline_of(report_of(events))
    assert found.seconds == 4.0
    assert [(span.began, span.ended) for span in found.spans] == [(0.0, 2.0), (2.0, 4.0)]
    assert [(span.began, span.ended) for span in found.critical] == [(0.0, 2.0), (2.0, 4.0)]


def test_a_notebook_has_each_child_where_it_was_started_with_outputs_as_jupyter_has_them():
    task_call = {**ROOT, "tool_call_id": "t", "tool_name": "task"}
    error = CellError(ename="E", evalue="v", traceback=("line",))
    result = ExecuteResult(data={"text/plain": "2", "image/png": "aGk="}, execution_count=7)
    events = [
        AgentStarted(**ROOT, prompt="go"),
        *ran("1 + 1", [result]),
        ToolCallStarted(**task_call, args={"prompt": "sub"}),
        AgentStarted(**CHILD, prompt="sub", tool_call_id="t", description="the child"),
        *ran("await x", [error], status="error", **CHILD),
        *ran("print(2)", **CHILD, tool_call_id="c2"),
        AgentFinished(**CHILD, status="completed"),
        ToolOutput(**task_call, content="report"),
        *ran("last", tool_call_id="c3"),
        ended(),
    ]
    book = nbformat.reads(export_events(events, "ipynb"), 4)
    code = [item for item in book.cells if item.cell_type == "code"][1:]
    assert [item.source for item in code] == ["1 + 1", "%%child agent-c\nawait x", "%%child agent-c\nprint(2)", "last"]
    assert [item.metadata.get("tags", []) for item in code] == [[], ["raises-exception"], [], []]
    assert code[0].outputs[0] == {
        "output_type": "execute_result",
        "execution_count": 7,
        "data": {"text/plain": "2", "image/png": "aGk="},
        "metadata": {},
    }
    assert code[1].outputs[0]["traceback"] == ["line"]
    heads = [
        item.source.splitlines()[0] for item in book.cells if item.source.startswith("#") and item.cell_type == "markdown"
    ]
    assert heads == ["# go", "## aaaa", "### agent-c the child"]


@pytest.mark.parametrize("text", ["```", "a\n````python\nb", "no fence"])
def test_no_text_ends_its_block(text):
    lines = fenced(text).splitlines()
    assert lines[0] == lines[-1]
    assert lines[0] not in text.splitlines()


def test_a_session_that_is_not_there_is_said(tmp_path):
    store = SqliteStore(tmp_path)
    with pytest.raises(SessionError, match="there is no session 'x'"):
        export_session("x", "html", store=store)


async def test_a_stored_session_is_exported_with_its_children_and_without_secrets(make, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("OTHER_API_KEY", "sk-other-1234567890")
    secrets = ("hdr-0987654321-secret", "sk-other-1234567890")
    servers = {
        "far": McpServerConfig(
            url="http://127.0.0.1:9/mcp", headers={"Authorization": f"Bearer {secrets[0]}"}, disabled=True
        )
    }

    def script(messages, info):
        done = sum(message.kind == "response" for message in messages)
        told = f"it is {' '.join(secrets)}"
        if first_prompt(messages) == "root":
            return [[cell(f"print({told!r})")], [task(f"child {told}", description="the child")], f"done, {told}"][done]
        return told

    async with make(script, config={"mode": "full", "mcp_servers": servers}, session="new") as agent:
        await read(agent.run("root"))
        session_id = agent.session_id
    for to in FORMATS:
        file = tmp_path / f"x.{to}"
        text = export_session(session_id[:-1], to, file=file)
        assert file.read_text(encoding="utf-8") == text
        assert "the child" in text
        assert not [secret for secret in secrets if secret in text]
        assert not [secret for secret in secrets if json.dumps(secret)[1:-1] in text]
    with pytest.raises(SessionError, match="cannot be written"):
        export_session(session_id, "md", file=tmp_path / "no" / "x.md")
    assert SqliteStore(state_folder()).find(session_id).title == "root"


@each("to", FORMATS)
async def test_half_characters_are_written_out(make, to):
    script = [[ToolCallPart("execute_ipython_cell", {"code": "print(chr(0xd83d))"})], "half \ud83d"]
    async with make(script, config={"mode": "full"}) as agent:
        events, result = await read(agent.run("prompt \ud83d"))
    assert result.output == "half \\ud83d"
    export_events(events, to).encode()


def test_a_plan_is_told_as_it_was_at_last():
    call = {**ROOT, "tool_call_id": "plan-1", "tool_name": "update_plan"}

    def told(*states):
        steps = tuple(PlanStep(step=f"do *{number}*", status=state) for number, state in enumerate(states))
        yield ToolCallStarted(**call, args={"plan": []})
        yield PlanUpdated(**ROOT, tool_call_id="plan-1", steps=steps, explanation="as asked")
        yield ToolOutput(**call, content="The user sees the plan.")

    events = [AgentStarted(**ROOT, prompt="go"), *told("in_progress", "pending"), *told("completed", "pending"), ended()]
    page, notebook, text = (export_events(events, to) for to in ("html", "ipynb", "md"))
    assert "<h3>Plan <span class=quiet>1 of 2 done  as asked</span></h3>" in page
    assert "<li>\u2713 do *0*</li><li>\u25cb do *1*</li>" in page
    (plan,) = ["".join(cell["source"]) for cell in json.loads(notebook)["cells"] if "Plan" in "".join(cell["source"])]
    assert plan == "Plan (1 of 2 done  as asked):\n\n- [x] do \\*0\\*\n- [ ] do \\*1\\*"
    assert plan in text
    for exported in (page, notebook, text):
        assert "update_plan" not in exported
