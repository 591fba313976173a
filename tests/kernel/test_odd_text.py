"""Text that UTF-8 cannot hold, and numbers that JSON does not have, in what cells put out: nothing is lost or warned of."""

import pytest
from support.agents import cell, of_kind, read

from freeact_sub.events import CodeExecutionOutput

pytestmark = pytest.mark.kernel

CELLS = {
    "print('a \\ud83d b'); print('after')": ["a \\ud83d b", "after"],
    "print('caf\\udce9.txt'); print('after')": ["caf\\udce9.txt", "after"],
    "raise ValueError('a \\ud83d b')": ["ValueError: a \\ud83d b"],
    "'a \\udce9 b'": ["'a \\udce9 b'"],
    "import sys; print('x\\udfffy', file=sys.stderr)": ["x\\udfffy"],
    "import subprocess; subprocess.run(['printf', 'a\\\\351b\\\\n']); print('after')": ["b", "after"],
    "from IPython.display import display; display({'application/x-odd': {'v': float('nan')}, 'text/plain': 'shown'}, raw=True)": [
        "shown"
    ],
    "assert False, '\\udc80'": ["AssertionError: \\udc80"],
    "from IPython.display import HTML; HTML('<b>\\ud83d</b>')": ["HTML"],
}


@pytest.mark.parametrize("kernels", ["fork", "local"])
async def test_nothing_that_a_cell_puts_out_is_lost_for_its_text(make, kernels):
    script = [*([cell(code)] for code in CELLS), "done"]
    async with make(script, mode="full", kernel={"provider": kernels}) as agent:
        events, result = await read(agent.run("go"))
    assert result.status == "completed"
    outputs = [event.text for event in of_kind(events, CodeExecutionOutput)]
    for (code, parts), text in zip(CELLS.items(), outputs, strict=True):
        assert all(part in text for part in parts), (code, text)
        assert "Exception in callback" not in text, code
        assert "serialization" not in text, code
