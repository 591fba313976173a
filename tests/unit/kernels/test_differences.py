"""What is said of changed values: sentences beside what pandas itself compares, and the bounds of comparing."""

import dataclasses
import io
import json
import pathlib
import re
import time

import numpy as np
import pandas as pd
import pytest
from support.tables import each

from freeact_sub.events import VariableChange
from freeact_sub.kernels.guest import differences, values
from freeact_sub.kernels.variable_reports import explained
from freeact_sub.show.effect_lines import changed_text


@dataclasses.dataclass
class Point:
    x: int
    name: str
    inner: object = None


class Watched:
    """Counts the calls of its code."""

    __slots__ = ("size", "text")
    calls: list[str] = []

    def __init__(self, size):
        self.size = size

    def __eq__(self, other):
        self.calls.append("eq")
        return True

    __hash__ = None

    def __repr__(self):
        self.calls.append("repr")
        return "Watched"

    def __reduce__(self):
        self.calls.append("reduce")
        return Watched, (1,)


class Fields(dict):
    def items(self):
        raise AssertionError


def in_itself(size):
    """An object that is in its own fields, which are in a dict with code of its own."""
    made = Point.__new__(Point)
    made.__dict__ = Fields(size=size, others=[made, size])
    return made


def written(variables):
    """The parts of variables as the other process reads them."""
    file = io.BytesIO()
    made = differences.in_time([*variables], lambda name: differences.stored(differences.parts_of(variables[name]), file))
    values.finish(file, made)
    return memoryview(file.getvalue())


def difference(old, new):
    found = json.loads(differences.compare(written({"v": new}), {"v": old}))
    (change,) = explained([CHANGE], found)
    return change


CHANGE = VariableChange(name="v", what="changed", before="old", after="new")
FRAME = pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "z"], "c": [1.0, None, 3.0]})
DATES = pd.DataFrame({"d": pd.date_range("2024", periods=3), "z": pd.date_range("2024", periods=3, tz="Europe/Berlin")})
KEYS = pd.DataFrame({"n": [1, 2, 3], "s": ["u", "v", "w"]}, index=pd.MultiIndex.from_tuples([("k", 1), ("k", 2), ("m", 1)]))
TWICE = pd.DataFrame({"n": [1, 2, 3]}, index=["k", "k", "m"])
KINDS = pd.DataFrame({"g": pd.Categorical(["p", "q", "p"]), "o": pd.Series([1, None, [2]], dtype=object), "i": pd.array([1, None, 3], dtype="Int64")})  # fmt: skip

FRAMES = [
    (FRAME, "f.loc[0, 'a'] = 9", "1 cell changed in 1 column: a[0] 1 to 9"),
    (FRAME, "f.loc[1, 'c'] = 5; f.loc[0, 'c'] = None", "2 cells changed in 1 column: c[0] 1.0 to missing, c[1] missing to 5.0"),
    (FRAME, "f['t'] = 1; del f['b']; f['a'] = f['a'] * 1.5", "columns 't' new, 'b' gone, 'a' int64 to float64; 3 cells changed in 1 column: a[0] 1 to 1.5, a[1] 2 to 3.0, a[2] 3 to 4.5"),
    (FRAME, "f = f.assign(a=0, b='q', c=7)", "column 'c' float64 to int64; 9 cells changed in 3 columns: a[0] 1 to 0, b[0] 'x' to 'q', c[0] 1.0 to 7, …"),
    (FRAME, "f = pd.concat([f, f])", "3 rows more (3 to 6)"),
    (FRAME, "f = f[f.a != 2]", "1 row fewer (3 to 2)"),
    (FRAME, "f = f.sort_values('a', ascending=False)", "rows in another order"),
    (FRAME, "f = f.sort_values('a', ascending=False, ignore_index=True)", "6 cells changed in 3 columns: a[0] 1 to 3, b[0] 'x' to 'z', c[0] 1.0 to 3.0, …"),
    (FRAME, "f = f.sample(frac=1, random_state=3).assign(a=f.a + (f.a == 2))", "rows in another order; 1 cell changed in 1 column: a[1] 2 to 3"),
    (FRAME, "f = f[f.a > 1]; f.loc[9] = [4, 'n', 0]", "1 row new, 1 gone"),
    (FRAME, "f.index = ['i', 'j', 'k']", "another index"),
    (FRAME, "f = f.set_index('b')", "another index; column 'b' gone"),
    (FRAME, "f = f[['c', 'b', 'a']]", "columns in another order"),
    (FRAME, "f = f.iloc[:0]", "3 rows fewer (3 to 0)"),
    (FRAME.iloc[:0], "f.loc[0] = [1, 'n', 2]", "1 row more (0 to 1); column 'c' float64 to int64"),
    (FRAME, "f.columns = ['A', 'b', 'c']", "columns 'A' new, 'a' gone"),
    (FRAME, "f['a'] = f['a'].astype(str)", "column 'a' int64 to str; 3 cells changed in 1 column: a[0] 1 to '1', a[1] 2 to '2', a[2] 3 to '3'"),
    (DATES, "f.loc[0, 'd'] += pd.Timedelta(hours=2); f.loc[1, 'd'] = pd.NaT", "2 cells changed in 1 column: d[0] 2024-01-01 to 2024-01-01T02:00:00, d[1] 2024-01-02 to missing"),
    (DATES, "f.loc[2, 'z'] += pd.Timedelta(days=1)", "1 cell changed in 1 column: z[2] 2024-01-03 00:00:00+01:00 to 2024-01-04 00:00:00+01:00"),
    (KEYS, "f.loc[('k', 2), 'n'] = 7", "1 cell changed in 1 column: n[('k', 2)] 2 to 7"),
    (KEYS, "f = f.drop(('k', 1)); f.loc[('m', 1), 's'] = 'q'", "1 row fewer (3 to 2); 1 cell changed in 1 column: s[('m', 1)] 'w' to 'q'"),
    (TWICE, "f.iloc[1, 0] = 8", "1 cell changed in 1 column: n['k'] 2 to 8"),
    (TWICE, "f = f.iloc[1:]", "1 row fewer (3 to 2); 1 cell changed in 1 column: n['k'] 1 to 2"),
    (KINDS, "f.loc[0, 'g'] = 'q'", "1 cell changed in 1 column: g[0] 'p' to 'q'"),
    (KINDS, "f.at[2, 'o'] = [2, 3]; f.loc[1, 'i'] = 5", "2 cells changed in 2 columns: i[1] missing to 5, o[2] [2] to [2, 3]"),
    (KINDS, "f['g'] = f['g'].astype(str)", "column 'g' category to str"),
]  # fmt: skip


def cells_by_pandas(old, new):
    """The number of changed cells that `DataFrame.compare` finds in the rows and columns that both have."""
    common = [name for name in old.columns if name in new.columns]
    rows = old.index.intersection(new.index, sort=False)
    if not len(rows) or not old.index.is_unique:
        rows = None
    one, other = (frame[common] if rows is None else frame.loc[rows, common] for frame in (old, new))
    if len(one) != len(other):
        return None
    one, other = (frame.astype(object).reset_index(drop=True) for frame in (one, other))
    found = one.compare(other)
    if found.empty:
        return 0
    halves = [found.xs(name, axis=1, level=1) for name in ("self", "other")]
    return int((halves[0].notna() | halves[1].notna()).to_numpy().sum())


@each(("old", "change", "sentence"), FRAMES)
def test_what_has_changed_in_a_frame_is_what_pandas_compares(old, change, sentence):
    names = {"pd": pd, "f": old.copy(deep=True)}
    exec(change, names)
    found = difference(old, names["f"])
    assert changed_text(found) == sentence
    cells = cells_by_pandas(old, names["f"])
    assert cells is None or found.difference.changed == cells


@each(
    ("old", "new", "sentence"),
    [
        (pd.Series([1, 2], index=["k", "l"]), pd.Series([1, 5], index=["k", "l"]), "1 value changed: ['l'] 2 to 5"),
        (np.arange(1000.0), np.arange(1000.0) + np.where(np.arange(1000) < 5, 0.3, 0), "5 of 1,000 elements changed, by at most 0.3: [0] 0.0 to 0.3, [1] 1.0 to 1.3, [2] 2.0 to 2.3, …"),
        (np.zeros((3, 4)), np.eye(3, 4), "3 of 12 elements changed, by at most 1: [0, 0] 0.0 to 1.0, [1, 1] 0.0 to 1.0, [2, 2] 0.0 to 1.0"),
        (np.zeros((3, 4)), np.zeros((5, 4)), "shape 3 x 4 to 5 x 4"),
        (np.zeros((3, 4)), np.zeros((4, 3)), "shape 3 x 4 to 4 x 3"),
        (np.zeros(3), np.zeros(5, dtype=int), "2 elements more (3 to 5); float64 to int64"),
        (np.array([1.0, np.nan]), np.array([1.0, 2.0]), "1 of 2 elements changed: [1] missing to 2.0"),
        (np.array(["a", 1, None], dtype=object), np.array(["a", 2, None], dtype=object), "1 of 3 elements changed: [1] 1 to 2"),
        ({"a": 1, "b": 2, "c": 3}, {"b": 2, "c": 4, "d": [1]}, "keys 'd' new, 'a' gone, 'c' 3 to 4"),
        ({"a": {"rate": 0.1, "of": [1, 2]}}, {"a": {"rate": 0.2, "of": [1, 2, 3]}}, "keys 'a'['rate'] 0.1 to 0.2, 'a'['of'] [1, 2] to [1, 2, 3]"),
        ({"a": 1}, {"a": True}, "key 'a' 1 to True"),
        ({"f": FRAME}, {"f": FRAME.assign(a=0)}, "key 'f' changed"),
        (dict.fromkeys(range(9)), dict.fromkeys(range(9, 18)), "keys 9, 10, 11, 6 more new, 0, 1, 2, 6 more gone"),
        ([1, 2, 3], [0, 1, 2, 3], "element 0 new"),
        ([1, 2, {"k": 3}], [1, 2, {"k": 4}], "1 element changed: [2]['k'] 3 to 4"),
        ({1, 2}, {2, "x"}, "elements 'x' new, 1 gone"),
        (Point(1, "x"), Point(1, "y"), "field name 'x' to 'y'"),
        (Point(1, "x", Point(2, "i")), Point(3, "x", Point(2, "j")), "fields x 1 to 3, inner.name 'i' to 'j'"),
        (list(range(30_000)), list(range(30_001)), "too large to compare: 30,001 elements"),
        ([[0] * 15_000] * 2, [[0] * 15_000] * 2 + [1], "too large to compare: more than 20,000 parts"),
        (np.array([1, 2], dtype="g"), np.array([1, 3], dtype="g"), "1 of 2 elements changed, by at most 1: [1] 2.0 to 3.0"),
        (1, "a", ""),
        ([1], [1], ""),
    ],
)  # fmt: skip
def test_what_has_changed_in_other_values(old, new, sentence):
    assert changed_text(difference(old, new)) == sentence


def test_values_that_json_or_recursion_do_not_take_are_told():
    found = difference({"n": 10**5000, "c": 1 + 2j}, {"n": 1, "c": 1 + 3j})
    assert changed_text(found) == "keys 'n' a number of 16,610 bits to 1, 'c' (1+2j) to (1+3j)"
    used, fresh = pathlib.Path("a/b"), pathlib.Path("a/b")
    assert str(used)
    found = difference({"path": used, "mode": re.RegexFlag.A}, {"path": fresh, "mode": re.RegexFlag.I})
    assert changed_text(found) == "key 'mode' RegexFlag.ASCII to RegexFlag.IGNORECASE"
    assert changed_text(difference(in_itself(1), in_itself(2))) == "fields size 1 to 2, others[1] 1 to 2"


def test_no_code_of_a_users_type_runs():
    old, new = Watched(1), Watched(2)
    new.text = "t"
    assert changed_text(difference(old, new)) == "fields text new, size 1 to 2"
    assert changed_text(difference({"w": [old]}, {"w": [new]})) == "keys 'w'[0].text new, 'w'[0].size 1 to 2"
    difference(pd.DataFrame({"o": [old]}), pd.DataFrame({"o": [new]}))
    difference(np.array([old], dtype=object), np.array([new], dtype=object))
    assert Watched.calls == []


def busy(name):
    end = time.process_time() + 0.15
    while time.process_time() < end:
        pass
    return {"x": 1}


def test_what_is_too_large_is_not_compared_and_what_is_not_costs_little():
    large = pd.DataFrame(np.zeros((500_000, 10)))
    began = time.process_time()
    assert changed_text(difference(large, large.assign(t=1))) == "column 't' new; too large to compare: 500,000 rows"
    assert changed_text(difference(np.zeros(5_000_000), np.ones(5_000_000))) == "too large to compare: 5,000,000 elements"
    assert time.process_time() - began < 0.5
    assert differences.in_time(["a", "b"], busy) == {"a": {"x": 1}, "b": {"too_large": "it takes too long"}}
    cycle = [1]
    cycle.append(cycle)
    assert differences.parts_of(cycle)["tree"]


@each("told", [[], {"v": 1}, {"v": {"examples": [["a"]]}}, {"v": {"changed": "many"}}, {"v": {"sizes": ["a", "b"]}}])
def test_a_report_of_another_form_is_refused(told):
    with pytest.raises(ValueError):
        list(explained([CHANGE], told))


def test_a_report_that_is_too_long_is_not_shown():
    assert [*explained([CHANGE], {"v": {"new": ["n" * 9000] * 50}})] == [CHANGE]
