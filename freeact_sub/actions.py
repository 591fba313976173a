"""`Action`: what each kind of call (`calls/`) defines, and the words that kinds and modes share."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal, Self, TypeAlias

from freeact_sub.text import visible

FileOperation: TypeAlias = Literal["write", "append", "create", "rename", "remove", "link", "change"]
"""`change`: of permissions, owner or times. A rename is two writes, of the old and the new name."""

Topic: TypeAlias = str
"""What a mode decides on, by its name in `BY_MODE` (`approvals/policy.py`)."""


class Action(ABC):
    """What each kind of call defines."""

    form: ClassVar[str]
    """Its form on the command line."""
    main: ClassVar[str] = ""
    """The field that this text fills and that a person judges."""
    whole: ClassVar[bool] = False
    """Rules decide it as a whole: a glob over code or a prompt would judge by words."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a text of this form.

        Raises:
            ValueError: The text does not have this form.
        """
        make: Callable[..., Self] = cls
        return make(**{cls.main: text})

    @property
    @abstractmethod
    def summary(self) -> str:
        """The question in one sentence; not sanitised: it may be long and contain any character."""

    @property
    @abstractmethod
    def question(self) -> str:
        """The question in one line that follows the agent's name; nothing is cut or hidden."""

    @property
    def text(self) -> str:
        """What a person judges, in full; nothing is cut or hidden."""
        return visible(getattr(self, self.main))

    @property
    def subject(self) -> str:
        """The texts that rules' globs match. Empty if the call is decided as a whole."""
        return ""

    @property
    def acts_outside(self) -> bool:
        """Whether it may have an effect besides its result, so that it has to be repeated each time."""
        return True
