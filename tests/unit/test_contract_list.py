"""`tests/contract.txt` and `tests/quarantine.txt` name tests that there are."""

from pathlib import Path

from support.contract import contract, quarantine

ROOT = Path(__file__).parents[2]
MIN_TESTS, MAX_TESTS = 150, 300
"""More would take `make test` beyond five minutes on two cores."""
MAX_QUARANTINED = 5


def test_each_line_names_a_test() -> None:
    wrong = []
    for name in {*contract(), *quarantine()}:
        path, _, test = name.partition("::")
        function = test.partition("[")[0].rpartition("::")[2]
        file = ROOT / path
        if not file.is_file() or (function and f"def {function}(" not in file.read_text(encoding="utf-8")):
            is_inherited = "::Test" in name  # its base class is another library's
            wrong += [] if is_inherited and file.is_file() else [name]
    assert not wrong


def test_the_listed_tests_are_few_enough() -> None:
    assert MIN_TESTS <= len(contract()) <= MAX_TESTS
    assert len(quarantine()) <= MAX_QUARANTINED
