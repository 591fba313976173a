"""The hooks of the documentation site (`mkdocs.yml`): pages that are made, and the place of new pages.

make docs
"""

import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1]))  # the package need not be installed

from make_reference import ROOT, made_pages  # it stands beside this file

MORE: Final = "More"
"""The section of pages that `nav` does not name."""
log = logging.getLogger("mkdocs.hooks.make_site")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give the pages that `nav` does not name a place in it."""
    nav = config.nav or []
    named = {*named_in(nav)}
    pages = sorted(path.relative_to(config.docs_dir).as_posix() for path in Path(config.docs_dir).rglob("*.md"))
    if missing := [page for page in pages if page not in named]:
        log.info("`nav` of mkdocs.yml does not name %s: see under %s", ", ".join(missing), MORE)
        config.nav = [*nav, {MORE: missing}]
    return config


def named_in(nav: Any) -> Iterator[str]:
    """The pages that a part of `nav` names."""
    if isinstance(nav, str):
        yield nav
    for below in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from named_in(below)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    for name, content in {**made_pages(), "LICENSE": (ROOT / "LICENSE").read_text(encoding="utf-8")}.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Two differences to what GitHub shows: bars within code in a table, and links to files beside `docs/`.

    GitHub wants such a bar escaped, and this site's Markdown would show the backslash. In the site, files that stand beside
    `docs/` are within it.
    """
    if "/" not in page.file.src_uri:
        markdown = markdown.replace("](../", "](")
    lines = (
        CODE.sub(lambda code: code[0].replace("\\|", "|"), line) if line.startswith("|") else line
        for line in markdown.split("\n")
    )
    return "\n".join(lines)


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Docstrings name pages as paths in the repository; here they are links."""
    made = page.file.src_uri.startswith("reference/")
    return PAGE.sub(r'<a href="../\1.html">\1</a>', html) if made else html


CODE: Final = re.compile(r"`[^`]+`")
PAGE: Final = re.compile(r"\bdocs/(\w+)\.md\b")
