"""`freeact-sub doctor` as people start it: it starts a real kernel, and leaves nothing behind."""

from pathlib import Path

import pytest
from support.cli import chat, run

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]


def test_the_doctor_prints_all_topics(tmp_path: Path) -> None:
    with chat(lambda _: ["unused"]) as server:
        done = run("doctor", "--mode", "auto", *server.options, cwd=tmp_path, check=0)
        assert server.server.requests == []  # asking costs nothing
    topics = [line.split()[1] for line in done.stdout.splitlines() if line[:1] in "✓·!✗" and line[:1]]
    assert topics[:2] == ["model", "keys"]
    assert {"python", "kernels", "branches", "wall", "pictures", "undo", "settings", "sessions", "extras"} <= {*topics}
    assert "where a server answers" in done.stdout
    assert "Agents can work here" in done.stdout.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []

    wrong = run("doctor", "--model", "openai-chat:x", "--base-url", "http://127.0.0.1:1/v1", cwd=tmp_path, check=1)
    assert "✗ model" in wrong.stdout
    assert wrong.stdout.endswith("Agents cannot work here yet: see model.\n")
    run("doctor", "--mode", "nothing", cwd=tmp_path, check=2)


def test_a_kernel_that_does_not_start(tmp_path: Path) -> None:
    (tmp_path / ".freeact").mkdir()
    (tmp_path / ".freeact/config.toml").write_text('[kernel]\npython = "/bin/false"\n')
    done = run("doctor", "--trust", "--model", "test", cwd=tmp_path, check=1)
    assert "✗ python" in done.stdout
    assert "✗ kernels    none starts in mode ask: " in done.stdout
    assert done.stdout.endswith("Agents cannot work here yet: see python, kernels.\n")
