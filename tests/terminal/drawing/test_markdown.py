"""An answer keeps all of its characters: HTML and placeholders are text."""

import io

from support.tables import each

from freeact_sub.terminal.drawing.markdown import markdown
from freeact_sub.terminal.drawing.parts import make_console


def drawn(text: str) -> str:
    console = make_console(io.StringIO())
    console.width = 80
    with console.capture() as capture:
        console.print(markdown(text))
    return capture.get()


@each(
    "text",
    [
        "git checkout <branch>",
        "List<String> x = new ArrayList<>();",
        "<div>\n  <p>one</p>\n</div>",
        "<!-- a comment -->",
        "<script>\nalert(1)\n</script>",
        "<details><summary>More</summary>text</details>",
        "press <kbd>Ctrl</kbd>",
        "[note]: https://example.org/x",
        "<?php echo 1 ?>",
        "<![CDATA[x]]>",
    ],
)
def test_no_character_is_lost(text: str) -> None:
    assert drawn(text) == f"{text}\n"
    for line in text.split("\n"):
        assert line.strip() in drawn(f"- item\n\n{text}\n\n> after")


def test_a_line_break_is_one() -> None:
    assert drawn("a<br>b<BR/>c") == "a\nb\nc\n"
    table = drawn("| a | b |\n| --- | --- |\n| x<br />y | <T> |")
    assert "<T>" in table
    assert "<br" not in table
