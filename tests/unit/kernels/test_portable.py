"""What the host reads of a kernel's variables: all that is written comes back, and whatever else is there is one error."""

import contextlib
import datetime as dt
import decimal
import io
import json
import os
import pickle
import random
import zipfile

import numpy as np
import pandas as pd
import pytest
from support.tables import each

from freeact_sub.errors import KernelError, KernelValueError
from freeact_sub.kernels import handover
from freeact_sub.kernels.guest import plain
from freeact_sub.kernels.guest import portable as guest
from freeact_sub.kernels.guest import values as guest_values
from freeact_sub.kernels.portable import MAX_JSON_BYTES, decoded


def written(value):
    file = io.BytesIO()
    guest_values.finish(file, guest.ValueWriter(file).node(value, "x"))
    return bytearray(file.getvalue())


def there_and_back(value, output=None):
    return decoded(written(value), "x", output)


def file_of(index, *blocks):
    """A file, as a kernel may write it. In the index, `@0` stands for the place of the first block."""
    file, places = io.BytesIO(), []
    for block in blocks:
        places.append(guest_values.put(file, block))
    text = json.dumps(index)
    for number, place in enumerate(places):
        text = text.replace(f'"@{number}"', json.dumps(place))
    guest_values.finish(file, json.loads(text))
    return bytearray(file.getvalue())


def npy(descr="<i8", shape=(2,), body=b"\0" * 16, version=b"\x01\0", order=False):
    header = repr({"descr": descr, "fortran_order": order, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header + body


N = 5
FRAME = pd.DataFrame(
    {
        "int": range(N),
        "float": np.linspace(0, 1, N),
        "text": [*"abc", None, "e"],
        "bool": [True, False] * 2 + [True],
        "time": pd.date_range("2020", periods=N),
        "zone": pd.date_range("2020", periods=N, tz="Europe/Berlin"),
        "fixed": pd.date_range("2020", periods=N, tz=dt.timezone(dt.timedelta(hours=2))),
        "kind": pd.Categorical([*"xyxyx"], categories=[*"zyx"], ordered=True),
        "Int": pd.array([1, None, 3, 4, 5], dtype="Int64"),
        "Bool": pd.array([True, None, False, True, True], dtype="boolean"),
        "objects": pd.Series([{"a": 1}, [1, 2], None, "x", 1.5], dtype=object),
        "delta": pd.to_timedelta(range(N), unit="s"),
        "string": pd.array([*"abcde"], dtype="string"),
        "complex": np.arange(N) + 1j,
    }
)
FRAMES = {
    "all": FRAME,
    "numbers": FRAME[["int"]],
    "mixed numbers": FRAME[["int", "float"]],
    "by time": FRAME.set_index("time"),
    "by zone": FRAME.set_index("zone"),
    "by two": FRAME.set_index(["text", "kind"]),
    "empty": pd.DataFrame(),
    "rows only": pd.DataFrame(index=range(3)),
    "no rows": pd.DataFrame({"a": []}),
    "columns of two": pd.DataFrame(np.eye(3), columns=pd.MultiIndex.from_product([["a"], [1, 2, 3]], names=["p", "q"])),
    "twice": pd.DataFrame([[1, "a"], [2, "b"]], columns=["x", "x"]),
    "filtered": FRAME[FRAME["int"] > 2],
}


@each("name", FRAMES)
def test_frames_come_back_equal(name):
    pd.testing.assert_frame_equal(there_and_back(FRAMES[name], pd.DataFrame), FRAMES[name])


def test_series_indexes_and_attributes_come_back():
    series = pd.Series(range(3), index=pd.date_range("2020", periods=3, freq="D", name="day"), name="n")
    pd.testing.assert_series_equal(there_and_back(series, pd.Series), series)
    pd.testing.assert_index_equal(there_and_back(FRAME.text.astype("category").cat.categories), pd.Index([*"abce"]))
    noted = FRAME[["int"]].copy()
    noted.attrs = {"source": "here"}
    assert there_and_back(noted).attrs == {"source": "here"}


@each(
    "array",
    [
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(10)[::3],
        np.zeros((0, 4)),
        np.array(3),
        np.array(["ab", "c"]),
        np.array([b"a"]),
        np.array([(1, 2.0)], dtype=[("a", int), ("b", float)]),
        np.array(["2020"], dtype="M8[D]"),
        np.array([True, False]),
        np.arange(3, dtype=">i2"),
    ],
    ids=lambda array: f"{array.dtype} {array.shape}",
)
def test_arrays_come_back_equal_and_can_be_changed(array):
    back = there_and_back(array)
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert (back == array).all()
    if back.ndim == 1 and back.dtype.kind in "iub":
        back[0] = 0


class Runs:
    """Unpickled, it would leave a mark."""

    def __reduce__(self):
        return os.mkdir, ("unpickled",)


PICKLE = pickle.dumps(Runs())
ZIP = io.BytesIO()
with zipfile.ZipFile(ZIP, "w") as archive:
    archive.writestr("x.npy", "")
ROWS = {"range": [0, 2, 1], "name": None}
HOSTILE = {
    "empty": b"",
    "short": b"1234567",
    "index too long": b"{}" + (2**40).to_bytes(8, "little"),
    "index no JSON": b"no" + (2).to_bytes(8, "little"),
    "index a list": file_of([1]),
    "unknown": file_of({"pickle": "@0"}, PICKLE),
    "outside": file_of({"json": [0, 10**9]}),
    "negative": file_of({"json": [-8, 8]}),
    "no numbers": file_of({"json": ["0", True]}),
    "no JSON": file_of({"json": "@0"}, PICKLE),
    "deep JSON": file_of({"json": "@0"}, b"[" * 10**6),
    "deep index": b"",
    "long number": file_of({"json": "@0"}, b"1" * 10**5),
    "the same JSON often": file_of({"list": [{"json": "@0"}] * 1000}, b"[" + b"0," * 10**6 + b"0]"),
    "pickle as npy": file_of({"array": "@0"}, PICKLE),
    "npz": file_of({"array": "@0"}, ZIP.getvalue()),
    "objects": file_of({"array": "@0"}, npy("|O", (1,), PICKLE)),
    "objects inside": file_of({"array": "@0"}, npy([("a", "|O")], (1,), b"\0" * 8)),
    "more than there is": file_of({"array": "@0"}, npy(shape=(10**12,))),
    "too large to count": file_of({"array": "@0"}, npy(shape=(2**62, 2**62))),
    "nothing, often": file_of({"array": "@0"}, npy("|S0", (10**12,), b"")),
    "negative length": file_of({"array": "@0"}, npy(shape=(-1,))),
    "two negative lengths": file_of({"array": "@0"}, npy(shape=(-1, -2))),
    "code as header": file_of({"array": "@0"}, npy(descr="__import__('os').mkdir('unpickled')")),
    "deep header": file_of({"array": "@0"}, b"\x93NUMPY\x01\0" + (9000).to_bytes(2, "little") + b"(" * 9000),
    "another version": file_of({"array": "@0"}, npy(version=b"\x09\0")),
    "big block": file_of({"array": "@0"}, npy("(1000000,)<f8", (10**6,))),
    "frame of another length": file_of({"frame": [{"array": "@0"}], "index": {"range": [0, 3, 1], "name": None}, "columns": ROWS}, npy()),
    "frame without end": file_of({"frame": [{"array": "@0"}], "index": {"range": [0, 10**15, 1], "name": None}, "columns": ROWS}, npy()),
    "zone that is a path": file_of({"series": {"times": "@0", "zone": "../../../etc/passwd"}, "index": ROWS, "name": None}, npy("<M8[ns]")),
    "zone of dateutil": file_of({"series": {"times": "@0", "zone": "dateutil//dev/stdin"}, "index": ROWS, "name": None}, npy("<M8[ns]")),
    "codes of nothing": file_of({"series": {"codes": "@0", "categories": {"array": "@1"}, "ordered": False}, "index": ROWS, "name": None}, npy(body=b"\xff" * 8 + b"\x09" + b"\0" * 7), npy()),
    "type that is none": file_of({"series": {"masked": "@0", "missing": "@1", "type": "object"}, "index": ROWS, "name": None}, npy(), npy("|b1", body=b"\0\1")),
    "name that is a list": file_of({"series": {"array": "@0"}, "index": ROWS, "name": [1]}, npy()),
    "step 0": file_of({"index": {"range": [0, 1, 0], "name": None}}),
}  # fmt: skip
deep = {"json": "@0"}
for _ in range(100):
    deep = {"list": [deep]}
HOSTILE["deep index"] = file_of(deep, b"1")


@each("name", HOSTILE)
def test_whatever_else_a_kernel_writes_is_one_error_in_one_line(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for output in (None, int, pd.DataFrame):
        with pytest.raises(KernelValueError) as caught:
            decoded(bytearray(HOSTILE[name]), "x", output)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 1500
    assert not (tmp_path / "unpickled").exists()


@each(
    "value",
    [FRAME, FRAME[["int"]], np.arange(9).reshape(3, 3), {"a": [np.arange(2), "x"]}],
    ids=["frame", "block", "array", "dict"],
)
def test_a_file_with_a_few_wrong_bytes_is_a_value_or_one_error(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole, chance = written(value), random.Random(7)
    for _ in range(100):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.2:
            del data[chance.randrange(len(data)) :]
        with contextlib.suppress(KernelValueError):
            decoded(data, "x", None)


def test_a_bool_that_is_neither_is_true():
    assert decoded(file_of({"array": "@0"}, npy("|b1", body=b"\2\0")), "x").tolist() == [True, False]


def test_json_is_bounded_before_it_is_read():
    data = file_of({"json": "@0"}, b" " * (MAX_JSON_BYTES + 1))
    with pytest.raises(KernelValueError, match="bytes of JSON"):
        decoded(data, "x")


def test_a_value_that_is_too_large_is_refused_where_it_is_written(monkeypatch):
    monkeypatch.setattr(guest, "MAX_BYTES", 1000)
    monkeypatch.setattr(guest, "MAX_JSON_BYTES", 100)
    for value in (
        np.zeros(1000),
        b"x" * 2000,
        pd.DataFrame({"a": np.zeros(1000)}),
        "x" * 200,
        {"a": np.zeros(100), "b": np.zeros(100)},
    ):
        with pytest.raises(ValueError, match="too large"):
            written(value)


def test_a_file_is_read_as_it_is_and_nothing_else_is(tmp_path, monkeypatch):
    (tmp_path / "values-1").write_bytes(b"content")
    assert handover.read_whole("values-1", tmp_path) == b"content"
    assert not (tmp_path / "values-1").exists(), "it is gone"
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "values-2").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "values-3")
    (tmp_path / "values-4").mkdir()
    with (tmp_path / "values-5").open("wb") as file:
        file.truncate(handover.MAX_BYTES + 1)
    for number in range(2, 7):
        with pytest.raises(KernelError) as caught:
            handover.read_whole(f"values-{number}", tmp_path)
        assert "secret" not in str(caught.value)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "folder/values-1").write_bytes(b"")
    with pytest.raises(KernelError):
        handover.read_whole("values-1", tmp_path / "link")


@pytest.mark.parametrize("value", [{1: "a", "1": "b"}, [{"x": ({None: 1, "null": 2},)}], {"True": 1, True: 2, "true": 3}])
def test_names_that_json_cannot_tell_apart_are_refused_so_that_no_value_is_lost(value):
    with pytest.raises(TypeError, match="one name in JSON"):
        written(value)
    with pytest.raises(TypeError, match="one name in JSON"):
        plain.plain(value)


@pytest.mark.parametrize("text", ["NaN", "sNaN", "-Infinity"])
def test_a_decimal_that_is_no_number_stays_one(text):
    assert str(decoded(written([decimal.Decimal(text)]), "x")[0]) in ("nan", "-inf")


def test_a_number_of_more_digits_than_python_writes_is_described():
    assert guest_values.line("v", 10**5000) == "v: int"
