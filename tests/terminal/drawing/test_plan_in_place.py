"""A plan stands in its place while it is worked on, and in the scrollback once, when it is over."""

from support.drawn_story import CELL, DrawnStory
from support.sample_events import CHILD, ROOT, request
from support.tables import each

from freeact_sub.calls import CodeAction
from freeact_sub.events import AgentFinished, AgentStarted, PlanUpdated, Response, ToolCallStarted, ToolOutput
from freeact_sub.events.progress import PlanStep
from freeact_sub.show import teller
from freeact_sub.terminal.drawing.area import ChildrenRegion, story_area
from freeact_sub.terminal.drawing.transcript import Records

MARKS = {"completed": "✓", "in_progress": "●", "pending": "○", "failed": "✗"}


def plan(*states: str, **header: object) -> PlanUpdated:
    steps = tuple(PlanStep(step=f"do part {number}", status=status) for number, status in enumerate(states))
    return PlanUpdated(**{**ROOT, **CELL, **header}, steps=steps)


def update(*states: str) -> list:
    """What the stream has of one call of `update_plan`."""
    call = {**ROOT, **CELL, "tool_name": "update_plan"}
    return [ToolCallStarted(**call, args={"plan": []}), plan(*states), ToolOutput(**call, content="The user sees the plan.")]


def area(drawn: DrawnStory, rows: int = 30) -> str:
    shown = story_area(drawn.views, drawn.story, None, rows)
    return "" if shown is None else drawn.text(shown)


def test_a_plan_is_drawn_in_its_place_and_once_in_the_scrollback() -> None:
    drawn = DrawnStory()
    drawn.draw(AgentStarted(**ROOT, prompt="go"))
    assert drawn.draw(*update("in_progress", "pending")) == ""
    assert area(drawn) == "\n  Plan  0 of 2 done\n  ● do part 0\n  ○ do part 1\n"
    assert drawn.draw(*update("completed", "in_progress")) == ""
    assert area(drawn) == "\n  Plan  1 of 2 done\n  ✓ do part 0\n  ● do part 1\n"
    assert drawn.draw(*update("completed", "completed")) == "\n● Plan  2 of 2 done\n  ✓ do part 0\n  ✓ do part 1\n"
    assert area(drawn) == ""
    ends = drawn.draw(Response(**ROOT, content="Done."), AgentFinished(**ROOT, status="completed", output="Done."))
    assert "Plan" not in ends


def test_a_plan_that_is_left_stands_there_when_its_run_ends() -> None:
    drawn = DrawnStory()
    drawn.draw(AgentStarted(**ROOT, prompt="go"), *update("completed", "in_progress"))
    assert "● Plan  1 of 2 done\n  ✓ do part 0\n  ● do part 1\n" in drawn.draw(AgentFinished(**ROOT, status="cancelled"))
    assert area(drawn) == ""
    assert "Plan" not in drawn.draw(AgentStarted(**ROOT, prompt="again"), AgentFinished(**ROOT, status="completed"))


def test_a_call_that_was_refused_is_told_as_a_call() -> None:
    drawn = DrawnStory()
    call = {**ROOT, **CELL, "tool_name": "update_plan"}
    drawn.draw(AgentStarted(**ROOT, prompt="go"))
    told = drawn.draw(ToolCallStarted(**call, args={}), ToolOutput(**call, content="a rule forbids it", outcome="denied"))
    assert "update_plan" in told
    assert "a rule forbids it" in told


@each("at", [0, 6, 15, 29])
@each("height", [1, 2, 3, 5, 8, 30])
def test_a_long_plan_shows_the_step_at_work_in_the_rows_there_are(at: int, height: int) -> None:
    drawn = DrawnStory(columns=40)
    states = ["completed"] * at + ["in_progress"] + ["pending"] * (29 - at)
    drawn.draw(AgentStarted(**ROOT, prompt="go"), *update(*states))
    lines = area(drawn, height).splitlines()
    assert len(lines) <= height
    assert height < 3 or any(f"● do part {at}" in line for line in lines)
    assert all(len(line) <= 40 for line in lines)


def test_the_line_of_a_child_says_how_far_its_plan_is_and_its_transcript_has_all_of_it() -> None:
    drawn, records = DrawnStory(), Records()
    events = [AgentStarted(**ROOT, prompt="go"), AgentStarted(**CHILD, prompt="look"), plan("completed", "pending", **CHILD)]
    for event in events:
        records.add(event, teller.blocks(drawn.views.observe(event), event))
        drawn.story.draw(event)
    assert "bbbb look  1/2 waiting for the model" in drawn.text(ChildrenRegion(views=drawn.views))
    assert "Plan" not in area(drawn)


def test_a_question_has_the_rows_of_the_plan() -> None:
    drawn = DrawnStory()
    drawn.draw(AgentStarted(**ROOT, prompt="go"), *update("in_progress", "pending"), request("r", CodeAction(code="x")))
    shown = story_area(drawn.views, drawn.story, lambda rows: f"a card of {rows} rows", 20)
    assert drawn.text(shown) == "a card of 20 rows\n"
