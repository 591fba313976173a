"""Every type that a public signature names is public itself."""

import pydoc
import re
import types
import typing

import pytest
from pydantic_ai.messages import ModelMessage
from support.tables import each

import freeact_sub
from freeact_sub import Agent, Config
from freeact_sub.testing import ScriptedModel


def ours(annotation: object) -> typing.Iterator[type]:
    """The classes of ours in an annotation."""
    for part in typing.get_args(annotation):
        yield from ours(part)
    for part in annotation if isinstance(annotation, list | tuple) else ():
        yield from ours(part)
    kind = typing.get_origin(annotation) or annotation
    if isinstance(kind, type) and kind.__module__.startswith("freeact_sub"):
        yield kind


def annotations_of(value: object) -> typing.Iterator[tuple[str, object]]:
    """Where the types of a public object stand: in its fields, and in the signatures of its public methods."""
    functions = {"": value} if isinstance(value, types.FunctionType) else {}
    if isinstance(value, type):
        for base in value.__mro__:
            if base.__module__.startswith("freeact_sub"):
                functions |= {
                    name: member
                    for name, member in vars(base).items()
                    if not name.startswith("_") or (name == "__init__" and value.__name__ not in MADE_BY_AGENTS)
                }
        own = value.__module__.startswith("freeact_sub")
        fields = typing.get_type_hints(value, localns=names_for_types()) if own else {}
        yield from ((name, hint) for name, hint in fields.items() if not name.startswith("_"))
    elif not functions:
        yield "", value
    for name, member in functions.items():
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        function = getattr(function, "__wrapped__", function)
        if isinstance(function, types.FunctionType) and function.__module__.startswith("freeact_sub"):
            hints = typing.get_type_hints(function, localns=names_for_types())
            yield from ((f"{name}({argument})", hint) for argument, hint in hints.items())


def names_for_types() -> dict[str, object]:
    """Names that stand only behind `TYPE_CHECKING`."""
    return {"ModelMessage": ModelMessage} | {name: getattr(freeact_sub, name) for name in freeact_sub.__all__}


INNER = {"DebugState", "Kernel", "KernelProvider", "McpServers", "OwnFiles", "SessionStore"}
"""Their own members name types of the parts they come from, such as `freeact_sub.kernels` for kernel providers."""
MADE_BY_AGENTS = {"Child", "Run"}
"""No program makes one, so their constructors are not public."""


@each("name", sorted({*freeact_sub.__all__} - INNER))
def test_every_type_of_ours_in_a_public_signature_is_public(name):
    public = {value for value in (getattr(freeact_sub, other) for other in freeact_sub.__all__) if isinstance(value, type)}
    hidden = {
        f"{where}: {kind.__module__}.{kind.__name__}"
        for where, hint in annotations_of(getattr(freeact_sub, name))
        for kind in ours(hint)
        if kind not in public
    }
    assert not hidden


@pytest.mark.parametrize("name", ["Run", "Child", "KernelNode"])
def test_classes_that_only_agents_make_name_the_method(name):
    assert re.search(r"`Agent\.(\w+)`( and similar methods)? makes? it", getattr(freeact_sub, name).__doc__)


@pytest.mark.parametrize("public", [Agent, Config, ScriptedModel])
def test_help_begins_with_an_example_and_what_is_used_most(public: type) -> None:
    """What follows is inherited from pydantic or pydantic-ai, or methods by the alphabet: nobody reads so far."""
    text = pydoc.render_doc(public, renderer=pydoc.plaintext)  # type: ignore[attr-defined]  # it is documented
    beginning, found, _ = text.partition("Method resolution order")
    assert found
    assert "::" in beginning
    assert len(beginning) < 3_500


def test_a_section_shows_what_is_not_its_default() -> None:
    settings = Config(mode="auto", kernel={"network": True})
    assert repr(settings).endswith(", mode='auto', kernel=KernelConfig(network=True))")
    assert repr(settings.subagents) == "SubagentsConfig()"
