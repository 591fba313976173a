"""The lines at the end of a cell or a child, and what is told of a child before that."""

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from freeact_sub.agent_names import short_id
from freeact_sub.events import (
    AgentFinished,
    AgentMessage,
    ApprovalDecided,
    CodeExecutionOutput,
    Event,
    KernelLost,
    Notice,
    QuestionAnswered,
)
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.heads import head_of_call
from freeact_sub.show.wording import MESSAGES, is_news, question_and_answer, spent
from freeact_sub.terminal.drawing.parts import link
from freeact_sub.text import clean, one_line

SLOW_SECONDS: Final = 2.0
"""The end of a cell shows its seconds if there are more."""


def cell_end_lines(event: CodeExecutionOutput, *, with_file: bool) -> Iterator[Text]:
    """Return the facts about a cell besides its output. Args: with_file: name the file with the whole output."""
    if event.left_out_chars:
        yield Text(f"{event.left_out_chars:,} characters of output are not shown here", "yellow")
    if event.output_file and with_file:
        yield Text("full output: ", "dim") + link(event.output_file)
    for picture in event.picture_files:
        yield Text("picture: ", "dim") + link(picture)
    if event.status != "ok":
        yield Text(f"{event.status.replace('_', ' ')} after {event.seconds:.1f} s", "red")
    elif event.seconds >= SLOW_SECONDS:
        yield Text(f"{event.seconds:.1f} s", "dim")


def child_end_line(name: Text, event: AgentFinished, *, indent: int) -> Text:
    """Return the line for a child's end. Args: name: its name in its colour. indent: columns in front of it."""
    done = event.status == "completed"
    mark = Text("✓ " if done else "✗ ", "green" if done else "bold red")
    first = next((line for line in clean(event.output).split("\n") if line.strip()), "")
    words = one_line(first, 120) if done else f"{event.status.replace('_', ' ')}: {one_line(event.error, 200)}"
    return Text.assemble(" " * indent, mark, name, "  ", words.removesuffix(": "), (f"  ({spent(event)})", "dim"))


def message_text(views: Stories, event: AgentMessage) -> str:
    """A message between agents, in words that follow the sender's name."""
    other = views.by_id.get(event.recipient_id)
    name = views.name(other) if other else short_id(event.recipient_id)
    return f"{MESSAGES[event.kind]} {name}: {clean(event.content)}"


def news_of(views: Stories, view: AgentStory, event: Event) -> tuple[str, str] | None:
    """What people are told of an agent at work, in one line with its style."""
    match event:
        case ApprovalDecided(allowed=False) if request := view.asked(event.request_id):
            reason = f": {one_line(event.reason, 200)}" if event.reason else ""
            return f"was denied {head_of_call(request.call).text}{reason}", "red"
        case QuestionAnswered():
            return question_and_answer(event), "dim" if event.answered else "red"
        case KernelLost():
            return f"lost its kernel and all variables: {clean(event.reason)}", "red"
        case Notice():
            return clean(event.content), "yellow"
        case AgentMessage() if is_news(event):
            return one_line(message_text(views, event), 300), "yellow"
    return None
