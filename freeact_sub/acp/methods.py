"""`Methods`: the methods that a client may call, and its open sessions."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import acp
from acp import RequestError, schema
from pydantic import BaseModel, ValidationError

from freeact_sub import __version__
from freeact_sub.acp import commands, updates
from freeact_sub.acp.connection import Client
from freeact_sub.acp.session import Session
from freeact_sub.agent import Agent
from freeact_sub.config.schema import Config, McpServerConfig
from freeact_sub.errors import ConfigError, FreeactError, SessionError
from freeact_sub.models.build import require_model
from freeact_sub.modes import narrower
from freeact_sub.sessions import session_store
from freeact_sub.system.closing import carry_out

PAGE: Final = 50
"""Sessions on one page of a list."""
UNANSWERED_SECONDS: Final = 1800.0
"""Seconds after which an open question is denied, unless the settings say another time."""
CLOSE_SECONDS: Final = 60.0
INTERNAL: Final = -32603
SIGNED_OUT: Final = -32000
"""The protocol's error code for a client that has to offer `authMethods`."""
OPENS: Final = ("session/new", "session/load", "session/resume", "session/fork")
SIGN_IN: Final = "A key of a provider, such as ANTHROPIC_API_KEY, in the environment that the client gives the agent"
logger = logging.getLogger(__name__)
Settings: Any = Callable[[Path], Config]
Handler: Any = Callable[[Any], Awaitable[Any]]


class Methods:
    """The methods that a client may call, and its open sessions."""

    def __init__(self, client: Client, settings: Settings) -> None:
        """Start without a session.

        Args:
            client: The caller.
            settings: Returns the settings of a session in a folder. Blocks. Raises: FreeactError: No session is possible.
        """
        self._client = client
        self._settings = settings
        self._sessions: dict[str, Session] = {}
        self._opening = asyncio.Lock()
        """The lock under which sessions are opened, closed and deleted."""
        self._prompts: dict[Any, str] = {}
        """The session of each unanswered prompt, by request id."""
        self._opened: dict[Any, str] = {}
        """The session ids of unanswered requests that open sessions, by request id."""
        self._announcing: set[asyncio.Task[None]] = set()
        self._table: dict[str, tuple[type[BaseModel] | None, Handler]] = {
            "initialize": (schema.InitializeRequest, self._initialize),
            "authenticate": (None, self._nothing),
            "logout": (None, self._nothing),
            "session/new": (schema.NewSessionRequest, self._new),
            "session/load": (schema.LoadSessionRequest, self._load),
            "session/resume": (schema.ResumeSessionRequest, self._resume),
            "session/fork": (schema.ForkSessionRequest, self._fork),
            "session/list": (schema.ListSessionsRequest, self._list),
            "session/delete": (schema.DeleteSessionRequest, self._delete),
            "session/close": (schema.CloseSessionRequest, self._close),
            "session/prompt": (schema.PromptRequest, self._prompt),
            "session/cancel": (schema.CancelNotification, self._cancel),
            "$/cancel_request": (None, self._cancel_request),
            "session/set_mode": (schema.SetSessionModeRequest, self._set_mode),
            "session/set_config_option": (None, self._set_option),
        }

    async def answer(self, method: str, params: Any, is_notification: bool) -> Any:
        """Answer a request, or take a notification. Raises: RequestError: The client gets it."""
        if not isinstance(method, str) or method not in self._table:
            if is_notification or str(method).startswith("_"):
                return None
            raise RequestError.method_not_found(str(method))
        model, handle = self._table[method]
        try:
            return await handle(params if model is None else model.model_validate({} if params is None else params))
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'params'}: {each['msg']}" for each in error.errors())
            if is_notification:
                logger.warning("%s of the client is left out: %s", method, problems)
                return None
            raise RequestError.invalid_params({"details": problems}) from error
        except FreeactError as error:
            raise RequestError(INTERNAL, str(error), {"details": str(error)}) from error

    def sees_request(self, request_id: Any, method: str, params: Any) -> None:
        """Note a message of the client, before `answer` is called for it."""
        given = params if isinstance(params, dict) else {}
        if not isinstance(request_id, str | int):
            return
        if method == "session/prompt":
            self._prompts[request_id] = str(given.get("sessionId"))
        elif method in OPENS:
            self._opened[request_id] = str(given.get("sessionId", ""))

    def has_answered(self, request_id: Any, result: Any) -> None:
        """Announce the commands of an opened session; earlier a client would drop the update."""
        if not isinstance(request_id, str | int):
            return
        self._prompts.pop(request_id, None)
        opened = self._opened.pop(request_id, None)
        if opened is None or not isinstance(result, dict):
            return
        if session := self._sessions.get(result.get("sessionId") or opened):
            task = asyncio.create_task(session.announce(), name="announces commands")
            self._announcing.add(task)
            task.add_done_callback(self._announcing.discard)

    async def aclose(self) -> None:
        """Close all sessions: the client is gone."""
        for task in self._announcing:
            task.cancel()
        sessions = list(self._sessions.values())
        self._sessions.clear()
        for session in sessions:
            session.cancel()
        await asyncio.gather(*(self._close_agent(session) for session in sessions), return_exceptions=True)

    async def _initialize(self, request: schema.InitializeRequest) -> dict[str, Any]:
        can = request.client_capabilities
        self._client.capabilities = {} if can is None else can.model_dump(by_alias=True, exclude_none=True)
        self._client.name = "" if request.client_info is None else request.client_info.name
        return {
            "protocolVersion": acp.PROTOCOL_VERSION,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": False},
                "sessionCapabilities": {
                    "list": {},
                    "delete": {},
                    "fork": {},
                    "resume": {},
                    "close": {},
                    "additionalDirectories": {},
                },
                "auth": {"logout": {}},
            },
            "agentInfo": {"name": "freeact-sub", "title": "freeact-sub", "version": __version__},
            "authMethods": [{"id": "environment", "name": "A key in the environment", "description": SIGN_IN}],
        }

    async def _nothing(self, _: Any) -> dict[str, Any]:
        return {}

    async def _new(self, request: schema.NewSessionRequest) -> dict[str, Any]:
        config = await self._config(request)
        session = await self._open(lambda: _agent(config, "new"))
        return {"sessionId": session.session_id, **session.state}

    async def _load(self, request: schema.LoadSessionRequest) -> dict[str, Any]:
        session = await self._found(request)
        if not self._client.is_jupyter_ai:  # it ignores the replay, except for what it reads after the answer
            await session.replay()
        return session.state

    async def _resume(self, request: schema.ResumeSessionRequest) -> dict[str, Any]:
        return (await self._found(request)).state

    async def _fork(self, request: schema.ForkSessionRequest) -> dict[str, Any]:
        config = await self._config(request)
        async with self._opening:
            session = self._sessions.get(request.session_id)
            if session is not None:
                copy = await session.agent.fork()
                config = config.model_copy(update={"mode": session.agent.mode})
                made = await self._opened_now(lambda: _agent(config, copy))
            else:
                copy = await asyncio.to_thread(session_store(config.sessions).fork, request.session_id)
                made = await self._opened_now(lambda: _resumed(copy, config))
        return {"sessionId": made.session_id, **made.state}

    async def _list(self, request: schema.ListSessionsRequest) -> dict[str, Any]:
        folder = None if request.cwd is None else _folder(request.cwd)
        config = await asyncio.to_thread(self._settings, folder or Path.cwd())
        found = await asyncio.to_thread(session_store(config.sessions).sessions, folder)
        listed = [session for session in found if session.title]
        cursor = request.cursor or ""
        start = int(cursor) if cursor.isdecimal() else 0
        page = listed[start : start + PAGE]
        sessions = [
            {
                "sessionId": session.session_id,
                "cwd": str(session.workspace),
                "title": session.title,
                "updatedAt": updates.iso_time(session.updated),
            }
            for session in page
        ]
        more = {"nextCursor": str(start + PAGE)} if start + PAGE < len(listed) else {}
        return {"sessions": sessions, **more}

    async def _delete(self, request: schema.DeleteSessionRequest) -> dict[str, Any]:
        async with self._opening:
            session = self._sessions.pop(request.session_id, None)
            store = (
                session.agent.sessions
                if session is not None
                else session_store((await asyncio.to_thread(self._settings, Path.cwd())).sessions)
            )
            if session is not None:
                await self._close_agent(session)
            with suppress(SessionError):  # it is gone already
                found = await asyncio.to_thread(store.find, request.session_id)
                await asyncio.to_thread(store.remove, found.session_id)
        return {}

    async def _close(self, request: schema.CloseSessionRequest) -> dict[str, Any]:
        async with self._opening:
            session = self._session(request.session_id)
            del self._sessions[request.session_id]
            await self._close_agent(session)
        return {}

    async def _prompt(self, request: schema.PromptRequest) -> dict[str, Any]:
        blocks = [block.model_dump(by_alias=True, exclude_none=True, mode="json") for block in request.prompt]
        return await self._session(request.session_id).prompt(blocks)

    async def _cancel(self, request: schema.CancelNotification) -> None:
        if (session := self._sessions.get(request.session_id)) is not None:
            session.cancel()

    async def _cancel_request(self, params: Any) -> None:
        request_id = params.get("requestId") if isinstance(params, dict) else None
        session_id = self._prompts.get(request_id, "") if isinstance(request_id, str | int) else ""
        if (session := self._sessions.get(session_id)) is not None:
            session.cancel()

    async def _set_mode(self, request: schema.SetSessionModeRequest) -> dict[str, Any]:
        session = self._session(request.session_id)
        await session.choose(commands.MODE, request.mode_id)
        await session.say({"sessionUpdate": "config_option_update", "configOptions": session.config_options})
        return {}

    async def _set_option(self, params: Any) -> dict[str, Any]:
        given = params if isinstance(params, dict) else {}
        session = self._session(str(given.get("sessionId")))
        await session.choose(str(given.get("configId")), given.get("value"))
        return {"configOptions": session.config_options}

    def _session(self, session_id: str) -> Session:
        if session_id not in self._sessions:
            raise RequestError(-32002, f"no session {session_id} is open: load it first", {"sessionId": session_id})
        return self._sessions[session_id]

    async def _found(self, request: schema.LoadSessionRequest | schema.ResumeSessionRequest) -> Session:
        """Return a session; open it if it is closed."""
        if (session := self._sessions.get(request.session_id)) is None:
            config = await self._config(request)
            session = await self._open(lambda: _resumed(request.session_id, config), request.session_id)
        return session

    async def _open(self, make: Callable[[], Agent], session_id: str = "") -> Session:
        """Open a session. Args: session_id: of one that may be open by now. Empty: a new session."""
        async with self._opening:
            return self._sessions.get(session_id) or await self._opened_now(make)

    async def _opened_now(self, make: Callable[[], Agent]) -> Session:
        agent = await asyncio.to_thread(make)
        await agent.open()
        session = Session(agent, self._client, _agent)
        self._sessions[session.session_id] = session
        return session

    @staticmethod
    async def _close_agent(session: Session) -> None:
        await carry_out(session.aclose(), timeout_seconds=CLOSE_SECONDS)

    async def _config(self, request: Any) -> Config:
        """Return the settings of a client's session, with its folder and its MCP servers."""
        config: Config = await asyncio.to_thread(self._settings, _folder(request.cwd))
        servers = {**config.mcp_servers, **{server.name: _server(server) for server in request.mcp_servers or ()}}
        try:
            require_model(config)
        except ConfigError as error:
            raise RequestError(SIGNED_OUT, str(error), {"details": str(error)}) from error
        seconds = config.approval_timeout_seconds or UNANSWERED_SECONDS
        more = tuple(_folder(folder) for folder in request.additional_directories or ())
        kernel = config.kernel.model_copy(
            update={"readable": (*config.kernel.readable, *more), "writable": (*config.kernel.writable, *more)}
        )
        return config.model_copy(update={"mcp_servers": servers, "approval_timeout_seconds": seconds, "kernel": kernel})


def _agent(config: Config, session_id: str) -> Agent:
    return Agent(config, session=session_id)


def _resumed(session_id: str, config: Config) -> Agent:
    """Return the agent of a stored session, in the mode that its user had chosen unless today's settings allow less."""
    agent = Agent.resume(session_id, config)
    with agent.sessions.reader(session_id) as reader:
        root = next(iter(reader.agents()), None)
    if root is not None:
        agent.mode = narrower(root.mode, agent.mode)
    return agent


def _folder(path: str) -> Path:
    if not Path(path).is_absolute() or not Path(path).is_dir():
        raise RequestError.invalid_params({"details": f"{path} is not the absolute path of a folder"})
    return Path(path)


def _server(server: Any) -> McpServerConfig:
    if isinstance(server, schema.McpServerStdio):
        return McpServerConfig(command=server.command, args=server.args, env={each.name: each.value for each in server.env})
    if isinstance(server, schema.HttpMcpServer):
        return McpServerConfig(url=server.url, headers={each.name: each.value for each in server.headers})
    raise RequestError.invalid_params({"details": f"the MCP server {server.name!r} has a transport that is not supported"})
