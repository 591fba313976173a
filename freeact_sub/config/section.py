"""The frozen base of all settings and bounds (`Section`); errors name the wrong setting and the nearest right one.

A section that is made in Python (`Config(modle=...)`) raises a `ConfigError`. Data that is validated (`model_validate`:
files, the arguments of a model) raises pydantic's `ValidationError`, which the reader of the data turns into a sentence.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from freeact_sub.config.parsing import SHOWN, kind_of
from freeact_sub.errors import ConfigError

MAX_PROBLEMS: Final = 5
"""Problems in one message."""
SHOWABLE: Final = re.compile("literal|(int|float|bool|finite)_|(greater|less)_")
"""Types of problems of numbers, switches and fixed words, whose values are no secrets."""

KeptT = TypeVar("KeptT")
GivenT = TypeVar("GivenT")


class Given(Generic[KeptT, GivenT]):
    """The type of a setting that takes more than it keeps: text for a path, a list for a tuple, a dict for a section.

    Type checkers read both types. At run time it is the type that is kept: pydantic converts the others.
    """

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: type | None = None) -> KeptT: ...
        def __set__(self, instance: object, value: GivenT) -> None: ...

    else:

        def __class_getitem__(cls, types: tuple[Any, Any]) -> Any:
            return types[0]


Table: TypeAlias = Mapping[str, Any]
"""A section as a dict of its settings, as in a file."""
Texts = Given[tuple[str, ...], Sequence[str]]
Paths = Given[tuple[Path, ...], Sequence[Path | str]]


def default(value: Any) -> Any:
    """Return the default of a `Given` setting, which type checkers would take for something else."""
    return value


class Section(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    if not TYPE_CHECKING:  # the type checker reads the fields

        def __init__(self, **values: Any) -> None:
            """Set and check the values. Raises ConfigError for an unknown or wrong one."""
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise ConfigError(words_of(type(self), error)) from error

        __init__.__pydantic_base_init__ = True  # else pydantic would make nested sections by it, and lose their place

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Return the settings that are not their defaults, for pydantic: all would fill a screen, as in `help(Config)`."""
        for name, value in super().__repr_args__():
            field = type(self).model_fields.get(name or "")
            if field is None or (value if field.default_factory else value != field.default):
                yield name, value


def words_of(model: type[BaseModel], error: ValidationError) -> str:
    """Describe the problems of a section's values for people."""
    problems = [*islice(_problems(model, error), MAX_PROBLEMS)]
    more = error.error_count() - len(problems)
    return "; ".join([*problems, f"and {more:,} more"] if more else problems)


def _problems(model: type[BaseModel], error: ValidationError) -> Iterator[str]:
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            place, wrong = problem["loc"][:-1], str(problem["loc"][-1])
            near = _nearest(wrong, _known_names(model, place))
            meant = " or ".join(f"`{'.'.join([*map(str, place), other])}`" for other in near)
            yield f"unknown setting `{name}`: " + (f"did you mean {meant}?" if near else "there is none here")
        elif name:
            got = _got(problem["type"], problem["input"])
            yield f"setting `{name}`: {problem['msg'].removeprefix('Value error, ')}{got}"
        else:
            yield problem["msg"].removeprefix("Value error, ")


def _got(problem: str, value: Any) -> str:
    """Return the value in place of a setting; only its kind where that may be a secret, and nothing behind our own words."""
    if problem == "value_error":
        return ""
    is_open = SHOWABLE.match(problem) and isinstance(value, str | int | float)
    return f" (got {SHOWN.repr(value) if is_open else kind_of(value)})"


def _nearest(wrong: str, known: list[str]) -> list[str]:
    """Return the nearest names, two if both are near: `modle` may be `mode` or `model`."""
    return difflib.get_close_matches(wrong, known, n=2, cutoff=0.75) or difflib.get_close_matches(wrong, known, 1, 0)


def _known_names(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Return the setting names of the section at a path."""
    here: Any = model
    for part in path:
        # of a table or a list: what it holds
        here = here.model_fields[str(part)].annotation if _is_section(here) else get_args(here)[-1]
        here = next((kind for kind in get_args(here) if _is_section(kind) and type(None) in get_args(here)), here)
    return list(here.model_fields) if _is_section(here) else []


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
