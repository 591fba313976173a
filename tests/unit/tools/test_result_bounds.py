"""What a tool's result brings to the model is bounded and holds no picture that cannot be read, whichever tool it is."""

import base64
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic_ai import BinaryContent, DocumentUrl, FunctionToolset, ImageUrl, ModelRetry, ToolReturn
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelRequest, TextContent, ToolCallPart, ToolReturnPart, UserPromptPart
from support.agents import cell, of_kind, read, task
from support.tables import each

from freeact_sub.events import CodeExecutionOutput, ToolOutput

LIMIT = 10_000
SLACK = 1_000
"""For notes."""
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20) + b"IEND"
LONG = "begin" + "x" * 3_000_000 + "end"


class Record(BaseModel):
    text: str


@dataclass
class Plain:
    text: str
    number: int = 1


class Reads:
    """A model that makes one call of each tool and keeps what it reads of them."""

    def __init__(self, *calls: ToolCallPart):
        self.calls = calls
        self.messages = []

    def __call__(self, messages, info):
        self.messages = messages
        done = sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
        return [self.calls[done]] if done < len(self.calls) else "done"

    @property
    def parts(self):
        return [part for message in self.messages for part in message.parts if isinstance(part, ToolReturnPart)]

    @property
    def text(self):
        """All that the model reads, prompts aside."""
        return "\n".join(part.model_response_str() for part in self.parts)

    @property
    def files(self):
        prompts = [
            item
            for message in self.messages[1:]
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, UserPromptPart) and not isinstance(part.content, str)
            for item in part.content
            if not isinstance(item, str)
        ]
        return [file for part in self.parts for file in part.files] + prompts

    @property
    def all_chars(self):
        prompts = [
            item if isinstance(item, str) else getattr(item, "content", "")
            for message in self.messages[1:]
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, UserPromptPart)
            for item in ([part.content] if isinstance(part.content, str) else part.content)
        ]
        return len(self.text) + sum(map(len, prompts))


async def result_of(make, tool, **config):
    """What the model reads of a tool of a user's own, and what the events say."""
    toolset = FunctionToolset([tool])
    reads = Reads(ToolCallPart(tool.__name__, {}))
    async with make(reads, config={"mode": "full", **config}, toolsets=[toolset]) as agent:
        events, result = await read(agent.run("x"))
    assert result.status == "completed", result.error
    [output] = of_kind(events, ToolOutput)
    return reads, output


def file_of(text) -> Path:
    return Path(re.search(r"all of it is in (\S+?)[ \]\"]", text)[1])


def circle():
    items = []
    items.append(items)
    return items


FLOODS = {
    "text": LONG,
    "mapping": {"a": LONG, "b": [LONG]},
    "list": [LONG, {"a": LONG}],
    "tuple": (LONG, 1),
    "many": ["text"] * 500_000,
    "model": Record(text=LONG),
    "dataclass": Plain(text=LONG),
    "bytes": LONG.encode(),
    "binary text": BinaryContent(LONG.encode(), media_type="text/csv"),
    "returned": ToolReturn(LONG, content=[LONG, TextContent(LONG)], metadata={"own": 1}),
    "content": ToolReturn("short", content=LONG),
    "mixed": [LONG, BinaryContent(PNG, media_type="image/png"), LONG],
    "surrogate": LONG + "\ud800",
}


@pytest.mark.parametrize("kind", FLOODS)
@pytest.mark.slow
async def test_a_flood_of_a_tool_of_ones_own_is_head_tail_and_a_file(make, tmp_path, kind):
    def own():
        return FLOODS[kind]

    reads, output = await result_of(make, own)
    assert reads.all_chars < LIMIT + SLACK
    assert len(output.content) < LIMIT + SLACK
    assert "characters left out; all of it is in " in output.content
    file = file_of(output.content)
    assert file.is_relative_to(tmp_path / ".freeact" / "outputs" / output.agent_id)
    assert file.stat().st_size > 2_000_000
    if kind in ("text", "returned", "binary text"):
        assert reads.text.startswith("begin")
        assert output.content.endswith("end")
        assert LONG in file.read_text()
    if kind == "mixed":
        assert len(reads.files) == 1


@pytest.mark.parametrize("raised", [ValueError, ModelRetry, ToolFailed])
async def test_an_error_is_no_flood_either(make, raised):
    def own():
        raise raised(LONG)

    reads, output = await result_of(make, own)
    assert reads.all_chars < LIMIT + SLACK
    assert len(output.content) < LIMIT + SLACK
    assert "begin" in output.content
    assert "all of it is in " in reads.text
    assert output.outcome == ("retried" if raised is ModelRetry else "failed")


@pytest.mark.parametrize("value", ["text", {"a": 1}, [1, "b"], 3, True, None, Record(text="t"), Plain(text="t")], ids=repr)
async def test_results_within_bounds_go_to_the_model_unchanged(make, tmp_path, value):
    def own():
        return value

    reads, _ = await result_of(make, own)
    assert reads.parts[0].content == value
    assert not (tmp_path / ".freeact" / "outputs").exists()


def data_url(data, media_type):
    return ImageUrl(f"data:{media_type};base64,{base64.b64encode(data).decode()}")


GOOD = BinaryContent(PNG, media_type="image/png")
PICTURES = {
    "svg": BinaryContent(b"<svg/>", media_type="image/svg+xml"),
    "tiff": BinaryContent(b"II*\0", media_type="image/tiff"),
    "large": BinaryContent(PNG + bytes(6_000_000), media_type="image/png"),
    "damaged": BinaryContent(b"no picture", media_type="image/png"),
    "empty": BinaryContent(b"", media_type="image/jpeg"),
    "truncated": BinaryContent(PNG[:-4], media_type="image/png"),
    "truncated JPEG": BinaryContent(b"\xff\xd8\xff\xe0" + bytes(20), media_type="image/jpeg"),
    "truncated GIF": BinaryContent(b"GIF89a" + bytes(20), media_type="image/gif"),
    "truncated WebP": BinaryContent(b"RIFF\x20\0\0\0WEBPVP8 " + bytes(4), media_type="image/webp"),
    "sound as WebP": BinaryContent(b"RIFF\x04\0\0\0WAVE", media_type="image/webp"),
    "svg as URL": data_url(b"<svg/>", "image/svg+xml"),
    "svg elsewhere": ImageUrl("https://example.org/a.svg?size=2"),
    "damaged URL": ImageUrl("data:image/png;base64,###"),
    "large URL": data_url(PNG + bytes(6_000_000), "image/png"),
}


@each("way", ["list", "alone", "nested", "content"])
@each("kind", PICTURES)
@pytest.mark.slow
async def test_a_picture_that_no_model_reads_is_kept_from_it(make, kind, way):
    def own():
        bad = PICTURES[kind]
        match way:
            case "list":
                return ["text", GOOD, bad]
            case "alone":
                return bad
            case "nested":
                return {"a": [GOOD, {"b": bad}]}
            case _:
                return ToolReturn("text", content=[GOOD, bad])

    reads, output = await result_of(make, own)
    assert [file.media_type for file in reads.files] == ["image/png"] * (way != "alone")
    assert "not shown to you: " in reads.text
    assert reads.all_chars < SLACK
    assert len(output.content) < SLACK


async def test_too_many_pictures_are_not_shown_and_none_to_a_model_that_reads_none(make):
    def own():
        return [GOOD] * 8

    reads, _ = await result_of(make, own)
    assert len(reads.files) == 5
    assert reads.text.endswith(
        "[3 of 8 pictures are not shown to you: too many, too large, damaged, or of a kind that models do not read]"
    )
    reads, _ = await result_of(make, own, kernel={"show_images_to_model": False})
    assert reads.files == []
    assert "8 of 8 pictures are not shown to you: you read no pictures" in reads.text


async def test_sound_and_documents_go_to_the_model_as_they_are_unless_they_are_huge(make):
    def own():
        return [
            BinaryContent(b"%PDF", media_type="application/pdf"),
            DocumentUrl("https://example.org/a.pdf"),
            BinaryContent(bytes(30_000_000), media_type="audio/wav"),
        ]

    reads, _ = await result_of(make, own)
    assert [file.media_type for file in reads.files] == ["application/pdf"] * 2
    assert "[audio/wav, 30,000,000 bytes: too large to be shown to you]" in reads.text


async def test_a_value_that_is_no_json_does_not_end_the_run(make):
    def own():
        return circle()

    reads, _ = await result_of(make, own)
    assert reads.text == "[[...]]"


async def test_a_folder_that_is_a_link_is_not_written_through(make, tmp_path, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (tmp_path / ".freeact").symlink_to(outside)

    def own():
        return LONG

    reads, _ = await result_of(make, own)
    assert "it could not be kept in " in reads.text
    assert list(outside.iterdir()) == []


@pytest.mark.slow
async def test_many_children_are_waited_for_and_something_of_each_is_read(make):
    script = {
        "root": [[task(f"child {n}", background=True) for n in range(12)], []],
        "child": ["begin " + "y" * 5_000 + " end"],
    }
    wait = ToolCallPart("subagents", {"action": "wait"})
    texts = []

    def model(messages, info):
        prompt = str(messages[0].parts[0].content)
        if "child" in prompt:
            return script["child"][0]
        returns = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        if not returns:
            return script["root"][0]
        if returns[-1].tool_name == "task":
            return [wait]
        texts.append(returns[-1].content)
        return "done"

    async with make(model, config={"mode": "full"}) as agent:
        events, _ = await read(agent.run("root"))
    [text] = texts
    assert len(text) < LIMIT + 2 * SLACK
    assert text.count(" has ended:") == text.count("begin") == text.count("y end") == 12
    assert text.count("all of it is in") == 1
    assert file_of(text).read_text().count("y" * 5_000) == 12
    assert max(len(event.content) for event in of_kind(events, ToolOutput)) < LIMIT + 2 * SLACK


async def test_a_plan_is_read_part_by_part(make):
    plan = ToolCallPart("delegate", {"plan": "p", "subtasks": [{"task": f"child {n}"} for n in range(5)]})
    reads = Reads(plan)

    def model(messages, info):
        return "begin " + "y" * 5_000 + " end" if "child" in str(messages[0].parts[0].content) else reads(messages, info)

    async with make(model, config={"mode": "full"}) as agent:
        await read(agent.run("root"))
    assert len(reads.text) < LIMIT + SLACK
    assert reads.text.count("begin") == reads.text.count("y end") == 5


async def test_an_answer_to_ask_is_bounded(make):
    reads = Reads(ToolCallPart("ask", {"prompt": "question"}))

    def model(messages, info):
        return LONG if "question" in str(messages[0].parts[0].content) else reads(messages, info)

    async with make(model, config={"mode": "full"}, chunk_chars=1_000_000) as agent:
        await read(agent.run("root"))
    assert len(reads.text) < LIMIT + SLACK


async def test_a_cell_is_bounded_once(make, tmp_path):
    reads = Reads(cell("print('x' * 50_000)"))
    async with make(reads, config={"mode": "full"}) as agent:
        events, _ = await read(agent.run("root"))
    assert reads.text.count("left out") == 1
    assert len([*(tmp_path / ".freeact").rglob("*.txt")]) == 1
    [end] = of_kind(events, CodeExecutionOutput)
    assert end.text == reads.text


async def test_the_same_long_result_again_and_again_is_a_circle(make):
    def own():
        return LONG

    script = [[ToolCallPart("own", {})]] * 20
    async with make(script, config={"mode": "full"}, toolsets=[FunctionToolset([own])]) as agent:
        _, result = await read(agent.run("x"))
    assert result.status == "limit"


async def test_the_note_on_missing_output_is_for_the_model_alone(make):
    reads = Reads(cell("x = 1"))
    async with make(reads, config={"mode": "full"}) as agent:
        events, _ = await read(agent.run("root"))
    assert "ran without output" in reads.text
    [end] = of_kind(events, CodeExecutionOutput)
    assert end.text == ""


@pytest.mark.parametrize("planted", [".freeact", ".freeact/outputs", "folder", "file", "hard link"])
async def test_a_long_answer_of_a_child_is_written_through_no_link(make, tmp_path, tmp_path_factory, planted):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text("as it was")

    def model(messages, info):
        if "child" not in str(messages[0].parts[0].content):
            return reads(messages, info)
        folder = tmp_path / ".freeact" / "outputs" / agent.agents()[-1].agent_id
        match planted:
            case ".freeact" | ".freeact/outputs":
                (tmp_path / planted).parent.mkdir(exist_ok=True)
                (tmp_path / planted).symlink_to(outside)
            case "folder":
                folder.parent.mkdir(parents=True)
                folder.symlink_to(outside)
            case "file":
                folder.mkdir(parents=True)
                (folder / "answer.txt").symlink_to(outside / "secret")
            case _:
                folder.mkdir(parents=True)
                (folder / "answer.txt").hardlink_to(outside / "secret")
        return "a" * 20_000

    reads = Reads(task("child"))
    async with make(model, config={"mode": "full"}, chunk_chars=1_000) as agent:
        await read(agent.run("root"))
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == "as it was"
    if planted in ("file", "hard link"):
        where = Path(re.search(r"the whole answer is in (\S+) ", reads.text)[1])
        assert where.read_text() == "a" * 20_000
    else:
        assert "it could not be kept in " in reads.text
