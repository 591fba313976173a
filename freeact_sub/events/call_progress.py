"""`CallProgress`: how far a call is, shared by events and MCP connections."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CallProgress:
    """How far a call is, as its server tells."""

    progress: float
    """How much is done, in a unit of the server's own."""
    total: float | None = None
    """How much there is to do. None: not known."""
    message: str = ""

    @property
    def words(self) -> str:
        """The figures and the message, such as `3 of 10, reads a.csv`."""
        of = f" of {self.total:,.12g}" if self.total is not None else ""
        return f"{self.progress:,.12g}{of}" + (f", {self.message}" if self.message else "")
