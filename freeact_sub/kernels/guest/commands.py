"""Shows the start of a program as the command that a shell would read.

Runs in kernels: standard library only.
"""

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from typing import Any

SHELLS = {folder + name for folder in ("", "/bin/", "/usr/bin/") for name in ("sh", "bash", "dash")}
TELLING = re.compile(
    r"(LD_|DYLD_|PYTHON|GIT_|BASH|SHELL|PERL|RUBY|NODE_|SSL_|SSH_|XDG_|LESS|RIPGREP_).*|ENV|IFS|HOME|VISUAL|BROWSER|GLOBIGNORE"
    r"|.*(PATH|PAGER|EDITOR|PROXY|_proxy|OPTIONS|OPTS?|MAKEFLAGS|_RSH)"
)
"""Variables that change what a program loads, runs or talks to."""

PROTECTING = re.compile("GIT_(CONFIG_COUNT|NO_LAZY_FETCH|PAGER)")
"""Variables that keep git from starting what the settings of a folder name; a program without them is shown as one."""


def shown(words: list[str], script: str | None, env: Any, known: Mapping[str, str]) -> str:
    """Return the command that starts a program; a shell's own command as it is.

    Args:
        words: The program and its arguments.
        script: What it gets as its input, as far as that is known.
        env: Its environment.
        known: The environment that the kernel was started with.
    """
    assigned = _assigned(env, known)
    is_shell = words[0] in SHELLS and not assigned
    if is_shell and len(words) == 3 and words[1] == "-c":
        return words[2]
    if is_shell and len(words) == 1 and script is not None:
        return script
    command = " ".join([*assigned, shlex.join(words)])
    return command + (f" <<'END_OF_SCRIPT'\n{script}\nEND_OF_SCRIPT" if script is not None else "")


def is_posix(program: str) -> bool:
    """Whether a shell is another one than bash, which reads some texts in other ways."""
    return program in SHELLS and os.path.basename(os.path.realpath(shutil.which(program) or program)) != "bash"


def _assigned(env: Any, known: Mapping[str, str]) -> list[str]:
    """The variables that matter: those the kernel was not started with, and missing ones that protect git."""
    new = {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
    changed = [name for name, value in new.items() if TELLING.fullmatch(name) and known.get(name) != value]
    gone = sorted(name for name in known if PROTECTING.fullmatch(name) and name not in new)
    without = ["env", *(f"-u {name}" for name in gone)] if gone else []
    return [*(f"{name}={shlex.quote(new[name])}" for name in changed), *without]
