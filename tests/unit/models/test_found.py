"""Models that are found: by keys in the environment, and at servers on this machine, which are real HTTP servers here."""

from typing import Any

from support.model_lists import OLLAMA, OPENAI, closed_port, model_list, silent
from support.tables import each

from freeact_sub.config.schema import Config
from freeact_sub.errors import ConfigError
from freeact_sub.models.build import EXAMPLES, MAX_MODELS, FoundModel, model_meant, models_of_keys, models_of_servers


def names(port: int) -> list[str]:
    return [found.model for found in models_of_servers({"Here": port})]


@each("key", EXAMPLES)
def test_a_key_proposes_a_model_of_its_provider(key: str) -> None:
    assert models_of_keys({key: "secret"}) == [FoundModel(model=EXAMPLES[key], because=f"{key} is set")]
    assert models_of_keys({key: " "}) == []


def test_two_keys_of_one_provider_are_one_proposal_and_no_key_is_shown() -> None:
    found = models_of_keys({"GOOGLE_API_KEY": "secret-a", "GEMINI_API_KEY": "secret-b", "OPENAI_API_KEY": "secret-c"})
    assert [model.model.partition(":")[0] for model in found] == ["openai", "google"]
    assert "secret" not in str(found)


def test_a_server_of_openais_protocol_and_an_old_ollama_are_asked_side_by_side() -> None:
    with model_list({"/v1/models": OPENAI}) as one, model_list({"/api/tags": OLLAMA}) as other:
        found = models_of_servers({"LM Studio": one, "Ollama": other})
    assert [(model.model, model.because, model.base_url) for model in found] == [
        ("openai-chat:qwen3:8b", f"LM Studio at 127.0.0.1:{one}", f"http://127.0.0.1:{one}/v1"),
        ("openai-chat:llama4", f"LM Studio at 127.0.0.1:{one}", f"http://127.0.0.1:{one}/v1"),
        ("openai-chat:mistral:7b", f"Ollama at 127.0.0.1:{other}", f"http://127.0.0.1:{other}/v1"),
        ("openai-chat:gemma:2b", f"Ollama at 127.0.0.1:{other}", f"http://127.0.0.1:{other}/v1"),
    ]


@each(
    "answer",
    [
        b"<html>It works!</html>",
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        {"data": "none"},
        {"data": [1, None, {"id": 7}, {"id": ""}, {"id": "a\x1b[31mb"}, {"id": "x\ny"}, {"id": "n" * 201}]},
        [],
        "text",
        302,
        401,
        500,
    ],
)
def test_another_program_at_the_port_is_no_server_of_models(answer: Any) -> None:
    with model_list({"/v1/models": answer}) as port:
        assert names(port) == []


def test_a_list_without_end_is_cut() -> None:
    with model_list({"/v1/models": {"data": [{"id": f"m{number}"} for number in range(500)]}}) as port:
        assert names(port) == [f"openai-chat:m{number}" for number in range(MAX_MODELS)]
    with model_list({"/v1/models": b'{"data": [' + b'{"id": "a"},' * 200_000}) as port:
        assert names(port) == []


def test_nobody_there_costs_nothing_and_who_is_silent_keeps_nobody_waiting() -> None:
    assert names(closed_port()) == []
    with silent() as one, silent() as other, model_list({"/v1/models": OPENAI}) as port:
        found = models_of_servers({"A": one, "B": other, "C": port})
    assert [model.model for model in found] == ["openai-chat:qwen3:8b", "openai-chat:llama4"]


@each(
    ("name", "meant"),
    [
        ("sonnet", EXAMPLES["ANTHROPIC_API_KEY"]),  # what the first start would propose
        ("OPUS-5", "anthropic:claude-opus-5-5"),
        ("small", "openai-chat:gpt-6-luna"),
        ("luna", "openai-chat:gpt-6-luna"),  # what the settings name goes first
        ("opus", "the model 'opus' could be anthropic:claude-opus-4-8 or anthropic:claude-opus-5-5: name one of them"),
        ("gemini", "gemini"),  # no key of its provider is set
        ("openai:sonnet", "openai:sonnet"),
    ],
)
def test_a_part_of_a_name_means_the_only_model_that_has_it(name: str, meant: str) -> None:
    keys = {"ANTHROPIC_API_KEY": "secret", "OPENAI_API_KEY": "secret"}
    try:
        found = model_meant(Config(models={"small": "openai-chat:gpt-6-luna"}), name, keys).model
    except ConfigError as error:
        found = str(error)
    assert found == meant
