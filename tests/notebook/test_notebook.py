"""The notebook as its user has it: a real ipykernel, cells over Jupyter's protocol, agents with real kernels."""

import itertools
import json
import re
import time
from pathlib import Path

import nbformat
import pytest
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from notebook_kernel import NotebookCell, note_hooks, notebook_kernel
from support.chat_server import ChatCall, ChatServer, by_turn
from support.waiting import LOADED_MACHINE_SECONDS, eventually, is_running, until_there

pytestmark = pytest.mark.kernel

PLOT = """
from IPython.display import Image, HTML, display
import base64
display(Image(base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="), format="png"))
display(HTML("<table><tr><td onclick='alert(1)'>cell of a table</td></tr></table><script>alert(1)</script>"))
"""

SETUP = f"""
%load_ext freeact_sub.notebook
import asyncio
from freeact_sub import Agent, Config
from freeact_sub.testing import FakeKernelProvider, ScriptedModel
from pydantic_ai.messages import ThinkingPart, ToolCallPart

def cell(code): return ToolCallPart("execute_ipython_cell", {{"code": code}})
def task(prompt): return ToolCallPart("task", {{"prompt": prompt, "description": prompt}})
PLOT = {PLOT!r}

async def start(script, provider=None, **config):
    return await Agent(Config(**config), model=ScriptedModel(script), kernel_provider=provider).__aenter__()
"""


async def run_by_nbclient(folder, *sources):
    """Run a notebook as nbconvert and papermill do; nobody can be asked."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    (folder / "sockets").mkdir()
    manager = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=str(folder / "sockets/k"))
    client = NotebookClient(notebook, km=manager, timeout=240, resources={"metadata": {"path": str(folder)}})
    await client.async_execute(cleanup_kc=True)
    return ["\n".join(output.get("data", {}).get("text/html", "") for output in cell.outputs) for cell in notebook.cells]


async def test_nbclient_runs_a_notebook(tmp_path):
    _, first, second, headless, _ = await run_by_nbclient(
        tmp_path,
        SETUP
        + "talker = await start({'Plot': [[ThinkingPart('hm'), cell(PLOT)], 'The **plot**.', 'Again.']}, mode='full')\n"
        "asker = await start([cell('print(1)'), 'Then not.'])",
        "%%agent --name talker --out result\nPlot it.",
        "%%agent --name talker\nAnd now?",
        "result = await display_run(asker, 'May I?')\nassert result.status == 'completed', result",
        "assert result.output == 'Then not.'\nassert len(talker.history) == 6\nawait talker.aclose()\nawait asker.aclose()",
    )
    assert '<img class="fsub-picture" alt="picture" src="data:image/png;base64,iVBOR' in first
    assert "<td>cell of a table</td>" in first
    assert "<script" not in first
    assert "<strong>plot</strong>" in first
    assert "<summary>thoughts</summary>" in first
    assert "completed" in first
    assert "Again." in second
    assert "denied: nobody can answer" in headless
    assert "Then not." in headless


async def test_text_questions_are_answered_one_after_another_while_the_others_go_on(tmp_path):
    async with notebook_kernel(tmp_path) as notebook:
        await notebook.run(
            f"{SETUP}BUSY = {until_there('go')!r}\n"
            "agent = await start({'root': [[task('busy'), task('asker')], 'done'], 'busy': [cell(BUSY), 'busy done'], 'asker': [cell('1 + 1'), cell('2 + 2'), 'asker done']})"
        )
        page = NotebookCell()
        seen_while_asked = []

        def answer(prompt):
            seen_while_asked.append(page.html)
            if "2 + 2" in prompt:
                (tmp_path / "go").touch()
                return "only once"
            return "" if len(notebook.asked) == 2 else "y"  # an empty line decides nothing: the question comes again

        await notebook.run("%%agent --name agent\nroot", answer=answer, cell=page)
        await notebook.run("await agent.aclose()")
    assert page.reply["status"] == "ok"
    assert notebook.asked[1] == notebook.asked[2]
    assert sum("asks to start a child agent (busy)" in prompt for prompt in notebook.asked) >= 1
    assert any("2 + 2" in prompt and "yes / no / always" in prompt for prompt in notebook.asked)
    assert "denied: only once" in page.html
    assert "asker done" in page.html
    assert "busy done" in page.html


async def test_the_page_goes_on_while_a_question_waits(tmp_path):
    async with notebook_kernel(tmp_path) as notebook:
        await notebook.run(
            SETUP
            + "agent = await start({'root': [[task('busy'), task('asker')], 'done'], 'busy': ['busy is done'], 'asker': [cell('1 + 1'), 'asker done']}, FakeKernelProvider())"
        )
        async with notebook.running("await display_run(agent, 'root')", answer=True, cell_id="cell-1") as page:
            await notebook.click("Always in this session")
            await page.wait_for(lambda page: "busy is done" in page.html and page.html.count("waiting for you") == 2)
            await notebook.click("Approve")
        await notebook.run("await agent.aclose()")
    assert "asker done" in page.html


async def test_a_page_without_widgets_is_asked_as_text(tmp_path):
    async with notebook_kernel(tmp_path) as notebook:
        await notebook.run(SETUP + "agent = await start([cell('1 + 1'), 'done'], FakeKernelProvider())")
        async with notebook.running("%%agent --name agent\nroot", answer=lambda _: "y", cell_id="cell-1") as page:
            await notebook.widgets(description="Approve")
            notebook.refuse_widgets()
        await notebook.run("await agent.aclose()")
    assert len(notebook.asked) == 1
    assert "approved" in page.html
    assert page.reply["status"] == "ok"


@pytest.mark.parametrize(
    "turn", ["[asyncio.Event()]", "[cell('sum(range(10**12))')]", "[task('child')]"], ids=["model", "loop", "child"]
)
async def test_an_interrupted_cell_cancels_its_run(tmp_path, turn):
    agents = 2 if "task" in turn else 1
    async with notebook_kernel(tmp_path) as notebook:
        await notebook.run(SETUP + f"agent = await start({{'root': [{turn}], 'child': [asyncio.Event()]}}, mode='full')")
        async with notebook.running("await display_run(agent, 'root')\nprint('not reached')") as page:
            await page.wait_for(
                lambda page: page.html.count('class="fsub-head"') == agents and ("sum" not in turn or "range" in page.html)
            )
            await notebook.interrupt()
            interrupted = time.monotonic()
        seconds = time.monotonic() - interrupted
        after = await notebook.run("print(agent.agents()[-1].status)\nawait agent.aclose()")
    assert page.reply["status"] == "error"
    assert page.outputs[-1]["traceback"] == ["interrupted: the run was cancelled"]
    assert "not reached" not in page.text
    assert page.html.count('fsub-dot" style="background:#d03434"') == agents
    assert "running" not in page.html
    assert after.text.strip() == "cancelled"
    assert seconds < LOADED_MACHINE_SECONDS


async def test_an_interrupt_takes_an_open_question_back(tmp_path):
    async with notebook_kernel(tmp_path) as notebook:
        await notebook.run(
            SETUP + "first, second = [await start([cell('1 + 1'), 'done'], FakeKernelProvider()) for _ in range(2)]"
        )
        async with notebook.running("await display_run(first, 'root')", answer=True) as page:
            assert "1 + 1" in await notebook.next_question()
            await notebook.interrupt()
        assert "denied: cancelled" in page.html
        notebook.client.input("y")  # too late: it must not approve the next question
        async with notebook.running("await display_run(second, 'root')", answer=True) as page:
            assert "1 + 1" in await notebook.next_question()
            notebook.client.input("only this once not")
        await notebook.run("await first.aclose()\nawait second.aclose()")
    assert "denied: only this once not" in page.html


async def test_two_agents_ask_and_one_is_allowed_in_the_project_with_a_pattern_of_the_persons_own(tmp_path):
    async with notebook_kernel(tmp_path) as notebook:
        await notebook.run(
            SETUP
            + "agent = await start({'root': [[task('north'), task('south')], 'done'], 'north': [cell('1 + 1'), 'north done'], 'south': [cell('20 + 3'), 'south done']}, FakeKernelProvider())"
        )
        async with notebook.running("await display_run(agent, 'root')", answer=True, cell_id="cell-1") as page:
            _, south = await notebook.questions(2)
            await notebook.type(south.pattern, "git push")
            await notebook.click(south.project)
            await notebook.wait(
                lambda: any("does not begin with a kind" in str(comm.get("value")) for comm in notebook.comms.values())
            )
            await notebook.type(south.pattern, "spawn")
            await notebook.click(south.project)
            north, south = sorted(await notebook.questions(2, about="+"), key=lambda question: "(south)" in question.html)
            await notebook.click(south.approve)
            await page.wait_for(lambda page: "south done" in page.html)
            assert "north done" not in page.html
            await notebook.type(north.reason, "not now")
            await notebook.click(north.deny)
        gone = await notebook.run(
            "await agent.aclose()\nfrom ipywidgets.widgets.widget import _instances\nprint(len(_instances))"
        )
    assert "denied: not now" in page.html
    assert "vnd.jupyter.widget" not in json.dumps(page.outputs)  # a saved notebook keeps no dead buttons
    assert gone.text.strip() == "0"
    assert (tmp_path / ".freeact/permissions.toml").read_text().split() == ["allow", "=", "[", '"spawn",', "]"]


async def test_many_lines_are_drawn_seldom(tmp_path):
    async with notebook_kernel(tmp_path) as notebook:
        await notebook.run(
            SETUP
            + "agent = await start([cell('import time\\nfor n in range(150):\\n    print(n); time.sleep(.01)'), 'done'], mode='full')"
        )
        page = await notebook.run("result = await display_run(agent, 'root')")
        await notebook.run("await agent.aclose()")
    assert len(page.updates) == 2  # the body and the foot of one agent
    for times in page.updates.values():
        *steady, _ = times  # the last state is drawn at once
        assert all(later - earlier > 0.05 for earlier, later in itertools.pairwise(steady))
    assert "149" in page.html


async def test_a_cell_starts_an_agent_of_its_own_that_ends_with_the_kernel(tmp_path):
    script = by_turn(
        ["ok ", ChatCall("execute_ipython_cell", {"code": "import os; print('PID', os.getpid())"})],
        ["first answer"],
        ["second answer"],
    )
    async with ChatServer(script) as server:
        async with notebook_kernel(tmp_path) as notebook:
            loaded = await notebook.run("%load_ext freeact_sub.notebook")
            options = f"--model openai-chat:local --base-url {server.base_url}"
            too_soon = await notebook.run("%agent_show")
            first = await notebook.run(f"%%agent {options}\nFirst", answer=lambda _: "yes")
            again = await notebook.run("%agent_show")
            second = await notebook.run("%%agent\nSecond", answer=lambda _: "yes")
            helped = await notebook.run("%%agent --help\nx")
            wrong = [
                await notebook.run(source)
                for source in (
                    "%%agent --model openai-chat:other\nx",
                    "%%agent\n\n",
                    "%%agent --wrong\nx",
                    "%%agent --mode full\nx",
                    "%%agent --mode fast --name helper\nx",
                    "%%agent --max-turns 0 --name helper\nx",
                    "%%agent --workspace nowhere --name helper\nx",
                    "%%agent --mod openai-chat:other --name helper\nx",
                    "%%agent --name 'x\nx",
                    "%%agent --name helper --model nonsense:model\nx",
                    "%agent_close helper",
                )
            ]
            pid = int(re.search(r"PID (\d+)", first.html)[1])
            assert is_running(pid)
        await eventually(lambda: not is_running(pid))
        assert [message["content"] for message in server.requests[-1]["messages"] if message["role"] == "user"] == [
            "First",
            "Second",
        ]
    assert loaded.reply["status"] == "ok"
    assert "first answer" in first.html
    assert "no run has been shown" in too_soon.text
    assert again.html == first.html
    assert "second answer" in second.html
    assert "--base-url" in helped.text
    for cell in wrong:
        assert cell.reply["status"] == "error"
    messages = [cell.text for cell in wrong]
    assert "%agent_close agent` first" in messages[0]
    assert "write the prompt below" in messages[1]
    assert "--wrong" in messages[2]
    assert "'agent' was started with other settings (--mode)" in messages[3]
    assert "--mode" in messages[4]
    assert "1 or more" in messages[5]
    assert "nowhere is not a directory" in messages[6]
    assert "unrecognized arguments: --mod" in messages[7]
    assert "No closing quotation" in messages[8]
    assert "nonsense" in messages[9]
    assert "no cell has started an agent 'helper' (there are: agent)" in messages[10]
    assert all("Traceback" not in message for message in messages)
    assert not list(Path(tmp_path).glob("**/core*"))


async def test_agents_are_closed_to_the_end_when_the_kernel_shuts_down(tmp_path):
    hooks = {"SessionEnd": [{"hooks": [{"type": "command", "command": "sleep 0.5; touch closed"}]}]}
    (tmp_path / ".agents").mkdir()
    (tmp_path / ".agents" / "hooks.json").write_text(json.dumps({"hooks": hooks}))
    async with ChatServer(by_turn(["answer"])) as server, notebook_kernel(tmp_path) as notebook:
        await notebook.run("%load_ext freeact_sub.notebook")
        cell = await notebook.run(f"%%agent --trust --model openai-chat:local --base-url {server.base_url}\nHello")
        assert not (tmp_path / "closed").exists()
        group = "import os, psutil\nprint([p for p in psutil.Process().children() if os.getpgid(p.pid) == os.getpgrp()])"
        assert (await notebook.run(group)).text == "[]\n", "ipykernel would wait for it when it shuts down"
    assert "answer" in cell.html
    await eventually(lambda: (tmp_path / "closed").exists())


async def test_the_options_of_the_command_line_stand_behind_the_magic(tmp_path):
    """Also abbreviations: `--mode` was taken for `--model`."""
    script = by_turn(
        [ChatCall("execute_ipython_cell", {"code": "import os; print('IN', os.path.basename(os.getcwd()))"})], ["done"]
    )
    (tmp_path / "inner").mkdir()
    async with ChatServer(script) as server, notebook_kernel(tmp_path) as notebook:
        await notebook.run("%load_ext freeact_sub.notebook")
        options = f"--model openai-chat:local --base-url {server.base_url} --workspace inner --sandbox off"
        full = await notebook.run(f"%%agent --name a {options} --mode full --max-turns 7\nx")
        yes = await notebook.run(f"%%agent --name b {options} --yes\nx")
        short = await notebook.run(f"%%agent --name c {options} --yes --max-turns 1 --out result\nx")
        ended = await notebook.run("print(result.status)\n%agent_close")
        await notebook.run("%agent_close")
    assert not notebook.asked
    assert "IN inner" in full.html
    assert "IN inner" in yes.html
    assert "limit" in short.html
    assert ended.text.startswith("limit")


async def test_agent_close_ends_the_kernel_and_the_conversation(tmp_path):
    script = by_turn([ChatCall("execute_ipython_cell", {"code": "import os; print('PID', os.getpid())"})], ["answer"])
    async with ChatServer(script) as server, notebook_kernel(tmp_path) as notebook:
        cells = [
            "%load_ext freeact_sub.notebook\nimport os\nos.environ['FREEACT_MODE'] = 'full'",
            f"%%agent --name helper --trust --model openai-chat:local --base-url {server.base_url} --out result\nHello",
            "for _ in range(1):\n    %agent_close helper\nprint(result.output, result.status)",
            "%agent_close",
            "%unload_ext freeact_sub.notebook\nprint('agent' in get_ipython().magics_manager.magics['cell'])",
        ]
        (tmp_path / ".freeact").mkdir()
        (tmp_path / ".freeact" / "config.toml").write_text("instructions = 'Be brief.'")
        heard = note_hooks(tmp_path)
        await notebook.run("%load_ext freeact_sub.notebook")
        untrusted = await notebook.run("%%agent --model openai-chat:local\nHello")
        assert all(text in untrusted.text for text in ("since a person last reviewed them", "--trust", "hooks.json"))
        pages = [await notebook.run(source) for source in cells]
        pid = int(re.search(r"PID (\d+)", pages[1].html)[1])
        assert not is_running(pid)
    assert pages[2].text.strip() == "answer completed"
    assert [page.reply["status"] for page in pages] == ["ok"] * 5
    assert pages[4].text.strip() == "False"
    assert heard() == ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd"]


BACKGROUND = f"""{SETUP}
def started(**options): return ToolCallPart("task", {{"prompt": "child", "background": True, **options}})
go = asyncio.Event()
async def ended():
    go.set()
    await page._task  # it ends when all is drawn
from freeact_sub.notebook import display
"""


@pytest.mark.parametrize(
    "meanwhile", ["None", "asyncio.get_running_loop().call_soon(go.set); await display_run(agent, 'again')"]
)
async def test_a_background_child_is_drawn_where_it_was_started(tmp_path, meanwhile):
    script = "{'root': [[started()], 'started'], 'again': [[cell('1')], 'again'], 'child': [[go, cell('print(6 * 7)')], 'the child is done']}"
    async with notebook_kernel(tmp_path) as notebook:
        await notebook.run(f"{BACKGROUND}agent = await start({script}, mode='full')")
        first = await notebook.run("await display_run(agent, 'root'); page = display._latest[0]")
        assert "the child is done" not in first.html
        others = [
            await notebook.run(code)
            for code in (meanwhile, "await ended()", "assert display._living == {}; await agent.aclose()")
        ]
    assert "the child is done" in first.html
    assert '<pre class="fsub-text">42' in first.html
    assert [(other.reply["status"], "child is done" in other.html) for other in others] == [("ok", False)] * 3


async def test_what_a_background_child_asks_while_no_cell_runs_is_denied(tmp_path):
    script = "{'root': [[started(mode='ask')], 'started'], 'child': [[go, cell('1')], 'the child is done']}"
    async with notebook_kernel(tmp_path) as notebook:
        await notebook.run(f"{BACKGROUND}agent = await start({script}, mode='full')")
        await notebook.run("await display_run(agent, 'root'); page = display._latest[0]", answer=True)
        page = await notebook.run(
            "await ended(); print(display.settled_part([*page.stories.by_id.values()][1])['text/plain'])"
        )
        await notebook.run("await agent.aclose()")
    assert "denied" in page.text
    assert "the child is done" in page.text
