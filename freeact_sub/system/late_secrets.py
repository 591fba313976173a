"""Secrets that this process gets to know while it runs: refreshed tokens. They are never written into a session."""

_found: set[str] = set()


def add(secret: str) -> None:
    """Note a secret. Empty: nothing."""
    if secret:
        _found.add(secret)


def late_secrets() -> tuple[str, ...]:
    """Return all of them, the longest first, since one may be a part of another. It may be called in any thread."""
    return tuple(sorted(_found.copy(), key=len, reverse=True))
