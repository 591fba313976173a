"""Many questions side by side: the methods `ask_many` and `map` of `Agent` (docs/maps.md).

`table_of` reads frames as tables; pandas is imported only for a frame of pandas. `KeptAnswers` keeps the answers of maps in
a file, one JSON object a line, each written at once: a line is written by one call, and a last line that a kill has cut off
is skipped, so no earlier answer is lost.
"""

import asyncio
import dataclasses
import difflib
import hashlib
import json
import os
import re
import secrets
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from string import Formatter
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from pydantic import BaseModel, RootModel, TypeAdapter
from pydantic_ai.models import Model
from pydantic_core import to_json, to_jsonable_python
from typing_extensions import is_typeddict

from freeact_sub.agents.ask import AskParams, TypedAnswer, typed_for_program
from freeact_sub.agents.feature import Question
from freeact_sub.agents.loop import AgentLoop
from freeact_sub.agents.money import NO_PAYER, Payer
from freeact_sub.agents.requests import validated
from freeact_sub.agents.results import AnswerT
from freeact_sub.agents.root import Root, outcome
from freeact_sub.errors import FreeactError, InvalidRequestError
from freeact_sub.events import Notice, StrategyProgress
from freeact_sub.features.quotes import FanOuts, side_by_side
from freeact_sub.system.safe_files import full_path, replace_file
from freeact_sub.text import one_line

NAME: Final = "answers.jsonl"
"""The file's name in the folder of a session."""
WRITTEN: Final = "written"
"""The key of the result file's digest."""
HEADER: Final = b'{"freeact_sub": "answers of agent.map", "version": 1}\n'
ANSWER: Final = "answer"
"""The column of an answer without fields."""
ERROR: Final = "error"
PROGRESS_SECONDS: Final = 0.1
"""Seconds between two events of progress, at least."""
ERROR_CHARS: Final = 1_000

_BRACES: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
"""Braces and the name in them; a column of exactly this name counts, also with a colon or a mark in it."""
CONVERSIONS: Final[Mapping[str, Callable[[Any], str]]] = {"r": repr, "s": str, "a": ascii}

T = TypeVar("T")


class KeptAnswers:
    """The answers of one map. Without a file they last as long as this object."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._handle, self._known = path, -1, dict[str, Any]()

    def __enter__(self) -> Self:
        """Open the file and read it.

        Raises:
            FreeactError: The file cannot be read or written, or is not a file of answers.
        """
        if self._path is not None:
            try:
                self._open(full_path(self._path))
            except OSError as error:
                raise FreeactError(f"answers cannot be kept in {self._path}: {error.strerror or error}") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        del kind, error, trace
        self.close()

    def close(self) -> None:
        """Keep no further answers in the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def get(self, key: str) -> Any:
        """Return a kept answer, as JSON has it, if there is one."""
        return self._known.get(key)

    def keep(self, key: str, answer: Any) -> None:
        """Keep an answer. Raises OSError if it cannot be written."""
        self._known[key] = answer
        if self._handle >= 0:
            self._write(json.dumps({"key": key, "answer": answer}).encode() + b"\n")

    def has_written(self, content: bytes) -> bool:
        """Return whether the last result file had this content: nobody has changed it since."""
        return bool(self.get(WRITTEN) == hashlib.sha256(content).hexdigest())

    def write(self, path: Path, content: bytes) -> None:
        """Write a result file, and keep its digest. Raises OSError if it cannot be written."""
        self.keep(WRITTEN, hashlib.sha256(content).hexdigest())
        replace_file(path, content)

    def _open(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        self._handle = os.open(path, flags, 0o600)
        with open(self._handle, "rb", closefd=False) as file:  # a handle, not a path
            content = file.read() or b""
        if not content or (b"\n" not in content and HEADER.startswith(content)):
            os.truncate(self._handle, 0)
            self._write(HEADER)
        elif not content.startswith(HEADER):
            self.close()
            raise FreeactError(f"{path} is a file of something else: name another file for the answers")
        elif not content.endswith(b"\n"):
            self._write(b"\n")
        for line in content.splitlines()[1:]:
            self._read(line)

    def _read(self, line: bytes) -> None:
        try:
            known = json.loads(line)
            self._known[str(known["key"])] = known["answer"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return  # a kill has cut it off

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._handle, data) :]


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


async def ask_many(root: Root, prompts: Iterable[str], output: Any, model: str | None) -> list[Any]:
    """Carry out `Agent.ask_many`."""
    if isinstance(prompts, str):
        raise InvalidRequestError("agent.ask_many takes a list of prompts, not one text: use agent.ask for that")
    loop = root.callers_loop
    asker = _TypedAsks(loop, output, model)
    answers = dict[int, Any]()

    async def ask(item: tuple[int, str], payer: Payer = NO_PAYER) -> None:
        place, prompt = item
        answers[place] = await outcome(asker.ask(prompt, payer, value=True))

    async def ask_all() -> None:
        if isinstance(prompts, Sequence) and len(prompts) > loop.agent.shared.config.models.quote_above:
            asked = await loop.single_requests.model(model)
            items = [*enumerate(prompts)]
            await _asked(loop, "ask_many", asked, items, lambda item: len(str(item[1])), ask)
        else:
            await side_by_side(loop.agent, enumerate(prompts), ask)

    await loop.children.in_run(ask_all)
    return [answers[place] for place in range(len(answers))]


async def map_rows(
    root: Root, frame: AnswerT, template: str, output: Any, model: str | None, kept_in: Path | str | None
) -> AnswerT:
    """Carry out `Agent.map`."""
    loop, table = root.callers_loop, table_of(frame)
    if isinstance(frame, Sequence) and not frame:  # without rows there are no names of columns
        return table.extended({})  # type: ignore[no-any-return]  # of the frame's own kind
    read, names = Template(template, table.columns), new_columns(output, table)
    asker = _TypedAsks(loop, output, model)
    prompts = [_prompt(read, row) for row in table.rows([*read.columns.values()])]
    features = root.tree.shared.features
    of_session = features.named("sessions").file(NAME) if features.has("sessions") else None
    path = of_session if kept_in is None else Path(kept_in)

    async def ask_rows() -> list[Any]:
        asked = await loop.single_requests.model(model)
        schema = None if asker.typed is None else asker.typed.tool.parameters_json_schema
        question = Question(agent=loop.agent, prompt="", model=asked, schema=schema)
        keys = [replace(question, prompt=prompt).digest if isinstance(prompt, str) else "" for prompt in prompts]
        with KeptAnswers(path) as kept:
            rows = _Rows(loop, asker, kept, prompts, keys)
            found = await rows.answered(asked)
        return [found[key] if key else prompt for key, prompt in zip(keys, prompts, strict=True)]

    outcomes = await loop.children.in_run(ask_rows)
    return table.extended(_columns(outcomes, names))  # type: ignore[no-any-return]  # of the frame's own kind


class _TypedAsks:
    """Questions to one model for answers of one type."""

    def __init__(self, loop: AgentLoop, output: Any, model: str | None) -> None:
        """Make the asker. Raises: InvalidRequestError: The type has no JSON schema."""
        self._loop, self._model = loop, model
        self.typed: TypedAnswer | None = None
        self._adapter: TypeAdapter[Any] = TypeAdapter(str)
        if output is not None and output is not str:
            self._adapter, self.typed = typed_for_program(output)

    async def ask(self, prompt: str, payer: Payer, *, value: bool) -> Any:
        """Return the answer. Args: value: of the program's type; else as JSON has it."""
        params = {"prompt": prompt, "model": payer.model or self._model}
        asked = validated(AskParams.model_validate, params, "agent.ask")
        answer = await self._loop.run_requests.asks.ask(asked, self.typed, of_program=True, payer=payer.account)
        return self.value(answer) if value else to_jsonable_python(answer)

    def value(self, answer: Any) -> Any:
        """Return an answer as a value of the program's type. Raises ValidationError."""
        return answer if self.typed is None and isinstance(answer, str) else self._adapter.validate_json(to_json(answer))

    def plain(self, answer: Any) -> Any:
        """Return an answer as a frame holds it. Raises ValidationError."""
        return self._adapter.dump_python(self.value(answer), by_alias=False)


class _Rows:
    """Rows of one map: known ones are taken, the others are asked."""

    def __init__(self, loop: AgentLoop, asker: _TypedAsks, kept: KeptAnswers, prompts: list[Any], keys: list[str]) -> None:
        self._loop, self._asker, self._kept = loop, asker, kept
        self._prompts = {key: prompt for key, prompt in zip(keys, prompts, strict=True) if key}
        self._rows = Counter(keys)
        self._found: dict[str, Any] = {}
        self._id, self._of = f"map-{secrets.token_hex(4)}", len(keys)
        self._done = self._failed = self._rows[""]
        self._changed = asyncio.Event()

    async def answered(self, model: Model) -> dict[str, Any]:
        """Return the outcome of each prompt by its key: a value as a frame holds it, or the exception."""
        for key in self._prompts:
            known = self._kept.get(key)
            value = None if known is None else self._plain(known)
            if value is not None and not isinstance(value, Exception):  # or somebody has changed it
                self._note(key, value)
        missing = [key for key in self._prompts if key not in self._found]
        telling = asyncio.create_task(self._tell_changes())
        try:
            await _asked(self._loop, "map", model, missing, lambda key: len(self._prompts[key]), self._ask)
        finally:
            telling.cancel()
            self._loop.agent.emitter.put(self._progress(done=True))  # an ending does not wait for the reader
        return self._found

    async def _ask(self, key: str, payer: Payer) -> None:
        answer = await outcome(self._asker.ask(self._prompts[key], payer, value=False))
        if not isinstance(answer, Exception):
            self._keep(key, answer)
            answer = self._plain(answer)
        self._note(key, answer)
        self._changed.set()

    def _plain(self, answer: Any) -> Any:
        try:
            return self._asker.plain(answer)
        except Exception as error:  # noqa: BLE001  # border: the validators of the program's type
            return error

    def _keep(self, key: str, answer: Any) -> None:
        try:
            self._kept.keep(key, answer)
        except OSError as error:
            self._kept.close()
            self._loop.agent.emitter.put(Notice(content=f"answers are kept no longer: {error}"))

    def _note(self, key: str, found: Any) -> None:
        self._found[key] = found
        self._done += self._rows[key]
        self._failed += self._rows[key] * isinstance(found, Exception)

    def _progress(self, *, done: bool = False) -> StrategyProgress:
        return StrategyProgress(
            strategy="map", strategy_id=self._id, step=self._done, of=self._of, failed=self._failed, done=done
        )

    async def _tell_changes(self) -> None:
        while True:
            await self._loop.agent.emitter.emit(self._progress())
            await asyncio.sleep(PROGRESS_SECONDS)
            await self._changed.wait()
            self._changed.clear()


async def _asked(
    loop: AgentLoop,
    what: str,
    model: Model,
    items: Sequence[T],
    size: Callable[[T], int],
    ask: Callable[[T, Payer], Awaitable[None]],
) -> None:
    """Ask about each item of a list, after a quote if it is long, with the arguments of `FanOuts.run`."""
    for fan_outs in loop.agent.run.features.all(FanOuts):
        await fan_outs.run(what, model, items, size, ask)
        return
    await side_by_side(loop.agent, items, lambda item: ask(item, NO_PAYER))


def _prompt(template: "Template", row: Mapping[Hashable, Any]) -> str | InvalidRequestError:
    try:
        return template.prompt(row)
    except InvalidRequestError as error:
        return error


def _columns(outcomes: Sequence[Any], names: Sequence[str] | None) -> dict[str, list[Any]]:
    """Return the new columns. Args: outcomes: a value or an exception for each row. names: the fields of the values."""
    failed = [isinstance(found, Exception) for found in outcomes]
    errors = [one_line(str(found), ERROR_CHARS) if bad else None for found, bad in zip(outcomes, failed, strict=True)]
    values = [None if bad else found for found, bad in zip(outcomes, failed, strict=True)]
    if names is None:
        return {ANSWER: values, ERROR: errors}
    fields = {name: [None if value is None else value.get(name) for value in values] for name in names}
    return {**fields, ERROR: errors}


class Template:
    """A text with the names of columns in braces, as `"Classify {text}"`, which makes a prompt of a row.

    Braces hold a column's whole name, never an attribute or item of a value. Values are never templates.
    """

    def __init__(self, text: str, columns: Sequence[Hashable]) -> None:
        """Read a template.

        Args:
            text: The template.
            columns: The names of the frame's columns.

        Raises:
            InvalidRequestError: The text cannot be read, names no column, or one that the frame does not have exactly once.
        """
        names: dict[str, str] = {str(column): f"\0{number}" for number, column in enumerate(columns)}
        whole = {mark: name for name, mark in names.items()}
        try:
            marked = _BRACES.sub(lambda found: f"{{{names[found[1]]}}}" if found[1] in names else found[0], text)
            parts = [*Formatter().parse(marked)]
            self._parts = [(before, name and whole.get(name, name), form, how) for before, name, form, how in parts]
        except ValueError as error:
            raise InvalidRequestError(
                f"agent.map: the template {text!r}: {error}; a brace itself is written twice"
            ) from error
        known: dict[str, Hashable] = {}
        for column in columns:
            known[str(column)] = _TWICE if str(column) in known else column
        self.columns: dict[str, Hashable] = {}
        """Columns in the template, by their names there."""
        for _, name, _, _ in self._parts:
            if name is not None:
                self.columns[name] = _column(name, known)
        if not self.columns:
            raise InvalidRequestError(
                "agent.map: the template names no column in braces, so all rows would be asked the same"
            )

    def prompt(self, row: Mapping[Hashable, Any]) -> str:
        """Return the prompt of a row, by column; a missing value is an empty text.

        Raises:
            InvalidRequestError: A value cannot be written as the template asks.
        """
        text = []
        for before, name, form, conversion in self._parts:
            text.append(before)
            if name is None:
                continue
            value = row.get(self.columns[name])
            if _is_missing(value):
                continue
            try:
                text.append(format(CONVERSIONS[conversion](value) if conversion else value, form or ""))
            except (ValueError, TypeError, KeyError) as error:
                raise InvalidRequestError(f"the column {name!r} holds {value!r:.80}: {error}") from error
        return "".join(text)


class _Twice:
    pass


_TWICE: Final = _Twice()


def _column(name: str, known: Mapping[str, Hashable]) -> Hashable:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        meant = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(repr, [*known][:20])) or 'none'}"
        raise InvalidRequestError(f"agent.map: the frame has no column {name!r}: {meant}")
    if known[name] is _TWICE:
        raise InvalidRequestError(f"agent.map: the frame has the column {name!r} more than once: rename one of them")
    return known[name]


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value)  # noqa: PLR0124  # NaN and NaT are not equal to themselves
    except (TypeError, ValueError):  # pandas' NA says neither; an array says both
        return type(value).__name__ == "NAType"
