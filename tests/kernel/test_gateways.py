"""Kernels of real Jupyter gateways: what comes over the connection, what happens when it drops, and what is left."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from contextlib import ExitStack

import httpx2
import pytest
from pydantic_ai.messages import ToolCallPart
from support.agents import cell, hand_over, of_kind, read, root_text
from support.gateways import SETTINGS, TOKEN, Proxy, behind, serve
from support.kernels import no_host, open_kernel, run_cell, spec
from support.mcp_host import McpHost
from support.waiting import WORKS_ON, eventually, is_running, until_there, wait_until

from freeact_sub import Agent, Config
from freeact_sub.config.schema import KernelConfig
from freeact_sub.errors import KernelStartError
from freeact_sub.events import ApprovalRequest, CodeExecutionOutput, CodeExecutionOutputChunk, KernelLost
from freeact_sub.kernels.gateway import guest
from freeact_sub.kernels.gateway.channels import LOST_OUTPUT
from freeact_sub.kernels.gateway.kernel import GatewayKernel
from freeact_sub.kernels.gateway.server import live
from freeact_sub.testing import ScriptedModel, first_prompt

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(900)]


def kernels_at(server) -> list[dict]:
    headers = {"Authorization": f"token {TOKEN}"}
    return httpx2.get(f"{server.url}/api/kernels", headers=headers, trust_env=False, timeout=120).json()


@pytest.mark.parametrize("old_frames", [False, True])
async def test_pictures_and_large_answers_pass_also_with_a_server_of_the_older_protocol(
    gateways, start, tmp_path, old_frames
):
    async def answer(method, params, clock):
        return "x" * params["size"]

    async with Proxy(gateways[0], old_frames=old_frames).running() as proxy:
        provider = start(behind(proxy, headers={"X-Of-The-Proxy": "let me through"}))
        async with open_kernel(provider, tmp_path, handler=answer) as kernel:
            if not old_frames:  # its head is not kept then
                of_requests, of_socket = (bytes(sent).lower() for sent in proxy.sent[:2])
                assert b"x-of-the-proxy: let me through" in of_requests
                assert b"x-of-the-proxy: let me through" in of_socket
                assert b"upgrade: websocket" in of_socket
            ran = await run_cell(kernel, "from IPython.display import *; display(HTML('<b>x</b>')); print('ä' * 3)")
            assert [output.data.get("text/html") for output in ran.outputs if hasattr(output, "data")] == ["<b>x</b>"]
            assert ran.text.endswith("äää\n")
            ran = await run_cell(kernel, "len(agent._requests.ask('big', size=9_000_000)), len('y' * 10_000_000)")
            assert ran.text == "(9000000, 10000000)\n"


async def test_a_connection_that_drops_loses_nothing_and_nothing_is_asked_or_run_twice(gateways, start, tmp_path):
    asked = []

    async def cut(method, params, clock):
        asked.append(params["n"])
        proxy.cut()  # the answer goes into a connection that is not there any more
        return params["n"]

    code = """
runs = globals().get('runs', 0) + 1
for n in range(3):
    print('line', n)
    print('answer', agent._requests.ask('cut', n=n))
"""
    async with Proxy(gateways[0]).running() as proxy:
        provider = start(behind(proxy))
        async with open_kernel(provider, tmp_path, handler=cut) as kernel:
            ran = await run_cell(kernel, code)
            assert (ran.status, ran.text) == ("ok", "".join(f"line {n}\nanswer {n}\n" for n in range(3)))
            proxy.cut()
            assert (await run_cell(kernel, "runs")).text == "1\n"
    assert asked == [0, 1, 2]


async def test_output_that_a_dropped_connection_has_lost_is_told(gateways, start, tmp_path):
    code = "import time\nfor n in range(400):\n    print(n, flush=True)\n    time.sleep(0.005)"
    async with Proxy(gateways[0]).running() as proxy:
        provider = start(behind(proxy))
        async with open_kernel(provider, tmp_path) as kernel:
            running = asyncio.create_task(run_cell(kernel, code))
            await asyncio.wait({running}, timeout=1)
            proxy.cut()
            ran = await running
    assert ran.status == "ok"
    lines = {line for line in ran.text.splitlines() if line.isdigit()}
    assert len(lines) == 400 or LOST_OUTPUT.strip() in ran.text


async def test_a_kernel_whose_host_is_gone_ends_with_its_lease_though_a_cell_runs(gateways, tmp_path):
    program = """
        import asyncio, os, signal, sys
        sys.path[:0] = {path!r}
        from pathlib import Path
        from support.gateways import behind
        from support.kernels import run_cell, spec, no_host
        from freeact_sub.config.schema import GatewayConfig
        from freeact_sub.config.schema import KernelConfig
        from freeact_sub.kernels.provider import make_provider

        async def main():
            gateway = GatewayConfig(url={url!r}, token={token!r}, lease_seconds=12)
            provider = make_provider(KernelConfig(provider="gateway", gateway=gateway))
            kernel = await provider.start(spec(Path({folder!r})), no_host)
            ran = await run_cell(kernel, "import os, subprocess; p = subprocess.Popen(['sleep', '1000'], start_new_session=True); os.getpid(), p.pid")
            print(ran.text, flush=True)
            busy = asyncio.create_task(run_cell(kernel, "import threading; threading.Event().wait()"))
            await asyncio.wait({{busy}}, timeout=0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        asyncio.run(main())
    """
    values = {"path": sys.path, "url": gateways[0].url, "token": TOKEN, "folder": str(tmp_path)}
    host = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program).format(**values)], stdout=subprocess.PIPE, check=False
    )
    assert host.returncode == -signal.SIGKILL
    for pid in json.loads(host.stdout.decode().replace("(", "[").replace(")", "]")):
        await eventually(lambda pid=pid: not is_running(pid))
    await eventually(lambda: not kernels_at(gateways[0]))


async def test_a_start_that_is_cancelled_or_loses_its_answer_leaves_no_kernel(gateways, start, tmp_path):
    """However far it has come: the server starts a kernel though nobody waits for it any more."""
    steps = [b"POST /api/kernels", b"upgrade: websocket", b"freeact_guest", b"freeact_values"]
    for step, cut in [*((step, False) for step in steps), (steps[0], True)]:
        async with Proxy(gateways[0]).running() as proxy:
            provider = start(behind(proxy))
            starting = asyncio.create_task(provider.start(spec(tmp_path), no_host))
            await eventually(lambda step=step, proxy=proxy: step.lower() in proxy.plain().lower())
            proxy.cut() if cut else starting.cancel()
            await asyncio.wait({starting}, timeout=120)
            if starting.cancelled() or starting.exception():
                assert starting.cancelled() != cut
            else:  # it was there before we saw its last step
                await starting.result().aclose()
            await provider.aclose()
    # a server that has started this one has started those before
    headers = {"Authorization": f"token {TOKEN}"}
    async with httpx2.AsyncClient(base_url=gateways[0].url, headers=headers, trust_env=False, timeout=120) as client:
        last = (await client.post("/api/kernels", json={})).json()["id"]
        # a busy server ends one later
        await eventually(lambda: [kernel["id"] for kernel in kernels_at(gateways[0])] == [last])
        await client.delete(f"/api/kernels/{last}")


def test_a_kernel_that_is_killed_at_any_step_of_its_start_leaves_no_folder(tmp_path):
    killed = """
import os, runpy, signal, sys
settle, left = runpy.run_path(sys.argv[1])["settle"], int(sys.argv[2])
def kill(event, _):
    global left
    if event in ("os.mkdir", "os.putenv", "os.chdir", "subprocess.Popen"):
        left -= 1
        left or os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(kill)
settle({"A": "b"}, None)
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    for step in range(1, 100):
        start = [sys.executable, "-c", killed, guest.__file__, str(step)]
        if subprocess.run(start, env=environment, check=False).returncode == 0:
            break
    assert step > len(("A", "FA_FOLDER", "TMPDIR", "the folder and two in it", "chdir", "Popen"))
    wait_until(lambda: not list(tmp_path.iterdir()))


async def test_what_is_wrong_is_one_sentence_that_says_what_to_do(gateways, start, tmp_path):
    async def problem(settings) -> str:
        with pytest.raises(KernelStartError) as raised:
            async with open_kernel(start(settings), tmp_path / "not there"):
                pass
        return str(raised.value)

    wrong = KernelConfig(provider="gateway", gateway={"url": gateways[0].url, "token": "wrong"})
    assert "set kernel.gateway.token" in await problem(wrong)
    assert "cannot be reached" in await problem(KernelConfig(provider="gateway", gateway={"url": "http://127.0.0.1:9"}))
    assert "kernel.gateway.kernel" in await problem(behind(gateways[0], kernel="no-such-kernel"))
    assert "kernel.gateway.workspace" in await problem(behind(gateways[0], workspace="shared"))
    await eventually(lambda: not kernels_at(gateways[0]))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="a certificate is made with openssl")
async def test_over_tls_each_side_is_believed_whose_certificate_is_vouched_for_and_no_other(start, tmp_path):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    make = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -subj /CN=x -addext"
    subprocess.run([*make.split(), "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    tls = (f"--KernelGatewayApp.certfile={certificate}", f"--KernelGatewayApp.keyfile={key}")
    both = tmp_path / "both.pem"
    both.write_text(key.read_text() + certificate.read_text())
    with serve("gateway", tmp_path / "gateway", *SETTINGS, *tls, f"--KernelGatewayApp.client_ca={certificate}") as gateway:
        assert gateway.url.startswith("https://")
        with pytest.raises(KernelStartError, match=r"cannot be reached.*certificate"):
            async with open_kernel(start(behind(gateway)), tmp_path):
                pass
        with pytest.raises(KernelStartError, match="cannot be reached"):  # it asks for a certificate of ours
            async with open_kernel(start(behind(gateway, ca_file=certificate)), tmp_path):
                pass
        async with open_kernel(start(behind(gateway, ca_file=certificate, certificate_file=both)), tmp_path) as kernel:
            assert (await run_cell(kernel, "6 * 7")).text == "42\n"


async def test_values_go_into_children_and_come_back_and_no_secret_goes_to_the_gateway(gateways, tmp_path, monkeypatch):
    secrets = {name: f"secret-of-{name}-{os.urandom(8).hex()}" for name in ("OPENAI_API_KEY", "MY_PASSWORD", "MCP_TOKEN")}
    for name, secret in secrets.items():
        monkeypatch.setenv(name, secret)
    (tmp_path / "of the user.txt").write_text("private")
    code = """
import os, numpy as np
frame = np.arange(1_500_000)
r = await agent.task("add them up", inputs={"frame": frame, "n": 3}, output=int)
print(r.output, os.path.exists("of the user.txt"), sorted(set(os.environ) & {"OPENAI_API_KEY", "MY_PASSWORD", "MCP_TOKEN"}))
"""
    work = [cell("print(int(frame.sum()) + n)")]
    answer = 1_124_999_250_003
    hand = [hand_over(answer)]
    script = {"root": [[cell(code)], "done"], "add them up": [work, hand]}
    async with Proxy(gateways[0]).running() as proxy:
        servers = {
            "far": {"command": "python", "env": {"TOKEN": secrets["MCP_TOKEN"]}},
            "web": {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": secrets["MCP_TOKEN"]}},
        }
        config = Config(workspace=tmp_path, mode="full", kernel=behind(proxy), mcp_servers=servers)
        async with Agent(config, model=ScriptedModel(script)) as agent:
            events, result = await read(agent.run("root"))
    assert result.status == "completed"
    assert f"{answer} False []" in root_text(events)
    sent = proxy.plain()
    assert sent.count(b"freeact_values") > 3
    assert b"freeact_guest" in sent
    assert [name for name, secret in secrets.items() if secret.encode() in sent] == []


async def test_a_run_whose_gateway_hangs_or_is_gone_ends_as_kernel_lost_and_culling_ends_what_a_host_has_left(
    tmp_path, monkeypatch
):
    """A host that dies before it has sent the guest leaves a kernel without a lease."""
    monkeypatch.setattr("freeact_sub.kernels.gateway.channels.SILENT_SECONDS", 3.0)
    monkeypatch.setattr("freeact_sub.kernels.gateway.channels.LOST_SECONDS", 3.0)
    culling = ("--MappingKernelManager.cull_idle_timeout=20", "--MappingKernelManager.cull_interval=2")
    script = [[cell(f"print('here', flush=True)\n{WORKS_ON}")], "done"]

    async def lost_by(end):
        def on_event(event):
            if isinstance(event, CodeExecutionOutputChunk) and "here" in str(event.output):
                end()

        config = Config(workspace=tmp_path, mode="full", kernel=behind(gateway))
        async with Agent(config, model=ScriptedModel(script)) as agent:
            events, result = await read(agent.run("root"), on_event=on_event)
        assert result.status == "kernel_lost"
        return [event.reason for event in of_kind(events, KernelLost)]

    with serve("gateway", tmp_path / "gateway", *SETTINGS, *culling) as gateway:
        headers = {"Authorization": f"token {TOKEN}"}
        left = httpx2.post(f"{gateway.url}/api/kernels", headers=headers, json={}, trust_env=False, timeout=120).json()["id"]
        try:
            [reason] = await lost_by(lambda: os.kill(gateway.process.pid, signal.SIGSTOP))
        finally:
            os.kill(gateway.process.pid, signal.SIGCONT)
        assert f"{gateway.url} hangs" in reason
        await eventually(lambda: left not in {kernel["id"] for kernel in kernels_at(gateway)})
        [reason] = await lost_by(gateway.kill)
        assert gateway.url in reason


async def test_code_calls_mcp_servers_and_models_and_a_shared_workspace_is_there(gateways, tmp_path):
    (tmp_path / "of the user.txt").write_text("the user's")
    code = """
import os
print(open("of the user.txt").read(), os.getcwd())
def plain():
    return agent.mcp.plain.pid(), agent.ask("which?")
print(await agent.mcp.plain.pid(), await agent.ask("how many?", output=int), *plain())
"""

    def script(messages, info):
        prompt = first_prompt(messages)
        if prompt == "root":
            return [cell(code)] if len(messages) == 1 else "done"
        return ToolCallPart(info.output_tools[0].name, {"value": 3}) if info.output_tools else "that one"

    host = McpHost(tmp_path / "host")
    host.folder.mkdir()
    servers = {"plain": host.plain().model_dump(exclude_defaults=True)}
    kernel = behind(gateways[0], workspace="shared")
    config = Config(workspace=tmp_path, mode="full", kernel=kernel, mcp_servers=servers)
    async with Agent(config, model=ScriptedModel(script)) as agent:
        events, result = await read(agent.run("root"))
        [pid] = host.running()
    assert result.status == "completed"
    assert root_text(events).splitlines() == [f"the user's {tmp_path}", f"{pid} 3 {pid} that one"]


async def test_a_request_that_is_lost_comes_again_and_one_that_waits_for_its_answer_is_put_once(
    gateways, start, tmp_path, monkeypatch
):
    heard, asked = [], []
    as_ever = GatewayKernel.on_request

    def lossy(kernel, content, clock):
        if content.get("method") in ("lost", "slow"):
            heard.append(content["method"])
            if heard == ["lost"]:
                return  # as a gateway does that leaves messages out
        as_ever(kernel, content, clock)

    async def answer(method, params, clock):
        asked.append(method)
        if method == "slow":
            await eventually(lambda: heard.count("slow") == 2)
        return method

    monkeypatch.setattr(GatewayKernel, "on_request", lossy)
    async with open_kernel(start(behind(gateways[0])), tmp_path, handler=answer) as kernel:
        await run_cell(kernel, "agent._requests.send.__func__.__globals__['AGAIN_SECONDS'] = 0.5, 60.0")
        ran = await run_cell(kernel, "print(agent._requests.ask('lost'), agent._requests.ask('slow'))")
    assert ran.text == "lost slow\n"
    assert asked == ["lost", "slow"]
    assert heard[:2] == ["lost"] * 2


async def test_twelve_children_over_two_gateways_one_of_which_is_killed(tmp_path):
    """Their values all come, nothing is asked twice, and nothing is left. 13 kernels, and those that replace the lost ones."""
    go_on = tmp_path / "go on"
    root = """
import asyncio, os
print(f"root at {os.getppid()}", flush=True)  # in one piece: pieces may come as several outputs
results = await asyncio.gather(*(agent.task(f"child {n}.", output=int) for n in range(12)))
print(sorted(r.output for r in results), {r.status for r in results}, sum(r.usage.turns for r in results))
"""
    wait = f"""
import os
print("ready at %d" % os.getppid(), flush=True)
{until_there(go_on)}
print("value", {{n}} ** 2)
"""

    def script(messages, info):
        prompt = first_prompt(messages)
        if prompt == "root":
            return [cell(root)] if len(messages) == 1 else "done"
        n = int(prompt.partition("child ")[2].partition(".")[0])
        if f"value {n**2}" not in str(messages[-1]):
            return [cell(wait.format(n=n))]
        return [hand_over(n**2)]

    at: dict[str, int] = {}

    def on_event(event):
        if isinstance(event, CodeExecutionOutputChunk) and " at " in (text := getattr(event.output, "text", "")):
            at.setdefault(event.agent_id, int(text.split(" at ")[1].split()[0]))
        if len(at) == 13 and not go_on.exists():
            root_at = at[events_root[0]]
            next(server for server in servers if server.process.pid != root_at).kill()
            go_on.touch()

    with ExitStack() as stack:
        servers = [stack.enter_context(serve("gateway", tmp_path / name, *SETTINGS)) for name in "ab"]
        config = Config(
            workspace=tmp_path,
            kernel=behind(*servers, retry=True),
            subagents={"max_concurrent": 12},
            models={"quote_above": 12},  # all twelve must be at work before one ends
        )
        model = ScriptedModel(script)
        async with Agent(config, model=model) as agent:
            events_root = [agent.agent_id]
            events, result = await read(agent.run("root"), on_event=on_event)
        assert result.status == "completed"
        assert f"{[n**2 for n in range(12)]} {{'completed'}}" in root_text(events)
        lost = of_kind(events, KernelLost)
        gone, stays = sorted(servers, key=lambda server: server.process.returncode is None)
        assert len(lost) == Counter(at.values())[gone.process.pid]
        assert {len(lost), Counter(at.values())[stays.process.pid]} == {6, 7}
        approvals = Counter(
            (event.agent_id, event.tool_call_id, repr(event.call)) for event in of_kind(events, ApprovalRequest)
        )
        assert set(approvals.values()) == {1}
        ran = len(of_kind(events, CodeExecutionOutput))
        assert ran == 13 + len(lost)
        # a kernel may find a port taken that its gateway chose when it was free; a cell whose kernel does not start does not run
        not_started = sum("CodeAction" in call for _, _, call in approvals) - ran
        # one request more for each child that was told that its kernel is new, or did not start
        assert result.tree_usage.turns == model.requests == 2 + 12 * 2 + len(lost) + not_started
        await eventually(lambda: kernels_at(stays) == [])
    assert not any(live[server.url] for server in servers)
