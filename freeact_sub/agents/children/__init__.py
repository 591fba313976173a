"""Children: how they start, exchange messages with their parents, and end."""
