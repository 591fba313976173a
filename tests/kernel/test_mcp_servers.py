"""MCP connections to real servers, on standard streams and over HTTP."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import plain_mcp_server, sdk_mcp_server, session_mcp_server
from support.waiting import eventually, is_running, wait_until

from freeact_sub.config import McpServerConfig
from freeact_sub.errors import McpError
from freeact_sub.mcp import McpCatalogue, McpServers
from freeact_sub.mcp.connection import CLOSE_SECONDS

pytestmark = pytest.mark.mcp

HOST = """
import asyncio, sys
from pathlib import Path
from freeact_sub.config import McpServerConfig
from freeact_sub.mcp import McpCatalogue, McpServers

async def main():
    folder = Path(sys.argv[1])
    config = McpServerConfig(command=sys.executable, args=sys.argv[2:], env={"PID_FILE": str(folder / "pids")})
    servers = McpServers({"plain": config}, catalogue=McpCatalogue(), log_folder=folder)
    await servers.call("plain", "pid", {})
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class Host:
    """What one agent has of MCP, and what its servers note."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.catalogue = McpCatalogue()

    def servers(self, **configs: McpServerConfig) -> McpServers:
        return McpServers(configs, catalogue=self.catalogue, log_folder=self.folder / "logs")

    def plain(self, *behaviour: str, **settings: object) -> McpServerConfig:
        environment = {"PID_FILE": str(self.folder / "pids")}
        arguments = (plain_mcp_server.__file__, *behaviour)
        return McpServerConfig(command=sys.executable, args=arguments, env=environment, **settings)

    def pids(self) -> list[int]:
        """Of all processes that the servers have noted, in order of their start."""
        file = self.folder / "pids"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def running(self) -> list[int]:
        return [pid for pid in self.pids() if is_running(pid)]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@contextmanager
def http_server(script: str, port: int = 0) -> Iterator[int]:
    with subprocess.Popen([sys.executable, script, str(port)], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def http_url() -> Iterator[str]:
    with http_server(sdk_mcp_server.__file__) as port:
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture(params=["stdio", "http"])
def demo(request: pytest.FixtureRequest) -> McpServerConfig:
    """The same server, made with the SDK, over both transports."""
    if request.param == "http":
        return McpServerConfig(url=request.getfixturevalue("http_url"))
    return McpServerConfig(command=sys.executable, args=(sdk_mcp_server.__file__,))


async def test_lists_and_calls_tools(host: Host, demo: McpServerConfig) -> None:
    async with host.servers(demo=demo) as servers:
        tools = {tool.name: tool for tool in await servers.tools("demo")}
        assert tools["add"].description == "Add two numbers."
        assert tools["add"].parameters_json_schema["required"] == ["a", "b"]
        assert (tools["add"].read_only, tools["greet"].read_only) == (True, False)

        number = await servers.call("demo", "add", {"a": 1, "b": 2})
        assert (number.value, number.text, number.is_error) == (3, "3", False)
        record = await servers.call("demo", "weather", {"city": "Rome"})
        assert record.value == {"city": "Rome", "degrees": 21.5}
        assert (await servers.call("demo", "greet", {"name": "you"})).value == "hello you"

        picture = await servers.call("demo", "picture", {})
        assert picture.text == "one pixel"
        assert [(image.media_type, image.data) for image in picture.images] == [("image/png", sdk_mcp_server.PNG)]
        assert [block["type"] for block in picture.value] == ["text", "image"]
        attachments = await servers.call("demo", "attachments", {})
        assert attachments.text.splitlines() == [
            "[resource file:///data.bin: 3 bytes of application/x-data]",
            "[resource file:///more.txt: more of it]",
        ]
        assert attachments.value[0]["resource"]["blob"] == "AAEC"

        failed = await servers.call("demo", "fail", {"why": "no such thing"})
        assert failed.is_error
        assert "no such thing" in failed.text
        assert (await servers.call("demo", "add", {"a": "one"})).is_error


async def test_ten_calls_run_side_by_side_and_can_be_cancelled(host: Host, demo: McpServerConfig) -> None:
    async with host.servers(demo=demo) as servers:

        async def running() -> list[str]:
            return (await servers.call("demo", "still_running", {})).value

        names = [f"call {number}" for number in range(10)]
        calls = [asyncio.create_task(servers.call("demo", "slow", {"name": name, "seconds": 600})) for name in names]
        async with asyncio.timeout(20):
            while await running() != names:
                await asyncio.sleep(0.01)
            for call in calls:
                call.cancel()
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results)
            while await running():
                await asyncio.sleep(0.01)
        assert (await servers.call("demo", "slow", {"name": "another", "seconds": 0})).value == "another"


async def test_a_call_that_takes_too_long_is_an_error_and_is_cancelled(host: Host, demo: McpServerConfig) -> None:
    async with host.servers(demo=demo.model_copy(update={"call_timeout_seconds": 0.5})) as servers:
        await servers.tools("demo")
        with pytest.raises(McpError, match=r"demo.slow did not answer within 0.5 s.*`call_timeout_seconds`") as caught:
            await servers.call("demo", "slow", {"name": "late", "seconds": 600})
        assert caught.value.server == "demo"
        async with asyncio.timeout(20):
            while (await servers.call("demo", "still_running", {})).value:
                await asyncio.sleep(0.01)


async def test_a_server_that_reads_nothing_is_given_up_in_time(host: Host) -> None:
    async with host.servers(plain=host.plain("deaf", call_timeout_seconds=0.5)) as servers:
        await servers.call("plain", "pid", {})
        started = time.monotonic()
        with pytest.raises(McpError, match="did not answer"):
            await servers.call("plain", "pid", {"much": "x" * 1_000_000})
        assert time.monotonic() - started < 2
        call = asyncio.create_task(servers.call("plain", "pid", {}))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait({call})
        assert time.monotonic() - started < 2


async def test_a_server_gets_no_secret_of_the_host(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    config = McpServerConfig(command=sys.executable, args=(sdk_mcp_server.__file__,), env={"TOKEN": "its own"})
    async with host.servers(demo=config) as servers:
        environment = (await servers.call("demo", "environment", {})).value
    assert environment["TOKEN"] == "its own"
    assert environment["PATH"] == os.environ["PATH"]
    assert "SOME_API_KEY" not in environment


async def test_is_opened_once_on_first_use(host: Host) -> None:
    async with host.servers(plain=host.plain()) as servers:
        assert host.pids() == []
        results = await asyncio.gather(servers.tools("plain"), *(servers.call("plain", "pid", {}) for _ in range(5)))
        assert len(host.pids()) == 1
        assert {result.value for result in results[1:]} == {str(host.pids()[0])}


async def test_all_pages_of_tools_are_listed(host: Host) -> None:
    async with host.servers(plain=host.plain()) as servers:
        names = [tool.name for tool in await servers.tools("plain")]
    assert names == [tool["name"] for tool in plain_mcp_server.TOOLS]


async def test_agents_share_the_catalogue_and_not_the_connection(host: Host) -> None:
    config = host.plain()
    async with host.servers(plain=config) as first, host.servers(plain=config) as second:
        one, other = await asyncio.gather(first.tools("plain"), second.tools("plain"))
        assert one == other
        assert len(host.pids()) == 1
        answers = [(await servers.call("plain", "pid", {})).value for servers in (first, second)]
        assert answers == [str(pid) for pid in host.pids()]
        assert len(set(answers)) == 2


async def test_who_is_cancelled_while_listing_leaves_it_to_the_next(host: Host) -> None:
    async with host.servers(plain=host.plain("late")) as servers:
        first, second = (asyncio.create_task(servers.tools("plain")) for _ in range(2))
        await eventually(host.pids)
        first.cancel()
        await asyncio.wait({first})
        (host.folder / "go").touch()
        assert len(await second) == len(plain_mcp_server.TOOLS)
        assert first.cancelled()
        assert len(host.pids()) == 1


async def test_disabled_servers_are_left_out(host: Host) -> None:
    async with host.servers(plain=host.plain(), off=host.plain(disabled=True)) as servers:
        assert servers.names == ("plain",)
        with pytest.raises(McpError, match="no MCP server 'off'"):
            await servers.tools("off")


async def test_names_what_was_meant(host: Host) -> None:
    async with host.servers(plain=host.plain()) as servers:
        with pytest.raises(McpError, match="no MCP server 'plane': did you mean 'plain'"):
            await servers.call("plane", "pid", {})
        with pytest.raises(McpError, match="'plain' has no tool 'pids': did you mean 'pid'"):
            await servers.call("plain", "pids", {})
        with pytest.raises(McpError, match="one of: exit, garbage, never, pid, refuse"):
            await servers.call("plain", "xxx", {})


async def test_finds_tools_that_the_server_has_added(host: Host) -> None:
    config = McpServerConfig(command=sys.executable, args=(sdk_mcp_server.__file__,))
    async with host.servers(demo=config) as servers:
        with pytest.raises(McpError, match="no tool 'late_tool'"):
            await servers.call("demo", "late_tool", {})
        await servers.call("demo", "add_tool", {})
        assert (await servers.call("demo", "late_tool", {})).value == "late"


@pytest.mark.parametrize(
    ("tool", "text"), [("refuse", "not today"), ("garbage", "the answer of MCP tool plain.garbage cannot be used")]
)
async def test_what_a_server_answers_is_no_loss_of_the_connection(host: Host, tool: str, text: str) -> None:
    async with host.servers(plain=host.plain()) as servers:
        result = await servers.call("plain", tool, {})
        assert result.is_error
        assert result.text.startswith(text)
        assert len(host.running()) == 1


async def test_arguments_that_are_not_json_are_refused(host: Host) -> None:
    async with host.servers(plain=host.plain()) as servers:
        result = await servers.call("plain", "pid", {"what": object()})
        assert result.is_error
        assert "not JSON data" in result.text
        assert not (await servers.call("plain", "pid", {})).is_error


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"command": "no-such-program"}, "there is no program 'no-such-program'; install it"),
        ({"command": "./run"}, "there is no program './run'; install it"),
        ({"command": sys.executable, "cwd": "/no/such/folder"}, "its folder /no/such/folder is not there"),
        ({"command": sys.executable, "args": ("-c", "")}, "ended before it was ready; its log is"),
        ({"url": "http://me:pw@127.0.0.1:1/mcp?key=pw"}, r"cannot be reached at http://127.0.0.1:1/mcp \("),
    ],
)
async def test_a_server_that_cannot_start_is_one_clear_error(host: Host, settings: dict, text: str) -> None:
    async with host.servers(broken=McpServerConfig(**settings), plain=host.plain()) as servers:
        for use in (servers.tools("broken"), servers.call("broken", "pid", {})):
            with pytest.raises(McpError, match=f"^MCP server 'broken' .*{text}") as caught:
                await use
            assert caught.value.server == "broken"
            assert "\n" not in str(caught.value)
        assert len(await servers.tools("plain")) == len(plain_mcp_server.TOOLS)


async def test_a_server_that_ends_at_once_has_its_last_words_in_the_error(host: Host) -> None:
    async with host.servers(plain=host.plain("exit")) as servers:
        log = host.folder / "logs" / "mcp-plain.log"
        with pytest.raises(McpError, match=rf"ended before it was ready \(no configuration found\); its log is {log}"):
            await servers.tools("plain")


async def test_a_server_that_hangs_at_start_is_given_up_and_ended(host: Host) -> None:
    async with host.servers(plain=host.plain("hang", "stubborn", "family", init_timeout_seconds=0.5)) as servers:
        with pytest.raises(McpError, match=r"was not ready within 0\.5 s"):
            await servers.tools("plain")
        assert len(host.pids()) == 2
        assert host.running() == []


async def test_a_failed_start_is_remembered_and_tried_again_by_a_call(host: Host) -> None:
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


async def test_a_server_that_ends_during_a_call_is_started_anew_by_the_next(host: Host) -> None:
    async with host.servers(plain=host.plain()) as servers:
        other = asyncio.create_task(servers.call("plain", "never", {}))
        first = (await servers.call("plain", "pid", {})).value
        with pytest.raises(McpError, match=r"'plain' has ended \(last words\); the next call starts it anew"):
            await servers.call("plain", "exit", {})
        with pytest.raises(McpError, match="has ended"):
            await other
        assert (await servers.call("plain", "pid", {})).value != first


async def test_a_server_that_ended_between_calls_is_started_anew_unnoticed(host: Host) -> None:
    async with host.servers(plain=host.plain()) as servers:
        first = (await servers.call("plain", "pid", {})).value
        os.kill(int(first), 9)
        await eventually(lambda: not any(task.get_name() == "MCP server plain" for task in asyncio.all_tasks()))
        assert (await servers.call("plain", "pid", {})).value != first


async def test_cancelling_the_first_use_does_not_cancel_the_others(host: Host) -> None:
    async with host.servers(plain=host.plain()) as lister, host.servers(plain=host.plain("late")) as servers:
        await lister.tools("plain")
        first, second = (asyncio.create_task(servers.call("plain", "pid", {})) for _ in range(2))
        await eventually(lambda: len(host.pids()) == 2)
        first.cancel()
        await asyncio.wait({first})
        (host.folder / "go").touch()
        assert (await second).value == str(host.pids()[1])


@pytest.mark.parametrize("behaviour", [(), ("stubborn",), ("stubborn", "family")])
async def test_closing_leaves_no_process(host: Host, behaviour: tuple[str, ...]) -> None:
    async with host.servers(plain=host.plain(*behaviour)) as servers:
        await servers.call("plain", "pid", {})
        await eventually(lambda: len(host.running()) == 1 + ("family" in behaviour))
        started = time.monotonic()
    assert time.monotonic() - started < CLOSE_SECONDS
    assert host.running() == []


async def test_closing_while_a_server_starts_leaves_no_process(host: Host) -> None:
    servers = host.servers(plain=host.plain("hang", "stubborn"))
    use = asyncio.create_task(servers.tools("plain"))
    await eventually(host.pids)
    await servers.aclose()
    assert host.running() == []
    with pytest.raises(McpError, match="was closed before it was ready"):
        await use
    assert host.catalogue.listings == {}


@pytest.mark.parametrize("steps", range(8))
async def test_closing_at_any_moment_of_a_start_leaves_nothing(host: Host, steps: int) -> None:
    servers = host.servers(plain=host.plain())
    use = asyncio.create_task(servers.tools("plain"))
    for _ in range(steps):
        await asyncio.sleep(0)
    await servers.aclose()
    with pytest.raises(McpError, match=r"closed"):
        await use
    assert host.running() == []
    assert host.catalogue.listings == {}


async def test_closing_is_carried_out_though_the_closing_task_is_cancelled(host: Host) -> None:
    servers = host.servers(plain=host.plain("stubborn", "family"))
    await servers.call("plain", "pid", {})
    closing = asyncio.create_task(servers.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert host.running() == []


async def test_closing_ends_the_calls_under_way(host: Host) -> None:
    servers = host.servers(plain=host.plain())
    await servers.tools("plain")
    call = asyncio.create_task(servers.call("plain", "never", {}))
    await servers.call("plain", "pid", {})
    await servers.aclose()
    with pytest.raises(McpError, match="was closed during the request"):
        await call
    with pytest.raises(McpError, match="is closed: its agent has ended"):
        await servers.call("plain", "pid", {})


async def test_closing_a_failed_one_is_nothing(host: Host) -> None:
    servers = host.servers(broken=McpServerConfig(command="no-such-program"))
    with pytest.raises(McpError):
        await servers.tools("broken")
    await servers.aclose()
    await servers.aclose()


@pytest.mark.parametrize("behaviour", [(), ("stubborn",), ("stubborn", "family")])
def test_a_killed_host_leaves_no_server(host: Host, behaviour: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", HOST, str(host.folder), plain_mcp_server.__file__, *behaviour]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        wait_until(lambda: len(host.running()) == 1 + ("family" in behaviour))
        process.kill()
        wait_until(lambda: not host.running(), limit_seconds=3)


async def test_http_headers_are_sent_and_a_wrong_key_is_named(host: Host) -> None:
    with http_server(session_mcp_server.__file__) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        right = McpServerConfig(url=url, headers={"Authorization": "Bearer right"})
        wrong = McpServerConfig(url=url, headers={"Authorization": "Bearer wrong"})
        async with host.servers(right=right, wrong=wrong) as servers:
            with pytest.raises(McpError, match=r"'wrong' cannot be reached .*\(401 Unauthorized\); check .* `headers`"):
                await servers.tools("wrong")
            assert (await servers.call("right", "session", {})).value == "session-1"


async def test_a_forgotten_http_session_is_opened_anew_by_the_next_call(host: Host) -> None:
    with http_server(session_mcp_server.__file__) as port:
        config = McpServerConfig(url=f"http://127.0.0.1:{port}/mcp", headers={"Authorization": "Bearer right"})
        async with host.servers(web=config) as servers:
            await servers.call("web", "forget", {})
            with pytest.raises(McpError, match=r"'web' at .* was lost .*; the next call connects anew"):
                await servers.call("web", "session", {})
            assert (await servers.call("web", "session", {})).value == "session-2"


async def test_an_http_server_that_was_restarted_is_connected_to_anew(host: Host) -> None:
    with http_server(sdk_mcp_server.__file__) as port:
        servers = host.servers(web=McpServerConfig(url=f"http://127.0.0.1:{port}/mcp"))
        assert (await servers.call("web", "add", {"a": 1, "b": 2})).value == 3
    with pytest.raises(McpError, match=r"'web' at .* was lost"):
        await servers.call("web", "add", {"a": 1, "b": 2})
    with pytest.raises(McpError, match="'web' cannot be reached at"):
        await servers.call("web", "add", {"a": 1, "b": 2})
    with http_server(sdk_mcp_server.__file__, port):
        assert (await servers.call("web", "add", {"a": 1, "b": 2})).value == 3
        await servers.aclose()
