"""Ways for several agents to work on one problem: plain functions on `ask` and `task` that return plain values.

A strategy's first argument asks models and starts children (`AgentLike`): an `Agent` in a program, `agent` in a cell. So
each strategy runs in both, and imports nothing heavy, because a cell pays for that too. Budgets, approvals, events and
cancellation are those of its requests and children. Everything it started has ended when it returns, raises or is cancelled.
"""

from freeact_sub.strategies.agent_like import AgentLike, Member, agent_function, parallel, pipeline
from freeact_sub.strategies.plans import PlanResult, Step, StepResult, plan_and_execute
from freeact_sub.strategies.searches import ModelPlayer, Search, SearchResult, search
from freeact_sub.strategies.several_answers import Debate, Mixture, Vote, count, debate, mixture, vote
from freeact_sub.strategies.trees import (
    LATS,
    SIMULATE,
    BeamSearch,
    BestFirst,
    Evaluation,
    Player,
    SearchNode,
    Simulation,
    State,
    TreeAlgorithm,
    Trial,
    top_k,
)

__all__ = [
    "LATS",
    "SIMULATE",
    "AgentLike",
    "BeamSearch",
    "BestFirst",
    "Debate",
    "Evaluation",
    "Member",
    "Mixture",
    "ModelPlayer",
    "PlanResult",
    "Player",
    "Search",
    "SearchNode",
    "SearchResult",
    "Simulation",
    "State",
    "Step",
    "StepResult",
    "TreeAlgorithm",
    "Trial",
    "Vote",
    "agent_function",
    "count",
    "debate",
    "mixture",
    "parallel",
    "pipeline",
    "plan_and_execute",
    "search",
    "top_k",
    "vote",
]
