"""What the source of a package says about its structure: sizes, import circles, borrowed private names, doubled names.

Only text is read; nothing is imported.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

PACKAGE: Final = "freeact_sub"
BORROWED: Final = "borrowed_"
"""How the names of those files begin that may use private names of other libraries."""
DOCUMENTED: Final = frozenset(
    [
        "_fields_",
        "_get_event_iterator",
        "_pack_",
        "_type_",
        "_value_",
        "_missing_",
        "_asdict",
        "_replace",
        "_fields",
        "_getframe",
        "_current_frames",
        "_repr_mimebundle_",
    ]
)
"""Underscored names that their library documents for its users: of ctypes, enum, sys, IPython, pydantic-ai."""


@dataclass(frozen=True)
class Source:
    """The modules of one state of a package."""

    root: Path
    """The folder that holds the package's."""
    package: str = PACKAGE

    @cached_property
    def files(self) -> dict[str, Path]:
        """By module name."""
        found = {}
        for path in sorted((self.root / self.package).rglob("*.py")):
            parts = path.relative_to(self.root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return found

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        """The syntax trees, by module name."""
        return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in self.files.items()}

    def lines(self) -> Counter[str]:
        """Lines by folder of the package; files beside the folders count as `.`."""
        found: Counter[str] = Counter()
        for path in self.files.values():
            parts = path.relative_to(self.root / self.package).parts
            found[parts[0] if len(parts) > 1 else "."] += lines_of([path])
        return found

    def counts(self) -> Counter[str]:
        """Files by folder of the package."""
        folders = [path.relative_to(self.root / self.package).parts for path in self.files.values()]
        return Counter(parts[0] if len(parts) > 1 else "." for parts in folders)

    def imports(self) -> dict[str, set[str]]:
        """By module, the modules of the package that it imports, also under `TYPE_CHECKING` and in functions."""
        return {name: set(self._named(name, tree)) - {name} for name, tree in self.trees.items()}

    def _named(self, module: str, tree: ast.Module) -> Iterator[str]:
        own = module if self.files[module].name == "__init__.py" else module.rpartition(".")[0]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self.files)
            elif isinstance(node, ast.ImportFrom):
                levels = own.split(".")[: len(own.split(".")) - node.level + 1]
                base = ".".join([*levels, *([node.module] if node.module else [])]) if node.level else node.module or ""
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    found = inner if inner in self.files else base
                    if found in self.files:
                        yield found

    def circles(self) -> list[list[str]]:
        """The circles of imports, typing counted, largest first: groups of modules that can all reach each other."""
        arrows = self.imports()
        reached = {name: _reached(arrows, name) for name in arrows}
        groups = {tuple(sorted(other for other in found if name in reached[other])) for name, found in reached.items()}
        return sorted((list(group) for group in groups if len(group) > 1), key=lambda group: (-len(group), group))

    def doubles(self) -> dict[str, list[str]]:
        """Names of classes that stand in more than one module, by name without leading underscores."""
        found: dict[str, list[str]] = defaultdict(list)
        for name, tree in self.trees.items():
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    found[node.name.lstrip("_")].append(name)
        return {name: modules for name, modules in sorted(found.items()) if len(modules) > 1}

    def file_doubles(self) -> dict[str, int]:
        """File names, but for `__init__.py` and `__main__.py`, that stand more than once."""
        names = Counter(path.name for path in self.files.values() if not path.name.startswith("__"))
        return {name: count for name, count in sorted(names.items()) if count > 1}

    def borrowed(self) -> dict[str, set[str]]:
        """By module, the private names of other libraries that it uses.

        Private names are those with one leading underscore. A name is taken for another library's if it is imported from
        one, or if it is read, set or defined as an attribute and no module of the package makes that name itself.
        """
        own = self._own_private_names()
        found = {}
        for name, tree in self.trees.items():
            if names := set(_foreign(tree, own)):
                found[name] = names
        return found

    def _own_private_names(self) -> set[str]:
        names: set[str] = set()
        for tree in self.trees.values():
            names.update(_made(tree))
        return names


def lines_of(paths: Iterable[Path]) -> int:
    """Count the lines of files."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that absolute imports name, wherever they stand. A name from a module may be a module too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _made(tree: ast.Module) -> Iterator[str]:
    """Private names that the module makes: definitions, and attributes that it sets on `self` or declares in a class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            yield node.attr


def _foreign(tree: ast.Module, own: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and not (node.module or "").startswith(PACKAGE):
            yield from (part for part in (node.module or "").split(".") if _is_private(part) and "." in (node.module or ""))
            yield from (alias.name for alias in node.names if _is_private(alias.name))
        elif isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own:
            yield node.attr
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "setattr", "hasattr")
        ):
            match node.args:
                case [_, ast.Constant(value=str(name)), *_] if _is_private(name) and name not in own:
                    yield name


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in DOCUMENTED


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _reached(arrows: dict[str, set[str]], start: str) -> set[str]:
    """All modules that the imports of one lead to."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        waiting += (new := arrows[waiting.pop()] - found)
        found |= new
    return found
