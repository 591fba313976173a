"""Describes the columns of a CSV file, with the standard library only."""

import csv
import statistics
from dataclasses import dataclass, field
from pathlib import Path

MOSTLY = 0.9
FAR = 10


@dataclass
class Column:
    """A column of a table."""

    name: str
    values: list[str] = field(repr=False)

    @property
    def numbers(self) -> dict[int, float]:
        """Its numbers, by row."""
        found = {}
        for row, value in enumerate(self.values, 2):  # as an editor counts the lines: the first has the names
            try:
                found[row] = float(value)
            except ValueError:
                continue
        return found

    @property
    def holds_numbers(self) -> bool:
        """Whether nearly all of its values are numbers."""
        given = [value for value in self.values if value]
        return bool(given) and len(self.numbers) >= MOSTLY * len(given)


def read_columns(path: str | Path) -> list[Column]:
    """Return the columns of a CSV file."""
    with Path(path).open(newline="", encoding="utf-8-sig") as file:
        names, *rows = csv.reader(file)
    return [Column(name, [row[index] if index < len(row) else "" for row in rows]) for index, name in enumerate(names)]


def doubts(columns: list[Column]) -> list[str]:
    """Return what looks wrong, one sentence each, with the line of the file."""
    found = [doubt for column in columns for doubt in _doubts_of(column)]
    seen: dict[tuple[str, ...], int] = {}
    for line, row in enumerate(zip(*(column.values for column in columns), strict=True), 2):
        if row in seen:
            found.append(f"line {line} is exactly like line {seen[row]}")
        seen.setdefault(row, line)
    return found


def as_markdown(columns: list[Column]) -> str:
    """Return a table with a line for each column."""
    lines = ["| column | values | empty | from | to |", "| --- | --- | --- | --- | --- |"]
    for column in columns:
        given = [value for value in column.values if value]
        ends = (min(column.numbers.values()), max(column.numbers.values())) if column.holds_numbers else ("", "")
        lines.append(f"| {column.name} | {len(set(given))} | {len(column.values) - len(given)} | {ends[0]} | {ends[1]} |")
    return "\n".join(lines)


def _doubts_of(column: Column) -> list[str]:
    found, numbers = [], column.numbers
    if any(column.values):
        found += [f"{column.name}: line {line} is empty" for line, value in enumerate(column.values, 2) if not value]
    if column.holds_numbers:
        middle = statistics.median(numbers.values())
        usual = statistics.median(abs(number - middle) for number in numbers.values())
        found += [
            f"{column.name}: line {line} is not a number: {value!r}"
            for line, value in enumerate(column.values, 2)
            if value and line not in numbers
        ]
        found += [
            f"{column.name}: line {line} is far out: {number:g}, where {middle:g} is usual"
            for line, number in numbers.items()
            if usual and abs(number - middle) > FAR * usual
        ]
    return found
