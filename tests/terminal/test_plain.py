import re
from collections.abc import Callable

from support.sample_events import CHILD, ROOT, USAGE, one_of_each, request

from freeact_sub.calls import CodeAction
from freeact_sub.cells import StreamText
from freeact_sub.events import (
    AgentFinished,
    AgentMessage,
    AgentStarted,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    Event,
    Response,
    ToolCallStarted,
)
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.terminal.plain_lines import PlainLines


class Lines:
    def __init__(self, name: Callable[[AgentStory], str] | None = None) -> None:
        self.views = Stories()
        self.plain = PlainLines(self.views, name)

    def write(self, *events: Event) -> str:
        text = ""
        for event in events:
            self.views.observe(event)
            text += self.plain.write(event)
        return text


def test_every_line_begins_with_its_agent_and_holds_no_escape() -> None:
    text = Lines().write(*one_of_each("a\x1b[31m\x1b]0;t\x07b\nc\x9b2Jd\re"))
    assert len(text.splitlines()) > 20
    assert all(line.startswith("bbbb ") for line in text.split("\n")[:-1])
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)


def test_a_person_gets_names_and_more_lines_are_indented() -> None:
    lines = Lines(lambda view: view.label or "agent")
    lines.views.called = lambda agent_id: "north" if agent_id == CHILD["agent_id"] else "agent"
    told = lines.write(AgentStarted(**ROOT, prompt="go"), AgentStarted(**CHILD, prompt="a\nb", description="north"))
    assert told == "agent starts: go\nnorth is started by agent:\n  a\n  b\n"
    asks = AgentMessage(**CHILD, recipient_id=ROOT["agent_id"], kind="request", content="which?")
    assert lines.write(asks) == "north asks agent: which?\n"
    chunks = [CodeExecutionOutputChunk(**ROOT, output=StreamText(name="stdout", text=f"{at}\n")) for at in range(2)]
    assert lines.write(*chunks) == "agent output:\n  0\n  1\n", "the head stands once"
    assert lines.write(asks, chunks[0]) == "north asks agent: which?\nagent output:\n  0\n"
    told = lines.write(*one_of_each("a\x1b[31m\x1b]0;t\x07b\nc\x9b2Jd\re"))
    assert len(told.splitlines()) > 20
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]|aaaa|bbbb", told)


def test_an_event_of_one_line_is_one_line_and_more_lines_follow_with_a_bar() -> None:
    lines = Lines()
    assert lines.write(AgentStarted(**ROOT, prompt="go")) == "aaaa starts: go\n"
    text = lines.write(Response(**CHILD, content="first\n\nsecond"))
    assert text == "bbbb says: first\nbbbb |\nbbbb | second\n"


def test_what_is_known_of_an_end_stands_in_one_line_and_a_label_where_its_agent_starts() -> None:
    lines, usage = Lines(), {"usage": USAGE, "tree_usage": USAGE + USAGE}
    started = AgentStarted(**CHILD, prompt="a\nb", description="the north", queued=True)
    assert lines.write(started) == ("bbbb the north is started by aaaa and waits for a free place: a\nbbbb | b\n")
    end = AgentFinished(**CHILD, status="limit", output="half", error="no\nmoney", seconds=1, files_written=("a",), **usage)
    *texts, last = lines.write(end).splitlines()
    assert texts == ["bbbb answer: half", "bbbb error: no", "bbbb | money"]
    assert last == f"bbbb ended (limit): {USAGE}, 1.0 s; with its children: {USAGE + USAGE}; files written: a"


def test_output_of_agents_that_print_at_once_is_not_mixed() -> None:
    def chunk(header: dict[str, object], text: str) -> CodeExecutionOutputChunk:
        return CodeExecutionOutputChunk(**header, output=StreamText(name="stdout", text=text))

    lines = Lines()
    text = lines.write(chunk(ROOT, "ab"), chunk(CHILD, "12"), chunk(ROOT, "c\nd"), chunk(CHILD, "3\n"))
    assert text == "aaaa output: abc\nbbbb output: 123\n"
    end = CodeExecutionOutput(**ROOT, text="", status="ok", seconds=0.5)
    assert lines.write(end) == "aaaa output: d\naaaa cell ok: 0.5 s\n"


def test_a_question_shows_its_call_unless_the_tool_call_did() -> None:
    lines = Lines()
    call = ToolCallStarted(**ROOT, tool_call_id="c", tool_name="execute_ipython_cell", args={"code": "x = 1"})
    assert lines.write(call) == "aaaa runs code: x = 1\n"
    asked = request("r", CodeAction(code="x = 1"), tool_call_id="c")
    assert lines.write(asked) == "aaaa asks to run this cell\n"
    other = request("r", CodeAction(code="x = 2"), tool_call_id="c")
    assert lines.write(other) == "aaaa asks to run this cell: x = 2\n"
