"""Nodes from code in a cell: `await agent.branch()`, and what code does with a node.

The agent owns its nodes, as it owns those of a program (`Nodes`), within its own bounds: a cell in a node needs approval and
counts like one of the agent's, a promotion needs approval for each path, and each node takes a place of `kernel.max_live`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

from pydantic import Field

from freeact_sub.agents.children.nodes import Nodes
from freeact_sub.agents.from_code.base import Params, paused, validated
from freeact_sub.kernels import CellClock, Changes, Kernel, move_values


class NodeParams(Params):
    """The parameters of a request about a node."""

    action: Literal["branch", "execute", "diff", "close", "adopt", "promote"]
    node: str = ""
    """Its id. Empty: the agent's own kernel, which can be branched only."""
    description: str = ""
    own_files: bool = False
    code: str = ""
    names: list[str] = Field(default_factory=list)


class NodeRequests:
    """Answers `node`."""

    def __init__(self, nodes: Nodes, kernel: Callable[[], Awaitable[Kernel]]) -> None:
        """Args: nodes: of the agent. kernel: the kernel in which the code runs that asks."""
        self._nodes = nodes
        self._kernel = kernel
        self.handlers = {"node": self._answer}

    async def _answer(self, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        asked = validated(NodeParams.model_validate, params, "node")
        with paused(clock):
            return await self._do(asked)

    async def _do(self, asked: NodeParams) -> Any:
        if asked.action == "branch" and not asked.node:
            made = await self._nodes.branch(None, asked.description, own_files=asked.own_files)
            return {"node": made.node_id}
        if asked.action == "close" and all(node.node_id != asked.node for node in self._nodes.list()):
            return None  # it is closed
        node = self._nodes.find(asked.node)
        match asked.action:
            case "branch":
                return {"node": (await node.branch(asked.description, own_files=asked.own_files)).node_id}
            case "execute":
                output = await node.execute(asked.code)
                return {"status": output.status, "text": output.text}
            case "diff":
                return _wire(await node.diff())
            case "promote":
                return _wire(await self._nodes.promote(node))
            case "adopt":
                name = await self._nodes.write_values(node, asked.names)
                await move_values(name, await node.resources.kernel.get(), await self._kernel())
                return {"values": name}  # the code that asks reads them: its kernel runs no other cell meanwhile
            case "close":
                return await node.close()


def _wire(changes: Changes) -> dict[str, list[str]]:
    return {name: [*paths] for name, paths in vars(changes).items()}
