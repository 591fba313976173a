"""Hooks: commands and functions that a person has run at certain moments, beside the rules (docs/hooks.md).

`call_names.py` says what a call is called for hooks, `answer.py` reads what a hook says, and `runner.py` runs all that
match, side by side, commands in a shell. Where they run is decided in `features/hooks/`.
"""

from freeact_sub.hooks.answer import HookAnswer
from freeact_sub.hooks.call_names import CallNames, names_of
from freeact_sub.hooks.hook import Hook
from freeact_sub.hooks.runner import HookRunner, matched

__all__ = ["CallNames", "Hook", "HookAnswer", "HookRunner", "matched", "names_of"]
