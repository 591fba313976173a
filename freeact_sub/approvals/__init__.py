"""May this call run? Rules first, then a person."""

from freeact_sub.approvals.gate import Gate
from freeact_sub.approvals.policy import Rules, Verdict, decide, pattern_of

__all__ = ["Gate", "Rules", "Verdict", "decide", "pattern_of"]
