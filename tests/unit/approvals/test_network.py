"""Tests reach loopback and nobody else, and models only where they ask for it."""

import asyncio
import socket

import pydantic_ai.models
import pytest


async def test_refuses_connections_to_other_machines() -> None:
    with pytest.raises(PermissionError, match=r"192\.0\.2\.1"):
        await asyncio.open_connection("192.0.2.1", 80)


def test_lets_connections_to_loopback_through() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass


def test_models_may_send_nothing() -> None:
    with pytest.raises(RuntimeError, match="not allowed"):
        pydantic_ai.models.check_allow_model_requests()


def test_models_may_send_where_a_test_asks_for_it(allow_model_requests: None) -> None:
    pydantic_ai.models.check_allow_model_requests()
