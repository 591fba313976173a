"""`agent.mcp` and `agent.tools`: tools of MCP servers and functions of the program, as code in a kernel sees them.

Sent into every kernel as source. An output schema becomes a type for the tool's signature, and lines for its help. The
values stay plain JSON data: a server's word on its results is shown, and not enforced. Other data than text is a `Blob`, and
several parts are `Contents`.
"""

import base64
import importlib
import inspect
import itertools
import keyword
import sys
import typing
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, Literal, Self, Union

from . import plain

TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": None,
}


class Namespace:
    """Attributes that are looked up at the host when they are first used. Items are found by the host's own names too."""

    def __init__(self, path: str, names: Callable[[bool], dict[str, str]], make: Callable[[str], Any], doc: str) -> None:
        """Make it; nothing is looked up yet.

        Args:
            path: The expression by which code reaches it.
            names: Returns the host's names by their Python names; asked with True when a name is not among them.
            make: Takes a name of the host's.
            doc: Its help.
        """
        self.__dict__.update(_path=path, _names=names, _make=make, __doc__=doc)

    def __getattr__(self, name: str) -> Any:
        # IPython's display and completion machinery probes for private names on every object
        if name.startswith("_"):
            raise AttributeError(name)
        names = self._names(False)
        if name not in names and name not in (names := self._names(True)):
            raise AttributeError(f"{self._path} has no {name!r}; it has: {', '.join(names) or 'nothing'}")
        return self._make(names[name])

    def __getitem__(self, name: str) -> Any:
        names = self._names(False)
        if name not in names and name not in names.values():
            names = self._names(True)
        own_name = names.get(name, name)
        if own_name not in names.values():
            raise KeyError(f"{self._path} has no {name!r}; it has: {', '.join(names.values()) or 'nothing'}")
        return self._make(own_name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{self._path} cannot be changed")

    def __dir__(self) -> list[str]:
        return list(self._names(False))

    def __repr__(self) -> str:
        return f"<{self._path}: {', '.join(self._names(False)) or 'nothing'}>"


def identifier(name: str, kind: str = "tool") -> str:
    """Return the Python name for a server, a tool or an argument. Args: kind: put before a name that cannot stand alone."""
    # Python reads all forms of a letter as one
    python_name = "".join(char if f"a{char}".isidentifier() else "_" for char in unicodedata.normalize("NFKC", str(name)))
    if not python_name.isidentifier() or keyword.iskeyword(python_name) or python_name.startswith("_"):
        python_name = f"{kind}_{python_name}"
    return python_name


def python_names(own_names: Iterable[str], kind: str = "tool") -> dict[str, str]:
    """Return names by their Python names, in order. A Python name stays as it is; of others, equal ones are numbered."""
    listed = list(own_names)
    found = {name: name for name in listed if identifier(name, kind) == name}
    by_own_name = {name: name for name in found}
    for name in listed:
        if name not in by_own_name:
            wanted = identifier(name, kind)
            numbers = itertools.count(2)
            python_name = wanted
            while python_name in found:
                python_name = f"{wanted}_{next(numbers)}"
            found[python_name], by_own_name[name] = name, python_name
    return {by_own_name[name]: name for name in listed}


def of_reply(value: Any) -> Any:
    """Return the value that code gets for a reply of the host."""
    match value:
        case {"blocks": list(blocks)}:
            return of_blocks(blocks)
        case {"value": result}:
            return result
    return value


def server_namespace(requests: Any, server: str, path: str) -> Namespace:
    """Return the tools of a server, requested at their first use, and functions for its resources and prompts."""
    doc = (
        f"Tools of the MCP server {server}, and `read(uri)`, `resources()`, `prompt(name, ...)`, `prompts()`; where a tool "
        "has the same name, a `_` stands behind these."
    )
    listed = Listed(requests, "mcp", {"server": server}, functions_of(requests, server))
    return Namespace(path, listed.names, listed.function, doc)


def functions_of(requests: Any, server: str) -> dict[str, Callable[..., Any]]:
    """Return functions for the resources and prompts of a server."""

    def read(uri: str) -> Any:
        """Read a resource: a text as `str`, other data as `bytes` with a `mime_type`; several contents as a list.

        Args:
            uri: Its address, as `resources()` lists it, or made from a template.
        """
        return requests.call("mcp_read", server=server, uri=str(uri))

    def resources() -> Any:
        """List the server's resources, and templates of addresses, as dicts: uri, name, description, is_template."""
        return requests.call("mcp_offers", server=server, kind="resources")

    def prompt(name: str, /, **arguments: Any) -> Any:
        """Get the text of a prompt that the server offers.

        Args:
            name: Its name, as `prompts()` lists it.
            arguments: Its arguments, as text.
        """
        return requests.call(
            "mcp_prompt", server=server, name=name, args={key: str(each) for key, each in arguments.items()}
        )

    def prompts() -> Any:
        """List the server's prompts as dicts: name, description, arguments."""
        return requests.call("mcp_offers", server=server, kind="prompts")

    return {function.__name__: function for function in (read, resources, prompt, prompts)}


def tools_namespace(requests: Any) -> Namespace:
    """Return the functions of the program, requested from the host at their first use."""
    doc = "Functions of the program: `await agent.tools.NAME(...)`, or without `await`."
    listed = Listed(requests, "own", {})
    return Namespace("agent.tools", listed.names, listed.function, doc)


class Listed:
    """Tools as the host has listed them. A server's tools may change: they are looked up anew once in each cell."""

    def __init__(self, requests: Any, kind: str, where: dict[str, str], others: dict[str, Any] | None = None) -> None:
        """Make it; nothing is requested yet.

        Args:
            requests: The way to the host.
            kind: Begins the names of requests.
            where: Goes with each request.
            others: Functions besides the tools; where a tool has the same name, a `_` is added to theirs.
        """
        self._requests, self._kind, self._where, self._others = requests, kind, where, others or {}
        self._tools: dict[str, dict[str, Any]] = {}
        self._names: dict[str, str] = {}
        self._made: dict[str, Any] = {}
        self._version = ""
        self._cell: Any = None

    def names(self, again: bool) -> dict[str, str]:
        """Return the host's names by their Python names. Args: again: the list may be out of date."""
        cell = cell_of(self._requests)
        if again or not self._version or cell != self._cell:
            reply = self._requests.ask(f"{self._kind}_tools", known=self._version, **self._where)
            self._cell = cell
            if reply["version"] != self._version:
                self._take(reply)
        return self._names

    def function(self, own_name: str) -> Any:
        """Return the function for a name of the host's."""
        if own_name not in self._made:
            python_name = next(known for known, name in self._names.items() if name == own_name)
            method = f"{self._kind}_call"
            self._made[own_name] = tool_function(self._requests, method, self._tools[own_name], python_name, self._where)
        return self._made[own_name]

    def _take(self, reply: dict[str, Any]) -> None:
        self._version = reply["version"]
        self._tools = {tool["name"]: tool for tool in reply["tools"]}
        self._names = python_names(self._tools)
        self._made = {}
        for name, function in self._others.items():
            free = name
            while free in self._names or free in self._tools:
                free += "_"
            self._names[free] = free
            self._made[free] = function


def cell_of(requests: Any) -> Any:
    """Return a mark of the running cell, which no other cell has. None: no kernel is there."""
    kernel = getattr(requests, "kernel", None)
    return None if kernel is None else kernel.get_parent("shell").get("header", {}).get("msg_id")


def tool_function(
    requests: Any, method: str, tool: dict[str, Any], python_name: str, where: dict[str, str]
) -> Callable[..., Any]:
    """Return a function for a tool, with signature and docstring made from the tool's JSON schema."""
    schema = tool.get("parameters_json_schema") or {}
    names = python_names(schema.get("properties") or {}, "argument")
    by_own_name = {own_name: name for name, own_name in names.items()}
    output = unwrapped(tool.get("output_json_schema"))
    result = inspect.Signature.empty if output is None else type_of(output, "Result")
    signature = signature_of(schema, names).replace(return_annotation=result)
    rest = next((name for name, item in signature.parameters.items() if item.kind is inspect.Parameter.VAR_KEYWORD), "")

    def function(*args: Any, **kwargs: Any) -> Any:
        given = {name if name in names else by_own_name.get(name, name): value for name, value in kwargs.items()}
        if len(given) < len(kwargs):
            raise TypeError("an argument is given twice: by its Python name, and by the server's")
        try:
            bound = signature.bind(*args, **given).arguments
        except TypeError as error:
            raise TypeError(what_is_wrong(str(error), signature, given)) from None
        extra = bound.pop(rest, {})
        arguments = {names[name]: plain.plain(value, f"argument {name!r}") for name, value in bound.items()}
        arguments |= {name: plain.plain(value, f"argument {name!r}") for name, value in extra.items()}
        return requests.call(method, tool=tool["name"], args=arguments, **where)

    function.__name__ = function.__qualname__ = python_name
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__doc__ = "\n".join([docstring_of(tool, schema, names, python_name), *lines_of(output)])
    return function


def what_is_wrong(problem: str, signature: inspect.Signature, kwargs: dict[str, Any]) -> str:
    """Return the message for arguments that do not fit; unknown ones come first, since a missing one may be mistyped."""
    known = signature.parameters
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known.values())
    unknown = [name for name in kwargs if name not in known and not takes_any]
    if unknown:
        problem = f"there is no argument {', '.join(map(repr, unknown))}"
    names = [
        name if parameter.default is inspect.Parameter.empty else f"{name} (may be left out)"
        for name, parameter in known.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    return f"{problem}; it takes: {', '.join(names) or 'nothing'}"


def signature_of(schema: dict[str, Any], names: dict[str, str]) -> inspect.Signature:
    """Return the signature for a JSON schema. Args: names: the schema's own names by their Python names."""
    required = set(schema.get("required") or ())
    properties = schema.get("properties") or {}
    parameters = []
    for python_name, name in names.items():
        item = properties[name]
        default = inspect.Parameter.empty if name in required else item.get("default") if isinstance(item, dict) else None
        kind = TYPES.get(str(item.get("type")), Any) if isinstance(item, dict) else Any
        parameters.append(
            inspect.Parameter(python_name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)
        )
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
    if schema.get("additionalProperties"):
        rest = next(
            name for name in ("extra_arguments", *map("extra_{}".format, range(len(names) + 1))) if name not in names
        )
        parameters.append(inspect.Parameter(rest, inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(parameters)


def docstring_of(tool: dict[str, Any], schema: dict[str, Any], names: dict[str, str], python_name: str) -> str:
    """Return the text of `help()` on a tool. It says how to write a name that is not a Python identifier."""
    lines = [tool.get("description") or tool["name"]]
    if python_name != tool["name"]:
        lines += ["", f"The server calls this tool {tool['name']!r}."]
    if names:
        lines += ["", "Args:"]
        for name, own_name in names.items():
            item = schema["properties"][own_name]
            about = item.get("description") or "" if isinstance(item, dict) else ""
            called = "" if name == own_name else f"The server calls it {own_name!r}. "
            lines.append(f"    {name}: {called}{about}".rstrip().rstrip(":"))
    return "\n".join(lines)


# --- the values that tools return

PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")
SCALARS: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}
MAX_DEPTH = 8
MAX_CHOICES = 20
MAX_FIELDS = 50
"""Maximum fields of one object that help lists."""


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
        bundle = {"text/plain": repr(self)}
        kind = self.mime_type.partition(";")[0].strip().lower()
        if kind == "image/svg+xml":
            bundle[kind] = self.decode(errors="replace")
        elif kind in PICTURES:
            bundle[kind] = base64.b64encode(self).decode()
        return bundle


class Contents(list[Any]):
    """Several parts of one response: texts, blobs, and other parts as the protocol writes them."""

    def _ipython_display_(self) -> None:
        """Display each part by itself."""
        display: Any = importlib.import_module("IPython.display").display
        for part in self:
            if isinstance(part, str):
                sys.stdout.write(f"{part}\n")
            else:
                display(part)


def of_blocks(blocks: list[Any]) -> Any:
    """Return the parts of a response; a single one is returned as it is."""
    parts = [of_block(block) for block in blocks]
    return parts[0] if len(parts) == 1 else Contents(parts)


def of_block(block: Any) -> Any:
    """Return one block of a response: text as `str`, other data as a `Blob`, a link or an unknown kind as it is."""
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": dict(resource)}:
            return of_resource(resource)
        case {"type": "image" | "audio", "data": str(data)}:
            return blob_of(data, block) or block
    return block


def of_resource(resource: dict[str, Any]) -> Any:
    """Return the content of a resource: text as `str`, other data as a `Blob`."""
    match resource:
        case {"text": str(text)}:
            return text
        case {"blob": str(data)}:
            return blob_of(data, resource) or resource
    return resource


def blob_of(data: str, about: dict[str, Any]) -> Blob | None:
    """Return the bytes that base64 stands for, if it is base64."""
    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        return None
    kind, uri = about.get("mimeType"), about.get("uri")
    return Blob(content, kind if isinstance(kind, str) else "", uri if isinstance(uri, str) else "")


def unwrapped(schema: Any) -> Any:
    """Return the schema of the value for code: a value that is no object comes in an object with the one key `result`."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if isinstance(properties, dict) and properties.keys() == {"result"}:
        definitions = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
        return {**properties["result"], **definitions} if isinstance(properties["result"], dict) else {}
    return schema


def type_of(schema: Any, name: str, root: Any = None, depth: int = 0) -> Any:
    """Return the type that a schema describes; `Any` where Python has none for it.

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
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            return one_of(type_of(item, name, root, depth + 1) for item in schema[word])
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        return one_of(type_of({**schema, "type": item}, name, root, depth + 1) for item in kind)
    if kind == "array":
        return list[type_of(schema.get("items", {}), name, root, depth + 1)]  # type: ignore[misc]
    return object_of(schema, name, root, depth) if kind == "object" else SCALARS.get(str(kind), Any)


def object_of(schema: dict[str, Any], name: str, root: Any, depth: int) -> Any:
    """Return the type of an object: with the names of its fields, if the schema has them."""
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
    """Return the union of types."""
    found = tuple(kinds)
    return Union[found] if found and Any not in found else Any  # noqa: UP007  # a tuple of types


def is_choice(value: Any) -> bool:
    """Whether `Literal` takes the value."""
    return value is None or isinstance(value, str | int)


def target_of(reference: Any, root: Any) -> Any:
    """Return the schema that a reference inside the document names, if there is one."""
    node = root
    for part in str(reference).removeprefix("#").split("/")[1:]:
        node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
    return node


def lines_of(schema: Any) -> list[str]:
    """Return lines of help about the result; none where the schema says nothing."""
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
    """Return the description in a schema."""
    about = schema.get("description") if isinstance(schema, dict) else None
    return " ".join(about.split()) if isinstance(about, str) else ""
