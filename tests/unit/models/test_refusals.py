"""A request that is too long is known by status, code and few words, whoever the server is; others are not taken for one."""

import json

import pytest
from pydantic_ai.exceptions import ModelAPIError, ModelConnectionError, ModelHTTPError
from support.tables import each
from support.wire import CHAT, RESPONSE, RESPONSES, answered, event

from freeact_sub.models.failures import is_overflow

pytestmark = pytest.mark.usefixtures("allow_model_requests")

TOO_LONG = {
    "AI21": (422, {"detail": "prompt has too many tokens: 9000"}),
    "Alibaba": (400, "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]"),
    "Anthropic, prompt": (400, "prompt is too long: 210000 tokens > 200000 maximum"),
    "Anthropic, both": (400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
    "Anthropic, large": (413, {"type": "request_too_large", "message": "Request exceeds the maximum size"}),
    "Azure": (400, {"code": "context_length_exceeded", "message": "no"}),
    "Bedrock": (400, "Input is too long for requested model."),
    "Cerebras": (400, "Please reduce the length of the messages or completion. Current length is 8193 while limit is 8192"),
    "Cohere": (400, "too many tokens: size limit exceeded by 900 tokens. Try using shorter inputs"),
    "Copilot": (400, {"code": "model_max_prompt_tokens_exceeded", "message": "prompt token count of 72330 exceeds 64000"}),
    "DeepSeek": (400, "This model's maximum context length is 65536 tokens. However, you requested 70000 tokens"),
    "Fireworks": (400, "The prompt is too long: 9000, model maximum context length: 4096"),
    "Gemini": (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
    "GitHub": (413, "Request body too large for gpt-4o model. Max size: 8000 tokens."),
    "Groq": (
        413,
        {"code": "rate_limit_exceeded", "type": "tokens", "message": "Request too large, reduce your message size"},
    ),
    "Hugging Face": (422, {"error": "Input validation error: `inputs` must have less than 4096 tokens. Given: 9000"}),
    "llama-server": (
        400,
        {"type": "exceed_context_size_error", "message": "the request exceeds the available context size"},
    ),
    "LM Studio, kept": (400, {"error": "The number of tokens to keep from the prompt is greater than the context length."}),
    "LM Studio, loaded": (400, {"error": "Trying to keep the first 9000 tokens when context overflows. It has 4096"}),
    "MiniMax": (400, "invalid params, context window exceeds limit (2013)"),
    "Mistral": (400, "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"),
    "Moonshot": (400, "Invalid request: Your request exceeded model token limit: 8192"),
    "Ollama": (500, {"error": "the input length exceeds the context length"}),
    "OpenRouter": (400, {"message": "Provider returned error", "metadata": {"raw": "prompt is too long: 9000 tokens"}}),
    "SGLang": (400, "The input (9000 tokens) is longer than the model's context length (4096 tokens)."),
    "Together": (422, "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 9000 `inputs` tokens"),
    "vLLM": (400, "The decoder prompt (length 9000) is longer than the maximum model length of 4096."),
    "xAI": (400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens."),
    "Zhipu": (400, {"code": "1261", "message": "Prompt exceeds max length"}),
    "a proxy": (413, "<html><h1>413 Request Entity Too Large</h1></html>"),
    "an error in a stream": (None, {"message": "maximum context length is 4096 tokens"}),
}
OTHERS = [
    (400, "temperature must be less than or equal to 2"),
    (400, "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for m"),
    (400, "max_tokens is too large: 100000. This model supports at most 16384 completion tokens"),
    (400, "`thinking.budget_tokens` must be greater than or equal to 1024"),
    (400, "Unexpected token < in JSON at position 0"),
    (400, "Missing required parameter: 'prompt'"),
    (400, "tools: maximum 128 items"),
    (400, "image exceeds 5 MB maximum: 7000000 bytes > 5242880 bytes"),
    (401, "invalid token: must be longer than 20 characters"),
    (404, "no prompt named 1234"),
    (429, {"code": "rate_limit_exceeded", "message": "Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000"}),
    (500, "internal error"),
    (502, "<html>bad gateway</html>"),
    (None, "the server broke off its answer: it has no end"),
]


def made(status, said):
    body = {"message": said} if isinstance(said, str) else said
    if status is None:
        return ModelAPIError("m", str(body["message"]), body=body, in_stream=True)
    return ModelHTTPError(status, "m", said if isinstance(said, str) and said.startswith("<html") else body)


def test_a_request_that_is_too_long_is_seen_in_the_words_of_each_server():
    assert [server for server, (status, said) in TOO_LONG.items() if not is_overflow(made(status, said))] == []


def test_other_errors_are_not_taken_for_it():
    assert [said for status, said in OTHERS if is_overflow(made(status, said))] == []
    assert not is_overflow(ModelConnectionError("m", "nothing came for 120 seconds; prompt, context, 4096 tokens"))


@each("server", ["LM Studio, kept", "Groq", "Moonshot", "Alibaba", "Hugging Face", "a proxy", "Zhipu"])
async def test_the_request_is_made_again_with_less(server, tmp_path):
    status, said = TOO_LONG[server]
    body = (
        said
        if isinstance(said, dict) and "error" in said
        else {"error": {"message": said} if isinstance(said, str) else said}
    )
    refused = (status, {"Content-Type": "application/json"}, json.dumps(body).encode())
    act = b"".join(CHAT.call([json.dumps({"code": "print('word ' * 6000)"})])) + CHAT.end_of_call
    result, server = await answered(tmp_path, act, refused, b"".join(CHAT.texts(["Now it fits."])) + CHAT.end)
    assert (result.status, result.output, len(server.requests)) == ("completed", "Now it fits.", 3)


@pytest.mark.slow
async def test_a_stream_may_tell_it_too(tmp_path):
    act = b"".join(RESPONSES.call([json.dumps({"code": "print('word ' * 6000)"})])) + RESPONSES.end
    error = {"code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."}
    failed = RESPONSES.texts([])[0] + event("response.failed", sequence_number=2, response={**RESPONSE, "error": error})
    fits = b"".join(RESPONSES.texts(["Now it fits."])) + RESPONSES.end
    result, server = await answered(tmp_path, act, failed, fits, protocol=RESPONSES)
    assert (result.status, result.output, len(server.requests)) == ("completed", "Now it fits.", 3)


async def test_if_nothing_is_left_to_shorten_the_server_is_quoted(tmp_path):
    refused = (413, {"Content-Type": "application/json"}, b'{"error": {"message": "too much of everything"}}')
    result, server = await answered(tmp_path, refused)
    assert (result.status, len(server.requests)) == ("failed", 1)
    assert "does not fit into the model's context" in result.error
    assert "too much of everything" in result.error
