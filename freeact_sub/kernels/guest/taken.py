"""Makes a kernel as if a cell had run in it that has run in its trial: the trial's side of it, and the kernel's.

A real run changes more than variables and files: options of libraries, the environment, a random generator. The trial says
what else it has changed (`surroundings`), and is taken over only where that is nothing, or what importing its modules does
here as well. It brings new objects only: nobody can find all that hold an object which was there before. The cell itself
then runs as ever, with its number, its place in `In` and its hooks; only its code is replaced (`StandIn`) by one call that
puts out what the trial put out, and brings its values.
"""

import _locale
import ast
import contextlib
import contextvars
import functools
import gc
import importlib.util
import logging
import os
import random
import resource
import signal
import sys
import threading
import time
import types
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from . import descriptors, state, used, values
from .borrowed_kernel import number_at_exit
from .saved.groups import LEAF, Groups, contents_of, parts_of_class
from .saved.imported import Imported

KERNELS_OWN = {
    *("__main__", "IPython", "ipykernel", "jupyter_client", "traitlets", "tornado", "zmq", "executing"),
    *("asttokens", "pure_eval", "stack_data", "asyncio", "_asyncio", "threading", "linecache"),
}
"""Packages that change with each cell, besides the names that begin with `freeact_`."""
LEFT_OUT = {
    "sys": {
        *("excepthook", "displayhook", "modules", "path_importer_cache"),
        *("last_exc", "last_type", "last_value", "last_traceback"),
    },
    "os": {"environ", "environb"},
    "posix": {"environ"},
    "random": {"_inst"},
}
"""Names of modules that do so, or are compared by their values."""
SECONDS = 0.2
"""Time limit to compare contents of functions, classes and outputs."""
ATTRIBUTES = type.__dict__["__dict__"].__get__
ITEMS, LEVELS = 2000, 2
"""Largest number of items of a container that is looked into, and levels below a name of a module."""
PLAIN = {type(None), bool, int, float, complex, str, bytes, types.FunctionType, types.BuiltinFunctionType}
"""Types of most names of modules."""
LEAVES = (type(None), bool, int, float, complex, str, bytes, type, types.FunctionType, types.BuiltinFunctionType)
RESULT = "_"
"""The name of the value that the cell put out."""
IMPORTED = Imported()
CACHED = type(functools.cache(len))
METHODS = {
    **dict.fromkeys((classmethod, staticmethod), ("__func__",)),
    property: ("fget", "fset", "fdel"),
    functools.cached_property: ("func",),
}
"""The attributes of methods that are functions."""
SCHEDULES = ("nice", "setpriority", "sched_setaffinity", "sched_setparam", "sched_setscheduler")
"""Functions of `os` that do nothing in a trial (`seccomp.SCHEDULING`)."""
OF_SHELL = ("ast_node_interactivity", "autocall", "colors", "custom_exceptions", "pdb")
SETTINGS = {"csv": "field_size_limit", "socket": "getdefaulttimeout", "faulthandler": "is_enabled"}
"""Functions that tell a setting."""
unknown: list[str] = []
"""The types of values in functions, modules of the workspace and outputs that could not be compared."""
noted: dict[str, Any] = {}
"""The state before the cell, in its trial."""
ready_for: list[tuple[dict[str, Any], dict[str, Any]]] = []
"""The plan of the next cell's stand-in, and its values, in the kernel."""


class Whole(state.Comparing):
    """A pickler for digests that change with what a function holds as well, if it is of no installed package."""

    def reducer_override(self, value: Any) -> Any:
        """Reduce functions and classes by identity: many are not found by their names."""
        if isinstance(value, types.FunctionType) and value is not state.same:
            held = None if is_from_package(value.__globals__) else held_by(value)
            return state.same, (value.__qualname__, id(value)), held
        if isinstance(value, CACHED):
            return state.same, (id(value), value.cache_info())
        if isinstance(value, type):
            return state.same, (id(value),)
        return super().reducer_override(value)


# --- in the trial


def begin(shell: Any) -> None:
    """Note the state before the cell."""
    unknown.clear()
    for name in SCHEDULES:
        setattr(os, name, noting(getattr(os, name)))
    noted.update(
        around=surroundings(shell),
        modules={*sys.modules},
        threads={*threading.enumerate()},
        left=things(),
        ended=resource.getrusage(resource.RUSAGE_CHILDREN),
        used=[],
        scheduled=[],
    )
    used.USED.send = noted["used"].append


def noting(call: Any) -> Any:
    """Let a function note that it is called."""

    @functools.wraps(call)
    def noted_call(*args: Any, **options: Any) -> Any:
        noted["scheduled"].append(call.__name__)
        return call(*args, **options)

    return noted_call


def facts(shell: Any, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the host has to know to have the trial taken over. Args: before, after: reports on the variables."""
    against = next(reasons_against(before, after), "")
    around = [] if against else [*changes(noted["around"], surroundings(shell))]  # slow
    return {
        "against": against or not_compared(),
        "modules": (modules := [name for name in sys.modules if name not in noted["modules"] and not is_of_kernel(name)]),
        "installed": all(is_known(name, noted["modules"]) for name in modules),
        "around": around,
        "random": random_states(),
        "used": noted["used"],
        "result": next((name for name, each in state.variables(shell).items() if each is shell.user_ns.get(RESULT)), ""),
    }


def reasons_against(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a real run may have done something else, or has done what cannot be seen."""
    if resource.getrusage(resource.RUSAGE_CHILDREN) != noted["ended"] or used.programs_run():
        yield "it starts processes, which find no network in a trial"
    if unknown:
        yield not_compared()
    if noted["scheduled"]:
        yield f"it calls {noted['scheduled'][0]}, which does nothing in a trial"
    if {*threading.enumerate()} - noted["threads"]:
        yield "it starts a thread"
    if left := things() - noted["left"]:
        yield f"it leaves {min(left)}"
    for name in before.keys() & after.keys():
        old, new = before[name]["digest"], after[name]["digest"]
        if before[name]["id"] == after[name]["id"] and not (old and old == new):
            yield f"it changes {name} in place, or may have done so, and others may hold it as well"


def things() -> set[str]:
    """Return open files, and files outside of the workspace, which nobody else has."""
    found = set()
    for folder in (values.scratch(), "/dev/shm"):  # noqa: S108  # the trial's own
        found |= {
            f"the file {folder}/{name}" for name in os.listdir(folder) if not name.startswith(("variables-", "values-"))
        }
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own is closed by now
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith("/") and not (target.startswith(("/dev/", "/proc/")) or IMPORTED.is_own(target)):
                found.add(f"open the file {target}")
    return found


def random_states() -> dict[str, Any]:
    """Return the states of the random generators that all code shares."""
    numpy = sys.modules.get("numpy.random")
    found: dict[str, Any] = {"python": random.getstate()}
    if numpy is not None:
        kind, keys, *more = numpy.get_state()
        found["numpy"] = [kind, keys.tolist(), *more]
    return found


def surroundings(shell: Any) -> dict[str, Any]:
    """Return marks of what code can change besides variables and files, as far as Python knows of it."""
    environment = {name: value for name, value in os.environ.items() if name not in descriptors.VARIABLES}
    found: dict[str, Any] = {
        "the working folder": os.getcwd(),
        "environment variables": environment,
        "the number of environment variables": sorted(environment),
        "contextvars": (context := dict(contexts())),
        "the number of contextvars": [*context],
        **of_process(),
        **of_ipython(shell),
    }
    present, deadline = state.variables(shell), time.monotonic() + SECONDS
    for name, value in present.items():
        if isinstance(value, state.FUNCTIONS) and value.__module__ == "__main__":
            found[f"the definition of {name}"] = definition(value, deadline)
        elif isinstance(value, CACHED):
            found[f"the cache of {name}"] = value.cache_info()
    hidden = {name: value for name, value in shell.user_ns.items() if is_hidden(name)}
    found["variables that begin with two underscores"] = [[name, content(hidden[name], deadline)] for name in sorted(hidden)]
    ids = {*map(id, present.values())}
    found |= {f"Out[{at}]": content(value, deadline) for at, value in shell.user_ns["_oh"].items() if id(value) not in ids}
    modules = {
        name: names
        for name, module in list(sys.modules.items())
        if not is_of_kernel(name) and type(names := getattr(module, "__dict__", None)) is dict
    }
    own = {name: of_own_module(name, names, deadline) for name, names in modules.items() if not is_from_package(names)}
    found |= {f"the module {name}": own.get(name) or of_module(name, names) for name, names in modules.items()}
    return found


def of_module(module: str, names: dict[Any, Any]) -> dict[Any, Any]:
    """Return marks of a module's names, and their list."""
    found, left_out = {}, LEFT_OUT.get(module, ())
    for name, value in [*names.items()]:
        if str(name).startswith("__") or name in left_out:
            continue
        if type(value) in PLAIN:
            found[name] = id(value)
        elif not isinstance(value, types.ModuleType):
            found[name] = marks(value, LEVELS, module)
    return {**found, "": [*found]}


def is_from_package(names: dict[Any, Any]) -> bool:
    """Whether a module has no file, or one in Python's own folders; the module of cells is none. Args: names: its names."""
    origin = getattr(names.get("__spec__"), "origin", None)
    if isinstance(origin, str) and os.path.isabs(origin):
        return IMPORTED.is_own(origin)
    return names.get("__name__") != "__main__"


def of_own_module(module: str, names: dict[Any, Any], deadline: float) -> dict[Any, Any]:
    """Return the contents of a module that is not installed, such as of the workspace: cells change what it holds."""
    found: dict[Any, Any] = {}
    for name, value in [*names.items()]:
        kind = type(value)  # no code of the value's type is run to know it
        if issubclass(kind, state.FUNCTIONS):
            found[name] = definition(value, deadline, module) if value.__module__ == module else id(value)
        elif issubclass(kind, CACHED):
            found[name] = value.cache_info()
        elif not (str(name).startswith("__") or issubclass(kind, types.ModuleType)):
            found[name] = content(value, deadline)
    return {**found, "": [*found]}


def of_ipython(shell: Any) -> dict[str, Any]:
    """Return marks of IPython's state."""
    formatters = shell.display_formatter.formatters.values()
    return {
        "IPython's events": marks(shell.events.callbacks, LEVELS),
        "IPython's magics": [len(kind) for kind in shell.magics_manager.magics.values()],
        "IPython's transformers": [len(shell.ast_transformers), len(shell.input_transformers_post)],
        "IPython's formatters": [
            [getattr(each, "pprint", None), *map(id, (*each.type_printers, *each.type_printers.values()))]
            for each in formatters
        ],
        "IPython's settings": [shell.InteractiveTB.mode, *(getattr(shell, name, None) for name in OF_SHELL)],
    }


def of_process() -> dict[str, Any]:
    """Return what Linux and Python keep for the whole process."""
    with open("/proc/self/status") as file:
        mask = next(line for line in file if line.startswith("Umask"))
    return {
        "the mask of file modes": mask,
        "signal handlers": [signal.getsignal(number) for number in signal.valid_signals() - {signal.SIGINT}],
        "functions at exit": number_at_exit(),
        "signals": [
            signal.pthread_sigmask(signal.SIG_BLOCK, ()),
            [bool(signal.getitimer(number)[0]) for number in range(3)],
        ],
        "Python's switches": [
            *(sys.getrecursionlimit(), sys.getswitchinterval(), gc.isenabled(), gc.get_threshold(), gc.get_debug()),
            *(sys.get_int_max_str_digits(), sys.get_coroutine_origin_tracking_depth(), threading.stack_size()),
        ],
        "the tracing": [*map(id, (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()))],
        "the hook for errors in threads": id(threading.excepthook),
        "loggers": [*settings_of_loggers()],
        "settings of Python's modules": [
            getattr(sys.modules[module], name)() for module, name in SETTINGS.items() if module in sys.modules
        ],
        "the locale": _locale.setlocale(_locale.LC_ALL),
        "the priority": os.getpriority(os.PRIO_PROCESS, 0),
        "limits": [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")],
    }


def settings_of_loggers() -> Iterator[list[Any]]:
    """Yield the settings of each logger that has any of its own."""
    for name, logger in sorted(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger):
            own = [logger.level, logger.propagate, logger.disabled, [*map(id, logger.handlers)], [*map(id, logger.filters)]]
            if own != [0, True, False, [], []]:
                yield [name, *own]


def definition(value: Any, deadline: float, module: str = "__main__") -> list[Any]:
    """Return marks of a function or class of a cell, or of another module, and of what it holds."""
    if isinstance(value, type):
        caches = [each.cache_info() for each in vars(value).values() if isinstance(each, CACHED)]
        held = content([*parts_of_class(value, module), *map(held_by, methods_of(value))], deadline)
        names = {name: id(each) for name, each in vars(value).items() if name != "__slotnames__"}  # set by pickling
        return [*names.items(), *caches, held]
    return [id(value.__code__), content(held_by(value), deadline)]


def methods_of(kind: type) -> Iterator[types.FunctionType]:
    """Yield the functions of a class, also those of its class methods, static methods and properties."""
    for value in vars(kind).values():
        inner = [getattr(value, name) for name in METHODS.get(type(value), ())]
        yield from (each for each in (value, *inner) if type(each) is types.FunctionType)


def held_by(function: types.FunctionType) -> list[Any]:
    """Return the values of a function's closure, its defaults and its attributes."""
    return [contents_of(function), function.__defaults__, function.__kwdefaults__, vars(function)]


def content(value: Any, deadline: float) -> Any:
    """Return a digest of a value, or else what equals no other, and note that (`unknown`)."""
    digest = ""
    with contextlib.suppress(Exception, SystemExit):  # border: pickling runs code of the value's type
        digest = state.digest_of(value, deadline, Whole)[0]
    if not digest:
        unknown.append(type(value).__name__)
    return digest or time.monotonic_ns()


def not_compared() -> str:
    """Return why nobody knows whether a cell has changed something. Empty: all could be compared."""
    return f"it may have changed an object of the type {unknown[0]}, which cannot be compared" if unknown else ""


def is_hidden(name: Any) -> bool:
    """Whether a name of a cell is no variable for others (`state.variables`), and not Python's own."""
    return isinstance(name, str) and name.startswith("__") and not name.endswith("_")


def is_of_kernel(module: Any) -> bool:
    """Whether a module changes with each cell. Args: module: its name."""
    return not isinstance(module, str) or module.partition(".")[0] in KERNELS_OWN or module.startswith("freeact_")


def contexts() -> Iterator[tuple[str, str]]:
    """Yield the name and a mark of each value of the context, such as the precision of decimals."""
    for variable, value in contextvars.copy_context().items():
        if not variable.name.startswith(("parent_", "shell_parent")):  # of each cell, ipykernel's
            yield variable.name, f"{id(value)} {value if type(value).__module__ == 'decimal' else ''}"


def marks(value: Any, levels: int, module: str = "") -> Any:
    """Return marks of a value: its id, and the ids of the items of a container, a plain object or a class."""
    if module and issubclass(type(value), type) and ATTRIBUTES(value).get("__module__") == module:
        return [id(value), *map(id, ATTRIBUTES(value).values())]
    if levels and not isinstance(value, LEAVES) and not is_of_kernel(type(value).__module__):
        if isinstance(value, dict) and len(value) <= ITEMS:
            return {key if type(key) is str else id(key): marks(item, levels - 1) for key, item in [*dict.items(value)]}
        if type(value) in (list, set) and len(value) <= ITEMS:
            return [id(value), *sorted(map(id, value))] if type(value) is set else [id(value), *map(id, value)]
        try:
            names = object.__getattribute__(value, "__dict__")
        except Exception:  # noqa: BLE001  # border: a type may have its attributes in any way
            return id(value)
        if type(names) is dict and len(names) <= ITEMS:
            return {"": id(value), **{key: marks(item, levels - 1) for key, item in [*names.items()]}}
    return id(value)


def changes(before: Any, after: Any, name: str = "") -> Iterator[str]:
    """Yield the names of what differs. What is new below a name is none: caches and registers grow."""
    if before == after:  # as of most modules, which would take long name by name
        return
    if type(before) is dict and type(after) is dict:
        for key in before:
            yield from changes(before[key], after.get(key), f"{name}.{key}" if name else str(key))
    else:
        yield f"{name}, {len(after)} long" if isinstance(after, list) else name


def write(file: str, names: list[str], salt: str) -> str:
    """Write new values of variables. Return why that cannot be; empty: it is done."""
    if shares(names):
        return "its values share objects with others"
    state.write_to(file, names, salt)
    return ""


def shares(names: list[str]) -> bool:
    """Whether new values share objects with others."""
    shell, pandas = state.shell_here(), sys.modules.get("pandas")
    groups = Groups(shell.user_ns, lambda: None)
    if pandas is not None and pandas.__version__.partition(".")[0] not in ("0", "1", "2"):
        groups.kinds |= dict.fromkeys(
            (pandas.DataFrame, pandas.Series, pandas.Index, pandas.RangeIndex), LEAF
        )  # copied on write
    present = state.variables(shell) | {name: shell.user_ns[name] for name in names}
    return any({*group} - {*names} and {*group} & {*names} for group in groups.of(present))


# --- in the kernel


class StandIn(ast.NodeTransformer):
    """A transformer of cells that replaces the code of one cell, once."""

    def __init__(self, shell: Any, code: str) -> None:
        self.shell, self.code = shell, ast.dump(shell.compile.ast_parse(shell.transform_cell(code)))

    def visit(self, node: Any) -> Any:
        """Return the call that stands for the cell."""
        if ast.dump(node) != self.code:
            return node
        self.shell.ast_transformers = [each for each in self.shell.ast_transformers if each is not self]
        return ast.parse(f"__import__('sys').modules[{__name__!r}].run()")


def ready(file: str) -> str:
    """Prepare the kernel for the cell. Return why it has to run really; empty: its next run is the trial's."""
    plan = values.take(file)["value"]
    shell = state.shell_here()
    now = state.report(shell, seconds=plan["seconds"], pickler=Whole, described=False)
    if plan["origin"] != os.getpid() or now.keys() != plan["before"].keys():
        return "the variables are others by now"
    for name, (number, digest) in plan["before"].items():
        if now[name]["id"] != number or (digest and now[name]["digest"] and now[name]["digest"] != digest):
            return f"{name} has changed since"
    if reason := imported(plan, shell):
        return reason
    found = dict(plan["data"])
    if plan["values"]:
        view = values.mapped(os.path.join(values.scratch(), plan["values"]))
        found, unread = values.read_groups(view)
        lost = {**values.index_of(view)["lost"], **{name: values.reason_of(error) for name, error in unread.items()}}
        if lost:
            return f"{min(lost)}: {lost[min(lost)]}"
    if plan["unasked"] and (clash := found.keys() & shell.user_ns.keys() - {RESULT}):
        return f"{min(clash)} is there by now"
    ready_for[:] = [(plan, found)]
    shell.ast_transformers = [StandIn(shell, plan["code"]), *shell.ast_transformers]  # before others change the code
    return ""


def imported(plan: dict[str, Any], shell: Any) -> str:
    """Import what the trial has imported. Return why the kernel is not as the trial then; empty: it is."""
    unknown.clear()
    before, known = surroundings(shell) if plan["around"] else {}, {*sys.modules}
    for name in plan["modules"]:
        if plan["unasked"] and not is_known(name, known):
            return f"it imports {name}"
        try:
            importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001  # border: code of a module
            return f"{name} cannot be imported: {values.reason_of(error)}"
    more = {*plan["around"]} - {*changes(before, surroundings(shell))} if plan["around"] else ()
    return not_compared() or (f"it changes {min(more)}" if more else "")


def is_known(name: str, known: Collection[str]) -> bool:
    """Whether a module is part of an installed package that has been imported: nobody has seen the code that names it."""
    parts = name.split(".")
    try:
        return (
            parts[0] in known
            and parts[-1] != "__main__"
            and all(is_installed(".".join(parts[:count])) for count in range(1, len(parts) + 1))  # the outer ones first
        )
    except (ImportError, ValueError):
        return False


def is_installed(name: str) -> bool:
    """Whether a module is Python's own, or of an installed package. Imports the packages above it."""
    spec = importlib.util.find_spec(name)
    return spec is not None and (spec.origin in ("built-in", "frozen") or IMPORTED.is_own(str(spec.origin)))


def forget() -> None:
    """Forget what no cell has taken over."""
    ready_for.clear()
    shell = state.shell_here()
    shell.ast_transformers = [each for each in shell.ast_transformers if not isinstance(each, StandIn)]


def run() -> None:
    """Put out what the trial put out, and bring its values: the code that stands for the cell."""
    plan, found = ready_for.pop()
    shell = state.shell_here()
    result = found.pop(RESULT, None)
    shell.user_ns.update(found)
    for name in plan["deleted"]:
        shell.user_ns.pop(name, None)
    if plan["result"]:
        result = shell.user_ns.get(plan["result"])
    with contextlib.suppress(Exception):  # border: a cell that no person has seen may have made it up
        random.setstate(json_tuple(plan["random"]["python"]))
        kind, keys, position, *more = plan["random"].get("numpy", ("", (), -1))
        if "numpy.random" in sys.modules and 0 <= position <= len(keys):  # numpy reads anywhere else as well
            sys.modules["numpy.random"].set_state((kind, keys, position, *more))
    for kind, data in plan["outputs"]:
        put_out(shell, kind, data, result)
    for report in plan["used"]:
        used.USED.send(report)


def json_tuple(value: Any) -> Any:
    """Return nested lists as tuples."""
    return tuple(map(json_tuple, value)) if isinstance(value, list) else value


def put_out(shell: Any, kind: str, data: dict[str, Any], result: Any) -> None:
    """Put out one output of the trial (`cells.py`)."""
    if kind == "StreamText":
        stream = sys.stderr if data["name"] == "stderr" else sys.stdout
        stream.write(data["text"])
        stream.flush()
    elif kind == "ClearOutput":
        shell.display_pub.clear_output(wait=data["wait"])
    elif kind == "DisplayData":
        transient = {"display_id": data["display_id"]} if data["display_id"] else {}
        shell.display_pub.publish(data["data"], data["metadata"], transient=transient, update=data["update"])
    else:
        hook = shell.displayhook
        hook.start_displayhook()
        hook.write_output_prompt()
        hook.write_format_data(data["data"], data["metadata"])
        hook.update_user_ns(result)
        hook.fill_exec_result(result)
        hook.finish_displayhook()
