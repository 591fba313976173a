"""What of a gateway's provider needs no gateway: frames, the order of output, and what is refused."""

import asyncio
import errno
import json
import tracemalloc
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kernels import no_host, spec
from support.waiting import eventually
from websockets.exceptions import ConnectionClosedError

from freeact_sub import Agent, Config
from freeact_sub.config.schema import GatewayConfig, KernelConfig
from freeact_sub.errors import ConfigError, KernelLostError
from freeact_sub.kernels.gateway import channels
from freeact_sub.kernels.gateway.channels import NUMBER, GatewayChannels, NumberedOutput
from freeact_sub.kernels.gateway.kernel import GatewayKernel, GatewayLauncher
from freeact_sub.kernels.provider import make_provider
from freeact_sub.kernels.wire.channels import MessageError
from freeact_sub.testing import ScriptedModel

OBJECTS = [b'{"msg_type": "stream"}', b"{}", b"{}", b'{"text": "x"}']


@given(st.lists(st.binary()))
def test_a_frame_holds_what_was_put_in(buffers):
    parts = [*OBJECTS, *buffers]
    assert channels.unpack(channels.pack("iopub", parts)) == ("iopub", parts)
    assert channels.unpack_old(channels.pack_old("iopub", parts)) == ("iopub", parts)


@given(st.binary(), st.integers(min_value=0, max_value=200))
def test_a_frame_that_is_none_is_refused_in_one_way(noise, cut):
    for unpack, frame in (
        (channels.unpack, channels.pack("iopub", OBJECTS)),
        (channels.unpack_old, channels.pack_old("x", OBJECTS)),
    ):
        for wrong in (noise, frame[:cut], noise[:4] + frame.encode() if isinstance(frame, str) else noise[:4] + frame):
            try:
                _, parts = unpack(wrong)
            except MessageError:
                continue
            assert len(parts) >= 4


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)), st.integers(0, 8))
def test_output_of_a_cell_is_whole_and_in_order_whatever_comes_again_after_a_drop(again, lost, dropped_at):
    output, got = NumberedOutput(), []
    output.begin("cell")

    def take(number):
        part = [str(number).encode()]
        if output.take("cell", {NUMBER: number}, part):
            got.append(part)

    for number in range(dropped_at):
        take(number)
    first = output.hold()
    for number in range(dropped_at, 8):
        if number not in lost:
            take(number)  # what the server has kept
    for number in again:
        if number >= first and number not in lost:
            take(number)  # what the guest has kept
    released, missing = output.release()
    numbers = [int(part[0]) for part in got + released]
    assert numbers == [number for number in range(8) if number < dropped_at or number not in lost]
    come = [number for number in range(dropped_at, 8) if number not in lost]
    assert missing == any(number in lost for number in range(dropped_at, max(come, default=0)))


def test_messages_of_other_cells_and_without_a_number_pass():
    output = NumberedOutput()
    output.begin("cell")
    output.hold()
    assert output.take("other", {NUMBER: 0}, [])
    assert output.take("cell", {}, [])


def gateway(**settings) -> KernelConfig:
    return KernelConfig(provider="gateway", gateway={"url": "http://127.0.0.1:9", **settings})


def agent(tmp_path, notices=None, **config) -> Agent:
    return Agent(Config(workspace=tmp_path, **config), model=ScriptedModel([]))


@pytest.mark.parametrize("mode", ["plan", "auto"])
async def test_a_mode_that_relies_on_a_wall_is_refused_unless_the_machines_are_trusted(tmp_path, mode):
    with pytest.raises(ConfigError, match=r"kernel\.gateway\.trusted = true"):
        async with agent(tmp_path, mode=mode, kernel=gateway()):
            pass
    async with agent(tmp_path, mode=mode, kernel=gateway(trusted=True)):
        pass


async def test_a_required_sandbox_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="needs a wall"):
        async with agent(tmp_path, kernel=gateway().model_copy(update={"sandbox": "required"})):
            pass


async def test_what_is_not_there_is_told_once_to_the_user_and_in_the_prompt_to_the_model(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "x")
    told = []
    provider = make_provider(gateway(), on_notice=told.append)
    places = [provider.place("ask", KernelConfig(env={"MINE": "1"}), tmp_path) for _ in range(2)]
    shared = make_provider(gateway(workspace="shared"), on_notice=told.append)
    there = shared.place("ask", KernelConfig(), tmp_path)
    await provider.aclose()
    await shared.aclose()
    assert [str(tmp_path) in text for text in told] == [True, False]
    assert all("cannot be branched" in text for text in told)
    assert "no file of the user is there" in places[0].description
    assert f"Its working directory is {tmp_path}" in there.description
    assert {name for name in places[1].environment if not name.startswith("GIT_")} == {"MINE"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [({}, r"needs kernel\.gateway\.url"), ({"url": "http://127.0.0.1:9", "ca_file": "/no/such/file"}, "ca_file")],
)
def test_settings_that_cannot_be_used_are_named(settings, said):
    if "url" in settings:
        settings["url"] = settings["url"].replace("http", "https")
    with pytest.raises(ConfigError, match=said):
        make_provider(KernelConfig(provider="gateway", gateway=settings))


def test_a_url_is_checked_and_one_needs_no_list():
    assert GatewayConfig(url="http://a:1").url == ("http://a:1",)
    with pytest.raises(ConfigError, match="`url` is not a URL"):
        GatewayConfig(url=["a:1/x"])
    assert "geheim" not in repr(GatewayConfig(url="http://a:1", token="geheim", headers={"X": "geheim"}))
    assert json.loads(KernelConfig(options={"a": 1}).model_dump_json())["options"] == {"a": 1}


async def test_ids_of_any_length_take_no_memory(tmp_path):
    launcher = GatewayLauncher(spec(tmp_path), list, "", GatewayChannels)
    kernel = GatewayKernel(spec(tmp_path), launcher, no_host, settings=GatewayConfig())
    tracemalloc.start()
    try:
        for number in range(200):
            kernel.on_request({"id": f"{number}" + "x" * 100_000, "method": "give_up"}, None)
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()


class Connection:
    """A connection, which is also its transport and its socket, that is closed while messages still wait to be read."""

    subprotocol = channels.V1

    def __init__(self, *received: bytes | Exception) -> None:
        self.received = [*received]
        self.transport = self

    def get_extra_info(self, name: str) -> "Connection":
        return self

    def setsockopt(self, *values: int) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    async def recv(self) -> bytes:
        if isinstance(came := self.received.pop(0), Exception):
            raise came
        return came

    async def send(self, frame: bytes) -> None:
        """It goes nowhere."""

    async def ping(self) -> asyncio.Future[float]:
        return asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """It is closed."""


@pytest.mark.parametrize("failure", [ConnectionClosedError(None, None), RuntimeError("odd")], ids=["closed", "odd"])
async def test_a_connection_that_fails_in_any_way_ends_the_kernel_after_what_it_had_brought(failure):
    class Server:
        url = "http://server"

        async def connection(self, *names: str, **options: Any) -> Connection:
            return Connection(channels.pack("iopub", OBJECTS), failure)

        async def hangs(self, seconds: float) -> bool:
            return True

    lost: list[str] = []
    heard: list[list[bytes] | Exception] = []
    over = GatewayChannels(Server(), "id", lease_seconds=60, on_lost=lambda reason, gone: lost.append(reason))
    over.listen(lambda channel, came: heard.append(came))
    await over.open()
    await eventually(lambda: lost)
    assert [type(came) for came in heard] == [list, KernelLostError]
    await over.aclose()
