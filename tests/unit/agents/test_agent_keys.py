"""Agent keys: depth and parent follow from the key, and a malformed key has neither."""

import re
import uuid

from hypothesis import given
from hypothesis import strategies as st
from support.tables import each, lines

from freeact_sub import depth_of, parent_of
from freeact_sub.agent_names import child_key, root_key

tokens = st.text(st.characters(blacklist_characters=":", blacklist_categories=("Z", "C")), min_size=1, max_size=12)


def key_of(chain: list[str]) -> str:
    words = ["agent", "subagent", *["sub"] * len(chain)]
    return ":".join(f"{word}:{token}" for word, token in zip(words, chain, strict=False))


@given(tokens, st.integers(0, 10))
def test_each_child_is_one_deeper_and_knows_its_parent(root, levels):
    key = root_key(root)
    assert (depth_of(key), parent_of(key)) == (0, None)
    for depth in range(1, levels + 1):
        child = child_key(key)
        assert (depth_of(child), parent_of(child), child.startswith(f"{key}:")) == (depth, key, True)
        assert child.startswith(root_key(root) + ":")
        assert child_key(key) != child
        key = child


def test_the_form_of_keys():
    child = child_key("agent:main")
    grandchild = child_key(child)
    form = r"agent:main:subagent:(?P<one>[^:]+):sub:(?P<two>[^:]+)"
    found = re.fullmatch(form, grandchild)
    assert found is not None
    assert [str(uuid.UUID(found[name])) for name in ("one", "two")] == [found["one"], found["two"]]
    assert depth_of(child_key(grandchild)) == 3


@given(st.lists(tokens, min_size=1, max_size=6))
def test_depth_is_the_number_of_agents_above(chain):
    assert depth_of(key_of(chain)) == len(chain) - 1
    assert parent_of(key_of(chain)) == (key_of(chain[:-1]) if len(chain) > 1 else None)


@each(
    ("key", "parent"),
    [
        ("agent:main", None),
        ("agent:main:subagent:1", "agent:main"),
        ("agent:main:subagent:1:sub:2", "agent:main:subagent:1"),
        ("agent:main:subagent:1:sub:2:sub:3", "agent:main:subagent:1:sub:2"),
        ("agent:sub:subagent:sub:sub:subagent", "agent:sub:subagent:sub"),
        ("agent:agent", None),
    ],
)
def test_the_parent_of_a_key(key, parent):
    assert parent_of(key) == parent


@each("key", lines("malformed_agent_keys.txt"))
def test_a_malformed_key_has_depth_0_and_no_parent(key):
    assert (depth_of(key), parent_of(key)) == (0, None)


@given(st.lists(st.sampled_from(["agent", "subagent", "sub", "x", ""]), max_size=9).map(":".join))
def test_any_text_is_either_a_key_or_nothing(text):
    parent = parent_of(text)
    assert depth_of(text) == (0 if parent is None else depth_of(parent) + 1)
