"""What the card of a question says of a file, and of the code of a cell."""

import io
from pathlib import Path

import pytest

from freeact_sub.calls import CodeAction, FileWrite
from freeact_sub.events import ApprovalRequest
from freeact_sub.terminal.card import drawn_call
from freeact_sub.terminal.drawing.parts import make_console


def card(call: CodeAction | FileWrite, workspace: Path) -> str:
    request = ApprovalRequest(agent_id="agent-1", request_id="approval-1", call=call)
    console = make_console(io.StringIO())
    console.width = 200
    with console.capture() as capture:
        console.print(drawn_call(request, workspace))
    return capture.get()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (FileWrite(path="a.md"), "it has 3 bytes now; the code opens it for writing, and what it writes is not known yet"),
        (FileWrite(path="b.md", operation="create"), "it does not exist yet; the code creates it"),
        (FileWrite(path="b.md", operation="remove"), "(it does not exist yet)\n"),
    ],
)
def test_a_file_has_its_size_and_what_is_known_of_its_change(call: FileWrite, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("one")
    assert words in card(call, tmp_path)


def test_a_cell_is_its_code_and_nothing_is_guessed_about_it(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("one")
    code = 'Path("a.md").write_text("two")'
    assert card(CodeAction(code=code), tmp_path) == f"{code}\n"
