"""The command line."""

from freeact_sub.cli.commands import main

__all__ = ["main"]
