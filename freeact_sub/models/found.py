"""Finds models that are ready to use: by keys in the environment, and on servers of this machine.

Servers are asked for their models on loopback only, side by side, and for a bounded time.
"""

import http.client
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from freeact_sub.models.names import EXAMPLES

SERVERS: Final[Mapping[str, int]] = {"Ollama": 11434, "LM Studio": 1234, "llama-server": 8080, "vLLM": 8000}
"""Programs that serve models, with their default ports."""
PATHS: Final = ("/v1/models", "/api/tags")
"""Where a server lists its models: by OpenAI's protocol, and by that of old versions of Ollama."""
SECONDS: Final = 1.0
"""The seconds that all servers together may take to respond."""
MAX_BYTES: Final = 1_000_000
MAX_MODELS: Final = 6
"""Of one server."""
NAME_CHARS: Final = 200


@dataclass(frozen=True, kw_only=True)
class FoundModel:
    """A model, and what makes it usable."""

    model: str
    """Its full name, as in the setting `model`."""
    because: str
    """The key or the server, in words."""
    base_url: str | None = None
    """The address of its server. None: its provider's own."""


def find_models(environment: Mapping[str, str]) -> list[FoundModel]:
    """Return all found models, those of keys first."""
    return [*models_of_keys(environment), *models_of_servers(SERVERS)]


def models_of_keys(environment: Mapping[str, str]) -> list[FoundModel]:
    """Return a model of each provider whose key is set."""
    found: dict[str, FoundModel] = {}
    for key, name in EXAMPLES.items():
        if environment.get(key, "").strip():
            found.setdefault(name, FoundModel(model=name, because=f"{key} is set"))
    return list(found.values())


def models_of_servers(servers: Mapping[str, int]) -> list[FoundModel]:
    """Return the models of the servers that respond in time, in the order of the servers. Args: servers: ports by name."""
    served: dict[str, list[str]] = {}

    def ask(name: str, port: int) -> None:
        served[name] = list(_models_at(port))

    # a daemon: a server that sends a byte now and then keeps nobody waiting
    asking = [threading.Thread(target=ask, args=server, daemon=True) for server in servers.items()]
    for thread in asking:
        thread.start()
    deadline = time.monotonic() + SECONDS
    for thread in asking:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [
        FoundModel(
            model=f"openai-chat:{model}",
            because=f"{name} at 127.0.0.1:{port}",
            base_url=f"http://127.0.0.1:{port}/v1",
        )
        for name, port in servers.items()
        for model in served.get(name, [])[:MAX_MODELS]
    ]


def _models_at(port: int) -> Iterator[str]:
    """Return the names of one server's models; empty if it serves no models."""
    for path in PATHS:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        try:
            connection.request("GET", path, headers={"Accept": "application/json"})
            response = connection.getresponse()
            content = json.loads(response.read(MAX_BYTES)) if response.status == http.client.OK else None
        except ConnectionRefusedError:
            return
        except (OSError, http.client.HTTPException, ValueError, RecursionError):
            continue
        finally:
            connection.close()
        names = list(dict.fromkeys(_names_in(content)))
        if names:
            yield from names
            return


def _names_in(content: Any) -> Iterable[str]:
    """Return the names in a list of models that can answer a prompt; names with line breaks are left out."""
    models = (content.get("data") or content.get("models")) if isinstance(content, dict) else None
    for model in models if isinstance(models, list) else ():
        name = (model.get("id") or model.get("name")) if isinstance(model, dict) else None
        if isinstance(name, str) and 0 < len(name) <= NAME_CHARS and name.isprintable() and "embed" not in name.lower():
            yield name
