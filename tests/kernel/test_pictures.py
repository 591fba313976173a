"""Pictures that cells display: saved as files whose paths are told, and what the model is told of who sees them."""

import base64
import json
from pathlib import Path

import pytest
from support.agents import cell, of_kind, read

from freeact_sub import Agent, Config
from freeact_sub.events import CodeExecutionOutput
from freeact_sub.notebook import display_run
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.wording import picture_notes
from freeact_sub.terminal.asking import Approver
from freeact_sub.terminal.plain_lines import PlainLines
from freeact_sub.terminal.run_once import run_once
from freeact_sub.testing import FakeKernelProvider, ScriptedModel

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CODE = f"""
from IPython.display import display
display({{"image/png": "{PIXEL}", "text/plain": "<figure>"}}, raw=True)
display({{"text/html": "<table/>", "text/plain": "table"}}, raw=True)
shown = display({{"image/svg+xml": "<svg>first</svg>"}}, raw=True, display_id="svg")
shown.update({{"image/svg+xml": "<svg>last</svg>"}}, raw=True)
display({{"image/jpeg": "not base64!", "text/plain": "x"}}, raw=True)
"""


async def pictures_of(workspace, code=CODE):
    async with Agent(Config(workspace=workspace, mode="full"), model=ScriptedModel([[cell(code)], "done"])) as agent:
        events, _ = await read(agent.run("x"))
    [end] = of_kind(events, CodeExecutionOutput)
    return events, end


@pytest.mark.kernel
async def test_each_picture_of_a_cell_is_saved_and_its_path_is_told(tmp_path):
    events, end = await pictures_of(tmp_path)
    png, svg = map(Path, end.picture_files)
    assert png.parent == svg.parent == tmp_path / ".freeact" / "outputs" / end.agent_id
    assert (png.suffix, svg.suffix) == (".png", ".svg")
    assert png.read_bytes() == base64.b64decode(PIXEL)
    assert svg.read_text() == "<svg>last</svg>"
    assert json.loads(end.to_json())["picture_files"] == [str(png), str(svg)]
    assert picture_notes(end) == [f"picture: {png}", f"picture: {svg}"]
    views = Stories()
    lines = PlainLines(views)
    text = ""
    for event in events:
        views.observe(event)
        text += lines.write(event)
    assert f"picture: {png}" in text
    assert f"picture: {svg}" in text


@pytest.mark.kernel
async def test_no_picture_is_written_through_a_link_and_a_cell_without_one_makes_no_file(tmp_path, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    _, end = await pictures_of(tmp_path, "1")
    assert end.picture_files == ()
    assert not [*tmp_path.rglob("*.png")]
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / ".freeact").symlink_to(outside)
    _, end = await pictures_of(tmp_path / "linked")
    assert end.picture_files == ()
    assert not [*outside.rglob("*.png")]


SAVED = "are saved as files, and the user is told where."
SHOWN = "are shown to the user."
UNSEEN = "The user sees no picture that a cell displays: save it to a file"


@pytest.mark.parametrize(
    ("front_end", "words"),
    [
        ("plain", SAVED),
        ("json", SAVED),
        ("rich", SAVED),
        ("text", UNSEEN),
        ("notebook", SHOWN),
        ("sdk", SAVED),
    ],
)
async def test_the_model_is_told_what_is_true_for_the_front_end_that_is_there(tmp_path, front_end, words, capfd):
    told = []

    def model(messages, info):
        told.append(messages[-1].instructions)
        return "done"

    agent = Agent(Config(workspace=tmp_path), model=ScriptedModel(model), kernel_provider=FakeKernelProvider())
    match front_end:
        case "notebook":
            async with agent:
                await display_run(agent, "x")
        case "sdk":
            async with agent:
                await read(agent.run("x"))
        case _:
            await run_once(lambda: agent, "x", output=front_end, approver=Approver())
    assert words in told[0]
    assert sum(other in told[0] for other in (SAVED, SHOWN, UNSEEN)) == 1


async def test_another_front_end_of_the_same_agent_is_told_of_anew(tmp_path):
    told = []

    def model(messages, info):
        told.append(messages[-1].instructions)
        return "done"

    agent = Agent(Config(workspace=tmp_path), model=ScriptedModel(model), kernel_provider=FakeKernelProvider())
    async with agent:
        await display_run(agent, "x")
        await read(agent.run("x"))
    assert SHOWN in told[0]
    assert SAVED in told[1]
