"""What a cell surely writes is known, and nothing else is guessed at; the card shows it as a diff."""

import io
from pathlib import Path

import pytest

from freeact_sub.calls import CodeAction, FileWrite
from freeact_sub.events import ApprovalRequest
from freeact_sub.terminal.drawing.parts import make_console
from freeact_sub.terminal.questions.card import drawn_call
from freeact_sub.terminal.questions.planned_writes import PlannedWrite, planned_writes

KNOWN = {
    "%%writefile app.py\nprint(1)\n": ("app.py", b"print(1)\n", False),
    "%%writefile -a log.txt\nmore": ("log.txt", b"more\n", True),
    'from pathlib import Path\nPath("a.md").write_text("hi\\n", encoding="utf-8")': ("a.md", b"hi\n", False),
    'import pathlib\npathlib.Path("d", "a.md").write_bytes(b"hi")': ("d/a.md", b"hi", False),
    'text = "hi"\npath = Path("d") / "a.md"\npath.write_text(text)': ("d/a.md", b"hi", False),
    'open("a.md", "w", encoding="utf-8").write("hi")': ("a.md", b"hi", False),
    'Path("a.md").open("a").write("hi")': ("a.md", b"hi", True),
    'with open("a.md", "w") as f:\n    f.write("h")\n    f.write("i")': ("a.md", b"hi", False),
    'Path("a.md").write_text(", ".join(rows))': ("a.md", None, False),
    'Path("a.md").write_text(f"{x}")': ("a.md", None, False),
    'with open("a.json", "w") as f:\n    json.dump(data, f)': ("a.json", None, False),
    'Path("a.md").write_text("hi", encoding="latin-1")': ("a.md", None, False),
    'text = "a"\ntext += "b"\nPath("a.md").write_text(text)': ("a.md", None, False),
    'Path("a.md").write_text(text)\ntext = "later"': ("a.md", None, False),
    'text = "a"\ntry: f()\nexcept E as text: pass\nPath("a.md").write_text(text)': ("a.md", None, False),
    'text = "a"\nmatch f():\n    case text: pass\nPath("a.md").write_text(text)': ("a.md", None, False),
    'name = "a.md"\npath = Path(name)\npath.write_text("hi")': ("a.md", b"hi", False),
    'Path("a.md").write_text("h\xe9", "latin-1")': ("a.md", None, False),
    'open("./a.md", "w").write("hi")': ("a.md", b"hi", False),
}
NOT_GUESSED = (
    'Path(name).write_text("hi")',
    'Path(f"{x}.md").write_text("hi")',
    'if x:\n    Path("a.md").write_text("hi")',
    'def f():\n    Path("a.md").write_text("hi")',
    'Path = Other\nPath("a.md").write_text("hi")',
    'from other import Path\nPath("a.md").write_text("hi")',
    'import other as pathlib\npathlib.Path("a.md").write_text("hi")',
    'from other import *\nPath("a.md").write_text("hi")',
    'pathlib.Path = Other\npathlib.Path("a.md").write_text("hi")',
    'path = Path(name)\nname = "a.md"\npath.write_text("hi")',
    'os.chdir("d")\nPath("a.md").write_text("hi")',
    'from os import chdir as go\ngo("d")\nPath("a.md").write_text("hi")',
    'with chdir("d"):\n    pass\nPath("a.md").write_text("hi")',
    'def open(*_): ...\nopen("a.md", "w").write("hi")',
    'path = Path("a")\npath = Path("b")\npath.write_text("hi")',
    'open("a.md").read()',
    "!echo hi > a.md",
    "%%writefile $name\nhi",
    "%%writefile {name}\nhi",
    "%%writefile ~/a.md\nhi",
    '(Path("a")' + '/"b"' * 1500 + ').write_text("hi")',
    "Path" + ".a" * 900 + '("a.md").write_text("hi")',
    "Path('a.md').write_text(",
    "x" * 100_000 + "(",
)


@pytest.mark.parametrize("code", KNOWN)
def test_what_the_code_says_by_itself_is_known(code: str) -> None:
    path, content, appends = KNOWN[code]
    assert planned_writes(code) == [PlannedWrite(path=path, content=content, appends=appends)]


@pytest.mark.parametrize("code", NOT_GUESSED)
def test_nothing_is_guessed_at(code: str) -> None:
    assert planned_writes(code) == []


def card(call: CodeAction | FileWrite, workspace: Path) -> str:
    request = ApprovalRequest(agent_id="agent-1", request_id=f"approval-{call}", call=call)
    console = make_console(io.StringIO())
    console.width = 200
    with console.capture() as capture:
        console.print(drawn_call(request, workspace))
    return "\n".join(line.rstrip() for line in capture.get().split("\n"))


def test_the_card_shows_a_diff_of_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("one\ntwo\n")
    (tmp_path / "large").write_bytes(b"x" * 100_000)
    (tmp_path / "folder").mkdir()
    code = 'Path("a.md").write_text("one\\n2\\n")\nopen("a.md", "a").write("3\\n")\nPath("new").write_text("n")\n'
    text = card(CodeAction(code=code), tmp_path)
    assert "± a.md\n@@ -1,2 +1,3 @@\n one\n-two\n+2\n+3\n" in text
    assert "± new, a new file\n@@ -0,0 +1 @@\n+n\n" in text
    code = "".join(
        f'Path("{name}").write_text({text})\n' for name, text in (("large", "'x'"), ("folder", "'x'"), ("b", "x()"))
    )
    text = card(CodeAction(code=f"{code}open('large', 'a').write('x')"), tmp_path)
    assert "± large: 2 bytes, which cannot be compared here" in text
    assert "± folder: 1 bytes, which cannot be compared here" in text
    assert "± b: its content is computed when the cell runs" in text


def test_nothing_on_the_card_pretends_to_be_another_line_or_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/hostname")
    code = r'Path("a\n+harmless").write_text("\x1b[8mh\u202ei\n")'
    text = card(CodeAction(code=f'{code}\nPath("link").write_text("x")'), tmp_path)
    assert "± a\\n+harmless, a new file\n@@ -0,0 +1 @@\n+\\x1b[8mh\\u202ei\n" in text
    assert "± link is a link to /etc/hostname\n" in text


def test_what_a_card_compares_is_bounded_for_all_its_files_together(tmp_path: Path) -> None:
    lines = "".join(f"{number}\n" for number in range(4000))
    code = "".join(f'Path("{name}").write_text({lines!r})\n' for name in "abcd")
    text = card(CodeAction(code=code), tmp_path)
    assert "± c, a new file\n" in text
    assert f"± d: {len(lines):,} bytes, which cannot be compared here" in text
    assert "± 101 writes, which are too many to be compared here" in card(
        CodeAction(code='Path("a").write_text("")\n' * 101), tmp_path
    )


def test_of_a_file_that_is_opened_the_card_says_what_stands_there(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("one")
    assert "it has 3 bytes now; the code opens it for writing, and what it writes is not known yet" in card(
        FileWrite(path="a.md"), tmp_path
    )
    assert card(FileWrite(path="b.md", operation="remove"), tmp_path).endswith("(it does not exist yet)\n")
