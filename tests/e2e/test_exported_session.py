"""The examples of exported sessions in docs/: the notebook runs, the page is as pages are now."""

import shutil
from importlib.resources import files
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_style_that_pages_have() -> None:
    page = (ROOT / "docs/session.html").read_text(encoding="utf-8")
    assert files("freeact_sub.export").joinpath("page.css").read_text(encoding="utf-8") in page, (
        "python docs/make_session.py"
    )


@pytest.mark.e2e
@pytest.mark.kernel
async def test_the_notebook_runs_and_makes_the_files_again(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples/data", tmp_path / "examples/data")
    out = tmp_path / "out"
    out.mkdir()
    source = (ROOT / "docs/session.ipynb").read_text(encoding="utf-8").replace("/home/me", str(tmp_path))
    book = nbformat.reads(source, 4)
    client = NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(out)}})
    await client.async_execute()
    assert {path.name for path in out.iterdir()} == {"report.md", "weather.png", "harbour.csv", "ridge.csv", "valley.csv"}
    ended_in_error = [cell for cell in book.cells for output in cell.get("outputs", ()) if output["output_type"] == "error"]
    assert len(ended_in_error) == 1  # it asks the MCP server, which only the agent had
    assert ended_in_error[0].metadata["tags"] == ["raises-exception"]
