"""Line ends put right: only white space and backslashes change, and only in what was not Python."""

import re

from hypothesis import given
from hypothesis import strategies as st

from freeact_sub.models.arguments import parse_python, with_line_ends

PIECES = [
    "for n in a:",
    "with a as f:",
    "if n:",
    "print(n)",
    "x = 1",
    "f('",
    "b')",
    "'c",
    '"',
    "\n",
    "\\n",
    ";",
    " ",
    "# d",
    "'" * 3,
]


def without_line_ends(code):
    return re.sub(r"\s|\\\\n|\\\\", "", code).replace("\\n", "").replace("\\", "").replace(";", "")


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=60))
def test_nothing_is_added_and_python_stays_as_it_is(code):
    mended = with_line_ends(code)
    if parse_python(code) is not None:
        assert mended is code
    if mended != code:
        assert parse_python(mended) is not None
    assert without_line_ends(mended) == without_line_ends(code)
