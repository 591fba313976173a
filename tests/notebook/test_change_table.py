"""What a person reads and clicks after an agent has worked on a copy of the notebook's kernel."""

import json
import re
from html import unescape

from freeact_sub.kernels.copies import CopyChange
from freeact_sub.notebook.render import change_table
from freeact_sub.show.safe_html import table_html

CHANGES = [
    CopyChange(name="df", what="changed", before="DataFrame 1 x 1", after="DataFrame 1 x 2"),
    CopyChange(name="x", what="changed", before="int 1", after="int 2", also_here=True),
    CopyChange(name="os", what="new", after="module os", imported=True),
    CopyChange(name="y\n!rm -rf ~", what="new", after="<b>"),
]


def buttons_of(html):
    """What each button has JupyterLab do."""
    found = re.findall(r'data-commandlinker-command="([^"]*)" data-commandlinker-args="([^"]*)">([^<]*)</button>', html)
    assert {command for command, _, _ in found} == {"apputils:run-all-enabled"}
    return {label: json.loads(unescape(arguments)) for _, arguments, label in found}


def test_each_button_makes_a_cell_with_a_magic_or_the_code():
    buttons = buttons_of(change_table(CHANGES, " --name b", 'print("</button>")')["text/html"])
    texts = {label: (given["args"]["text"], len(given["commands"])) for label, given in buttons.items()}
    assert texts == {
        "Adopt all": ("%agent_adopt --name b", 3),
        "Adopt…": ("%agent_adopt --name b df, x", 2),
        "Insert the code": ('print("</button>")', 2),
        "Discard": ("%agent_discard --name b", 3),
    }
    assert all(given["commands"][0] == "notebook:insert-cell-below" for given in buttons.values())
    long = buttons_of(change_table(CHANGES, "", "x" * 100_000)["text/html"])
    assert long["Insert the code"]["args"]["text"] == "%agent_code"


def test_the_table_says_what_both_have_changed():
    table = change_table(CHANGES, "", "")
    assert "x: int 1 (you have changed it since) -> int 2" in table["text/plain"]
    assert "<b>" not in table["text/html"]


def test_what_an_agent_displays_has_no_such_buttons():
    html = table_html(
        '<button data-commandlinker-command="notebook:run-cell">go</button><p data-commandlinker-args="{}">x</p>'
    )
    assert "commandlinker" not in html
