"""Draws for the terminal: a run in words, its children at work, all of it in full."""
