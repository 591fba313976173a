"""`Conversation`: opens the agent, carries out prompts and commands in order, and ends runs when the person wants it.

`Person` takes a person's prompts, commands, answers and keys: each line is an answer, a command, a message to the agent at
work, or the next prompt, in this order. One coroutine reads a run's events and never waits for the person.
"""

import asyncio
import re
from collections.abc import Coroutine, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from freeact_sub import events as ev
from freeact_sub.cells import CELL_TOOL
from freeact_sub.config.schema import Config
from freeact_sub.errors import FreeactError
from freeact_sub.features.skills.skill import load_skills
from freeact_sub.show.typed_commands import Rewind, own_commands, prompt_of, skill_commands, skill_of
from freeact_sub.system.process import WINDOW
from freeact_sub.terminal.attachments import ServerOffers, asks_servers, texts_of, with_attachments
from freeact_sub.terminal.away import Away
from freeact_sub.terminal.card import NOT_EDITED, DecisionKeys, edited, editor
from freeact_sub.terminal.display import Display, how_to_continue, read_earlier
from freeact_sub.terminal.drawing.area import present_children
from freeact_sub.terminal.drawing.banner import banner
from freeact_sub.terminal.drawing.parts import INDENT
from freeact_sub.terminal.interrupts import INTERRUPTED, Interrupts
from freeact_sub.terminal.present import (
    MODEL,
    NEW,
    Asked,
    Compaction,
    Opening,
    Phase,
    Present,
    TypedCommand,
    opened,
)
from freeact_sub.terminal.run_once import OpenAgent, OpenSession, exit_status
from freeact_sub.terminal.slash_commands import COMMANDS, next_mode, offers, run_command, use_mode
from freeact_sub.terminal.surface import KeyAction, Purpose
from freeact_sub.text import counted, shortened

if TYPE_CHECKING:  # slow to import: the caller does it, at its time
    from pydantic_ai import BinaryContent
    from pydantic_ai.messages import ModelMessage

    from freeact_sub.agent import Agent
    from freeact_sub.agents import Run
    from freeact_sub.detached.host import Link
    from freeact_sub.mcp import McpServers


T = TypeVar("T")
LEAVE_SECONDS: Final = 2.0
"""Seconds after a Ctrl-D in which the end of a run ends the program."""


async def converse(
    open_agent: OpenAgent,
    *,
    config: Config,
    session: str = NEW,
    prompt: str | None = None,
    verbose: bool = False,
    open_session: "OpenSession | None" = None,
    plain: bool = False,
    host: "Link | None" = None,
) -> int:
    """Run a conversation with an agent in the terminal; return the program's exit status.

    Args:
        open_agent: Makes the agent.
        config: Its settings, which are shown before it is made.
        session: The session that it continues.
        prompt: The only prompt of the session. None: prompts are typed until the person leaves.
        verbose: Print everything that every agent does.
        open_session: Makes the agent of `/new` and `/resume`. None: there is only one conversation.
        plain: Print plain lines, and read lines that the terminal itself edits.
        host: The host of this program, which other terminals can attach to.
    """
    conversation = Conversation(config=config, prompt=prompt, verbose=verbose, open_session=open_session, plain=plain)
    if host is not None:
        conversation.away = Away(host, conversation.present, conversation.display)
    if prompt is None:
        conversation.display.print(banner(config, session, conversation.present.code_rule))
    return await conversation.hold(open_agent)


def _display_class(*, plain: bool) -> type[Display]:
    if not plain:
        return Display
    from freeact_sub.terminal.plain_display import PlainDisplay  # noqa: PLC0415  # few need it

    return PlainDisplay


def _open(open_agent: OpenAgent) -> "Agent":
    agent = open_agent()
    import freeact_sub.terminal.drawing.markdown  # noqa: F401, PLC0415  # else the first answer would wait for it

    return agent


class Conversation:
    """A conversation with an agent in the terminal."""

    def __init__(
        self, *, config: Config, prompt: str | None, verbose: bool, open_session: "OpenSession | None", plain: bool
    ) -> None:
        self._open_session = open_session
        names = [command.name for command in COMMANDS]
        own = own_commands(config.command_contents, names)
        skills, clashes = skill_commands(load_skills(config.skill_contents.values()).skills, [*names, *own])
        self.present = Present(config=config, once=prompt is not None, own_commands={**own, **skills})
        self.interrupts = Interrupts(self.interrupted)
        self.display = _display_class(plain=plain)(
            self.present, verbose=verbose, keyboard=Person(self), other_program=self.interrupts.ignoring_keys
        )
        self.away: Away | None = None
        for name in clashes:
            self.display.note(f"the skill {name} is not called by /{name}, which is a command")
        if prompt is not None:
            self.present.waiting.put(prompt)
        self._reading: asyncio.Future[Any] | None = None
        """The reading for a prompt, before its run begins."""
        self._goes_along: list[str] = []
        """Texts for the model, sent with the next prompt."""
        self._main = asyncio.current_task()
        self._leaving = False
        self._was_interrupted = False
        self._is_kept = False
        """Whether the session can be continued."""
        self._last_exit = INTERRUPTED

    async def hold(self, open_agent: OpenAgent) -> int:
        """Open the agent and talk until the end; return the program's exit status."""
        with self.interrupts:
            async with self.display.screen as screen:
                self.interrupts.restore_terminal = screen.restore
                WINDOW.columns = lambda: screen.columns - INDENT
                if self.away is not None:
                    self.away.begin()
                try:
                    await self._talk(open_agent)
                except asyncio.CancelledError:
                    if not self._leaving or self._main is None:
                        raise
                    self._main.uncancel()
                finally:
                    WINDOW.columns = lambda: 0
        if self.present.once:
            return self._last_exit
        agent = self.present.agent
        if agent is not None and agent.session_id is not None and agent.history and self._is_kept:
            self.display.screen.write_raw(f"continue with: {how_to_continue(agent.session_id, agent.config.workspace)}\n")
        return INTERRUPTED if self._was_interrupted else 0

    async def _talk(self, open_agent: OpenAgent) -> None:
        await self.display.screen.shown()  # first: the imports of an agent would take half of the CPU from the drawing
        try:
            agent = await asyncio.to_thread(_open, open_agent)
        except FreeactError:
            self._show_unsent()
            raise
        if not use_mode(self.display, agent, self.present.mode):
            self.present.wanted.pop("mode")
        self.present.agent = agent
        try:
            await self._opened(agent)
            agent.follow_background(self._observe)
            if not self.present.once:
                agent.keep_undo()
                await self._show_earlier(agent)
            while not self._leaving:
                if self._leaves_now():
                    break
                self.present.waiting.expect()
                self._set_phase("idle")
                await self._do(self.present.agent, await self.present.waiting.next())
                self._leaving |= self.present.once
        finally:
            self._set_phase("ending")
            self.interrupts.expect_end()
            self._is_kept = self.present.agent.is_kept
            if self._leaving:
                self._show_unsent()
            await self.present.agent.aclose()

    def _leaves_now(self) -> bool:
        """Return whether the run ended by itself, just as the person wanted to leave, so that nothing is lost."""
        asked, self.present.asked_to_leave = self.present.asked_to_leave, None
        if asked is None or self.present.waiting.count or self.display.screen.line.text:
            return False
        self._leaving = asyncio.get_running_loop().time() - asked < LEAVE_SECONDS
        return self._leaving

    async def _opened(self, agent: "Agent") -> None:
        try:
            await agent.open()
        except FreeactError:
            self._show_unsent()
            raise

    async def _show_earlier(self, agent: "Agent") -> None:
        """Show the last exchanges, if the agent continues a session."""
        if not agent.history:
            return
        try:
            earlier = await asyncio.to_thread(read_earlier, agent)
        except FreeactError as error:
            self.display.note(f"what was said before cannot be shown: {error}")
            return
        if earlier is not None:
            self.display.retell(earlier)

    def _show_unsent(self) -> None:
        """Print the prompts that were typed for an agent that cannot be opened."""
        line = self.display.screen.line
        typed = [] if self.present.once else [*self.present.waiting.typed, line.text]
        for text in filter(str.strip, typed):
            self.display.note(f"not sent: {line.pastes.unfolded(text)}")

    async def _do(self, agent: "Agent", asked: Asked) -> None:
        match asked:
            case Rewind():
                self._set_phase("undoing")
                told, prompt = await asked.done(agent, self.present.as_typed)
                self.display.note(told)
                self.display.screen.line.give(prompt)
            case Opening():
                self._set_phase("opening")
                self.present.agent, told = await asked.done(agent, self._open_session, self.present.wanted)
                if self.present.agent is not agent:
                    if asked.session != NEW:
                        self.present.wanted = {k: v for k, v in self.present.wanted.items() if k not in MODEL}
                    await agent.aclose()
                    self.present.agent.follow_background(self._observe)
                    self._goes_along.clear()
                    self.display.forget()
                    await self._show_earlier(self.present.agent)
                self.display.note(told)
            case str() | TypedCommand() if self.may_change_settings and self._is_to_be_reopened(agent):
                if await self._is_reopened(agent) and self.present.agent is not None:
                    await self._follow(self.present.agent, asked)
                else:
                    self.display.screen.line.give(asked if isinstance(asked, str) else asked.title)
            case _:
                await self._follow(agent, asked)

    def _is_to_be_reopened(self, agent: "Agent") -> bool:
        wanted, config = self.present.wanted, agent.config
        return not agent.is_open or any(wanted.get(name, getattr(config, name)) != getattr(config, name) for name in MODEL)

    async def _is_reopened(self, agent: "Agent") -> bool:
        """Make another agent continue the session with the chosen settings; return False if that fails."""
        if self._open_session is None:
            return False
        self._set_phase("opening")
        session = agent.session_id if agent.session_id and agent.history else NEW
        await agent.aclose()
        earlier = {**self.present.wanted, **{name: getattr(agent.config, name) for name in MODEL}}
        failed = False
        try:
            other = await opened(self._open_session, session, self.present.wanted)
        except FreeactError as error:
            self.display.note(f"not sent, and nothing has changed: {error}")
            self.present.wanted, failed = earlier, True
            try:
                other = await opened(self._open_session, session, earlier)
            except FreeactError as error:
                self.display.note(f"the conversation is closed, and the next prompt opens it again: {error}")
                return False
        other.allowed = agent.allowed
        self.present.agent = other
        other.follow_background(self._observe)
        return not failed

    async def _follow(self, agent: "Agent", asked: str | Compaction | TypedCommand) -> None:
        begun = await self._begun(agent, asked) if isinstance(asked, str) else asked.run(agent)
        if begun is None:
            return
        earlier = len(agent.history)
        self.present.sent.clear()
        async with begun as run:
            self.present.run, self.present.prompt = run, asked if isinstance(asked, str) else asked.title
            self._set_phase("running")
            try:
                async for event in run:
                    if isinstance(asked, TypedCommand):
                        self._goes_along += filter(None, [asked.told(event)])
                        if asked.answers(event):
                            continue
                    self._observe(event)
                    await self.display.draw_files(event)
                    await self.display.screen.drained()
                result = await run.result()
                self._last_exit = exit_status(result)
                self._give_back(asked if result.status == "failed" else None, agent.history[earlier:] or agent.history)
            finally:
                self.present.run = self.present.focus = None
                self.display.questions.forget_closed()
                self.interrupts.reset()

    def _give_back(self, failed: str | Compaction | TypedCommand | None, history: "Sequence[ModelMessage]") -> None:
        """Put texts that a run has not used back into the line.

        Args:
            failed: The entry of the run, if a request failed: it can be sent again.
            history: The conversation since the run began: a sent text that is not in it was not read.
        """
        from freeact_sub.agents.prompt import texts_of_people  # noqa: PLC0415  # it imports pydantic-ai

        read = "\n".join(texts_of_people(history))
        unread = [typed for typed, content in self.present.sent if content.strip() not in read]
        self.present.sent.clear()
        self.present.sent_to_children.clear()
        if self.present.once:
            return
        if unread:
            self.display.note("the agent has not read what was sent to it last: it is in the line again")
        self.display.screen.line.give("\n".join([*([failed] if isinstance(failed, str) else []), *unread]))

    def _give_back_of_child(self, agent_id: str, sent: "Sequence[str]") -> None:
        run = self.present.run
        unread = [text for text in sent if run is not None and not run.has_read(text, agent_id)]
        if unread and not self.present.once:
            called = self.display.views.labels.get(agent_id, agent_id)
            self.display.note(f"{called} has not read what was sent to it last: it is in the line again")
            self.display.screen.line.give("\n".join(unread))

    def _observe(self, event: ev.Event) -> None:
        present = self.present
        event = present.as_seen(event)
        if present.phase == "cancelling" and present.run is not None and isinstance(event, ev.AgentStarted):
            present.run.cancel()  # the cancel came before there was a run
        self.display.show(event)
        self.report()
        if isinstance(event, ev.AgentFinished) and (sent := present.sent_to_children.pop(event.agent_id, ())):
            self._give_back_of_child(event.agent_id, sent)
        if isinstance(event, ev.AgentFinished) and present.focus is not None and event.agent_id == present.focus.agent_id:
            present.focus = None
        self.display.refresh()

    def _set_phase(self, phase: Phase) -> None:
        self.present.phase = phase
        self.display.refresh()
        self.report()

    def report(self) -> None:
        """Tell the host about the conversation, whenever it may have changed."""
        if self.away is not None:
            self.away.report(is_ending=self._leaving or self.present.phase == "ending")

    async def _begun(self, agent: "Agent", typed: str) -> "Run | None":
        """Return the run of a prompt. None: an MCP server gives no attachment, so the prompt is in the line again."""
        try:
            text, pictures = await self._read(agent, typed)
        except FreeactError as error:
            if self.present.once:
                raise
            self.display.note(f"not sent: {error}")
            self.display.screen.line.give(typed)
            return None
        content = "\n\n".join([text, *self._goes_along])  # the commands that the person has run since the last prompt
        self._goes_along.clear()
        self.present.typed[content] = typed
        skill = skill_of(typed, self.present.own_commands)
        if skill not in agent.skills:
            return agent.run(content, pictures=pictures)
        self.present.typed[f"/{skill}\n{content}"] = typed
        return agent.run([agent.skill(skill), content], pictures=pictures)

    async def _read(self, agent: "Agent", typed: str) -> "tuple[str, list[BinaryContent]]":
        """Return the model's text of a prompt, and its pictures. A cancel ends the wait for a server."""
        words, unfolded = self._words_of(typed), self.display.screen.line.pastes.unfolded
        reading = asyncio.ensure_future(with_attachments(words, unfolded(words), agent.servers, Path.cwd()))
        self._reading = reading
        if asks_servers(words, agent.servers.names):
            self._set_phase("reading")
        try:
            await asyncio.wait({reading})
        finally:
            self._reading = None
            reading.cancel()
        if reading.cancelled():
            raise FreeactError("cancelled")
        return reading.result()

    def content_of(self, typed: str) -> str:
        """Return the model's text of a line: with its pastes unfolded, and the text of the files that it names."""
        words = self._words_of(typed)
        return "\n\n".join([self.display.screen.line.pastes.unfolded(words), *texts_of(words, Path.cwd())])

    def _words_of(self, typed: str) -> str:
        """Return the prompt with folded pastes: an `@` in a paste names no file."""
        return prompt_of(typed, self.present.own_commands) if typed.startswith("/") else typed

    # What the person wants

    @property
    def may_change_settings(self) -> bool:
        """Whether another agent can continue the session."""
        agent = self.present.agent
        return self._open_session is not None and (agent is None or bool(agent.session_id or not agent.history))

    def interrupted(self, must_end: bool) -> None:
        """Cancel the agent in focus, or the run; leave if neither exists.

        Args: must_end: the interrupt was not Ctrl-C.
        """
        if not must_end and self._cancel_focus():
            self.interrupts.reset()
        elif must_end or self.present.once:
            self._was_interrupted = True
            self.leave()
        elif self.present.run is not None:
            self.cancel()
        elif self._reading is not None and self.present.phase == "reading":
            self.interrupts.reset()
            self._reading.cancel()
        else:
            self.interrupts.reset()
            if not self.display.screen.line.clear():
                self.display.note("Ctrl-D or /exit quits.")

    def leave(self) -> None:
        """Cancel the run, and end."""
        self._leaving = True
        if self.present.run is not None:
            self.cancel()
        elif self.present.phase != "ending" and self._main is not None:
            self._main.cancel()

    def cancel(self) -> None:
        """Cancel the run; the next Ctrl-C leaves at once. Waiting prompts return to the input line."""
        if self.present.run is None:
            return
        self.present.run.cancel()
        self.interrupts.expect_end()
        self._set_phase("cancelling")
        taken = self.present.waiting.take_back()
        commands = [each.title for each in taken if isinstance(each, TypedCommand)]
        prompts = [each for each in taken if isinstance(each, str)]
        if commands and (prompts or commands[1:]):  # in one line they would be another prompt, or another command
            self.display.note("\n".join(f"not run: {command}" for command in commands))
        self.display.screen.line.give("\n".join(prompts or commands[:1]))

    def _cancel_focus(self) -> bool:
        focus, self.present.focus = self.present.focus, None
        if focus is None or self.present.run is None or not self.present.run.cancel(focus.agent_id):
            return False
        self.display.note(f"cancelling {self.display.name(focus)}; Ctrl-C again cancels the run")
        self.display.refresh()
        return True


NOTE_CHARS: Final = 500
LOOKING_SECONDS: Final = 2.0
STAYS: Final = (
    "not moved: a cell has its kernel's main thread until it ends, and no other cell runs beside it (Esc cancels it; "
    "a child in the background, or asyncio.create_task in the code, works beside the conversation)"
)
WORDS: Final = {"clear": "/clear", "help": "/help", "?": "/help"}
"""Lines that are commands in other programs, besides those that leave."""


class Person:
    """A person at a terminal, for keys, lines and commands; the `Keyboard` of both screens."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.present: Present = conversation.present
        self._loop = asyncio.get_running_loop()
        self._of_servers = ServerOffers(self._servers, self.result_of)
        self.actions: Sequence[KeyAction] = (
            KeyAction(["c-c"], conversation.interrupts.interrupt),
            KeyAction(["c-o"], self._show_all),
            KeyAction(["c-t"], self._show_child),
            *(KeyAction(keys, self._edit_prompt, self._writes_prompt) for keys in (["c-g"], ["c-x", "c-e"])),
            KeyAction(["c-b"], self._to_background, self._runs_cell, at_empty=True),
            KeyAction(["c-n"], self._try_now, self._waits, at_empty=True),
            KeyAction(["escape", "escape"], self._go_back, self._may_go_back, at_empty=True),
        )

    @property
    def display(self) -> Display:
        """The display of the conversation."""
        return self.conversation.display

    def enter(self, text: str) -> None:
        """Handle a command, an answer, a message to the agent at work, or the next prompt."""
        self.display.hint("")
        self.present.asked_to_leave = None
        if isinstance(self.display.questions.current, ev.QuestionRequest) and text.strip() != "/detach":
            typed = self.display.screen.line.pastes.unfolded(text)
            self.display.questions.answer(typed)
            self.display.refresh()
            return
        text = text.strip()
        if re.fullmatch(r"(?i)(?:exit|quit)(?:\(\))?|:q", text):
            self.leave()
        elif self.display.questions.current is None and (command := WORDS.get(text.lower())):
            run_command(self, command)
        elif text.startswith("!") and self.display.questions.current is None:
            self._run_command(self.display.screen.line.pastes.unfolded(text[1:]).strip())
        elif re.fullmatch(r"/([a-z][a-z0-9_-]*)?(\s(.|\n)*)?", text):
            run_command(self, text)
        elif text and self.display.questions.current is None:
            self.say(text)
        elif not text and self.present.waiting.typed and self.present.phase == "running":
            self.send_waiting()
        elif text and not self.display.questions.answer(text):
            self.display.note(
                f"not an answer: {text} (a pattern is KIND:GLOB, such as shell:git push *; /2 shows the second question)"
            )
        self.display.refresh()
        self.conversation.report()

    def say(self, text: str) -> None:
        """Queue a prompt; in a program with one prompt it goes to the agent."""
        present = self.present
        if not present.once:
            present.waiting.put(text)
        elif not self._tells(text):
            self.display.note(f"not sent, the run is about to end: {shortened(text, NOTE_CHARS)}")

    def _tells(self, text: str) -> bool:
        run, content = self.present.run, self.conversation.content_of(text)
        if run is None or not run.send(content):
            return False
        self.present.sent.append((text, content))
        self.display.note(f"sent to the agent: {shortened(text, NOTE_CHARS)}")
        return True

    def send_waiting(self) -> None:
        """Send the waiting prompts to the agent at work."""
        waiting = self.present.waiting
        prompts = waiting.take_back(kinds=str) if self.present.phase == "running" else []
        names = self.present.config.mcp_servers
        later = [prompt for prompt in prompts if asks_servers(prompt, names)]
        unread = [prompt for prompt in prompts if prompt not in later and not self._tells(prompt)]
        for prompt in prompts:
            if prompt in later or prompt in unread:
                waiting.put(prompt)
        if later:
            self.display.note(f"stays a prompt of its own, for which a server is asked: {shortened(later[0], NOTE_CHARS)}")
        if unread or not prompts:
            self.display.note("the agent takes no more messages in this run")

    def answer_key(self, key: str) -> bool:
        """Handle a single key at an open question and an empty line. Return False if it begins a text."""
        if self.display.questions.current is None:
            return False
        taken = self._decisions().press(key)
        self.display.refresh()
        return taken

    def written(self, purpose: Purpose, text: str) -> None:
        """Handle the text that the person wrote for a question (`InputLine.lend`)."""
        self._decisions().written(purpose, text)
        self.display.refresh()

    def tell(self, text: str) -> None:
        """Print a note for the person."""
        self.display.note(text)

    def _show_all(self) -> None:
        """Show the open question's call, or all that the agent has done, for Ctrl-O."""
        if (request := self.display.questions.current) is not None:
            self.display.page_drawn(self.display.drawn_question(request))
        else:
            self.display.page_agent(self.display.views.root)

    def _show_child(self) -> None:
        """Show the only child, or the child that asks, else the menu of `/show`, for Ctrl-T."""
        request = self.display.questions.current
        asks = self.display.views.of(request) if request is not None else None
        if asks is not None and asks.parent_id is not None:
            self.display.page_agent(asks)
        elif len(children := present_children(self.display.views)) == 1:
            self.display.page_agent(children[0])
        elif children and request is None:
            self.display.screen.line.offer("/show ")
        else:
            self.display.hint("/show NAME shows a child" if children else "no child has started")
        self.display.refresh()

    def _writes_prompt(self) -> bool:
        return self.display.questions.current is None

    def _edit_prompt(self) -> None:
        """Let the person edit the prompt in their editor, for Ctrl-G and Ctrl-X Ctrl-E."""
        line = self.display.screen.line
        if editor():
            text = line.text
            line.clear()  # a question that opens meanwhile, or a cancel, may put another text there
            self.display.screen.start(self._edit_outside(text))
        else:
            self.display.hint("to edit the prompt in your editor, name it in $VISUAL or $EDITOR")
            self.display.refresh()

    async def _edit_outside(self, text: str) -> None:
        changed = await edited(text, self.display.screen.run_outside, "prompt.md")
        if changed is None:
            self.display.note(NOT_EDITED)
        self.display.screen.line.give(text if changed is None else changed.rstrip("\n"))
        self.display.refresh()

    def _runs_cell(self) -> bool:
        root = self.display.views.root
        return root is not None and any(call.tool_name == CELL_TOOL for call in root.calls)

    def _to_background(self) -> None:
        """Say why a running cell stays where it is, for Ctrl-B."""
        self.display.hint(STAYS)
        self.display.refresh()

    def _waits(self) -> bool:
        """Return whether a model request waits until it is made again."""
        return any(story.pause for story in self.display.views.in_order())

    def _try_now(self) -> None:
        """Make the requests that wait, for Ctrl-N."""
        if self.present.agent is not None:
            self.present.agent.try_now()

    def escape(self) -> None:
        """Act like the first Ctrl-C if there is something to cancel, for Escape. A second Escape does nothing."""
        current = self.display.questions.current
        if self.display.questions.asks_back:
            self.display.questions.answer("n")
            self.display.refresh()
        elif isinstance(current, ev.QuestionRequest):
            current.decline()
            self.display.questions.withdraw(current.request_id)
            self.display.refresh()
        elif self.present.phase == "running":
            self.conversation.interrupted(must_end=False)

    def leave(self) -> None:
        """Cancel the run and end: for `/exit`, `exit`, or when the terminal is gone."""
        self.conversation.leave()

    def ask_to_leave(self) -> None:
        """Leave, for Ctrl-D; ask once while something would be lost, and give no answer where one is to be typed."""
        present, questions = self.present, self.display.questions
        if questions.asks_back or isinstance(questions.current, ev.QuestionRequest):
            self.escape()
            return
        parts = [
            "a run is at work" if present.run is not None else "",
            f"{counted(len(present.waiting.typed), 'entry')} queued" if present.waiting.typed else "",
        ]
        lost = " and ".join(filter(None, parts))
        if not lost or present.asked_to_leave is not None or present.once:
            self.leave()
            return
        present.asked_to_leave = self._loop.time()
        self.display.hint(f"{lost}: Ctrl-D once more quits")
        self.display.refresh()

    def stop(self) -> bool:
        """Give the terminal back to its shell, for Ctrl-Z. Return False if only the system can, with the program."""
        if self.conversation.away is None:
            return False
        self.conversation.away.stop()
        return True

    def result_of(self, work: Coroutine[Any, Any, T]) -> T:
        """Call a function in the conversation's loop. Called in another thread.

        Raises:
            TimeoutError: It takes longer than `LOOKING_SECONDS`.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(LOOKING_SECONDS)
        except TimeoutError:
            future.cancel()
            raise

    def offers(self, line: str) -> Iterable[tuple[str, str]]:
        """Return completions of a line with `/`, or of `@word`, each with its meaning. Called in another thread."""
        return [*(offers(self, line) if line.startswith("/") else ()), *self._of_servers.of(line)]

    def take_back(self) -> str:
        """Take back the last waiting prompt, for the up arrow key at an empty line; empty if none waits."""
        last = self.present.waiting.typed[-1:]
        self.present.waiting.take_back(1)
        self.display.refresh()
        return "".join(last)

    def _may_go_back(self) -> bool:
        """Return whether Escape, pressed twice, now goes back to an earlier prompt."""
        return self.present.phase == "idle" and not self.present.waiting.count

    def _go_back(self) -> None:
        """Handle Escape, pressed twice."""
        if self.present.agent is not None and self.present.agent.undoable:
            self.display.screen.line.offer("/rewind ")
        else:
            self.display.hint("no prompt to go back to")
        self.display.refresh()

    def next_mode(self) -> None:
        """Handle Shift-Tab."""
        next_mode(self)
        self.display.refresh()

    def _decisions(self) -> DecisionKeys:
        display = self.display
        return DecisionKeys(display.questions, display.screen, display.note, display.list_whole)

    def _run_command(self, command: str) -> None:
        if not command:
            self.display.note("type a command after !, such as !git status")
        elif self.present.once:
            self.display.note("! works only in a conversation")
        else:
            self.present.waiting.put(TypedCommand(command=command))

    def _servers(self) -> "McpServers | None":
        agent = self.present.agent
        return agent.servers if agent is not None and agent.is_open else None
