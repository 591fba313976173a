"""The files of `freeact-sub map`, CSV, TSV and JSON lines, are read and written as rows; `--output` names the fields."""

import csv
import io
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

from pydantic import BaseModel, create_model

from freeact_sub.config.budget import Budget
from freeact_sub.errors import ConfigError

TYPES: Final[dict[str, Any]] = {"": str, "text": str, "int": int, "float": float, "bool": bool, "list": list[str]}
HELP: Final = "write --output 'topic: price|delivery|other, angry: bool, reason'; types are text, int, float, bool, list"

Form: TypeAlias = Literal["csv", "tsv", "jsonl"]
FORMS: Final[dict[str, Form]] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
DELIMITERS: Final = ",;\t"
SEPARATOR: Final = re.compile(r'"?sep=([^"\r\n])"?[ \t]*(?:\r?\n|\Z)', re.IGNORECASE)
HEAD: Final = re.compile(r'(?:"(?:[^"]|"")*"?|[^"\r\n])*')
"""The first record: a line end in quotes does not end it."""
MAX_DIGITS: Final = 4_000


@dataclass(frozen=True, kw_only=True)
class RowsFile:
    """What a file of rows holds."""

    form: Form
    columns: list[str]
    rows: list[dict[str, Any]]
    delimiter: str = ","


def read_rows(data: bytes, name: str) -> RowsFile:
    """Read a file of rows.

    Args:
        data: Its content.
        name: The file. `-`: standard input, which holds JSON lines if it begins with a brace, and CSV otherwise.

    Raises:
        ConfigError: It cannot be read; the message names the line.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not UTF-8 (at byte {error.start}): convert it first") from error
    form = form_of(name) if name != "-" else "jsonl" if text.lstrip().startswith("{") else "csv"
    return _json_rows(text, name) if form == "jsonl" else _csv_rows(text, name, form)


def form_of(name: str) -> Form:
    """Return the form of a file. Raises ConfigError if its name has no known ending."""
    suffix = Path(name).suffix.lower()
    if suffix not in FORMS:
        raise ConfigError(f"{name}: rows are read and written as {', '.join(FORMS)}: give the file one of these endings")
    return FORMS[suffix]


class SourceNumber(float):
    """A number of a file, which is written as it stood there: no float has all its digits, or none has its size."""

    text: str

    def __new__(cls, text: str) -> Self:
        """Args: text: as it stands in the file."""
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __str__(self) -> str:
        return self.text

    def __format__(self, form: str) -> str:
        return format(float(self), form) if form else self.text

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self.text,)


def _integer(text: str) -> int | SourceNumber:
    """An integer of a file; one with more digits than Python reads at once keeps its text."""
    return int(text) if len(text) <= MAX_DIGITS and text != "-0" else SourceNumber(text)


def json_text(value: Any) -> str:
    """A value as JSON: numbers of files as they stood there, and `null` for what JSON has no number for."""
    if isinstance(value, SourceNumber):
        return value.text
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    if isinstance(value, dict):
        members = (f"{json.dumps(str(name), ensure_ascii=False)}: {json_text(item)}" for name, item in value.items())
        return f"{{{', '.join(members)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(json_text, value))}]"
    return json.dumps(value, ensure_ascii=False)


def written(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], form: Form, delimiter: str) -> str:
    """Return rows as a file holds them. In CSV, what is no text is written as JSON, and nothing as an empty cell."""
    if form == "jsonl":
        return "".join(f"{json_text(dict(row))}\n" for row in rows)
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter="\t" if form == "tsv" else delimiter, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(column)) for column in columns])
    return text.getvalue()


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json_text(value)


def _json_rows(text: str, name: str) -> RowsFile:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_float=SourceNumber, parse_int=_integer, parse_constant=SourceNumber)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{name}, line {number}: it is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ConfigError(f"{name}, line {number}: a row must be an object, as {{'text': 'Hello'}}")
        rows.append(row)
    return RowsFile(form="jsonl", columns=[*dict.fromkeys(name for row in rows for name in row)], rows=rows)


def _csv_rows(text: str, name: str, form: Form) -> RowsFile:
    named = SEPARATOR.match(text)  # a line that spreadsheets write for each other
    text = text[named.end() :] if named else text
    head = HEAD.match(text)
    bare = re.sub(r'"(?:[^"]|"")*"?', "", head[0] if head else "")  # what stands in quotes separates nothing
    delimiter = named[1] if named else "\t" if form == "tsv" else max(DELIMITERS, key=bare.count)
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows = []
    try:
        columns = next(reader, [])
        if len({*columns}) < len(columns):
            twice = next(column for column in columns if columns.count(column) > 1)
            raise ConfigError(f"{name} has the column {twice!r} more than once: rename one of them")
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(columns):
                found = f"{len(cells)} cells, but the header has {len(columns)}"
                raise ConfigError(f"{name}, line {reader.line_num}: {found}: put quotes around a text with a separator")
            rows.append(dict(zip(columns, cells, strict=True)))
    except csv.Error as error:
        raise ConfigError(f"{name}, line {reader.line_num}: {error}") from error
    return RowsFile(form=form, columns=columns, rows=rows, delimiter=delimiter)


def fields_of(text: str) -> type[BaseModel]:
    """Return the type of an answer with these fields.

    Raises:
        ConfigError: The text cannot be read.
    """
    fields: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, kind = (word.strip() for word in part.partition(":"))
        if not name.isidentifier() or name.startswith("_"):
            raise ConfigError(f"--output: {name!r} is not a name for a field: {HELP}")
        if name in fields:
            raise ConfigError(f"--output: the field {name!r} is there twice: name it once")
        fields[name] = (_type(kind), ...)
    if not fields:
        raise ConfigError(f"--output: it has no field: {HELP}")
    try:
        return create_model("Answer", **fields)
    except (NameError, TypeError) as error:
        raise ConfigError(f"--output: {error}: {HELP}") from error


def _type(kind: str) -> Any:
    if kind in TYPES:
        return TYPES[kind]
    words = tuple(word.strip() for word in kind.split("|"))
    if len(words) < 2 or not all(words):  # a choice between two
        raise ConfigError(f"--output: {kind!r} is not a type: {HELP}")
    return Literal[words]


def budget_of(text: str) -> Budget:
    """Return the bound of `--budget`: dollars, as `3` or `$0.50`, or tokens, as `200000 tokens`.

    Raises:
        ConfigError: The text cannot be read.
    """
    tokens = re.fullmatch(r"\s*([\d_,]+)(k?)\s*tokens\s*", text)
    if tokens is not None and tokens[1].strip("_,"):
        return Budget(tokens=int(re.sub("[_,]", "", tokens[1])) * (1000 if tokens[2] else 1))
    try:
        amount = Decimal(text.strip().removeprefix("$"))
        if amount.is_finite() and amount > 0:
            return Budget(cost_usd=amount)
    except InvalidOperation:
        pass
    raise ConfigError(f"--budget: {text!r} is not a budget: write dollars, as 3 or $0.50, or tokens, as '200000 tokens'")
