"""Parser of shell commands, and judgements on each part by itself."""

from freeact_sub.approvals.shell.judge import judge_command, judge_outside

__all__ = ["judge_command", "judge_outside"]
