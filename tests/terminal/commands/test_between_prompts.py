"""Commands that take their turn among the prompts, in a pseudo-terminal."""

import os
import re
from pathlib import Path

import pytest
from support.terminal import ENTER, ESCAPE, READY, Terminal

pytestmark = pytest.mark.e2e


def test_prompts_are_undone_and_done_again(terminal: Terminal, tmp_path: Path) -> None:
    terminal.enter("/undo")
    terminal.wait_for("1 prompt cannot be undone: at most 0 can")
    terminal.enter("count")
    terminal.wait_for("1 prompts, 0 answers")
    terminal.wait_at_bottom(READY)
    (tmp_path / "file").write_text("made since")
    terminal.enter("/undo")
    terminal.wait_for("undone: count", "files: file")
    assert not (tmp_path / "file").exists()
    terminal.enter("/redo")
    terminal.wait_for("restored: count")
    assert (tmp_path / "file").read_text() == "made since"
    terminal.enter("count")
    terminal.wait_for("2 prompts, 1 answers")
    terminal.wait_at_bottom(READY)
    terminal.enter("/rewind 3")
    terminal.wait_for("3 prompts cannot be undone: at most 2 can")
    (tmp_path / "file").write_text("of now")
    terminal.enter("/rewind 1 --fork")
    terminal.wait_for_match(r"(?s)without its last 1 prompt, in a copy of this folder.*/resume \S+ continues")
    new = re.findall(r"/resume (\S+) continues", terminal.shown)[-1]
    terminal.wait_at_bottom(READY)
    terminal.enter("/rewind all")
    terminal.wait_for("give a number of prompts")
    terminal.enter("/rewind 2")
    terminal.wait_for("undone: count\nundone: count")
    terminal.wait_at_bottom("> count", READY)
    terminal.press(ENTER)
    terminal.wait_for_match(r"1 prompts, 0 answers(.|\n)+1 prompts, 0 answers")
    terminal.wait_at_bottom(READY)
    assert (tmp_path / "file").exists() is False
    terminal.enter(f"/resume {new}")
    terminal.wait_for(f"resumed {new}; /resume ")
    terminal.wait_at_bottom(READY)
    terminal.enter("count")
    terminal.wait_for(f"session {new} goes on", "2 prompts, 1 answers")
    (file,) = Path(os.environ["XDG_STATE_HOME"]).glob(f"freeact/workspaces/{new}/*/file")
    assert file.read_text() == "made since"


def test_what_went_along_with_a_prompt_is_no_part_of_what_is_undone_for_a_person(terminal: Terminal) -> None:
    pasted = "\n".join(f"pasted line {number}" for number in range(12))
    terminal.press(f"count \x1b[200~{pasted}\x1b[201~")
    terminal.wait_at_bottom("> count [12 lines]")
    terminal.press(ENTER)
    terminal.wait_for("1 prompts, 0 answers")
    terminal.wait_at_bottom(READY)
    terminal.press("/rewind ")
    terminal.wait_at_bottom("1", "count [12 lines]  no file")
    terminal.press("1" + ENTER)
    terminal.wait_for("undone: count [12 lines]\n")
    terminal.wait_at_bottom("> count [12 lines]")
    terminal.press(ENTER)
    terminal.wait_for_match(r"1 prompts, 0 answers(.|\n)+1 prompts, 0 answers")
    assert "pasted line" not in terminal.shown


def test_escape_cancels_the_run_and_the_conversation_goes_on(terminal: Terminal) -> None:
    terminal.enter("silent")
    terminal.wait_at_bottom("1 agent at work")
    terminal.press(ESCAPE)
    terminal.wait_for("✗ cancelled")
    terminal.wait_at_bottom(READY)
    terminal.enter("count")
    terminal.wait_for("2 prompts, ")
    terminal.wait_at_bottom(READY)
    terminal.enter("/exit")
    assert terminal.wait_end() == 0


def test_a_conversation_that_cannot_be_reopened_goes_on_with_the_next_prompt(terminal: Terminal, tmp_path: Path) -> None:
    terminal.enter("count")
    terminal.wait_for("1 prompts, 0 answers")
    terminal.wait_at_bottom(READY)
    (tmp_path / "broken").touch()
    terminal.enter("/model test")
    terminal.enter("count")
    closed = "the conversation is closed, and the next prompt opens it again: the disk is gone"
    terminal.wait_for(closed)
    terminal.wait_at_bottom("> count", READY)
    terminal.press(ENTER)
    terminal.wait_for_match(rf"{closed}(.|\n)+{closed}")
    terminal.wait_at_bottom("> count", READY)
    (tmp_path / "broken").unlink()
    terminal.press(ENTER)
    terminal.wait_for("goes on: 2 messages of 1 agent", "echo: [Your kernel is new")
    terminal.wait_at_bottom(READY)


def test_a_new_conversation_is_begun_and_the_one_before_is_gone_on_with(terminal: Terminal) -> None:
    terminal.enter("/resume")
    terminal.wait_at_bottom("no session to resume")
    terminal.press(ESCAPE)
    terminal.wait_at_bottom(READY)
    terminal.enter("count")
    terminal.wait_for("1 prompts, 0 answers")
    terminal.wait_at_bottom(READY)
    terminal.enter("!echo north")
    terminal.wait_for_match(r"^> !echo north\n  ")  # the command stands there once, and costs nothing
    terminal.wait_at_bottom(READY)
    terminal.enter("/new")
    terminal.wait_for("a new conversation; /resume ")
    terminal.wait_at_bottom(READY)
    first = re.findall(r"conversation; /resume (\S+)", terminal.shown)[0]
    terminal.enter("say north")
    terminal.wait_for("echo: say north")
    terminal.wait_at_bottom(READY)
    assert "The user has run" not in terminal.shown  # that was in the other conversation
    terminal.enter("/resume no such")
    terminal.wait_for("there is no session 'no such'")
    terminal.enter("/resume")
    terminal.wait_at_bottom("this folder", "> count", "1 of 1")
    terminal.press(ESCAPE)
    terminal.wait_at_bottom(READY)
    terminal.enter(f"/resume {first}")
    terminal.wait_for(f"resumed {first}; /resume ")
    terminal.wait_at_bottom(READY)
    terminal.enter(f"/resume {first}")
    terminal.wait_for(f"{first} is this conversation")
    terminal.enter("/fork")
    terminal.wait_for("is a copy of this conversation")
    terminal.wait_at_bottom(READY)
    terminal.enter("and now?")
    terminal.wait_for(f"session {first} goes on: 2 messages", "and now?")
    terminal.wait_at_bottom(READY)
    terminal.enter("/exit")
    assert terminal.wait_end() == 0


def test_a_person_looks_at_what_there_is(terminal: Terminal, tmp_path: Path) -> None:
    terminal.enter("/diff")
    terminal.wait_for("nothing to compare yet: no prompt has run, or its files are not kept")
    terminal.enter("count")
    terminal.wait_for("1 prompts, 0 answers")
    terminal.wait_at_bottom(READY)
    terminal.enter("/diff")
    terminal.wait_for("no file has changed since the last prompt")
    (tmp_path / "made.txt").write_text("a line\n")
    terminal.enter("/diff")
    terminal.wait_for("+++ b/made.txt", "+a line")
    terminal.enter("/diff 2")
    terminal.wait_for("2 prompts cannot be shown: at most 1 can")
    terminal.enter("/permissions sudo ls")
    terminal.wait_for_match(r"^(ask|deny): ")
    terminal.enter("/tools")
    terminal.wait_for_match(r"^execute_ipython_cell  \w+")
    terminal.enter("/mode plan")
    terminal.enter("/config")
    terminal.wait_for('mode = "plan"', "All others have their defaults.")
    terminal.enter("/trust")
    terminal.wait_for("you have seen all settings of this workspace")
    (tmp_path / "AGENTS.md").write_text("Be brief.")
    terminal.enter("/trust")
    terminal.wait_for("the next start asks about them", "AGENTS.md")
    terminal.enter("/export xml")
    terminal.wait_for("unknown format 'xml': html, ipynb, md, jsonl")
    terminal.enter("/export md talk.md")
    terminal.wait_for("written: ")
    assert "1 prompts, 0 answers" in (tmp_path / "talk.md").read_text()
    terminal.enter("/export md talk.md")
    terminal.wait_for("talk.md exists")
