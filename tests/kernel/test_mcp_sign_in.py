"""Signing in to an HTTP server: with a real authorization server on loopback."""

import asyncio
import json
import logging
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from support import oauth_server
from support.mcp_host import McpHost, http_server

from freeact_sub.config.schema import McpServerConfig, token_folder
from freeact_sub.errors import McpError
from freeact_sub.mcp.login import SignInDialog
from freeact_sub.mcp.tokens import SignIn, TokenFile
from freeact_sub.sessions.sqlite.database import Bodies

pytestmark = pytest.mark.kernel

LIMIT_SECONDS = 60


class Place:
    """A server that wants a sign-in, and a user's folder."""

    def __init__(self, port: int, folder: Path) -> None:
        self.base = f"http://127.0.0.1:{port}"
        self.url = f"{self.base}/mcp"
        self.folder = folder
        self.pages: list[str] = []
        self.host = McpHost(folder)
        self.config = McpServerConfig(url=self.url)

    def set(self, **settings: object) -> None:
        httpx2.post(f"{self.base}/set", json=settings).raise_for_status()

    def seen(self, what: str) -> list:
        return httpx2.get(f"{self.base}/seen").json()[what]

    async def browse(self, address: str) -> None:
        """What a browser does, and a person who agrees."""
        self.pages.append(address)
        async with httpx2.AsyncClient(follow_redirects=True) as browser:
            self.last_page = await browser.get(address)

    async def sign_in(self, show: Callable | None = None, typed: Callable | None = None, **oauth: object) -> bool:
        config = McpServerConfig(url=self.url, oauth=oauth)
        dialog = SignInDialog(
            server="demo", config=config, show=show or self.browse, typed=typed, log_file=self.folder / "login.log"
        )
        return await asyncio.wait_for(dialog.run(), LIMIT_SECONDS)

    async def who(self) -> str:
        """What one agent's call of the tool answers."""
        async with self.host.servers(demo=self.config) as servers:
            return (await servers.call("demo", "who", {})).text

    @property
    def file(self) -> Path:
        return next(token_folder().glob("*.json"))

    def kept(self) -> SignIn:
        kept = TokenFile("demo", self.url).read()
        assert kept is not None
        return kept

    def change(self, **values: object) -> None:
        """Changes what is kept."""
        self.file.write_text(json.dumps(json.loads(self.file.read_text()) | values))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    with http_server(oauth_server.__file__) as port:
        yield Place(port, tmp_path)


async def test_without_a_sign_in_one_sentence_says_how(place: Place) -> None:
    with pytest.raises(McpError) as failed:
        await place.who()
    sentence = f"MCP server 'demo' at {place.url} needs you to sign in (401 Unauthorized): run `freeact-sub mcp login demo`"
    assert str(failed.value) == sentence
    assert place.seen("register") == []  # nothing is done behind a person's back


async def test_a_person_signs_in_once_for_all_sessions(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert await place.sign_in()
    assert "close this page" in place.last_page.text
    assert await place.who() == "read"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (place.file, token_folder())] == [0o600, 0o700]
    asked = place.seen("authorize")[0]
    assert (asked["resource"], asked["code_challenge_method"]) == (place.url, "S256")
    assert await place.sign_in()  # perhaps as somebody else; the registration stays
    assert (len(place.seen("authorize")), len(place.seen("register"))) == (2, 1)
    secrets = [value for value in place.kept().tokens.values() if isinstance(value, str) and len(value) > 20]
    assert len(secrets) == 2
    assert not [secret for secret in secrets if secret in caplog.text or secret in repr(place.kept())]


async def test_tokens_are_refreshed_before_they_expire_and_when_the_clock_was_wrong(place: Place) -> None:
    await place.sign_in()
    first = place.kept().access_token
    place.change(use_until=time.time() - 1)
    assert await place.who() == "read"
    second = place.kept().access_token
    assert first != second
    place.set(forget=True)  # it says that they have ended, whatever our clock says
    assert await place.who() == "read"
    assert place.kept().access_token not in (first, second)
    refreshed = [form for form in place.seen("token") if form["grant_type"] == "refresh_token"]
    assert [form["resource"] for form in refreshed] == [place.url, place.url]
    written = Bodies(place.folder).clean(f"{second} and {json.dumps(place.kept().tokens)}")
    assert all(
        token not in written for token in (second, place.kept().access_token, place.kept().tokens["refresh_token"])
    ), "a session that was open before has none of them"


async def test_processes_that_refresh_at_once_use_a_refresh_token_once(place: Place) -> None:
    await place.sign_in()
    place.change(use_until=1)
    config, hosts = place.config, [McpHost(place.folder) for _ in range(4)]
    # a lock of files counts for each opened file: between connections of one process as between processes
    servers = [host.servers(demo=config) for host in hosts]
    try:
        answers = await asyncio.gather(*(each.call("demo", "who", {}) for each in servers))
    finally:
        await asyncio.gather(*(each.aclose() for each in servers))
    assert [answer.text for answer in answers] == ["read"] * 4
    assert len([form for form in place.seen("token") if form["grant_type"] == "refresh_token"]) == 1


async def test_a_refresh_token_that_has_ended_needs_a_person_again(place: Place) -> None:
    await place.sign_in()
    place.set(refresh=400, forget=True)
    for _ in range(2):
        with pytest.raises(McpError, match="run `freeact-sub mcp login demo`"):
            await place.who()
    assert len([form for form in place.seen("token") if form["grant_type"] == "refresh_token"]) == 1
    assert place.kept().tokens == {}
    place.set(refresh=200)
    assert await place.sign_in()
    assert await place.who() == "read"


async def test_a_server_that_cannot_refresh_now_costs_no_sign_in(place: Place) -> None:
    await place.sign_in()
    place.change(use_until=1)
    place.set(refresh=503)
    with pytest.raises(McpError, match=r"does not refresh the sign-in now \(503\): try again later"):
        await place.who()
    place.set(refresh=200)
    assert await place.who() == "read"


async def test_tokens_that_cannot_be_written_serve_this_session(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    await place.sign_in()
    place.change(use_until=1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        async with place.host.servers(demo=place.config) as servers:
            for _ in range(2):
                assert (await servers.call("demo", "who", {})).text == "read"
    assert [path.name for path in token_folder().iterdir() if path.name.startswith(".")] == []
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        place.set(refresh=400)
        with pytest.raises(McpError, match="No space left on device"):
            await place.who()


async def test_tokens_do_not_follow_a_server_that_sends_requests_elsewhere(place: Place) -> None:
    await place.sign_in()
    with http_server(oauth_server.__file__) as other:
        place.set(redirect=f"http://127.0.0.1:{other}")
        with pytest.raises(McpError, match=r"cannot be reached at .* \(Redirect to .* not followed"):
            await place.who()
        place.change(use_until=1)
        with pytest.raises(McpError, match=r"does not refresh the sign-in now \(307\)"):
            await place.who()
        there = httpx2.get(f"http://127.0.0.1:{other}/seen").json()
        assert there == {what: [] for what in there}
        place.set(redirect="")
        place.config = McpServerConfig(url=place.url, headers={"Authorization": "Bearer key-of-the-settings"})
        place.set(redirect=f"http://127.0.0.1:{other}")
        with pytest.raises(McpError, match="not followed"):
            await place.who()
        there = httpx2.get(f"http://127.0.0.1:{other}/seen").json()
        assert there == {what: [] for what in there}
    place.set(redirect="")
    place.config = McpServerConfig(url=place.url)
    assert await place.who() == "read"


async def test_more_rights_are_asked_for_by_the_next_sign_in(place: Place) -> None:
    await place.sign_in()
    place.set(needs="write")
    with pytest.raises(McpError, match=r"refuses what you have signed in for \(403 Forbidden\).*mcp login demo"):
        await place.who()
    place.set(forget=True, refresh=400)
    assert await place.sign_in()
    assert set(place.seen("authorize")[-1]["scope"].split()) == {"read", "write"}
    assert await place.who()


@pytest.mark.parametrize("spoil", ["mode", "link", "text", "url"])
async def test_a_file_that_is_not_as_it_was_written_is_not_used(place: Place, spoil: str, tmp_path: Path) -> None:
    await place.sign_in()
    file, content = place.file, place.file.read_text()
    match spoil:
        case "mode":
            file.chmod(0o640)
        case "link":
            file.rename(tmp_path / "elsewhere")
            file.symlink_to(tmp_path / "elsewhere")
        case "text":
            file.write_text("{")
        case _:
            place.change(url="http://127.0.0.1:1/mcp")
    with pytest.raises(McpError, match="the file with your sign-in (can be read by others|is not a regular|is damaged)"):
        await place.who()
    assert await place.sign_in()  # mends it
    assert stat.S_IMODE(file.lstat().st_mode) == 0o600
    assert await place.who() == "read"
    assert content != file.read_text()


async def test_a_refusal_and_a_wrong_state_are_told(place: Place) -> None:
    place.set(error="access_denied")
    with pytest.raises(
        McpError, match=r"cannot sign in to MCP server 'demo': its authorization server refuses \(access_denied\)"
    ):
        await place.sign_in()

    place.set(error="", state="forged")

    async def deceived(address: str) -> None:
        await place.browse(address)  # another page has sent the browser to us
        assert place.last_page.status_code == 404
        place.set(state="")
        await place.browse(address)

    assert await place.sign_in(deceived)


async def test_the_address_may_be_typed_where_the_browser_is_elsewhere(place: Place) -> None:
    addresses: asyncio.Queue[str] = asyncio.Queue()

    async def elsewhere(address: str) -> None:
        async with httpx2.AsyncClient() as browser:
            await addresses.put("what is this?\n")
            await addresses.put((await browser.get(address)).headers["location"] + "\n")

    assert await place.sign_in(elsewhere, addresses.get)
    assert await place.who() == "read"


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint"])
async def test_a_server_that_sends_a_person_elsewhere_without_https_is_refused(place: Place, name: str) -> None:
    place.set(**{name: "http://elsewhere.invalid/steal"})
    with pytest.raises(McpError, match="it sends you to http://elsewhere.invalid/steal, which is not an https address"):
        await place.sign_in()
    assert [*token_folder().glob("*.json")] == []


async def test_metadata_without_end_is_not_read(place: Place) -> None:
    place.config = McpServerConfig(url=place.url, max_message_bytes=100_000)
    place.set(padding=200_000)
    dialog = SignInDialog(
        server="demo", config=place.config, show=place.browse, typed=None, log_file=place.folder / "login.log"
    )
    with pytest.raises(McpError):
        await asyncio.wait_for(dialog.run(), LIMIT_SECONDS)
    assert place.pages == []


async def test_a_port_that_is_taken(place: Place) -> None:
    await place.sign_in()
    registered = place.kept().client["redirect_uris"][0]
    port = int(registered.split(":")[2].split("/")[0])
    place.set(forget=True, refresh=400)
    with socket.create_server(("127.0.0.1", port)):
        assert await place.sign_in()  # another port, and so another registration
    assert len(place.seen("register")) == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(McpError, match=f"port {port}, its `callback_port`, cannot be used"):
            await place.sign_in(client_id="mine", callback_port=port)


async def test_a_client_of_the_settings_is_not_registered(place: Place) -> None:
    assert await place.sign_in(client_id="mine", client_secret="hush-hush", scope="read write")
    assert place.seen("register") == []
    [asked] = place.seen("authorize")
    assert (asked["client_id"], asked["scope"]) == ("mine", "read write")
    assert asked["redirect_uri"].startswith("http://localhost:")
    assert await place.who() == "read write"


async def test_a_sign_in_that_is_interrupted_leaves_nothing(place: Place) -> None:
    shown = asyncio.Event()

    async def show(_: str) -> None:
        shown.set()

    signing = asyncio.create_task(place.sign_in(show))
    await asyncio.wait_for(shown.wait(), LIMIT_SECONDS)
    signing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await signing
    assert [*token_folder().glob("*.json")] == []
