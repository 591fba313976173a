"""The program in a pseudo-terminal, with real kernels and a model behind HTTP."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import ChatCall, ChatReply, by_turn
from support.cli import PROGRAM, Chat, chat, environment, prompt_of, texts_of, turn_of
from support.terminal import CTRL_C, CTRL_D, ENTER, ESCAPE, Terminal
from support.waiting import is_running, until_there, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]

BUSY = "open('begun', 'w').close()\nsum(range(10**12))"  # a loop in C
Start = Callable[..., Terminal]


def cell(code: str) -> list[ChatCall]:
    return [ChatCall("execute_ipython_cell", {"code": code})]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Runs the program in a terminal; what is left of it at the end is killed."""
    with ExitStack() as opened:

        def start(server: Chat, *arguments: str, shell: str = "") -> Terminal:
            command = [PROGRAM, *arguments, *server.options]
            if shell:
                command = ["/bin/sh", "-c", shell, *command]
            return opened.enter_context(Terminal(command, cwd=tmp_path, env=environment()))

        yield start


def test_a_cell_is_shown_approved_and_run(start: Start) -> None:
    code = "name = 'north'\nprint(f'{name} has', 6 * 7)"
    titled = ChatCall("execute_ipython_cell", {"description": "Count the north", "code": code})
    with chat(by_turn(["I will look. ", titled], ["The answer is **42**."])) as server:
        terminal = start(server, "run", "how many?")
        terminal.answer("y", "asks to run this cell (Count the north)", "name = 'north'", "y yes · n no")
        assert terminal.wait_end() == 0
    shown = terminal.shown
    for words in (
        "> how many?",
        "I will look.",
        "● Python  Count the north\n  name = 'north'",
        "\n  north has 42",
        "The answer is 42.",
    ):
        assert words in shown
    assert re.search(r"\d+\.\d s · 2 turns · 32 tokens$", shown)
    assert "Approval" not in shown


@pytest.mark.parametrize("earlier", ["", "# Here\n\nRun make check.\n"])
def test_init_has_the_agent_propose_an_agents_file_that_the_person_sees_first(
    start: Start, tmp_path: Path, earlier: str
) -> None:
    file = tmp_path / "AGENTS.md"
    write = "open('AGENTS.md', 'w').write('# Here\\n\\nRun make test.\\n')"
    with chat(by_turn(cell(write), ["It names the tests."])) as server:
        if earlier:
            file.write_text(earlier)
        terminal = start(server, "--trust")
        terminal.wait_for("/help")
        terminal.enter("/init for Windows too")
        terminal.answer(
            "y", f"{'±' if earlier else '+'}AGENTS.md", "+Run make test.", *(["-Run make check."] if earlier else [])
        )
        terminal.wait_for("> /init for Windows too", "It names the tests.")
        assert "Propose an `AGENTS.md` for this folder" in server.read_by_model()
        assert "for Windows too" in server.read_by_model()
    assert "Run make test." in file.read_text()


def test_a_denial_and_its_reason_reach_the_model(start: Start) -> None:
    with chat(by_turn(cell("open('written', 'w')"), ["I did not."])) as server:
        terminal = start(server, "run", "write")
        terminal.answer("r", "asks to run this cell")
        terminal.wait_at_bottom("why not:")
        terminal.enter("not in this folder, please")
        assert terminal.wait_end() == 0
        assert "denied: not in this folder, please" in server.read_by_model()
    assert "● Python  open('written', 'w')\n  denied: not in this folder, please" in terminal.shown
    assert "I did not." in terminal.shown


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_the_program_and_all_that_it_started(start: Start, tmp_path: Path, times: int) -> None:
    with chat(by_turn(cell(BUSY), ["never"])) as server:
        terminal = start(server, "run", "loop", "--yes")
        terminal.wait_at_bottom("at work")
        wait_until((tmp_path / "begun").exists)
        started = [process.pid for process in terminal.descendants()]
        assert started
        terminal.press(CTRL_C * times)
        assert terminal.wait_end() == 130
        wait_until(lambda: not any(is_running(pid) for pid in started))
    if times == 1:
        assert "✗ cancelled" in terminal.shown


def test_ctrl_c_at_a_question(start: Start) -> None:
    with chat(by_turn(cell("1"), ["never"])) as server:
        terminal = start(server, "run", "ask")
        terminal.wait_at_bottom("Approval 1 of 1")
        terminal.press(CTRL_C)
        assert terminal.wait_end() == 130
    assert "✗ cancelled" in terminal.shown


def test_a_conversation_keeps_its_history_and_its_kernel(start: Start, tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> ChatReply:
        last = request["messages"][-1]
        if last["role"] == "tool":
            return ["The cell gave ", last["content"], "."]
        if "wait" in str(last["content"]):
            return cell(f"{until_there('go')}\n'went on'")
        return cell("x = 20 + 1; x" if "first" in str(last["content"]) else "x * 2")

    with chat(script) as server:
        terminal = start(server)
        terminal.wait_at_bottom("type a prompt")
        terminal.enter("the first")
        terminal.answer("a", "asks to run this cell")
        terminal.wait_for("The cell gave 21.")
        terminal.wait_at_bottom("type a prompt")
        terminal.enter("the second")
        terminal.wait_for("The cell gave 42.")
        terminal.wait_at_bottom("type a prompt")
        assert "the first" in server.read_by_model()
        terminal.enter("/agents")
        terminal.wait_for("time  tokens")
        terminal.enter("wait for me")
        terminal.wait_at_bottom("1 agent at work")
        terminal.wait_at_bottom("os.path.exists(")
        terminal.enter("and hurry")
        terminal.wait_at_bottom("queued: and hurry")
        terminal.press(ENTER)
        terminal.wait_for("to the agent: and hurry")
        (tmp_path / "go").touch()
        terminal.wait_at_bottom("type a prompt")
        assert any("and hurry" in str(request["messages"][-1]) for request in server.server.requests)
        terminal.enter("/exit")
        assert terminal.wait_end() == 0


def test_two_children_ask_at_once(start: Start) -> None:
    def script(request: dict[str, Any]) -> ChatReply:
        prompt = prompt_of(request)
        if turn_of(request):
            return [f"{prompt}: ", *texts_of(request)[-1:]]
        if prompt == "both":
            return [ChatCall("task", {"prompt": name, "description": f"the {name}"}) for name in ("north", "south")]
        return cell(f"print('in the {prompt}')")

    with chat(script) as server:
        terminal = start(server, "run", "both")
        terminal.answer("a", "Approval 1 of 2", "agent asks to start a child agent (the north)")
        terminal.answer("y", "Approval 1 of 2", "asks to run this cell")
        terminal.wait_for("  ✓ ")  # one child ends while the other one's question is open
        terminal.answer("y", "Approval 1 of 1", "asks to run this cell")
        assert terminal.wait_end() == 0
    shown = terminal.shown
    for name in ("north", "south"):
        assert f" the {name}  {name}: in the {name}" in shown
    assert re.search(r"\d s · 6 turns · ", shown)


def test_a_child_is_seen_at_work_told_something_and_cancelled_and_the_run_goes_on(start: Start, tmp_path: Path) -> None:
    waits = f"open('NAME', 'w').close()\n{until_there('go')}"

    def script(request: dict[str, Any]) -> ChatReply:
        prompt = prompt_of(request)
        if prompt == "both" and not turn_of(request):
            return [ChatCall("task", {"prompt": name, "description": f"the {name}"}) for name in ("north", "south")]
        if turn_of(request):
            return [f"{prompt}: ", *texts_of(request)[-1:]]
        return cell(waits.replace("NAME", prompt))

    with chat(script) as server:
        terminal = start(server, "run", "both", "--yes", "--verbose")
        terminal.wait_for("open('north'", "open('south'")
        wait_until(lambda: (tmp_path / "north").exists() and (tmp_path / "south").exists())
        ids = {name: agent_id for agent_id, name in re.findall(r"\b([0-9a-f]{4}) the (north|south)\b", terminal.shown)}
        terminal.enter("/agents")
        terminal.wait_for_match(rf"[├└] {ids['north']}  the north  running +run code: ")
        terminal.enter(f"/send {ids['south']} and hurry")
        terminal.wait_for(" the south: and hurry")
        terminal.enter(f"/focus agent-{ids['north']}")
        terminal.wait_at_bottom(f"Ctrl-C cancels {ids['north']} the north ·")
        terminal.press(CTRL_C)
        terminal.wait_for(" the north  cancelled")
        (tmp_path / "go").touch()
        assert terminal.wait_end() == 0
        assert any("and hurry" in str(request["messages"][-1]) for request in server.server.requests)
    assert re.search(r"✓ .... the south  south", terminal.shown)


@pytest.mark.parametrize("answer", ["y", "sure", "oki", "too risky", CTRL_D])
def test_a_person_is_asked_also_when_the_output_goes_into_a_pipe(start: Start, answer: str) -> None:
    with chat(by_turn(cell("print('ran', 6 * 7)"), ["done"])) as server:
        terminal = start(server, "run", "ask", shell='"$0" "$@" | cat')
        terminal.wait_for("Approval 1 of 1: ", "asks to run this cell\nprint('ran', 6 * 7)", "(y yes")
        terminal.press(answer if answer == CTRL_D else answer + "\r")
        if answer == "oki":
            terminal.wait_for("(deny with the reason 'oki'? y yes, n no)")
            terminal.press("n\r")
            terminal.press("ok\r")
        assert terminal.wait_end() == 0
    assert ("  ran 42" in terminal.shown) == (answer in ("y", "sure", "oki"))
    if answer == "too risky":
        assert "denied: too risky" in terminal.shown
    if answer == CTRL_D:
        assert "standard input was closed" in terminal.shown


def test_ctrl_c_where_the_terminal_itself_makes_a_signal_of_it(start: Start, tmp_path: Path) -> None:
    with chat(by_turn(cell(BUSY), ["never"])) as server:
        terminal = start(server, "run", "loop", "--yes", "--output", "plain")
        wait_until((tmp_path / "begun").exists)
        started = [process.pid for process in terminal.descendants()]
        terminal.press(CTRL_C)
        assert terminal.wait_end() == 130
        wait_until(lambda: not any(is_running(pid) for pid in started))
    assert "stopping; Ctrl-C again quits at once" in terminal.shown
    assert "ended (cancelled)" in terminal.shown


def test_without_a_terminal_to_answer_blocks_are_drawn_and_questions_denied(start: Start) -> None:
    with chat(by_turn(cell("1"), ["I was **denied**."])) as server:
        terminal = start(server, "run", "ask", shell='"$0" "$@" < /dev/null')
        assert terminal.wait_end() == 1
        assert "--yes" in server.read_by_model()
    assert "denied: nobody is there" in terminal.shown
    assert "\nI was denied." in terminal.shown


def test_escape_sequences_of_a_cell_do_not_reach_the_terminal(start: Start) -> None:
    code = r"print('\x1b]0;owned\x07\x1b[2J\x1b[1;1Hsafe\x1b[31mred\x1b[0m [/x]')"
    with chat(by_turn(cell(code), ["\x1b]0;owned\x07\x1b[2Jdone [/x]"])) as server:
        terminal = start(server, "run", "attack", "--yes")
        assert terminal.wait_end() == 0
    assert "\n  safered [/x]" in terminal.shown
    assert "\ndone [/x]" in terminal.shown
    assert "> attack" in terminal.shown  # nothing was erased
    assert "owned" not in terminal.screen.title


def test_much_output_does_not_stop_the_terminal(start: Start) -> None:
    code = "for number in range(5_000):\n    print('line', number, 'x' * 60)"
    with chat(by_turn(cell(code), ["It ", "ended."])) as server:
        terminal = start(server, "run", "flood", "--yes")
        assert terminal.wait_end() == 0
    assert "It ended." in terminal.shown
    shown = " ".join(terminal.shown.split())
    assert re.search(r"… [\d,]+ more lines \(ctrl-o, or \S+outputs/", shown), shown[-400:]
    assert "line 6 " in terminal.shown
    assert "line 7 " not in terminal.shown
    assert "line 4999 " in terminal.shown


def test_settings_in_the_workspace_are_shown_and_asked_about(start: Start, tmp_path: Path) -> None:
    (tmp_path / ".freeact").mkdir()
    rules = tmp_path / ".freeact" / "permissions.toml"
    rules.write_text("\n" * 500 + '# why\nallow = [ "code" ]')
    (tmp_path / "mcp.json").write_text(
        '{"mcpServers": {"evil": {"command": "no\\u202ewhere", "args": ["-x"], "disabled": true}}}'
    )
    with chat(by_turn(cell("print(6 * 7)"), ["Done."])) as server:
        for answer in ("n", CTRL_D, ESCAPE):
            terminal = start(server, "run", "how many?")
            terminal.wait_for(
                "permissions.toml", 'allow = ["code"]', 'mcpServers.evil.command = "no\\u202ewhere"', "y yes · n no:"
            )
            terminal.press(answer)
            assert terminal.wait_end() == 2
            assert "This workspace has new or changed settings" in " ".join(terminal.shown.split())
        assert not server.server.requests
        terminal = start(server, "run", "how many?")
        terminal.wait_for("y yes · n no:")
        terminal.press("y\r")
        assert terminal.wait_end() == 0
        assert "\n  42" in terminal.shown
        again = start(server, "run", "how many?")
        assert again.wait_end() == 0
        assert "y yes" not in again.shown


def test_settings_that_are_too_long_to_be_shown_are_not_asked_about(start: Start, tmp_path: Path) -> None:
    (tmp_path / ".freeact").mkdir()
    (tmp_path / ".freeact" / "config.toml").write_text(
        "[mcp_servers]\n" + "".join(f'[mcp_servers.s{n}]\ncommand = "x"\n' for n in range(700))
    )
    with chat(by_turn(["never"])) as server:
        terminal = start(server, "run", "hi")
        assert terminal.wait_end() == 2
    assert "more lines not shown, so these settings will not count" in terminal.shown


def test_texts_for_which_there_is_no_room_are_left_out_and_the_others_are_asked_about(start: Start, tmp_path: Path) -> None:
    for name, text in {"AGENTS.md": "Be brief.", "a/AGENTS.md": "long\n" * 700, "b/AGENTS.md": "Use tabs."}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with chat(by_turn(["Done."])) as server:
        terminal = start(server, "run", "hi")
        terminal.wait_for(
            "Be brief.", "Use tabs.", "702 more lines not shown, so 1 file that you have not seen will not count"
        )
        terminal.wait_for("y yes · n no:")  # keys that are typed before a question are no answer to it
        terminal.press("y\r")
        assert terminal.wait_end() == 0
        assert "Be brief." in server.read_by_model()
    assert "a/AGENTS.md:reviewthem" in "".join(terminal.shown.split())  # a long path is wrapped anywhere
    assert "b/AGENTS.md" not in terminal.shown.partition("not read")[2]


def test_a_command_that_a_person_types_is_run_by_the_rules_and_the_model_reads_it_with_the_next_prompt(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / ".freeact").mkdir()
    (tmp_path / ".freeact" / "permissions.toml").write_text('ask = ["shell:touch *"]\ndeny = ["shell:cp *"]\n')
    with chat(by_turn(["The model has answered."])) as server:
        terminal = start(server, "--trust")
        terminal.wait_at_bottom("type a prompt")
        terminal.enter("!touch made && echo north | tr a-z A-Z")
        terminal.wait_for("> !touch made", "\n  NORTH\n")  # asked about by a rule: it was answered by typing it
        terminal.wait_at_bottom("type a prompt")
        terminal.enter("!cp made copy")
        terminal.wait_for("denied: cp made copy")
        terminal.wait_at_bottom("type a prompt")
        assert not (tmp_path / "copy").exists()
        assert not server.server.requests
        terminal.enter("what is there?")
        terminal.wait_for("The model has answered.")
        assert "[The user has run this command in the workspace:]\\ntouch made" in server.read_by_model()
        assert "NORTH" in server.read_by_model()
        assert "The user has run" not in terminal.shown
