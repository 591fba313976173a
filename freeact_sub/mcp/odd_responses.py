"""Responses of MCP servers in the form that the SDK takes.

The SDK checks a response as a whole: one tool, block or field that it does not know would cost all of it. So a list of tools
is brought into order first, with a note on each thing that is left out. What a tool returns passes the SDK in an envelope;
`read_result` opens it.
"""

from typing import Any, Final

from freeact_sub.mcp.json_values import strict_json
from freeact_sub.mcp.schemas import shortened_text, sound_schema

NOTES: Final = "freeact_sub/notes"
"""The key in `_meta` of a list of tools."""
ENVELOPE: Final = "freeact_sub/response"
"""The key in the structured content of a response."""
OUTPUT: Final = "freeact_sub/output"
"""The key in `_meta` of a tool, for its output schema: the SDK would refuse results that do not fit it."""
NAMES_IN_NOTE: Final = 10


def ordered(method: str, sent: Any) -> dict[str, Any]:
    """The result of one of our requests as the SDK takes it. Args: method: the request's."""
    result = sent if isinstance(sent, dict) else _object_of(method, sent)
    match method:
        case "initialize":
            return _greeting(result)
        case "tools/list":
            return _tools(result)
        case "tools/call" if result.get("resultType") != "input_required":
            return {"content": [], "structuredContent": {ENVELOPE: _strict(result)}, "resultType": "complete"}
        case "resources/list":
            return _list(result, "resources", "uri")
        case "resources/templates/list":
            return _list(result, "resourceTemplates", "uriTemplate")
        case "prompts/list":
            return _list(result, "prompts", "name")
        case "resources/read" if result.get("resultType") != "input_required":
            return _list(result, "contents", None)
        case "prompts/get" if result.get("resultType") != "input_required":
            return _list(result, "messages", None)
        case "completion/complete":
            return _completion(result)
        case _:
            return result


def _list(result: dict[str, Any], field: str, key: str | None) -> dict[str, Any]:
    """A list in an envelope. Args: key: the field that each entry must have as a text; None: none."""
    strict = _strict(result.get(field))
    listed = strict if isinstance(strict, list) else []
    entries = [entry for entry in listed if isinstance(entry, dict) and (key is None or isinstance(entry.get(key), str))]
    order = {field: [], "_meta": {ENVELOPE: entries}, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    return order | _next_page(result)


def _completion(result: dict[str, Any]) -> dict[str, Any]:
    completion = result.get("completion")
    values = completion.get("values") if isinstance(completion, dict) else None
    texts = [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
    return {"completion": {"values": texts[:100]}, "resultType": "complete"}


def _next_page(result: dict[str, Any]) -> dict[str, Any]:
    cursor = result.get("nextCursor")
    if isinstance(cursor, str | int) and not isinstance(cursor, bool) and cursor != "":
        return {"nextCursor": str(cursor)}
    return {}


def _object_of(method: str, sent: Any) -> dict[str, Any]:
    """The result that a server means which sends no object."""
    match method, sent:
        case "tools/list", list():
            return {"tools": sent}
        case "tools/call", None | str():
            return {"content": sent or []}
        case "tools/call", _:
            return {"structuredContent": sent}
    return {}


def _greeting(result: dict[str, Any]) -> dict[str, Any]:
    """What we read of it: what is offered, whether changes of it are told, and which server responds."""
    sent = result.get("capabilities")
    capabilities: dict[str, Any] = {}
    for name in ("tools", "resources", "prompts", "completions"):
        if isinstance(sent, dict) and (offered := sent.get(name)) not in (None, False):
            tells = isinstance(offered, dict) and offered.get("listChanged") is True
            capabilities[name] = {"listChanged": True} if tells and name != "completions" else {}
    info = result.get("serverInfo")
    known = info if isinstance(info, dict) else {}
    names = {name: known[name] if isinstance(known.get(name), str) else "" for name in ("name", "version")}
    order: dict[str, Any] = {"capabilities": capabilities, "serverInfo": names}
    for name in ("protocolVersion", "instructions"):
        if isinstance(result.get(name), str):
            order[name] = result[name]
    return order


def _strict(result: Any) -> Any:
    try:
        return strict_json(result)
    except ValueError as error:
        return {"isError": True, "content": f"the response cannot be used: {error}"}


def _tools(result: dict[str, Any]) -> dict[str, Any]:
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
        tools.append(_tool(tool))
        if tools[-1]["inputSchema"] != tool.get("inputSchema"):
            mended.append(tool["name"])
    if nameless:
        notes.append(f"entries of its list of tools that have no name are left out: {_some(nameless)}")
    if mended:
        notes.append(f"what is not valid in the input schema of a tool is left out; tools: {_some(mended)}")
    order: dict[str, Any] = {"tools": tools, "_meta": {NOTES: notes}, "resultType": "complete"}
    order |= {"ttlMs": 0, "cacheScope": "private"}  # which a later version of the protocol requires
    return order | _next_page(result)


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    texts = [tool[name] for name in ("description", "title") if isinstance(tool.get(name), str)]
    annotations, execution = tool.get("annotations"), tool.get("execution")
    read_only = isinstance(annotations, dict) and annotations.get("readOnlyHint") is True
    needs_task = isinstance(execution, dict) and execution.get("taskSupport") == "required"
    output = tool.get("outputSchema")
    return {
        "name": tool["name"],
        "description": shortened_text(next(filter(None, texts), "")),
        "inputSchema": sound_schema(tool.get("inputSchema")),
        "annotations": {"readOnlyHint": read_only},
        **({"execution": {"taskSupport": "required"}} if needs_task else {}),
        **({"_meta": {OUTPUT: sound_schema(output)}} if isinstance(output, dict) else {}),
    }


def _some(items: list[Any]) -> str:
    more = f" and {len(items) - NAMES_IN_NOTE:,} more" if len(items) > NAMES_IN_NOTE else ""
    return ", ".join(f"{item!r}"[:80] for item in items[:NAMES_IN_NOTE]) + more
