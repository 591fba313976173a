"""A person and an agent in a terminal.

What is going on is `Present`, what is shown of it `Display`, what the person does `Person`; in which order things are done
is up to `Conversation`.
A run's events are read by one coroutine that never waits for the person; what the person types arrives by callbacks and
is an answer, a command, a word to the agent at work, or the next prompt, in this order.
"""

from freeact_sub.terminal.conversation.conversation import converse

__all__ = ["converse"]
