"""Which folders the variables of a program make a place for code that runs later."""

from support.tables import each

from freeact_sub.kernels.wall.programs import LaterProgram, find_later_code


def told_of(workspace, variables):
    program = LaterProgram(name="server", command="/bin/true", args=(), env=tuple(variables.items()), cwd=str(workspace))
    return [text for text in find_later_code(workspace, [workspace], (), [program]).open if "server" in text]


@each(
    ("variables", "is_told"),
    [
        ({"PATH": ""}, True),  # shells and `execvp` start programs from the current folder then
        ({"PATH": "/usr/bin:"}, True),
        ({"PATH": "/usr/bin"}, False),
        ({"LD_LIBRARY_PATH": ""}, False),
        ({"PYTHONPATH": ""}, False),
        ({"LD_LIBRARY_PATH": "/usr/lib:"}, True),
        ({"PYTHONPATH": "."}, True),
    ],
)
def test_an_empty_path_is_the_current_folder_and_other_empty_variables_are_none(tmp_path, variables, is_told):
    assert bool(told_of(tmp_path, variables)) is is_told
