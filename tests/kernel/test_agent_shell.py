"""`agent.shell`: one command outside the sandbox, asked for in every mode, streamed, and ended with its cell."""

import pytest
from support.agents import cell, of_kind, read
from support.elsewhere import CANNOT_FORK
from support.waiting import eventually, is_running

from freeact_sub import Agent, Config
from freeact_sub.config.schema import KernelConfig
from freeact_sub.events import ApprovalRequest, CodeExecutionOutput, CodeExecutionOutputChunk, Decision
from freeact_sub.testing import ScriptedModel

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(CANNOT_FORK, reason="the sandbox")]

MODES = ("ask", "auto", "full")


@pytest.fixture
def make(tmp_path):
    def make_agent(*cells, mode="auto", **config):
        model = ScriptedModel([*([cell(code)] for code in cells), "done"])
        return Agent(Config(workspace=tmp_path, mode=mode, **config), model=model)

    return make_agent


async def ran(agent, rule=lambda _: Decision(allowed=True), on_event=lambda _: None):
    """The questions about commands outside, and the ends of the cells."""
    async with agent:
        events, result = await read(agent.run("x"), rule, on_event)
    assert result.status == "completed"
    asked = [event for event in of_kind(events, ApprovalRequest) if getattr(event.call, "outside", False)]
    return asked, of_kind(events, CodeExecutionOutput)


@pytest.mark.parametrize("mode", MODES)
async def test_a_person_is_asked_in_every_mode_and_it_runs_outside_the_wall(make, tmp_path_factory, mode):
    outside = tmp_path_factory.mktemp("outside")
    code = f"r = await agent.shell('echo out; pwd; touch {outside}/made; exit 3', reason='to see')\nprint(r, repr(r.output))"
    [asked], [end] = await ran(make(code, mode=mode))
    assert (asked.call.outside, asked.call.purpose, asked.suggested) == (True, "to see", ())
    assert "outside the sandbox" in asked.call.summary
    assert (outside / "made").exists()
    assert end.text.startswith("out\n")
    assert "<exit code 3," in end.text


async def test_it_works_in_plain_code_and_side_by_side(make):
    code = """
import asyncio, io, contextlib
def plain(word):
    return agent.shell(f'echo {word}', reason='r').exit_code
print(plain('plain'))
results = await asyncio.gather(*(agent.shell(f'echo {n}; exit {n}', reason='r') for n in range(5)))
print([(r.exit_code, r.output) for r in results])
with contextlib.redirect_stdout(io.StringIO()) as kept:
    plain('kept')
assert kept.getvalue() == 'kept\\n'
"""
    asked, [end] = await ran(make(code))
    assert len(asked) == 7
    assert f"{[(n, f'{n}' + chr(10)) for n in range(5)]}" in end.text
    assert end.status == "ok"


async def test_nothing_of_the_hosts_environment_is_in_it(make, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_HOST", "abc")
    _, [end] = await ran(make("agent.shell('env', reason='r')", kernel=KernelConfig(env={"GIVEN": "1"})))
    assert "GIVEN=1" in end.text
    assert "SECRET_OF_THE_HOST" not in end.text


async def test_a_denial_is_an_exception_and_the_reason_is_read(make, tmp_path):
    code = "try:\n    agent.shell('touch made', reason='r')\nexcept PermissionError as error:\n    print(error)"
    _, [end] = await ran(make(code), lambda _: Decision(allowed=False, reason="use pip of the project"))
    assert end.text.strip() == "denied: use pip of the project"
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("mode", "headless"), [(mode, headless) for mode in MODES for headless in ("allow", "auto", "deny")]
)
async def test_where_nobody_is_asked_it_is_denied(make, tmp_path, mode, headless):
    _, ends = await ran(make("agent.shell('touch made', reason='r')", mode=mode, headless=headless))
    assert not (tmp_path / "made").exists()
    if ends:  # else the cell itself was denied
        assert "PermissionError: denied: nobody is there to answer, and this is for a person alone to allow" in ends[0].text


async def test_plan_and_a_rule_that_denies_are_not_asked_about(make, tmp_path):
    asked, [end] = await ran(make("agent.shell('touch made', reason='r')", mode="plan"))
    assert "nothing runs outside the sandbox (mode plan)" in end.text
    rules = tmp_path / "rules.toml"
    rules.write_text('deny = ["shell:touch *"]\nallow = ["shell"]')
    more, [end] = await ran(make("agent.shell('true; touch made', reason='r')", mode="full", permission_files=(rules,)))
    assert 'deny "shell:touch *"' in end.text
    assert asked + more == []
    assert not (tmp_path / "made").exists()


async def test_an_answer_for_the_session_does_not_hold_for_it(make):
    code = "agent.shell('echo x', reason='r')"
    rule = lambda request: Decision(allowed=True, remember="session", pattern="shell")
    asked, _ = await ran(make(code, code), rule)
    assert len(asked) == 2


async def test_output_comes_as_it_is_made_and_is_bounded(make, tmp_path):
    code = f"""
r = await agent.shell('echo first; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; yes | head -c 3000000; echo last', reason='r')
assert len(r.output) < 1_100_000 and r.output.endswith('last\\n') and 'left out' in r.output
"""

    def on_event(event):
        if isinstance(event, CodeExecutionOutputChunk) and getattr(event.output, "text", "").startswith("first"):
            (tmp_path / "go").touch()

    _, [end] = await ran(make(code), on_event=on_event)
    assert end.status == "ok", end.text[-500:]
    assert "more characters of output: " in end.text
    [whole] = (tmp_path / ".freeact/outputs").rglob("shell-*.txt")
    assert whole.stat().st_size == len("first\nlast\n") + 3_000_000


STARTS = "(setsid sleep 1000 & echo $! >> pids; echo $$ >> pids; sleep 1000 & echo $! >> pids; echo ready; wait)"


@pytest.mark.parametrize("how", ["interrupted", "timeout", "ended"])
async def test_nothing_of_it_is_left(make, tmp_path, how):
    command = STARTS.replace("wait", "true") if how == "ended" else STARTS
    cell_seconds = 15.0 if how == "timeout" else 60.0
    agent = make(
        f"try:\n    await agent.shell({command!r}, reason='r')\nexcept BaseException as error:\n    print(type(error))\n    raise",
        kernel=KernelConfig(cell_timeout_seconds=cell_seconds),
    )
    async with agent:
        run = agent.run("x")
        async with run:
            async for event in run:
                if isinstance(event, ApprovalRequest):
                    event.approve()
                if how == "interrupted" and getattr(getattr(event, "output", None), "text", "").startswith("ready"):
                    run.cancel()
        pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
        assert len(pids) == 3
        await eventually(lambda: not any(map(is_running, pids)))


async def test_time_in_which_it_is_asked_does_not_count_but_its_own_does(make):
    waited: list[float] = []

    def on_event(event):
        if isinstance(event, ApprovalRequest) and event.call.kind == "shell":
            import threading

            threading.Timer(9, event.approve).start()
            waited.append(9)

    agent = make("agent.shell('echo it ran', reason='r')", kernel=KernelConfig(cell_timeout_seconds=8))
    _, [end] = await ran(agent, lambda _: None, on_event)
    assert waited
    assert (end.status, end.text.splitlines()[0]) == ("ok", "it ran")


@pytest.mark.parametrize(
    "arguments",
    ["'', reason='r'", "'a\\0b', reason='r'", "5, reason='r'", "'true', reason=None", "'x' * 200_000, reason='r'"],
)
async def test_what_is_no_command_is_an_error(make, arguments):
    asked, [end] = await ran(make(f"agent.shell({arguments})"))
    assert "RuntimeError: " in end.text
    assert asked == []


@pytest.mark.parametrize("mode", ["plan", *MODES])
async def test_the_model_is_told_of_it_where_it_matters(tmp_path, mode):
    told = []

    def script(messages, _info):
        told.append("agent.shell(" in messages[0].instructions)
        return "done"

    async with Agent(Config(workspace=tmp_path, mode=mode), model=ScriptedModel(script)) as agent:
        await agent.run("x").result()
    assert told == [mode == "auto"]
