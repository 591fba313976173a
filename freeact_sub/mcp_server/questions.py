"""What a run asks a person, as forms of MCP's elicitation, and what a client answers.

A form is filled in by whoever sits at the client. Secrets are never asked: the protocol forbids it, since a form may be seen
by the client's model.
"""

from collections.abc import Mapping
from typing import Any, Final

from freeact_sub.events import ApprovalRequest, QuestionField, QuestionRequest
from freeact_sub.events.form_schema import values_schema
from freeact_sub.show.questions import refuse
from freeact_sub.show.wording import asked_text, asked_title, names_of_asker
from freeact_sub.text import visible

DECISION: Final = "decision"
REASON: Final = "reason"
ANSWER: Final = "answer"
NO_SECRETS: Final = "secrets are not asked through MCP clients: set it where the program can read it"


def message_of(asked: ApprovalRequest | QuestionRequest) -> str:
    """Return the whole question as a person reads it."""
    who = " > ".join(names_of_asker(asked))
    if isinstance(asked, QuestionRequest):
        return f"{who} {asked_title(asked)}:\n{asked_text(asked)}"
    reason = f"\n\n({visible(asked.reason)})" if asked.reason else ""
    return f"{who} {asked.call.question}:\n\n{asked.call.text}{reason}"


def form_of(asked: ApprovalRequest | QuestionRequest) -> dict[str, Any]:
    """Return the JSON schema of the answer."""
    if isinstance(asked, ApprovalRequest):
        decided = ["yes", *(["always"] if asked.suggested else []), "no"]
        always = f"; always: also allow {', '.join(asked.suggested)} in this session" if asked.suggested else ""
        fields = {
            DECISION: {"type": "string", "enum": decided, "title": "Allow it?", "description": f"yes: this once{always}"},
            REASON: {"type": "string", "title": "Reason", "description": "why not, for the agent"},
        }
        return {"type": "object", "properties": fields, "required": [DECISION]}
    if not asked.fields:
        return {"type": "object", "properties": {ANSWER: {"type": "string"}}, "required": [ANSWER]}
    fields = {field.name: _schema_of(field) for field in asked.fields}
    required = [field.name for field in asked.fields if field.required]
    return {"type": "object", "properties": fields, **({"required": required} if required else {})}


def answer_by_form(asked: ApprovalRequest | QuestionRequest, action: str, content: Mapping[str, Any] | None) -> None:
    """Answer a question as a client has answered its form. What is no answer counts as a refusal, with that reason.

    Args:
        asked: The question.
        action: `accept`, `decline` or `cancel`.
        content: The values of the form.
    """
    values = content or {}
    if action != "accept":
        refuse(asked, "the person declined" if action == "decline" else "the person did not decide")
        return
    try:
        answer_by_values(asked, values)
    except ValueError as error:
        refuse(asked, f"the client's answer is none: {error}")


def answer_by_values(asked: ApprovalRequest | QuestionRequest, values: Mapping[str, Any]) -> None:
    """Answer a question by the values of its form. Raises: ValueError: They are no answer; the question stays open."""
    if isinstance(asked, QuestionRequest):
        asked.answer(str(values.get(ANSWER, "")) if not asked.fields else values)
        return
    match values.get(DECISION):
        case "yes":
            asked.approve()
        case "always" if asked.suggested:
            asked.approve(remember="session")
        case "no":
            asked.deny(str(values.get(REASON) or ""))
        case other:
            raise ValueError(
                f"{DECISION} must be one of {', '.join(form_of(asked)['properties'][DECISION]['enum'])}: {other!r}"
            )


def _schema_of(field: QuestionField) -> dict[str, Any]:
    schema = {"title": field.prompt or field.name, **values_schema(field)}
    names = {"enumNames": [*field.labels]} if field.labels else {}
    choices = {"enum": [*field.choices], **names}
    if field.kind == "choices":
        return {**schema, "items": {"type": "string", **choices}}
    if field.kind == "choice" and field.other:  # a form's choice allows nothing else
        return {**schema, "description": f"for example: {', '.join(field.labels or field.choices)}"}
    return {**schema, **choices} if field.kind == "choice" else schema
