"""`EffectsConfig`: the settings of trials."""

from pydantic import Field

from freeact_sub.config.section import Section


class EffectsConfig(Section):
    """Whether a cell is tried while a person is asked about it (docs/effects.md)."""

    enabled: bool = True
    """In mode `ask`, a terminal shows below a cell what it would do: output, variables, files; so does a notebook, but not
    for an agent in a copy of its kernel, as `%%agent` without `--here`. The cell runs in a copy of the agent's kernel for
    that, which is dropped. `false`: it runs only when you allow it."""
    seconds: float = Field(default=10, gt=0, le=600)
    """A trial that takes longer ends."""
    memory_bytes: int = Field(default=2**30, gt=0, le=2**60)
    """The memory that each process of a trial may take besides the kernel's, and the size of each file that it writes."""
