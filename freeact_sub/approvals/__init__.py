"""May this call run? Rules and mode first, then a person."""

from freeact_sub.approvals.decision import decide
from freeact_sub.approvals.gate import Gate
from freeact_sub.approvals.policy import Policy, Ruling, narrowed
from freeact_sub.approvals.questions import OpenQuestions
from freeact_sub.approvals.rules.project_rules import ProjectRules
from freeact_sub.approvals.rules.rule import Rules, Verdict, load_rules, make_rules, shipped_rules
from freeact_sub.approvals.rules.rule_files import RuleFiles
from freeact_sub.approvals.timely import decide_in_time
from freeact_sub.approvals.unasked import unasked_writes

__all__ = [
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
    "shipped_rules",
    "unasked_writes",
]
