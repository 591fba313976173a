"""`UnmadeCalls`: a call of the model that no tool is run for counts as well, and is announced and reported.

No tool has its name, or its arguments are not valid. pydantic-ai answers such a call by itself, and calls no hook that would
know its answer: it stands in the history.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart

from freeact_sub.agents.turn.turns import Turns
from freeact_sub.errors import LimitReachedError
from freeact_sub.events import ToolCallStarted, ToolOutput


@dataclass(kw_only=True)
class UnmadeCalls:
    """The calls of the latest response of a run for which no tool has been run so far."""

    turns: Turns
    _left: list[ToolCallPart] = field(default_factory=list)
    _outputs: Collection[str] = ()
    """Names of the tools that hand over an answer, which are no calls."""
    _is_told: bool = True
    """The answers to the calls of the latest response are reported."""

    def responded(self, response: ModelResponse, outputs: Collection[str]) -> None:
        """A response has come. Args: outputs: names of the tools that hand over an answer, which are no calls."""
        self._left = [call for call in response.tool_calls if call.tool_name not in outputs]
        self._outputs, self._is_told = outputs, False

    def made(self, call_id: str) -> None:
        """A tool is run for a call, and `ToolCalls` tells of it."""
        self._take(call_id)

    def tell(self, messages: Sequence[ModelMessage]) -> None:
        """Count and report the calls that the newest message answers, before the run continues. At a limit, it must end."""
        if self._is_told or not messages or not isinstance(messages[-1], ModelRequest):
            return
        self._is_told = True
        for part in messages[-1].parts:
            if isinstance(part, ToolReturnPart) and part.outcome == "retried" and part.tool_name not in self._outputs:
                self._report(part)

    def end(self, messages: Sequence[ModelMessage], error: str = "") -> None:
        """The same when the run has ended. Args: error: why it could not answer the rest; empty: it has answered all."""
        limit = self.turns.ended
        self.tell(messages)
        while error and self._left:
            call = self._left[0]
            self._report(ToolReturnPart(call.tool_name, error, call.tool_call_id))
        self.turns.ended = limit  # what has ended cannot end at a limit

    def _report(self, answer: ToolReturnPart) -> None:
        emitter, call = self.turns.agent.emitter, self._take(answer.tool_call_id)
        if call is not None:  # otherwise it was run, and its tool has asked for another try
            started = ToolCallStarted(tool_name=call.tool_name, args=call.args_as_dict())
            emitter.put(started, tool_call_id=call.tool_call_id)
            try:
                self.turns.agent.run.account.take_tool_call()
            except LimitReachedError as error:
                self.turns.end(error)
        text = answer.model_response_str(wrap_if_error=False)
        output = ToolOutput(tool_name=answer.tool_name, content=text, outcome="retried")
        emitter.put(output, tool_call_id=answer.tool_call_id)

    def _take(self, call_id: str) -> ToolCallPart | None:
        call = next((call for call in self._left if call.tool_call_id == call_id), None)
        if call is not None:
            self._left.remove(call)
        return call
