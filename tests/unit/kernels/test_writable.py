"""What a kernel may write unasked, tested quickly: it is the same as all expressions one by one."""

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import each
from support.thorough import examples

from freeact_sub.approvals import Policy, unasked_writes
from freeact_sub.config.schema import PROTECTED
from freeact_sub.kernels.guest.writable import Files, compile_rules, first_letter, one_of

WORK = Path("/work")
SHIPPED = [name for _, name in unasked_writes(Policy(workspace=WORK), (WORK / name for name in PROTECTED))[1]]
ODD = [
    r"a?b",
    r"a*",
    r"\.x|y",
    "[ab]c",
    r"\d",
    r"(?ai:a|b)",
    r"(?ai:[^/]*\.a|b)",
    ".",
    r"\[x",
    "",
    r"(?ai:é)",
    r"é",
    "a{2}",
    r"\w",
    "A",
    r"\\",
]


def plainly(names: list[str], name: str) -> bool:
    return any(re.compile(one, re.DOTALL).fullmatch(name) for one in names)


@settings(deadline=None, max_examples=examples(400))
@given(
    st.lists(st.sampled_from([*SHIPPED, *ODD]), min_size=1, max_size=8),
    st.text("abyxABX.é[\\/2 ", max_size=4)
    | st.sampled_from(
        [
            ".env",
            ".ENV.x",
            "id_rsa",
            "ID_RSA~",
            "x.pem",
            "key3.db",
            "K.key",
            "a.KEY",
            "service_account.json",
            "HEAD",
            "part-17.csv",
            "\u212aey3.db",
        ]
    ),
)
def test_the_quick_test_says_what_all_expressions_say(names, name):
    assert bool(one_of(names)(name)) == plainly(names, name)


@each(
    ("name", "letter"),
    [
        (r"\.git", "."),
        (r"(?ai:\.env[^/]*)", "."),
        ("HEAD", "H"),
        (r"(?ai:_netrc)", "_"),
        (r"(?ai:[^/]*\.key)", ""),
        ("a?b", ""),
        ("a|b", ""),
        (r"\w", ""),
        ("", ""),
    ],
)
def test_the_first_letter_is_told_only_where_it_is_certain(name, letter):
    assert first_letter(name) == letter


def test_most_shipped_expressions_are_told_by_their_first_letter():
    assert sum(bool(first_letter(name)) for name in SHIPPED) > len(SHIPPED) / 3


def test_a_kernel_compiles_nothing_that_was_compiled_before_it_was_forked(tmp_path, monkeypatch):
    folders, asked = unasked_writes(Policy(workspace=tmp_path), (tmp_path / name for name in PROTECTED))
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    re.purge()
    compile_rules(map(str, folders), asked, str(link))

    def compiles(*_):
        raise AssertionError("compiled again")

    monkeypatch.setattr(re._compiler, "compile", compiles)  # noqa: SLF001  # the work that is to be spared
    monkeypatch.chdir(link)
    files = Files([*map(str, folders), str(tmp_path / "scratch")], asked)
    assert files.are_free("a.txt")
    assert not files.are_free(PROTECTED[0])
