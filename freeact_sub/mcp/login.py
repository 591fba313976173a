"""`sign_in`: a person signs in to an HTTP server in a browser (`freeact-sub mcp login`).

The SDK finds the authorization server, registers this program there, and checks the response (PKCE, state, issuer,
resource). Here are the page to which the browser returns, on loopback, and the kept sign-in.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, parse_qsl, urlencode, urljoin, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import is_valid_client_metadata_url, union_scopes
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata
from pydantic import AnyUrl, ValidationError

from freeact_sub.config.schema import McpServerConfig
from freeact_sub.errors import McpError
from freeact_sub.mcp.connection import McpConnection
from freeact_sub.mcp.signed_in import TokensInMemory
from freeact_sub.mcp.tokens import SignIn, TokenFile
from freeact_sub.text import one_line

LOGIN_SECONDS: Final = 600.0
"""Time limit for the person."""
REQUEST_BYTES: Final = 16_384
READ_SECONDS: Final = 10.0
"""Time limit for the request of a browser."""
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
PATH: Final = "/callback"
ENDPOINTS: Final = {"authorization": "authorize", "token": "token"}
DONE: Final = "You can close this page and go back to the terminal."
OTHER_PAGE: Final = "This is not the page you look for."
FIELDS: Final = ("Content-Type: text/html", "Referrer-Policy: no-referrer", "Connection: close")
PAGE: Final = "<!doctype html><meta charset=utf-8><title>freeact-sub</title><p>{}</p>"


@dataclass
class Callback:
    """The page on loopback to which the browser returns."""

    host: str
    """The browser's name for this machine."""
    port: int

    def __post_init__(self) -> None:
        self.expect("")

    def expect(self, state: str) -> None:
        """Wait for the browser anew: a server may send a person away twice. Args: state: the only one that counts."""
        self.state = state
        self.answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://{self.host}:{self.port}{PATH}"

    def take(self, address: str) -> bool:
        """Take the address to which the browser was sent; return whether it is the awaited one."""
        try:
            parts = urlsplit(address.strip())
            fields = {name: values[0] for name, values in parse_qs(parts.query).items()}
        except ValueError:
            return False
        is_ours = parts.path == PATH and self.state and fields.get("state") == self.state
        if not is_ours or not {"code", "error"} & fields.keys():
            return False
        if not self.answer.done():
            self.answer.set_result(fields)
        return True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of a browser."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, _, rest = head.partition(" ")
            is_ours = method == "GET" and self.take(rest.partition(" ")[0])
            body = PAGE.format(DONE if is_ours else OTHER_PAGE).encode()
            status = "200 OK" if is_ours else "404 Not Found"
            fields = (*FIELDS, f"Content-Length: {len(body)}")
            writer.write("\r\n".join((f"HTTP/1.1 {status}", *fields, "", "")).encode() + body)
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever it was, the browser comes again
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def callback_page(host: str, port: int) -> AsyncIterator[Callback]:
    """Open the page inside. Args: port: 0: any. Raises: OSError: The port is taken."""
    with socket.create_server(("127.0.0.1", port)) as listening:
        callback = Callback(host, listening.getsockname()[1])
        server = await asyncio.start_server(callback.serve, sock=listening, limit=REQUEST_BYTES)
        try:
            yield callback
        finally:
            server.close()


class SigningIn(httpx2.Auth):
    """The SDK's sign-in, with errors in our words; the addresses that the server names are checked."""

    def __init__(self, server: str, provider: OAuthClientProvider, callback: Callback) -> None:
        """Args: server: the server's name; provider: the SDK's sign-in; callback: where the browser returns."""
        self._server = server
        self._provider = provider
        self._callback = callback

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send the SDK's requests, and check their addresses."""
        flow = self._provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request:
                    self.check(str(outgoing.url))
                response = yield outgoing
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        except OAuthFlowError as error:
            raise self.error(_words(error)) from None
        except ValidationError:
            raise self.error("its authorization server sent an answer that does not follow the protocol") from None
        finally:
            await flow.aclose()

    @property
    def context(self) -> OAuthContext:
        """The findings of the SDK."""
        return self._provider.context

    def check(self, url: str) -> None:
        """Check an address that the server has named: only https, or loopback where the server itself is there.

        Raises:
            McpError: The address is neither.
        """
        parts, own = urlsplit(url), urlsplit(self._provider.context.server_url)
        is_near = parts.hostname in LOOPBACK and own.hostname in LOOPBACK
        if parts.scheme != "https" and not (parts.scheme == "http" and is_near):
            raise self.error(f"it sends you to {one_line(url.partition('?')[0])}, which is not an https address")

    def error(self, text: str) -> McpError:
        """Return an error that names the server."""
        return McpError(f"you cannot sign in to MCP server {self._server!r}: {text}", server=self._server)


@dataclass(kw_only=True)
class SignInDialog:
    """The dialog in which a person signs in to one server."""

    server: str
    config: McpServerConfig
    show: Callable[[str], Awaitable[None]]
    """Shows the address to open."""
    typed: Callable[[], Awaitable[str]] | None
    """Waits for a line that the person types: an address that the browser cannot reach. None: nothing can be typed."""
    log_file: Path
    """The log of a server, as in `Transport`."""

    def __post_init__(self) -> None:
        self._url = str(self.config.url)
        self._file = TokenFile(self.server, self._url)
        try:
            self._kept = self._file.read() or SignIn(url=self._url)
        except McpError:  # is replaced
            self._kept = SignIn(url=self._url)

    async def run(self) -> bool:
        """Connect, and keep the tokens if the server demands a sign-in; return whether it has.

        Raises:
            McpError: The sign-in failed; the message says why.
        """
        storage = TokensInMemory()
        storage.client = self._client()
        async with self._page(storage) as callback:
            provider = self._provider(storage, callback)
            auth = SigningIn(self.server, provider, callback)
            provider.context.redirect_handler = lambda url: self._redirect(auth, callback, url)
            provider.context.callback_handler = lambda: self._returned(auth, callback)
            config = self.config.model_copy(update={"init_timeout_seconds": LOGIN_SECONDS})
            folder = self.log_file.parent
            connection = McpConnection(
                self.server, config, log_file=self.log_file, log_root=folder, on_change=lambda _: None, auth=auth
            )
            try:
                await connection.list_tools()
            finally:
                await connection.aclose()
                await self._keep(provider, storage)
        return storage.tokens is not None

    @asynccontextmanager
    async def _page(self, storage: TokensInMemory) -> AsyncIterator[Callback]:
        given = self.config.oauth.client_id is not None
        registered = None if storage.client is None or given else _port(storage.client)
        wanted = self.config.oauth.callback_port or registered or 0
        async with contextlib.AsyncExitStack() as stack:
            try:
                callback = await stack.enter_async_context(callback_page("localhost" if given else "127.0.0.1", wanted))
            except OSError as error:
                if self.config.oauth.callback_port:
                    what = f"port {wanted}, its `callback_port`, cannot be used ({error.strerror})"
                    raise McpError(f"MCP server {self.server!r}: {what}", server=self.server) from error
                callback = await stack.enter_async_context(callback_page("127.0.0.1", 0))
            if not given and callback.port != registered:
                storage.client = None  # it is registered with another address
            yield callback

    def _client(self) -> OAuthClientInformationFull | None:
        """Return the registration: of the settings, or the last one."""
        settings, known = self.config.oauth, self._kept.client
        if settings.client_id is not None and not is_valid_client_metadata_url(settings.client_id):
            secret = settings.client_secret
            return OAuthClientInformationFull(
                client_id=settings.client_id,
                client_secret=secret,
                token_endpoint_auth_method="client_secret_basic" if secret else "none",
                issuer=known.get("issuer") if known.get("client_id") == settings.client_id else None,
            )
        with contextlib.suppress(ValidationError):
            return OAuthClientInformationFull.model_validate(known) if known else None
        return None

    def _provider(self, storage: TokensInMemory, callback: Callback) -> OAuthClientProvider:
        redirect = AnyUrl(callback.url)
        metadata = OAuthClientMetadata(
            client_name="freeact-sub",
            redirect_uris=[redirect],
            grant_types=["authorization_code", "refresh_token"],
            scope=self.config.oauth.scope,
        )
        client_id = self.config.oauth.client_id
        page = client_id if is_valid_client_metadata_url(client_id) else None  # an id that is an address describes itself
        return OAuthClientProvider(self._url, metadata, storage, client_metadata_url=page)

    async def _redirect(self, auth: SigningIn, callback: Callback, url: str) -> None:
        auth.check(url)
        parts = urlsplit(url)
        fields = dict(parse_qsl(parts.query, keep_blank_values=True))
        scope = self.config.oauth.scope or union_scopes(fields.get("scope"), self._kept.wanted_scope or None)
        if scope:
            fields["scope"] = scope
        callback.expect(fields["state"])
        self._choose_method(auth.context)
        await self.show(parts._replace(query=urlencode(fields)).geturl())

    def _choose_method(self, context: OAuthContext) -> None:
        """Show the secret of a client of the settings in the way that the server wants."""
        server, client = context.oauth_metadata, context.client_info
        methods = None if server is None else server.token_endpoint_auth_methods_supported
        if self.config.oauth.client_secret and client is not None and methods and "client_secret_basic" not in methods:
            client.token_endpoint_auth_method = "client_secret_post"  # noqa: S105  # a method

    async def _returned(self, auth: SigningIn, callback: Callback) -> AuthorizationCodeResult:
        """Wait for the browser, or for the address that a person types."""
        reading = asyncio.create_task(self._read(callback)) if self.typed is not None else None
        try:
            await asyncio.wait({callback.answer}, timeout=LOGIN_SECONDS)
        finally:
            if reading is not None:
                reading.cancel()
        if not callback.answer.done():
            raise auth.error(f"nobody has signed in within {LOGIN_SECONDS:g} s")
        fields = callback.answer.result()
        if "code" not in fields:
            raise auth.error(f"its authorization server refuses ({one_line(fields['error'])})")
        return AuthorizationCodeResult(code=fields["code"], state=fields["state"], iss=fields.get("iss"))

    async def _read(self, callback: Callback) -> None:
        while self.typed is not None and (line := await self.typed()):
            callback.take(line)

    async def _keep(self, provider: OAuthClientProvider, storage: TokensInMemory) -> None:
        context = provider.context
        if storage.tokens is None or context.client_info is None:
            return
        found = context.oauth_metadata or _usual_metadata(context.get_authorization_base_url(self._url))
        client = context.client_info.model_dump(mode="json", exclude_none=True)
        if context.oauth_metadata is not None:  # a client of the settings is bound to where it was used, too
            client.setdefault("issuer", str(found.issuer))
        resource = context.protected_resource_metadata
        kept = SignIn(
            url=self._url,
            client=client,
            authorization_server=found.model_dump(mode="json", exclude_none=True),
            resource={} if resource is None else resource.model_dump(mode="json", exclude_none=True),
        ).with_tokens(storage.tokens.model_dump(mode="json", exclude_none=True))
        async with self._file.lock():
            await asyncio.to_thread(self._file.write, kept)


def _port(client: OAuthClientInformationFull) -> int | None:
    return client.redirect_uris[0].port if client.redirect_uris else None


def _usual_metadata(base: str) -> OAuthMetadata:
    """Return the usual places, where the SDK looks if a server has no metadata."""
    places = {f"{name}_endpoint": urljoin(base, f"/{path}") for name, path in ENDPOINTS.items()}
    return OAuthMetadata.model_validate({"issuer": base, **places})


def _words(error: Exception) -> str:
    """Return the text of an SDK's error; of a response that it quotes, only the standard's fields."""
    text = str(error)
    about, _, body = text.partition("): ")
    if not body:
        return one_line(text, 300)
    known: Any = None
    with contextlib.suppress(ValueError):
        known = json.loads(body)
    fields = known if isinstance(known, dict) else {}
    said = [str(fields[name]) for name in ("error", "error_description") if name in fields]
    return one_line(": ".join((f"{about})", *said)), 300)
