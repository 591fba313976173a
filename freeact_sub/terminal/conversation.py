"""`Conversation`: a person and an agent in a terminal, for one prompt or for many.

A run's events are read by one coroutine that never waits for the person; what the person types arrives by callbacks and
is an answer, a command, a word to the agent at work, or the next prompt, in this order.
"""

import asyncio
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from rich.console import Group, RenderableType
from rich.text import Text

from freeact_sub.config.budget import Usage
from freeact_sub.events import AgentFinished, AgentStarted, ApprovalRequest, Event
from freeact_sub.show.agent_view import AgentView, Views
from freeact_sub.show.questions import Questions
from freeact_sub.show.rows import rows
from freeact_sub.terminal.commands.context import Compaction
from freeact_sub.terminal.commands.mentions import with_files
from freeact_sub.terminal.commands.sessions import Opening
from freeact_sub.terminal.commands.table import run_command
from freeact_sub.terminal.commands.undo import Rewind
from freeact_sub.terminal.drawing.agents_table import find_agent
from freeact_sub.terminal.drawing.area import story_area
from freeact_sub.terminal.drawing.banner import banner
from freeact_sub.terminal.drawing.live import live_area
from freeact_sub.terminal.drawing.records import Records
from freeact_sub.terminal.drawing.story import Story
from freeact_sub.terminal.drawing.transcript import Transcript
from freeact_sub.terminal.driver import Purpose
from freeact_sub.terminal.interrupts import INTERRUPTED, Interrupts
from freeact_sub.terminal.outside import page
from freeact_sub.terminal.questions.card import asker, drawn_call, key_line, question_card
from freeact_sub.terminal.questions.keys import AnswerKeys
from freeact_sub.terminal.run_once import OpenAgent, OpenSession, exit_status
from freeact_sub.terminal.screen import Screen
from freeact_sub.text import shortened, visible

if TYPE_CHECKING:  # slow to import: the caller does it, at its time
    from freeact_sub.agents import Agent, AgentInfo, Run

Phase: TypeAlias = Literal["starting", "idle", "running", "cancelling", "undoing", "opening", "ending"]
NOTE_CHARS: Final = 500
CARD_ROWS: Final = 10
"""Of a card besides its call, and some of what stands above it."""


async def converse(
    open_agent: OpenAgent,
    *,
    prompt: str | None = None,
    verbose: bool = False,
    open_session: "OpenSession | None" = None,
) -> int:
    """Talk with an agent in the terminal; returns the program's exit status.

    Args:
        open_agent: Makes the agent.
        prompt: The only prompt of the session. None: prompts are typed until the person leaves.
        verbose: Print everything that every agent does.
        open_session: Makes the agent of `/new` and `/resume`. None: there is only one conversation.
    """
    return await Conversation(prompt=prompt, verbose=verbose, open_session=open_session).hold(open_agent)


def _open(open_agent: OpenAgent) -> "Agent":
    agent = open_agent()
    import rich.markdown  # noqa: F401, PLC0415  # else the first answer would wait for it

    return agent


def _spent(usage: Usage) -> str:
    return " · ".join(filter(None, [f"{usage.tokens_text} tokens", usage.cost_text]))


class Conversation:
    """See `converse`. It drives the screen (`screen.Driver`)."""

    def __init__(self, *, prompt: str | None, verbose: bool = False, open_session: "OpenSession | None" = None) -> None:
        self._once = prompt is not None
        self._verbose = verbose
        self._open_session = open_session
        self._forget()
        self._screen = Screen(self)
        self._interrupts = Interrupts(self._interrupted)
        self._prompts: asyncio.Queue[str | Compaction | Rewind | Opening] = asyncio.Queue()
        if prompt is not None:
            self._prompts.put_nowait(prompt)
        self._main = asyncio.current_task()
        self._phase: Phase = "starting"
        self.agent: Agent | None = None
        self._run: Run | None = None
        self._focus: AgentInfo | None = None
        self._leaving = False
        self._was_interrupted = False
        self._last_exit = INTERRUPTED

    def _forget(self) -> None:
        """Begin with nothing that was seen of an agent."""
        self.views = Views()
        self.questions = Questions(asks_always=True)
        self._records = Records(self.views)
        self._transcript: Transcript | Story = Transcript(self.views) if self._verbose else Story(self.views)
        self._presented: str | None = None
        """The question whose call is known to be on the screen as a whole."""

    async def hold(self, open_agent: OpenAgent) -> int:
        """Open the agent and talk until the end; returns the program's exit status."""
        with self._interrupts:
            async with self._screen:
                self._interrupts.restore_terminal = self._screen.restore
                try:
                    await self._talk(open_agent)
                except asyncio.CancelledError:
                    if not self._leaving or self._main is None:
                        raise
                    self._main.uncancel()
        if self._once:
            return self._last_exit
        return INTERRUPTED if self._was_interrupted else 0

    async def _talk(self, open_agent: OpenAgent) -> None:
        await self._screen.shown()  # first: the imports of an agent would take half of the CPU from the drawing
        agent = await asyncio.to_thread(_open, open_agent)
        if not self._once:
            self.print(banner(agent.config))
        self.agent = agent
        try:
            await agent.open()
            if not self._once:
                agent.keep_undo()
            while not self._leaving:
                self._set_phase("idle")
                await self._do(self.agent, await self._prompts.get())
                self._leaving |= self._once
            self._set_phase("ending")
        finally:
            await self.agent.aclose()

    async def _do(self, agent: "Agent", asked: str | Compaction | Rewind | Opening) -> None:
        match asked:
            case Rewind():
                self._set_phase("undoing")
                self.note(await asked.done(agent))
            case Opening():
                self._set_phase("opening")
                self.agent, told = await asked.done(agent, self._open_session)
                if self.agent is not agent:
                    await agent.aclose()
                    self._forget()
                self.note(told)
            case _:
                await self._follow(agent, asked)

    async def _follow(self, agent: "Agent", asked: str | Compaction) -> None:
        async with agent.run(asked) if isinstance(asked, str) else asked.run(agent) as run:
            self._run = run
            self._set_phase("running")
            try:
                async for event in run:
                    self._show(event)
                    await self._screen.drained()
                self._last_exit = exit_status(await run.result())
            finally:
                self._run = self._focus = None
                self.questions.waiting.clear()
                self._interrupts.reset()

    def _show(self, event: Event) -> None:
        if self._phase == "cancelling" and self._run is not None and isinstance(event, AgentStarted):
            self._run.cancel()  # it was asked for before there was something to cancel
        view = self.views.observe(event)
        found = [*rows(view, event)]
        self._records.add(view, found)
        drawn = self._transcript.draw(event, found)
        if drawn is not None:
            self._screen.post(drawn)
        self.questions.observe(event)
        if isinstance(event, AgentFinished) and self._focus is not None and event.agent_id == self._focus.agent_id:
            self._focus = None
        self._refresh()

    # What the screen draws (see `Driver`)

    def live(self, rows: int) -> RenderableType | None:
        """The open question, the children at work, and the text that is being written."""
        card = None if self.questions.current is None else self._card
        if isinstance(self._transcript, Story):
            return story_area(self.views, self._transcript, card, rows)
        return live_area(self.views, card, rows)

    def _card(self, rows: int) -> RenderableType:
        request = self.questions.waiting[0]
        keys = key_line(self.questions, counts=self._screen.line.keys_count)
        is_above = self._transcript.is_last(request)
        return question_card(self.views, self.questions, request, rows, keys=keys, with_call=not is_above)

    def status(self) -> str:
        """What goes on, and what can be done."""
        match self._phase:
            case "idle":
                return "type a prompt · /help · Ctrl-D leaves"
            case "cancelling":
                return "cancelling … Ctrl-C again leaves at once"
            case "running" if self._run is not None and (root := self.views.root) is not None:
                working = sum(view.is_running for view in self.views.by_id.values())
                agents = "1 agent" if working == 1 else f"{working} agents"
                state = f"{agents} at work · {time.time() - root.started:.0f} s · {_spent(self._run.usage)}"
                if self._focus is not None:  # first: a narrow terminal cuts the end
                    return f"Ctrl-C cancels {self._name(self._focus)} · {state}"
                return f"{state} · Ctrl-C cancels"
            case _:
                return f"{self._phase} …"

    def _refresh(self) -> None:
        request = self.questions.current
        if request is not None and request.request_id != self._presented and not self._transcript.is_last(request):
            self._presented = request.request_id
            if self._screen.rows_of(drawn_call(request)) > self._screen.room - CARD_ROWS:
                asks = Text(f"{asker(self.views, request)} {request.call.question}", "bold yellow", overflow="fold")
                self.print(Group(asks, drawn_call(request)))  # too long for the card: all of it stands above
        self._screen.refresh(self.questions.current_id)

    def _set_phase(self, phase: Phase) -> None:
        self._phase = phase
        self._refresh()

    # What the person does (see `Driver`)

    def enter(self, text: str) -> None:
        """A command, an answer, a word to the agent at work, or the next prompt."""
        text = text.strip()
        if re.fullmatch(r"(?i)(?:exit|quit)(?:\(\))?|:q", text):
            self.leave()
        elif re.match(r"![\w./~]", text):
            self.note(f"no command is run from here, and the agent was told nothing: {text}")
        elif re.fullmatch(r"/[a-z]*(\s(.|\n)*)?", text):
            run_command(self, text)
        elif text and self.questions.current is None:
            self._say(text)
        elif text and not self.questions.answer(text):
            self.note(
                f"that is no answer: {text} (a pattern is KIND:GLOB, such as shell:git push *; another question is /2)"
            )
        self._refresh()

    def answer_key(self, key: str) -> bool:
        """See `Driver`."""
        if self.questions.current is None:
            return False
        taken = AnswerKeys(self.questions, self._screen, self.note).press(key)
        self._refresh()
        return taken

    def written(self, purpose: Purpose, text: str) -> None:
        """See `Driver`."""
        AnswerKeys(self.questions, self._screen, self.note).written(purpose, text)
        self._refresh()

    def show_all(self) -> None:
        """Ctrl-O: the open question's call, or all that the agent has done."""
        request = self.questions.current
        self.show(self.views.of(request) if request else self.views.root, request)

    def show(self, view: AgentView | None, request: ApprovalRequest | None = None) -> None:
        """Show a question's call, or all that an agent has done, in a pager."""
        if view is None:
            self.note("there is nothing to show yet")
            return
        drawn = self._records.drawn(view) if request is None else drawn_call(request)
        self._screen.start(self._page(drawn))

    async def _page(self, drawn: RenderableType) -> None:
        text = await asyncio.to_thread(self._screen.text_of, drawn)
        self._interrupts.ignores_keys = True
        try:
            if not await page(text, self._screen.run_outside):
                self.print(drawn)
        finally:
            self._interrupts.ignores_keys = False

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._interrupts.interrupt()

    def escape(self) -> None:
        """Escape: as the first Ctrl-C, where there is something to cancel. Pressed again, it does no more."""
        if self._phase == "running":
            self._interrupted(must_end=False)

    def leave(self) -> None:
        """Ctrl-D, `/exit`, `exit`, or the terminal is gone: cancel what runs and end."""
        self._leaving = True
        if self._run is not None:
            self._cancel()
        elif self._phase != "ending" and self._main is not None:
            self._main.cancel()

    def _interrupted(self, must_end: bool) -> None:
        if not must_end and self._cancel_focus():
            self._interrupts.reset()
        elif must_end or self._once:
            self._was_interrupted = True
            self.leave()
        elif self._run is not None:
            self._cancel()
        else:
            self._interrupts.reset()
            if not self._screen.line.clear():
                self.note("Ctrl-D or /exit leaves.")

    def _cancel_focus(self) -> bool:
        focus, self._focus = self._focus, None
        if focus is None or self._run is None or not self._run.cancel(focus.agent_id):
            return False
        self.note(f"cancelling {self._name(focus)}; Ctrl-C again cancels the run")
        self._refresh()
        return True

    def _cancel(self) -> None:
        if self._run is not None:
            self._run.cancel()
            self._set_phase("cancelling")

    def _say(self, text: str) -> None:
        text = with_files(text, Path.cwd())
        is_running = self._run is not None and (self._once or self._phase == "running")
        if self._run is not None and is_running and self._run.send(text):
            self.note(f"to the agent: {shortened(text, NOTE_CHARS)}")
        elif self._once:
            self.note(f"the agent reads nothing more: {shortened(text, NOTE_CHARS)}")
        else:
            self._prompts.put_nowait(text)
            if self._phase != "idle":
                self.note(f"next prompt: {shortened(text, NOTE_CHARS)}")

    def queue(self, asked: Compaction | Rewind | Opening) -> None:
        """See `Talk`."""
        self._prompts.put_nowait(asked)

    def control(self, name: str, who: str, text: str) -> None:
        """See `Talk`."""
        if self._run is None or self.agent is None:
            self.note("no agent is at work")
            return
        try:
            numbered = {f"#{view.number}": view.agent_id for view in self.views.by_id.values()}
            agent = find_agent(self.agent.agents(), numbered.get(who, who) or self.agent.agent_id)
        except LookupError as error:
            self.note(str(error))
            return
        is_root = agent.parent_id is None
        match name:
            case "/cancel" if is_root:
                self._cancel()
            case "/cancel":
                self._run.cancel(agent.agent_id)
            case "/focus":
                self._focus = None if is_root else agent
                what = "the run" if is_root else f"{self._name(agent)}, the next one the run"
                self.note(f"Ctrl-C cancels {what}")
            case _ if self._run.send(text, agent.agent_id):
                self.note(f"to {self._name(agent)}: {text}")
            case _:
                self.note(f"{self._name(agent)} reads nothing now: it has made no request yet, or its last")

    def write_raw(self, text: str) -> None:
        """See `Talk`."""
        self._screen.write_raw(text)

    def _name(self, agent: "AgentInfo") -> str:
        view = self.views.by_id.get(agent.agent_id)
        return self.views.name(view) if view is not None else agent.agent_id

    def show_agent(self, words: str) -> None:
        """See `Talk`."""
        found = [view for view in self.views.by_id.values() if words and self._is_meant(view, words)]
        if not words:
            self.show(self.views.root)
        elif len(found) == 1:
            self.show(found[0])
        else:
            names = ", ".join(self.views.name(view) for view in found[:8])
            self.note(f"{words} may be {names}" if found else f"no agent {words}: /agents lists them")

    def _is_meant(self, view: AgentView, words: str) -> bool:
        return words == f"#{view.number}" or words.lower() in view.label.lower() or view.agent_id.endswith(words)

    def note(self, text: str) -> None:
        """See `Talk`."""
        self.print(Text(visible(text), "dim", overflow="fold"))

    def print(self, drawn: RenderableType) -> None:
        """See `Talk`."""
        self._transcript.forget_last()
        self._screen.post(drawn)
