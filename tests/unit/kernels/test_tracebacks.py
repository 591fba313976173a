import pytest
from hypothesis import given
from hypothesis import strategies as st

from freeact_sub.cells import CellError
from freeact_sub.kernels.wire.output import FRAMES, MESSAGE_CHARS, short_traceback

HEADING = ("-" * 75, "KeyError                                  Traceback (most recent call last)")
FRAME = "Cell In[2], line 4, in f(n)\n      1 def f(n):\n      2     if n == 0:\n----> 4     return f(n - 1)\n"


def test_where_it_failed_and_what_it_was_are_kept_and_the_source_around_it_is_not():
    library = "File ~/lib/json/decoder.py:355, in JSONDecoder.raw_decode(self, s, idx)\n    353     x\n--> 355     raise e\n    356\n"
    error = CellError(
        ename="KeyError",
        evalue="'k'",
        traceback=(*HEADING, "Cell In[2], line 2\n      1 x = 1\n\x1b[32m----> 2 f(x)\x1b[0m\n", library, "KeyError: 'k'"),
    )
    assert short_traceback(error) == (
        "Cell In[2], line 2\n----> 2 f(x)\nFile ~/lib/json/decoder.py:355, in JSONDecoder.raw_decode\n--> 355     raise e\nKeyError: 'k'\n"
    )


def test_of_many_frames_the_first_and_the_last_are_kept():
    first = "Cell In[2], line 9\n----> 9 f(6)\n"
    error = CellError(ename="E", evalue="", traceback=(*HEADING, first, *[FRAME] * 30, "E: x"))
    text = short_traceback(error)
    assert text.startswith("Cell In[2], line 9\n----> 9 f(6)\n[… 27 frames …]\n")
    assert text.count("return f(n - 1)") == FRAMES
    assert text.endswith("E: x\n")


def test_what_caused_it_is_kept():
    cause = "\nThe above exception was the direct cause of the following exception:\n"
    error = CellError(ename="V", evalue="", traceback=(*HEADING, FRAME, "K: 1", cause, *HEADING, FRAME, "V: 2"))
    short = "Cell In[2], line 4, in f\n----> 4     return f(n - 1)\n"
    assert short_traceback(error) == f"{short}K: 1\n{cause.strip()}\n{short}V: 2\n"


@pytest.mark.parametrize(
    "traceback", [(), ("  Cell In[3], line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n",), ("no such form",)]
)
def test_what_has_another_form_is_kept_as_it_is(traceback):
    text = short_traceback(CellError(ename="SyntaxError", evalue="invalid syntax", traceback=traceback))
    assert text == ("".join(traceback).strip("\n") or "SyntaxError: invalid syntax") + "\n"


def test_a_document_as_a_message_is_cut():
    text = short_traceback(CellError(ename="E", evalue="x" * 10**6, traceback=(*HEADING, "E: " + "x" * 10**6)))
    assert len(text) < MESSAGE_CHARS + 100
    assert "998,003 characters" in text


@given(st.lists(st.text() | st.just(FRAME) | st.sampled_from(HEADING)))
def test_no_traceback_is_too_strange(traceback):
    assert short_traceback(CellError(ename="E", evalue="v", traceback=tuple(traceback))).endswith("\n")
