"""The text of a cell is what a screen shows at the end."""

import pyte
from hypothesis import given
from hypothesis import strategies as st
from support.tables import each

from freeact_sub.cells import ClearOutput, DisplayData, ExecuteReply, StreamText
from freeact_sub.kernels.wire.output import OPEN_LINES, CellOutputBuffer, ScreenText

CODES = [
    "\n",
    "\r",
    "\b",
    "\r\n",
    "\x1b[A",
    "\x1b[2A",
    "\x1b[B",
    "\x1b[K",
    "\x1b[1K",
    "\x1b[2K",
    "\x1b[2D",
    "\x1b[C",
    "\x1b[3G",
]
COLOURS = ["\x1b[31m", "\x1b[0m", "\x1b[1;32m"]


def shown(*pieces, chars=1_000_000):
    screen = ScreenText(chars)
    for piece in pieces:
        screen.write(piece)
    head, tail, left_out = screen.parts
    assert left_out == 0
    return head + tail


def lines_of(text):
    return [line.rstrip() for line in text.rstrip().split("\n")]


@given(st.lists(st.sampled_from(["a", "bc", "def", " ", *CODES, *COLOURS]), max_size=30))
def test_the_text_is_what_a_terminal_shows(pieces):
    terminal = pyte.Screen(100, 55)
    terminal.set_mode(pyte.modes.LNM)
    reader = pyte.Stream(terminal)
    reader.feed("x\n" * 20)  # the cursor cannot leave the screen at its top
    for piece in pieces:
        reader.feed(piece)
    ours = lines_of(shown("x\n" * 20 + "\n" * 32 + "\x1b[32A", *pieces))
    assert ours == lines_of("\n".join(terminal.display))


@given(st.lists(st.sampled_from(["ab", "c", *CODES, *COLOURS]), max_size=40), st.data())
def test_the_text_does_not_depend_on_how_it_is_cut(pieces, data):
    text = "".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert shown(*parts) == shown(text)


@each(
    ("text", "end"),
    [
        ("".join(f"\r{number:3}%|{'#' * (number // 10)}" for number in range(101)) + "\ndone", "100%|##########\ndone"),
        ("1 of 3\b\b\b\b\b\b2 of 3\b\b\b\b\b\b3 of 3\n", "3 of 3\n"),
        ("\rlong state\rshort\x1b[K\n", "short\n"),
        ("outer 0\ninner 0\x1b[A\router 1\ninner 1\n", "outer 1\ninner 1\n"),
        ("a\x1b[31mred\x1b[0m\x1b]0;title\x07b\n", "aredb\n"),
        ("one\r\ntwo\r\n", "one\ntwo\n"),
        ("building...\x1b[2K\rbuilt\n", "built\n"),
        ("old\nold\n\x1b[2A\x1b[Jnew\n", "new\n"),
    ],
)
def test_progress_ends_as_its_last_state(text, end):
    assert shown(text) == end
    assert shown(*text) == end


def test_only_the_last_lines_can_be_changed():
    text = "".join(f"{number}\n" for number in range(5 * OPEN_LINES))
    changed = shown(text, f"\x1b[{10 * OPEN_LINES}A\rchanged")
    assert changed.startswith("0\n1\n2\n")
    assert "changed" in changed


@given(st.lists(st.text(alphabet="ab \n", max_size=400), max_size=30))
def test_text_without_movements_stays_as_it_is(pieces):
    assert shown(*pieces) == "".join(pieces)


def test_a_line_without_an_end_is_kept_whole():
    assert shown(*["x" * 1000] * 100) == "x" * 100_000


def out(text):
    return StreamText(name="stdout", text=text)


def display(text, display_id=None, *, update=False):
    return DisplayData(data={"text/plain": text}, display_id=display_id, update=update)


@each(
    ("outputs", "text"),
    [
        ([display("0 %", "bar"), out("log\n"), display("50 %", "bar", update=True)], "50 %\nlog\n"),
        ([display("one", "a"), display("two", "b"), display("1\n1\n1", "a", update=True), display("2", "b", update=True)], "1\n1\n1\n2\n"),
        ([display("1\n1\n1", "a"), display("two", "b"), display("1", "a", update=True), display("2", "b", update=True)], "1\n2\n"),
        ([display("one", "a"), display("again", "a"), display("new", "a", update=True)], "new\nnew\n"),
        ([display("of an earlier cell", "a", update=True)], "of an earlier cell\n"),
        ([out("old\n"), ClearOutput(), out("new\n")], "new\n"),
        ([out("old\n"), ClearOutput(wait=True)], "old\n"),
        ([out("old\n"), ClearOutput(wait=True), out("new\n")], "new\n"),
        ([display("old", "a"), ClearOutput(), display("new", "a", update=True)], "new\n"),
        ([out("step 1"), ClearOutput(wait=True), out("step 2"), ClearOutput(wait=True), display("end")], "end\n"),
    ],
)  # fmt: skip
def test_replaced_displays_and_cleared_output_are_gone(outputs, text):
    buffer = CellOutputBuffer()
    for output in outputs:
        buffer.add(output)
    assert buffer.text == text


def test_cleared_pictures_are_gone():
    buffer = CellOutputBuffer()
    for output in (DisplayData(data={"image/png": "old"}), ClearOutput(), DisplayData(data={"image/png": "new"})):
        buffer.add(output)
    assert buffer.displays == ({"image/png": "new"},)


def test_the_last_picture_of_an_animation_is_kept_however_many_there_were():
    picture = "x" * 3_000_000
    cleared, updated = CellOutputBuffer(), CellOutputBuffer()
    for number in range(10):
        cleared.add(ClearOutput(wait=True))
        cleared.add(DisplayData(data={"image/png": f"{number}{picture}"}))
        updated.add(DisplayData(data={"image/png": f"{number}{picture}"}, display_id="a", update=number > 0))
    assert [[data["image/png"][0] for data in buffer.displays] for buffer in (cleared, updated)] == [["9"], ["9"]]


def test_output_that_is_not_of_the_cell_stays_when_the_cell_clears():
    buffer = CellOutputBuffer()
    buffer.add(out("50 %"))
    buffer.add_note("of a task\n")
    buffer.add(DisplayData(data={"image/png": "of a task", "text/plain": "picture"}), stays=True)
    buffer.add(out("old"))
    for _ in range(3):
        buffer.add(ClearOutput())
    buffer.add(out("new\n"))
    assert (buffer.text, len(buffer.displays)) == ("of a task\npicture\nnew\n", 1)


async def test_a_reader_that_is_far_behind_gets_what_is_left():
    buffer = CellOutputBuffer()
    for number in range(5_000):
        buffer.add(ClearOutput(wait=True))
        buffer.add(display(f"{number}"))
    buffer.end(ExecuteReply(status="ok"))
    found = []
    while not isinstance(output := await buffer.get(), ExecuteReply):
        found.append(output)
    assert len(found) < 2_000
    assert found[-1] == display("4999")


def test_the_file_has_every_state(tmp_path):
    buffer = CellOutputBuffer(model_chars=100, file=tmp_path / "all.txt")
    states = [f"\r{number:3}%" for number in range(101)]
    for state in states:
        buffer.add(out(state))
    buffer.add(ClearOutput())
    buffer.add(out("end\n"))
    assert buffer.text == "end\n"
    buffer.end(ExecuteReply(status="ok"))
    assert (tmp_path / "all.txt").read_bytes().decode() == "".join(states) + "end\n"
