"""`Away`: a conversation whose terminal may leave and another one come, for programs that a host started (`detached`).

It tells the host what the conversation does, and has the screen leave the terminal before that goes. While nobody is there
nothing is drawn. What was printed meanwhile, or to a terminal that comes new the last of what was printed, is printed then.
"""

import asyncio
import signal
from typing import TYPE_CHECKING, Any, Literal

from freeact_sub.terminal.surface import Surface

if TYPE_CHECKING:
    from freeact_sub.detached.host import Link
    from freeact_sub.terminal.display import Display
    from freeact_sub.terminal.present import Present


class Away:
    """The coming and going of terminals."""

    def __init__(self, link: "Link", present: "Present", display: "Display") -> None:
        self._link, self._present, self._display = link, present, display

    def begin(self) -> None:
        """Listen to the host."""
        loop = asyncio.get_running_loop()
        self._link.listen(loop, self._hear)
        loop.add_signal_handler(signal.SIGTSTP, self.stop)  # the key, where the terminal itself edits the line
        if self._link.is_detached:
            self._leave("")

    def report(self, *, is_ending: bool) -> None:
        """Tell the host about the conversation, whenever it may have changed. Args: is_ending: nothing else can follow."""
        agent = self._present.agent
        session = agent.session_id if agent is not None else None
        workspace = str(self._present.config.workspace)
        self._link.tell(session=session, workspace=workspace, state=self._state, is_ending=is_ending)
        if self._present.phase == "running":
            self._link.begun()

    @property
    def _state(self) -> Literal["working", "waiting", "done"]:
        present, display = self._present, self._display
        if display.questions.current is not None:
            return "waiting"
        rests = present.phase in ("idle", "ending") or (present.phase == "starting" and not present.once)
        works = not rests or present.waiting.count or any(view.is_running for view in display.views.by_id.values())
        return "working" if works else "done"

    def stop(self) -> None:
        """Give the terminal back to its shell, for Ctrl-Z: the work goes on. An editor that has the terminal keeps it."""
        if not self._display.screen.is_lent:
            self._leave("stop")

    def detach(self) -> bool:
        """Leave the terminal for good; return False if nothing is at work."""
        if self._state == "done":
            return False
        self._leave("detach")
        return True

    def _leave(self, how: str) -> None:
        self._display.screen.leave(lambda: self._link.tell(left=how))

    def _hear(self, told: dict[str, Any]) -> None:
        screen: Surface = self._display.screen
        if told["what"] == "leave":
            self._leave("")
        elif told["what"] == "back":
            screen.come_back(is_fresh=told["fresh"])
