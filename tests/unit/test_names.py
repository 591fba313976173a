"""A class's name tells which class it is: no two in the package have one name, and none differ only by an underscore."""

import ast
from collections import defaultdict
from pathlib import Path

import freeact_sub

PACKAGE = Path(freeact_sub.__file__).parent

BOTH_IN_HOST_AND_KERNEL = {
    "TaskError": "code in a kernel raises what the host's SDK raises, by the same name",
}


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def test_no_two_classes_have_one_name():
    places = defaultdict(list)
    for path in modules():
        for item in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(item, ast.ClassDef):
                places[item.name.lstrip("_")].append(f"{path.relative_to(PACKAGE)}:{item.lineno}")
    assert len(places) > 100
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert twice.keys() == BOTH_IN_HOST_AND_KERNEL.keys(), twice
    for name, where in twice.items():
        assert [("kernels/guest/" in place) for place in sorted(where)].count(True) == 1, (name, where)


def test_few_files_have_one_name():
    """A fuzzy finder's list for a name fits one look."""
    paths = defaultdict(list)
    for path in modules():
        paths[path.name].append(str(path.relative_to(PACKAGE)))
    del paths["__init__.py"]
    assert {name: where for name, where in paths.items() if len(where) > 3} == {}
