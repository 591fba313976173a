"""The tests that start processes and belong to `make test`, in `tests/contract.txt`, and those in `tests/quarantine.txt`."""

from pathlib import Path

CONTRACT = Path(__file__).parents[1] / "contract.txt"
QUARANTINE = CONTRACT.with_name("quarantine.txt")


def contract() -> set[str]:
    """Names of files, functions or single cases, as pytest writes them."""
    lines = CONTRACT.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def quarantine() -> dict[str, str]:
    """Tests that fail on a busy machine, with the cause."""
    lines = QUARANTINE.read_text(encoding="utf-8").splitlines()
    return dict(line.split(" ", maxsplit=1) for line in lines if line and not line.startswith("#"))
