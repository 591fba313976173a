"""What keys and pastes do at the input line, in a pseudo-terminal: prompts that wait, modes, long pastes, going back."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from support.terminal import CONVERSATION, CTRL_C, ENTER, ESCAPE, READY, UP, Terminal

SHIFT_TAB = "\x1b[Z"

pytestmark = pytest.mark.e2e


def test_prompts_wait_are_taken_back_sent_at_once_and_come_back_with_a_cancel(terminal: Terminal, tmp_path: Path) -> None:
    terminal.enter("slow go")
    terminal.wait_at_bottom("1 agent at work", "the beginning of a text")
    for prompt in ("north", "south", "west", "east"):
        terminal.enter(prompt)
        terminal.wait_at_bottom(f"queued: {prompt}")
    terminal.wait_at_bottom("… 1 more queued", "↑ takes the last one back")
    terminal.press(UP)
    terminal.wait_at_bottom("> east", "queued: north", "queued: south", "queued: west")
    terminal.press(CTRL_C)
    terminal.wait_for("✗ cancelled")
    terminal.wait_at_bottom("> north\n", "south", "west", "east", READY)
    terminal.press(ESCAPE + ENTER + "and all" + ENTER)
    terminal.wait_for("echo: north south west east and all")
    terminal.wait_at_bottom(READY)
    terminal.enter("cell go")
    terminal.wait_at_bottom("1 agent at work")
    terminal.enter("look up")
    terminal.wait_at_bottom("queued: look up")
    terminal.press(ENTER)
    terminal.wait_for("to the agent: look up")
    (tmp_path / "go").touch()
    terminal.answer("y", "asks to run this cell")
    terminal.wait_for("echo: look up")


def test_what_waits_is_the_next_prompt(terminal: Terminal, tmp_path: Path) -> None:
    terminal.enter("slow go")
    terminal.wait_at_bottom("the beginning of a text")
    for modes in ("auto", "plan", "ask"):
        terminal.press(SHIFT_TAB)
        terminal.wait_until(lambda modes=modes: re.search(rf"  {modes}$", terminal.bottom) is not None, modes)
    terminal.enter("count")
    terminal.wait_at_bottom("queued: count")
    (tmp_path / "go").touch()
    terminal.wait_for("2 prompts, 1 answers")
    terminal.wait_gone("queued: count")


def test_another_mode_counts_at_once_and_the_conversation_goes_on(terminal: Terminal) -> None:
    terminal.enter("be here")
    terminal.answer("a", "asks to run this cell")
    terminal.wait_for("here is done")
    terminal.wait_at_bottom(READY)
    terminal.press(SHIFT_TAB)
    terminal.wait_at_bottom("mode auto: runs without asking, behind a wall")
    terminal.press(SHIFT_TAB)
    terminal.wait_at_bottom("mode plan: ")
    terminal.press(SHIFT_TAB)
    terminal.wait_at_bottom("mode ask: asks before anything that matters")
    terminal.enter("/mode ask")
    terminal.wait_at_bottom("mode ask: asks before anything that matters, but code runs unasked (this session) · unchanged")
    terminal.enter("/mode nonsense")
    terminal.wait_for("unknown mode 'nonsense': plan, ask, auto, full")
    terminal.enter("/mode full")
    terminal.wait_at_bottom("mode full: runs without asking, with no wall")
    terminal.enter("count")
    terminal.wait_for("echo: [Your kernel is new")
    terminal.wait_at_bottom(READY)
    terminal.enter("be there")  # runs a cell
    terminal.wait_for("● Python  print('there was here')", "there is done")
    terminal.wait_at_bottom(READY)
    assert "Approval" not in terminal.shown
    terminal.enter("/mode")
    terminal.wait_at_bottom("4 of 4", "> full  now · runs without asking")
    terminal.press("ask" + ENTER)
    terminal.wait_at_bottom("mode ask: asks before anything that matters", READY)
    terminal.enter("count")
    terminal.wait_for_match(r"(?s)echo: .Your kernel is new.*echo: .Your kernel is new")
    terminal.wait_at_bottom(READY)
    terminal.enter("be back")
    terminal.wait_for("back is done")  # what was answered by `a` still counts
    terminal.wait_at_bottom(READY)
    terminal.enter("/rewind 5")  # also what was said in the modes before
    terminal.wait_for("undone: be here\nundone: count\nundone: be there\nundone: count\nundone: be back")


def test_a_long_paste_is_folded_goes_along_whole_and_a_picture_that_is_dragged_is_named(
    terminal: Terminal, tmp_path: Path
) -> None:
    picture = tmp_path / "a picture.png"
    picture.touch()
    terminal.press(f"\x1b[200~'{picture}' \x1b[201~")
    terminal.wait_at_bottom('a picture.png"')
    terminal.press(CTRL_C)
    terminal.wait_gone('a picture.png"')
    (tmp_path / "secret").write_text("what nobody has named")
    terminal.press("sum \x1b[200~" + "\n".join(f"row{number}" for number in range(499)) + "\n@secret\n\x1b[201~")
    terminal.wait_at_bottom("> sum [500 lines]")
    terminal.press(" now\\" + ENTER)
    terminal.wait_at_bottom("> sum [500 lines] now\n")
    terminal.press("please" + ENTER)
    terminal.wait_for_match(r"@secret\s+now\s+please")
    terminal.wait_at_bottom(READY)
    assert "what nobody has named" not in terminal.shown
    terminal.press("/compakt \x1b[200~" + "keep this\n" * 20 + "\x1b[201~" + ENTER)
    terminal.wait_at_bottom("did you mean /compact?", "> /compakt [20 lines]\n")  # as it was typed


def test_escape_twice_goes_back_to_a_prompt_whose_text_is_there_to_be_changed(terminal: Terminal, tmp_path: Path) -> None:
    terminal.press(ESCAPE + ESCAPE)
    terminal.wait_at_bottom("no prompt to go back to")
    for prompt in ("say north", "say south"):
        terminal.enter(prompt)
        terminal.wait_for(f"echo: {prompt}")
        terminal.wait_at_bottom(READY)
        (tmp_path / prompt.replace(" ", "-")).touch()
    terminal.press(ESCAPE + ESCAPE)
    terminal.wait_at_bottom("> /rewind", " 1 ", "say south  files say-south · variables")
    terminal.wait_at_bottom(" 2 ", "say north  files say-north, say-south · variables")
    terminal.press("2")
    terminal.wait_at_bottom("> /rewind 2")
    terminal.press(ENTER)
    terminal.wait_for("undone: say north\nundone: say south")
    terminal.wait_at_bottom("> say north", READY)
    terminal.press(" again" + ENTER)
    terminal.wait_for("echo: say north again")


def test_a_long_prompt_goes_on_below_its_text(terminal: Terminal) -> None:
    terminal.press("say " + "x" * 100)
    terminal.wait_at_bottom(f"> say {'x' * 94}\n  xxxxxx\n")
    terminal.press(ESCAPE + ENTER + "y")
    terminal.wait_at_bottom("\n  xxxxxx\n  y\n")


def test_a_prompt_is_edited_in_the_persons_editor(tmp_path: Path) -> None:
    adds = "import sys; open(sys.argv[1], 'a').write(' and more\\n')"
    environment = {"PYDANTIC_AI_NO_BANNER": "1", "VISUAL": shlex.join([sys.executable, "-c", adds])}
    with Terminal([sys.executable, str(CONVERSATION)], cwd=tmp_path, env=environment) as terminal:
        terminal.wait_at_bottom(READY)
        terminal.press("say it")
        terminal.wait_at_bottom("> say it")
        terminal.press("\x07")
        terminal.wait_at_bottom("> say it and more\n")
        terminal.press("\x18\x05")
        terminal.wait_at_bottom("> say it and more and more\n")
        terminal.press(ENTER)
        terminal.wait_for("echo: say it and more and more")


@pytest.mark.parametrize(
    "editor", ["/no/such", shlex.join([sys.executable, "-c", "open('begun', 'w'); raise SystemExit(1)"])]
)
def test_a_prompt_stays_as_it_was_if_the_editor_fails(tmp_path: Path, editor: str) -> None:
    environment = {"PYDANTIC_AI_NO_BANNER": "1", "VISUAL": editor}
    with Terminal([sys.executable, str(CONVERSATION)], cwd=tmp_path, env=environment) as terminal:
        terminal.wait_at_bottom(READY)
        terminal.press("say it")
        terminal.wait_at_bottom("> say it")
        terminal.press("\x07")
        terminal.wait_for("the text is as it was: the editor ($VISUAL, $EDITOR) did not start, failed, or left no")
        terminal.wait_at_bottom("> say it\n")
        assert (tmp_path / "begun").exists() == (editor != "/no/such")


def test_the_line_has_the_keys_of_vi_where_the_settings_say_so(tmp_path: Path) -> None:
    environment = {"PYDANTIC_AI_NO_BANNER": "1", "LINE_KEYS": "vi"}
    with Terminal([sys.executable, str(CONVERSATION)], cwd=tmp_path, env=environment) as terminal:
        terminal.wait_at_bottom(READY)
        terminal.press("now be here")
        terminal.wait_at_bottom("> now be here")
        terminal.press(ESCAPE)
        terminal.wait_at_bottom("[nav] > now be here")
        terminal.press("0dw")
        terminal.wait_at_bottom("[nav] > be here")
        terminal.press(ENTER)
        terminal.reply("r", "asks to run this cell")
        terminal.wait_at_bottom("why not:")
        terminal.press(ESCAPE)
        terminal.wait_at_bottom("[nav] why not:")
        terminal.press(ESCAPE)
        terminal.wait_gone("why not:")
        terminal.answer("y", "asks to run this cell")  # a key answers
        terminal.wait_for("here is done")
        terminal.wait_at_bottom(READY)
        terminal.press("/co")  # and the line is written again
        terminal.wait_at_bottom("> /co\n", "summarise the conversation now")
        terminal.press(ESCAPE)
        terminal.wait_at_bottom("[nav] > /co\n")
        assert "summarise the conversation now" not in terminal.bottom
        terminal.press("ddi")
        terminal.enter("silent")
        terminal.wait_at_bottom("1 agent at work")
        terminal.press(ESCAPE)
        terminal.wait_at_bottom("[nav] >", "1 agent at work")
        terminal.press(ESCAPE)
        terminal.wait_for("✗ cancelled")
