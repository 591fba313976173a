"""Checks the arguments of `Agent` as they are given: a wrong part is named here, not by whoever meets it in a run."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from pydantic_ai import AbstractToolset, Tool
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model

from freeact_sub.agents.feature import Feature
from freeact_sub.approvals import Approve
from freeact_sub.channel import Tap
from freeact_sub.config.schema import Config
from freeact_sub.errors import ConfigError
from freeact_sub.kernels import KernelProvider
from freeact_sub.text import one_line


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The arguments of an `Agent`, which says what they are."""

    config: Config
    model: Model | None
    """None: that of the settings."""
    features: Sequence[Feature]
    """All of them, with those that other arguments ask for."""
    tools: Sequence[Tool[Any] | Callable[..., Any]]
    deps: Any
    toolsets: Sequence[AbstractToolset[Any]]
    capabilities: Sequence[AbstractCapability[Any]]
    output_type: Any
    model_settings: Mapping[str, Any]
    kernel_provider: KernelProvider | None
    taps: Sequence[Tap]
    history: Sequence[ModelMessage]
    approve: Approve | None
    root_id: str | None = None
    """The id of the root, which an earlier program has made. None: a new one."""
    notices: Sequence[str] = ()
    """Told to people in its first run, before anything else is."""


def arguments_of(given: Mapping[str, Any], features: Sequence[Feature]) -> Arguments:
    """Return what is given to `Agent`. Args: given: checked, by name.

    Raises:
        ConfigError: Another model has the name of a setting, or is no model.
    """
    config, model = given["config"] or Config(), given["model"]
    if given["models"]:
        config = config.model_copy(update={"models": config.models.with_names(given["models"])})
    if isinstance(model, str):
        config, model = config.model_copy(update={"model": model}), None
    settings = given["model_settings"] or {}
    told: dict[str, Any] = {field.name: given[field.name] for field in fields(Arguments) if field.name in given}
    told |= {"config": config, "model": model, "features": features, "model_settings": settings}
    return Arguments(**told)


PROVIDER: Final = ("place", "hook", "start", "aclose")
OF_NAME: Final = "a provider is named by the settings, as `Config(kernel={{'provider': {!r}}})`"


def check_config(config: Any) -> None:
    """Check the first argument. Raises: ConfigError: It is not a `Config`."""
    if config is None or isinstance(config, Config):
        return
    if isinstance(config, str | Model):
        shown = repr(config) if isinstance(config, str) else "model"
        raise ConfigError(f"the first argument of Agent is a Config; a model is given as Agent(model={shown})")
    if isinstance(config, Mapping):
        raise ConfigError("the first argument of Agent is a Config, not a dict: write Agent(Config(**settings))")
    raise ConfigError(f"the first argument of Agent is a Config, not {_shown(config)}; a model is given as Agent(model=...)")


def check_arguments(given: Mapping[str, Any]) -> None:
    """Check the other arguments. Args: given: their values, by name; those that have checks of their own may be missing.

    Raises:
        ConfigError: One is of another kind than `Agent` says; the message has its name and the way to write it.
    """
    for name, check in ITEMS.items():
        for item in _items(name, given.get(name)):
            if problem := check(item):
                raise ConfigError(f"{name}: {problem}")
    for name, check in VALUES.items():
        if given.get(name) is not None and (problem := check(given[name])):
            raise ConfigError(f"{name}: {problem}")


def _items(name: str, value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence | set | frozenset):
        raise ConfigError(f"{name} takes a list, not {_shown(value)}: write {name}=[...]")
    return tuple(value)


def _shown(value: Any) -> str:
    """A wrong value in a message: a function by its name."""
    if inspect.isroutine(value):
        return f"the function {value.__name__}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or isinstance(value, str | int | float | bytes):
        return one_line(repr(value), 60)
    return f"a {type(value).__name__}"


def _toolset(item: Any) -> str:
    if isinstance(item, AbstractToolset):
        return ""
    if isinstance(item, PydanticAgent):
        return "an Agent of pydantic-ai is no toolset: its toolsets are, as `toolsets=other.toolsets`"
    if inspect.isroutine(item):
        return f"{_shown(item)} is no toolset: a function is given as `tools=[{item.__name__}]`"
    return f"{_shown(item)} is no toolset of pydantic-ai"


def _capability(item: Any) -> str:
    return "" if isinstance(item, AbstractCapability) else f"{_shown(item)} is no capability of pydantic-ai"


def _tap(item: Any) -> str:
    if not callable(item) or isinstance(item, type):
        return f"{_shown(item)} is no function of an event"
    if inspect.iscoroutinefunction(item) or inspect.iscoroutinefunction(getattr(item, "__call__", None)):  # noqa: B004
        return f"{_shown(item)} is async: a tap is a plain function, which is called with each event"
    return ""


def _methods(what: str, names: Sequence[str], hint: Callable[[Any], str] = lambda _: "") -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if isinstance(value, type):
            return f"{_shown(value)} is given instead of an object of it"
        missing = [name for name in names if not callable(getattr(value, name, None))]
        if not missing:
            return ""
        return f"{_shown(value)} is no {what}: it has no method `{missing[0]}`" + (
            f"; {said}" if (said := hint(value)) else ""
        )

    return check


def _models(value: Any) -> str:
    if not isinstance(value, Mapping):
        return f"models are given by their names, as {{'small': model}}, not as {_shown(value)}"
    for name, model in value.items():
        if not isinstance(name, str):
            return f"the name of a model is a text, not {_shown(name)}"
        if not isinstance(model, str | Model):
            return f"{name!r} must be the name of a model or a Model of pydantic-ai, not {_shown(model)}"
    return ""


def _of(kind: type | tuple[type, ...], what: str) -> Callable[[Any], str]:
    return lambda value: "" if isinstance(value, kind) else f"it is {what}, not {_shown(value)}"


ITEMS: Final[Mapping[str, Callable[[Any], str]]] = {
    "tools": lambda _: "",  # `make_own_tools` knows what can be one
    "hooks": lambda _: "",  # the feature looks at each
    "features": lambda _: "",  # `Features` knows what can be one
    "toolsets": _toolset,
    "capabilities": _capability,
    "taps": _tap,
    "history": lambda _: "",  # `checked_history` knows what a message is
}
VALUES: Final[Mapping[str, Callable[[Any], str]]] = {
    "model": _of((str, Model), "the name of a model or a Model of pydantic-ai"),
    "models": _models,
    "model_settings": _of(Mapping, "a dict, such as {'temperature': 0.1}"),
    "kernel_provider": _methods(
        "KernelProvider", PROVIDER, lambda value: OF_NAME.format(value) if isinstance(value, str) else ""
    ),
    "factory": _methods("AgentFactory", ("create",)),
    "store": _methods("SessionStore", ("sessions", "find", "reader", "open", "is_open", "folder_of", "fork")),
    "approve": lambda value: "" if callable(value) and not isinstance(value, type) else f"{_shown(value)} is no function",
    "session": _of(str, "'new', or the id of a session"),
}
