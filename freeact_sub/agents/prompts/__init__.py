"""The prompts of agents: text files."""
