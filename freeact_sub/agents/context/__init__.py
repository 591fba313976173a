"""The context window of an agent's model: how a conversation is shortened before it is full.

- `summary`: replaces all but the beginning and the newest turns with a summary.
- `compactor`: decides when to do which, replaces old outputs with notes that name a file, and emits the event. Its hook is
  the first of a run, so that a user's capabilities see the shortened conversation.
- `by_hand`: summarises a conversation because somebody asks for it.

The summary is a `CompactionPart` of pydantic-ai in the request that begins the conversation; each provider's client knows
how to send it. The ready-made compaction of `pydantic-ai-harness` is not used: each of its releases pins one release of
pydantic-ai, it ignores our budgets and output files, and it reports nothing.
"""
