"""The folders of a Python and of its packages. Runs in that Python; standard library only.

    python -E installed.py      print it as one JSON object, on a line of its own

Not `sys.path`: that also has the folder of a script and those of `PYTHONPATH`, with unrelated files.
"""

import ast
import json
import os
import platform
import re
import site
import sys
import sysconfig
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote, urlparse

PARTS = ("bin", "lib", "lib64", "libexec", "include", "share", "pyvenv.cfg")
"""Readable parts of the folder of a Python or a virtual environment; the folder itself may be somebody's project."""
BASE_PARTS = ("etc", "ssl")
"""Further readable parts of the folder of a Python: Conda keeps certificates and fonts there."""
MAX_CHARS = 10_000_000


def describe() -> dict[str, Any]:
    """Return the files and folders of Python (`own`), and the folders of packages installed elsewhere (`editable`).

    Also its `version`, its `abi` (the target of compiled modules), and the versions of its `packages`.
    """
    packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    if site.ENABLE_USER_SITE:
        packages.add(site.getusersitepackages())
    own = {sys.executable, sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), *packages}
    own |= {os.path.join(prefix, part) for prefix in (sys.prefix, sys.exec_prefix) for part in PARTS}
    bases = (sys.base_prefix, sys.base_exec_prefix)
    own |= {os.path.join(prefix, part) for prefix in bases for part in (*PARTS, *BASE_PARTS)}
    found = {os.path.abspath(path) for path in own if path and os.path.exists(path)}
    elsewhere = {os.path.abspath(path) for folder in packages for path in editable(folder)}
    own = {path for path in found if not is_in(os.path.dirname(path), found)}
    return {
        "own": sorted(own),
        "editable": sorted(path for path in elsewhere if not is_in(path, found)),
        "version": platform.python_version(),
        "abi": sysconfig.get_config_var("SOABI") or "",
        "packages": packages_in(path for path in sys.path if path != os.path.dirname(os.path.abspath(__file__))),
    }


def packages_in(folders: Iterable[str]) -> dict[str, str]:
    """Return the versions of the packages that are installed in the folders, by normalized name; the first folder wins."""
    found: dict[str, str] = {}
    for folder in folders:
        for entry in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            package = re.fullmatch(r"(.+?)-(\d[^-]*)(-.*)?\.(dist|egg)-info", entry)
            if package:
                found.setdefault(normalized(package[1]), package[2].replace("_", "-"))
    return found


def normalized(name: str) -> str:
    """Normalize the name of a package, so that all its spellings are equal."""
    return re.sub(r"[-_.]+", "-", name).lower()


def editable(folder: str) -> set[str]:
    """Return the outside folders that packages in a folder are imported from."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    named = {os.path.join(folder, path) for name in names for path in named_by(os.path.join(folder, name))}
    found = {path for path in named if os.path.isdir(path)}
    found |= {os.path.dirname(path) for path in named if os.path.isfile(f"{path}.py")}  # a module of one file
    for name in names:
        if name.endswith(".dist-info"):
            project = project_of(os.path.join(folder, name, "direct_url.json"))
            # a finder of another kind: it says nowhere what it needs, so it is the whole project
            if project and not any(is_in(path, {project}) for path in found):
                found.add(project)
    return found


def named_by(path: str) -> list[str]:
    """Return the folders that a `.pth` file adds to `sys.path`, or that a finder of setuptools maps names to."""
    if path.endswith(".pth"):
        lines = [line for line in read(path).splitlines() if not line.startswith(("#", "import ", "import\t"))]
        return [line.strip() for line in lines if line.strip()]
    if re.search(r"__editable__.*_finder\.py$", path):
        mappings = re.findall(r"^(?:MAPPING|NAMESPACES)[^=\n]*= (\{.*\})$", read(path), re.MULTILINE)
        try:
            targets = [target for mapping in mappings for target in ast.literal_eval(mapping).values()]
        except (ValueError, SyntaxError):
            return []
        return [str(path) for target in targets for path in (target if isinstance(target, list) else [target])]
    return []


def project_of(path: str) -> str:
    """Return the project that an editable package is installed from; empty: not editable."""
    try:
        content = json.loads(read(path))
        url = urlparse(content["url"])
        is_editable = content["dir_info"]["editable"] and url.scheme == "file"
    except (ValueError, KeyError, TypeError):
        return ""
    project = unquote(url.path)
    return project if is_editable and os.path.isdir(project) else ""


def read(path: str) -> str:
    """Read a text file; empty where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(MAX_CHARS)
    except OSError:
        return ""


def is_in(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path is one of the folders or below one."""
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


if __name__ == "__main__":
    print(f"\n{json.dumps(describe())}")
