"""`tree_svg`: the tree of a search as one picture, for notebooks and reports. Standard library only: cells draw it too."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Final

COLUMN: Final = 190
ROW: Final = 34
CHARS: Final = 18
"""Characters of an action that a box shows."""
STYLE: Final = "".join(
    f".fsub-tree {rule}"  # in a page, the rules of one picture would else count for all
    for rule in (
        "text{font:12px ui-monospace,monospace;fill:currentColor}",
        "path{fill:none;stroke:#8888;stroke-width:1.5}",
        "rect{fill:#8881;stroke:#888}",
        ".best rect{fill:#2a81;stroke:#2a8;stroke-width:2}",
        ".failed{opacity:.5}",
    )
)


@dataclass(kw_only=True)
class DrawnNode:
    """A box of the picture."""

    action: str = ""
    """The action; the root has none."""
    reason: str = ""
    score: float = 0.0
    terminal: bool = False
    failed: bool = False
    is_best: bool = False
    """Whether the node is the best one, or on the way to it."""
    children: list["DrawnNode"] = field(default_factory=list)

    def label(self, chars: int = 60) -> str:
        """Return its score and the beginning of its action, in one line."""
        if not self.action:
            return "search"
        end = " ✓" if self.terminal and not self.failed else ""
        return f"{self.score:.2f} {short_line(self.action, chars)}{end}"


def short_line(text: str, chars: int) -> str:
    """Return the printable beginning of a text in one line."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= chars else f"{line[: chars - 1]}…"


def tree_svg(root: DrawnNode, *, inline: bool = False) -> str:
    """Return the tree as one SVG element in the page's text colour. Args: inline: whether it is part of a page of HTML."""
    boxes: list[str] = []
    rows = [0]
    deepest = [0]

    def drawn(node: DrawnNode, depth: int) -> float:
        """Draw a node and its descendants; return the position of its middle."""
        x = depth * COLUMN + 10
        deepest[0] = max(deepest[0], depth)
        below = [drawn(child, depth + 1) for child in node.children]
        if not below:
            rows[0] += 1
        y = sum(below) / len(below) if below else (rows[0] - 0.5) * ROW
        boxes.append("".join(_box(node, x, y, below)))
        return y

    drawn(root, 0)
    width, height = (deepest[0] + 1) * COLUMN, rows[0] * ROW
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    xmlns = "" if inline else 'xmlns="http://www.w3.org/2000/svg" '
    return f'<svg class="fsub-tree" {xmlns}{size} role="img"><style>{STYLE}</style>{"".join(boxes)}</svg>'


def _box(node: DrawnNode, x: float, y: float, below: list[float]) -> Iterator[str]:
    kind = "best" if node.is_best else "failed" if node.failed else ""
    start, bend, end = x + COLUMN - 30, x + COLUMN - 15, x + COLUMN
    yield from (f'<path d="M{start} {y:g}C{bend} {y:g} {bend} {other:g} {end} {other:g}"/>' for other in below)
    title = escape("".join(char for char in f"{node.action}\n{node.reason}" if char.isprintable() or char == "\n"))
    yield f'<g class="{kind}"><title>{title}</title><rect x="{x}" y="{y - 12:g}" width="{COLUMN - 30}" height="24" rx="5"/>'
    yield f'<text x="{x + 6}" y="{y + 4:g}">{escape(node.label(CHARS))}</text></g>'
