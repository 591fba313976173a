"""Skills: what a folder says, what is wrong with it, what models read of it; the format's own validator is asked too."""

import importlib.machinery
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from skills_ref import validate
from support.tables import each

from freeact_sub import load_config
from freeact_sub.cli import main
from freeact_sub.config.project_texts import MAX_SKILL_FILES, read_skill, read_skill_folders
from freeact_sub.config.trust import Trust
from freeact_sub.errors import UntrustedError
from freeact_sub.features.skills.skill import (
    CATALOGUE_CHARS,
    Skill,
    Skills,
    catalogue,
    check_skill,
    load_skills,
    loaded_text,
    signatures,
)
from freeact_sub.kernels.guest import skills as guest

WHOLE = "---\nname: pdf-tables\ndescription: Reads tables. Use it for PDF files.\n---\n# Tables\n\nRead them.\n"
EXAMPLES = Path(__file__).parents[3] / "examples/extending/skills/.agents/skills"


def write(
    folder: Path, name: str = "pdf-tables", text: str = WHOLE, files: Mapping[str, str] = MappingProxyType({})
) -> Path:
    path = folder / name
    for file, content in {"SKILL.md": text, **files}.items():
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        (path / file).write_text(content)
    return path


def loaded(folder: Path) -> Skills:
    return load_skills(read_skill_folders([folder]).values())


def only(folder: Path) -> Skill:
    found = loaded(folder)
    assert found.problems == ()
    [skill] = found.skills.values()
    return skill


def test_a_skill_is_a_folder_and_its_catalogue_line_has_signatures_that_nothing_ran_for(tmp_path):
    code = 'raise SystemExit("ran")\ndef extract(path: "Path", *, pages="all", **more) -> list[int]: ...\ndef _own(): ...\n'
    write(tmp_path, files={"skill.py": code, "references/more": "text", "scripts/run.py": "print()"})
    skill = only(tmp_path)
    assert (skill.name, skill.module, skill.files) == ("pdf-tables", "pdf_tables", ("references/more", "scripts/run.py"))
    assert skill.signatures == ("extract(path: Path, *, pages='all', **more) -> list[int]",)
    text = catalogue({skill.name: skill})
    assert "- pdf-tables: Reads tables. Use it for PDF files. [skills.pdf_tables: extract(path: Path" in text
    assert "# Tables" not in text
    told = loaded_text(skill)
    assert told.startswith(f'<skill name="pdf-tables" folder="{tmp_path / "pdf-tables"}">\n# Tables\n\nRead them.')
    assert "references/more, scripts/run.py" in told
    assert "`from skills import pdf_tables`" in told


def test_without_skills_the_prompt_does_not_grow(tmp_path):
    assert catalogue({}) == ""
    write(tmp_path, text=WHOLE.replace("---\n#", "disable-model-invocation: true\n---\n#"))
    skill = only(tmp_path)
    assert skill.for_people
    assert catalogue({skill.name: skill}) == ""


@each(
    ("source", "found"),
    [
        ("async def f(a, /, b=1, *c: int, d: str = 'x'): ...", ("async f(a, /, b=1, *c: int, d: str = 'x')",)),
        ("class A:\n  def __init__(self, path): ...", ("class A(path)",)),
        ("@dataclass\nclass A:\n  x: int", ("class A",)),
        ("__all__ = ['b']\ndef a(): ...\ndef b(): ...", ("b()",)),
        ("__all__ = names()\ndef a(): ...", ("a()",)),
        ("if True:\n  def hidden(): ...", ()),
    ],
)
def test_signatures(source, found):
    assert signatures(source.encode()) == (found, "")


def test_python_that_is_none_is_a_fault_and_the_text_counts_nevertheless(tmp_path):
    write(tmp_path, files={"skill.py": "def extract(:"})
    found = loaded(tmp_path)
    assert found.skills["pdf-tables"].modules == ()
    [problem] = found.problems
    assert "skill.py: it is not Python (line 1)" in problem


def test_a_package_counts_as_a_whole_and_instead_of_skill_py(tmp_path):
    files = {"pdf_tables/__init__.py": "from .inner import f", "pdf_tables/inner.py": "def f(): ...", "skill.py": "x = 1"}
    write(tmp_path, files=files)
    modules = {module.name: module for module in only(tmp_path).modules}
    assert set(modules) == {"pdf_tables", "pdf_tables.inner"}
    assert modules["pdf_tables"].is_package
    assert not modules["pdf_tables.inner"].is_package


LENIENT = [
    ("no head", "# Tables\n", "must begin with a line `---`", None),
    ("no description", "---\nname: pdf-tables\n---\nx\n", "it has no `description`", None),
    ("an empty description", "---\nname: pdf-tables\ndescription:\n---\nx\n", "it has no `description`", None),
    ("another name", WHOLE.replace("name: pdf-tables", "name: tables"), "the folder has another name", "tables"),
    ("no name", WHOLE.replace("name: pdf-tables\n", ""), "`name` is missing", "pdf-tables"),
    ("capitals", WHOLE.replace("name: pdf-tables", "name: PDF"), "capital letters", "PDF"),
    ("a path", WHOLE.replace("name: pdf-tables", "name: ../x"), "other characters", "pdf-tables"),
    ("a colon", WHOLE.replace("Reads tables.", "Reads tables: all."), "read line by line", "pdf-tables"),
    ("a tab", WHOLE.replace("name: pdf-tables", "\tname: x\nname: pdf-tables"), "read line by line", "pdf-tables"),
]


@each(("text", "said", "name"), [case[1:] for case in LENIENT], ids=[case[0] for case in LENIENT])
def test_usable_parts_are_used_and_each_fault_is_one_sentence(tmp_path, text, said, name):
    write(tmp_path, text=text)
    write(tmp_path, "other", WHOLE.replace("pdf-tables", "other"))
    found = loaded(tmp_path)
    assert {*found.skills} == {"other", *filter(None, [name])}
    assert sum(said in problem for problem in found.problems) == 1
    assert all(str(tmp_path / "pdf-tables") in problem for problem in found.problems)
    if name:
        assert found.skills[name].description.endswith("Use it for PDF files.")


CASES = {
    "right": (WHOLE, "pdf-tables"),
    "all settings": (WHOLE.replace("---\n#", "license: MIT\ncompatibility: any\nallowed-tools: Bash\n---\n#"), "pdf-tables"),
    "metadata": (WHOLE.replace("---\n#", "metadata:\n  author: me\n  version: 1.0\n---\n#"), "pdf-tables"),
    "a folded description": (WHOLE.replace("description: Reads", "description: >\n  Reads"), "pdf-tables"),
    "an unknown setting": (WHOLE.replace("---\n#", "model: small\n---\n#"), "pdf-tables"),
    "another folder": (WHOLE, "tables"),
    "capitals": (WHOLE.replace("pdf-tables", "PDF"), "PDF"),
    "two hyphens": (WHOLE.replace("pdf-tables", "a--b"), "a--b"),
    "a hyphen at the end": (WHOLE.replace("pdf-tables", "a-"), "a-"),
    "an underscore": (WHOLE.replace("pdf-tables", "a_b"), "a_b"),
    "letters of another script": (WHOLE.replace("pdf-tables", "größe"), "größe"),
    "a number": (WHOLE.replace("pdf-tables", "123"), "123"),
    "a long name": (WHOLE.replace("pdf-tables", "a" * 65), "a" * 65),
    "the longest name": (WHOLE.replace("pdf-tables", "a" * 64), "a" * 64),
    "a long description": (WHOLE.replace("Reads", "R" * 1024), "pdf-tables"),
    "long compatibility": (WHOLE.replace("---\n#", f"compatibility: {'x' * 501}\n---\n#"), "pdf-tables"),
    "no name": (WHOLE.replace("name: pdf-tables\n", ""), "pdf-tables"),
    "no description": (WHOLE.replace("description: Reads tables. Use it for PDF files.\n", ""), "pdf-tables"),
    "no head": ("# Tables", "pdf-tables"),
    "an open head": ("---\nname: pdf-tables\n", "pdf-tables"),
    "not YAML": (WHOLE.replace("Reads tables.", "Reads: tables: all"), "pdf-tables"),
    "a name twice": (WHOLE.replace("name: pdf-tables", "name: pdf-tables\nname: pdf-tables"), "pdf-tables"),
}


@each("case", CASES)
def test_the_check_finds_a_fault_where_the_formats_own_validator_does(case, tmp_path):
    text, name = CASES[case]
    path = write(tmp_path, name, text)
    assert bool(check_skill(read_skill(path))) == bool(validate(path)), validate(path)


@pytest.mark.parametrize("name", ["commit-message", "table-report"])
def test_the_examples_are_right(name):
    assert validate(EXAMPLES / name) == check_skill(read_skill(EXAMPLES / name)) == []


def test_two_folders_that_lead_to_one_skill_and_two_skills_with_one_name(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    write(first)
    second.mkdir()
    (second / "pdf-tables").symlink_to(first / "pdf-tables")
    assert load_skills(read_skill_folders([first, second]).values()).problems == ()
    (second / "pdf-tables").unlink()
    write(second, text=WHOLE.replace("Reads", "Writes"))
    found = load_skills(read_skill_folders([first, second, tmp_path / "gone"]).values())
    assert found.skills["pdf-tables"].description.startswith("Reads")
    assert [str(second) in problem and "same name" in problem for problem in found.problems] == [True]


def test_special_files_are_not_read(tmp_path):
    path = write(tmp_path)
    os.mkfifo(path / "pipe")
    (path / "far").symlink_to("/etc")
    (path / "skill.py").symlink_to("/dev/zero")
    [problem] = loaded(tmp_path).problems
    assert "skill.py cannot be read: it is a link" in problem
    (path / "skill.py").unlink()
    folder = read_skill(path)
    assert folder.files == ("far", "pipe")
    assert b"'far': a link to '/etc'" in folder.listing
    assert b"'pipe': not a file" in folder.listing
    (path / "SKILL.md").unlink()
    os.mkfifo(path / "SKILL.md")
    assert "not a regular file" in loaded(tmp_path).problems[0]


@pytest.mark.slow
def test_a_skill_of_too_many_files_is_left_out(tmp_path):
    path = write(tmp_path)
    for number in range(MAX_SKILL_FILES):
        (path / str(number)).touch()
    [problem] = loaded(tmp_path).problems
    assert f"more than {MAX_SKILL_FILES:,} files" in problem


def test_a_catalogue_of_very_many_skills_ends_with_names_only(tmp_path):
    skills = {
        f"s{number}": Skill(name=f"s{number}", description="d" * 1000, text="", folder=tmp_path) for number in range(100)
    }
    text = catalogue(skills)
    assert len(text) < CATALOGUE_CHARS + 3_000
    assert text.endswith("\n  - s99")


# trust


@pytest.mark.parametrize("place", [".agents/skills", ".claude/skills"])
def test_a_skill_counts_with_the_content_of_its_whole_folder(tmp_path, place):
    workspace, trust = tmp_path / "workspace", Trust(tmp_path / "own")
    path = write(workspace / place, files={"assets/data": "1", "skill.py": "x = 1"})
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config")}

    def load():
        return load_config(workspace, environment=environment, trust=trust)

    with pytest.raises(UntrustedError) as caught:
        load()
    assert caught.value.rest is not None
    assert [*caught.value.files] == [path]
    assert b"description: Reads tables" in caught.value.files[path]
    assert b"'assets/data': 1 bytes, sha256 " in caught.value.files[path]
    trust.add(caught.value.files)
    assert [*load().skill_contents] == [path]
    for change in (
        lambda: (path / "assets/data").write_text("2"),
        lambda: (path / "skill.py").write_text("x = 2"),
        lambda: (path / "new").write_text(""),
        lambda: (path / "assets/data").unlink(),
        lambda: (path / "new").rename(path / "newer"),
        lambda: (path / "__pycache__").mkdir() or (path / "__pycache__/x.cpython-311.pyc").touch(),
        lambda: (path / "__pycache__/x.cpython-311.pyc").write_text("another"),
        lambda: (path / "x.pyc").touch(),
    ):
        change()
        with pytest.raises(UntrustedError) as caught:
            load()
        trust.add(caught.value.files)
        load()


def test_skills_of_ones_own_need_no_trust_and_those_of_the_project_come_first(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    own = write(tmp_path / "config/freeact/skills", "mine", WHOLE.replace("pdf-tables", "mine"))
    shared = write(tmp_path / "home/.agents/skills", "ours", WHOLE.replace("pdf-tables", "ours"))
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    config = load_config(workspace, environment=environment, trust=Trust(tmp_path / "own"))
    assert [*config.skill_contents] == [own, shared]
    project = write(workspace / ".claude/skills", "mine", WHOLE.replace("pdf-tables", "mine"))
    found = load_skills(load_config(workspace, environment=environment).skill_contents.values())
    assert found.skills["mine"].folder == project
    assert [*found.skills] == ["mine", "ours"]


# the command line


def test_the_command_lists_checks_and_begins_skills(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert main(["skills", "list"]) == 0
    assert "skills new NAME" in capsys.readouterr().out
    assert main(["skills", "new", "pdf-tables"]) == 0
    assert main(["skills", "new", "pdf-tables"]) == 2
    assert main(["skills", "new", "../pdf"]) == 2
    assert validate(tmp_path / ".agents/skills/pdf-tables") == []
    capsys.readouterr()
    assert main(["skills", "check"]) == 0
    assert main(["skills", "check", str(write(tmp_path / "away", "wrong"))]) == 1
    assert "the folder has another name" in capsys.readouterr().out
    assert main(["skills", "check", "nowhere"]) == 2
    assert main(["skills", "list"]) == 0
    assert "pdf-tables: What this skill does" in capsys.readouterr().out


# the finder of kernels, in this process


@pytest.fixture
def finder(monkeypatch):
    finder = guest.SkillFinder()
    monkeypatch.setattr(guest, "FINDER", finder)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    yield finder
    for name in [name for name in sys.modules if name.partition(".")[0] == "skills"]:
        del sys.modules[name]


def module(name: str, source: str, *, is_package: bool = False) -> dict[str, object]:
    return {"name": name, "file": f"/nowhere/{name}.py", "source": source, "is_package": is_package}


def test_the_finder_imports_modules_and_packages_and_nothing_else(finder):
    guest.install(
        [module("one", "x = 1"), module("two", "from .inner import y", is_package=True), module("two.inner", "y=2")]
    )
    from skills import one, two

    assert (one.x, two.y) == (1, 2)
    assert sys.modules["skills"].__all__ == ["one", "two"]
    with pytest.raises(ImportError, match="three"):
        from skills import three  # noqa: F401


def test_only_what_has_changed_is_imported_again(finder):
    guest.install([module("one", "x = object()"), module("two", "y = 1")])
    from skills import one, two

    guest.install([module("one", "x = object()"), module("two", "y = 2")])
    from skills import one as same
    from skills import two as other

    assert same is one
    assert (two.y, other.y) == (1, 2)
    guest.install([])
    with pytest.raises(ImportError):
        import skills.one  # noqa: F401


@pytest.mark.parametrize(
    ("file", "theirs"),
    [
        ("skills/__init__.py", True),
        ("skills/pdf/SKILL.md", False),
        ("skills/one/readme", False),
        ("skills/one.py", True),
        ("skills/more.py", False),
    ],
)
def test_a_package_of_the_projects_own_is_not_in_the_way(finder, tmp_path, monkeypatch, file, theirs):
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text("own = True" if path.suffix == ".py" else "")
    monkeypatch.syspath_prepend(tmp_path)
    guest.install([module("one", "own = False")])
    from skills import one

    assert getattr(sys.modules["skills"] if file.endswith("__init__.py") else one, "own", False) is theirs
    assert importlib.machinery.PathFinder.find_spec("skills", [str(tmp_path)]) is not None


def test_a_package_that_is_missing_is_named(finder):
    guest.install([module("one", "import no_such_package_at_all")])
    with pytest.raises(ModuleNotFoundError) as caught:
        import skills.one  # noqa: F401
    assert caught.value.__notes__ == ["The skill one needs 'no_such_package_at_all', which this Python does not have."]
