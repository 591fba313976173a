"""Facts for later sessions in a folder (`MemoryFeature`): the tool `remember`, and a Markdown file that models read.

The file belongs to people: they read, edit and share it. It goes the way of the other texts of a project
(`config/project_texts.py`): content that nobody has looked at is not read. A fact is asked about as a note (`BY_MODE`),
and people see the file's diff. So the file counts as looked at with a fact about which a person was asked. All agents read
the file as it was when the root was made: their system prompts stay the same for a cache.
"""

import asyncio
import errno
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Final

from pydantic import BaseModel, Field

from freeact_sub.agents.feature import Asker, FeatureAgent, RunPart, ToolsFeature
from freeact_sub.agents.life import TreeAgent, tree_agent
from freeact_sub.agents.money import BYTES_PER_TOKEN
from freeact_sub.approvals.gate import Advice, Adviser
from freeact_sub.approvals.open_questions import TryOut
from freeact_sub.calls import Call, ToolCall, Topic
from freeact_sub.config.parsing import UTF16_MARKS, prose_of_file
from freeact_sub.config.project_texts import MEMORY_FILE
from freeact_sub.config.schema import Config, user_folder
from freeact_sub.config.trust import Trust
from freeact_sub.errors import ConfigError, FreeactError
from freeact_sub.events.answers import Effects, FileEffect
from freeact_sub.system.safe_files import beneath, locked_folder, make_folder, replace_beneath
from freeact_sub.text import diff_lines, one_line
from freeact_sub.tools import PlainTool, Tool, ToolContext, ToolResult

MAX_TOKENS: Final = 2_000
MAX_BYTES: Final = MAX_TOKENS * BYTES_PER_TOKEN
FACT_CHARS: Final = 500
LOCK_SECONDS: Final = 5.0
HEAD: Final = "# Memory\n\nFacts for later sessions in this folder. Edit or delete what you like.\n\n"
READ: Final = (
    "- Earlier sessions in this folder have left these notes ({file}). They may be out of date: what you see, and what the "
    "user says, counts more.\n{text}"
)
FULL: Final = "the memory is full ({tokens:,} tokens), so nothing was added: ask the user to delete old lines in {file}"
_DATE: Final = re.compile(r"^\s*[-*]\s*(?:\d{4}-\d\d-\d\d:\s*)?")


class RememberArguments(BaseModel):
    """Arguments of `remember`; `tools/remember.json` describes them."""

    model_config = {"extra": "forbid", "defer_build": True}
    fact: str = Field(min_length=1, max_length=FACT_CHARS)


class NoteCall(ToolCall):
    """A call of `remember`, which people are asked about as a note."""

    topic: ClassVar[Topic] = "notes"


class Remember(PlainTool):
    """A tool that adds one line to the memory."""

    name = "remember"
    arguments = RememberArguments

    def __init__(self, agent: TreeAgent | None = None) -> None:
        """Args: agent: the one that notes. None: the tool is only listed."""
        self._agent = agent

    def call(self, arguments: RememberArguments) -> NoteCall:  # type: ignore[override]  # the only arguments it gets
        """Return the call, which rules know by the tool's name."""
        return NoteCall(tool_name=self.name, args=arguments.model_dump())

    async def run(self, arguments: RememberArguments, context: ToolContext) -> ToolResult:
        """Add the fact, unless it is there."""
        parts = () if self._agent is None else self._agent.run.features.all(MemoryPart)
        is_seen = context.config.headless is None and any(arguments.fact in part.adviser.asked for part in parts)
        return ToolResult(text=await asyncio.to_thread(note, context.config, arguments.fact, is_seen=is_seen))


def note(config: Config, fact: str, *, is_seen: bool) -> str:
    """Add a fact to the memory, and say so. Blocks.

    Args:
        config: The settings of the agent.
        fact: The text.
        is_seen: Whether a person has seen it, so that the file stays one that somebody has looked at.

    Raises:
        FreeactError: It is full, or cannot be written.
    """
    path = config.workspace / MEMORY_FILE
    try:
        make_folder(path.parent)
        with locked_folder(path.parent, LOCK_SECONDS):  # other agents and programs may add a fact at the same time
            before = present_memory(config.workspace)
            after = with_fact(before, fact)
            if after == before:
                return f"This is in {MEMORY_FILE} already."
            replace_beneath(config.workspace, path, after)
    except OSError as error:
        raise FreeactError(_unwritten(error, path)) from error
    if is_seen and (before is None or is_known(before, config)):
        with suppress(ConfigError):  # the record cannot be written: the next start asks about the file
            Trust(user_folder()).add({path: after})
    return f"Noted in {MEMORY_FILE}: later sessions in this folder read it."


def present_memory(workspace: Path) -> bytes | None:
    """Return the content of the memory, a little past its bound at most; None if there is none. Raises: OSError."""
    try:
        with open(workspace / MEMORY_FILE, "rb", opener=beneath(workspace)) as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None


def with_fact(content: bytes | None, fact: str) -> bytes:
    """Return the memory with a new line; as it is, if it has the fact. Raises: FreeactError: It is full, or no fact."""
    if not (fact := one_line(fact, FACT_CHARS)):
        raise FreeactError("the fact is empty: say what later sessions should know")
    if content is not None and content.startswith(UTF16_MARKS):  # an editor has saved it so; the new line is UTF-8
        content = prose_of_file(content).encode()
    if content is not None and _plain(fact) in map(_plain, prose_of_file(content).split("\n")):
        return content
    old = HEAD.encode() if content is None else content + b"\n" * (content[-1:] not in (b"", b"\n"))
    new = old + f"- {time.strftime('%Y-%m-%d')}: {fact}\n".encode("utf-8", "backslashreplace")
    if len(new) > MAX_BYTES:
        raise FreeactError(FULL.format(tokens=MAX_TOKENS, file=MEMORY_FILE))
    return new


def _unwritten(error: OSError, path: Path) -> str:
    return f"{MEMORY_FILE} cannot be written: {_why(error, path)}"


def _why(error: OSError, path: Path) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EEXIST):  # what the system says of links on the way
        for each in (path, path.parent):
            if each.is_symlink():
                return f"{each.name} is a link, which is not followed"
    return error.strerror or str(error)


def _plain(line: str) -> str:
    return " ".join(_DATE.sub("", line).casefold().rstrip(" .").split())


def is_known(content: bytes, config: Config) -> bool:
    """Return whether somebody has looked at this content of the memory."""
    path = config.workspace / MEMORY_FILE
    at_start = config.instruction_contents.get(path, b"")[: MAX_BYTES + 1]
    return at_start == content or Trust(user_folder()).knows(path, content)


class MemoryAdviser(Adviser):
    """An adviser that shows what a fact changes in the file, and asks nobody about one that it cannot take."""

    source = Remember.name

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self.asked: set[str] = set()
        """The facts about which somebody was asked."""

    async def on_question(self, call: Call, suggested: Sequence[str]) -> Advice | None:
        """Deny a fact that cannot be noted, whatever a person says."""
        del suggested
        if not isinstance(call, NoteCall):
            return None
        try:
            with_fact(await asyncio.to_thread(present_memory, self._workspace), str(call.args["fact"]))
        except OSError as error:
            return Advice(verdict="deny", reason=_unwritten(error, self._workspace / MEMORY_FILE))
        except FreeactError as error:
            return Advice(verdict="deny", reason=str(error))
        return None

    def try_out(self, call: Call) -> TryOut | None:
        """Return the diff of the file."""
        if not isinstance(call, NoteCall):
            return None
        self.asked.add(fact := str(call.args["fact"]))
        try:
            before = present_memory(self._workspace)
            after = with_fact(before, fact)
        except (OSError, FreeactError):  # the call says so
            return None
        diff = "\n".join(
            diff_lines(str(MEMORY_FILE), None if before is None else prose_of_file(before), prose_of_file(after))
        )
        what = FileEffect(path=str(MEMORY_FILE), what="added" if before is None else "changed", diff=diff)
        return Effects(status="done", files=(what,)) if diff else None


class MemoryPart(RunPart):
    """The memory in one run."""

    def __init__(self, agent: FeatureAgent) -> None:
        self.adviser = MemoryAdviser(agent.config.workspace)

    def advisers(self, asker: Asker) -> Sequence[Adviser]:
        """Show facts before they are noted."""
        del asker
        return (self.adviser,)


class MemoryFeature(ToolsFeature):
    """The memory of one folder."""

    @cached_property
    def text(self) -> str:
        """The memory for models; empty if there is none, or nobody has looked at it."""
        config = self.root.agent.config
        try:
            content = present_memory(config.workspace) or b""
        except OSError:
            content = b""
        if content and not is_known(content, config):  # it has changed since the start
            content = config.instruction_contents.get(config.workspace / MEMORY_FILE, b"")
        text = prose_of_file(content[:MAX_BYTES]).replace(HEAD, "").strip()
        more = f"\n[cut here: {MEMORY_FILE} is longer]" if len(content) > MAX_BYTES else ""
        return "\n".join(f"  {line}" for line in f"{text}{more}".split("\n") if line.strip()) if text else ""

    def instructions(self, agent: FeatureAgent) -> str:
        """Let all agents read it: children too, as they read other texts of a project."""
        del agent
        return READ.format(file=MEMORY_FILE, text=self.text) if self.text else ""

    def run(self, agent: FeatureAgent) -> RunPart:
        """Show what is noted in the run."""
        return MemoryPart(agent)

    def tools(self, agent: FeatureAgent) -> Sequence[Tool]:
        """Give each agent the tool."""
        return (Remember(tree_agent(agent)),)


def memory_text(config: Config) -> str:
    """Return the memory for people, and how to change it."""
    try:
        content = present_memory(config.workspace)
    except OSError as error:
        return f"{MEMORY_FILE} cannot be read: {_why(error, config.workspace / MEMORY_FILE)}"
    if content is None:
        return f"no facts are noted: an agent may note one with your yes, or you write {MEMORY_FILE} yourself"
    size = f"{len(content) // BYTES_PER_TOKEN:,} of {MAX_TOKENS:,} tokens"
    unknown = "" if is_known(content, config) else "\nYou have not looked at it as it is now: the next start asks about it."
    share = f"git leaves it out: `git add -f {MEMORY_FILE}` shares it."
    return f"{prose_of_file(content).strip()}\n\n{MEMORY_FILE} · {size} · edit it in any editor. {share}{unknown}"
