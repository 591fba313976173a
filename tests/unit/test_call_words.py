"""What both front ends say about calls: nothing that matters for an answer is left out."""

import pytest

from freeact_sub.calls import FileWrite, NetworkConnect, ShellCommand
from freeact_sub.events import ApprovalRequest
from freeact_sub.notebook.render import question_html, question_text
from freeact_sub.terminal.texts import call_text, question

CALLS = {
    "a command outside": (
        ShellCommand(command="pip install x", outside=True, purpose="the report\u202e needs it"),
        ["OUTSIDE THE SANDBOX", "pip install x", "the report", "needs it"],
    ),
    "a command": (ShellCommand(command="ls", cwd="/elsewhere"), ["ls", "/elsewhere"]),
    "a file behind a link": (
        FileWrite(path="/real", named="/work/link", operation="remove"),
        ["remove", "/real", "/work/link"],
    ),
    "a host with its address": (NetworkConnect(host="example.org", port=443, ip="1.2.3.4"), ["example.org:443", "1.2.3.4"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_all_that_matters_is_shown(name):
    call, wanted = CALLS[name]
    request = ApprovalRequest(request_id="r", call=call, path=("agent-1",))
    for shown in (f"{question(call)}\n{call_text(call)}", question_text(request), question_html(request)):
        assert all(text in shown for text in wanted), shown
        assert "\u202e" not in shown
    assert ("OUTSIDE" in question(call)) is (name == "a command outside")
