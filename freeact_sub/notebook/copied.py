"""`CopiedConversation`: a conversation whose agent works on a copy of the notebook's kernel.

Each prompt finds the variables as they are: if the user has run a cell since the last one, the copy is made anew. A prompt
that follows a prompt goes on in the same copy.
"""

import re
import uuid
from collections.abc import Sequence
from typing import Any, Final

from IPython.core.inputtransformer2 import TransformerManager

from freeact_sub.agents import Agent, RunResult
from freeact_sub.errors import FreeactError, KernelError, KernelLostError
from freeact_sub.events.effects import VariableChange
from freeact_sub.kernels import make_provider
from freeact_sub.kernels.copies import CopyProvider, NotebookCopy, changes_of, report_here, take
from freeact_sub.kernels.guest.state import variables
from freeact_sub.kernels.variable_reports import About
from freeact_sub.notebook.change_table import change_table
from freeact_sub.notebook.copied_names import for_model
from freeact_sub.notebook.display import follow_children, show_run
from freeact_sub.notebook.display_area import CellDisplay
from freeact_sub.notebook.question_forms import QuestionForm
from freeact_sub.notebook.user_names import UserNames

NO_COPY: Final = "there is no copy with changes: the next %%agent cell makes one"
REFUSED: Final = "The agent works in an empty kernel, for this one cannot be copied: {reason}"
VARIABLE: Final = re.compile(r"\$([^\W\d]\w*)")
REPLACED: Final = "The copy of the last prompt is gone; of it you had not taken over: {names}"


class CopiedConversation:
    """An agent, and the copy in which it works."""

    def __init__(self, shell: Any, forget: Any, name: str) -> None:
        """Args: forget: called in the copy, see `CopyProvider`. name: what `--name` says; empty: nothing."""
        self._shell, self._forget = shell, forget
        self._name = f" --name {name}" if name else ""
        self._provider: CopyProvider | None = None
        self._agent: Agent | None = None
        self._open: list[VariableChange] = []
        """What was changed and not taken over."""
        self.is_stale = False
        """The user has run a cell since the last prompt."""

    @property
    def works_unasked(self) -> bool:
        """Whether nobody has looked at what the agent does."""
        config = self._begun.config
        return config.mode in ("auto", "full") or config.headless == "allow"

    @property
    def _begun(self) -> Agent:
        assert self._agent is not None  # `begin` comes first
        return self._agent

    @property
    def _copy(self) -> NotebookCopy | None:
        """The copy, if there is one."""
        copy = self._provider.copy if self._provider is not None else None
        return copy if copy is not None and copy.pid is not None else None

    def begin(self, agent: Agent) -> None:
        """Its agent is known now."""
        self._agent = agent
        assert self._provider is not None  # `provider` was called for it
        self._provider.root_id = agent.agent_id

    def provider(self, settings: Any) -> CopyProvider:
        """Starts its kernels. Args: settings: of the kernels that are no copy."""
        empty = make_provider(settings, on_notice=_tell)
        self._provider = CopyProvider(empty, on_notice=_tell, forget=self._forget)
        return self._provider

    async def run(self, prompt: str, questions: QuestionForm) -> RunResult:
        """Runs a prompt, shows it, and then what it has changed. Raises: see `display_run`."""
        assert self._provider is not None  # as above
        follow_children(self._begun)
        names: UserNames | None = None
        if reason := self._provider.refusal():
            _tell(REFUSED.format(reason=reason))
            await self._provider.give_up(reason)
            given = self._named_in(prompt)
            run, names = self._begun.run(prompt, inputs=given), UserNames(given)
            run.add_note(names.for_model(prompt))
        else:
            run = self._begun.run(prompt)
            await self._renew()
            run.add_note(for_model(prompt, await self._variables()))
        try:
            result = await show_run(run, names, questions)
        finally:
            self.is_stale = False
        if self._copy is not None and self._copy.cells:
            await self._show_changes()
        return result

    async def diff(self) -> None:
        """Shows what differs now. Raises: KernelError: there is no copy, or it cannot be compared."""
        self._open = await changes_of(self._living(), self._shell)
        if _has_variables(self._open):
            _publish(change_table(self._open, self._name))
        else:
            _tell("The copy has the same variables as this notebook.")

    async def changed(self) -> list[VariableChange]:
        """What differs now. Raises: as `diff`."""
        return await changes_of(self._living(), self._shell)

    async def adopt(self, changes: Sequence[VariableChange]) -> tuple[list[str], dict[str, str]]:
        """Takes over changes of the copy.

        Returns:
            The names that are as in the copy now, and for each other one the reason.

        Raises:
            KernelError: There is no copy, or its values cannot be read.
        """
        wanted = [change.name for change in changes if change.what != "deleted"]
        values, lost = await take(self._living(), wanted) if wanted else ({}, {})
        self._shell.push({name: values[name] for name in wanted if name in values})
        gone = [change.name for change in changes if change.what == "deleted"]
        for name in gone:
            self._shell.user_ns.pop(name, None)
        taken = [name for name in wanted if name in values] + gone
        self._open = [change for change in self._open if change.name not in taken]
        return taken, lost

    def code(self) -> tuple[str, int]:
        """The code of the cells that ended without an error, as one cell, and the number of the others.

        Raises:
            KernelLostError: There is no copy.
        """
        cells = self._living().cells
        # a cell magic has a cell to itself
        whole = [TransformerManager().transform_cell(code) if code.startswith("%%") else code for code, ok in cells if ok]
        return "\n\n".join(code.strip("\n") for code in whole), len(cells) - len(whole)

    async def discard(self) -> None:
        """Ends the copy. Raises: KernelLostError: there is none."""
        copy = self._living()
        self._open = []
        await copy.drop()

    async def aclose(self) -> None:
        """Ends the conversation."""
        try:
            if self._agent is not None:
                await self._agent.aclose()
        finally:
            if self._provider is not None:
                await self._provider.aclose()

    def _living(self) -> NotebookCopy:
        if self._copy is None:
            raise KernelLostError(NO_COPY)
        return self._copy

    async def _renew(self) -> None:
        """Makes the copy anew if the notebook's variables may have changed since."""
        copy = self._copy
        if copy is not None and self.is_stale:
            if _has_variables(self._open):
                _tell(REPLACED.format(names=", ".join(change.name for change in self._open if not change.imported)))
            self._open = []
            await copy.drop()

    def _named_in(self, prompt: str) -> dict[str, Any]:
        """The variables that a prompt names as `$df`."""
        present = variables(self._shell)
        return {name: present[name] for name in VARIABLE.findall(prompt) if name in present}

    async def _variables(self) -> dict[str, About]:
        """What there is in the notebook. A value that takes too long to describe hides the others."""
        try:
            return await report_here(self._shell, digests=False)
        except KernelError:
            return {}

    async def _show_changes(self) -> None:
        try:
            self._open = await self.changed()
        except FreeactError as error:
            _tell(f"What the agent has changed in its copy could not be found out: {error}")
            return
        if _has_variables(self._open):
            _publish(change_table(self._open, self._name))


def _has_variables(changes: Sequence[VariableChange]) -> bool:
    """Whether more differs than what was imported."""
    return any(not change.imported for change in changes)


def _tell(text: str) -> None:
    """A line in the output of this cell."""
    print(text)  # noqa: T201  # IPython's way


def _publish(bundle: Any) -> None:
    CellDisplay().publish(f"freeact-{uuid.uuid4().hex}", bundle, update=False)
