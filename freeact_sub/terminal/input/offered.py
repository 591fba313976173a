"""What a line takes of MCP servers: `/SERVER:NAME argument=value` stands for a prompt, `@SERVER:uri` names a resource."""

import asyncio
import re
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from freeact_sub.errors import FreeactError, InvalidRequestError
from freeact_sub.terminal.input.attachments import MAX_CHARS, mention_of, mentioned_names, pictures_of, texts_of
from freeact_sub.text import one_line, visible

if TYPE_CHECKING:  # slow to import
    from pydantic_ai import BinaryContent

    from freeact_sub.mcp import McpServers
    from freeact_sub.mcp.offers import McpPrompt, McpResource

T = TypeVar("T")

KEPT_SECONDS: Final = 30.0
"""For which the list of a server is offered before it is asked again."""
SHOWN: Final = 50
WORDS_CHARS: Final = 80
_CALL: Final = re.compile(r"/([^\s:]+):(\S+)(?:\s+(.*))?", re.DOTALL)
_ARGUMENT: Final = re.compile(r'([^\s="]+)=(?:"([^"]*)"|([^\s"]\S*)?)(?=\s|$)\s*')


@dataclass(frozen=True, kw_only=True)
class PromptCall:
    """A prompt of a server, as it is typed."""

    server: str
    name: str
    arguments: dict[str, str] = field(default_factory=dict)


def prompt_called(line: str, servers: Collection[str]) -> PromptCall | None:
    """Return the prompt for which a line stands; None if it names none of a server.

    Raises:
        InvalidRequestError: What follows its name is something else than `argument=value`.
    """
    found = _CALL.fullmatch(line.strip())
    if found is None or found[1] not in servers:
        return None
    arguments, rest = _arguments(found[3] or "")
    if rest:
        raise InvalidRequestError(f'write its arguments as name=value or name="two words", not {rest}')
    return PromptCall(server=found[1], name=found[2], arguments=arguments)


def resources_named(line: str, servers: Collection[str]) -> list[tuple[str, str]]:
    """The resources that a line names: the server and the address of each."""
    parted = [name.partition(":") for name in mentioned_names(line)]
    return [(server, uri) for server, _, uri in parted if server in servers and uri]


def asks_servers(line: str, servers: Collection[str]) -> bool:
    """Whether servers must be asked before a line can be sent."""
    found = _CALL.fullmatch(line.strip())
    return (found is not None and found[1] in servers) or bool(resources_named(line, servers))


async def with_attachments(line: str, text: str, servers: "McpServers", folder: Path) -> "tuple[str, list[BinaryContent]]":
    """Return what a model reads of a line: the text with what goes along, and the pictures.

    Args:
        line: Names prompts, resources and files.
        text: The same with its pastes unfolded.
        servers: The MCP servers of the agent.
        folder: Names of files are relative to it.

    Raises:
        FreeactError: A server does not give what is asked for.
    """
    if (called := prompt_called(line, servers.names)) is not None:
        result = await servers.prompt(called.server, called.name, called.arguments)
        return result.text, [*result.images]
    texts = await asyncio.to_thread(texts_of, line, folder)
    pictures = await asyncio.to_thread(pictures_of, line, folder)
    room = max(0, MAX_CHARS - sum(map(len, texts)))
    for server, uri in resources_named(line, servers.names):
        result = await servers.read(server, uri)
        more = len(result.text) - room
        shown = result.text if more <= 0 else f"{result.text[:room]}\n[... {more:,} more characters]"
        texts.append(f"[The resource {server}:{uri}:]\n{shown}")
        room = max(0, room - len(result.text))
        pictures += result.images
    return "\n\n".join([text, *texts]), pictures


class ServerOffers:
    """What can follow the beginning of a line that names a server. Servers are asked in another thread."""

    def __init__(
        self, servers: "Callable[[], McpServers | None]", result_of: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        """Args: servers: those of the present agent. result_of: see `Console`."""
        self._servers = servers
        self._result_of = result_of
        self._kept: dict[tuple[McpServers, str, str], tuple[float, Sequence[Any]]] = {}

    def of(self, begun: str) -> Iterator[tuple[str, str]]:
        """What may stand in place of the beginning, each with its meaning. Args: begun: a line with `/`, or `@word`."""
        servers = self._servers()
        if servers is None:
            return iter(())
        offers = self._prompts if begun.startswith("/") else self._resources
        return (offer for offer, _ in zip(offers(begun, servers), range(SHOWN), strict=False))

    def _prompts(self, line: str, servers: "McpServers") -> Iterator[tuple[str, str]]:
        start, space, rest = line[1:].partition(" ")
        server, colon, name = start.partition(":")
        if not colon:
            names = [known for known in servers.names if start and known.startswith(start)]
            yield from ((f"/{known}:", "prompts of an MCP server") for known in names)
        if not colon or server not in servers.names:
            return
        prompts: Sequence[McpPrompt] = self._listed(servers, server, "prompts", servers.prompts)
        if not space:
            named = [prompt for prompt in prompts if prompt.name.startswith(name) and not re.search(r"\s", prompt.name)]
            yield from ((f"/{server}:{prompt.name}", _words(prompt.description)) for prompt in named)
        elif prompt := next((prompt for prompt in prompts if prompt.name == name), None):
            yield from self._of_arguments(f"/{start} ", rest, prompt, servers, server)

    def _of_arguments(
        self, head: str, rest: str, prompt: "McpPrompt", servers: "McpServers", server: str
    ) -> Iterator[tuple[str, str]]:
        before, _, last = rest.rpartition(" ")
        before = f"{before} " if before else ""
        given, wrong = _arguments(before)
        if wrong:
            return
        name, is_value, value = last.partition("=")
        if not is_value:
            left = [each for each in prompt.arguments if each.name not in given and each.name.startswith(last)]
            for argument in left:
                words = _words(argument.description) or ("" if argument.required else "may be left out")
                yield f"{head}{before}{argument.name}=", words
        elif any(argument.name == name for argument in prompt.arguments):
            typed = value.removeprefix('"')
            for proposed in self._asked(servers.complete(server, prompt, name, given | {name: typed})) or ():
                if '"' not in proposed and proposed.isprintable():
                    quoted = f'"{proposed}"' if " " in proposed or not proposed else proposed
                    yield f"{head}{before}{name}={quoted}", ""

    def _resources(self, word: str, servers: "McpServers") -> Iterator[tuple[str, str]]:
        server, colon, begun = word[1:].removeprefix('"').partition(":")
        if not colon:
            yield from ((f"@{known}:", "resources of an MCP server") for known in servers.names if known.startswith(server))
        if not colon or server not in servers.names:
            return
        resources: Sequence[McpResource] = self._listed(servers, server, "resources", servers.resources)
        for resource in resources:
            fixed, brace, _ = resource.uri.partition("{")
            if not brace or not resource.is_template:
                uris: Iterable[str] = [resource.uri] if resource.uri.startswith(begun) else []
            elif len(begun) < len(fixed):
                uris = [fixed] if fixed.startswith(begun) else []
            else:
                uris = self._of_template(resource, begun, servers, server) if begun.startswith(fixed) else []
            yield from ((mention_of(f"{server}:{uri}"), _words(resource.name)) for uri in uris if _can_be_typed(uri))

    def _of_template(self, template: "McpResource", begun: str, servers: "McpServers", server: str) -> Iterable[str]:
        """The addresses of a template whose first part the server proposes."""
        fixed, _, rest = template.uri.partition("{")
        name, _, rest = rest.partition("}")
        following = rest.partition("{")[0]
        proposed = self._asked(servers.complete(server, template, name, {name: begun[len(fixed) :]})) or ()
        return [f"{fixed}{value}{following}" for value in proposed]

    def _listed(
        self, servers: "McpServers", server: str, what: str, ask: Callable[[str], Coroutine[Any, Any, Sequence[T]]]
    ) -> Sequence[T]:
        key, now = (servers, server, what), time.monotonic()
        if key not in self._kept or self._kept[key][0] < now:
            if (found := self._asked(ask(server))) is None:
                return ()
            self._kept[key] = now + KEPT_SECONDS, found
        return self._kept[key][1]

    def _asked(self, work: Coroutine[Any, Any, Sequence[T]]) -> Sequence[T] | None:
        """What a server answers; nothing if it cannot be asked. None: it does not answer soon."""
        try:
            found: Sequence[T] = self._result_of(work)
        except FreeactError:
            return ()
        except (TimeoutError, CancelledError):
            return None
        return found


def _arguments(text: str) -> tuple[dict[str, str], str]:
    """The arguments at the beginning of a text, and its rest."""
    found: dict[str, str] = {}
    text = text.lstrip()
    while match := _ARGUMENT.match(text):
        found[match[1]] = match[3] or match[2] or ""
        text = text[match.end() :]
    return found, text


def _words(text: str) -> str:
    return one_line(visible(text), WORDS_CHARS)


def _can_be_typed(uri: str) -> bool:
    return uri.isprintable() and '"' not in uri
