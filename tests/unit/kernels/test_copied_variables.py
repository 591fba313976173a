"""What differs between a notebook's kernel and its copy, what is said of values, and when a kernel is not copied."""

import asyncio
import contextlib
import json
import mmap
import sqlite3
import threading
import time
from types import SimpleNamespace

import pytest
from ipykernel.subshell import SubshellThread
from support.elsewhere import CANNOT_FORK
from support.tables import each

from freeact_sub.errors import KernelError
from freeact_sub.events.answers import VariableChange
from freeact_sub.kernels.copies.changes import compared, parsed
from freeact_sub.kernels.copies.forks import is_own, shared_memory, why_not_shared
from freeact_sub.kernels.guest import state
from freeact_sub.kernels.variable_reports import About


def shell(**names):
    return SimpleNamespace(user_ns={"In": [], "_": 1, "_i3": "x", "agent": 1, **names}, user_ns_hidden={})


def report(**names):
    return parsed(json.dumps(state.report(shell(**names))).encode())


def test_a_value_that_is_equal_has_not_changed():
    rows = [1, [2, 3], {"a": (4.5, None)}]
    assert list(compared(report(rows=rows, n=3), report(rows=json.loads(json.dumps(rows)) and list(rows), n=3))) == []


@each(
    ("before", "after", "what"),
    [
        ({}, {"x": 1}, VariableChange(name="x", what="new", before="", after="int 1")),
        ({"x": "a"}, {}, VariableChange(name="x", what="deleted", before="str 1 'a'", after="")),
        ({"x": [1]}, {"x": [2]}, VariableChange(name="x", what="changed", before="list 1 [1]", after="list 1 [2]")),
        ({"x": 1}, {"x": 1.0}, VariableChange(name="x", what="changed", before="int 1", after="float 1.0")),
        ({"x": len}, {"x": max}, VariableChange(name="x", what="changed", before="builtin_function_or_method <built-in function len>",
                                        after="builtin_function_or_method <built-in function max>")),
    ],
)  # fmt: skip
def test_what_has_changed(before, after, what):
    assert list(compared(report(**before), report(**after))) == [what]


def test_what_cannot_be_compared_is_compared_by_identity_or_said_to_be_too_large():
    first, second = (i for i in range(3)), (i for i in range(3))
    assert list(compared(report(g=first), report(g=first))) == []
    assert [change.what for change in compared(report(g=first), report(g=second))] == ["changed"]
    late = state.digest_of(bytearray(10_000_000), time.monotonic() - 1)
    assert late == ("", state.LIMIT)
    one = {"big": About(id=1, why=state.LIMIT, kind="ndarray")}
    assert [change.what for change in compared(one, one)] == ["perhaps"]


def test_one_byte_of_a_large_value_changes_its_digest():
    large, late = bytearray(40_000_000), time.monotonic() + 60
    first = state.digest_of(large, late)
    assert state.digest_of(bytearray(large), late) == first
    for place in (0, 17_000_000, len(large) - 1):
        large[place] = 1
        assert state.digest_of(large, late) != first
        large[place] = 0
    assert state.digest_of(bytes(large), late)[0] != state.digest_of(bytes(large[:-1]), late)[0]


def test_names_of_ipython_and_values_of_ours_are_no_variables():
    found = state.variables(shell(x=1, shell=state, change=VariableChange(name="x", what="new"), kind=VariableChange))
    assert list(found) == ["x"]


class Odd:
    """Its attributes raise, and so does its text."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __repr__(self):
        raise RuntimeError


def test_a_value_whose_code_fails_is_named_by_its_type():
    about = state.describe(Odd())
    assert about["kind"].endswith("Odd")
    assert (about["shape"], about["columns"]) == ("", [])


def test_what_a_copy_says_is_bounded_text():
    said = {
        "x": {
            "id": 1,
            "digest": "d",
            "why": "",
            "kind": "k" * 10_000,
            "shape": [1],
            "columns": ["c"] * 99,
            "text": None,
            "imported": 1,
        }
    }
    about = parsed(json.dumps(said).encode())["x"]
    assert (len(about.kind), len(about.columns), about.shape) == (300, state.COLUMNS, "[1]")
    for odd in (b"", b"[]", b'{"x": 1}', b'{"x": {"id": "a"}}', b"\xff", b"[" * 100_000):
        with pytest.raises(KernelError):
            parsed(odd)


@pytest.mark.skipif(CANNOT_FORK, reason="kernels are copied where they can be forked")
def test_memory_that_a_copy_would_change_too_is_named(tmp_path, monkeypatch):
    assert shared_memory() == ""
    path = tmp_path / "numbers.bin"
    path.write_bytes(bytes(8192))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 8192):
        assert shared_memory() == str(path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 8192, access=mmap.ACCESS_COPY):
        assert shared_memory() == ""
    with mmap.mmap(-1, 8192):
        assert shared_memory() == "anonymous shared memory"
    database = tmp_path / "measured.db"
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE points (x)")
        assert why_not_shared(shared_memory()).endswith(f"in WAL mode, which a copy could not read: {database}")
    own = tmp_path / "freeact"
    own.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with contextlib.closing(sqlite3.connect(own / "sessions.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE points (x)")
        assert shared_memory() == ""


def test_a_thread_of_the_user_is_told_from_those_of_the_kernel():
    threads = {name: threading.Thread(name=name) for name in ("mine", "IOPub", "Thread-3 (_watch_pipe_fd)", "asyncio_0")}
    assert [name for name, thread in threads.items() if not is_own(thread)] == ["mine"]


async def test_a_thread_for_messages_of_widgets_hinders_no_copy_unless_it_does_something():
    thread = SubshellThread.__new__(SubshellThread)  # without its sockets
    thread.asyncio_lock = asyncio.Lock()
    assert is_own(thread)
    async with thread.asyncio_lock:
        assert not is_own(thread)
