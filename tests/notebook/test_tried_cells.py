"""A cell that is asked about in a notebook shows what it would do, and a yes is to that."""

import asyncio
from dataclasses import replace

import pytest
from ipywidgets.widgets.widget import _instances as widgets_by_id
from notebook_kernel import notebook_kernel
from support.chat_server import ChatCall, ChatServer, by_turn
from support.sample_events import request
from support.sandbox import NEEDS_A_WALL
from support.waiting import eventually, turns
from test_approval import FakeScreen, panel_of

from freeact_sub.calls import CodeAction
from freeact_sub.events import Decision, Effects, FileEffect
from freeact_sub.events.answers import ASKED
from freeact_sub.notebook import question_forms
from freeact_sub.notebook.question_forms import ButtonQuestions, TextQuestions

ONE = Effects(status="done", cell="ok", output="<one>", files=(FileEffect(path="a", what="added", diff="-\n+\n+x<y"),))
TWO = replace(ONE, files=(), outdated_by=("a",))


class TriedCell:
    """The receiver of a question about a cell: what it would do is what the test says."""

    def __init__(self, effects):
        self.now, self.asked, self.decisions = effects, [], []

    def effects(self, _request_id):
        return self.now

    async def effects_ready(self, _request_id, code=None):
        self.asked.append(code)
        return replace(self.now, output=code or self.now.output)

    def answer(self, _request_id, decision):
        self.decisions.append(decision)
        return True

    def shown(self, _request_id):
        pass


@pytest.fixture
def asked(monkeypatch):
    monkeypatch.setattr(question_forms, "SETTLE_SECONDS", 0.0)
    event, cell = request("tried", CodeAction(code="cell()"), lambda _: True), TriedCell(ONE)
    monkeypatch.setitem(ASKED, "tried", cell)
    return event, cell


async def test_buttons_are_answered_for_what_is_shown(asked):
    event, cell = asked
    asking = ButtonQuestions(screen := FakeScreen(), on_refused=lambda: None)
    asking.ask(event)
    (box,) = panel_of(screen).children
    approve, _, edit, _ = box.children[1].children
    await eventually(lambda: "tried, in a copy that is dropped" in box.children[0].value)
    assert "&lt;one&gt;" in box.children[0].value
    assert '<span class="fsub-yes">x&lt;y' not in box.children[0].value
    assert '<span class="fsub-yes">+x&lt;y</span>' in box.children[0].value
    cell.now = TWO
    await eventually(lambda: not approve.disabled)
    approve.click()
    await eventually(lambda: "tried again, changed since: a" in box.children[0].value)
    assert not cell.decisions
    edit.click()
    area, run, again = box.children[-1].children
    area.value = "other()"
    again.click()
    await eventually(lambda: "the code as you have changed it" in box.children[0].value)
    assert "other()" in box.children[0].value
    await eventually(lambda: not run.disabled)
    run.click()
    await eventually(lambda: cell.decisions)
    assert cell.decisions == [Decision(allowed=True, code="other()")]
    asking.close()
    assert widgets_by_id == {}


async def test_lines_are_typed_for_what_is_shown(asked):
    event, cell = asked
    prompts = []

    async def ask(prompt, *, secret=False):
        del secret
        prompts.append(prompt)
        cell.now = replace(TWO, files=(FileEffect(path="log", what="changed", note=f"{len(prompts)} lines"),))
        return "y"

    questions = TextQuestions(ask)
    questions.ask(event)
    questions.start()
    await eventually(lambda: cell.decisions)
    await questions.aclose()
    first, second = prompts  # a file that changes all the time is asked about once more
    assert "tried, in a copy that is dropped; a yes runs it:\n+a" in first
    assert "tried again, changed since: a" in second
    assert cell.decisions == [Decision(allowed=True)]


async def test_a_line_is_asked_for_without_effects_that_take_long(asked, monkeypatch):
    event, cell = asked
    monkeypatch.setattr(question_forms, "EFFECTS_SECONDS", 0.0)
    monkeypatch.setattr(cell, "effects_ready", lambda *_: asyncio.Event().wait())
    prompts = []

    async def ask(prompt, *, secret=False):
        del secret
        prompts.append(prompt)
        return "y"

    questions = TextQuestions(ask)
    questions.ask(event)
    questions.start()
    await eventually(lambda: cell.decisions)
    await questions.aclose()
    assert "tried" not in prompts[0]
    assert cell.decisions == [Decision(allowed=True)]


async def test_trials_that_are_off_show_nothing(asked):
    event, cell = asked
    cell.now = Effects(status="refused", reason="trials are off", off=True)
    asking = ButtonQuestions(screen := FakeScreen(), on_refused=lambda: None)
    asking.ask(event)
    (box,) = panel_of(screen).children
    await eventually(lambda: cell.asked)
    await turns()
    assert "trials are off" not in box.children[0].value
    asking.close()


def yes_once_it_is_tried(text):
    """Answer a line. An empty one decides nothing: the question comes again, with what its trial has shown meanwhile."""
    return "y" if "tried" in text else ""


@pytest.mark.kernel
@NEEDS_A_WALL
async def test_a_cell_of_the_magic_is_tried(tmp_path):
    """Its agent is in the process beside: with an empty kernel (`--here`), and in a copy of the notebook's."""
    code = "x = 6 * 7; open('made', 'w').write('m'); print(x)"
    call = [ChatCall("execute_ipython_cell", {"code": code})]
    (tmp_path / ".freeact").mkdir()
    (tmp_path / ".freeact" / "config.toml").write_text("[effects]\nseconds = 60\n")
    async with ChatServer(by_turn(call, ["done"], call, ["done"])) as server, notebook_kernel(tmp_path) as notebook:
        await notebook.run("%load_ext freeact_sub.notebook")
        options = f"--model openai-chat:local --base-url {server.base_url} --trust"
        await notebook.run(f"%%agent --here --name a {options}\nHello", answer=yes_once_it_is_tried)
        await notebook.run(f"%%agent --name b {options}\nHello", answer=yes_once_it_is_tried)
        await notebook.run("%%agent --name b\nHello", answer=yes_once_it_is_tried)
        await notebook.run("%agent_close --name a")
        await notebook.run("%agent_close --name b")
    empty, copy, later = [text for text in notebook.asked if "tried" in text]
    assert "tried, in a copy that is dropped; a yes runs it:\n+made\n42\nx: int 42\nadded made" in empty
    for question in (copy, later):
        assert (
            "not tried: it runs in the agent's copy of your notebook, which is the trial: your variables stay as" in question
        )
