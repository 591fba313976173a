"""The menu of commands, and the prompts of earlier conversations, in a pseudo-terminal."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.sample_events import CHILD, ROOT, USAGE
from support.terminal import CONVERSATION, CTRL_D, ENTER, READY, Terminal

from freeact_sub.events import AgentFinished, AgentStarted, Event
from freeact_sub.show.agent_story import Stories
from freeact_sub.terminal.slash_commands import offers

pytestmark = pytest.mark.e2e


def start(folder: Path) -> Terminal:
    return Terminal([sys.executable, str(CONVERSATION)], cwd=folder, env={"PYDANTIC_AI_NO_BANNER": "1"})


def test_commands_are_offered_and_completed_and_prompts_of_earlier_sessions_are_there(tmp_path: Path) -> None:
    with start(tmp_path) as terminal:
        terminal.wait_at_bottom(READY)
        terminal.wait_for("freeact-sub ", "mode    ask: asks before anything that matters")
        terminal.press("/cos")
        terminal.wait_at_bottom("show what was spent")
        terminal.press("\t")
        terminal.wait_at_bottom("> /cost")
        terminal.press(ENTER)
        terminal.wait_for("all runs, children included: ")
        terminal.enter("say north")
        terminal.wait_for("echo: say north")
        terminal.wait_at_bottom(READY)
        terminal.press(CTRL_D)
        assert terminal.wait_end() == 0
    with start(tmp_path) as again:
        again.wait_at_bottom(READY)
        again.press("\x1b[A")
        again.wait_at_bottom("> say north")


@pytest.mark.parametrize("command", ["/cancel", "/focus", "/send", "/show"])
def test_commands_that_name_an_agent_offer_the_short_ids_of_those_they_can_name(command: str) -> None:
    views = Stories()
    ended: list[Event] = [AgentStarted(agent_id="agent-cccc2222", parent_id="agent-aaaa0000", depth=1, prompt="over")]
    ended.append(AgentFinished(agent_id="agent-cccc2222", status="completed", usage=USAGE, tree_usage=USAGE))
    for event in [AgentStarted(**ROOT, prompt="go"), *ended, AgentStarted(**CHILD, prompt="look north\nand south")]:
        views.observe(event)
    person: Any = SimpleNamespace(display=SimpleNamespace(views=views))
    offered = dict(offers(person, f"{command} "))
    assert offered[f"{command} bbbb"] == "look north: waiting for the model"
    assert (f"{command} cccc" in offered) is (command == "/show")
    assert [*offers(person, f"{command} b")] == [(f"{command} bbbb", "look north: waiting for the model")]
