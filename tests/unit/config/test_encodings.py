"""Settings as editors of all systems save them: with a mark before the text, with CRLF; another encoding is one sentence."""

import random
from pathlib import Path

import pytest
from support.tables import each
from support.thorough import examples

from freeact_sub.approvals.policy import parse_rules
from freeact_sub.config.load import load_config
from freeact_sub.config.parsing import parse_json, parse_toml
from freeact_sub.config.project_texts import instructions_of
from freeact_sub.config.schema import AGENT_TYPES
from freeact_sub.errors import ConfigError
from freeact_sub.features.agent_types import load_agent_types
from freeact_sub.show.typed_commands import own_commands

SAVED = [
    lambda text: text.encode(),
    lambda text: text.encode("utf-8-sig"),
    lambda text: text.replace("\n", "\r\n").encode("utf-8-sig"),
]


def files(folder: Path, save) -> None:
    for name in (".freeact", AGENT_TYPES):
        (folder / name).mkdir(parents=True)
    (folder / ".freeact/config.toml").write_bytes(save('mode = "auto"\n\n[kernel]\ncell_timeout_seconds = 7\n'))
    (folder / ".freeact/permissions.toml").write_bytes(save('allow = [\n  "shell:git status",\n]\n'))
    (folder / AGENT_TYPES / "tester.md").write_bytes(save("---\ndescription: Tests.\n---\nYou test.\n"))
    (folder / "mcp.json").write_bytes(save('{"mcpServers": {"w": {"command": "true"}}}'))


@pytest.mark.parametrize("save", SAVED, ids=["plain", "mark", "mark and CRLF"])
def test_a_file_is_read_as_editors_save_it(tmp_path, save):
    files(tmp_path, save)
    config = load_config(tmp_path, environment={})
    assert (config.mode, config.kernel.cell_timeout_seconds, list(config.mcp_servers)) == ("auto", 7, ["w"])
    path = tmp_path / ".freeact/permissions.toml"
    assert [str(rule.pattern) for rule in parse_rules(path.read_bytes(), path, "project")] == ["shell:git status"]
    types = load_agent_types(config)
    assert types.problems == ()
    assert "tester" in types.types


@each("name", [".freeact/config.toml", "mcp.json"])
@each("encoding", ["utf-16", "utf-16-be", "latin-1"])
def test_another_encoding_is_one_sentence_that_names_the_file(tmp_path, name, encoding):
    files(tmp_path, SAVED[0])
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    (tmp_path / name).write_bytes(f"{mark}\n# caf\xe9\n".encode(encoding))
    with pytest.raises(ConfigError, match=r"UTF-8") as caught:
        load_config(tmp_path, environment={})
    assert Path(name).name in str(caught.value)
    assert "\n" not in str(caught.value)


@each(
    ("text", "place"),
    [
        ("a = ", "line 1, column 5"),
        ('x = 1\ny = "abc', "line 2"),
        ("x = [1,\n2", "line 2, column 2"),
        ("[a\n", "line 1"),
        ("x = 1\n\n= 2", "line 3, column 1"),
    ],
)
def test_toml_that_is_broken_names_line_and_column(text, place):
    with pytest.raises(ValueError, match=place):
        parse_toml(text.encode())


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_texts_for_models_are_read_in_each_encoding(encoding):
    content = "Write in caf\xe9.\r\nAlways.".encode(encoding)
    assert instructions_of({Path("AGENTS.md"): content}).endswith("AGENTS.md:\nWrite in caf\xe9.\nAlways.")
    assert own_commands({Path("go.md"): content}, [])["/go"].prompt == "Write in caf\xe9.\nAlways."


def test_files_of_any_bytes_are_read_or_refused_in_one_sentence():
    right = b'mode = "auto"\r\n[kernel]\npython = "caf\xc3\xa9"\nlist = [1, "a"]\n'
    said: list[str] = []
    for number in range(examples(10_000)):
        source = random.Random(number)
        content = bytearray(source.choice((b"", b"\xef\xbb\xbf", b"\xff\xfe")) + right)
        for _ in range(source.randrange(4)):
            place = source.randrange(len(content))
            content[place : place + source.randrange(3)] = source.randbytes(source.randrange(3))
        for parse in (parse_toml, parse_json):
            try:
                parse(bytes(content))
            except ValueError as error:
                said.append(str(error))
    assert not any("\n" in text for text in said)
    print(f"{examples(10_000):,} files of settings")
