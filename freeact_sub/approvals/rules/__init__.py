"""Rules: their patterns, the files that they stand in, and what is offered to whoever answers "always"."""
