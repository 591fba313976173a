"""The command `freeact-sub mcp`: a person lists, adds, removes and checks MCP servers, and signs in to them."""

import argparse
import asyncio
import json
import os
import sys
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO
from urllib.parse import urlsplit

from freeact_sub.cli.streams import asking_terminal, print_line, tell
from freeact_sub.config.load import mcp_files, read_mcp_servers
from freeact_sub.config.parsing import parse_json, plain_json, text_of_file
from freeact_sub.config.schema import MCP_FILE, Config, McpServerConfig, notices_on, user_folder
from freeact_sub.config.trust import Trust
from freeact_sub.errors import ConfigError, McpError
from freeact_sub.system.process import state_folder
from freeact_sub.system.safe_files import locked_folder, read_file, replace_file
from freeact_sub.text import counted, one_line, visible

if TYPE_CHECKING:
    from freeact_sub.agents.rights import AgentType

SHOWN_CHARS: Final = 100
SERVERS: Final = "mcpServers"
"""The object of servers in `mcp.json`."""
GRAPHICAL: Final = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
"""Variables that promise a browser; a browser of text would take the terminal."""
READ_BYTES: Final = 65_536


def run_way(options: argparse.Namespace, settings: Callable[..., Config]) -> int:
    """Run the subcommand; return the exit status."""
    match options.way:
        case "list":
            return _list(options, settings(looking=True))
        case "add":
            return _add(options)
        case "remove":
            return _remove(options)
        case "login":
            return _login(options.name, settings())
        case "logout":
            return _logout(options.name, settings(looking=True))
        case _:
            return _check(options.names, settings())


def _list(options: argparse.Namespace, config: Config) -> int:
    places: dict[str, str] = {}
    for path in _files(options, config.workspace):
        place = "yours" if _is_own(path) else f"workspace{_mark(path)}"
        places |= dict.fromkeys(read_mcp_servers(path), place)
    of_types = _of_types(config)
    for name, server in config.mcp_servers.items():
        print_line(f"{name}: {places.get(name, 'settings')}, {_kind(name, server)}: {_target(server)}")
    for notice in notices_on(config.mcp_servers):
        tell(f"note: {notice}")
    for name, (server, agent_type) in of_types.items():
        mark = _mark(Path(agent_type.file))
        print_line(f"{name}: of the agent type {agent_type.name}{mark}, {_kind(name, server)}: {_target(server)}")
    if not config.mcp_servers and not of_types:
        print_line("no MCP servers: `freeact-sub mcp add NAME URL`, or `freeact-sub mcp add NAME -- COMMAND`")
    return 0


def _is_own(path: Path) -> bool:
    return path.resolve().is_relative_to(user_folder().resolve())


def _mark(path: Path) -> str:
    """Return the mark behind the place of a server whose file nobody has trusted."""
    return "" if _is_own(path) or Trust(user_folder()).knows(path, read_file(path)) else ", not trusted"


def _of_types(config: Config) -> dict[str, tuple[McpServerConfig, "AgentType"]]:
    """Return servers that only agents of a type have, with the first type of each; report faults of types."""
    from freeact_sub.features.agent_types import load_agent_types  # noqa: PLC0415  # slow to import

    found: dict[str, tuple[McpServerConfig, AgentType]] = {}
    types = load_agent_types(config)
    for problem in types.problems:
        tell(visible(problem))
    for agent_type in types.types.values():
        for name, server in agent_type.servers.items():
            found.setdefault(name, (server, agent_type))
    return found


def _kind(name: str, server: McpServerConfig) -> str:
    state = ", disabled" if server.disabled else ""
    if server.url is None:
        return f"stdio{state}"
    from freeact_sub.mcp.tokens import TokenFile  # noqa: PLC0415

    try:
        kept = TokenFile(name, server.url).read()
    except McpError:
        return f"http, your sign-in cannot be read{state}"
    if kept is None:
        return f"http{state}"
    return f"http, {'signed in' if kept.access_token else 'your sign-in has ended'}{state}"


def _target(server: McpServerConfig) -> str:
    """Return the address or command, without secrets."""
    if server.url is None:
        arguments = f" with {counted(len(server.args), 'argument')}" if server.args else ""
        return f"{one_line(server.command or 'no command', SHOWN_CHARS)}{arguments}"
    url = urlsplit(server.url)
    return one_line(f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}", SHOWN_CHARS)


def _files(options: argparse.Namespace, workspace: Path) -> tuple[Path, ...]:
    given: Path | None = getattr(options, "mcp", None)
    return mcp_files(workspace, user_folder()) if given is None else (given.expanduser(),)


def _file(options: argparse.Namespace) -> Path:
    own = user_folder() / MCP_FILE
    if options.user:
        return own
    workspace = (getattr(options, "workspace", None) or Path.cwd()).expanduser()
    others = [path for path in _files(options, workspace) if path != own]
    return others[-1] if others else workspace / MCP_FILE


def _add(options: argparse.Namespace) -> int:
    server = _server(options)
    Config(mcp_servers={options.name: McpServerConfig(**server)})  # raises if the name or a value is wrong
    path = _file(options)
    before, after = add_server(path, options.name, server, mode=0o600 if options.user else 0o644)
    print_line(f"added: {options.name} to {path}")
    _trust(path, before, after)
    return 0


def add_server(path: Path, name: str, server: Mapping[str, Any], *, mode: int) -> tuple[bytes | None, bytes]:
    """Add a server to a file; a missing file is made, with this mode. Return its content before and after.

    Raises:
        ConfigError: The file has the server already, has comments, or cannot be read or written.
    """

    def add(servers: dict[str, Any]) -> dict[str, Any]:
        if name in servers:
            raise ConfigError(f"{path} has a server {name!r} already: remove it first")
        return {**servers, name: server}

    return _changed(path, add, mode)


def remove_server(path: Path, name: str) -> tuple[bytes | None, bytes]:
    """Remove a server from a file. Return the file's content before and after.

    Raises:
        ConfigError: The file does not have the server, has comments, or cannot be read or written.
    """

    def remove(servers: dict[str, Any]) -> dict[str, Any]:
        if name not in servers:
            raise ConfigError(f"{path} has no server {name!r}: `freeact-sub mcp list` names them")
        return {key: value for key, value in servers.items() if key != name}

    return _changed(path, remove, 0o644)


def _changed(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], mode: int) -> tuple[bytes | None, bytes]:
    try:
        with locked_folder(path.parent):
            before = read_file(path) if os.path.lexists(path) else None
            text = text_of_file(before or b"")
            if plain_json(text) != text:
                raise ConfigError(f"cannot change {path}: it has comments or a comma behind a last entry: edit it by hand")
            content = parse_json(text) if text.strip() else {}
            servers = content.get(SERVERS, {}) if isinstance(content, dict) else None
            if not isinstance(servers, dict):
                raise ConfigError(f"cannot change {path}: it has no object `{SERVERS}`")
            changed = {**content, SERVERS: change(servers)}
            after = f"{json.dumps(changed, indent=2, ensure_ascii=False, allow_nan=False)}\n".encode()
            replace_file(path, after, mode=mode)
    except ValueError as error:
        raise ConfigError(f"cannot change {path}: {error}") from error
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
    return before, after


def _server(options: argparse.Namespace) -> dict[str, Any]:
    target: Sequence[str] = options.target
    env = dict(_pair(text, "=", "--env NAME=VALUE") for text in options.env)
    headers = dict(_pair(text, ":", "--header 'NAME: VALUE'") for text in options.header)
    oauth = {name: value for name in ("client_id", "callback_port") if (value := getattr(options, name)) is not None}
    is_url = len(target) == 1 and "://" in target[0]
    if is_url and env:
        raise ConfigError("--env is for a command: a server at a URL has an environment of its own")
    if not is_url and (headers or oauth):
        raise ConfigError("--header, --client-id and --callback-port are for a server at a URL")
    if is_url:
        more = {"headers": headers, "oauth": oauth}
        return {"type": "http", "url": target[0], **{name: value for name, value in more.items() if value}}
    command, *arguments = target
    return {"command": command, "args": arguments, **({"env": env} if env else {})}


def _pair(text: str, sign: str, form: str) -> tuple[str, str]:
    name, found, value = text.partition(sign)
    if not found or not name.strip():
        raise ConfigError(f"a value of {form.partition(' ')[0]} is not of the form {form}")
    return name.strip(), value.strip() if sign == ":" else value


def _remove(options: argparse.Namespace) -> int:
    path = _file(options)
    before, after = remove_server(path, options.name)
    print_line(f"removed: {options.name} from {path}")
    _trust(path, before, after)
    return 0


def _trust(path: Path, before: bytes | None, after: bytes) -> None:
    """Trust a file as it is now, if a person trusted it before, or it did not exist."""
    trust = Trust(user_folder())
    if before is not None and not trust.knows(path, before) and path.parent != user_folder():
        print_line(f"{path} was not trusted before: you will be asked about all of it")
    elif path.parent != user_folder():
        trust.add({path: after})


def _login(name: str, config: Config) -> int:
    server = _http_server(name, config)
    terminal = asking_terminal()
    if terminal is None or config.headless is not None:
        raise ConfigError(f"signing in needs a person: run `freeact-sub mcp login {name}` in a terminal")
    if any(key.lower() == "authorization" for key in server.headers):
        raise ConfigError(f"MCP server {name!r} has a header Authorization, which is used instead: remove it to sign in")
    from freeact_sub.mcp.login import SignInDialog  # noqa: PLC0415  # slow to import

    async def show(address: str) -> None:
        await asyncio.to_thread(_show, name, address, terminal)

    async def sign_in() -> bool:
        dialog = SignInDialog(server=name, config=server, show=show, typed=_typed, log_file=_log_folder() / "login.log")
        return await dialog.run()

    if asyncio.run(sign_in()):
        print_line(f"signed in to {name}")
    else:
        print_line(f"{name} can be used without signing in")
    return 0


def _show(name: str, address: str, terminal: TextIO) -> None:
    host = one_line(urlsplit(address).netloc, SHOWN_CHARS)
    can_open = sys.platform == "darwin" or any(os.environ.get(variable) for variable in GRAPHICAL)
    print(f"Sign in to {name} at {host}, on this page:\n\n{address}\n", file=terminal)
    print(
        "If the browser cannot open the page that comes after it, paste that page's address here.", file=terminal, flush=True
    )
    if can_open:
        webbrowser.open(address)


async def _typed() -> str:
    """Return the next line that a person types; empty at the end of the input."""
    loop, handle = asyncio.get_running_loop(), sys.stdin.fileno()
    readable = asyncio.Event()
    loop.add_reader(handle, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(handle)
    return os.read(handle, READ_BYTES).decode(errors="replace")


def _logout(name: str, config: Config) -> int:
    from freeact_sub.mcp.tokens import TokenFile  # noqa: PLC0415

    server = _http_server(name, config)
    was_there = TokenFile(name, str(server.url)).remove()
    print_line(f"signed out of {name}" if was_there else f"you were not signed in to {name}")
    return 0


def _http_server(name: str, config: Config) -> McpServerConfig:
    if "://" in name:
        return McpServerConfig(url=name)
    server = _named([name], config)[name]
    if server.url is None:
        raise ConfigError(f"MCP server {name!r} is a command: only servers at a URL have a sign-in")
    return server


def _named(names: Sequence[str], config: Config) -> dict[str, McpServerConfig]:
    servers = config.mcp_servers | {name: server for name, (server, _) in _of_types(config).items()}
    for name in names:
        if name not in servers:
            there = f"the servers are {', '.join(servers)}" if servers else "`freeact-sub mcp add` adds one"
            raise ConfigError(f"there is no MCP server {name!r}: {there}")
    return {name: server for name, server in servers.items() if not names or name in names}


def _check(names: Sequence[str], config: Config) -> int:
    servers = _named(names, config)
    if not servers:
        print_line("no MCP servers")
        return 0
    failed = False
    for name, (is_right, text) in asyncio.run(_tried(servers)).items():
        failed |= not is_right
        print_line(f"{name}: {text}")
        for unread in servers[name].unread:
            tell(f"note: {name}: {unread} means nothing here")
    return 1 if failed else 0


async def _tried(servers: dict[str, McpServerConfig]) -> dict[str, tuple[bool, str]]:
    from freeact_sub.mcp import McpCatalogue, McpServers  # noqa: PLC0415

    folder = _log_folder()
    async with McpServers(servers, catalogue=McpCatalogue(), log_folder=folder, log_root=folder) as connections:
        found = await asyncio.gather(*(_try(connections, name, server) for name, server in servers.items()))
    return dict(zip(servers, found, strict=True))


async def _try(connections: Any, name: str, server: McpServerConfig) -> tuple[bool, str]:
    """Try a server. Return whether it can be used; and its offers, or the reason why not."""
    if server.disabled:
        return not server.notice, server.notice or "disabled"
    try:
        tools = [tool.name for tool in await connections.tools(name)]
        resources = [resource.uri for resource in await connections.resources(name)]
        prompts = [prompt.name for prompt in await connections.prompts(name)]
    except McpError as error:
        return False, str(error)
    offers = {"tool": tools, "resource": resources, "prompt": prompts}
    lines = [f"    {noun}s: {', '.join(one_line(found) for found in names)}" for noun, names in offers.items() if names]
    notes = [f"    note: {note}" for note in connections.notes(name)]
    return True, "\n".join((", ".join(counted(len(names), noun) for noun, names in offers.items()), *lines, *notes))


def _log_folder() -> Path:
    folder = state_folder() / "mcp-logs"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
