"""The additional guest of a kernel at a gateway. Sent as source; standard library and IPython only.

The host is far away, and the connection may drop. So the kernel ends by itself when it has not heard of the host for longer
than its lease; a request that has no reply is sent again (the host knows it by its id); a cell that comes a second time is
not run again; and a message that is too large comes and goes in pieces.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

FOLDER = "FA_FOLDER"
WATCH = """
import os, shutil, signal, sys, time
kernel, folder = int(sys.argv[1]), sys.argv[2]
while os.getppid() == kernel:
    time.sleep(0.2)
mark, found = os.fsencode("FA_FOLDER=" + folder), True
while found:
    found = False
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        try:
            with open("/proc/" + name + "/environ", "rb") as file:
                if name.isdigit() and mark in file.read().split(bytes(1)):
                    os.kill(int(name), signal.SIGKILL)
                    found = True
        except OSError:
            pass
shutil.rmtree(folder, ignore_errors=True)
"""
"""A process that ends the kernel's programs when the kernel has ended, in any way, and removes its folder."""
AGAIN_SECONDS = (5.0, 60.0)
"""Seconds without a reply after which a request is sent again, first and at most: a person may have to reply."""
LOOK_SECONDS = 0.25
KEPT_CHARS, KEPT_MESSAGES = 8_000_000, 2_000
"""Bounds on the kept output of a cell."""


def settle(environment: Mapping[str, str], workspace: str | None) -> str:
    """Make the kernel's private folder, set its environment, and go to its working directory. Returns the folder.

    Args:
        environment: Further variables of the kernel.
        workspace: The working directory. None: the kernel's own folder.

    Raises:
        OSError: The directory does not exist.
    """
    os.environ.update(environment)
    folder = os.path.join(tempfile.gettempdir(), "freeact-" + secrets.token_hex(8))
    if sys.executable:  # before there is a folder: a kernel can be killed at any moment, and would leave it behind
        watch = [sys.executable, "-I", "-S", "-c", WATCH, str(os.getpid()), folder]
        null = subprocess.DEVNULL
        subprocess.Popen(watch, env={}, cwd="/", stdin=null, stdout=null, stderr=null, start_new_session=True)
    os.mkdir(folder, 0o700)
    os.environ[FOLDER] = folder
    scratch = os.path.join(folder, "tmp")
    os.mkdir(scratch)
    os.environ["TMPDIR"] = scratch  # other temporary files go with the kernel
    tempfile.tempdir = None
    own = os.path.join(folder, "work")
    os.mkdir(own)
    if workspace is not None and not os.path.isdir(workspace):
        raise OSError(f"kernel.gateway.workspace = 'shared', and there is no folder {workspace} on the gateway's machine")
    os.chdir(own if workspace is None else workspace)
    return folder


def attach(kernel: Any, requests: Any, folder: str, lease_seconds: float) -> "Host":
    """Begin to watch for the host. Args: requests: of `agent`. folder: of `settle`."""
    host = Host(kernel, requests, folder, lease_seconds)
    threading.Thread(target=host.watch, name="freeact lease", daemon=True).start()
    return host


class Host:
    """The kernel's end of the connection with its host."""

    def __init__(self, kernel: Any, requests: Any, folder: str, lease_seconds: float) -> None:
        self.kernel = kernel
        self.requests = requests
        self.folder = folder
        self.lease_seconds = lease_seconds
        self.heard = time.monotonic()
        self.unanswered: dict[str, tuple[float, float, dict[str, Any], Any]] = {}
        """The time of the next attempt, the pause after it, the content and the parent of each unanswered request."""
        self.parts: dict[str, dict[int, bytes]] = {}
        self.files: dict[str, Any] = {}
        self.last_cell: tuple[str, dict[str, Any]] = ("", {})
        """The id of the last request to run code, and its answer."""
        kernel.control_handlers.update(
            {
                "freeact_lease": lambda *_: None,
                "freeact_end": self.on_end,
                "freeact_part": self.on_part,
                "freeact_values": self.on_values,
                "freeact_again": self.on_again,
            }
        )
        for name, handler in tuple(kernel.control_handlers.items()):
            kernel.control_handlers[name] = self.renewing(handler)
        self.send = requests.send
        self.output = KeptOutput(kernel)
        requests.send = self.send_until_answered
        self.run_once()

    def renewing(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """Make a handler of a message of the host renew the lease."""

        def handle(*args: Any) -> Any:
            self.heard = time.monotonic()
            return handler(*args)

        return handle

    def watch(self) -> None:
        """End the kernel with its lease, and repeat unanswered requests. Runs in a thread."""
        while time.monotonic() - self.heard < self.lease_seconds:
            time.sleep(LOOK_SECONDS)
            for request_id, (due, waited, content, parent) in tuple(self.unanswered.items()):
                if request_id not in self.requests.waiting:
                    self.unanswered.pop(request_id, None)
                elif time.monotonic() >= due:
                    wait = min(2 * waited, AGAIN_SECONDS[1])
                    self.unanswered[request_id] = time.monotonic() + wait, wait, content, parent
                    self.publish("freeact_request", content, parent)
        end_all()

    def send_until_answered(self, method: str, params: dict[str, Any], done: Callable[[dict[str, Any]], object]) -> str:
        """Send a request as `Requests.send` does, again and again until it is answered."""
        request_id: str = self.send(method, params, done)
        content = {"id": request_id, "method": method, "params": params}
        due = time.monotonic() + AGAIN_SECONDS[0]
        self.unanswered[request_id] = due, AGAIN_SECONDS[0], content, self.kernel.get_parent("shell")
        return request_id

    def publish(self, kind: str, content: dict[str, Any], parent: Any) -> None:
        """Send a message on iopub."""
        self.kernel.session.send(self.kernel.iopub_socket, kind, content, parent=parent)

    def on_end(self, _stream: Any, _idents: Any, message: Any) -> None:
        """End soon, after the reply is sent."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.publish("freeact_end", {"id": message["content"]["id"]}, message)
        ending = threading.Timer(LOOK_SECONDS, end_all)
        ending.daemon = True
        ending.start()

    def on_part(self, stream: Any, idents: Any, message: Any) -> None:
        """Take a piece of a message of the control channel that is too large to come as one."""
        content = message["content"]
        parts = self.parts.setdefault(content["id"], {})
        parts[content["number"]] = b"".join(map(bytes, message["buffers"]))
        if len(parts) == content["count"]:
            del self.parts[content["id"]]
            whole = json.loads(b"".join(parts[number] for number in range(content["count"])))
            self.kernel.control_handlers[content["kind"]](stream, idents, {**message, "content": whole})

    def on_values(self, stream: Any, idents: Any, message: Any) -> None:
        """Read or write a piece of a file in the scratch folder. No piece goes by iopub, which servers read twice."""
        content = message["content"]
        reply, buffers = {"id": content["id"]}, []
        path = os.path.join(self.folder, "tmp", os.path.basename(content.get("name", "")))
        try:
            if content["op"] == "ping":
                pass
            elif content["op"] == "mark":
                reply["folder"] = os.path.dirname(path)
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
            elif content["op"] == "move":  # the mark shows that the other kernel can write where it says that its folder is
                os.stat(os.path.join(content["folder"], os.path.basename(content["mark"])), follow_symlinks=False)
                there = os.path.join(content["folder"], os.path.basename(path))
                if os.path.exists(path) or not os.path.exists(there):  # requested twice
                    os.rename(path, there)
            elif content["op"] == "write":
                # nothing is cut: a piece may come once more, after others
                with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb", buffering=0) as file:
                    file.seek(content["offset"])
                    file.writelines(message["buffers"])
            elif content["op"] == "remove":
                with contextlib.suppress(FileNotFoundError):  # requested twice
                    os.unlink(path)
            else:
                with open(path, "rb") as file:
                    reply["size"] = os.fstat(file.fileno()).st_size
                    file.seek(content["offset"])
                    buffers = [file.read(content["size"])]
        except OSError as error:
            reply["error"] = error.strerror or str(error)
        self.kernel.session.send(stream, "freeact_values", reply, message, ident=idents, buffers=buffers)

    def on_again(self, _stream: Any, _idents: Any, message: Any) -> None:
        """Repeat a cell's output, and say that it is complete."""
        self.output.send_again(message["content"]["cell"], message["content"]["from"])
        self.publish("freeact_again", {}, message)

    def run_once(self) -> None:
        """Answer a cell that is sent a second time, without running it again."""
        kernel = self.kernel
        execute, run = kernel.shell_handlers["execute_request"], kernel.do_execute

        async def do_execute(*args: Any, **kwargs: Any) -> Any:
            reply = run(*args, **kwargs)
            if hasattr(reply, "__await__"):
                reply = await reply
            self.last_cell = self.last_cell[0], {name: reply.get(name) for name in ("status", "execution_count")}
            return reply

        def on_execute(stream: Any, idents: Any, message: Any) -> Any:
            cell_id = message["header"]["msg_id"]
            if cell_id == self.last_cell[0]:
                kernel.session.send(stream, "execute_reply", self.last_cell[1], message, ident=idents)
                return None
            self.last_cell = cell_id, {"status": "aborted"}
            return execute(stream, idents, message)

        kernel.do_execute = do_execute
        kernel.shell_handlers["execute_request"] = on_execute


class KeptOutput:
    """The present cell's output: numbered, with its end kept for a host that lost the connection."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.lock = threading.Lock()
        self.cell_id = ""
        self.number = 0
        self.kept: deque[tuple[int, int, dict[str, Any], Any]] = deque()
        """Kept messages: number, size, message and identity."""
        self.size = 0
        send = kernel.session.send
        self.send = getattr(send, "__wrapped__", send)
        kernel.session.send = self.send_numbered
        if self.send is not send:  # each piece of a long text has a number of its own
            sys.modules["freeact_guest.plain"].install(kernel.session)

    def send_numbered(self, stream: Any, kind: Any, *args: Any, **kwargs: Any) -> Any:
        """Send as `Session.send` does, with a number."""
        if stream is not self.kernel.iopub_socket and stream is not self.kernel.iopub_thread:
            return self.send(stream, kind, *args, **kwargs)
        message, ident, buffers = self.message_of(kind, *args, **kwargs)
        parent = message["parent_header"]
        if parent.get("msg_type") == "execute_request":
            with self.lock:
                self.take(message, parent["msg_id"], ident, buffers)
        try:
            return self.send(stream, message, ident=ident, buffers=buffers)
        except ValueError:  # it is too large, and something else is sent in its place
            with self.lock:
                self.give_back(message)
            raise

    def give_back(self, message: dict[str, Any]) -> None:
        """Forget the newest message, which was not sent: its number is the next one's."""
        if self.kept and self.kept[-1][2] is message:
            self.size -= self.kept.pop()[1]
            self.number -= 1

    def message_of(  # the signature is Jupyter's
        self,
        kind: Any,
        content: Any = None,
        parent: Any = None,
        ident: Any = None,
        buffers: Any = None,
        track: bool = False,
        header: Any = None,
        metadata: Any = None,
    ) -> tuple[dict[str, Any], Any, Any]:
        """Return the message that the arguments of `Session.send` stand for, its identity and its buffers."""
        del track
        if isinstance(kind, dict):
            return kind, ident, buffers or kind.get("buffers")
        session = self.kernel.session
        return session.msg(kind, content=content, parent=parent, header=header, metadata=metadata), ident, buffers

    def take(self, message: dict[str, Any], cell_id: str, ident: Any, buffers: Any) -> None:
        """Number a message of the present cell, and keep it."""
        begins = message["msg_type"] == "status" and message["content"].get("execution_state") == "busy"
        if begins and cell_id != self.cell_id:
            self.cell_id, self.number, self.size = cell_id, 0, 0
            self.kept.clear()
        if cell_id != self.cell_id or buffers:
            return  # output of a thread that an earlier cell has started
        message["metadata"] = {**message["metadata"], "freeact_number": self.number}
        size = sum(len(value) for value in values_in(message["content"]))
        self.kept.append((self.number, size, message, ident))
        self.number += 1
        self.size += size
        while self.size > KEPT_CHARS or len(self.kept) > KEPT_MESSAGES:
            self.size -= self.kept.popleft()[1]

    def send_again(self, cell_id: str, first: int) -> None:
        """Send the kept messages of a cell, from a number on."""
        with self.lock:
            kept = [entry for entry in self.kept if entry[0] >= first] if cell_id == self.cell_id else []
        for _, _, message, ident in kept:
            self.send(self.kernel.iopub_socket, message, ident=ident)


def values_in(value: Any) -> Iterator[str]:
    """Yield the texts in a message, which make it large."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from values_in(item)


def end_all() -> None:
    """End this kernel and its process group, at once; its other programs end by `WATCH`."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    os._exit(1)  # process 1 of a container, to whom no signal of its own is delivered
