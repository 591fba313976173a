"""MCP connections to real servers, on standard streams and over HTTP: what is listed, called and answered."""

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import plain_mcp_server, sdk_mcp_server, session_mcp_server
from support.mcp_host import McpHost, http_server
from support.waiting import eventually, eventually_async, turns

from freeact_sub.config.schema import McpServerConfig
from freeact_sub.errors import McpError

pytestmark = pytest.mark.mcp


@pytest.fixture
def host(tmp_path: Path) -> McpHost:
    return McpHost(tmp_path)


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


async def test_lists_and_calls_tools(host: McpHost, demo: McpServerConfig) -> None:
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


async def test_ten_calls_run_side_by_side_and_can_be_cancelled(host: McpHost, demo: McpServerConfig) -> None:
    async with host.servers(demo=demo) as servers:

        async def running() -> list[str]:
            return (await servers.call("demo", "still_running", {})).value

        names = [f"call {number}" for number in range(10)]
        calls = [asyncio.create_task(servers.call("demo", "slow", {"name": name, "endless": True})) for name in names]

        async def all_run() -> bool:
            return await running() == names

        async def none_runs() -> bool:
            return not await running()

        await eventually_async(all_run)
        for call in calls:
            call.cancel()
        results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 120)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        await eventually_async(none_runs)
        assert (await servers.call("demo", "slow", {"name": "another", "endless": False})).value == "another"


async def test_a_call_that_takes_too_long_is_an_error_and_is_cancelled(host: McpHost, demo: McpServerConfig) -> None:
    async with host.servers(demo=demo.model_copy(update={"call_timeout_seconds": 10})) as servers:
        await servers.tools("demo")
        with pytest.raises(McpError, match=r"demo.slow did not respond within 10 s.*`call_timeout_seconds`") as caught:
            await servers.call("demo", "slow", {"name": "late", "endless": True})
        assert caught.value.server == "demo"

        async def none_runs() -> bool:
            return not (await servers.call("demo", "still_running", {})).value

        await eventually_async(none_runs)


async def test_a_server_that_reads_nothing_is_given_up_in_time(host: McpHost) -> None:
    async with host.servers(plain=host.plain("deaf", call_timeout_seconds=5)) as servers:
        await servers.call("plain", "pid", {})
        with pytest.raises(McpError, match="did not respond"):
            await servers.call("plain", "pid", {"much": "x" * 1_000_000})
        call = asyncio.create_task(servers.call("plain", "pid", {}))
        await turns()
        call.cancel()
        await asyncio.wait({call})


async def test_a_server_gets_no_secret_of_the_host(host: McpHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    config = McpServerConfig(command=sys.executable, args=(sdk_mcp_server.__file__,), env={"TOKEN": "its own"})
    async with host.servers(demo=config) as servers:
        environment = (await servers.call("demo", "environment", {})).value
    assert environment["TOKEN"] == "its own"
    assert environment["PATH"] == os.environ["PATH"]
    assert "SOME_API_KEY" not in environment


async def test_is_opened_once_on_first_use(host: McpHost) -> None:
    async with host.servers(plain=host.plain()) as servers:
        assert host.pids() == []
        results = await asyncio.gather(servers.tools("plain"), *(servers.call("plain", "pid", {}) for _ in range(5)))
        assert len(host.pids()) == 1
        assert {result.value for result in results[1:]} == {str(host.pids()[0])}


async def test_all_pages_of_tools_are_listed(host: McpHost) -> None:
    async with host.servers(plain=host.plain()) as servers:
        names = [tool.name for tool in await servers.tools("plain")]
    assert names == [tool["name"] for tool in plain_mcp_server.TOOLS]


async def test_agents_share_the_catalogue_and_not_the_connection(host: McpHost) -> None:
    config = host.plain()
    async with host.servers(plain=config) as first, host.servers(plain=config) as second:
        one, other = await asyncio.gather(first.tools("plain"), second.tools("plain"))
        assert one == other
        assert len(host.pids()) == 1
        answers = [(await servers.call("plain", "pid", {})).value for servers in (first, second)]
        assert answers == [str(pid) for pid in host.pids()]
        assert len(set(answers)) == 2


async def test_agents_share_the_connection_to_a_server_that_is_shared(host: McpHost) -> None:
    shared = host.plain(shared=True)
    async with host.servers(plain=host.plain()) as root:
        root.share()
        async with host.servers(plain=shared) as one, host.servers(plain=shared) as two:
            await one.tools("plain")
            pids = {(await each.call("plain", "pid", {})).value for each in (one, two)}
            assert pids == {str(pid) for pid in host.pids()}
        assert host.running() == host.pids()  # it is the root's
        async with host.servers(plain=shared) as three:
            assert (await three.call("plain", "pid", {})).value in pids
            os.kill(host.pids()[0], 9)
            await eventually(lambda: not any(task.get_name() == "MCP server plain" for task in asyncio.all_tasks()))
            assert (await three.call("plain", "pid", {})).value == str(host.pids()[1])
            await root.aclose()
            with pytest.raises(McpError, match="its agent has ended"):
                await three.call("plain", "pid", {})
    assert host.running() == []


async def test_a_connection_that_has_only_listed_goes_to_the_first_agent_that_calls(host: McpHost) -> None:
    config = host.plain()
    async with host.servers(plain=config) as child:
        async with host.servers(plain=config) as root, host.servers(plain=config) as other:
            await root.tools("plain")
            answers = [(await servers.call("plain", "pid", {})).value for servers in (child, root, other, child, root)]
            first, second, third = (str(pid) for pid in host.pids())
            assert answers == [first, second, third, first, second]
        await eventually(lambda: host.running() == [int(first)])
        assert (await child.call("plain", "pid", {})).value == first


async def test_a_connection_whose_agent_has_ended_goes_to_nobody(host: McpHost) -> None:
    async with host.servers(plain=host.plain()) as child:
        async with host.servers(plain=host.plain()) as root:
            await root.tools("plain")
        answer = await child.call("plain", "pid", {})
    assert [answer.value] == [str(pid) for pid in host.pids()[1:]]


async def test_a_connection_that_was_called_stays_its_agents_also_when_it_lists_anew(host: McpHost) -> None:
    config = host.plain()
    async with host.servers(plain=config) as root, host.servers(plain=config) as child:
        await root.call("plain", "pid", {})
        with pytest.raises(McpError, match="has no tool 'nowhere'"):
            await root.call("plain", "nowhere", {})
        answers = [(await servers.call("plain", "pid", {})).value for servers in (child, root)]
        assert answers == [str(pid) for pid in reversed(host.pids())]


async def test_a_connection_that_lists_anew_goes_to_nobody_until_it_has_and_then_to_who_calls(host: McpHost) -> None:
    config = host.plain()
    async with host.servers(plain=config) as root, host.servers(plain=config) as child:
        await root.tools("plain")
        wrong = asyncio.create_task(root.call("plain", "nowhere", {}))
        await turns()  # it has asked for the tools
        async with host.servers(plain=config) as other:
            await other.call("plain", "pid", {})
        with pytest.raises(McpError, match="has no tool 'nowhere'"):
            await wrong
        with pytest.raises(McpError, match="has no tool 'nowhere'"):
            await child.call("plain", "nowhere", {})
        assert (await child.call("plain", "pid", {})).value == str(host.pids()[0])


async def test_a_connection_that_was_lost_before_it_was_called_is_replaced_by_who_calls(host: McpHost) -> None:
    configs = {"plain": host.plain(), "other": host.plain()}
    async with host.servers(**configs) as root, host.servers(**configs) as child:
        await root.tools("plain")
        os.kill(host.pids()[0], 9)
        await eventually(lambda: not any(task.get_name() == "MCP server plain" for task in asyncio.all_tasks()))
        await root.tools("other")
        assert (await child.call("plain", "pid", {})).value == str(host.pids()[2])


async def test_an_agent_that_has_ended_takes_no_connection(host: McpHost) -> None:
    async with host.servers(plain=host.plain()) as root:
        await root.tools("plain")
        async with host.servers(plain=host.plain()) as child:
            pass
        with pytest.raises(McpError, match="its agent has ended"):
            await child.call("plain", "pid", {})
        assert (await root.call("plain", "pid", {})).value == str(host.pids()[0])
    assert host.running() == []


async def test_a_tool_that_needs_a_task_is_not_offered(host: McpHost) -> None:
    async with host.servers(plain=host.plain("tasks")) as servers:
        names = [tool.name for tool in await servers.tools("plain")]
        assert "maybe_task" in names
        assert "as_task" not in names


async def test_who_is_cancelled_while_listing_leaves_it_to_the_next(host: McpHost) -> None:
    async with host.servers(plain=host.plain("late")) as servers:
        first, second = (asyncio.create_task(servers.tools("plain")) for _ in range(2))
        await eventually(host.pids)
        first.cancel()
        await asyncio.wait({first})
        (host.folder / "go").touch()
        assert len(await second) == len(plain_mcp_server.TOOLS)
        assert first.cancelled()
        assert len(host.pids()) == 1


async def test_disabled_servers_are_left_out(host: McpHost) -> None:
    async with host.servers(plain=host.plain(), off=host.plain(disabled=True)) as servers:
        assert servers.names == ("plain",)
        with pytest.raises(McpError, match="no MCP server 'off'"):
            await servers.tools("off")


async def test_names_what_was_meant(host: McpHost) -> None:
    async with host.servers(plain=host.plain()) as servers:
        with pytest.raises(McpError, match="no MCP server 'plane': did you mean 'plain'"):
            await servers.call("plane", "pid", {})
        with pytest.raises(McpError, match="'plain' has no tool 'pids': did you mean 'pid'"):
            await servers.call("plain", "pids", {})
        with pytest.raises(McpError, match="one of: exit, garbage, large, log, never, noise, pid, refuse"):
            await servers.call("plain", "xxx", {})


async def test_finds_tools_that_the_server_has_added(host: McpHost) -> None:
    config = McpServerConfig(command=sys.executable, args=(sdk_mcp_server.__file__,))
    async with host.servers(demo=config) as servers:
        with pytest.raises(McpError, match="no tool 'late_tool'"):
            await servers.call("demo", "late_tool", {})
        await servers.call("demo", "add_tool", {})
        assert (await servers.call("demo", "late_tool", {})).value == "late"


@pytest.mark.parametrize(("tool", "is_error", "text"), [("refuse", True, "not today"), ("garbage", False, "no list")])
async def test_what_a_server_answers_is_no_loss_of_the_connection(
    host: McpHost, tool: str, is_error: bool, text: str
) -> None:
    async with host.servers(plain=host.plain()) as servers:
        result = await servers.call("plain", tool, {})
        assert (result.is_error, result.text) == (is_error, text)
        assert len(host.running()) == 1


async def test_what_a_server_prints_between_its_answers_does_no_harm(host: McpHost) -> None:
    async with host.servers(plain=host.plain("noisy")) as servers:
        assert not (await servers.call("plain", "pid", {})).is_error


async def test_arguments_that_are_not_json_are_refused(host: McpHost) -> None:
    async with host.servers(plain=host.plain()) as servers:
        result = await servers.call("plain", "pid", {"what": object()})
        assert result.is_error
        assert "not JSON data" in result.text
        assert not (await servers.call("plain", "pid", {})).is_error


async def test_http_headers_are_sent_and_a_wrong_key_is_named(host: McpHost) -> None:
    with http_server(session_mcp_server.__file__) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        right = McpServerConfig(url=url, headers={"Authorization": "Bearer right"})
        wrong = McpServerConfig(url=url, headers={"Authorization": "Bearer wrong"})
        async with host.servers(right=right, wrong=wrong) as servers:
            with pytest.raises(McpError, match=r"'wrong' cannot be reached .*\(401 Unauthorized\); check .* `headers`"):
                await servers.tools("wrong")
            assert (await servers.call("right", "session", {})).value == "session-1"


@pytest.mark.parametrize("status", [404, 400, 401, 403, 410, 422, 500, 503, 200])
async def test_a_forgotten_http_session_is_opened_anew_by_the_next_call(host: McpHost, status: int) -> None:
    with http_server(session_mcp_server.__file__, 0, status) as port:
        config = McpServerConfig(url=f"http://127.0.0.1:{port}/mcp", headers={"Authorization": "Bearer right"})
        async with host.servers(web=config) as servers:
            await servers.call("web", "forget", {})
            with pytest.raises(McpError, match=r"'web' at .* was lost .*; the next call connects anew"):
                await servers.call("web", "session", {})
            assert (await servers.call("web", "session", {})).value == "session-2"


REFUSED = {
    "429 Too Many Requests (retry-after: 30): Try again in 30 s": (
        "refuse",
        {
            "status": 429,
            "body": '{"error": "rate_limited", "message": "Try again in 30 s"}',
            "headers": {"retry-after": "30"},
        },
    ),
    "502 Bad Gateway": ("refuse", {"status": 502, "body": "<html><h1>Bad gateway</h1></html>"}),
    "400 Bad Request: no column b": ("refuse", {"status": 400, "body": '{"detail": [{"msg": "no column b"}]}'}),
    "413 Request Entity Too Large: at most 1 MB": ("refuse", {"status": 413, "body": "at most 1 MB"}),
    "504 Gateway Timeout": ("refuse", {"status": 504, "body": ""}),
    'Invalid params: {"path": "must be absolute"}': (
        "fail",
        {"error": {"code": -32602, "message": "Invalid params", "data": {"path": "must be absolute"}}, "status": 400},
    ),
    "Internal error: disk full": ("fail", {"error": {"code": -32000, "message": "Internal error", "data": "disk full"}}),
    "no such row 7": ("fail", {"error": {"code": -32000, "message": "no such row 7", "data": {"row": 7}}}),
    "503 Service Unavailable (retry-after: 5): busy": (
        "fail",
        {"error": {"code": -32000, "message": "busy"}, "status": 503, "headers": {"retry-after": "5"}},
    ),
}


async def test_what_a_server_says_as_it_refuses_reaches_the_code_and_the_session_stays(host: McpHost) -> None:
    with http_server(session_mcp_server.__file__) as port:
        config = McpServerConfig(url=f"http://127.0.0.1:{port}/mcp", headers={"Authorization": "Bearer right"})
        async with host.servers(web=config) as servers:
            for words, (tool, arguments) in REFUSED.items():
                result = await servers.call("web", tool, arguments)
                assert (result.is_error, result.text.replace("Content Too Large", "Request Entity Too Large")) == (
                    True,
                    words,
                )
            assert (await servers.call("web", "session", {})).value == "session-1"


@pytest.mark.parametrize("version", ["2099-01-01", "1.0", ""])
async def test_an_unknown_version_of_the_protocol_is_said(host: McpHost, version: str) -> None:
    greeting = f"{{'protocolVersion': {version!r}, 'capabilities': {{}}, 'serverInfo': {{'name': 'x', 'version': '1'}}}}"
    answer = f"print(json.dumps({{'jsonrpc': '2.0', 'id': json.loads(line)['id'], 'result': {greeting}}}), flush=True)"
    script = f"import json, sys\nfor line in sys.stdin:\n    {answer}\n"
    config = McpServerConfig(command=sys.executable, args=("-c", script))
    async with host.servers(odd=config) as servers:
        with pytest.raises(McpError, match=rf"'odd' cannot be used: it speaks version '{version}' of the protocol"):
            await servers.tools("odd")


async def test_an_http_server_that_was_restarted_is_connected_to_anew(host: McpHost) -> None:
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


async def test_reads_resources_and_prompts_and_hears_of_new_tools(host: McpHost, demo: McpServerConfig) -> None:
    async with host.servers(demo=demo) as servers:
        listed = {resource.uri: resource for resource in await servers.resources("demo")}
        assert listed["demo://words"].description == "Some words"
        template = listed["demo://cities/{city}"]
        assert (template.is_template, listed["demo://words"].is_template) == (True, False)
        assert (await servers.read("demo", "demo://words")).text == "some words"
        pixel = await servers.read("demo", "demo://pixel")
        assert [image.data for image in pixel.images] == [sdk_mcp_server.PNG]
        with pytest.raises(McpError, match="Unknown resource"):
            await servers.read("demo", "demo://nothing")

        (prompt,) = await servers.prompts("demo")
        assert [(each.name, each.required) for each in prompt.arguments] == [
            ("language", True),
            ("focus", False),
            ("name", False),
        ]
        result = await servers.prompt("demo", "review", {"language": "C", "focus": "speed"})
        assert result.text == "Review this C code for speed."
        assert await servers.complete("demo", prompt, "language", {"language": "py"}) == ("python", "pytorch")
        assert await servers.complete("demo", template, "city", {"city": "Ro"}) == ("Rome",)

        before = await servers.tools("demo")
        await servers.call("demo", "grow", {})
        await eventually(lambda: "demo" in host.catalogue.changed)
        assert {tool.name for tool in await servers.tools("demo")} - {tool.name for tool in before} <= {"grown_tool"}
        assert "grown_tool" in {tool.name for tool in await servers.tools("demo")}
        assert "demo" not in host.catalogue.changed
        assert (await servers.call("demo", "grown_tool", {})).value == "grown"


async def test_a_list_that_is_told_to_have_changed_and_has_not_keeps_its_version(host: McpHost) -> None:
    config = McpServerConfig(command=sys.executable, args=(sdk_mcp_server.__file__,))
    async with host.servers(demo=config) as first, host.servers(demo=config) as second:
        await first.tools("demo")
        await first.call("demo", "grow", {})
        await eventually(lambda: "demo" in host.catalogue.changed)
        assert "grown_tool" in {tool.name for tool in await second.tools("demo")}  # by the first one's connection
        version = first.version("demo")
        await first.call("demo", "grow", {})
        await eventually(lambda: "demo" in host.catalogue.changed)
        await first.tools("demo")
        assert first.version("demo") == version
        assert second.version("demo") == version
