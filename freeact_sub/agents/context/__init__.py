"""What fills the window of an agent's model, and how a conversation goes on that is about to fill it.

- `sizes`: how many tokens a conversation takes, and what for.
- `outputs`: old outputs become notes that name a file.
- `summary`: all but the beginning and the newest turns becomes a summary.
- `compactor`: when which of the two is done, and what it is told of. Its hook is the first of a run's, so that a user's own
  capabilities see the conversation as it goes on.

The summary is a `CompactionPart` of pydantic-ai in the request that begins the conversation: each provider's client knows
how to send it. The ready-made compaction of `pydantic-ai-harness` is not used: each of its releases demands one exact
release of pydantic-ai, it knows nothing of our budgets and output files, and tells nobody what it has done.
"""
