"""`Display`: draws a conversation: finished blocks into the scrollback, changing rows below it, the status.

`Status` is the line at the bottom, and the title of the window. `Earlier` holds the last exchanges of a resumed session,
and notes on the rest.
"""

import asyncio
import shlex
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from freeact_sub import events as ev
from freeact_sub.activity import LABEL_CHARS
from freeact_sub.agent_names import agent_name, short_id
from freeact_sub.config.budget import Usage
from freeact_sub.errors import FreeactError
from freeact_sub.extras import require_extra
from freeact_sub.show import blocks as bl
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.effect_lines import is_tried
from freeact_sub.show.questions import MAX_OTHERS, Questions, asks_for
from freeact_sub.show.replay import events_of, present_runs, root_of
from freeact_sub.show.teller import blocks
from freeact_sub.show.wording import session_facts, session_title
from freeact_sub.terminal.card import (
    Card,
    TriedCells,
    asker,
    drawn_call,
    effects_part,
    is_cut,
    is_whole_in_list,
    key_line,
    question_card,
)
from freeact_sub.terminal.drawing.area import story_area, waiting_lines
from freeact_sub.terminal.drawing.parts import INDENT, marked
from freeact_sub.terminal.drawing.story import Story
from freeact_sub.terminal.drawing.transcript import Paged, Records, Transcript
from freeact_sub.terminal.listing import Pager
from freeact_sub.terminal.pictures import MAX_SHOWN, Pictures
from freeact_sub.terminal.present import Present
from freeact_sub.terminal.screen import Screen
from freeact_sub.terminal.surface import LONG_SECONDS, Expected, Keyboard, OtherProgram
from freeact_sub.text import counted, label_of, one_line, visible

if TYPE_CHECKING:  # slow to import: the caller does it, at its time
    from freeact_sub.agent import Agent
    from freeact_sub.agents import AgentInfo
    from freeact_sub.sessions import SessionStore, StoredAgent, StoredSession
    from freeact_sub.show.rule_texts import CodeRule
    from freeact_sub.terminal.surface import PlainScreen


JOINT: Final = " · "
GAP: Final = 2
"""Least columns between the two ends of the line."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A few words of the line."""

    text: str
    """The words; empty: the piece is left out."""
    rank: int
    """The rank; pieces with a higher one are left out first."""


def status_line(state: Sequence[Piece], facts: Sequence[Piece], columns: int) -> str:
    """Return the line in at most `columns` columns; if it is too narrow, the least important pieces are left out.

    Args:
        state: The state and the keys that count, from the left.
        facts: The pieces at the right end.
        columns: The columns of the terminal.
    """
    state, facts = [piece for piece in state if piece.text], [piece for piece in facts if piece.text]
    while _width(state, facts) > columns and len(state) + len(facts) > 1:
        least = max([*state, *facts], key=lambda piece: piece.rank)
        state, facts = [piece for piece in state if piece is not least], [piece for piece in facts if piece is not least]
    left, right = _joined(state), _joined(facts)
    if cell_len(left) + cell_len(right) > columns:
        return set_cell_size(left or right, columns)
    return left + " " * (columns - cell_len(left) - cell_len(right)) + right if right else left


def _width(state: Sequence[Piece], facts: Sequence[Piece]) -> int:
    gap = GAP if state and facts else 0
    return cell_len(_joined(state)) + gap + cell_len(_joined(facts))


def _joined(pieces: Sequence[Piece]) -> str:
    return JOINT.join(piece.text for piece in pieces)


MODEL_CHARS: Final = 40
PROGRAM: Final = "freeact-sub"


class Status:
    """A line with the state, the useful keys, and the remaining context and budget."""

    def __init__(self, present: Present) -> None:
        self._present = present
        self._context_left = ""

    def observe(self, event: ev.AgentEvent, found: Sequence[bl.StoryBlock]) -> None:
        """Handle an event of the run: the root's requests and compactions change what its context has left."""
        agent = self._present.agent
        if (
            agent is None
            or event.parent_id is not None
            or not (isinstance(event, ev.Compacted) or any(isinstance(each, bl.Spent) for each in found))
        ):
            return
        use = agent.context()
        left = max(0.0, 1 - use.tokens / use.window_tokens) if use.window_tokens else None
        self._context_left = "" if left is None else f"{left:.0%} context left"

    def forget(self) -> None:
        """Forget the conversation: another one begins."""
        self._context_left = ""

    def line(self, views: Stories, focus: str, columns: int) -> str:
        """Return the line. Args: focus: the name of the agent that Ctrl-C cancels first; empty: the run's."""
        return status_line(self._state(views, focus), self._facts(), columns)

    def title(self, views: Stories, questions: Questions) -> str:
        """Return the title of the window."""
        root, present = views.root, self._present
        if questions.current is not None:
            return f"? {PROGRAM}: {len(questions.waiting)} to answer"
        if present.run is not None and root is not None and root.is_running:
            return f"● {PROGRAM}: {one_line(visible(present.prompt))}"
        return f"{PROGRAM}: {one_line(visible(Path(present.config.workspace).name))}"

    def _state(self, views: Stories, focus: str) -> list[Piece]:
        present = self._present
        match present.phase:
            case "idle":
                texts = ["type a prompt", "/help", "Ctrl-D quits"]
                return [Piece(text=text, rank=rank) for text, rank in zip(texts, (0, 3, 4), strict=True)]
            case "cancelling" | "ending":
                return [Piece(text=f"{present.phase} … Ctrl-C quits at once", rank=0)]
            case "running" if present.run is not None and (root := views.root) is not None:
                working = sum(view.is_running for view in views.by_id.values())
                agents = f"{counted(working, 'agent')} at work"
                return [
                    Piece(text=f"Ctrl-C cancels {focus}" if focus else "", rank=0),
                    Piece(text=agents, rank=1),
                    Piece(text=f"{root.seconds(time.time()):.0f} s", rank=4),
                    Piece(text="" if focus else "Ctrl-C cancels", rank=3),
                ]
            case _:
                return [Piece(text=f"{present.phase} …", rank=0)]

    def _facts(self) -> list[Piece]:
        present = self._present
        waiting = present.waiting.count
        usage = self._usage()
        return [
            Piece(text=f"{waiting} queued" if waiting else "", rank=2),
            Piece(text=f"{present.mode}{_unasked(present.code_rule)}", rank=5),
            Piece(text=self._context_left, rank=6),
            Piece(text=marked(usage.cost_text), rank=7),
            Piece(text=f"{marked(usage.tokens_text)} tokens" if usage.tokens else "", rank=8),
            Piece(text=self._models, rank=9),
        ]

    @property
    def _models(self) -> str:
        """The model, and during a run the one for the next prompt if it differs."""
        present, agent = self._present, self._present.agent if self._present.run is not None else None
        values = [present.model] if agent is None else dict.fromkeys([agent.config.model, present.model])
        names = ((value or "").partition(":")[2] or value or "" for value in values)
        return " → ".join(one_line(visible(name), MODEL_CHARS) for name in names if name)

    def _usage(self) -> Usage:
        present = self._present
        if present.run is not None:
            return present.run.usage
        return Usage() if present.agent is None else present.agent.usage


EXCHANGES: Final = 3
"""Prompts to draw again, with all that followed."""
MAX_EVENTS: Final = 5_000
"""Most events to draw again, the last ones."""
NAMED: Final = 8


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """The drawn part of a resumed session."""

    title: str
    about: list[str]
    """Lines about the session."""
    events: list[ev.Event]
    """The last exchanges."""
    came_back: str
    """The rest: variables, which are brought back later, and children. Empty: nothing."""


def read_earlier(agent: "Agent") -> Earlier | None:
    """Return the end of the agent's session; None if it has no prompt. Reads files.

    Raises:
        SessionError: The session cannot be read.
    """
    if agent.session_id is None:
        return None
    store = agent.sessions
    session = store.find(agent.session_id)
    with store.reader(session.session_id) as reader:
        agents = reader.agents()
        root = root_of(agents)
        runs = present_runs(reader, root)
        if root is None or not runs:
            return None
        events = [*deque(events_of(reader, runs[-EXCHANGES:]), maxlen=MAX_EVENTS)]
    more = len(runs) - EXCHANGES
    all_of_it = f"{counted(more, 'earlier prompt')}: freeact-sub sessions show {session.session_id}"
    return Earlier(
        title=session_title(session),
        about=[
            f"{counted(len(runs), 'prompt')} · {session_facts(session, time.time())}",
            *([all_of_it] if more > 0 else []),
        ],
        events=events,
        came_back=_came_back(store, session, root, [each for each in agents if each.parent_id == root.agent_id]),
    )


def _came_back(store: "SessionStore", session: "StoredSession", root: "StoredAgent", children: "list[StoredAgent]") -> str:
    from freeact_sub.kernels.snapshots import saved_names  # noqa: PLC0415  # slow to import
    from freeact_sub.sessions import VARIABLES  # noqa: PLC0415  # slow to import

    names = saved_names(store.folder_of(session.session_id) / VARIABLES / root.agent_id)
    found = []
    if names:
        found.append(f"saved: {counted(len(names), 'variable')}, to be brought back before the next prompt: {_some(names)}")
    if children:
        labels = [agent_name(child.agent_id, label_of(child.description, LABEL_CHARS)) for child in children]
        word = "child" if len(labels) == 1 else "children"
        found.append(f"came back: {len(labels)} {word} that the agent can resume: {_some(labels)}")
    return "\n".join(found)


def _some(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def how_to_continue(session_id: str, workspace: Path) -> str:
    """Return the command that continues a session, as typed in the present folder."""
    found = shutil.which("freeact-sub")
    started = Path(sys.argv[0])
    if found is not None or started.name == "__main__.py":
        program = "freeact-sub" if found is not None else f"{shlex.quote(sys.executable)} -m freeact_sub"
    else:
        program = shlex.quote(str(started))
    elsewhere = "" if workspace.resolve() == Path.cwd() else f" --workspace {shlex.quote(str(workspace))}"
    return f"{program} --resume {session_id}{elsewhere}"


class SettledResponses:
    """The last response of each agent, held until its next event shows that it stays."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[ev.Event, bl.Said, list[bl.StoryBlock]]] = {}

    def text(self, agent_id: str) -> str:
        """Return the held response; empty if there is none."""
        return self._held[agent_id][1].content if agent_id in self._held else ""

    def settled(self, event: ev.Event, found: list[bl.StoryBlock]) -> Iterator[tuple[ev.Event, list[bl.StoryBlock]]]:
        """Yield the events that can be shown now, in order. Args: found: the event's blocks."""
        said = next((block for block in found if isinstance(block, bl.Said) and not block.is_thought), None)
        is_momentary = all(block.passing for block in found)
        if not is_momentary and (held := self._held.pop(event.agent_id, None)) is not None:
            begins = held[1].content.strip()
            if said is None or not said.content.strip().startswith(begins):
                yield held[0], held[2]
        if said is not None:
            self._held[event.agent_id] = event, said, found
        else:
            yield event, found


KEYS: Final = (
    ("Enter", "send the prompt; while the agent works it is queued, and Enter at the empty line sends what is queued now"),
    ("↑", "take the last queued prompt back; earlier prompts, which Ctrl-R searches"),
    ("Alt-Enter", "new line; so does \\ at the end of a line"),
    ("Ctrl-G", "edit the prompt in $VISUAL or $EDITOR; so does Ctrl-X Ctrl-E"),
    ("@ ! Tab", "@ names a file whose content goes along, ! runs a command, Tab completes"),
    ("Shift-Tab", "change the mode"),
    ("Esc, Ctrl-C", "cancel the agent in focus, then the run; Ctrl-C once more quits at once"),
    ("Esc Esc", "go back to an earlier prompt, at rest"),
    ("Ctrl-O, Ctrl-T", "show the conversation, or what a child has done, and unfold it"),
    ("Ctrl-N", "make a request now that waits for a busy or failed server"),
    ("/2", "of several open questions, the second one"),
    ("NAME", "an agent's short id, such as a3f2, or a part of its name"),
)
"""Keys and other input with their meanings, for `/help`."""
LOOK_SECONDS: Final = 2.0
"""Seconds for a look through the workspace; after a longer one the list stops for the rest of the run."""
MAX_FILES: Final = 8
MINUS: Final = "\N{MINUS SIGN}"
Counts = tuple[int, int] | None
"""Lines added and removed since the prompt. None: unknown."""


class Display:
    """The screen, and the views of the agents on it."""

    keys: Sequence[tuple[str, str]] = KEYS
    """The keys that `/help` lists, each with its meaning."""

    by_keys = True
    """Whether a person sees a mark that keys move (`Questions.by_keys`)."""

    has_pages = True
    """Whether a long text has a screen of its own."""

    draws_pictures = True

    def __init__(self, present: Present, *, verbose: bool, keyboard: Keyboard, other_program: OtherProgram) -> None:
        """Args: verbose: show everything that every agent does. keyboard, other_program: see `Screen`."""
        chosen = present.config.terminal.pictures
        if chosen not in ("auto", "off"):
            require_extra("textual_image", extra="pictures", needed_by=f'the setting `terminal.pictures = "{chosen}"`')
        self._present = present
        self._verbose = verbose
        self._hint = ""
        self.screen = self._make_screen(keyboard, other_program)
        self._pictures = Pictures(chosen)
        self._status = Status(present)
        self._written = WrittenFiles(present)
        self.forget()

    def _make_screen(self, keyboard: Keyboard, other_program: OtherProgram) -> "Screen | PlainScreen":
        chosen = self._present.config.terminal
        return Screen(
            self.live,
            self.status,
            keyboard,
            notify=chosen.notify,
            other_program=other_program,
            has_vi_keys=chosen.keys == "vi",
        )

    def forget(self) -> None:
        """Forget all agents."""
        self.views = Stories()
        self.questions = Questions(asks_always=True, by_keys=self.by_keys)
        self._tried = TriedCells(self.questions, self.screen.start, self._show_effects, self.note)
        self._records = Records()
        self._settled = SettledResponses()
        self._story = Story(self.views, verbose=self._verbose, columns=lambda: self.screen.columns)
        self._found: list[bl.StoryBlock] = []
        """The blocks of the last event."""
        self._status.forget()
        self._presented: str | None = None
        """The question that is looked at."""
        self._above: set[tuple[str, str | None]] = set()
        """Questions whose whole calls were printed, each with the code to run instead."""

    def show(self, event: ev.Event) -> None:
        """Handle an event, and print its addition."""
        self._found = found = blocks(self.views.observe(event), event)
        for settled, its in self._settled.settled(event, found):
            self._records.add(settled, its)
            self._draw(settled, its)
        was_asked = self.questions.current is not None
        self.questions.observe(event)
        self._status.observe(event, found)
        end = next((block.of for block in found if isinstance(block, bl.End)), None)
        if (request := self.questions.current) is not None and not was_asked:
            self.screen.attention.call(f"{asker(self.views, request)} {asks_for(request)}")
        elif end is not None and event.parent_id is None and end.seconds >= LONG_SECONDS:
            self.screen.attention.call(f"{end.status}: {end.output or end.error}")

    def _draw(self, event: ev.AgentEvent, found: Sequence[bl.StoryBlock]) -> None:
        drawn = self._story.draw(event, found)
        if drawn is not None:
            self.screen.post(drawn)

    def retell(self, earlier: Earlier) -> None:
        """Print the last exchanges of a session as they were drawn then; nobody is asked anything again."""
        title = Text.assemble("resumed ", (visible(earlier.title), "bold"), overflow="fold")
        self.print(Group(Text(), title, *(Text(visible(line), "dim", overflow="fold") for line in earlier.about)))
        for event in map(self._present.as_seen, earlier.events):
            found = blocks(self.views.observe(event), event)
            self._records.add(event, found)
            self._draw(event, found)
            for block in found:
                if isinstance(block, bl.Approval) and (told := self._told_whole(block.request)) is not None:
                    self.screen.post(told)
        if earlier.came_back:
            self.print(Text(f"\n{visible(earlier.came_back)}", "dim", overflow="fold"))

    def _told_whole(self, request: ev.ApprovalRequest) -> RenderableType | None:
        """Return the cell of an earlier question that had no room in its card, if that stood in a window like this one."""
        questions = Questions(waiting=[request])
        card = question_card(
            self.views,
            questions,
            request,
            self.screen.live_rows,
            keys=key_line(questions, counts=True),
            workspace=self._present.config.workspace,
        )
        if card.has_room(self.screen.rows_of) or (told := self._story.whole_cell(request, None)) is None:
            return None
        self._records.whole.add(request.request_id)
        return told

    async def draw_files(self, event: ev.Event) -> None:
        """Name the files that the root has written, and draw the pictures of its cell, if the terminal can."""
        found = self._found  # while this waits, children in the background have events too
        if (changes := await self._written.after(event, found)) is not None:
            self.print(changes)
        draws = self.draws_pictures and event.parent_id is None and not self._verbose
        for end in (block.of for block in found if draws and isinstance(block, bl.CellEnd)):
            for file in end.picture_files[:MAX_SHOWN]:
                screen = self.screen
                if drawn := await self._pictures.drawn(Path(file), screen.columns, screen.room, screen.cell):
                    screen.post_raw(drawn)

    def note(self, text: str) -> None:
        """Print a note for the person."""
        self.print(Text(visible(text), "dim", overflow="fold"))

    def hint(self, text: str) -> None:
        """Show a note above the input line until something is entered. Args: text: the note; empty: none."""
        self._hint = text

    def print(self, drawn: RenderableType) -> None:
        """Put a drawing into the scrollback."""
        self._story.forget_last()
        self._records.add_drawn(drawn)
        self.screen.post(drawn)

    def refresh(self) -> None:
        """Draw the changing rows again."""
        request = self.questions.current
        if request is not None and request.request_id != self._presented:
            self._presented = request.request_id
            if isinstance(request, ev.ApprovalRequest):
                self._tried.begin(request)
        self.screen.attention.title(self._status.title(self.views, self.questions))
        self.screen.line.expects = self._expected()
        self.screen.refresh(self.questions.shown_id)

    def _show_effects(self, request: ev.ApprovalRequest, effects: ev.Effects) -> None:
        """Show the effects of a cell; the card takes them from the request."""
        del request, effects
        self.refresh()

    def print_whole(self, request: ev.ApprovalRequest | ev.QuestionRequest) -> None:
        """Print the whole call of a question; until it can be read, no key answers."""
        code = self.questions.changed_code(request) if isinstance(request, ev.ApprovalRequest) else None
        if (request.request_id, code) in self._above:
            return
        self._above.add((request.request_id, code))
        told = self._story.whole_cell(request, code) if isinstance(request, ev.ApprovalRequest) else None
        if told is not None:
            self._records.whole.add(request.request_id)
            self.screen.post(told)
        else:
            asks = Text(f"{asker(self.views, request)} {asks_for(request)}", "bold yellow", overflow="fold")
            self.print(Group(Text(), asks, Padding(self._drawn_call(request), (0, 0, 0, INDENT))))
        self.screen.hold_keys()

    def list_whole(self, requests: Sequence[ev.ApprovalRequest]) -> None:
        """Print the whole calls of several questions, which one key may then answer."""
        for request in requests:
            self.print_whole(request)
            self.questions.listed.add(request.request_id)

    def drawn_question(self, request: ev.ApprovalRequest | ev.QuestionRequest) -> RenderableType:
        """Return all of a question: the call, and below it the effects of a tried cell."""
        call = self._drawn_call(request)
        if not (isinstance(request, ev.ApprovalRequest) and is_tried(request)) or (effects := request.effects) is None:
            return call
        return Group(call, Text(), effects_part(effects)[0])

    def _drawn_call(self, request: ev.ApprovalRequest | ev.QuestionRequest) -> RenderableType:
        code = self.questions.changed_code(request) if isinstance(request, ev.ApprovalRequest) else None
        return drawn_call(request, self._present.config.workspace, code)

    def name(self, agent: "AgentInfo") -> str:
        """Return the name of an agent for people."""
        view = self.views.by_id.get(agent.agent_id)
        return self.views.name(view) if view is not None else short_id(agent.agent_id)

    def page_agent(self, view: AgentStory | None) -> None:
        """Show all that an agent has done in a pager, which grows with its work."""
        if view is None:
            self.note("nothing to show yet")
            return
        self._page(Transcript(self._records, view), at_end=True)

    def page_drawn(self, drawn: RenderableType) -> None:
        """Show a long drawing in a pager."""
        self._page(Paged(drawn), at_end=False)

    def _page(self, paged: Paged, *, at_end: bool) -> None:
        def asks() -> str:
            return f"{counted(len(self.questions.waiting), 'question')} open" if self.questions.current is not None else ""

        self.screen.start(self.screen.show_pages(Pager(paged, self.screen.text_of, asks, at_end=at_end)))

    # What the screen draws

    def live(self, rows: int) -> RenderableType | None:
        """Return the open question, the children at work, the text that is being written, and the prompts that wait."""
        present = self._present
        card = None if self.questions.current is None else self._card
        can_send = present.phase == "running" and card is None
        waiting = waiting_lines(present.waiting.typed, self._hint, can_send=can_send)
        room = max(rows - len(waiting), 1)
        root = self.views.root
        area = story_area(self.views, self._story, card, room, text=self._settled.text(root.agent_id) if root else "")
        parts = [*([area] if area is not None else []), *waiting]
        return Group(*parts) if parts else None

    def _card(self, rows: int) -> RenderableType:
        """Return the open question; a call that has no room in its card is printed above it."""
        request = self.questions.waiting[0]
        is_long = isinstance(request, ev.QuestionRequest) and is_cut(request, self.screen.columns)
        saved = next(
            (saved for saved in range(MAX_OTHERS + 2) if not is_long and self._has_room(request, rows, saved)), None
        )
        if saved is None and not self.screen.is_narrowed:
            self.print_whole(request)
        card = self._card_of(request, rows, saved=saved or 0)
        seen = [
            isinstance(other, ev.ApprovalRequest)
            and is_whole_in_list(self.views, self.questions, other, self.screen.columns)
            for other in card.listed
        ]
        on_card = frozenset(other.request_id for other in card.listed if all(seen))
        if on_card != self.questions.on_card:
            self.questions.on_card = on_card
            card = self._card_of(request, rows, saved=saved or 0)  # its keys name how many they answer
        return card

    def _has_room(self, request: ev.ApprovalRequest | ev.QuestionRequest, rows: int, saved: int) -> bool:
        return self._card_of(request, rows, saved=saved).has_room(self.screen.rows_of)

    def _card_of(self, request: ev.ApprovalRequest | ev.QuestionRequest, rows: int, *, saved: int = 0) -> Card:
        code = self.questions.changed_code(request) if isinstance(request, ev.ApprovalRequest) else None
        return question_card(
            self.views,
            self.questions,
            request,
            rows,
            keys=key_line(self.questions, counts=self.screen.line.keys_count),
            workspace=self._present.config.workspace,
            is_above=(request.request_id, code) in self._above,
            saved=saved,
        )

    def _expected(self) -> Expected:
        request = self.questions.current
        if not isinstance(request, ev.QuestionRequest):
            return ""
        return "secret" if request.secret else "form" if request.fields else "text"

    def status(self) -> str:
        """Return the status line: the state and the useful keys."""
        focus = self._present.focus
        return self._status.line(self.views, self.name(focus) if focus is not None else "", self.screen.columns)


class WrittenFiles:
    """The listed changes of one run."""

    def __init__(self, present: Present) -> None:
        self._present = present
        self._told: dict[str, Counts] = {}
        self._knows_lines = True

    async def after(self, event: ev.Event, told: Sequence[bl.StoryBlock]) -> Text | None:
        """Return the list to print after an event. None: nothing new was written. Args: told: the event's blocks."""
        if event.parent_id is not None:
            return None
        if any(isinstance(block, bl.Prompt) for block in told):
            self._told, self._knows_lines = {}, True
        run = self._present.run
        if run is None or not any(isinstance(block, bl.CallEnd) for block in told) or not run.files_written:
            return None
        found = await self._found(run.files_written)
        new = {path: counts for path, counts in found.items() if self._told.get(path, ()) != counts}
        self._told |= new
        return _drawn(new) if new else None

    async def _found(self, written: tuple[str, ...]) -> dict[str, Counts]:
        agent = self._present.agent
        if agent is not None and self._knows_lines:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    return dict(await agent.line_changes())
            except (FreeactError, TimeoutError):
                self._knows_lines = False
        return dict.fromkeys(written)


def _drawn(changes: dict[str, Counts]) -> Text:
    """Return a line for each file: `± report.md +12 -3`, with a minus sign."""
    lines = []
    for path, counts in [*changes.items()][:MAX_FILES]:
        line = Text.assemble(("  ± ", "dim"), one_line(path, 200), overflow="fold")
        if counts is not None:
            line.append(f" +{counts[0]:,}", "green").append(f" {MINUS}{counts[1]:,}", "red")
        lines.append(line)
    if len(changes) > MAX_FILES:
        lines.append(Text(f"  ± and {len(changes) - MAX_FILES:,} more", "dim"))
    return Text("\n").join(lines)


def _unasked(code_rule: "CodeRule | None") -> str:
    """Return the mark of a mode in which code runs unasked, or only code that changes nothing."""
    if code_rule is None:
        return ""
    return ", not harmless" if code_rule.is_for_harmless else "*"
