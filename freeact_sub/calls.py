"""Actions that an agent is about to take, as values that rules and people judge.

Every action that may need approval is one of these. People see them as they are, so they hold real values and never a
reference to something that could change after the answer. `Action` says what each kind of them defines.

This is the one list of their kinds: patterns, typed answers, the command line and the front ends read it. A new kind is a
class here and in `Call`; a row in the mode table (`approvals/policy.py`) for its topic; and the code that makes such a call.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from freeact_sub.config.budget import Budget
from freeact_sub.modes import History, Mode, Thinking
from freeact_sub.text import (
    arguments_text,
    code_title,
    counted,
    dollars_spread,
    duration,
    own_title,
    short_number,
    visible,
    whole_line,
)

FileOperation: TypeAlias = Literal["write", "append", "create", "rename", "remove", "link", "change"]
"""An operation on a file. `change`: of permissions, owner or times. A rename is two writes, of the old and the new name."""

Topic: TypeAlias = str
"""The topic of a mode's decision, by its name in `BY_MODE` (`approvals/policy.py`)."""


class Action(ABC):
    """The common part of all kinds of calls."""

    form: ClassVar[str]
    """The form on the command line."""
    main: ClassVar[str] = ""
    """The field that this text fills and that a person judges."""
    whole: ClassVar[bool] = False
    """Whether rules decide the call as a whole: a glob over code or a prompt would judge by words."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a text of this form.

        Raises:
            ValueError: The text does not have this form.
        """
        make: Callable[..., Self] = cls
        return make(**{cls.main: text})

    @property
    @abstractmethod
    def summary(self) -> str:
        """The question in one sentence; not sanitised: it may be long and contain any character."""

    @property
    @abstractmethod
    def question(self) -> str:
        """The question in one line that follows the agent's name; nothing is cut or hidden."""

    @property
    def text(self) -> str:
        """The text that a person judges, in full; nothing is cut or hidden."""
        return visible(getattr(self, self.main))

    @property
    def subject(self) -> str:
        """The texts that rules' globs match. Empty if the call is decided as a whole."""
        return ""

    @property
    def acts_outside(self) -> bool:
        """Whether the call may have an effect besides its result, so that it has to be repeated each time."""
        return True


HARMLESS: Final = "code:harmless"
"""The pattern of rules for cells that change nothing, by their trials."""
MAX_NAME_CHARS: Final = 64
"""The shortest bound on tool names among the model providers."""


@dataclass(frozen=True, kw_only=True)
class FanOut(Action):
    """Many requests to a model, of which a few have run, with a quote for the rest and the bound to agree to."""

    form = "its name"
    main = "what"
    whole = True
    acts_outside = False
    topic: ClassVar[Topic] = "fan-outs"

    kind: Literal["fan_out"] = "fan_out"
    what: str
    """The name, as `map`."""
    more: int = 0
    """The requests or children that are left, corrections not counted."""
    tokens: tuple[float, float, float] = (0, 0, 0)
    """The likely number of tokens, and the bounds around it."""
    cost_usd: tuple[float, float, float] | None = None
    """The likely cost in dollars, and the bounds around it. None: the model's price is not known."""
    seconds: float = 0
    bound: str = ""
    """The bound that an approval agrees to, as `$3.00`; spending ends there."""
    cheaper: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """Models of the setting `models` that would take fewer dollars, by name (`ApprovalRequest.approve`)."""

    @property
    def summary(self) -> str:
        return f"{self.what}: {self.figures}"

    @property
    def question(self) -> str:
        return f"asks to go on with {whole_line(self.what)} within {whole_line(self.bound) or 'the bounds of the run'}"

    @property
    def figures(self) -> str:
        """The figures of the rest, in one sentence."""
        about, low, high = (float(f"{amount:.2g}") for amount in self.tokens)
        figures = [f"about {short_number(about)} tokens ({short_number(low)} to {short_number(high)})"]
        if self.cost_usd is not None:
            figures.append(dollars_spread(self.cost_usd))
        return f"{self.more:,} more: {', '.join([*figures, duration(self.seconds)])}."

    @property
    def text(self) -> str:
        within = f" Run within {visible(self.bound)}?" if self.bound else ""
        others = enumerate(self.cheaper.items(), start=1)
        choices = (f"{number} with {visible(name)}: {dollars_spread(cost)}" for number, (name, cost) in others)
        return "\n".join([f"{visible(self.what)}: {self.figures}{within}", *choices])


@dataclass(frozen=True, kw_only=True)
class CodeAction(Action):
    """Python code that is about to run in the agent's kernel."""

    form = "code"
    main = "code"
    whole = True
    acts_outside = False  # what the code does is judged when it happens
    topic: ClassVar[Topic] = "cells"

    kind: Literal["code"] = "code"
    code: str
    description: str = ""
    """The model's description of the code, for people; no rule reads it."""

    @property
    def title(self) -> str:
        """The purpose of the code in one line: in the model's words, else its first line that tells it."""
        return own_title(self.description) or code_title(self.code)

    @property
    def summary(self) -> str:
        return f"run code: {code_title(self.code)}{_more(self.code)}"  # by the code, because people may answer by it

    @property
    def question(self) -> str:
        title = own_title(self.description)
        return f"asks to run this cell ({title})" if title else "asks to run this cell"


@dataclass(frozen=True, kw_only=True)
class HarmlessCode(CodeAction):
    """A cell whose trial has changed nothing, as rules judge it; people are asked about a `CodeAction`."""

    @property
    def subject(self) -> str:
        return HARMLESS.removeprefix("code:")


@dataclass(frozen=True, kw_only=True)
class ShellCommand(Action):
    """A program that is about to be started, by code in a cell or by the host for the agent."""

    form = "a command"
    main = "command"

    kind: Literal["shell"] = "shell"
    command: str
    """The command as a shell would read it; one started without a shell is quoted to mean the same."""
    cwd: str = ""
    """The working directory. Empty: the workspace."""
    outside: bool = False
    """Whether the host runs the command, without a sandbox; a person is asked in every mode."""
    wall: bool = field(default=False, compare=False, repr=False)
    """Whether the kernel can start the command behind a wall, where it only reads (`kernels/wall/reading.py`)."""
    by_library: bool = field(default=False, compare=False, repr=False)
    """Whether a library starts the command by itself, as the kernel says: for receipts only."""
    purpose: str = ""
    """The purpose of a command that runs outside the sandbox, in the agent's words."""

    @property
    def summary(self) -> str:
        where = f" (in {self.cwd})" if self.cwd else ""
        return f"run{' outside the sandbox' if self.outside else ''}: {_first_line(self.command)}{where}"

    @property
    def question(self) -> str:
        where = f" in {whole_line(self.cwd)}" if self.cwd else ""
        return f"asks to run this command{' OUTSIDE THE SANDBOX' if self.outside else ''}{where}"

    @property
    def text(self) -> str:
        reason = f"\n(the reason that it gives: {visible(self.purpose)})" if self.purpose else ""
        return super().text + reason


@dataclass(frozen=True, kw_only=True)
class FileWrite(Action):
    """A file that is about to be written, renamed, removed or otherwise changed."""

    form = "a path"
    main = "path"

    kind: Literal["write"] = "write"
    path: str
    """The path, absolute or relative to the workspace."""
    operation: FileOperation = "write"
    named: str = ""
    """The code's name of the file, if it goes through a symbolic link. Empty: as `path`."""

    @property
    def summary(self) -> str:
        return f"{self._verb} {self.path}" + (f" (named {self.named})" if self.named else "")

    @property
    def question(self) -> str:
        return f"asks to {self._verb} this file"

    @property
    def _verb(self) -> str:
        return "append to" if self.operation == "append" else self.operation

    @property
    def text(self) -> str:
        return super().text + (f"\n(named {visible(self.named)})" if self.named else "")


@dataclass(frozen=True, kw_only=True)
class NetworkConnect(Action):
    """A connection that is about to be made."""

    form = "HOST:PORT"
    question = "asks to connect to this host"

    kind: Literal["connect"] = "connect"
    host: str
    port: int
    ip: str = ""
    """The resolved address of the host. Empty: not known, or the host itself."""
    others: tuple[str, ...] = ()
    """Further resolved addresses; an answer holds for them too."""

    @classmethod
    def parse(cls, text: str) -> Self:
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"{text!r} is not a host with a port: write HOST:PORT, such as example.org:443")
        return cls(host=host.strip("[]"), port=int(port))

    @property
    def summary(self) -> str:
        return f"connect to {self.address}" + (f" ({self.ip})" if self.ip else "")

    @property
    def text(self) -> str:
        return visible(self.address) + (f" ({visible(self.ip)})" if self.ip else "")

    @property
    def address(self) -> str:
        """`host:port`, with an IPv6 address in brackets."""
        return _address(self.host, self.port)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The `host:port` of the host and, if known, of its address."""
        return (self.address, _address(self.ip, self.port)) if self.ip else (self.address,)


@dataclass(frozen=True, kw_only=True)
class McpCall(Action):
    """A tool of an MCP server, called by the model or by code in the kernel."""

    form = "SERVER/TOOL"

    kind: Literal["mcp"] = "mcp"
    server: str
    tool: str
    args: dict[str, Any] = field(default_factory=dict)
    read_only: bool = False
    """Whether the server says that the tool changes nothing."""

    @classmethod
    def parse(cls, text: str) -> Self:
        server, _, tool = text.partition("/")
        if not tool:
            raise ValueError(f"{text!r} is not a tool of a server: write SERVER/TOOL")
        return cls(server=server, tool=tool)

    @property
    def summary(self) -> str:
        return f"MCP {self.server}.{self.tool}({_arguments(self.args)})"

    @property
    def question(self) -> str:
        return f"asks to call {whole_line(self.tool)} of the MCP server {whole_line(self.server)}"

    @property
    def text(self) -> str:
        return arguments_text(self.args)

    @property
    def subject(self) -> str:
        return f"{self.server}/{self.tool}"

    @property
    def acts_outside(self) -> bool:
        return not self.read_only

    @property
    def topic(self) -> Topic:
        """The topic under which a mode decides on it."""
        return "MCP calls that only read" if self.read_only else "MCP calls"


@dataclass(frozen=True)
class InCell:
    """A choice for a child in `help(agent.task)`."""

    form: str
    """The type, as Python writes it."""
    text: str


def _flag(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):  # models write so now and then
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError("it is True or False")  # noqa: TRY004  # pydantic's way to say so
    return value


def _exchanges(history: History) -> History:
    if isinstance(history, bool):
        raise ValueError("it is 'none', 'all' or the number of the last exchanges")  # noqa: TRY004  # pydantic's way to say so
    return history


Named: TypeAlias = Annotated[str | None, BeforeValidator(lambda name: name or None), WithJsonSchema({"type": "string"})]
"""A name that may be left out. A model may write an empty text for that."""


Flag: TypeAlias = Annotated[bool, BeforeValidator(_flag)]


class ChildChoices(BaseModel):
    """All that may be chosen for a child, whoever starts it: its parent's model, code in a cell, or a program.

    This is the one list of choices. The arguments of the tool `task` and the signature of `agent.task` in cells are made
    from it; an agent holds its own, and a session keeps them. Models read the description of a field.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    description: Annotated[str, InCell("str | None", "A label of a few words.")] = Field(
        default="", description="Three to five words, shown to people."
    )
    agent: Annotated[Named, InCell("str | None", "A named agent type.")] = Field(
        default=None, description="A named type of child, if any are listed."
    )
    """The type. None: the parent's."""
    model: Annotated[
        Any,
        BeforeValidator(lambda model: model or None),
        WithJsonSchema({"type": "string"}),
        InCell(
            "str | None",
            "A name of the setting `models`, or `inherit`: this agent's. None: its type's, or the setting's default.",
        ),
    ] = Field(default=None, description="A listed model, or inherit: yours.")
    """The model: a name; from a program also a `Model` of pydantic-ai. None: the type's, else that of `subagents.model`,
    else the parent's."""
    thinking: Annotated[
        Thinking | None,
        InCell(
            "str | None",
            "How much its model thinks: `off`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`. None: as here.",
        ),
    ] = Field(default=None, description="How much it thinks.")
    """The amount of thinking. None: the type's, else the parent's."""
    history: Annotated[
        Literal["none", "all"] | Annotated[int, Field(ge=0)],
        BeforeValidator(_exchanges),
        AfterValidator(lambda history: history or "none"),
        InCell(
            "str | int",
            "What the child reads of this conversation before its task (with `branch_of`: of the node's): `none`, `all`, or "
            "the number of the last exchanges, each a prompt with all that followed it.",
        ),
    ] = Field(default="none", description="What it reads of this conversation; N: the last N exchanges.")
    tools: Annotated[
        tuple[str, ...] | None,
        InCell(
            "list[str] | None",
            "The only tools of the child, in code as well, and of all below it, out of those of this agent; `*` matches any "
            "characters, and the tools of an MCP server are `SERVER_TOOL`. None: all.",
        ),
    ] = Field(default=None, description="Its only tools, of yours.")
    """The tools. None: all that the child would have."""
    mode: Annotated[
        Mode | None, InCell("str | None", "`plan`, `ask`, `auto` or `full`, but never more than this agent's mode.")
    ] = Field(default=None, description="What it does without approval; never more than you. plan: change nothing.")
    """The mode. None: the parent's."""
    scope: Annotated[str, InCell("str | None", "The limits of its work: a folder, files, a part of the task.")] = Field(
        default="", description="The limits of its work: a folder, files, a part."
    )
    budget: Annotated[
        Budget,
        WithJsonSchema({"type": "object", "additionalProperties": {"type": "number"}}),
        InCell(
            "dict[str, Any] | None",
            'Limits for it and its descendants, as `{"seconds": 60, "tokens": 50_000}`. Default: 10 turns and an hour.',
        ),
    ] = Field(
        default_factory=Budget,
        description="More bounds: tool_calls, requests, tokens, cost_usd, seconds, children, depth.",
    )
    """The budget, cut to the remainder of the parent's."""
    branch: Annotated[Flag, InCell("bool", "The child's kernel starts as a copy of this one, with all its variables.")] = (
        Field(default=False, description="Its kernel starts as a copy of yours, with your variables.")
    )
    branch_of: Annotated[
        Any,
        BeforeValidator(lambda node: node or None),
        WithJsonSchema({"type": "string"}),
        InCell("Any", "A node: the kernel starts as a copy of its kernel."),
    ] = Field(default=None, description="The id of an earlier child with keep, whose kernel is copied instead.")
    """A `KernelNode`, or the id of one of the parent's nodes. None: the kernel is no copy of a node's."""
    own_files: Annotated[
        Flag,
        InCell(
            "bool",
            "A branch works in its own copy of the workspace, which no other agent sees; without `branch_of`, it is a "
            "branch of this kernel. With `keep`, `agent.promote(r.node)` takes its changes over.",
        ),
    ] = Field(default=False, description="A branch in its own copy of the workspace.")
    keep: Annotated[Flag, InCell("bool", "The kernel outlives the child: the result's `node`.")] = Field(
        default=False, description="Keep its kernel, for branch_of."
    )
    resume: Annotated[
        Named,
        InCell("str | None", "The `agent_id` of an ended child, which continues with its conversation and its variables."),
    ] = Field(default=None, description="The id of an ended child of yours, which continues.")

    @property
    def kept(self) -> dict[str, Any]:
        """The choices for the whole life of the child, as JSON values."""
        return self.model_dump(mode="json", exclude={*OF_ONE_RUN}, exclude_defaults=True)

    @property
    def model_words(self) -> str:
        """The chosen model in words. Empty: none was chosen."""
        return (self.model or "") if isinstance(self.model, str | None) else str(self.model.model_id)


NO_CHOICES: Final = ChildChoices.model_construct()
OF_ONE_RUN: Final = frozenset(
    {"agent", "budget", "branch", "branch_of", "description", "history", "keep", "mode", "model", "resume"}
)
"""Choices that end with a child's run, or are known as facts of the agent. All others hold when it is resumed."""
FIXED: Final = ("agent", "tools", "branch", "branch_of", "history", "own_files")
"""Choices that nobody may make anew for a resumed child."""
CHOSEN: Final[dict[str, Callable[[Any], str]]] = {
    "model": lambda model: f"the model {model}",
    "thinking": lambda level: f"thinking {level}",
    "history": lambda read: "this whole conversation" if read == "all" else f"the last {counted(int(read), 'exchange')}",
    "tools": lambda tools: f"only the tools {', '.join(tools) or '(none)'}",
    "own_files": lambda _: "files of its own",
}
"""Choices as words that follow the name of the child."""


@dataclass(frozen=True, kw_only=True)
class SpawnCall(Action):
    """A child agent that is about to be started."""

    form = "a prompt"
    main = "prompt"
    acts_outside = False  # what the child does is judged when it happens
    topic: ClassVar[Topic] = "children"

    kind: Literal["spawn"] = "spawn"
    prompt: str
    description: str = ""
    max_turns: int | None = None
    mode: Mode | None = None
    """The requested mode. None: the parent's."""
    agent: str = ""
    """The requested agent type. Empty: the parent's."""
    background: bool = False
    """Whether the parent does not wait for the child."""
    resume: str = ""
    """The id of the ended child to resume. Empty: the child is new."""
    model: str = ""
    """The model, if it is another than the usual one. Empty: the usual one, or a resumed child's own."""
    thinking: str = ""
    history: str = ""
    """The child's share of the conversation: `all`, or a number of exchanges. Empty: nothing."""
    tools: tuple[str, ...] | None = None
    own_files: bool = False

    @classmethod
    def of(cls, prompt: str, choices: ChildChoices, *, background: bool = False) -> Self:
        """Return the call for a child. Args: background: its parent does not wait for it."""
        return cls(
            prompt=prompt,
            description=choices.description,
            max_turns=choices.budget.turns,
            mode=choices.mode,
            agent=choices.agent or "",
            background=background,
            resume=choices.resume or "",
            model=choices.model_words,
            thinking=choices.thinking or "",
            history="" if choices.history == "none" else str(choices.history),
            tools=choices.tools,
            own_files=choices.own_files,
        )

    @property
    def subject(self) -> str:  # who allows some children does not allow other models
        return f"model {self.model}" if self.model else "resumed" if self.resume else "default"

    @property
    def child(self) -> str:
        """A description of the child, in words."""
        kind = f" of type {self.agent}" if self.agent else ""
        mode = f" in mode {self.mode}" if self.mode is not None else ""
        return f"a child agent{kind}{mode}{' in the background' if self.background else ''}{self._choices}"

    @property
    def _choices(self) -> str:
        made = ((words, getattr(self, name)) for name, words in CHOSEN.items())
        said = "; ".join(words(value) for words, value in made if value or value == ())
        return f" with {said}" if said else ""

    @property
    def summary(self) -> str:
        if self.resume:
            return f"ask {self.resume} on: {self.prompt}"
        return f"start {self.child}: {self.description or self.prompt}"

    @property
    def question(self) -> str:
        turns = f", at most {counted(self.max_turns, 'turn')}" if self.max_turns is not None else ""
        label = f" ({whole_line(self.description)})" if self.description else ""
        if self.resume:
            where = " in the background" if self.background else ""
            choices = whole_line(self._choices)
            return f"asks to continue the child {whole_line(self.resume)}{label}{where}{choices}{turns}"
        return f"asks to start {whole_line(self.child)}{label}{turns}"


@dataclass(frozen=True, kw_only=True)
class SavedVariables(Action):
    """Variables that are about to be read in a kernel that may do more than the one that saved them."""

    form = "their names"
    main = "variables"
    whole = True
    acts_outside = False

    kind: Literal["variables"] = "variables"
    variables: str
    """Lines on the variables, one each, with type and size."""
    saved_in: str = ""
    """The mode of the kernel that saved them, as in `mode plan`."""
    more: str = ""
    """The further rights of this kernel, as in `it has the network`."""

    @property
    def summary(self) -> str:
        return f"bring back variables that were saved in {self.saved_in}: {_first_line(self.variables)}"

    @property
    def question(self) -> str:
        return f"asks to bring back variables that were saved in {whole_line(self.saved_in)}"

    @property
    def text(self) -> str:
        why = f"to read them runs code that was saved with them, and this kernel may do more: {visible(self.more)}"
        return f"{super().text}\n({why})"


@dataclass(frozen=True, kw_only=True)
class ToolCall(Action):
    """Any other tool: a user's own, or a built-in one without a special call."""

    form = "a name"
    main = "tool_name"
    topic: ClassVar[Topic] = "tools"

    kind: Literal["tool"] = "tool"
    tool_name: str
    args: dict[str, Any] = field(default_factory=dict)
    requires_approval: bool = False
    """Whether the developer lets no call run without a person's approval, whatever the mode."""
    harmless: bool = False
    """Whether the tool touches only the agent itself and its children; `ask` costs what its budget allows."""

    @property
    def summary(self) -> str:
        return f"{self.tool_name}({_arguments(self.args)})"

    @property
    def question(self) -> str:
        return f"asks to call {whole_line(self.tool_name)}"

    @property
    def text(self) -> str:
        return arguments_text(self.args)

    @property
    def subject(self) -> str:
        return self.tool_name

    @property
    def acts_outside(self) -> bool:
        return not self.harmless


Call: TypeAlias = (
    CodeAction | ShellCommand | FileWrite | NetworkConnect | McpCall | SpawnCall | SavedVariables | FanOut | ToolCall
)
"""Any action that may need approval."""

CALLS: Final[dict[str, type[Call]]] = {call.kind: call for call in get_args(Call)}
"""Every kind of call, by name."""
FILE: Final = "file"
KINDS: Final = (*CALLS, FILE)
"""Scopes of a rule: a kind of call, or a file that a command names or that is written in any way."""


def mcp_tool_name(server: str, tool: str) -> str:
    """Return the name of a server's tool for the model, acceptable to all providers."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}_{tool}")[:MAX_NAME_CHARS]


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0] + _more(text)


def _more(text: str) -> str:
    """Return the number of the lines that a line about the text leaves out."""
    left = len(text.strip().splitlines()) - 1
    return f"  (+{counted(left, 'line')})" if left > 0 else ""


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _arguments(args: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in args.items())
