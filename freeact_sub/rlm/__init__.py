"""Recursive language models: a model that reads a long context by code, and calls models on its parts.

The context is a variable in a kernel; the prompts of the models never hold it. See "Recursive Language Models" by Alex L.
Zhang, Tim Kraska and Omar Khattab, 2025 (https://arxiv.org/abs/2512.24601), whose names code in the kernel finds.
"""

import asyncio
import contextlib
import importlib.resources
import re
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models import Model
from pydantic_ai.result import FinalResult
from pydantic_graph import End

from freeact_sub.agent import Agent
from freeact_sub.agents import RunResult
from freeact_sub.approvals import make_rules
from freeact_sub.cells import CELL_TOOL
from freeact_sub.channel import Tap
from freeact_sub.config.budget import Budget, ChildBudget, RootBudget, Usage
from freeact_sub.config.schema import Config, SubagentsConfig
from freeact_sub.errors import FreeactError, KernelError

__all__ = ["RLM", "Completion"]

_FINAL: Final = re.compile(r"\s*FINAL(?P<var>_VAR)?\((?P<content>.*)\)\s*", re.DOTALL)
"""An answer in the form of the paper, outside of code."""
_IN_CODE: Final = "Write this call into a block that is marked ```repl: only code is run."

MAX_DEPTH: Final = 3
MAX_TURNS: Final = 30
SUB_MODEL: Final = "sub"
"""The name of the model for sub-calls, in code."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """An answer about a context."""

    response: str
    usage: Usage
    """The spending of all models, sub-calls included."""
    seconds: float
    result: RunResult[str]


class RLM:
    """A recursive language model: it answers questions about a context that its prompt never holds.

    ::

        rlm = RLM(model="openai:gpt-5", sub_model="openai:gpt-5-mini", max_depth=2, budget=Budget(cost_usd=1))
        print(rlm.completion(text, "Which of these letters complain about a late delivery?").response)

    The context is the variable `context` of a kernel in which a model acts by code, with the names of the paper:
    `llm_query`, `llm_query_batched`, `rlm_query`, `rlm_query_batched`, `SHOW_VARS`, `answer`, `FINAL`, `FINAL_VAR`. Each
    recursive sub-call works in a kernel of its own, a copy of the kernel that makes it. Kernels write an empty folder only
    and have no network.
    """

    def __init__(
        self,
        *,
        model: Model | str | None = None,
        sub_model: Model | str | None = None,
        max_depth: int = 1,
        budget: Budget | Mapping[str, Any] | None = None,
        config: Config | None = None,
        taps: Sequence[Tap] = (),
    ) -> None:
        """Prepare the models; nothing is started yet.

        Args:
            model: The model that acts by code. None: the model of `config`.
            sub_model: The model that answers plain sub-calls. None: `model`.
            max_depth: Levels of models, from 1 to 3. At the last level a recursive sub-call is a plain one.
            budget: Limits of one completion, all sub-calls included. They are never exceeded by more than one request.
                Default: 30 turns of the first model, and the limits of `config`.
            config: Further settings, for example those of `load_config()`. Mode, workspace and network stay as said above.
            taps: Called with each event.

        Raises:
            ValueError: `max_depth` is out of range, or a limit is invalid.
        """
        if not 1 <= max_depth <= MAX_DEPTH:
            raise ValueError(f"max_depth is from 1 to {MAX_DEPTH}, not {max_depth}")
        self._config = config or Config()
        given = budget if isinstance(budget, Budget) else Budget(**(budget or {}))
        self._budget = RootBudget(**dict(given.over(self._config.budget).over(Budget(turns=MAX_TURNS))))
        self._model, self._sub_model, self._depth, self._taps = model, sub_model, max_depth, taps

    def completion(self, context: Any, question: str) -> Completion:
        """Answer a question about a context: text, or a value of any other type, such as a list of texts or a frame.

        Raises:
            TaskError: There is no answer, for example because a limit is reached; `error.result` says why.
            FreeactError: An event loop is running in this thread: use `acompletion`.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.acompletion(context, question))
        raise FreeactError("an event loop is running in this thread: use `await rlm.acompletion(...)`")

    async def acompletion(self, context: Any, question: str) -> Completion:
        """Answer a question about a context as `completion` does, in a running event loop."""
        async with self.agent(context) as agent, agent.run(self.prompt(context, question)) as run:
            result = await run.result()
            usage = agent.usage
        return Completion(response=result.output, usage=usage, seconds=result.seconds, result=result)

    def prompt(self, context: Any, question: str) -> str:
        """Return the first prompt: the question, and the kind and size of the context."""
        if isinstance(context, str):
            size = f", {len(context):,} characters"
        elif isinstance(context, Sized):
            size = f", {len(context):,} items"
        else:
            size = ""
        return f"{question}\n\n(`context`: {type(context).__name__}{size})"

    @contextlib.asynccontextmanager
    async def agent(self, context: Any) -> AsyncIterator[Agent]:
        """Open the agent in whose kernel the context and the names are."""
        ending = AnswersFromCode(agent_id=lambda: agent.execution_context.agent_id)
        answers = dict[tuple[str | None, str], str]()
        asking = defaultdict[tuple[str | None, str], asyncio.Lock](asyncio.Lock)

        def rlm_final(content: str) -> str:
            """Hand over the answer."""
            ending.answers[agent.execution_context.agent_id] = content
            return ""

        async def rlm_ask(prompt: str, model: str | None = None) -> str:
            """Ask a model that reads the prompt alone."""
            question = model, prompt
            async with asking[question]:  # an equal question meanwhile waits for the answer
                if question not in answers:
                    answers[question] = await agent.ask(prompt, model=model)
            return answers[question]

        def rlm_budget() -> dict[str, Any]:
            """Return what is left of the limits."""
            return agent.execution_context.budget_left.model_dump(mode="json", exclude_none=True)

        tools: list[Callable[..., Any]] = [rlm_ask, rlm_final, rlm_budget]
        with tempfile.TemporaryDirectory(prefix="freeact-rlm-") as folder:
            agent = Agent(
                self._settings(Path(folder)),
                model=self._model,
                models={} if self._sub_model is None else {SUB_MODEL: self._sub_model},
                tools=tools,
                capabilities=[ending],
                taps=self._taps,
            )
            agent.allowed = make_rules({"allow": [f"tool:{tool.__name__}" for tool in tools]})
            async with agent:
                await agent.put(context=context)
                sub_model = None if self._sub_model is None else SUB_MODEL
                given = f"_rlm_levels, budget.model = {self._depth}, {sub_model!r}"
                hidden = "budget.hidden = frozenset(get_ipython().user_ns) - {'context', 'answer'}"
                done = await agent.execute("\n".join([_text("kernel_names.py"), given, hidden]))
                if done.status != "ok":
                    raise KernelError(f"the kernel cannot be prepared: {done.text}")
                yield agent

    def _settings(self, folder: Path) -> Config:
        config = self._config
        children = SubagentsConfig(
            enabled=self._depth > 1,
            max_depth=max(1, self._depth - 1),
            max_concurrent=config.subagents.max_concurrent,
            budget=ChildBudget(turns=MAX_TURNS),
            salvage=False,
        )
        return config.model_copy(
            update={
                "workspace": folder,
                "mode": "auto",
                "code_actions": "block",
                "instructions": _text("instructions.md"),
                "instruction_files": (),
                "mcp_servers": {},
                "kernel": config.kernel.model_copy(update={"network": False, "writable": ()}),
                "subagents": children,
                "budget": self._budget,
            }
        )


def _text(name: str) -> str:
    return importlib.resources.files("freeact_sub.rlm").joinpath(name).read_text(encoding="utf-8")


@dataclass(kw_only=True)
class AnswersFromCode(AbstractCapability[Any]):
    """The end of a run of the root, or of any agent below it, after the cell that has handed over an answer."""

    agent_id: Callable[[], str]
    """A function that returns the calling agent's id."""
    answers: dict[str, str] = field(default_factory=dict)
    """Answers by agent id."""

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Keep the code tool alone: fewer tools are fewer tokens in each request."""
        del ctx
        return [tool for tool in tool_defs if tool.name == CELL_TOOL]

    async def after_node_run(self, ctx: RunContext[Any], *, node: Any, result: Any) -> Any:
        """End the run if the agent has handed over an answer, in code or in the form of the paper."""
        del node
        if not isinstance(result, End):
            answer = self.answers.pop(self.agent_id(), None)
            return result if answer is None else End(FinalResult(output=answer))
        written = _FINAL.fullmatch(result.data.output) if isinstance(result.data.output, str) else None
        if written is None:
            return result
        if written["var"]:
            ctx.enqueue(_IN_CODE)
            return result
        return End(replace(result.data, output=written["content"].strip().strip("\"'")))
