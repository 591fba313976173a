"""`BackgroundFeature`: models and code look after children that they do not wait for.

The core has such children (`ChildOwner`); here is what an agent does with them: the tool `subagents` and `agent.children` in
cells, the tool `ask_parent` of the children themselves, and the question for a model that would end while some are working.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, Field

from freeact_sub.agents.feature import Feature, Handler, RunPart
from freeact_sub.agents.requested_call import FeatureAgent
from freeact_sub.agents.root import Root, whole_root
from freeact_sub.agents.tree_agent import tree_agent
from freeact_sub.errors import FreeactError
from freeact_sub.kernels import CellClock
from freeact_sub.tools import HarmlessTool, Subagents, Tool, ToolContext, ToolResult

FORGOTTEN: Final = (
    "Before you end: {children} still at work in the background, and cancelled when you end. Wait for what you need "
    "(subagents, action wait), or cancel it (action cancel); then give your whole final answer again, as only your last "
    "reply counts."
)


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


class BackgroundPart(RunPart):
    """Asks the model of one run about children that it leaves working."""

    def __init__(self, feature: "BackgroundFeature") -> None:
        self._feature, self._was_asked = feature, False

    async def answer(self, text: str) -> str:
        """Ask once."""
        del text
        left = () if self._was_asked else self._feature.whole_root.callers_loop.children.left_behind()
        if not left:
            return ""
        self._was_asked = True
        return FORGOTTEN.format(children=f"{', '.join(left)} {'is' if len(left) == 1 else 'are'}")


class BackgroundFeature(Feature):
    """What the agents of one tree do with their background children."""

    def run(self, agent: FeatureAgent) -> RunPart:
        """Look at the end of each run."""
        del agent
        return BackgroundPart(self)

    @property
    def whole_root(self) -> Root:
        """The root with all that it has."""
        return whole_root(self.root)

    def tools(self, agent: FeatureAgent) -> Sequence[Tool]:
        """Give each agent the tool for its children, and a background child the one for its parent."""
        return (Subagents(), AskParent()) if tree_agent(agent).in_background else (Subagents(),)

    def requests(self, agent: FeatureAgent) -> Mapping[str, Handler]:
        """Let code do the same; a node has no children."""
        whole = tree_agent(agent)

        async def children(params: Mapping[str, Any], clock: CellClock | None) -> Any:
            from freeact_sub.agents.from_code.children import BackgroundRequests  # noqa: PLC0415  # most code asks nothing

            loop = self.whole_root.callers_loop
            return await BackgroundRequests(loop.resources.calls, loop.children).handlers["children"](params, clock)

        return {"children": children} if whole.principal is whole else {}
