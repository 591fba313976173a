"""What must hold of hooks beside any ruling: they narrow, or answer what would be asked; they never widen."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.askers import AskerFake
from support.tables import each

from freeact_sub.approvals import Gate, Policy
from freeact_sub.approvals.gate import NOBODY, Adviser
from freeact_sub.approvals.policy import Ruling
from freeact_sub.calls import Call, CodeAction
from freeact_sub.channel import Emitter, EventChannel
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.hooks import HookAnswer

ORDER = ("allow", "asked", "deny")
RULINGS = [
    Ruling(verdict="allow", rule="r"),
    Ruling(verdict="deny", rule="r"),
    *(Ruling(verdict="ask", rule="r", lasting=a, needs_person=b) for a, b in product((True, False), repeat=2)),
]
ASKS = Ruling(verdict="ask", rule="r")
SAYINGS = [
    None,
    HookAnswer(),
    *(HookAnswer(verdict=verdict, reason="h") for verdict in ("deny", "ask", "allow")),
    HookAnswer(verdict="deny", reason="h", ends=True),
]


class Hooks(Adviser):
    """Hooks that say always the same, and note that they were heard."""

    source = "a hook"

    def __init__(self, before: HookAnswer | None, on_question: HookAnswer | None) -> None:
        self.answers, self.heard = (before, on_question), list[str]()

    async def before(self, call: Call) -> HookAnswer | None:
        del call
        self.heard.append("before")
        return self.answers[0]

    async def on_question(self, call: Call, suggested: Any) -> HookAnswer | None:
        del call, suggested
        self.heard.append("on_question")
        return self.answers[1]


class Ruled(Gate):
    """A gate with rulings as they are given; the last one stays."""

    def __init__(self, *rulings: Ruling) -> None:
        super().__init__(headless="deny")
        self.rulings = [*rulings]

    async def ruling(self, call: Call, policy: Policy) -> Ruling:
        del call, policy
        return self.rulings.pop(0) if len(self.rulings) > 1 else self.rulings[0]


async def outcome(gate: Gate, hooks: Hooks | None) -> str:
    emitter = Emitter(channel=EventChannel(), agent_id="agent-1")
    try:
        asker = AskerFake(policy=Policy(workspace=Path("/w")), emitter=emitter, advisers=() if hooks is None else (hooks,))
        await gate.check(CodeAction(code="1"), asker)
    except ApprovalDeniedError as error:
        return "asked" if error.reason.startswith(NOBODY) else "deny"
    return "allow"


@each("ruling", RULINGS, ids=str)
async def test_hooks_never_widen_a_ruling(ruling: Ruling) -> None:
    plain = await outcome(Ruled(ruling), None)
    assert plain == {"ask": "asked"}.get(ruling.verdict, ruling.verdict)
    for before, on_question in product(SAYINGS, repeat=2):
        hooks = Hooks(before, on_question)
        found = await outcome(Ruled(ruling), hooks)
        said = {
            name: answer.verdict for name, answer in zip(("before", "on_question"), hooks.answers, strict=True) if answer
        }
        said = {name: verdict for name, verdict in said.items() if name in hooks.heard}
        if ORDER.index(found) < ORDER.index(plain):
            assert (plain, ruling.needs_person) == ("asked", False)
            assert said.get("on_question") == "allow" or (ruling.lasting and said.get("before") == "allow")
        if "deny" in said.values():
            assert found == "deny"
        if said.get("before") == "ask" and said.get("on_question") != "allow":
            assert found != "allow"
        if plain == "deny":
            assert not hooks.heard


@pytest.mark.parametrize("first", [RULINGS[0], ASKS], ids=str)
async def test_what_is_denied_while_a_hook_runs_stays_denied(first: Ruling) -> None:
    allows = HookAnswer(verdict="allow", reason="h")
    assert await outcome(Ruled(first, RULINGS[1]), Hooks(allows, allows)) == "deny"
    assert await outcome(Ruled(ASKS, ASKS, RULINGS[1]), Hooks(HookAnswer(), allows)) == "deny"
