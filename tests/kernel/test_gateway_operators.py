"""What we have for whoever runs a gateway: what it lacks is found out, and its kernels can be forked and walled."""

import os
from contextlib import AsyncExitStack

import pytest
from support.gateways import SETTINGS, TOKEN, behind, serve
from support.kernels import open_kernel, run_cell

from freeact_sub.cli import main
from freeact_sub.kernels.gateway.kernel import MESSAGE_SIZE
from freeact_sub.kernels.provider import make_provider

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(900)]


def lines(capsys) -> set[str]:
    return {line.strip() for line in capsys.readouterr().out.splitlines()}


def test_what_a_gateway_lacks_is_printed_with_the_lines_that_mend_it(gateways, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FREEACT_KERNEL__GATEWAY__TOKEN", TOKEN)
    monkeypatch.chdir(tmp_path)
    main(["gateway", "check", gateways[0].url])  # on a loaded machine a death may be told late
    assert not set(SETTINGS[:2]) & lines(capsys)
    with serve("gateway", tmp_path / "bare") as bare:
        assert main(["gateway", "check", bare.url]) == 1
    assert set(SETTINGS[:2]) <= lines(capsys)
    allowed = ("kernel_info_request", "execute_request", "shutdown_request")
    types = [f"--MappingKernelManager.allowed_message_types={name}" for name in allowed]
    with serve("gateway", tmp_path / "strict", *types) as strict, monkeypatch.context() as impatient:
        impatient.setattr("freeact_sub.kernels.gateway.kernel.ANSWER_SECONDS", 0.5)  # no answer will come
        assert main(["gateway", "check", strict.url]) == 1
    assert "allowed_message_types" in capsys.readouterr().err
    small = """--ServerApp.tornado_settings={"websocket_max_message_size": 1000000}"""
    with serve("server", tmp_path / "small", *SETTINGS, small) as server:
        assert main(["gateway", "check", server.url]) == 1
    told = capsys.readouterr()
    assert MESSAGE_SIZE in {line.strip() for line in told.out.splitlines()}, told
    assert main(["gateway", "check", "http://127.0.0.1:9"]) == 1
    assert "http://127.0.0.1:9 cannot be reached" in capsys.readouterr().err


async def test_with_our_kernelspec_kernels_come_from_one_fork_server_each_behind_a_wall(tmp_path, capsys):
    outside = tmp_path / "outside"
    outside.mkdir()
    assert main(["kernelspec", "install", "--prefix", str(tmp_path / "prefix"), "--wall", "auto"]) == 0
    assert "kernel.gateway.kernel = 'freeact'" in capsys.readouterr().out
    code = f"""
import os, socket
def tried(action):
    try:
        return action() and "done"
    except OSError as error:
        return type(error).__name__
print(os.getppid(), tried(lambda: open({str(outside / "x")!r}, "w")), tried(lambda: open("mine", "w")),
      tried(lambda: os.listdir({str(outside)!r})), tried(lambda: socket.create_connection(("127.0.0.1", 9), 5)))
"""
    path = str(tmp_path / "prefix" / "share" / "jupyter")
    with serve("gateway", tmp_path / "gateway", *SETTINGS, JUPYTER_PATH=path) as gateway:
        provider = make_provider(behind(gateway, kernel="freeact", trusted=True))
        async with AsyncExitStack() as stack:
            stack.push_async_callback(provider.aclose)
            kernels = [await stack.enter_async_context(open_kernel(provider, tmp_path)) for _ in range(2)]
            ran = [(await run_cell(kernel, code)).text.split() for kernel in kernels]
            assert len({parent for parent, *_ in ran}) == 1
            for _, write, own, listed, connection in ran:
                assert own == "done"
                assert {write, listed, connection} <= {"PermissionError", "FileNotFoundError", "OSError"}
            assert (await run_cell(kernels[0], "!sleep 1000", limit=0.3)).status == "timeout"
            await run_cell(kernels[0], "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
            assert kernels[0].lost_reason
            assert (await run_cell(kernels[1], "1")).text == "1\n"
    assert not os.listdir(outside)
