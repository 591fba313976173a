"""`ReceiptsFeature`: keeps what a run has done, as the host saw it: cells, commands, calls, children, and existing files.

It knows `files`, because digests of files are receipts too. Without that feature there are no digests.
"""

from dataclasses import replace
from typing import TypeVar

from freeact_sub.agents.feature import Feature, RunPart
from freeact_sub.agents.ports import UsedKernel
from freeact_sub.agents.requested_call import EndedCall, FeatureAgent, Proceed, RequestedCall
from freeact_sub.agents.runs.results import RunResult
from freeact_sub.agents.tree_agent import TreeAgent, tree_agent
from freeact_sub.calls import Call, ShellCommand
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.features.files import FilesPart
from freeact_sub.features.receipts.book import ReceiptBook
from freeact_sub.features.receipts.file_facts import FileFacts, file_facts

T = TypeVar("T")


class ReceiptsPart(RunPart):
    """The receipts of one run."""

    def __init__(self, agent: TreeAgent) -> None:
        self.book, self._agent, self._found = ReceiptBook(), agent, FileFacts()

    async def call(self, call: RequestedCall, proceed: Proceed[T]) -> EndedCall[T]:
        """Give a receipt for a call that ran, however it ended."""
        code = call.args["code"] if call.is_changed else ""
        try:
            ended = await proceed()
        except ApprovalDeniedError:
            raise
        except BaseException as error:
            self.book.call(call.call, "failed", code=code, text=f"{type(error).__name__}: {error}")
            raise
        if ended.outcome != "denied":
            self.book.call(call.call, "ok" if ended.outcome == "success" else "failed", code=code, text=ended.text)
        return ended

    def did(self, agent: FeatureAgent, call: Call) -> None:
        """Give a receipt for a program that code starts."""
        del agent
        if isinstance(call, ShellCommand):
            self.book.command(call)

    async def closing(self, ending: RunResult, kernel: UsedKernel) -> None:
        """Look at the files; a copy of the workspace ends with its kernel."""
        run = self._agent.run
        for part in run.features.all(FilesPart):
            if not kernel.has_own_files:
                answer = ending.text if run.has_model and ending.status == "completed" else ""
                self._found = await file_facts(part.files, answer, self._agent.shared.config.workspace)

    def facts(self, ending: RunResult) -> RunResult:
        """Add the receipts, unless the answer was reused with those of the run that gave it."""
        receipts = ending.receipts or self.book.receipts(self._found, has_model=self._agent.run.has_model)
        return replace(ending, receipts=receipts, missing_files=self._found.missing)

    def ended(self, result: RunResult) -> None:
        """Give the parent's run a receipt for its child."""
        parent = self._agent.run.parent
        for part in () if parent is None else parent.features.all(ReceiptsPart):
            part.book.child(self._agent.agent_id, result.status)


class ReceiptsFeature(Feature):
    """Keeps receipts in one tree of agents."""

    def run(self, agent: FeatureAgent) -> RunPart:
        """Keep the receipts of the run."""
        return ReceiptsPart(tree_agent(agent))
