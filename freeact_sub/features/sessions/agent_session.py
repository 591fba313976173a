"""`AgentSession`: the session of one root agent: chosen when the agent is made, held while it is open.

A conversation goes on with the model with which it was held, or where somebody says so now. A name alone is not enough:
`openai-chat:NAME` is a model of one's own server with `base_url`, and one of a provider without. So a session keeps the
settings that give its model a meaning, and the addresses that they led to. Secrets that the program knows (`known_secrets`)
are never written into it.
"""

import asyncio
import json
import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pydantic_ai.models import Model

from freeact_sub.agents.call import asks_for
from freeact_sub.agents.kernel import AgentKernel
from freeact_sub.agents.life import Tree, TreeAgent
from freeact_sub.channel import Tap, hearing
from freeact_sub.config.schema import Config, McpServerConfig, ModelsConfig
from freeact_sub.errors import McpError, SessionError, way
from freeact_sub.events import AgentEvent, CodeExecutionOutput
from freeact_sub.features.sessions.journal import Journal, OpenReader, Resumed, load
from freeact_sub.features.sessions.variables import CHANGE_VARIABLES, FollowedVariables, SessionVariables
from freeact_sub.models.observers import SECRET, addresses
from freeact_sub.sessions import (
    FILES,
    VARIABLES,
    SessionReader,
    SessionStore,
    StoredSession,
    new_session_id,
    session_store,
)

MIN_CHARS: Final = 8
"""Smallest length of a secret; removing shorter values would damage ordinary words."""
NAMES: Final = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|AUTH|AUTHORIZATION|COOKIE)$", re.IGNORECASE)
"""Endings of the names of settings, variables and headers with secret values."""
OF_ADDRESS: Final = ("base_url", "fallback_models")
SETTINGS: Final = ("model", "base_url", "fallback_models", "model_settings", "code_actions", "answer_check", "profile")
"""Settings that are kept, besides the names in `models`."""
SWEEP_SECONDS: Final = 5.0
"""Seconds that the end of a sweep may take."""
NEW: Final = "new"

logger = logging.getLogger(__name__)


def known_secrets(
    config: Config, servers: Mapping[str, McpServerConfig], environment: Mapping[str, str] = os.environ
) -> list[str]:
    """Return all secret values: of settings, MCP servers and their sign-ins, and environment variables named like keys."""
    found = {*_named(environment), *_of_settings(config), *_of_servers(servers)}
    return sorted(value for value in found if len(value) >= MIN_CHARS)


def _of_settings(config: Config) -> Iterator[str]:
    yield from _named(config.kernel.env)
    yield from _named(config.kernel.gateway.model_dump())
    yield from _named(config.kernel.options)
    yield from _named(config.model_settings)
    yield from _headers(config.model_settings.get("extra_headers"))
    yield from _password(config.base_url)


def _of_servers(servers: Mapping[str, McpServerConfig]) -> Iterator[str]:
    for name, server in servers.items():
        yield from _headers(server.headers)
        yield from _named(server.env)
        yield from _named(server.oauth.model_dump())
        yield from _password(server.url)
        yield from _sign_in(name, server.url)


def _named(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values whose names mark them as secrets."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _named(value)
        elif NAMES.search(str(name)):
            secret = value.get_secret_value() if hasattr(value, "get_secret_value") else value
            if isinstance(secret, str):
                yield secret


def _headers(headers: Any) -> Iterator[str]:
    """Yield the header values of a server, any of which may be secret, and the KEY of `Bearer KEY`."""
    for value in headers.values() if isinstance(headers, Mapping) else ():
        yield str(value)
        yield str(value).rpartition(" ")[2]


def _password(url: str | None) -> Iterator[str]:
    try:
        password = urlsplit(url or "").password
    except ValueError:
        return
    if password:
        yield from (password, unquote(password))


def _sign_in(server: str, url: str | None) -> Iterator[str]:
    """Yield the tokens with which a person is signed in now."""
    if url is None:
        return
    from freeact_sub.mcp.tokens import TokenFile  # noqa: PLC0415  # few agents have such servers

    with suppress(McpError):  # a file that cannot be used: its server tells, when it is called
        kept = TokenFile(server, url).read()
        if kept is not None:
            yield from (*_named(kept.tokens), *_named(kept.client))


def model_json(config: Config, model: Model) -> str:
    """Return the session's record of its model. Args: model: from the settings, or given by a program."""
    settings = {name: getattr(config, name) for name in SETTINGS}
    names = {name: other if isinstance(other, str) else None for name, other in config.models.names.items()}
    return json.dumps({"settings": {**settings, "models": names}, "addresses": addresses(model)}, default=str)


def with_model_of(stored: StoredSession, config: Config) -> Config:
    """Return the settings with which a session goes on: with its model, unless another one was chosen for it.

    A choice is a setting that a program gives to `Config`, or an argument of `load_config`. Settings of files and variables
    are for new sessions: they do not decide where this conversation may go.

    Raises:
        SessionError: The session does not say which model it had.
    """
    kept: Mapping[str, Any] = stored.model_settings
    other = has_other_model(stored, config)
    if not other and not stored.model:
        had = f" ({', '.join(stored.addresses)})" if stored.addresses else ""
        raise SessionError(
            f"the session {stored.session_id} used a model object of a program{had}, which cannot be stored: name a model "
            f"with {way('Agent.resume(ID, model=...)', '--model')}"
        )
    if not other and not kept:
        raise SessionError(
            f"the session {stored.session_id} does not record the address of its model {stored.model}: name a model with "
            f"{way('Agent.resume(ID, model=...)', '--model')}"
        )
    update: dict[str, Any] = {name: kept[name] for name in SETTINGS if name in kept}
    if other:
        same_provider = _provider(config.model) == _provider(stored.model)
        wanted = OF_ADDRESS if same_provider and kept.get("base_url") else ()
        update = {name: value for name, value in update.items() if name in wanted} if wanted else {"fallback_models": ()}
    update = {name: value for name, value in update.items() if name not in config.model_fields_set}
    if "fallback_models" in update:
        update["fallback_models"] = tuple(update["fallback_models"])
    if "models" not in config.model_fields_set:
        update["models"] = _models(config.models, kept.get("models", {}))
    kept_config = config.model_copy(update=_without_secrets(stored, update, config))
    return kept_config.choosing(config.model_fields_set)


def has_other_model(stored: StoredSession, config: Config) -> bool:
    """Whether another model than its own was chosen for the session."""
    return "model" in config.model_fields_set and config.model is not None and config.model != stored.model


def check_addresses(stored: StoredSession, config: Config, model: Model) -> None:
    """Refuse an unchosen model at another address than the session's: the environment has changed.

    Raises:
        SessionError: The conversation would go to somebody else.
    """
    chosen = config.model_fields_set
    first, *others = addresses(model)
    if has_other_model(stored, config) or "base_url" in chosen:
        first = ""
    if not chosen.isdisjoint(("base_url", "fallback_models", "models")):
        others = []
    new = [address for address in (first, *others) if address and address not in stored.addresses]
    if new and SECRET not in "".join(stored.addresses):
        raise SessionError(
            f"the session {stored.session_id} used {_listed(stored.addresses)}, and the current settings name "
            f"{_listed(new)}: set `base_url` to one of them, or name another model"
        )


def _models(now: ModelsConfig, kept: Mapping[str, str | None]) -> ModelsConfig:
    """Return the present names with the session's meanings. One that meant an object of a program means nothing."""
    names = {name: value for name, value in {**now.names, **kept}.items() if value is not None}
    return ModelsConfig(max_concurrent=now.max_concurrent, **names)


def _provider(name: str | None) -> str:
    return (name or "").partition(":")[0]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _without_secrets(stored: StoredSession, settings: dict[str, Any], now: Config) -> dict[str, Any]:
    """Return the settings, with the secrets of those present settings that are otherwise equal.

    Raises:
        SessionError: A secret was left out of a setting that has changed.
    """
    for name, value in settings.items():
        if SECRET not in (kept := _json(value)):
            continue
        if not re.fullmatch(re.escape(kept).replace(re.escape(SECRET), '[^"]+'), _json(getattr(now, name))):
            raise SessionError(
                f"the setting `{name}` of the session {stored.session_id} held a secret, which is never stored: set it "
                "again, or name a model"
            )
        settings = {**settings, name: getattr(now, name)}
    return settings


def _json(value: Any) -> str:
    return json.dumps(value, default=str, sort_keys=True)


class AgentSession:
    """The session of a root agent. Without a session its methods do nothing."""

    def __init__(
        self,
        choice: str | None,
        config: Config,
        *,
        has_model: bool = False,
        store: SessionStore | None = None,
    ) -> None:
        """Choose a session.

        Args:
            choice: `new`, or the id of a session to continue. None: no session.
            config: The settings; their secrets are written nowhere.
            has_model: The program gives a model, so that the session's does not count.
            store: The store of the session. None: the one that the settings name.

        Raises:
            SessionError: There is no such session, or it cannot be read.
        """
        self.journal = Journal()
        self.resumed: Resumed | None = None
        """The state to continue. None: the session is new, or there is none."""
        self.session_id: str | None = None
        self.config = config
        """The settings, with the values for the session's model."""
        self._set_aside: str | None = None
        """The model of the present settings, if nobody has chosen it for this session."""
        self._fork_note: Mapping[str, str] = {}
        """The note on a fork, as of `fork_note`."""
        self._model_facts = "{}"
        self._has_model = has_model
        self._sweeping: threading.Thread | None = None
        self._stop = threading.Event()
        self._last_used: float | None = None
        """The time of the last use, as far as this program knows. None: the session is not written yet."""
        self.store: SessionStore = store or session_store(config.sessions)
        if choice == NEW:
            self.session_id = new_session_id()
        elif choice is not None:
            from freeact_sub.features.sessions.forking import fork_note, originals_of, works_in_copy  # noqa: PLC0415  # see `fork`

            self.resumed = load(self.store, choice)
            self.session_id = self.resumed.stored.session_id
            if not has_model:
                self.config = with_model_of(self.resumed.stored, config)
            last = self.resumed.root_id, self.resumed.root_run
            self._fork_note = fork_note(self.store, self.resumed.stored, last)
            if works_in_copy(self.store, self.resumed.stored):
                self.config = self.config.model_copy(update={"workspace": self.resumed.stored.workspace})
                self.journal.originals = originals_of(self.store, self.resumed.stored)
            if has_model or has_other_model(self.resumed.stored, config):
                self.journal.recorded.replaced = self.resumed.stored.addresses
            self._set_aside = config.model if config.model not in (None, self.config.model) else None
            self._last_used = self.resumed.stored.updated
            self.journal.root_run, self.journal.recorded.runs = self.resumed.root_run, self.resumed.runs
            self.journal.answers, self.journal.earlier = self.resumed.answers, self.resumed.earlier
            if self.resumed.root_id is not None:
                self.journal.goes_on(self.resumed.root_id, self.resumed.written)

        self.journal.recorded.session_id = self.session_id or ""

    def file(self, name: str) -> Path | None:
        """Return the path of a file in the session's folder, if there is a session."""
        return None if self.session_id is None else self.store.folder_of(self.session_id) / name

    @property
    def notices(self) -> list[str]:
        """Sentences for people on the state that the session goes on with."""
        if self.resumed is None:
            return []
        told = [self.resumed.summary(), self._fork_note.get("missing", "")]
        if self._set_aside is not None:
            told.append(
                f"the session keeps its model {self.config.model}: that of the settings, {self._set_aside}, is for new "
                f"sessions, or with {way('model=', '--model')}"
            )
        return [*filter(None, told)]

    def attach(self, tree: Tree) -> None:
        """Go on with all agents of a new tree.

        Raises:
            SessionError: The settings of the session's model lead to another address now.
        """
        shared, self._notice = tree.shared, tree.notice
        shared.recorded = self.journal.recorded
        self._model_facts = model_json(self.config, shared.model)
        if self.resumed is not None:
            if not self._has_model:
                check_addresses(self.resumed.stored, self.config, shared.model)
            tree.ledger.spent = self.resumed.usage
            tree.answered_by.update(self.resumed.answered_by)

    async def open(self, servers: Mapping[str, McpServerConfig]) -> None:
        """Open the session and start recording. If it cannot be written, a notice says so and nothing is recorded.

        Args:
            servers: All MCP servers of the tree; their secrets are written nowhere.

        Raises:
            SessionBusyError: It is open elsewhere.
            SessionError: It was used elsewhere since it was read.
        """
        if self.session_id is None:
            self._sweep_soon()
            return
        loop = asyncio.get_running_loop()

        def failed(reason: str) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody reads notices any more
                loop.call_soon_threadsafe(self._not_kept, reason)

        try:
            writer = self.store.open(self.session_id, secrets=known_secrets(self.config, servers), on_failure=failed)
        except OSError as error:
            self._not_kept(str(error))
            return
        try:
            await asyncio.to_thread(self._check_unchanged)
        except BaseException:
            await writer.aclose()
            raise
        writer.start()
        self.journal.writer, self.journal.recorded.is_written = writer, True
        self.journal.open_reader = self._reader
        folder = self.store.folder_of(self.session_id) / VARIABLES
        self.journal.files = self.store.folder_of(self.session_id) / FILES
        self.journal.variables = SessionVariables(folder, self._last_cell, self._notice)
        self._sweep_soon()
        model = "" if self._has_model else self.config.model or ""  # a name says nothing of a model that a program gives
        self.journal.writer.session(workspace=self.config.workspace, model=model, model_facts=self._model_facts)
        try:
            await self.journal.committed()  # a program may store the id now, and be killed before its first prompt
        except BaseException:
            await self.aclose()
            raise

    def follow(self, agent: TreeAgent, kernel: AgentKernel) -> FollowedVariables | None:
        """Save the root's variables from now on, and bring back saved ones. Args: kernel: the root's own, just made.

        Returns:
            The saver of the variables, until it is closed. None: nothing saves them.
        """
        is_new, past = not agent.run.record.history, kernel.past
        past.tell(self._fork_note.get("news", ""))
        if self.journal.variables is None:
            if self.resumed is not None and not is_new:
                self._notice("its saved variables did not come back: the session is not kept")
            return None
        past.saved = variables = self.journal.variables.of_root(agent.agent_id, kernel, asks_for(agent))
        if variables.are_saved:
            past.begin_again()  # a program's own cells are no conversation
        variables.is_paused = past.due is not None
        return variables

    @property
    def taps(self) -> tuple[Tap, ...]:
        """Taps that hear the events to record."""
        if self.session_id is None:
            return ()
        return self.journal.observe, hearing(self._save_variables, *CHANGE_VARIABLES)

    def _save_variables(self, event: AgentEvent) -> None:
        if self.journal.variables is not None:
            self.journal.variables.observe(event)

    async def _last_cell(self, agent_id: str) -> float:
        await self.journal.committed()
        return await asyncio.to_thread(_last_cell, self._reader, agent_id)

    def _reader(self) -> SessionReader:
        return self.store.reader(self.session_id or "")

    async def fork(self, at: int | None) -> str:
        """Make a new session of the present state, while nothing is at work in this one. Return its id.

        Args:
            at: After which prompt it begins, as for `fork_session`. None: now, and in the same workspace.

        Raises:
            SessionError: There is no session, it is not kept, or it cannot be copied.
        """
        if self.session_id is None:
            raise SessionError("there is no session to fork: make the agent with session='new'")
        if self.journal.variables is not None:
            await self.journal.variables.settled()
        await self.journal.committed()
        if not self.journal.keeps:
            raise SessionError(f"the session {self.session_id} is not kept, so it cannot be forked")
        if at is not None:
            from freeact_sub.features.sessions.forking import fork_session  # noqa: PLC0415  # it looks at files and variables

            return (await fork_session(self.session_id, at, store=self.store, is_mine=True)).session_id
        return await asyncio.to_thread(self.store.fork, self.session_id, is_mine=True)

    async def aclose(self) -> None:
        """Finish writing, and release the session. Can be called again."""
        writer, self.journal.writer = self.journal.writer, None
        self.journal.recorded.is_written = False
        self.journal.variables = self.journal.files = None
        self._stop.set()
        try:
            if self._sweeping is not None:
                await asyncio.to_thread(self._sweeping.join, SWEEP_SECONDS)
                self._sweeping = None
            if writer is not None and self.session_id is not None:
                await writer.commit()
                with suppress(SessionError):  # a notice has said that it cannot be read
                    self._last_used = (await asyncio.to_thread(self.store.find, self.session_id)).updated
        finally:
            if writer is not None:
                await writer.aclose()

    def _check_unchanged(self) -> None:
        if self.session_id is None or self._last_used is None:
            return
        if self.store.find(self.session_id).updated != self._last_used:
            raise SessionError(
                f"another program has used the session {self.session_id} meanwhile: resume it with a new agent"
            )

    def _sweep_soon(self) -> None:
        """Sweep all sessions in a thread, if that is due."""
        if not self.store.is_sweep_due():
            return
        settings = self.config.sessions
        self._stop.clear()

        def work() -> None:
            try:
                days, size = settings.archive_after_days, settings.max_bytes
                self.store.sweep(self.config.workspace, archive_after_days=days, max_bytes=size, stop=self._stop)
            except (SessionError, OSError) as error:  # it is tried again
                logger.info("sessions are not swept: %s", error)

        self._sweeping = threading.Thread(target=work, name="sweeps sessions", daemon=True)
        self._sweeping.start()

    def _not_kept(self, reason: str) -> None:
        self._notice(f"from now on the session {self.session_id} is not kept ({reason}); the work goes on")


def _last_cell(open_reader: OpenReader, agent_id: str) -> float:
    with suppress(SessionError), open_reader() as reader:
        last = reader.last_event(agent_id, CodeExecutionOutput.__name__)
        return 0.0 if last is None else last.time
    return 0.0
