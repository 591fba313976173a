"""Exports: a question stands before its call, and the page can be read at any width."""

import json
import re

import pytest
from support.sample_events import ROOT, request
from support.tables import each

from freeact_sub.calls import CodeAction, FileWrite, McpCall, ShellCommand, SpawnCall
from freeact_sub.cells import StreamText
from freeact_sub.events import (
    AgentFinished,
    AgentStarted,
    ApprovalDecided,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    QuestionAnswered,
    QuestionRequest,
    Response,
    ToolCallStarted,
    ToolOutput,
)
from freeact_sub.export import export_events
from freeact_sub.export.document import below, report_of, told_of
from freeact_sub.show.blocks import Approval, CallStep, Prompt

CELL = {**ROOT, "tool_call_id": "cell"}
ASKED = {
    "a cell": CodeAction(code="print(1)"),
    "an MCP call of the model": McpCall(server="units", tool="convert", args={"value": 1}),
    "a child": SpawnCall(prompt="look there"),
}
STARTED = {
    "a cell": ToolCallStarted(**CELL, tool_name="execute_ipython_cell", args={"code": "print(1)"}),
    "an MCP call of the model": ToolCallStarted(**CELL, tool_name="units_convert", args={"value": 1}),
    "a child": ToolCallStarted(**CELL, tool_name="task", args={"prompt": "look there"}),
}


def asked_about(name, *, allowed=True):
    """The events of a call that a person was asked about, in their order."""
    yield AgentStarted(**ROOT, prompt="go", time=1.0)
    yield STARTED[name]
    yield request("approval-1", ASKED[name], tool_call_id="cell")
    yield ApprovalDecided(**CELL, request_id="approval-1", allowed=allowed)
    if name == "a cell":
        yield CodeExecutionOutputChunk(**CELL, output=StreamText(name="stdout", text="OUTPUT"))
        yield request("approval-2", FileWrite(operation="write", path="/x"), tool_call_id="cell")
        yield ApprovalDecided(**CELL, request_id="approval-2", allowed=True)
        yield CodeExecutionOutput(**CELL, text="OUTPUT", status="ok")
    yield ToolOutput(**CELL, tool_name=STARTED[name].tool_name, content="OUTPUT")
    yield AgentFinished(**ROOT, status="completed", output="done", time=2.0)


@pytest.mark.parametrize("name", ASKED)
def test_a_question_stands_before_the_call_that_it_is_about(name):
    kinds = [type(item) for item in told_of(report_of(asked_about(name)).agents[0])]
    assert kinds.index(Approval) == kinds.index(CallStep) - 1
    for form in ("html", "md", "ipynb"):
        text = export_events(asked_about(name), form)
        assert text.index("Answer: ") < text.index("OUTPUT"), form


INNER = {
    "a file": FileWrite(operation="write", path="/x"),
    "a command": ShellCommand(command="touch /x"),
    "a server's tool": McpCall(server="units", tool="convert", args={"value": 1}),
    "a child": SpawnCall(prompt="look there"),
    "a text": None,
}


@each("name", INNER)
def test_a_question_of_a_cells_code_stands_between_the_outputs_before_and_after_it(name):
    def printed(text):
        return CodeExecutionOutputChunk(**CELL, output=StreamText(name="stdout", text=f"{text}\n"))

    call = INNER[name]
    events = [AgentStarted(**ROOT, prompt="go", time=1.0), STARTED["a cell"], printed("BEFORE")]
    if call is None:
        events += [
            QuestionRequest(**CELL, request_id="question-1", prompt="Whose?"),
            QuestionAnswered(**CELL, request_id="question-1", prompt="Whose?", answered=True, text="ASKED"),
        ]
    else:
        if isinstance(call, McpCall):
            events.append(ToolCallStarted(**CELL, tool_name="units_convert", args={"value": 1}, call_id="1"))
        events += [
            request("approval-1", call, tool_call_id="cell"),
            ApprovalDecided(**CELL, request_id="approval-1", allowed=False, reason="ASKED"),
        ]
    events += [printed("AFTER"), CodeExecutionOutput(**CELL, text="BEFORE\nAFTER\n", status="ok")]
    for form in ("html", "md", "ipynb"):
        text = export_events(events, form)
        places = [text.index(word) for word in ("BEFORE", "ASKED", "AFTER")]
        assert places == sorted(places), form
        assert [text.count(word) for word in ("BEFORE", "AFTER")] == [1, 1], form


def test_the_text_of_a_cell_that_printed_nothing_is_shown_beside_its_questions():
    events = [AgentStarted(**ROOT, prompt="go", time=1.0), STARTED["a cell"]]
    events += [request("approval-1", INNER["a file"], tool_call_id="cell")]
    events += [CodeExecutionOutput(**CELL, text="THE TEXT", status="ok")]
    for form in ("html", "md"):
        assert "THE TEXT" in export_events(events, form), form


def test_questions_of_calls_side_by_side_stand_each_before_its_own():
    codes = [f"print({number})" for number in range(3)]
    events = [AgentStarted(**ROOT, prompt="go", time=1.0)]
    events += [
        ToolCallStarted(**ROOT, tool_call_id=code, tool_name="execute_ipython_cell", args={"code": code}) for code in codes
    ]
    events += [request(f"approval-{code}", CodeAction(code=code), tool_call_id=code) for code in reversed(codes)]
    first, *items = told_of(report_of(events).agents[0])
    assert isinstance(first, Prompt)
    codes_of = [(type(item), item.code if isinstance(item, CallStep) else item.request.call.code) for item in items]
    assert codes_of == [(kind, code) for code in codes for kind in (Approval, CallStep)]


def test_the_table_of_agents_fits_a_page_and_a_telephone():
    """Columns shrink and wrap instead of being cut, and on a narrow page each cell says its column."""
    text = export_events(asked_about("a cell"), "html")
    table = text[text.index('<table class="agents">') : text.index("</table>")]
    assert "scroll" not in table
    assert re.findall(r'data-column="(\w+)"', table) == [
        "agent",
        "ended",
        "model",
        "mode",
        "seconds",
        "turns",
        "tokens",
        "cost",
    ]
    assert "content: attr(data-column)" in text
    assert "nowrap" not in "".join(re.findall(r"\.agents[^{]*\{[^}]*\}", text))


def test_headings_of_answers_are_smaller_than_those_of_the_page():
    text = export_events([AgentStarted(**ROOT, prompt="go"), Response(**ROOT, content="# Large\n\n## Less")], "html")
    style = text[text.index("<style>") : text.index("</style>")]
    sizes = {
        tag: float(size) for tag, size in re.findall(r"^(?:.*\} )?(h[123]) \{ font-size: ([\d.]+)rem", style, re.MULTILINE)
    }
    (answers,) = re.findall(r"\.fsub-markdown :is\(h1, h2, h3, h4, h5, h6\) \{ font-size: ([\d.]+)rem", style)
    assert float(answers) < min(sizes.values())
    assert "<h1>Large</h1>" in text


@each(
    ("text", "shown"),
    [
        ("# Large\n\n## Less", "### Large\n\n#### Less"),
        ("##### Small\ntext # no heading", "###### Small\ntext # no heading"),
        ("#no heading\n#", "#no heading\n###"),
        ("```sh\n# comment\n```\n# A", "```sh\n# comment\n```\n### A"),
        ("~~~\n```\n# comment\n~~~\n  # A", "~~~\n```\n# comment\n~~~\n### A"),
        ("````\n```\n# comment", "````\n```\n# comment"),
    ],
)
def test_headings_of_answers_are_below_those_of_a_document(text, shown):
    assert below(text, 2) == shown
    for form in ("md", "ipynb"):
        exported = export_events([AgentStarted(**ROOT, prompt="go"), Response(**ROOT, content=text)], form)
        assert (shown if form == "md" else json.dumps(shown, ensure_ascii=False)[1:-1]) in exported
