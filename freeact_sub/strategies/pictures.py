"""The picture of a search: a rich tree in a terminal, SVG in a notebook and a report."""

from typing import Any

from freeact_sub.show.tree_picture import DrawnNode, short_line, tree_svg
from freeact_sub.strategies.states import SearchNode


class SearchPicture:
    """Draws the tree of a result."""

    root: SearchNode
    best: SearchNode

    def __rich__(self) -> Any:
        """The tree, for rich."""
        from rich.text import Text  # noqa: PLC0415  # imported only to draw
        from rich.tree import Tree  # noqa: PLC0415

        def grown(node: DrawnNode, tree: Tree) -> Tree:
            for child in node.children:
                label = Text(child.label(), style="bold green" if child.is_best else "dim" if child.failed else "")
                if child.reason:
                    label.append(f"  {short_line(child.reason, 60)}", style="dim")
                grown(child, tree.add(label))
            return tree

        return grown(self._drawn(), Tree(Text("search", style="bold")))

    def svg(self) -> str:
        """Returns the tree as one SVG element; the text takes the colour of its page."""
        return tree_svg(self._drawn())

    def _repr_svg_(self) -> str:
        """For a notebook."""
        return self.svg()

    def _drawn(self) -> DrawnNode:
        best = {*self.best.path}

        def drawn(node: SearchNode) -> DrawnNode:
            return DrawnNode(
                action=node.action,
                reason=node.reason,
                score=node.score,
                terminal=node.terminal,
                failed=node.status == "failed",
                is_best=node in best,
                children=[drawn(child) for child in node.children],
            )

        return drawn(self.root)
