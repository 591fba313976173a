"""Answers by content: what a child or an ask has answered before a crash is its answer after it, and costs nothing.

The session answers in whatever order a program asks this time, each answer once, so that a program that asks the same three
times gets three answers. It answers only what was asked since the root has last completed a run: what was asked in an
earlier run is made again.

The same is: prompt, types and choices of the agent and of all above it, mode, model, values handed over, the schema of the
answer.
Nothing is kept of a child that has not completed, has written files, started a program or done something else outside,
was given a copy of a kernel, its parent's conversation, pictures or values above 32 MB, keeps its kernel, answers by
itself, or hands over a Python type that only the program knows.
"""

from freeact_sub.agents.feature import digest_of, model_words
from freeact_sub.agents.life import TreeAgent
from freeact_sub.agents.results import RunResult
from freeact_sub.events import Notice
from freeact_sub.events.ending import receipts_of
from freeact_sub.features.sessions.journal import Journal, jsonable
from freeact_sub.tools import ChildRequest


def digest_of_task(request: ChildRequest, child: TreeAgent) -> str | None:
    """The digest of a child's task. None: its answer must not be kept.

    Args:
        request: With what the child's type says where it says nothing.
        child: Made for it.
    """
    typed = request.output_type is not str
    has_state = request.is_branch or request.branch_of is not None or request.history != "none" or request.keep
    if has_state or request.content or (typed and request.output_schema is None):
        return None
    if request.prepare is not None and not request.inputs_digest:
        return None
    return digest_of(
        kind="task",
        prompt=request.prompt,
        types=[agent.rights.type_name for agent in child.ancestors()],
        mode=child.policy.mode,
        model=model_words(child.model),
        choices=[agent.choices.kept for agent in child.ancestors()],
        may_spawn=child.may_spawn,
        inputs=request.inputs_digest,
        output=request.output_schema if typed else None,
    )


def known_answer(journal: Journal, agent: TreeAgent, digest: str) -> RunResult | None:
    """The result of a child that has completed the same before a crash. None: none has."""
    known = journal.take_answer(digest)
    if known is None:
        return None
    earlier = known["agent_id"]
    agent.emitter.put(Notice(content=f"{earlier} gave this answer: it completed the same task before the program ended"))
    receipts = receipts_of(known.get("receipts"))
    return RunResult(status="completed", value=known["output"], reused_from=earlier, receipts=receipts)


def keep_answer(journal: Journal, agent: TreeAgent, digest: str, result: RunResult) -> None:
    """The run of an agent has ended: its answer is kept, if it may be used again."""
    changed_files = result.files_written or result.files_removed
    ran_programs = result.receipts is not None and result.receipts.commands_run  # which may have written files
    if result.status == "completed" and not (agent.run.record.acted_outside or changed_files or ran_programs):
        receipts = jsonable(result.receipts)
        value = {"output": jsonable(result.output), "agent_id": agent.agent_id, "receipts": receipts}
        journal.keep_answer(agent.agent_id, digest, value)
