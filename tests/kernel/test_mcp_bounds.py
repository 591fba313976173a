"""What a server of MCP writes is bounded: its answers, its log, and what is said of lines that are not messages."""

import asyncio
import base64
import gzip
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
from support.mcp_host import McpHost
from support.waiting import LOADED_MACHINE_SECONDS, eventually, is_running, wait_until

from freeact_sub.config.schema import McpServerConfig
from freeact_sub.errors import ConfigError, McpError
from freeact_sub.mcp import McpResult
from freeact_sub.mcp.transports import LOG_BYTES
from freeact_sub.system.private_folders import sweep

pytestmark = pytest.mark.mcp


@pytest.fixture
def host(tmp_path: Path) -> McpHost:
    return McpHost(tmp_path)


@pytest.mark.parametrize("id_first", [True, False])
async def test_an_answer_that_is_too_large_fails_its_call_and_the_server_goes_on(host, id_first):
    async with host.servers(plain=host.plain(max_message_bytes=100_000)) as servers:
        fits = await servers.call("plain", "large", {"size": 90_000, "id_first": id_first})
        assert (fits.is_error, len(fits.text)) == (False, 90_000)
        for size in (100_000, 30_000_000):
            refused = await servers.call("plain", "large", {"size": size, "id_first": id_first})
            assert refused.is_error
            assert "more than the 100000 of the setting `max_message_bytes`" in refused.text
        pid = int((await servers.call("plain", "pid", {})).text)
        assert [pid] == host.running()


async def test_many_calls_at_once_come_through_in_whole(host):
    async with host.servers(plain=host.plain()) as servers:
        sizes = [10_000 * number + 1 for number in range(40)]
        calls = (servers.call("plain", "large", {"size": size, "id_first": True}) for size in sizes)
        answers = await asyncio.gather(*calls)
    assert [len(answer.text) for answer in answers] == sizes


async def test_lines_that_are_no_messages_are_told_of_once(host, caplog):
    async with host.servers(plain=host.plain()) as servers:
        for _ in range(2):
            assert not (await servers.call("plain", "noise", {"lines": 500})).is_error
    [said] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "'plain' writes to its standard output what is not a message" in said.getMessage()
    assert "noise 0" in said.getMessage()
    assert said.exc_info is None


async def test_the_log_of_a_server_is_bounded_and_keeps_its_end(host):
    async with host.servers(plain=host.plain()) as servers:
        assert not (await servers.call("plain", "log", {"lines": 250_000})).is_error
        log = host.folder / "logs/mcp-plain.log"
        await eventually(lambda: log.read_text().endswith(f"{249_999}\n"))
        assert LOG_BYTES // 3 < log.stat().st_size <= LOG_BYTES
        assert log.read_text().startswith("[older lines were dropped]\n")


async def written(host: McpHost, data: bytes, *, times: int = 1, answer: bool = True, close: bool = False) -> McpResult:
    """What becomes of a call that is answered after the server has written this."""
    arguments = {"data": base64.b64encode(data).decode(), "times": times, "answer": answer, "close": close}
    async with host.servers(plain=host.plain()) as servers:
        result = await servers.call("plain", "write", arguments)
        assert not (await servers.call("plain", "pid", {})).is_error
        return result


def message(**values: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0"} | values).encode() + b"\n"


NOISE = {
    "wrong bytes": b"caf\xe9 \xff\xfe\n",
    "zeros": b"\0\0\n",
    "empty lines": b"\n\r\n  \n",
    "half a message": b'{"jsonrpc": "2.0", "id": ID, "res\n',
    "no object": b"[1]\n5\nnull\n{}\n",
    "deep": b"[" * 10_000 + b"\n",
    "wrong notifications": message(method="notifications/message", params={"level": 7}),
    "notifications that there are not": message(method="notifications/other", params={}),
    "answers that nobody has asked for": message(id=12345, result={}) + message(id="x", error={"code": 1, "message": "m"}),
    "progress of nothing": message(method="notifications/progress", params={"progressToken": 99, "progress": 1}),
    "ends of nothing": message(method="notifications/cancelled", params={"requestId": [1]}),
    "questions": message(id=1, method="ping"),
    "questions that are given up": message(id=1, method="roots/list")
    + message(method="notifications/cancelled", params={"requestId": 1}),
}


@pytest.mark.parametrize("data", NOISE.values(), ids=NOISE)
async def test_whatever_a_server_writes_the_answer_comes_and_the_log_stays_short(host, caplog, data):
    times = 100 if len(data) < 5_000 else 1
    result = await written(host, data, times=times)
    assert (result.is_error, result.text) == (False, "after all")
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) <= 2
    assert not any(record.exc_info for record in caplog.records)


UNREADABLE = {
    "deep": b'{"jsonrpc":"2.0","id":ID,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    "deep, and the id at the end": b'{"result":' + b"[" * 5_000 + b"]" * 5_000 + b',"jsonrpc":"2.0","id":ID}\n',
    "a long number": b'{"jsonrpc":"2.0","id":ID,"result":{"content":[],"structuredContent":{"a":' + b"1" * 10_000 + b"}}}\n",
    "cut off": b'{"jsonrpc":"2.0","id":ID,"result":{"content":[\n',
    "many parts": b'{"jsonrpc":"2.0","id":ID,"result":{"content":[' + b'{"type":"text","text":"a"},' * 60_000 + b"{}]}}\n",
}


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE)
async def test_an_answer_that_cannot_be_read_fails_its_call_at_once(host, data):
    result = await written(host, data, answer=False)
    assert result.is_error
    assert "the response" in result.text


@pytest.mark.parametrize(
    ("sent", "read"),
    [(rb"a\ud800b", "a\\ud800b"), (b"caf\xe9", "caf\ufffd"), (b"\xf0\x9f\x98", "\ufffd"), (rb"\\ud8", "\\ud8")],
)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
async def test_what_utf8_cannot_hold_in_an_answer_is_written_out_or_replaced(host, sent, read, mark):
    data = mark + b'{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"%s"}]}}\n' % sent
    assert (await written(host, data, answer=False)).text == read


@pytest.mark.parametrize("rest", [b'"result":"just"', b'"result":null', b'"error":"just broken"', b'"other":1'])
@pytest.mark.parametrize("head", [b'"jsonrpc":"2.0","id":ID', b'"id":ID'])
async def test_an_answer_that_keeps_to_no_protocol_fails_its_call_at_once(host, head, rest):
    result = await written(host, b"{%s,%s}\n" % (head, rest), answer=False)
    assert (result.is_error, "does not follow the protocol" in result.text) == (True, True)
    assert rest.decode().replace(":", ": ") in result.text


async def test_two_answers_are_one(host):
    first = message(id=0, result={"content": [{"type": "text", "text": "first"}]}).replace(b'"id": 0', b'"id": ID')
    assert (await written(host, first)).text == "first"


async def test_a_server_that_closes_its_output_and_lives_on_is_started_anew(host):
    async with host.servers(plain=host.plain()) as servers:
        with pytest.raises(McpError, match="has ended"):
            await servers.call("plain", "write", {"data": "", "times": 1, "answer": False, "close": True})
        assert not (await servers.call("plain", "pid", {})).is_error


async def test_of_a_server_that_asks_and_reads_no_answers_no_more_is_read(host):
    """It is stuck itself then; the call ends at its limit, and nothing is kept of the rest."""
    config = host.plain(call_timeout_seconds=10)
    data = base64.b64encode(message(id=1, method="ping")).decode()
    async with host.servers(plain=config) as servers:
        await servers.call("plain", "pid", {})
        with pytest.raises(McpError, match="did not respond within 10 s"):
            await servers.call("plain", "write", {"data": data, "times": 100_000, "answer": True, "close": False})
        assert len(asyncio.all_tasks()) < 1_000


@pytest.mark.parametrize("behaviour", ["pages", "same"])
async def test_pages_of_tools_end(host, behaviour):
    async with host.servers(plain=host.plain(behaviour, init_timeout_seconds=LOADED_MACHINE_SECONDS)) as servers:
        if behaviour == "pages":
            assert len(await servers.tools("plain")) == 10_000
            assert servers.notes("plain") == ("MCP server 'plain': it has more than 10,000 tools: the others are left out",)
        else:
            assert len(await servers.tools("plain")) == 2_000
            assert servers.notes("plain") == ("MCP server 'plain': its list of tools has no end: what 2 pages have is used",)
            with pytest.raises(McpError) as caught:
                await servers.call("plain", "nothing_like_it", {})
            assert len(str(caught.value)) < 2_000


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def http_server(answer: bytes, content_type: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.end_headers()
            while True:
                try:
                    self.wfile.write(answer)
                except OSError:
                    return

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as url:
        yield url


@contextmanager
def answering_server(answers: dict[str, bytes], content_type: str) -> Iterator[str]:
    """A server that answers each method with these bytes, in which ID stands for the id."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = answers.get(
                request.get("params", {}).get("name") or request["method"], b'{"code": -32601, "message": "no"}'
            )
            kind = b"error" if body.startswith(b'{"code"') else b"result"
            answer = b'{"jsonrpc":"2.0","id":%d,"%s":%s}' % (request.get("id", 0), kind, body)
            if content_type.startswith("text/event-stream"):
                answer = b"\xef\xbb\xbf: ping\r\n\r\ndata: " + answer + b"\r\n\r\n"
            self.send_response(200 if "id" in request else 202)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(answer)) if "id" in request else "0")
            self.end_headers()
            if "id" in request:
                self.wfile.write(answer)

        do_GET = do_DELETE = lambda self: self.send_error(405)  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as url:
        yield url


GREETING = b'{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}'
TOOL = rb'{"name":"%s","description":"a\ud83d","inputSchema":{}}'
SAID = b'{"content":[{"type":"text","text":"%s"}]}'


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream", "application/json; charset=iso-8859-1"])
async def test_what_utf8_cannot_hold_in_an_answer_over_http_is_written_out_or_replaced(host, content_type):
    answers = {
        "initialize": GREETING,
        "tools/list": b'{"tools":[%s]}' % b",".join(TOOL % name for name in (b"half", b"cut", b"large", b"too large")),
        "half": SAID % rb"a\ud800b",
        "cut": SAID % b"caf\xc3\xa9 \xf0\x9f\x98",
        "large": SAID % (b"x" * 2_000_000),
        "too large": SAID % (b"x" * 3_000_001),
    }
    with answering_server(answers, content_type) as url:
        config = McpServerConfig(url=url, max_message_bytes=3_000_000, init_timeout_seconds=LOADED_MACHINE_SECONDS)
        async with host.servers(web=config) as servers:
            assert {tool.description for tool in await servers.tools("web")} == {"a\\ud83d"}
            assert (await servers.call("web", "half", {})).text == "a\\ud800b"
            assert (await servers.call("web", "cut", {})).text == "caf\u00e9 \ufffd"
            assert len((await servers.call("web", "large", {})).text) == 2_000_000
            refused = await servers.call("web", "too large", {})
            assert refused.is_error
            assert "exceed" in refused.text
            assert (await servers.call("web", "half", {})).text == "a\\ud800b"  # the connection goes on


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
async def test_an_endless_answer_over_http_is_an_error(host, content_type):
    with http_server(b"data: " + b"x" * 10_000, content_type) as url:
        config = McpServerConfig(url=url, max_message_bytes=1_000_000, init_timeout_seconds=LOADED_MACHINE_SECONDS)
        async with host.servers(web=config) as servers:
            with pytest.raises(McpError, match="'web'"):
                await servers.tools("web")


async def test_a_packed_answer_is_refused(host):
    """A megabyte that was packed is a gigabyte."""
    with http_server(gzip.compress(b"{" + b" " * 50_000_000), "application/json\r\nContent-Encoding: gzip") as url:
        config = McpServerConfig(url=url, init_timeout_seconds=LOADED_MACHINE_SECONDS)
        async with host.servers(web=config) as servers:
            with pytest.raises(McpError, match="compressed"):
                await servers.tools("web")


@pytest.mark.parametrize(
    "url", ["http://[", "http://", "no url", "ftp://x/y", "http://a:99999/", "http://\x00", "", "http://[::1", "//x"]
)
def test_a_malformed_url_is_one_sentence(url):
    with pytest.raises(ConfigError, match="url") as caught:
        McpServerConfig(url=url)
    assert "\n" not in str(caught.value)


DAEMON = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from support.mcp_host import McpHost

async def main():
    host = McpHost(Path(sys.argv[1]))
    servers = host.servers(plain=host.plain("family"))
    await servers.call("plain", "pid", {})
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def below(process: psutil.Process) -> list[psutil.Process]:
    return process.children(recursive=True)


async def test_a_daemon_of_a_server_whose_guard_was_killed_ends_with_the_connection(host):
    servers = host.servers(plain=host.plain("family"))
    await servers.call("plain", "pid", {})
    await eventually(lambda: len(host.running()) == 2)
    guard = psutil.Process(host.pids()[0]).parent()
    assert any(part.endswith("guard.py") for part in guard.cmdline())
    guard.kill()
    await servers.aclose()
    await eventually(lambda: host.running() == [])


def test_a_daemon_that_outlives_guard_and_host_is_swept(host):
    tests = str(Path(__file__).parents[1])
    with subprocess.Popen([sys.executable, "-c", DAEMON, str(host.folder), tests], stdout=subprocess.PIPE) as program:
        assert program.stdout.readline() == b"ready\n"
        wait_until(lambda: len(host.pids()) == 2)
        processes = [process.pid for process in below(psutil.Process(program.pid))]
        daemons = [pid for pid in host.pids() if os.getsid(pid) == pid]
        assert len(daemons) == 1
        os.kill(program.pid, signal.SIGSTOP)  # it would end the daemon once the guard is gone
        for pid in (*(pid for pid in processes if pid not in daemons), program.pid):
            os.kill(pid, signal.SIGKILL)
        program.wait(LOADED_MACHINE_SECONDS)
    assert is_running(daemons[0])
    assert sweep()
    wait_until(lambda: not is_running(daemons[0]))
