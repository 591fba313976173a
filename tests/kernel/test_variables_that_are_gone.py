"""A session whose saved variables cannot be read goes on without them, and people are told as well as the model."""

import json

import pytest
from support.agents import as_read, cell, of_kind, read
from support.elsewhere import CANNOT_FORK

from freeact_sub import Agent, Config
from freeact_sub.events import Notice
from freeact_sub.sessions import session_store
from freeact_sub.testing import ScriptedModel

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(CANNOT_FORK, reason="kernels are forked on Linux only")]


def of_another_version(text):
    return json.dumps({"parts": [{**part, "written": {"format": 99}} for part in json.loads(text)["parts"]]})


DAMAGES = {
    "gone": (None, "no variables are saved"),
    "empty": (lambda _: "", "are damaged"),
    "cut": (lambda text: text[:-9], "are damaged"),
    "of another version": (of_another_version, "another version"),
}


@pytest.mark.parametrize("how", DAMAGES)
async def test_variables_that_do_not_come_back_are_told_to_people_too(tmp_path, monkeypatch, how):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "work").mkdir()
    config = Config(workspace=tmp_path / "work", mode="full")
    async with Agent(config, model=ScriptedModel([cell("x = 41"), "done"]), session="new") as agent:
        await read(agent.run("root"))
    damage, words = DAMAGES[how]
    manifests = [*session_store().folder_of(agent.session_id).rglob("manifest.json")]
    assert manifests
    for file in manifests:
        text = file.read_text()
        file.unlink()
        if damage is not None:
            file.write_text(damage(text))
    async with Agent(config, model=ScriptedModel([cell("x = 41"), "done", "done"]), session=agent.session_id) as again:
        events, _ = await read(again.run("go on"))
        asked = as_read(again.history)[-1]
    assert "could not be brought back" in asked
    [told] = [event.content for event in of_kind(events, Notice) if "variables" in event.content]
    assert told.startswith("its saved variables did not come back: ")
    assert words in told
