"""What the policies of a tree are after the root's mode was changed, while its kernels stand behind their walls."""

from pathlib import Path

from support.tables import each

from freeact_sub.approvals import Policy, narrowed
from freeact_sub.modes import MODES, WALL_OF, WALLS, Mode, narrower

ROOTS: dict[tuple[Mode, Mode], Mode] = {
    ("ask", "auto"): "ask",  # the kernel has no wall yet
    ("full", "auto"): "ask",
}
"""By the modes before and after, where it is not the one after."""


@each("before", MODES)
@each("after", MODES)
def test_calls_are_judged_by_the_new_mode_and_never_unasked_without_its_wall(before: Mode, after: Mode) -> None:
    root = Policy(workspace=Path("/w"), mode=before)
    now = root.in_mode(after).mode
    assert now == ROOTS.get((before, after), after)
    assert now != "auto" or WALLS.index(WALL_OF[before]) <= WALLS.index(WALL_OF["auto"])
    assert root.in_mode(before) == root


@each("own", MODES)
@each("before", MODES)
@each("after", MODES)
def test_a_child_is_never_allowed_more_than_its_root_or_than_it_was(own: Mode, before: Mode, after: Mode) -> None:
    root = Policy(workspace=Path("/w"), mode=before)
    child = narrowed(root, own)
    now = child.in_mode(after)
    assert now.parent is not None
    assert now.parent.mode == root.in_mode(after).mode
    assert narrower(now.mode, child.mode) == now.mode
    assert narrower(now.mode, after) == now.mode
