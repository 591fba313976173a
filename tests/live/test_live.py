"""A real model does small tasks: whatever it answers, the agent neither crashes nor hangs nor takes nothing for an answer.

`make live BASE_URL=http://127.0.0.1:8089/v1`; without `--live` these are skipped. What it solves is not asserted: that is
for `python -m benchmarks.live` to count.
"""

import pytest

from benchmarks.live import converse
from benchmarks.live_tasks import TASKS
from freeact_sub import Budget, Config

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]


@pytest.mark.parametrize("task", TASKS, ids=[task.name for task in TASKS])
async def test_a_task_ends_with_a_true_status(task, tmp_path, request):
    for name, content in task.files:
        (tmp_path / name).write_text(content)
    config = Config(
        workspace=tmp_path,
        model=f"openai-chat:{request.config.getoption('--live-model')}",
        base_url=request.config.getoption("--live"),
        mode="auto",
        headless="auto",
        budget=Budget(turns=8),
        model_settings={"temperature": 0.2, "max_tokens": 700},
    )
    row = await converse(task, config, 600)
    assert row["kind"] in ("solved", "wrong"), row
