"""MCP servers that fail, hang, end and are closed: one clear error, and no process is left, whatever happens."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import plain_mcp_server
from support.mcp_host import McpHost
from support.waiting import eventually, turns, wait_until

from freeact_sub.config.schema import McpServerConfig
from freeact_sub.errors import McpError

pytestmark = pytest.mark.mcp

HOST = """
import asyncio, sys
from pathlib import Path
from freeact_sub.config.schema import McpServerConfig
from freeact_sub.mcp import McpCatalogue, McpServers

async def main():
    folder = Path(sys.argv[1])
    config = McpServerConfig(command=sys.executable, args=sys.argv[2:], env={"PID_FILE": str(folder / "pids")})
    servers = McpServers({"plain": config}, catalogue=McpCatalogue(), log_folder=folder, log_root=folder)
    await servers.call("plain", "pid", {})
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def host(tmp_path: Path) -> McpHost:
    return McpHost(tmp_path)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"command": "no-such-program"}, "the program 'no-such-program' was not found: install it"),
        ({"command": "./run"}, "the program './run' was not found: install it"),
        ({"command": sys.executable, "cwd": "/no/such/folder"}, "its folder /no/such/folder does not exist"),
        ({"command": sys.executable, "args": ("-c", "")}, "ended before it was ready; its log is"),
        ({"url": "http://me:pw@127.0.0.1:1/mcp?key=pw"}, r"cannot be reached at http://127.0.0.1:1/mcp \("),
    ],
)
async def test_a_server_that_cannot_start_is_one_clear_error(host: McpHost, settings: dict, text: str) -> None:
    async with host.servers(broken=McpServerConfig(**settings), plain=host.plain()) as servers:
        for use in (servers.tools("broken"), servers.call("broken", "pid", {})):
            with pytest.raises(McpError, match=f"^MCP server 'broken' .*{text}") as caught:
                await use
            assert caught.value.server == "broken"
            assert "\n" not in str(caught.value)
        assert len(await servers.tools("plain")) == len(plain_mcp_server.TOOLS)


async def test_a_proxy_that_stands_between_is_named_without_its_password(host: McpHost, monkeypatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HTTP_PROXY", "http://me:pw@127.0.0.1:1")
    far, near = (McpServerConfig(url=f"http://{address}/mcp") for address in ("far.invalid", "127.0.0.1:1"))
    async with host.servers(far=far, near=near, later=far) as servers:
        with pytest.raises(McpError, match=r"'far' cannot be reached .* through the proxy 127\.0\.0\.1:1 \(") as caught:
            await servers.tools("far")
        assert "pw" not in str(caught.value)
        with pytest.raises(McpError, match=r"'near' cannot be reached at http://127\.0\.0\.1:1/mcp \("):
            await servers.tools("near")
        monkeypatch.setenv("HTTP_PROXY", "ftp://host")
        with pytest.raises(McpError, match="'later' .*HTTP_PROXY is not a proxy address"):
            await servers.tools("later")


async def test_a_server_that_ends_at_once_has_its_last_words_in_the_error(host: McpHost) -> None:
    async with host.servers(plain=host.plain("exit")) as servers:
        log = host.folder / "logs" / "mcp-plain.log"
        with pytest.raises(McpError, match=rf"ended before it was ready \(no configuration found\); its log is {log}"):
            await servers.tools("plain")


async def test_a_server_that_hangs_at_start_is_given_up_and_ended(host: McpHost) -> None:
    async with host.servers(plain=host.plain("hang", "stubborn", "family", init_timeout_seconds=15)) as servers:
        with pytest.raises(McpError, match=r"was not ready within 15 s"):
            await servers.tools("plain")
        assert len(host.pids()) == 2
        assert host.running() == []


async def test_a_failed_start_is_remembered_and_tried_again_by_a_call(host: McpHost) -> None:
    script = host.folder / "server.py"
    script.write_text("raise SystemExit('not yet')")
    config = host.plain().model_copy(update={"args": (str(script),)})
    async with host.servers(plain=config) as servers, host.servers(plain=config) as child:
        with pytest.raises(McpError, match="not yet"):
            await servers.tools("plain")
        script.write_text(Path(plain_mcp_server.__file__).read_text())
        with pytest.raises(McpError, match="not yet"):
            await child.tools("plain")
        assert host.pids() == []
        assert not (await child.call("plain", "pid", {})).is_error
        assert await servers.tools("plain")


async def test_a_server_that_ends_during_a_call_is_started_anew_by_the_next(host: McpHost) -> None:
    async with host.servers(plain=host.plain()) as servers:
        other = asyncio.create_task(servers.call("plain", "never", {}))
        first = (await servers.call("plain", "pid", {})).value
        with pytest.raises(McpError, match=r"'plain' has ended \(last words\); the next call starts it anew"):
            await servers.call("plain", "exit", {})
        with pytest.raises(McpError, match="has ended"):
            await other
        assert (await servers.call("plain", "pid", {})).value != first


async def test_a_server_that_ended_between_calls_is_started_anew_unnoticed(host: McpHost) -> None:
    async with host.servers(plain=host.plain()) as servers:
        first = (await servers.call("plain", "pid", {})).value
        os.kill(int(first), 9)
        await eventually(lambda: not any(task.get_name() == "MCP server plain" for task in asyncio.all_tasks()))
        assert (await servers.call("plain", "pid", {})).value != first


async def test_cancelling_the_first_use_does_not_cancel_the_others(host: McpHost) -> None:
    async with host.servers(plain=host.plain()) as lister, host.servers(plain=host.plain("late")) as servers:
        await lister.call("plain", "pid", {})
        first, second = (asyncio.create_task(servers.call("plain", "pid", {})) for _ in range(2))
        await eventually(lambda: len(host.pids()) == 2)
        first.cancel()
        await asyncio.wait({first})
        (host.folder / "go").touch()
        assert (await second).value == str(host.pids()[1])


@pytest.mark.parametrize("behaviour", [(), ("stubborn",), ("stubborn", "family")])
async def test_closing_leaves_no_process(host: McpHost, behaviour: tuple[str, ...]) -> None:
    async with host.servers(plain=host.plain(*behaviour)) as servers:
        await servers.call("plain", "pid", {})
        await eventually(lambda: len(host.running()) == 1 + ("family" in behaviour))
    assert host.running() == []


async def test_closing_while_a_server_starts_leaves_no_process(host: McpHost) -> None:
    servers = host.servers(plain=host.plain("hang", "stubborn"))
    use = asyncio.create_task(servers.tools("plain"))
    await eventually(host.pids)
    await servers.aclose()
    assert host.running() == []
    with pytest.raises(McpError, match="was closed before it was ready"):
        await use
    assert host.catalogue.listings == {}


@pytest.mark.parametrize("steps", range(8))
async def test_closing_at_any_moment_of_a_start_leaves_nothing(host: McpHost, steps: int) -> None:
    servers = host.servers(plain=host.plain())
    use = asyncio.create_task(servers.tools("plain"))
    await turns(steps)
    await servers.aclose()
    with pytest.raises(McpError, match=r"closed"):
        await use
    assert host.running() == []
    assert host.catalogue.listings == {}


async def test_closing_is_carried_out_though_the_closing_task_is_cancelled(host: McpHost) -> None:
    servers = host.servers(plain=host.plain("stubborn", "family"))
    await servers.call("plain", "pid", {})
    closing = asyncio.create_task(servers.aclose())
    await turns()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert host.running() == []


async def test_closing_ends_the_calls_under_way(host: McpHost) -> None:
    servers = host.servers(plain=host.plain())
    await servers.tools("plain")
    call = asyncio.create_task(servers.call("plain", "never", {}))
    await servers.call("plain", "pid", {})
    await servers.aclose()
    with pytest.raises(McpError, match="was closed during the request"):
        await call
    with pytest.raises(McpError, match="is closed: its agent has ended"):
        await servers.call("plain", "pid", {})


async def test_closing_a_failed_one_is_nothing(host: McpHost) -> None:
    servers = host.servers(broken=McpServerConfig(command="no-such-program"))
    with pytest.raises(McpError):
        await servers.tools("broken")
    await servers.aclose()
    await servers.aclose()


@pytest.mark.parametrize("behaviour", [(), ("stubborn",), ("stubborn", "family")])
def test_a_killed_host_leaves_no_server(host: McpHost, behaviour: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", HOST, str(host.folder), plain_mcp_server.__file__, *behaviour]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        wait_until(lambda: len(host.running()) == 1 + ("family" in behaviour))
        process.kill()
        wait_until(lambda: not host.running())
