"""Between a kernel and a slow reader."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.virtual_time import in_virtual_time
from support.waiting import turns

from freeact_sub.cells import CellError, DisplayData, ExecuteReply, ExecuteResult, StreamText
from freeact_sub.channel import EventChannel
from freeact_sub.config.schema import Config
from freeact_sub.events import CodeExecutionOutput
from freeact_sub.kernels import CellClock, CellOutputBuffer
from freeact_sub.kernels.wire.output import BUFFER_CHARS, DISPLAYS_CHARS, CellRun
from freeact_sub.tools.execute import run_cell
from freeact_sub.tools.tool import CellContext


async def read_all(buffer: CellOutputBuffer) -> list:
    outputs = []
    while not isinstance(output := await buffer.get(), ExecuteReply):
        outputs.append(output)
    return [*outputs, output]


def out(text: str) -> StreamText:
    return StreamText(name="stdout", text=text)


TEXT = st.text(st.characters(exclude_characters="\r\b\x1b"), max_size=50)
"""Without what moves the cursor of a screen."""


@given(st.lists(TEXT, max_size=60), st.integers(min_value=10, max_value=200))
def test_text_is_all_of_a_short_output_and_head_and_tail_of_a_long_one(pieces, bound):
    buffer = CellOutputBuffer(model_chars=bound)
    for piece in pieces:
        buffer.add(out(piece.replace("\x1b", "")))
    whole = "".join(pieces).replace("\x1b", "")
    assert buffer.total_chars == len(whole)
    if len(whole) <= bound:
        assert buffer.text == whole
    else:
        head, tail = bound * 2 // 3, bound - bound * 2 // 3
        assert buffer.text.startswith(whole[:head] + "\n[…")
        assert buffer.text.endswith("…]\n" + whole[-tail:])
        assert f"{len(whole) - bound:,} of {len(whole):,}" in buffer.text


async def test_the_file_has_all_of_a_long_output_and_there_is_none_for_a_short_one(tmp_path):
    short, long = (CellOutputBuffer(model_chars=300, file=tmp_path / name) for name in ("short", "long"))
    short.add(out("x" * 300))
    for number in range(200):
        long.add(out(f"line {number}\n"))
    for buffer in (short, long):
        buffer.end(ExecuteReply(status="ok"))
    assert short.file is None
    assert not (tmp_path / "short").exists()
    assert long.file.read_text() == "".join(f"line {number}\n" for number in range(200))
    assert str(long.file) in long.text


async def test_what_a_slow_reader_misses_is_counted_and_memory_is_bounded(tmp_path):
    buffer = CellOutputBuffer(file=tmp_path / "all")
    for _ in range(100):
        buffer.add(out("x" * 100_000))
    buffer.end(ExecuteReply(status="ok"))
    got = sum(len(output.text) for output in await read_all(buffer) if isinstance(output, StreamText))
    assert got <= BUFFER_CHARS
    assert got + buffer.left_out_chars == 10_000_000
    assert (tmp_path / "all").stat().st_size == 10_000_000


async def test_small_pieces_that_wait_are_joined_in_order_and_streams_are_kept_apart():
    buffer = CellOutputBuffer()
    for number in range(1000):
        buffer.add(out(f"{number} "))
    buffer.add(StreamText(name="stderr", text="err"))
    buffer.add(out("end"))
    buffer.end(ExecuteReply(status="ok"))
    outputs = await read_all(buffer)
    assert [output.name for output in outputs[:-1]] == ["stdout", "stderr", "stdout"]
    assert outputs[0].text == "".join(f"{number} " for number in range(1000))


async def test_rich_output_is_kept_as_bundles_and_updates_replace():
    buffer = CellOutputBuffer()
    buffer.add(DisplayData(data={"text/plain": "<pic>", "image/png": "AAAA"}, display_id="a"))
    buffer.add(DisplayData(data={"text/plain": "<pic2>", "image/png": "BBBB"}, display_id="a", update=True))
    buffer.add(ExecuteResult(data={"text/plain": "  x\n0 1", "text/html": "<table>"}, execution_count=1))
    buffer.add(ExecuteResult(data={"text/plain": "42"}, execution_count=2))
    assert [display.get("image/png") for display in buffer.displays] == ["BBBB", None]
    assert buffer.displays[1]["text/html"] == "<table>"
    assert "0 1" in buffer.text


async def test_more_rich_output_than_a_cell_may_show_is_a_note():
    buffer = CellOutputBuffer()
    picture = {"text/plain": "<pic>", "image/png": "A" * (DISPLAYS_CHARS * 2 // 3)}
    for _ in range(3):
        buffer.add(DisplayData(data=picture))
    buffer.end(ExecuteReply(status="ok"))
    outputs = await read_all(buffer)
    assert len(buffer.displays) == 1
    assert [set(output.data) for output in outputs[:-1]] == [{"text/plain", "image/png"}, {"text/plain"}, {"text/plain"}]
    assert "more than a cell may show" in outputs[1].data["text/plain"]


async def test_a_traceback_is_text_for_the_model_without_colours():
    buffer = CellOutputBuffer()
    buffer.add(CellError(ename="ValueError", evalue="no", traceback=("\x1b[31mValueError\x1b[39m: no",)))
    buffer.end(ExecuteReply(status="error"))
    assert buffer.text == "ValueError: no\n"
    assert (await buffer.get()).traceback == ("\x1b[31mValueError\x1b[39m: no",)


@pytest.mark.parametrize("pause", [1, 7, 1000], ids=lambda pause: f"the reader pauses after {pause}")
@pytest.mark.slow
async def test_text_and_displays_keep_their_order_and_their_bound_on_the_way_to_the_reader(pause, tmp_path):
    channel = EventChannel(size=4)

    @contextlib.asynccontextmanager
    async def execute(_: str, buffer: CellOutputBuffer, __: CellClock):
        async def play():
            for number in range(20_000):
                text = f"{number} "
                buffer.add(out(text) if number % 7 < 3 else DisplayData(data={"text/plain": text}))
                if number % 11 == 0:
                    await turns()
            buffer.end(ExecuteReply(status="ok"))

        playing = asyncio.create_task(play())
        yield CellRun(buffer)
        await playing

    context = CellContext(config=Config(workspace=tmp_path), tool_call_id="1", output_folder=tmp_path, emit=channel.send)
    kernel = SimpleNamespace(execute=execute, lost_reason=None)
    running = asyncio.create_task(run_cell("", kernel, context))
    read: list[str] = []
    while not isinstance(event := await channel.receive(), CodeExecutionOutput):
        output = event.output
        read += (output.text if isinstance(output, StreamText) else output.data["text/plain"]).split()
        assert len(channel._waiting) <= 4  # noqa: SLF001  # the bound
        if len(read) % pause == 0:
            await turns()
    await running
    assert read == [str(number) for number in range(20_000)]


async def test_the_first_end_counts_and_what_comes_after_it_is_dropped():
    buffer = CellOutputBuffer()
    buffer.end(ExecuteReply(status="kernel_lost"))
    buffer.add(out("late"))
    buffer.end(ExecuteReply(status="ok"))
    assert await buffer.get() == await buffer.get() == ExecuteReply(status="kernel_lost")
    assert buffer.text == ""


@in_virtual_time
async def test_the_clock_stands_still_while_paused_and_pauses_may_overlap():
    clock, expired = CellClock(0.05), asyncio.Event()
    clock.start(expired)
    with clock.paused(), clock.paused():
        waited = asyncio.create_task(asyncio.wait_for(expired.wait(), 0.3))
        await asyncio.wait({waited})
        assert isinstance(waited.exception(), TimeoutError)
        assert not clock.expired
    await asyncio.wait_for(expired.wait(), 120)
    assert clock.expired


@in_virtual_time
async def test_what_a_cell_waits_for_has_a_bound_as_well_and_asking_people_counts_for_neither():
    began, expired = asyncio.get_running_loop().time(), asyncio.Event()
    asked = [0.0]
    clock = CellClock(0.02, stood_still=lambda: asked[0])
    clock.start(expired)
    with clock.paused():
        await asyncio.wait_for(expired.wait(), 120)
    assert clock.waited_too_long
    assert asyncio.get_running_loop().time() - began >= 0.2 == clock.whole_limit

    loop = asyncio.get_running_loop()
    began, answered, expired = loop.time(), [None], asyncio.Event()
    clock = CellClock(0.02, stood_still=lambda: (answered[0] or loop.time()) - began)
    clock.start(expired)
    with clock.paused():
        waited = asyncio.create_task(asyncio.wait_for(expired.wait(), 0.6))
        await asyncio.wait({waited})
        assert isinstance(waited.exception(), TimeoutError)  # a person was asked three times as long
        answered[0] = loop.time()
        await asyncio.wait_for(expired.wait(), 120)
    assert clock.waited_too_long


@in_virtual_time
async def test_a_stopped_clock_and_one_without_limit_never_run_out():
    for clock in (CellClock(0.01), CellClock(None)):
        expired = asyncio.Event()
        clock.start(expired)
        clock.stop()
        with clock.paused():
            pass
        waited = asyncio.create_task(asyncio.wait_for(expired.wait(), 0.1))
        await asyncio.wait({waited})
        assert isinstance(waited.exception(), TimeoutError)
