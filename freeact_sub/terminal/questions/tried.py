"""`TriedCells`: trials of cells that a person is asked about; a yes counts only for what the person has seen."""

from collections.abc import Callable, Coroutine
from typing import Any

from freeact_sub.calls import CodeAction
from freeact_sub.events import ApprovalRequest, Decision, Effects
from freeact_sub.show.effect_lines import are_seen, is_tried, seen_otherwise
from freeact_sub.show.questions import Questions
from freeact_sub.terminal.questions.keys import CLOSED


class TriedCells:
    """Tries the cells of `Questions`, and the code that a person would rather run; takes the yes to them."""

    def __init__(
        self,
        questions: Questions,
        start: Callable[[Coroutine[Any, Any, None]], None],
        show: Callable[[ApprovalRequest, Effects], None],
        note: Callable[[str], None],
    ) -> None:
        """Args: start: lets work run until the end of the screen. show: shows the effects of a question's last trial."""
        self._questions, self._start, self._show, self._note = questions, start, show, note
        self._checked: set[str] = set()
        """Questions whose answer is known, if what the person saw still holds."""
        questions.take_yes, questions.take_code = self._take_yes, self._take_code

    def begin(self, request: ApprovalRequest) -> None:
        """Try a cell, or the code that is to run instead. Nothing else is tried."""
        if is_tried(request):
            self._start(self._try(request))

    async def _try(self, request: ApprovalRequest) -> None:
        code = self._questions.changed_code(request)
        effects = await request.effects_ready(code)
        if request in self._questions.waiting and code == self._questions.changed_code(request):
            self._show(request, effects)

    def _take_code(self, request: ApprovalRequest) -> bool:
        """Whether changed code is tried and asked about; where nothing can be tried, it runs."""
        if (effects := request.effects) is not None and not are_seen(effects):
            return False
        self._questions.shows_again(request)
        self.begin(request)
        return True

    def _take_yes(self, request: ApprovalRequest, decision: Decision) -> bool:
        """Whether the yes is looked at first: the person has seen effects."""
        seen = request.effects
        if not isinstance(request.call, CodeAction) or not are_seen(seen):
            return False
        if request.request_id not in self._checked:
            self._checked.add(request.request_id)
            self._start(self._decide(request, decision, seen))
        return True

    async def _decide(self, request: ApprovalRequest, decision: Decision, seen: Effects) -> None:
        """Decide, unless the cell would now do something else than the person has seen: that is shown, and asked again."""
        try:
            now = await seen_otherwise(request, decision, seen)
            if request not in self._questions.waiting:
                return
            if now is not None:
                self._questions.shows_again(request)
                self._show(request, now)
                return
            if not request.decide(decision) and decision.code is not None:
                self._note(CLOSED)
            self._questions.withdraw(request.request_id)
            self._show(request, seen)
        except ValueError as error:  # the pattern is none: the question stays open
            self._note(str(error))
        finally:
            self._checked.discard(request.request_id)
