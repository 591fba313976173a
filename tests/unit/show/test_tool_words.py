"""People read words for our tools and kinds of calls: no front end shows them by the names that models and rules use."""

import re
from pathlib import Path

from support.sample_events import ROOT, request
from support.tables import each

from freeact_sub.calls import SpawnCall, ToolCall
from freeact_sub.events import AgentStarted, Event, ToolCallStarted, ToolOutput
from freeact_sub.export import FORMATS, export_events
from freeact_sub.notebook.display import Page
from freeact_sub.notebook.render import settled_part
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.feed import event_html
from freeact_sub.show.heads import head_of_call, head_of_tool
from freeact_sub.show.questions import always_means
from freeact_sub.show.wording import tool_words
from freeact_sub.terminal.plain_lines import PlainLines

NAMES = sorted(file.stem for file in (Path(__file__).parents[3] / "tools").glob("*.json"))


def run_of(name: str) -> list[Event]:
    started = ToolCallStarted(**ROOT, tool_call_id="c", tool_name=name, args={"code": "1 + 1"}, label="a sum")
    ended = ToolOutput(**ROOT, tool_call_id="c", tool_name=name, content="something", label="a sum")
    return [AgentStarted(**ROOT, prompt="go"), started, ended]


@each("name", NAMES)
def test_no_front_end_shows_the_name_of_a_tool(name: str) -> None:
    events, views, page = run_of(name), Stories(), Page()
    plain = PlainLines(views)
    shown = [head_of_tool(event).text for event in events if isinstance(event, ToolCallStarted)]
    for event in events:
        view = views.observe(event)
        shown += [plain.write(event), event_html(view, event)]
        page.take(event)
    shown += [settled_part(story)["text/html"] + settled_part(story)["text/plain"] for story in page.stories.by_id.values()]
    shown += [export_events(events, form) for form in FORMATS if form not in ("jsonl", "ipynb")]
    for text in shown:
        assert not re.search(rf"\b{name}\b(?!s)", re.sub("(?s)<style>.*</style>", "", text)) or name in tool_words(name)
    assert any(tool_words(name) in text for text in shown)


def test_a_name_that_is_not_ours_stays() -> None:
    assert tool_words("weather\x1b[2J") == "weather"
    assert tool_words("weather", does=True) == "calls weather"


def test_an_always_is_about_children() -> None:
    assert "spawn" not in always_means(request("r", SpawnCall(prompt="go"), suggested=("spawn",)))
    assert "children" in always_means(request("r", SpawnCall(prompt="go"), suggested=("spawn",)))
    assert "spawn:a*" in always_means(request("r", SpawnCall(prompt="go"), suggested=("spawn:a*",)))


def test_a_note_is_shown_by_its_words() -> None:
    args = {"fact": "The user wants all tables sorted by date, and prices in euro."}
    started = ToolCallStarted(**ROOT, tool_call_id="c", tool_name="remember", args=args)
    assert head_of_tool(started).text == f"Note  {args['fact']}"
    assert head_of_call(ToolCall(tool_name="remember", args=args)).text == f"Note  {args['fact']}"
