"""One prompt from its first event to its one ending."""
