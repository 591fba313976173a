"""A prompt of texts, pictures and files: the model reads them in order, and people read one text."""

from pathlib import Path

import pytest
from pydantic_ai import BinaryContent, ImageUrl
from support.agents import of_kind, read
from support.tables import each

from freeact_sub import AgentStarted, InvalidRequestError

PICTURE = BinaryContent(b"\x89PNG picture", media_type="image/png")
URL = ImageUrl("https://example.org/a.png")


def seen_by(seen):
    def script(messages, _info):
        seen.append([part.content for message in messages for part in message.parts if part.part_kind == "user-prompt"][-1])
        return "seen"

    return script


async def test_the_model_reads_the_parts_in_order(make, tmp_path):
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    (tmp_path / "chart.png").write_bytes(b"\x89PNG chart")
    seen = []
    async with make(seen_by(seen)) as agent:
        prompt = ["compare", PICTURE, "with", tmp_path / "chart.png", URL, tmp_path / "notes.csv"]
        events, result = await read(agent.run(prompt))
        child = await agent.task(["child", PICTURE, "reads"])
    assert (result.output, child.output) == ("seen", "seen")
    chart = BinaryContent(b"\x89PNG chart", media_type="image/png")
    assert seen[0] == ["compare", PICTURE, "with", chart, URL, "notes.csv:\na,b\n1,2\n"]
    assert seen[1][:2] == ["child", PICTURE]
    assert seen[1][2].startswith("reads\n\nYou are a child agent at depth 1")
    assert of_kind(events, AgentStarted)[0].prompt == "compare\n[image/png]\nwith\n[chart.png]\n[image url]\n[notes.csv]"


async def test_texts_alone_are_one_text(make):
    seen = []
    async with make(seen_by(seen)) as agent:
        await agent.run(["one", "two"]).result()
        await agent.run("three").result()
    assert seen == ["one\n\ntwo", "three"]


@each(
    ("prompt", "what"),
    [
        (7, "a prompt is a text, or a list"),
        (["x", 7], "a part of a prompt is a text"),
        (["x", b"bytes"], "a part of a prompt is a text"),
        ([Path("/no/such/file.png")], "cannot be read: No such file"),
        ([Path("/dev/null")], "cannot be read: it is not a regular file"),
    ],
)
async def test_unreadable_prompts_are_refused_before_anything_runs(make, prompt, what):
    async with make(["x"]) as agent:
        with pytest.raises(InvalidRequestError, match=what):
            agent.run(prompt)
        assert agent.scripted.requests == 0


async def test_a_file_that_no_model_reads_is_refused(make, tmp_path):
    (tmp_path / "odd.bin").write_bytes(b"\xff\xfe\x00")
    async with make(["x"]) as agent:
        with pytest.raises(InvalidRequestError, match="is not text, a picture"):
            agent.run([tmp_path / "odd.bin"])
