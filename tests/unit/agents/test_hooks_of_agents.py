"""What hooks do to runs: they deny, ask, answer, tell the model, and have a run go on; they never allow more."""

import json
from typing import Any

import pytest
from pydantic_ai.messages import ToolCallPart
from support.agents import cell, of_kind, read, task
from support.waiting import eventually
from support.windows import WindowedModel

from freeact_sub import Agent, ApprovalDeniedError, Config, Hook
from freeact_sub.events import (
    AgentFinished,
    ApprovalDecided,
    ApprovalRequest,
    Compacted,
    Decision,
    Notice,
    ToolCallStarted,
    ToolOutput,
    UsageUpdated,
)
from freeact_sub.testing import FakeKernelProvider

pytestmark = pytest.mark.features("hooks")


class Seen:
    """A hook that notes what it reads, and says something."""

    def __init__(self, says: Any = None) -> None:
        self.says, self.read = says, list[dict[str, Any]]()

    def __call__(self, data: dict[str, Any]) -> Any:
        self.read.append(data)
        if isinstance(self.says, Exception):
            raise self.says
        return self.says(data) if callable(self.says) else self.says


def decides(verdict: str, reason: str = "") -> dict[str, Any]:
    return {"hookSpecificOutput": {"permissionDecision": verdict, "permissionDecisionReason": reason}}


def behaves(behavior: str, **more: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"decision": {"behavior": behavior, **more}}}


def never(request: ApprovalRequest) -> Decision:
    pytest.fail(f"a person was asked: {request.call.summary}")


async def test_a_denial_is_the_result_of_the_call(make):
    seen = Seen(ApprovalDeniedError("no cells today"))
    async with make([cell("1"), "done"], config={"mode": "auto"}, hooks=[Hook("PreToolUse", seen, "code")]) as agent:
        events, result = await read(agent.run("p"), never)
    [output] = of_kind(events, ToolOutput)
    assert (output.outcome, "a hook says: no cells today" in output.content) == ("denied", True)
    assert result.status == "completed"
    [data] = seen.read
    assert data["tool_name"] == "execute_ipython_cell"
    assert data["tool_input"] == {"code": "1"}
    assert data["hook_event_name"] == "PreToolUse"
    assert data["permission_mode"] == "auto"
    assert data["session_id"] == agent.agent_id
    assert "agent_id" not in data


async def test_a_hook_has_a_person_asked_where_the_mode_does_not(make):
    hook = Hook("PreToolUse", Seen(decides("ask", "look twice")), "execute_ipython_cell")
    asked: list[ApprovalRequest] = []

    def rule(request):
        asked.append(request)
        return Decision(allowed=False, reason="seen")

    async with make([cell("1"), "done"], config={"mode": "full"}, hooks=[hook]) as agent:
        events, _ = await read(agent.run("p"), rule)
    assert "a hook asks: look twice" in asked[0].reason
    assert asked[0].suggested == ()  # an "always" would not hold
    assert of_kind(events, ToolOutput)[0].outcome == "denied"


@pytest.mark.parametrize(
    "hook",
    [Hook("PreToolUse", Seen(decides("allow", "known"))), Hook("PermissionRequest", Seen(behaves("allow")))],
)
async def test_a_hook_answers_what_rules_ask_and_the_record_says_so(make, hook):
    async with make([cell("1"), "done"], config={"mode": "ask"}, hooks=[hook]) as agent:
        events, _ = await read(agent.run("p"), never)
    assert of_kind(events, ApprovalRequest)[0].headless
    [decided] = of_kind(events, ApprovalDecided)
    assert decided.allowed
    assert decided.reason.startswith("a hook says: ")
    assert of_kind(events, ToolOutput)[0].outcome == "success"


async def test_a_hook_on_a_question_denies_it(make):
    hook = Hook("PermissionRequest", Seen(behaves("deny", message="not today")))
    async with make([cell("1"), "done"], config={"mode": "ask"}, hooks=[hook]) as agent:
        events, _ = await read(agent.run("p"), never)
    assert "not today" in of_kind(events, ToolOutput)[0].content


async def test_hooks_never_allow_what_rules_deny(make, tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text('deny = ["code"]')
    seen = Seen(decides("allow"))
    hooks = [Hook("PreToolUse", seen), Hook("PermissionRequest", Seen(behaves("allow")))]
    config = {"mode": "full", "permission_files": (rules,)}
    async with make([cell("1"), "done"], config=config, hooks=hooks) as agent:
        events, _ = await read(agent.run("p"), never)
    assert of_kind(events, ToolOutput)[0].outcome == "denied"
    assert not seen.read


async def test_hooks_do_not_allow_calls_that_only_a_person_may_allow(make):
    from pydantic_ai import Tool

    def remove() -> str:
        return "removed"

    hooks = [Hook("PreToolUse", Seen(decides("allow"))), Hook("PermissionRequest", Seen(behaves("allow")))]
    script = [ToolCallPart("remove", {}), "done"]
    asked: list[ApprovalRequest] = []

    def rule(request):
        asked.append(request)
        return Decision(allowed=False, reason="no")

    tools = [Tool(remove, requires_approval=True)]
    async with make(script, config={"mode": "full"}, hooks=hooks, tools=tools) as agent:
        await read(agent.run("p"), rule)
    assert len(asked) == 1


async def test_end_of_a_run_by_a_denial(make):
    hook = Hook("PreToolUse", Seen({"continue": False, "stopReason": "enough"}))
    async with make([cell("1"), "never"], config={"mode": "full"}, hooks=[hook]) as agent:
        _, result = await read(agent.run("p"))
    assert (result.status, "enough" in result.error) == ("rejected", True)


async def test_a_hook_after_a_call_tells_the_model_and_may_end_the_run(make):
    seen = Seen({"decision": "block", "reason": "the linter complains"})
    hooks = [Hook("PostToolUse", seen), Hook("PreToolUse", Seen({"hookSpecificOutput": {"additionalContext": "be quick"}}))]
    async with make([cell("1"), "done"], config={"mode": "full"}, hooks=hooks) as agent:
        events, result = await read(agent.run("p"))
    [output] = of_kind(events, ToolOutput)
    assert "[A hook of the user says: the linter complains]" in output.content
    assert "[A hook of the user says: be quick]" in output.content
    assert seen.read[0]["tool_response"]["outcome"] == "success"
    assert result.status == "completed"
    end = Hook("PostToolUse", Seen({"continue": False, "stopReason": "that was it"}))
    async with make([cell("1"), "never"], config={"mode": "full"}, hooks=[end]) as agent:
        _, result = await read(agent.run("p"))
    assert (result.status, "that was it" in result.error) == ("rejected", True)


async def test_prompts_and_sessions_have_hooks(make):
    prompt, start, end = Seen("it is Monday"), Seen("on branch main"), Seen()
    hooks = [Hook("UserPromptSubmit", prompt), Hook("SessionStart", start, "startup"), Hook("SessionEnd", end)]
    read_by_model: list[str] = []

    def script(messages, info):
        read_by_model.append("\n".join(str(part.content) for part in messages[-1].parts))
        return "done"

    async with make(script, hooks=hooks) as agent:
        await read(agent.run("first"))
        await read(agent.run("second"))
        assert not end.read
    assert [data["prompt"] for data in prompt.read] == ["first", "second"]
    assert [len(start.read), start.read[0]["source"], end.read[0]["reason"]] == [1, "startup", "other"]
    assert ["on branch main" in text for text in read_by_model] == [True, False]
    assert ["it is Monday" in text for text in read_by_model] == [True, True]


async def test_a_refused_prompt_reaches_no_model(make):
    hook = Hook(
        "UserPromptSubmit", Seen(lambda data: {"decision": "block", "reason": "a key"} if "sk-" in data["prompt"] else None)
    )
    async with make(["done"], hooks=[hook]) as agent:
        _, result = await read(agent.run("my key is sk-1"))
        assert (result.status, "a key" in result.error) == ("rejected", True)
        assert agent.scripted.requests == 0
        _, result = await read(agent.run("hello"))
    assert result.status == "completed"


async def test_hooks_judge_a_message_to_a_working_agent_before_its_model_reads_it(make):
    def judge(data):
        if "sk-" in data["prompt"]:
            return {"decision": "block", "reason": "a key"}
        return {"continue": False, "stopReason": "over"} if data["prompt"] == "end" else f"[{data['prompt']}]"

    def model(messages, _info):
        prompts = [part.content for message in messages for part in message.parts if part.part_kind == "user-prompt"]
        return [cell("1")] if len(messages) == 1 else " ".join(map(str, prompts))

    stop = Seen()
    hooks = [Hook("UserPromptSubmit", judge), Hook("Stop", stop)]
    async with make(model, config={"mode": "full"}, hooks=hooks) as agent:
        run = agent.run("first")

        def send(event):
            if isinstance(event, ToolCallStarted):
                assert all(run.send(text) for text in ("be quick", "my key is sk-1", "and thorough"))
            elif isinstance(event, UsageUpdated) and agent.scripted.requests == 2:
                assert run.send("last")  # after the answer: the run goes on

        events, result = await read(run, on_event=send)
        assert result.output == "first\n\n[first] be quick\n\n[be quick] and thorough\n\n[and thorough] last\n\n[last]"
        assert "does not read it: a key" in of_kind(events, Notice)[0].content
        assert len(stop.read) == 1
        assert not run.send("too late")
        run = agent.run("second")
        _, result = await read(run, on_event=lambda event: isinstance(event, UsageUpdated) and run.send("end"))
    assert (result.status, "over" in result.error) == ("rejected", True)


async def test_a_stop_hook_has_the_run_go_on_and_is_bounded(make):
    seen = Seen(lambda data: None if data["stop_hook_active"] else {"decision": "block", "reason": "run the tests first"})
    async with make(["early", "late"], hooks=[Hook("Stop", seen)]) as agent:
        _, result = await read(agent.run("p"))
    assert (result.status, result.output) == ("completed", "late")
    assert [data["last_assistant_message"] for data in seen.read] == ["early", "late"]
    for_ever = Seen({"decision": "block", "reason": "again"})
    async with make([f"answer {number}" for number in range(20)], hooks=[Hook("Stop", for_ever)]) as agent:
        events, result = await read(agent.run("p"))
    assert (result.status, result.output) == ("completed", "answer 5")
    assert "it ends now" in of_kind(events, Notice)[-1].content


async def test_children_have_hooks_of_their_own(make):
    start, stop, calls = Seen("be brief"), Seen(), Seen()
    hooks = [Hook("SubagentStart", start), Hook("SubagentStop", stop), Hook("PreToolUse", calls, "Task")]
    root_stop = Seen()
    script = {"root": [task("do it", description="worker"), "done"], "do it": ["did it"]}
    async with make(script, config={"mode": "full"}, hooks=[*hooks, Hook("Stop", root_stop)]) as agent:
        _, result = await read(agent.run("root"))
    assert result.status == "completed"
    assert start.read[0]["prompt"] == "do it"
    assert stop.read[0]["last_assistant_message"] == "did it"
    assert stop.read[0]["agent_id"] == start.read[0]["agent_id"] != agent.agent_id
    assert calls.read[0]["tool_input"]["description"] == "worker"
    assert len(root_stop.read) == 1


@pytest.mark.process
async def test_a_type_has_hooks_for_its_agents(make, tmp_path):
    folder = tmp_path / "types"
    folder.mkdir()
    (folder / "careful.md").write_text(
        "---\ndescription: Careful.\nhooks:\n  PreToolUse:\n    - matcher: code\n      hooks:\n"
        "        - {type: command, command: 'echo no cells >&2; exit 2'}\n  Nonsense: []\n---\n"
    )
    (folder / "broken.md").write_text("---\ndescription: Broken.\nhooks: {PreToolUse: 7}\n---\n")
    script = {"root": [[task("work", agent="careful"), cell("1")], "done"], "work": [cell("2"), "done"]}
    async with make(script, config={"mode": "full", "agent_folders": (folder,)}) as agent:
        events, _ = await read(agent.run("root"))
    outcomes = {
        event.agent_id == agent.agent_id: event.outcome for event in of_kind(events, ToolOutput) if event.tool_name != "task"
    }
    assert outcomes == {True: "success", False: "denied"}
    notices = [event.content for event in of_kind(events, Notice)]
    assert any("broken.md, line 3" in text for text in notices)
    assert any("Nonsense" in text for text in notices)


@pytest.mark.process
async def test_a_hook_of_a_type_runs_once_for_a_child_that_has_it_from_its_parent(make, tmp_path):
    folder, log = tmp_path / "types", tmp_path / "log"
    folder.mkdir()
    (folder / "careful.md").write_text(
        "---\ndescription: Careful.\nhooks:\n  SubagentStart:\n    - hooks:\n"
        f"        - {{type: command, command: '{{ cat; echo; }} >> {log}'}}\n---\n"
    )
    script = {"root": [task("work", agent="careful"), "done"], "work": [task("below"), "done"]}
    config = {"mode": "full", "agent_folders": (folder,), "subagents": {"max_depth": 2}}
    async with make(script, config=config) as agent:
        await read(agent.run("root"))
    assert [json.loads(line)["prompt"] for line in log.read_text().split("\n") if line] == ["work", "below"]


async def test_a_person_who_is_asked_is_notified(make):
    seen = Seen()
    async with make([cell("1"), "done"], hooks=[Hook("Notification", seen, "permission_prompt")]) as agent:
        await read(agent.run("p"))
        await eventually(lambda: seen.read)
    assert "asks to run this cell" in seen.read[0]["message"]


@pytest.mark.features("compaction")
async def test_a_conversation_that_a_hook_keeps_is_not_shortened(make):
    seen = Seen({"decision": "block", "reason": "all of it is needed"})
    async with make(["a", "b", "c", "d"], hooks=[Hook("PreCompact", seen, "manual")]) as agent:
        for prompt in ("1", "2", "3"):
            await read(agent.run(prompt))
        with pytest.raises(Exception, match="all of it is needed"):
            await agent.compact("the numbers")
    assert seen.read[0]["custom_instructions"] == "the numbers"


@pytest.mark.features("compaction")
@pytest.mark.parametrize("ends", [False, True])
async def test_a_conversation_that_fills_its_window_is_kept_by_a_hook_or_the_run_ends(ends, tmp_path):
    says = {"continue": False, "stopReason": "enough"} if ends else {"decision": "block", "reason": "enough"}
    seen = Seen(says)
    model = WindowedModel(lambda *_: "one two six ten " * 400, window_tokens=100_000)
    config = Config(workspace=tmp_path, mode="full", context={"window_tokens": 3_000})  # the agent believes
    hooks = [Hook("PreCompact", seen, "auto")]
    async with Agent(config, model=model, kernel_provider=FakeKernelProvider(), hooks=hooks) as agent:
        for prompt in ("1", "2", "3", "4"):
            events, result = await read(agent.run(prompt))
            if seen.read:
                break
        assert not of_kind(events, Compacted)
    notices = [event.content for event in of_kind(events, Notice)]
    if ends:
        assert (result.status, "enough" in result.error) == ("rejected", True)
    else:
        assert result.status == "completed"
        assert "a hook keeps the conversation from being shortened: enough" in notices


@pytest.mark.parametrize("event", ["SessionStart", "SubagentStart"])
async def test_a_hook_ends_a_run_before_its_first_request(event, make):
    script = {"root": [task("do it"), "done"], "do it": ["did it"]}
    hooks = [Hook(event, Seen({"continue": False, "stopReason": "closed today"}))]
    async with make(script, config={"mode": "full"}, hooks=hooks) as agent:
        events, _ = await read(agent.run("root"))
    [ended] = [end for end in of_kind(events, AgentFinished) if bool(end.depth) == (event == "SubagentStart")]
    assert (ended.status, "closed today" in ended.error) == ("rejected", True)


async def test_a_hook_that_fails_is_told_and_the_call_runs_unless_it_is_required(make):
    for required, outcome in ((False, "success"), (True, "denied")):
        hook = Hook("PreToolUse", Seen(ValueError("broken")), "code", required=required)
        async with make([cell("1"), "done"], config={"mode": "full"}, hooks=[hook]) as agent:
            events, _ = await read(agent.run("p"))
        assert of_kind(events, ToolOutput)[0].outcome == outcome
        assert "ValueError: broken" in of_kind(events, Notice)[0].content
