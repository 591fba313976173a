"""A block shows every event of its agent, and stays bounded."""

import time
from dataclasses import replace
from decimal import Decimal

import pytest
from support.sample_events import CHILD, ROOT, one_of_each, picture, request
from support.stories import apply, block_of
from test_safe_html import ATTACKS, assert_harmless

from freeact_sub import events
from freeact_sub.calls import CodeAction, McpCall, SpawnCall, ToolCall
from freeact_sub.cells import CellError, DisplayData, ExecuteResult, StreamText
from freeact_sub.config.budget import Usage
from freeact_sub.events.progress import PlanStep
from freeact_sub.notebook.render import (
    LIMITS,
    STYLE,
    moving_part,
    question_html,
    question_text,
    settled_part,
    shown_status,
    status_line,
)
from freeact_sub.show.blocks import GrowingText

CELL = {**ROOT, "tool_call_id": "call-1"}
NOW = 100.0


def block(*happened, header=None, **started):
    made = block_of(events.AgentStarted(**(header or ROOT), **{"prompt": "the prompt", "time": 90.0, **started}))
    for event in happened:
        apply(made, event)
    return made


def body(made):
    """The HTML of the body without the style sheet."""
    return settled_part(made)["text/html"].replace(STYLE, "")


def start_cell(code="print(1)"):
    return events.ToolCallStarted(**CELL, tool_name="execute_ipython_cell", args={"code": code})


def chunk(output):
    return events.CodeExecutionOutputChunk(**CELL, output=output)


def out(text, name="stdout"):
    return chunk(StreamText(name=name, text=text))


def end_cell(**kwargs):
    return events.CodeExecutionOutput(**CELL, **{"text": "", "status": "ok", **kwargs})


def finish(header=None, **kwargs):
    return events.AgentFinished(**(header or ROOT), **{"status": "completed", "output": "", **kwargs})


def test_every_event_of_an_agent_is_shown():
    first, *rest = one_of_each("readable")
    made = block_of(first)
    for event in rest:
        apply(made, event)
    shown = body(made) + moving_part(made, NOW)["text/html"]
    for part in (
        "readable",
        "denied: readable",
        "lost its kernel and all variables: readable",
        "cancelled",
        "answer readable",
        "limit",
        "$0.0123",
    ):
        assert part in shown, part
    text = settled_part(made)["text/plain"] + moving_part(made, NOW)["text/plain"]
    for part in ("readable", "denied: readable", "lost its kernel", "answer readable", "limit"):
        assert part in text, part


@pytest.mark.parametrize(
    "header", [{"agent_id": "agent-bbbb1111", "parent_id": None, "depth": 0}, CHILD], ids=["root", "child"]
)
def test_hostile_text_in_any_event_is_harmless(header):
    for attack in ATTACKS:
        first, *rest = [replace(event, **header) for event in one_of_each(attack)]
        made = block_of(first)
        for event in rest:
            apply(made, event)
        assert_harmless(body(made).replace(' style="margin-left:9px"', ""))
        foot = moving_part(made, NOW)["text/html"].replace(' style="margin-left:24px"', "")
        assert_harmless(foot.replace("background:#", "color:var(#"))
        for event in rest:
            if isinstance(event, events.ApprovalRequest):
                assert_harmless(question_html(event).replace(STYLE, ""))


def test_text_streams_in_the_foot_and_settles_in_the_body():
    made = block()
    assert apply(made, events.ResponseChunk(**ROOT, content="It is **4")) is False
    apply(made, events.ResponseChunk(**ROOT, content="2**"))
    assert "<strong>42</strong>" in moving_part(made, NOW)["text/html"]
    assert "42" not in body(made)
    assert apply(made, events.Response(**ROOT, content="It is **42**")) is True
    assert "42" not in moving_part(made, NOW)["text/html"]
    assert "<strong>42</strong>" in body(made)


def test_thoughts_of_the_root_are_folded_and_those_of_children_hidden():
    thinking = [events.ThoughtsChunk(**ROOT, content="hm"), events.Thoughts(**ROOT, content="hm, hm")]
    made = block(thinking[0])
    assert "thinking … hm" in moving_part(made, NOW)["text/html"]
    apply(made, thinking[1])
    assert "<details><summary>thoughts</summary>" in body(made)
    assert "hm, hm" in body(made)
    assert "hm" not in settled_part(made)["text/plain"]
    child = block(*(replace(event, **CHILD) for event in thinking), header=CHILD)
    assert "hm" not in body(child) + moving_part(child, NOW)["text/html"]


def test_output_of_a_running_cell_moves_to_the_body_when_it_is_settled():
    made = block(start_cell())
    assert apply(made, out("one\n")) is False
    assert "one" in moving_part(made, NOW)["text/html"]
    assert "one" not in body(made)
    assert apply(made, chunk(picture())) is True
    apply(made, out("two\n"))
    assert body(made).index("one") < body(made).index("<img")
    assert "two" in moving_part(made, NOW)["text/html"]
    assert "<img" not in moving_part(made, NOW)["text/html"]
    apply(made, end_cell(displays=(picture().data,)))
    assert body(made).count("<img") == 1
    assert body(made).index("<img") < body(made).index("two")
    assert "two" not in moving_part(made, NOW)["text/html"]


def test_displays_that_came_without_a_chunk_are_shown_at_the_end():
    made = block(start_cell(), out("x"), end_cell(displays=(picture().data,)))
    assert body(made).count("<img") == 1
    made = block(start_cell(), end_cell(text="all of it"))
    assert "all of it" in body(made)


def test_streams_errors_and_results_look_different():
    made = block(
        start_cell(),
        out("o1"),
        out("o2"),
        out("warned", "stderr"),
        chunk(ExecuteResult(data={"text/plain": "42", "text/html": "<table><tr><td>42</td></tr></table>"})),
        chunk(CellError(ename="E", evalue="v", traceback=("\x1b[31mE\x1b[0m: v",))),
        chunk(CellError(ename="Plain", evalue="no traceback")),
        end_cell(status="error"),
        events.ToolOutput(**CELL, tool_name="execute_ipython_cell", content="E: v for the model", outcome="failed"),
    )
    shown = body(made)
    assert '<pre class="fsub-text">o1o2</pre>' in shown
    assert '<pre class="fsub-stderr">warned</pre>' in shown
    assert "<td>42</td>" in shown
    assert '<pre class="fsub-error">E: v</pre>' in shown
    assert "Plain: no traceback" in shown
    assert "for the model" not in shown  # it stands there already


def test_a_display_is_updated_in_place_also_from_a_later_cell():
    def bar(text, *, update):
        return DisplayData(data={"text/plain": text}, display_id="bar", update=update)

    made = block(start_cell(), chunk(bar("10%", update=False)), chunk(bar("50%", update=True)), end_cell())
    assert "50%" in body(made)
    assert "10%" not in body(made)
    other = {**ROOT, "tool_call_id": "call-2"}
    apply(made, events.ToolCallStarted(**other, tool_name="execute_ipython_cell", args={"code": "more()"}))
    assert apply(made, events.CodeExecutionOutputChunk(**other, output=bar("100%", update=True))) is True
    assert (
        apply(made, events.CodeExecutionOutputChunk(**other, output=DisplayData(data={}, display_id="gone", update=True)))
        is False
    )
    assert body(made).index("100%") < body(made).index("more")


@pytest.mark.parametrize("status", ["timeout", "interrupted", "aborted", "kernel_lost"])
def test_how_a_cell_ended_is_told(status):
    made = block(start_cell(), end_cell(status=status, left_out_chars=1234, output_file="/w/out.txt"))
    assert f"the cell ended: {status.replace('_', ' ')}" in body(made)
    assert "1,234 characters of output are not shown" in body(made)
    assert "/w/out.txt" in body(made)


def test_a_cell_that_could_not_run_shows_why():
    made = block(
        start_cell(), events.ToolOutput(**CELL, tool_name="execute_ipython_cell", content="no kernel", outcome="failed")
    )
    assert "no kernel" in body(made)


@pytest.mark.parametrize(
    ("tool", "call"),
    [
        (start_cell("print(1)"), CodeAction(code="print(1)")),
        (events.ToolCallStarted(**CELL, tool_name="task", args={"prompt": "p"}), SpawnCall(prompt="p")),
        (events.ToolCallStarted(**CELL, tool_name="lookup", args={}), ToolCall(tool_name="lookup")),
        (events.ToolCallStarted(**CELL, tool_name="srv_add", args={}), McpCall(server="srv", tool="add")),
    ],
)
def test_a_question_about_a_call_stands_beside_it(tool, call):
    made = block(tool, request("q", call, **CELL))
    assert shown_status(made) == "waiting for you"
    assert body(made).count("fsub-asked") == 1
    assert "waiting for you" in body(made)
    apply(made, events.ApprovalDecided(**CELL, request_id="q", allowed=False, reason="too <risky>"))
    apply(made, events.ToolOutput(**CELL, tool_name="any", content="denied: too risky", outcome="denied"))
    assert shown_status(made) == "running"
    assert body(made).count("denied: too") == 1
    assert "denied: too &lt;risky&gt;" in body(made)


def test_a_question_from_inside_a_cell_says_what_it_is_about():
    made = block(start_cell("agent.mcp.srv.add(1)"), request("q", McpCall(server="srv", tool="add", args={"a": 1}), **CELL))
    assert "MCP srv.add(a=1)" in body(made)
    apply(made, events.ApprovalDecided(**CELL, request_id="q", allowed=True))
    assert "approved" in body(made)


def test_a_denial_without_a_question_is_shown():
    made = block(
        start_cell(), events.ToolOutput(**CELL, tool_name="x", content="denied: by the configuration", outcome="denied")
    )
    assert "denied: by the configuration" in body(made)


def test_a_finished_child_shows_its_answer_and_folds_the_rest():
    answer = events.Response(**CHILD, content="the **answer**")
    cell = [replace(event, **CHILD) for event in (start_cell("code_of_child()"), chunk(picture()), end_cell())]
    made = block(*cell, answer, header=CHILD, description="label of it")
    assert "<details><summary>1 call" not in body(made)
    apply(made, finish(CHILD, output="the **answer**"))
    folded, _, rest = body(made).rpartition("</details>")
    assert "<summary>1 call, 1 picture</summary>" in folded
    assert "code_of_child" in folded
    assert "<strong>answer</strong>" in rest
    assert body(made).count("<strong>answer</strong>") == 1
    assert "label of it" in body(made)


def test_an_answer_that_is_no_text_is_shown_too():
    made = block(finish(output='{"rows": 3}'))
    assert "{&quot;rows&quot;: 3}" in body(made)


def test_text_that_was_cut_off_is_kept():
    made = block(
        events.ResponseChunk(**ROOT, content="half an ans"), finish(status="cancelled", error="the run was cancelled")
    )
    assert "half an ans" in body(made)
    assert "the run was cancelled" in body(made)
    assert "half an ans" not in moving_part(made, NOW)["text/html"]


def test_the_status_line_has_the_step_of_a_strategy_while_it_is_at_work():
    step = events.StrategyProgress(**ROOT, strategy="<b>", strategy_id="d", step=2, of=6)
    made = block(step)
    assert status_line(made, NOW) == "running · <b>: 2 of 6 · 10 s"
    assert "<b>" not in moving_part(made, NOW)["text/html"]
    apply(made, replace(step, done=True))
    assert status_line(made, NOW) == "running · 10 s"


def test_the_status_line_tells_how_far_a_call_is():
    call = {**ROOT, "tool_call_id": "one"}
    made = block(events.ToolCallStarted(**call, tool_name="s_load", args={}))
    apply(made, events.ToolProgress(**call, tool_name="s_load", progress=3, total=10, message="<b>\x1b[2J"))
    assert status_line(made, NOW) == "running · s_load: 3 of 10, <b> · 10 s"
    assert "<b>" not in moving_part(made, NOW)["text/html"]
    apply(made, events.ToolOutput(**call, tool_name="s_load", content=""))
    assert status_line(made, NOW) == "running · 10 s"


def test_the_status_line_tells_what_was_spent():
    usage = Usage(turns=2, input_tokens=1000, output_tokens=234, cost_usd=Decimal("0.01"))
    made = block(events.UsageUpdated(**ROOT, usage=usage, tree_usage=usage + usage))
    assert status_line(made, NOW) == f"running · {usage} · with its children: {usage + usage} · 10 s"
    apply(made, finish(usage=usage, tree_usage=usage, seconds=12.34, status="kernel_lost"))
    assert status_line(made, NOW) == f"kernel lost · {usage}, 12.3 s"
    made.finished = replace(made.finished, files_written=("a.csv", "b.csv"))
    assert status_line(made, NOW) == f"kernel lost · {usage}, 12.3 s · files written: a.csv, b.csv"
    made.finished = replace(made.finished, files_written=())


def test_what_still_changes_says_of_when_it_is():
    """A page that is not drawn any more can be seen to stand still."""
    made = block()
    drawn = time.strftime("%H:%M:%S", time.localtime(NOW))
    assert f"running · 10 s · as of {drawn}" in moving_part(made, NOW)["text/html"]
    assert f"running · 10 s · as of {drawn}" in moving_part(made, NOW)["text/plain"]
    apply(made, finish())
    assert "as of" not in moving_part(made, NOW)["text/html"] + moving_part(made, NOW)["text/plain"]


def test_a_queued_agent_runs_from_its_first_event_on():
    made = block(queued=True)
    assert status_line(made, NOW) == "queued · 10 s"
    apply(made, events.ResponseChunk(**ROOT, content="x"))
    assert shown_status(made) == "running"


def test_progress_bars_overwrite_themselves():
    made = block(start_cell(), *(out(f"\r{n}%") for n in range(0, 101, 10)))
    assert "100%" in moving_part(made, NOW)["text/html"]
    assert "10%" not in moving_part(made, NOW)["text/html"].replace("100%", "")


def test_a_growing_output_shows_its_newest_lines():
    made = block(start_cell(), out("".join(f"line {n}\n" for n in range(100))))
    assert "line 99" in moving_part(made, NOW)["text/html"]
    assert "line 9\n" not in moving_part(made, NOW)["text/html"]
    assert "88 lines above" in moving_part(made, NOW)["text/html"]
    apply(made, end_cell())
    assert "line 9\n" in body(made)


def test_text_keeps_head_and_tail():
    text = GrowingText("text", limit=100)
    for n in range(1000):
        text.add(f"{n:04}")
    shown = str(text)
    assert shown.startswith("00000001")
    assert shown.endswith("09980999")
    assert "characters left out" in shown
    assert len(shown) < 250


@pytest.mark.slow
def test_a_block_is_bounded_whatever_happens():
    made = block()
    for n in range(400):
        header = {**ROOT, "tool_call_id": f"call-{n}"}
        apply(made, events.ToolCallStarted(**header, tool_name="execute_ipython_cell", args={"code": f"cell_{n}()"}))
        for name in ("stdout", "stderr") * 40:
            apply(made, events.CodeExecutionOutputChunk(**header, output=StreamText(name=name, text="y" * 1000)))
        for m in range(60):
            asked = McpCall(server="s", tool="t", args={"m": m})
            apply(made, events.ApprovalRequest(**header, request_id=f"{n}-{m}", call=asked))
            apply(made, events.ApprovalDecided(**header, request_id=f"{n}-{m}", allowed=True))
        apply(made, events.CodeExecutionOutputChunk(**header, output=DisplayData(data={"image/png": "A" * 800_000})))
        apply(made, events.CodeExecutionOutput(**header, text="", status="ok"))
    shown = body(made)
    assert "cell_0<" in shown.replace("</span>", "<") or "cell_0()" in shown
    assert "cell_399" in shown
    assert "330 steps left out" in shown
    assert len(made.items) == LIMITS.first + LIMITS.last
    assert shown.count("<img") == 7  # of 800 kB each
    assert len(shown) < LIMITS.display_chars + 4_000_000


def test_the_question_shows_all_that_is_asked():
    code = "\n".join(f"line_{n}()" for n in range(500)) + "\nhidden = '\u202e'"
    asked = request("q", CodeAction(code=code))
    assert question_text(asked).count("line_") == 500
    assert "\\u202e" in question_text(asked)
    assert question_html(asked).count("line_") == 500
    mcp = request("q", McpCall(server="files", tool="write", args={"path": "/tmp/x", "text": "a<b"}))
    assert "asks to call write of the MCP server files" in question_text(mcp)
    assert "path = /tmp/x" in question_text(mcp)
    assert "a&lt;b" in question_html(mcp)
    spawn = replace(request("q", SpawnCall(prompt="look at it", description="north")), path=("agent-1", "agent-2 (x)"))
    assert question_text(spawn) == "agent-1 → agent-2 (x): asks to start a child agent (north)\n    look at it"
    assert "asks to call lookup" in question_text(request("q", ToolCall(tool_name="lookup")))


def test_a_plan_stands_once_and_changes_in_its_place():
    call = {**ROOT, "tool_call_id": "plan-1", "tool_name": "update_plan"}

    def told(*states):
        steps = tuple(PlanStep(step=f"do <b>{number}</b>", status=state) for number, state in enumerate(states))
        return [
            events.ToolCallStarted(**call, args={"plan": []}),
            events.PlanUpdated(**ROOT, tool_call_id="plan-1", steps=steps),
            events.ToolOutput(**call, content="The user sees the plan."),
        ]

    made = block(*told("in_progress", "pending"), events.Response(**ROOT, content="I begin."), *told("completed", "failed"))
    for shown in (settled_part(made)["text/plain"], body(made)):
        assert shown.count("Plan: 1 of 2 done") == 1
        assert "update_plan" not in shown
        assert "The user sees" not in shown
        assert shown.index("Plan") < shown.index("I begin.")
    assert "\u2713 do <b>0</b>\n\u2717 do <b>1</b>" in settled_part(made)["text/plain"]
    assert "do &lt;b&gt;0" in body(made)
    apply(made, finish())
    apply(made, events.AgentStarted(**ROOT, prompt="again"))
    for event in told("pending"):
        apply(made, event)
    assert settled_part(made)["text/plain"].count("Plan: ") == 2, "each run has its own"
