"""What `freeact-sub doctor` finds out by starting a kernel, copying it, and asking the system for the pieces of its wall."""

import logging
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from freeact_sub.cli.doctor_checks import Finding
from freeact_sub.config.schema import Config
from freeact_sub.errors import FreeactError
from freeact_sub.kernels.forkserver.launchers import ForkLauncher
from freeact_sub.kernels.kernel import Kernel, KernelProvider, KernelSpec, branching
from freeact_sub.kernels.local import LocalKernel
from freeact_sub.kernels.provider import make_provider
from freeact_sub.kernels.wall.sandbox import policy_for, support, unenforced
from freeact_sub.kernels.wire.output import CellClock, CellOutputBuffer
from freeact_sub.modes import MODES

CELL_SECONDS: Final = 60.0
CODE: Final = "6 * 7"
ANSWER: Final = "42"
ADVICE: Final = (
    "they need Linux with Landlock, seccomp and mount namespaces; a container may forbid them. "
    "`--sandbox required` starts nothing without them"
)


async def check_kernels(config: Config) -> list[Finding]:
    """A kernel in the mode of the settings, a copy of it, and the wall of each mode."""
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
    """A kernel that has run a cell, and the seconds until then."""
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
    return Finding("kernels", "limited", f"{text}; {warnings[0] if warnings else 'there is no fork server'}")


async def _branches(kernel: Kernel, spec: KernelSpec) -> Finding:
    """Copies the kernel, at first together with its files."""
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
    """Runs a cell. Raises FreeactError if it does not answer."""
    buffer = CellOutputBuffer()
    async with kernel.execute(CODE, buffer, CellClock(CELL_SECONDS)) as cell:
        await cell.reply()
    if ANSWER not in buffer.text:
        raise FreeactError(f"the kernel ran no code: {kernel.lost_reason or buffer.text or 'it printed nothing'}")


def walls(config: Config) -> Iterator[Finding]:
    """The parts of the wall of each mode that this machine cannot hold; modes with the same ones share a line."""
    by_gaps: dict[tuple[str, ...], list[str]] = {}
    kernel = config.kernel.model_copy(update={"python": sys.executable})  # the one of the settings may not run
    for mode in MODES:
        if policy := policy_for(mode, kernel, config.workspace):
            by_gaps.setdefault(unenforced(policy, support()), []).append(mode)
    if not by_gaps:
        yield Finding("wall", "limited", "none is built: `kernel.sandbox` is `off`")
    for gaps, modes in by_gaps.items():
        where = f"in {', '.join(modes)}"
        if gaps:
            reason = f" ({support().reason})" if support().reason else ""
            yield Finding("wall", "limited", f"{where} it does not hold {'; '.join(gaps)}{reason}", ADVICE)
        else:
            yield Finding("wall", "works", f"all of it holds {where}")


async def _refuse(method: str, params: Mapping[str, Any], clock: CellClock | None) -> Any:
    """No code of the doctor asks its host."""
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
    """What the log says of kernels meanwhile, such as why they are not forked."""
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
