"""`docs/agents.md`: each of its Python programs runs as it stands, with a model that does what the prompt says."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import ChatCall, ChatReply
from support.cli import Chat, chat, texts_of
from support.programs import code_blocks, run_python

PROGRAMS = [block for block in code_blocks("python", "docs/agents.md") if "asyncio.run(" in block]
FILES = {"a.txt": "apples", "b.txt": "bananas", "c.txt": "cherries"}

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]


def reader(request: dict[str, Any]) -> ChatReply:
    """Reads the file that the newest prompt names, or lists the files, and says what came out."""
    prompt = next(str(message["content"]) for message in reversed(request["messages"]) if message["role"] == "user")
    if request["messages"][-1]["role"] == "tool":
        return [str(texts_of(request)[-1])]
    named = re.search(r"Summarise (\S+\.txt)", prompt)
    code = f"print(open({named[1]!r}).read())" if named else "import glob; print(*sorted(glob.glob('*.txt')), sep='\\n')"
    return [ChatCall("execute_ipython_cell", {"code": code})]


@pytest.fixture
def model() -> Iterator[Chat]:
    with chat(reader) as server:
        yield server


def ran(block: str, model: Chat, folder: Path) -> str:
    for name, content in FILES.items():
        (folder / name).write_text(content, encoding="utf-8")
    (folder / "program.py").write_text(block, encoding="utf-8")
    env = {"FREEACT_MODEL": "openai-chat:scripted", "FREEACT_BASE_URL": model.server.base_url}
    done = run_python("program.py", cwd=folder, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def block_with(words: str) -> str:
    [block] = [block for block in PROGRAMS if words in block]
    return block


def test_there_is_a_test_for_each() -> None:
    assert len(PROGRAMS) == 5


def test_the_first_example_does_its_work(model: Chat, tmp_path: Path) -> None:
    first, *others = ran(PROGRAMS[0], model, tmp_path).splitlines()
    assert first == "completed apples"
    assert ["bananas" in others[0], "cherries" in others[1]] == [True, True]


def test_a_program_that_answers_questions(model: Chat, tmp_path: Path) -> None:
    output = ran(block_with("run_program"), model, tmp_path)
    assert all(content in output for content in FILES.values())


def test_a_factory(model: Chat, tmp_path: Path) -> None:
    assert ran(block_with("class Factory"), model, tmp_path) == "nothing is known of walls\n"


def test_callbacks(model: Chat, tmp_path: Path) -> None:
    output = ran(block_with("Callbacks("), model, tmp_path)
    assert "apples" in output
    assert output.endswith("completed\n")


def test_a_conversation_that_goes_on(model: Chat, tmp_path: Path) -> None:
    block = block_with("history=history")
    assert ran(block, model, tmp_path) == "apples\n"
    assert "Your kernel is new" not in model.read_by_model()
    assert ran(block, model, tmp_path) == "apples\n"
    assert (
        model.read_by_model().count("Your kernel is new: the variables and imports of the conversation so far are gone") == 1
    )
    assert model.read_by_model().count("Summarise a.txt") >= 2
