"""`FreeactPersona`: the agent in jupyter-ai, which finds it by the entry point group `jupyter_ai.personas`."""

import sys
from pathlib import Path
from typing import Any, Final

from jupyter_ai_acp_client.base_acp_persona import BaseAcpPersona
from jupyter_ai_persona_manager import PersonaDefaults

AVATAR: Final = Path(__file__).with_name("avatar.svg")


class FreeactPersona(BaseAcpPersona):  # type: ignore[misc]  # jupyter-ai is installed where this is imported
    """Starts `freeact-sub acp` with this Python."""

    NOTEBOOK_EDITING_GUIDANCE = ""
    """It would stand before the person's first words: in titles, and before the name of a command."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, executable=[sys.executable, "-m", "freeact_sub", "acp"], **kwargs)

    @property
    def defaults(self) -> Any:
        """How it appears in a chat."""
        words = "Acts by running code in its own kernel, and hands work to child agents."
        return PersonaDefaults(name="freeact-sub", description=words, avatar_path=str(AVATAR), system_prompt="unused")
