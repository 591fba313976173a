"""Rules on files that a kernel may write unasked are compiled once, before kernels are forked."""

import re

from freeact_sub.approvals import Policy, unasked_writes
from freeact_sub.config.schema import PROTECTED
from freeact_sub.kernels.guest.writable import Files, compile_rules


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
