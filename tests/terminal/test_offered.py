"""`/SERVER:NAME argument=value` and `@SERVER:uri` in a line: what they mean, what is offered, what a model gets."""

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from support import sdk_mcp_server
from support.mcp_host import McpHost

from freeact_sub.config.schema import McpServerConfig
from freeact_sub.errors import InvalidRequestError, McpError
from freeact_sub.mcp.offers import McpArgument, McpPrompt, McpResource
from freeact_sub.terminal.attachments import (
    MAX_CHARS,
    PromptCall,
    ServerOffers,
    asks_servers,
    prompt_called,
    resources_named,
    typed_part,
    with_attachments,
)

SERVERS = ("demo", "my-notes")


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("/demo:review", {}),
        (" /demo:review  ", {}),
        ("/demo:review language=C", {"language": "C"}),
        ('/demo:review language=C++ focus="off by one, \n or two"', {"language": "C++", "focus": "off by one, \n or two"}),
        ("/demo:review a-b.c=it's=2\nempty=", {"a-b.c": "it's=2", "empty": ""}),
        ('/demo:review empty="" language=é', {"empty": "", "language": "é"}),
    ],
)
def test_a_line_that_calls_a_prompt(line: str, arguments: dict[str, str]) -> None:
    assert prompt_called(line, SERVERS) == PromptCall(server="demo", name="review", arguments=arguments)
    assert asks_servers(line, SERVERS)


@pytest.mark.parametrize(
    "line", ["/other:review", "/demo", "/demo review", "say /demo:review", "//demo:review", "/demo:", ""]
)
def test_other_lines_call_none(line: str) -> None:
    assert prompt_called(line, SERVERS) is None
    assert not asks_servers(line, SERVERS)


@pytest.mark.parametrize("rest", ["C", "language C", 'language="C', "=C", 'language="C"D', "a=b C"])
def test_what_follows_a_prompt_is_arguments_or_an_error(rest: str) -> None:
    with pytest.raises(InvalidRequestError, match="name=value"):
        prompt_called(f"/demo:review {rest}", SERVERS)


def test_resources_are_named_as_files_are() -> None:
    line = (
        'compare @demo:demo://words, (@my-notes:x) @"demo:demo://a b" @a.txt @demo: @other:y mail@demo:z @demo:demo://words'
    )
    assert resources_named(line, SERVERS) == [("demo", "demo://words"), ("demo", "demo://a b")]
    assert resources_named("@my-notes:x", SERVERS) == [("my-notes", "x")]


class Known:
    """Servers that offer this, and note what they are asked."""

    names = SERVERS

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def prompts(self, server: str) -> tuple[McpPrompt, ...]:
        self.asked.append(server)
        if server != "demo":
            raise McpError("it is out of order", server=server)
        arguments = (McpArgument(name="language", description="Which\none", required=True), McpArgument(name="focus"))
        return McpPrompt(name="review", description="Asks", arguments=arguments), McpPrompt(name="two words")

    async def resources(self, _server: str) -> tuple[McpResource, ...]:
        templates = [McpResource(uri=uri, name="A city", is_template=True) for uri in ("city://{city}/{day}", "x://y{?z}")]
        return (McpResource(uri="demo://words", name="Words"), McpResource(uri="demo://a b"), *templates)

    async def complete(self, _server: str, _of: Any, argument: str, given: dict[str, str]) -> tuple[str, ...]:
        self.asked.append((argument, given))
        return ("Rome", "San Remo", 'bad"one')


OFFERED = [
    ("/d", ["/demo:"]),
    ("/", []),
    ("/demo:", ["/demo:review"]),
    ("/demo:x", []),
    ("/other:", []),
    ("/my-notes:", []),
    ("/demo:review ", ["/demo:review language=", "/demo:review focus="]),
    ("/demo:review language=C f", ["/demo:review language=C focus="]),
    ("/demo:review focus=", ["/demo:review focus=Rome", '/demo:review focus="San Remo"']),
    ("/demo:review wrong ", []),
    ("/demo:review other=", []),
    ("@m", ["@my-notes:"]),
    ("@demo:", ["@demo:demo://words", '@"demo:demo://a b"', "@demo:city://", "@demo:x://y"]),
    ('@"demo:demo://a', ['@"demo:demo://a b"']),
    ("@demo:city://R", ["@demo:city://Rome/", '@"demo:city://San Remo/"']),
    ("@other:", []),
]


def test_what_servers_offer_completes_a_line() -> None:
    known: Any = Known()

    def result_of(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(work)

    offers = ServerOffers(lambda: known, result_of)
    found = {begun: dict(offers.of(begun)) for begun, _ in OFFERED}
    assert {begun: [*texts] for begun, texts in found.items()} == dict(OFFERED)
    assert found["/demo:review "]["/demo:review language="] == "Which one"
    assert known.asked.count("demo") == known.asked.count("my-notes") == 1  # lists are kept, also that there is none
    assert ("focus", {"focus": ""}) in known.asked
    assert [*ServerOffers(lambda: None, result_of).of("/demo:")] == []


def test_a_server_that_does_not_answer_soon_offers_nothing() -> None:
    known: Any = Known()

    def late(work: Coroutine[Any, Any, Any]) -> Any:
        work.close()
        raise TimeoutError

    assert [*ServerOffers(lambda: known, late).of("/demo:")] == []


@pytest.fixture
def servers_of(tmp_path: Path) -> Any:
    return lambda: McpHost(tmp_path).servers(
        demo=McpServerConfig(command=sys.executable, args=(sdk_mcp_server.__file__,), call_timeout_seconds=60)
    )


@pytest.mark.mcp
async def test_a_model_gets_what_a_real_server_gives(servers_of: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("of a file")
    async with servers_of() as servers:
        text, pictures = await with_attachments("/demo:review language=C", "unused", servers, tmp_path)
        assert (text, pictures) == ("Review this C code for bugs.", [])
        line = "see @a.txt, @demo:demo://words and @demo:demo://pixel"
        text, pictures = await with_attachments(line, f"{line} [paste]", servers, tmp_path)
        assert text.startswith(
            f"{line} [paste]\n\n[The file a.txt:]\nof a file\n\n[The resource demo:demo://words:]\nsome words"
        )
        assert typed_part(text) == f"{line} [paste]"
        assert [picture.data for picture in pictures] == [sdk_mcp_server.PNG]
        many = "@a.txt " * 3 + "@demo:demo://cities/" + "x" * (MAX_CHARS + 100)
        text, _ = await with_attachments(many, "", servers, tmp_path)
        assert "more characters]" in text
        assert len(text) < MAX_CHARS * 2 + 1000
        for wrong in ("@demo:demo://nowhere", "/demo:nothing", "/demo:review"):
            with pytest.raises(McpError, match="demo"):
                await with_attachments(wrong, wrong, servers, tmp_path)
