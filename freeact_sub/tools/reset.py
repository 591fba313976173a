"""`reset_kernel`: restart the agent's kernel."""

from pydantic import BaseModel

from freeact_sub.tools.tool import HarmlessTool, ToolContext, ToolResult


class ResetArguments(BaseModel):
    """See `tools/reset_kernel.json`."""

    model_config = {"extra": "forbid", "defer_build": True}


class ResetKernel(HarmlessTool):
    """Replaces the kernel with a new one."""

    name = "reset_kernel"
    arguments = ResetArguments

    async def run(self, arguments: ResetArguments, context: ToolContext) -> ToolResult:
        """See `Tool`."""
        del arguments
        await context.kernel.reset()
        return ToolResult(text="The kernel was restarted: all variables and imports are gone.")
