"""The one JSON object of `--output result`, for programs that start this one.

`python -m freeact_sub.terminal.result` writes its schema, docs/result.schema.json. Later versions may add keys.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import ConfigDict, TypeAdapter

from freeact_sub.events.ending import RunStatus
from freeact_sub.events.json_lines import json_line

if TYPE_CHECKING:  # slow to import: the caller does it, at its time
    from freeact_sub.agents import RunResult


@dataclass(frozen=True, kw_only=True)
class OneResult:
    """How one prompt ended."""

    __pydantic_config__: ClassVar = ConfigDict(use_attribute_docstrings=True)

    status: RunStatus
    """The outcome. `failed` as well if no run has begun, because of wrong settings."""
    error: str = ""
    """The reason why the status is not `completed`, in one sentence."""
    answer: str = ""
    """The answer; if the status is not `completed`, the model's last text."""
    session: str | None = None
    """The id of the session, for `--resume`. `null`: it is not kept."""
    turns: int = 0
    """The model responses, those of children included."""
    tokens: int = 0
    """Input and output tokens, those of children included."""
    cost_usd: float | None = 0.0
    """The cost, that of children included. `null`: the price of a request is not known."""
    seconds: float = 0.0
    """The seconds of the run, without those in which a question was open."""
    files: tuple[str, ...] = ()
    """The files of the workspace that Python in cells wrote, as relative paths."""
    warnings: tuple[str, ...] = ()
    """Warnings about the result, one sentence each, such as that all actions were denied because nobody could be asked."""

    @classmethod
    def of(cls, result: "RunResult[Any]", session: str | None) -> Self:
        """Return the object of a result. Args: session: the id of the session, if it is kept."""
        spent = result.tree_usage
        return cls(
            status=result.status,
            error=result.error,
            answer=result.text,
            session=session,
            turns=spent.turns,
            tokens=spent.tokens,
            cost_usd=None if spent.unpriced_turns else float(spent.cost_usd or 0),
            seconds=round(result.seconds, 3),
            files=result.files_written,
            warnings=result.warnings,
        )

    def to_json(self) -> str:
        """Return the object as one line."""
        return json_line(self)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the object: every key is always there."""
    schema = TypeAdapter(OneResult).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "required": [*schema["properties"]]}


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2))  # noqa: T201  # that is what it is called for
