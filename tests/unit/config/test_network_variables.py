"""A variable of the network that cannot be used is named in one sentence, before a client fails for it."""

import importlib.machinery
import importlib.util
import sys
import types

import pytest
from support.tables import each

from freeact_sub import Config
from freeact_sub.config.network_variables import check_network_variables
from freeact_sub.errors import ConfigError
from freeact_sub.models import build_model


@each(
    ("name", "value"),
    [
        ("SSL_CERT_FILE", "/gone.pem"),
        ("SSL_CERT_FILE", "/"),
        ("SSL_CERT_FILE", pytest.__file__),
        ("SSL_CERT_FILE", "/dev/null"),
        ("SSL_CERT_DIR", "/gone"),
        ("SSLKEYLOGFILE", "/gone/keys"),
        ("SSLKEYLOGFILE", "/"),
        ("HTTPS_PROXY", "http://"),
        ("https_proxy", "http://host:port"),
        ("ALL_PROXY", "socks5://"),
        ("HTTP_PROXY", "ftp://host"),
    ],
)
def test_a_wrong_variable_is_named(monkeypatch, name, value):
    with pytest.raises(ConfigError, match=rf"variable {name} .* correct it, or unset it"):
        check_network_variables({name: value})
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    with pytest.raises(ConfigError, match=f"variable {name} ") as caught:
        build_model(Config(model="openai-chat:m", base_url="http://127.0.0.1:1/v1"))
    assert "\n" not in str(caught.value)


@each("value", ["", "host:8080", "http://user:secret@host", "socks5h://host:1"])
def test_proxies_that_clients_understand_are_left_to_them(value, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "socksio", types.ModuleType("socksio"))
    sys.modules["socksio"].__spec__ = importlib.machinery.ModuleSpec("socksio", None)
    (tmp_path / "some.pem").write_text("a note\n-----BEGIN CERTIFICATE-----\n")
    check_network_variables(
        {"HTTPS_PROXY": value, "SSL_CERT_FILE": f"{tmp_path}/some.pem", "SSL_CERT_DIR": f"/gone:{tmp_path}"}
    )
    check_network_variables({"SSLKEYLOGFILE": f"{tmp_path}/keys"})


def test_a_proxy_that_needs_a_package_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="variable ALL_PROXY names a SOCKS proxy.*pip install socksio"):
        check_network_variables({"ALL_PROXY": "socks5://host:1"})


@pytest.mark.parametrize("key", ["schl\u00fcssel", "a\nb"])
def test_a_key_that_no_server_can_be_sent_is_named(monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ConfigError, match="variable OPENAI_API_KEY has characters that no key has"):
        build_model(Config(model="openai-chat:m"))
