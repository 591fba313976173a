"""The command `freeact-sub doctor`: the abilities of this machine, and advice on the rest.

Most is looked at without starting anything; of kernels it starts one, copies it, and asks the system for the pieces of its
wall. Nothing leaves this machine: servers are asked on loopback only.
"""

import argparse
import asyncio
import logging
import os
import platform
import shutil
import socket
import sys
import tempfile
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from freeact_sub import __version__
from freeact_sub.cli.first_start import agreed_python
from freeact_sub.cli.streams import can_draw, print_line, write_out
from freeact_sub.config.schema import ON_THIS_MACHINE, Config, user_folder
from freeact_sub.errors import ConfigError, FreeactError, UnusablePythonError
from freeact_sub.extras import how_to_install, how_to_install_provider, is_installed
from freeact_sub.kernels.forkserver.fork_provider import ForkLauncher
from freeact_sub.kernels.kernel import Kernel, KernelProvider, KernelSpec, branching
from freeact_sub.kernels.local import LocalKernel
from freeact_sub.kernels.provider import make_provider
from freeact_sub.kernels.wall.remedies import apparmor_profile, remedy
from freeact_sub.kernels.wall.sandbox import policy_for, support, unenforced
from freeact_sub.kernels.wire.output import CellClock, CellOutputBuffer
from freeact_sub.models.build import EXAMPLES, LOCAL, SERVERS, FoundModel, check_name, missing_extra, models_of_servers
from freeact_sub.modes import MODES
from freeact_sub.pythons.about import installed_in, packages_text
from freeact_sub.pythons.project import find_project_python, gone
from freeact_sub.sessions.sqlite.database import problem_of
from freeact_sub.system import guard
from freeact_sub.system.process import state_folder
from freeact_sub.terminal.pictures import way_of
from freeact_sub.text import visible

State = Literal["works", "note", "limited", "missing"]
"""The state of a finding; `note`: something to know that nothing needs."""


@dataclass(frozen=True)
class Finding:
    """A finding of the doctor."""

    topic: str
    state: State
    text: str
    advice: str = ""
    """Help, in words."""
    command: str = ""
    """Help, as a command."""


MARKS: Final[dict[State, tuple[str, str, str]]] = {
    "works": ("✓", "+", "\x1b[32m"),
    "note": ("·", "-", "\x1b[2m"),
    "limited": ("!", "!", "\x1b[33m"),
    "missing": ("✗", "x", "\x1b[1;31m"),
}
"""Marks of each state: the mark, an ASCII substitute, and its colour."""
WIDEST: Final = 100
"""Characters of a line."""
TOPIC: Final = 10
"""Characters of the column of topics."""
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
CONNECT_SECONDS: Final = 1.0
NAMED: Final = 4
"""Models that a line names, at most."""
PACKAGES: Final = {"notebook": "ipywidgets", "acp": "acp", "gateway": "websockets", "web": "starlette"}
"""Packages of our extras, one of each; pictures have a line of their own."""
CELL_SECONDS: Final = 60.0
CODE: Final = "6 * 7"
ANSWER: Final = "42"
ADVICE: Final = (
    "they need Linux with Landlock, seccomp and mount namespaces; a container may forbid them. "
    "`--sandbox required` starts nothing without them"
)

DAEMONS: Final = "end yourself the daemons that cells start: this system lists no processes, so nobody else can"


def examine(options: argparse.Namespace, settings: Callable[..., Config]) -> int:
    """Print the findings. Return the exit status: 0 if agents can work here, else 1."""
    config = settings(looking=True)
    if options.apparmor:
        write_out(apparmor_profile(pythons(config, agreed_python(config))))
        return 0
    print_line(f"freeact-sub {__version__} · Python {platform.python_version()} · {platform.system()} {platform.release()}")
    print_line(f"in {config.workspace}\n")
    findings = []
    for finding in found(config):
        findings.append(finding)
        show(finding)
        sys.stdout.flush()  # a kernel takes a moment
    print_line(f"\n{summary(findings)}")
    return 1 if any(finding.state == "missing" for finding in findings) else 0


def found(config: Config) -> Iterator[Finding]:
    """Yield all findings, one after the other."""
    yield from check_model(config, os.environ)
    agreed = agreed_python(config)
    yield check_python(config, agreed, os.environ)
    if agreed:
        config = config.model_copy(update={"kernel": config.kernel.model_copy(update={"python": agreed})})
    if config.kernel.provider in ON_THIS_MACHINE:
        yield from asyncio.run(check_kernels(config))
    else:
        advice = "freeact-sub gateway check URL" if config.kernel.provider == "gateway" else ""
        yield Finding("kernels", "note", f"of the provider {config.kernel.provider}; none was started", advice)
    yield from check_machine(config, os.environ)
    yield check_packages()


def show(finding: Finding) -> None:
    """Print a finding: its mark, its topic, its text, and below it the advice."""
    draws = can_draw(sys.stdout)
    mark, plain, colour = MARKS[finding.state]
    if not can_write(mark):
        mark = plain
    if draws and "NO_COLOR" not in os.environ:
        mark = f"{colour}{mark}\x1b[0m"
    width = min(shutil.get_terminal_size().columns if draws else WIDEST, WIDEST)
    first, *others = lines_of(finding, width)
    write_out(f"{mark} {first}\n")
    for line in others:
        write_out(f"{line}\n")


def lines_of(finding: Finding, width: int) -> list[str]:
    """Return the lines of a finding; the first is without its mark. A command stands on a line of its own, to be copied."""
    indent = " " * (TOPIC + 3)
    text_width = max(20, width - len(indent) - 1)
    text = textwrap.wrap(visible(finding.text), text_width, break_on_hyphens=False)
    helps = textwrap.wrap(visible(finding.advice), text_width - 2, break_on_hyphens=False, break_long_words=False)
    arrow = "→" if can_write("→") else "->"
    advice = [f"{indent}{arrow if number == 0 else ' ' * len(arrow)} {line}" for number, line in enumerate(helps)]
    if finding.command:
        advice.append(f"{indent}    {visible(finding.command)}")
    return [f"{finding.topic:<{TOPIC}} {text[0]}", *(f"{indent}{line}" for line in text[1:]), *advice]


def can_write(character: str) -> bool:
    """Return whether standard output can encode the character."""
    try:
        character.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def summary(findings: Sequence[Finding]) -> str:
    """Return the last line."""
    missing = [finding.topic for finding in findings if finding.state == "missing"]
    limited = list(dict.fromkeys(finding.topic for finding in findings if finding.state == "limited"))
    if missing:
        return f"Agents cannot work here yet: see {', '.join(missing)}."
    if limited:
        return f"Agents can work here, with limits: see {', '.join(limited)}."
    return "Agents can work here."


def check_model(config: Config, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the model of the settings, or the models to choose from; then all keys and local servers."""
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
    """Return whether models of a provider take another one's key."""
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
    """Return the finding on the Python that runs cells. Args: agreed: the project's, if a person has agreed to run it."""
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
    """Yield findings on pictures in the terminal, undo of files, and the places of settings and sessions."""
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
    """Return whether the folder can be written into, or can be made."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def check_packages() -> Finding:
    """Return the finding on our extras."""
    installed = [extra for extra, package in PACKAGES.items() if is_installed(package)]
    others = [extra for extra in PACKAGES if extra not in installed]
    text = f"installed: {', '.join(installed) or 'none'}" + (f"; not installed: {', '.join(others)}" if others else "")
    return Finding("extras", "note", text, command=how_to_install(others[0]) if others else "")


async def check_kernels(config: Config) -> list[Finding]:
    """Try a kernel in the mode of the settings, a copy of it, and the wall of each mode."""
    with tempfile.TemporaryDirectory(prefix="freeact-doctor-") as folder, _warnings() as warnings:
        # a folder of its own: kernels find an empty workspace, and yours stays as it is
        provider = make_provider(config.kernel, on_notice=lambda _: None)
        try:
            findings = await _started(config, provider, Path(folder), warnings)
        finally:
            await provider.aclose()
    return [*findings, *walls(config)]


async def _started(config: Config, provider: KernelProvider, folder: Path, warnings: list[str]) -> list[Finding]:
    try:
        place = provider.place(config.mode, config.kernel, folder)
        spec = KernelSpec(
            owner_id="doctor",
            python=config.kernel.python,
            workspace=folder,
            environment=place.environment,
            start_timeout_seconds=config.kernel.start_timeout_seconds,
            mode=config.mode,
            sandbox=place.wall,
        )
        first, kernel = await _timed(provider, spec)
        async with _closing(kernel):
            second, another = await _timed(provider, spec)
            await another.aclose()
            return [_kernels(kernel, first, second, warnings), await _branches(kernel, spec)]
    except FreeactError as error:
        return [Finding("kernels", "missing", f"none starts in mode {config.mode}: {error}")]


async def _timed(provider: KernelProvider, spec: KernelSpec) -> tuple[float, Kernel]:
    """Start a kernel and run a cell; return the seconds until then, and the kernel."""
    began = time.monotonic()
    kernel = await provider.start(spec, _refuse)
    try:
        await _check_cell(kernel)
    except BaseException:
        await kernel.aclose()
        raise
    return time.monotonic() - began, kernel


def _kernels(kernel: Kernel, first: float, second: float, warnings: list[str]) -> Finding:
    text = f"the first one ran a cell after {first:.2f} s, the second one after {second:.2f} s"
    if isinstance(kernel, LocalKernel) and isinstance(kernel.launcher, ForkLauncher):
        return Finding("kernels", "works", f"{text}, forked by a fork server")
    advice = "" if guard.children() is not None else DAEMONS
    return Finding("kernels", "limited", f"{text}; {warnings[0] if warnings else 'there is no fork server'}", advice)


async def _branches(kernel: Kernel, spec: KernelSpec) -> Finding:
    """Copy the kernel, at first together with its files."""
    reasons = []
    for own_files, what in ((True, "with its files"), (False, "without its files")):
        began = time.monotonic()
        try:
            async with _closing(await branching(kernel).branch(replace(spec, own_files=own_files), _refuse)) as branch:
                await _check_cell(branch)
        except FreeactError as error:
            reasons.append(str(error))
        else:
            text = f"a live kernel was copied {what} in {time.monotonic() - began:.1f} s"
            return Finding("branches", "limited" if reasons else "works", "; ".join([text, *reasons]))
    return Finding("branches", "limited", f"a live kernel cannot be copied: {reasons[-1]}")


async def _check_cell(kernel: Kernel) -> None:
    """Run a cell. Raises: FreeactError: The kernel does not answer."""
    buffer = CellOutputBuffer()
    async with kernel.execute(CODE, buffer, CellClock(CELL_SECONDS)) as cell:
        await cell.reply()
    if ANSWER not in buffer.text:
        raise FreeactError(f"the kernel ran no code: {kernel.lost_reason or buffer.text or 'it printed nothing'}")


def pythons(config: Config, agreed: str | None = None) -> list[str]:
    """Return the Pythons that make walls: this one, and the one of kernels."""
    return [sys.executable, shutil.which(agreed or config.kernel.python) or sys.executable]


def walls(config: Config) -> Iterator[Finding]:
    """Yield the parts of the wall of each mode that this machine cannot hold; modes with equal gaps share a line."""
    machine = support()
    by_gaps: dict[tuple[str, ...], list[str]] = {}
    kernel = config.kernel.model_copy(update={"python": sys.executable})  # the one of the settings may not run
    for mode in MODES:
        if policy := policy_for(mode, kernel, config.workspace):
            by_gaps.setdefault(unenforced(policy, machine), []).append(mode)
    if not by_gaps:
        yield Finding("wall", "limited", "none is built: `kernel.sandbox` is `off`")
    for gaps, modes in by_gaps.items():
        where = f"in {', '.join(modes)}"
        if gaps:
            reason = f" ({machine.reason})" if machine.reason else ""
            advice = "" if machine.landlock and machine.seccomp and machine.view_error else ADVICE
            yield Finding("wall", "limited", f"{where} it does not hold {'; '.join(gaps)}{reason}", advice)
        else:
            yield Finding("wall", "works", f"all of it holds {where}")
    if by_gaps and machine.view_error:
        found = remedy(machine.view_error, pythons(config))
        yield Finding("namespaces", "limited", f"closed: {found.cause}", found.advice, found.command)


async def _refuse(method: str, params: Mapping[str, Any], clock: CellClock | None) -> Any:
    """Refuse a request: no code of the doctor asks its host."""
    del params, clock
    raise FreeactError(f"nothing answers {method} here")


@asynccontextmanager
async def _closing(kernel: Kernel) -> AsyncIterator[Kernel]:
    try:
        yield kernel
    finally:
        await kernel.aclose()


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Collect warnings of the log about kernels, such as why they are not forked."""
    heard: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    listener, logger = Listener(logging.WARNING), logging.getLogger("freeact_sub.kernels")
    logger.addHandler(listener)
    try:
        yield heard
    finally:
        logger.removeHandler(listener)
