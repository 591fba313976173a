"""Skills in real kernels: loaded by code, imported from what was trusted, walled and asked about like the model's own code."""

import pytest
from support.agents import cell, of_kind, read, root_text, task
from support.gateways import behind
from support.sandbox import NEEDS_A_WALL
from support.windows import text_of

from freeact_sub import Agent, load_config
from freeact_sub.events import ApprovalRequest, CodeExecutionOutput, SkillLoaded
from freeact_sub.testing import ScriptedModel

pytestmark = pytest.mark.kernel

TEXT = "---\nname: sum-up\ndescription: Adds numbers up.\n---\n" + "Add them, one by one. " * 1000 + "THE END"
CODE = '''
"""Adds."""
import os
MADE_IN = os.getpid()
def total(*numbers: int) -> int:
    """The sum."""
    return sum(numbers)
def keep(path: str) -> None:
    with open(path, "w") as file:
        file.write("kept")
def broken() -> None:
    raise ValueError("no")
'''


@pytest.fixture
def make(tmp_path, monkeypatch):
    """An agent with a skill of the project's and one of the user's own."""
    own = tmp_path / "config/freeact/skills/mine"
    project = tmp_path / "work/.agents/skills/sum-up"
    for folder, text in ((own, "---\nname: mine\ndescription: Mine.\n---\nDo it my way."), (project, TEXT)):
        (folder / "references").mkdir(parents=True)
        (folder / "SKILL.md").write_text(text)
        (folder / "references/more.md").write_text(f"more of {folder.name}")
    (project / "skill.py").write_text(CODE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def make_agent(script, types=(), **arguments):
        for name, head in types:
            file = tmp_path / f"work/.agents/agents/{name}.md"
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"---\ndescription: x\n{head}\n---\n")
        config = load_config(tmp_path / "work", arguments=arguments)
        return Agent(config, model=ScriptedModel(script))

    return make_agent


@pytest.mark.parametrize("provider", ["fork", "local"])
@NEEDS_A_WALL
async def test_a_skill_is_loaded_once_and_its_functions_are_imported_behind_the_wall(make, provider):
    use = """
from skills import sum_up
import inspect, skills
print(sum_up.total(1, 2), skills.__all__, "def total" in inspect.getsource(sum_up), sum_up.total.__doc__)
s = await agent.skill("sum-up")
print(open(s.folder + "/references/more.md").read(), s.files)
for path in (sum_up.__file__, s.folder + "/new", agent.skill("mine").folder + "/new"):
    try:
        open(path, "a").write("#")
    except OSError as error:
        print(type(error).__name__)
print(open(agent.skill("mine").folder + "/references/more.md").read())
try:
    agent.skill("sum-upp")
except ValueError as error:
    print(error)
"""
    script = [[cell('agent.skill("sum-up")')], [cell(use)], "done"]
    async with make(script, mode="auto", kernel={"provider": provider}) as agent:
        events, _ = await read(agent.run("root"))
        assert [text_of(agent.history).count(text) for text in ("THE END", "my way")] == [1, 1]
    assert [event.name for event in of_kind(events, SkillLoaded)] == ["sum-up", "mine"]
    assert len({event.tool_call_id for event in of_kind(events, SkillLoaded)}) == 2
    first, second = [event.text for event in of_kind(events, CodeExecutionOutput)]
    assert "its text follows the results of this step" in first
    lines = second.splitlines()
    assert lines[:2] == ["3 ['sum_up'] True The sum.", "more of sum-up ['references/more.md']"]
    assert {*lines[2:5]} <= {"PermissionError", "OSError"}
    assert lines[5:] == ["more of mine", "there is no skill 'sum-upp': did you mean 'sum-up'?"]


async def test_what_a_skill_does_is_asked_about_and_an_error_in_it_shows_its_line(make, tmp_path):
    code = "from skills import sum_up\nsum_up.keep('../kept.txt')\nsum_up.broken()"
    async with make([[cell(code)], "done"], mode="ask") as agent:
        events, _ = await read(agent.run("root"))
    assert [request.call.kind for request in of_kind(events, ApprovalRequest)] == ["code", "write"]
    assert 'raise ValueError("no")' in root_text(events)
    assert "freeact_guest" not in root_text(events)


async def test_a_skill_of_a_preloaded_kernel_is_there_already_and_types_choose_their_skills(make):
    code = "from skills import sum_up\nimport os\nprint(sum_up.MADE_IN == os.getpid())"
    script = {
        "root": [[cell(code)], [task("first", agent="with")], [task("second", agent="without")], "done"],
        "first": [[cell(code)], "done"],
        "second": [[cell("import skills")], [cell('agent.skill("sum-up")')], "done"],
    }
    types = [("with", "skills: [sum-up]"), ("without", "skills: [mine]")]
    kernel = {"preload": ["skills.sum_up"], "spares": 0}
    async with make(script, types, mode="full", kernel=kernel) as agent:
        events, _ = await read(agent.run("root"))
    texts = [event.text for event in of_kind(events, CodeExecutionOutput)]
    assert [text.strip() for text in texts[:2]] == ["False", "False"], "made before the fork"
    assert "ModuleNotFoundError" in texts[2]
    assert "there is no skill 'sum-up': the known ones are mine" in texts[3]


@pytest.mark.slow
async def test_behind_a_gateway_a_skill_is_loaded_and_imported_and_rules_of_a_folder_are_read(make, gateways, tmp_path):
    (tmp_path / "work/data").mkdir(parents=True, exist_ok=True)
    (tmp_path / "work/data/AGENTS.md").write_text("Numbers here are in mm.")
    (tmp_path / "work/data/rain").write_text("12")
    use = """
from skills import sum_up
s = agent.skill("sum-up")
print(sum_up.total(1, int(open("data/rain").read())), s.name, sum_up.__doc__)
"""
    script = [[cell(use)], "done"]
    async with make(script, mode="full", kernel=behind(gateways[0], workspace="shared")) as agent:
        events, _ = await read(agent.run("root"))
        assert [text_of(agent.history).count(text) for text in ("THE END", "in mm.")] == [1, 1]
    assert "13 sum-up Adds." in root_text(events)
    assert [event.name for event in of_kind(events, SkillLoaded)] == ["sum-up"]
