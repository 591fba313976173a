"""The command `freeact-sub map`: one question about each row of a file, by `Agent.map` (docs/maps.md)."""

import argparse
import asyncio
import csv
import io
import json
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from typing_extensions import TypedDict

from freeact_sub import Agent, Budget, RunResult
from freeact_sub.cli.settings import INTERRUPTED
from freeact_sub.cli.streams import asking_terminal, can_draw, tell, write_out
from freeact_sub.errors import ConfigError, FreeactError
from freeact_sub.events import StrategyProgress
from freeact_sub.features.maps import KeptAnswers
from freeact_sub.models.build import require_model
from freeact_sub.terminal.asking import Approver, LineApprover

SEPARATORS: Final = {".csv": ",", ".tsv": "\t", ".jsonl": "", ".ndjson": ""}
TYPES: Final[dict[str, Any]] = {"": str, "text": str, "int": int, "float": float, "bool": bool, "list": list[str]}
HELP: Final = "write --output 'topic: price|delivery|other, angry: bool, reason'; types are text, int, float, bool, list"


def map_file(options: argparse.Namespace, settings: Any) -> int:
    """Ask about each row, and write the rows with the answers."""
    output = _type_of(options.fields) if hasattr(options, "fields") else str
    bound = _budget_of(options.budget) if hasattr(options, "budget") else Budget()
    columns, lines, separator = _read(options.data)
    out, kept, again = None, None, "--out FILE would keep the answers"
    if getattr(options, "out", "-") != "-":
        out, again = Path(options.out), f"to ask what is missing: freeact-sub {shlex.join(sys.argv[1:])}"
        separator = separator if separator and _separator(out.name) == "," else _separator(out.name)
        kept = out.with_name(f"{out.name}.answers.jsonl")
        with KeptAnswers(kept if kept.exists() else None) as known:
            if out.exists() and not (out.is_file() and known.has_written(out.read_bytes())):
                raise ConfigError(f"{out} exists, and is not as an earlier call left it: move it, or name another --out")
    config = settings(headless=None if asking_terminal() is not None else "auto")
    require_model(config)
    if "requests" not in config.budget.model_fields_set:  # a model may correct an answer of the wrong type twice
        bound = bound.model_copy(update={"requests": max(1, 3 * len(lines))})
    agent, rows, steps = Agent(config), [json.loads(line) for line in lines], list[StrategyProgress]()
    try:
        result = asyncio.run(_run(agent, bound, steps, rows, options.template, output=output, kept_in=kept))
    except KeyboardInterrupt:
        tell(f"interrupted; {again}")
        return INTERRUPTED
    if result.status != "completed":
        raise FreeactError(result.error) if steps else ConfigError(result.error)
    new = [*(["answer"] if output is str else output.__annotations__), "error"]
    answers = [{name: row[name] for name in new} for row in result.output]
    text = _written([*(columns or dict.fromkeys(name for row in rows for name in row)), *new], lines, answers, separator)
    if out is None:
        write_out(text)
    else:
        try:
            with KeptAnswers(kept) as known:
                known.write(out, text.encode("utf-8", errors="backslashreplace"))  # half a character as in JSON
        except OSError as error:
            raise FreeactError(f"cannot write {out}: {error.strerror}; the answers are kept in {kept}") from error
    failed = sum(row["error"] is not None for row in result.output)
    tell(f"{len(rows) - failed:,} of {len(rows):,} rows are answered{f', see the column error; {again}' if failed else ''}")
    return 1 if failed else 0


async def _run(agent: Agent, bound: Budget, steps: list[StrategyProgress], *asked: Any, **how: Any) -> RunResult[Any]:
    terminal = asking_terminal() if agent.config.headless is None else None
    async with agent:
        with Approver() if terminal is None else LineApprover(terminal) as approver:
            async for event in (run := agent.run_program(lambda: agent.map(*asked, **how), budget=bound)):
                steps += [event] if isinstance(event, StrategyProgress) else []
                if can_draw(sys.stderr):  # a line in place, which is gone when somebody is asked
                    shown = f"{event.step:,} of {event.of or 0:,} rows" if isinstance(event, StrategyProgress) else ""
                    print(f"\r\x1b[K{shown}", end="", file=sys.stderr, flush=True)  # noqa: T201  # for a person
                approver.observe(event)
            return await run.result()


def _separator(name: str) -> str:
    if (separator := SEPARATORS.get(Path(name).suffix.lower())) is None:
        raise ConfigError(f"{name}: rows are read and written in files that end in {', '.join(SEPARATORS)}: choose one")
    return separator


def _read(name: str) -> tuple[list[str], list[str], str]:
    """Return the columns of a table, the rows as JSON, and the separator of cells. JSON lines have neither of the others."""
    number, lines = 1, list[str]()
    try:
        text = (sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()).decode("utf-8-sig")
        separator = _separator(name) if name != "-" else "" if text.lstrip().startswith("{") else ","
        if not separator:
            for number, line in enumerate(text.split("\n"), start=1):
                if line.strip() and not isinstance(json.loads(line), dict):
                    raise ConfigError(f"{name}, row {number}: it must be an object, as {{'text': 'Hello'}}")
            return [], [line.strip() for line in text.split("\n") if line.strip()], separator
        if separator == ",":
            separator = max(",;\t", key=lambda mark: len(next(csv.reader([text.partition("\n")[0]], delimiter=mark), [])))
        csv.field_size_limit(sys.maxsize)
        columns, *table = [*csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)] or [[]]
        if len({*columns}) < len(columns):
            raise ConfigError(f"{name} has a column more than once: rename one of {columns}")
        for number, cells in enumerate(filter(None, table), start=1):
            if len(cells) != len(columns):
                raise ConfigError(f"{name}, row {number}: it has {len(cells)} cells, and the header {len(columns)}")
            lines.append(json.dumps(dict(zip(columns, cells, strict=True)), ensure_ascii=False))
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror}") from error
    except (csv.Error, ValueError, RecursionError) as error:  # wrong UTF-8 as well
        raise ConfigError(f"cannot read {name}, row {number}: {error}") from error
    return columns, lines, separator


def _written(columns: list[str], lines: list[str], answers: list[dict[str, Any]], separator: str) -> str:
    """Return the rows with their answers. In a table, values other than text are JSON, and nothing is an empty cell."""
    if not separator:
        both = zip(lines, (json.dumps(answer, ensure_ascii=False)[1:] for answer in answers), strict=True)
        return "".join(f"{line[:-1]}{', ' if line[1:-1].strip() else ''}{end}\n" for line, end in both)
    writer = csv.DictWriter(text := io.StringIO(newline=""), columns, "", delimiter=separator, lineterminator="\n")
    writer.writeheader()
    for line, answer in zip(lines, answers, strict=True):
        texts = json.loads(line, parse_float=str, parse_int=str, parse_constant=str) | answer  # numbers keep their digits
        row = json.loads(line) | answer
        cells = {name: json.dumps(value, ensure_ascii=False) for name, value in row.items() if value is not None}
        writer.writerow(cells | {name: value for name, value in texts.items() if isinstance(value, str)})
    return text.getvalue()


def _type_of(text: str) -> Any:
    fields, make = dict[str, Any](), TypedDict
    for part in text.split(","):
        name, kind = (word.strip() for word in part.partition(":")[::2])
        words = [word.strip() for word in kind.split("|")]
        if not name.isidentifier() or name in fields or (kind not in TYPES and (len(words) < 2 or not all(words))):
            raise ConfigError(f"--output: {part.strip()!r} is no new field with a type: {HELP}")
        fields[name] = TYPES[kind] if kind in TYPES else Literal[*words]
    return make("Answer", fields)  # type: ignore[operator]


def _budget_of(text: str) -> Budget:
    amount, _, unit = text.strip().removeprefix("$").partition(" ")
    with suppress(ValueError):
        if unit in ("", "tokens") and 0 < float(amount) < float("inf"):
            return Budget(tokens=int(amount)) if unit else Budget(cost_usd=amount)
    raise ConfigError(f"--budget: {text!r} is not a budget: write dollars, as 3 or $0.50, or tokens, as '200000 tokens'")
