"""A front end for tests: a real ipykernel, driven through Jupyter's protocol as a notebook page would do it."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client import AsyncKernelManager

from freeact_sub.config.hooks import HOOK_EVENTS
from freeact_sub.notebook.ipython_shell import QUEUED_SECONDS

LIMIT_SECONDS = 120


@dataclass
class NotebookCell:
    """What the page shows of one cell."""

    outputs: list[dict] = field(default_factory=list)
    by_display_id: dict[str, dict] = field(default_factory=dict)
    updates: dict[str, list[float]] = field(default_factory=dict)
    """Of each display id, when it was drawn."""
    reply: dict = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, message: dict) -> None:
        content = message["content"]
        display_id = content.get("transient", {}).get("display_id")
        if display_id:
            self.updates.setdefault(display_id, []).append(message["header"]["date"].timestamp())
        if message["msg_type"] == "update_display_data":
            self.by_display_id[display_id].update(content)
        elif message["msg_type"] in ("display_data", "stream", "error", "execute_result"):
            output = {"type": message["msg_type"], **content}
            self.outputs.append(output)
            if display_id:
                self.by_display_id[display_id] = output
        self.changed.set()

    @property
    def html(self) -> str:
        """All HTML there is now, from top to bottom."""
        return "\n".join(output["data"].get("text/html", "") for output in self.outputs if "data" in output)

    @property
    def text(self) -> str:
        """What a console shows."""
        parts = []
        for output in self.outputs:
            parts.append(
                output.get("text") or output.get("data", {}).get("text/plain", "") or "\n".join(output.get("traceback", []))
            )
        return "\n".join(parts)

    async def wait_for(self, condition: Callable[["NotebookCell"], Any]) -> Any:
        """Wait until the page shows something."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not (value := condition(self)):
                self.changed.clear()
                await self.changed.wait()
        return value


@dataclass(frozen=True)
class InputRequest:
    """An open question: its text, and the comm ids of what it is answered with."""

    html: str
    approve: str
    session: str
    project: str
    pattern: str
    deny: str
    reason: str


class NotebookKernel:
    """Runs cells, answers what they ask, and clicks their buttons."""

    def __init__(self, manager: AsyncKernelManager, client: Any) -> None:
        self.manager = manager
        self.client = client
        self.comms: dict[str, dict] = {}
        """State of the widgets that are there, by comm id."""
        self.comms_changed = asyncio.Event()
        self.displays: dict[str, list[NotebookCell]] = {}
        """The cell of each display, by its id."""
        self.asked: list[str] = []
        """Prompts of input requests."""

    async def run(
        self,
        code: str,
        *,
        answer: Callable[[str], str] | None = None,
        cell_id: str | None = None,
        cell: NotebookCell | None = None,
    ) -> NotebookCell:
        """Run a cell to its end. answer: to input requests; True if the test answers them; False if this page has no input."""
        request = self.send(code, allow_stdin=answer is not False, cell_id=cell_id)
        return await self.ended(request, answer=answer, cell=cell)

    def send(self, code: str, *, allow_stdin: bool = True, cell_id: str | None = None) -> dict:
        """Send a cell, behind those that run. Its output is read by `ended`."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": allow_stdin,
            "stop_on_error": True,
        }
        request = self.client.session.msg("execute_request", content, metadata={"cellId": cell_id} if cell_id else {})
        self.client.shell_channel.send(request)
        return request

    async def ended(
        self, request: dict, *, answer: Callable[[str], str] | None = None, cell: NotebookCell | None = None
    ) -> NotebookCell:
        """Read what a cell shows, to its end. See `run`."""
        cell = cell or NotebookCell()
        async with asyncio.timeout(LIMIT_SECONDS), asyncio.TaskGroup() as group:
            stdin = group.create_task(self._answer(answer)) if callable(answer) else None
            reply = group.create_task(self._reply(request["header"]["msg_id"]))
            await self._read(request["header"]["msg_id"], cell)
            cell.reply = await reply
            if stdin:
                stdin.cancel()
        return cell

    @asynccontextmanager
    async def running(self, code: str, **kwargs: Any) -> AsyncIterator[NotebookCell]:
        """Run a cell while something is done with its page; at the exit it has ended."""
        page = NotebookCell()
        task = asyncio.create_task(self.run(code, cell=page, **kwargs))
        try:
            yield page
            await task
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def next_question(self) -> str:
        """Wait for an input request that is not answered."""
        async with asyncio.timeout(LIMIT_SECONDS):
            return (await self.client.get_stdin_msg())["content"]["prompt"]

    async def click(self, button: str) -> None:
        """Click a button: its comm id, or the label of the first that is there."""
        if button not in self.comms:
            button = (await self.widgets(description=button))[0]
        await self.wait(lambda: not self.comms[button].get("disabled"))
        self._comm(button, {"method": "custom", "content": {"event": "click"}})

    async def type(self, field: str, text: str) -> None:
        """Type into a text field: its comm id."""
        self._comm(field, {"method": "update", "state": {"value": text}, "buffer_paths": []})

    async def questions(self, count: int, *, about: str = "") -> "list[InputRequest]":
        """Wait for so many open questions, all with a text in them."""
        panel = (await self.widgets(_view_name="VBoxView", count=1))[0]

        def found() -> "list[InputRequest]":
            questions = [self._question(model) for model in self.comms[panel].get("children", ())]
            return questions if len(questions) == count and all(about in question.html for question in questions) else []

        return await self.wait(found)

    def _question(self, model: str) -> "InputRequest":
        html, once, always, _ = self._children(model.removeprefix("IPY_MODEL_"))
        approve, deny, *_, reason = self._children(once)
        session, project, pattern = self._children(always)
        return InputRequest(self.comms[html]["value"], approve, session, project, pattern, deny, reason)

    def _children(self, comm_id: str) -> list[str]:
        return [child.removeprefix("IPY_MODEL_") for child in self.comms[comm_id]["children"]]

    async def wait(self, condition: Callable[[], Any]) -> Any:
        """Wait until the widgets are as they should be."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not (value := condition()):
                self.comms_changed.clear()
                await self.comms_changed.wait()
        return value

    async def widgets(self, *, count: int = 1, **state: Any) -> list[str]:
        """Wait for so many widgets with this state; their comm ids."""

        def found() -> list[str]:
            matching = [comm_id for comm_id, known in self.comms.items() if state.items() <= known.items()]
            return matching if len(matching) >= count else []

        return await self.wait(found)

    def refuse_widgets(self) -> None:
        """Say what a front end says that knows no widgets."""
        for comm_id in list(self.comms):
            self.client.shell_channel.send(self.client.session.msg("comm_close", {"comm_id": comm_id, "data": {}}))

    async def interrupt(self) -> None:
        await self.manager.interrupt_kernel()

    def _comm(self, comm_id: str, data: dict) -> None:
        self.client.shell_channel.send(self.client.session.msg("comm_msg", {"comm_id": comm_id, "data": data}))

    async def _read(self, request_id: str, cell: NotebookCell) -> None:
        while True:
            message = await self.client.get_iopub_msg()
            content = message["content"]
            if message["msg_type"] == "comm_open":
                self.comms[content["comm_id"]] = dict(content["data"].get("state", {}))
            elif message["msg_type"] == "comm_msg":
                self.comms.get(content["comm_id"], {}).update(content["data"].get("state", {}))
            elif message["msg_type"] == "comm_close":
                self.comms.pop(content["comm_id"], None)
            if message["msg_type"].startswith("comm_"):
                self.comms_changed.set()
            display_id = content.get("transient", {}).get("display_id")
            if message["msg_type"] == "update_display_data" and display_id in self.displays:
                for shown in self.displays[display_id]:  # wherever it stands
                    shown.take(message)
                continue
            if message["parent_header"].get("msg_id") != request_id:
                continue
            if message["msg_type"] == "status" and content["execution_state"] == "idle":
                return
            cell.take(message)
            if display_id:
                self.displays.setdefault(display_id, []).append(cell)

    async def _reply(self, request_id: str) -> dict:
        while True:
            message = await self.client.get_shell_msg()
            if message["parent_header"].get("msg_id") == request_id:
                return message["content"]

    async def _answer(self, answer: Callable[[str], str]) -> None:
        while True:
            message = await self.client.get_stdin_msg()
            self.asked.append(message["content"]["prompt"])
            self.client.input(answer(message["content"]["prompt"]))


@asynccontextmanager
async def notebook_kernel(folder: Path) -> AsyncIterator[NotebookKernel]:
    """A kernel as a notebook server starts it; its working directory is the folder."""
    manager = AsyncKernelManager(transport="ipc")
    manager.shutdown_wait_time = 60.0  # then it kills the kernel, in the middle of what that removes
    sockets = folder / "sockets"
    sockets.mkdir()
    manager.connection_file, manager.ip = str(sockets / "k.json"), str(sockets / "k")
    manager.kernel_spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    with open(folder / "notebook-kernel.log", "ab") as log:
        await manager.start_kernel(stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, env=dict(os.environ))
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=LIMIT_SECONDS)
        yield NotebookKernel(manager, client)
    finally:
        client.stop_channels()
        await manager.shutdown_kernel()


def note_hooks(folder: Path) -> Callable[[], list[str]]:
    """Give a workspace hooks that note their events. Returns what reads these, in their order."""
    notes = [{"hooks": [{"type": "command", "command": "cat >> heard.jsonl"}]}]
    (folder / ".agents").mkdir()
    (folder / ".agents" / "hooks.json").write_text(json.dumps({"hooks": dict.fromkeys(HOOK_EVENTS, notes)}))
    return lambda: [json.loads(line)["hook_event_name"] for line in (folder / "heard.jsonl").read_text().splitlines()]


async def until_it_is_a_persons_cell() -> None:
    """Wait for as long as a front end may take to send cells that were queued: the next one is then a person's."""
    await asyncio.sleep(QUEUED_SECONDS)
