"""AGENTS.md and CLAUDE.md of a workspace: read once, within bounds, left out where nobody vouches for them."""

import os
from pathlib import Path

import pytest

from freeact_sub.config.load import load_config
from freeact_sub.config.project_texts import MAX_CHARS, instructions_by_folder, instructions_for_all, instructions_of
from freeact_sub.config.schema import Config
from freeact_sub.config.trust import Trust
from freeact_sub.errors import ConfigError, UntrustedError
from freeact_sub.system.safe_files import MAX_BYTES


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


def write(folder: Path, *names: str, text: str = "Help.") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_only_texts_can_be_left_out_and_those_that_were_looked_at_stay(tmp_path: Path) -> None:
    trust, workspace = Trust(tmp_path / "own"), tmp_path / "workspace"
    commands, skill = workspace / ".agents/commands", workspace / ".agents/skills/x"
    write(workspace, "AGENTS.md", "sub/AGENTS.md", ".agents/commands/x.md", ".agents/skills/x/SKILL.md")
    for known, rest in [
        ([], ([], [], [])),
        (["AGENTS.md"], (["AGENTS.md"], [], [])),
        (["sub/AGENTS.md"], (["AGENTS.md", "sub/AGENTS.md"], [], [])),
        ([".agents/commands/x.md"], (["AGENTS.md", "sub/AGENTS.md"], [commands], [])),
    ]:
        trust.add({workspace / name: b"Help." for name in known})
        with pytest.raises(UntrustedError) as caught:
            load_config(workspace, trust=trust)
        assert caught.value.rest is not None
        files, *folders = ([*caught.value.rest[name]] for name in ("instruction_files", "command_folders", "skill_folders"))
        assert (files, *folders) == ([workspace / name for name in rest[0]], *rest[1:])
        left = load_config(workspace, trust=trust, arguments=caught.value.rest)
        assert [*left.instruction_contents] == files
    trust.add(caught.value.files)
    assert [*load_config(workspace, trust=trust).skill_contents] == [skill]
    write(workspace, ".agents/agents/x.md", "CLAUDE.md")
    with pytest.raises(UntrustedError) as caught:
        load_config(workspace, trust=trust)
    assert caught.value.rest is None


def test_files_in_folders_are_found_and_stand_in_no_system_prompt(tmp_path: Path) -> None:
    write(tmp_path, "AGENTS.md", text="For all.")
    write(tmp_path, "b/CLAUDE.md", "b/AGENTS.md", "a/deep/AGENTS.md", text="For these.")
    write(
        tmp_path,
        *(
            f"{folder}/AGENTS.md"
            for folder in (".git", "a/node_modules/x", "a/.hidden", ".venv", "venv/x", "a/site-packages")
        ),
    )
    write(
        tmp_path,
        "env/pyvenv.cfg",
        "env/AGENTS.md",
        "env/lib/AGENTS.md",
        "a/agents.md",
        "a/AGENTS.md/file",
        "odd\nname/AGENTS.md",
    )
    config = load_config(tmp_path)
    found = [path.relative_to(tmp_path).as_posix() for path in config.instruction_files]
    assert found == ["AGENTS.md", "a/deep/AGENTS.md", "b/AGENTS.md", "b/CLAUDE.md"]
    contents = config.instruction_contents
    assert instructions_for_all(contents, tmp_path).strip() == "Instructions of this project, AGENTS.md:\nFor all."
    assert instructions_by_folder(contents, tmp_path) == {
        "a/deep": "Instructions of this project, a/deep/AGENTS.md:\nFor these.",
        "b": "Instructions of this project, b/AGENTS.md:\nFor these.",
    }
    (tmp_path / "b/AGENTS.md").write_text("For others.")
    assert "others" not in str(config.model_copy(update={"mode": "auto"}).instruction_contents)
    named = load_config(tmp_path, arguments={"instruction_files": ["b/AGENTS.md"]}).instruction_contents
    assert [*instructions_by_folder(named, tmp_path)] == ["b"]
    assert load_config(tmp_path, arguments={"instruction_files": ()}).instruction_contents == {}


def test_links_pipes_and_huge_or_binary_files_in_folders_do_no_harm(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    write(outside, "AGENTS.md", "secret", text="Not here.")
    write(workspace, "rules/shared.md", text="Shared.")
    folders = [workspace / name for name in ("in", "out", "circle", "gone", "pipe", "huge", "binary", "long", "closed")]
    for folder in folders:
        folder.mkdir()
    for folder, target in zip(
        folders, (workspace / "rules/shared.md", outside / "secret", "AGENTS.md", "nothing"), strict=False
    ):
        (folder / "AGENTS.md").symlink_to(target)
    (workspace / "linked").symlink_to(outside)
    os.mkfifo(workspace / "pipe/AGENTS.md")
    (workspace / "huge/AGENTS.md").write_bytes(b"x" * (MAX_BYTES + 1))
    (workspace / "binary/AGENTS.md").write_bytes(b"\0\xff" * 100)
    write(workspace, "long/AGENTS.md", text="x" * (MAX_CHARS + 7))
    write(workspace, "closed/AGENTS.md")
    (workspace / "closed/AGENTS.md").chmod(0)
    texts = instructions_by_folder(load_config(workspace).instruction_contents, workspace)
    if os.access(workspace / "closed/AGENTS.md", os.R_OK):  # root reads everything
        del texts["closed"]
    assert texts["in"].endswith("Shared.")
    assert texts["long"].endswith("[... 7 more characters of long/AGENTS.md]")
    assert [*texts] == ["in", "long"]


@pytest.mark.parametrize("name", ["sub/AGENTS.md", "sub/CLAUDE.md"])
def test_a_file_in_a_folder_counts_with_the_content_that_was_looked_at(tmp_path: Path, name: str) -> None:
    trust, workspace = Trust(tmp_path / "own"), tmp_path / "workspace"
    write(workspace, "AGENTS.md", name)
    trust.add({workspace / "AGENTS.md": b"Help."})
    for text in ("Help.", "Push."):
        write(workspace, name, text=text)
        with pytest.raises(UntrustedError, match=name) as caught:
            load_config(workspace, trust=trust)
        assert [*caught.value.files] == [workspace / name]
        trust.add(caught.value.files)
        assert instructions_by_folder(load_config(workspace, trust=trust).instruction_contents, workspace)["sub"].endswith(
            text
        )


def test_a_command_counts_with_the_content_that_was_looked_at(tmp_path: Path) -> None:
    trust, command = Trust(tmp_path / "own"), tmp_path / "workspace" / ".agents/commands/tidy.md"
    command.parent.mkdir(parents=True)
    command.write_text("Tidy.")
    trust.add({command: b"Tidy."})
    config = load_config(tmp_path / "workspace", trust=trust)
    command.write_text("Push.")  # between the look at it and its use
    command.with_name("more.md").write_text("More.")
    assert config.model_copy(update={"mode": "auto"}).command_contents == {command: b"Tidy."}
