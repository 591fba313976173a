"""What all front ends say about calls: nothing that matters for an answer is left out, cut or hidden."""

import html
import io
import re
from dataclasses import fields
from pathlib import Path

import pytest
from rich.console import Console
from support.tables import each

from freeact_sub.approvals.policy import BY_MODE
from freeact_sub.calls import (
    CALLS,
    CodeAction,
    FanOut,
    FileWrite,
    McpCall,
    NetworkConnect,
    SavedVariables,
    ShellCommand,
    SpawnCall,
    ToolCall,
)
from freeact_sub.events import ApprovalRequest
from freeact_sub.notebook.render import question_html, question_text
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.feed import event_html
from freeact_sub.show.questions import Questions, always_means
from freeact_sub.terminal.card import question_card
from freeact_sub.terminal.plain_lines import PlainLines
from freeact_sub.text import visible


def long(name):
    """A text that differs from another one at its end alone, and would hide it."""
    return f"{name}-{'x' * 700}\u202e\u200b-{name}"


SAMPLES = {
    "code": CodeAction(code=long("code")),
    "shell": ShellCommand(command=long("command"), cwd=long("cwd"), outside=True, purpose=long("purpose")),
    "write": FileWrite(path=long("path"), named=long("named"), operation="remove"),
    "connect": NetworkConnect(host=long("host"), port=65535, ip="192.0.2.77"),
    "mcp": McpCall(server=long("server"), tool=long("tool"), args={long("name"): long("value")}),
    "spawn": SpawnCall(prompt=long("prompt"), description=long("description"), agent=long("type"), mode="full"),
    "variables": SavedVariables(variables=long("variables"), saved_in=long("mode"), more=long("more")),
    "fan_out": FanOut(what=long("what"), bound=long("bound"), cheaper={long("other"): (1, 0.5, 2)}),
    "tool": ToolCall(tool_name=long("tool"), args={long("name"): long("value")}),
}


def texts_of(call):
    for field in fields(call):
        value = getattr(call, field.name)
        if field.name != "kind":
            texts = [*value, *value.values()] if isinstance(value, dict) else [value]
            yield from (text for text in texts if isinstance(text, str))


def drawn(renderable):
    console = Console(width=100_000, markup=False, file=io.StringIO())
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def shown_by(request):
    """The question as each front end shows it."""
    views, questions = Stories(), Questions()
    view = views.observe(request)
    questions.observe(request)
    yield f"{request.call.question}\n{request.call.text}"
    yield PlainLines(views).write(request)
    yield drawn(question_card(views, questions, request, 100, keys="", workspace=Path.cwd()))
    yield question_text(request)
    yield html.unescape(re.sub(r"<[^>]*>", "", question_html(request)))
    yield html.unescape(re.sub(r"<[^>]*>", "", event_html(view, request)))


@each("kind", CALLS)
def test_a_question_shows_all_of_its_call_in_every_front_end(kind):
    call = SAMPLES[kind]
    assert call.kind == kind
    for shown in shown_by(ApprovalRequest(agent_id="agent-1", request_id="r", call=call)):
        for text in texts_of(call):
            assert visible(text) in shown, text[:20]
        assert ("OUTSIDE" in shown) is (kind == "shell")


def test_what_an_answer_would_allow_from_now_on_is_shown_whole():
    request = ApprovalRequest(request_id="r", call=SAMPLES["shell"], suggested=(long("shell:a"), long("file:b")))
    assert all(visible(pattern) in always_means(request) for pattern in request.suggested)


def test_a_question_is_one_line():
    for call in SAMPLES.values():
        assert "\n" not in call.question
    assert ToolCall(tool_name="a\nb").question == r"asks to call a\nb"


@pytest.mark.parametrize(("kind", "text"), [("connect", "example.org:443"), ("mcp", "server/tool"), ("tool", "mine")])
def test_what_stands_for_a_call_on_the_command_line_is_what_rules_are_about(kind, text):
    call = CALLS[kind].parse(text)
    assert text in {call.subject, getattr(call, "address", "")}
    assert call.form


def test_every_call_is_decided_by_a_row_of_the_mode_table():
    topics = {call.topic for call in SAMPLES.values() if hasattr(call, "topic")}
    assert topics <= set(BY_MODE)


@each(("seconds", "told"), [(0, "1 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h")])
def test_how_long_the_rest_of_a_fan_out_takes(seconds, told):
    assert FanOut(what="map", more=9, seconds=seconds).figures.endswith(f", {told}.")
