"""The tests that start processes and belong to `make test`: they stand in `tests/contract.txt`, by feature and promise."""

from pathlib import Path

CONTRACT = Path(__file__).parents[1] / "contract.txt"


def contract() -> set[str]:
    """Names of files, functions or single cases, as pytest writes them."""
    lines = CONTRACT.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}
