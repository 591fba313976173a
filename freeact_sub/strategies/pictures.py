"""The picture of a search: a rich tree in a terminal, SVG in a notebook and a report."""

from html import escape
from typing import Any, Final

from freeact_sub.strategies.states import SearchNode

COLUMN: Final = 190
ROW: Final = 34
CHARS: Final = 24
"""Characters of an action that a box shows."""
STYLE: Final = (
    "text{font:12px ui-monospace,monospace;fill:currentColor}path{fill:none;stroke:#8888;stroke-width:1.5}"
    "rect{fill:#8881;stroke:#888}.best rect{fill:#2a81;stroke:#2a8;stroke-width:2}.failed{opacity:.5}"
)


class SearchPicture:
    """Draws the tree of a result."""

    root: SearchNode
    best: SearchNode

    def __rich__(self) -> Any:
        """The tree, for rich."""
        from rich.text import Text  # noqa: PLC0415  # imported only to draw
        from rich.tree import Tree  # noqa: PLC0415

        chosen = self.best.path

        def grown(node: SearchNode, tree: Tree) -> Tree:
            for child in node.children:
                label = Text(
                    _label(child), style="bold green" if child in chosen else "dim" if child.status == "failed" else ""
                )
                if child.reason:
                    label.append(f"  {_line(child.reason, 60)}", style="dim")
                grown(child, tree.add(label))
            return tree

        return grown(self.root, Tree(Text("search", style="bold")))

    def svg(self) -> str:
        """Returns the tree as one SVG element; the text takes the colour of its page."""
        boxes: list[str] = []
        rows = [0]

        def drawn(node: SearchNode) -> float:
            """Draws a node and its descendants; returns the position of its middle."""
            x = node.depth * COLUMN + 10
            below = [drawn(child) for child in node.children]
            if not below:
                rows[0] += 1
            y = sum(below) / len(below) if below else (rows[0] - 0.5) * ROW
            kind = "best" if node in chosen else "failed" if node.status == "failed" else ""
            start, bend, end = x + COLUMN - 30, x + COLUMN - 15, x + COLUMN
            lines = "".join(f'<path d="M{start} {y:g}C{bend} {y:g} {bend} {other:g} {end} {other:g}"/>' for other in below)
            title = escape("".join(char for char in f"{node.action}\n{node.reason}" if char.isprintable() or char == "\n"))
            boxes.append(
                f'{lines}<g class="{kind}"><title>{title}</title>'
                f'<rect x="{x}" y="{y - 12:g}" width="{COLUMN - 30}" height="24" rx="5"/>'
                f'<text x="{x + 6}" y="{y + 4:g}">{escape(_label(node, CHARS - 6))}</text></g>'
            )
            return y

        chosen = self.best.path
        drawn(self.root)
        width = (max(node.depth for node in self.root.below()) + 1) * COLUMN
        height = rows[0] * ROW
        size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><style>{STYLE}</style>{"".join(boxes)}</svg>'

    def _repr_svg_(self) -> str:
        """For a notebook."""
        return self.svg()


def _label(node: SearchNode, chars: int = 60) -> str:
    if node.parent is None:
        return "search"
    end = " ✓" if node.terminal and node.status != "failed" else ""
    return f"{node.score:.2f} {_line(node.action, chars)}{end}"


def _line(text: str, chars: int) -> str:
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= chars else f"{line[: chars - 1]}…"
