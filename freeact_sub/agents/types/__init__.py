"""Named types of agents, defined by Markdown files."""
