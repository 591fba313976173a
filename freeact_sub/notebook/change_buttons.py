"""The buttons under a table of changes: each makes a cell below, with a magic or the code; you or it runs that cell.

They are plain HTML that names commands of JupyterLab and Jupyter Notebook, which make and run cells of the notebook itself.
So what a button does stays in the notebook, and is done again by "run all". Elsewhere they are not shown: the magics do the
same.
"""

import json
from collections.abc import Sequence
from typing import Final

from freeact_sub.kernels.copies import CopyChange
from freeact_sub.show.safe_html import escaped

CODE_CHARS: Final = 50_000
"""Longer code is not kept in the page; the magic inserts it."""
STYLE: Final = (
    "<style>.fsub .fsub-buttons{display:none;margin:6px 0}"
    ":is(.jp-NotebookPanel,.jp-LinkedOutputView) .fsub .fsub-buttons{display:block}"
    ".fsub .fsub-buttons button{margin-right:6px;padding:3px 10px;cursor:pointer;border-radius:4px;"
    "border:1px solid var(--fsub-line);background:var(--fsub-soft);color:inherit}</style>"
)


def change_buttons(changes: Sequence[CopyChange], name: str, code: str) -> str:
    """The buttons as HTML. Args: name: what `--name` has to say. code: of the cells that made the changes."""
    names = ", ".join(change.name for change in changes if not change.imported and change.name.isidentifier())
    buttons = [
        _button("Adopt all", f"%agent_adopt{name}", "runs %agent_adopt in a new cell", runs=True),
        _button("Adopt…", f"%agent_adopt{name} {names}", "a new cell in which you choose the names"),
        _button("Insert the code", code, "a new cell with the code instead of the values; it is not run")
        if code and len(code) <= CODE_CHARS
        else _button("Insert the code", f"%agent_code{name}", "runs %agent_code in a new cell", runs=True),
        _button("Discard", f"%agent_discard{name}", "runs %agent_discard in a new cell: the copy ends", runs=True),
    ]
    return f'{STYLE}<div class="fsub-buttons">{"".join(buttons)}</div>'


def _button(label: str, text: str, title: str, *, runs: bool = False) -> str:
    """A button that makes a cell below the active one, which is the one that was clicked in."""
    commands = ["notebook:insert-cell-below", "notebook:replace-selection", *(["notebook:run-cell"] if runs else [])]
    given = json.dumps({"commands": commands, "args": {"text": text}})  # all of them get these, and one takes the text
    return (
        f'<button type="button" title="{escaped(title)}" data-commandlinker-command="apputils:run-all-enabled" '
        f'data-commandlinker-args="{escaped(given)}">{escaped(label)}</button>'
    )
