"""Code in folders that a kernel may write, which is run later outside of the kernel's wall.

That is the code of the host and its Python, of the kernels' Python, whose start is not walled, and of the MCP servers. A
folder from which one of them imports counts whole, for a new file in it can take the place of a module. Where such a folder
is the workspace itself, or does not exist yet, it cannot be kept from being written, and `open` says so.
"""

import itertools
import os
import re
import shutil
import site
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from freeact_sub.pythons.installed import is_in
from freeact_sub.pythons.project import (
    base_of,
    inner_parts,
    is_environment,
    links_from,
    package_folders,
    parts_of,
    sources_of,
    words_of_script,
)

PYTHON: Final = re.compile(r"(python|pypy)[\d.]*w?")
OBEY_THEIR_FOLDER: Final = frozenset(
    ("npx", "npm", "pnpm", "yarn", "bun", "bunx", "deno", "uv", "uvx", "poetry", "pdm", "hatch", "pipenv", "make", "just")
)
"""Programs that run code, or take settings, of the folder in which they are started."""
FOLDER_OPTIONS: Final = frozenset(("--directory", "--project", "--from", "--with-editable", "--prefix", "--cwd", "-C"))
CODE: Final = frozenset((".py", ".pyw", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".sh", ".bash", ".rb", ".pl"))
"""Endings of scripts: they run code that stands beside them."""
SEARCHED: Final = re.compile(
    r"PATH|PYTHONHOME|PYTHONUSERBASE|PYTHONPYCACHEPREFIX|PERL5LIB|RUBYLIB|CLASSPATH"
    r"|(PYTHON|NODE_|LD_|GIT_|PERL|RUBY|JUPYTER_|LUA_).*PATH"
)
"""Variables that name folders with programs, modules or libraries."""
STARTED: Final = re.compile(
    r"EDITOR|VISUAL|PAGER|SHELL|BROWSER|PYTHONSTARTUP|NODE_OPTIONS|(BASH_)?ENV|LD_PRELOAD|LD_AUDIT|(GIT|SSH)_\w+"
    r"|PERL5OPT|RUBYOPT|JAVA_TOOL_OPTIONS"
)
"""Variables that name files whose code is run, among other words."""
ACTIVE: Final = ("VIRTUAL_ENV", "CONDA_PREFIX")
"""Variables that name the environment that the user has activated."""
CACHES: Final = ("~/.npm", "~/.bun", "~/.deno", "~/.cache/deno", "~/.local/share/pnpm", "~/.local/share/uv")
"""Folders from which `npx`, `uvx` and the like run packages that they have installed before."""
SHELLS: Final = frozenset(("sh", "bash", "dash", "ash", "ksh", "zsh"))
STARTERS: Final = re.compile(
    r"(.*/)?env|exec|command|nohup|nice|time|timeout|setsid|sudo|xargs|stdbuf|export|if|then|else|elif|do|while|until|!|source|\."
)
"""Words of a shell's command before the name of the program."""
TEXT: Final = r"""(?:"[^"]*"|'[^']*'|\$\([^()]*\)|`[^`]*`|[^\s;&|()"'])"""
ASSIGNED: Final = re.compile(rf"""(?:^|(?<=[\s;&|('"{{]))([A-Za-z_]\w*)\+?=({TEXT}*)""")
"""`NAME=value`, wherever it stands in a command."""
ENTERED: Final = re.compile(rf"""\b(?:cd|pushd)\s+(?:--\s+)?({TEXT}+)""")
"""`cd FOLDER`."""
PARTS: Final = re.compile(r"[;&|()`{}\n]+")
"""Separators between the commands of a shell's text, also within quotes: it may be the text of another shell."""
PLACES: Final = 16
"""Maximum number of folders in which the commands of one program may run."""
CUSTOM: Final = ("sitecustomize", "usercustomize")
"""Modules that every start of a Python imports where they exist."""


@dataclass(frozen=True, kw_only=True)
class LaterProgram:
    """A program that the host starts outside of the wall."""

    name: str
    """The name for people."""
    command: str
    args: tuple[str, ...] = ()
    cwd: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    """Variables besides the host's own."""


@dataclass(frozen=True, kw_only=True)
class LaterCode:
    """Code that is run later."""

    paths: tuple[str, ...]
    """Files and folders, to be kept from being written."""
    sources: tuple[str, ...]
    """Folders among these from which packages are installed in editable form."""
    open: tuple[str, ...]
    """Paths that cannot be kept, in words."""


def find_later_code(
    workspace: Path, writable: Iterable[Path], own: Iterable[str], programs: Iterable[LaterProgram]
) -> LaterCode:
    """Finds the code in the writable folders that runs later outside of the wall.

    Args:
        workspace: The workspace.
        writable: The folders that a kernel may write, the workspace among them.
        own: The files and folders of the kernels' Python.
        programs: The programs that the host starts.
    """
    search = _LaterCodeSearch(os.path.realpath(workspace), {os.path.realpath(path) for path in writable})
    search.look_at_host()
    for path in own:
        search.keep(path)
    for program in programs:
        search.program(program)
    return search.found()


class _LaterCodeSearch:
    def __init__(self, workspace: str, roots: set[str]) -> None:
        self._workspace = workspace
        self._roots = roots
        self._paths: set[str] = set()
        self._sources: set[str] = set()
        self._open: dict[str, None] = {}
        self._missing: list[tuple[str, str]] = []
        self._seen: set[tuple[str, str]] = set()

    def found(self) -> LaterCode:
        """Returns all that was found."""
        kept = {path for path in map(os.path.realpath, self._paths) if self._is_writable(path)}
        for path, use in self._missing:
            if not is_in(path, kept):
                self._open[f"{path}, which does not exist yet ({use})"] = None
        sources = tuple(sorted(kept & self._sources))
        return LaterCode(paths=tuple(sorted(self._paths)), sources=sources, open=tuple(self._open))

    def look_at_host(self) -> None:
        """Looks at the Python that runs this process, and at its imports and programs."""
        use = "this Python imports from it"
        for prefix in {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}:
            self._environment(prefix, use)
        self.python(sys.executable)
        if site.ENABLE_USER_SITE:
            self._folder(site.getusersitepackages(), use)
        for entry in filter(None, (*(entry or "." for entry in sys.path), sys.pycache_prefix)):
            self._folder(entry, use)
            for source in sources_of(entry) if entry.endswith("-packages") else ():
                self._folder(source, f"{use}, as {entry} says")
        self.keep(str(Path(str(resources.files("freeact_sub")))), whole=True, use=use)
        self.keep(getattr(sys.modules["__main__"], "__file__", None) or "")
        self._variables(dict(os.environ))
        for name in ACTIVE:
            if folder := os.environ.get(name):
                self._file(os.path.join(folder, "bin", "python"), f"the next start runs cells in it: {name} names it")
        startup = os.environ.get("IPYTHONDIR") or os.path.expanduser("~/.ipython")
        self._folder(startup, "a kernel without a wall runs its startup files")
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        self.keep(os.environ.get("UV_CACHE_DIR") or os.path.join(cache, "uv"))  # environments have hard links to its files
        for folder in CACHES:
            self.keep(os.path.expanduser(folder))
        self._home(os.path.expanduser("~"))
        shared = tuple(f"{os.path.abspath(entry)}/" for entry in sys.path if os.path.realpath(entry) in self._roots)
        for name, module in tuple(sys.modules.items()) if shared else ():
            file = getattr(module, "__file__", None)
            if file and "." not in name and name != "__main__" and file.startswith(shared):
                self.keep(os.path.dirname(file) if hasattr(module, "__path__") else file)

    def _home(self, home: str) -> None:
        """Keeps the hidden files of the user's home folder, which shells, SSH, git, editors and the desktop obey."""
        real = os.path.realpath(home)
        if not self._is_writable(real) or not os.path.isdir(home):
            return
        with os.scandir(home) as entries:
            for entry in entries:
                own = os.path.realpath(entry.path)
                if (entry.name.startswith(".") or entry.name == "bin") and not any(
                    is_in(root, [own]) for root in self._roots
                ):
                    for step in links_from(entry.path):
                        self.keep(step)
        self._open[f"new hidden files in {real} (your shell and other programs obey them)"] = None

    def python(self, python: str) -> None:
        """Looks at a Python that is started."""
        path = shutil.which(python)
        if path is None:
            self._file(python, "a Python is started from it")
            return
        for step in links_from(os.path.abspath(path)):
            self._file(step, "a Python is started from it")
            self._environment(os.path.dirname(os.path.dirname(step)), f"the Python {python} imports from it")

    def program(self, program: LaterProgram) -> None:
        """Looks at a program that the host starts, and at the files that its words name."""
        cwd, use = os.path.abspath(program.cwd or "."), f"{program.name} runs code in it"
        self._variables(dict(program.env), cwd=cwd, use=use)
        env = {**os.environ, **dict(program.env)}
        texts = [text for text in program.args if not os.path.exists(os.path.join(cwd, text))]
        places = self._places(texts, cwd, env, program.name)
        env |= self._assigned(texts, places, env, program.name)
        for words in _commands(program.command, program.args, cwd):
            for place in places:
                self._start(words, place, use, env, program.name)

    def _places(self, texts: Iterable[str], cwd: str, env: Mapping[str, str], name: str) -> list[str]:
        """Returns the folders in which the commands of a program may run: its own, and the folders that it enters."""
        places = [cwd]
        for match in (match for text in texts for match in ENTERED.finditer(text)):
            is_first = not match.string[: match.start()].strip(" \t'\"(")
            for value, is_known in _expanded(match[1], cwd, env):
                if is_known and is_first and os.path.isdir(folder := os.path.join(cwd, value)):
                    places = [folder]
                elif is_known:
                    places += [os.path.join(place, value) for place in places][: PLACES - len(places)]
                else:
                    self._open[f"what {name} runs in the folder {match[1]}, which is known only then"] = None
        return list(dict.fromkeys(map(os.path.normpath, places)))

    def _assigned(self, texts: Iterable[str], places: list[str], env: Mapping[str, str], name: str) -> dict[str, str]:
        """Returns the variables that a program's own command sets; looks at the paths in them."""
        found: dict[str, str] = {}
        for match in (match for text in texts for match in ASSIGNED.finditer(text)):
            variable, value = match[1], match[2]
            searched = SEARCHED.fullmatch(variable)
            for text, is_known in _expanded(value, places[0], {**env, **found}, paths=bool(searched)):
                if is_known:
                    found[variable] = f"{found[variable]}{os.pathsep}{text}" if searched and variable in found else text
                    for place in places:
                        self._variables({variable: text}, cwd=place, use=f"{name} runs code in it")
                        if not searched and not STARTED.fullmatch(variable):
                            for word in re.findall(r"[^\s'\",:=]+", text):
                                self._word(os.path.join(place, word), f"{name} runs code in it", env, beside=False)
                elif searched or STARTED.fullmatch(variable):
                    self._open[f"what {variable} names for {name} ({value}), which is known only then"] = None
        return found

    def _start(self, words: list[str], cwd: str, use: str, env: Mapping[str, str], name: str) -> None:
        """Looks at one of the commands of a program, in one of its folders."""
        place = os.path.join(cwd, words[0]) if "/" in words[0] else words[0]
        path = shutil.which(
            place, path=os.pathsep.join(os.path.join(cwd, entry) for entry in env.get("PATH", "").split(":"))
        )
        path = path or place
        if "/" in path:
            self._script(path, use, env)
        given = _given_to_python(words)
        is_isolated = "PYTHONSAFEPATH" in env or any(re.fullmatch(r"-[bBEdhisSuvOqx]*[PI]\w*", word) for word in given)
        for word in words[1:]:
            self._word(os.path.join(cwd, os.path.expanduser(word)), use, env, beside=not is_isolated)
        for option, value in itertools.pairwise(words):
            if option in FOLDER_OPTIONS and os.path.isdir(folder := os.path.join(cwd, value)):
                self._folder(folder, use)
            elif option == "-m":
                for folder in (cwd, *env.get("PYTHONPATH", "").split(os.pathsep)):
                    self._module(os.path.join(cwd, folder, value.partition(".")[0]))
        if not OBEY_THEIR_FOLDER.isdisjoint(map(os.path.basename, words)):
            self._folder(cwd, f"{name} starts in it and obeys its files; give it a `cwd` of its own")
            for above in (cwd, *map(str, Path(cwd).parents)):
                self.keep(os.path.join(above, "node_modules"))
                self._environment(os.path.join(above, ".venv"), use)
        elif not is_isolated and not {"-m", "-c"}.isdisjoint(given):
            self._folder(cwd, f"{name} imports from it; start it with `python -P`, or give it a `cwd` of its own")

    def _word(self, path: str, use: str, env: Mapping[str, str], *, beside: bool) -> None:
        """Looks at a word of a command line as a path. Args: beside: see `_script`."""
        is_code = os.path.splitext(path)[1] in CODE
        if is_code or (os.path.isfile(path) and os.access(path, os.X_OK)):
            self._script(path, use, env, beside=beside)
        elif os.path.isfile(path):
            self._file(path, use)
        elif any(os.path.exists(os.path.join(path, name)) for name in ("__main__.py", "package.json")):
            self.keep(path)

    def _script(self, path: str, use: str, env: Mapping[str, str], *, beside: bool = True) -> None:
        """Looks at a program in a file, and at its interpreter. Args: beside: it runs code that stands beside it."""
        for step in links_from(os.path.abspath(path)):
            self._file(step, use)
            folder = os.path.dirname(step)
            if os.path.basename(folder) in ("bin", "sbin") and is_environment(os.path.dirname(folder)):
                self._environment(os.path.dirname(folder), use)
            elif beside and os.path.exists(step):
                self._folder(folder, f"{use}, with what stands beside it; move it to a folder of its own")
            if not step.endswith((".py", ".sh")):
                for above in Path(step).parents:
                    self.keep(str(above / "node_modules"))
        for word in words_of_script(path):
            if found := shutil.which(word, path=env.get("PATH")):
                self.python(found)

    def _variables(self, variables: Mapping[str, str], *, cwd: str = ".", use: str = "programs are started from it") -> None:
        """Looks at folders and files that variables name: a program finds programs, modules and libraries by them."""
        for name, value in variables.items():
            if not value and name != "PATH":
                continue  # Python and the loader search no folder then; an empty `PATH` is the current folder
            if SEARCHED.fullmatch(name):
                for folder in value.split(os.pathsep):
                    place = os.path.join(cwd, folder or ".")
                    self._folder(place, f"{use}: {name} names it")
                    self._links_in(place)
            elif STARTED.fullmatch(name):
                for word in re.findall(r"[^\s'\"=:]+", value):
                    found = shutil.which(word) or os.path.join(cwd, word)
                    if os.path.isfile(found):
                        self.keep(found)
                    elif "/" in word or os.path.splitext(word)[1] in CODE:
                        self._file(found, f"{use}: {name} names it")

    def _links_in(self, folder: str) -> None:
        """Looks at the programs to which links in a folder of programs lead."""
        if self._is_writable(os.path.realpath(folder)) and os.path.isdir(folder):
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        self.keep(entry.path)

    def _environment(self, folder: str, use: str) -> None:
        """Keeps an environment, the Python that it was made with, and the other folders from which it imports."""
        folder = os.path.abspath(folder)
        if ("environment", folder) in self._seen or not is_environment(folder):
            return
        self._seen.add(("environment", folder))
        real = os.path.realpath(folder)
        if self._is_writable(real) and real not in self._roots:
            for part in parts_of(folder):
                self.keep(part)
        elif any(is_in(root, [real]) for root in self._roots):
            for part in inner_parts(folder):
                self.keep(part, whole=True, use=use)
            if real in self._roots and not os.path.exists(os.path.join(folder, "pyvenv.cfg")):
                self._missing.append((os.path.join(real, "pyvenv.cfg"), use))
        for packages in package_folders(folder):
            self._folder(packages, use)
            for source in sources_of(packages):
                self._folder(source, f"{use}, as {packages} says")
                self._sources.add(os.path.realpath(source))
        if base := base_of(folder):
            self._environment(base, use)

    def _module(self, path: str) -> None:
        """Keeps a package or module, by its path without an ending."""
        for place in (path, f"{path}.py"):
            self.keep(place)

    def _file(self, path: str, use: str) -> None:
        """Keeps a file that is run, whether it exists or not."""
        path = os.path.abspath(path)
        if os.path.lexists(path):
            self.keep(path)
        elif self._is_writable(os.path.realpath(path)):
            self._missing.append((os.path.realpath(path), use))

    def _folder(self, path: str, use: str) -> None:
        """Keeps a folder in which a new file would be run or imported."""
        path = os.path.abspath(path)
        if ("folder", path) in self._seen:
            return
        self._seen.add(("folder", path))
        real = os.path.realpath(path)
        if not os.path.lexists(path):
            self._file(path, use)
            return
        self.keep(path)
        for root in self._roots:
            if root == real:
                self._root(root, use)
                for name in CUSTOM:
                    self._module(os.path.join(real, name))
            elif is_in(root, [real]):
                first = os.path.join(real, os.path.relpath(root, real).partition("/")[0])
                if any(os.path.exists(os.path.join(place, "__init__.py")) for place in (real, first)):
                    self._root(root, use)

    def keep(self, path: str, *, whole: bool = False, use: str = "") -> None:
        """Keeps a path if it exists. Args: whole: all that is below it, which may be a writable folder. use: see `_root`."""
        if not path or not os.path.lexists(path):
            return
        real = os.path.realpath(path)
        if real not in self._roots:
            self._paths.add(os.path.abspath(path))
        if whole:
            for root in self._roots:
                if is_in(root, [real]):
                    self._root(root, use)

    def _is_writable(self, path: str) -> bool:
        """Returns whether a real path is in a writable folder."""
        return is_in(path, self._roots)

    def _root(self, root: str, use: str) -> None:
        """Keeps a folder that the settings name as writable and whose code is run: only the workspace must stay writable."""
        if is_in(self._workspace, [root]):
            self._open[f"new files in {root} ({use})"] = None
        else:
            self._paths.add(root)


def _commands(command: str, arguments: Iterable[str], cwd: str) -> Iterator[list[str]]:
    """Yields the words of each command that a program runs: its own, and those in texts for a shell.

    The value of an option is a word too.
    """
    own, others = [command], list[str]()
    for argument in arguments:
        if os.path.exists(os.path.join(cwd, argument)):
            own.append(argument)
            continue
        is_for_shell = re.fullmatch(r"-\w*c", own[-1]) and not SHELLS.isdisjoint(map(os.path.basename, own))
        first, *rest = ["", *PARTS.split(argument)] if is_for_shell else PARTS.split(argument)
        own += _words(first)
        others += rest
    yield own
    for words in map(_words, map(_without_starters, others)):
        if words:
            yield words


def _words(text: str) -> list[str]:
    return re.findall(r"[^\s'\"|&;()<>=,]+", text)


def _without_starters(text: str) -> str:
    """Returns a command from the name of its program on."""
    while True:
        text = text.lstrip(" \t'\"$")
        if assigned := ASSIGNED.match(text):
            text = text[assigned.end() :]
        elif (word := re.match(r"\S+", text)) and STARTERS.fullmatch(word[0]):
            text = re.sub(r"^(\s+-\S*)+", "", text[word.end() :])
        else:
            return text


def _expanded(value: str, cwd: str, env: Mapping[str, str], *, paths: bool = False) -> list[tuple[str, bool]]:
    """Returns the texts that a value in a shell's command becomes, each with whether it is known.

    Args:
        value: The text in the command, perhaps with quotes.
        cwd: The working directory of the command.
        env: The variables of the command.
        paths: The value is a list of paths.
    """
    text = re.sub(r"\$\(pwd\)|`pwd`|\$PWD\b|\$\{PWD\}", lambda _: cwd, re.sub("['\"]", "", value))
    found = []
    for part in text.split(os.pathsep) if paths else [text]:
        known = re.sub(
            r"\$(\w+)|\$\{(\w+)(?::?-([^}$`]*))?\}", lambda match: env.get(match[1] or match[2], match[3] or match[0]), part
        )
        found.append((os.path.expanduser(known), not re.search(r"[$`]", known)))
    return found


def _given_to_python(words: Iterable[str]) -> list[str]:
    """Returns the words after the name of a Python, if one is started."""
    return list(itertools.dropwhile(lambda word: not PYTHON.fullmatch(os.path.basename(word)), words))[1:]
