"""Sessions as a person uses them at the command line: go on, list, show, remove, prune."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.chat_server import ChatCall, ChatReply
from support.cli import Chat, chat, run, texts_of, turn_of

from freeact_sub.sessions import list_sessions

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]


def cell_then_number(request) -> ChatReply:
    """Run a cell first; then say how many prompts the conversation has."""
    if not turn_of(request):
        return [ChatCall("execute_ipython_cell", {"code": "print('six')"})]
    prompts = [message for message in request["messages"] if message["role"] == "user"]
    return [f"prompts: {len(prompts)}, cell: {texts_of(request)[0]}"]


@pytest.fixture
def model() -> Iterator[Chat]:
    with chat(cell_then_number) as server:
        yield server


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of a user who has no sessions."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_session_is_gone_on_with_listed_shown_and_removed(model: Chat, state: Path, tmp_path: Path) -> None:
    work, other = tmp_path / "work", tmp_path / "other"
    work.mkdir()
    other.mkdir()
    options = ("--output", "plain", "--yes", *model.options)
    assert "no session" in run("run", "x", "--continue", *options, cwd=work, check=1).stderr
    first = run("run", "count it", *options, cwd=work)
    assert "prompts: 1, cell: six" in first.stdout
    (session,) = list_sessions()
    second = run("run", "--continue", "and again", *options, cwd=work)
    assert "prompts: 2, cell: six" in second.stdout
    assert f"session {session.session_id} goes on" in second.stdout
    third = run("run", "and more", "--resume", session.session_id[:-1], *options, cwd=other)
    assert "prompts: 3, cell: six" in third.stdout
    assert len(list_sessions()) == 1
    listed = run("sessions", "list", cwd=work).stdout
    assert session.session_id in listed
    assert "count it" in listed
    assert "no sessions in" in run("sessions", "list", cwd=other).stdout
    assert session.session_id in run("sessions", "list", "--all", cwd=other).stdout
    shown = run("sessions", "show", session.session_id, cwd=other).stdout
    for text in ("count it", "print('six')", "six", "[prompt 2]", "and again", "[prompt 3]", "prompts: 3"):
        assert text in shown
    assert (
        "has no agent 'nobody'" in run("sessions", "show", session.session_id, "--agent", "nobody", cwd=work, check=1).stderr
    )
    page = work / "session.html"
    run("sessions", "export", session.session_id, "-o", str(page), cwd=other)
    assert "count it" in page.read_text(encoding="utf-8")
    assert "print('six')" in run("sessions", "export", session.session_id, "--to", "md", cwd=other).stdout
    assert run("sessions", "prune", cwd=work).stdout == "archived: none; removed: none\n"
    copy = run("sessions", "fork", session.session_id, cwd=other).stdout.strip()
    assert "prompts: 4, cell: six" in run("run", "--resume", copy, "and in the copy", *options, cwd=work).stdout
    run("sessions", "rm", copy, cwd=work)
    assert session.session_id in run("sessions", "rm", session.session_id, cwd=work).stdout
    assert list_sessions() == []
    assert "there is no session" in run("sessions", "rm", session.session_id, cwd=work, check=1).stderr


def test_a_new_session_knows_nothing_of_another(model: Chat, state: Path, tmp_path: Path) -> None:
    options = ("--output", "text", "--yes", *model.options)
    for _ in range(2):
        assert "prompts: 1" in run("run", "count it", *options, cwd=tmp_path).stdout
    assert len(list_sessions()) == 2


def test_a_state_folder_that_cannot_be_written_is_told_of_and_the_work_is_done(
    model: Chat, state: Path, tmp_path: Path
) -> None:
    state.write_text("no folder")
    done = run("run", "count it", "--output", "plain", "--yes", *model.options, cwd=tmp_path)
    assert "prompts: 1" in done.stdout
    assert done.stdout.count("is not kept") == 1
    assert os.path.isfile(state)
