"""Requests for children: by a parent (`ChildRequest`), and by a model or its code (`AskedChild`).

Both inherit the choices of `ChildChoices` (`calls.py`).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, Self

from pydantic import ConfigDict, Field, SkipValidation, ValidationError, field_validator
from pydantic_ai.messages import UserContent
from pydantic_ai.models import Model
from pydantic_core import to_json

from freeact_sub.calls import ChildChoices, SpawnCall
from freeact_sub.errors import InvalidRequestError
from freeact_sub.kernels import Kernel
from freeact_sub.text import wrong_fields


class NodeHandle(Protocol):
    """A kernel node (`freeact_sub.KernelNode`), as requests name it."""

    @property
    def node_id(self) -> str:
        """The id of the node."""
        ...


class ChildRequest(ChildChoices):
    """A request to start a child, from a tool, code or a program.

    Raises:
        InvalidRequestError: A choice has another form; the message names it.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    prompt: str
    content: Annotated[tuple[UserContent, ...], SkipValidation] = ()
    """The prompt's texts, pictures and files in order, where it has more than text."""
    model: Annotated[str | Model | None, SkipValidation] = None
    """The name of a model in the setting `models`, `PROVIDER:NAME`, or a `Model` of pydantic-ai; `inherit`: the parent's.
    None: the type's, else the setting `subagents.model`, else the parent's."""
    branch_of: Annotated[NodeHandle | str | None, SkipValidation] = None
    """The node whose kernel the child's starts as a copy of; an id names one of the parent's nodes."""
    output_type: Any = str
    """The type of the child's answer: pydantic-ai's `output_type`, or a type of frames or arrays, which come by value."""
    output_schema: Mapping[str, Any] | None = None
    """The JSON schema behind `output_type`, if it was made from one."""
    check: Annotated[str | Callable[[Any], Any] | None, SkipValidation] = None
    """The check of the answer before it is accepted (docs/receipts.md): code that looks at `answer`, in a branch of the
    child's kernel, or a function of it. It fails if it raises, or if its value is false; a function may return nothing."""
    verify: Annotated[Callable[[Any], Awaitable[str]] | None, SkipValidation] = None
    """The check in the kernel that knows the answer's type; returns what is wrong."""
    prepare: Annotated[Callable[[Kernel], Awaitable[str]] | None, SkipValidation] = None
    """A function called with the child's kernel before its first turn; its text is added to the prompt."""
    inputs_digest: str = ""
    """The digest of the values that `prepare` puts into the kernel. Empty: unknown."""
    tool_call_id: str | None = None
    """The call that starts the child, for its `AgentStarted`. None: a program starts it."""

    if not TYPE_CHECKING:  # type checkers know the fields

        def __init__(self, **choices: Any) -> None:
            try:
                super().__init__(**choices)
            except ValidationError as error:
                raise InvalidRequestError(f"a child: {wrong_fields(error.errors())}") from error

    @field_validator("output_schema")
    @classmethod
    def _is_json(cls, schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        try:
            to_json(schema)
        except ValueError as error:
            raise ValueError(f"the schema of the answer is not JSON: {error}") from error
        return schema

    def replace(self, **choices: Any) -> Self:
        """Return the request with other choices. Raises: InvalidRequestError: One has another form."""
        return type(self)(**{**dict(self), **choices})

    @property
    def is_branch(self) -> bool:
        """Whether the child's kernel starts as a copy of its parent's live kernel, as with files of its own it must."""
        return self.branch or (self.own_files and self.branch_of is None and self.resume is None)

    @property
    def choices(self) -> ChildChoices:
        """The choices that an agent keeps, without prompt and functions of a program."""
        own = {name: getattr(self, name) for name in ChildChoices.model_fields}
        node_id = getattr(self.branch_of, "node_id", self.branch_of)  # an agent that has ended holds no node
        return ChildChoices.model_construct(**own | {"branch_of": node_id})

    @property
    def continues_all(self) -> bool:
        """Whether the child continues its parent's conversation and state."""
        other = self.branch_of is not None or self.own_files or self.tools is not None or self.mode is not None
        return self.history == "all" and not other

    def call(self, *, background: bool = False) -> SpawnCall:
        """Return the call that rules and people judge. Args: background: the parent does not wait for the child."""
        return SpawnCall.of(self.prompt, self, background=background)


class AskedChild(ChildChoices):
    """A child as a model or its code asks for it, by plain values."""

    prompt: str = Field(min_length=1, description="The whole task: names, paths, details.")
    max_turns: int | None = Field(
        default=None, ge=1, description="Model responses that it may use.", json_schema_extra={"default": 10}
    )
    """The bound `turns` of the budget. None: the setting's."""

    @property
    def chosen(self) -> dict[str, Any]:
        """The choices by name, with the bound on turns in the budget."""
        budget = self.budget if self.max_turns is None else self.budget.model_copy(update={"turns": self.max_turns})
        return {name: getattr(self, name) for name in ChildChoices.model_fields} | {"budget": budget}


EMPTY: Final[tuple[Any, ...]] = ("", None, False, {}, [])


def schema_for_models(arguments: type[AskedChild]) -> dict[str, Any]:
    """Return the JSON schema of arguments for models, without repetition: each request pays for it."""
    schema = arguments.model_json_schema()
    fields = schema["properties"]
    ordered = {name: fields[name] for name in ("prompt", *(name for name in fields if name != "prompt"))}
    properties = {name: _short(field) for name, field in ordered.items()}
    return {"type": "object", "properties": properties, "required": schema["required"]}


def _short(field: dict[str, Any]) -> dict[str, Any]:
    kinds = [kind for kind in field.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        field = {**kinds[0], **{name: value for name, value in field.items() if name != "anyOf"}}
    needless = {"title", "minLength"} | ({"default"} if field.get("default") in EMPTY else set())
    return {name: value for name, value in field.items() if name not in needless}
