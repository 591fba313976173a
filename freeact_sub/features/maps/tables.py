"""Frames as tables (`table_of`): their rows, and copies with more columns. pandas is imported only for a frame of pandas."""

import dataclasses
import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from pydantic import BaseModel, RootModel
from typing_extensions import is_typeddict

from freeact_sub.errors import InvalidRequestError

ANSWER: Final = "answer"
"""The column of an answer without fields."""
ERROR: Final = "error"


class FrameLike(Protocol):
    """A frame of any kind."""

    @property
    def columns(self) -> Sequence[Hashable]:
        """The names of the columns."""

    def rows(self, columns: Sequence[Hashable]) -> Iterator[Mapping[Hashable, Any]]:
        """Yield the values of each row, by column."""

    def extended(self, new: Mapping[str, list[Any]]) -> Any:
        """Return a copy of the frame with more columns, each with a value for each row."""


def table_of(frame: Any) -> FrameLike:
    """Return the frame as a table.

    Raises:
        InvalidRequestError: The frame is of another kind.
    """
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(frame, pandas.DataFrame):
        return _PandasRows(frame)
    if isinstance(frame, Sequence) and not isinstance(frame, str) and all(isinstance(row, Mapping) for row in frame):
        return _DictRows(frame)
    kind = f"{type(frame).__module__}.{type(frame).__qualname__}"
    dicts = ": pass frame.to_dicts()" if hasattr(frame, "to_dicts") else ""
    raise InvalidRequestError(f"agent.map takes a DataFrame of pandas or a list of dicts, not {kind}{dicts}")


class _DictRows:
    """A list of dicts."""

    def __init__(self, rows: Sequence[Mapping[Hashable, Any]]) -> None:
        self._rows = rows
        self.columns = [*dict.fromkeys(column for row in rows for column in row)]

    def rows(self, columns: Sequence[Hashable]) -> Iterator[Mapping[Hashable, Any]]:
        del columns
        return iter(self._rows)

    def extended(self, new: Mapping[str, list[Any]]) -> Any:
        return [{**row, **{name: values[at] for name, values in new.items()}} for at, row in enumerate(self._rows)]


class _PandasRows:
    """A DataFrame of pandas."""

    def __init__(self, frame: Any) -> None:
        if frame.columns.nlevels > 1:
            raise InvalidRequestError("agent.map: the frame's columns have several levels: give it plain names first")
        self._frame = frame
        self.columns = [*frame.columns]

    def rows(self, columns: Sequence[Hashable]) -> Iterator[Mapping[Hashable, Any]]:
        for values in zip(*(self._frame[column] for column in columns), strict=True):
            yield dict(zip(columns, values, strict=True))

    def extended(self, new: Mapping[str, list[Any]]) -> Any:
        extended = self._frame.copy()
        for name, values in new.items():
            extended[name] = self._array(values)
        return extended

    @staticmethod
    def _array(values: list[Any]) -> Any:
        """Return the values as a column; whole numbers stay whole beside rows without one."""
        import pandas as pd  # type: ignore[import-untyped]  # noqa: PLC0415  # only if it is used

        present = [value for value in values if value is not None]
        try:
            if present and len(present) < len(values) and all(type(value) is int for value in present):
                return pd.array(values, dtype="Int64")
            return pd.Series(values, dtype=None if present else object).array
        except (OverflowError, ValueError, TypeError):  # a number past 64 bits
            return pd.Series(values, dtype=object).array


def new_columns(output: Any, table: FrameLike) -> list[str] | None:
    """Return the columns of a type's fields. None: without fields, its values are the column `answer`.

    Raises:
        InvalidRequestError: The frame has one of them already.
    """
    names = _fields(output)
    for name in [*([ANSWER] if names is None else names), ERROR]:
        if name in table.columns:
            raise InvalidRequestError(
                f"agent.map: the frame has a column {name!r} already, which the result would have too: rename it first"
            )
    if names is not None and ERROR in names:
        raise InvalidRequestError(f"agent.map: {output!r} has a field {ERROR!r}, as the column of errors is called")
    return names


def _fields(output: Any) -> list[str] | None:
    if is_typeddict(output):
        return [*output.__annotations__]
    if not isinstance(output, type):
        return None
    if issubclass(output, BaseModel) and not issubclass(output, RootModel):
        return [*output.model_fields]
    if dataclasses.is_dataclass(output):
        return [field.name for field in dataclasses.fields(output)]
    return None
