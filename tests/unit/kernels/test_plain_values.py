"""Values and text on their way out of a kernel: JSON that every reader takes, whatever they are."""

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import random
import uuid
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.session import json_packer
from pydantic import BaseModel
from support import odd_values
from support.tables import each
from support.thorough import examples

from freeact_sub.kernels.guest.plain import MAX_DEPTH, pack, plain
from freeact_sub.kernels.wire.channels import MessageError, read_message


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Point:
    x: float
    y: Any


class Model(BaseModel):
    when: dt.datetime


TABLE = [
    (float("nan"), None),
    ([math.inf, -math.inf, 1.5, True, None], [None, None, 1.5, True, None]),
    (decimal.Decimal("1.10"), "1.10"),
    (decimal.Decimal("NaN"), None),
    (dt.datetime.fromisoformat("2026-01-02T03:04"), "2026-01-02T03:04:00"),
    (dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "2026-01-02T00:00:00Z"),
    (dt.date(2026, 1, 2), "2026-01-02"),
    (dt.time(3, 4), "03:04:00"),
    (dt.timedelta(seconds=90), 90.0),
    (b"\x00\x01", "AAE="),
    ({3}, [3]),
    ((1, (2,)), [1, [2]]),
    (range(3), [0, 1, 2]),
    (Colour.RED, "red"),
    (Level.HIGH, 3),
    (Point(math.nan, Colour.RED), {"x": None, "y": "red"}),
    (Model(when=dt.datetime.fromisoformat("2026-01-02")), {"when": "2026-01-02T00:00:00"}),
    (Path("/a"), "/a"),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ({1: "a", None: "b", (1, 2): "d"}, {"1": "a", "null": "b", "(1, 2)": "d"}),
    ("half \ud83d", "half \\ud83d"),
    ("caf\udce9", "caf\\udce9"),
    (10**30, 10**30),
]


@each(("value", "expected"), TABLE, ids=[repr(value)[:40] for value, _ in TABLE])
def test_a_value_becomes_json_data(value: Any, expected: Any) -> None:
    made = plain(value)
    assert made == expected
    assert type(made) is type(expected)
    assert json.loads(pack({"v": value})) == {"v": expected}


def test_values_of_numpy_and_pandas_become_json_data() -> None:
    np, pd = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    table = [
        (pd.NA, None),
        (pd.NaT, None),
        (np.float32(1.5), 1.5),
        (np.float64("nan"), None),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([1.0, np.nan]), [1.0, None]),
    ]
    for value, expected in table:
        assert plain(value) == expected
        assert type(plain(value)) is type(expected)


def test_what_cannot_be_json_data_is_named_with_its_place() -> None:
    with pytest.raises(TypeError, match=r"argument 'a'\['b'\]\[1\] is of type object, which is not JSON data"):
        plain({"b": [1, object()]}, "argument 'a'")
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(TypeError, match="contains itself"):
        plain(circle)
    assert json.loads(pack({"v": object(), "w": 1}))["w"] == 1


def test_whatever_a_message_has_it_is_read_by_the_host() -> None:
    """Also where Jupyter's own encoder has written it: the bytes of a file name as they are, half characters as escapes."""
    for number in range(examples(10_000)):
        content = {"value": odd_values.value(random.Random(number)), "text": "stays"}
        jupyters = json.dumps(content, ensure_ascii=False).replace("\ud83d", "\\ud83d").encode("utf-8", "surrogateescape")
        for packed in (pack(content), json.dumps(content).encode(), jupyters):
            message = read_message([pack({"msg_type": "stream"}), b"{}", b"{}", packed])
            assert message.content["text"] == "stays", number
            json.dumps(message.content, ensure_ascii=False).encode()
        assert json.loads(pack(content), parse_constant=pytest.fail)["text"] == "stays"
    print(f"{examples(10_000):,} messages of kernels")


def test_bytes_that_are_no_text_are_refused_or_read() -> None:
    for number in range(examples(10_000)):
        source = random.Random(number)
        part = bytearray(json.dumps({"text": "é" * source.randrange(9), "n": 1}, ensure_ascii=False).encode())
        for _ in range(3):
            part[source.randrange(len(part))] = source.randrange(256)
        try:
            message = read_message([pack({"msg_type": "stream"}), b"{}", b"{}", bytes(part)])
        except MessageError:
            continue
        json.dumps(message.content, ensure_ascii=False).encode()
    print(f"{examples(10_000):,} damaged messages")


@pytest.mark.parametrize("value", [{}, {"text": "ä€😀", "numbers": [1, 2.5, None, True]}, {1: {"a": ()}}])
def test_what_jupyters_encoder_can_write_is_written_as_by_it(value: Any) -> None:
    assert pack(value) == json_packer(value)


def test_the_place_of_a_value_that_contains_itself_is_cut() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(TypeError, match="contains itself") as caught:
        plain({"x": circle}, "argument 'v'")
    assert len(str(caught.value)) < 200


def test_values_are_not_too_deep_to_be_refused() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH + 5):
        value = [value]
    with pytest.raises(TypeError, match="inside each other"):
        plain(value)
