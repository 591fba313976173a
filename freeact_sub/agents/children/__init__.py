"""Children: how they are started, what they and their parents tell each other, and how they end."""
