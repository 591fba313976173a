"""Replies that were cut off or stopped by their provider, over real HTTP: no half answer is ever a completed one."""

from contextlib import asynccontextmanager

import pytest
from pydantic import BaseModel
from pydantic_ai import NativeOutput
from pydantic_ai.messages import ThinkingPart
from pydantic_ai.models.wrapper import WrapperModel
from support.agents import of_kind, read
from support.chat_server import ChatCall, ChatServer, Finish
from support.tables import each

from freeact_sub import Agent, Budget, Config
from freeact_sub.events import AgentFinished, CodeExecutionOutput, ToolCallStarted, ToolOutput, UsageUpdated
from freeact_sub.testing import FakeKernelProvider, ScriptedModel

pytestmark = pytest.mark.usefixtures("allow_model_requests")

CUT = Finish("length")
FILTERED = Finish("content_filter")


class Answer(BaseModel):
    value: int
    note: str = ""


def agent_of(server, tmp_path, *, output_type=str, **settings):
    config = Config(workspace=tmp_path, model="openai-chat:local", base_url=server.base_url, mode="full", **settings)
    return Agent(config, kernel_provider=FakeKernelProvider(), output_type=output_type)


def in_order(*replies):
    """The first reply to the first request, and so on; the last one to all that follow."""
    waiting = list(replies)
    return lambda _: waiting.pop(0) if len(waiting) > 1 else waiting[0]


async def run(tmp_path, script, prompt="go", **settings):
    async with ChatServer(script) as server, agent_of(server, tmp_path, **settings) as agent:
        events, result = await read(agent.run(prompt))
    return server, events, result


async def test_an_answer_that_was_cut_off_is_gone_on_with_and_joined(tmp_path):
    server, events, result = await run(
        tmp_path, in_order(["Rows 1 to 500 ", "are fi", CUT], ["ne, and rows 501 to 900 too."])
    )
    assert (result.status, result.output) == ("completed", "Rows 1 to 500 are fine, and rows 501 to 900 too.")
    assert of_kind(events, AgentFinished)[-1].output == result.output
    _, second = server.requests
    said = [message["content"] for message in second["messages"] if message["role"] == "assistant"]
    assert said == ["Rows 1 to 500 are fi"]
    assert "cut off" in second["messages"][-1]["content"]


async def test_an_answer_that_is_cut_off_again_is_a_limit_with_what_there_is(tmp_path):
    server, _, result = await run(tmp_path, in_order(["one ", "two ", CUT], ["three ", CUT]))
    assert (result.status, result.text) == ("limit", "one two three ")
    assert result.error.startswith("the limit of output is reached")
    assert len(server.requests) == 2


@pytest.mark.parametrize("rest", [[], ["\n"], [" ", "\n\n"]])
async def test_an_answer_that_the_model_does_not_go_on_with_is_a_limit_too(tmp_path, rest):
    server, _, result = await run(tmp_path, in_order(["one ", CUT], rest))
    assert (result.status, result.text) == ("limit", "one ")
    assert "the reply was cut off, and the model did not go on" in result.error
    assert len(server.requests) == 2


async def test_a_fence_that_closes_is_the_rest_of_an_answer(tmp_path):
    _, _, result = await run(tmp_path, in_order(["```text\none\n", CUT], ["```"]))
    assert (result.status, result.output) == ("completed", "```text\none\n```")


async def test_the_same_of_a_child(tmp_path):
    def script(request):
        said = request["messages"]
        if "rows" in str(said[1]["content"]):
            return ["Rows 1 to 500 are fine, and rows 501", CUT]
        return [said[-1]["content"]] if said[-1]["role"] == "tool" else [ChatCall("task", {"prompt": "Check the rows."})]

    server, _, result = await run(tmp_path, script)
    assert "limit" in result.output
    assert result.output.startswith("[ERROR] The child did not complete")
    assert "and rows 501Rows" in result.output
    assert len(server.requests) == 4


async def test_a_call_after_a_cut_and_then_an_answer_complete_the_run(tmp_path):
    replies = (["I look at", CUT], [ChatCall("execute_ipython_cell", {"code": "print(6 * 7)"})], ["It is 42."])
    _, _, result = await run(tmp_path, in_order(*replies))
    assert (result.status, result.output) == ("completed", "It is 42.")


async def test_each_answer_of_a_run_may_be_cut_off_once(tmp_path):
    cell = ChatCall("execute_ipython_cell", {"code": "print(6 * 7)"})
    _, _, result = await run(tmp_path, in_order(["a", CUT], [cell], ["It ", CUT], ["is 42."]))
    assert (result.status, result.output) == ("completed", "It is 42.")


@each("cut", [1, 12, 25, 0])
async def test_a_call_that_was_cut_off_is_not_run(tmp_path, cut):
    """Nor is it read as something else: what is left of its arguments may be a program too."""
    half = [ChatCall("execute_ipython_cell", {"code": "print('half')\nprint('whole')"}, cut=cut), CUT]
    whole = [ChatCall("execute_ipython_cell", {"code": "print('small')"})]
    server, events, result = await run(tmp_path, in_order(half, whole, ["Done."]))
    assert (result.status, result.output) == ("completed", "Done.")
    assert [event.text for event in of_kind(events, CodeExecutionOutput)] == ["small"]
    assert "smaller pieces" in server.requests[1]["messages"][-1]["content"]
    assert "half" not in str(server.requests[1]["messages"])


async def test_a_call_without_arguments_that_was_cut_off_is_not_run(tmp_path):
    _, events, result = await run(tmp_path, in_order([ChatCall("reset_kernel", {}, cut=0), CUT], ["Done."]))
    assert result.status == "completed"
    assert not of_kind(events, ToolOutput)


async def test_a_call_that_is_cut_off_again_is_a_limit(tmp_path):
    half = ["I write it.", ChatCall("execute_ipython_cell", {"code": "print('half')"}, cut=20), CUT]
    server, events, result = await run(tmp_path, in_order(half))
    assert (result.status, result.text) == ("limit", "I write it.I write it.")
    assert not of_kind(events, ToolOutput)
    assert len(server.requests) == 2


async def test_a_call_before_the_one_that_was_cut_off_is_run(tmp_path):
    cell = "execute_ipython_cell"
    both = [ChatCall(cell, {"code": "print('whole')"}), ChatCall(cell, {"code": "print('half')"}, cut=20), CUT]
    _, events, result = await run(tmp_path, in_order(both, ["Done."]))
    assert result.status == "completed"
    assert [event.text for event in of_kind(events, CodeExecutionOutput)] == ["whole"]


async def test_a_call_that_was_cut_off_between_whole_ones_is_not_run(tmp_path):
    """Calls side by side may be streamed in turns, so that several of them have no end."""
    name = "execute_ipython_cell"
    calls = [
        ChatCall(name, {"code": f"print({number})"}, cut=cut) for number, cut in ((1, None), (2, 15), (3, None), (4, 0))
    ]
    _, events, result = await run(tmp_path, in_order([*calls, CUT], ["Done."]))
    assert result.status == "completed"
    assert [event.args for event in of_kind(events, ToolCallStarted)] == [{"code": "print(1)"}, {"code": "print(3)"}]
    nothing = [ChatCall("reset_kernel", {}, cut=0), ChatCall(name, {"code": "print(1)"}), CUT]  # some servers send no `{}`
    _, events, _ = await run(tmp_path, in_order(nothing, ["Done."]))
    assert [event.tool_name for event in of_kind(events, ToolCallStarted)] == ["reset_kernel", name]


async def test_a_whole_call_at_the_end_of_a_reply_is_run(tmp_path):
    _, events, result = await run(
        tmp_path, in_order([ChatCall("execute_ipython_cell", {"code": "print(1)"}), CUT], ["Done."])
    )
    assert result.status == "completed"
    assert [event.text for event in of_kind(events, CodeExecutionOutput)] == ["1"]


async def test_nothing_but_the_bound_is_a_limit(tmp_path):
    server, _, result = await run(tmp_path, in_order([CUT]))
    assert (result.status, result.text) == ("limit", "")
    assert "output" in result.error
    assert len(server.requests) == 2


@pytest.mark.parametrize("output_type", [Answer, NativeOutput(Answer), [Answer, str]])
async def test_a_value_that_was_cut_off_is_asked_for_again_once(tmp_path, output_type):
    by_tool = [ChatCall("final_result", {"value": 42, "note": "long " * 9}, cut=30), CUT]
    half = by_tool if output_type is Answer else ['{"value": 42, "no', CUT]
    whole = ['{"value": 42}'] if isinstance(output_type, NativeOutput) else [ChatCall("final_result", {"value": 42})]
    _, _, result = await run(tmp_path, in_order(half, whole), output_type=output_type)
    assert (result.status, result.output) == ("completed", Answer(value=42))
    server, _, result = await run(tmp_path, in_order(half), output_type=output_type)
    assert result.status == "limit"
    assert "output" in result.error
    assert len(server.requests) == 2


async def test_an_answer_that_the_provider_stops_has_failed(tmp_path):
    server, _, result = await run(tmp_path, in_order(["The recipe is ", FILTERED]))
    assert (result.status, result.text) == ("failed", "The recipe is ")
    assert "content filter" in result.error
    assert len(server.requests) == 1


async def test_a_call_that_the_provider_stops_is_not_run(tmp_path):
    call = ChatCall("execute_ipython_cell", {"code": "print(1)"})
    _, events, result = await run(tmp_path, in_order(["So: ", call, FILTERED]))
    assert (result.status, result.text) == ("failed", "So: ")
    assert not of_kind(events, ToolOutput)


async def test_a_value_that_the_provider_stops_has_failed(tmp_path):
    _, _, result = await run(tmp_path, in_order(["42", FILTERED]), output_type=[Answer, str])
    assert result.status == "failed"


async def test_a_report_that_is_cut_off_stays_a_limit_and_says_so(tmp_path):
    cell = ChatCall("execute_ipython_cell", {"code": "print(1)"})
    _, _, result = await run(tmp_path, in_order([cell], ["I have found", CUT]), budget=Budget(turns=1))
    assert (result.status, result.text) == ("limit", "I have found")
    assert "turns" in result.error
    assert any("cut off" in warning for warning in result.warnings)
    _, _, result = await run(tmp_path, in_order([cell], ["I have found", FILTERED]), budget=Budget(turns=1))
    assert (result.status, result.text) == ("limit", "I have found")
    assert result.warnings == ("the last report is not whole: the provider's content filter stopped the answer",)


async def test_a_cut_answer_stays_partial_if_no_request_is_left(tmp_path):
    server, _, result = await run(tmp_path, in_order(["one ", CUT], ["a report"]), budget=Budget(turns=1))
    assert (result.status, result.text) == ("limit", "one ")
    assert "turns" in result.error
    assert len(server.requests) == 1


async def test_a_block_that_was_cut_off_is_not_run(tmp_path):
    half = ["I write it:\n```python\nprint('half')\nprint(", CUT]
    whole = ["In pieces:\n```python\nprint('small')\n```"]
    _, events, result = await run(tmp_path, in_order(half, whole, ["Done."]), code_actions="block")
    assert (result.status, result.output) == ("completed", "Done.")
    assert [event.text for event in of_kind(events, CodeExecutionOutput)] == ["small"]


@pytest.mark.parametrize("cut", ["I write it:\n```python\nprint('ha", "I write it:\n```pyth"])
async def test_a_block_of_which_the_rest_is_written_is_no_answer(tmp_path, cut):
    rest = "I write it:\n```python\nprint('half')\n```".removeprefix(cut)
    whole = "I write it again:\n```python\nprint('whole')\n```"
    _, events, result = await run(tmp_path, in_order([cut, CUT], [rest], [whole], ["Done."]), code_actions="block")
    assert (result.status, result.output) == ("completed", "Done.")
    assert [event.text for event in of_kind(events, CodeExecutionOutput)] == ["whole"]
    _, _, result = await run(tmp_path, in_order([cut, CUT], [rest]), code_actions="tool")
    assert (result.status, result.output) == ("completed", cut + rest)


async def test_a_single_request_that_was_cut_off_is_gone_on_with(tmp_path):
    def script(request):
        said = request["messages"]
        if "sum" not in str(said[0]["content"]):
            return [said[-1]["content"]] if said[-1]["role"] == "tool" else [ChatCall("ask", {"prompt": "What is the sum?"})]
        return ["is 42."] if len(said) > 1 else ["The sum ", CUT]

    _, _, result = await run(tmp_path, script)
    assert result.output == "The sum is 42."


@pytest.mark.parametrize(("end", "why"), [(CUT, "cut off"), (FILTERED, "content filter")])
async def test_a_single_request_without_a_whole_answer_has_failed(tmp_path, end, why):
    def script(request):
        said = request["messages"]
        if "sum" in str(said[0]["content"]):
            return ["The sum is 4", end]
        return [said[-1]["content"]] if said[-1]["role"] == "tool" else [ChatCall("ask", {"prompt": "What is the sum?"})]

    _, events, result = await run(tmp_path, script)
    assert of_kind(events, ToolOutput)[0].outcome == "failed"
    assert why in result.output
    assert "The sum is 4" not in result.output


class CutModel(WrapperModel):
    """A model whose replies end for a given reason."""

    def __init__(self, script, reasons):
        super().__init__(ScriptedModel(script))
        self.reasons = list(reasons)

    @asynccontextmanager
    async def request_stream(self, *args, **kwargs):
        async with super().request_stream(*args, **kwargs) as stream:
            stream.finish_reason = self.reasons.pop(0) if self.reasons else None
            yield stream


@each(
    ("script", "reasons", "status", "output"),
    [
        (["It is ", "42."], ["length"], "completed", "It is 42."),
        (["It is ", "4"], ["length", "length"], "limit", "It is 4"),
        ([[ThinkingPart("hm")], "42."], ["length"], "completed", "42."),
        ([[ThinkingPart("hm")], [ThinkingPart("hm")]], ["length", "length"], "limit", ""),
        (["It is "], ["content_filter"], "failed", "It is "),
        ([""], ["content_filter"], "failed", ""),
        (["It is "], ["error"], "failed", "It is "),
        ([[ThinkingPart("hm")], "42."], ["error"], "completed", "42."),
    ],
)
async def test_every_reason_with_a_scripted_model(tmp_path, script, reasons, status, output):
    model = CutModel(script, reasons)
    async with Agent(Config(workspace=tmp_path), model=model, kernel_provider=FakeKernelProvider()) as agent:
        _, result = await read(agent.run("go"))
    assert (result.status, result.text) == (status, output)
    assert "ValueError" not in result.error


async def test_the_answer_to_a_later_message_is_no_part_of_the_cut_one_before(tmp_path):
    async with (
        ChatServer(in_order(["one ", CUT], ["two"], ["three"])) as server,
        agent_of(server, tmp_path) as agent,
    ):
        run = agent.run("count")
        async for event in run:
            if isinstance(event, UsageUpdated) and len(server.requests) == 2:
                assert run.send("and now?")
        result = await run.result()
    assert (result.status, result.output) == ("completed", "three")
