"""How far features are woven into the core: `python -m benchmarks.weave [-v]`. Only imports are read.

Each folder or file in `features/` is a feature. A feature that still stands elsewhere counts by the list `ELSEWHERE`.
Settings, events and calls are words: a file of the core that names a feature's section, event or call is not counted.
"""

import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

from benchmarks.structure import PACKAGE, Source, imported, lines_of

WORDS: Final = ("config", "events", "calls")
FRONT: Final = (
    *("cli", "terminal", "notebook", "acp", "mcp_server", "export", "show", "strategies", "rlm", "__main__", "testing"),
)
ELSEWHERE: Final = {
    "sessions": ["sessions", "kernels/snapshots", "kernels/rights", "kernels/guest/saved"],
    "effects": ["kernels/guest/trial", "kernels/wall/of_trials"],
    "hooks": ["hooks"],
    "skills": ["kernels/guest/skills"],
    "receipts": ["agents/verifier", "kernels/guest/used"],
    "notebook_copies": ["kernels/copies", "kernels/guest/state"],
    "gateway": ["kernels/gateway"],
    "mcp_client": ["mcp", "kernels/guest/mcp"],
}
"""Paths by feature, without `.py`."""
MAY: Final = ("features/__init__.py", "agents/__init__.py", "agent.py")
"""Files that put the parts together: they may name features."""


def woven(source: Source) -> dict[str, set[str]]:
    """By feature, the files of the core that import it."""
    root = source.root / PACKAGE
    places = {name: path.relative_to(root).as_posix() for name, path in source.files.items()}
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in places.items():
        own = _room(path)
        if own != "core" or path in MAY:
            continue
        for target in imported(source.trees[name]):
            if target in places and (other := _room(places[target])) not in ("core", "front", "words"):
                found[other].add(path)
    return found


def sizes(source: Source) -> Counter[str]:
    """Lines by feature, of the core, of front ends and the library above it, and of words."""
    found: Counter[str] = Counter()
    for path in source.files.values():
        found[_room(path.relative_to(source.root / PACKAGE).as_posix())] += lines_of([path])
    return found


def _room(path: str) -> str:
    """The feature that a file belongs to; otherwise `core`, `front` or `words`."""
    if path.startswith("features/"):
        return path.split("/")[1].removesuffix(".py")
    found = [
        (len(place), name)
        for name, places in ELSEWHERE.items()
        for place in places
        if path == f"{place}.py" or path.startswith(f"{place}/")
    ]
    if found:
        return max(found)[1]
    room = path.partition("/")[0].removesuffix(".py")
    return "front" if room in FRONT else "words" if room in WORDS else "core"


def _main() -> None:
    source = Source(Path(__file__).parents[1])
    lines, found = sizes(source), woven(source)
    for name, size in lines.most_common():
        if name in ("core", "front", "words"):
            print(f"{name:16} {size:6} lines")
        else:
            print(f"{name:16} {size:6} lines   named by {len(found[name]):3} files of the core")
            if "-v" in sys.argv:
                print("   ", ", ".join(sorted(found[name])))
    print(f"files of the core that name a feature, summed over features: {sum(map(len, found.values()))}")


if __name__ == "__main__":
    _main()
