"""What the commands of hooks and servers name is kept from being written, or told: variables, folders, nested shells."""

import os
import sys

from support.tables import each

from freeact_sub.kernels.wall.programs import LaterProgram, find_later_code

FILES = (
    "tools/check",
    "tools/check.py",
    "tools/run",
    "lib/json.py",
    "bin/myserver",
    "server/s.py",
    "env.sh",
    "deep/in/run",
    "pre.js",
)


def in_bash(text):
    return "bash", ("-c", text)


COMMANDS = {
    "a variable of Python": (in_bash("PYTHONPATH=lib python3 -P tools/check.py"), "lib"),
    "a variable in quotes": (in_bash('PYTHONPATH="lib:$PYTHONPATH" python3 -P tools/check.py'), "lib"),
    "the search path": (in_bash("PATH=tools:$PATH check"), "tools"),
    "the search path, by the working folder": (in_bash('PATH="$PWD/tools:${PATH}" check'), "tools"),
    "the search path, by a command": (in_bash("PATH=$(pwd)/tools:$PATH check"), "tools"),
    "export": (in_bash("export PYTHONPATH=lib; exec python3 -P server/s.py"), "lib"),
    "several of them": (in_bash("A=1 B=2 PERL5LIB=lib perl /usr/bin/x"), "lib"),
    "env": (("env", ("PYTHONPATH=lib", sys.executable, "server/s.py")), "lib"),
    "env -S": (("env", ("-S", f"PYTHONPATH=lib {sys.executable} -P server/s.py")), "lib"),
    "sh -c": (("sh", ("-c", f"PYTHONPATH=lib exec {sys.executable} -P server/s.py x")), "lib"),
    "sh -c with a search path": (("sh", ("-c", "PATH=bin:$PATH exec myserver x")), "bin"),
    "a shell in a shell": (in_bash("sh -c 'PYTHONPATH=lib python3 -P server/s.py'"), "lib"),
    "another folder": (in_bash("cd tools && sh run"), "tools/run"),
    "another folder, in a shell": (in_bash('bash -c "cd tools && sh run"'), "tools/run"),
    "one folder after the other": (in_bash("cd deep; cd in; sh run"), "deep/in/run"),
    "a group": (in_bash("(cd ./tools/ && sh run) || true"), "tools/run"),
    "a folder in quotes": (in_bash("pushd 'tools' >/dev/null; ./run"), "tools/run"),
    "what a shell reads first": (in_bash("BASH_ENV=env.sh bash -c true"), "env.sh"),
    "what node reads first": (in_bash("NODE_OPTIONS='--require ./pre.js' node -v"), "pre.js"),
    "any variable that names code": (in_bash("CHECKER=tools/check.py /usr/bin/checker"), "tools/check.py"),
    "a default": (in_bash("PYTHONPATH=${NOT_THERE_AT_ALL:-lib} python3 -P tools/check.py"), "lib"),
    "a missing file": (in_bash("BASH_ENV=./later.sh bash -c true"), "later.sh"),
    "a value that is known later": (in_bash("PYTHONPATH=$(cat where) python3 -P tools/check.py"), "$(cat where)"),
    "a folder that is known later": (in_bash('cd "$(git rev-parse --show-toplevel)" && sh run'), "known only then"),
}


@each("what", COMMANDS)
def test_what_a_command_names_is_kept_or_told(what, tmp_path):
    for name in FILES:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
        file.chmod(0o755)
    (command, args), expected = COMMANDS[what]
    program = LaterProgram(name="it", command=command, args=args, cwd=str(tmp_path))
    found = find_later_code(tmp_path, [tmp_path], (), [program])
    place = os.path.join(tmp_path, expected)
    is_kept = any(f"{place}/".startswith(f"{path}/") for path in found.paths)
    assert is_kept or any(expected in text and "it" in text for text in found.open), (found.paths, found.open)


@each(
    "text",
    ["FOO=bar x", "cd /usr && ls", "DATA=data python3 -P /usr/x.py", "PATH=/usr/bin ls", "echo a=b", "cd /usr && ./x.sh"],
)
def test_other_folders_can_be_written(text, tmp_path):
    (tmp_path / "data").mkdir()
    program = LaterProgram(name="it", command="bash", args=("-c", text), cwd=str(tmp_path))
    found = find_later_code(tmp_path, [tmp_path], (), [program])
    assert [path for path in found.paths if path.startswith(str(tmp_path))] == []
    assert [each for each in found.open if "it" in each.split()] == []
