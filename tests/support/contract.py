"""The tests that start processes and belong to `make test`, in `tests/contract.txt`, and those in `tests/quarantine.txt`."""

from pathlib import Path

TESTS = Path(__file__).parents[1]


def contract() -> set[str]:
    """Names of files, functions or single cases, as pytest writes them."""
    return {*_lines("contract.txt")}


def quarantine() -> dict[str, str]:
    """Tests that fail on a busy machine, with the cause."""
    return dict(line.split(" - ", maxsplit=1) for line in _lines("quarantine.txt"))


def _lines(name: str) -> list[str]:
    lines = (TESTS / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]
