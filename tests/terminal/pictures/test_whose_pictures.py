"""Pictures that are drawn are those of the event, whatever happens while its files are compared."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from support.sample_events import CHILD, ROOT

from freeact_sub.config.schema import Config
from freeact_sub.events import AgentStarted, CodeExecutionOutput, ToolOutput
from freeact_sub.terminal.display import Display
from freeact_sub.terminal.present import Present


async def test_a_cell_of_a_child_that_ends_meanwhile_draws_nothing() -> None:
    drawn: list[Path] = []

    async def draws(file: Path, *_: Any) -> None:
        drawn.append(file)

    async def compared() -> dict[str, None]:
        display.show(CodeExecutionOutput(**CHILD, text="", status="ok", picture_files=("of-a-child.png",)))
        return {}

    with create_pipe_input() as source, create_app_session(input=source, output=DummyOutput()):
        present = Present(config=Config(), once=False)
        keyboard: Any = Mock(actions=())
        display = Display(present, verbose=False, keyboard=keyboard, other_program=Mock())
        display._pictures = Mock(drawn=draws)  # noqa: SLF001  # no terminal here shows pictures
        display.show(AgentStarted(**ROOT, prompt="go"))
        display.show(AgentStarted(**CHILD, prompt="look"))
        present.agent, present.run = Mock(line_changes=compared), Mock(files_written=("report.md",))
        present.agent.context.return_value = Mock(tokens=0, window_tokens=0)
        event = ToolOutput(**ROOT, tool_call_id="call-1", tool_name="execute_ipython_cell", content="")
        display.show(event)
        await display.draw_files(event)
    assert drawn == []
