"""Only a newline ends a line of a text that is compared; other line ends are seen as a difference."""

import difflib

from support.tables import each

from freeact_sub.events import VariableChange
from freeact_sub.kernels.files.states import ChangedFile, unified
from freeact_sub.kernels.variable_reports import told
from freeact_sub.text import cut, lines_to_compare

OTHER_ENDS = ["\u2028", "\u2029", "\x0c", "\x0b", "\x1c", "\x1d", "\x1e", "\x85", "\r"]


@each("end", OTHER_ENDS)
def test_a_comment_that_becomes_code_is_a_difference(end: str) -> None:
    before, after = f"# note{end}evil()\n", "# note\nevil()\n"
    assert "evil()" in [*difflib.ndiff(*lines_to_compare(before, after))][-1]
    shown = unified(ChangedFile(path="m.py", before=before.encode(), after=after.encode())).split("\n")
    assert "+evil()" in shown
    assert "+# note" in shown


def test_the_kind_of_a_line_end_and_a_missing_one_are_differences_and_a_common_one_is_none() -> None:
    assert lines_to_compare("a\r\nb\r\n", "a\r\nc\r\n") == (["a", "b"], ["a", "c"])
    assert lines_to_compare("a\r\n", "a\n") == (["a\r"], ["a"])
    assert lines_to_compare("a\n", "a") == (["a"], ["a (no newline at the end)"])
    assert lines_to_compare("a", "b") == (["a"], ["b"])
    assert lines_to_compare("", "a") == ([], ["a"])
    assert lines_to_compare("a", "") == (["a"], [])


def test_a_name_draws_no_line_of_a_diff() -> None:
    shown = unified(ChangedFile(path="a\n+++ b\n-old", before=None, after=b"1\n")).split("\n")
    assert not any(line.startswith("-old") for line in shown)


def test_cut_texts_say_how_much_is_missing() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "abc … 1 more character"
    changes = [VariableChange(name=f"i{number}", what="new", imported=True) for number in range(300)]
    changes += [VariableChange(name=f"v{number}", what="new") for number in range(3)]
    assert [change.name for change in told(changes, 3)] == ["v0", "v1", "v2"]
    assert [change.before for change in told(changes, 2)][2:] == ["1 more variable"]
