"""`%%agent` works on a copy of the notebook's kernel: what it changes is shown, and taken over by name."""

import hashlib
import os
from pathlib import Path

import pytest
from notebook_kernel import notebook_kernel
from support.chat_server import ChatCall, ChatServer, by_turn
from support.waiting import eventually, is_running

pytestmark = pytest.mark.kernel

MINE = """
%load_ext freeact_sub.notebook
import numpy as np, pandas as pd
df = pd.DataFrame({"a": range(1000), "b": 1.5})
class Point:
    def __init__(self, x): self.x = x
p, x, gone, api_key = Point(1), 3, [1, 2], "do not pass on"
rows = [df]
log = open("log.txt", "w")
log.write("begun ")
"""
DIGEST = "print(list(df.columns), p.x, x, gone, 'q' in globals(), np.random.get_state()[1][:3].sum(), len(In) - len(In))"
WORK = """
df["c"] = df.a * 2
p.x = 7
q = Point(9)
x += 1
del gone
import json
from math import sqrt
conn = (i for i in range(3))
def double(n): return n * x
try:
    log.write("by the copy")
    log.flush()
except OSError as error:
    print("not written:", error)
"""


def cell(code):
    return [ChatCall("execute_ipython_cell", {"code": code})]


async def test_the_agent_changes_a_copy_and_the_user_takes_over_what_he_likes(tmp_path):
    script = by_turn(
        cell(WORK), ["done"], cell("print('c' in df, x, 'q' in globals())"), ["goes on"], cell("print(q.x, x)"), ["anew"]
    )
    async with ChatServer(script) as server, notebook_kernel(tmp_path) as notebook:
        await notebook.run(MINE)
        before = await notebook.run(DIGEST)
        options = f"--model openai-chat:local --base-url {server.base_url} --yes"
        first = await notebook.run(f"%%agent {options}\nWork on $df.")
        diff = await notebook.run("%agent_diff")
        code = await notebook.run("%agent_code")
        assert diff.reply["status"] == "ok", first.html[-3000:] + first.text[-1500:] + diff.text
        second = await notebook.run("%%agent\nWhat is there?")
        after = await notebook.run(DIGEST)
        unasked = await notebook.run("%agent_adopt df, p, q", answer=lambda _: "n")
        adopted = await notebook.run("%agent_adopt df, p, q --yes")
        kept = await notebook.run("print(list(df.columns), p.x, isinstance(q, Point), isinstance(p, Point), x, gone)")
        rest = await notebook.run("%agent_adopt --yes")
        done = await notebook.run("print(x, double(2), 'gone' in globals(), json.dumps(1), log.closed)")
        log = Path(tmp_path, "log.txt")
        third = await notebook.run("log.flush()\nlog_text = open('log.txt').read()")
        anew = await notebook.run("%%agent\nWhat is there now?")
        await notebook.run("%agent_discard")
        nothing = await notebook.run("%agent_adopt q")
        await notebook.run("%agent_close")
        prompt = next(m["content"] for m in server.requests[0]["messages"] if m["role"] == "user")
    assert first.reply["status"] == "ok", first.text
    assert before.text == after.text, "nothing has changed in the notebook"
    table = first.html[first.html.index("fsub-changes") :]
    for row in (
        "df</td><td>pandas.DataFrame 1000 x 2</td><td>pandas.DataFrame 1000 x 3: column &#x27;c&#x27; new",
        "x</td><td>int 3</td><td>int 4",
    ):
        assert row in table
    for name in ("p", "q", "gone", "conn", "double", "rows"):
        assert f"<td>{name}</td>" in table
    assert "new imports: json, sqrt" in table
    assert "not written: [Errno 9]" in first.html
    (inserted,) = code.reply["payload"]
    assert (inserted["source"], inserted["text"], inserted["replace"]) == ("set_next_input", WORK.strip("\n"), False)
    assert "<td>np</td>" not in table
    assert "True 4 True" in second.html, second.text
    assert "Nothing was taken over" in unasked.text
    assert adopted.text.strip() == "Taken over: df, p, q"
    assert kept.text.strip() == "['a', 'b', 'c'] 7 True True 3 [1, 2]"
    assert "conn: generator cannot be pickled" in rest.text
    assert done.text.strip() == "4 8 False 1 False", rest.text
    assert log.read_text() == "begun "
    assert third.reply["status"] == "ok"
    assert "9 4" in anew.html, anew.text
    assert "there is no copy with changes" in nothing.text
    assert "- df: pandas.DataFrame, 1000 x 2, columns a, b" in prompt
    assert prompt.index("- df:") < prompt.index("- x: int = 3")
    assert "api_key" not in prompt
    assert "do not pass on" not in str(server.requests)


async def test_nothing_is_left_of_a_copy_and_what_cannot_be_copied_is_said(tmp_path):
    started = "import subprocess, os\nchild = subprocess.Popen(['sleep', '600'], start_new_session=True)\nprint('pids', os.getpid(), child.pid)"
    script = by_turn(
        cell(started), ["done"], cell("print('empty', 'df' in globals(), rows)"), ["other"], cell(started), ["third"]
    )

    def pids(page):
        return [int(word) for word in page.html.split("pids ")[1].split("\n")[0].split("<")[0].split()]

    async with ChatServer(script) as server, notebook_kernel(tmp_path) as notebook:
        await notebook.run(MINE)
        options = f"--model openai-chat:local --base-url {server.base_url} --yes --sandbox off"
        first = pids(await notebook.run(f"%%agent {options}\nStart."))
        assert all(map(is_running, first))
        await notebook.run("%agent_discard")
        await eventually(lambda: not any(map(is_running, first)))
        await notebook.run(
            "import threading\nhalt = threading.Event()\nworker = threading.Thread(target=halt.wait, name='mine')\nworker.start()"
        )
        refused = await notebook.run("%%agent\nAnd $rows now?")
        await notebook.run("halt.set(); worker.join()")
        await notebook.run("%agent_close")
        third = pids(await notebook.run(f"%%agent {options}\nAgain."))
        assert all(map(is_running, third))
        os.kill(notebook.manager.provisioner.pid, 9)
        await eventually(lambda: not any(map(is_running, third)))
    assert "this one cannot be copied: threads are running whose work would stop half way in a copy: mine" in refused.text
    assert "empty False [ " in refused.text


SEARCHED = """
import gc, re, sys
from jupyter_client.session import Session
first, rest = {first!r}.encode(), hashlib_of_rest
found, path = [], {path!r}
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
    for line in maps:
        if line.split()[1].startswith("rw") and "[v" not in line:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            memory.seek(start)
            while start < end and (piece := memory.read(min(end - start, 1 << 20))):
                for match in re.finditer(first, piece):
                    if hashlib.sha256(piece[match.end() : match.end() + {length}]).hexdigest() == rest:
                        found.append(hex(start + match.start()))
                start += len(piece)
keys = [each.key for each in gc.get_objects() if isinstance(each, Session)]
"""


async def test_a_copy_knows_neither_the_key_nor_the_addresses_of_the_kernel(tmp_path):
    """Code in it would have that kernel, which has no wall, run code."""
    modes = ("--mode auto --yes", "--mode ask --yes", "--mode full --sandbox off")
    async with notebook_kernel(tmp_path) as notebook:
        key, path = notebook.client.session.key.decode(), notebook.manager.connection_file
        first, rest = key[:12], key[12:]
        search = SEARCHED.format(first=first, path=path, length=len(rest)).replace(
            "hashlib_of_rest", repr(hashlib.sha256(rest.encode()).hexdigest())
        )
        told = (
            "with open('/proc/self/cmdline', 'rb') as f: line = f.read()\n"
            "app = get_ipython().kernel.parent\n"
            "kept = [part for state in sys.modules['freeact_sub.kernels.forkserver.detach'].KEPT for part in (state if isinstance(state, tuple) else (state,))]\n"
            "states = [part for state in kept for part in (state if isinstance(state, tuple) else (state,)) if isinstance(part, dict)]\n"
            "known = [name for state in states for name in state if name.endswith('_port') or name == 'connection_file']\n"
            "print('FOUND', found, any(hashlib.sha256(each[12:]).hexdigest() == rest for each in keys),\n"
            "      path.encode() in line, path in ' '.join(sys.orig_argv + sys.argv), path in repr(app.config), known)"
        )
        script = by_turn(*(part for _ in modes for part in (cell("import hashlib\n" + search + told), ["done"])))
        async with ChatServer(script) as server:
            await notebook.run("%load_ext freeact_sub.notebook\nimport hashlib\n" + search)
            there = await notebook.run("print(len(found), len(keys) > 0)")
            pages = [
                await notebook.run(
                    f"%%agent --name n{index} --model openai-chat:local --base-url {server.base_url} {options}\nLook.",
                    answer=lambda _: "y",
                )
                for index, options in enumerate(modes)
            ]
            after = await notebook.run("print('alive')")
    assert there.text.split()[-1] == "True"
    assert int(there.text.split()[0]) > 0, "the search finds it where it is"
    for page in pages:
        assert "FOUND [] False False False False []" in page.html, page.html[-3000:] + page.text[-2000:]
    assert after.text.strip() == "alive"


PLANTED = "class Planted:\n    def __reduce__(self): return (exec, ('import builtins; builtins.ran = True',))\nresult, x = Planted(), {n}"
ASKED_FIRST = {
    "each cell is allowed by a person": ("--mode ask", {}, "y", False),
    "a rule allows cells": ("--mode ask", {"permissions": 'allow = ["code"]\n'}, "y", True),
    "the first cell is allowed for the session": ("--mode ask", {}, "always", True),
    "nobody is there": ("--mode plan --yes", {}, "y", True),
}


@pytest.mark.parametrize("how", ASKED_FIRST)
async def test_adopting_asks_first_unless_a_person_has_allowed_each_cell(how, tmp_path, monkeypatch):
    options, rules, key, is_asked = ASKED_FIRST[how]
    folder = tmp_path / "settings" / "freeact"
    folder.mkdir(parents=True)
    for text in rules.values():
        (folder / "permissions.toml").write_text(text)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    script = by_turn(cell(PLANTED.format(n=1)), cell(PLANTED.format(n=2)), ["done"])
    async with ChatServer(script) as server, notebook_kernel(tmp_path) as notebook:
        await notebook.run("%load_ext freeact_sub.notebook")
        page = await notebook.run(
            f"%%agent --model openai-chat:local --base-url {server.base_url} {options}\nGo.", answer=lambda _: key
        )
        before = len(notebook.asked)
        adopted = await notebook.run("%agent_adopt result", answer=lambda _: "n")
        ran = await notebook.run("import builtins; print(hasattr(builtins, 'ran'))")
    assert page.reply["status"] == "ok", page.text
    assert (len(notebook.asked) > before) is is_asked, (notebook.asked, adopted.text)
    assert ran.text.strip() == str(not is_asked)
