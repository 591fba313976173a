"""`display_run`: the events of a run in the output of a notebook cell, one block per agent, updated in place.

The reading loop only sorts events into blocks and hands questions on (`question_forms.py`); it waits for nothing else, so
the agents are never slowed by a drawing or a person. One task draws what has changed, at most ten times a second a part.

Outputs of a cell can only be appended, but a grandchild's block belongs under its parent's. So display ids belong to
*places*, and `Page` maps agents to places in the order of the tree: one that starts late moves the blocks after it down.

A background child outlives the run that started it. Its block keeps its place, and its page continues to draw it. No
person is asked between two cells.

Where there is no Jupyter front end (plain IPython), nothing can be updated in place: each block is printed once, when its
agent has finished.

A stored session is read by the host, and drawn by a cell prompt by prompt, with a block for each agent (`show_stored`).
"""

import asyncio
import contextlib
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from freeact_sub import events as ev
from freeact_sub.agents import RunResult
from freeact_sub.cells import MimeBundle
from freeact_sub.errors import FreeactError
from freeact_sub.notebook.ipython_shell import NOTHING, AskLine, CellDisplay, ask_line, running_kernel
from freeact_sub.notebook.question_forms import QuestionForm, QuestionForms
from freeact_sub.notebook.render import LIMITS, moving_part, prompt_html, settled_part
from freeact_sub.notebook.user_names import UserNames
from freeact_sub.sessions import SessionStore, StoredSession, newest
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.questions import leave_unasked
from freeact_sub.show.replay import with_ends
from freeact_sub.show.wording import session_title
from freeact_sub.system.closing import carry_out, end_task
from freeact_sub.text import visible

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from freeact_sub.agent import Agent
    from freeact_sub.agents import Run

INTERVAL_SECONDS = 0.1
"""Seconds between two drawings of one part, at least."""

CHARS_PER_SECOND = 1_500_000
"""Parts with large pictures are drawn more seldom, so that a slow connection keeps up."""

CLOCK_SECONDS = 1.0
"""Seconds between two drawings of a status line that only counts seconds."""

CANCEL_SECONDS = 10.0
"""Seconds that an interrupted cell waits for its agents to end."""


_living: dict[str, "Page"] = {}
"""The page of each agent that works."""
_latest: list["Page"] = []
"""The page of the latest run, for a reloaded page that has missed some drawings."""


class RunInterruptedError(asyncio.CancelledError):
    """The cell was interrupted; its run was cancelled and has ended.

    It is a `CancelledError`, since a cancellation must not end here. IPython shows one line of it instead of a traceback.
    """

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


async def display_run(agent: "Agent | Run", prompt: str | None = None, *, questions: QuestionForm = "auto") -> RunResult:
    """Run a prompt and show what happens in the output of this cell.

    Args:
        agent: The agent that runs the prompt; or a run of it that nobody reads yet.
        prompt: The task. None if `agent` is a run.
        questions: The way to ask for approvals, see `question_forms.py`. `auto`: buttons if possible, otherwise `input()`.

    Returns:
        How the run ended; a failed run does not raise.

    Raises:
        RunInterruptedError: The cell was interrupted. The run was cancelled, and has ended.
        AgentBusyError: The agent's present run has not ended.
        FreeactError: There is no prompt; or the agent is not open.
    """
    if is_agent(agent):
        if prompt is None:
            raise FreeactError("display_run needs a prompt: await display_run(agent, 'What is ...?')")
        follow_children(agent)
        agent = agent.run(prompt)
    names = UserNames()
    agent.add_note(names.for_model(agent.prompt))
    return await show_run(agent, names, questions)


async def show_run(
    run: Any, names: UserNames | None, questions: QuestionForm, *, page: "Page | None" = None, ask: AskLine = ask_line
) -> RunResult:
    """Show a run in the output of this cell.

    Args:
        run: A `Run`, or one of the process beside this kernel (`conversation.py`).
        names: See `Page`.
        questions: See `display_run`.
        page: Where it is drawn. None: a new page in the output of this cell.
        ask: Asks for a line, see `ask_line`.

    Raises:
        See `display_run`.
    """
    run.pictures = "shown"
    page = page or Page(names=names)
    async with run, page, QuestionForms(questions, page.screen, ask) as asking:
        _latest[:] = [page]
        page.questions = asking
        try:
            with interrupts_cancel():
                await _read(run, page, asking)
        except (asyncio.CancelledError, KeyboardInterrupt):
            run.cancel()
            await carry_out(_read(run, page, asking), timeout_seconds=CANCEL_SECONDS)
            raise RunInterruptedError("interrupted: the run was cancelled") from None
    result: RunResult = await run.result()
    return result


def is_agent(value: Any) -> "TypeIs[Agent]":
    """Return whether a value is an `Agent`, without an import of the module that makes agents."""
    module = sys.modules.get("freeact_sub.agent")
    return module is not None and isinstance(value, module.Agent)


def follow_children(agent: "Agent") -> None:
    """Let the blocks of its background children go on between two runs."""
    agent.follow_background(hear)


def show_again() -> bool:
    """Draw the latest run of this kernel again; one that goes on is kept up to date. Returns False if there was none."""
    if not _latest:
        return False
    if _latest[0].goes_on and _latest[0].screen.live:
        _latest[0].show_here()
    else:
        Page().show(_latest[0])
    return True


@contextlib.contextmanager
def drawn_elsewhere() -> Iterator[None]:
    """Take a run that is shown inside away at its end, and draw it where this block stands."""
    before = [*_latest]
    try:
        yield
    finally:
        if _latest and _latest != before and _latest[0].screen.live:
            _latest[0].hide()
            Page().show(_latest[0])


async def _read(run: Any, page: "Page", asking: QuestionForms) -> None:
    async for event in run:
        page.take(event)
        if isinstance(event, ev.ApprovalRequest | ev.QuestionRequest) and not event.headless:
            asking.ask(event)
            event.shown()
        elif isinstance(event, ev.ApprovalDecided | ev.QuestionAnswered):
            asking.withdraw(event.request_id)


def hear(event: ev.Event) -> None:
    """Take an event of a background child while no run is live."""
    page = _living.get(event.agent_id) or _living.get(event.parent_id or "")
    if page is not None:
        page.take(event)
    if isinstance(event, ev.ApprovalRequest | ev.QuestionRequest) and not event.headless:
        asyncio.get_running_loop().call_soon(leave_unasked, event)


@contextlib.contextmanager
def interrupts_cancel() -> Iterator[None]:
    """Make Ctrl-C cancel the waiting task, as ipykernel does; plain IPython would leave it half done."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if running_kernel() is not None or task is None or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


@dataclass
class _PagePlace:
    """A place on the page, with the body or the foot of a block."""

    display_id: str
    foot: bool
    story: AgentStory
    dirty: bool = True
    shown: MimeBundle | None = None
    drawn: float = 0.0
    """Time of the last drawing, on the event loop's clock."""
    pause: float = 0.0
    """The seconds until the part may be drawn again."""
    outer: "_LaterBlocks | None" = None
    """The place of the drawing instead, if there was no room for an output of its own."""

    @property
    def counts(self) -> bool:
        """Whether the place shows a running count of seconds."""
        return self.foot and self.story.finished is None

    def bundle(self) -> MimeBundle:
        return moving_part(self.story, time.time()) if self.foot else settled_part(self.story)


@dataclass(kw_only=True)
class _LaterBlocks(_PagePlace):
    """The last place of a page whose cell has ended, to which no output can be added: it has all later blocks."""

    parts: list[_PagePlace] = field(default_factory=list)

    def bundle(self) -> MimeBundle:
        for part in self.parts:
            part.dirty, part.drawn = False, self.drawn
        bundles = [part.bundle() for part in self.parts]
        return {kind: "\n".join(bundle[kind] for bundle in bundles) for kind in ("text/html", "text/plain")}


class Page:
    """The blocks of a run's agents, and the task that draws them."""

    def __init__(self, screen: CellDisplay | None = None, *, names: UserNames | None = None) -> None:
        """Make an empty page.

        Args:
            screen: Where the page is drawn. None: the output of this cell.
            names: Tells of names that mean something else in the notebook. None: nobody is told.
        """
        self.screen = screen or CellDisplay()
        self._names = names
        self.questions: QuestionForms | None = None
        """The questions of its run."""
        self.stories = Stories(LIMITS)
        self._prefix = f"freeact-{uuid.uuid4().hex[:12]}"
        self._parts: list[_PagePlace] = []
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._rest: _LaterBlocks | None = None
        self._ends = False
        """Whether the run has ended; the task draws on until its children end."""

    def take(self, event: ev.Event) -> None:
        """Apply an event and wake the task that draws. An agent that began in an earlier cell stays on its page."""
        page = _living.get(event.agent_id, self)
        if page is not self:
            page.take(event)
            return
        is_new = event.agent_id not in self.stories.by_id
        if isinstance(event, ev.AgentStarted):
            _living[event.agent_id] = self
        elif isinstance(event, ev.AgentFinished):
            _living.pop(event.agent_id, None)
        if is_new and not isinstance(event, ev.AgentStarted):
            return  # nobody has seen it begin
        story = self.stories.of(event)
        if is_new:
            self._add(story)
        version = story.kept.version
        for notice in self._names.notices(event) if self._names is not None else ():
            story.kept.remark(notice)
        self.stories.observe(event)
        for part in self._parts:
            if part.story is story and (part.foot or story.kept.version != version):
                part.dirty = True
        self._changed.set()

    def leave_cell(self) -> None:
        """Leave the cell while the run goes on: from now on outputs can only be updated."""
        if self._rest is None and self._parts and self.screen.live:
            self._rest = _LaterBlocks(display_id=f"{self._prefix}-rest", foot=False, story=self._parts[0].story, dirty=False)
            self._rest.shown = NOTHING
            self.screen.publish(self._rest.display_id, self._rest.shown, update=False)
            self._draw(float("inf"))

    def show(self, other: "Page") -> None:
        """Draw all blocks of another page here, once."""
        self.stories = other.stories
        for story in self.stories.in_order():
            self._add(story)
        self._draw(float("inf"))

    @property
    def goes_on(self) -> bool:
        """Whether the page is still drawn."""
        return self._task is not None and not self._task.done()

    def show_here(self) -> None:
        """Show all blocks and questions in this cell as well, and keep both up to date. From any thread."""
        if not self.screen.live:
            return
        for place in self._places:
            if place.shown is not None:
                self.screen.publish(place.display_id, place.shown, update=False)
        if self.questions is not None:
            self.questions.show_here()

    def hide(self) -> None:
        """Empty the shown places."""
        for place in self._places:
            if place.shown is not None:
                self.screen.publish(place.display_id, NOTHING, update=True)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._draw_changes(), name="notebook page")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ends = True
        if self._task is not None and not self._has_living_children:
            for agent_id in [agent_id for agent_id, page in _living.items() if page is self]:
                del _living[agent_id]
            await end_task(self._task)
        self._draw(float("inf"))

    @property
    def _has_living_children(self) -> bool:
        stories = self.stories.by_id.values()
        return all(story.finished for story in stories if not story.depth) and any(not story.finished for story in stories)

    @property
    def _places(self) -> list[_PagePlace]:
        places = [part for part in self._parts if part.outer is None]
        if self._rest is not None:
            self._rest.dirty = self._rest.dirty or any(part.dirty for part in self._rest.parts)
            places.append(self._rest)
        return places

    def _add(self, story: AgentStory) -> None:
        for foot in (False, True):
            display_id = f"{self._prefix}-{len(self._parts)}"
            part = _PagePlace(display_id=display_id, foot=foot, story=story)
            self._parts.append(part)
            if self._rest is not None:
                part.outer = self._rest
                self._rest.parts.append(part)
        for place, placed in enumerate(self.stories.in_order() if self.screen.live else ()):
            for part in self._parts[2 * place : 2 * place + 2]:
                if part.story is not placed:
                    part.story, part.dirty = placed, True

    async def _draw_changes(self) -> None:
        clock = asyncio.get_running_loop().time
        while self._has_living_children or not self._ends:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOCK_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            for part in self._parts:
                part.dirty = part.dirty or (part.counts and clock() >= part.drawn + CLOCK_SECONDS)
            self._draw(clock())
            await asyncio.sleep(INTERVAL_SECONDS)  # this sets the pace of drawing; nothing waits for it
            if any(part.dirty for part in self._parts):
                self._changed.set()
        self._draw(float("inf"))

    def _draw(self, now: float) -> None:
        """Draw the changed parts that are due at `now`; at infinity, all changed ones."""
        for part in self._places:
            if not part.dirty or now < part.drawn + part.pause or not (self.screen.live or part.story.finished):
                continue
            part.dirty = False
            bundle = part.bundle()
            if bundle != part.shown:
                self.screen.publish(part.display_id, bundle, update=part.shown is not None)
                part.shown = bundle
                part.pause = max(INTERVAL_SECONDS, len(bundle["text/html"]) / CHARS_PER_SECOND)
            part.drawn = now


def read_stored(store: SessionStore, session_id: str, agent_id: str | None) -> tuple[list[ev.Event], bool]:
    """Return the events of a session, and whether it goes on.

    Args:
        store: The store that has it.
        session_id: Its id, or the beginning of its id.
        agent_id: The id or the key of the one agent that is wanted. None: all.

    Raises:
        SessionError: There is no such session or agent, or it cannot be read.
    """
    session = store.find(session_id)
    with store.reader(session.session_id) as reader:
        wanted = None if agent_id is None else reader.agent(agent_id).agent_id
        goes_on = store.is_open(session.session_id)
        events = [event for event in with_ends(reader.events(), goes_on=goes_on) if wanted in (None, event.agent_id)]
    return events, goes_on


def show_stored(events: Iterable[ev.Event], *, goes_on: bool) -> None:
    """Draw a session in the output of this cell. Args: see what `read_stored` returns."""
    screen = CellDisplay()
    for prompt, page in pages_of(events):
        _show_prompt(prompt, screen)
        if not goes_on:
            for story in page.stories.by_id.values():
                story.cut_off()
        Page(screen).show(page)


def stored_session(store: SessionStore, session_id: str | None) -> StoredSession:
    """Return a session by its id or the beginning of it. None: the latest one of this folder.

    Raises:
        SessionError: There is none, or it cannot be read.
    """
    return newest(store, Path.cwd()) if session_id is None else store.find(session_id)


def session_words(session: StoredSession) -> str:
    """Return a session, in one line."""
    return f"{session.session_id}: {session_title(session)}"


def pages_of(events: Iterable[ev.Event]) -> Iterator[tuple[str, Page]]:
    """Yield one page for each prompt of the root; a single page for the events of a child alone."""
    prompt, page = "", Page()
    for event in events:
        if isinstance(event, ev.AgentStarted) and (event.parent_id is None or not page.stories.by_id):
            if page.stories.by_id:
                yield prompt, page
            prompt, page = event.prompt, Page()
        if isinstance(event, ev.AgentStarted) or event.agent_id in page.stories.by_id:
            page.take(event)
    if page.stories.by_id:
        yield prompt, page


def _show_prompt(prompt: str, screen: CellDisplay) -> None:
    text = "\n".join(f"> {line}" for line in visible(prompt).split("\n"))
    screen.publish(f"freeact-{uuid.uuid4().hex}", {"text/html": prompt_html(prompt), "text/plain": text}, update=False)
