"""Each command and setting whose optional package is missing says so in one sentence, with the command that installs it."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.cli import LIMIT_SECONDS, environment

from freeact_sub.extras import require_extra

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
HIDDEN = """
import sys
sys.modules.update(dict.fromkeys({packages!r}))  # as if they were not installed
from freeact_sub.cli import main
sys.exit(main({arguments!r}))
"""
MODEL = ["--model", "openai-chat:x", "--base-url", "http://127.0.0.1:9/v1"]
KEYS = {"ANTHROPIC_API_KEY": "x", "GOOGLE_API_KEY": "x"}
GATEWAY = {"FREEACT_KERNEL__PROVIDER": "gateway", "FREEACT_KERNEL__GATEWAY__URL": "http://127.0.0.1:9"}
CASES = [
    ("acp", ["acp"], ["acp"]),
    ("gateway", ["websockets"], ["gateway", "check", "http://127.0.0.1:9"]),
    (
        "gateway",
        ["websockets"],
        ["run", "hi", *MODEL, "--mode", "full"],
    ),
    ("anthropic", ["anthropic"], ["run", "hi", "--model", "anthropic:claude-sonnet-5-5"]),
    ("anthropic", ["anthropic"], ["-p", "hi", "--quiet", "--model", "anthropic:claude-sonnet-5-5"]),
    ("google", ["google", "google.genai"], ["run", "hi", "--model", "google:gemini-2.5-pro"]),
]


def hidden(cwd: Path, packages: list[str], arguments: list[str]) -> "subprocess.CompletedProcess[str]":
    program = HIDDEN.format(packages=packages, arguments=arguments)
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=cwd,
        env=environment() | KEYS | (GATEWAY if "full" in arguments else {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


INSTALLED_BY = {
    "acp": "agent-client-protocol",
    "gateway": "websockets",
    "pictures": "textual-image",
    "anthropic": "pydantic-ai-slim[anthropic]",
    "google": "pydantic-ai-slim[google]",
}


def is_sentence(text: str, extra: str) -> bool:
    """Whether it is one line, with a command that works in any folder."""
    lines = text.strip().splitlines()
    command = shlex.split(text.rpartition(": run `")[2].strip().removesuffix("`"))
    return (
        len(lines) == 1
        and "not installed" in text
        and command[:4] == [sys.executable, "-m", "pip", "install"]
        and [Requirement(word).name for word in command[4:]] == [Requirement(INSTALLED_BY[extra]).name]
        and command[4].startswith(INSTALLED_BY[extra])
        and "internal" not in text
    )


@pytest.mark.parametrize(("extra", "packages", "arguments"), CASES)
def test_a_command_without_its_package(tmp_path: Path, extra: str, packages: list[str], arguments: list[str]) -> None:
    done = hidden(tmp_path, packages, arguments)
    assert done.returncode == 2, done
    assert is_sentence(done.stderr, extra), done.stderr


@pytest.mark.parametrize("way", ["kitty", "iterm2", "sixel", "blocks"])
def test_a_way_to_draw_pictures_without_its_package(tmp_path: Path, way: str) -> None:
    program = (
        "import sys; sys.modules['textual_image'] = None\n"
        "import asyncio\n"
        "from freeact_sub import Config\n"
        "from freeact_sub.terminal.conversation import converse\n"
        "async def main():\n"
        f"    await converse(None, config=Config(terminal={{'pictures': {way!r}}}))\n"
        "try:\n    asyncio.run(main())\nexcept Exception as error:\n    sys.exit(f'{type(error).__name__}: {error}')\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert done.stderr.startswith("ConfigError: ")
    assert is_sentence(done.stderr, "pictures"), done.stderr


def test_the_web_example_without_its_packages(tmp_path: Path) -> None:
    for package in ("uvicorn", "starlette"):
        program = (
            f"import sys, runpy; sys.modules[{package!r}] = None; sys.path.insert(0, {str(ROOT / 'examples/services')!r})\n"
        )
        program += f"runpy.run_path({str(ROOT / 'examples/services/web.py')!r}, run_name='__main__')"
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
        assert done.returncode == 1
        assert re.fullmatch(rf"web: {package}\S* is missing: .*pip install \"\.\[web\]\"\n", done.stderr), done.stderr


def test_no_other_module_imports_an_optional_package_by_itself() -> None:
    """Where one is imported, something has asked for it before, or the import is one of a module that is imported after that."""
    names = {re.split(r"[\[>=<]", needed)[0].replace("-", "_") for extra in EXTRAS.values() for needed in extra}
    names |= {"anthropic", "google", "PIL"}
    pattern = re.compile(rf"^\s*(?:import|from) ({'|'.join(names)})\b", re.MULTILINE)
    package = ROOT / "freeact_sub"
    found = {str(file.relative_to(package)) for file in package.rglob("*.py") if pattern.search(file.read_text())}
    assert found == {
        "kernels/gateway/channels.py",  # `make_gateway` and `gateway check` have asked
        "kernels/gateway/server.py",
        "mcp_server/server.py",  # the SDK of MCP needs starlette and uvicorn itself
        "notebook/question_forms.py",  # `_wants_buttons` has asked
        "terminal/picture_encoder.py",  # a process of its own, started where `Display` has asked
    }


def test_a_package_that_is_there_is_not_complained_about() -> None:
    require_extra("rich", extra="pictures", needed_by="this")
