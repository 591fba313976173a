"""What MCP servers send besides text, for code in a kernel: `Blob` and `Contents`. Sent into every kernel as source."""

import base64
import importlib
import sys
from typing import Any, Self

PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")
"""The types that a cell displays."""


class Blob(bytes):
    """Bytes of a known type. A picture displays itself as the last value of a cell."""

    mime_type: str
    uri: str

    def __new__(cls, data: bytes = b"", mime_type: str = "", uri: str = "") -> Self:
        """Args: mime_type, uri: empty where the server has not named them."""
        blob = super().__new__(cls, data)
        blob.mime_type, blob.uri = mime_type, uri
        return blob

    def __reduce__(self) -> tuple[Any, ...]:
        return (Blob, (bytes(self), self.mime_type, self.uri))

    def __repr__(self) -> str:
        return f"<{len(self):,} bytes of {self.mime_type or 'unknown type'}>"

    __str__ = __repr__

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """See IPython."""
        bundle = {"text/plain": repr(self)}
        kind = self.mime_type.partition(";")[0].strip().lower()
        if kind == "image/svg+xml":
            bundle[kind] = self.decode(errors="replace")
        elif kind in PICTURES:
            bundle[kind] = base64.b64encode(self).decode()
        return bundle


class Contents(list[Any]):
    """Several parts of one response: texts, blobs, and what is neither as the protocol writes it."""

    def _ipython_display_(self) -> None:
        """See IPython. Each part is displayed by itself."""
        display: Any = importlib.import_module("IPython.display").display
        for part in self:
            if isinstance(part, str):
                sys.stdout.write(f"{part}\n")
            else:
                display(part)


def of_blocks(blocks: list[Any]) -> Any:
    """The parts of a response; one that stands alone is returned as it is."""
    parts = [of_block(block) for block in blocks]
    return parts[0] if len(parts) == 1 else Contents(parts)


def of_block(block: Any) -> Any:
    """One block of a response: text as `str`, other data as a `Blob`, a link or an unknown kind as it is."""
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": dict(resource)}:
            return of_resource(resource)
        case {"type": "image" | "audio", "data": str(data)}:
            return blob_of(data, block) or block
    return block


def of_resource(resource: dict[str, Any]) -> Any:
    """The content of a resource: text as `str`, other data as a `Blob`."""
    match resource:
        case {"text": str(text)}:
            return text
        case {"blob": str(data)}:
            return blob_of(data, resource) or resource
    return resource


def blob_of(data: str, about: dict[str, Any]) -> Blob | None:
    """The bytes that base64 stands for. None: it is not base64."""
    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        return None
    kind, uri = about.get("mimeType"), about.get("uri")
    return Blob(content, kind if isinstance(kind, str) else "", uri if isinstance(uri, str) else "")
