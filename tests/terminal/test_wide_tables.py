"""Tables in the output of cells are as wide as the window that shows them, also after it has become another size."""

import sys
from pathlib import Path

import pytest
from support.terminal import CONVERSATION, READY, Terminal

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]
IMPORTS = "import pandas as pd\n"
TABLE = "frame = pd.DataFrame([[f'value {n:02}' for n in range(40)]] * 2)\nprint(frame, '\\nend of {name}')"


def rows_of(terminal: Terminal, name: str) -> list[str]:
    """The rows of the table, which stands between the code of its cell and its last line."""
    rows = [row.rstrip() for row in terminal.shown.splitlines()]
    end = max(index for index, row in enumerate(rows) if row.strip() == f"end of {name}")
    begin = max(index for index, row in enumerate(rows[:end]) if "print(frame" in row or "end of" in row)
    return [row for row in rows[begin + 1 : end] if "value" in row]


def test_a_frame_is_as_wide_as_the_window(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    (tmp_path / "first").write_text(IMPORTS + TABLE.replace("{name}", "first"))
    (tmp_path / "second").write_text(TABLE.replace("{name}", "second"))
    command, env = [sys.executable, str(CONVERSATION)], {"REAL_KERNELS": "1", "PYDANTIC_AI_NO_BANNER": "1"}
    widths = {}
    with Terminal(command, cwd=tmp_path, env=env, rows=50, columns=80) as terminal:
        terminal.wait_at_bottom(READY)
        for runs, (name, columns) in enumerate((("first", 80), ("second", 132)), start=1):
            terminal.resize(50, columns)
            terminal.enter(f"run {name}")
            terminal.answer("y", "asks to run this cell")
            terminal.wait_ended(runs=runs)
            rows = rows_of(terminal, name)
            assert len(rows) % 2 == 0, rows
            assert all(row.strip().startswith(("0 ", "1 ")) for row in rows), f"a row of the table is folded: {rows}"
            widths[name] = max(map(len, rows))
    assert 60 < widths["first"] <= 80, widths
    assert 110 < widths["second"] <= 132, widths
