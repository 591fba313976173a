"""A program for tests: a conversation with a scripted model and kernels without processes.

The model waits, where its script says so, until a file of that name is in the workspace: the test decides when.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ToolCallPart

from freeact_sub.agent import Agent
from freeact_sub.config.schema import Config, EffectsConfig, McpServerConfig, TerminalConfig
from freeact_sub.errors import FreeactError
from freeact_sub.terminal import screen
from freeact_sub.terminal.conversation import converse
from freeact_sub.testing import CHILD_NOTE, FakeKernelProvider, ScriptedModel

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.waiting import eventually, wait_until

background: set[asyncio.Task[None]] = set()


def when(name: str) -> asyncio.Event:
    """Set when the file is there."""
    event = asyncio.Event()

    async def poll() -> None:
        await eventually(Path(name).exists)
        event.set()

    background.add(asyncio.create_task(poll()))
    return event


def cell(code: str) -> ToolCallPart:
    return ToolCallPart("execute_ipython_cell", {"code": code})


def child(name: str, prompt: str = "be", **how: Any) -> ToolCallPart:
    return ToolCallPart("task", {"prompt": f"{prompt} {name}", "description": name, **how})


DATABASE = {"question": "Which database shall it use?", "choices": ["SQLite", "PostgreSQL", "DuckDB"]}
LABEL = "one that is \x1b[2J\x1b]0;evil\x07 long \u202e" + "very " * 60
ASKED: dict[str, dict[str, Any]] = {
    "choice": {"questions": [DATABASE]},
    "several": {"questions": [DATABASE, {"question": "Why?"}]},
    "form": {
        "form": {
            "title": "The server",
            "properties": {"port": {"type": "integer", "minimum": 1}, "secure": {"type": "boolean", "default": True}},
            "required": ["port"],
        }
    },
    "days": {
        "form": {
            "title": "Which days?",
            "properties": {
                "days": {"type": "array", "items": {"enum": ["Monday", "Tuesday", "Wednesday"]}},
                "why": {"type": "string"},
            },
            "required": ["days"],
        }
    },
    "hostile": {"questions": [{"question": "\x1b[31mred\x1b[0m\r\x1b[1A " + "long " * 900, "choices": [LABEL, "short"]}]},
}
"""What the model asks the user, by name."""


EFFECTS = EffectsConfig(seconds=60)


class Broken(list[Any]):
    """A response whose stream breaks once, after its beginning."""

    times = 0

    def __init__(self) -> None:
        Broken.times += 1
        whole = "the beginning of it, and its end"
        super().__init__(["the beginning of it", ModelHTTPError(500, "scripted")] if Broken.times == 1 else [whole])


TURNS: dict[str, Callable[[list[str]], list[Any]]] = {
    "be": lambda names: [cell(f"print('{names[0]} was here')"), f"{names[0]} is done"],
    "children": lambda names: [[child(name) for name in names], "the children are done"],
    "background": lambda names: [[child(name, names[0], background=True) for name in names[1:]], "they work behind you"],
    "cell": lambda names: [[when(names[0]), cell("print('the cell ran')")], "after the cell"],
    "hand": lambda names: [[child(name, "run") for name in names], "all of it was handed out"],
    "run": lambda names: [*(cell(Path(name).read_text()) for name in names), "all of it was asked"],
    "sleep": lambda _: [cell("!sleep 1000"), "it slept"],
    "fail": lambda names: [[" ".join(names), RuntimeError("the line is broken")]],
    "broken": lambda _: [Broken()],
    "silent": lambda _: [when("a file that never comes")],
    "slow": lambda names: [["the beginning of a text ", when(names[0]), "and its end"]],
    "remember": lambda names: [ToolCallPart("remember", {"fact": " ".join(names)}), "it is noted"],
    "ask": lambda names: [[ToolCallPart("ask_user", ASKED[name]) for name in names], "the answers are there"],
}
"""What the model does, by the first word of the prompt; it gets the others."""


def script(messages: list[ModelMessage], info: Any) -> Any:
    """The turn that follows these messages."""
    del info
    prompts = [index for index, message in enumerate(messages) for _ in prompts_of(message)]
    answers = [index for index, message in enumerate(messages) if message.kind == "response"]
    prompt = prompts_of(messages[prompts[-1]])[-1]
    if "<conversation>" in prompt:
        return when("a file that never comes")
    first, *names = prompt.split()
    if first == "count":
        return f"{len(prompts)} prompts, {len(answers)} answers"
    if first == "read":
        return "the user changed it" if "The user changed your code" in str(messages) else "nothing was changed"
    if first not in TURNS:
        return f"echo: {prompt}"
    return TURNS[first](names)[sum(index > prompts[-1] for index in answers)]


def prompts_of(message: ModelMessage) -> list[str]:
    """What a person, or a parent, asked in this message; more than once where a run was cancelled before its first request."""
    return [CHILD_NOTE.sub("", _text(part.content)) for part in message.parts if part.part_kind == "user-prompt"]


def _text(content: Any) -> str:
    """A prompt as the model reads it; a skill in it is a part with a text."""
    return content if isinstance(content, str) else "\n".join(getattr(item, "content", str(item)) for item in content)


def main() -> int:
    """Hold a conversation, or with an argument one run; returns the exit status."""
    server = os.environ.get("MCP_SERVER")
    servers = {"demo": McpServerConfig(command=sys.executable, args=(server,))} if server else {}
    skills = Path.cwd() / ".agents/skills"
    folders = (skills,) if skills.exists() else ()
    terminal = TerminalConfig.model_validate({"keys": os.environ.get("LINE_KEYS", "emacs")})
    config = Config(workspace=Path.cwd(), mcp_servers=servers, skill_folders=folders, effects=EFFECTS, terminal=terminal)

    def open_session(session: str | None, settings: Mapping[str, Any] | None = None) -> Agent:
        if Path("broken").exists():
            raise FreeactError("the disk is gone")
        changed = config.model_copy(update=dict(settings or {}))
        provider = None if "REAL_KERNELS" in os.environ else FakeKernelProvider()
        return Agent(changed, model=ScriptedModel(script), kernel_provider=provider, session=session)

    def open_agent() -> Agent:
        if starts_with := os.environ.get("STARTS_WITH"):
            wait_until(Path(starts_with).exists)
        return open_session(os.environ.get("SESSION"))

    prompt = sys.argv[1] if len(sys.argv) > 1 else None
    if seconds := os.environ.get("RESIZED_SECONDS"):
        screen.RESIZED_SECONDS = float(seconds)
    plain = os.environ["TERM"] == "dumb"
    return asyncio.run(converse(open_agent, config=config, prompt=prompt, open_session=open_session, plain=plain))


if __name__ == "__main__":
    sys.exit(main())
