"""Our MCP server under the server scenarios of the protocol's conformance suite (docs/mcp-server.md).

    python tests/conformance/mcp_server.py                        # both eras of the protocol, as a table
    python tests/conformance/mcp_server.py --suite "node /path/to/index.js"

The suite needs Node 22. It cannot send a token, so the server is asked for none here. Many of its scenarios call tools,
prompts and resources that a server made for the suite has; the table says of each that does not pass why it does not.
The exit status tells how many do not pass for another reason.
"""

import argparse
import asyncio
import re
import shlex
import socket
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import uvicorn

from freeact_sub.config.schema import Config
from freeact_sub.mcp_server.pending import PendingCalls
from freeact_sub.mcp_server.served import ServedAgents
from freeact_sub.mcp_server.server import LOOPBACK, make_server

SUITE = "npx --yes @modelcontextprotocol/conformance@0.2.0-alpha.12"
ERAS = ("2025-11-25", "2026-07-28")
LIMIT_SECONDS = 300
RESULT = re.compile(r"^[✓✗] ([\w-]+): (\d+) passed, (\d+) failed", re.MULTILINE)

NAMED_TOOLS = "they call tools of a server made for the suite. What ours do of this: `tests/e2e/test_mcp_server.py`"
NAMED_OTHERS = "they ask for prompts and resources of a server made for the suite"
NOT_OFFERED = "not offered, and not announced"
DEPRECATED = "sampling, roots and logging are deprecated: not built"
WHY_NOT = {
    "completion-complete": NOT_OFFERED,
    "http-custom-header-server-validation": "no tool takes parameters from headers",
    "input-required-result-basic-list-roots": DEPRECATED,
    "input-required-result-basic-sampling": DEPRECATED,
    "input-required-result-non-tool-request": NAMED_OTHERS,
    "logging-set-level": DEPRECATED,
    "prompts-get-": NAMED_OTHERS,
    "resources-read-": NAMED_OTHERS,
    "resources-subscribe": NOT_OFFERED,
    "resources-templates-read": NAMED_OTHERS,
    "resources-unsubscribe": NOT_OFFERED,
    "server-sse-polling": "a stream that broke is not taken up again: `start` and `status` are for that",
    "server-stateless": "two checks call a tool of a server made for the suite, which samples",
    "tools-call-sampling": DEPRECATED,
    "tools-call-with-logging": DEPRECATED,
    "elicitation-": NAMED_TOOLS,
    "input-required-result-": NAMED_TOOLS,
    "json-schema-2020-12": NAMED_TOOLS,
    "tools-call-": NAMED_TOOLS,
}
"""Why scenarios, or those whose names begin so, do not pass; the first that fits counts."""


async def run_eras(suite: list[str]) -> dict[str, dict[str, tuple[int, int]]]:
    """Serve, and run the suite for each era; returns checks passed and failed, by scenario and era."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    with tempfile.TemporaryDirectory() as folder, socket.create_server((LOOPBACK, 0)) as listener:
        config = Config(workspace=Path(folder), mode="auto")
        async with ServedAgents(config) as served:
            app = make_server(served, PendingCalls()).streamable_http_app(host=LOOPBACK)
            server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
            serving = asyncio.create_task(server.serve([listener]))
            try:
                address = f"http://{LOOPBACK}:{listener.getsockname()[1]}/mcp"
                for era in ERAS:
                    for name, *counts in RESULT.findall(await run_suite(suite, address, era, folder)):
                        found.setdefault(name, {})[era] = int(counts[0]), int(counts[1])
            finally:
                server.should_exit = True
                await serving
    return found


async def run_suite(suite: list[str], address: str, era: str, folder: str) -> str:
    """Run all scenarios of one era; returns what the suite prints."""
    words = [*suite, "server", "--url", address, "--suite", "all", "--spec-version", era, "--output-dir", folder]
    process = await asyncio.create_subprocess_exec(*words, stdout=PIPE, stderr=STDOUT)
    async with asyncio.timeout(LIMIT_SECONDS):
        printed, _ = await process.communicate()
    return printed.decode()


def print_table(found: dict[str, dict[str, tuple[int, int]]]) -> int:
    """Print the scenarios that pass, and the others by the reason; returns the number of those without a known reason."""
    groups: dict[str, list[str]] = {"": []}
    for name in sorted(found):
        passes = not any(failed for _, failed in found[name].values())
        reasons = (why for begin, why in WHY_NOT.items() if name.startswith(begin))
        groups.setdefault("" if passes else next(reasons, "FAILS"), []).append(name)
    print(f"| scenarios | {' | '.join(ERAS)} | why not all |\n| --- | --- | --- | --- |")
    for why, names in groups.items():
        listed = ", ".join(f"`{name}`" for name in names)
        print(f"| {listed} | {' | '.join(passed_of(found, names, era) for era in ERAS)} | {why} |")
    print(f"| all {len(found)} | {' | '.join(passed_of(found, [*found], era) for era in ERAS)} | |")
    return len(groups.get("FAILS", ())) if found else 1


def passed_of(found: dict[str, dict[str, tuple[int, int]]], names: list[str], era: str) -> str:
    """Return how many checks of scenarios pass in an era."""
    counts = [found[name][era] for name in names if era in found[name]]
    passed = sum(passed for passed, _ in counts)
    return f"{passed} of {passed + sum(failed for _, failed in counts)}" if counts else ""


def main() -> int:
    parser = argparse.ArgumentParser(description="The MCP server under the protocol's conformance suite.")
    parser.add_argument("--suite", default=SUITE, help=f"the command of the suite (default: {SUITE})")
    return print_table(asyncio.run(run_eras(shlex.split(parser.parse_args().suite))))


if __name__ == "__main__":
    sys.exit(main())
