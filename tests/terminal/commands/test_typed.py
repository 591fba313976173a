"""What is typed besides prompts: files after `@`, completion, where prompts are kept."""

import os
import shutil
import subprocess
import time
import unicodedata
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from freeact_sub.config.project_texts import read_commands
from freeact_sub.show.typed_commands import own_commands, prompt_of
from freeact_sub.terminal.attachments import (
    LISTED_SECONDS,
    MAX_CHARS,
    MAX_FILES,
    MAX_PATHS_CHARS,
    MAX_PICTURE_BYTES,
    NamedFiles,
    Pastes,
    mention_of,
    mentioned_names,
    pictures_of,
    texts_of,
)
from freeact_sub.terminal.line import LineCompleter, history_file
from freeact_sub.terminal.slash_commands import COMMANDS, help_table


def test_the_text_of_a_named_file_goes_along_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("buy rain gauges")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0")
    os.mkfifo(tmp_path / "pipe")
    prompt = "compare @notes.md, @picture.png @pipe @missing @. and a@notes.md"
    assert texts_of(prompt, tmp_path) == ["[The file notes.md:]\nbuy rain gauges"]


def test_much_text_is_cut(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("x" * (MAX_CHARS + 500))
    (tmp_path / "next.txt").write_text("never")
    (text,) = texts_of("@long.txt @next.txt", tmp_path)
    assert "[... 500 more bytes]" in text
    assert len(text) < MAX_CHARS + 1000


@pytest.mark.process
@pytest.mark.parametrize("has_git", [True, False])
def test_a_file_is_named_by_any_part_of_its_path(tmp_path: Path, has_git: bool) -> None:
    if has_git and shutil.which("git") is None:
        pytest.skip("needs git")
    names = ("src/app.py", "data/xpp.py", "docs/README.md", "readme_old.md", "build/app.log", ".hidden", "with space")
    for age, name in enumerate((*names, "node_modules/app/index.js"), start=1):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1_000_000 - age, 1_000_000 - age))
    if has_git:
        (tmp_path / ".gitignore").write_text("build\nnode_modules\n")
        subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
        subprocess.run(["git", "config", "core.fsmonitor", f"touch '{tmp_path}/ran';"], cwd=tmp_path, check=True)

    def named(word: str, *used: str) -> list[str]:
        return NamedFiles(tmp_path).matching(word, used)

    shown = {
        "app": ["src/app.py", "build/app.log", "data/xpp.py"],
        "APP.P": ["src/app.py"],
        "readme": ["docs/README.md", "readme_old.md"],
        "srcpy": ["src/app.py"],
        "data": ["data/"],
        "data/": ["data/xpp.py"],
        f"../{tmp_path.name}": [f"../{tmp_path.name}/"],
        ".hid": [".hidden"],
        "hid": [],
        "wsp": ["with space"],
        "": ["src/app.py", "data/xpp.py", "docs/README.md", "readme_old.md", "build/app.log", "with space"],
        "no/such": [],
    }
    if has_git:  # what git ignores stands last
        shown[""].append(shown[""].pop(4))
    found = {word: named(word)[: len(files) or 1] for word, files in shown.items()}
    assert found | {"app": [name for name in named("app") if not name.endswith("/")]} == shown
    assert named("readme", "docs/README.md", "readme_old.md")[:2] == ["readme_old.md", "docs/README.md"]
    assert named("", "with space")[0] == "with space"
    assert not (tmp_path / "ran").exists(), "a program of the repository's settings"


def test_letters_with_marks_are_found_by_the_plain_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # without git
    (tmp_path / "in").mkdir()
    composed, decomposed = "Über.txt", unicodedata.normalize("NFD", "in/élan.md")
    for name in (composed, decomposed):
        (tmp_path / name).touch()
    files = NamedFiles(tmp_path)
    for words, name in ((["uber", "Über", "ubrtxt", "ÜB"], composed), (["elan", "élan", "in/el", "in/él"], decomposed)):
        assert [files.matching(word) for word in words] == [[name]] * len(words)


def test_letters_that_come_often_are_found_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # without git
    (tmp_path / ("test_settings_" * 15)).touch()
    files = NamedFiles(tmp_path)
    begun = time.process_time()
    assert len(files.matching("tsetset_tsetsetting")) == 1
    assert files.matching("test" * 12 + "q") == files.matching("x" * 1_000_000) == []
    assert time.process_time() - begun < 1  # with a pattern that looks for other places of each letter: years


@pytest.mark.process
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_no_setting_of_a_repository_runs_a_program_for_the_menu(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        settings = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        return subprocess.run(
            ["git", *settings, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    for name in ("in/one", "out/two"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    git("sparse-checkout", "init", "--cone", "--sparse-index")
    git("sparse-checkout", "set", "in")
    lacking = git("rev-parse", "HEAD:out").strip()
    (tmp_path / ".git/objects" / lacking[:2] / lacking[2:]).unlink()
    for name, value in {
        "core.repositoryFormatVersion": "1",
        "core.fsmonitor": f"touch '{tmp_path}/ran';",
        "extensions.partialClone": "away",
        "remote.away.promisor": "true",
        "remote.away.url": str(tmp_path),
        "remote.away.uploadPack": f"touch '{tmp_path}/ran'; false",
    }.items():
        git("config", name, value)
    assert NamedFiles(tmp_path).matching("one") == ["in/one"]
    assert not (tmp_path / "ran").exists(), "git has fetched what its index lacks"


@pytest.mark.process
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_upper_files_of_a_large_repository_stay(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    names = ["README.md", *(f"data/{number}/readme" for number in range(MAX_FILES + 1))]
    lines = "".join(f"100644 {'1' * 40} 0\t{name}\n" for name in names)
    subprocess.run(["git", "update-index", "--index-info"], cwd=tmp_path, input=lines, text=True, check=True)
    (tmp_path / ".gitignore").write_text("*.log\n")
    for name, changed in {"README.md": 1, "readme.log": 2}.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (changed, changed))
    assert NamedFiles(tmp_path).matching("readme") == ["README.md", "readme.log"]


def test_each_name_of_a_file_comes_back_from_its_mention(tmp_path: Path) -> None:
    names = ["a.py", "with space", "a@b", "notes(1)", "what?", "...", "émile.md", "-x", "a/b.c/"]
    assert [mentioned_names(f"see {mention_of(name)} now") for name in names] == [[name] for name in names]


def test_what_an_agent_has_just_written_is_named_after_some_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setenv("PATH", "")  # without git
    monkeypatch.setattr(time, "monotonic", lambda: now)
    files = NamedFiles(tmp_path)
    assert files.matching("new") == []
    (tmp_path / "new.py").touch()
    now += LISTED_SECONDS + 1
    assert files.matching("new") == ["new.py"]


def test_the_menu_has_commands_at_the_beginning_and_files_after_an_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rain.csv").touch()
    (tmp_path / "wind and sun.csv").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")  # without git

    def commands(line: str) -> list[tuple[str, str]]:
        return [(command.name, command.words) for command in COMMANDS if command.name.startswith(line)]

    def offered(line: str) -> list[str]:
        return [item.text for item in LineCompleter(commands).get_completions(Document(line), CompleteEvent())]

    assert offered("/co") == ["/compact", "/context", "/cost", "/config", "/copy"]
    assert len(offered("/")) == len(COMMANDS)
    assert offered("clean @ra") == ["@rain.csv"]
    assert offered("clean @wi") == offered('clean @"wi') == ['@"wind and sun.csv"']
    assert offered("/send ra") == offered("co") == offered("") == []


def test_every_command_is_in_the_help_once() -> None:
    names = [command.name for command in COMMANDS]
    assert len(names) == len(set(names))
    listed = [str(cell).partition(" ")[0] for cell in help_table({}, ()).columns[0].cells]
    assert listed[: len(names)] == names


def test_prompts_are_kept_for_each_folder_for_the_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    north, south = Path(history_file(Path("/north"))), Path(history_file(Path("/south")))
    assert north != south
    assert north.stat().st_mode & 0o777 == 0o600
    assert history_file(Path("/north")) == str(north)
    monkeypatch.setenv("XDG_STATE_HOME", str(north))  # a file where the folder would be
    assert history_file() == os.devnull


def test_a_command_of_ones_own_is_a_prompt_in_a_file(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for path, text in {
        ours / "tidy.md": "# Tidy up\n\nTidy $ARGUMENTS, and only $ARGUMENTS.",
        ours / "review.md": '---\ndescription: "look at it"\nmodel: x\n---\nReview.\n',
        ours / "help.md": "taken",
        ours / "No Name.md": "none",
        ours / "empty.md": "---\n---\n",
        theirs / "tidy.md": "another",
    }.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (ours / "folder.md").mkdir()
    commands = own_commands(read_commands([ours, theirs, tmp_path / "missing"]), {"/help"})
    words = {name: command.words for name, command in commands.items() if name != "/init"}  # that is ours
    assert words == {"/review": "look at it", "/tidy": "Tidy up"}
    assert own_commands({Path("init.md"): b"Mine."}, ())["/init"].prompt == "Mine."
    assert commands["/tidy"].with_arguments("src").endswith("Tidy src, and only src.")
    assert commands["/review"].with_arguments("") == "Review."
    assert commands["/review"].with_arguments("it all") == "Review.\n\nit all"
    assert prompt_of("/review it\nall ", commands) == prompt_of("/review\nit\nall", commands) == "Review.\n\nit\nall"
    assert prompt_of("/other /review", commands) == "/other /review"
    assert "/review" in help_table(commands, ()).columns[0].cells


def test_pictures_that_a_prompt_names_go_along_within_bounds(tmp_path: Path) -> None:
    (tmp_path / "a map.PNG").write_bytes(b"\x89PNG map")
    (tmp_path / "lies.png").write_bytes(b"no picture")
    (tmp_path / "large.jpg").write_bytes(b"\xff\xd8\xff" + bytes(MAX_PICTURE_BYTES))
    os.mkfifo(tmp_path / "pipe.png")
    found = pictures_of('see @"a map.PNG", @lies.png @large.jpg @pipe.png @gone.png @a.txt', tmp_path)
    assert [(picture.data, picture.media_type) for picture in found] == [(b"\x89PNG map", "image/png")]


def test_pictures_that_are_dragged_are_named_and_a_long_paste_is_as_it_is(tmp_path: Path) -> None:
    picture = tmp_path / "a map.png"
    picture.touch()
    assert Pastes().folded(f"'{picture}' ") == f'@"{picture}" '
    many = f"'{picture}' " * (MAX_PATHS_CHARS // len(f"'{picture}' ") + 1)
    assert Pastes().folded(many) == many
