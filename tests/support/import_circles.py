"""No circle of more than three files that import each other. Imports for type checkers and in functions count too."""

import sys

import grimp

LIMIT = 3


def circles(package: str) -> list[list[str]]:
    """The largest groups of modules of a package that all reach each other, sorted."""
    graph = grimp.build_graph(package, cache_dir=None)
    found, left = [], set(graph.modules)
    while left:
        module = left.pop()
        circle = graph.find_upstream_modules(module) & graph.find_downstream_modules(module)
        left -= circle
        if circle:
            found.append(sorted({module, *circle}))
    return sorted(found)


def main() -> int:
    """Print the circles that are too long; the exit status tells whether there are any."""
    wrong = [circle for circle in circles("freeact_sub") if len(circle) > LIMIT]
    for circle in wrong:
        print(f"{len(circle)} files import each other, {LIMIT} may: {', '.join(circle)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
