"""The pages of the documentation site that are made: nothing of the command line, the events or the API is left out."""

import json
import re
import sys
from pathlib import Path

import pytest

import freeact_sub
from freeact_sub.cli.borrowed_argparse import OpenParser
from freeact_sub.cli.parser import command_line

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    sys.path.insert(0, str(DOCS))
    try:
        import make_reference
    finally:
        sys.path.remove(str(DOCS))
    return make_reference.made_pages()


def commands(parser: OpenParser) -> list[OpenParser]:
    below = [command for each in parser.commands().values() for command in commands(each)]
    return below or [parser]


def test_every_command_has_a_section_with_its_options(made: dict[str, str]) -> None:
    sections = dict(
        re.findall(r"^## `(.+?)`\n\n```text\n(.*?)^```$", made["reference/command-line.md"], re.MULTILINE | re.DOTALL)
    )
    found = commands(command_line())
    assert sections.keys() == {"freeact-sub", *(command.prog for command in found)}
    assert len(found) > 15
    for command in found:
        assert all(option in sections[command.prog] for option in command.known_options()), command.prog


def test_every_event_has_a_section_with_its_fields(made: dict[str, str]) -> None:
    schema = json.loads((DOCS / "events.schema.json").read_text())
    sections = dict(re.findall(r"^###? (\w+)\n(.*?)(?=^##|\Z)", made["reference/events.md"], re.MULTILINE | re.DOTALL))
    assert schema["$defs"].keys() <= sections.keys()
    assert "| `call` | [CodeAction](#codeaction) or [ShellCommand](#shellcommand)" in sections["ApprovalRequest"]
    assert "| `agent_id` |" not in sections["ApprovalRequest"]  # in the table of all
    for name, definition in schema["$defs"].items():
        for field in definition.get("properties", {}):
            assert (
                f"\n| `{field}` | " in sections[name]
                or f"\n| `{field}` | " in made["reference/events.md"].partition("##")[0]
                or field == "type"
            ), (name, field)


def test_every_public_name_is_in_the_api_or_an_event(made: dict[str, str]) -> None:
    of_events = set(dir(sys.modules[freeact_sub.AgentStarted.__module__]))
    shown = set(re.findall(r"^::: .*\.(\w+)$", made["reference/api.md"], re.MULTILINE))
    assert set(dir(freeact_sub)) - of_events <= shown <= set(dir(freeact_sub))
    assert len(shown) > 80


def test_links_of_a_file_of_the_repository_lead_into_the_site(made: dict[str, str]) -> None:
    assert "](docs/" not in made["CHANGELOG.md"]
    assert (DOCS.parent / "CHANGELOG.md").read_text().splitlines()[0] in made["CHANGELOG.md"]
