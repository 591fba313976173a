"""What is old is archived, what is too much is removed, and what is open is neither."""

import os
import signal
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from support.sessions import root, writing

from freeact_sub.errors import SessionError
from freeact_sub.sessions import sqlite
from freeact_sub.sessions.sqlite import DAY_SECONDS, MARK
from freeact_sub.sessions.sqlite.database import NAME, connect

IDS = ("old", "new")


@pytest.fixture
async def two(store, tmp_path):
    """Two sessions, one of which nobody has used for a hundred days; both with variables and outputs."""
    for name, agent_id in zip(IDS, ("agent-00000001", "agent-00000002"), strict=True):
        async with writing(store, name, workspace=tmp_path) as writer:
            root(writer, agent_id)
            writer.run_begins(agent_id, 1, 1, prompt=name, budget={})
        for folder in (store.folder_of(name) / "variables", tmp_path / ".freeact" / "outputs" / agent_id):
            folder.mkdir(parents=True)
            (folder / "x").write_bytes(b"x" * 100_000)
    connection = connect(store.folder)
    connection.execute("UPDATE sessions SET updated = ? WHERE session_id = 'old'", (time.time() - 100 * DAY_SECONDS,))
    connection.close()
    return store


def swept(store, days=90.0, size=None, stop=False, workspace=Path("/nowhere")):
    event = threading.Event()
    if stop:
        event.set()
    found = store.sweep(workspace, archive_after_days=days, max_bytes=size, stop=event)
    return found.archived, found.removed


async def test_what_is_old_is_archived_once_and_keeps_its_conversation(two, tmp_path):
    assert two.is_sweep_due()
    assert swept(two) == (["old"], [])
    assert not two.is_sweep_due()
    assert swept(two) == ([], [])
    assert {session.session_id: session.archived for session in two.sessions()} == {"old": True, "new": False}
    assert [path.name for path in (tmp_path / ".freeact" / "outputs").iterdir()] == ["agent-00000002"]
    assert not (two.folder_of("old") / "variables").exists()
    assert (two.folder_of("new") / "variables" / "x").exists()
    os.utime(two.folder / MARK, (0, 0))
    assert two.is_sweep_due()


async def test_what_is_too_much_is_removed_the_oldest_first(two):
    assert swept(two, days=None, size=two.database_bytes + 500_000) == ([], [])
    assert swept(two, days=None, size=two.database_bytes + 300_000) == ([], ["old"])  # with the outputs in the workspace
    assert swept(two, days=None, size=0) == ([], ["new"])
    assert two.sessions() == []


async def test_a_file_of_the_database_may_vanish_while_its_size_is_read(two):
    size = two.database_bytes
    (two.folder / f"{NAME}-vanished").symlink_to("nothing")
    assert two.database_bytes == size


async def test_an_open_session_is_neither_archived_nor_removed(two):
    lock = two.lock("old")
    lock.take()
    assert swept(two, size=0) == ([], ["new"])
    lock.give_back()


async def test_outputs_of_agents_without_a_session_go_when_they_are_old(store, two, tmp_path):
    for name, folder in (("same", tmp_path), ("other", tmp_path / "other")):
        for agent_id, days in (("agent-0000000a", 100), ("agent-0000000b", 80), ("agent-0000000c", 100), ("mine", 100)):
            place = folder / ".freeact" / "outputs" / agent_id
            place.mkdir(parents=True)
            (place / name).write_text("x")
            for path in (place / name, place):
                os.utime(path, (0, time.time() - days * DAY_SECONDS))
        os.utime(folder / ".freeact" / "outputs" / "agent-0000000c")  # something was written there since
    assert swept(two, workspace=tmp_path / "other") == (["old"], [])
    for folder in (tmp_path, tmp_path / "other"):
        left = {path.name for path in (folder / ".freeact" / "outputs").iterdir()}
        assert left - {"agent-00000002"} == {"agent-0000000b", "agent-0000000c", "mine"}


async def test_a_sweep_ends_when_it_is_told_to(two):
    assert swept(two, size=0, stop=True) == ([], [])


async def test_a_link_in_the_workspace_leads_nowhere(two, tmp_path):
    (tmp_path / ".freeact").rename(tmp_path / "precious")
    (tmp_path / ".freeact").symlink_to(tmp_path / "precious")
    assert swept(two) == (["old"], [])
    assert (tmp_path / "precious" / "outputs" / "agent-00000001" / "x").exists()


async def test_outputs_that_are_a_link_or_have_holes_count_as_what_they_take(two, tmp_path):
    outputs = tmp_path / ".freeact" / "outputs"
    (tmp_path / "huge").mkdir()
    (tmp_path / "huge" / "x").write_bytes(b"x" * 1_000_000)
    (outputs / "agent-00000002").rename(tmp_path / "elsewhere")
    (outputs / "agent-00000002").symlink_to(tmp_path / "huge")
    with (outputs / "agent-00000001" / "x").open("wb") as file:
        file.truncate(2**40)
    assert swept(two, days=None, size=two.database_bytes + 500_000) == ([], [])


async def test_a_session_that_is_used_while_others_are_swept_stays(two):
    class Stop(threading.Event):
        def is_set(self):
            with closing(connect(two.folder)) as connection:
                connection.execute("UPDATE sessions SET updated = ?", (time.time(),))
            return False

    two.sweep(Path("/nowhere"), archive_after_days=90.0, max_bytes=0, stop=Stop())
    assert [session.archived for session in two.sessions()] == [False, False]


async def test_a_fork_has_the_same_agents_and_what_they_wrote_goes_with_the_last_of_them(two, tmp_path):
    outputs = tmp_path / ".freeact" / "outputs" / "agent-00000001"
    first, second = two.fork("old"), two.fork("old")
    assert swept(two) == (["old"], [])
    assert outputs.exists()
    two.remove(first)
    assert outputs.exists()
    two.remove(second)
    assert not outputs.exists()


async def test_no_setting_takes_outputs_of_an_agent_that_may_be_at_work(two, tmp_path):
    recent = tmp_path / ".freeact" / "outputs" / "agent-0000000d"
    recent.mkdir()
    assert swept(two, days=0.0) == (["old", "new"], [])
    assert [path.name for path in recent.parent.iterdir()] == ["agent-0000000d"]


async def copy_of(store, session_id):
    """The copy of a workspace in which a fork works, as `fork_session` makes it."""
    copy = store.copies / session_id / "project"
    (copy / "sub").mkdir(parents=True)
    (copy.parent / "fork.json").touch()
    os.utime(copy.parent, (0, 0))
    await session_in(store, session_id, copy)
    return copy


async def session_in(store, session_id, folder):
    folder.mkdir(parents=True, exist_ok=True)
    async with writing(store, session_id, workspace=folder):
        return session_id


@pytest.mark.process
async def test_what_a_killed_program_has_left_of_a_session_goes_after_a_day(two):
    pid = os.fork()
    if pid == 0:
        sqlite.copy_rows = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        two.fork("old")
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    folders = two.folder / "sessions"
    (left,) = (path.name for path in folders.iterdir() if path.name not in IDS)
    names = {"open": "20261126-1200-000001", "known": "20261126-1200-000002", "link": "20261126-1200-000003"}
    async with writing(two, names["known"]):
        pass
    with closing(connect(two.folder)) as connection:  # nobody can read it, and it is there
        connection.execute("UPDATE sessions SET created = 'x' WHERE session_id = ?", (names["known"],))
    lock = two.lock(names["open"])
    lock.take()
    for name in ("mine", names["known"]):
        two.folder_of(name).mkdir()
    (folders / names["link"]).symlink_to(folders / "mine")
    assert swept(two, days=None) == ([], [])
    assert (folders / left).exists()
    for path in folders.iterdir():
        os.utime(path, (0, 0), follow_symlinks=False)
    assert swept(two, days=None, stop=True) == ([], [])
    database = two.folder / NAME
    database.rename(two.folder / "aside")
    assert swept(two, days=None) == ([], [])
    assert (folders / left).exists()  # without the database nobody knows
    (two.folder / "aside").rename(database)
    assert swept(two, days=None) == ([], [])
    lock.give_back()
    assert {path.name for path in folders.iterdir()} == {*IDS, "mine", *names.values()}
    assert [*(folders / "mine").iterdir()] == []


@pytest.mark.parametrize("below", [".", "sub", ".."])
async def test_a_copy_goes_with_the_last_session_that_works_in_it(store, below):
    copy = await copy_of(store, "20261126-1200-00000f")
    other = await session_in(store, "other", Path(os.path.normpath(copy / below)))
    store.remove("20261126-1200-00000f")
    swept(store)
    assert (copy / "sub").exists()
    store.remove(other)
    if below != ".":
        assert copy.exists()  # no fork has made what the session worked in
        swept(store)
    assert not [*store.copies.iterdir()]


async def test_a_session_that_has_no_copy_takes_no_folder_along(store, tmp_path):
    forks = [await copy_of(store, f"20261126-1200-00000{number}") for number in (1, 2)]
    (forks[0] / "circle").symlink_to("circle")
    lookalike = store.copies / "20261126-1200-00000a" / "mine"
    places = [
        *(forks[0] / "sub", forks[0] / "circle", forks[0].parent, forks[0].parent / "beside", lookalike),
        *(store.copies, store.copies / "mine", store.folder, store.folder / "sessions", tmp_path, Path("/")),
    ]
    for place in places:
        if place != forks[0] / "circle":
            place.mkdir(parents=True, exist_ok=True)
        async with writing(store, "other", workspace=place):
            pass
        store.remove("other")
        assert all((copy / "sub").is_dir() for copy in forks), place
        assert place.exists() or place.is_symlink()
    async with writing(store, "other", workspace=tmp_path):
        store.remove("20261126-1200-000001")
    assert {path.name for path in store.copies.iterdir()} == {"20261126-1200-000002", lookalike.parent.name, "mine"}
    swept(store)
    assert (store.copies / "mine").exists()  # no fork has made it
    assert forks[1].exists()


async def test_copies_behind_a_link_are_kept_while_somebody_works_there(store, tmp_path):
    store.folder.mkdir()
    (tmp_path / "disk").mkdir()
    store.copies.symlink_to(tmp_path / "disk")
    copy = await copy_of(store, "20261126-1200-00000f")
    await session_in(store, "other", copy.resolve())
    store.remove("20261126-1200-00000f")
    swept(store)
    assert copy.exists()


async def test_no_id_names_no_session_and_removes_none(store):
    async with writing(store, "only"):
        pass
    with pytest.raises(SessionError, match="there is no session ''"):
        store.remove("")
    assert [session.session_id for session in store.sessions()] == ["only"]
