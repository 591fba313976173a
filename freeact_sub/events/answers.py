"""Decisions, which close approval requests, and answers, which close questions; both go from a front end to the caller.

An approval request may have the effects of a cell in a trial. A trial changes nothing: it runs in a copy of the kernel with
its own copy of the workspace, and both are dropped.
"""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Never, Protocol, TypeAlias, get_args, runtime_checkable

from freeact_sub.cells import MimeBundle, ReplyStatus

TrialStatus: TypeAlias = Literal["done", "stopped", "refused"]
"""`done`: the cell ran to its end; `stopped`: it ran up to an action that must not happen unasked, or to a bound;
`refused`: it was not tried."""
Changed: TypeAlias = Literal["new", "changed", "deleted", "perhaps"]
"""`perhaps`: the value is too large to be compared in time."""
Remember: TypeAlias = Literal["session", "project"]
"""The time for which a decision applies to similar calls."""
REMEMBERED: Final = get_args(Remember)
BY_NAME: Final = 'approve() for this call, approve(remember="session") or approve(remember="project") for similar ones too'


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Facts about a changed value. Of names and examples the first three are there; a count tells how many there are."""

    parts: Literal["cells", "values", "elements", "keys", "fields", ""] = ""
    """`cells` of a frame, `values` of a series, `elements`, `keys` of a dict, `fields`. Empty: the value is too large."""
    sizes: tuple[int, int] | None = None
    """Rows or elements before and after, if they differ."""
    new: tuple[str, ...] = ()
    """New columns, keys, fields or elements of a set."""
    new_count: int = 0
    gone: tuple[str, ...] = ()
    gone_count: int = 0
    types: tuple[tuple[str, str, str], ...] = ()
    """Columns with another type: name, before, after. An array has no name; the name `shape` stands for its shape."""
    types_count: int = 0
    new_rows: int = 0
    """Rows whose labels are new; all others are compared with the row of the same label."""
    gone_rows: int = 0
    others: tuple[Literal["index", "rows", "columns"], ...] = ()
    """`rows`, `columns`: their order differs; `index`: no label is the same, so rows are compared by their places."""
    changed: int = 0
    """Parts that are there before and after, and differ."""
    of: int = 0
    """Compared elements of an array."""
    columns: int = 0
    most: str = ""
    """The largest difference of two numbers of an array."""
    examples: tuple[tuple[str, str, str], ...] = ()
    """Changed parts: place, before, after."""
    too_large: str = ""
    """The size, or the reason why the parts were not compared. Empty: they were."""


@dataclass(frozen=True, kw_only=True)
class VariableChange:
    """One variable that differs."""

    name: str
    what: Changed
    before: str = ""
    """The type, the shape and, if short, the value."""
    after: str = ""
    difference: Difference | None = None
    """The difference between the values. None: it is not known, or one of them is not there."""
    imported: bool = False
    """Whether the variable is a module, or part of one, that the copy has imported."""


@dataclass(frozen=True, kw_only=True)
class FileEffect:
    """One file, link or folder of the workspace that the cell changed."""

    path: str
    """The path relative to the workspace; an empty folder, or one with other permissions, ends with a slash."""
    what: Literal["added", "changed", "deleted"]
    diff: str = ""
    """A unified diff of a text. Empty: the file is no text, or its lines are the same."""
    note: str = ""
    """Facts that the diff does not show: sizes, permissions, a cut."""


@dataclass(frozen=True, kw_only=True)
class Effects:
    """Effects of a cell in a trial."""

    status: TrialStatus
    reason: str = ""
    """The place where the trial stopped, or the reason why there was none."""
    cell: ReplyStatus | None = None
    """The end of the cell; `timeout`: its time was up. None: it did not run, or was stopped before its end."""
    output: str = ""
    """Head and tail of the output."""
    displays: tuple[MimeBundle, ...] = ()
    """Pictures and tables."""
    variables: tuple[VariableChange, ...] = ()
    """Variables the cell changed, as the trial reports them; files are compared by the host."""
    files: tuple[FileEffect, ...] = ()
    left_out: tuple[str, ...] = ()
    """Changed paths that freeact or git obey, and paths of neither file, link nor folder."""
    seconds: float = 0.0
    """Seconds from the beginning of the trial to its end."""
    off: bool = False
    """Whether front ends show nothing: trials are off (setting `effects.enabled`, or the mode), or the question is
    closed."""
    can_be_taken_over: bool = False
    """Whether a yes takes these effects over, if they can be, instead of running the cell again."""
    harmless: bool = False
    """Whether the cell changed no file, no variable that existed, and nothing else of its kernel that is known."""
    outdated_by: tuple[str, ...] = ()
    """Paths of the workspace that changed after an earlier trial of this cell, which was therefore tried again."""

    def shows_as(self, other: "Effects") -> bool:
        """Return whether a person who saw the others has seen these: the end, the variables and the files.

        Outputs and values of variables do not count: the time, a duration or an address differs each time. Where the time
        was up in both, the progress of the cells does not count either.
        """
        if self.cell == other.cell == "timeout":
            return (self.status, self.reason) == (other.status, other.reason)
        mine, theirs = (
            (one.status, one.reason, one.cell, one.files, one.left_out, {(each.name, each.what) for each in one.variables})
            for one in (self, other)
        )
        return mine == theirs


CLOSED: Final = Effects(status="refused", reason="the question is closed", off=True)


@runtime_checkable
class EffectsSource(Protocol):
    """The maker of trials for open requests."""

    def effects(self, request_id: str) -> Effects | None:
        """Return the effects of a request, as far as they are known."""
        ...

    def effects_ready(self, request_id: str, code: str | None = None) -> Awaitable[Effects]:
        """Try the code of a request, or other code, unless its last trial holds; wait for the end."""
        ...


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A decision on an approval request. Raises ValueError or TypeError for a value that a field cannot have."""

    allowed: bool
    reason: str = ""
    """The reason for a denial, shown to the model."""
    remember: Remember | None = None
    """Scope of similar calls to allow: this session, or always this project. None: this call only."""
    pattern: str | None = None
    """The pattern of similar calls. None: the request's suggestion."""
    code: str | None = None
    """Code to run instead of the cell's. None: the cell's own code."""
    model: str | None = None
    """The model that does the rest of a fan-out. None: the quoted one."""
    nobody: bool = field(default=False, compare=False)
    """Whether nobody answered, and this decision counts instead."""
    walled: bool = field(default=False, compare=False)
    """Whether a rule allows the call behind the wall for programs that only read."""

    def __post_init__(self) -> None:
        if not isinstance(self.allowed, bool):
            raise TypeError(f"allowed is True or False, not {self.allowed!r:.60}")
        if self.remember not in (None, *REMEMBERED):
            words = " or ".join(map(repr, REMEMBERED))
            raise ValueError(f"remember is {words}, or None for this call only, not {self.remember!r:.60}")
        for name in ("reason", "pattern", "code", "model"):
            value = getattr(self, name)
            if not isinstance(value, str) and (value is not None or name == "reason"):
                raise TypeError(f"{name} is a text, not {value!r:.60}")
        if self.remember is not None and not self.allowed:
            raise ValueError("a denial is for this call only: a rule of the settings denies calls for good")
        if self.pattern is not None and self.remember is None:
            raise ValueError(f"a pattern is for similar calls: give `remember` too, as {REMEMBERED[0]!r}")

    @property
    def word(self) -> str:
        """The decision in words: `allowed`, `denied`, `allowed by nobody` or `denied by nobody`."""
        return ("allowed" if self.allowed else "denied") + (" by nobody" if self.nobody else "")


NOBODY: Final = Decision(allowed=False, nobody=True)
"""The decision if nobody makes one."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to a question."""

    text: str | None = None
    """The text. None, and no values: no answer; the caller is told so."""
    values: Mapping[str, Any] | None = None
    """The values of the question's fields, by name. None: it has none, or `text` is the value of its only one."""
    reason: str = ""
    """The reason why there is no answer."""
    nobody: bool = field(default=False, compare=False)
    """Whether nobody was there to answer."""


ABSENT: Final = Answer(reason="nobody is there to answer", nobody=True)
"""The answer to a question if nobody is there."""


class AnswerReceiver(Protocol):
    """The receiver of decisions (the gate) or answers (`Questions`)."""

    def answer(self, request_id: str, answer: Any) -> bool:
        """Receive a decision or an answer, from any thread. Return False if the request is already closed."""
        ...

    def shown(self, request_id: str) -> None:
        """Note that a front end shows the request to a person."""
        ...


ASKED: Final[dict[str, AnswerReceiver]] = {}
"""The receivers of open requests, by request id. Events are values and hold only the id."""


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The common part of all requests to a person."""

    request_id: str
    path: tuple[str, ...] = ()
    """The agents from the root to the asking one, by short id and label."""
    headless: bool = False
    """Whether no person is asked; the request ends at once."""

    def shown(self) -> None:
        """Note that a front end shows the request, so that the log does not report it as forgotten."""
        if receiver := ASKED.get(self.request_id):
            receiver.shown(self.request_id)

    def _answer(self, answer: Any) -> bool:
        receiver = ASKED.get(self.request_id)
        return receiver is not None and receiver.answer(self.request_id, answer)


class Answerable(_Asked):
    """The ways to answer a question."""

    def answer(self, given: str | Mapping[str, Any]) -> bool:
        """Answer the question. Return False if it is already closed.

        Args:
            given: The values of the question's fields, by name. A text answers a question with no field or with one.

        Raises:
            ValueError: The value is no answer; the message says what is wanted, and the question stays open.
                A question at a limit is closed instead, and the limit holds.
            TypeError: The value is neither a text nor values by name.
        """
        if not isinstance(given, str | Mapping):
            raise TypeError(f"an answer is a text, or values by the names of the question's fields, not {given!r:.60}")
        return self._answer(Answer(text=given) if isinstance(given, str) else Answer(values=given))

    def decline(self, reason: str = "") -> bool:
        """Decline to answer; the caller gets the reason. Return False if the question is already closed."""
        return self._answer(Answer(reason=reason))

    def skip(self) -> bool:
        """Close the question because nobody is there to answer. Return False if it is already closed."""
        return self._answer(ABSENT)


class Decidable(_Asked):
    """The ways to decide an approval request."""

    @property
    def effects(self) -> Effects | None:
        """The effects of the cell in its trial, once known. None: `effects_ready` was not called, or the trial runs."""
        receiver = ASKED.get(self.request_id)
        return receiver.effects(self.request_id) if isinstance(receiver, EffectsSource) else None

    async def effects_ready(self, code: str | None = None) -> Effects:
        """Try the cell that waits for approval, and return its effects: output, variables, files (docs/effects.md).

        The cell runs at once, in a copy of the kernel with its own copy of the workspace and without network, which is then
        dropped: nothing changes, whatever is decided. A second call returns the same `Effects` while the workspace stays as
        that trial found it; else the cell is tried again, and `Effects.outdated_by` names the changed paths.
        A trial ends when the request is decided. Never raises for what the code does; `Effects.status` says if it was tried.

        Args:
            code: Code to try instead, which a person may then run (`approve(code=...)`). None: the cell's own code.

        Raises:
            ValueError: There is code although the call is not a cell.
        """
        receiver = ASKED.get(self.request_id)
        return await receiver.effects_ready(self.request_id, code) if isinstance(receiver, EffectsSource) else CLOSED

    def approve(
        self,
        *given: Never,
        remember: Remember | None = None,
        pattern: str | None = None,
        code: str | None = None,
        model: str | None = None,
    ) -> bool:
        """Approve the call. Return False if the request is already closed.

        A rule for the project is saved after the decision. If it cannot be saved, a `Notice` says so, and it applies to this
        session only.

        Args:
            given: Nothing: the arguments have names.
            remember: Allow similar calls in this session or in this project. None: this call only.
            pattern: The pattern of similar calls, such as `shell:git push *`. None: the suggestion.
            code: Code to run instead of the cell's; the model reads the change. None: the cell's own code.
            model: One of the cheaper models of a `FanOut`, which does the rest of it. None: the quoted one.

        Raises:
            ValueError: `remember` is another word, the pattern is invalid, there is code although the call is not a cell, or
                the request does not offer the model; the request stays open.
            TypeError: An argument has no name.
        """
        if given:
            raise TypeError(f"the arguments of approve have names: {BY_NAME}")
        return self.decide(Decision(allowed=True, remember=remember, pattern=pattern, code=code, model=model))

    def deny(self, reason: str = "") -> bool:
        """Deny the call; the model reads the reason and continues. Return False if the request is already closed."""
        return self.decide(Decision(allowed=False, reason=reason))

    def decide(self, decision: Decision) -> bool:
        """Decide the request. Return False if it is already closed.

        Raises:
            ValueError: As for `approve`; the request stays open.
            TypeError: `decision` is no `Decision`.
        """
        if not isinstance(decision, Decision):
            raise TypeError(f"decide takes a Decision, such as Decision(allowed=True), not {decision!r:.60}")
        return self._answer(decision)
