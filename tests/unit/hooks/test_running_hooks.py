"""Hooks as they run: side by side, in time, with all their processes, whatever they do."""

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from support.tables import each

from freeact_sub import hooks
from freeact_sub.config.hooks import CommandHook, HookEvent, parse_hooks
from freeact_sub.errors import ApprovalDeniedError, ConfigError
from freeact_sub.hooks import AT_ONCE, AnyHook, Hook, HookAnswer, HookRunner
from freeact_sub.system import closing
from tests.support.waiting import LOADED_MACHINE_SECONDS, eventually, is_running


def command(text: str, event: HookEvent = "PreToolUse", **more: Any) -> CommandHook:
    return CommandHook(event=event, command=text, **more)


class Told:
    """What hooks said, and what people were told."""

    def __init__(self, workspace: Path, *hooks: AnyHook) -> None:
        self.hooks, self.notices = hooks, list[str]()
        self.runner = HookRunner(hooks, workspace)

    async def run(self, event: HookEvent = "PreToolUse", **data: Any) -> HookAnswer | None:
        return await self.runner.run(
            self.hooks, event, ("Bash",), lambda name: {"tool_name": name, **data}, self.notices.append
        )


async def test_no_hook_that_matches_says_none(tmp_path: Path) -> None:
    told = Told(tmp_path, command("exit 2", matcher="Write"), command("exit 2", event="Stop"))
    assert await told.run() is None


@pytest.mark.process
async def test_a_command_reads_json_in_the_workspace_and_knows_it_by_a_variable(tmp_path: Path) -> None:
    told = Told(tmp_path, command('cat > "$CLAUDE_PROJECT_DIR/read.json"; pwd > where.txt'))
    assert await told.run(text="ü") == HookAnswer()
    assert json.loads((tmp_path / "read.json").read_text()) == {"tool_name": "Bash", "text": "ü"}
    assert (tmp_path / "where.txt").read_text().strip() == str(tmp_path)


@pytest.mark.process
async def test_one_that_reads_nothing_and_much_input_are_no_trouble(tmp_path: Path) -> None:
    told = Told(tmp_path, command("exit 2"), command("true"))
    answer = await told.run(code="x" * 3_000_000)
    assert answer is not None
    assert answer.verdict == "deny"
    assert not told.notices


@pytest.mark.process
async def test_twenty_at_once_take_no_longer_than_a_few(tmp_path: Path) -> None:
    met = asyncio.Barrier(AT_ONCE)

    async def meet(_: dict[str, Any]) -> None:
        await met.wait()  # only all at once pass

    told = Told(tmp_path, *(Hook("PreToolUse", meet, timeout_seconds=30) for _ in range(AT_ONCE)))
    assert await told.run() == HookAnswer()
    assert not told.notices
    many = Told(tmp_path, *(command(f"echo {number} >> out.txt; exit 0") for number in range(AT_ONCE + 5)))
    assert await many.run() == HookAnswer()
    assert len((tmp_path / "out.txt").read_text().split()) == AT_ONCE + 5


@pytest.mark.process
async def test_one_that_hangs_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    told = Told(tmp_path, command("sleep 600 & echo $! > pid; setsid sleep 600 & sleep 600", timeout_seconds=3))
    async with asyncio.timeout(LOADED_MACHINE_SECONDS):  # it would sleep for five times as long
        assert await told.run() == HookAnswer()
    assert "longer than 3 s" in told.notices[0]
    await eventually(lambda: not is_running(int((tmp_path / "pid").read_text())))


@pytest.mark.process
async def test_one_that_floods_and_ignores_signals_is_ended_as_soon_as_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "END_SECONDS", 600.0)  # or it would be killed after a while
    daemon = "setsid sh -c 'trap \"\" TERM HUP INT; echo $$ > pid; yes' &"
    is_there = "until [ -s pid ]; do sleep 0.01; done;"
    told = Told(tmp_path, command(f"trap '' TERM HUP INT; {daemon} {is_there} yes; yes", timeout_seconds=3))
    async with asyncio.timeout(120):
        assert await told.run() == HookAnswer()
    assert "longer than 3 s" in told.notices[0]
    assert not is_running(int((tmp_path / "pid").read_text()))


@pytest.mark.process
async def test_odd_bytes_are_shown_and_decide(tmp_path: Path) -> None:
    said = """printf '\\357\\273\\277{"decision": "block", "reason": "\\377 in JSON"}'"""
    told = Told(tmp_path, command("printf '\\377\\000 on standard error' >&2; exit 2"), command(said))
    answer = await told.run()
    assert answer is not None
    assert answer.verdict == "deny"
    assert answer.reason == "\ufffd on standard error\n\ufffd in JSON"
    assert not told.notices


@pytest.mark.process
async def test_a_process_in_the_background_keeps_nobody_waiting_and_ends(tmp_path: Path) -> None:
    told = Told(tmp_path, command("sleep 600 & echo $! > pid; exit 2", timeout_seconds=60))
    answer = await told.run()
    assert answer is not None
    assert answer.verdict == "deny"
    await eventually(lambda: not is_running(int((tmp_path / "pid").read_text())))


async def test_a_hook_that_takes_long_is_told_while_it_runs_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "SLOW_SECONDS", 0.01)

    async def wait(_: dict[str, Any]) -> None:
        await eventually(lambda: told.notices)

    told = Told(tmp_path, Hook("PreToolUse", wait, timeout_seconds=300))
    assert await told.run() == await told.run() == HookAnswer()
    [notice] = told.notices
    assert notice.endswith("(PreToolUse) is still running; it may take 300 s")


@pytest.mark.process
async def test_a_cancel_ends_the_command(tmp_path: Path) -> None:
    told = Told(tmp_path, command("echo $$ > pid; sleep 600"))
    running = asyncio.create_task(told.run())
    await eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip() != "")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    process = int((tmp_path / "pid").read_text())
    await eventually(lambda: not is_running(process))  # a killed process may need a moment


@each(
    ("text", "problem"),
    [
        ("echo boom >&2; exit 1", "exit code 1: boom"),
        ("no-such-program-anywhere", "exit code 127"),
        ("./not-executable", "exit code 126"),
        ("kill -9 $$", "signal 9"),
        ("echo '{not json'", "not JSON"),
        ("printf '{'; head -c 2000000 /dev/zero | tr '\\0' x", "more than 1,000,000 bytes"),
        ("cat", "not one of"),
        ('echo checking; echo \'{"decision": "block"}\'', "text before its JSON"),
        ('echo \'{"decision": "allow"}\'; echo bye', "not JSON"),
        ("exec >&- 2>&-; kill -SEGV $$", "signal 11"),
    ],
)
@each("required", [False, True])
@pytest.mark.process
async def test_a_failure_is_told_and_is_silence_or_a_denial(text: str, problem: str, required: bool, tmp_path: Path) -> None:
    (tmp_path / "not-executable").write_text("#!/bin/sh\n")
    told = Told(tmp_path, command(text, required=required))
    answer = await told.run(decision="perhaps")
    assert answer is not None
    assert answer.verdict == ("deny" if required else None)
    assert problem in told.notices[0]
    assert (problem in answer.reason) is required
    await told.run(decision="perhaps")
    assert len(told.notices) == 1  # nobody reads the same twice


@pytest.mark.process
async def test_much_text_is_no_failure_and_is_bounded(tmp_path: Path) -> None:
    told = Told(tmp_path, command("head -c 1000000 /dev/zero | tr '\\0' x", event="SessionStart"))
    answer = await told.run("SessionStart")
    assert answer is not None
    assert 5_000 < len(answer.context) < 20_000
    assert not told.notices


@pytest.mark.process
async def test_a_script_that_was_edited_since_it_was_reviewed_is_not_run(tmp_path: Path) -> None:
    script = tmp_path / "check.sh"
    script.write_text("#!/bin/sh\ntouch ran\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    value = {"PreToolUse": [{"hooks": [{"type": "command", "command": "./check.sh", "required": True}]}]}
    told = Told(tmp_path, *parse_hooks(value, "hooks.json", tmp_path).hooks)
    await told.run()
    assert (tmp_path / "ran").exists()
    (tmp_path / "ran").unlink()
    script.write_text("#!/bin/sh\ntouch ran; echo other\n")
    answer = await told.run()
    assert answer is not None
    assert answer.verdict == "deny"
    assert "has changed since it was reviewed" in told.notices[0]
    assert not (tmp_path / "ran").exists()


async def test_functions_say_the_same_as_commands(tmp_path: Path) -> None:
    def deny(data: dict[str, Any]) -> None:
        raise ApprovalDeniedError(f"no {data['tool_name']}")

    async def ask(_: dict[str, Any]) -> dict[str, Any]:
        return {"decision": "ask", "reason": "look"}

    def text(_: dict[str, Any]) -> str:
        return "on branch main"

    told = Told(tmp_path, Hook("PreToolUse", deny, "Bash"), Hook("PreToolUse", ask), Hook("SessionStart", text))
    answer = await told.run()
    assert answer is not None
    assert (answer.verdict, answer.reason) == ("deny", "no Bash")
    answer = await told.run("SessionStart")
    assert answer is not None
    assert answer.context == "on branch main"


async def test_a_function_that_raises_or_hangs_fails_alone(tmp_path: Path) -> None:
    async def hang(_: dict[str, Any]) -> None:
        await asyncio.Event().wait()

    def broken(_: dict[str, Any]) -> None:
        raise ZeroDivisionError("by hand")

    told = Told(
        tmp_path,
        Hook("PreToolUse", hang, timeout_seconds=0.05),
        Hook("PreToolUse", broken, required=True),
        Hook("PreToolUse", lambda _: {"decision": "allow"}),
    )
    answer = await told.run()
    assert answer is not None
    assert answer.verdict == "deny"
    assert "ZeroDivisionError: by hand" in answer.reason
    assert len(told.notices) == 2


def test_a_hook_that_cannot_be_is_an_error_at_once() -> None:
    with pytest.raises(ConfigError, match="PreToolUse"):
        Hook("BeforeTool", print)  # type: ignore[arg-type]  # there is no such event
    with pytest.raises(ConfigError, match="expression"):
        Hook("PreToolUse", print, "Bash(")
