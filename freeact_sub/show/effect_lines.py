"""The effects of a cell, in lines for people; front ends draw them. A yes to a cell is to the effects that were seen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeGuard

from freeact_sub import events as ev
from freeact_sub.calls import CodeAction
from freeact_sub.text import clean, counted, cut, duration, whole_line

LineKind = Literal["head", "warning", "output", "variable", "file", "added", "removed", "context"]
OUTPUT_LINES: Final = 8
CHARS: Final = 200
FACT_CHARS: Final = 72
SIGNS: Final = {"added": "+", "changed": "±", "deleted": "-"}
NO_CHANGE: Final = "tried: it changes no variable and no file, and puts out nothing"


@dataclass(frozen=True)
class EffectLine:
    """One line, without what a terminal would obey."""

    kind: LineKind
    text: str


def is_tried(request: ev.ApprovalRequest) -> bool:
    """Return whether front ends show a call's effects, or why these are unknown."""
    effects = request.effects
    return (effects is None or not effects.off) if isinstance(request.call, CodeAction) else are_seen(effects)


def are_seen(effects: ev.Effects | None) -> TypeGuard[ev.Effects]:
    """Return whether a yes can be to these effects. Otherwise it is to the code."""
    return effects is not None and effects.status != "refused"


async def seen_otherwise(request: ev.ApprovalRequest, decision: ev.Decision, seen: ev.Effects | None) -> ev.Effects | None:
    """Return the cell's new effects, if they differ from those a person has seen. None: the decision counts.

    A person is asked again once. After a second trial the person decides: the cell's files may change all the time.

    Args:
        request: The question about the cell.
        decision: What the person has decided.
        seen: The effects that are shown. None: they are not there yet.
    """
    if not decision.allowed or not are_seen(seen) or seen.outdated_by:
        return None
    now = await request.effects_ready(decision.code)
    return None if now.shows_as(seen) else now


def effect_lines(effects: ev.Effects | None) -> Iterator[EffectLine]:
    """Yield the lines. Args: effects: None: the trial has not ended yet."""
    if effects is None:
        yield EffectLine("head", "trying it …")
        return
    if effects.off:
        return
    yield from _heads(effects)
    yield from change_lines(effects)


def effect_line(effects: ev.Effects | None) -> EffectLine:
    """Return the line for a card that has no room for more."""
    if effects is None or effects.status != "done" or effects.cell == "error":
        return next(effect_lines(effects))
    return next(change_lines(effects), _head(effects))


def change_lines(effects: ev.Effects) -> Iterator[EffectLine]:
    """Yield the lines without words about a trial: paths, output, variables, diffs."""
    if paths := [f"{SIGNS[file.what]}{file.path}" for file in effects.files]:
        yield EffectLine("file", cut(whole_line(" ".join(paths)), CHARS))  # first: a small card shows the first lines
    output = clean(effects.output).strip().split("\n") if effects.output.strip() else []
    for line in output[:OUTPUT_LINES]:
        yield EffectLine("output", cut(line, CHARS))
    if len(output) > OUTPUT_LINES:
        yield EffectLine("output", f"… {counted(len(output) - OUTPUT_LINES, 'more line')} of output")
    if pictures := sum(any(kind.startswith("image/") for kind in display) for display in effects.displays):
        yield EffectLine("output", f"[{counted(pictures, 'picture')}]")
    for change in effects.variables:
        if not change.imported:
            yield from (EffectLine("variable", text) for text in _variable(change))
    for file in effects.files:
        yield from _file(file)
    if effects.left_out:
        yield EffectLine("file", cut(f"left out of the comparison: {whole_line(', '.join(effects.left_out))}", CHARS))


def _heads(effects: ev.Effects) -> Iterator[EffectLine]:
    if effects.outdated_by:
        since = whole_line(", ".join(effects.outdated_by))
        yield EffectLine("warning", cut(f"tried again, changed since: {since}", CHARS))
    yield _head(effects)


def _head(effects: ev.Effects) -> EffectLine:
    if effects.status == "refused":
        return EffectLine("head", f"not tried: {whole_line(effects.reason)}")
    if effects.status == "stopped":
        asks = ", and asks again there" if effects.cell is None else ""
        return EffectLine("warning", f"tried, and stopped: {whole_line(effects.reason)}. A yes runs it for real{asks}")
    if effects.cell is None:
        return EffectLine("head", "a yes writes:")
    if effects.cell == "error":
        return EffectLine("warning", "tried: it ends with an error")
    variables = [change for change in effects.variables if not change.imported]
    if not (effects.output.strip() or effects.displays or variables or effects.files or effects.left_out):
        return EffectLine("head", NO_CHANGE)
    if effects.can_be_taken_over:
        return EffectLine("head", f"tried, in a copy, for {duration(effects.seconds)}; a yes takes this over:")
    return EffectLine("head", "tried, in a copy that is dropped; a yes runs it:")


def _variable(change: ev.VariableChange) -> Iterator[str]:
    """Yield the line of a variable, or a line for each fact about a changed one, where one line is too short."""
    more: list[str] = []
    match change.what:
        case "new":
            text = f"{change.name}: {change.after}"
        case "deleted":
            text = f"{change.name}: {change.before} -> deleted"
        case _:
            text = f"{change.name}: {changed_text(change) or f'{change.before} -> {change.after}'}"
            if len(text) > FACT_CHARS and (facts := _facts(change)):
                text = f"{change.name}: {facts.pop(0)}"
                more = [cut(whole_line(f"  {fact}"), CHARS) for fact in facts]
    yield from (cut(whole_line(text), CHARS), *more)


def changed_text(change: ev.VariableChange) -> str:
    """Return what differs in the value of a variable, in words. Empty: it is not known."""
    return "; ".join(_facts(change))


def _facts(change: ev.VariableChange) -> list[str]:
    found = change.difference
    if found is None:
        return []
    names = {"cells": "column", "keys": "key", "fields": "field", "elements": "element"}
    is_named = found.parts in ("keys", "fields")
    examples = [
        f"{place} {before} to {after}" if before != after else f"{place} changed" for place, before, after in found.examples
    ]
    more = ["…"] if found.changed > len(examples) else []
    named = [*_listed(found.new, found.new_count, "new"), *_listed(found.gone, found.gone_count, "gone")]
    named += _listed([" ".join((name, f"{one} to {other}")).strip() for name, one, other in found.types], found.types_count)
    named += [*examples, *more] if is_named else []
    count = found.new_count + found.gone_count + found.types_count * (found.parts == "cells") + found.changed * is_named
    noun = counted(count, names[found.parts]).partition(" ")[2] if count else ""
    words = [*_rows_text(found), f"{noun} {', '.join(named)}".strip()]
    if found.changed and not is_named:
        total = (
            f"{found.changed:,} of {counted(found.of, 'element')}" if found.of else counted(found.changed, found.parts[:-1])
        )
        where = f" in {counted(found.columns, 'column')}" if found.parts == "cells" else ""
        most = f", by at most {found.most}" if found.most else ""
        words.append(f"{total} changed{where}{most}: {', '.join([*examples, *more])}")
    words += [f"too large to compare: {found.too_large}"] if found.too_large else []
    return [*filter(None, words)]


def _listed(names: Sequence[str], count: int, word: str = "") -> Iterator[str]:
    """Yield the names, and how many more there are, with a word."""
    if names:
        more = [f"{count - len(names):,} more"] if count > len(names) else []
        yield f"{', '.join([*names, *more])} {word}".rstrip()


def _rows_text(found: ev.Difference) -> Iterator[str]:
    """Yield what differs in the number, the order and the labels of rows."""
    noun = "row" if found.parts in ("cells", "values") else "element"
    sizes = "" if found.sizes is None else f" ({found.sizes[0]:,} to {found.sizes[1]:,})"
    if found.new_rows and found.gone_rows:
        yield f"{counted(found.new_rows, 'row')} new, {found.gone_rows:,} gone{sizes}"
    elif found.sizes is not None:
        more = found.sizes[1] - found.sizes[0]
        yield f"{counted(abs(more), noun)} {'more' if more > 0 else 'fewer'}{sizes}"
    yield from ("another index" if other == "index" else f"{other} in another order" for other in found.others)


def _file(file: ev.FileEffect) -> Iterator[EffectLine]:
    note = f" ({file.note})" if file.note else ""
    yield EffectLine("file", cut(whole_line(f"{file.what} {file.path}{note}"), CHARS))
    for line in file.diff.split("\n")[2:]:  # the names are said
        kind: LineKind = "added" if line.startswith("+") else "removed" if line.startswith("-") else "context"
        yield EffectLine(kind, line)
