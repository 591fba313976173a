"""Questions to a person: buttons in any order, and lines of text. Both in a real kernel: `test_notebook.py`."""

import asyncio

import pytest
from ipywidgets.widgets.widget import _instances as widgets_by_id
from support.sample_events import request
from support.waiting import eventually

from freeact_sub.calls import CodeAction, McpCall
from freeact_sub.events import Decision
from freeact_sub.notebook.approval import Asking, ButtonAsking, TextAsking, read_answer


class FakeScreen:
    live = True

    def __init__(self):
        self.shown = {}

    def publish(self, display_id, data, *, update):
        self.shown[display_id] = data

    @property
    def panel(self):
        (data,) = self.shown.values()
        return data


class Answers(dict):
    """Keeps the first decision of each request, as a run does."""

    def ask(self, request_id):
        return request(
            request_id,
            CodeAction(code=f"cell_{request_id}()"),
            lambda decision: self.setdefault(request_id, decision) is decision,
        )


@pytest.mark.parametrize(
    ("line", "decision"),
    [
        ("y", Decision(allowed=True)),
        (" YES ", Decision(allowed=True)),
        ("a", Decision(allowed=True, remember="session")),
        ("always", Decision(allowed=True, remember="session")),
        ("n", Decision(allowed=False)),
        ("no", Decision(allowed=False)),
        ("not this file", Decision(allowed=False, reason="not this file")),
        ("yes please", Decision(allowed=False, reason="yes please")),
        ("", None),
        ("  ", None),
    ],
)
def test_what_a_line_stands_for(line, decision):
    assert read_answer(line) == decision


def buttons_of(question):
    _, row = question.children
    *buttons, reason = row.children
    return {button.description: button for button in buttons}, reason


async def test_buttons_are_answered_in_any_order():
    screen, answers = FakeScreen(), Answers()
    asking = ButtonAsking(screen, on_refused=lambda: None)
    assert screen.panel["text/html"] == ""
    for name in ("one", "two", "three"):
        asking.ask(answers.ask(name))
    assert "application/vnd.jupyter.widget-view+json" in screen.panel
    panel = widgets_by_id[screen.panel["application/vnd.jupyter.widget-view+json"]["model_id"]]
    one, two, three = panel.children
    assert "cell_two" in two.children[0].value

    buttons, reason = buttons_of(three)
    reason.value = " too risky "
    buttons["Deny"].click()
    assert buttons["Approve"].disabled
    buttons_of(two)[0]["Always for this session"].click()
    await eventually(lambda: len(answers) == 2)
    assert answers == {
        "three": Decision(allowed=False, reason="too risky"),
        "two": Decision(allowed=True, remember="session"),
    }
    asking.withdraw("three")
    asking.withdraw("two")
    assert panel.children == (one,)

    buttons_of(one)[0]["Approve"].click()
    await eventually(lambda: "one" in answers)
    assert answers["one"] == Decision(allowed=True)
    asking.withdraw("one")
    asking.withdraw("one")
    assert screen.panel["text/html"] == ""
    asking.ask(answers.ask("four"))
    assert [open_request.request_id for open_request in asking.close()] == ["four"]
    assert screen.panel["text/html"] == ""
    assert widgets_by_id == {}


async def test_a_click_in_another_thread_is_answered_in_the_event_loop():
    screen = FakeScreen()
    asking = ButtonAsking(screen, on_refused=lambda: None)
    loops = []
    asking.ask(request("q", McpCall(server="s", tool="t"), lambda _: loops.append(asyncio.get_running_loop()) or True))
    panel = widgets_by_id[screen.panel["application/vnd.jupyter.widget-view+json"]["model_id"]]
    await asyncio.to_thread(buttons_of(panel.children[0])[0]["Approve"].click)
    assert await eventually(lambda: loops) == [asyncio.get_running_loop()]
    asking.close()


async def test_without_input_every_question_is_denied_with_the_reason():
    answers = Answers()
    async with Asking("auto", FakeScreen()) as asking:
        asking.ask(answers.ask("one"))
        asking.ask(answers.ask("two"))
        await eventually(lambda: len(answers) == 2)
    assert all(not decision.allowed and "nobody can answer" in decision.reason for decision in answers.values())


async def test_a_question_that_is_withdrawn_before_it_was_asked_is_not_asked():
    answers = Answers()
    async with Asking("input", FakeScreen()) as asking:
        asking.ask(answers.ask("one"))
        asking.withdraw("one")
        asking.ask(answers.ask("two"))
        await eventually(lambda: "two" in answers)
    assert "one" not in answers


async def test_lines_are_asked_one_after_another():
    answers, prompts, lines = Answers(), [], asyncio.Queue()

    async def ask(prompt):
        prompts.append(prompt)
        line = await lines.get()
        if isinstance(line, Exception):
            raise line
        return line

    asking = TextAsking(ask)
    asking.start()
    for name in ("one", "two", "three", "four"):
        asking.ask(answers.ask(name))
    await eventually(lambda: len(prompts) == 1)
    for line in ("", "y", "because"):
        lines.put_nowait(line)
    await eventually(lambda: len(prompts) == 4)
    assert [prompt.split()[5].removesuffix("()") for prompt in prompts] == ["cell_one", "cell_one", "cell_two", "cell_three"]
    asking.withdraw("three")  # while it is asked
    await eventually(lambda: len(prompts) == 5)
    lines.put_nowait(OSError("the terminal is gone"))
    await eventually(lambda: len(answers) == 3)
    assert answers == {
        "one": Decision(allowed=True),
        "two": Decision(allowed=False, reason="because"),
        "four": Decision(allowed=False, reason="the question could not be asked: the terminal is gone"),
    }
    await asking.aclose()
