"""Cells of magics that fail are errors with a sentence, also below other magics; what can be taken over is taken over."""

import pytest
from notebook_kernel import notebook_kernel
from support.chat_server import ChatCall, ChatServer, HttpError, by_turn

pytestmark = pytest.mark.kernel

CELL = [ChatCall("execute_ipython_cell", {"code": "print('ran')"})]
CHANGES = """
made = (each for each in range(3))
class Once:
    def __reduce__(self): return (int, ("no number",))
once, n, log = Once(), 5, open("log.txt", "w")
shared = [1]; again = shared
"""


def failing(request):
    """Replies by the first word of the last prompt."""
    prompts = [message["content"] for message in request["messages"] if message["role"] == "user"]
    word = str(prompts[-1] if isinstance(prompts[-1], str) else prompts[-1][0]["text"]).split()[0].strip(".")
    if request["messages"][-1]["role"] == "tool":
        return ["done"]
    return HttpError(404, "no such model") if word == "Refuse" else CELL if word == "Act" else ["fine"]


def why(page):
    """The one line of an error, as programs get it that run notebooks."""
    (error,) = [output for output in page.outputs if output["type"] == "error"]
    assert page.reply["status"] == "error"
    assert error["traceback"] == [f"{error['evalue']}"]
    assert "SyntaxError" not in error["ename"]
    return error["evalue"]


async def test_a_run_that_did_not_succeed_is_an_error_of_its_cell(tmp_path):
    async with ChatServer(failing) as server, notebook_kernel(tmp_path) as notebook:
        await notebook.run("%load_ext freeact_sub.notebook")
        model = f"--model openai-chat:local --base-url {server.base_url}"
        refused = await notebook.run(f"%%agent {model} --out result\nRefuse it.")
        result = await notebook.run("print(result.status)")
        denied = await notebook.run(f"%%agent --name asks --mode ask {model}\nAct.", answer=False)
        by_hand = await notebook.run("%%agent --name asks\nAct.", answer=lambda _: "n")
        limited = await notebook.run(f"%%agent --name few --mode auto --max-turns 1 {model}\nAct.", answer=lambda _: "2")
        unknown = await notebook.run("%%agent --name other --no-such-option\nAct.")
        empty = await notebook.run("%agent_discard --name nobody")
        fine = await notebook.run("%%agent --name asks\nHello.")
    assert "%%agent: the run did not complete (failed): " in why(refused)
    assert "no such model" in why(refused)
    assert result.text.strip() == "failed"
    assert "nobody was there to ask" in why(denied)
    assert by_hand.reply["status"] == "ok", "a person has said no, and the agent has answered"
    assert "asks you: The limit of turns is reached: 1 of 1, for this prompt." in limited.text
    assert "the run did not complete (limit)" in why(limited)
    assert "%%agent: unrecognized arguments: --no-such-option" in why(unknown)
    assert "no cell has started nobody" in why(empty)
    assert fine.reply["status"] == "ok"


async def test_where_a_magic_cannot_be_awaited_a_sentence_says_so_and_texts_are_left_alone(tmp_path):
    agent, adopt = "%%agent\nHello.", "%agent_adopt --yes"
    nowhere = {
        "time line": f"%%time\nx = 1\n{adopt}",
        "prun": f"%%prun -q\n{agent}",
        "captured line": f"%%capture\nx = 1\n{adopt}",
        "timeit": f"%%timeit -n1 -r1\n{agent}",
        "line": f"%time {adopt}",
        "function": f"def f():\n    {adopt}\nf()",
        "lambda": "(lambda: get_ipython().run_cell_magic('agent', '', 'Hello.'))()",
        "class": f"class C:\n    {adopt}",
        "method": f"class C:\n    async def g(self):\n        def h():\n            {adopt}\n        h()\nawait C().g()",
        "cell in a cell": f"get_ipython().run_line_magic('time', {adopt!r})",
    }
    works = {
        "async": f"async def f():\n    {adopt}\nawait f()",
        "if": f"if True:\n    with open('f', 'w') as file:\n        {adopt}",
        "assigned": f"é = 'é'; x = 1\nx = {adopt}",
        "awaited": "await get_ipython().run_line_magic('agent_adopt', '--yes')",
    }
    texts = {
        "a": "print(\"get_ipython().run_cell_magic('agent', '', 'x')\")",
        "b": "s = '''\n%%agent\nHello.\n'''\nprint(s)\n%time 1",
        "c": "%%writefile notes.txt\n%%agent\nHello.",
        "d": "%%writefile code.txt\nget_ipython().run_line_magic('agent_wait', '')",
    }
    async with ChatServer(lambda _: ["fine"]) as server, notebook_kernel(tmp_path) as notebook:
        await notebook.run("%load_ext freeact_sub.notebook")
        await notebook.run(f"%%agent --model openai-chat:local --base-url {server.base_url}\nHello.")
        for name, code in nowhere.items():
            page = await notebook.run(code)
            assert "cannot run here, for nothing can wait for it" in page.text, (name, page.text)
            assert page.reply["status"] == "error", name
            assert "SyntaxError" not in page.text, name
        assert len(server.requests) == 1
        for name, code in works.items():
            page = await notebook.run(code)
            assert page.text.startswith("Nothing to take over"), (name, page.text)
            assert page.reply["status"] == "ok", name
        shown = {name: await notebook.run(code) for name, code in texts.items()}
    assert {page.reply["status"] for page in shown.values()} == {"ok"}
    assert shown["a"].text.strip() == "get_ipython().run_cell_magic('agent', '', 'x')"
    assert "%%agent\nHello." in shown["b"].text
    assert (tmp_path / "notes.txt").read_text() == "%%agent\nHello.\n"
    assert (tmp_path / "code.txt").read_text() == "get_ipython().run_line_magic('agent_wait', '')\n"


async def test_time_and_capture_stand_above_a_prompt(tmp_path):
    act = [ChatCall("execute_ipython_cell", {"code": "1 + 1"})]
    async with ChatServer(by_turn(*[act, ["fine"]] * 3)) as server, notebook_kernel(tmp_path) as notebook:
        await notebook.run("%load_ext freeact_sub.notebook")
        model = f"--model openai-chat:local --base-url {server.base_url} --mode ask"
        timed = await notebook.run(f"%%time\n%%agent {model}\nAct.", answer=lambda _: "y")
        captured = await notebook.run("%%capture shown\n%%agent --out result\nAct {x} 'once' more.", answer=lambda _: "y")
        both = await notebook.run("%%time\n%%capture\n%%agent\nAct.", answer=lambda _: "n")
        state = await notebook.run("print(result.status, any('fine' in str(output.data) for output in shown.outputs))")
        failed = await notebook.run("%%capture\n%%agent --no-such-option\nAct.")
    pages = {"timed": timed, "captured": captured, "both": both}
    assert {name: page.reply["status"] for name, page in pages.items()} == dict.fromkeys(pages, "ok")
    assert "Wall time: " in timed.text
    assert "Wall time: " in both.text
    assert "fine" in timed.text
    assert "fine" not in captured.text, "it is in the captured output"
    assert state.text.split() == ["completed", "True"]
    assert "unrecognized arguments: --no-such-option" in why(failed)


async def test_all_that_can_be_taken_over_is_and_what_was_named_must_be(tmp_path):
    call = [ChatCall("execute_ipython_cell", {"code": CHANGES})]
    async with ChatServer(by_turn(call, ["done"])) as server, notebook_kernel(tmp_path) as notebook:
        await notebook.run("%load_ext freeact_sub.notebook\nn = 1")
        await notebook.run(f"%%agent --mode full --model openai-chat:local --base-url {server.base_url}\nMake them.")
        everything = await notebook.run("%agent_adopt --yes")
        there = await notebook.run("print(n, shared is again, 'made' in globals(), 'once' in globals())")
        named = await notebook.run("%agent_adopt n made --yes")
    assert everything.reply["status"] == "ok", everything.text
    assert "Left out: " in everything.text
    for name in ("made: generator cannot be pickled", "once: it cannot be read here: ValueError", "log: "):
        assert name in everything.text
    assert there.text.strip() == "5 True False False"
    assert "made: generator cannot be pickled" in why(named)
    assert "Taken over: n" in named.text


@pytest.mark.parametrize(
    "mine",
    [
        "agent = 5",
        "def agent(): return 1",
        "from freeact_sub import Agent, Config\nagent = Agent(Config(model='test'))",
        "import json as agent",
        "class Strange:\n    def __eq__(self, other): raise ValueError\n    __hash__ = None\nagent = Strange()",
    ],
)
async def test_the_agents_own_object_wins_in_its_copy(tmp_path, mine):
    code = "print('KIND', hasattr(agent, 'ask_user'), hasattr(agent, 'mcp'), agent is __builtins__.agent, y)\ny = 3"
    call = [ChatCall("execute_ipython_cell", {"code": code})]
    async with ChatServer(by_turn(call, ["done"], call, ["done"])) as server, notebook_kernel(tmp_path) as notebook:
        await notebook.run(f"%load_ext freeact_sub.notebook\ny = 2\n{mine}\nkept = agent")
        first = await notebook.run(f"%%agent --mode full --model openai-chat:local --base-url {server.base_url}\nLook.")
        adopted = await notebook.run("%agent_adopt --yes")
        second = await notebook.run("%%agent\nLook.")
        named = await notebook.run("%agent_adopt agent --yes")
        same = await notebook.run("print(agent is kept, y)")
    assert "KIND True True True 2" in first.html, first.text + first.html
    assert first.text.count("`agent` is the agent's own object") == 1
    assert "KIND True True True 3" in second.html
    assert "is the agent's own object" not in second.text
    assert adopted.text.strip() == "Taken over: y"
    assert why(named) == "%agent_adopt: agent: each kernel has its own, which is not taken over"
    assert same.text.strip() == "True 3"
