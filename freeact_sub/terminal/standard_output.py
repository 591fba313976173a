"""Writes to standard output, whatever characters its encoding has."""

import sys

from freeact_sub.text import visible


def write_out(text: str) -> None:
    """Writes a text as it is; characters that cannot be encoded are written as escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, errors="backslashreplace").decode(encoding))


def print_line(text: str) -> None:
    """Writes one or more lines, in which nothing is hidden."""
    write_out(f"{visible(text)}\n")
