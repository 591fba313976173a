"""The options of `freeact-sub mcp`."""

import argparse
from typing import Any

from freeact_sub.config.command_options import add_servers

ADD: str = """examples:
  freeact-sub mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
  freeact-sub mcp add linear https://mcp.linear.app/mcp
  freeact-sub mcp add --user search https://example.org/mcp --header 'Authorization: Bearer ${SEARCH_KEY}'"""


def add_mcp(commands: Any, place: argparse.ArgumentParser) -> None:
    """Adds the command. Args: place: the options that say where it works."""
    parser = commands.add_parser("mcp", help="list, add, check and sign in to MCP servers", allow_abbrev=False)
    parser.set_defaults(main="freeact_sub.cli.mcp:run_way")
    ways = parser.add_ways("list", "add", "remove", "login", "logout", "check")
    servers = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS, allow_abbrev=False)
    add_servers(servers)
    shared = {"parents": [place, servers], "allow_abbrev": False}
    ways.add_parser("list", help="list the servers", **shared)
    add = ways.add_parser(
        "add",
        help="add a server to mcp.json",
        description="Add a server to the mcp.json of the workspace, or to your own.",
        epilog=ADD,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **shared,
    )
    add.add_argument("name", metavar="NAME", help="its name here")
    add.add_argument("target", nargs="+", metavar="URL | -- COMMAND", help="its address, or the command that starts it")
    add.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'", help="a header for a URL")
    add.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable for a command")
    add.add_argument("--client-id", metavar="ID", help="a client that you have registered with the server's provider")
    add.add_argument("--callback-port", metavar="PORT", type=int, help="the port of its http://localhost:PORT/callback")
    remove = ways.add_parser("remove", help="remove a server from mcp.json", **shared)
    remove.add_argument("name", metavar="NAME", help="its name")
    for way in (add, remove):
        way.add_argument("--user", action="store_true", default=False, help="write to your own mcp.json, for all workspaces")
    login = ways.add_parser(
        "login",
        help="sign in to a server in the browser",
        description="Open a page in the browser to sign in to an HTTP server. The tokens are kept in your own folder.",
        **shared,
    )
    logout = ways.add_parser("logout", help="remove the tokens of a server", **shared)
    for way in (login, logout):
        way.add_argument("name", metavar="NAME", help="its name, or its URL")
    check = ways.add_parser(
        "check",
        help="connect to the servers, and list what they offer",
        description="Connect to servers and print their tools, resources and prompts, or why that is not possible.",
        epilog="Exit status: 0 all can be used, 1 one cannot, 2 wrong usage or settings.",
        **shared,
    )
    check.add_argument("names", nargs="*", metavar="NAME", help="the servers (default: all)")


def add_mcp_server(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `mcp-server`, which is an MCP server. Args: common: the options for settings."""
    server = commands.add_parser(
        "mcp-server",
        help="serve agents and live kernels to other programs over MCP",
        description="Serve MCP on standard input and output: other agents and editors get live Python kernels that can be "
        "branched, and agents that do whole tasks. The mode is auto unless a setting says otherwise.",
        epilog="Exit status: 0 the client has left, 2 wrong usage or settings.",
        parents=[common],
        allow_abbrev=False,
    )
    # the client's user allows its calls; the wall holds what the code does
    server.set_defaults(main="freeact_sub.cli.mcp_server:serve", usual={"mode": "auto"})
    server.add_argument(
        "--http",
        metavar="PORT",
        type=int,
        choices=range(65536),
        default=argparse.SUPPRESS,
        help="serve over HTTP on this port of 127.0.0.1 instead (0: any); the address and a token are printed",
    )
