"""`obeyed`: names written files that other programs run or obey when a person uses the folder."""

from collections.abc import Collection
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Final

SHOWN: Final = 5


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES: Final = _words(
    """.envrc .env Makefile makefile GNUmakefile *.mk Justfile justfile Taskfile.y*ml Rakefile CMakeLists.txt package.json
    .npmrc .yarnrc* Cargo.toml build.rs build.gradle* pom.xml Gemfile composer.json Dockerfile* pyproject.toml setup.py
    setup.cfg conftest.py noxfile.py tox.ini tasks.py sitecustomize.py usercustomize.py *.pth .pre-commit-config.yaml
    .gitmodules .gitattributes .gitlab-ci.yml docker-compose*.y*ml compose*.y*ml .bashrc .bash_profile .profile .zshrc
    .tool-versions mise.toml Vagrantfile Jenkinsfile .mcp.json mcp.json"""
)
FOLDERS: Final = _words(".github .vscode .idea .husky .devcontainer .circleci .claude .cursor .git .venv")
"""Everything in these folders counts."""


def obeyed(written: Collection[str]) -> tuple[str, ...]:
    """Return a sentence for people, if there are such files. Args: written: names relative to the workspace."""
    found = [name for name in written if _is_obeyed(PurePath(name))]
    if not found:
        return ()
    more = f" and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
    return (
        f"other programs run or obey what was written: {', '.join(found[:SHOWN])}{more}: look at it before you use them",
    )


def _is_obeyed(path: PurePath) -> bool:
    return any(fnmatchcase(path.name, name) for name in NAMES) or any(part in FOLDERS for part in path.parts[:-1])
