"""Prompts of a client, its links and pictures; and which prompts are commands."""

import base64
from pathlib import Path
from typing import Any

from support.tables import each

from freeact_sub.acp.actions import fenced, path_of, picture_lines, pictures_of, read_prompt
from freeact_sub.acp.commands import COMMANDS, available, find, own_of, unfolded

PNG = base64.b64encode(b"\x89PNG").decode()


async def test_the_blocks_of_a_prompt_in_their_order(tmp_path: Path) -> None:
    note = tmp_path / "a b.txt"
    asked = []

    async def read(path: str) -> str:
        asked.append(path)
        return "not saved yet"

    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "Look at "},
        {"type": "resource_link", "uri": note.as_uri(), "name": "a b.txt"},
        {"type": "text", "text": " and "},
        {"type": "resource_link", "uri": "https://example.org/x", "name": "x"},
        {"type": "resource", "resource": {"uri": "file:///etc/hosts", "text": "``` 127.0.0.1"}},
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "image", "data": "%%%", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///x.bin", "blob": PNG, "mimeType": "application/zip"}},
    ]
    prompt = await read_prompt(blocks, tmp_path, read)
    assert prompt.text.startswith("Look at @a b.txt and @https://example.org/x@/etc/hosts")
    assert "application/zip" in prompt.text
    assert asked == [str(note)]
    assert "not saved yet" in prompt.notes[0]
    assert "127.0.0.1" in prompt.notes[1]
    assert prompt.pictures[0].data == b"\x89PNG"
    without = await read_prompt(blocks[:2], tmp_path, None)
    assert (without.text, without.notes) == ("Look at @a b.txt", [])


@each(
    ("uri", "path"),
    [
        ("file:///a/b%20c", "/a/b c"),
        ("file://localhost/a", "/a"),
        ("file://other/a", None),
        ("http://a/b", None),
        ("file:a", None),
        ("", None),
    ],
)
def test_addresses_of_files(uri: str, path: str | None) -> None:
    assert path_of(uri) == path


def test_a_fence_is_longer_than_any_in_the_text() -> None:
    assert fenced("a ```` b", "python") == "`````python\na ```` b\n`````"
    assert fenced("`") == "```\n`\n```"


def test_a_large_picture_is_only_linked() -> None:
    small, large = {"image/png": PNG}, {"image/png": "A" * 6_000_000}
    found = [part["content"] for part in pictures_of([small, large], ["/w/1.png", "/w/2.of-no-kind"])]
    assert [part["type"] for part in found] == ["image", "resource_link", "resource_link"]
    assert [part.get("mimeType") for part in found] == ["image/png", "image/png", None]
    (svg,) = pictures_of([{"image/svg+xml": "<svg/>"}], [])
    assert base64.b64decode(svg["content"]["data"]) == b"<svg/>"
    assert pictures_of([{"text/plain": "x"}], []) == []
    assert picture_lines(["/w/1.png"], as_paths=False).strip() == "![1.png](</w/1.png>)"
    assert picture_lines(["/w/1.png"], as_paths=True).strip() == "Picture: `/w/1.png`"


def test_only_known_words_after_a_slash_are_commands() -> None:
    skills = {"tidy": "Tidies up"}
    assert find("/undo", skills) == ("undo", "")
    assert find("/send a3f2  stop it", skills) == ("send", "a3f2  stop it")
    assert find("/tidy src", skills) == ("tidy", "src")
    for text in ("/unknown", "undo", "/etc/hosts is wrong", "/ undo", "//undo", "/"):
        assert find(text, skills) is None
    own = own_of({Path("tidy.md"): b"Tidy $ARGUMENTS now.", Path("undo.md"): b"never"})
    assert unfolded("/tidy src", own) == "Tidy src now."
    assert unfolded("/etc/hosts is wrong", own) == "/etc/hosts is wrong"
    assert {"name": "tidy", "description": "Tidies up", "input": {"hint": "what to do"}} in available(skills, {})
    listed = {each["name"]: each["description"] for each in available(skills, own)}
    assert (listed["tidy"], listed["undo"]) == ("Tidy $ARGUMENTS now.", COMMANDS["undo"].words)
