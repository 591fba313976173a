"""What the terminal draws: a run in words, its children at work, all of it in full."""
