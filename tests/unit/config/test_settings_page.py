"""`docs/settings.md` is what `docs/make_settings.py` makes of the settings as they are."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import Field

from freeact_sub.config.section import Section

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_settings", DOCS / "make_settings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page(maker: ModuleType) -> str:
    return str(maker.page())


def test_the_page_is_up_to_date(page: str) -> None:
    assert (DOCS / "settings.md").read_text(encoding="utf-8") == page, "run python docs/make_settings.py"


def test_the_page_has_every_setting_once(page: str) -> None:
    rows = re.findall(r"^\| `([a-z_.]+)` \| ", page.partition("## MCP servers")[0], re.MULTILINE)
    assert len(rows) == len(set(rows))
    from freeact_sub import Config

    assert {row.partition(".")[0] for row in rows} == set(Config.model_fields)
    assert {"kernel.gateway.ca_file", "subagents.budget.turns", "models.max_concurrent", "mcp_servers"} <= set(rows)


def test_defaults_are_shown_as_a_settings_file_has_them(page: str) -> None:
    assert "| `workspace` | this folder | " in page
    assert "| `kernel.network` | `false` | " in page
    assert "| `subagents.budget.turns` | `10` | " in page
    assert "| `budget.turns` | none | " in page
    assert "| `kernel.preload` | `[]` | " in page


class Documented(Section):
    wide: int = 1
    """Reads `a | b`
    (docs/kernels.md)."""
    bare: int = Field(default=2)


class Narrower(Documented):
    own: int = 3
    """Its own."""


def test_a_text_is_one_line_with_links_and_may_be_a_base_classs(maker: ModuleType) -> None:
    assert maker.row("x.wide", "wide", Narrower) == "| `x.wide` | `1` | Reads `a \\| b` ([kernels](kernels.md)). |"
    assert maker.row("own", "own", Narrower) == "| `own` | `3` | Its own. |"


def test_a_setting_without_a_docstring_is_an_error(maker: ModuleType) -> None:
    with pytest.raises(SystemExit, match="Documented.bare has no docstring"):
        maker.row("bare", "bare", Documented)
