"""The cause why a machine refuses the namespaces of the wall's view, and the one remedy for it, as its own files tell.

A kernel's process makes these namespaces itself (`view.new_namespaces`): the Python that runs cells, in the fork server or
as `wall.py`; for all but root a namespace for users is among them. Linux says only that it refuses, so each thing that can
be the cause is looked at where Linux keeps it.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROFILE: Final = "freeact-sub"
PROFILE_FILE: Final = f"/etc/apparmor.d/{PROFILE}"
SYSCTL_FILE: Final = f"/etc/sysctl.d/99-{PROFILE}.conf"
SWITCHES: Final = {
    "user.max_user_namespaces": 16384,
    "user.max_mnt_namespaces": 16384,
    "user.max_ipc_namespaces": 16384,
    "kernel.unprivileged_userns_clone": 1,
}
"""Settings of Linux that close namespaces with the value 0, and a value that opens them."""
CONTAINER_MARKS: Final = (".dockerenv", "run/.containerenv")
"""Files that Docker and Podman put into containers."""


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """A cause, and the remedy for it."""

    cause: str
    advice: str
    command: str = ""


def remedy(error: int, pythons: Iterable[str], root: Path = Path("/")) -> Remedy:
    """Return the remedy for refused namespaces. Blocks.

    Args:
        error: The number of the error that Linux gave.
        pythons: The Pythons that run cells.
        root: The folder that has the files of the system.
    """
    if "-Microsoft" in _read(root, "proc/version"):  # WSL 2 writes it small
        command = "wsl --set-version DISTRIBUTION 2"
        return Remedy(cause="WSL 1 has none", advice="in Windows, change to WSL 2 (`wsl --list` names it)", command=command)
    overlay = re.search(r" / / .* - overlay ", _read(root, "proc/self/mountinfo"))
    is_container = overlay is not None or any((root / mark).exists() for mark in CONTAINER_MARKS)
    for name, value in SWITCHES.items():
        if _read(root, f"proc/sys/{name.replace('.', '/')}") == "0":
            return _of_switch(name, value, is_container)
    restricts = _read(root, "proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1"
    around = _around(root)
    if around and not is_container:
        advice = "start freeact-sub from a plain terminal; a service of systemd needs RestrictNamespaces=no"
        return Remedy(cause=f"{around}, which this program has inherited, refuses them", advice=advice)
    if around or (restricts and is_container):
        return _of_container(around or "AppArmor of the container's host", restricts)
    if restricts:
        files = " and ".join(real_paths(pythons))
        return Remedy(
            cause="AppArmor closes them to programs without a profile (kernel.apparmor_restrict_unprivileged_userns is 1)",
            advice=f"install a profile as {PROFILE_FILE}; it lets all programs of {files} make them:",
            command=f"freeact-sub doctor --apparmor | sudo tee {PROFILE_FILE} && sudo apparmor_parser -r {PROFILE_FILE}",
        )
    if (root / "proc/self").exists() and not (root / "proc/self/ns/user").exists():
        return Remedy(cause="this Linux was built without them (CONFIG_USER_NS)", advice="start a Linux that has them")
    reason = "it does not say why" if error == 255 else os.strerror(error)
    advice = "ask whoever runs this machine: a container, a service or a security module may do so, or a Linux before 5.12"
    return Remedy(cause=f"Linux refuses them: {reason}", advice=advice)


def apparmor_profile(pythons: Iterable[str]) -> str:
    """Return the text of an AppArmor profile that lets these Pythons make namespaces, and restricts nothing.

    AppArmor knows a program by the path of its file. The Python of an environment is mostly a link to one for all.
    """
    names = [re.sub(r'([\\"*?\[\]{}^,@])', r"\\\1", path) for path in real_paths(pythons)]
    path = names[0] if len(names) == 1 else f"/{{{','.join(name[1:] for name in names)}}}"
    return f"""# Lets the Pythons that run cells of freeact-sub make the namespaces of its wall. It restricts nothing.
# All programs of these Pythons may then make them.
abi <abi/4.0>,
include <tunables/global>

profile {PROFILE} "{path}" flags=(unconfined) {{
  userns,
  include if exists <local/{PROFILE}>
}}
"""


def real_paths(pythons: Iterable[str]) -> list[str]:
    """Return the files of these Pythons, without links."""
    return sorted({os.path.realpath(python) for python in pythons})


def _of_switch(name: str, value: int, is_container: bool) -> Remedy:
    where = "on the container's host, " if is_container else ""
    return Remedy(
        cause=f"the setting {name} of Linux is 0",
        advice=f"{where}set it in {SYSCTL_FILE}, for all programs of this machine:",
        command=f"echo '{name} = {value}' | sudo tee {SYSCTL_FILE} && sudo sysctl --system",
    )


def _of_container(what: str, restricts: bool) -> Remedy:
    advice = (
        "start the container with these options (in Kubernetes: seccompProfile and appArmorProfile of type Unconfined); "
        "all its programs are then without its filter and its profile:"
    )
    if restricts:
        where = f"as {PROFILE_FILE} of its host, and load it there"
        advice = f"write the profile that `freeact-sub doctor --apparmor` prints {where}. Then {advice}"
    profile = PROFILE if restricts else "unconfined"
    command = f"docker run --security-opt seccomp=unconfined --security-opt apparmor={profile} ..."
    return Remedy(cause=f"{what} refuses them", advice=advice, command=command)


def _around(root: Path) -> str:
    """Return the thing around this program that may refuse system calls. Empty: there is none."""
    if re.search(r"^Seccomp:\s*2$", _read(root, "proc/self/status"), re.MULTILINE):
        return "a filter of system calls (seccomp)"
    profile = re.fullmatch(r"(.+) \(enforce\)", _read(root, "proc/self/attr/current"))
    return f"the AppArmor profile `{profile[1]}`" if profile else ""


def _read(root: Path, path: str) -> str:
    try:
        return (root / path).read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    except OSError:
        return ""
