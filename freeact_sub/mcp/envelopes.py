"""The envelope in which the result of a response passes the MCP SDK: `sealed` on its way there, `opened` behind it.

The SDK checks a result as a whole: one tool, block or field that it does not know would cost all of it. So it gets one that
is right and holds little, and the result itself in it, in a form that the reader of each request can rely on.

`sound_schema` makes any JSON value a schema of a tool's arguments that all providers take. Providers, and pydantic-ai before
them, refuse a whole request for one keyword of one tool. So a keyword with a value that JSON Schema does not allow is left
out: the argument is then less described, and still there.

`strict_json` makes JSON values that every reader can take: no half characters, no NaN or Infinity, no endless depth. Servers
send them all the same. UTF-8 cannot hold half a surrogate pair, strict JSON has no NaN, and a provider or a kernel that gets
one of them refuses the whole message.
"""

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from freeact_sub.text import whole_text

ENVELOPE: Final = "freeact_sub/response"
"""The key in the structured content of a response, or in its `_meta`."""
NAMES_IN_NOTE: Final = 10
TYPES: Final = ("string", "integer", "number", "boolean", "array", "object", "null")
MAX_SCHEMA_DEPTH: Final = 40
"""Maximum schemas inside each other; a deeper one allows anything."""
MAX_TEXT_CHARS: Final = 8_000
"""Maximum characters of a description: models read all of them with each request."""

_SCHEMAS: Final = (
    *("additionalItems", "additionalProperties", "contains", "else", "if", "not", "propertyNames", "then"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
_LISTS_OF_SCHEMAS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED_SCHEMAS: Final = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_HOLDERS: Final = frozenset((*_SCHEMAS, *_LISTS_OF_SCHEMAS, *_NAMED_SCHEMAS, "items"))
"""Keywords whose values are or hold schemas."""
MAX_DEPTH: Final = 100
"""Maximum lists and objects inside each other. Deeper ones cannot be walked, nor validated."""


_ASKING: Final = ("tools/call", "resources/read", "prompts/get")
"""Methods that a server may respond to with a question."""
_LISTS: Final = {
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
    "prompts/list": ("prompts", "name"),
    "resources/read": ("contents", None),
    "prompts/get": ("messages", None),
}
"""The list in a result of each method, and the field that each entry must have as a text."""


def sealed(method: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return the result of one of our requests as the SDK takes it. Args: method: the request's."""
    if method in _ASKING and result.get("resultType") == "input_required":
        return result
    match method:
        case "initialize":
            return _greeting(result)
        case "tools/list":
            tools, notes = _tools(result)
            named = [{"name": tool["name"], "inputSchema": tool["parameters_json_schema"]} for tool in tools]
            return _page("tools", named, {"tools": tools, "notes": notes}, result)
        case "tools/call":
            return {"content": [], "structuredContent": {ENVELOPE: _strict(result)}, "resultType": "complete"}
        case "completion/complete":
            completion = result.get("completion")
            values = completion.get("values") if isinstance(completion, dict) else None
            texts = [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
            return {"completion": {"values": texts[:100]}, "resultType": "complete"}
    if method not in _LISTS:
        return result
    name, key = _LISTS[method]
    listed = _strict(result.get(name))
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return _page(name, [], [entry for entry in entries if key is None or isinstance(entry.get(key), str)], result)


def opened(result: Any) -> Any:
    """Return the content of a result's envelope.

    For a call this is the response; for a list its entries; for a list of tools a dict of `tools`, whose fields are those of
    `McpTool`, and of `notes` on entries left out.
    """
    structured = getattr(result, "structured_content", None)
    return structured[ENVELOPE] if isinstance(structured, dict) else result.meta[ENVELOPE]


def _page(name: str, entries: list[Any], held: Any, result: dict[str, Any]) -> dict[str, Any]:
    page: dict[str, Any] = {name: entries, "_meta": {ENVELOPE: held}, "resultType": "complete"}
    page |= {"ttlMs": 0, "cacheScope": "private"}  # which a later version of the protocol requires
    cursor = result.get("nextCursor")
    has_next = isinstance(cursor, str | int) and not isinstance(cursor, bool) and cursor != ""
    return page | ({"nextCursor": str(cursor)} if has_next else {})


def _greeting(result: dict[str, Any]) -> dict[str, Any]:
    """Return our part of the greeting: the offers, whether changes are told, and the responding server."""
    sent = result.get("capabilities")
    capabilities: dict[str, Any] = {}
    for name in ("tools", "resources", "prompts", "completions"):
        if isinstance(sent, dict) and (offered := sent.get(name)) not in (None, False):
            tells = isinstance(offered, dict) and offered.get("listChanged") is True
            capabilities[name] = {"listChanged": True} if tells and name != "completions" else {}
    info = result.get("serverInfo")
    known = info if isinstance(info, dict) else {}
    names = {name: known[name] if isinstance(known.get(name), str) else "" for name in ("name", "version")}
    texts = {name: result[name] for name in ("protocolVersion", "instructions") if isinstance(result.get(name), str)}
    return {"capabilities": capabilities, "serverInfo": names, **texts}


def _strict(result: Any) -> Any:
    try:
        return strict_json(result)
    except ValueError as error:
        return {"isError": True, "content": f"the response cannot be used: {error}"}


def _tools(result: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the tools, and notes on the entries left out."""
    listed, notes = result.get("tools"), []
    if not isinstance(listed, list):
        notes.append("its list of tools is not a list")
        listed = []
    tools: list[dict[str, Any]] = []
    nameless: list[int] = []
    mended: list[str] = []
    for number, tool in enumerate(listed, 1):
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            nameless.append(number)
            continue
        execution = tool.get("execution")
        if isinstance(execution, dict) and execution.get("taskSupport") == "required":  # every call would fail
            notes.append(f"the tool {tool['name']!r} can only be called as a task, which is not possible here")
            continue
        tools.append(_tool(tool))
        if tools[-1]["parameters_json_schema"] != tool.get("inputSchema"):
            mended.append(tool["name"])
    if nameless:
        notes.append(f"entries of its list of tools that have no name are left out: {_some(nameless)}")
    if mended:
        notes.append(f"what is not valid in the input schema of a tool is left out; tools: {_some(mended)}")
    return tools, notes


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    texts = [tool[name] for name in ("description", "title") if isinstance(tool.get(name), str)]
    annotations, output = tool.get("annotations"), tool.get("outputSchema")
    return {
        "name": tool["name"],
        "description": shortened_text(next(filter(None, texts), "")),
        "parameters_json_schema": sound_schema(tool.get("inputSchema")),
        "read_only": isinstance(annotations, dict) and annotations.get("readOnlyHint") is True,
        # the SDK would refuse results that do not fit it
        "output_json_schema": sound_schema(output) if isinstance(output, dict) else None,
    }


def _some(items: list[Any]) -> str:
    more = f" and {len(items) - NAMES_IN_NOTE:,} more" if len(items) > NAMES_IN_NOTE else ""
    return ", ".join(f"{item!r}"[:80] for item in items[:NAMES_IN_NOTE]) + more


def sound_schema(schema: Any) -> dict[str, Any]:
    """Return the schema of an object, without values that JSON Schema does not allow."""
    strict = strict_json(schema, cuts=True)
    sound = _schema(strict, 0)
    root = _rooted(sound if isinstance(sound, dict) else {})
    _resolve(root, root)
    return root


def shortened_text(text: str) -> str:
    """Return a description in the length that models read."""
    if len(text) <= MAX_TEXT_CHARS:
        return text
    kept = MAX_TEXT_CHARS - 50
    return f"{text[:kept]} [… {len(text) - kept:,} more characters]"


def _schema(schema: Any, depth: int) -> dict[str, Any] | bool:
    """Return a sound schema at any place; anything else allows anything."""
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict) or depth > MAX_SCHEMA_DEPTH:
        return {}
    sound: dict[str, Any] = {}
    for name, value in schema.items():
        read = _KEYWORDS.get(name)
        if read is None:
            sound[name] = value
        elif (kept := read(value, depth + 1)) is not None:
            sound[name] = kept
    if "definitions" in sound:  # the older name of `$defs`, which some providers do not know
        sound["$defs"] = sound.pop("definitions") | sound.get("$defs", {})
    if isinstance(sound.get("items"), list):  # how older drafts wrote tuples
        sound.setdefault("prefixItems", sound["items"])
        del sound["items"]
    if "array" in _listed(sound.get("type")):
        sound.setdefault("items", {})  # which some providers demand
    missing = [name for name in sound.get("required", ()) if name not in sound.get("properties", {})]
    if missing and ("properties" in sound or sound.get("type") == "object"):
        sound["properties"] = sound.get("properties", {}) | {name: {} for name in missing}
    return sound


def _rooted(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema as that of an object; no provider takes alternatives at the top, so their properties are joined."""
    root = dict(schema) | {"type": "object"}
    properties = dict(root.get("properties", {}))
    for keyword in ("allOf", "anyOf", "oneOf"):
        for part in root.pop(keyword, ()):
            target = _target(schema, part["$ref"]) if isinstance(part, dict) and "$ref" in part else part
            if isinstance(target, dict):
                properties = target.get("properties", {}) | properties
                if keyword == "allOf":
                    root["required"] = list(dict.fromkeys([*root.get("required", ()), *target.get("required", ())]))
    if isinstance(reference := root.pop("$ref", None), str):
        target = _target(schema, reference) or {}
        properties = target.get("properties", {}) | properties
        root.setdefault("required", target.get("required", []))
    for keyword in ("not", "enum", "const", "if", "then", "else"):  # nor these
        root.pop(keyword, None)
    root["properties"] = properties | {name: {} for name in root.get("required", ()) if name not in properties}
    if not root["properties"] and "properties" not in schema:
        del root["properties"]
    return root


def _resolve(node: Any, root: dict[str, Any]) -> None:
    """Leave out references that lead nowhere, or in circles outside `$defs`, where some providers do not follow them."""
    if isinstance(node, dict):
        reference = node.get("$ref")
        if isinstance(reference, str):
            target = _target(root, reference)
            if target is None or not (reference.startswith("#/$defs/") or _is_plain(target)):
                del node["$ref"]
        for value in node.values():
            _resolve(value, root)
    elif isinstance(node, list):
        for value in node:
            _resolve(value, root)


def _is_plain(node: Any) -> bool:
    """Whether a schema has no references."""
    if isinstance(node, dict):
        return "$ref" not in node and all(map(_is_plain, node.values()))
    return not isinstance(node, list) or all(map(_is_plain, node))


def _target(root: dict[str, Any], reference: str) -> dict[str, Any] | None:
    """Return the schema that a reference inside the document names, not by way of another reference."""
    if not reference.startswith("#"):
        return None
    node: Any = root
    is_map = False
    for part in reference[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list):
            node = node[int(name)] if name.isdecimal() and name.isascii() and int(name) < len(node) else None
        elif isinstance(node, dict) and (is_map or name in _HOLDERS):
            node, is_map = node.get(name), not is_map and name in _NAMED_SCHEMAS
        else:
            return None
    return node if isinstance(node, dict) and not is_map and set(node) != {"$ref"} else None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _type(value: Any, _depth: int) -> Any:
    names = ["null" if name is None else name for name in _listed(value)] if value is not None else []
    known = list(dict.fromkeys(name for name in names if isinstance(name, str) and name in TYPES))
    if not known or len(known) < len(set(map(str, names))):  # one that is unknown may be any
        return None
    return known if isinstance(value, list) else known[0]


def _schemas(value: Any, depth: int) -> Any:
    found = [_schema(item, depth) for item in value if isinstance(item, dict | bool)] if isinstance(value, list) else []
    return found or None


def _one_schema(value: Any, depth: int) -> Any:
    return _schema(value, depth) if isinstance(value, dict | bool) else None


def _number(value: Any, _depth: int) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


_Reader: TypeAlias = Callable[[Any, int], Any]
_READERS: Final[list[tuple[tuple[str, ...], _Reader]]] = [
    (_SCHEMAS, _one_schema),
    (_LISTS_OF_SCHEMAS, _schemas),
    (
        _NAMED_SCHEMAS,
        lambda value, depth: {n: _schema(item, depth) for n, item in value.items()} if isinstance(value, dict) else None,
    ),
    (
        (
            "$anchor",
            "$comment",
            "$id",
            "$schema",
            "contentEncoding",
            "contentMediaType",
            "description",
            "format",
            "pattern",
            "title",
        ),
        lambda value, _: shortened_text(value) if isinstance(value, str) else None,
    ),
    (
        ("maxContains", "maxItems", "maxLength", "maxProperties", "minContains", "minItems", "minLength", "minProperties"),
        lambda value, _: value if _number(value, 0) is not None and value >= 0 and value == int(value) else None,
    ),
    (("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"), _number),
    (
        ("deprecated", "readOnly", "uniqueItems", "writeOnly"),
        lambda value, _: value if isinstance(value, bool) else None,
    ),
    (
        ("$ref",),
        lambda value, _: value.replace("#/definitions/", "#/$defs/", 1) if isinstance(value, str) else None,
    ),
    (("enum", "examples"), lambda value, _: value if isinstance(value, list) and value else None),
    (("items",), lambda value, depth: (_schemas if isinstance(value, list) else _one_schema)(value, depth)),
    (
        ("required",),
        lambda value, _: list(dict.fromkeys(n for n in value if isinstance(n, str))) if isinstance(value, list) else None,
    ),
    (("type",), _type),
]
_KEYWORDS: Final[dict[str, _Reader]] = {name: reader for names, reader in _READERS for name in names}
"""Reader of each keyword of JSON Schema: None where its value is not allowed. Other keywords are kept."""


def strict_json(value: Any, depth: int = 0, *, cuts: bool = False) -> Any:
    """Return the value with whole text, and null in place of numbers that JSON does not have.

    Args:
        value: Data of JSON, with the additions of some writers.
        depth: The value's depth in another one.
        cuts: Null stands in place of values that are too deep.

    Raises:
        ValueError: It is too deep.
    """
    if depth > MAX_DEPTH:
        if cuts:
            return None
        raise ValueError(f"it has more than {MAX_DEPTH} lists and objects inside each other")
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {whole_text(str(name)): strict_json(item, depth + 1, cuts=cuts) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(item, depth + 1, cuts=cuts) for item in value]
    return value
