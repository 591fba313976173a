"""Tables of `support.tables`: all rows are tried, and the failure names each that failed."""

import pytest
from support.tables import each, lines

FAILED = """\
2 of 4 rows failed:
number=1, letter='b'
    test_tables.py:{line}: AssertionError: b is wrong
    assert 'b' != 'b'
number=2, letter='b'
    test_tables.py:{line}: AssertionError: b is wrong
    assert 'b' != 'b'"""


def test_each_row_that_failed_is_named_and_the_others_are_tried(tmp_path, monkeypatch):
    tried = []

    @each("number", [1, 2])
    @each("letter", ["b", "a"])
    def check(letter, number, tmp_path, monkeypatch):
        tried.append((letter, number))
        assert list(tmp_path.iterdir()) == []
        (tmp_path / "x").touch()
        monkeypatch.delenv("HOME")
        assert letter != "b", "b is wrong"

    with pytest.raises(pytest.fail.Exception) as failure:
        check(tmp_path=tmp_path, monkeypatch=monkeypatch)
    line = check.__wrapped__.__code__.co_firstlineno + 7
    assert str(failure.value) == FAILED.format(line=line)
    assert tried == [("b", 1), ("b", 2), ("a", 1), ("a", 2)]


async def test_a_row_that_raises_or_skips_holds_up_no_other_one():
    tried = []

    @each(
        ("kind", "error"),
        [pytest.param("none", None, id="nothing"), ("skip", pytest.skip.Exception("x")), ("key", KeyError(1))],
    )
    async def check(kind, error):
        tried.append(kind)
        if error:
            raise error

    with pytest.raises(pytest.fail.Exception, match="1 of 3 rows failed:\nkind='key', error=KeyError\\(1\\)\n.*KeyError: 1"):
        await check()
    assert tried == ["none", "skip", "key"]


def test_no_row_runs_after_the_clock_of_a_test():
    tried = []

    @each("row", [1, 2])
    def check(row):
        tried.append(row)
        pytest.fail("Timeout (>300.0s) from pytest-timeout.")

    with pytest.raises(pytest.fail.Exception, match="1 of 2 rows failed"):
        check()
    assert tried == [1]


def test_wrong_tables_are_refused():
    with pytest.raises(ValueError, match="has no row"):
        each("row", [])
    with pytest.raises(TypeError, match="has no marks"):
        each("row", [pytest.param(1, marks=pytest.mark.slow)])
    with pytest.raises(ValueError, match="argument"):
        each(("one", "two"), [(1,)])


def test_rows_share_a_folder_only_where_the_test_says_so(tmp_path):
    check = each("row", [1])(lambda row, policy, tmp_path: None)
    with pytest.raises(pytest.fail.Exception, match="together=True"):
        check(policy=None, tmp_path=tmp_path)
    each("row", [1], together=True)(lambda row, policy, tmp_path: None)(policy=None, tmp_path=tmp_path)


def test_a_row_of_a_file_is_its_line_or_a_string_of_json():
    rows = lines("commands/that_cannot_be_taken_apart.txt")
    assert rows[0] == "$X a"
    assert "cat <<E\n$(ls)\nE" in rows
