"""`OpenQuestions`: what a person is asked besides approvals, for all agents of a root: by models, by code, by MCP servers.

A question is a `QuestionRequest` on the root's stream. Like an approval request it is answered by its id, or left without an
answer. Rules and modes have no say in it: an answer allows nothing. Where nobody is to be asked it ends at once.
"""

import secrets
from typing import Final

from freeact_sub.approvals.open_question import UNSHOWN_SECONDS, OpenQuestion
from freeact_sub.channel import Emitter
from freeact_sub.errors import NoAnswerError
from freeact_sub.events import Answer, QuestionAnswered, QuestionRequest
from freeact_sub.events.answers import ABSENT, ASKED
from freeact_sub.events.forms import PersonQuestion, answer_to

DECLINED: Final = "the person does not answer"


class OpenQuestions:
    """Asks, and takes the answers."""

    def __init__(
        self, *, headless: bool = False, timeout_seconds: float | None = None, unshown_seconds: float = UNSHOWN_SECONDS
    ) -> None:
        """Args: headless: nobody is asked. timeout_seconds, unshown_seconds: see `Gate`."""
        self._headless = headless
        self._timeout_seconds = timeout_seconds
        self._unshown_seconds = unshown_seconds
        self._open: dict[str, tuple[OpenQuestion[Answer], QuestionRequest]] = {}

    @property
    def open_requests(self) -> tuple[QuestionRequest, ...]:
        """The open questions, oldest first."""
        return tuple(request for question, request in tuple(self._open.values()) if not question.is_decided)

    async def ask(
        self,
        asked: PersonQuestion,
        emitter: Emitter,
        *,
        path: tuple[str, ...],
        tool_call_id: str | None,
    ) -> Answer:
        """Ask a person, and return the answer; its text is None if there is none.

        Args:
            asked: The question.
            emitter: Emits events for the agent.
            path: The agents from the root to this one, as people should see them.
            tool_call_id: The model's tool call that the question belongs to.
        """
        request_id = f"question-{secrets.token_hex(4)}"

        def announce(answer: Answer) -> None:
            """Emits the answer before the caller continues."""
            event = QuestionAnswered(
                request_id=request_id,
                prompt=asked.prompt,
                answered=answer.text is not None,
                text="" if asked.secret else answer.text or "",
                values=None if asked.secret or answer.values is None else dict(answer.values),
                reason=answer.reason,
            )
            emitter.put(event, tool_call_id=tool_call_id)

        question = OpenQuestion(announce)
        request = QuestionRequest(request_id=request_id, path=path, headless=self._headless, **vars(asked))
        self._open[request_id] = question, request
        ASKED[request_id] = self
        timed = question.timed(
            emitter.agent_id,
            asked.prompt,
            unshown_seconds=self._unshown_seconds,
            timeout_seconds=self._timeout_seconds,
            too_late=lambda reason: Answer(reason=reason, nobody=True),
        )
        try:
            with timed:
                sent = await emitter.emit(request, tool_call_id=tool_call_id)
                if isinstance(sent, QuestionRequest):
                    self._open[request_id] = question, sent
                if self._headless or emitter.channel.closed:
                    question.decide(ABSENT)
                return await question.outcome
        finally:
            del self._open[request_id], ASKED[request_id]
            question.decide(Answer(reason="withdrawn", nobody=True))  # unless it was answered

    def answer(self, request_id: str, answer: Answer) -> bool:
        """Answers a question, from any thread. Returns False if no open question has this id.

        Raises:
            ValueError: It is no answer to the question; the question stays open.
        """
        if (found := self._open.get(request_id)) is None:
            return False
        question, request = found
        return question.decide(answer_to(request.fields, answer))

    def shown(self, request_id: str) -> None:
        """Notes that a front end shows the question."""
        if found := self._open.get(request_id):
            found[0].shown = True

    def abandon(self) -> None:
        """Ends all open questions: the reader is gone."""
        for question, _ in tuple(self._open.values()):
            question.decide(ABSENT)


def required(answer: Answer) -> Answer:
    """The answer, if there is one.

    Raises:
        NoAnswerError: There is none; the message is the reason.
    """
    if answer.text is None:
        raise NoAnswerError(": ".join(filter(None, ["" if answer.nobody else DECLINED, answer.reason])))
    return answer
