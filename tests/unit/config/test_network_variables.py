"""A variable of the network that cannot be used is named in one sentence, before a client fails for it."""

import pytest

from freeact_sub import Config
from freeact_sub.config.network_variables import check_network_variables
from freeact_sub.errors import ConfigError
from freeact_sub.models import build_model


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SSL_CERT_FILE", "/gone.pem"),
        ("SSL_CERT_FILE", "/"),
        ("SSL_CERT_DIR", "/gone"),
        ("HTTPS_PROXY", "http://"),
        ("https_proxy", "http://host:port"),
        ("ALL_PROXY", "socks5://"),
        ("HTTP_PROXY", "ftp://host"),
    ],
)
def test_it_is_named(monkeypatch, name, value):
    with pytest.raises(ConfigError, match=rf"variable {name} .* correct it, or unset it"):
        check_network_variables({name: value})
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    with pytest.raises(ConfigError, match=f"variable {name} ") as caught:
        build_model(Config(model="openai-chat:m", base_url="http://127.0.0.1:1/v1"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["", "host:8080", "http://user:secret@host", "socks5h://host:1"])
def test_what_clients_understand_is_left_to_them(value):
    check_network_variables(
        {"HTTPS_PROXY": value, "SSL_CERT_FILE": __file__, "SSL_CERT_DIR": f"/gone:{__file__.rpartition('/')[0]}"}
    )
