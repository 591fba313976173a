"""`Head`: an action in people's words, in one line: `Python  count rows per file`, `Shell  git log`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from freeact_sub import cells
from freeact_sub import events as ev
from freeact_sub.calls import (
    Call,
    CodeAction,
    FanOut,
    FileWrite,
    McpCall,
    SavedVariables,
    ShellCommand,
    SpawnCall,
    ToolCall,
)
from freeact_sub.show.wording import asked_text, tool_words
from freeact_sub.text import command_title, counted, one_line, own_title, prompt_title, value_text, visible

if TYPE_CHECKING:
    from freeact_sub.show.agent_story import AgentStory
    from freeact_sub.show.blocks import CallStep

WORDS_CHARS: Final = 100
ONE_LINE_CHARS: Final = 72
"""Characters up to which a cell of one line is shown in its head, without a body."""
ARGUMENT_CHARS: Final = 40


@dataclass(frozen=True, kw_only=True)
class Head:
    """One action."""

    kind: str
    """`Python`, `Child`, `Shell`, or the name of the called tool."""
    words: str = ""
    code: str = ""
    """The code below it, as Python; safe to show."""
    is_title: bool = False
    """Whether the words only name the code, which stands below in full: they may be cut to the width."""

    @property
    def text(self) -> str:
        """Kind and words in one line."""
        return f"{self.kind}  {self.words}".rstrip()


def head_of_call(call: Call) -> Head:
    """Return the head of an action that may need approval."""
    match call:
        case CodeAction():
            return _python(call)
        case ShellCommand():
            return Head(kind="Shell, outside the sandbox" if call.outside else "Shell", words=command_title(call.command))
        case FileWrite():
            return Head(kind=call.operation.capitalize(), words=_line(call.path))
        case McpCall():
            return Head(kind=_called(f"{call.server}.{call.tool}", call.args))
        case SpawnCall():
            return _child(call.description, call.prompt)
        case FanOut():
            return Head(kind="Many requests", words=_line(call.summary))
        case SavedVariables():
            return Head(kind="Saved variables", words=_line(call.variables))
        case ToolCall():
            return _tool(call.tool_name, call.args)
        case _:
            return Head(kind=call.kind.capitalize(), words=_line(call.text))


def head_of(request: ev.ApprovalRequest | ev.QuestionRequest) -> str:
    """Return a request in one line. A cell is named by its code: people judge that, not its title."""
    if isinstance(request, ev.QuestionRequest):
        return _line(asked_text(request))
    call = CodeAction(code=request.call.code) if isinstance(request.call, CodeAction) else request.call
    return head_of_call(call).text


def tells_all(call: Call) -> bool:
    """Return whether the head tells the whole call. A child's does: the child asks before its own actions."""
    words = head_of_call(CodeAction(code=call.code) if isinstance(call, CodeAction) else call)
    match call:
        case SpawnCall():
            return True
        case CodeAction():
            return not words.code and words.words == visible(call.code).strip()
        case ShellCommand():
            return words.words == visible(call.command).strip()
        case FileWrite():
            return words.words == visible(call.path)
        case McpCall() | ToolCall():
            values = [value_text(value) for value in call.args.values()]
            return "…" not in words.text and all(one_line(visible(text), ARGUMENT_CHARS) == text for text in values)
        case _:
            return False


def head_of_tool(event: "ev.ToolCallStarted | CallStep") -> Head:
    """Return the head of a call of a tool."""
    args = event.args
    match event.tool_name:
        case cells.CELL_TOOL if isinstance(args.get("code"), str):
            return _python(CodeAction(code=args["code"], description=event.label))
        case "task":
            return _child(event.label or str(args.get("description") or ""), str(args.get("prompt") or ""))
        case "delegate":
            tasks = args.get("subtasks")
            return Head(kind="Plan", words=counted(len(tasks), "subtask") if isinstance(tasks, list) else "")
        case "reset_kernel":
            return Head(kind="New kernel")
        case "ask_user":
            return Head(kind="Question", words=_line(_asked(args)))
        case _:
            return _tool(event.tool_name, args)


def doing(view: "AgentStory") -> str:
    """Return an agent's activity in a few words; empty once it has ended."""
    if not view.is_running:
        return ""
    if view.questions:
        return f"asks: {head_of(next(iter(view.questions.values())))}"
    if view.calls:
        more = f" (and {len(view.calls) - 1} more)" if len(view.calls) > 1 else ""
        return f"{head_of_tool(view.calls[-1]).text}{view.how_far}{more}"
    if view.pause:
        return view.pause
    return {"writing": "writing", "thinking": "thinking"}.get(view.writes, "waiting for the model")


def _python(call: CodeAction) -> Head:
    """Return a cell below its title. A short line needs none; a line that is the title stands there once."""
    lines, title = visible(call.code).strip("\n").split("\n"), call.title
    first = lines[0].strip()
    if len(lines) == 1 and len(first) <= ONE_LINE_CHARS and not own_title(call.description):
        return Head(kind="Python", words=first)
    if title in (first, first.lstrip("# \t").rstrip()):
        return Head(kind="Python", words=title, code="\n".join(lines[1:]).strip("\n"))
    return Head(kind="Python", words=title, code="\n".join(lines), is_title=True)


def _child(description: str, prompt: str) -> Head:
    return Head(kind="Child", words=own_title(description) or prompt_title(prompt))


def _asked(args: dict[str, Any]) -> str:
    questions, form = args.get("questions"), args.get("form")
    asked = (
        [str(one.get("question") or "") for one in questions if isinstance(one, dict)] if isinstance(questions, list) else []
    )
    return " ".join(asked) or (str(form.get("title") or "a form") if isinstance(form, dict) else "")


def _tool(name: str, args: dict[str, Any]) -> Head:
    match name:
        case "ask":  # with its label, which tells parallel ones apart
            label, prompt = (str(args.get(name) or "") for name in ("label", "prompt"))
            return Head(kind="Ask", words=_line(": ".join(filter(None, [one_line(label, ARGUMENT_CHARS), prompt]))))
        case "remember":
            return Head(kind="Note", words=_line(str(args.get("fact") or "")))
        case _:
            return Head(kind=_called(tool_words(name), args))


def _called(name: str, args: dict[str, Any]) -> str:
    values = (f"{one_line(key, ARGUMENT_CHARS)}={_value(value)}" for key, value in args.items())
    return one_line(f"{one_line(name)}({', '.join(values)})", WORDS_CHARS)


def _value(value: Any) -> str:
    shown = one_line(value_text(value), ARGUMENT_CHARS)
    return repr(shown) if isinstance(value, str) else shown


def _line(text: str) -> str:
    return one_line(visible(text), WORDS_CHARS)
