"""The changing rows above the input line: text, actions, children, questions, waiting prompts, and a note."""

from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.heads import head_of_tool
from freeact_sub.terminal.drawing.children import MAX_ROWS, ChildrenRegion, present_children, progress_lines
from freeact_sub.terminal.drawing.folds import FOLD_ROWS
from freeact_sub.terminal.drawing.parts import INDENT, Cut, Folded, Indented, head_lines
from freeact_sub.terminal.drawing.plan import PlanInPlace, open_plans
from freeact_sub.terminal.drawing.story import Story
from freeact_sub.text import clean, visible, whole_line

CARD_ALONE = 15
"""With at most so many rows only the question is drawn."""
TEXT_ROWS = 16
"""The rows of the agent's growing text."""

QUEUED_SHOWN: Final = 3
"""The number of the newest prompts that are listed."""


def story_area(
    views: Stories, story: Story, card: Callable[[int], RenderableType] | None, rows: int, *, text: str = ""
) -> RenderableType | None:
    """The changing rows, at most so many; None if there are none. The question for the person stands last.

    Args:
        views: All agents.
        story: What was drawn of them.
        card: Draws the open question, in at most so many rows. None: there is none.
        rows: The bound on rows.
        text: The root's whole response, as long as it may be asked for again.
    """
    parts: list[RenderableType] = []
    children = [*progress_lines(views), *(view for view in present_children(views) if view.is_running)]
    if card is not None:
        few = min(len(children) + 2, MAX_ROWS + 1, rows // 3) if children and rows > CARD_ALONE else 0
        parts.append(card(rows - few))
        rows = few
    if children and rows > 1:
        room = min(MAX_ROWS, rows - 1)
        parts[:0] = [Text(), ChildrenRegion(views=views, rows=room)]
        rows -= 1 + min(room, len(children) + 1)
    for plan in open_plans(views.root) if card is None and views.root is not None else ():
        if rows > 2:
            block = PlanInPlace(plan=plan, rows=max(1, rows // 2))
            parts[:0] = [Text(), block]
            rows -= 1 + block.height
    if card is None and (root := views.root) is not None and rows > 1:
        parts[:0] = _says(root, story, min(rows, TEXT_ROWS), text, alone=not children)
    return Group(*parts) if parts else None


def _says(root: AgentStory, story: Story, rows: int, text: str, *, alone: bool) -> list[RenderableType]:
    """Return the end of the root's text, thoughts or output, or the seconds of its model's silence."""
    if shown := clean(root.writing or ("" if root.thinking else text)).strip("\n"):
        from freeact_sub.terminal.drawing.markdown import markdown  # noqa: PLC0415  # slow to import

        return [Text(), Cut(body=markdown(shown), rows=rows - 1, tail=True)]
    if shown := clean(root.thinking).strip("\n"):
        return [Text(), Cut(body=Text(shown, "dim italic", overflow="fold"), rows=rows - 1, tail=True)]
    held: list[RenderableType] = [line for event in story.pending for line in head_lines(head_of_tool(event), mark="○ ")]
    parts: list[RenderableType] = [Cut(body=Group(*held), rows=rows)] if held and alone else []
    shown = clean(root.output_text).strip("\n")
    if lines := [*story.output, *(Text(line, "dim") for line in shown.split("\n") if shown)]:
        parts.append(Cut(body=Indented(body=Folded(lines=lines), columns=INDENT), rows=min(rows, FOLD_ROWS), tail=True))
    return parts or ([waits] if (waits := silence(root)) else [])


def waiting_lines(prompts: Sequence[str], hint: str, *, can_send: bool) -> list[RenderableType]:
    """Draws the lines.

    Args:
        prompts: The waiting prompts as they were typed, the next one first.
        hint: A note that stays until something else is entered; empty: none.
        can_send: An agent at work can get the prompts now.
    """
    lines = [Text(f"queued: {visible(whole_line(prompt))}", "dim", no_wrap=True, overflow="ellipsis") for prompt in prompts]
    if (left := len(prompts) - QUEUED_SHOWN) > 0:
        lines[:left] = [Text(f"… {left} more queued", "dim")]
    if prompts:
        lines.append(Text(f"{'Enter sends them now · ' if can_send else ''}↑ takes the last one back", "dim"))
    if hint:
        lines.append(Text(visible(hint), "dim", overflow="fold"))
    return [*lines]


def silence(view: AgentStory) -> Text | None:
    """Return a line about the seconds of a model's silence; None if it is not silent."""
    progress = view.progress
    if progress is None:
        return None
    if progress.pause:
        return Text(f"{progress.pause} · Ctrl-N tries now", "dim italic")
    rate = progress.tokens_per_second
    speed = f", {rate:.1f} tokens/s" if rate is not None else "" if progress.tokens else ", no token yet"
    return Text(f"waiting for the model: {progress.seconds:.0f} s{speed}", "dim italic")
