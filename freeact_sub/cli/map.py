"""`freeact-sub map FILE TEMPLATE`: one question about each row of a file; see docs/maps.md."""

import argparse
import asyncio
import hashlib
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

from freeact_sub.cli.streams import asking_terminal, can_draw, is_terminal, tell, write_out
from freeact_sub.errors import ConfigError, FreeactError

if TYPE_CHECKING:
    from freeact_sub import Agent, Budget, Config, Run
    from freeact_sub.agents.maps.kept_answers import KeptAnswers
    from freeact_sub.cli.commands import Settings
    from freeact_sub.cli.map_files import RowsFile
    from freeact_sub.events import Event

REQUESTS_A_ROW: Final = 3
"""A model may correct an answer of the wrong type twice."""
BAR_CHARS: Final = 20
LOG_SECONDS: Final = 10.0
"""Seconds between two lines of progress where nothing can be drawn in place."""
WRITTEN: Final = "written"
"""The key of the digest of the result among the kept answers."""


def map_file(options: argparse.Namespace, settings: "Settings") -> int:
    """Ask about each row, and write the rows with the answers."""
    # slow to import, as those below
    from freeact_sub.cli.map_files import budget_of, fields_of, form_of, read_rows, written  # noqa: PLC0415

    output = fields_of(options.output) if hasattr(options, "output") else str
    bound = budget_of(options.budget) if hasattr(options, "budget") else None
    data = read_rows(_content(options.data), options.data)
    out = None if getattr(options, "out", "-") == "-" else Path(options.out)
    form = data.form if out is None else form_of(out.name)
    asks = asking_terminal()
    config = settings(headless=None if asks is not None else "auto")
    from freeact_sub import Agent  # noqa: PLC0415
    from freeact_sub.agents.maps.kept_answers import KeptAnswers  # noqa: PLC0415
    from freeact_sub.agents.maps.tables import ANSWER, ERROR, new_columns, table_of  # noqa: PLC0415
    from freeact_sub.models.names import require_model  # noqa: PLC0415

    require_model(config)
    kept_in = None if out is None else out.with_name(f"{out.name}.answers.jsonl")
    with KeptAnswers(kept_in) as kept:
        _check_out(out, kept)
    work = _MapRun(data, options.template, output, _budget(config, bound, len(data.rows)), kept_in)
    status, done = asyncio.run(work.run(Agent(config)))
    if done is None:
        tell(work.left_off)
        return status
    names = new_columns(output, table_of(data.rows)) or [ANSWER]
    text = written(done, [*data.columns, *names, ERROR], form, data.delimiter)
    if out is None:
        write_out(text)
    else:
        _write(text, out, kept_in)
    failed = sum(row["error"] is not None for row in done)
    if failed:
        tell(f"{failed:,} of {len(done):,} rows have no answer, see their column error. {work.to_continue}")
    return 1 if failed else 0


def _content(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror}") from error


def _budget(config: "Config", bound: "Budget | None", rows: int) -> "Budget":
    """The bound of the run. Without one in the settings, each row may make its requests."""
    from freeact_sub import Budget  # noqa: PLC0415

    requests = None if "requests" in config.budget.model_fields_set else max(1, rows * REQUESTS_A_ROW)
    return (bound or Budget()).model_copy(update={"requests": requests})


def _check_out(out: Path | None, kept: "KeptAnswers") -> None:
    """Refuse to overwrite a file that an earlier call of the same did not write, or that was changed since."""
    if out is None or not out.exists():
        return
    try:
        known = out.is_file() and kept.get(WRITTEN) == hashlib.sha256(out.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"cannot read {out}: {error.strerror}") from error
    if not known:
        raise ConfigError(
            f"{out} exists, and is not as an earlier call left it: move it away, or name another file by --out"
        )


def _write(text: str, out: Path, kept_in: Path | None) -> None:
    from freeact_sub.agents.maps.kept_answers import KeptAnswers  # noqa: PLC0415
    from freeact_sub.system.safe_files import replace_file  # noqa: PLC0415

    content = text.encode("utf-8", errors="backslashreplace")  # half a character is written as JSON has it
    with KeptAnswers(kept_in) as kept:
        kept.keep(WRITTEN, hashlib.sha256(content).hexdigest())
    try:
        replace_file(out, content)
    except OSError as error:
        raise FreeactError(f"cannot write {out}: {error.strerror}; the answers are kept in {kept_in}") from error


class _MapRun:
    """One map, with its progress on standard error."""

    def __init__(self, data: "RowsFile", template: str, output: Any, budget: "Budget", kept_in: Path | None) -> None:
        self._data, self._template, self._output, self._budget, self._kept_in = data, template, output, budget, kept_in
        self._progress = _ProgressLine(len(data.rows))
        self._run: Run[Any] | None = None
        self._interrupted = False

    async def run(self, agent: "Agent") -> tuple[int, list[dict[str, Any]] | None]:
        """Return the exit status, and the rows with the answers. None: it was interrupted, or could not begin."""
        from freeact_sub.terminal.approver import Approver, LineApprover  # noqa: PLC0415
        from freeact_sub.terminal.interrupts import INTERRUPTED, Interrupts  # noqa: PLC0415

        terminal = asking_terminal()
        approver = LineApprover(terminal) if terminal is not None and agent.config.headless is None else Approver()
        with Interrupts(self._interrupt), approver, self._progress:
            async with agent:
                program = agent.run_program(lambda: self._mapped(agent), budget=self._budget)
                async with program as self._run:
                    if self._interrupted:
                        self._run.cancel()
                    async for event in self._run:
                        self._progress.observe(event)
                        approver.observe(event)
                    result = await self._run.result()
        if result.status == "completed":
            return 0, result.output
        if self._interrupted:
            return INTERRUPTED, None
        raise ConfigError(result.error) if self._progress.at is None else FreeactError(result.error)

    async def _mapped(self, agent: "Agent") -> list[dict[str, Any]]:
        return await agent.map(self._data.rows, self._template, output=self._output, kept_in=self._kept_in)

    def _interrupt(self, must_end: bool) -> None:
        del must_end
        self._interrupted = True
        if self._run is not None:
            self._run.cancel()

    @property
    def left_off(self) -> str:
        """What a person reads after an interrupt."""
        answered = f"interrupted: {self._progress.answered:,} of {len(self._data.rows):,} rows are answered"
        return f"{answered}{f' and kept in {self._kept_in}' if self._kept_in else ''}. {self.to_continue}"

    @property
    def to_continue(self) -> str:
        """How to ask what is missing."""
        if self._kept_in is None:
            return "With --out FILE, answers are kept, and the next call asks only what is missing."
        return f"To ask what is missing: freeact-sub {shlex.join(sys.argv[1:])}"


class _ProgressLine:
    """A line on standard error: drawn in place in a terminal, else a line from time to time."""

    def __init__(self, rows: int) -> None:
        self._rows, self._began, self._told = rows, time.monotonic(), time.monotonic()
        self._stream: TextIO = sys.stderr
        self._draws, self._cost = can_draw(sys.stderr), ""
        self._asked: dict[str, float] = {}
        """When each open question came. Nothing is drawn below a question, and its time does not count."""
        self.at: Any = None
        """The latest step. None: nothing has begun."""

    @property
    def answered(self) -> int:
        """How many rows have an answer."""
        return 0 if self.at is None else self.at.step - self.at.failed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def observe(self, event: "Event") -> None:
        """Draw the progress of the map."""
        from freeact_sub.events import ApprovalDecided, ApprovalRequest, StrategyProgress, UsageUpdated  # noqa: PLC0415

        if isinstance(event, UsageUpdated):
            self._cost = event.tree_usage.cost_text or f"{event.tree_usage.tokens_text} tokens"
        elif isinstance(event, ApprovalRequest):
            self._clear()
            self._asked[event.request_id] = time.monotonic()
        elif isinstance(event, ApprovalDecided) and event.request_id in self._asked:
            since = self._asked.pop(event.request_id)
            self._began += 0 if self._asked else time.monotonic() - since
        elif isinstance(event, StrategyProgress) and event.strategy == "map":
            self.at = event
            if self._draws and self._asked:
                return
            if self._draws:
                self._stream.write(f"\r\x1b[K{self._text()}")
                self._stream.flush()
            elif event.done or time.monotonic() - self._told > LOG_SECONDS:
                self._told = time.monotonic()
                tell(self._text())

    def _text(self) -> str:
        done, of = self.at.step, self.at.of or 0
        full = BAR_CHARS * done // of if of else BAR_CHARS
        bar = f"{'█' * full}{'░' * (BAR_CHARS - full)} " if self._draws else ""
        failed = f"{self.at.failed:,} failed" if self.at.failed else ""
        seconds = int(time.monotonic() - self._began)
        parts = [f"{bar}{done:,} of {of:,} rows", failed, self._cost, f"{seconds // 60}:{seconds % 60:02}"]
        return " · ".join(filter(None, parts))

    def _clear(self) -> None:
        if self._draws and is_terminal(self._stream):
            self._stream.write("\r\x1b[K")
            self._stream.flush()
