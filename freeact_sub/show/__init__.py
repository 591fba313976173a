"""The common part of all front ends: open questions, agents' activities, the wording of calls and endings, safe HTML."""
