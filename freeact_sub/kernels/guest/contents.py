"""What tools of MCP servers return, for code in a kernel. Sent into every kernel as source.

An output schema becomes a type for the tool's signature, and lines for its help. The values stay plain JSON data: a server's
word on what it returns is shown, and not enforced. What is no text is a `Blob`, and several parts are `Contents`.
"""

import base64
import importlib
import inspect
import sys
import typing
from typing import Any, Literal, Self, Union

PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")
"""The types that a cell displays."""
SCALARS: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}
MAX_DEPTH = 8
MAX_CHOICES = 20
MAX_FIELDS = 50
"""That help lists of one object."""


class Blob(bytes):
    """Bytes of a known type. A picture displays itself as the last value of a cell."""

    mime_type: str
    uri: str

    def __new__(cls, data: bytes = b"", mime_type: str = "", uri: str = "") -> Self:
        """Args: mime_type, uri: empty where the server has not named them."""
        blob = super().__new__(cls, data)
        blob.mime_type, blob.uri = mime_type, uri
        return blob

    def __reduce__(self) -> tuple[Any, ...]:
        return (Blob, (bytes(self), self.mime_type, self.uri))

    def __repr__(self) -> str:
        return f"<{len(self):,} bytes of {self.mime_type or 'unknown type'}>"

    __str__ = __repr__

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """See IPython."""
        bundle = {"text/plain": repr(self)}
        kind = self.mime_type.partition(";")[0].strip().lower()
        if kind == "image/svg+xml":
            bundle[kind] = self.decode(errors="replace")
        elif kind in PICTURES:
            bundle[kind] = base64.b64encode(self).decode()
        return bundle


class Contents(list[Any]):
    """Several parts of one response: texts, blobs, and what is neither as the protocol writes it."""

    def _ipython_display_(self) -> None:
        """See IPython. Each part is displayed by itself."""
        display: Any = importlib.import_module("IPython.display").display
        for part in self:
            if isinstance(part, str):
                sys.stdout.write(f"{part}\n")
            else:
                display(part)


def of_blocks(blocks: list[Any]) -> Any:
    """The parts of a response; one that stands alone is returned as it is."""
    parts = [of_block(block) for block in blocks]
    return parts[0] if len(parts) == 1 else Contents(parts)


def of_block(block: Any) -> Any:
    """One block of a response: text as `str`, other data as a `Blob`, a link or an unknown kind as it is."""
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": dict(resource)}:
            return of_resource(resource)
        case {"type": "image" | "audio", "data": str(data)}:
            return blob_of(data, block) or block
    return block


def of_resource(resource: dict[str, Any]) -> Any:
    """The content of a resource: text as `str`, other data as a `Blob`."""
    match resource:
        case {"text": str(text)}:
            return text
        case {"blob": str(data)}:
            return blob_of(data, resource) or resource
    return resource


def blob_of(data: str, about: dict[str, Any]) -> Blob | None:
    """The bytes that base64 stands for. None: it is not base64."""
    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        return None
    kind, uri = about.get("mimeType"), about.get("uri")
    return Blob(content, kind if isinstance(kind, str) else "", uri if isinstance(uri, str) else "")


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
