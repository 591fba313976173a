"""Children that are resumed after their runs have ended: identity, conversation and model.

A feature may know of children that are no longer in memory, even those of an earlier program (`KnowsEarlier`).
"""

import itertools
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model

from freeact_sub.agents.life import KeptAgent, Tree, TreeAgent
from freeact_sub.calls import FIXED, ChildChoices
from freeact_sub.errors import ConfigError, InvalidRequestError
from freeact_sub.events import Notice
from freeact_sub.models.observers import addresses
from freeact_sub.modes import narrower
from freeact_sub.text import unknown_name
from freeact_sub.tools import ChildRequest


@dataclass(frozen=True, kw_only=True)
class EarlierChild:
    """A child to resume."""

    lineage: tuple[KeptAgent, ...]
    """The agents from below the caller down to the child, which is last."""
    model: Model | None
    """The model. None: find it by its name."""
    history: list[ModelMessage]
    written: Sequence[ModelMessage]
    """The messages that existed when the child ended; later ones tell of its cut-off work."""

    @property
    def agent_id(self) -> str:
        """The id of the child."""
        return self.lineage[-1].agent_id


@dataclass(frozen=True, kw_only=True)
class KeptChild:
    """The record of an ended child that is not in memory any more."""

    agents: Sequence[KeptAgent]
    """The child, and at least its ancestors."""
    written: Sequence[ModelMessage]
    cut_off: Sequence[ModelMessage]
    """The messages that tell of its cut-off work."""


@runtime_checkable
class KnowsEarlier(Protocol):
    """A part of a feature that keeps ended children for longer than memory does."""

    async def earlier(self, agent_id: str) -> KeptChild | None:
        """Return the record of a child, if there is one. Raises: InvalidRequestError: It cannot be read."""
        ...


async def earlier_child(agent_id: str, caller: TreeAgent, tree: Tree) -> EarlierChild:
    """Find a child that an agent resumes: its own, or one further below it.

    Raises:
        InvalidRequestError: There is none with this id below the agent, it is at work, or nothing is kept of it.
    """
    if (other := tree.answered_by.get(agent_id)) is not None:
        try:
            return await earlier_child(other, caller, tree)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{agent_id} reused the answer of {other}, and {error}") from error
    agent = ended_child(agent_id, tree)
    if agent is not None and caller.agent_id not in {above.agent_id for above in _above(agent)}:
        raise _no_child(agent_id)
    if agent is not None and (messages := agent.run.record.history):
        between = itertools.takewhile(lambda above: above.agent_id != caller.agent_id, agent.ancestors())
        return EarlierChild(
            lineage=tuple(each.kept for each in between)[::-1],
            model=None if agent.run.record.model_is_closed else agent.model,
            history=messages,
            written=messages,
        )
    stored = await _kept(agent_id, caller)
    if stored is None and agent is None:
        raise _no_child(agent_id)
    if stored is None or not stored.written:
        raise InvalidRequestError(
            f"the conversation of {agent_id} is not available: it made no model request, or it was dropped from memory "
            "(a session keeps it); start a new child"
        )
    chain = _chain(agent_id, caller.agent_id, stored.agents)
    for each in chain:
        if each.agent_type is not None and each.agent_type not in tree.shared.types:
            raise InvalidRequestError(
                f"{each.agent_id} cannot be resumed: {unknown_name('agent type', each.agent_type, caller.rights.startable)}"
            )
    history = [*stored.written, *stored.cut_off]
    return EarlierChild(lineage=tuple(chain), model=None, history=history, written=stored.written)


def ended_child(agent_id: str, tree: Tree) -> TreeAgent | None:
    """Return a child that has ended. None: an earlier program had it.

    Raises:
        InvalidRequestError: The child is at work.
    """
    agent = tree.agents.get(agent_id)
    if agent is not None and agent.parent is not None and agent.run.is_live:
        raise InvalidRequestError(
            f"{agent.label} is at work: wait for its end, or send it a message (subagents, action message)"
        )
    return agent


def as_it_was(request: ChildRequest, earlier: EarlierChild, caller: TreeAgent) -> ChildRequest:
    """Complete a request by the child's earlier settings. The mode never allows more than before.

    A child of the caller's own type needs no name of a type, as when it was started.

    Raises:
        InvalidRequestError: The request is for another kind of child, or another kernel.
    """
    if any(getattr(request, name) != ChildChoices.model_fields[name].default for name in FIXED):
        raise InvalidRequestError(
            "a resumed child keeps its type, its tools, its conversation and its kernel: resume it without agent, tools, "
            "branch, branch_of, history and own_files"
        )
    child = earlier.lineage[-1]
    kept = {**child.choices, "description": child.description}
    return request.replace(
        **{name: value for name, value in kept.items() if not getattr(request, name)},
        agent=None if child.agent_type == caller.rights.type_name else child.agent_type,
        mode=child.mode if request.mode is None else narrower(request.mode, child.mode),
        branch=child.choices.get("own_files", False),
    )


async def model_of(earlier: EarlierChild, other: Model, agent: TreeAgent) -> Model:
    """Return a child's model; or the one chosen since, if the session had the same model and now has another.

    Args:
        earlier: The child.
        other: The model of a new child of its type.
        agent: The caller.

    Raises:
        InvalidRequestError: No setting leads to its model any more.
    """
    shared, child = agent.shared, earlier.lineage[-1]
    wanted, address = child.model, child.address
    if earlier.model is not None:
        return earlier.model
    known = [other, agent.model, shared.model]
    for model in known:
        if _is_that(model, wanted, address):
            return model
    for name in (*shared.config.models.names, wanted):
        with suppress(ConfigError, InvalidRequestError):
            model = await shared.other_models.get(name)
            if _is_that(model, wanted, address):
                return model
    if address not in shared.recorded.replaced:
        raise InvalidRequestError(
            f"{earlier.agent_id} used the model {address or wanted}, which the settings no longer name: name a model "
            "(`model`) that may read its conversation, or start a new child"
        )
    agent.emitter.put(Notice(content=f"{earlier.agent_id} used the model {wanted} and continues with {other.model_id}"))
    return other


def _is_that(model: Model, name: str, address: str) -> bool:
    """Return whether a model has this name and address: another server may have the same name."""
    return model.model_id == name and address in ("", addresses(model)[0])


def _above(agent: TreeAgent) -> Iterable[TreeAgent]:
    return itertools.islice(agent.ancestors(), 1, None)


def _no_child(agent_id: str) -> InvalidRequestError:
    return InvalidRequestError(f"{agent_id!r} is not a child of yours, nor of one of your children")


def _chain(agent_id: str, caller_id: str, agents: Sequence[KeptAgent]) -> list[KeptAgent]:
    """Return the agents from below the caller down to the child.

    Raises:
        InvalidRequestError: The caller has no such child.
    """
    by_id = {agent.agent_id: agent for agent in agents}
    chain: list[KeptAgent] = []
    below: str | None = agent_id
    while below is not None and below != caller_id:
        if below not in by_id or by_id[below] in chain:
            raise _no_child(agent_id)
        chain.insert(0, by_id[below])
        below = by_id[below].parent_id
    if below is None or not chain:
        raise _no_child(agent_id)
    return chain


async def _kept(agent_id: str, caller: TreeAgent) -> KeptChild | None:
    for part in caller.run.features.all(KnowsEarlier):  # type: ignore[type-abstract]  # a protocol is a kind of part
        if (kept := await part.earlier(agent_id)) is not None:
            return kept
    return None
