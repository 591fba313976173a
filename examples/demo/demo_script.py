"""The script of the demo's model: what a model might say and do here, decided from what the tools really returned.

No figure of the answers stands in this file. A step reads the results before it, which are in the messages, and builds the
next call, or the answer, from them. Other data lead to other cells, and a call that is denied, or
fails, to an answer that says so.
"""

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from demo_cells import CLEAN, CONVERT, LIST_FILES, LOOK, PICTURE, REPORT
from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub.testing import ScriptedModel, Turn, first_prompt

MODEL_NAME = "scripted demo model, no LLM"

PROMPT = """\
The folder {data} has CSV files of weather stations: one row a day, with the columns date, logger, temp (°C), rain (mm) and \
wind (m/s). Such files have faults: repeated days, values that are missing or impossible, loggers that write other units.
Start one child agent for each file, all of them at once. Each finds the faults in its file, writes the clean days to \
STATION.csv in its working directory (columns date, temp, rain, wind), and reports. The MCP server `units` converts.
Then draw temperature and rain by month to weather.png, and write report.md: a table, the picture, the faults."""

CHILD_PROMPT = """\
Clean the weather file {path}: one row a day, with the columns date, logger, temp (°C), rain (mm) and wind (m/s). Look for \
repeated and missing days, values that are missing or -999, and loggers that write other units (the MCP server `units` \
converts). Write the clean days to {name} in your working directory (columns date, temp, rain, wind). Report the main \
figures and the faults."""

HOTTEST_DAY = 45.0
"""In °C: no place on Earth has a day with a higher mean."""


def demo_model() -> ScriptedModel:
    """The model of the demo, for the root and its children."""
    return ScriptedModel(respond, name=MODEL_NAME, chunk_chars=80)


def respond(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """The next turn of whoever asks: a child is known by the prompt that the root gave it."""
    prompt = first_prompt(messages)
    returns = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if child := re.match(r"Clean the weather file (.+\.csv):", prompt):
        return child_turn(Path(child[1]), returns, {tool.name for tool in info.function_tools})
    if root := re.match(r"The folder (.+) has CSV files", prompt):
        return root_turn(Path(root[1]), returns)
    return f"I am the {MODEL_NAME}: I only know the task of the demo."


# The root


def root_turn(folder: Path, returns: Sequence[ToolReturnPart]) -> Turn:
    """Look at the folder; start the children; draw; write; answer."""
    if not returns:
        return ["I look at the folder first.", cell(LIST_FILES, "count the rows of each file", folder=folder)]
    children = [part for part in returns if part.tool_name == "task"]
    if not children:
        return start_children(folder, returns[0])
    return make_report(children, returns[1 + len(children) :])


def start_children(folder: Path, listing: ToolReturnPart) -> Turn:
    """One child for each file that the listing names."""
    if failed(listing):
        return f"I could not look at the folder: {reason(listing)}"
    names = re.findall(r"^(\w+\.csv): ", text_of(listing), re.MULTILINE)
    if not names:
        return f"There is no CSV file in {folder}."
    return [f"{len(names)} files: one child for each, all at the same time.", *(start(folder / name) for name in names)]


def make_report(children: Sequence[ToolReturnPart], done: Sequence[ToolReturnPart]) -> Turn:
    """Draw, write and answer, with what the children have reported. `done`: the results of the cells after theirs."""
    reports = dict(found for part in children if (found := station_and_report(part)))
    if not reports:
        return "No file could be cleaned:\n\n" + bullets([reason(part) for part in children])
    if done and failed(done[-1]):
        return f"The files are clean, but there is no report: {reason(done[-1])}"
    if not done:
        return [
            f"{len(reports)} of {len(children)} files are clean. I draw them.",
            cell(PICTURE, "draw temperature and rain by month", stations=list(reports)),
        ]
    if len(done) == 1:
        faults = {station: text.partition("\n")[2] for station, text in reports.items()}
        return ["Now the report.", cell(REPORT, "write the report", faults=faults)]
    lost = [f"not cleaned: {reason(part)}" for part in children if not station_and_report(part)]
    figures = [text.partition("\n")[0] for text in reports.values()]
    return f"report.md and weather.png are there.\n\n{bullets([*figures, *lost])}"


def start(path: Path) -> ToolCallPart:
    """Start the child for a file."""
    arguments = {"prompt": CHILD_PROMPT.format(path=path, name=path.name), "description": f"clean {path.name}"}
    return ToolCallPart("task", arguments)


def station_and_report(part: ToolReturnPart) -> tuple[str, str] | None:
    """What a child answered, below the lines about its run; None where it has not done its work."""
    found = re.search(r"^(\w+): \d+ days.*", text_of(part), re.DOTALL | re.MULTILINE)
    return None if failed(part) or found is None else (found[1], found[0])


# A child


def child_turn(path: Path, returns: Sequence[ToolReturnPart], tools: set[str]) -> Turn:
    """Look at the file; where a logger seems to write other units, convert; clean; answer."""
    if not returns:
        return [f"I look at {path.name}.", cell(LOOK, "look for faults", path=path)]
    last, look = returns[-1], text_of(returns[0])
    if failed(last):
        return f"I could not clean {path.name}: {reason(last)}"
    highest = {name: float(high) for name, high in re.findall(r"^logger (\S+): temp from \S+ to (\S+),", look, re.MULTILINE)}
    odd = {name: high for name, high in highest.items() if high > HOTTEST_DAY}
    steps = 4 if odd else 2
    if len(returns) == steps:
        return f"{path.stem}: {text_of(last).strip()}\n{bullets(faults_in(look, odd))}"
    if len(returns) == steps - 1:
        return ["The units are right. I clean the file.", cell(CLEAN, "write the clean days", file=path.name)]
    return convert(odd, returns[1:], tools)


def convert(odd: Mapping[str, float], returns: Sequence[ToolReturnPart], tools: set[str]) -> Turn:
    """Try one value with the MCP server, as a direct call, then have code convert all. `odd`: loggers, highest days."""
    logger, high = next(iter(odd.items()))
    if "units_convert" not in tools:
        return f"Logger {logger} does not seem to write °C, and there is no MCP server `units`."
    if not returns:
        text = f"Logger {logger} has a day of {high}, which cannot be °C. Is it Fahrenheit? I try the value."
        return [text, ToolCallPart("units_convert", {"value": high, "from_unit": "degF", "to_unit": "degC"})]
    celsius = float(text_of(returns[0]))
    if celsius > HOTTEST_DAY:
        return f"Logger {logger} writes neither °C nor °F: {high} would be {celsius:.1f} °C."
    return [
        f"{celsius:.1f} °C is possible: it writes °F, and so inches of rain.",
        cell(CONVERT, "convert to °C and mm", loggers=sorted(odd)),
    ]


def faults_in(look: str, odd: Mapping[str, float]) -> list[str]:
    """What was wrong in a file, from the output of the first cell."""
    faults = [f"logger {logger} wrote °F and inches: converted" for logger in odd]
    rows, days, first, last = re.findall(r"^(\d+) rows, (\d+) days from (\S+) to (\S+)", look, re.MULTILINE)[0]
    calendar = (dt.date.fromisoformat(last) - dt.date.fromisoformat(first)).days + 1
    if int(rows) > int(days):
        faults.append(f"{int(rows) - int(days)} rows too many: days that were sent twice")
    if calendar > int(days):
        faults.append(f"{calendar - int(days)} days without a row")
    counts = re.findall(r"^(\w+): (\d+) empty, (\d+) at -999", look, re.MULTILINE)
    for what, place in (("empty", 1), ("-999 (the sensor failed)", 2)):
        named = [f"{count[place]} {count[0]}" for count in counts if int(count[place])]
        if named:
            faults.append(f"{what}: {', '.join(named)}")
    return faults or ["no fault found"]


# What both use


def cell(code: str, title: str, **values: Any) -> ToolCallPart:
    """Run a cell; the `<names>` in it are filled in with Python literals."""
    for name, value in values.items():
        if isinstance(value, dict):
            literal = json.dumps(value, indent=4, ensure_ascii=False)
        else:
            literal = repr(str(value) if isinstance(value, Path) else value)
        code = code.replace(f"<{name}>", literal)
    return ToolCallPart("execute_ipython_cell", {"description": title, "code": code.strip()})


def failed(part: ToolReturnPart) -> bool:
    """Whether a call was denied or did not do what it should."""
    metadata: Any = part.metadata
    return part.outcome != "success" or (isinstance(metadata, dict) and metadata.get("outcome") == "failed")


def reason(part: ToolReturnPart) -> str:
    """Why a call was denied or failed: of a traceback the last line."""
    lines = [line for line in text_of(part).splitlines() if line.strip()]
    return lines[-1] if lines else "it gave no answer"


def text_of(part: ToolReturnPart) -> str:
    """The text of a result; pictures are left out."""
    content: Any = part.content
    return "\n".join(item for item in content if isinstance(item, str)) if isinstance(content, list) else str(content)


def bullets(lines: Sequence[str]) -> str:
    """A Markdown list."""
    return "\n".join(f"- {line}" for line in lines)
