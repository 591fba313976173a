"""The table of what an agent has changed in its copy of the notebook's kernel, as HTML and as text."""

import json
from collections.abc import Sequence
from typing import Final

from freeact_sub.cells import MimeBundle
from freeact_sub.kernels.copies import CopyChange
from freeact_sub.notebook.render import STYLE
from freeact_sub.show.safe_html import escaped
from freeact_sub.text import counted, one_line, visible

SHOWN: Final = 50
CHARS: Final = 100
NONE: Final = "—"
PERHAPS: Final = "too large to compare in time"
ALSO_HERE: Final = "you have changed it since"
CODE_CHARS: Final = 50_000
"""Longer code is not kept in the page; the magic inserts it."""
BUTTON_STYLE: Final = (
    "<style>.fsub .fsub-buttons{display:none;margin:6px 0}"
    ":is(.jp-NotebookPanel,.jp-LinkedOutputView) .fsub .fsub-buttons{display:block}"
    ".fsub .fsub-buttons button{margin-right:6px;padding:3px 10px;cursor:pointer;border-radius:4px;"
    "border:1px solid var(--fsub-line);background:var(--fsub-soft);color:inherit}</style>"
)


def change_table(changes: Sequence[CopyChange], name: str, code: str) -> MimeBundle:
    """The changes, and how they are taken over.

    Args:
        changes: What has changed, more than imports.
        name: What `--name` has to say. Empty: nothing.
        code: Of the cells that made the changes.
    """
    buttons = _buttons(changes, name, code)
    imports = one_line(visible(", ".join(change.name for change in changes if change.imported)), CHARS)
    changes = [change for change in changes if not change.imported]
    rows = [_row(change) for change in changes[:SHOWN]]
    others = [f"and {len(changes) - SHOWN} more"] if len(changes) > SHOWN else []
    more = "; ".join([*others, f"new imports: {imports}"] if imports else others)
    head = (
        f"{counted(len(changes), 'variable')} changed in the agent's copy; your notebook still has what is under “before”."
    )
    first = next((change.name for change in changes if change.what != "perhaps"), changes[0].name)
    how = (
        f"%agent_adopt {first}{name} takes it over, %agent_adopt{name} all of them, %agent_discard{name} none; "
        f"%agent_code{name} shows the code."
    )
    html = "".join(f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in row)}</tr>" for row in rows)
    table = f"<table><tr><th>variable</th><th>before</th><th>after</th></tr>{html}</table>"
    text = "\n".join(f"  {row[0]}: {row[1]} -> {row[2]}" for row in rows)
    return {
        "text/html": f'{STYLE}<div class="fsub fsub-changes"><div class="fsub-note">{escaped(head)}</div>{table}'
        f'<div class="fsub-note">{escaped(more)}</div>{buttons}'
        f'<div class="fsub-note"><code>{escaped(how)}</code></div></div>',
        "text/plain": "\n".join(filter(None, (head, text, more, how))),
    }


def _row(change: CopyChange) -> tuple[str, str, str]:
    after = change.after if change.what != "perhaps" else f"{change.after} ({PERHAPS})"
    before = f"{change.before or NONE} ({ALSO_HERE})" if change.also_here else change.before
    return tuple(one_line(visible(text), CHARS) or NONE for text in (change.name, before, after))  # type: ignore[return-value]  # three


def _buttons(changes: Sequence[CopyChange], name: str, code: str) -> str:
    """The buttons under a table: each makes a cell below, with a magic or the code; you or it runs that cell.

    They are plain HTML that names commands of JupyterLab and Jupyter Notebook, which make and run cells of the notebook
    itself. So what a button does stays in the notebook, and is done again by "run all". Elsewhere they are not shown: the
    magics do the same.
    """
    names = ", ".join(change.name for change in changes if not change.imported and change.name.isidentifier())
    buttons = [
        _button("Adopt all", f"%agent_adopt{name}", "runs %agent_adopt in a new cell", runs=True),
        _button("Adopt…", f"%agent_adopt{name} {names}", "a new cell in which you choose the names"),
        _button("Insert the code", code, "a new cell with the code instead of the values; it is not run")
        if code and len(code) <= CODE_CHARS
        else _button("Insert the code", f"%agent_code{name}", "runs %agent_code in a new cell", runs=True),
        _button("Discard", f"%agent_discard{name}", "runs %agent_discard in a new cell: the copy ends", runs=True),
    ]
    return f'{BUTTON_STYLE}<div class="fsub-buttons">{"".join(buttons)}</div>'


def _button(label: str, text: str, title: str, *, runs: bool = False) -> str:
    """A button that makes a cell below the active one, which is the one that was clicked in."""
    commands = ["notebook:insert-cell-below", "notebook:replace-selection", *(["notebook:run-cell"] if runs else [])]
    given = json.dumps({"commands": commands, "args": {"text": text}})  # all of them get these, and one takes the text
    return (
        f'<button type="button" title="{escaped(title)}" data-commandlinker-command="apputils:run-all-enabled" '
        f'data-commandlinker-args="{escaped(given)}">{escaped(label)}</button>'
    )
