"""All that the protocol's example server offers, used from the model, from code and by a person (docs/mcp.md).

    python tests/conformance/everything.py                              # starts the server with npx
    python tests/conformance/everything.py "node /path/to/index.js stdio"

Calls each tool from a scripted model and from a cell, and reads each resource and prompt from a cell and as the input line does.
"""

import asyncio
import json
import shlex
import sys
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic_ai.messages import BinaryContent, ToolCallPart, ToolReturnPart

from freeact_sub import Agent, Config, QuestionRequest, ToolOutput
from freeact_sub.errors import McpError
from freeact_sub.events.forms import QuestionField
from freeact_sub.testing import ScriptedModel

SERVER = "npx --yes @modelcontextprotocol/server-everything@2026.8.31 stdio"
VALUES: dict[str, Any] = {
    "message": "hello",
    "messageType": "success",
    "location": "Chicago",
    "a": 2,
    "b": 3,
    "data": "data:text/plain,words",
    "duration": 1,
    "steps": 2,
    "url": "https://example.org/agree",
    "city": "Paris",
    "department": "Engineering",
    "name": "Alice",
    "resourceType": "Text",
    "resourceId": 1,
}
"""Arguments, by name; those of prompts are texts."""
LISTS = """
import json
print(json.dumps([await agent.mcp.everything.resources(), await agent.mcp.everything.prompts()]))
"""
CALL = """
import json
value = await agent.mcp.everything.{function}(**json.loads({arguments!r}))
print(", ".join(type(one).__name__ for one in (value if isinstance(value, list) else [value])))
"""


class Table:
    """Rows with what each way has got, or the error."""

    def __init__(self) -> None:
        self.failed = 0
        print("| kind | name | from the model, or by a person | from code |\n| --- | --- | --- | --- |")

    async def row(self, kind: str, name: str, *ways: Callable[[], Awaitable[str]]) -> None:
        """Try each way, and print what it has got."""
        cells = []
        for way in ways:
            try:
                cells.append(await way())
            except (McpError, RuntimeError) as error:
                self.failed += 1
                cells.append(f"fails: {error}")
        print("|", " | ".join([kind, f"`{name}`", *cells]), "|", flush=True)


class Everything:
    """An agent whose model makes the call that is asked for."""

    def __init__(self, command: list[str], folder: str) -> None:
        server = {"command": command[0], "args": command[1:]}
        config = Config(workspace=folder, mcp_servers={"everything": server}, mode="full")
        self.tools: dict[str, dict[str, Any]] = {}
        self.call: ToolCallPart | None = None
        self.output: ToolOutput | None = None
        self.returned: list[Any] = []
        self.agent = Agent(config, model=ScriptedModel(self._answer))

    def _answer(self, messages: Any, info: Any) -> Any:
        offered = {tool.name: tool.parameters_json_schema for tool in info.function_tools}
        self.tools = {name.removeprefix("everything_"): schema for name, schema in offered.items() if "everything_" in name}
        call, self.call = self.call, None
        self.returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        return [call] if call else "done"

    async def run(self, call: ToolCallPart | None) -> None:
        """One run, in which a person answers what is asked."""
        self.call, self.output = call, None
        run = self.agent.run("go")
        async for event in run:
            if isinstance(event, QuestionRequest):
                event.answer({field.name: value_of(field) for field in event.fields} or "yes")
            elif isinstance(event, ToolOutput):
                self.output = event
        await run.result()

    async def from_model(self, tool: str, arguments: dict[str, Any]) -> str:
        """What a call of the model returns."""
        await self.run(ToolCallPart(f"everything_{tool}", arguments))
        if self.output is None or self.output.outcome != "success":
            raise RuntimeError(self.output and self.output.content)
        [part] = self.returned
        content = part.content if isinstance(part.content, list) else [part.content]
        return ", ".join("picture" if isinstance(one, BinaryContent) else "text" for one in content)

    async def code(self, code: str) -> str:
        """What a cell prints."""
        done = await self.agent.execute(code)
        if done.status != "ok":
            raise RuntimeError(done.text.strip().splitlines()[-1])
        return done.text.strip()

    async def from_code(self, function: str, arguments: dict[str, Any]) -> str:
        """The type of what a call in a cell returns."""
        return await self.code(CALL.format(function=function.replace("-", "_"), arguments=json.dumps(arguments)))


def value_of(field: QuestionField) -> Any:
    """What a person types who takes what is proposed."""
    if field.default is not None or field.choices:
        return field.default or ([field.choices[0]] if field.kind == "choices" else field.choices[0])
    texts = {"email": "a@example.org", "uri": "https://example.org", "date": "2026-01-31"}
    return {"integer": 42, "number": 4.2, "boolean": True}.get(field.kind, texts.get(field.format, "Ann"))


def arguments_of(names: list[str]) -> dict[str, Any]:
    return {name: VALUES[name] for name in names if name in VALUES}


async def main(command: list[str]) -> int:
    """Print the table; returns how often it failed."""
    with tempfile.TemporaryDirectory() as folder:
        tried = Everything(command, folder)
        async with tried.agent as agent:
            await tried.run(None)
            resources, prompts = json.loads(await tried.code(LISTS))
            table = Table()
            for name, schema in sorted(tried.tools.items()):
                arguments = arguments_of([*schema["properties"]])
                await table.row(
                    "tool", name, lambda: tried.from_model(name, arguments), lambda: tried.from_code(name, arguments)
                )
            for resource in resources:
                address = resource["uri"].replace("{resourceId}", "1")

                async def read() -> str:
                    return f"{len((await agent.servers.read('everything', address)).text)} characters"

                await table.row(
                    "template" if resource["is_template"] else "resource",
                    resource["uri"],
                    read,
                    lambda: tried.code(f"print(type(await agent.mcp.everything.read({address!r})).__name__)"),
                )
            for prompt in prompts:
                given = arguments_of([argument["name"] for argument in prompt["arguments"]])
                values = {key: str(value) for key, value in given.items()}
                name = prompt["name"]

                async def asked() -> str:
                    return f"{len((await agent.servers.prompt('everything', name, values)).text)} characters"

                words = f"print(len(await agent.mcp.everything.prompt({name!r}, **{values!r})), 'characters')"
                await table.row("prompt", name, asked, lambda: tried.code(words))
    return table.failed


if __name__ == "__main__":
    sys.exit(bool(asyncio.run(main(shlex.split(sys.argv[1] if len(sys.argv) > 1 else SERVER)))))
