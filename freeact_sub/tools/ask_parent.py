"""`ask_parent`: a background child asks its parent and waits for the answer."""

from pydantic import BaseModel, Field

from freeact_sub.errors import FreeactError
from freeact_sub.tools.tool import HarmlessTool, ToolContext, ToolResult


class AskParentArguments(BaseModel):
    """See `tools/ask_parent.json`."""

    model_config = {"extra": "forbid", "defer_build": True}
    question: str = Field(min_length=1)


class AskParent(HarmlessTool):
    """Asks the parent. Only background children have it: a parent that waits for its child cannot answer."""

    name = "ask_parent"
    arguments = AskParentArguments

    async def run(self, arguments: AskParentArguments, context: ToolContext) -> ToolResult:
        """See `Tool`."""
        if context.ask_parent is None:
            raise FreeactError("your parent is waiting for you and cannot answer: decide yourself, and say what you assumed")
        return ToolResult(text=await context.ask_parent(arguments.question))
