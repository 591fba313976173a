"""Input of a person besides prompts: `/` commands, one line of a table each, and `@` files."""
