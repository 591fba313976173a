"""The names of recursive language models, for code in a kernel. Run as a cell of the root's kernel, as source.

The kernels of sub-calls start as copies of it, so these names are there as well.
"""
# ruff: noqa: F821, N802  # `agent` and `get_ipython` are names of the kernel; those of the paper are in capitals
# mypy: disable-error-code="name-defined,no-any-return"

import concurrent.futures
import contextvars
from typing import Any


class _SubCalls:
    """Makes sub-calls. Answers of recursive ones are kept here, and in copies of the kernel; the host keeps the others."""

    prompt_chars = 4_000
    """Characters above which a recursive prompt becomes `context`; the model reads the beginning."""
    at_once = 16

    def __init__(self) -> None:
        self.model: str | None = None
        """The name of the model for plain sub-calls. None: the agent's own."""
        self.answers: dict[Any, str] = {}
        self.contexts: list[Any] = []
        """The contexts of answers: while they are kept, no other object has their id."""
        self.hidden: frozenset[str] = frozenset()
        """Names that `SHOW_VARS` leaves out."""

    @property
    def levels(self) -> int:
        """Levels of models that act by code, from this one down. At 1 a recursive sub-call is a plain one."""
        return self.names.get("_rlm_levels", 1)

    @property
    def names(self) -> dict[str, Any]:
        """The variables of the kernel."""
        return get_ipython().user_ns

    def plain(self, prompt: str, model: str | None) -> str:
        """Ask a model that reads the prompt alone. The host asks: an equal question of any kernel is asked once."""
        return agent.tools.rlm_ask(prompt=prompt, model=model or self.model)

    def recursive(self, prompt: str, context: Any, **start: Any) -> str:
        """Ask a model that acts by code."""
        own = self.names.get("context") if context is None else context
        key = (prompt, own if isinstance(own, str) else id(own), self.levels)
        if key not in self.answers:
            inputs = {"answer": {"content": "", "ready": False}, "_rlm_levels": self.levels - 1}
            if context is not None:
                inputs["context"] = context
            elif len(prompt) > self.prompt_chars:
                inputs["context"] = prompt
            cut = len(prompt) > self.prompt_chars
            shown = f"{prompt[: self.prompt_chars]}\n[The whole of it is in `context`.]" if cut else prompt
            title = prompt.strip().split("\n", 1)[0][:60]
            self.contexts.append(own)
            self.answers[key] = agent.task(shown, inputs=inputs, description=title, **start).output
        return self.answers[key]

    def side_by_side(self, ask: Any, items: Any) -> list[str]:
        """Ask for each item, in threads. Raises the first error when all have ended; the answers are kept."""
        pool = concurrent.futures.ThreadPoolExecutor(self.at_once)
        try:
            futures = {item: pool.submit(contextvars.copy_context().run, ask, item) for item in dict.fromkeys(items)}
            concurrent.futures.wait(futures.values())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # an interrupted cell does not wait for answers
        return [futures[item].result() for item in items]

    def hand_over(self, *_: object) -> None:
        """Tell the host of a ready answer after a cell."""
        given = self.names.get("answer")
        if isinstance(given, dict) and given.get("ready"):
            agent.tools.rlm_final(content=str(given.get("content", "")))

    def remaining(self) -> dict[str, Any]:
        """Return what may still be spent, by limit; a limit that is not set is missing."""
        return agent.tools.rlm_budget()

    def __repr__(self) -> str:
        return f"<budget: {self.remaining()}>"


budget = _SubCalls()
answer = {"content": "", "ready": False}


def llm_query(prompt: str, model: str | None = None) -> str:
    """Ask a model that reads the prompt alone. `model` is a name in the settings; the default is the one for sub-calls."""
    return budget.plain(str(prompt), model)


def llm_query_batched(prompts: Any, model: str | None = None) -> list[str]:
    """Ask for each prompt, side by side, and return the answers in order."""
    return budget.side_by_side(lambda prompt: budget.plain(prompt, model), [str(prompt) for prompt in prompts])


def rlm_query(prompt: str, context: Any = None) -> str:
    """Ask a model that works as you do, in a copy of this kernel. `context` replaces the copy's `context`."""
    if budget.levels <= 1:
        return llm_query(prompt if context is None else f"{prompt}\n\n{context}")
    return budget.recursive(str(prompt), context, branch=True)


def rlm_query_batched(prompts: Any, contexts: Any = None) -> list[str]:
    """Ask as `rlm_query` does for each prompt and its context, side by side, and return the answers in order."""
    prompts = [str(prompt) for prompt in prompts]
    contexts = [None] * len(prompts) if contexts is None else list(contexts)
    if len(contexts) != len(prompts):
        raise ValueError(f"rlm_query_batched: there are {len(prompts)} prompts and {len(contexts)} contexts")
    if budget.levels <= 1:
        return llm_query_batched([p if c is None else f"{p}\n\n{c}" for p, c in zip(prompts, contexts, strict=True)])
    places = {(prompt, id(context)): place for place, (prompt, context) in enumerate(zip(prompts, contexts, strict=True))}
    each = [places[prompt, id(context)] for prompt, context in zip(prompts, contexts, strict=True)]
    node = agent.branch("sub-calls")  # while threads are at work this kernel cannot be copied, but its copy can
    try:
        return budget.side_by_side(lambda place: budget.recursive(prompts[place], contexts[place], branch_of=node), each)
    finally:
        node.close()


def SHOW_VARS() -> dict[str, str]:
    """Return the names and types of your variables."""
    names = budget.names.items()
    return {name: type(value).__name__ for name, value in names if name[0] != "_" and name not in budget.hidden}


def FINAL(content: Any) -> None:
    """End with this answer when the cell has ended."""
    budget.names["answer"] = {"content": content, "ready": True}


def FINAL_VAR(name: Any) -> None:
    """End with the value of a variable, given by its name."""
    if isinstance(name, str) and name.isidentifier() and name not in budget.names:
        raise NameError(f"FINAL_VAR: there is no variable {name!r}; there are {', '.join(SHOW_VARS())}")
    FINAL(budget.names[name] if isinstance(name, str) and name in budget.names else name)


get_ipython().events.register("post_run_cell", budget.hand_over)
