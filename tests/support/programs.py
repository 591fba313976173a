"""Examples and documents as a newcomer runs them: copied out of the repository, without settings, keys or a terminal."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from support.cli import environment
from support.warm import run_program

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 240


def copy_examples(folder: Path) -> Path:
    """A copy of the examples, so that nothing of the repository beside the package is in reach."""
    ignored = shutil.ignore_patterns("__pycache__", ".freeact", ".ipynb_checkpoints", "out")
    return Path(shutil.copytree(ROOT / "examples", folder / "examples", ignore=ignored))


def run_python(
    *arguments: str | Path, cwd: Path, env: Mapping[str, str] | None = None, python: str | Path = sys.executable
) -> subprocess.CompletedProcess[str]:
    """Run a Python program to its end."""
    command = [str(word) for word in (python, *arguments)]
    return run_program(command, cwd=cwd, env={**environment(), **(env or {})}, timeout=LIMIT_SECONDS)


def code_blocks(language: str, document: str = "README.md") -> list[str]:
    """The code blocks of that language in a document."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
