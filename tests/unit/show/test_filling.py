"""A question with choices or a form, where one field is asked after another."""

from support.sample_events import question
from support.tables import each

from freeact_sub.events import Answer, QuestionField
from freeact_sub.events.forms import answer_to
from freeact_sub.show.questions import Questions

DATABASE = QuestionField(name="Which?", kind="choice", choices=("SQLite", "DuckDB"), other=True)
PORT = QuestionField(name="port", kind="integer", least=1, most=9)
SECURE = QuestionField(name="secure", kind="boolean", default=True, required=False)
DAYS = QuestionField(name="days", kind="choices", choices=("mo", "tu", "we"), labels=("Mo", "Tu", "We"), required=False)


class Asked:
    """One question, and its answer."""

    def __init__(self, *fields: QuestionField, by_keys: bool = False) -> None:
        self.values: dict[str, object] | None = None
        self.questions = Questions(by_keys=by_keys)
        self.questions.observe(question("question-form", self._take, prompt="Please", fields=fields))

    def _take(self, answer: Answer) -> bool:
        self.values = dict(answer_to(self.questions.waiting[0].fields, answer).values or {})  # type: ignore[union-attr]
        return True

    def refused(self, line: str) -> str:
        assert not self.questions.answer(line)
        assert self.questions.filling is not None
        return self.questions.filling.refused


@each(
    ("line", "value"),
    [("2", "DuckDB"), ("duckdb", "DuckDB"), ("3", "3"), ("2 of them", "2 of them"), (" other ", "other")],
)
def test_a_number_is_a_choice_and_any_other_text_an_answer(line: str, value: str) -> None:
    asked = Asked(DATABASE)
    assert asked.questions.answer(line)
    assert asked.values == {"Which?": value}
    assert asked.questions.current is None


@each(
    ("line", "value"),
    [("n", "stop"), ("No, st", "stop"), ("yes, as", "all"), ("2", "all"), ("y", None), ("stopp", None), ("as long", None)],
)
def test_the_beginning_of_one_choice_is_that_choice(line: str, value: str | None) -> None:
    labels = ("yes, 2 s more", "yes, as long as it needs", "no, stop it")
    asked = Asked(QuestionField(name="Go on?", kind="choice", choices=("more", "all", "stop"), labels=labels))
    if value is None:
        assert asked.refused(line).startswith("Go on? must be one of these: yes, 2 s more, ")
    else:
        assert asked.questions.answer(line)
        assert asked.values == {"Go on?": value}


@each(("line", "value"), [("1", "2"), ("2", "1"), ("high", "1"), ("l", "2"), ("1st", "1st")])
def test_a_choice_is_what_is_seen_before_its_hidden_value(line: str, value: str) -> None:
    asked = Asked(
        QuestionField(name="level", kind="choice", choices=("2", "1", "1st"), labels=("low", "high", "first of all"))
    )
    assert asked.questions.answer(line)
    assert asked.values == {"level": value}


def test_one_field_after_another_is_asked_and_what_is_wrong_is_asked_again() -> None:
    asked = Asked(DATABASE, PORT, SECURE, DAYS)
    assert asked.questions.answer("1")
    assert asked.refused("many") == "port must be a whole number, from 1 to 9"
    assert asked.refused("10") == "port must be a whole number, from 1 to 9"
    assert asked.refused("").startswith("port needs an answer")
    assert asked.questions.answer("8")
    assert asked.questions.answer("")
    assert asked.refused("1,7").startswith("days must be any of these: Mo, Tu, We")
    assert asked.values is None
    assert asked.questions.answer("1, we")
    assert asked.values == {"Which?": "SQLite", "port": 8, "secure": True, "days": ["mo", "we"]}


def test_arrows_highlight_and_enter_takes_it_and_one_may_go_back() -> None:
    asked = Asked(DATABASE, SECURE, by_keys=True)
    filling = asked.questions.filling
    assert filling is not None
    assert filling.highlighted == 0
    assert filling.move(-1)
    assert asked.questions.answer("")
    assert filling.back()
    assert asked.questions.answer("mine")
    assert asked.questions.answer("")
    assert asked.questions.answer("")
    assert asked.values == {"Which?": "mine", "secure": True}


def test_space_marks_several_and_a_last_look_asks_them_again_with_what_was_given() -> None:
    asked = Asked(DAYS, PORT, by_keys=True)
    filling = asked.questions.filling
    assert filling is not None
    assert filling.mark()
    assert filling.move(-1)
    assert filling.mark()
    assert asked.questions.answer("")
    assert not filling.mark()  # a number is typed
    assert asked.questions.answer("8")
    assert (filling.title, filling.given) == ("Send these answers?", "days: Mo, We\nport: 8")
    assert asked.questions.answer("n")
    assert filling.marked == {0, 2}
    assert filling.mark()  # none of the first any more
    assert asked.questions.answer("")
    assert asked.questions.answer("")
    assert asked.values is None
    assert asked.questions.answer("y")
    assert asked.values == {"days": ["we"], "port": 8}
