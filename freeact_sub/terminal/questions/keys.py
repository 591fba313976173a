"""`DecisionKeys` answers the open question by single keys; with `TriedCells` a yes counts only for what was seen."""

import asyncio
import os
import shlex
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from freeact_sub import events as ev
from freeact_sub.calls import CodeAction
from freeact_sub.show.effect_lines import are_seen, is_tried, seen_otherwise
from freeact_sub.show.questions import Questions
from freeact_sub.show.wording import cheaper_models
from freeact_sub.terminal.surface import Purpose, Surface

CLOSED = "the question has closed: your code did not run"
REMEMBER: dict[str, ev.Remember] = {"a": "session", "p": "project"}


class DecisionKeys:
    """Answers the current question of `Questions`."""

    def __init__(
        self,
        questions: Questions,
        screen: Surface,
        note: Callable[[str], None],
        list_whole: Callable[[Sequence[ev.ApprovalRequest]], None] = lambda _: None,
    ) -> None:
        """Makes them.

        Args:
            questions: One of them is open.
            screen: Lends its line.
            note: Prints a note for the person.
            list_whole: Prints the whole calls of several questions.
        """
        self._questions = questions
        self._list_whole = list_whole
        self._screen = screen
        self._note = note

    def press(self, key: str) -> bool:
        """Handles one key; returns False if it is the beginning of a text."""
        request = self._questions.waiting[0]
        if key == "→":
            self._questions.next()
            return True
        if isinstance(request, ev.QuestionRequest):
            filling = self._questions.filling
            if filling is not None and filling.field.kind == "boolean" and key in ("y", "n"):
                return self._questions.answer(key)
            if filling is None or key not in ("←", "↑", "↓"):
                return False
            return filling.back() if key == "←" else filling.move(-1 if key == "↑" else 1)
        if self._questions.asks_back:
            return key in ("y", "n") and self._questions.answer(key)
        return self._decided(request, key)

    def _decided(self, request: ev.ApprovalRequest, key: str) -> bool:
        match key:
            case "y" | "n":
                self._decide(request, ev.Decision(allowed=key == "y"))
            case "a" | "p":
                self._always(request, REMEMBER[key])
            case "r":
                self._screen.line.lend("reason")
            case "e":
                self._edit(request)
            case "A":
                self._allow_all(request)
            case "?":
                self._note(f"why it asks: {request.reason}")
            case _ if key.isdecimal() and len(key) == 1 and 0 < int(key) <= len(models := cheaper_models(request)):
                self._decide(request, ev.Decision(allowed=True, model=models[int(key) - 1]))
            case _:
                return False
        return True

    def written(self, purpose: Purpose, text: str) -> None:
        """Handles the text that the person wrote for a question; an empty one cancels it."""
        request = self._questions.current
        if not isinstance(request, ev.ApprovalRequest) or not text.strip():
            return
        if purpose == "reason":
            self._decide(request, ev.Decision(allowed=False, reason=text.strip()))
        else:
            self._run_instead(request, text)

    def _decide(self, request: ev.ApprovalRequest, decision: ev.Decision) -> None:
        self._questions.decide(request, decision)

    def _always(self, request: ev.ApprovalRequest, remember: ev.Remember) -> None:
        if request.suggested:
            self._decide(request, ev.Decision(allowed=True, remember=remember))
        else:
            self._note("such calls need an answer each time: y or n")

    def _allow_all(self, request: ev.ApprovalRequest) -> None:
        """Allows the calls that the person has before them. If there are others, they are listed first."""
        at_once = self._questions.answered_by_one_key
        if not at_once and len(approvals := self._questions.approvals) > 1:
            self._list_whole([other for other in approvals if other is not request])
        for approval in at_once or ([request] if len(self._questions.approvals) == 1 else []):
            self._decide(approval, ev.Decision(allowed=True))

    def _edit(self, request: ev.ApprovalRequest) -> None:
        if not isinstance(request.call, CodeAction):
            self._note("only code can be edited before it runs")
            return
        code = self._questions.changed_code(request) or request.call.code
        if _editor():
            self._screen.start(self._edit_outside(request, code))
        else:
            self._screen.line.lend("code", code)

    async def _edit_outside(self, request: ev.ApprovalRequest, code: str) -> None:
        changed = await _edited(code, self._screen.run_outside)
        if changed is None:
            self._note("the editor ($VISUAL, $EDITOR) did not start, or left no readable file")
        elif changed.strip() and changed.strip() != code.strip():
            self._run_instead(request, changed)

    def _run_instead(self, request: ev.ApprovalRequest, code: str) -> None:
        if not self._questions.run_instead(request, code.strip("\n")):
            self._note(CLOSED)


def _editor() -> list[str]:
    """The person's editor as a command; empty if none is set."""
    words = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        return shlex.split(words)
    except ValueError:  # a quotation mark is left open: no program has that name, which is then told
        return [words]


async def _edited(code: str, run: Callable[[Sequence[str]], Awaitable[bool]]) -> str | None:
    """Lets the person change code in their editor, which `run` starts; returns None if that fails."""
    with tempfile.TemporaryDirectory(prefix="freeact-sub-") as folder:
        file = Path(folder) / "edit.py"
        await asyncio.to_thread(file.write_text, code, encoding="utf-8", errors="surrogatepass")
        if not await run([*_editor(), str(file)]):
            return None
        try:
            return await asyncio.to_thread(file.read_text, encoding="utf-8", errors="surrogatepass")
        except (OSError, UnicodeDecodeError):
            return None


class TriedCells:
    """Tries the cells of `Questions`, and the code that a person would rather run; takes the yes to them."""

    def __init__(
        self,
        questions: Questions,
        start: Callable[[Coroutine[Any, Any, None]], None],
        show: Callable[[ev.ApprovalRequest, ev.Effects], None],
        note: Callable[[str], None],
    ) -> None:
        """Args: start: lets work run until the end of the screen. show: shows the effects of a question's last trial."""
        self._questions, self._start, self._show, self._note = questions, start, show, note
        self._checked: set[str] = set()
        """Questions whose answer is known, if what the person saw still holds."""
        questions.take_yes, questions.take_code = self._take_yes, self._take_code

    def begin(self, request: ev.ApprovalRequest) -> None:
        """Try a cell, or the code that is to run instead. Nothing else is tried."""
        if is_tried(request):
            self._start(self._try(request))

    async def _try(self, request: ev.ApprovalRequest) -> None:
        code = self._questions.changed_code(request)
        effects = await request.effects_ready(code)
        if request in self._questions.waiting and code == self._questions.changed_code(request):
            self._show(request, effects)

    def _take_code(self, request: ev.ApprovalRequest) -> bool:
        """Whether changed code is tried and asked about; where nothing can be tried, it runs."""
        if (effects := request.effects) is not None and not are_seen(effects):
            return False
        self._questions.shows_again(request)
        self.begin(request)
        return True

    def _take_yes(self, request: ev.ApprovalRequest, decision: ev.Decision) -> bool:
        """Whether the yes is looked at first: the person has seen effects."""
        seen = request.effects
        if not isinstance(request.call, CodeAction) or not are_seen(seen):
            return False
        if request.request_id not in self._checked:
            self._checked.add(request.request_id)
            self._start(self._decide(request, decision, seen))
        return True

    async def _decide(self, request: ev.ApprovalRequest, decision: ev.Decision, seen: ev.Effects) -> None:
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
