"""A class's name tells which class it is: no two in the package have one name, and none differ only by an underscore."""

import ast
from collections import defaultdict

import pytest
from support.package_source import source
from support.programs import ROOT

PACKAGE = ROOT / "freeact_sub"

BOTH_IN_HOST_AND_KERNEL = {
    "TaskError": "code in a kernel raises what the host's SDK raises, by the same name",
}


@pytest.mark.slow
def test_no_two_classes_have_one_name():
    places = defaultdict(list)
    for module, tree in source().trees.items():
        path = source().files[module]
        for item in ast.walk(tree):
            if isinstance(item, ast.ClassDef):
                places[item.name.lstrip("_")].append(f"{path.relative_to(PACKAGE)}:{item.lineno}")
    assert len(places) > 100
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert twice.keys() == BOTH_IN_HOST_AND_KERNEL.keys(), twice
    for name, where in twice.items():
        assert [("kernels/guest/" in place) for place in sorted(where)].count(True) == 1, (name, where)


NOT_THE_WORD_FOR = {
    "TreeAgent": "node",  # a node is a kernel without an agent
    "KernelNode": "agent",
    "OwnedNode": "agent",
    "Decision": "answer",  # an answer is a model's text, or a person's to a question of code
    "ApprovalDecided": "answer",
    "CodeExecutionOutput": "answer",
}
"""A word that no variable, parameter or field of this type is called by."""


def annotated(tree):
    """The names with an annotation, each with the types in it, and its line."""
    for item in ast.walk(tree):
        if isinstance(item, ast.arg) and item.annotation is not None:
            name, annotation = item.arg, item.annotation
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name | ast.Attribute):
            name = item.target.id if isinstance(item.target, ast.Name) else item.target.attr
            annotation = item.annotation
        else:
            continue
        # the type itself, or one of a union: what a Callable or a dict holds is not what its name says
        written = ast.unparse(annotation).replace("'", "").replace('"', "")
        yield name, {part.strip().removeprefix("ev.") for part in written.split("|")} - {"None"}, item.lineno


@pytest.mark.slow
def test_a_word_has_one_meaning():
    wrong, seen = [], set()
    for module, tree in source().trees.items():
        path = source().files[module]
        for name, types, line in annotated(tree):
            if len(types) != 1 or (kind := next(iter(types))) not in NOT_THE_WORD_FOR:
                continue
            seen.add(kind)
            if NOT_THE_WORD_FOR[kind] in name.split("_"):
                wrong.append(f"{path.relative_to(PACKAGE)}:{line}: {name}: {kind}")
    assert not wrong, wrong
    assert seen == NOT_THE_WORD_FOR.keys(), "a type that is gone is not checked"


def test_few_files_have_one_name():
    """A fuzzy finder's list for a name fits one look."""
    paths = defaultdict(list)
    for path in source().files.values():
        paths[path.name].append(str(path.relative_to(PACKAGE)))
    del paths["__init__.py"]
    assert {name: where for name, where in paths.items() if len(where) > 3} == {}
