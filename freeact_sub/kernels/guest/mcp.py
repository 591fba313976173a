"""`agent.mcp`: MCP servers and their tools, as code in a kernel sees them. Sent into every kernel as source."""

import inspect
import keyword
from collections.abc import Callable
from typing import Any

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
    """Attributes that are looked up at the host when they are first used."""

    def __init__(self, path: str, names: Callable[[], list[str]], make: Callable[[str], Any], doc: str) -> None:
        self.__dict__.update(_path=path, _names=names, _make=make, __doc__=doc)

    def __getattr__(self, name: str) -> Any:
        # IPython's display and completion machinery probes for private names on every object
        if name.startswith("_"):
            raise AttributeError(name)
        names = self._names()
        if name not in names:
            raise AttributeError(f"{self._path} has no {name!r}; it has: {', '.join(names) or 'nothing'}")
        value = self.__dict__[name] = self._make(name)
        return value

    __getitem__ = __getattr__

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{self._path} cannot be changed")

    def __dir__(self) -> list[str]:
        names: list[str] = self._names()
        return names

    def __repr__(self) -> str:
        return f"<{self._path}: {', '.join(self._names()) or 'nothing'}>"


def identifier(name: str) -> str:
    """The Python name for a server or tool."""
    python_name = "".join(char if char.isalnum() or char == "_" else "_" for char in name)
    if python_name[:1].isdigit() or keyword.iskeyword(python_name) or python_name.startswith("_"):
        python_name = f"tool_{python_name}"
    return python_name


def server_namespace(requests: Any, server: str) -> Namespace:
    """The tools of a server, requested from the host at their first use."""
    tools: dict[str, dict[str, Any]] = {}

    def names() -> list[str]:
        if not tools:
            tools.update({identifier(tool["name"]): tool for tool in requests.ask("mcp_tools", server=server)})
        return list(tools)

    return Namespace(
        f"agent.mcp.{identifier(server)}",
        names,
        lambda name: tool_function(requests, server, tools[name]),
        f"Tools of the MCP server {server}.",
    )


def tool_function(requests: Any, server: str, tool: dict[str, Any]) -> Callable[..., Any]:
    """A function for an MCP tool, with signature and docstring made from the tool's JSON schema."""
    schema = tool.get("parameters_json_schema") or {}
    signature, real_names = signature_of(schema)

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(what_is_wrong(str(error), signature, kwargs)) from None
        extra = bound.pop("extra_arguments", {})
        arguments = {real_names[name]: value for name, value in bound.items()} | extra
        return requests.call("mcp_call", server=server, tool=tool["name"], args=arguments)

    function.__name__ = function.__qualname__ = identifier(tool["name"])
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__doc__ = docstring_of(tool, schema)
    return function


def what_is_wrong(problem: str, signature: inspect.Signature, kwargs: dict[str, Any]) -> str:
    """The message for arguments that do not fit; unknown ones come first, since a missing one may be mistyped."""
    known = signature.parameters
    unknown = [name for name in kwargs if name not in known and "extra_arguments" not in known]
    if unknown:
        problem = f"there is no argument {', '.join(map(repr, unknown))}"
    names = [
        name if parameter.default is inspect.Parameter.empty else f"{name} (may be left out)"
        for name, parameter in known.items()
        if name != "extra_arguments"
    ]
    return f"{problem}; it takes: {', '.join(names) or 'nothing'}"


def signature_of(schema: dict[str, Any]) -> tuple[inspect.Signature, dict[str, str]]:
    """Signature for a JSON schema, and the schema's own names by the Python names."""
    required, real_names = set(schema.get("required", ())), {}
    parameters = []
    for name, item in (schema.get("properties") or {}).items():
        python_name = identifier(name)
        real_names[python_name] = name
        default = inspect.Parameter.empty if name in required else item.get("default") if isinstance(item, dict) else None
        kind = TYPES.get(str(item.get("type")), Any) if isinstance(item, dict) else Any
        parameters.append(
            inspect.Parameter(python_name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)
        )
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
    if schema.get("additionalProperties"):
        parameters.append(inspect.Parameter("extra_arguments", inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(parameters), real_names


def docstring_of(tool: dict[str, Any], schema: dict[str, Any]) -> str:
    """The text of `help()` on a tool."""
    lines = [tool.get("description") or tool["name"]]
    properties = schema.get("properties") or {}
    if properties:
        lines += ["", "Args:"]
        for name, item in properties.items():
            about = item.get("description", "") if isinstance(item, dict) else ""
            lines.append(f"    {identifier(name)}: {about}".rstrip().rstrip(":"))
    return "\n".join(lines)
