"""A session as a Jupyter notebook that runs: the cells of all agents with their outputs, each agent a section.

The root's cells are plain cells. Each child had its own kernel, so its cells run under `%%child NAME`, which gives them a
namespace of their own. Cells that need the program, such as those that call `agent.task`, fail when they are run again;
they are tagged `raises-exception`, so that the rest continues, and keep their outputs.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from freeact_sub.agent_names import short_id
from freeact_sub.cells import CellError, DisplayData, ExecuteResult
from freeact_sub.export.document import Report, below, block, in_markdown, plan_list, status_of, told_of
from freeact_sub.show import blocks as bl
from freeact_sub.show.agent_story import AgentStory
from freeact_sub.text import clean, visible

_JSON: Final = re.compile(r"application/(.*\+)?json")
FAILS: Final = {"tags": ["raises-exception"]}
CHILD_MAGIC: Final = """\
# Each child agent had a kernel of its own: its cells below have names of their own.
import ast

from IPython import get_ipython
from IPython.core.magic import register_cell_magic
from IPython.display import display

_names_of_children = {}


@register_cell_magic
def child(name, code):
    shell = get_ipython()
    names = _names_of_children.setdefault(name, {"__name__": "__main__", "get_ipython": get_ipython, "display": display})
    body = ast.parse(shell.transform_cell(code)).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), name, "exec"), names)
    value = eval(compile(ast.Expression(last.value), name, "eval"), names) if last else None
    if value is not None:
        display(value)
"""


def notebook(report: Report) -> str:
    """Return the notebook as JSON, format 4.5."""
    cells = [_text(f"# {in_markdown(report.title)}\n\n{report.usage}")]
    if any(call.code is not None for agent in report.agents if agent.depth for call in agent.calls_made):
        cells.append(_code(CHILD_MAGIC, [], {}))
    for agent in report.agents:
        if agent.parent_id is None:
            cells += _section(report, agent)
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    content = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def _section(report: Report, agent: AgentStory) -> Iterator[dict[str, Any]]:
    """Yield an agent's cells; each child's stand at its start, so that later cells find its files."""
    level = "#" * min(2 + agent.depth, 6)
    kind = " · ".join(filter(None, [agent.agent_type, agent.model, status_of(agent)]))
    yield _text(f"{level} {in_markdown(agent.long_name)}\n\n{in_markdown(kind)}")
    left = [child for child in report.agents if child.parent_id == agent.agent_id]
    count = 0
    for item in told_of(agent):
        if isinstance(item, bl.CallStep) and item.code is not None:
            count += 1
            if item.label:
                yield _text(f"*{in_markdown(item.named)}*")
            yield _cell(report, agent, item, count)
        elif text := _said(item, 2 + agent.depth):
            yield _text(text)
        if isinstance(item, bl.CallStep):
            for child in [child for child in report.started_by(agent, item.tool_call_id) if child in left]:
                left.remove(child)
                yield from _section(report, child)
                yield _text(f"*{in_markdown(agent.long_name)} goes on*")
    for child in left:  # a program started it
        yield from _section(report, child)


def _cell(report: Report, agent: AgentStory, item: bl.CallStep, count: int) -> dict[str, Any]:
    code = item.code or ""
    needs_program = item.reaches_out or bool(report.started_by(agent, item.tool_call_id))
    did_well = (item.status or item.outcome) in ("ok", "success")
    may_fail = not did_well or needs_program or (agent.depth > 0 and _awaits(code))
    outputs = [shown for output in item.outputs if (shown := _output(output, count)) is not None]
    magic = f"%%child {short_id(agent.agent_id)}\n" if agent.depth else ""
    return _code(f"{magic}{code}", outputs, FAILS if may_fail else {}, count)


def _awaits(code: str) -> bool:
    """Return whether a cell may contain `await`, which `%%child` cannot run."""
    try:
        compile(code, "<cell>", "exec")
    except (SyntaxError, ValueError):
        return True
    return False


def _said(item: bl.StoryBlock, level: int) -> str:
    match item:
        case bl.Prompt():
            return f"**Prompt**\n\n{block(item.of.prompt)}"
        case bl.Said(is_thought=False):
            return below(item.content, level)
        case bl.CallStep():
            return f"Call of {in_markdown(item.named)} ({item.outcome or 'did not end'})\n\n{block(item.result)}"
        case bl.Plan():
            return plan_list(item)
        case bl.End(of=end):
            return f"*Ended ({end.status}): {in_markdown(end.error)}*" if end.error else ""
    return f"*{in_markdown(item.written)}*" if item.written else ""


def _output(output: bl.CallItem, count: int) -> dict[str, Any] | None:
    match output:
        case bl.QuestionAsked():
            return None  # its answer follows
        case bl.GrowingText():
            return {"output_type": "stream", "name": "stderr" if output.kind == "stderr" else "stdout", "text": str(output)}
        case CellError():
            trace = list(output.traceback)
            return {"output_type": "error", "ename": output.ename, "evalue": output.evalue, "traceback": trace}
        case ExecuteResult():
            result = {"output_type": "execute_result", "execution_count": output.execution_count or count}
            return result | {"data": _data(output.data), "metadata": output.metadata}
        case DisplayData():
            return {"output_type": "display_data", "data": _data(output.data), "metadata": output.metadata}
    text = {"text/markdown": f"*{in_markdown(output.written)}*", "text/plain": visible(output.written)}
    return {"output_type": "display_data", "data": text, "metadata": {}}


def _data(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a display in the notebook's format: values that are no text as JSON."""
    return {
        str(kind): value if isinstance(value, str) or _JSON.fullmatch(str(kind)) else json.dumps(value)
        for kind, value in data.items()
        if value is not None
    }


def _code(code: str, outputs: list[dict[str, Any]], metadata: dict[str, Any], count: int | None = None) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": count, "metadata": metadata, "outputs": outputs, "source": code}


def _text(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": clean(text)}
