"""Questions to a person: buttons in any order, and lines of text. Both in a real kernel: `test_notebook.py`."""

import asyncio
from html import unescape

import pytest
from ipywidgets.widgets.widget import _instances as widgets_by_id
from support.sample_events import question, request
from support.tables import each
from support.virtual_time import in_virtual_time, passes
from support.waiting import eventually, turns

from freeact_sub.calls import CodeAction, FanOut, FileWrite, McpCall, NetworkConnect, ShellCommand
from freeact_sub.events import Decision
from freeact_sub.notebook import question_forms
from freeact_sub.notebook.question_forms import ButtonQuestions, QuestionForms, TextQuestions
from freeact_sub.notebook.render import question_html, question_text
from freeact_sub.show.questions import TypedDecision


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
            suggested=("code",),
        )


@each(
    ("line", "decision"),
    [
        ("y", Decision(allowed=True)),
        (" YES ", Decision(allowed=True)),
        ("a", Decision(allowed=True, remember="session")),
        ("always", Decision(allowed=True, remember="session")),
        ("n", Decision(allowed=False)),
        ("no", Decision(allowed=False)),
        ("p shell:git *", Decision(allowed=True, remember="project", pattern="shell:git *")),
        ("not this file", Decision(allowed=False, reason="not this file")),
        ("yes please", Decision(allowed=True)),
        ("", None),
        ("  ", None),
    ],
)
def test_what_a_line_stands_for(line, decision):
    assert TypedDecision().read(line) == decision


def buttons_of(question):
    """Its buttons by name, the reason, the pattern and what is told about it."""
    _, once, always, told = question.children
    *buttons, reason = once.children
    *more, pattern = always.children
    return {button.description: button for button in (*buttons, *more)}, reason, pattern, told


async def test_buttons_are_answered_in_any_order():
    screen, answers = FakeScreen(), Answers()
    asking = ButtonQuestions(screen, on_refused=lambda: None)
    assert screen.panel["text/html"] == ""
    for name in ("one", "two", "three"):
        asking.ask(answers.ask(name))
    assert "application/vnd.jupyter.widget-view+json" in screen.panel
    panel = widgets_by_id[screen.panel["application/vnd.jupyter.widget-view+json"]["model_id"]]
    one, two, three = panel.children
    assert "cell_two" in two.children[0].value

    buttons, reason, *_ = buttons_of(three)
    reason.value = " too risky "
    buttons["Deny"].click()
    assert buttons["Approve"].disabled
    buttons_of(two)[0]["Always in this session"].click()
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


def panel_of(screen):
    return widgets_by_id[screen.panel["application/vnd.jupyter.widget-view+json"]["model_id"]]


@in_virtual_time
async def test_all_that_has_stood_for_a_moment_is_approved_at_once(monkeypatch):
    screen, answers = FakeScreen(), Answers()
    asking = ButtonQuestions(screen, on_refused=lambda: None)
    asking.ask(answers.ask("one"))
    assert not any("all" in name for name in buttons_of(panel_of(screen).children[0])[0])
    asking.ask(answers.ask("two"))
    (every,) = [button for box in panel_of(screen).children for name, button in buttons_of(box)[0].items() if "all " in name]
    assert every.description == "Approve all 2"
    every.click()
    await turns(10)
    assert answers == {}  # nobody can have read them
    monkeypatch.setattr(question_forms, "SETTLE_SECONDS", 0.0)
    every.click()
    await eventually(lambda: len(answers) == 2)
    assert set(answers.values()) == {Decision(allowed=True)}
    asking.close()
    await turns()
    assert widgets_by_id == {}


async def test_code_is_changed_and_run():
    screen, answers = FakeScreen(), Answers()
    asking = ButtonQuestions(screen, on_refused=lambda: None)
    asking.ask(answers.ask("one"))
    (question,) = panel_of(screen).children
    buttons_of(question)[0]["Edit"].click()
    buttons_of_edit = question.children[-1].children
    area, run = buttons_of_edit
    assert area.value == "cell_one()"
    area.value = "other()\n"
    run.click()
    await eventually(lambda: len(answers) == 1)
    assert answers["one"] == Decision(allowed=True, code="other()")
    asking.close()
    await turns()
    assert widgets_by_id == {}


@pytest.mark.parametrize("clicks", [False, True])
@in_virtual_time
async def test_a_page_that_was_loaded_again_leaves_no_question_open(monkeypatch, clicks):
    """The new page asks for all widgets; whoever has only lost the connection still sees the buttons, and clicks."""
    monkeypatch.setattr(question_forms, "RELOAD_SECONDS", 30)
    screen, answers, declined = FakeScreen(), Answers(), []
    asking = ButtonQuestions(screen, on_refused=lambda: None)
    for name in ("one", "two"):
        asking.ask(answers.ask(name))
    asking.ask(question("three", declined.append))
    panel = panel_of(screen)
    await passes(40)
    assert answers == {}
    panel.get_state(drop_defaults=False)  # as ipywidgets does it for `request_states`
    if clicks:
        await turns()
        buttons_of(panel.children[0])[0]["Deny"].click()
        await passes(60)
        assert (len(answers), declined) == (1, [])
    else:
        await eventually(lambda: len(answers) == 2 and len(declined) == 1)
        assert all("loaded again" in decision.reason and decision.nobody for decision in answers.values())
        asking.ask(answers.ask("four"))  # nobody sees this one either
        await eventually(lambda: "four" in answers)
    asking.close()


@in_virtual_time
async def test_a_question_that_has_moved_takes_no_click_for_a_moment():
    """Two quick clicks at the same place approved two questions."""
    screen, answers = FakeScreen(), Answers()
    asking = ButtonQuestions(screen, on_refused=lambda: None)
    for name in ("one", "two", "three"):
        asking.ask(answers.ask(name))
    panel = widgets_by_id[screen.panel["application/vnd.jupyter.widget-view+json"]["model_id"]]
    one, two, three = (buttons_of(question)[0] for question in panel.children)
    two["Approve"].click()
    two["Approve"].click()
    asking.withdraw("two")
    assert not any(button.disabled for button in one.values())
    assert all(button.disabled for button in three.values())
    for name in three:
        three[name].click()
    asking.ask(answers.ask("four"))
    four = buttons_of(panel.children[-1])[0]
    four["Approve"].click()
    one["Approve"].click()
    await eventually(lambda: len(answers) == 2)
    assert answers == {"two": Decision(allowed=True), "one": Decision(allowed=True)}
    await eventually(lambda: not three["Approve"].disabled and not four["Approve"].disabled)
    three["Deny"].click()
    four["Approve"].click()
    await eventually(lambda: len(answers) == 4)
    asking.close()
    await turns()
    assert widgets_by_id == {}


async def test_what_is_saved_of_an_open_question_is_a_sentence():
    screen, answers = FakeScreen(), Answers()
    asking = ButtonQuestions(screen, on_refused=lambda: None)
    asking.ask(answers.ask("one"))
    assert screen.panel["text/plain"] == "Agents had questions here: their buttons are there while the cell runs."
    asking.close()
    assert screen.panel["text/plain"] == ""


async def test_always_in_the_project_with_a_pattern_that_was_edited():
    screen, asked = FakeScreen(), []

    def answer(decision):
        if decision.pattern == "git push":
            raise ValueError("<that> does not begin with a kind")
        asked.append(decision)
        return True

    asking = ButtonQuestions(screen, on_refused=lambda: None)
    suggested = ("shell:make all *", "shell:git push *")
    for name in ("one", "two", "three"):
        asking.ask(request(name, ShellCommand(command="make all && git push"), answer, suggested=suggested))
    panel = widgets_by_id[screen.panel["application/vnd.jupyter.widget-view+json"]["model_id"]]
    one, two, three = map(buttons_of, panel.children)
    buttons, _, pattern, told = one
    assert pattern.value == "shell:make all *, shell:git push *"
    pattern.value = "git push"
    buttons["Always in this project"].click()
    await eventually(lambda: told.value)
    assert "&lt;that&gt;" in told.value
    assert not buttons["Always in this project"].disabled
    pattern.value = " shell:git * "
    buttons["Always in this project"].click()
    two[0]["Always in this project"].click()
    three[2].value = ""
    three[0]["Always in this session"].click()
    await eventually(lambda: len(asked) == 3)
    assert asked == [
        Decision(allowed=True, remember="project", pattern="shell:git *"),
        Decision(allowed=True, remember="project"),
        Decision(allowed=True, remember="session"),
    ]
    asking.close()


async def test_what_is_asked_each_time_has_no_button_for_always():
    screen = FakeScreen()
    asking = ButtonQuestions(screen, on_refused=lambda: None)
    asking.ask(request("q", ShellCommand(command="eval $x"), lambda _: True))
    panel = widgets_by_id[screen.panel["application/vnd.jupyter.widget-view+json"]["model_id"]]
    _, once = panel.children[0].children
    assert [widget.description for widget in once.children] == ["Approve", "Deny", ""]
    asking.close()


async def test_a_cheaper_model_of_a_quote_has_a_button(monkeypatch):
    monkeypatch.setattr(question_forms, "SETTLE_SECONDS", 0.0)
    screen, answers = FakeScreen(), []
    asking = ButtonQuestions(screen, on_refused=lambda: None)
    call = FanOut(what="map", more=57, bound="$4.00", cheaper={"small": (0.2, 0.12, 0.38)})
    asking.ask(request("q", call, lambda decision: answers.append(decision) or True))
    _, once = panel_of(screen).children[0].children
    assert [widget.description for widget in once.children][:3] == [
        "Approve",
        "Approve with small: $0.20 ($0.12 to $0.38)",
        "Deny",
    ]
    once.children[1].click()
    await eventually(lambda: answers == [Decision(allowed=True, model="small")])
    asking.close()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (ShellCommand(command="make <all>", cwd="/src"), ["asks to run this command in /src", "make &lt;all&gt;"]),
        (FileWrite(path="/etc/h\u202eosts", operation="remove"), ["asks to remove this file", r"/etc/h\u202eosts"]),
        (NetworkConnect(host="::1", port=443), ["asks to connect to this host", "[::1]:443"]),
    ],
)
def test_what_a_cell_does_is_drawn_in_full(call, words):
    path = ("agent-aaaa0000", "agent-bbbb1111 (clean <it>)")
    html, text = question_html(request("q", call, path=path)), question_text(request("q", call, path=path))
    assert all(word in html for word in [*words, "agent-aaaa0000 → agent-bbbb1111 (clean &lt;it&gt;)"])
    assert all(unescape(word) in text for word in words)


async def test_a_click_in_another_thread_is_answered_in_the_event_loop():
    screen = FakeScreen()
    asking = ButtonQuestions(screen, on_refused=lambda: None)
    loops = []
    asking.ask(
        request(
            "q",
            McpCall(server="s", tool="t"),
            lambda _: loops.append(asyncio.get_running_loop()) or True,
            suggested=("mcp:s/t",),
        )
    )
    panel = widgets_by_id[screen.panel["application/vnd.jupyter.widget-view+json"]["model_id"]]
    await asyncio.to_thread(buttons_of(panel.children[0])[0]["Approve"].click)
    assert await eventually(lambda: loops) == [asyncio.get_running_loop()]
    asking.close()


async def test_without_input_every_question_is_denied_with_the_reason():
    answers = Answers()
    async with QuestionForms("auto", FakeScreen()) as asking:
        asking.ask(answers.ask("one"))
        asking.ask(answers.ask("two"))
        await eventually(lambda: len(answers) == 2)
    assert all(not decision.allowed and "nobody can answer" in decision.reason for decision in answers.values())


async def test_a_question_that_is_withdrawn_before_it_was_asked_is_not_asked():
    answers = Answers()
    async with QuestionForms("input", FakeScreen()) as asking:
        asking.ask(answers.ask("one"))
        asking.withdraw("one")
        asking.ask(answers.ask("two"))
        await eventually(lambda: "two" in answers)
    assert "one" not in answers


async def test_lines_are_resumede_after_another():
    answers, prompts, lines = Answers(), [], asyncio.Queue()

    async def ask(prompt):
        prompts.append(prompt)
        line = await lines.get()
        if isinstance(line, Exception):
            raise line
        return line

    asking = TextQuestions(ask)
    asking.start()
    for name in ("one", "two", "three", "four"):
        asking.ask(answers.ask(name))
    await eventually(lambda: len(prompts) == 1)
    for line in ("", "y", "because", "y"):
        lines.put_nowait(line)
    await eventually(lambda: len(prompts) == 5)
    assert prompts.pop(3) == "deny with the reason 'because'? y yes · n no "
    assert [prompt.split()[6].removesuffix("()") for prompt in prompts] == ["cell_one", "cell_one", "cell_two", "cell_three"]
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


@pytest.mark.parametrize("secret", [False, True])
async def test_a_question_has_a_text_field_and_can_be_declined(secret):
    answers, screen = [], FakeScreen()
    asking = ButtonQuestions(screen, on_refused=lambda: None)
    for name in ("one", "two"):
        asking.ask(question(name, lambda answer: not answers.append(answer), secret=secret))
    panel = widgets_by_id[screen.panel["application/vnd.jupyter.widget-view+json"]["model_id"]]
    fields = [box.children[1].children for box in panel.children]
    assert type(fields[0][0]).__name__ == ("Password" if secret else "Textarea")
    fields[0][0].value = "a\nb"
    fields[0][1].click()
    fields[0][1].click()
    assert fields[0][0].value == "", "no saved notebook keeps it"
    fields[1][2].click()
    await eventually(lambda: len(answers) == 2)
    assert [answer.text for answer in answers] == ["a\nb", None]
    asking.close()


async def test_a_question_is_asked_as_a_line_whatever_the_text():
    asked, answers = [], []

    async def ask(prompt, *, secret=False):
        asked.append((prompt, secret))
        return "no"

    asking = TextQuestions(ask)
    asking.start()
    asking.ask(question("one", lambda answer: not answers.append(answer), prompt="Key?", secret=True))
    await eventually(lambda: answers)
    await asking.aclose()
    assert [answer.text for answer in answers] == ["no"]
    assert [(prompt.endswith("Key?\n> "), secret) for prompt, secret in asked] == [(True, True)]
