"""Homes, folders and files of an odd kind: each works, or is one sentence."""

from freeact_sub.cli import main
from freeact_sub.config import schema
from freeact_sub.system.process import state_folder
from freeact_sub.terminal.attachments import texts_of


def test_a_home_that_is_not_absolute_names_one_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "here")
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, "there")  # which the specification says to ignore
    assert state_folder() == tmp_path / "here/.local/state/freeact"
    assert schema.token_folder() == tmp_path / "here/.config/freeact/mcp-tokens"


def test_a_folder_that_was_removed_is_one_sentence(monkeypatch, tmp_path, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["permissions", "list"]) == 2
    assert capsys.readouterr().err.startswith("freeact-sub: the current folder cannot be used")


def test_a_file_in_utf_16_goes_along_as_its_text(tmp_path):
    (tmp_path / "a.txt").write_bytes("größer".encode("utf-16"))
    (tmp_path / "b.txt").write_bytes("\ufeffgrößer".encode())
    (tmp_path / "c.bin").write_bytes(b"\0\1")
    assert texts_of("@a.txt @b.txt @c.bin", tmp_path) == ["[The file a.txt:]\ngrößer", "[The file b.txt:]\ngrößer"]
