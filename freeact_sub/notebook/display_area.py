"""Where displays go: `DisplayArea`, and the output of a notebook cell."""

from typing import Protocol

from freeact_sub.cells import MimeBundle
from freeact_sub.notebook.ipython_shell import running_kernel


class DisplayArea(Protocol):
    """Shows MIME bundles. `display.py` and `question_forms.py` draw on it; tests use their own."""

    live: bool
    """Whether a display can be updated in place."""

    def publish(self, display_id: str, data: MimeBundle, *, update: bool) -> None:
        """Show a display under a new id, or replace the one that has the id."""


class CellDisplay:
    """The output of the cell in whose task it is used; in plain IPython, the console."""

    def __init__(self) -> None:
        self.live = running_kernel() is not None

    def publish(self, display_id: str, data: MimeBundle, *, update: bool) -> None:
        """See `DisplayArea.publish`."""
        from IPython.display import display, update_display  # noqa: PLC0415  # slow; not needed to import the package

        if not self.live:
            print(data["text/plain"])  # noqa: T201  # a console shows nothing else of a display
        elif update:
            update_display(data, display_id=display_id, raw=True)
        else:
            display(data, display_id=display_id, raw=True)
