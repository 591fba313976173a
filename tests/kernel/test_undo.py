"""Prompts are undone and done again: conversation, variables and files, with real kernels."""

import asyncio
import json

import pytest
from pydantic_ai.messages import UserPromptPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from support.elsewhere import CANNOT_FORK

from freeact_sub import Agent, Config
from freeact_sub.errors import AgentBusyError, FreeactError
from freeact_sub.features import undo as undo_module
from freeact_sub.kernels.local import LocalKernelProvider
from freeact_sub.show.effect_lines import changed_text
from freeact_sub.testing import ScriptedModel

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(CANNOT_FORK, reason="kernels are forked on Linux only")]


async def runs_its_prompt(messages, _):
    """A model that runs each prompt as a cell, and then is done."""
    last = messages[-1].parts[-1]
    if isinstance(last, UserPromptPart):
        arguments = json.dumps({"code": last.content})
        yield {0: DeltaToolCall(name="execute_ipython_cell", json_args=arguments, tool_call_id=f"call-{len(messages)}")}
    else:
        yield "done"


@pytest.fixture
def agent_of(tmp_path):
    def make(model=None, **options):
        model = model or FunctionModel(stream_function=runs_its_prompt)
        return Agent(Config(workspace=tmp_path, mode="full"), model=model, **options)

    return make


async def run(agent, code):
    """The output of a cell, which is a prompt of its own."""
    result = await agent.run(code).result()
    assert result.status == "completed", result.error
    return agent.history[-2].parts[0].content


async def test_conversation_variables_and_files_go_back_and_forward(agent_of, tmp_path):
    one = "x = [1]; _ = open('a', 'w').write('1')"
    two = "x.append(2); _ = [open(name, 'w').write(name) for name in 'ab']\ndef f(): return x"
    three = "x.append(3); lock = __import__('threading').Lock()"
    show = "print(sorted(name for name in ('x', 'lock', 'f') if name in globals()), globals().get('x'))"
    async with agent_of() as agent:
        agent.keep_undo()
        for code in (one, two, three):
            await run(agent, code)
        assert agent.undoable == (one, two, three)
        effects = await agent.effects()
        assert [(change.name, change.what, change.after) for change in effects.variables] == [
            ("lock", "new", effects.variables[0].after),
            ("x", "changed", "list 3 [1, 2, 3]"),
        ]
        assert not effects.files
        assert [changed_text(change) for change in effects.variables] == ["", "element 3 new"]
        effects = await agent.effects(2)
        assert {change.name: change.what for change in effects.variables} == {"f": "new", "lock": "new", "x": "changed"}
        assert {file.path: file.what for file in effects.files} == {"a": "changed", "b": "added"}
        assert not effects.reason
        length = len(agent.history)
        report = await agent.undo(2)
        assert (report.prompts, sorted(report.files)) == ((two, three), ["a", "b"])
        assert (report.files_problem, report.variables_problem) == ("", "")
        assert ((tmp_path / "a").read_text(), (tmp_path / "b").exists()) == ("1", False)
        assert len(agent.history) == length // 3
        assert (agent.undoable, agent.redoable) == ((one,), (two, three))
        await agent.redo()
        assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("a", "b")
        await agent.redo()
        assert len(agent.history) == length
        assert await run(agent, show) == "['f', 'lock', 'x'] [1, 2, 3]"  # the lock too: it is the kernel itself
        await agent.undo(3)
        assert await run(agent, show) == "['x'] [1]"
        assert (agent.undoable, agent.redoable) == ((one, show), ())
        await agent.undo(2)
        assert agent.history == []
        assert await run(agent, show) == "[] None"
        assert not (tmp_path / "a").exists()


async def test_the_last_few_states_have_a_kernel_and_the_others_their_variables_in_files(agent_of, monkeypatch):
    monkeypatch.setattr(undo_module, "MAX_KERNELS", 1)
    async with agent_of() as agent:
        agent.keep_undo()
        for code in ("x = [1]; y = x; lock = __import__('threading').Lock()", "x.append(2)", "x.append(3)", "x.append(4)"):
            await run(agent, code)
        report = await agent.undo(3)
        assert report.variables_problem == ""
        assert [variable.name for variable in report.lost] == ["lock"]
        assert await run(agent, "print(x, x is y, 'lock' in dir())") == "[1] True False"


async def test_a_kernel_that_cannot_be_branched_is_saved_into_files(agent_of):
    provider = LocalKernelProvider()
    try:
        async with agent_of(kernel_provider=provider) as agent:
            agent.keep_undo()
            await run(agent, "x = [1]")
            await run(agent, "x.append(2)")
            report = await agent.undo()
            assert (report.variables_problem, report.lost) == ("", ())
            assert await run(agent, "print(x)") == "[1]"
    finally:
        await provider.aclose()


async def test_without_git_files_stay_and_it_is_said(agent_of, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    async with agent_of() as agent:
        agent.keep_undo()
        await run(agent, "x = 1; _ = open('a', 'w').write('a')")
        report = await agent.undo()
        assert report.files_problem == "git is not installed"
        assert (tmp_path / "a").exists()
        assert await run(agent, "print('x' in dir())") == "False"


async def test_what_cannot_be_undone_is_refused(agent_of):
    begun = asyncio.Event()
    async with agent_of(ScriptedModel(["hello", begun])) as agent:
        with pytest.raises(FreeactError, match="keep_undo"):
            await agent.undo()
        agent.keep_undo()
        agent.keep_undo()
        with pytest.raises(FreeactError, match="1 prompt cannot be undone: at most 0 can"):
            await agent.undo()
        await agent.run("one").result()
        with pytest.raises(FreeactError, match="2 prompts cannot be undone: at most 1 can"):
            await agent.undo(2)
        with pytest.raises(FreeactError, match="cannot be done again"):
            await agent.redo()
        async with agent.run("two"):
            with pytest.raises(AgentBusyError):
                await agent.undo()
        assert agent.undoable[0] == "one"
    with pytest.raises(FreeactError, match="not open"):
        await agent.undo()


async def test_a_cancel_at_any_moment_leaves_one_state_or_the_other(agent_of):
    one, two = ("x = [1]; _ = open('a', 'w').write('1')", "x.append(2); _ = open('a', 'w').write('2')")
    async with agent_of() as agent:
        agent.keep_undo()
        await run(agent, one)
        await run(agent, two)
        undoing = asyncio.create_task(agent.undo())
        await asyncio.wait({undoing}, timeout=0.05)
        undoing.cancel()
        await asyncio.wait({undoing})
        undone = agent.redoable == (two,)
        assert agent.undoable == ((one,) if undone else (one, two))
        assert await run(agent, "print(x, open('a').read())") == ("[1] 1" if undone else "[1, 2] 2")
