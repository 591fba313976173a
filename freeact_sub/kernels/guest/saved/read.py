"""Reads saved variables in a new kernel. What cannot be read is named, and the rest is there.

Large blocks are mapped copy on write: nothing of them is read until it is used, and the file may be removed.
"""

import contextlib
import importlib
import json
import linecache
import mmap
import os
import pickle
import sys
from typing import Any

from .imported import from_sources
from .write import FORMAT, MANIFEST, cut, reason_of

RESULT = "restored.json"


def restore(folder: str, namespace: dict[str, Any]) -> None:
    """Puts the variables in a folder into the namespace, and writes into the folder which came back.

    They may be of several snapshots, the oldest first.
    """
    with open(os.path.join(folder, MANIFEST)) as file:
        manifests = json.load(file)
    views = {name: mapped(os.path.join(folder, name)) for name in {name for each in manifests for name in each["files"]}}
    lost: dict[str, str] = {}
    restored: dict[str, str] = {}
    with from_sources():
        for manifest in manifests:
            restore_one(manifest, views, namespace, restored, lost)
    with open(os.path.join(folder, RESULT), "x") as file:
        json.dump({"restored": restored, "lost": lost}, file)


def restore_one(
    manifest: dict[str, Any],
    views: dict[str, memoryview | None],
    namespace: dict[str, Any],
    restored: dict[str, str],
    lost: dict[str, str],
) -> None:
    """Puts the variables of one snapshot into the namespace. Args: restored, lost: which came back, and which did not."""
    settle(manifest)
    for name, module in manifest["modules"].items():
        try:
            namespace[name] = importlib.import_module(module)
            restored[name] = cut(f"{name}: module {module}")
        except Exception as error:  # noqa: BLE001  # border: a module may fail in any way
            lost[name] = reason_of(error)
    missing = [name for name in manifest["submodules"] if name not in sys.modules]
    for name in missing:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    problem = ""
    if manifest["format"] != FORMAT or manifest["python"] != sys.implementation.cache_tag:
        problem = f"it was saved by {manifest['python']}, and this kernel is {sys.implementation.cache_tag}"
    for group in manifest["groups"]:
        try:
            read = loaded(group, views.get(group["file"]), problem)
            values = {name: value for name, value in read.items() if name in group["names"]}
            namespace.update(values)
            restored |= {name: group["names"][name] for name in values}
        except Exception as error:  # noqa: BLE001  # border: unpickling runs code of the values' types
            lost |= dict.fromkeys(group["names"], reason_of(error))


def settle(manifest: dict[str, Any]) -> None:
    """Restore what imports and functions rely on: the search path, the working folder, the sources of cells."""
    sys.path += [path for path in manifest["path"] if path not in sys.path]
    with contextlib.suppress(OSError, TypeError):
        os.chdir(manifest["folder"])
    for name, text in manifest["sources"].items():
        linecache.cache.setdefault(name, (len(text), None, text.splitlines(keepends=True), name))


def mapped(path: str) -> memoryview | None:
    """The content of a file; None: it is not there."""
    try:
        with open(path, "rb") as file:
            os.unlink(path)  # what is mapped stays
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    except (OSError, ValueError):
        return None


def loaded(group: dict[str, Any], view: memoryview | None, problem: str) -> dict[str, Any]:
    """The variables of a group. Args: problem: why none can be read.

    Raises:
        Exception: They cannot be read.
    """
    if problem:
        raise RuntimeError(problem)
    if view is None:
        raise FileNotFoundError("its file is gone")
    buffers = [part(view, place) for place in group["blocks"]]
    values: dict[str, Any] = pickle.loads(part(view, group["data"]), buffers=buffers)  # noqa: S301  # it was written by code of this agent
    return values


def part(view: memoryview, place: list[int]) -> memoryview:
    """A block of a file."""
    start, size = place
    if start + size > len(view):
        raise EOFError("its file is shorter than it was")
    return view[start : start + size]
