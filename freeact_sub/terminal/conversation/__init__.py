"""A person and an agent in a terminal.

`Present` holds its state, `Display` shows it, `Person` takes the person's keys and lines; the order of all work
is `Conversation`'s.
One coroutine reads a run's events and never waits for the person; lines that the person types arrive by callbacks; each
is an answer, a command, a message to the agent at work, or the next prompt, in this order.
"""

from freeact_sub.terminal.conversation.conversation import converse

__all__ = ["converse"]
