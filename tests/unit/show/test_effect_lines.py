"""What people read of the effects of a cell, on cards of every size."""

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from support.sample_events import request
from support.tables import each

from freeact_sub.calls import CodeAction
from freeact_sub.events import Difference, Effects, FileEffect, VariableChange
from freeact_sub.events.answers import ASKED
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.effect_lines import effect_lines
from freeact_sub.show.questions import Questions
from freeact_sub.terminal.card import effects_part, question_card
from freeact_sub.terminal.drawing.parts import Cut

DIFF = "--- a/notes\n+++ b/notes\n@@ -1 +1 @@\n-old\n+new"
DONE = Effects(
    status="done",
    cell="ok",
    output="rows 3\n",
    displays=({"image/png": "x"},),
    variables=(
        VariableChange(name="x", what="changed", before="list 1", after="list 2"),
        VariableChange(name="y", what="new", after="int 1"),
        VariableChange(name="z", what="deleted", before="str 1"),
        VariableChange(name="os", what="new", after="module os", imported=True),
    ),
    files=(
        FileEffect(path="notes", what="changed", diff=DIFF),
        FileEffect(path="big", what="added", note="9 bytes"),
        FileEffect(path="gone", what="deleted"),
    ),
    left_out=(".git/config",),
)


def lines(effects):
    return [line.text for line in effect_lines(effects)]


def test_the_paths_come_first_and_imports_are_not_told():
    assert lines(DONE) == [
        "tried, in a copy that is dropped; a yes runs it:",
        "±notes +big -gone",
        "rows 3",
        "[1 picture]",
        "x: list 1 -> list 2",
        "y: int 1",
        "z: str 1 -> deleted",
        "changed notes",
        "@@ -1 +1 @@",
        "-old",
        "+new",
        "added big (9 bytes)",
        "deleted gone",
        "left out of the comparison: .git/config",
    ]


@each(
    ("effects", "head"),
    [
        (None, "trying it …"),
        (Effects(status="done", cell="ok"), "tried: it changes no variable and no file, and puts out nothing"),
        (Effects(status="done", cell="error", output="ZeroDivisionError"), "tried: it ends with an error"),
        (Effects(status="refused", reason="a GPU"), "not tried: a GPU"),
        (
            Effects(status="stopped", reason="it wanted to run: make"),
            "tried, and stopped: it wanted to run: make. A yes runs it for real, and asks again there",
        ),
        (
            Effects(status="stopped", cell="timeout", reason="it takes longer than 10 s"),
            "tried, and stopped: it takes longer than 10 s. A yes runs it for real",
        ),
    ],
)
def test_the_first_line_says_how_it_ended(effects, head):
    assert lines(effects)[0] == head


def test_a_terminal_obeys_nothing_that_the_cell_has_written():
    evil = "\x1b[2J\x1b]0;evil\x07\u202ename"
    effects = Effects(
        status="done",
        output=evil,
        variables=(
            VariableChange(name=evil, what="new", after=evil),
            VariableChange(name="d", what="changed", difference=Difference(parts="keys", new=(evil,), new_count=1)),
        ),
        files=(FileEffect(path=evil, what="added", note=evil),),
    )
    assert not {"\x1b", "\x07", "\u202e"} & {*"".join(lines(effects))}


def test_where_the_time_was_up_it_does_not_matter_how_far_the_cell_had_come():
    cut = Effects(status="stopped", cell="timeout", reason="it takes longer than 2 s")
    assert replace(cut, files=DONE.files).shows_as(cut)
    assert not DONE.shows_as(cut)
    assert not replace(DONE, files=()).shows_as(DONE)


class Tried:
    """Stands for the gate."""

    def __init__(self, effects):
        self.found = effects

    def answer(self, request_id, answer):
        return False

    def shown(self, request_id):
        pass

    def effects(self, request_id):
        return self.found

    async def effects_ready(self, request_id):
        return self.found


def test_the_lines_that_a_card_leaves_out_are_counted_though_they_are_not_drawn():
    effects = replace(DONE, files=tuple(replace(DONE.files[0], path=f"n{number}") for number in range(500)))
    drawn, besides = effects_part(effects, 10)
    console = Console(file=io.StringIO(), width=80)
    console.print(Cut(body=drawn, besides=besides, rows=8))
    shown = console.file.getvalue().splitlines()
    assert len(shown) == 8
    assert shown[-1] == f"… {len(lines(effects)) - 7} more lines (ctrl-o)"
    assert effects_part(effects)[1] == 0


@each("rows", [8, 12, 18, 34])
@each("tried", [True, False])
def test_a_card_has_room_for_the_code_the_paths_and_the_keys(rows, tried):
    event = request("one", CodeAction(code="\n".join(f"line_{number} = {number}" for number in range(30))), lambda _: True)
    ASKED[event.request_id] = Tried(DONE if tried else Effects(status="refused", reason="trials are off", off=True))
    try:
        views, questions = Stories(), Questions()
        questions.observe(event)
        card = question_card(views, questions, event, rows, keys="y yes", workspace=Path("/"))
        console = Console(file=io.StringIO(), width=80, height=rows)
        console.print(card)
        text = console.file.getvalue()
    finally:
        del ASKED[event.request_id]
    assert len(text.splitlines()) <= rows
    assert "line_0" in text or rows == 8
    assert "y yes" in text
    assert ("±notes +big -gone" in text) is tried
    assert "trials are off" not in text


def test_what_is_cut_says_so_and_no_name_draws_a_line():
    effects = replace(
        DONE,
        output="y" * 1000,
        variables=(VariableChange(name="v", what="new", after="z" * 1000),),
        files=(FileEffect(path="a\n+new\u2028\x0c\x85line", what="added", note="n\n-old"),),
        left_out=("one\ntwo",),
    )
    drawn = lines(replace(effects, outdated_by=("p\n-q",))) + lines(Effects(status="stopped", reason="it wanted\n-old line"))
    assert not any("\n" in line or line.startswith(("+new", "-old", "-q")) for line in drawn)
    assert [line[-21:] for line in drawn if line.startswith(("yyy", "v: zzz"))] == [
        "… 800 more characters",
        "… 803 more characters",
    ]
    assert "added a\\n+new\\u2028\\x0c\\x85line (n\\n-old)" in drawn


def test_only_what_was_imported_or_left_out_is_no_empty_table():
    imported = Effects(status="done", cell="ok", variables=(VariableChange(name="os", what="new", imported=True),))
    assert lines(imported) == ["tried: it changes no variable and no file, and puts out nothing"]
    assert lines(Effects(status="done", cell="ok", left_out=(".git/config",)))[-1].endswith(".git/config")
