"""A pytest plugin: tests talk to nobody but this machine, and to models only where they say so.

An audit hook refuses connections to anything but loopback; it sees every socket of this process, whatever library
opens it. Requests to models are refused by pydantic-ai itself, also to loopback, until a test asks for the fixture
`allow_model_requests`. Tests marked `live` talk to a real model; they are left out without `--live`.
"""

import ipaddress
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pydantic_ai.models
import pytest

_live = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--live", metavar="URL", help="run the tests that talk to a real model too, at this server")
    parser.addoption("--live-model", metavar="NAME", default="local", help="the model's name at that server")


def pytest_configure() -> None:
    pydantic_ai.models.ALLOW_MODEL_REQUESTS = False
    sys.addaudithook(_refuse_strangers)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--live"):
        return
    live = [item for item in items if item.get_closest_marker("live")]
    if live:
        config.hook.pytest_deselected(items=live)
        items[:] = [item for item in items if item not in live]


@pytest.fixture
def allow_model_requests() -> Iterator[None]:
    """Let this test's models send requests; without the marker `live` they reach loopback only."""
    with pydantic_ai.models.override_allow_model_requests(True):
        yield


@pytest.fixture(autouse=True)
def _whole_network_for_live_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    global _live  # noqa: PLW0603 - an audit hook cannot be removed and gets no context
    _live = request.node.get_closest_marker("live") is not None
    if _live:
        request.getfixturevalue("allow_model_requests")
    yield
    _live = False


def _refuse_strangers(event: str, args: tuple[Any, ...]) -> None:
    if event != "socket.connect" or _live:
        return
    connection, address = args
    if connection.family in (socket.AF_INET, socket.AF_INET6) and not _is_loopback(address[0]):
        raise PermissionError(f"a test tried to connect to {address}: only tests marked `live` may leave this machine")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
