"""`ask`: one request to a model, without tools or kernel."""

from pydantic import BaseModel, Field

from freeact_sub.tools.tool import HarmlessTool, ToolContext, ToolResult


class AskArguments(BaseModel):
    """See `tools/ask.json`."""

    model_config = {"extra": "forbid", "defer_build": True}
    prompt: str = Field(min_length=1)
    model: str = ""
    label: str = ""


class Ask(HarmlessTool):
    """Asks a model through the function that the agent placed in the context."""

    name = "ask"
    arguments = AskArguments

    async def run(self, arguments: AskArguments, context: ToolContext) -> ToolResult:
        """See `Tool`."""
        return ToolResult(text=await context.ask(arguments.prompt, arguments.model or None))
