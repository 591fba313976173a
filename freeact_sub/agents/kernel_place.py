"""Where an agent's kernel runs: what it is started with in the agent's mode, and the folders besides the workspace."""

from pathlib import Path

from freeact_sub.agents.children.type_effects import skills_of
from freeact_sub.agents.hooks import all_commands
from freeact_sub.agents.tree import TreeAgent
from freeact_sub.kernels import Kernel, KernelSpec, own_files_of, with_programs, with_read_only


def place_of(agent: TreeAgent, mcp_servers: tuple[str, ...], *, own_files: bool) -> tuple[str, KernelSpec]:
    """What the model is told of where its kernel runs, and what a kernel is started with.

    Args:
        agent: The agent; its mode decides on the wall.
        mcp_servers: The names of its MCP servers.
        own_files: It works in a copy of the workspace.

    Raises:
        ConfigError: Such an agent can have no kernels.
    """
    settings, skills = agent.shared.config.kernel, skills_of(agent)
    place = agent.shared.provider.place(agent.policy.mode, settings, agent.shared.config.workspace)
    spec = KernelSpec(
        owner_id=agent.agent_id,
        python=settings.python,
        workspace=agent.shared.config.workspace,
        environment=place.environment,
        start_timeout_seconds=settings.start_timeout_seconds,
        mode=agent.policy.mode,
        mcp_servers=mcp_servers,
        skills=tuple(module for skill in skills.values() for module in skill.modules),
        sandbox=with_read_only(
            with_programs(place.wall, agent.shared.servers, all_commands(agent)),
            [skill.folder for skill in skills.values()],
        ),
        own_files=own_files,
    )
    return place.description, spec


def folders_of(agent: TreeAgent, kernel: Kernel) -> tuple[Path, ...]:
    """The agent's own folders besides the workspace."""
    own = own_files_of(kernel)
    return (*also_writable(agent), *filter(None, (kernel.scratch, None if own is None else own.root)))


def also_writable(agent: TreeAgent) -> tuple[Path, ...]:
    """Folders besides the workspace to which the agent's wall grants write access."""
    return agent.shared.config.kernel.writable if agent.policy.mode == "auto" else ()
