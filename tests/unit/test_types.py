"""What a type checker reads of the package: programs that are right, and mistakes that it must find."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.tables import each

from freeact_sub.config import schema
from freeact_sub.config.budget import Budget
from freeact_sub.config.schema import GatewayConfig

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT_SECONDS = 900
"""mypy reads all of pydantic-ai, without a cache."""


def checked(*files: Path) -> list[str]:
    """The errors that mypy --strict finds, each as `FILE:LINE`. For the Python of `make check`, whose cache is used."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-version", "3.11", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [match[1] for match in re.finditer(r"([^/\s]+:\d+): error:", done.stdout)]


def is_program(block: str) -> bool:
    """Whether Python runs it as it is; a cell of a notebook may await, and begin with `%`."""
    try:
        compile(block, "README.md", "exec")
    except SyntaxError:
        return False
    return "import" in block


def readme_programs(folder: Path) -> list[Path]:
    """The Python blocks of the README that are whole programs."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    files = []
    for number, block in enumerate(blocks):
        if is_program(block):
            files.append(folder / f"readme_{number}.py")
            # the examples leave out what a strict program says of its own functions
            files[-1].write_text(re.sub(r"def (\w+)\(\):", r"def \1() -> None:", block))
    return files


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_SECONDS + 20)
def test_a_type_checker_accepts_right_programs_and_finds_the_mistakes_of_a_wrong_one(tmp_path):
    programs = readme_programs(tmp_path)
    assert programs
    wrong = HERE / "wrong_program.py"
    expected = [
        f"{wrong.name}:{number}" for number, line in enumerate(wrong.read_text().splitlines(), 1) if "# wrong" in line
    ]
    assert sorted(checked(HERE / "typed_program.py", wrong, *programs)) == sorted(expected)


@each(
    "wanted",
    [
        lambda folder: schema.Config(workspace=str(folder)),
        lambda folder: schema.Config(workspace=folder, kernel={"python": folder / "python"}).kernel.python,
        lambda folder: schema.KernelConfig(python=folder, readable=[str(folder)], preload=["data"], env={"A": "b"}),
        lambda folder: schema.Config(
            budget=Budget(cost_usd=0.5), subagents={"budget": {"turns": 2}}, mcp_servers={"a": {"command": "x"}}
        ),
        lambda folder: schema.SubagentsConfig(budget=Budget(turns=2), allow_agents=["a"]),
        lambda folder: GatewayConfig(url=["http://127.0.0.1:1"], ca_file=str(folder)),
    ],
)
def test_values_that_the_types_allow_are_accepted(wanted, tmp_path):
    assert wanted(tmp_path)
