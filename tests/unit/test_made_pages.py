"""The pages of the documentation site that are made: nothing of the command line, the events or the API is left out."""

import json
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
from pydantic import TypeAdapter

import freeact_sub
from freeact_sub.calls import Call
from freeact_sub.cli.borrowed_argparse import OpenParser
from freeact_sub.cli.parser import command_line
from freeact_sub.terminal.slash_commands import COMMANDS

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


def test_the_page_of_the_terminal_lists_every_command() -> None:
    section = (DOCS / "terminal.md").read_text(encoding="utf-8").partition("\n## Commands\n")[2].partition("\n## ")[0]
    rows = [f"| `{' '.join(filter(None, (each.name, each.usage)))}` | {each.words} |" for each in COMMANDS]
    assert [line for line in section.splitlines() if line.startswith("| `")] == rows


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


def test_the_table_of_events_and_calls_is_what_the_classes_make() -> None:
    sys.path.insert(0, str(DOCS))
    try:
        import make_events
    finally:
        sys.path.remove(str(DOCS))
    page = (DOCS / "events.md").read_text(encoding="utf-8")
    definitions = json.loads((DOCS / "events.schema.json").read_text())["$defs"]
    assert page == make_events.page(), "run python docs/make_events.py"
    for kind in (*get_args(freeact_sub.Event), *get_args(Call)):
        (row,) = re.findall(rf"^\| `{kind.__name__}` \|.*$", page, re.MULTILINE)
        header = {field.name for field in fields(freeact_sub.AgentEvent)}
        known = {field for field in definitions[kind.__name__]["properties"] if field not in {*header, "type", "kind"}}
        assert known <= {field.name for field in fields(kind)}
        assert all(f"`{field}`" in row for field in known), kind


def test_events_are_read_back_as_the_page_says() -> None:
    event = freeact_sub.AgentFinished(status="completed", output="42", agent_id="agent-1")
    assert freeact_sub.AgentEvent.from_json(event.to_json()) == event
    several = TypeAdapter(list[freeact_sub.Event]).validate_json(f"[{event.to_json()}]")
    assert several == [event]
    assert (event.text, several[0].text) == ("42", "42")


def test_every_public_name_is_in_the_api_or_an_event(made: dict[str, str]) -> None:
    of_events = set(dir(sys.modules[freeact_sub.AgentStarted.__module__]))
    shown = set(re.findall(r"^::: .*\.(\w+)$", made["reference/api.md"], re.MULTILINE))
    assert set(dir(freeact_sub)) - of_events <= shown <= set(dir(freeact_sub))
    assert len(shown) > 80


def test_links_of_a_file_of_the_repository_lead_into_the_site(made: dict[str, str]) -> None:
    assert "](docs/" not in made["CHANGELOG.md"]
    assert (DOCS.parent / "CHANGELOG.md").read_text().splitlines()[0] in made["CHANGELOG.md"]
