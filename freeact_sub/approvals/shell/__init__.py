"""Parses shell commands and judges each part by itself."""

from freeact_sub.approvals.shell.judge import judge_command, judge_outside

__all__ = ["judge_command", "judge_outside"]
