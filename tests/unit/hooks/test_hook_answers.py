"""What a hook says: exit codes, texts, JSON, and what several say together."""

from typing import Any

from support.tables import each

from freeact_sub.hooks import TEXT_CHARS, HookAnswer, read_exit, read_value, together


def pre(**specific: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **specific}}


def test_exit_code_2_is_a_denial_with_standard_error_as_its_reason() -> None:
    answer = read_exit("PreToolUse", 2, '{"hookSpecificOutput": {"permissionDecision": "allow"}}', "use rg\x1b[2J\n")
    assert (answer.verdict, answer.reason) == ("deny", "use rg")
    assert read_exit("Stop", 2, "", "").reason


@each("code", [1, 3, 126, 127, -9])
def test_another_exit_code_is_a_failure(code: int) -> None:
    answer = read_exit("PreToolUse", code, "", "boom")
    assert answer.verdict is None
    assert answer.failure


def test_plain_text_is_for_the_model_where_an_event_tells_it_something() -> None:
    assert read_exit("SessionStart", 0, "branch main\n", "").context == "branch main"
    assert read_exit("UserPromptSubmit", 0, "x" * (TEXT_CHARS * 2), "").context.count("x") <= TEXT_CHARS
    assert read_exit("PostToolUse", 0, "formatted 3 files", "noise") == HookAnswer()


def test_broken_json_is_a_failure() -> None:
    assert "not JSON" in read_exit("PreToolUse", 0, '{"decision": "block"', "").failure


@each(
    ("event", "value", "verdict", "reason"),
    [
        ("PreToolUse", pre(permissionDecision="deny", permissionDecisionReason="no"), "deny", "no"),
        ("PreToolUse", pre(permissionDecision="ask", permissionDecisionReason="look"), "ask", "look"),
        ("PreToolUse", pre(permissionDecision="allow"), "allow", "it gave no reason"),
        ("PreToolUse", {"decision": "approve", "reason": "known"}, "allow", "known"),
        ("PreToolUse", {"decision": "block", "reason": "no"}, "deny", "no"),
        ("PostToolUse", {"decision": "block", "reason": "lint fails"}, "deny", "lint fails"),
        ("Stop", {"decision": "block", "reason": "run the tests"}, "deny", "run the tests"),
        ("Stop", {"continue": True}, None, ""),
        ("PreToolUse", {"systemMessage": "hello", "suppressOutput": True}, None, ""),
    ],
)
def test_json_says_what_it_decides(event: Any, value: dict[str, Any], verdict: str | None, reason: str) -> None:
    answer = read_value(event, value)
    assert (answer.verdict, answer.reason, answer.failure) == (verdict, reason, "")


def test_a_permission_request_is_decided_by_its_behavior() -> None:
    def said(**decision: Any) -> HookAnswer:
        return read_value("PermissionRequest", {"hookSpecificOutput": {"decision": decision}})

    assert said(behavior="allow").verdict == "allow"
    denied = said(behavior="deny", message="not today", interrupt=True)
    assert (denied.verdict, denied.reason, denied.ends) == ("deny", "not today", True)


def test_continue_false_ends_the_run() -> None:
    answer = read_value("PostToolUse", {"continue": False, "stopReason": "enough"})
    assert (answer.verdict, answer.reason, answer.ends) == ("deny", "enough", True)


@each(
    "value",
    [
        [],
        7,
        "text",
        {"hookSpecificOutput": []},
        {"hookSpecificOutput": {"hookEventName": "Stop"}},
        {"decision": "perhaps"},
        {"decision": "block", "reason": 7},
        pre(permissionDecision="allow", updatedInput={"command": "true"}),
        pre(permissionDecision=["allow"]),
    ],
)
def test_unreadable_answers_are_a_failure_and_allow_nothing(value: Any) -> None:
    answer = read_value("PreToolUse", value)
    assert answer.failure
    assert answer.verdict is None


def test_the_strictest_of_several_answers_counts_and_all_texts_are_kept() -> None:
    answers = [
        HookAnswer(verdict="allow", reason="fine", context="a"),
        HookAnswer(verdict="deny", reason="no"),
        HookAnswer(verdict="deny", reason="never", notice="look"),
        HookAnswer(verdict="ask", reason="hm", context="b"),
    ]
    answer = together(answers)
    assert answer == HookAnswer(verdict="deny", reason="no\nnever", context="a\nb", notice="look")
    assert together([]) == HookAnswer()
