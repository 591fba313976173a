"""`EffectsConfig`: the settings of trials."""

from pydantic import Field

from freeact_sub.config.section import Section


class EffectsConfig(Section):
    """Whether a cell is tried while a person is asked about it (docs/effects.md)."""

    enabled: bool = False
    """`true`: in mode `ask`, the terminal shows below a cell what it would do: output, variables, files. For that it runs in
    a copy of the kernel, which is dropped."""
    seconds: float = Field(default=10, gt=0, le=600)
    """A trial that takes longer ends."""
    memory_bytes: int = Field(default=2**30, gt=0, le=2**60)
    """The memory that each process of a trial may take besides the kernel's, and the size of each file that it writes."""
