"""Small HTTP servers on loopback that list models, in all the ways in which servers on a developer's machine answer."""

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OPENAI = {"data": [{"id": "qwen3:8b", "object": "model"}, {"id": "nomic-embed-text"}, {"id": "llama4"}]}
OLLAMA = {"models": [{"name": "mistral:7b"}, {"name": "gemma:2b"}]}


@contextmanager
def model_list(answers: Mapping[str, Any]) -> Iterator[int]:
    """A server at the port that is yielded. Args: answers: the content by path, as JSON, or bytes, or a status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path, 404)
            if isinstance(answer, int):
                self.send_response(answer)
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                return
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def silent() -> Iterator[int]:
    """A port that takes connections and answers nothing."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield listening.getsockname()[1]


def closed_port() -> int:
    """A port at which nothing listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        return int(listening.getsockname()[1])
