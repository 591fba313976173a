"""Drawings for the terminal: a run in words, its working children, the full record."""
