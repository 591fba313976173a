"""Makes the examples of exported sessions, `docs/session.html` and `docs/session.ipynb`: the session of `make demo`.

    python docs/make_session.py [--out docs]

It needs the package with its extra `demo`.
"""

import argparse
import asyncio
import importlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from freeact_sub.export import export_events

ROOT: Final = Path(__file__).resolve().parents[1]
FORMATS: Final = ("html", "ipynb")


def main() -> None:
    """Run the demo, and export its session."""
    parser = argparse.ArgumentParser(description="Make the examples of exported sessions.")
    parser.add_argument("--out", metavar="DIR", type=Path, default=ROOT / "docs", help="where they go (default: docs)")
    out: Path = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        examples = shutil.copytree(ROOT / "examples", Path(folder) / "examples")
        sys.path.insert(0, str(examples / "demo"))
        demo: Any = importlib.import_module("demo").Demo(out=Path(folder) / "out", approve_all=True)
        demo.prepare()
        asyncio.run(_run(demo))
        for name in FORMATS:
            text = export_events(demo.events, name, title="make demo")  # type: ignore[arg-type]  # one of the formats
            (out / f"session.{name}").write_text(text.replace(folder, "/home/me"), encoding="utf-8")


async def _run(demo: Any) -> None:
    async with demo.agent() as agent:
        result = await agent.run(demo.prompt).result()
    if result.status != "completed":
        raise SystemExit(f"the demo ended as {result.status}: {result.error}")


if __name__ == "__main__":
    main()
