"""Workspaces with code that somebody runs later outside of the wall, each in another place."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import freeact_sub

TESTS = Path(__file__).parents[1]
OURS = Path(freeact_sub.__file__).parents[1]


def environment(folder: Path, *sources: Path, python: str = sys.executable) -> Path:
    """A virtual environment with our package, in editable form, and the packages it needs; it imports from the sources too."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "ours.pth").write_text(
        f"{sysconfig.get_path('purelib')}\n{OURS}\n" + "".join(f"{path}\n" for path in sources)
    )
    return folder


@dataclass(frozen=True, kw_only=True)
class Place:
    """A workspace with code that somebody runs later."""

    python: Path | None = None
    """Runs the host. None: the one of `.venv`."""
    files: Sequence[Path] = ()
    folders: Sequence[Path] = ()
    missing: Sequence[Path] = ()
    """Must not be made."""
    env: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the kernel; `servers` are MCP servers."""
    script: Path = TESTS / "support/later_code.py"
    """The host's program."""
    is_open: bool = False
    """Something cannot be kept: a notice says so."""
    sources: Path | None = None
    """A notice says that code cannot change these."""


PLACES: dict[str, Callable[[Path, Path], Place]] = {}
"""Each makes a place in an empty workspace, whose parent folder is empty as well. The second argument is a Python elsewhere."""


def place(make):
    PLACES[make.__name__.replace("_", " ")] = make
    return make


def packages_of(env: Path) -> Path:
    [packages] = env.glob("lib/python*/site-packages")
    return packages


def made(*paths: Path) -> None:
    """Makes empty files."""
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def copy_of_ours(folder: Path, env: Path) -> None:
    """Our package in editable form, from a checkout of its own."""
    shutil.copytree(OURS / "freeact_sub", folder / "freeact_sub")
    (packages_of(env) / "ours.pth").write_text(f"{folder}\n{sysconfig.get_path('purelib')}\n")


@place
def environment_of_the_project(w, python):
    env = environment(w / ".venv", w / "src")
    made(w / "src/pkg/__init__.py")
    packages = packages_of(env)
    return Place(
        files=[env / "bin/python", packages / "ours.pth", env / "pyvenv.cfg", w / "src/pkg/__init__.py"],
        folders=[env, env / "bin", packages, w / "src", w / "src/pkg"],
        missing=[packages / "x.pth", w / "src/sitecustomize.py", env / "lib/python3.99/site-packages/x.pth"],
        sources=w / "src",
    )


@place
def environment_that_is_a_link(w, python):
    env = environment(w / "envs/a")
    (w / ".venv").symlink_to("envs/a")
    return Place(files=[w / ".venv", w / ".venv/bin/python"], folders=[env, packages_of(env)])


@place
def environment_that_is_the_workspace(w, python):
    environment(w)
    return Place(
        python=w / "bin/python", files=[w / "pyvenv.cfg", w / "bin/python"], folders=[w / "bin", w / "lib", packages_of(w)]
    )


@place
def environment_in_a_project(w, python):
    env = environment(w / "sub")
    made(env / "pyproject.toml")
    return Place(python=python, files=[env / "pyvenv.cfg", env / "bin/python"], folders=[env / "bin", packages_of(env)])


@place
def environments_that_nobody_names(w, python):
    env, conda = environment(w / "deep/er/env"), w / "envs/c"
    made(conda / "conda-meta/history", conda / "bin/python", conda / "lib/python3.11/site-packages/a.py")
    return Place(
        python=python,
        files=[env / "bin/python", conda / "bin/python"],
        folders=[env, packages_of(env), conda, conda / "bin", conda / "conda-meta"],
        missing=[conda / "pyvenv.cfg"],
    )


@place
def base_of_an_environment(w, python):
    base = w / "py"
    (base / "bin").mkdir(parents=True)
    (base / "lib").symlink_to(Path(sys.base_prefix) / "lib")
    shutil.copy(os.path.realpath(sys.executable), base / "bin/python3")
    env = environment(w / ".venv", python=base / "bin/python3")
    return Place(
        files=[base / "bin/python3", base / "lib", env / "bin/python"], folders=[base, base / "bin", packages_of(env)]
    )


@place
def python_of_the_kernel(w, python):
    env = environment(w / "k", w / "lib")
    made(w / "lib/a.py")
    folders = [env, packages_of(env), w / "lib"]
    return Place(python=python, files=[env / "bin/python"], folders=folders, settings={"python": env / "bin/python"})


@place
def search_path_of_the_kernel(w, python):
    made(w / "lib/a.py")
    settings = {"env": {"PYTHONPATH": str(w / "lib"), "PATH": os.environ["PATH"]}}
    return Place(python=python, files=[w / "lib/a.py"], folders=[w / "lib"], settings=settings)


@place
def editable_checkout(w, python):
    env, ours = environment(w / ".venv"), w / "repo/freeact_sub"
    copy_of_ours(w / "repo", env)
    files = [ours / "system/guard.py", ours / "kernels/wall/wall.py"]
    return Place(files=files, folders=[w / "repo", ours, ours / "system"], missing=[w / "repo/json.py"])


@place
def editable_checkout_that_is_the_workspace(w, python):
    copy_of_ours(w, environment(w / ".venv"))
    made(w / "sitecustomize.py")
    files = [w / "freeact_sub/system/guard.py", w / "sitecustomize.py"]
    return Place(files=files, folders=[w / "freeact_sub", w / "freeact_sub/kernels"], is_open=True)


@place
def workspace_in_an_editable_checkout(w, python):
    env = environment(w.parent / ".venv")
    copy_of_ours(w.parent, env)
    return Place(
        python=env / "bin/python",
        files=[w.parent / "freeact_sub/system/guard.py"],
        folders=[w.parent / "freeact_sub", env, packages_of(env)],
        settings={"writable": [w.parent]},
        is_open=True,
    )


@place
def editable_modules_and_namespaces(w, python):
    env = environment(w / ".venv")
    made(w / "mods/one.py", w / "ns/a.py")
    finder = f"MAPPING: dict[str, str] = {{'one': {str(w / 'mods/one')!r}}}\nNAMESPACES: dict[str, list[str]] = {{'n': [{str(w / 'ns')!r}]}}\n"
    (packages_of(env) / "__editable___x_finder.py").write_text(finder)
    return Place(files=[w / "mods/one.py"], folders=[w / "mods", w / "ns"])


@place
def source_that_does_not_exist(w, python):
    environment(w / ".venv", w / "src")
    return Place(is_open=True)


@place
def writable_folder_around_an_environment(w, python):
    env = environment(w.parent / "tools/env")
    settings = {"writable": [w.parent / "tools"]}
    return Place(python=env / "bin/python", files=[env / "pyvenv.cfg"], folders=[env, packages_of(env)], settings=settings)


@place
def writable_folder_that_is_an_environment(w, python):
    env = environment(w.parent / "tools/env")
    files, folders = [env / "bin/python", env / "pyvenv.cfg"], [env / "bin", packages_of(env)]
    return Place(python=env / "bin/python", files=files, folders=folders, settings={"writable": [env]})


@place
def writable_folder_in_an_environment(w, python):
    env = environment(w.parent / "tools/env")
    packages = packages_of(env)
    return Place(
        python=env / "bin/python", files=[packages / "ours.pth"], folders=[packages], settings={"writable": [packages]}
    )


def served(w: Path, python: Path, files: Sequence[Path], folders: Sequence[Path] = (), **server: Any) -> Place:
    return Place(python=python, files=files, folders=folders, settings={"servers": {"a": server}})


@place
def script_of_a_server(w, python):
    made(w / "tools/server.py", w / "tools/helper.py")
    files = [w / "tools/server.py", w / "tools/helper.py"]
    return replace(
        served(w, python, files, [w / "tools"], command="python", args=[str(files[0])]), missing=[w / "tools/json.py"]
    )


@place
def scripts_of_a_server_by_a_shell(w, python):
    made(w / "a/server.py", w / "b/run.sh")
    return served(
        w,
        python,
        [w / "a/server.py", w / "b/run.sh"],
        [w / "a", w / "b"],
        command="bash",
        args=["-c", "python a/server.py; b/run.sh"],
    )


@place
def script_of_a_server_in_the_workspace_itself(w, python):
    made(w / "server.py")
    return replace(served(w, python, [w / "server.py"], command="python", args=["server.py"]), is_open=True)


@place
def isolated_script_of_a_server(w, python):
    made(w / "server.py")
    return served(w, python, [w / "server.py"], command="python", args=["-P", "server.py"])


@place
def module_of_a_server(w, python):
    made(w / "srv/mine/__init__.py")
    return served(
        w,
        python,
        [w / "srv/mine/__init__.py"],
        [w / "srv"],
        command="python",
        args=["-m", "mine.server"],
        cwd=str(w / "srv"),
    )


@place
def module_of_a_server_by_its_search_path(w, python):
    made(w / "lib/mine/__init__.py")
    return served(
        w,
        python,
        [w / "lib/mine/__init__.py"],
        [w / "lib"],
        command="python",
        args=["-Pm", "mine"],
        env={"PYTHONPATH": str(w / "lib")},
    )


@place
def command_of_a_server_whose_environment_is_here(w, python):
    env, command = environment(w / "deep/env", w / "its-src"), w.parent / "bin/tool"
    made(w / "its-src/a.py", command)
    command.write_text(f"#!{env}/bin/python\n")
    command.chmod(0o755)
    return served(w, python, [env / "bin/python"], [env, packages_of(env), w / "its-src"], command=str(command))


@place
def modules_of_node(w, python):
    program = w / "node_modules/srv/dist/index.js"
    made(program)
    program.chmod(0o755)
    (w / "node_modules/.bin").mkdir()
    (w / "node_modules/.bin/srv").symlink_to("../srv/dist/index.js")
    return served(w, python, [program, w / "node_modules/.bin/srv"], [w / "node_modules"], command="node_modules/.bin/srv")


@place
def server_that_obeys_its_folder(w, python):
    return replace(served(w, python, [], command="npx", args=["-y", "x"]), is_open=True)


@place
def server_that_does_not_exist(w, python):
    return replace(served(w, python, [], command=str(w / ".venv/bin/server")), is_open=True)


@place
def folder_of_programs(w, python):
    made(w / "bin/git-x", w / "t/real")
    (w / "bin/linked").symlink_to("../t/real")
    path = {"PATH": f"{w}/bin:{os.environ['PATH']}"}
    return Place(
        python=python, files=[w / "bin/linked", w / "t/real"], folders=[w / "bin"], missing=[w / "bin/git"], env=path
    )


@place
def folder_of_programs_that_does_not_exist(w, python):
    return Place(python=python, env={"PATH": f"{w}/bin:{os.environ['PATH']}"}, is_open=True)


@place
def bytecode_elsewhere(w, python):
    made(w / "cache/a")
    return Place(python=python, folders=[w / "cache"], env={"PYTHONPYCACHEPREFIX": str(w / "cache")})


@place
def program_that_uses_us(w, python):
    made(w / "app/helper.py")
    shutil.copy(TESTS / "support/later_code.py", w / "app/run.py")
    return Place(python=python, files=[w / "app/run.py", w / "app/helper.py"], folders=[w / "app"], script=w / "app/run.py")


@place
def files_that_variables_name(w, python):
    names = {
        "GIT_SSH_COMMAND": "a/ssh -v",
        "BASH_ENV": "a/env",
        "NODE_OPTIONS": "--require=a/hook.js",
        "EDITOR": "a/edit --wait",
    }
    files = [w / "a/ssh", w / "a/env", w / "a/hook.js", w / "a/edit"]
    made(*files)
    return Place(python=python, files=files, env={name: value.replace("a/", f"{w}/a/") for name, value in names.items()})


@place
def folders_that_variables_name(w, python):
    made(w / "git-core/git-x", w / "libs/a.so")
    env = {"GIT_EXEC_PATH": str(w / "git-core"), "LD_LIBRARY_PATH": str(w / "libs")}
    return Place(python=python, folders=[w / "git-core", w / "libs"], env=env)


@place
def writable_folder_by_a_link(w, python):
    env = environment(w.parent / "tools/env")
    (w.parent / "link").symlink_to("tools")
    settings = {"writable": [w.parent / "link"]}
    folders = [env, packages_of(env), w.parent / "link/env/bin"]
    return Place(python=env / "bin/python", files=[env / "pyvenv.cfg"], folders=folders, settings=settings)


@place
def python_of_the_kernel_that_is_a_script(w, python):
    made(w / "own/python")
    (w / "own/python").write_text(f'#!/bin/sh\nexec {python} "$@"\n')
    (w / "own/python").chmod(0o755)
    return Place(python=python, files=[w / "own/python"], folders=[w / "own"], settings={"python": w / "own/python"})
