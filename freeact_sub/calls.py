"""Actions that an agent is about to take, as values that rules and people judge.

Every action that may need approval is one of these. People see them as they are, so they hold real values and never a
reference to something that could change after the answer.

This is the one list of their kinds: patterns, typed answers, the command line and the front ends read it. A new kind is a
class here and in `Call`; a row in the mode table (`approvals/policy.py`) for its topic; and whoever makes such a call.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias, get_args

from freeact_sub.actions import Action, FileOperation, Topic
from freeact_sub.modes import Mode
from freeact_sub.text import arguments_text, counted, dollars_spread, duration, short_number, visible, whole_line
from freeact_sub.titles import choices_words, code_title, own_title


@dataclass(frozen=True, kw_only=True)
class FanOut(Action):
    """Many requests to a model, of which a few have run: what the rest will take, and the bound that is agreed."""

    form = "its name"
    main = "what"
    whole = True
    acts_outside = False
    topic: ClassVar[Topic] = "fan-outs"

    kind: Literal["fan_out"] = "fan_out"
    what: str
    """Its name, as `map`."""
    more: int = 0
    """The requests or children that are left, corrections not counted."""
    tokens: tuple[float, float, float] = (0, 0, 0)
    """About so many tokens, and the bounds that the number probably lies within."""
    cost_usd: tuple[float, float, float] | None = None
    """The same of dollars. None: the model's price is not known."""
    seconds: float = 0
    bound: str = ""
    """The bound that an approval agrees to, as `$3.00`; what has been spent ends there."""
    cheaper: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """By name the models of the setting `models` that would take fewer dollars: see `ApprovalRequest.approve`."""

    @property
    def summary(self) -> str:
        return f"{self.what}: {self.figures}"

    @property
    def question(self) -> str:
        return f"asks to go on with {whole_line(self.what)} within {whole_line(self.bound) or 'the bounds of the run'}"

    @property
    def figures(self) -> str:
        """What the rest takes, in one sentence."""
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
    """What the model says that the code does, for people; no rule reads it."""

    @property
    def title(self) -> str:
        """What the code does, in one line: in the model's words, else its first line that tells it."""
        return own_title(self.description) or code_title(self.code)

    @property
    def summary(self) -> str:
        return f"run code: {code_title(self.code)}{_more(self.code)}"  # by the code, because people may answer by it

    @property
    def question(self) -> str:
        title = own_title(self.description)
        return f"asks to run this cell ({title})" if title else "asks to run this cell"


@dataclass(frozen=True, kw_only=True)
class ShellCommand(Action):
    """A program that is about to be started, by code in a cell or by the host for the agent."""

    form = "a command"
    main = "command"

    kind: Literal["shell"] = "shell"
    command: str
    """As a shell would read it; a command started without a shell is quoted to mean the same."""
    cwd: str = ""
    """Its working directory. Empty: the workspace."""
    outside: bool = False
    """The host runs it, without a sandbox; a person is asked in every mode."""
    wall: bool = field(default=False, compare=False, repr=False)
    """The kernel can start it behind a wall, where it only reads (`kernels/wall/reading.py`)."""
    posix: bool = field(default=False, compare=False, repr=False)
    """The shell that reads it may be another one than bash."""
    by_library: bool = field(default=False, compare=False, repr=False)
    """A library starts it by itself, as the kernel says: for receipts only."""
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
    """Absolute, or relative to the workspace."""
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
        """The same of the host and, where it is known, of its address."""
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
    """The server says that the tool changes nothing."""

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
    """Its parent does not wait for it."""
    resume: str = ""
    """The id of the ended child to resume. Empty: the child is new."""
    model: str = ""
    """Its model, if it is another one than a child gets where nobody names one. Empty: that, or a resumed child's own."""
    thinking: str = ""
    history: str = ""
    """What it reads of the conversation: `all`, or a number of exchanges. Empty: nothing."""
    tools: tuple[str, ...] | None = None
    own_files: bool = False

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
        return choices_words(self.model, self.thinking, self.history, self.tools, own_files=self.own_files)

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
    """Variables that are about to be read in a kernel that may do more than the one that has saved them."""

    form = "their names"
    main = "variables"
    whole = True
    acts_outside = False

    kind: Literal["variables"] = "variables"
    variables: str
    """A line for each, with its type and its size."""
    saved_in: str = ""
    """The mode of the kernel that has saved them, as in `mode plan`."""
    more: str = ""
    """What the kernel may do that the other one could not, as in `it has the network`."""

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
    """Its developer lets no call run without a person's approval, whatever the mode."""
    harmless: bool = False
    """It touches only the agent itself and its children; `ask` costs what its budget allows."""

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
"""What a rule may cover: a kind of call, or a file that a command names or that is written in any way."""


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0] + _more(text)


def _more(text: str) -> str:
    """The number of the lines that a line about the text leaves out."""
    left = len(text.strip().splitlines()) - 1
    return f"  (+{counted(left, 'line')})" if left > 0 else ""


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _arguments(args: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in args.items())
