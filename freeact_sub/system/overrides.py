"""`check_overrides`: a method of a subclass is of the same kind, plain or `async`, as the method that it replaces."""

import inspect


def check_overrides(made: type, base: type) -> None:
    """Check a new subclass, so that a wrong `def` is an error where it is written and not a strange one where it is called.

    Raises:
        TypeError: A method is of the other kind; names it.
    """
    for name, method in vars(made).items():
        replaced = getattr(base, name, None)
        if name.startswith("_") or not inspect.isfunction(method) or not inspect.isfunction(replaced):
            continue
        if inspect.iscoroutinefunction(method) != inspect.iscoroutinefunction(replaced):
            kind = "async def" if inspect.iscoroutinefunction(replaced) else "plain def"
            raise TypeError(f"{made.__name__}.{name} must be a {kind}, as {base.__name__}.{name} is")
