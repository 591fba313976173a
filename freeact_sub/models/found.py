"""Models that can be used here at once: those of keys in the environment, and of servers on this machine.

Servers are asked on loopback only, side by side, and for a bounded time. Nothing is sent to them but the question which
models they have.
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
"""Programs that serve models, each with the port that it takes by default."""
PATHS: Final = ("/v1/models", "/api/tags")
"""Where a server lists its models: by OpenAI's protocol, and by that of old versions of Ollama."""
SECONDS: Final = 1.0
"""How long all servers together may take to answer."""
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
    """All models that are found, those of keys first."""
    return [*models_of_keys(environment), *models_of_servers(SERVERS)]


def models_of_keys(environment: Mapping[str, str]) -> list[FoundModel]:
    """A model of each provider whose key is set."""
    found: dict[str, FoundModel] = {}
    for key, name in EXAMPLES.items():
        if environment.get(key, "").strip():
            found.setdefault(name, FoundModel(model=name, because=f"{key} is set"))
    return list(found.values())


def models_of_servers(servers: Mapping[str, int]) -> list[FoundModel]:
    """The models of the servers that answer in time, in the order of the servers. Args: servers: ports by name."""
    answers: dict[str, list[str]] = {}

    def ask(name: str, port: int) -> None:
        answers[name] = list(_models_at(port))

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
        for model in answers.get(name, [])[:MAX_MODELS]
    ]


def _models_at(port: int) -> Iterator[str]:
    """The names of the models of one server; none if it is no such server."""
    for path in PATHS:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        try:
            connection.request("GET", path, headers={"Accept": "application/json"})
            answer = connection.getresponse()
            content = json.loads(answer.read(MAX_BYTES)) if answer.status == http.client.OK else None
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
    """The names in a list of models that can answer a prompt; a name with a line break or the like is none."""
    models = (content.get("data") or content.get("models")) if isinstance(content, dict) else None
    for model in models if isinstance(models, list) else ():
        name = (model.get("id") or model.get("name")) if isinstance(model, dict) else None
        if isinstance(name, str) and 0 < len(name) <= NAME_CHARS and name.isprintable() and "embed" not in name.lower():
            yield name
