"""Undo and redo of prompts, which restore conversation, variables and files of the workspace together."""
