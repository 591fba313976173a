"""What a person types besides prompts: `/` commands, one line of a table each, and `@` files."""
