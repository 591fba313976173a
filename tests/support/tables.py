"""Tables of cases that one test runs through: all rows are tried, and the failure names each one that failed and why.

A row of `pytest.mark.parametrize` is a test of its own, which costs more than most rows do. That remains right where a row
starts a process or needs fixtures of its own.
"""

import functools
import inspect
import json
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import pytest

F = TypeVar("F", bound=Callable[..., Any])

TESTS = Path(__file__).parents[1]
FRESH = {"tmp_path", "monkeypatch", "caplog", "capsys"}
"""Fixtures that are as new for each row."""
NAME_CHARS = 300
TIMEOUT = "Timeout "
"""Begins the failure with which `pytest-timeout` ends a test: no clock runs after it, so no other row may."""


def lines(name: str) -> list[str]:
    """Read a table of texts in `tests/data`: a row a line, as it is; one that begins with `"` is a string of JSON."""
    rows = (TESTS / "data" / name).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return [json.loads(row) if row.startswith('"') else row for row in rows]


def each(
    names: str | tuple[str, ...],
    rows: Iterable[Any],
    *,
    ids: Iterable[str] | Callable[[Any], str] | None = None,
    together: bool = False,
) -> Callable[[F], F]:
    """Run a test for each row, which is given as `pytest.mark.parametrize` wants it, and fail once, for all rows that failed.

    Two tables of a test are all pairs of their rows. Each row has a `tmp_path` of its own, and what it has patched is undone.
    Other fixtures are made once; they may use `tmp_path` themselves, so a test that asks for both says by `together` that its
    rows share that folder.
    """
    table = _table(names, list(rows), ids)

    def decorate(function: F) -> F:
        inner = getattr(function, "table", None)
        if inner is not None:
            pairs = [Row(f"{one.name}, {other.name}", one.values | other.values) for other in inner for one in table]
            return _test(function.__wrapped__, pairs, together)  # type: ignore[attr-defined]
        return _test(function, table, together)

    return decorate


def _test(function: F, table: list["Row"], together: bool) -> F:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def test(**given: Any) -> None:
            with _Rows(len(table)) as tried:
                for number, row in enumerate(table):
                    with tried.row(row.name), _fresh(given, number, together) as fixtures:
                        await function(**fixtures, **row.values)
    else:

        @functools.wraps(function)
        def test(**given: Any) -> None:
            with _Rows(len(table)) as tried:
                for number, row in enumerate(table):
                    with tried.row(row.name), _fresh(given, number, together) as fixtures:
                        function(**fixtures, **row.values)

    signature = inspect.signature(function)
    fixtures = [parameter for name, parameter in signature.parameters.items() if name not in table[0].values]
    test.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
    test.table = table  # type: ignore[attr-defined]
    return test  # type: ignore[return-value]


class Row(NamedTuple):
    """What a test is called with, by name, and the words that name it."""

    name: str
    values: dict[str, Any]


def _table(names: str | tuple[str, ...], rows: list[Any], ids: Iterable[str] | Callable[[Any], str] | None) -> list[Row]:
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    labels = None if ids is None or callable(ids) else list(ids)
    table = []
    for number, row in enumerate(rows):
        name, values = None, row if len(columns) > 1 else [row]
        if isinstance(row, type(pytest.param())):
            if row.marks:
                raise TypeError(f"{row}: a row of a table has no marks; parametrize the test, or leave the row out")
            name, values = row.id, row.values
        named = dict(zip(columns, values, strict=True))
        if labels:
            name = name or labels[number]
        elif callable(ids):
            name = name or "-".join(str(ids(value)) for value in values)
        table.append(Row(name or _cut(", ".join(f"{name}={value!r}" for name, value in named.items())), named))
    if not table:
        raise ValueError(f"the table of {names} has no row")
    return table


@contextmanager
def _fresh(given: dict[str, Any], number: int, together: bool) -> Iterator[dict[str, Any]]:
    """What a row gets of the fixtures."""
    fixtures = dict(given)
    with ExitStack() as stack:
        if "tmp_path" in given and not together:
            if others := given.keys() - FRESH:
                raise TypeError(
                    f"do the rows share what {', '.join(others)} made in tmp_path? Then say so by `together=True`"
                )
            fixtures["tmp_path"] = given["tmp_path"] / str(number)
            fixtures["tmp_path"].mkdir()
        if "monkeypatch" in given:
            fixtures["monkeypatch"] = stack.enter_context(given["monkeypatch"].context())
        if "caplog" in given:
            given["caplog"].clear()
        if "capsys" in given:
            given["capsys"].readouterr()
        yield fixtures


class _Rows:
    """The rows of a table that were tried."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.failed: list[str] = []
        self.skipped: list[str] = []

    @contextmanager
    def row(self, name: str) -> Iterator[None]:
        """Keep the failure of a row, so that the others are tried too."""
        try:
            yield
        except pytest.skip.Exception as error:
            self.skipped.append(str(error))
        except (Exception, pytest.fail.Exception) as error:
            self.failed.append(f"{name}\n{textwrap.indent(_told(error), '    ')}")
            if str(error).startswith(TIMEOUT):
                self._tell()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._tell()

    def _tell(self) -> None:
        if self.failed:
            pytest.fail(f"{len(self.failed)} of {self.count} rows failed:\n" + "\n".join(self.failed), pytrace=False)
        if len(self.skipped) == self.count:
            pytest.skip(self.skipped[0])


def _told(error: BaseException) -> str:
    """The failure of a row, after the line of the tests where it happened."""
    if isinstance(error, pytest.fail.Exception) and not error.pytrace:
        return str(error)  # a table in a table
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(TESTS)] or frames
    place = f"{Path(own[-1].filename).name}:{own[-1].lineno}: " if own else ""
    return place + "".join(traceback.format_exception_only(error)).strip()


def _cut(text: str) -> str:
    return text if len(text) <= NAME_CHARS else text[: NAME_CHARS - 3] + "..."
