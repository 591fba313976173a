"""Runs cells in a stock ipykernel, through jupyter_client and through nbclient, and brings what they put out into one form."""

import contextlib
import os
import queue
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from support.jupyter_cells import LATE

from freeact_sub.cells import CellError, CellOutput, ClearOutput, DisplayData, ExecuteResult, StreamText
from freeact_sub.kernels.wire.channels import Message, output_of
from freeact_sub.kernels.wire.client import outputs_of

SECONDS = 60
LATE_SECONDS = 0.5
MAX_CHARS = 20_000
Shape = tuple[Any, ...]
CHANGING = [
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"[^\s'\"]*ipykernel_\d+/\d+\.py"), "CELL"),
    (re.compile(r"0x[0-9a-f]+"), "0x"),
    (re.compile(r"\bIn ?\[\d+\]|Task-\d+|Thread-\d+|\d+\.\d+s?\b"), "N"),
    (re.compile(r"(?:/[\w.+-]+)+/(?=[\w.-]+)"), "FOLDER/"),
    (re.compile(r"N line \d+|line \d+"), "LINE"),
]


def environment() -> dict[str, str]:
    """The same in every shell: C buffers its output, and `python` is the one of the kernel.

    In a test, ipykernel would not read what is written to descriptors.
    """
    given = {name: value for name, value in os.environ.items() if name not in ("PYTEST_CURRENT_TEST", "PYTHONUNBUFFERED")}
    path = f"{os.path.dirname(sys.executable)}{os.pathsep}{given.get('PATH', os.defpath)}"
    return given | {"PATH": path}


def settled(text: str) -> str:
    """Without what changes from run to run, and from place to place."""
    for pattern, replacement in CHANGING if len(text) < MAX_CHARS else ():
        text = pattern.sub(replacement, text)
    return text.replace("\r\n", "\n")


def bundle(data: dict[str, Any]) -> Shape:
    """A display by its kinds; pictures differ in every byte."""
    return tuple((kind, "" if kind.startswith("image/png") else settled(str(value))) for kind, value in sorted(data.items()))


def shapes(outputs: Iterable[CellOutput]) -> list[Shape]:
    """Outputs in order. Which of two streams is sent first is not settled, so all of stdout comes before stderr."""
    found: list[Shape] = []
    texts = {"stdout": "", "stderr": ""}

    def flush() -> None:
        found.extend((name, settled(text)) for name, text in texts.items() if text)
        texts.update(stdout="", stderr="")

    ids: dict[str, int] = {}
    for output in outputs:
        if isinstance(output, StreamText):
            texts[output.name] += output.text
            continue
        flush()
        match output:
            case DisplayData():
                name = None if output.display_id is None else ids.setdefault(output.display_id, len(ids))
                found.append(("update" if output.update else "display", bundle(output.data), str(output.metadata), name))
            case ExecuteResult():
                found.append(("result", bundle(output.data), str(output.metadata)))
            case CellError():
                last = output.traceback[-1] if output.traceback else ""
                found.append(("error", output.ename, settled(output.evalue), settled(last)))
            case ClearOutput():
                found.append(("clear", output.wait))
    flush()
    return found


def folded(found: Iterable[Shape]) -> list[Shape]:
    """What is left on a page, where clearing and replacing has taken place."""
    left: list[Shape] = []
    waits = False
    for shape in found:
        if shape[0] == "clear":
            waits = shape[1]
            left = left if waits else []
            continue
        if waits:
            left, waits = [], False
        if shape[0] != "update":
            left.append(shape[:3] if shape[0] == "display" else shape)
            continue
        for index, (old, name) in enumerate([(old, shape[3]) for old in left]):
            if old[0] == "display" and name is not None and index == _place(left, name):
                left[index] = ("display", *shape[1:3])
    return list(joined(left))


def _place(left: list[Shape], name: int) -> int:
    displays = [index for index, old in enumerate(left) if old[0] == "display"]
    return displays[name] if name < len(displays) else -1


def joined(found: Iterable[Shape]) -> Iterator[Shape]:
    """Texts of one stream that stand together are one."""
    last: Shape | None = None
    for shape in found:
        if last is not None and shape[0] == last[0] and shape[0] in ("stdout", "stderr"):
            last = (shape[0], last[1] + shape[1])
            continue
        if last is not None:
            yield last
        last = shape
    if last is not None:
        yield last


async def run_in_stock(cells: dict[str, str], folder: Path) -> dict[str, list[Shape]]:
    """Through jupyter_client. Output of an earlier cell counts as that of the one that runs."""
    manager = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=str(folder / "k"))
    await manager.start_kernel(cwd=str(folder), env=environment())
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=SECONDS)
        return {name: await _run(client, code, late=name in LATE) for name, code in cells.items()}
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


async def _run(client: Any, code: str, *, late: bool) -> list[Shape]:
    request = client.execute(code, allow_stdin=False)
    outputs: list[CellOutput] = []
    while True:
        message = await client.get_iopub_msg(timeout=SECONDS)
        content = message["content"]
        is_own = message["parent_header"].get("msg_id") == request
        output = output_of(Message(kind=message["msg_type"], parent_id=None, content=content))
        if output is not None and (is_own or not isinstance(output, ClearOutput)):
            outputs.append(output)
        if is_own and message["msg_type"] == "status" and content["execution_state"] == "idle":
            break
    with contextlib.suppress(queue.Empty):
        while late:
            message = await client.get_iopub_msg(timeout=LATE_SECONDS)
            outputs += filter(
                None, [output_of(Message(kind=message["msg_type"], parent_id=None, content=message["content"]))]
            )
    while (reply := await client.get_shell_msg(timeout=SECONDS))["parent_header"].get("msg_id") != request:
        pass
    content = reply["content"]
    return [*shapes([*outputs, *outputs_of(content.get("payload", []))]), ("status", content["status"])]


async def run_in_nbclient(cells: dict[str, str], folder: Path) -> dict[str, list[Shape]]:
    """Through nbclient, which keeps what a page would show."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells.values()])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "", "language": "python"}
    client = NotebookClient(notebook, allow_errors=True, timeout=SECONDS, resources={"metadata": {"path": str(folder)}})
    await client.async_execute(env=environment())
    kinds = {"stream": "stream", "display_data": "display_data", "execute_result": "execute_result", "error": "error"}
    found: dict[str, list[Shape]] = {}
    for name, cell in zip(cells, notebook.cells, strict=True):
        messages = [Message(kind=kinds[output.output_type], parent_id=None, content=dict(output)) for output in cell.outputs]
        found[name] = folded(shapes(filter(None, map(output_of, messages))))
    return found
