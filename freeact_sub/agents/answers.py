"""Answers: their types, and the check that a response is a whole one.

A typed answer is pydantic-ai's `output_type`: the model calls the tool `hand_over`.

`AnswerCheck` decides whether a response that would end a run is a complete answer.

- A response that was cut off is not. The model is asked once to continue, and the parts are joined; for a value, which
  cannot be joined, it is asked once for a shorter one. A second cut ends the run as `limit`, with the partial answer.
- A response that the provider stopped (content filter, an internal error) ends the run as `failed`.
- After an empty text the model is asked once more; a second one fails the run. For small models the same holds for calls and
  code that they have written as text. Both are recognised by their form, as `models/blocks.py` reads it; what a text says
  in words is never looked at.
"""

import re
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import StructuredDict, ToolOutput
from pydantic_ai.exceptions import ModelRetry, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart

from freeact_sub.agents.life import TreeAgent
from freeact_sub.cells import CELL_TOOL
from freeact_sub.errors import ConfigError, FreeactError, InvalidRequestError, LimitReachedError
from freeact_sub.kernels import block_type
from freeact_sub.models.arguments import Schemas, parse_python
from freeact_sub.models.blocks import FencedBlock, Prose, has_python, holds_calls, read_spans
from freeact_sub.models.code_actions import acts_by_blocks, profile_of, text_of
from freeact_sub.modes import NoAnswer
from freeact_sub.text import one_line

NAME: Final = "hand_over"
DESCRIPTION: Final = "Hand over your answer. This ends your work."
OF_PYDANTIC_AI: Final = "final_result"
"""The name that pydantic-ai gives the tool."""
CANNOT: Final = (
    "Say that you cannot give the answer, and why, when what you need is missing: instead of an answer that you made up. "
    "This ends your work."
)
GO_ON: Final = (
    "Your reply was cut off: it was longer than you may write at once. If it was your answer, go on exactly where it "
    "breaks off, and repeat nothing: the parts are joined. A call or a block that was cut off was not run: make it again, "
    "in smaller pieces."
)
SHORTER: Final = (
    "Your reply was cut off: it was longer than you may write at once. Nothing at its end counts. Reply again, and be "
    "shorter; make a long call in smaller pieces."
)
MORE: Final = "a larger model_settings.max_tokens may help"
REPORT_CUT: Final = "the last report was cut off: it was longer than the model may write"


def check_output(output: Any, call: str) -> Any:
    """Return the type of an answer as it is.

    Raises:
        InvalidRequestError: The output is a value, such as the name of a type, or a type that no answer can have.
    """
    if isinstance(output, str | bytes | int | float | Mapping | BaseModel):
        raise InvalidRequestError(f"{call}: output is a type, such as `int` or a pydantic model, not {output!r:.60}")
    if output is not str and not block_type(output):
        try:
            PydanticAgent(output_type=output)
        except Exception as error:  # border: pydantic fails in many ways on what is no type
            why = one_line(str(error).partition(". ")[0], 200) or type(error).__name__
            raise InvalidRequestError(f"{call}: output is a type, of which an answer can be made: {why}") from error
    return output


def output_tool(
    answer_type: Any,
    check: Callable[[Any], Awaitable[str]],
    value_of: Callable[[dict[str, Any]], Any] = lambda answer: answer,
) -> Any:
    """Return the output type for answers of a type.

    Args:
        answer_type: pydantic-ai's type of the tool's argument.
        check: Returns what is wrong with a value, empty if nothing is. The model must correct a wrong answer.
        value_of: Extracts the value from the argument.
    """

    async def hand_over(answer: dict[str, Any]) -> Any:
        value = value_of(answer)
        if problem := await check(value):
            raise ModelRetry(f"The answer does not have the requested type: {problem}")
        return value

    hand_over.__annotations__["answer"] = answer_type
    return ToolOutput(hand_over, name=NAME, description=DESCRIPTION)


def schema_output_type(schema: Mapping[str, Any]) -> Any:
    """Return the output type for the JSON schema of an object, which the host validates.

    Schemas from code in a kernel do not come here: matching a pattern can take for ever.

    Raises:
        ConfigError: `schema` is not the JSON schema of an object.
    """
    import jsonschema  # noqa: PLC0415  # slow to import, and few agents have such a schema
    from referencing import Registry  # noqa: PLC0415

    validator_type = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        validator_type.check_schema(schema)
        structured = StructuredDict(dict(schema))
    except jsonschema.SchemaError as error:
        raise ConfigError(f"it is not a JSON schema: {error.message}") from error
    except (UserError, RecursionError) as error:
        raise ConfigError(str(error)) from error
    validator = validator_type(schema, registry=Registry())  # empty: no schema is fetched from anywhere

    async def check(answer: dict[str, Any]) -> str:
        problems = [f"{error.json_path}: {error.message}"[:500] for error in validator.iter_errors(answer)]
        return "; ".join(problems[:5])

    return output_tool(structured, check)


@dataclass(frozen=True)
class Refusal:
    """The answer of a child that cannot give one of the requested type."""

    reason: str

    @property
    def sentence(self) -> str:
        """Sentence on why the run has failed."""
        return f"it cannot give the answer: {self.reason}"


def or_refusal(output_type: Any) -> Any:
    """Return the output type of a child that may refuse: a value of this type, or the reason why it gives none."""
    if isinstance(output_type, type) and not issubclass(output_type, str):
        output_type = ToolOutput(output_type, name=OF_PYDANTIC_AI)
    if not isinstance(output_type, ToolOutput):
        return output_type  # a text can say why, and in other forms there is no place for it
    return [output_type, ToolOutput(cannot_answer, name="cannot_answer", description=CANNOT)]


async def cannot_answer(reason: str) -> Refusal:
    """Return the refusal of a model that gives this reason."""
    return Refusal(reason)


def by_value(output_type: Any, take: Callable[[str, Any], Awaitable[Any]]) -> Any:
    """Return the output type for frames and arrays, for which the model names a variable; any other type as it is.

    Args:
        output_type: The type of the answer.
        take: Takes a variable of the agent's kernel that has this type.
    """
    if not (name := block_type(output_type)):
        return output_type

    async def hand_over(variable: str) -> Any:
        try:
            return await take(variable, output_type)
        except FreeactError as error:
            raise ModelRetry(f"The answer does not have the requested type: {error}") from error

    description = f"{DESCRIPTION} Name the variable in your kernel that holds it, a {name}."
    return ToolOutput(hand_over, name=NAME, description=description)


def answers_of(agent: TreeAgent, *, texts: bool) -> "AnswerCheck":
    """Return the check for a run of an agent. Args: texts: its answer is a text."""
    no_answer = agent.shared.config.answer_check
    return AnswerCheck(
        no_answer=lambda: no_answer or ("small" if profile_of(agent.model) == "small" else "empty"),
        blocks=lambda: acts_by_blocks(agent.model),
        texts=texts,
    )


@dataclass(kw_only=True)
class AnswerCheck:
    """The check of one run's responses, in order."""

    no_answer: Callable[[], NoAnswer] = lambda: "empty"
    """A function that tells which texts do not count as an answer; called for each response."""
    blocks: Callable[[], bool] = lambda: False
    """A function that tells whether blocks of Python are actions; called for each response."""
    texts: bool = True
    """Whether the answer is a text; a value is validated by its type."""
    warnings: list[str] = field(default_factory=list)
    """Sentences for people about the answer."""
    _parts: list[str] = field(default_factory=list, init=False)
    """The parts of an answer that was cut off, or of the final one."""
    _cut: bool = field(default=False, init=False)
    """Whether the last response was cut off, so that the model continues it."""
    _asked: bool = field(default=False, init=False)
    """Whether the model got its task again, because it had given no answer."""
    _answered: bool = field(default=False, init=False)
    """Whether the last response was an answer. If the run continues all the same, somebody has sent a message."""

    @property
    def so_far(self) -> str:
        """The joined parts of an answer that was cut off; empty if there are none."""
        return "".join(self._parts)

    def whole(self, output: Any) -> Any:
        """Return the answer of a run that ended by itself, with its earlier parts."""
        return self.so_far if self._parts and isinstance(output, str) else output

    def reset(self) -> None:
        """Drop the parts of an answer before a request for a new one."""
        self._parts, self._cut, self._asked, self._answered = [], False, False, False
        self.warnings.clear()

    def check(
        self, response: ModelResponse, tools: Schemas | None = None, messages: Sequence[ModelMessage] = ()
    ) -> FreeactError | None:
        """Check a response.

        Args:
            response: The model's response.
            tools: The tools that it may call.
            messages: The conversation before it.

        Returns:
            The reason why the run must end with this response, if it must.

        Raises:
            ModelRetry: The model must be asked once more.
        """
        if self._answered:
            self.reset()
        text = text_of(response.parts)
        stopped = _why_stopped(response)
        if stopped is not None:
            self._parts += [text] if text else []
            return stopped
        if response.tool_calls:  # the run continues
            self._parts, self._cut, self._asked = [], False, False
            return None
        if response.finish_reason == "length":
            return self._check_piece(text)
        if self._parts and not text.strip():
            return LimitReachedError("output", why=f"the reply was cut off, and the model did not go on; {MORE}")
        self._cut = False
        if not self.texts:
            return None
        self._parts += [text] if self._parts and text else []
        problem = self._check_whole(self.so_far or text, tools or {}, messages)
        self._answered = bool(text)
        return problem

    def keep_piece(self, response: ModelResponse) -> None:
        """Keep the text of a response that the budget cut off and that ends the run.

        Raises:
            ModelRetry: The response has neither text nor calls, so the model may still report.
        """
        if self._answered:
            self.reset()
        text = text_of(response.parts)
        if self.texts and text and not response.tool_calls:
            self._parts.append(text)
        elif not text and not response.tool_calls:
            raise ModelRetry(SHORTER)

    def _check_piece(self, text: str) -> FreeactError | None:
        if self.texts and text:
            self._parts.append(text)
        if self._cut:
            return LimitReachedError("output", why=f"the reply was cut off, and so was the next one; {MORE}")
        self._cut = True
        raise ModelRetry(GO_ON if self.texts and text else SHORTER)

    def _check_whole(self, text: str, tools: Schemas, messages: Sequence[ModelMessage]) -> FreeactError | None:
        problem: Problem | None = EMPTY if is_empty(text) else None
        if problem is None and self.no_answer() == "small":
            problem = problem_with(text, tools, messages)
        if problem is None and len(self._parts) > 1 and self.blocks() and has_python(text):
            problem = SHOWN  # the model wrote the rest of an action that was cut off, instead of the whole
        if problem is None:
            return None
        if not self._asked:
            self._asked, self._parts = True, []
            raise ModelRetry(problem.advice)
        return FreeactError(f"the model gave no answer, even when asked again: {problem.what}")

    def check_report(self, response: ModelResponse) -> None:
        """Warn if the last report of a run is incomplete."""
        stopped = _why_stopped(response)
        if response.finish_reason == "length":
            self.warnings.append(REPORT_CUT)
        elif stopped is not None:
            self.warnings.append(f"the last report is not whole: {stopped}")


def _why_stopped(response: ModelResponse) -> FreeactError | None:
    details = response.provider_details or {}
    reason = details.get("refusal") or details.get("block_reason") or details.get("finish_reason")
    detail = f": {reason}" if isinstance(reason, str) and reason not in ("content_filter", "error") else ""
    match response.finish_reason:
        case "content_filter":
            return FreeactError(f"the provider's content filter stopped the answer{detail}")
        case "error" if response.text:  # without a detail ask once more: the call may merely have been malformed
            return FreeactError(f"the provider broke the answer off with an error of its own{detail}")
    return None


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A reason why a text is no answer."""

    what: str
    """Text for people; continues "the model gave no answer: "."""
    advice: str
    """Text for the model."""


EMPTY: Final = Problem(
    what="its reply was empty",
    advice="You gave no answer. Take the next step, or answer with what you have found.",
)
WRITTEN: Final = Problem(
    what="it wrote a call of a tool as text and made none",
    advice="You wrote a call of a tool as text, and text is not run. Make the call in the way that you were told of, or "
    "answer with the result itself.",
)
SHOWN: Final = Problem(
    what="it wrote code as text and did not run it",
    advice="Nobody has run the code that you wrote as text. Run it now, by a tool call or, if you have no tools, in a "
    "block that is marked ```python. Or answer with the result itself, in words.",
)
SHOWN_AGAIN: Final = Problem(
    what="it wrote code that had run already, and no result",
    advice="You wrote code that has run already. Answer in plain text, without code, with what it has shown.",
)

FEW_WORDS: Final = 10
"""Words beside code that are enough for an answer."""
CALL_WORDS: Final = 30
"""Words beside the call of a tool that are enough for an answer."""

_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})\w*[ \t\r]*$", re.MULTILINE)
_INVISIBLE: Final = ("Cc", "Cf")
"""Categories of invisible characters, such as the zero-width space and the byte order mark."""
_TAGGED = re.compile(r"<(tool_call|tools|tool|function_call)>(.*?)(?:</\1>|\Z)", re.DOTALL)


def is_empty(text: str) -> bool:
    """Return whether a text is empty; an empty fenced block counts as empty."""
    return all(char.isspace() or unicodedata.category(char) in _INVISIBLE for char in _FENCE.sub("", text))


def problem_with(text: str, tools: Schemas, messages: Sequence[ModelMessage] = ()) -> Problem | None:
    """Return why a text that ends a small model's run is not an answer; None if it is one.

    Args:
        text: The text.
        tools: The tools that the model may call.
        messages: The conversation before it.
    """
    if is_empty(text):
        return EMPTY
    if tools and _is_call(text, tools):
        return WRITTEN
    return _problem_of_code(text, messages) if CELL_TOOL in tools else None


def _is_call(text: str, tools: Schemas) -> bool:
    """Return whether a text is little more than a call of a tool."""
    return any(holds_calls(body, tools) and len(text.replace(raw, " ").split()) < CALL_WORDS for raw, body in _bodies(text))


def _bodies(text: str) -> list[tuple[str, str]]:
    """Return the parts that may be calls (tagged parts, blocks, the whole text), each with and without its marks."""
    tagged = [(match[0], match[2]) for match in _TAGGED.finditer(text)]
    blocks = [(span.raw, span.code) for span in read_spans(text) if isinstance(span, FencedBlock)]
    return [*tagged, *blocks, (text, text.strip())]


def _problem_of_code(text: str, messages: Sequence[ModelMessage]) -> Problem | None:
    """Detect a text that is code, run or not, with hardly a word besides."""
    spans = read_spans(text)
    codes = [span.code for span in spans if isinstance(span, FencedBlock) and (span.is_python or _is_unmarked_code(span))]
    beside = "".join(span.raw for span in spans if isinstance(span, Prose))
    if not codes or len(beside.split()) >= FEW_WORDS:
        return None
    return SHOWN_AGAIN if _normalized("\n\n".join(codes)) in _codes_run(messages) else SHOWN


def _is_unmarked_code(block: FencedBlock) -> bool:
    """Return whether a block without a language is code rather than output: it must do something."""
    does = re.search(r"[(=]|^import |^from ", block.code) is not None
    return not block.language and does and parse_python(block.code) is not None


def _codes_run(messages: Sequence[ModelMessage]) -> set[str]:
    """Return the cells that have run since the newest prompt, in the form of `_normalized`."""
    sent: dict[str, str] = {}
    run: set[str] = set()
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, UserPromptPart):
            run = set()
        elif isinstance(part, ToolCallPart):
            sent[part.tool_call_id] = _normalized(str(part.args_as_dict().get("code", "")))
        elif isinstance(part, ToolReturnPart):
            run |= {sent.get(part.tool_call_id, "")} - {""}
    return run


def _normalized(code: str) -> str:
    lines = (re.sub(r"(?:^|\s+)#[^'\"]*$", "", line).rstrip() for line in code.splitlines())
    return "\n".join(line for line in lines if line)
