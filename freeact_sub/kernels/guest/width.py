"""The width of the window that shows the output of cells, for what is drawn as wide: tables of pandas, rich, programs.

A request to run a cell may say it. What code has set itself stays. Standard library and IPython only.
"""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from typing import Any

VARIABLES = ("COLUMNS", "JUPYTER_COLUMNS", "POLARS_TABLE_WIDTH")
PANDAS_DEFAULT = 80


class Width(MetaPathFinder):
    """The present width. It stands among the finders of modules, because a cell may import pandas and print a table."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._columns = 0
        self._searches = False

    def note(self, _: Any) -> None:
        """Called before each cell."""
        with contextlib.suppress(Exception):  # a request without a width, or a kernel of another kind
            columns = self._shell.kernel.get_parent("shell")["content"].get("columns")
            if isinstance(columns, int) and columns > 0:
                self._tell(columns)

    def _tell(self, columns: int) -> None:
        before, self._columns = self._columns, columns
        for name in VARIABLES:
            if os.environ.get(name, str(before)) == str(before):
                os.environ[name] = str(columns)
        self._tell_pandas(before or PANDAS_DEFAULT)
        printer = self._shell.display_formatter.formatters["text/plain"]
        if printer.max_width in (before, printer.traits()["max_width"].default_value):
            printer.max_width = columns

    def _tell_pandas(self, before: int) -> None:
        pandas = sys.modules.get("pandas")
        if pandas is not None and hasattr(pandas, "set_option") and pandas.get_option("display.width") == before:
            pandas.set_option("display.width", self._columns)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """See `importlib.abc.MetaPathFinder`."""
        del path, target
        if name != "pandas" or self._searches or not self._columns:
            return None
        self._searches = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searches = False
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                with contextlib.suppress(Exception):
                    self._tell_pandas(PANDAS_DEFAULT)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install(shell: Any) -> None:
    """Called once in each kernel."""
    width = Width(shell)
    shell.events.register("pre_run_cell", width.note)
    sys.meta_path.insert(0, width)
