"""`Session`: an agent of a client, and the prompts that it works on, one after the other."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from acp import RequestError

from freeact_sub import events as ev
from freeact_sub.acp import commands, permissions, updates
from freeact_sub.acp.actions import ReadPrompt, read_prompt
from freeact_sub.acp.connection import Client, Update
from freeact_sub.acp.updates import NewNames, Updates
from freeact_sub.agent import Agent
from freeact_sub.agents import Run, RunResult
from freeact_sub.config.load import is_of_another_provider
from freeact_sub.config.schema import Config
from freeact_sub.errors import FreeactError
from freeact_sub.show.replay import session_events
from freeact_sub.system.closing import end_task
from freeact_sub.text import prompt_title

STOPS: Final = {
    "completed": "end_turn",
    "limit": "max_turn_requests",
    "timeout": "max_turn_requests",
    "cancelled": "cancelled",
    "rejected": "refusal",
}
"""The reason for each end of a prompt, by the status of its run; any other status is told in a message."""
TITLE_CHARS: Final = 100
OpenAgent: TypeAlias = Callable[[Config, str], Agent]


class Turn:
    """A prompt, from its arrival to its answer."""

    def __init__(self) -> None:
        self.is_cancelled = False
        self.run: Run[Any] | None = None

    def cancel(self) -> None:
        """End the prompt soon."""
        self.is_cancelled = True
        if self.run is not None:
            self.run.cancel()


class Session:
    """An agent of a client, and the prompts that it works on, one after the other."""

    def __init__(self, agent: Agent, client: Client, open_agent: OpenAgent) -> None:
        """Args: agent: open, with a session, whose id is the client's. open_agent: opens the agent of another session."""
        self.agent = agent
        self.session_id = agent.session_id or ""
        self._client = client
        self._open_agent = open_agent
        self._turns: list[Turn] = []
        self._names = NewNames()
        self._told = Updates(self._names, pictures_as_paths=client.is_jupyter_ai)
        self._lock = asyncio.Lock()
        self._model = agent.config.model or ""
        """The model for the next prompt."""
        self._own = commands.own_of(agent.config.command_contents)
        self._has_title = bool(agent.history)
        agent.keep_undo()

    @property
    def workspace(self) -> Path:
        """The session's folder."""
        return self.agent.config.workspace

    @property
    def config_options(self) -> list[dict[str, Any]]:
        """The options for the next prompt."""
        return commands.config_options(self.agent.mode, self._model, commands.models_of(self.agent.config, self._model))

    @property
    def state(self) -> dict[str, Any]:
        """The state that a client reads when it opens the session."""
        return {"configOptions": self.config_options, "modes": commands.modes(self.agent.mode)}

    async def announce(self) -> None:
        """Tell the client the available commands."""
        listed = commands.available(self.agent.skills, self._own)
        await self.say({"sessionUpdate": "available_commands_update", "availableCommands": listed})

    async def say(self, update: Update) -> None:
        """Send an update."""
        await self._client.update(self.session_id, update)

    async def choose(self, option: str, value: Any) -> None:
        """Set an option. Raises: RequestError: There is no such option or value."""
        if option == commands.MODE and isinstance(value, str) and value in commands.WORDS:
            try:
                self.agent.mode = value
            except FreeactError as error:
                raise RequestError.invalid_params({"details": str(error)}) from error
            await self.say({"sessionUpdate": "current_mode_update", "currentModeId": value})
        elif option == commands.MODEL and any(
            value == model for model, _ in commands.models_of(self.agent.config, self._model)
        ):
            self._model = value
        else:
            raise RequestError.invalid_params({"details": f"there is no option {option!r} with the value {value!r}"})

    async def prompt(self, blocks: list[dict[str, Any]]) -> dict[str, Any]:
        """Work on a prompt to its end, after earlier ones; return the answer to the request."""
        turn = Turn()
        self._turns.append(turn)  # before anything is awaited: a cancel that follows finds it
        try:
            prompt = await read_prompt(
                blocks, self.workspace, self._read if self._client.can("fs", "readTextFile") else None
            )
            skills = {name: words for name, words in self.agent.skills.items() if f"/{name}" not in self._own}
            command = commands.find(prompt.text.strip(), skills)
            if command is not None and command[0] in commands.COMMANDS and commands.COMMANDS[command[0]].at_once:
                self._turns.remove(turn)  # `/cancel` does not cancel itself
                return await self._command(*command)
            async with self._lock:
                return {"stopReason": "cancelled"} if turn.is_cancelled else await self._work(turn, prompt, command)
        finally:
            if turn in self._turns:
                self._turns.remove(turn)

    def cancel(self) -> None:
        """Cancel the prompts that have arrived."""
        for turn in self._turns:
            turn.cancel()

    async def replay(self) -> None:
        """Tell the client the whole conversation."""
        told = Updates(self._names, stored=True)
        events = await asyncio.to_thread(lambda: [*session_events(self.session_id, store=self.agent.sessions)])
        for event in events:
            for update in told.of(event):
                await self.say(update)

    async def aclose(self) -> None:
        """Close the agent. The session stays, and can be loaded."""
        self.cancel()
        await self.agent.aclose()

    async def _work(self, turn: Turn, prompt: ReadPrompt, command: tuple[str, str] | None) -> dict[str, Any]:
        try:
            await self._use_model()
            if command is not None and command[0] in commands.COMMANDS:
                return await self._command(*command)
            contents: Any = commands.unfolded(prompt.text, self._own)
            if command is not None:  # a skill
                name, rest = command
                contents = [self.agent.skill(name), rest or f"Use the skill {name}."]
            run = self.agent.run(contents, pictures=prompt.pictures)
        except FreeactError as error:
            await self.say(updates.message(f"{error}\n"))
            return {"stopReason": "end_turn"}
        if prompt.notes:
            run.add_note("\n\n".join(prompt.notes))
        if not self._has_title:
            self._has_title = True
            title = prompt_title(prompt.text, TITLE_CHARS) or "A conversation"
            now = updates.iso_time(time.time())
            await self.say({"sessionUpdate": "session_info_update", "title": title, "updatedAt": now})
        return {"stopReason": await self.follow(run, turn)}

    async def _command(self, name: str, rest: str) -> dict[str, Any]:
        if told := await commands.carried_out(self, name, rest):
            await self.say(updates.message(f"{told}\n"))
        return {"stopReason": "end_turn"}

    async def follow(self, run: Run[Any], turn: Turn | None = None) -> str:
        """Report a run to the client until its end, and return the reason of the end."""
        asking: dict[str, asyncio.Task[None]] = {}
        turn = turn or next(iter(self._turns), Turn())
        turn.run = run
        try:
            async with run:
                async for event in run:
                    for update in self._told.of(event):
                        await self.say(self._with_cost(update))
                    self._ask(event, run, asking)
                result = await run.result()
        except FreeactError as error:
            await self.say(updates.message(f"\n\n{error}\n"))
            return "end_turn"
        finally:
            turn.run = None
            for task in asking.values():
                await end_task(task)
        return await self._ended(result)

    async def _ended(self, result: RunResult[Any]) -> str:
        stop = STOPS.get(result.status, "end_turn")
        if result.status not in ("completed", "cancelled"):
            await self.say(updates.message(f"\n\n[{result.status.replace('_', ' ')}: {result.error}]\n"))
        return stop

    def _with_cost(self, update: Update) -> Update:
        usage = self.agent.usage
        if usage.cost_usd is not None and "used" in update:
            return {**update, "cost": {"amount": float(usage.cost_usd), "currency": "USD"}}
        return update

    def _ask(self, event: ev.Event, run: Run[Any], asking: dict[str, asyncio.Task[None]]) -> None:
        """Let the client ask its user, and withdraw questions that are settled."""
        match event:
            case ev.ApprovalRequest() | ev.QuestionRequest() if not event.headless:
                event.shown()
                name = f"asks {event.request_id}"
                asking[event.request_id] = asyncio.create_task(self._asked(event, run), name=name)
            case ev.ApprovalDecided() | ev.QuestionAnswered():
                if (task := asking.get(event.request_id)) is not None:
                    task.cancel()

    async def _asked(self, event: ev.ApprovalRequest | ev.QuestionRequest, run: Run[Any]) -> None:
        if isinstance(event, ev.ApprovalRequest):
            decision = await permissions.decision_on(self._client, self.session_id, event, self.workspace)
            if decision.nobody and run.answer(event.request_id, decision):
                await self.say(updates.message(f"\n\n[denied: {decision.reason}]\n\n"))
            else:
                run.answer(event.request_id, decision)
            return
        answer = await permissions.answer_to(self._client, self.session_id, event)
        try:
            run.answer(event.request_id, answer)
        except ValueError as error:
            run.withdraw(event.request_id, f"the client's answer is none: {error}")

    async def _read(self, path: str) -> str:
        """Return a text file as the client's editor has it; empty if it cannot be read."""
        try:
            answer = await self._client.request("fs/read_text_file", {"sessionId": self.session_id, "path": path})
        except (RequestError, ConnectionError):
            return ""
        content = answer.get("content")
        return content if isinstance(content, str) else ""

    async def _use_model(self) -> None:
        """Switch the agent to the model that was chosen last.

        Raises:
            FreeactError: It cannot be used; the agent keeps the earlier one.
        """
        before, old = self.agent.config.model or "", self.agent
        if self._model == before:
            return
        address = {"base_url": None} if is_of_another_provider(self._model, before) else {}
        config = old.config.choosing(()).model_copy(update={**address, "model": self._model, "mode": old.mode})
        try:
            other = self._open_agent(config, self.session_id)
        except FreeactError:
            self._model = before
            await self.say({"sessionUpdate": "config_option_update", "configOptions": self.config_options})
            raise
        await old.aclose()
        other.allowed = old.allowed
        self.agent = await other.open()
        other.keep_undo()
