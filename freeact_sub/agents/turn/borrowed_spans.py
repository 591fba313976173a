"""A private name of pydantic-ai: nothing else tells whether `Agent.instrument_all` was called.

If it had another name, those spans would be missing.
"""

from pydantic_ai import Agent


def is_instrumented_everywhere() -> bool:
    """Whether somebody has asked for the spans of all agents."""
    return bool(getattr(Agent, "_instrument_default", False))
