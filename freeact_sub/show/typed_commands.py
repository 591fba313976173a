"""A person's commands, the same in every front end.

`.agents/commands/NAME.md` is a prompt, sent by `/NAME words`; so are the files in `commands` here, and a skill, by its name.
The work and words of `/undo`, `/rewind`, `/redo`, `/context` and `/cost` stand here too, and the search for an agent that a
person names.
"""

import asyncio
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from freeact_sub.agent_names import agent_name, agents_meant, candidates
from freeact_sub.config.parsing import prose_of_file
from freeact_sub.errors import FreeactError
from freeact_sub.features.skills.skill import Skill
from freeact_sub.text import counted, one_line, visible

if TYPE_CHECKING:  # slow to import
    from freeact_sub.agent import Agent
    from freeact_sub.agents import AgentInfo
    from freeact_sub.agents.money import ContextUse
    from freeact_sub.config.budget import RootBudget, Usage
    from freeact_sub.features.undo import UndoReport


OURS: Final = Path(__file__).with_name("commands")
"""Prompts of the program itself, as files like those of a person."""
ARGUMENTS: Final = "$ARGUMENTS"
MAX_CHARS: Final = 60_000
WORDS_CHARS: Final = 80
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*")
_HEAD: Final = re.compile(r"---\n(?:(.*?)\n)?---\n", re.DOTALL)
_DESCRIPTION: Final = re.compile(r"^description:\s*(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class OwnCommand:
    """One of a person's own commands."""

    prompt: str
    words: str
    """The description in its head, or its first line."""
    skill: str = ""
    """The skill that goes before the prompt."""

    def with_arguments(self, arguments: str) -> str:
        """Return the prompt. Args: arguments: replace `$ARGUMENTS`, or follow the text if that is not in it."""
        if ARGUMENTS in self.prompt:
            return self.prompt.replace(ARGUMENTS, arguments)
        return f"{self.prompt}\n\n{arguments}" if arguments else self.prompt


def own_commands(contents: Mapping[Path, bytes], taken: Collection[str]) -> Mapping[str, OwnCommand]:
    """Return the commands of files by name with `/`, then ours; of two with one name, the first one counts.

    Args:
        contents: The contents of the files, see `Config.command_contents`.
        taken: Names that cannot be used.
    """
    found: dict[str, OwnCommand] = {}
    for path, content in (*contents.items(), *((path, path.read_bytes()) for path in OURS.glob("*.md"))):
        name = f"/{path.stem}"
        if not _NAME.fullmatch(path.stem) or name in taken or name in found:
            continue
        if command := _command(prose_of_file(content)[:MAX_CHARS]):
            found[name] = command
    return found


def skill_commands(skills: Mapping[str, Skill], taken: Collection[str]) -> tuple[dict[str, OwnCommand], list[str]]:
    """Return the commands that load skills, and the names of skills that have none, because another command has it."""
    named = {f"/{name}": skill for name, skill in skills.items() if _NAME.fullmatch(name)}
    found = {
        command: OwnCommand(
            prompt=f"Use the skill {skill.name}.", words=one_line(visible(skill.description), WORDS_CHARS), skill=skill.name
        )
        for command, skill in named.items()
        if command not in taken
    }
    return found, [skill.name for command, skill in named.items() if command in taken]


def skill_of(text: str, commands: Mapping[str, OwnCommand]) -> str:
    """Return the skill that a text begins with; empty if it is none."""
    command = commands.get(text.split(maxsplit=1)[0]) if text.startswith("/") else None
    return "" if command is None else command.skill


def prompt_of(text: str, commands: Mapping[str, OwnCommand]) -> str:
    """Return the prompt that a text stands for: a command's prompt with its arguments, or the text itself."""
    name, *arguments = text.split(maxsplit=1) or [""]
    command = commands.get(name)
    return text if command is None else command.with_arguments("".join(arguments).strip())


def _command(text: str) -> OwnCommand | None:
    head = _HEAD.match(text)
    prompt = text[head.end() if head else 0 :].strip()
    if not prompt:
        return None
    described = _DESCRIPTION.search(head[1] or "") if head else None
    words = described[1].strip("\"'") if described else prompt.partition("\n")[0].lstrip("# ")
    return OwnCommand(prompt=prompt, words=one_line(visible(words), WORDS_CHARS))


FORKED: Final = (
    "{new} is this conversation without its last {prompts}, in a copy of this folder as it was then: /resume {new} "
    "continues it here, freeact-sub --resume {new} elsewhere. This conversation stays as it is."
)
SHOWN: Final = 10
FEW: Final = 2
PROMPT_CHARS: Final = 60


@dataclass(frozen=True, kw_only=True)
class Rewind:
    """`/undo`, `/rewind N` and `/redo`."""

    prompts: int
    """The number of prompts: above 0 they are restored; below, undone."""
    to_change: bool = False
    """Whether the first undone prompt returns to the input line."""
    forks: bool = False
    """Whether a new session begins there; nothing is undone here."""
    forked: str = FORKED
    """Report of the fork; `{new}` is its id, `{folder}` its folder."""

    async def done(self, agent: "Agent", as_typed: Callable[[str], str]) -> tuple[str, str]:
        """Carry out the command; return a note for the person, and the text for the line, which may be empty.

        Args:
            agent: The agent.
            as_typed: Returns what the person typed of a prompt.
        """
        if self.forks:
            return await self._forked(agent), ""
        try:
            report = await (agent.redo(self.prompts) if self.prompts > 0 else agent.undo(-self.prompts))
        except FreeactError as error:
            return str(error), ""
        prompts = [as_typed(prompt) for prompt in report.prompts]
        told = [f"{'restored' if self.prompts > 0 else 'undone'}: {one_line(prompt, PROMPT_CHARS)}" for prompt in prompts]
        return "\n".join([*told, *_lines(report)]), prompts[0] if self.to_change else ""

    async def _forked(self, agent: "Agent") -> str:
        from freeact_sub.features.sessions.forking import missing_in  # noqa: PLC0415  # slow to import

        try:
            new = await agent.fork(self.prompts)
            missing = await asyncio.to_thread(missing_in, agent.sessions, new)
            folder = (await asyncio.to_thread(agent.sessions.find, new)).workspace
        except FreeactError as error:
            return str(error)
        told = self.forked.format(new=new, prompts=counted(-self.prompts, "prompt"), folder=folder)
        return "\n".join(filter(None, [told, missing]))


def goes_along(report: "UndoReport") -> str:
    """Return a few words about what a prompt's undo restores besides the conversation."""
    files = "without files" if report.files_problem else f"files {_some(report.files, FEW)}" if report.files else "no file"
    return f"{files} · {'without variables' if report.variables_problem else 'variables'}"


def _lines(report: "UndoReport") -> list[str]:
    lines: list[str] = []
    if report.files:
        lines.append(f"files: {_some(report.files)}")
    if report.files_problem:
        lines.append(f"not all files are as they were: {report.files_problem}")
    if report.variables_problem:
        lines.append(f"variables are not as they were: {report.variables_problem}")
    if report.lost:
        lines.append(f"variables that did not come back: {_some(tuple(lost.name for lost in report.lost))}")
    return lines


def _some(names: tuple[str, ...], shown: int = SHOWN) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return visible(", ".join(names[:shown])) + more


def context_text(use: "ContextUse") -> str:
    """Return a line for each kind of content that fills the window."""
    window = use.window_tokens
    share = f" of {window:,} ({use.tokens / window:.0%})" if window else "; the size of the window is not known"
    parts = {"instructions": use.instructions, "tools": use.tools, "messages": use.messages, "outputs": use.outputs}
    lines = [f"{name:<14}{tokens:>10,}" for name, tokens in parts.items()]
    return "\n".join([f"about {use.tokens:,} tokens{share}", *lines])


def cost_text(usage: "Usage", budget: "RootBudget") -> str:
    """Return the spending, including requests without a known price, and what a prompt may take."""
    requests = counted(usage.unpriced_turns, "request")
    unpriced = f"\nThe price of {requests} is not known: the cost leaves that out." if usage.unpriced_turns else ""
    return f"all runs, children included: {usage}{unpriced}\n{budget.cost_text}"


AT_WORK: Final = ("queued", "starting", "running", "waiting")


def status_text(agent: "AgentInfo") -> str:
    """Return the status in words."""
    return agent.status.replace("_", " ")


def find_agent(agents: Sequence["AgentInfo"], name: str, known: Mapping[str, str] | None = None) -> "AgentInfo":
    """Find an agent at work (`agents_meant`).

    Args:
        agents: All agents.
        name: The person's name for it.
        known: The labels that people see, by id. None: the labels from the agents' parents.

    Raises:
        LookupError: There is none, or more than one; the text is for the person.
    """
    labels = {agent.agent_id: (known or {}).get(agent.agent_id) or agent.description for agent in agents}
    found = agents_meant(name, labels)
    at_work = [agent for agent in agents if agent.agent_id in found and agent.status in AT_WORK]
    if len(at_work) == 1:
        return at_work[0]
    if at_work:
        names = candidates([agent.agent_id for agent in at_work], labels)
        raise LookupError(f"{name} matches several agents: {names}; type the id of one")
    if len(found) == 1:
        ended = next(agent for agent in agents if agent.agent_id == found[0])
        raise LookupError(f"{agent_name(ended.agent_id, labels[ended.agent_id])} is not at work ({status_text(ended)})")
    raise LookupError(f"no agent {name} is at work (/agents lists them)")
