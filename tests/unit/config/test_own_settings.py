"""The user's own settings file: one setting is written, and nothing else is lost."""

import threading
from pathlib import Path

import pytest

from freeact_sub.cli.first_start import save_own
from freeact_sub.config.load import load_config
from freeact_sub.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    return tmp_path / "own/freeact/config.toml"


def test_a_new_file_is_for_its_user_alone(file: Path) -> None:
    assert save_own({"model": "openai:x", "base_url": None}) == file
    assert file.read_text() == 'model = "openai:x"\n'
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert load_config(file.parent).model == "openai:x"


def test_other_settings_comments_and_the_mode_of_the_file_stay(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text('# mine\nmode = "plan"  # careful\nbase_url = "http://old/v1"\n\n[kernel]\nspares = 0\n# the end\n')
    file.chmod(0o640)
    save_own({"model": "anthropic:x", "base_url": None})
    text = file.read_text()
    for kept in ("# mine\n", 'mode = "plan"  # careful\n', "[kernel]\nspares = 0\n# the end\n"):
        assert kept in text
    assert file.stat().st_mode & 0o777 == 0o640
    config = load_config(file.parent)
    assert (config.model, config.base_url, config.mode, config.kernel.spares) == ("anthropic:x", None, "plan", 0)


def test_a_file_elsewhere_is_written_through_its_link(file: Path, tmp_path: Path) -> None:
    file.parent.mkdir(parents=True)
    (tmp_path / "dotfiles.toml").write_text('mode = "plan"\n')
    file.symlink_to(tmp_path / "dotfiles.toml")
    save_own({"model": "openai:x"})
    assert file.is_symlink()
    assert (tmp_path / "dotfiles.toml").read_text() == 'mode = "plan"\nmodel = "openai:x"\n'


@pytest.mark.parametrize("content", [b"model = [", b"\xff\xfe\x00"])
def test_a_file_that_cannot_be_read_stays(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"cannot read .*config\.toml"):
        save_own({"model": "openai:x"})
    assert file.read_bytes() == content


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    with pytest.raises(ConfigError, match=r"cannot write .*config\.toml"):
        save_own({"model": "openai:x"})


def test_two_programs_that_save_at_once_lose_nothing(file: Path) -> None:
    names = [f"key{number}" for number in range(20)]
    threads = [threading.Thread(target=save_own, args=({name: "x"},)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(file.read_text().split("\n")[:-1]) == sorted(f'{name} = "x"' for name in names)
