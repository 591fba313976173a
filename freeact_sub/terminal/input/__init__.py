"""The input line, and what a person writes into it besides commands."""
