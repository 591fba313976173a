"""Runs the agent whose traces stand in docs/tracing.md, and sends its spans to a viewer.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:6006 python docs/make_traces.py

The variable names the viewer, and `OTEL_EXPORTER_OTLP_HEADERS` what it wants besides, as docs/tracing.md says for two of
them. It prints the id of the trace. No model is needed; the package `opentelemetry-exporter-otlp-proto-http` is.
The pictures were taken of the pages of this trace, by Chromium without a window (`--headless --screenshot=FILE URL`).
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, ApprovalRequest, Config
from freeact_sub.testing import ScriptedModel, first_prompt

PROMPT: Final = "Which of the two tables do not add up?"
CELL: Final = """import asyncio
child, word, tests = await asyncio.gather(
    agent.task("Check table b.", description="table b"),
    agent.ask("One word for a total that is wrong?"),
    agent.shell("echo 1 table fails; exit 1", reason="the tests need the network"),
)
print(child.output, word, tests.exit_code)
"""
FAILING: Final = "total = 10 + 5\nassert total == 17, total"


def turn(messages: list[ModelMessage], _: AgentInfo) -> str | ToolCallPart:
    """What the model does next: of the root, of the child that its code starts, of the one that it starts itself."""
    asked = first_prompt(messages)
    number = sum(isinstance(message, ModelResponse) for message in messages)
    if PROMPT in asked:
        task = ToolCallPart("task", {"prompt": "Check table a.", "description": "table a"})
        return (ToolCallPart("execute_ipython_cell", {"code": CELL}), task, "Table a is wrong.")[number]
    if "Check" in asked:
        code = FAILING if "table a" in asked else "10 + 7"
        return (ToolCallPart("execute_ipython_cell", {"code": code}), "It is checked.")[number]
    return "Wrong."


async def run(folder: Path) -> None:
    """Run the agent. Args: folder: its workspace."""
    config = Config(workspace=folder, mode="ask")
    async with Agent(config, model=ScriptedModel(turn), session="new", capabilities=[Instrumentation()]) as agent:
        running = agent.run(PROMPT)
        async for event in running:
            if isinstance(event, ApprovalRequest):
                event.approve()
        result = await running.result()
    if result.status != "completed":
        raise SystemExit(f"the run ended as {result.status}: {result.error}")


def main() -> None:
    """Run it, and send its spans."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415  # not for tests

    provider, seen = TracerProvider(resource=Resource.create({"service.name": "freeact-sub"})), InMemorySpanExporter()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    provider.add_span_processor(SimpleSpanProcessor(seen))
    trace.set_tracer_provider(provider)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))
    provider.shutdown()
    sys.stdout.write("".join({f"{span.context.trace_id:032x}\n" for span in seen.get_finished_spans() if span.context}))


if __name__ == "__main__":
    main()
