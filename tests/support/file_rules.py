"""Five rules about files, and the size of each room. The exit status tells whether a rule is broken.

- No two files of tests have one name: pytest wants that.
- No more than three files import each other in a circle. Imports for type checkers and in functions count too.
- Private names of other libraries stand only in files `borrowed_*.py`. Each such file says what for, and
  `tests/unit/test_borrowed.py` fails when a library has another name.
- No more than 60 lines of tests sleep. The others wait for conditions (`tests/support/waiting.py`).
- No docstring of the package begins with a relative, a preposition or a pronoun, or sends the reader elsewhere ("See X"):
  the first word is a noun, after an article at most, or for a function a verb.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.structure import BORROWED, Source  # noqa: E402

CIRCLE = 3
BUDGET = 0.75
"""Lines of tests for a line of the package, at most. It is a figure to look at, no error."""
SLEEPS = 60
NO_BEGINNING = frozenset(
    (
        *("what", "whatever", "who", "whoever", "whose", "which", "where", "when", "as", "if"),
        *("of", "for", "by", "in", "from", "with", "on", "at", "to"),
        *("that", "those", "this", "such", "it", "they", "not", "see"),
    )
)


def main() -> int:
    """Print what breaks a rule."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True, check=True
    )
    files = [path for name in listed.stdout.split() if (path := Path(name)).exists()]
    names = Counter(path.name for path in files if path.name.startswith("test_"))
    wrong = [f"{name}: {count} files, 1 allowed" for name, count in names.items() if count > 1]
    source = Source(ROOT)
    wrong += [
        f"{len(circle)} files import each other, {CIRCLE} may: {', '.join(circle)}"
        for circle in source.circles()
        if len(circle) > CIRCLE
    ]
    borrowed = source.borrowed()
    wrong += [
        f"{module}: {name} is a private name of another library: it may stand in a file {BORROWED}*.py alone"
        for module, names in borrowed.items()
        if not module.rpartition(".")[2].startswith(BORROWED)
        for name in sorted(names)
    ]
    lines, counts = source.lines(), source.counts()
    print(*(f"{name}: {size:,} lines in {counts[name]} files" for name, size in lines.most_common()), sep="; ")
    tests = [line for path in files if path.parts[0] == "tests" for line in path.read_text(encoding="utf-8").splitlines()]
    share = len(tests) / lines.total()
    print(f"{lines.total():,} lines in {counts.total()} files; {share:.2f} lines of tests for each, wanted {BUDGET}")
    if (sleeping := sum("sleep" + "(" in line for line in tests)) > SLEEPS:
        wrong.append(f"tests: {sleeping} lines sleep, {SLEEPS} may: wait for a condition")
    for module, path in source.files.items():
        place = path.relative_to(ROOT)
        wrong += [f"{place}:{problem}" for problem in wrong_docstrings(source.trees[module])]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


def wrong_docstrings(tree: ast.Module) -> list[str]:
    """Return a sentence, behind its line, on each docstring with a wrong first word."""
    found = ((line, re.match(r"\W*(\w*)", text)) for line, text in docstrings(tree))
    return [
        f"{line}: a docstring begins with {first[1]!r}: begin with a noun, or for a function with a verb"
        for line, first in found
        if first is not None and first[1].lower() in NO_BEGINNING
    ]


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a module, its classes, functions and attributes, each with its line."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        owner = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for before, statement in zip([None, *body], body, strict=False):
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))) if (
                    owner if before is None else isinstance(before, ast.Assign | ast.AnnAssign)
                ):
                    yield statement.lineno, text


if __name__ == "__main__":
    sys.exit(main())
