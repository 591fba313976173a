"""`/branch NOTEBOOK task`: an agent works on a copy of the kernel of a notebook that is open in Jupyter.

The notebook's kernel makes the copy and its own agent does the task, as in a `%%agent` cell: this process is only one more
front end of that kernel. It finds the kernel by its connection file, in which Jupyter has noted the notebook's path.
"""

import asyncio
import contextlib
import json
import queue
import re
import shlex
from pathlib import Path
from typing import Any, Final

from jupyter_client import AsyncKernelClient
from jupyter_core.paths import jupyter_runtime_dir

from freeact_sub.errors import FreeactError
from freeact_sub.text import clean, visible

NAME: Final = "chat"
"""Of the agent in the notebook."""
ANSWERS_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 3.0
"""After so long without a word it looks whether the kernel lives."""
NAMED: Final = re.compile(r"(?P<notebook>.+?\.ipynb)\s+(?P<task>\S.*)", re.DOTALL)


class NotebookTask:
    """One task for the agent of a notebook; it can be cancelled like a run."""

    def __init__(self, workspace: Path, words: str) -> None:
        """Args: workspace: where relative paths begin. words: the notebook's path, and the task. Raises: FreeactError."""
        found = NAMED.fullmatch(words)
        if found is None:
            raise FreeactError("which notebook, and what is to be done? `/branch analysis.ipynb Clean the table.`")
        self._shown = found["notebook"]
        self._notebook, self._task = workspace / found["notebook"], found["task"]
        self._stopped = asyncio.Event()

    def cancel(self) -> None:
        """Stops the agent."""
        self._stopped.set()

    async def run(self, mode: str, model: str | None) -> str:
        """Has the task done. Returns what the notebook would show.

        Raises:
            FreeactError: The notebook has no kernel that answers.
        """
        client = AsyncKernelClient(connection_file=str(await asyncio.to_thread(kernel_of, self._notebook)))
        client.load_connection_file()
        client.start_channels()
        try:
            await self._ready(client)
            await Outputs(client).of("%load_ext freeact_sub.notebook", silent=True)
            line = shlex.join(["--name", NAME, "--mode", mode, *([] if model is None else ["--model", model])])
            outputs = Outputs(client)
            working = asyncio.create_task(outputs.of(f"%%agent {line}\n{self._task}"), name="task in a notebook")
            stopped = asyncio.create_task(self._stop(outputs), name="cancel of a task in a notebook")
            try:
                return await working
            except asyncio.CancelledError:
                outputs.interrupt()
                raise
            finally:
                for task in (working, stopped):
                    task.cancel()
        finally:
            client.stop_channels()

    async def _stop(self, outputs: "Outputs") -> None:
        """Interrupts the cell after a cancel: not before its turn, for until then a cell of the user's runs."""
        await self._stopped.wait()
        await outputs.began.wait()
        outputs.interrupt()

    async def _ready(self, client: Any) -> None:
        try:
            await client.wait_for_ready(timeout=ANSWERS_SECONDS)
        except RuntimeError as error:
            reason = "does not answer: it runs a cell, or has ended"
            raise FreeactError(f"the kernel of {self._shown} {reason}") from error


class Outputs:
    """What one cell shows as text, each display as it is in the end."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._parts: dict[str, str] = {}
        self.began = asyncio.Event()
        """It is the cell's turn."""

    def interrupt(self) -> None:
        """Stops the cell, as the notebook's stop button does. While another cell runs, it does nothing."""
        if self.began.is_set():
            self._client.control_channel.send(self._client.session.msg("interrupt_request"))

    async def of(self, code: str, *, silent: bool = False) -> str:
        """Runs a cell, and returns the text.

        Raises:
            FreeactError: The kernel has ended; or the cell was aborted, because one of the user's before it has failed.
        """
        # an error in it is told here, and must not abort the cells that the user has sent
        request = self._client.execute(code, silent=silent, store_history=False, allow_stdin=False, stop_on_error=False)
        while True:
            try:
                message = await self._client.get_iopub_msg(timeout=LOOK_SECONDS)
            except queue.Empty:
                if not await self._client.is_alive():
                    raise FreeactError("the notebook's kernel has ended") from None
                continue
            if message["parent_header"].get("msg_id") != request and message["msg_type"] != "update_display_data":
                continue
            if message["msg_type"] == "status":
                self.began.set()
                if message["content"]["execution_state"] != "idle":
                    continue
                self.began.clear()
                if await self._status(request) == "aborted":
                    raise FreeactError("a cell of the notebook before this task has failed, and ended it: ask again")
                return "\n".join(filter(str.strip, self._parts.values()))
            self._take(message["msg_type"], message["content"])

    async def _status(self, request: str) -> str:
        """The status in the reply to a request."""
        with contextlib.suppress(queue.Empty):
            while True:
                reply = await self._client.get_shell_msg(timeout=LOOK_SECONDS)
                if reply["parent_header"].get("msg_id") == request:
                    return str(reply["content"].get("status"))
        return ""

    def _take(self, kind: str, content: dict[str, Any]) -> None:
        display = content.get("transient", {}).get("display_id") or f"output {len(self._parts)}"
        if kind == "display_data" or (kind == "update_display_data" and display in self._parts):
            self._parts[display] = visible(str(content["data"].get("text/plain", "")))
        elif kind == "stream":
            self._parts[display] = visible(str(content["text"]))
        elif kind == "error":
            self._parts[display] = visible(clean("\n".join(content["traceback"])))


def kernel_of(notebook: Path) -> Path:
    """The connection file of a notebook's kernel. Raises: FreeactError: there is none."""
    wanted, found = notebook.resolve(), list[tuple[float, Path]]()
    for file in Path(jupyter_runtime_dir()).glob("kernel-*.json"):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it is being removed, or is none of Jupyter's
            session = json.loads(file.read_text(encoding="utf-8")).get("jupyter_session")
            if isinstance(session, str) and session and Path(session).resolve() == wanted:
                found.append((file.stat().st_mtime, file))
    if not found:
        raise FreeactError(f"no kernel of {notebook.name} runs here: open the notebook in JupyterLab, and run a cell of it")
    return max(found)[1]
