"""May this call run? Rules and mode first, then a person."""

from freeact_sub.approvals.gate import Gate
from freeact_sub.approvals.policy import Policy, Ruling, decide, narrowed
from freeact_sub.approvals.project import ProjectRules
from freeact_sub.approvals.rules import Rules, Verdict, load_rules, make_rules, shipped_rules
from freeact_sub.approvals.unasked import unasked_writes

__all__ = [
    "Gate",
    "Policy",
    "ProjectRules",
    "Rules",
    "Ruling",
    "Verdict",
    "decide",
    "load_rules",
    "make_rules",
    "narrowed",
    "shipped_rules",
    "unasked_writes",
]
