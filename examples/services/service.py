"""A service: each user has a page, an agent and a folder, and reaches nobody else's. `service.py FOLDER USERS [MODEL]`.

The agents work in the mode `auto`: their code runs unasked, sees its own folder alone, and has no network. All kernels are
forked by one server.
"""

import argparse
import asyncio
import secrets
import socket
from contextlib import AsyncExitStack
from pathlib import Path

from script import script
from web import Server, routes

from freeact_sub import Agent, load_config
from freeact_sub.show.feed import Feed
from freeact_sub.testing import ScriptedModel


async def main(folder: Path, users: int, model: str | None) -> None:
    """Print an address for each user, and serve until Ctrl-C or SIGTERM."""
    listener, feeds, pages = socket.create_server(("127.0.0.1", 0)), [Feed() for _ in range(users)], []
    async with AsyncExitStack() as stack:
        for number, feed in enumerate(feeds):
            root, workspace = f"/{secrets.token_urlsafe()}", folder / f"user-{number}"
            workspace.mkdir(parents=True, exist_ok=True)
            config = load_config(workspace, arguments={"mode": "auto"})
            agent = await stack.enter_async_context(Agent(config, model=model or ScriptedModel(script)))
            pages += routes(agent, root, feed)
            print(f"http://127.0.0.1:{listener.getsockname()[1]}{root}/", flush=True)
        await Server(pages, feeds).serve([listener])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the folders of the users are in it")
    parser.add_argument("users", type=int, help="how many")
    parser.add_argument("model", nargs="?", help="such as anthropic:NAME (default: a script)")
    options = parser.parse_args()
    asyncio.run(main(options.folder, options.users, options.model))
