"""What `freeact-sub doctor` looks at without starting a kernel.

Nothing leaves this machine: servers are asked on loopback only.
"""

import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from freeact_sub.config.own_folders import state_folder
from freeact_sub.config.schema import Config, user_folder
from freeact_sub.errors import ConfigError, UnusablePythonError
from freeact_sub.extras import how_to_install, how_to_install_provider, is_installed
from freeact_sub.models.found import SERVERS, FoundModel, models_of_servers
from freeact_sub.models.names import EXAMPLES, LOCAL, check_name, missing_extra
from freeact_sub.pythons.about import installed_in, packages_text
from freeact_sub.pythons.project import find_project_python, gone
from freeact_sub.sessions.sqlite.database import problem_of
from freeact_sub.terminal.pictures.pictures import way_of

State = Literal["works", "note", "limited", "missing"]
"""`note`: something to know that nothing needs."""
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
CONNECT_SECONDS: Final = 1.0
NAMED: Final = 4
"""How many models a line names."""
PACKAGES: Final = {"notebook": "ipywidgets", "acp": "acp", "gateway": "websockets", "web": "starlette"}
"""A package of each of our extras, by the extra; pictures have a line of their own."""


@dataclass(frozen=True)
class Finding:
    """Something that was looked at."""

    topic: str
    state: State
    text: str
    advice: str = ""
    """What helps, in words."""
    command: str = ""
    """What helps, as a command."""


def check_model(config: Config, environment: Mapping[str, str]) -> Iterator[Finding]:
    """The model of the settings, or the models that can be chosen; then all keys and local servers."""
    keys = [key for key in EXAMPLES if environment.get(key, "").strip()]
    served = models_of_servers(SERVERS)
    if config.model:
        yield _set_model(config, keys)
    else:
        yield _no_model(keys, served)
    yield Finding("keys", "works" if keys else "note", ", ".join(keys) or "none in the environment")
    names = [f"{model.model.partition(':')[2]} ({model.because})" for model in served]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    usual = ", ".join(f"{name} {port}" for name, port in SERVERS.items())
    if names:
        yield Finding("servers", "works", f"{', '.join(names[:NAMED])}{more}")
    else:
        yield Finding("servers", "note", f"no local server on the usual ports ({usual})")


def _no_model(keys: list[str], served: list[FoundModel]) -> Finding:
    if keys or served:
        advice = "start `freeact-sub` in a terminal and choose one; the choice is saved"
        return Finding("model", "limited", "none is set; one can be chosen of those found", advice)
    advice = f"set a provider's key, such as ANTHROPIC_API_KEY, or start a local server ({LOCAL})"
    return Finding("model", "missing", "none is set, and none is found", advice)


def _set_model(config: Config, keys: list[str]) -> Finding:
    name = str(config.model)
    try:
        check_name(config)
    except ConfigError as error:
        return Finding("model", "missing", str(error))
    if extra := missing_extra(name):
        return Finding("model", "missing", f"{name} needs a package", command=how_to_install_provider(extra))
    if config.base_url is not None:
        return _model_of_server(name, config.base_url)
    known = [key for key, example in EXAMPLES.items() if is_of(name.partition(":")[0], example.partition(":")[0])]
    if known and not set(known) & {*keys}:
        return Finding("model", "missing", f"{name} needs a key", f"set {' or '.join(known)} in the environment")
    return Finding("model", "works", name)


def is_of(provider: str, other: str) -> bool:
    """Whether models of a provider take another one's key."""
    return provider in (other, f"{other}-chat", f"{other}-responses")


def _model_of_server(name: str, base_url: str) -> Finding:
    parts = urlsplit(base_url)
    if parts.hostname not in LOOPBACK:
        return Finding("model", "works", f"{name} at {base_url}, which was not asked: it is not on this machine")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname, port), CONNECT_SECONDS).close()
    except OSError:
        return Finding("model", "missing", f"{name} at {base_url}, where no server answers", "start the server")
    return Finding("model", "works", f"{name} at {base_url}, where a server answers")


def check_python(config: Config, agreed: str | None, environment: Mapping[str, str]) -> Finding:
    """The Python that runs cells. Args: agreed: the project's, if a person has agreed to run it."""
    found = None if "python" in config.kernel.model_fields_set else find_project_python(config.workspace, environment)
    if (
        found is None
        and agreed is None
        and "python" not in config.kernel.model_fields_set
        and (problem := gone(environment))
    ):
        return Finding("python", "limited", f"cells run in freeact-sub's own Python: {problem}")
    if found is not None and agreed is None:
        lacks = "" if "ipykernel" in found.packages else ", without ipykernel of its own"
        text = f"{found.folder} is the project's ({found.version or 'version not known'}{lacks}), and cells do not run in it"
        return Finding("python", "limited", text, "start `freeact-sub` in a terminal: it asks you once whether they may")
    python = agreed or config.kernel.python
    try:
        known = installed_in(python)
    except UnusablePythonError as error:
        return Finding("python", "missing", str(error))
    has = packages_text(known.packages)
    whose = (
        "the project's" if agreed else "set by you" if "python" in config.kernel.model_fields_set else "freeact-sub's own"
    )
    lent = f", with {', '.join(known.lent.packages)} lent" if known.lent else ""
    return Finding("python", "works", f"{python} ({whose}): {known.version}{f', {has}' if has else ''}{lent}")


def check_machine(config: Config, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Pictures in the terminal, undo of files, and the places where settings and sessions are kept."""
    way = way_of(config.terminal.pictures, environment)
    if way == "off":
        advice = (
            ""
            if config.terminal.pictures == "off"
            else "if yours can, set terminal.pictures; `blocks` works in any terminal"
        )
        yield Finding("pictures", "note", "the terminal names them and does not draw them", advice)
    elif is_installed("textual_image"):
        yield Finding("pictures", "works", f"drawn in the terminal ({way})")
    else:
        command = how_to_install("pictures")
        yield Finding("pictures", "limited", "not drawn in the terminal: a package is missing", command=command)
    if shutil.which("git"):
        yield Finding("undo", "works", "takes back conversation, variables and files")
    else:
        yield Finding("undo", "limited", "takes back conversation and variables, not files", "install git")
    for topic, folder in (("settings", user_folder()), ("sessions", state_folder())):
        if not is_writable(folder):
            yield Finding(topic, "limited", f"{folder} cannot be written: nothing is kept there", "change its owner or mode")
        elif topic == "sessions" and (problem := problem_of(folder)):
            yield Finding(topic, "limited", f"none is kept: {problem}")
        else:
            yield Finding(topic, "works", f"{folder}")


def is_writable(folder: Path) -> bool:
    """Whether the folder is one to write into, or can be made."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def check_packages() -> Finding:
    """Our extras."""
    installed = [extra for extra, package in PACKAGES.items() if is_installed(package)]
    others = [extra for extra in PACKAGES if extra not in installed]
    text = f"installed: {', '.join(installed) or 'none'}" + (f"; not installed: {', '.join(others)}" if others else "")
    return Finding("extras", "note", text, command=how_to_install(others[0]) if others else "")
