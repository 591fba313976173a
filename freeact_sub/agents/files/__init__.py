"""Which files runs have read, written and removed."""
