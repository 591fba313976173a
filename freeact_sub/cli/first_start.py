"""Questions at a start: which model is used, if no settings name one, and whether the project's Python may run.

Models found here are proposed once, and the choice is saved for all folders.

Code of an agent may write the workspace, and a Python is started outside of the wall. So an environment found by its place
is not run, nor asked anything, before a person has agreed to it as it is now; one that the user has activated is run by the
user's own shell anyway. An answer counts for this environment until it is made anew.
"""

import argparse
import importlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TextIO

from freeact_sub.cli.streams import asking_terminal, can_draw, tell
from freeact_sub.config.trust import Trust
from freeact_sub.errors import ConfigError, UnusablePythonError
from freeact_sub.pythons.about import NoIpykernelError, installed_in, packages_text
from freeact_sub.pythons.project import ProjectPython, find_project_python, gone
from freeact_sub.text import fitted, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freeact_sub.config.schema import Config
    from freeact_sub.models.build import FoundModel

HEAD: Final = "No model is set yet. Which one do you want to use? (Saved for all folders.)"
NAMED: Final = 4
"""Models that a sentence names, at most."""
Answer = Literal["run", "install", "no"]
OURS: Final = "cells run in freeact-sub's own Python"


def with_model(config: "Config") -> "Config":
    """Return the settings with a model: a person chooses among the found ones, or the only one counts.

    Raises:
        ConfigError: No model is found, none is chosen, or nobody is there to choose among several.
    """
    if config.model:
        return config
    from freeact_sub.models.build import find_models, require_model  # noqa: PLC0415

    if config.base_url is not None:  # one that is found elsewhere cannot be meant
        raise ConfigError(
            "no model is set, but `base_url` is: pass --model openai-chat:NAME, with the server's NAME of the model"
        )
    found = find_models(os.environ)
    if not found:
        require_model(config)
    model = _the_only(found) if config.headless is not None or asking_terminal() is None else _chosen(found)
    new = {"model": model.model, "base_url": model.base_url}
    return config.model_copy(update=new).choosing(config.model_fields_set)


def with_package(config: "Config") -> "Config":
    """Return the settings, once the package of their model is installed, for which a person is asked.

    Raises:
        ConfigError: The package is missing, and nobody is there to ask, or the answer is no, or it cannot be installed.
    """
    from freeact_sub.models.build import missing_extra  # noqa: PLC0415

    name = str(config.model)
    extra = missing_extra(name)
    if extra is None:
        return config
    from freeact_sub.extras import install_command, provider_requirement  # noqa: PLC0415

    command = install_command(provider_requirement(extra))
    what = f"the model {visible(name)} needs a package that is not installed"
    terminal = asking_terminal()
    if config.headless is not None or terminal is None:
        raise ConfigError(f"{what}: run `{shlex.join(command)}`")
    from freeact_sub.terminal.asking import agrees  # noqa: PLC0415

    question = f"{what[0].upper()}{what[1:]}. This would install it:\n    {shlex.join(command)}\nInstall it now?"
    if not agrees(question, terminal):
        raise ConfigError(f"{what}: run `{shlex.join(command)}`")
    status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal, check=False).returncode
    importlib.invalidate_caches()
    if status or missing_extra(name):
        raise ConfigError(f"the package was not installed (exit status {status}): run `{shlex.join(command)}`")
    return config


def _the_only(found: "Sequence[FoundModel]") -> "FoundModel":
    """Return the model, if there is one alone. Nothing is saved: nobody has been asked."""
    first, *others = found
    if others:
        listed = [f"{_option(model)} ({model.because})" for model in found[:NAMED]]
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        raise ConfigError(f"no model is set, and several are found: pass one of {', '.join(listed)}{more}")
    tell(f"note: no model is set: using {visible(first.model)}, as {first.because} (--model names another)")
    return first


def _option(model: "FoundModel") -> str:
    return f"--model {visible(model.model)}" + (f" --base-url {model.base_url}" if model.base_url else "")


def _chosen(found: "Sequence[FoundModel]") -> "FoundModel":
    from freeact_sub.terminal.listing import Chooser, Row, choose  # noqa: PLC0415

    terminal = asking_terminal()
    if terminal is None:
        raise ConfigError("nobody is there to choose a model: pass --model PROVIDER:NAME")
    rows = [Row(value=str(at), text=model.model, note=model.because) for at, model in enumerate(found)]
    chooser = Chooser("model: ", lambda: rows, takes="takes it", none="none is found")
    index = choose(chooser, terminal, draws=can_draw(terminal), head=HEAD)
    if index is None:
        raise ConfigError("no model was chosen: pass --model PROVIDER:NAME, or start again")
    model = found[int(index)]
    try:
        file = save_own({"model": model.model, "base_url": model.base_url})
        print(fitted(f"model {visible(model.model)}, saved in {file}", terminal), file=terminal)
    except ConfigError as error:
        tell(f"note: not saved: {error}; next time pass {_option(model)}")
    return model


def save_own(settings: Mapping[str, str | None]) -> Path:
    """Save settings of the top level for all workspaces; return the file. Args: settings: None removes one.

    Raises:
        ConfigError: The file cannot be read or written.
    """
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    from freeact_sub.config.schema import CONFIG_FILE, user_folder  # noqa: PLC0415
    from freeact_sub.system.safe_files import locked_folder, read_file, replace_file  # noqa: PLC0415

    file = user_folder() / CONFIG_FILE.name
    try:
        with locked_folder(file.parent):
            content = read_file(file) if os.path.lexists(file) else b""
            replace_file(file, changed(content, settings), mode=0o600)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from error
    except (ValueError, TOMLKitError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from error
    return file


def changed(content: bytes, settings: Mapping[str, str | None]) -> bytes:
    """Return the content of a TOML file with other settings at its top level; comments and order stay.

    Raises:
        ValueError: The content is no text.
        TOMLKitError: It is no TOML.
    """
    import tomlkit  # noqa: PLC0415

    from freeact_sub.config.parsing import text_of_file  # noqa: PLC0415

    document = tomlkit.parse(text_of_file(content))
    for name, value in settings.items():
        if value is None:
            document.pop(name, None)
        else:
            document[name] = value
    return tomlkit.dumps(document).encode()


def with_project_python(config: "Config", options: argparse.Namespace, *, may_refuse: bool = False) -> "Config":
    """Return the settings, with the project's Python as `kernel.python` unless one is set. May ask, and install ipykernel.

    Args:
        config: The settings.
        options: The options of the command line.
        may_refuse: Without a person, a project's Python that is made for cells, and that nobody has agreed to, is an error:
            in another one the project's packages would be missing. Otherwise it is a note.

    Raises:
        ConfigError: The project's Python is refused.
    """
    from freeact_sub.config.schema import ON_THIS_MACHINE  # noqa: PLC0415  # slow to import

    if config.kernel.provider not in ON_THIS_MACHINE or "python" in config.kernel.model_fields_set:
        return config
    if problem := gone(os.environ):
        tell(f"note: {visible(problem)}")
    found = find_project_python(config.workspace, os.environ)
    if found is None:
        return config
    terminal = None if config.headless is not None else asking_terminal()
    choice = _PythonChoice(found, config.workspace, terminal, trusted=hasattr(options, "trust"))
    if not choice.made(may_refuse=may_refuse):
        return config
    kernel = config.kernel.model_copy(update={"python": found.python})
    return config.model_copy(update={"kernel": kernel})


def agreed_python(config: "Config") -> str | None:
    """Return the project's Python, if cells may run in it unasked. Asks nobody, and runs nothing."""
    found = None if "python" in config.kernel.model_fields_set else find_project_python(config.workspace, os.environ)
    if found is None:
        return None
    kept = _PythonChoice(found, config.workspace, None, trusted=False).kept()
    return found.python if kept in ("run", "install") or (kept is None and found.variable) else None


class _PythonChoice:
    """The choice whether cells run in an environment."""

    def __init__(self, found: ProjectPython, workspace: Path, terminal: TextIO | None, *, trusted: bool) -> None:
        from freeact_sub.config.schema import user_folder  # noqa: PLC0415  # slow to import

        self._found, self._terminal, self._trusted = found, terminal, trusted
        self._trust = Trust(user_folder())
        folder = found.folder
        self._name = visible(str(folder.relative_to(workspace) if folder.is_relative_to(workspace) else folder))

    def made(self, *, may_refuse: bool) -> bool:
        """Return the choice, after asking. Args: may_refuse: as for `with_project_python`."""
        kept = self.kept()
        if self._trusted and kept in (None, "no"):
            kept = "run"
            self._keep(kept)
        if kept is None and not self._found.variable:
            if self._terminal is None and may_refuse and "ipykernel" in self._found.packages:
                raise ConfigError(
                    f"this project has a Python for cells, {self._name}, and nobody has agreed to run it: add --trust to "
                    f"this command once, or run cells in another one (FREEACT_KERNEL__PYTHON={sys.executable})"
                )
            if self._terminal is None:
                tell(
                    f"note: {OURS}, not in {self._name}: nobody has agreed to run that one. Start freeact-sub in a "
                    "terminal, add --trust, or set kernel.python"
                )
                return False
            kept = self._ask()
        return kept != "no" and self._works(may_install=kept == "install")

    def _works(self, *, may_install: bool) -> bool:
        try:
            installed_in(self._found.python)
        except NoIpykernelError as error:
            return self._gets_ipykernel(str(error), may_install=may_install)
        except UnusablePythonError as error:
            return self._leaves_it(error)
        return True

    def _is_usable(self) -> bool:
        try:
            installed_in(self._found.python)
        except UnusablePythonError as error:
            return self._leaves_it(error)
        return True

    def _leaves_it(self, why: object) -> bool:
        tell(f"note: {OURS}: {why}")
        return False

    def _gets_ipykernel(self, why: str, *, may_install: bool) -> bool:
        command = self._install_command()
        if command is None:
            return self._leaves_it(why)
        shown = self._shown(command)
        if not may_install:
            if self._terminal is None:
                return self._leaves_it(f"{why} ({shown})")
            head = f"{self._title()} has no ipykernel, which cells need, and that of freeact-sub does not fit."
            if not self._says_yes(f"{head}\nInstall it there ({shown})? n: {OURS}."):
                self._keep("no")
                return False
            self._keep("install")
        tell(f"installing ipykernel in {self._name}: {shown}")
        try:
            # in the root folder: uv obeys files of the folder in which it starts
            ran = subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
            failed = f"`{shown}` ended with exit code {ran.returncode}" if ran.returncode else ""
        except OSError as error:
            failed = f"`{shown}` cannot be started: {error.strerror}"
        if failed:
            return self._leaves_it(failed)
        return self._is_usable()

    def _ask(self) -> Answer:
        """Ask whether cells may run in the environment. Nothing of it is run: all facts come from its files."""
        packages = self._found.packages
        has = packages_text(packages)
        lines = [f"This project has a Python of its own: {self._title()}{f', with {has}' if has else ''}."]
        ours = ".".join(map(str, sys.version_info[:2]))
        needs_install = "ipykernel" not in packages and not self._found.version.startswith(f"{ours}.")
        command = self._install_command() if needs_install else None
        if command is not None:
            lines.append(f"It has no ipykernel, which cells need: y installs it there ({self._shown(command)}).")
        answer: Answer = "no"
        if self._says_yes("\n".join([*lines, f"Run cells in it? n: {OURS}."])):
            answer = "run" if command is None else "install"
        self._keep(answer)
        return answer

    def _shown(self, command: list[str]) -> str:
        python = self._found.python
        return " ".join(f"{self._name}/bin/python" if word == python else Path(word).name for word in command)

    def _title(self) -> str:
        version = self._found.version
        return f"{self._name}{f' (Python {visible(version)})' if version else ''}"

    def _says_yes(self, question: str) -> bool:
        from freeact_sub.terminal.asking import agrees  # noqa: PLC0415  # slow to import

        return agrees(question, self._terminal)

    def _install_command(self) -> list[str] | None:
        """Return the command with its pip, else with uv; neither is known to reach a registry."""
        if "pip" in self._found.packages:
            return [self._found.python, "-I", "-m", "pip", "install", "--quiet", "ipykernel"]
        uv = shutil.which("uv")
        return None if uv is None else [uv, "pip", "install", "--python", self._found.python, "ipykernel"]

    def kept(self) -> Answer | None:
        """Return the answer that counts for the environment as it is now."""
        answers: tuple[Answer, ...] = ("run", "install", "no")
        return next((answer for answer in answers if self._trust.knows(self._found.folder, self._content(answer))), None)

    def _keep(self, answer: Answer) -> None:
        try:
            self._trust.add({self._found.folder: self._content(answer)})
        except ConfigError as problem:
            tell(f"note: {problem}")

    def _content(self, answer: Answer) -> bytes:
        return f"{answer}\n".encode() + self._found.identity()
