"""What stands in the scrollback, and in the region of children, as a terminal would get it."""

import io
import re
import time
from pathlib import Path
from typing import Any

import pyte
import pytest
from support.drawn_story import CELL, CODE, DrawnStory, call, output
from support.sample_events import CHILD, ROOT, USAGE, one_of_each, request
from support.tables import each

from freeact_sub.calls import CodeAction, ShellCommand
from freeact_sub.cells import CellError
from freeact_sub.events import (
    AgentFinished,
    AgentMessage,
    AgentStarted,
    ApprovalDecided,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    PlanUpdated,
    QuestionAnswered,
    Response,
    StrategyProgress,
    ToolCallStarted,
    ToolOutput,
    ToolProgress,
    UsageUpdated,
)
from freeact_sub.events.progress import PlanStep, SearchedState
from freeact_sub.show.questions import Questions
from freeact_sub.terminal.card import WAITING, key_line, question_card
from freeact_sub.terminal.drawing.area import MAX_ROWS, ChildrenRegion, story_area
from freeact_sub.terminal.drawing.parts import MAX_COLUMNS, Folded, SidewaysConsole, coloured

ENDED: dict[str, Any] = {"status": "completed", "usage": USAGE, "tree_usage": USAGE}


def child(number: int, **others: object) -> AgentStarted:
    header = {"agent_id": f"agent-{number:04}0000", "parent_id": "agent-aaaa0000", "depth": 1, "time": 2.0}
    return AgentStarted(**{**header, "prompt": "clean", "description": f"station {number}", **others})


def test_a_run_is_told_in_words_and_each_thing_once() -> None:
    drawn = DrawnStory()
    text = drawn.draw(
        AgentStarted(**ROOT, prompt="how many?"),
        Response(**ROOT, content="I *count*."),
        call(),
        request("r", CodeAction(code=CODE), **CELL),
        ApprovalDecided(**ROOT, **CELL, request_id="r", allowed=True),
        output("a.csv\nb.csv\n"),
        CodeExecutionOutput(**ROOT, **CELL, text="a.csv\nb.csv", status="ok", seconds=0.1),
        ToolOutput(**ROOT, **CELL, tool_name="execute_ipython_cell", content="a.csv\nb.csv"),
        Response(**ROOT, content="Two."),
        AgentFinished(**ROOT, status="completed", output="Two.", usage=USAGE, tree_usage=USAGE, seconds=3.2),
    )
    assert [line.rstrip() for line in text.splitlines()] == [
        "> how many?",
        "",
        "I count.",
        "",
        "● Python  count rows per file",
        "  for name in names:",
        "      print(name)",
        "",
        "  a.csv",
        "  b.csv",
        "",
        "Two.",
        "",
        "3.2 s · 3 turns · 1,234 tokens · $0.0123",
    ]


@pytest.mark.parametrize("columns", [40, 100])
def test_a_table_that_is_wider_than_the_window_loses_no_cell_and_rows_have_no_blanks_at_their_end(columns: int) -> None:
    cells = [f"cell {number}" for number in range(40)] + ["a-name-that-is-longer-than-its-column"]
    table = "\n".join(f"| {' | '.join(row)} |" for row in (["heading"] * 41, ["---"] * 41, cells))
    text = DrawnStory(columns=columns).draw(Response(**ROOT, content=table))
    assert max(map(len, text.splitlines())) <= columns
    assert all(line == line.rstrip() for line in text.splitlines())
    assert "…" not in text
    assert {f"cell {number}" for number in range(40)} <= {
        " ".join(words.split()) for words in re.findall(r"cell\s\d+", text)
    }
    assert " of 41 · ctrl-o shows" in text


def test_an_action_waits_until_something_comes_of_it() -> None:
    drawn = DrawnStory()
    assert drawn.draw(call()) == ""
    assert [event.tool_call_id for event in drawn.story.pending] == ["call-1"]
    assert "● Python  count rows per file" in drawn.draw(output("a\n"))
    assert not drawn.story.pending
    assert "Python" not in drawn.draw(output("b\n"))


def test_a_denial_stands_below_its_action_and_changed_code_is_what_is_shown() -> None:
    drawn = DrawnStory()
    drawn.draw(call("1"), request("r", CodeAction(code="1"), **CELL))
    text = drawn.draw(ApprovalDecided(**ROOT, **CELL, request_id="r", allowed=False, reason="not now"))
    assert text.splitlines() == ["● Python  1", "  denied: not now"]
    drawn.draw(call("2"), request("s", CodeAction(code="2"), **CELL))
    text = drawn.draw(ApprovalDecided(**ROOT, **CELL, request_id="s", allowed=True, code="3"))
    assert "● Python  3" in text
    assert "you changed the code" in text
    assert "● Python  2" not in text + drawn.draw(output("3\n"))


def test_what_a_cell_does_is_a_line_of_its_own() -> None:
    drawn = DrawnStory()
    drawn.draw(call(), output("x\n"), request("r", ShellCommand(command="git push"), **CELL))
    assert "● Shell  git push" in drawn.draw(ApprovalDecided(**ROOT, **CELL, request_id="r", allowed=True))


def test_of_a_child_the_scrollback_has_its_end_in_one_line() -> None:
    drawn = DrawnStory(columns=120)
    drawn.draw(AgentStarted(**ROOT, prompt="go"))
    started = AgentStarted(**CHILD, prompt="north", description="the north")
    assert drawn.draw(started, call(**CHILD), output("x\n" * 100, **CHILD), Response(**CHILD, content="fine")) == ""
    end = AgentFinished(**CHILD, status="completed", output="It is fine.\nSo.", usage=USAGE, tree_usage=USAGE, seconds=2)
    assert drawn.draw(end) == "  ✓ bbbb the north  It is fine.  (2.0 s · 3 turns · 1,234 tokens · $0.0123)\n"
    message = AgentMessage(**CHILD, kind="status", recipient_id="agent-aaaa0000", content="It is fine.", success=True)
    assert drawn.draw(message) == "", "its end tells it"
    failed = AgentFinished(**CHILD, status="failed", error="no model", usage=USAGE, tree_usage=USAGE, seconds=2)
    assert drawn.draw(failed).startswith("  ✗ bbbb the north  failed: no model")


def test_no_event_puts_anything_but_text_and_colours_on_the_terminal() -> None:
    hostile = "a[/x]\x1b]0;title\x07\x1b]52;c;cm0=\x07\x1b[2J\x1b[3A\x07\x08 [red]c[/red] \u202e d"
    drawn = DrawnStory(colours=True)
    screen = pyte.Screen(80, 200)
    stream = pyte.Stream(screen)
    for event in one_of_each(hostile):
        text = drawn.draw(event)
        assert "\x07" not in text.replace("\x1b]8;", "")
        assert "\u202e" not in text
        stream.feed(text.replace("\n", "\r\n"))
    assert screen.title == ""


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_twenty_children_stay_within_twelve_rows_and_no_row_is_longer_than_the_terminal(columns: int) -> None:
    drawn = DrawnStory(columns=columns)
    drawn.draw(AgentStarted(**ROOT, prompt="go", time=1.0), *(child(number) for number in range(20)))
    lines = drawn.text(ChildrenRegion(views=drawn.views)).splitlines()
    assert len(lines) == MAX_ROWS
    assert max(map(len, lines)) <= columns
    assert "… 9 more: 9 at work" in lines[-1]
    for number in range(15):
        event = child(number)
        drawn.draw(
            AgentFinished(agent_id=event.agent_id, parent_id=event.parent_id, depth=1, status="completed", output="done")
        )
    lines = drawn.text(ChildrenRegion(views=drawn.views)).splitlines()
    assert len(lines) == 6
    assert "✓ 15 done" in lines[-1]


def test_children_of_children_stand_below_them_and_who_asks_or_waits_says_so() -> None:
    drawn = DrawnStory(columns=110)
    drawn.draw(
        AgentStarted(**ROOT, prompt="go", time=1.0),
        child(1),
        child(2, queued=True),
        child(3, parent_id="agent-00010000", depth=2, description="猫 🚀"),
    )
    asked = request("r", CodeAction(code="x = 1"), agent_id="agent-00010000", parent_id="agent-aaaa0000", depth=1)
    drawn.draw(asked)
    lines = drawn.text(ChildrenRegion(views=drawn.views)).splitlines()
    assert lines[0].startswith("  ? 0001 station 1  asks: Python  x = 1".replace("  x", " x"))
    assert lines[1].startswith("  ●   0003 猫 🚀")
    assert lines[2].startswith("  ○ 0002 station 2  waiting for a free place")


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_words_that_are_cut_in_the_line_of_a_child_end_in_an_ellipsis(columns: int) -> None:
    drawn = DrawnStory(columns=columns)
    drawn.draw(AgentStarted(**ROOT, prompt="go", time=1.0), child(1, description="a name " * 9, time=time.time()))
    drawn.draw(call("# " + "words " * 15 + "\n1", agent_id="agent-00010000", parent_id="agent-aaaa0000", depth=1))
    (line,) = drawn.text(ChildrenRegion(views=drawn.views)).splitlines()
    assert line.count("…") == 2
    assert len(line) <= columns


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("label", ["work on the file number {}", "work on the file number {} of the whole archive", "{}"])
def test_children_with_labels_that_are_nearly_the_same_are_told_apart(columns: int, label: str) -> None:
    drawn = DrawnStory(columns=columns)
    whole = [label.format(f"{number:02}") for number in range(20)]
    drawn.draw(AgentStarted(**ROOT, prompt="go"), *(child(at, description=words) for at, words in enumerate(whole)))
    lines = drawn.text(ChildrenRegion(views=drawn.views)).splitlines()[: MAX_ROWS - 1]
    assert len({line.partition("waiting")[0][9:] for line in lines}) == MAX_ROWS - 1
    assert max(map(len, lines)) <= columns
    assert columns < 120 or len(label) > 40 or all(words in line for words, line in zip(whole, lines, strict=False))


def test_what_goes_on_in_another_row_stands_below_the_text() -> None:
    drawn = DrawnStory(columns=40)
    long = "words that do not fit into one row of a window as narrow as this one"
    plan = PlanUpdated(**ROOT, steps=(PlanStep(step=long, status="completed"),))
    drawn.draw(AgentStarted(**ROOT, prompt="go"), child(1, description=long))
    for begins, text in {
        "> words": drawn.draw(AgentStarted(**ROOT, prompt=long)),
        "● Child  words": drawn.draw(
            ToolCallStarted(**ROOT, **CELL, tool_name="task", args={"prompt": "clean"}, label=long),
            child(2, tool_call_id="call-1"),
        ),
        "  ✓ 0001 words": drawn.draw(AgentFinished(**CHILD | {"agent_id": "agent-00010000"}, **ENDED, output=long)),
        "  ✓ words": drawn.draw(plan).lstrip("\n").partition("\n")[2],
        "✗ failed: words": drawn.draw(AgentFinished(**ROOT, **ENDED | {"status": "failed"}, error=long)),
    }.items():
        first, *others = text.strip("\n").split("\n\n")[0].splitlines()
        assert first.startswith(begins)
        indent = len(begins) - len(begins.lstrip(" >●✓✗"))
        assert others, first
        assert {len(line) - len(line.lstrip()) for line in others} == {indent}, text


def test_the_mark_of_a_cell_that_fails_is_red_and_a_word_says_it() -> None:
    drawn, plain = DrawnStory(colours=True), DrawnStory()
    error = CodeExecutionOutputChunk(**ROOT, **CELL, output=CellError(ename="E", evalue="x", traceback=("E: x",)))
    events = [
        AgentStarted(**ROOT, prompt="go"),
        call("1 / 0"),
        request("r", CodeAction(code="1 / 0"), **CELL),
        ApprovalDecided(**ROOT, **CELL, request_id="r", allowed=True),
        error,
        CodeExecutionOutput(**ROOT, **CELL, text="", status="error", seconds=0.1),
    ]
    assert "\x1b[1;31m● \x1b[0m\x1b[1mPython" in drawn.draw(*events)
    assert plain.draw(*events).splitlines()[-3:] == ["● Python  1 / 0", "  E: x", "  ✗ error after 0.1 s"]


def test_a_strategy_at_work_is_one_line_in_place_until_it_or_its_cell_or_its_run_ends() -> None:
    drawn = DrawnStory(columns=80)
    header = {"agent_id": "agent-00010000", "parent_id": "agent-aaaa0000", "depth": 1}
    cell = {**ROOT, "tool_call_id": "call-1"}
    drawn.draw(
        AgentStarted(**ROOT, prompt="go", time=1.0),
        child(1),
        ToolCallStarted(**cell, tool_name="execute_ipython_cell", args={"code": "await search(agent, 'x')"}),
        *(StrategyProgress(**header, strategy="vote", strategy_id="v", step=step, of=5) for step in (1, 2)),
    )
    node = SearchedState(node_id="0.1", action="play(\x1b[31m'4 * 6')\n" * 40, score=0.8)
    drawn.draw(StrategyProgress(**cell, strategy="search", strategy_id="s", step=7, node=node, best="0.1"))

    def lines() -> list[str]:
        area = story_area(drawn.views, drawn.story, None, 24)
        return [line for line in drawn.text(area).splitlines() if "◆" in line]

    assert lines()[1] == "  ◆ 0001 station 1: vote: 2 of 5"
    assert lines()[0].startswith("  ◆ search: 7 steps · 0.1 0.80 play(")
    assert "\x1b" not in lines()[0]
    assert max(map(len, lines())) <= 80
    drawn.draw(StrategyProgress(**header, strategy="vote", strategy_id="v", step=5, of=5, done=True))
    assert len(lines()) == 1
    drawn.draw(ToolOutput(**cell, tool_name="ask", content="4"))
    assert len(lines()) == 1, "the cell goes on"
    drawn.draw(ToolOutput(**cell, tool_name="execute_ipython_cell", content="interrupted"))
    assert not lines()
    drawn.draw(StrategyProgress(**header, strategy="vote", strategy_id="v", step=1))
    drawn.draw(AgentFinished(**header, status="cancelled"))
    assert not lines()
    flood = [StrategyProgress(**ROOT, strategy="s", strategy_id=str(number), step=1) for number in range(100)]
    drawn.draw(*flood)
    assert [*drawn.views.root.strategies] == [str(number) for number in range(80, 100)]
    assert len(lines()) <= 8


def test_two_children_with_one_label_differ_by_their_ids() -> None:
    drawn = DrawnStory()
    drawn.draw(AgentStarted(**ROOT, prompt="go"), child(1, description="north"), child(2, description="north"))
    views = [*drawn.views.by_id.values()]
    assert [drawn.views.name(view) for view in views] == ["agent", "0001 north", "0002 north"]


def test_a_question_and_the_children_share_the_rows() -> None:
    drawn, questions = DrawnStory(columns=100), Questions(asks_always=True)
    drawn.draw(AgentStarted(**ROOT, prompt="go", time=1.0), *(child(number) for number in range(4)))
    header = {"agent_id": "agent-00020000", "parent_id": "agent-aaaa0000", "depth": 1}
    code = "\n".join(f"x{number} = {number}" for number in range(100))
    asked = request("r", CodeAction(code=code), **header)
    drawn.draw(asked)
    questions.observe(asked)

    def card(rows: int) -> object:
        keys = key_line(questions, counts=True)
        return question_card(drawn.views, questions, asked, rows, keys=keys, workspace=Path.cwd())

    text = drawn.text(story_area(drawn.views, drawn.story, card, 24))
    assert len(text.splitlines()) <= 24
    for words in ("station 0", "0002 station 2 asks to run this cell", "more lines (ctrl-o)", "y yes · n no"):
        assert words in text
    assert key_line(questions, counts=False) == WAITING


@each("rows", range(3, 16))
def test_more_children_than_rows_are_counted_within_the_rows(rows: int) -> None:
    drawn = DrawnStory(columns=40)
    drawn.draw(AgentStarted(**ROOT, prompt="go", time=1.0), *(child(number) for number in range(20)))
    text = drawn.text(story_area(drawn.views, drawn.story, None, rows))
    assert len(text.splitlines()) <= rows
    assert " more: " in text


@pytest.mark.parametrize(("columns", "rows"), [(40, 9), (80, 11), (60, 16), (200, 40)])
def test_the_keys_of_a_question_are_seen_in_a_terminal_of_any_size(columns: int, rows: int) -> None:
    drawn, questions = DrawnStory(columns=columns), Questions(asks_always=True)
    drawn.draw(AgentStarted(**ROOT, prompt="go", time=1.0), *(child(number) for number in range(8)))
    for number in range(6):
        header = {"agent_id": f"agent-{number:04}0000", "parent_id": "agent-aaaa0000", "depth": 1}
        asked = request(f"r{number}", CodeAction(code="x = 1\n" * 50), suggested=("code",), **header)
        drawn.draw(asked)
        questions.observe(asked)

    def card(room: int) -> object:
        return question_card(
            drawn.views, questions, questions.waiting[0], room, keys=key_line(questions, counts=True), workspace=Path.cwd()
        )

    lines = drawn.text(story_area(drawn.views, drawn.story, card, rows)).splitlines()[:rows]
    assert "? why" in " ".join(line.strip() for line in lines)
    assert max(map(len, lines)) <= columns


def test_a_line_that_is_scrolled_sideways_has_a_bound() -> None:
    console = SidewaysConsole(io.StringIO())
    with console.capture() as capture:
        console.print(Folded(lines=coloured("x" * 100_000)), crop=False)
    assert {len(line) for line in capture.get().split()} == {MAX_COLUMNS}


def test_a_title_stands_in_the_head_and_in_the_line_of_a_child_and_the_code_in_full() -> None:
    code = "import os\n\nfor name in os.listdir():\n    print(name)"
    titled = (
        call(code).args,
        "count the rows of each file and print them, longest first, with their names in the first column",
    )
    drawn = DrawnStory(columns=40)
    text = drawn.draw(ToolCallStarted(**ROOT, **CELL, tool_name="execute_ipython_cell", args=titled[0], label=titled[1]))
    text += drawn.draw(output("a"))
    lines = text.splitlines()
    assert lines[0] == "● Python  count the rows of each file a…"
    assert [line[2:] for line in lines[1:5]] == code.split("\n")
    drawn = DrawnStory()
    text = drawn.draw(call(code), output("a"))
    assert text.startswith("● Python  for name in os.listdir():\n  import os\n")
    drawn.draw(AgentStarted(**ROOT, prompt="go", time=1.0), child(1, description="", prompt="# Look\nnorth"))
    drawn.draw(call(code, agent_id="agent-00010000", parent_id="agent-aaaa0000", depth=1))
    assert "● 0001 Look  Python for name in os.listdir():" in drawn.text(ChildrenRegion(views=drawn.views))


def test_the_card_shows_the_title_beside_the_code_and_the_list_of_others_the_code() -> None:
    drawn = DrawnStory(columns=100)
    drawn.draw(AgentStarted(**ROOT, prompt="go"))
    questions = Questions()
    for number in (1, 2):
        asked = request(f"r{number}", CodeAction(code=f"import os\nos.remove('{number}')", description="Read the file"))
        drawn.draw(asked)
        questions.waiting.append(asked)
    card = drawn.text(question_card(drawn.views, questions, questions.current, 30, keys="y", workspace=Path()))
    assert "asks to run this cell (Read the file)" in card
    assert "  import os\n  os.remove('1')\n" in card
    assert "/2 agent: Python  os.remove('2')" in card


@pytest.mark.parametrize(
    ("columns", "figures"), [(60, " s"), (80, " s · 1,234 tok"), (120, " s · 3 turns · 1,234 tok · $0.0123")]
)
def test_a_child_has_its_tokens_while_it_works(columns: int, figures: str) -> None:
    drawn = DrawnStory(columns=columns)
    drawn.draw(AgentStarted(**ROOT, prompt="go", time=1.0), child(1, time=time.time()))
    own = {"agent_id": "agent-00010000", "parent_id": "agent-aaaa0000", "depth": 1}
    drawn.draw(UsageUpdated(**own, usage=USAGE, tree_usage=USAGE))
    (line,) = drawn.text(ChildrenRegion(views=drawn.views)).splitlines()
    assert line.startswith("  ● 0001 station 1  waiting for the model")
    assert re.sub(r"\d+( s)", r"\1", line).endswith(figures)


def test_calls_that_tell_how_far_they_are_have_a_line_or_stand_in_the_row_of_their_child() -> None:
    drawn = DrawnStory(columns=80)
    drawn.draw(AgentStarted(**ROOT, prompt="go", time=1.0), child(1, description="", prompt="look", time=time.time()))
    own = {"agent_id": "agent-00010000", "parent_id": "agent-aaaa0000", "depth": 1}
    for number, agent in enumerate((ROOT, own)):
        its = {**agent, "tool_call_id": f"call-{number}"}
        drawn.draw(ToolCallStarted(**its, tool_name="s_load", args={}))
        drawn.draw(ToolProgress(**its, tool_name="s_load", progress=number, total=10, message="\x1b[2Jreads\n[red]a.csv"))
    of_root, of_child = drawn.text(ChildrenRegion(views=drawn.views)).splitlines()
    assert of_root == "  ◆ s_load: 0 of 10, reads [red]a.csv"
    assert "s_load(): 1 of 10, reads [red]a.csv" in of_child
    drawn.draw(ToolOutput(**ROOT, tool_call_id="call-0", tool_name="s_load", content="x"))
    (line,) = drawn.text(ChildrenRegion(views=drawn.views)).splitlines()
    assert "s_load(): 1 of 10" in line


@pytest.mark.parametrize(
    ("closed", "text"),
    [
        ({"answered": True, "text": "north"}, "  Which file? → north\n"),
        ({"answered": False}, "\n● Question  Which file?\n  Which file? → gets no answer\n  (no answer)\n"),
    ],
)
def test_a_question_of_the_model_and_its_answer_are_one_line(closed: dict[str, Any], text: str) -> None:
    drawn, header = DrawnStory(), {**ROOT, "tool_call_id": "call-1"}
    args = {"questions": [{"question": "Which file?"}]}
    drawn.draw(AgentStarted(**ROOT, prompt="go"), ToolCallStarted(**header, tool_name="ask_user", args=args))
    result = ToolOutput(**header, tool_name="ask_user", content=closed.get("text", "(no answer)"))
    assert drawn.draw(QuestionAnswered(**header, request_id="q", prompt="Which file?", **closed), result) == text
