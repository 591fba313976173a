"""Instructions of folders in conversations: the nearest one above a used file, once, within bounds."""

from functools import partial
from types import SimpleNamespace

from pydantic_ai.messages import ModelRequest, TextContent, UserPromptPart
from support.tables import each

from freeact_sub.agents.prompt import loaded_in
from freeact_sub.config.load import load_config
from freeact_sub.config.project_texts import MAX_CHARS
from freeact_sub.features.compaction import texts_to_keep, transcript
from freeact_sub.features.instructions import MAX_FOLDERS, InstructionsFeature


class Conversation:
    """An agent whose model reads what it is sent."""

    def __init__(self, workspace, texts):
        for folder, text in texts.items():
            (workspace / folder).mkdir(parents=True)
            (workspace / folder / "AGENTS.md").write_text(text)
        self.messages, self.notices, self.works = [], [], True
        agent = SimpleNamespace(
            config=load_config(workspace, environment={}),
            emitter=SimpleNamespace(put=lambda event: self.notices.append(event.content)),
            run=SimpleNamespace(conversation=self.messages, tell=self.tell),
        )
        feature = InstructionsFeature()
        feature.root = SimpleNamespace(agent=agent)
        self.used = partial(feature.run(agent).used, agent)

    def tell(self, text: TextContent) -> bool | None:
        if self.works:
            self.messages.append(ModelRequest([UserPromptPart([text])]))
        return True if self.works else None

    @property
    def read(self):
        return {name: text.content for name, text in loaded_in(self.messages).items()}


@each(
    ("used", "read"),
    [
        (["a/x.py"], ["a/"]),
        (["a/b/c/x.py"], ["a/b/c/"]),
        (["a/b/x.py"], ["a/"]),
        (["ab/x.py", "x.py", "a"], []),
        (["a/b/c/", "a/b/", "ab/"], ["a/b/c/", "a/"]),
        (["a/b/c/AGENTS.md", "a/x", "a/b/y", "a/b/c/z"], ["a/b/c/", "a/"]),
        (["../a/x", "/a/x", "", "."], []),
    ],
)
def test_the_nearest_folder_above_a_file_counts(tmp_path, used, read):
    conversation = Conversation(tmp_path, {"a": "Text of a.", "a/b/c": "Text of c."})
    conversation.used(used)
    conversation.used(used)
    assert [*conversation.read] == read
    assert conversation.notices == [f"reads the instructions for {name}" for name in read]
    assert all(f"You use files in {name}" in text and "Text of" in text for name, text in conversation.read.items())


def test_summarised_instructions_are_read_again_and_long_ones_are_only_named(tmp_path):
    conversation = Conversation(tmp_path, {"a": "x" * MAX_CHARS * 2, "b": "y" * 100, "c": "Short."})
    conversation.works = False
    conversation.used(["a/x"])
    assert (conversation.read, conversation.notices) == ({}, [])
    conversation.works = True
    conversation.used(["a/x", "b/x"])
    assert MAX_CHARS < len(conversation.read["a/"]) < MAX_CHARS + 500
    assert "no room" in conversation.read["b/"]
    assert "y" * 100 not in conversation.read["b/"]
    assert texts_to_keep(conversation.messages, 2, 1_000) == ([conversation.messages[1].parts[0].content[0]], [])
    assert "[the instructions for a/]" in transcript(conversation.messages, 100_000)
    conversation.messages.clear()
    conversation.used(["b/x", "c/x", "b/x"])
    assert [text.rsplit("\n", 1)[-1] for text in conversation.read.values()] == ["y" * 100, "Short."]


def test_a_cell_that_reads_the_whole_workspace_does_not_fill_the_conversation(tmp_path):
    folders = [f"f{number:03}" for number in range(MAX_FOLDERS * 2)]
    conversation = Conversation(tmp_path, dict.fromkeys(folders, "z" * 3_000))
    for _ in range(2):
        conversation.used([f"{folder}/x" for folder in folders])
    assert len(conversation.read) == MAX_FOLDERS
    assert sum(map(len, conversation.read.values())) < MAX_CHARS + MAX_FOLDERS * 300
