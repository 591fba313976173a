"""`freeact-sub doctor`: what this machine can do, and what to do about the rest."""

import argparse
import asyncio
import os
import platform
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from freeact_sub import __version__
from freeact_sub.cli.doctor_checks import Finding, State, check_machine, check_model, check_packages, check_python
from freeact_sub.cli.doctor_kernels import check_kernels
from freeact_sub.cli.project_python import agreed_python
from freeact_sub.cli.streams import can_draw, print_line, write_out
from freeact_sub.config.schema import ON_THIS_MACHINE, Config
from freeact_sub.text import visible

MARKS: Final[dict[State, tuple[str, str, str]]] = {
    "works": ("✓", "+", "\x1b[32m"),
    "note": ("·", "-", "\x1b[2m"),
    "limited": ("!", "!", "\x1b[33m"),
    "missing": ("✗", "x", "\x1b[1;31m"),
}
"""Of each state: its mark, the mark where that cannot be written, and its colour."""
WIDEST: Final = 100
"""Characters of a line."""
TOPIC: Final = 10
"""Characters of the column of topics."""


def examine(_options: argparse.Namespace, settings: Callable[..., Config]) -> int:
    """Prints what works, what does not, and what helps. Returns the exit status: 0 if agents can work here, else 1."""
    config = settings(looking=True)
    print_line(f"freeact-sub {__version__} · Python {platform.python_version()} · {platform.system()} {platform.release()}")
    print_line(f"in {config.workspace}\n")
    findings = []
    for finding in found(config):
        findings.append(finding)
        show(finding)
        sys.stdout.flush()  # a kernel takes a moment
    print_line(f"\n{summary(findings)}")
    return 1 if any(finding.state == "missing" for finding in findings) else 0


def found(config: Config) -> Iterator[Finding]:
    """All findings, one after the other."""
    yield from check_model(config, os.environ)
    agreed = agreed_python(config)
    yield check_python(config, agreed, os.environ)
    if agreed:
        config = config.model_copy(update={"kernel": config.kernel.model_copy(update={"python": agreed})})
    if config.kernel.provider in ON_THIS_MACHINE:
        yield from asyncio.run(check_kernels(config))
    else:
        advice = "freeact-sub gateway check URL" if config.kernel.provider == "gateway" else ""
        yield Finding("kernels", "note", f"of the provider {config.kernel.provider}; none was started", advice)
    yield from check_machine(config, os.environ)
    yield check_packages()


def show(finding: Finding) -> None:
    """Prints a finding: its mark, its topic, its text, and below it what helps."""
    draws = can_draw(sys.stdout)
    mark, plain, colour = MARKS[finding.state]
    if not can_write(mark):
        mark = plain
    if draws and "NO_COLOR" not in os.environ:
        mark = f"{colour}{mark}\x1b[0m"
    width = min(shutil.get_terminal_size().columns if draws else WIDEST, WIDEST)
    first, *others = lines_of(finding, width)
    write_out(f"{mark} {first}\n")
    for line in others:
        write_out(f"{line}\n")


def lines_of(finding: Finding, width: int) -> list[str]:
    """The lines of a finding; the first is without its mark. A command stands on a line of its own, to be copied."""
    indent = " " * (TOPIC + 3)
    text_width = max(20, width - len(indent) - 1)
    text = textwrap.wrap(visible(finding.text), text_width, break_on_hyphens=False)
    helps = textwrap.wrap(visible(finding.advice), text_width - 2, break_on_hyphens=False, break_long_words=False)
    arrow = "→" if can_write("→") else "->"
    advice = [f"{indent}{arrow if number == 0 else ' ' * len(arrow)} {line}" for number, line in enumerate(helps)]
    if finding.command:
        advice.append(f"{indent}    {visible(finding.command)}")
    return [f"{finding.topic:<{TOPIC}} {text[0]}", *(f"{indent}{line}" for line in text[1:]), *advice]


def can_write(character: str) -> bool:
    """Whether standard output has the character."""
    try:
        character.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def summary(findings: Sequence[Finding]) -> str:
    """The last line."""
    missing = [finding.topic for finding in findings if finding.state == "missing"]
    limited = list(dict.fromkeys(finding.topic for finding in findings if finding.state == "limited"))
    if missing:
        return f"Agents cannot work here yet: see {', '.join(missing)}."
    if limited:
        return f"Agents can work here, with limits: see {', '.join(limited)}."
    return "Agents can work here."
