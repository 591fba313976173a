"""JupyterLab in Chromium: what a person does with an agent on a copy of his kernel, click by click.

Left out where JupyterLab, Playwright or Chromium is not installed; docs/testing.md says how to run it. With PICTURES=folder
it takes a picture of each step.
"""

import asyncio
import json
import os
import re
import shutil
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import nbformat
import pytest
from notebook_kernel import until_it_is_a_persons_cell
from support.chat_server import ChatCall, ChatServer
from support.waiting import LOADED_MACHINE_SECONDS, WORKS_ON, eventually, eventually_async, is_running

pytest.importorskip("jupyterlab")
playwright = pytest.importorskip("playwright.async_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
    pytest.mark.timeout(900),
]
MILLISECONDS = LOADED_MACHINE_SECONDS * 1000
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
MINE = """
%load_ext freeact_sub.notebook
import os, pandas as pd
df = pd.DataFrame({"a": [1, 2, 3]})
print("ready", os.getpid())
"""
STEPS = {
    "Double": "df['c'] = df.a * 2\nprint('doubled', df.c.sum())",
    "Square": "df['d'] = df.a ** 2\nprint('squared', df.d.sum())",
    "Wait": f"import os\nprint('works', os.getpid())\n{WORKS_ON}",
}
WORKS = re.compile(r"works (\d+)")


def script(request):
    """One cell for each prompt, chosen by its first word."""
    if request["messages"][-1]["role"] == "tool":
        return ["It is done."]
    prompt = [message for message in request["messages"] if message["role"] == "user"][-1]["content"]
    text = prompt if isinstance(prompt, str) else prompt[0]["text"]
    if text.startswith("Delegate"):
        return [ChatCall("task", {"prompt": "Look around.", "description": "the looker"})]
    if text.startswith("Look"):
        return ["The child has looked."]
    return [ChatCall("execute_ipython_cell", {"code": STEPS[text.split()[0]]})]


@asynccontextmanager
async def jupyterlab(folder, base_url):
    """A server with one notebook; the address of the page."""
    runtime, work = folder / "runtime", folder / "work"
    work.mkdir()
    cells = [nbformat.v4.new_code_cell(source) for source in (MINE.strip(), "%%agent --mode ask\nDouble the column of $df.")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, work / "n.ipynb")
    quiet = folder / "settings/@jupyterlab/apputils-extension"
    quiet.mkdir(parents=True)
    asked = {"fetchNews": "false", "checkForUpdates": False}
    (quiet / "notification.jupyterlab-settings").write_text(json.dumps(asked))
    environment = os.environ | {
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "FREEACT_MODEL": "openai-chat:local",
        "FREEACT_BASE_URL": base_url,
    }
    command = (
        "-m",
        "jupyterlab",
        "--no-browser",
        "--port=0",
        "--allow-root",
        f"--ServerApp.root_dir={work}",
        "--LabApp.extension_manager=readonly",
    )
    with open(folder / "server.log", "wb") as log:
        server = await asyncio.create_subprocess_exec(sys.executable, *command, env=environment, stdout=log, stderr=log)
    try:
        await eventually(lambda: any(runtime.glob("jpserver-*.json")))
        about = json.loads(next(runtime.glob("jpserver-*.json")).read_text())
        yield f"{about['url']}lab/tree/n.ipynb?reset&token={about['token']}"
    finally:
        server.terminate()
        await server.wait()


class NotebookPage:
    """The notebook in the browser."""

    def __init__(self, page):
        self.page = page
        self.pictures = 0

    def cell(self, number):
        """The cell with this number, from the top."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(number)

    async def says(self, number, text):
        """Waits until the output of a cell has a text."""
        await playwright.expect(self.cell(number).locator(".jp-OutputArea").first).to_contain_text(
            text, timeout=MILLISECONDS
        )

    async def run(self, number, source=None):
        """Runs a cell, after its source was replaced."""
        editor = self.cell(number).locator(".cm-content").first
        await editor.click()
        if source is not None:
            await self.page.keyboard.press("Control+A")
            await self.page.keyboard.insert_text(source)
        await self.page.keyboard.press("Control+Enter")

    async def add(self, source):
        """Makes a cell below the last one and runs it. Its number."""
        number = await self.page.locator(".jp-Notebook .jp-Cell").count()
        await self.cell(number - 1).locator(".jp-InputPrompt").first.click()
        await self.page.keyboard.press("b")
        await self.run(number, source)
        return number

    async def ended(self, number):
        """Waits until a cell has its answer: the kernel that it has asked for is there then."""
        prompt = self.cell(number).locator(".jp-InputPrompt").first
        await playwright.expect(prompt).to_have_text(re.compile(r"\[\d+\]"), timeout=MILLISECONDS)

    async def click(self, number, button):
        """Clicks a button in the output of a cell."""
        await self.cell(number).get_by_role("button", name=button, exact=True).first.click(timeout=MILLISECONDS)

    async def picture(self, name):
        """Takes one, if somebody wants to look."""
        if folder := os.environ.get("PICTURES"):
            self.pictures += 1
            await self.page.screenshot(path=str(Path(folder, f"{self.pictures:02}-{name}.png")))

    async def source(self, number):
        return await self.cell(number).locator(".cm-content").first.inner_text()


@asynccontextmanager
async def opened(url, folder):
    own = os.environ | {name: str(folder) for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS), env=own)
        try:
            page = await browser.new_page(viewport={"width": 1200, "height": 1400})
            await page.goto(url, timeout=MILLISECONDS)
            await page.get_by_text("| Idle").first.wait_for(timeout=MILLISECONDS)  # its kernel is ready
            yield (notebook := NotebookPage(page))
        except BaseException:
            await notebook.picture("failed")
            raise
        finally:
            await browser.close()


@asynccontextmanager
async def begun(folder):
    """The address of a notebook and its page, whose first cell has run."""
    async with (
        ChatServer(script) as server,
        jupyterlab(folder, server.base_url) as url,
        opened(url, folder) as notebook,
    ):
        await notebook.run(0)
        await notebook.says(0, "ready")
        yield url, notebook


async def test_a_person_works_with_an_agent_in_jupyterlab(tmp_path):
    async with begun(tmp_path) as (_, notebook):
        await notebook.run(1)
        await notebook.says(1, "df.a * 2")
        await notebook.picture("question")
        await notebook.click(1, "Approve")
        await notebook.says(1, "doubled 12")
        await notebook.says(1, "1 variable changed in the agent's copy")
        await notebook.picture("table")
        await notebook.click(1, "Adopt all")
        await notebook.says(2, "Taken over: df")
        assert await notebook.source(2) == "%agent_adopt"
        await notebook.picture("adopted")

        asks = await notebook.add("%%agent\nSquare the column.")
        await notebook.click(asks, "Approve")
        await notebook.says(asks, "squared 14")
        await notebook.click(asks, "Insert the code")
        await shows(lambda: notebook.source(asks + 1), STEPS["Square"])
        await notebook.picture("inserted")
        await notebook.click(asks, "Adopt…")
        await shows(lambda: notebook.source(asks + 1), "%agent_adopt df")
        await notebook.click(asks, "Discard")
        await shows(lambda: notebook.source(asks + 1), "%agent_discard")
        shown = await notebook.add("print([*df.columns])")
        await notebook.says(shown, "['a', 'c']")
        await notebook.picture("discarded")

        stopped = await notebook.add("%%agent\nWait for me.")
        await notebook.click(stopped, "Approve")
        await notebook.says(stopped, WORKS)
        await until_it_is_a_persons_cell()
        other = await notebook.add("%%agent --mode ask --name other\nDouble the column.")
        await notebook.click(other, "Approve")
        await notebook.says(other, "doubled 12")
        await notebook.says(stopped, "The agent goes on beside your cells")
        await notebook.picture("two-agents")
        await notebook.add("%agent_stop --name agent")
        await notebook.says(stopped, "the run was cancelled")
        await notebook.add("%agent_close other")
        stopped = await notebook.add("%%agent\nWait for me.")
        await notebook.click(stopped, "Approve")
        await notebook.says(stopped, WORKS)
        await notebook.page.get_by_title("Interrupt the kernel").first.click()
        await notebook.says(stopped, "interrupted: the run was cancelled")
        await notebook.picture("stopped")

        parent = await notebook.add("%%agent\nDelegate it.")
        await notebook.click(parent, "Approve")
        await notebook.says(parent, "The child has looked.")
        await notebook.picture("child")

        restarted = await notebook.add("%%agent\nWait once more.")
        await notebook.click(restarted, "Approve")
        await notebook.says(restarted, WORKS)
        copy = int(WORKS.search(await notebook.cell(restarted).locator(".jp-OutputArea").first.inner_text())[1])
        assert is_running(copy)
        await notebook.page.get_by_title("Restart the kernel").first.click()
        await notebook.page.get_by_role("button", name="Confirm Kernel Restart").click()
        await eventually(lambda: not is_running(copy))
        await notebook.run(0)
        again = await notebook.add("%%agent --mode ask\nDouble the column.")
        await notebook.click(again, "Approve")
        await notebook.says(again, "doubled 12")
        await notebook.picture("restarted")


async def test_a_page_that_is_loaded_again_shows_the_run_and_its_question_again(tmp_path):
    """The notebook was not saved: nothing of the run is in the page that is loaded."""
    async with begun(tmp_path) as (url, notebook):
        await notebook.run(1)
        await notebook.says(1, "df.a * 2")
        await until_it_is_a_persons_cell()
        await notebook.page.goto(url, timeout=MILLISECONDS)
        await notebook.cell(1).locator(".cm-content").first.wait_for(timeout=MILLISECONDS)
        waits = await notebook.add("%agent_wait")
        await notebook.says(waits, "df.a * 2")
        await notebook.picture("loaded-again")
        await notebook.click(waits, "Approve")
        await notebook.says(waits, "doubled 12")
        await notebook.says(waits, "1 variable changed in the agent's copy")
        await notebook.picture("answered")


async def shows(read, wanted):
    """Waits until the page has it."""

    async def is_there():
        return await read() == wanted

    await eventually_async(is_there)
