"""Ways for several agents to work on one problem: plain functions on `ask` and `task` that return plain values.

A strategy's first argument asks models and starts children (`AgentLike`): an `Agent` in a program, `agent` in a cell. So
each strategy runs in both, and imports nothing heavy, because a cell pays for that too. Budgets, approvals, events and
cancellation are those of its requests and children. Everything it started has ended when it returns, raises or is cancelled.
"""

from freeact_sub.strategies.agent_like import AgentLike, Member
from freeact_sub.strategies.debates import Debate, debate
from freeact_sub.strategies.functions import agent_function
from freeact_sub.strategies.mixtures import Mixture, mixture
from freeact_sub.strategies.model_player import ModelPlayer
from freeact_sub.strategies.plans import PlanResult, Step, StepResult, plan_and_execute
from freeact_sub.strategies.searches import Search, SearchResult, search
from freeact_sub.strategies.side_by_side import parallel, pipeline
from freeact_sub.strategies.states import Evaluation, Player, SearchNode, Simulation, State
from freeact_sub.strategies.trees import LATS, SIMULATE, BeamSearch, BestFirst, TreeAlgorithm, Trial, top_k
from freeact_sub.strategies.votes import Vote, count, vote

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
