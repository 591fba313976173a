"""`SignedIn` adds the tokens of a sign-in to the requests to an HTTP server, and refreshes them.

It never asks a person and never registers: `freeact-sub mcp login` does (`login.py`). Where only a person helps, the refusal
of the server stands, and the transport tells the way out.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Final

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.utils import extract_field_from_www_auth
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp_types import LATEST_PROTOCOL_VERSION
from pydantic import AnyUrl, ValidationError

from freeact_sub.errors import McpError
from freeact_sub.mcp.tokens import SignIn, TokenFile
from freeact_sub.system.process import add_late_secret

logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)  # its records hold responses, in which tokens may be
logger = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 30.0
"""Time limit for each step of a refresh."""
REFRESH_BYTES: Final = 1_000_000
OK, BAD_REQUEST, UNAUTHORIZED, FORBIDDEN = 200, 400, 401, 403


class SignedIn(httpx2.Auth):
    """The authentication of all requests of one connection."""

    def __init__(self, server: str, url: str) -> None:
        """Args: server: its name; url: as its settings have it."""
        self._server = server
        self._file = TokenFile(server, url)
        self._unkept: tuple[str, SignIn] | None = None
        """Refreshed tokens that could not be written, after the access token that they replace."""

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with the access token; once more if it had to be refreshed."""
        kept = await self._read()
        if kept is not None and kept.is_due:
            kept = await self._refreshed(kept.access_token)
        sent = _authorize(request, kept)
        response = yield request
        if response.status_code == FORBIDDEN:
            await self._note_scope(response)
        if response.status_code != UNAUTHORIZED or not sent:
            return
        kept = await self._refreshed(sent)  # its clock, or ours, may be wrong
        if kept is not None and kept.access_token not in ("", sent):
            _authorize(request, kept)
            yield request

    async def _read(self) -> SignIn | None:
        kept = await asyncio.to_thread(self._file.read)
        if self._unkept is not None and kept is not None and kept.access_token == self._unkept[0]:
            return self._unkept[1]
        return kept

    async def _refreshed(self, stale: str) -> SignIn | None:
        """Return the sign-in with a new access token, of this process or another one; unchanged if none can be had."""
        async with self._file.lock():
            kept = await self._read()
            if kept is None or kept.access_token != stale or not kept.can_refresh:
                return kept
            return await self._refresh(kept)

    async def _refresh(self, kept: SignIn) -> SignIn:
        try:
            request = refresh_request(kept)
        except ValueError:
            raise self._error("the file with your sign-in is damaged") from None
        try:
            response = await _send(request)
        except httpx2.HTTPError as error:
            raise self._error(f"its authorization server cannot be reached ({type(error).__name__})") from None
        if response.status_code in (BAD_REQUEST, UNAUTHORIZED):  # the refresh token has ended
            ended = replace(kept, tokens={}, use_until=None)
            await asyncio.to_thread(self._file.write, ended)
            return ended
        if response.status_code != OK:
            raise self._error(
                f"its authorization server does not refresh the sign-in now ({response.status_code}): try again later"
            )
        try:
            tokens = OAuthToken.model_validate_json(response.content).model_dump(exclude_none=True)
        except ValidationError:
            raise self._error("its authorization server did not send a token: try again later") from None
        fresh = kept.with_tokens(tokens)
        try:
            await asyncio.to_thread(self._file.write, fresh)
        except McpError as error:
            self._unkept = kept.access_token if self._unkept is None else self._unkept[0], fresh
            logger.warning("%s; you may have to sign in again at the next start", error)
        return fresh

    async def _note_scope(self, response: httpx2.Response) -> None:
        """Note the rights that the server has asked for, for the next sign-in."""
        if extract_field_from_www_auth(response, "error") != "insufficient_scope":
            return
        scope = extract_field_from_www_auth(response, "scope") or ""
        async with self._file.lock():
            kept = await asyncio.to_thread(self._file.read)
            if kept is not None and kept.wanted_scope != scope:
                await asyncio.to_thread(self._file.write, replace(kept, wanted_scope=scope))

    def _error(self, text: str) -> McpError:
        return McpError(f"MCP server {self._server!r}: {text}", server=self._server)


def refresh_request(kept: SignIn) -> httpx2.Request:
    """Return the request for new tokens, by the SDK's rules. Raises: ValueError: The kept sign-in is not a valid one."""
    client = OAuthClientInformationFull.model_validate(kept.client)
    server = OAuthMetadata.model_validate(kept.authorization_server)
    redirects = client.redirect_uris or [AnyUrl("http://127.0.0.1/callback")]
    context = OAuthClientProvider(kept.url, OAuthClientMetadata(redirect_uris=redirects), TokensInMemory()).context
    context.client_info, context.oauth_metadata = client, server
    if kept.resource:
        context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(kept.resource)
    token = str(kept.tokens["refresh_token"])
    data = {"grant_type": "refresh_token", "refresh_token": token, "client_id": client.client_id}
    if context.should_include_resource_param(LATEST_PROTOCOL_VERSION):
        data["resource"] = context.get_resource_url()
    data, headers = context.prepare_token_auth(data, {"Accept": "application/json"})
    return httpx2.Request("POST", str(server.token_endpoint), data=data, headers=headers)


class TokensInMemory:
    """Storage of the SDK for a sign-in that is under way."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens."""
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store tokens."""
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the registration."""
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store a registration."""
        self.client = client_info


async def _send(request: httpx2.Request) -> httpx2.Response:
    """Send a request of its own, follow no redirect, and bound the response."""
    request.headers["Accept-Encoding"] = "identity"
    async with httpx2.AsyncClient(timeout=REFRESH_SECONDS) as client:
        response = await client.send(request, stream=True)
        try:
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > REFRESH_BYTES:
                    raise httpx2.ReadError("the response is too long")
        finally:
            await response.aclose()
    return httpx2.Response(response.status_code, content=bytes(body))


def _authorize(request: httpx2.Request, kept: SignIn | None) -> str:
    """Add the access token to a request; return it, empty if there is none."""
    if kept is None or not kept.access_token:
        return ""
    for name in ("access_token", "refresh_token"):  # another process may have refreshed them
        add_late_secret(str(kept.tokens.get(name) or ""))
    request.headers["Authorization"] = f"Bearer {kept.access_token}"
    return kept.access_token
