"""Named types of agents: Markdown files that say what a child of a type is."""
