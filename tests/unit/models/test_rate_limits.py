"""A provider that is busy: all requests to it pause together, are told of, and are made again; others stand in for it."""

import asyncio
import email.utils
import itertools
import time
from decimal import Decimal
from pathlib import Path

import pydantic_ai
import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ToolCallPart
from support.agents import finished, of_kind, read, task
from support.chat_server import ChatCall, ChatServer, HttpError
from support.stories import apply, block_of
from support.tables import each
from support.waiting import eventually

from freeact_sub import Agent, Budget, Config
from freeact_sub.activity import Activities
from freeact_sub.config.load import load_config
from freeact_sub.errors import ConfigError
from freeact_sub.events import ModelProgress
from freeact_sub.models.failures import key_of
from freeact_sub.notebook.render import moving_part
from freeact_sub.show.agent_story import Stories
from freeact_sub.terminal.drawing.area import silence
from freeact_sub.terminal.plain_lines import PlainLines
from freeact_sub.testing import FakeKernelProvider, ScriptedModel, first_prompt

pytestmark = pytest.mark.usefixtures("allow_model_requests")

PROVIDERS = [
    "alibaba",
    "anthropic",
    "azure",
    "bedrock",
    "cerebras",
    "cohere",
    "crusoe",
    "deepseek",
    "fireworks",
    "github",
    "google",
    "google-cloud",
    "groq",
    "heroku",
    "huggingface",
    "meta",
    "mistral",
    "moonshotai",
    "nebius",
    "ollama",
    "openai",
    "openrouter",
    "ovhcloud",
    "sambanova",
    "snowflake",
    "together",
    "vercel",
    "vllm",
    "xai",
    "zai",
]


def agent_of(server, tmp_path, **settings):
    settings = {"model": "openai-chat:local", "base_url": server.base_url, "mode": "full", **settings}
    return Agent(Config(workspace=tmp_path, **settings), kernel_provider=FakeKernelProvider())


def busy(status=429, **headers):
    return HttpError(status, "slow down", headers={name.replace("_", "-"): value for name, value in headers.items()})


def of_child(request):
    return "child" in request["messages"][1]["content"]


def three_children(request):
    done = any(message["role"] == "tool" for message in request["messages"])
    if of_child(request):
        return ["done"]
    calls = [ChatCall("task", {"prompt": f"child {n}", "description": str(n)}, f"c{n}") for n in range(3)]
    return ["all done"] if done else calls


@pytest.mark.parametrize("status", [429, 503, 529])
async def test_three_children_that_meet_one_refusal_all_complete(status, tmp_path):
    refused = 0

    def script(request):
        nonlocal refused
        if of_child(request) and refused < 3:
            refused += 1
            return busy(status, Retry_After="1")
        return three_children(request)

    async with ChatServer(script) as server, agent_of(server, tmp_path) as agent:
        events, result = await read(agent.run("root"))
    assert (result.status, result.output) == ("completed", "all done")
    assert [end.status for end in finished(events).values()] == ["completed"] * 4 or len(finished(events)) == 4
    assert result.tree_usage.turns == 5
    assert result.tree_usage.estimated_requests == 0, "a request that is refused costs nothing"
    assert refused == 3


@pytest.mark.slow
async def test_one_refusal_holds_back_the_requests_that_others_have_not_sent_yet(tmp_path):
    refused_at = 0.0
    after: list[float] = []

    def script(request):
        nonlocal refused_at
        if of_child(request) and not refused_at:
            refused_at = time.monotonic()
            return busy(Retry_After="2")
        if refused_at:
            after.append(time.monotonic())
        return three_children(request)

    limits = {"max_concurrent": 1}  # the first child is refused before the others begin
    async with (
        ChatServer(script) as server,
        agent_of(server, tmp_path, subagents={"max_concurrent": 3}, models=limits) as agent,
    ):
        _, result = await read(agent.run("root"))
    assert result.status == "completed"
    assert len(after) == 4
    assert min(after) >= refused_at + 2


@pytest.mark.slow
async def test_a_time_to_wait_may_be_a_date(tmp_path):
    replies: list = []

    def script(_):
        replies.append(time.time())
        if len(replies) > 1:
            return ["It is 42."]
        return busy(Retry_After=email.utils.formatdate(time.time() + 3, usegmt=True))

    async with ChatServer(script) as server, agent_of(server, tmp_path) as agent:
        _, result = await read(agent.run("go"))
    assert result.output == "It is 42."
    assert replies[1] - replies[0] >= 1.9  # a date has whole seconds


@pytest.mark.slow
async def test_where_no_time_is_named_each_pause_is_longer(tmp_path):
    sent: list[float] = []

    def script(_):
        sent.append(time.monotonic())
        return busy() if len(sent) < 4 else ["It is 42."]

    async with ChatServer(script) as server, agent_of(server, tmp_path) as agent:
        _, result = await read(agent.run("go"))
    assert result.output == "It is 42."
    pauses = [later - earlier for earlier, later in itertools.pairwise(sent)]
    assert pauses[0] >= 0.5
    assert pauses[1] >= 1
    assert pauses[2] >= 2


@pytest.mark.parametrize("headers", [{"Retry_After": "3600"}, {"Retry_After": "1"}, {}])
@pytest.mark.slow
async def test_a_provider_that_stays_busy_is_given_up_with_the_way_out(headers, tmp_path):
    async with ChatServer(lambda _: busy(**headers)) as server, agent_of(server, tmp_path, rate_limit_seconds=1.5) as agent:
        _, result = await read(agent.run("go"))
        sent = len(server.requests)
        _, again = await read(agent.run("once more"))
        assert len(server.requests) > sent, "a new request may find it otherwise"
    assert result.status == again.status == "failed"
    for words in ("local answered 429 (slow down)", "`fallback_models`", "`rate_limit_seconds`"):
        assert words in result.error
    assert "body" not in result.error
    assert "{" not in result.error
    assert result.usage.tokens == 0


async def test_a_cancel_and_the_time_of_a_budget_end_a_pause(tmp_path):
    async with ChatServer(lambda _: busy(Retry_After="200")) as server, agent_of(server, tmp_path) as agent:
        _, late = await read(agent.run("go", budget=Budget(seconds=1)))
        run = agent.run("go")
        _, cancelled = await read(run, on_event=lambda event: isinstance(event, ModelProgress) and run.cancel())
        assert late.seconds + cancelled.seconds < 100
    assert (late.status, cancelled.status) == ("timeout", "cancelled")
    assert late.usage.tokens == cancelled.usage.tokens == 0, "what was not sent costs nothing"


@pytest.mark.slow
async def test_a_pause_is_counted_down_on_the_stream_and_drawn(tmp_path):
    replies = [busy(Retry_After="6"), ["It is 42."]]
    async with ChatServer(lambda _: replies.pop(0)) as server, agent_of(server, tmp_path) as agent:
        events, _ = await read(agent.run("go"))
    told = [event for event in of_kind(events, ModelProgress) if event.paused_seconds is not None]
    assert len(told) >= 2
    assert [event.paused_seconds for event in told] == sorted((event.paused_seconds for event in told), reverse=True)
    views, activities, lines, shown = Stories(), Activities(), [], []
    plain, block = PlainLines(views), block_of(events[0])
    for event in events:
        views.observe(event)
        activities.observe(event)
        lines.append(plain.write(event))
        apply(block, event)
        if event in told:
            shown.append(str(silence(views.of(event))))
            assert "the provider is busy" in activities.of(event.agent_id)
            assert "the provider is busy; trying again in" in moving_part(block, event.time)["text/plain"]
    assert all("the provider is busy; trying again in" in text for text in shown)
    assert sum("the provider is busy" in line for line in lines) == 1, "one line, where nothing can be drawn over"
    assert "busy" not in moving_part(block, 0)["text/plain"]
    assert activities.of(events[0].agent_id) == ""


@pytest.mark.slow
async def test_a_person_has_a_wait_over_and_a_cancelled_wait_does_not_hold_back_the_next_prompt(tmp_path):
    replies = [busy(Retry_After="200"), ["first"], busy(Retry_After="200"), ["second"], busy(Retry_After="200")]
    async with ChatServer(lambda _: replies.pop(0)) as server, agent_of(server, tmp_path) as agent:
        assert not agent.try_now()
        hasten = lambda event: isinstance(event, ModelProgress) and event.pause and agent.try_now()
        _, hastened = await read(agent.run("go"), on_event=hasten)
        run = agent.run("go on")
        _, cancelled = await read(run, on_event=lambda event: isinstance(event, ModelProgress) and run.cancel())
        _, second = await read(agent.run("and again"))
        _, refused = await read(agent.run("once more", budget=Budget(seconds=1)))
    assert (hastened.output, cancelled.status, second.output, refused.status) == ("first", "cancelled", "second", "timeout")
    assert hastened.seconds + second.seconds < 100


@pytest.mark.parametrize("seconds", ["600", "3600"])
async def test_a_wait_that_is_too_long_is_named(seconds, tmp_path):
    async with ChatServer(lambda _: busy(Retry_After=seconds)) as server, agent_of(server, tmp_path) as agent:
        _, result = await read(agent.run("go"))
    assert f"asks for a wait of {int(seconds):,} seconds (Retry-After)" in result.error
    assert "`rate_limit_seconds`" in result.error


@pytest.mark.slow
async def test_what_code_and_children_ask_pauses_with_the_rest(tmp_path):
    refused = 0

    def script(request):
        nonlocal refused
        text = request["messages"][-1]["content"]
        if "colour" in str(text):
            refused += 1
            return busy(Retry_After="1") if refused < 4 else ["blue"]
        done = request["messages"][-1]["role"] == "tool"
        return ["done"] if done else [ChatCall("ask", {"prompt": f"colour {n}?"}, f"c{n}") for n in range(3)]

    async with ChatServer(script) as server, agent_of(server, tmp_path) as agent:
        events, result = await read(agent.run("root"))
    assert (result.output, result.usage.turns) == ("done", 5)
    assert any(event.paused_seconds for event in of_kind(events, ModelProgress))


async def test_requests_in_flight_have_a_bound_and_ask_counts(tmp_path):
    in_flight = most = 0
    release = asyncio.Event()

    def turn(messages, _info):
        nonlocal in_flight, most
        prompt = first_prompt(messages).split("\n")[0]
        if prompt == "root" and len(messages) == 1:
            asks = [ToolCallPart("ask", {"prompt": f"ask {n}"}) for n in range(8)]
            return [*asks, *(task(f"child {n}") for n in range(4))]
        return ["done"] if prompt == "root" else [release, prompt]

    class Counting(ScriptedModel):
        async def _parts(self, messages, info):
            nonlocal in_flight, most
            in_flight += 1
            most = max(most, in_flight)
            try:
                async for part in super()._parts(messages, info):
                    yield part
            finally:
                in_flight -= 1

    config = Config(workspace=tmp_path, mode="full", models={"max_concurrent": 3}, headless="allow")
    async with Agent(config, model=Counting(turn), kernel_provider=FakeKernelProvider()) as agent:
        running = asyncio.create_task(read(agent.run("root")))
        await eventually(lambda: in_flight == 3)
        release.set()
        _, result = await running
    assert result.status == "completed"
    assert most == 3
    assert result.tree_usage.turns == 14


async def test_another_model_answers_where_one_fails_for_children_and_asks_too(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    sent: list[str] = []

    def script(request):
        sent.append(request["model"])
        if request["model"] == "first":
            return busy(Retry_After="100") if of_child(request) else HttpError(401, "no such key")
        return three_children(request)

    settings = {"model": "openai-chat:first", "fallback_models": ("small", "openai-chat:gpt-4o"), "budget": {"cost_usd": 1}}
    names = {"small": "openai-chat:gpt-4o-mini"}
    async with ChatServer(script) as server, agent_of(server, tmp_path, models=names, **settings) as agent:
        _, refused = await read(agent.run("root"))
    assert "price" in refused.error  # of a chain in which one has no price no cost can be bounded
    async with ChatServer(script) as server:
        chain = {"model": "openai-chat:first", "fallback_models": ["small", "openai-chat:gpt-4o"]}
        async with agent_of(server, tmp_path, models=names, **chain) as agent:
            _, result = await read(agent.run("root"))
    assert (result.status, result.output) == ("completed", "all done")
    assert set(sent) == {"first", "gpt-4o-mini"}
    assert result.tree_usage.turns == 5
    each = Decimal("0.00000015") * 11 + Decimal("0.0000006") * 5
    assert result.tree_usage.cost_usd == 5 * each, "the price of the one that answered"
    assert 2 <= sent.count("first") <= 4, "while its provider pauses the first one is not asked"


async def test_where_all_fail_each_says_why(tmp_path):
    def script(request):
        return HttpError(401 if request["model"] == "first" else 404, f"not {request['model']}")

    settings = {"model": "openai-chat:first", "fallback_models": ("openai-chat:second",)}
    async with ChatServer(script) as server, agent_of(server, tmp_path, **settings) as agent:
        _, result = await read(agent.run("go"))
    assert result.status == "failed"
    assert "first answered 401 (not first): check the environment variable OPENAI_API_KEY" in result.error
    assert "second answered 404 (not second)" in result.error


def test_a_model_that_stands_in_and_cannot_be_built_is_named(tmp_path):
    with pytest.raises(ConfigError, match="`fallback_models`: .*nonsense"):
        Agent(Config(workspace=tmp_path, fallback_models=("nonsense:x",)), model=ScriptedModel(["x"]))


def test_models_have_a_bound_beside_their_names_wherever_they_are_set(tmp_path):
    (tmp_path / ".freeact").mkdir()
    (tmp_path / ".freeact/config.toml").write_text('models = {"small" = "openai-chat:x"}\nfallback_models = ["small"]\n')
    config = load_config(
        tmp_path, environment={"FREEACT_MODELS__MAX_CONCURRENT": "4", "FREEACT_MODELS__BIG": "openai-chat:y"}
    )
    assert (config.models.max_concurrent, config.fallback_models) == (4, ("small",))
    assert config.models.names == {"small": "openai-chat:x", "big": "openai-chat:y"}
    (tmp_path / ".freeact/config.toml").write_text('[models]\nsmall = "openai-chat:x"\nmax_concurrent = 2\n')
    assert load_config(tmp_path, environment={}).models.max_concurrent == 2
    assert Config(models={"small": "a:b"}).models.max_concurrent == 16
    with pytest.raises(ConfigError, match=r"`models.max_concurrent`"):
        Config(models={"max_concurrent": 0})
    with pytest.raises(ConfigError, match=r"`models`: 'small' must be .* not a int"):
        Config(models={"small": 3})


@each(
    ("error", "words"),
    [
        (ModelHTTPError(400, "m", {"error": {"message": "bad\nwords", "code": 3}}), "m answered 400 (bad words): "),
        (ModelHTTPError(422, "m", '{"detail": [{"msg": "field required"}]}'), "m answered 422 (field required): "),
        (ModelHTTPError(418, "m", "<html><body>teapot</body></html>"), "m answered 418: "),
        (ModelHTTPError(418, "m", None), "m answered 418: "),
        (ModelHTTPError(402, "m", {"message": "x" * 5000}), "m answered 402 (xxx"),
    ],
)
async def test_a_refusal_is_one_sentence_without_the_body(error, words, make):
    async with make([error]) as agent:
        _, result = await read(agent.run("go"))
    assert words in result.error
    assert "\n" not in result.error
    assert len(result.error) < 600
    assert not any(mark in result.error for mark in ("{", "}", "<", "body"))


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_refused_is_named(status, tmp_path):
    async with ChatServer(lambda _: HttpError(status, "no")) as server, agent_of(server, tmp_path) as agent:
        _, result = await read(agent.run("go"))
    assert f"local answered {status} (no): check the environment variable OPENAI_API_KEY" in result.error


@each("name", PROVIDERS)
def test_each_provider_s_key_is_named_as_it_is_read(name):
    """By the source of pydantic-ai's providers, which may need packages that are not installed."""
    source = (Path(pydantic_ai.__file__).parent / f"providers/{name.replace('-', '_')}.py").read_text()

    class Provided(ScriptedModel):
        system = name

    assert f"'{key_of(Provided(['x']))}'" in source


def test_of_a_model_of_one_s_own_no_variable_is_known():
    assert key_of(ScriptedModel(["x"])) is None
