"""Undo: restores conversation, variables and files of an agent as they were before a prompt."""

from freeact_sub.agents.undo.undo import UndoReport
from freeact_sub.agents.undo.undoable import Undoable

__all__ = ["UndoReport", "Undoable"]
