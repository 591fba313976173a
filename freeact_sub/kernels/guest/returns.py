"""What a tool returns, by its output schema: a type for its signature, and lines for its help.

Sent into every kernel as source. The values stay plain JSON data: a server's word on what it returns is shown, and not
enforced.
"""

import inspect
import typing
from typing import Any, Literal, Union

SCALARS: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}
MAX_DEPTH = 8
MAX_CHOICES = 20
MAX_FIELDS = 50
"""That help lists of one object."""


def unwrapped(schema: Any) -> Any:
    """The schema of what code gets: a value that is no object comes in an object with the one key `result`."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if isinstance(properties, dict) and properties.keys() == {"result"}:
        definitions = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
        return {**properties["result"], **definitions} if isinstance(properties["result"], dict) else {}
    return schema


def type_of(schema: Any, name: str, root: Any = None, depth: int = 0) -> Any:
    """The type that a schema describes; `Any` where it says nothing that Python can say.

    Args:
        schema: The schema.
        name: Names an object without a title.
        root: The document whose definitions it refers to. None: itself.
        depth: Schemas around this one.
    """
    root = schema if root is None else root
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return Any
    if "$ref" in schema:
        return type_of(target_of(schema["$ref"], root), name, root, depth + 1)
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list) and 0 < len(choices) <= MAX_CHOICES and all(map(is_choice, choices)):
        return Literal[tuple(choices)]
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list):
            return one_of(type_of(item, name, root, depth + 1) for item in schema[keyword])
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        return one_of(type_of({**schema, "type": item}, name, root, depth + 1) for item in kind)
    if kind == "array":
        return list[type_of(schema.get("items", {}), name, root, depth + 1)]  # type: ignore[misc]
    return object_of(schema, name, root, depth) if kind == "object" else SCALARS.get(str(kind), Any)


def object_of(schema: dict[str, Any], name: str, root: Any, depth: int) -> Any:
    """The type of an object: with the names of its fields, if the schema has them."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        rest = schema.get("additionalProperties")
        return dict[str, type_of(rest, name, root, depth + 1) if isinstance(rest, dict) else Any]  # type: ignore[misc]
    title = schema.get("title")
    own = title if isinstance(title, str) and title.isidentifier() else name
    needed = set(schema.get("required") or ())
    fields = {}
    for key, item in properties.items():
        kind = type_of(item, key if key.isidentifier() else own, root, depth + 1)
        fields[key] = kind if key in needed or not hasattr(typing, "NotRequired") else typing.NotRequired[kind]
    typed_dict: Any = typing.TypedDict
    made = typed_dict(own, fields)
    made.__module__ = "builtins"  # so that a signature shows its name alone
    return made


def one_of(kinds: typing.Iterable[Any]) -> Any:
    """The union of types."""
    found = tuple(kinds)
    return Union[found] if found and Any not in found else Any  # noqa: UP007  # a tuple of types


def is_choice(value: Any) -> bool:
    """Whether `Literal` takes the value."""
    return value is None or isinstance(value, str | int)


def target_of(reference: Any, root: Any) -> Any:
    """The schema that a reference inside the document names; None: there is none."""
    node = root
    for part in str(reference).removeprefix("#").split("/")[1:]:
        node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
    return node


def lines_of(schema: Any) -> list[str]:
    """Lines of help about what is returned; empty: the schema says nothing."""
    root, listed = schema, False
    if isinstance(schema, dict) and schema.get("type") == "array":
        schema, listed = schema.get("items"), True
    if isinstance(schema, dict) and "$ref" in schema:
        schema = target_of(schema["$ref"], root)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not properties:
        about = text_of(schema)
        return ["", "Returns:", f"    {about}"] if about else []
    lines = ["", "Returns:", f"    a {'list of dicts' if listed else 'dict'} with"]
    for key, item in [*properties.items()][:MAX_FIELDS]:
        kind = inspect.formatannotation(type_of(item, key if key.isidentifier() else "Item", root))
        about = text_of(item)
        lines.append(f"        {key} ({kind}){f': {about}' if about else ''}")
    return lines


def text_of(schema: Any) -> str:
    """The description of a schema."""
    about = schema.get("description") if isinstance(schema, dict) else None
    return " ".join(about.split()) if isinstance(about, str) else ""
