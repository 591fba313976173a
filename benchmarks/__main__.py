"""`python -m benchmarks [NAME ...] [--json] [--small]`: run benchmarks, print what they found."""

import argparse
import importlib
import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

NAMES = (
    "before",
    "start",
    "host",
    "terminal",
    "kernels",
    "branches",
    "effects",
    "tree",
    "snapshots",
    "subagents",
    "agents",
    "crowd",
    "values",
    "asking",
    "cache",
    "gateway",
    "sessions",
    "soak",
    "kills",
    "rlm",
    "rlm_costs",
    "recursion",
    "house",
)


WHOLE = 1000
"""From here on figures are printed without decimals."""


def main() -> int:
    """Exit status 1 if a benchmark found something wrong (not: slow)."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run benchmarks; the default is all of them.")
    parser.add_argument("names", nargs="*", choices=[[], *NAMES], metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--small", action="store_true", help="the shortest form, to see that it works")
    parser.add_argument("--rounds", type=int, metavar="N", help="of kills, for the benchmark `sessions`")
    parser.add_argument("--minutes", type=float, metavar="N", help="a soak of so long, for the benchmark `crowd`")
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    for name in arguments.names or NAMES:
        asked = {"sessions": ("rounds", arguments.rounds), "crowd": ("minutes", arguments.minutes)}
        option, value = asked.get(name, ("", None))
        options = {option: value} if value else {}
        results[name] = importlib.import_module(f"benchmarks.{name}").run(small=arguments.small, **options)
        if not arguments.json:
            _show(results[name])
    if arguments.json:
        json.dump(results, sys.stdout, indent=1)
        print()
    return 1 if any(result.get("failed") for result in results.values()) else 0


def _show(result: dict[str, Any]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    machine, versions = result["machine"], result["versions"]
    names = list(dict.fromkeys(name for row in result["rows"] for name in row["values"]))
    table = Table(title=result["benchmark"], title_justify="left", title_style="bold")
    table.add_column("figure")
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("not reached", style="red")
    for row in result["rows"]:
        cells = [_cell(row, name) for name in names]
        table.add_row(f"{row['figure']} {row['unit']}".strip(), *cells, "; ".join(row["missed"]))
    console.print(table)
    for note in result["notes"]:
        console.print(note, highlight=False)
    console.print(
        f"{machine['cpus']} CPUs ({machine['cpu']}), {machine['memory_gb']} GB, {machine['system']}; "
        f"others used {result['other_load']:.0%} of the CPUs; "
        + ", ".join(f"{name} {version}" for name, version in versions.items()),
        style="dim",
        highlight=False,
    )


def _cell(row: dict[str, Any], name: str) -> str:
    value, ratio = row["values"].get(name), row["ratios"].get(name)
    if value is None:
        return "-"
    number = f"{value:,.0f}" if abs(value) >= WHOLE else f"{value:.4g}"
    return number + (f" ({ratio:.3g}x)" if ratio is not None else "")


if __name__ == "__main__":
    sys.exit(main())
