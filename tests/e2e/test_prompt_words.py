"""Where a prompt may stand on the command line, and which files of the workspace go along with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.chat_server import by_turn
from support.cli import Chat, chat, run

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]


@pytest.fixture
def server() -> Iterator[Chat]:
    with chat(by_turn(["It is 42."])) as server:
        yield server


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (["multiply, please", "--output", "text"], ""),
        (["--yes", "-p", "multiply"], ""),
        (["run", "--print", "multiply", "--quiet"], ""),
        (["-p", "--quiet"], "multiply"),
        ([], "multiply, please"),
        (["--quiet"], "multiply"),
        (["--quiet", "run"], "multiply"),
        (["--output", "text", "multiply, please"], ""),
    ],
)
def test_a_prompt_stands_where_other_programs_have_it(
    server: Chat, tmp_path: Path, arguments: list[str], stdin: str
) -> None:
    done = run(*arguments, "--mode", "auto", *server.options, cwd=tmp_path, stdin=stdin)
    is_quiet = bool({"--quiet", "text"} & set(arguments))
    assert done.stdout == "It is 42.\n"
    assert ("says: It is 42." in done.stderr) == (not is_quiet)


def test_instructions_of_the_workspace_are_read_once_somebody_vouches_for_them(server: Chat, tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Always answer in verse.")
    done = run("-p", "multiply", "--mode", "auto", *server.options, cwd=tmp_path)
    assert "note: not read" in done.stderr
    assert "AGENTS.md" in done.stderr
    assert "in verse" not in server.read_by_model()
    done = run("-p", "multiply", "--mode", "auto", "--trust", *server.options, cwd=tmp_path)
    assert "not read" not in done.stderr
    assert "Instructions of this project, AGENTS.md:\\nAlways answer in verse." in server.read_by_model()
