"""Questions in the terminal: the card that shows one, the keys that answer it, code that a person changes."""
