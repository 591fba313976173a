"""Decisions on whether a call may run: by rules and mode first, then by a person."""

from freeact_sub.approvals.gate import Approve, Gate, decide, decide_in_time
from freeact_sub.approvals.open_questions import OpenQuestions, required
from freeact_sub.approvals.policy import (
    Policy,
    ProjectRules,
    RuleFiles,
    Rules,
    Ruling,
    Verdict,
    load_rules,
    make_rules,
    narrowed,
    shipped_rules,
    unasked_writes,
)

__all__ = [
    "Approve",
    "Gate",
    "OpenQuestions",
    "Policy",
    "ProjectRules",
    "RuleFiles",
    "Rules",
    "Ruling",
    "Verdict",
    "decide",
    "decide_in_time",
    "load_rules",
    "make_rules",
    "narrowed",
    "required",
    "shipped_rules",
    "unasked_writes",
]
