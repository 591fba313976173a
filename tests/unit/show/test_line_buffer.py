import re

from hypothesis import given
from hypothesis import strategies as st
from support.tables import each

from freeact_sub.show.teller import LINE_CHARS, MAX_COLOURS, LineBuffer
from freeact_sub.terminal.drawing.parts import coloured
from freeact_sub.text import clean, colours_only, one_line, visible

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
hostile = st.text(st.sampled_from("\x1b\x9b\x9d\x90\x07\x9c\r\n\t\x08[]0123456789;mHJPX^_\\(%ab\u202e\u2066\ud800"))


@each(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07a", "a"),
        ("\x1b]52;c;cm0gLXJm\x1b\\a", "a"),
        ("\x1b]0;never ended\nsecond line", "\nsecond line"),
        ("\x9d8;;http://x\x9ca", "a"),
        ("a\x1b[2J\x1b[10;5Hb\x1b[1Ac", "abc"),
        ("\x1b[31mred\x1b[0m \x1b[38:2::1:2:3mx", "red x"),
        ("\x1bP1;2|sixel\x1b\\a\x1b_kitty\x1b\\b", "ab"),
        ("\x1b(0lqk\x1bcx", "lqkx"),
        ("10%\r 50%\r100%\r\nnext", "100%\nnext"),
        ("bell\x07 back\x08 nul\x00", "bell back nul"),
        ("a\u202eb\u2066c", "abc"),
        ("[/x] [bold]:smile:", "[/x] [bold]:smile:"),
        ("tab\tand\nline é 猫", "tab\tand\nline é 猫"),
    ],
)
def test_clean_keeps_only_what_is_printed(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(hostile)
def test_nothing_but_colours_survives_any_text(text: str) -> None:
    assert not CONTROL.search(clean(text))
    assert not CONTROL.search(re.sub(r"\x1b\[[0-9;]*m", "", colours_only(text)))
    assert not any(CONTROL.search(line.plain) for line in coloured(text))
    assert not CONTROL.search(visible(text))


def test_what_a_person_judges_hides_nothing() -> None:
    assert visible("rm -rf /\rprint(1)\x1b[8m") == r"rm -rf /\x0dprint(1)\x1b[8m"
    assert visible("a\u202eb\u200bc\u3164\U000e0041") == r"a\u202eb\u200bc\u3164\U000e0041"
    assert visible("if a:\r\n\tb = 'é猫'\n") == "if a:\n\tb = 'é猫'\n"


def test_one_line_is_one_line_of_bounded_length() -> None:
    assert one_line(" a\n\n b\x1b[2J ") == "a b"
    assert one_line("x" * 200, 10) == "x" * 9 + "…"


def test_colours_are_kept_and_go_on_in_the_next_line() -> None:
    lines = coloured("\x1b[31mred\nstill\x1b[0m not")
    assert lines[0].spans[0].style.color.name == "color(1)"
    assert [(span.start, span.end) for span in lines[1].spans if span.style.color] == [(0, 5)]


def test_an_endless_number_in_a_colour_is_no_error() -> None:
    assert [line.plain for line in coloured(f"\x1b[{'9' * 10_000}mx")] == ["x"]


def test_lines_are_cut_where_they_end() -> None:
    buffer = LineBuffer()
    assert [line for piece in ("a", "b\nc", "\n\nd\r", "\ne") for line in buffer.add(piece)] == ["ab", "c", "", "d"]
    assert buffer.rest() == "e"
    assert list(buffer.flush()) == ["e"]
    assert list(buffer.flush()) == []


def test_colours_go_on_over_lines_and_pieces_until_the_output_ends() -> None:
    buffer = LineBuffer()
    assert [*buffer.add("\x1b[3"), *buffer.add("1ma\nb\x1b[1m\n"), *buffer.add("c\x1b[0m\nd\n")] == [
        "\x1b[31ma",
        "\x1b[31mb\x1b[1m",
        "\x1b[31m\x1b[1mc\x1b[0m",
        "d",
    ]
    list(buffer.add("\x1b[31me"))
    assert list(buffer.flush()) == ["\x1b[31me"]
    assert list(buffer.add("f\n")) == ["f"]


def test_colours_that_are_never_taken_back_take_no_memory() -> None:
    buffer = LineBuffer()
    for _ in range(1000):
        (line,) = buffer.add("\x1b[31m\n")
    assert line == "\x1b[31m" * (MAX_COLOURS + 1)


def test_a_progress_bar_takes_no_memory_and_shows_its_last_state() -> None:
    buffer = LineBuffer()
    for percent in range(100_000):
        assert list(buffer.add(f"\r{percent} done")) == []
    assert buffer.rest() == "99999 done"
    assert list(buffer.add("\r\n")) == ["99999 done"]


def test_a_line_that_never_ends_comes_in_pieces() -> None:
    buffer = LineBuffer()
    lines = [line for _ in range(10) for line in buffer.add("x" * LINE_CHARS)]
    assert set(lines) == {"x" * LINE_CHARS}
    assert len(lines) >= 9
