"""The streams `sys.stdout` and `sys.stderr` of a kernel: no cell takes them from later cells without a word.

Runs in kernels: standard library only. In a stock ipykernel a cell that sets one of them to None makes the next cell hang,
one that closes it makes every later `print` fail, and one that leaves a `StringIO` in its place hides later output.
"""

import contextlib
import sys
from typing import Any


class Streams:
    """Looks after the streams of this kernel at the end of each cell."""

    def __init__(self) -> None:
        self._own: dict[str, Any] = {}
        self._at_begin: list[tuple[Any, Any]] = []
        """Of the cell that runs, last, and of those that run it, as `%%capture` does: what `sys` had when it began."""

    def attach(self, shell: Any) -> None:
        """This process is a kernel. Called again in a branch, which has other streams."""
        if not self._own:
            shell.events.register("pre_execute", lambda: self.on_cell(shell))
            shell.events.register("post_execute", self.on_end_of_cell)
        self._at_begin = []
        self._own = {"stdout": sys.stdout, "stderr": sys.stderr}
        for stream in self._own.values():
            with contextlib.suppress(AttributeError):
                stream.close = stream.flush

    @property
    def own(self) -> tuple[Any, ...]:
        """Those of the kernel, whatever a cell has put in their place."""
        return tuple(self._own.values())

    def on_cell(self, shell: Any) -> None:
        """Notes what is there; tells hidden streams for which cell they print, as ipykernel tells `sys.stdout`."""
        self._at_begin.append((sys.stdout, sys.stderr))
        for name, own in self._own.items():
            if getattr(sys, name) is not own and hasattr(own, "set_parent"):
                own.set_parent(shell.get_parent())

    def flush_replaced(self) -> None:
        """Flushes the streams that a cell has hidden; ipykernel flushes `sys.stdout` and `sys.stderr`."""
        for name, own in self._own.items():
            if getattr(sys, name) is not own:
                own.flush()

    def put_back(self) -> list[str]:
        """Puts back those that nobody can write to. Returns their names."""
        gone = [name for name in self._own if not is_writable(getattr(sys, name, None))]
        for name in gone:
            setattr(sys, name, self._own[name])
        return gone

    def on_end_of_cell(self) -> None:
        """Puts back what cannot be written to, and tells of a stream that a cell has left in the place of the kernel's."""
        for name in self.put_back():
            self._own[name].write(f"[The cell has left a sys.{name} that cannot be written to. The kernel's own is back.]\n")
        began = self._at_begin.pop() if self._at_begin else (sys.stdout, sys.stderr)
        for (name, own), before in zip(self._own.items(), began, strict=True):
            present = getattr(sys, name)
            if not any(present is known for known in (before, own, getattr(sys, f"__{name}__"))):
                own.write(
                    f"[The cell has set sys.{name} to a {type(present).__name__}: later cells write into it. "
                    f"`sys.{name} = sys.__{name}__` shows their output here again.]\n"
                )


def is_writable(stream: Any) -> bool:
    """Whether `print` can use it."""
    return callable(getattr(stream, "write", None)) and not getattr(stream, "closed", False)


STREAMS = Streams()
