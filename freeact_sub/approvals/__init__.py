"""Decides whether a call may run: by rules and mode first, then by a person."""

from freeact_sub.approvals.decision import decide, decide_in_time, unasked_writes
from freeact_sub.approvals.gate import Approve, Gate
from freeact_sub.approvals.open_questions import OpenQuestions, required
from freeact_sub.approvals.policy import Policy, Ruling, narrowed
from freeact_sub.approvals.rules.project_rules import ProjectRules
from freeact_sub.approvals.rules.rule import RuleFiles, Rules, Verdict, load_rules, make_rules, shipped_rules

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
