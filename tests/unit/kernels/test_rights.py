"""Which kernel may do more than which: in mode, wall, network, folders, and in what the machine enforces."""

import itertools
from dataclasses import replace
from pathlib import Path

from support.tables import each

from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels import KernelSpec
from freeact_sub.kernels.rights import KernelRights, more_than, rights_of
from freeact_sub.kernels.wall.sandbox import Support, policy_for
from freeact_sub.modes import MODES

WORK = Path("/work")
WHOLE = Support(landlock=7, seccomp=True, view=True)


def rights(mode, *, machine=WHOLE, own_files=False, workspace=WORK, **kernel):
    config = KernelConfig(**{"sandbox": "auto", **kernel})
    wall = policy_for(mode, config, workspace)
    spec = KernelSpec(owner_id="a", python=config.python, workspace=workspace, mode=mode, sandbox=wall)
    return rights_of(spec, own_files=own_files, machine=machine)


@each(("old", "more"), [("plan", {"auto", "ask", "full"}), ("auto", {"ask", "full"}), ("ask", {"full"}), ("full", set())])
def test_modes_with_a_wall(old, more):
    assert {new for new in MODES if more_than(rights(new), rights(old))} == more


def test_without_a_wall_a_mode_that_asks_less_may_do_more():
    for old, new in itertools.product(MODES, MODES):
        asks_less = MODES.index(new) > MODES.index(old)
        assert bool(more_than(rights(new, sandbox="off"), rights(old, sandbox="off"))) is asks_less


@each(
    ("old", "new", "more"),
    [
        ({}, {"sandbox": "off"}, "it has no wall around its files and its network"),
        ({"sandbox": "off"}, {}, ""),
        ({}, {"network": True}, "it has the network"),
        ({"network": True}, {}, ""),
        ({}, {"writable": (Path("/data"),)}, "it writes in /data"),
        ({"writable": (Path("/data"),)}, {"writable": (Path("/data/sub"),)}, ""),
        ({"writable": (Path("/data/sub"),)}, {"writable": (Path("/data"),)}, "it writes in /data"),
        ({"writable": (Path("/data"),)}, {"writable": (Path("/database"),)}, "it writes in /database"),
        ({"readable": (Path("/data"),)}, {"writable": (Path("/data"),)}, "it writes in /data"),
        ({"writable": (Path("/data"),)}, {"readable": (Path("/data"),)}, ""),
        ({}, {"readable": (Path("/home/me"),)}, "it reads /home/me"),
        ({}, {"workspace": Path("/other")}, "it writes in /other"),
        ({"own_files": True}, {}, "it writes in /work"),
        ({}, {"own_files": True}, ""),
        ({}, {"machine": replace(WHOLE, landlock=0)}, "this machine has no Landlock"),
        ({}, {"machine": replace(WHOLE, seccomp=False)}, "this machine cannot use seccomp"),
        ({"machine": Support()}, {"machine": Support()}, ""),
        ({}, {"memory_bytes": 2**40, "max_processes": 4000}, ""),
    ],
)
def test_settings_of_a_walled_mode(old, new, more):
    assert more_than(rights("auto", **new), rights("auto", **old)) == more


def test_rights_are_read_as_they_were_written():
    for mode in MODES:
        known = rights(mode, readable=(Path("/data"),), network=True)
        assert KernelRights.model_validate_json(known.model_dump_json()) == known
        assert more_than(known, known) == ""
