"""Undo and redo of prompts: the conversation, the variables and the files of the workspace go back together."""
