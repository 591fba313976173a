"""Attachments of a typed line: files, long pastes, data from standard input, and offers of MCP servers.

`@name` in a prompt names a file, whose text the model gets too, within bounds; `@SERVER:uri` a resource of a server, and
`/SERVER:NAME argument=value` stands for a prompt of it. A long paste stands in the line as `[60 lines]`, and is sent whole.
"""

import asyncio
import heapq
import os
import re
import secrets
import shlex
import stat
import subprocess
import time
import unicodedata
import urllib.parse
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from freeact_sub.config.parsing import UTF16_MARKS, prose_of_file
from freeact_sub.config.schema import git_environment
from freeact_sub.errors import ConfigError, FreeactError, InvalidRequestError
from freeact_sub.system.safe_files import NOT_LOOKED_INTO, read_file, write_new
from freeact_sub.text import counted, fenced, one_line, shortened, visible

if TYPE_CHECKING:  # slow to import
    from pydantic_ai import BinaryContent

    from freeact_sub.mcp import McpServers
    from freeact_sub.mcp.offers import McpPrompt, McpResource


MAX_CHARS: Final = 60_000
"""Bound on the text of all files of one prompt together."""
MAX_PICTURES: Final = 10
MAX_PICTURE_BYTES: Final = 4 * 2**20
PICTURES: Final = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
"""The media types that models see, by suffix."""
MARKS: Final = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff", "image/gif": b"GIF8", "image/webp": b"RIFF"}
"""The first bytes of each media type."""
MAX_ENTRIES: Final = 2_000
"""Most entries to read in one folder."""
MAX_FILES: Final = 20_000
"""Most files to search for a name."""
LOOK_SECONDS: Final = 2.0
"""Seconds that git may take to list files, and as many for the look through the folders."""
MAX_NAME_CHARS: Final = 1_000
"""Most characters of a word that is looked for: longer ones were pasted."""
LISTED_SECONDS: Final = 5.0
"""Seconds for which a list of files counts."""
SHOWN: Final = 50
COMMAND_RUN: Final = "[The user has run this command in the workspace:]"
"""The first line of the text about a command that goes along with a prompt."""
_ALONG: Final = re.compile(rf"\n\n(?:\[The (?:file|resource) [^\n]+:\]|{re.escape(COMMAND_RUN)})\n")
_MENTION: Final = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|([^\s@"]+))')


def texts_of(prompt: str, folder: Path) -> list[str]:
    """Return the text of each file that the prompt names; only the name of a file that is not text."""
    room = MAX_CHARS
    parts = []
    for name in mentioned_names(prompt):
        text = _text_of(folder / name, room)
        if text is not None:
            parts.append(f"[The file {name}:]\n{text}")
            room -= len(text)
    return parts


def typed_part(prompt: str) -> str:
    """Return the typed part of an earlier program's prompt: without the texts of files and commands that went along."""
    found = _ALONG.search(prompt)
    return prompt if found is None else prompt[: found.start()]


def pictures_of(prompt: str, folder: Path) -> "list[BinaryContent]":
    """Return the pictures that the prompt names, except those that are too large or have the wrong type for their name."""
    from pydantic_ai import BinaryContent  # noqa: PLC0415  # slow to import

    found: list[BinaryContent] = []
    for name in mentioned_names(prompt):
        media_type = PICTURES.get(Path(name).suffix.lower())
        if media_type is None or len(found) == MAX_PICTURES:
            continue
        with suppress(OSError):
            content = read_file(folder / name, MAX_PICTURE_BYTES)
            if content.startswith(MARKS[media_type]):
                found.append(BinaryContent(content, media_type=media_type))
    return found


def mentioned_names(prompt: str) -> list[str]:
    """Return the text behind each `@`, once."""
    return [*dict.fromkeys(match[1] or match[2].rstrip(".,;:!?)") for match in _MENTION.finditer(prompt))]


def mention_of(name: str) -> str:
    """Return the text that names a file."""
    return f"@{name}" if mentioned_names(f"@{name}") == [name] else f'@"{name}"'


def _plain(text: str) -> str:
    """Return a text in small letters without marks, so that `uber` finds `Über`, in either of its forms."""
    if text.isascii():
        return text.lower()
    return "".join(char for char in unicodedata.normalize("NFD", text) if not unicodedata.combining(char)).lower()


def entries_of(beginning: str, folder: Path) -> Iterator[str]:
    """Return the names in one folder with this beginning, in any case, with marks or without; folders end with `/`."""
    inside, _, start = beginning.rpartition("/")
    prefix, start = f"{inside}/" if inside or beginning.startswith("/") else "", _plain(start)
    try:
        with os.scandir(folder / prefix) as entries:
            found = [entry for entry, _ in zip(entries, range(MAX_ENTRIES), strict=False)]
    except (OSError, ValueError):
        return
    named = [entry for entry in found if _plain(entry.name).startswith(start) and (start or not entry.name.startswith("."))]
    for entry in sorted(named, key=lambda entry: entry.name)[:SHOWN]:
        yield f"{prefix}{entry.name}{'/' if entry.is_dir() else ''}"


class NamedFiles:
    """The files below a folder, which a person names by any part of their paths. Used in another thread.

    git lists its own files and new ones first; what it ignores, or all where it is not, is found in the folders. A list
    counts for some seconds, so that each key of a word searches the same one. prompt_toolkit's fuzzy matcher ranks by the
    leftmost letter, which puts `data/xpp.py` before `src/app.py` for `app`, and takes 0.2 s for 20,000 names.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[str, tuple[bool, float]] = {}
        """Whether git lists the file, and the time of its change; of a folder, that of its newest file."""
        self._until = 0.0

    def matching(self, word: str, used: Iterable[str] = ()) -> list[str]:
        """Return the names that fit a word best. Args: used: the names that were used, the last one at the end."""
        if len(word) > MAX_NAME_CHARS:
            return []
        near = [*entries_of(word, self._folder)] if "/" in word else []
        last = {name: at for at, name in enumerate(used)}
        word = _plain(word)
        # the first place of each letter is enough: to look for others takes minutes where letters come often
        scattered = re.compile("".join(f"[^{letter}]*+{letter}" for letter in map(re.escape, word)))
        ranked = []
        for name, (is_gits, changed) in self._all().items():
            path = _plain(name).rstrip("/")
            own = path[path.rfind("/") + 1 :]
            if ("/." in f"/{path}" and "." not in word) or (not word and name.endswith("/")):
                continue  # hidden ones only where they are meant
            if word in own:
                rank = 0 if own.startswith(word) else 1
            elif word in path:
                rank = 2
            elif scattered.match(path):
                rank = 3 if scattered.match(own) else 4
            else:
                continue
            ranked.append((rank, -last.get(name, -1), not is_gits, -changed, len(name), name))
        names = [*near, *(found[-1] for found in heapq.nsmallest(SHOWN, ranked))]
        return [*dict.fromkeys(name for name in names if name.isprintable() and '"' not in name)][:SHOWN]

    def _all(self) -> dict[str, tuple[bool, float]]:
        if self._until < time.monotonic():
            self._found = {}
            for name in self._gits():
                with suppress(OSError):  # git knows it, and it is gone
                    path = os.path.join(self._folder, name)  # noqa: PTH118  # 20,000 of pathlib's take half a second
                    self._add(name, os.stat(path), is_gits=True)  # noqa: PTH116  # the same
            self._walk()
            self._until = time.monotonic() + LISTED_SECONDS
        return self._found

    def _add(self, name: str, status: os.stat_result, *, is_gits: bool) -> None:
        is_folder, changed = stat.S_ISDIR(status.st_mode), status.st_mtime
        self._found[f"{name}/" if is_folder else name] = is_gits, changed
        while (name := name.rpartition("/")[0]) and self._found.get(f"{name}/", (False, -1.0)) < (is_gits, changed):
            self._found[f"{name}/"] = is_gits, changed

    def _gits(self) -> Sequence[str]:
        from freeact_sub.kernels.files.states import ShadowError, git_outside  # noqa: PLC0415  # slow to import

        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        try:
            git = git_outside(self._folder.resolve())
            listed = subprocess.run(
                [git, "--no-optional-locks", "ls-files", "-coz", "--exclude-standard"],
                cwd=self._folder,
                # no setting of the folder runs a program, also not to fetch what a sparse index lacks
                env=inherited | git_environment() | {"GIT_ALLOW_PROTOCOL": "none"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LOOK_SECONDS,
                check=True,
            ).stdout
        except (OSError, subprocess.SubprocessError, ShadowError):
            return ()
        names = os.fsdecode(listed).split("\0")[-2::-1]  # those that it tracks stand last
        return names if len(names) <= MAX_FILES else sorted(names, key=lambda name: name.count("/"))[:MAX_FILES]

    def _walk(self) -> None:
        """Add the files that git does not list, from the top, within bounds."""
        folders, deadline = deque([""]), time.monotonic() + LOOK_SECONDS
        while folders and time.monotonic() < deadline:
            prefix = folders.popleft()
            with suppress(OSError), os.scandir(self._folder / prefix) as entries:
                for entry in entries:
                    if len(self._found) >= MAX_FILES:
                        return
                    name, is_hidden = f"{prefix}{entry.name}", entry.name.startswith(".")
                    if entry.is_dir(follow_symlinks=False) and not is_hidden and entry.name not in NOT_LOOKED_INTO:
                        folders.append(f"{name}/")
                    if name not in self._found and f"{name}/" not in self._found:
                        with suppress(OSError):  # a link to nothing
                            self._add(name, entry.stat(), is_gits=False)


def _text_of(path: Path, room: int) -> str | None:
    """Return the file's beginning; None if it is not text, or if no room is left."""
    if room <= 0:
        return None
    try:
        with open(path, "rb", opener=_at_once) as file:
            status = os.fstat(file.fileno())
            content = file.read(room) if stat.S_ISREG(status.st_mode) else None
    except (OSError, ValueError):
        return None
    if content is None or (b"\0" in content and not content.startswith(UTF16_MARKS)):
        return None
    text = prose_of_file(content)
    more = status.st_size - len(content)
    return text if more <= 0 else f"{text}\n[... {more:,} more bytes]"


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe would wait for its other end


MAX_LINES: Final = 10
"""Most lines of a paste that is not folded."""
MAX_PATHS_CHARS: Final = 4_000
_FOLDED: Final = re.compile(r"\[\d+ lines(?: #\d+)?\]")


class Pastes:
    """The pastes of a conversation."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def folded(self, pasted: str) -> str:
        """Return the text that represents a paste in the line."""
        text = pasted.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1 - text.endswith("\n")
        if lines <= MAX_LINES:
            return mentions_of(text) or text
        name, number = f"[{lines} lines]", 1
        while self._texts.setdefault(name, text) != text:
            number += 1
            name = f"[{lines} lines #{number}]"
        return name

    def unfolded(self, line: str) -> str:
        """Return the line with its pastes unfolded."""
        return _FOLDED.sub(lambda match: self._texts.get(match[0], match[0]), line)


def mentions_of(text: str) -> str:
    """Return dragged picture files, which terminals paste as paths, as mentions; empty for other text."""
    if len(text) > MAX_PATHS_CHARS or not text.strip():
        return ""
    try:
        words = shlex.split(text)
    except ValueError:
        return ""
    paths = [urllib.parse.unquote(word.removeprefix("file://")) if word.startswith("file://") else word for word in words]
    if not paths or not all(_is_picture(path) for path in paths):
        return ""
    return "".join(f"{mention_of(path)} " for path in paths)


def _is_picture(path: str) -> bool:
    try:
        return Path(path).suffix.lower() in PICTURES and Path(path).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):
        return False


@dataclass(frozen=True, kw_only=True)
class Piped:
    """Text, or a picture; nothing if both are empty."""

    text: str = ""
    picture: bytes | None = None
    media_type: str = ""

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Make the data from bytes: text or a picture.

        Raises:
            ConfigError: It is neither, or the picture is too large.
        """
        media_type = next((name for name, mark in MARKS.items() if content.startswith(mark)), None)
        if media_type is not None:
            if len(content) > MAX_PICTURE_BYTES:
                limit = f"{MAX_PICTURE_BYTES / 2**20:g} MiB"
                raise ConfigError(f"the picture on standard input has more than {limit}: make it smaller, or name its file")
            return cls(picture=content, media_type=media_type)
        if content.startswith(UTF16_MARKS) and len(content) % 2 == 0:
            return cls(text=content.decode("utf-16", errors="replace"))
        if b"\0" in content:
            raise ConfigError(
                "standard input is neither text nor a picture: save it to a file and name the file in the prompt"
            )
        return cls(text=content.decode("utf-8-sig", errors="replace"))

    def section(self, workspace: Path, folder: Path) -> list[str]:
        """Return the text for a prompt, marked and fenced; a long one is saved to a file.

        Args:
            workspace: The folder that agents work in.
            folder: The folder in it for such files.

        Raises:
            ConfigError: The file cannot be written.
        """
        if not self.text.strip():
            return []
        title, text = "Standard input", self.text.rstrip("\n")
        if len(text) > MAX_CHARS:
            file = folder / f"standard-input-{secrets.token_hex(4)}.txt"
            try:
                write_new(file, self.text.encode(errors="replace"), root=workspace)
            except (OSError, ValueError) as error:
                raise ConfigError(f"cannot keep the text of standard input in {file}: {error}") from error
            size = counted(len(text), "character")
            title += f", its beginning and its end; all of it, {size}, is in the file {file.relative_to(workspace)}"
            text = shortened(text, MAX_CHARS)
        return [f"[{title}:]\n{fenced(text)}"]


T = TypeVar("T")

KEPT_SECONDS: Final = 30.0
"""Seconds for which a server's list is offered before the server is asked again."""
WORDS_CHARS: Final = 80
_CALL: Final = re.compile(r"/([^\s:]+):(\S+)(?:\s+(.*))?", re.DOTALL)
_ARGUMENT: Final = re.compile(r'([^\s="]+)=(?:"([^"]*)"|([^\s"]\S*)?)(?=\s|$)\s*')


@dataclass(frozen=True, kw_only=True)
class PromptCall:
    """A prompt of a server, as typed."""

    server: str
    name: str
    arguments: dict[str, str] = field(default_factory=dict)


def prompt_called(line: str, servers: Collection[str]) -> PromptCall | None:
    """Return the prompt for which a line stands; None if it names none of a server.

    Raises:
        InvalidRequestError: Something else than `argument=value` follows its name.
    """
    found = _CALL.fullmatch(line.strip())
    if found is None or found[1] not in servers:
        return None
    arguments, rest = _arguments(found[3] or "")
    if rest:
        raise InvalidRequestError(f'write its arguments as name=value or name="two words", not {rest}')
    return PromptCall(server=found[1], name=found[2], arguments=arguments)


def resources_named(line: str, servers: Collection[str]) -> list[tuple[str, str]]:
    """Return the resources that a line names: the server and the address of each."""
    parted = [name.partition(":") for name in mentioned_names(line)]
    return [(server, uri) for server, _, uri in parted if server in servers and uri]


def asks_servers(line: str, servers: Collection[str]) -> bool:
    """Return whether servers must be asked before a line can be sent."""
    found = _CALL.fullmatch(line.strip())
    return (found is not None and found[1] in servers) or bool(resources_named(line, servers))


async def with_attachments(line: str, text: str, servers: "McpServers", folder: Path) -> "tuple[str, list[BinaryContent]]":
    """Return a line for the model: the text with its attachments, and the pictures.

    Args:
        line: Names prompts, resources and files.
        text: The line with its pastes unfolded.
        servers: The MCP servers of the agent.
        folder: Names of files are relative to it.

    Raises:
        FreeactError: A server does not give an attachment.
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
    """Completions of a line that names a server. Servers are asked in another thread."""

    def __init__(
        self, servers: "Callable[[], McpServers | None]", result_of: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        """Args: servers: those of the present agent. result_of: see `Console`."""
        self._servers = servers
        self._result_of = result_of
        self._kept: dict[tuple[McpServers, str, str], tuple[float, Sequence[Any]]] = {}

    def of(self, begun: str) -> Iterator[tuple[str, str]]:
        """Yield completions of a beginning, each with its meaning. Args: begun: a line with `/`, or `@word`."""
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
        """Return the addresses of a template whose first part the server proposes."""
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
        """Return a server's answer; nothing if it cannot be asked. None: it does not answer soon."""
        try:
            found: Sequence[T] = self._result_of(work)
        except FreeactError:
            return ()
        except (TimeoutError, CancelledError):
            return None
        return found


def _arguments(text: str) -> tuple[dict[str, str], str]:
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
