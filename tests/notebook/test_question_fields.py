"""Questions with choices and forms in a notebook: as widgets, as lines, and where nobody can be asked."""

import pytest
from ipywidgets.widgets.widget import _instances as widgets_by_id
from notebook_kernel import NotebookCell, notebook_kernel
from support.sample_events import question
from support.waiting import eventually

from freeact_sub.events import QuestionField
from freeact_sub.notebook.question_forms import ButtonQuestions, TextQuestions

CHOICE = QuestionField(name="Which database?", choices=("SQLite", "PostgreSQL"), other=True)
PORT = QuestionField(name="port", kind="integer", least=1)
SECURE = QuestionField(name="secure", kind="boolean")
DAYS = QuestionField(name="days", kind="choices", choices=("mo", "tu", "we"), labels=("Monday", "Tuesday", "Wednesday"))


class Screen:
    live = True

    def publish(self, display_id, data, *, update):
        if model := data.get("application/vnd.jupyter.widget-view+json"):
            self.panel = widgets_by_id[model["model_id"]]


def every(widget):
    """A widget and all in it."""
    return [widget, *(inner for child in getattr(widget, "children", ()) for inner in every(child))]


class Asked:
    """A question that is open as widgets."""

    def __init__(self, *fields, allowed=lambda values: None):
        self.answers, screen = [], Screen()
        self.asking = ButtonQuestions(screen, on_refused=lambda: None)

        def answer(given):
            allowed(given.values)
            self.answers.append(given.values)
            return True

        self.asking.ask(question(str(id(self)), answer, fields=fields))
        self.box = screen.panel.children[0]

    def named(self, name):
        return next(widget for widget in every(self.box) if getattr(widget, "description", "") == name)

    @property
    def texts(self):
        return [widget for widget in every(self.box) if type(widget).__name__ == "Textarea"]

    @property
    def told(self):
        return " ".join(widget.value for widget in every(self.box) if type(widget).__name__ == "HTML")


async def test_one_choice_is_given_by_one_click_and_a_text_beside_it_counts_too():
    asked = Asked(CHOICE)
    assert "Which database?" in asked.told
    asked.named("2. PostgreSQL").value = True
    await eventually(lambda: asked.answers)
    assert asked.named("Answer").disabled
    other = Asked(CHOICE)
    other.texts[0].value = "DuckDB"
    other.named("Answer").click()
    none = Asked(CHOICE)
    none.named("No answer").click()
    await eventually(lambda: other.answers and none.answers)
    assert [found.answers for found in (asked, other, none)] == [
        [{"Which database?": "PostgreSQL"}],
        [{"Which database?": "DuckDB"}],
        [None],
    ]
    for found in (asked, other, none):
        found.asking.close()


async def test_a_form_says_what_is_no_answer_and_stays_open():
    def check(values):
        if values["port"] == "many":
            raise ValueError("port must be a <whole> number")

    asked = Asked(PORT, SECURE, DAYS, allowed=check)
    asked.texts[0].value = "many"
    asked.named("1. yes").value = True
    asked.named("2. no").value = True
    for day in ("1. Monday", "3. Wednesday"):
        asked.named(day).value = True
    asked.named("Answer").click()
    await eventually(lambda: "must be a &lt;whole&gt; number" in asked.told)
    assert not asked.named("1. yes").value
    asked.texts[0].value = "80"
    asked.named("Answer").click()
    await eventually(lambda: asked.answers)
    assert asked.answers == [{"port": "80", "secure": "no", "days": ["mo", "we"]}]
    asked.asking.close()


async def test_as_lines_one_field_is_asked_after_the_other_and_a_wrong_one_again():
    lines, asked, answers = iter(["2", "many", "80", "1"]), [], []

    async def ask(prompt, *, secret=False):
        asked.append(prompt)
        return next(lines)

    asking = TextQuestions(ask)
    asking.start()
    asking.ask(question("one", lambda given: not answers.append(given.values), fields=(CHOICE, PORT, SECURE)))
    await eventually(lambda: answers)
    await asking.aclose()
    assert answers == [{"Which database?": "PostgreSQL", "port": 80, "secure": True}]
    assert "2. PostgreSQL" in asked[0]
    assert "port must be a whole number" in asked[2]
    assert len(asked) == 4


SETUP = """
%load_ext freeact_sub.notebook
from freeact_sub import Agent, Config
from freeact_sub.testing import FakeKernelProvider, ScriptedModel
from pydantic_ai.messages import ToolCallPart

ask = ToolCallPart("ask_user", {"questions": [{"question": "Which database?", "choices": ["SQLite", "PostgreSQL"]}]})

def script(messages, info):
    return "thanks" if messages[-1].parts[-1].part_kind == "tool-return" else [ask]

agent = await Agent(Config(), model=ScriptedModel(script), kernel_provider=FakeKernelProvider()).__aenter__()
"""


@pytest.mark.kernel
async def test_in_a_real_notebook_a_choice_is_clicked_or_typed_and_nobody_is_waited_for(tmp_path):
    async with notebook_kernel(tmp_path) as notebook:
        await notebook.run(SETUP)
        async with notebook.running("await display_run(agent, 'root')", answer=True, cell_id="cell-1") as page:
            (pick,) = await notebook.widgets(description="2. PostgreSQL")
            await notebook.type(pick, True)
        assert "gets the answer: PostgreSQL" in page.text
        typed = NotebookCell()
        line = "await display_run(agent, 'root', questions='input')"
        await notebook.run(line, answer=lambda prompt: "DuckDB", cell=typed)
        assert "gets the answer: DuckDB" in typed.text
        alone = NotebookCell()
        await notebook.run("await display_run(agent, 'root')", answer=False, cell=alone)
        assert "gets no answer" in alone.text
        assert "nobody" in alone.text
        await notebook.run("await agent.aclose()")
