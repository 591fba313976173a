"""The first words of docstrings, as `make check` holds them."""

import ast
import textwrap

from support.file_rules import wrong_docstrings

GOOD = '''
    """Kernels of agents."""

    LIMIT = 3
    """The largest number of kernels."""

    class Kernel:
        """A kernel of one agent."""

        async def start(self):
            """Start the kernel."""
            "what is no docstring"

        state: str = ""
        """`idle`, `busy` or `dead`."""
'''
BAD = '''
    """What an agent has: kernels."""

    LIMIT = 3
    """At most so many kernels."""

    class Kernel:
        """Those of one agent."""

        async def start(self):
            """See `Provider.start`."""

        state: str = ""
        """`Of` the kernel."""
'''


def test_nouns_and_verbs_pass():
    assert wrong_docstrings(ast.parse(textwrap.dedent(GOOD))) == []


def test_relatives_prepositions_pronouns_and_references_are_named_with_their_lines():
    found = wrong_docstrings(ast.parse(textwrap.dedent(BAD)))
    assert sorted((int(line), told.split("'")[1]) for line, _, told in (each.partition(": ") for each in found)) == [
        (2, "What"),
        (5, "At"),
        (8, "Those"),
        (11, "See"),
        (14, "Of"),
    ]
