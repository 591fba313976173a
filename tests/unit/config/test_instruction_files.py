"""AGENTS.md and CLAUDE.md of a workspace: read once, within bounds, left out where nobody vouches for them."""

from pathlib import Path

import pytest

from freeact_sub.config.instruction_files import MAX_CHARS, instructions_of
from freeact_sub.config.load import load_config
from freeact_sub.config.schema import Config
from freeact_sub.config.trust import Trust
from freeact_sub.errors import ConfigError, UntrustedError


def test_the_files_of_a_workspace_are_found_and_later_changes_do_not_count(tmp_path: Path) -> None:
    agents, claude = tmp_path / "AGENTS.md", tmp_path / "CLAUDE.md"
    agents.write_text("Use tabs.")
    claude.write_text("Use tabs.")
    config = load_config(tmp_path)
    assert config.instruction_files == (agents, claude)
    assert instructions_of(config.instruction_contents).strip() == "Instructions of this project, AGENTS.md:\nUse tabs."
    agents.write_text("Use blanks.")
    assert "tabs" in instructions_of(config.model_copy(update={"mode": "auto"}).instruction_contents)
    assert load_config(tmp_path, arguments={"instruction_files": ()}).instruction_contents == {}


def test_much_text_is_cut_and_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "rules.md").write_text("x" * (MAX_CHARS + 7))
    (tmp_path / "more.md").write_text("never")
    text = instructions_of(Config(workspace=tmp_path, instruction_files=("rules.md", "more.md")).instruction_contents)
    assert "[... 7 more characters of rules.md]" in text
    assert "[... 5 more characters of more.md]" in text
    assert "never" not in text
    with pytest.raises(ConfigError, match="gone.md.*instruction_files"):
        _ = Config(workspace=tmp_path, instruction_files=("gone.md",)).instruction_contents


@pytest.mark.parametrize(("name", "only_texts"), [("CLAUDE.md", True), (".agents/agents/x.md", False)])
def test_what_is_only_text_can_be_left_out(tmp_path: Path, name: str, only_texts: bool) -> None:
    for path in (tmp_path / "AGENTS.md", tmp_path / name):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("Help.")
    with pytest.raises(UntrustedError) as caught:
        load_config(tmp_path, trust=Trust(tmp_path.parent / f"{tmp_path.name}-own"))
    assert caught.value.only_texts == only_texts


def test_a_command_counts_with_the_content_that_was_looked_at(tmp_path: Path) -> None:
    trust, command = Trust(tmp_path / "own"), tmp_path / "workspace" / ".agents/commands/tidy.md"
    command.parent.mkdir(parents=True)
    command.write_text("Tidy.")
    trust.add({command: b"Tidy."})
    config = load_config(tmp_path / "workspace", trust=trust)
    command.write_text("Push.")  # between the look at it and its use
    command.with_name("more.md").write_text("More.")
    assert config.model_copy(update={"mode": "auto"}).command_contents == {command: b"Tidy."}
