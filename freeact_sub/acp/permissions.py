"""Approvals and questions, which the client puts to its user.

Each is asked in the root's session, and about a tool call of its own, which `Updates` has begun: clients keep their
questions by both. An unusable answer, or a client that cannot ask, is a denial that says so.
"""

import asyncio
from pathlib import Path
from typing import Any, Final

from acp import RequestError

from freeact_sub import events as ev
from freeact_sub.acp import actions
from freeact_sub.acp.actions import tool_text
from freeact_sub.acp.connection import Client
from freeact_sub.calls import FanOut
from freeact_sub.events.forms import values_schema
from freeact_sub.show.effect_lines import effect_lines, is_tried, seen_otherwise
from freeact_sub.show.questions import always_allows
from freeact_sub.show.wording import asked_text, rule_words
from freeact_sub.system.closing import end_task
from freeact_sub.text import dollars_spread, fenced, one_line

ONCE: Final = "once"
SESSION: Final = "session"
PROJECT: Final = "project"
NO: Final = "no"
MODEL: Final = "model "
"""The prefix of a cheaper model's name."""
NO_TEXT: Final = "this client cannot ask its user for a text: the user may write it in the next prompt"
TRIAL_SECONDS: Final = 3.0
"""Seconds that a question waits for the effects of its cell; later ones are an update of its call."""
CHOICES: Final = 12
"""Maximum number of buttons of one question."""


async def decision_on(client: Client, session_id: str, event: ev.ApprovalRequest, workspace: Path) -> ev.Decision:
    """Ask about a call; about a cell once more if it would now do something else than its card says."""
    if not is_tried(event):
        return await _decision(client, session_id, event, [])
    trying = asyncio.create_task(event.effects_ready(), name="trial for a card")
    await asyncio.wait({trying}, timeout=TRIAL_SECONDS)

    async def tell() -> None:
        call = {"sessionUpdate": "tool_call_update", "toolCallId": event.request_id}
        content = [*actions.asked(event.call)["content"], *_effects(await trying, workspace)]
        await client.update(session_id, {**call, "content": content})

    late = None if trying.done() else asyncio.create_task(tell(), name="effects for a card")
    try:
        decision = await _decision(client, session_id, event, _effects(trying.result(), workspace) if trying.done() else [])
        now = await seen_otherwise(event, decision, trying.result() if trying.done() else None)
        return decision if now is None else await _decision(client, session_id, event, _effects(now, workspace))
    finally:
        for task in (trying, *([late] if late is not None else [])):
            await end_task(task)


async def _decision(
    client: Client, session_id: str, event: ev.ApprovalRequest, effects: list[dict[str, Any]]
) -> ev.Decision:
    shown = actions.asked(event.call)
    shown["content"] = [*shown["content"], *effects]
    shown["title"] = actions.titled(event, shown["title"])
    patterns = always_allows(event)
    similar = one_line(rule_words(patterns), 100)
    options = [
        {"optionId": ONCE, "name": "Allow", "kind": "allow_once"},
        {"optionId": SESSION, "name": f"Allow in this session: {similar}", "kind": "allow_always"},
        {"optionId": PROJECT, "name": f"Allow in this project: {similar}", "kind": "allow_always"},
        {"optionId": NO, "name": "Deny", "kind": "reject_once"},
    ]
    if isinstance(event.call, FanOut):
        offers = [
            {
                "optionId": f"{MODEL}{name}",
                "name": f"Allow with {one_line(name, 60)}: {dollars_spread(cost)}",
                "kind": "allow_once",
            }
            for name, cost in event.call.cheaper.items()
        ]
        options = [options[0], *offers, options[-1]]
    elif not event.suggested:
        options = [option for option in options if option["optionId"] in (ONCE, NO)]
    if event.reason:
        shown["content"] = [*shown["content"], tool_text(f"Why it is asked: {event.reason}")]
    chosen, problem = await _chosen(client, session_id, event, shown, options)
    match chosen:
        case "once":
            return ev.Decision(allowed=True)
        case "session" | "project" if event.suggested:
            remember: ev.Remember = SESSION if chosen == SESSION else PROJECT
            return ev.Decision(allowed=True, remember=remember, pattern=None if patterns == event.suggested else patterns[0])
        case "no":
            return ev.Decision(allowed=False, reason="the user denied it")
        case str() if chosen.startswith(MODEL):
            return ev.Decision(allowed=True, model=chosen.removeprefix(MODEL))
        case _:
            return ev.Decision(allowed=False, reason=problem, nobody=True)


def _effects(effects: ev.Effects, workspace: Path) -> list[dict[str, Any]]:
    """Return what the cell would do, for its card: in words, as pictures, and as diffs of files."""
    if effects.off:
        return []
    words = "\n".join(line.text for line in effect_lines(effects) if line.kind not in ("added", "removed", "context"))
    diffs = [diff for file in effects.files if (diff := _diff(file, workspace)) is not None]
    return [tool_text(fenced(words)), *actions.pictures_of(effects.displays, ()), *diffs]


def _diff(file: ev.FileEffect, workspace: Path) -> dict[str, Any] | None:
    """Return the changed parts of a text file as the protocol has them. None: it has none."""
    lines = [line for line in file.diff.split("\n")[2:] if not line.startswith("@@")]
    if not lines:
        return None
    old, new = ("".join(f"{line[1:]}\n" for line in lines if line[:1] in (sign, " ")) for sign in "-+")
    return {"type": "diff", "path": str(workspace / file.path), "newText": new} | (
        {} if file.what == "added" else {"oldText": old}
    )


async def answer_to(client: Client, session_id: str, event: ev.QuestionRequest) -> ev.Answer:
    """Ask a question: in a form, where the client has them, else by buttons."""
    if client.can("elicitation", "form"):
        return await _by_form(client, session_id, event)
    rows = event.fields[0].rows if len(event.fields) == 1 else ()
    if not rows or len(rows) > CHOICES or event.fields[0].kind == "choices":
        return ev.Answer(reason=NO_TEXT, nobody=True)
    text = _whole(event)
    shown = {"title": one_line(text, actions.TITLE_CHARS), "kind": "other", "content": [tool_text(text)]}
    options = [{"optionId": f"choice-{at}", "name": row, "kind": "allow_once"} for at, row in enumerate(rows)]
    options.append({"optionId": NO, "name": "No answer", "kind": "reject_once"})
    chosen, problem = await _chosen(client, session_id, event, shown, options)
    if chosen is None or chosen == NO:
        return ev.Answer(reason=problem or "the user gave no answer", nobody=chosen is None)
    at = next((at for at, option in enumerate(options[:-1]) if option["optionId"] == chosen), None)
    if at is None:
        return ev.Answer(reason=f"the client chose {chosen!r}, which was not offered", nobody=True)
    field = event.fields[0]
    return ev.Answer(values={field.name: rows[at] == "yes" if field.kind == "boolean" else field.choices[at]})


async def _chosen(
    client: Client,
    session_id: str,
    event: ev.ApprovalRequest | ev.QuestionRequest,
    shown: dict[str, Any],
    options: list[dict[str, str]],
) -> tuple[str | None, str]:
    """Return the option that the user chose, or None and the reason."""
    call = {
        "toolCallId": event.request_id,
        "status": "pending",
        "_meta": actions.meta_of(event, path=list(event.path)),
        **shown,
    }
    params = {"sessionId": session_id, "toolCall": call, "options": options}
    try:
        answer = await client.request("session/request_permission", params)
    except (RequestError, ConnectionError) as error:
        return None, f"the client could not ask its user: {one_line(str(error), 200)}"
    outcome = answer.get("outcome")
    match outcome:
        case {"outcome": "selected", "optionId": str(chosen)}:
            known = any(option["optionId"] == chosen for option in options)
            return (chosen, "") if known else (None, f"the client chose {one_line(chosen, 60)!r}, which was not offered")
        case {"outcome": "cancelled"}:
            return None, "the client cancelled the question"
        case _:
            return None, "the client gave no answer that can be used"


async def _by_form(client: Client, session_id: str, event: ev.QuestionRequest) -> ev.Answer:
    fields = event.fields or (ev.QuestionField(name="answer", prompt=event.prompt),)
    properties = {field.name: property_of(field) for field in fields}
    required = [field.name for field in fields if field.required and field.default is None]
    params = {
        "mode": "form",
        "sessionId": session_id,
        "toolCallId": event.request_id,
        "message": _whole(event),
        "requestedSchema": {"type": "object", "properties": properties, "required": required},
    }
    try:
        answer = await client.request("elicitation/create", params)
    except (RequestError, ConnectionError) as error:
        return ev.Answer(reason=f"the client could not ask its user: {one_line(str(error), 200)}", nobody=True)
    match answer:
        case {"action": "accept", "content": dict(values)}:
            return ev.Answer(values=values) if event.fields else ev.Answer(text=str(values.get("answer", "")))
        case {"action": "decline"}:
            return ev.Answer(reason="")
        case _:
            return ev.Answer(reason="the client cancelled the question", nobody=True)


def _whole(event: ev.QuestionRequest) -> str:
    """Return a question with the page that it wants opened."""
    return asked_text(event) + (f"\n\n{event.url}" if event.url else "")


def property_of(field: ev.QuestionField) -> dict[str, Any]:
    """Return a field in the format of a form's schema."""
    schema = values_schema(field)
    if field.prompt:
        schema["title"] = schema["description"] = field.prompt
    labels = field.labels or field.choices
    named = [{"const": choice, "title": label} for choice, label in zip(field.choices, labels, strict=False)]
    if field.kind == "choices":
        schema["items"] = {"anyOf": named}
    elif field.kind == "choice" and not field.other:
        schema["oneOf"] = named
    elif field.kind == "choice":
        schema["description"] = f"{field.prompt} ({' / '.join(labels)}, or another text)".strip()
    return schema
