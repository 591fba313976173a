"""`GatewayConfig`: the settings of kernels on other machines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import AnyHttpUrl, Field, TypeAdapter, ValidationError, field_validator

from freeact_sub.config.section import Given, Section, default


def check_url(url: str, example: str) -> None:
    """Raise ValueError unless it is a whole URL of HTTP."""
    try:
        TypeAdapter(AnyHttpUrl).validate_python(url)
    except ValidationError as error:
        raise ValueError(f"`url` is not a URL such as {example}: {error.errors()[0]['msg']}") from None


class GatewayConfig(Section):
    """Kernels of Jupyter gateways: of other machines (docs/gateway.md)."""

    url: Given[tuple[str, ...], str | Sequence[str]] = default(())
    """The URL of a Jupyter gateway or server, or a list of them: each kernel starts at the one with the fewest kernels."""
    token: str = Field(default="", repr=False)
    """Its token; best set by `FREEACT_KERNEL__GATEWAY__TOKEN`."""
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    """Sent with each request, for proxies that require more than a token."""
    ca_file: Given[Path | None, Path | str | None] = default(None)
    """Certificates of authorities for `https` gateways, in addition to the system's."""
    certificate_file: Given[Path | None, Path | str | None] = default(None)
    """The certificate and key of this client, for a gateway that requires them."""
    kernel: str = ""
    """Name of the kernelspec there; empty: the gateway's usual one."""
    workspace: Literal["none", "shared"] = "none"
    """`shared`: the workspace exists there under the same path; `none`: it does not, and the model knows that."""
    trusted: bool = False
    """`true`: kernels there may run code without approval (modes `plan` and `auto`), although they have no wall."""
    retry: bool = False
    """`true`: an agent that loses its gateway continues with a new, empty kernel at another one; otherwise its run ends as
    `kernel_lost`."""
    lease_seconds: float = Field(default=60, ge=2)
    """A kernel that does not hear from this program for this long ends itself."""

    @field_validator("url", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("url")
    @classmethod
    def _are_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            check_url(url, "http://127.0.0.1:8888")
        return urls
