"""Our MCP client under the client scenarios of the protocol's conformance suite (docs/mcp.md).

    python tests/conformance/mcp_client.py                        # all scenarios, as a table
    python tests/conformance/mcp_client.py tools_call auth/       # those whose names begin so
    python tests/conformance/mcp_client.py --suite "node /path/to/index.js"

The suite needs Node 22. It starts a server for each scenario, and this file again with the address of that server: then it is
the client, which uses what a session and `freeact-sub mcp login` use.
"""

import argparse
import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx2

from freeact_sub.config.schema import McpServerConfig
from freeact_sub.errors import McpError
from freeact_sub.events import Answer
from freeact_sub.events.forms import CONFIRMED, PersonQuestion
from freeact_sub.mcp import McpCatalogue, McpServers
from freeact_sub.mcp.login import SignInDialog
from freeact_sub.mcp.offers import McpTool

SUITE = "npx --yes @modelcontextprotocol/conformance@0.2.0-alpha.12"
SCENARIOS = [
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "request-metadata",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-metadata-backcompat",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/authorization-server-migration",
    "auth/iss-supported",
    "auth/iss-not-advertised",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
]
"""All of version 0.2.0-alpha.12 but those of extensions of the protocol, none of which is built."""
LIMIT_SECONDS = 120
SIGN_INS = 3
"""How often a person signs in again when the server asks for more rights."""
RESULT = re.compile(r"Passed: (\d+)/(\d+)")


async def be_client(url: str, folder: Path) -> int:
    """Do what the scenarios ask for; returns the exit status."""
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    oauth = {name: context[name] for name in ("client_id", "client_secret") if name in context}
    if scenario == "auth/basic-cimd":
        oauth = {"client_id": "https://conformance-test.local/client-metadata.json"}
    config = McpServerConfig(url=url, oauth=oauth)
    for _ in range(SIGN_INS):
        servers = McpServers({"server": config}, catalogue=McpCatalogue(), log_folder=folder, log_root=folder)
        try:
            return await use(servers, context)
        except McpError as error:
            print(error, file=sys.stderr)
            if "mcp login" not in str(error):
                return 1
        finally:
            await servers.aclose()
        try:
            await SignInDialog(server="server", config=config, show=open_page, typed=None, log_file=folder / "log").run()
        except McpError as error:
            print(error, file=sys.stderr)
            return 1
    return 1


async def use(servers: McpServers, context: dict) -> int:
    """List the tools and call each."""
    tools = {tool.name: tool for tool in await servers.tools("server")}
    for call in context.get("toolCalls") or [{"name": name, "arguments": arguments(name, tools)} for name in tools]:
        print(call["name"], await servers.call("server", call["name"], call["arguments"], ask=accept_defaults))
    return 0


def arguments(name: str, tools: dict[str, McpTool]) -> dict[str, object]:
    """What a scenario wants a tool to be called with."""
    if name == "json_schema_echo":
        return {"schema": tools["json_schema_2020_12_tool"].parameters_json_schema}
    return {"a": 5, "b": 3} if "add" in name else {}


async def accept_defaults(question: PersonQuestion) -> Answer:
    """A person who keeps what stands in the form."""
    values = {field.name: field.default for field in question.fields if field.default is not None}
    return Answer(text="yes", values=values or {CONFIRMED: True})


async def open_page(address: str) -> None:
    """What a browser does, and a person who agrees."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(address)


def run_suite(suite: list[str], scenarios: list[str]) -> int:
    """Run the scenarios, and print a table; returns the number of those that fail."""
    command = shlex.join([sys.executable, __file__, "--be-client"])
    failed = 0
    print("| scenario | checks passed |\n| --- | --- |")
    for scenario in scenarios:
        words = [*suite, "client", "--command", command, "--scenario", scenario]
        done = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_SECONDS, check=False
        )
        counts = RESULT.search(done.stdout)
        has_passed = "OVERALL: PASSED" in done.stdout
        result = f"{counts[1]} of {counts[2]}" if counts else "no result"
        print(f"| `{scenario}` | {result}{'' if has_passed else ' (fails)'} |", flush=True)
        failed += not has_passed
    print(f"\n{len(scenarios) - failed} of {len(scenarios)} scenarios pass.")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description="The MCP client under the protocol's conformance suite.")
    parser.add_argument("scenarios", nargs="*", help="the beginnings of names (default: all)")
    parser.add_argument("--suite", default=SUITE, help=f"the command of the suite (default: {SUITE})")
    parser.add_argument("--be-client", metavar="URL", help="be the client of a scenario's server")
    options = parser.parse_args()
    if options.be_client:
        with tempfile.TemporaryDirectory() as temporary:
            os.environ["XDG_CONFIG_HOME"] = temporary
            return asyncio.run(be_client(options.be_client, Path(temporary)))
    chosen = [name for name in SCENARIOS if not options.scenarios or name.startswith(tuple(options.scenarios))]
    return run_suite(shlex.split(options.suite), chosen)


if __name__ == "__main__":
    sys.exit(main())
