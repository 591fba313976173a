"""The conversation in a pseudo-terminal, with a scripted model and kernels without processes."""

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.terminal import CONVERSATION, CTRL_C, CTRL_D, CTRL_R, ENTER, READY, RIGHT, Terminal

ENVIRONMENT = {"PYDANTIC_AI_NO_BANNER": "1"}

Start = Callable[..., Terminal]

pytestmark = pytest.mark.e2e


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    opened: list[Terminal] = []

    def start(*arguments: str, rows: int = 40) -> Terminal:
        command = [sys.executable, str(CONVERSATION), *arguments]
        opened.append(Terminal(command, cwd=tmp_path, env=ENVIRONMENT, rows=rows))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.__exit__(None, None, None)


@pytest.fixture
def terminal(start: Start) -> Terminal:
    terminal = start()
    terminal.wait_at_bottom(READY)
    return terminal


def test_prompts_are_answered_in_one_history_until_the_person_leaves(terminal: Terminal) -> None:
    terminal.enter("count")
    terminal.wait_for("1 prompts, 0 answers")
    terminal.wait_at_bottom(READY)
    terminal.enter("count")
    terminal.wait_for("2 prompts, 1 answers")
    terminal.wait_at_bottom(READY)
    terminal.enter("/exit")
    assert terminal.wait_end() == 0
    assert READY not in terminal.shown


def test_a_person_asks_for_a_summary_and_what_fills_the_window(terminal: Terminal) -> None:
    terminal.enter("/compact")
    terminal.wait_for("The conversation is too short to be summarised.")
    terminal.wait_at_bottom(READY)
    terminal.enter("count")
    terminal.wait_for("1 prompts, 0 answers")
    terminal.wait_at_bottom(READY)
    terminal.enter("/context")
    terminal.wait_for("the size of the window is not known")
    terminal.wait_for_match(r"messages +\d")


def test_commands_and_an_idle_ctrl_c(terminal: Terminal) -> None:
    terminal.enter("/help")
    terminal.wait_for("/agents", "/cancel", "Alt-Enter")
    for typed, told in {
        "/nonsense": "unknown command /nonsense (/help lists them)",
        "/undoo": "unknown command /undoo: did you mean /undo?",
        "/co": "/co begins several commands: /compact, /context, /cost, /config, /copy",
        "/stat us": "unknown command /stat: did you mean /status?",
        "/": "unknown command / (/help lists them)",
    }.items():
        terminal.enter(typed)
        terminal.wait_at_bottom(told, f"> {typed}\n")
        terminal.press(CTRL_C)
        terminal.wait_gone(f"> {typed}")
    terminal.enter("/stat")  # the only one that begins so
    terminal.wait_for("session not kept")
    terminal.press("/co")
    terminal.wait_at_bottom("summarise the conversation now")
    terminal.press("\t\t\t")  # marks the third one
    terminal.wait_at_bottom("> /cost\n")
    terminal.press(ENTER)
    terminal.wait_for("all runs, children included: ")
    terminal.enter("/cancel")
    terminal.wait_for("no agent is at work")
    terminal.enter("/send agent-1")
    terminal.wait_for("name an agent and a message: /send NAME text")
    terminal.enter("/etc/hosts is a path")
    terminal.wait_for("echo: /etc/hosts is a path")
    terminal.wait_at_bottom(READY)
    terminal.press("half a li")
    terminal.wait_at_bottom("> half a li")
    terminal.press(CTRL_C)
    terminal.wait_gone("> half a li")
    terminal.press(CTRL_C)
    terminal.wait_for("Ctrl-D or /exit quits")
    terminal.press(CTRL_D)
    assert terminal.wait_end() == 0


@pytest.mark.parametrize("words", ["exit", "quit", "Exit()", ":q", "/quit"])
def test_the_words_of_other_programs_leave_too(terminal: Terminal, words: str) -> None:
    terminal.enter("count")
    terminal.wait_for("1 prompts")
    terminal.wait_at_bottom(READY)
    terminal.enter(words)
    assert terminal.wait_end() == 0
    assert "2 prompts" not in terminal.shown


def test_earlier_prompts_are_searched(terminal: Terminal) -> None:
    for prompt in ("say north", "say south", "count"):
        terminal.enter(prompt)
        terminal.wait_for(f"echo: {prompt}" if prompt != "count" else "3 prompts")
        terminal.wait_at_bottom(READY)
    terminal.press(CTRL_R)
    terminal.wait_at_bottom("I-search backward:")
    terminal.press("nor")
    terminal.wait_at_bottom("> say north")
    terminal.press(ENTER)
    terminal.wait_gone("I-search")
    terminal.press(" again")
    terminal.wait_at_bottom("> say north again")
    terminal.press(ENTER)
    terminal.wait_for("echo: say north again")
    terminal.wait_at_bottom(READY)
    terminal.press(CTRL_R)
    terminal.wait_at_bottom("I-search backward:")
    terminal.press(CTRL_C)  # gives up the search, and nothing else
    terminal.wait_gone("I-search")
    terminal.enter("count")
    terminal.wait_for("5 prompts")


def test_a_question_ends_a_search(terminal: Terminal, tmp_path: Path) -> None:
    terminal.enter("cell go")
    terminal.wait_at_bottom("1 agent at work")
    terminal.press(CTRL_R)
    terminal.wait_at_bottom("I-search backward:")
    (tmp_path / "go").touch()
    terminal.wait_at_bottom("Approval 1 of 1")
    terminal.wait_gone("I-search")
    terminal.answer("y")
    terminal.wait_for("● Python  print('the cell ran')", "after the cell")


def test_a_prompt_of_several_lines(terminal: Terminal) -> None:
    terminal.press("one\x1b\rtwo")
    terminal.wait_at_bottom("> one\n", "two")
    terminal.press(ENTER)
    terminal.wait_for("echo: one two")  # Markdown joins the lines


def test_two_children_ask_at_once_and_are_answered_one_by_one(terminal: Terminal) -> None:
    terminal.enter("children north south")
    terminal.answer("a", "Approval 1 of 2", "agent asks to start a child agent (north)")
    terminal.wait_at_bottom("y yes · n no · a this session · p this project", "A all 2 · → next")
    terminal.answer("y", "Approval 1 of 2", "north asks to run this cell")
    terminal.wait_at_bottom("Approval 1 of 1", "south asks to run this cell")
    terminal.wait_for(" north  north is done")  # while the other question is open
    terminal.answer("r", "south asks to run this cell")
    terminal.wait_at_bottom("why not:")
    terminal.enter("not in the south")
    terminal.wait_for("south  was denied Python  print('south was here'): not in the south")
    terminal.wait_for("south  south is done", "the children are done")
    terminal.wait_at_bottom(READY)
    assert terminal.shown.count("● Child") == 2
    terminal.enter("/agents")
    terminal.wait_for("turns   time  tokens")
    terminal.wait_for_match(r"^[0-9a-f]{4} +completed")
    terminal.wait_for_match(r"^├ [0-9a-f]{4}  north  completed +2 ")
    terminal.wait_for_match(r"^└ [0-9a-f]{4}  south  completed +2 ")


def test_two_children_ask_at_once_and_the_second_is_answered_first(terminal: Terminal) -> None:
    terminal.enter("children north south")
    terminal.answer("a", "Approval 1 of 2", "/2 agent: Child  south")
    terminal.answer("/", "north asks to run this cell", " south: Python  print('south was here')")
    terminal.press("2")
    terminal.wait_at_bottom("? /2")
    terminal.press(ENTER)
    terminal.answer("y", "Approval 2 of 2", "south asks to run this cell", "/1 ", " north: Python  print('north was here')")
    terminal.wait_for("south  south is done")  # while the other question is open
    terminal.answer("/", "Approval 1 of 1", "north asks to run this cell")
    terminal.enter("always shell:")
    terminal.wait_for("not a pattern: shell:")
    terminal.answer("I", "north asks to run this cell")
    terminal.enter(" do not want it")
    terminal.wait_at_bottom("deny with the reason 'I do not want it'? y yes · n no")
    terminal.answer("y")
    terminal.wait_for("north  was denied Python  print('north was here'): I do not want it", "the children are done")


def test_all_that_are_open_and_shown_are_answered_by_one_key_and_the_next_one_is_looked_at(terminal: Terminal) -> None:
    terminal.enter("children north south")
    terminal.answer("A", "Approval 1 of 2", "A all 2")
    terminal.answer(RIGHT, "north asks to run this cell", "Approval 1 of 2")
    terminal.answer("?", "Approval 2 of 2", "south asks to run this cell", " north: Python")
    terminal.wait_for("why it asks: ")
    terminal.answer("A", "south asks to run this cell")
    terminal.wait_for(" north  north is done", "south  south is done", "the children are done")


def test_code_is_changed_before_it_runs_and_the_model_reads_that(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    terminal.enter("cell go")
    terminal.answer("e", "asks to run this cell", "e edit")
    terminal.wait_at_bottom("run instead (Alt-Enter enters it): print('the cell ran')")
    terminal.press("; print('as', 'changed')")
    terminal.wait_at_bottom("; print('as', 'changed')")
    terminal.press("\x1b\r")
    terminal.wait_for("● Python  print('the cell ran'); print('as', 'changed')", "you changed the code", "as changed")
    terminal.wait_for("after the cell")
    terminal.wait_at_bottom(READY)
    terminal.enter("read")
    terminal.wait_for("the user changed it")


def test_the_keys_of_a_word_that_answers_go_nowhere(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    terminal.enter("cell go")
    terminal.answer("yes\r")
    terminal.wait_for("after the cell")
    terminal.wait_at_bottom(READY)
    terminal.enter("count")
    terminal.wait_for("2 prompts")


def test_a_question_that_is_withdrawn_takes_the_half_typed_answer_with_it(terminal: Terminal) -> None:
    terminal.enter("children north south")
    terminal.answer("a", "Approval 1 of 2")
    terminal.answer("/", "north asks to run this cell")
    terminal.enter("cancel north")
    terminal.wait_for("north  cancelled")
    terminal.answer("r", "Approval 1 of 1", "south asks to run this cell")
    terminal.wait_at_bottom("why not:")
    terminal.press("half a reason")
    terminal.wait_at_bottom("why not: half a reason")
    terminal.send_signal(signal.SIGINT)
    terminal.wait_for("✗ cancelled")
    terminal.wait_at_bottom(READY)
    terminal.wait_gone("half a reason")


def test_what_was_typed_before_a_question_is_no_answer_and_comes_back(terminal: Terminal, tmp_path: Path) -> None:
    terminal.enter("cell go")
    terminal.wait_at_bottom("1 agent at work")
    terminal.press("y and more")
    terminal.wait_at_bottom("> y and more")
    (tmp_path / "go").touch()
    terminal.wait_at_bottom("Approval 1 of 1", "asks to run this cell")
    terminal.wait_gone("y and more")
    terminal.answer(ENTER)  # an empty line is no answer
    terminal.answer("n")
    terminal.wait_for("● Python  print('the cell ran')", "  denied", "after the cell")
    terminal.wait_at_bottom("> y and more", READY)


def test_a_word_that_nobody_knows_is_asked_back(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    terminal.enter("cell go")
    terminal.answer("o", "Approval 1 of 1", "asks to run this cell")
    terminal.enter("ki")
    terminal.wait_at_bottom("deny with the reason 'oki'? y yes · n no")
    terminal.answer("n")
    terminal.wait_at_bottom("y yes · n no")
    terminal.answer("o")
    terminal.enter("k")
    terminal.wait_for("● Python  print('the cell ran')", "after the cell")


def test_text_that_is_being_written_is_shown_and_then_printed_once(terminal: Terminal, tmp_path: Path) -> None:
    terminal.enter("slow go")
    terminal.wait_at_bottom("the beginning of a text")
    assert "and its end" not in terminal.shown
    (tmp_path / "go").touch()
    terminal.wait_for("and its end")
    terminal.wait_ended(runs=1)
    assert terminal.shown.count("the beginning of a text") == 1


def test_ctrl_c_cancels_the_run_and_the_conversation_goes_on(terminal: Terminal) -> None:
    terminal.enter("silent")
    terminal.wait_at_bottom("1 agent at work")
    terminal.press(CTRL_C)
    terminal.wait_for("✗ cancelled")
    terminal.wait_at_bottom(READY)
    terminal.enter("still there?")
    terminal.wait_for("echo: ")
    terminal.wait_at_bottom(READY)
    terminal.press(CTRL_D)
    assert terminal.wait_end() == 0


def children_at_work(terminal: Terminal) -> None:
    """Starts two children that ask; the question of the second is shown first."""
    terminal.enter("children north south")
    terminal.answer("a", "Approval 1 of 2", "agent asks to start")
    terminal.answer(RIGHT, "north asks to run this cell", "Approval 1 of 2")
    terminal.answer("/", "south asks to run this cell", "Approval 2 of 2")
    terminal.press("\x7f")
    terminal.wait_gone("? /")


def command(terminal: Terminal, line: str) -> None:
    """Enter a command while a question is open."""
    terminal.answer("/", "asks to run this cell")
    terminal.enter(line)


def test_agents_at_work_are_listed_with_what_they_do_and_are_told_something(terminal: Terminal) -> None:
    children_at_work(terminal)
    command(terminal, "agents")
    terminal.wait_for("does", "waiting for appr")
    terminal.wait_for_match(r"├ [0-9a-f]{4}  north  running +waiting")
    terminal.wait_for_match(r"[0-9a-f]{4} +waiting +task: ")
    command(terminal, "send south look up")
    terminal.wait_for(" south: look up")
    command(terminal, "send zzz look up")
    terminal.wait_for("no agent zzz is at work (/agents lists them)")
    command(terminal, "send agent- look up")
    terminal.wait_for("agent- matches several agents: ", " south", "type the id of one")
    terminal.answer("y", "south asks to run this cell")
    terminal.wait_for(" south  echo: look up")
    command(terminal, "cancel south")
    terminal.wait_for(" south is not at work (completed)")


def test_ctrl_c_cancels_the_agent_in_focus_and_then_the_run(terminal: Terminal) -> None:
    children_at_work(terminal)
    command(terminal, "focus south")
    terminal.wait_at_bottom("Ctrl-C cancels ", " south ·")
    terminal.press(CTRL_C)
    terminal.wait_for("Ctrl-C again cancels the run", " south  cancelled")
    terminal.wait_at_bottom("Approval 1 of 1", "north asks to run this cell")
    assert " north  cancelled" not in terminal.shown
    terminal.press(CTRL_C)
    terminal.wait_for("north  cancelled")
    terminal.wait_at_bottom(READY)
    terminal.press(CTRL_D)
    assert terminal.wait_end() == 0


def test_the_focus_ends_with_its_agent_or_is_given_back(terminal: Terminal) -> None:
    children_at_work(terminal)
    command(terminal, "focus north")
    terminal.wait_for("Ctrl-C cancels ", " north first")
    command(terminal, "focus")
    terminal.wait_for("Ctrl-C cancels the run")
    command(terminal, "focus sou")
    terminal.wait_at_bottom("Ctrl-C cancels ", " south ·")
    terminal.answer("y", "south asks to run this cell")
    terminal.wait_for("south  south is done")
    terminal.wait_gone(" south ·")
    terminal.press(CTRL_C)
    terminal.wait_for("north  cancelled")
    terminal.wait_at_bottom(READY)


def test_leaving_while_an_agent_works_cancels_it(terminal: Terminal) -> None:
    terminal.enter("silent")
    terminal.wait_at_bottom("1 agent at work")
    terminal.enter("/exit")
    assert terminal.wait_end() == 0
    assert "✗ cancelled" in terminal.shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("working", [True, False])
def test_other_signals_end_the_conversation(terminal: Terminal, number: signal.Signals, working: bool) -> None:
    if working:
        terminal.enter("silent")
        terminal.wait_at_bottom("1 agent at work")
    terminal.send_signal(number)
    assert terminal.wait_end() == 130
    assert ("✗ cancelled" in terminal.shown) == working


def test_a_single_prompt_ends_by_itself_with_the_status_of_its_run(start: Start) -> None:
    terminal = start("hello")
    assert terminal.wait_end() == 0
    assert "echo: hello" in terminal.shown
    cancelled = start("silent")
    cancelled.wait_at_bottom("1 agent at work")
    cancelled.press(CTRL_C)
    assert cancelled.wait_end() == 130
    assert "✗ cancelled" in cancelled.shown


def test_a_terminal_that_does_not_know_all_characters(tmp_path: Path) -> None:
    command = [sys.executable, str(CONVERSATION), "Grüße"]
    with Terminal(command, cwd=tmp_path, env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"}) as terminal:
        assert terminal.wait_end() == 0
        assert "echo: Gr??e" in terminal.shown


def test_a_call_that_is_longer_than_the_screen_leaves_room_for_the_question(start: Start) -> None:
    terminal = start("children north south " + " ".join(f"x{index}" for index in range(30)), rows=20)
    terminal.wait_at_bottom("Approval 1 of 32", "asks to start a child agent (north)", "y yes")
    assert len(terminal.bottom.split("\n")) <= 20


def test_what_a_child_has_not_read_comes_back_to_the_line(terminal: Terminal) -> None:
    children_at_work(terminal)
    command(terminal, "send south nobody has read it")
    terminal.wait_for(" south: nobody has read it")
    command(terminal, "cancel south")
    terminal.wait_for(" south  cancelled", "south has not read what was sent to it last: it is in the line again")
    command(terminal, "send north somebody reads it")
    terminal.wait_for(" north: somebody reads it")
    terminal.answer("y", "north asks to run this cell")
    terminal.wait_for("the children are done")
    terminal.wait_at_bottom("> nobody has read it", READY)
    assert "> somebody reads it" not in terminal.bottom
