"""Skills, for code in a kernel: `agent.skill("NAME")` loads one, and `from skills import NAME` imports its Python.

Sent into every kernel as source, with the standard library only. The Python of a skill comes from the host, which read it
when a person trusted it: nothing is installed, no search path changes, and files that a cell writes are not imported.
"""

import importlib.machinery
import sys
import types
from collections.abc import Callable, Generator, Iterable, Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from typing import Any

PACKAGE = "skills"


class SkillFinder(MetaPathFinder, InspectLoader):
    """Finder and loader of the modules of skills. A package `skills` of the user's own is found before, with its modules."""

    def __init__(self) -> None:
        self.modules: dict[str, dict[str, Any]] = {}
        """The modules by their whole names."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """Return the spec of a skill's module."""
        if (name != PACKAGE and name not in self.modules) or not self.modules:
            return None
        other = next(filter(None, (finder.find_spec(name, path, target) for finder in self._others())), None)
        if other is not None and (other.origin is not None or other.submodule_search_locations is None):
            return None
        given = self.modules.get(name, {"is_package": True})
        spec = importlib.machinery.ModuleSpec(name, self, origin=given.get("file"), is_package=given["is_package"])
        if other is not None and spec.submodule_search_locations is not None:
            spec.submodule_search_locations += other.submodule_search_locations  # a folder without `__init__.py`
        spec.has_location = "file" in given
        spec.loader_state = given.get("source")
        return spec

    def _others(self) -> list[Any]:
        return [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]

    def is_package(self, name: str) -> bool:
        """Whether a module is a package."""
        return name == PACKAGE or bool(self.modules[name]["is_package"])

    def get_source(self, name: str) -> str:
        """Return a module's source."""
        return "" if name == PACKAGE else str(self.modules[name]["source"])

    def create_module(self, spec: Any) -> None:
        """Return None, for Python's own kind of module."""

    def exec_module(self, module: types.ModuleType) -> None:
        """Run the module's source."""
        name = module.__name__
        if name == PACKAGE:
            offered = sorted(full.split(".")[1] for full in self.modules if full.count(".") == 1)
            module.__doc__ = f"The Python of skills: {', '.join(offered)}."
            module.__dict__["__all__"] = offered
            return
        try:
            code = compile(self.get_source(name), self.modules[name]["file"], "exec", dont_inherit=True)
            exec(code, module.__dict__)  # noqa: S102  # what an import is
        except ModuleNotFoundError as error:
            if error.name and not error.name.startswith(f"{PACKAGE}."):
                error.add_note(f"The skill {name.split('.')[1]} needs {error.name!r}, which this Python does not have.")
            raise


FINDER = SkillFinder()


def install(modules: Iterable[dict[str, Any]]) -> None:
    """Make these modules importable, and no others; preloaded ones of the same source stay loaded."""
    FINDER.modules = {f"{PACKAGE}.{module['name']}": module for module in modules}
    if FINDER.modules and FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
    # whoever goes through all modules writes to each, and a forked kernel then has a copy of 500 pages more
    for name, module in list(sys.modules.items()) if PACKAGE in sys.modules else ():
        spec = getattr(module, "__spec__", None) if name == PACKAGE or name.startswith(f"{PACKAGE}.") else None
        if spec is None or spec.loader is not FINDER:
            continue
        if name == PACKAGE:
            FINDER.exec_module(module)
        elif spec.loader_state != FINDER.modules.get(name, {}).get("source"):
            del sys.modules[name]
            above, _, last = name.rpartition(".")
            vars(sys.modules.get(above, types.ModuleType(above))).pop(last, None)


class LoadedSkill:
    """A skill that was loaded; the model reads its text."""

    def __init__(self, *, name: str, folder: str, files: list[str], known: bool) -> None:
        self.name = name
        self.folder = folder
        self.files = files
        self._known = known

    def __await__(self) -> Generator[None, None, "LoadedSkill"]:
        """Allow `await`, as with the other functions of `agent`, though nothing has to be waited for."""
        yield from ()
        return self

    def __repr__(self) -> str:
        where = "stands in the conversation already" if self._known else "follows the results of this step"
        return f"<skill {self.name}: its text {where}; its folder is {self.folder}>"


class LoadingFunction:
    """Load a skill: `agent.skill("NAME")`. You read its text before your next step.

    Returns:
        An object with `name`, `folder` and `files`, the paths in the folder.

    Raises:
        ValueError: There is no such skill.
        RuntimeError: No model is at work that could read it.
    """

    def __init__(self, ask: Callable[..., Any]) -> None:
        """Args: ask: sends a request and waits for its reply, which comes at once."""
        self._ask = ask

    def __call__(self, name: str) -> LoadedSkill:  # noqa: D102  # the class says it
        return LoadedSkill(**self._ask("skill", name=name))

    def __repr__(self) -> str:
        return "<agent.skill(name), which loads a skill>"
