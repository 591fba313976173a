"""Whatever a model or a kernel writes, the notebook page gets text, tables and pictures of it, and nothing that acts."""

import base64
import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sample_events import one_of_each, request
from support.tables import each

from freeact_sub.calls import CodeAction
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.feed import event_html
from freeact_sub.show.safe_html import (
    HTML_CHARS,
    PICTURE_BYTES,
    bundle_html,
    bundle_text,
    clean,
    code_html,
    is_picture,
    markdown_html,
    one_line,
    table_html,
    text_html,
    visible,
)
from freeact_sub.text import shortened

TAGS = {
    "div",
    "span",
    "table",
    "thead",
    "tbody",
    "tfoot",
    "tr",
    "th",
    "td",
    "caption",
    "p",
    "b",
    "strong",
    "i",
    "em",
    "u",
    "s",
    "sub",
    "sup",
    "code",
    "pre",
    "small",
    "ul",
    "ol",
    "li",
    "br",
    "hr",
}
TAGS |= {"h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "a", "img", "details", "summary", "del"}
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()

ATTACKS = [
    "<script>alert(1)</script>",
    "<SCRIPT\n>alert(1)</SCRIPT\n>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<img src=x onerror=alert(1)>",
    "<img src='http://elsewhere.example/?secret'>",
    "<table background='http://elsewhere.example/'><tr><td onclick='alert(1)' style='background:url(http://e.example)'>x</table>",
    "<svg onload=alert(1)><script>alert(1)</script></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></table></math>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<a href='javascript:alert(1)'>x</a>",
    "<form action='http://e.example'><input name=x><button>go</button></form>",
    "<style>body{display:none}</style>",
    "<link rel=stylesheet href='http://e.example/x.css'><meta http-equiv=refresh content='0;url=http://e.example'><base href='http://e.example'>",
    "<!--><script>alert(1)</script-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<td colspan='1\" onmouseover=\"alert(1)'>x</td>",
    '<td colspan="2" colspan=\'3\' onclick="x">x</td>',
    "</div></div></div></body></html><script>alert(1)</script>",
    "<p title='>'<script>alert(1)</script>'>",
    "[x](javascript:alert(1)) ![y](http://elsewhere.example/?secret) <javascript:alert(1)> [z](data:text/html;base64,AAAA)",
    "<b/onmouseover=alert(1)>x</b>",
    "\x1b]8;;javascript:alert(1)\x07click\x1b]8;;\x07",
    "\x00<scr\x00ipt>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
]


class Reader(HTMLParser):
    """Reads HTML as far as a test needs it: which tags with which attributes are there, and are they nested."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.open, self.seen_text = [], [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("br", "hr", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.seen_text += data


def assert_harmless(html):
    reader = Reader(html)
    assert reader.open == []
    for tag, attributes in reader.tags:
        assert tag in TAGS, tag
        for name, value in attributes.items():
            match name:
                case "class" | "style":
                    assert value.startswith(("fsub", "color:var(", "language-", "text-align:"))
                case "colspan" | "rowspan" | "start":
                    assert value.isdigit()
                case "href":
                    assert tag == "a"
                    assert not value.lower().startswith(("javascript:", "data:", "vbscript:", "file:"))
                case "src":
                    assert tag == "img"
                    assert value.startswith("data:image/")
                case "alt" | "title":
                    pass
                case _:
                    pytest.fail(f"attribute {name} of {tag}")


@pytest.mark.parametrize("show", [table_html, markdown_html, text_html, code_html])
def test_hostile_text_is_harmless(show):
    for attack in ATTACKS:
        assert_harmless(show(attack))


@pytest.mark.parametrize(
    "mime", ["text/html", "text/markdown", "text/plain", "image/svg+xml", "image/png", "application/json", "text/latex"]
)
def test_hostile_displays_are_harmless(mime):
    for attack in ATTACKS:
        assert_harmless(bundle_html({mime: attack}))
        assert_harmless(bundle_html({mime: [attack, attack], attack: attack}))


@given(st.text(alphabet="<>/!-=\"' \nabtdrscipxo&;#") | st.text() | st.lists(st.sampled_from(ATTACKS)).map("".join))
def test_no_html_gets_through_the_rebuilding(source):
    assert_harmless(table_html(source))
    assert_harmless(text_html(source))
    assert_harmless(code_html(source))
    assert_harmless(markdown_html(source))


@each("attack", ATTACKS)
def test_hostile_events_are_harmless(attack):
    views = Stories()
    shown = [event_html(views.observe(event), event) for event in one_of_each(attack)]
    for html in shown:
        assert_harmless(html)
    assert len([html for html in shown if html]) > len(shown) / 2


def test_a_question_is_shown_whole_and_as_it_is():
    code = "line()\n" * 5_000 + "x = '\u202e'"
    html = event_html(AgentStory(agent_id="agent-1"), request("q", CodeAction(code=code)))
    assert Reader(html).seen_text.endswith("line()\nx = '\\u202e'")
    assert html.count("line") == 5_000


PIECES = ["<!--", "<", "<a ", "<p>", "<script>", "</", "<![", "&#", "<b", "<table><tr><td>", "<x y='", "</p>"]
PIECES += ["<div>", "<ul><li>", "<a><b>", "<b></i>", "<p>x</p>"]
# a parser that does as browsers do opens all the `<b>` again in each paragraph: 100 kB become gigabytes
OPEN_AGAIN = "<p>" + "".join(f"<b a={number}>" for number in range(10_000)) + "</p>"


@pytest.mark.slow
def test_rebuilding_takes_linear_time():
    for piece in PIECES:
        source = piece * (HTML_CHARS // len(piece))
        started = time.process_time()
        table_html(source)
        assert time.process_time() - started < 20  # milliseconds here; `html.parser` took minutes


def test_a_page_gets_about_as_much_as_the_kernel_wrote():
    source = (OPEN_AGAIN + "<p>x</p>" * HTML_CHARS)[:HTML_CHARS]
    assert len(table_html(source)) < 5 * HTML_CHARS


def test_a_pandas_table_keeps_its_shape():
    html = table_html(
        "<div><style scoped>.dataframe th {text-align: right;}</style><table border='1' class='dataframe'><thead><tr>"
        "<th></th><th colspan='2'>a &amp; b</th></tr></thead><tbody><tr><td>1</td><td>2.5</td></tr></tbody></table></div>"
    )
    assert '<th colspan="2">a &amp; b</th>' in html
    assert "<tr><td>1</td><td>2.5</td></tr>" in html
    assert "style" not in html
    assert Reader(html).seen_text == "a & b12.5"


def test_unclosed_tags_are_closed_inside():
    assert table_html("<table><tr><td>x") == '<div class="fsub-table"><table><tr><td>x</td></tr></table></div>'
    assert table_html("</div></table>x") == '<div class="fsub-table">x</div>'


def test_html_with_nothing_to_see_gives_way_to_text():
    assert bundle_html({"text/html": "<div id='plot'></div><script>draw()</script>", "text/plain": "<Chart>"}) == (
        '<pre class="fsub-text">&lt;Chart&gt;</pre>'
    )


def test_long_html_says_what_is_missing():
    assert "5 characters left out" in table_html("x" * (HTML_CHARS + 5))


def test_pictures_are_data():
    assert f'src="data:image/png;base64,{PNG}"' in bundle_html({"image/png": PNG + "\n", "text/plain": "<Figure>"})
    assert f'src="data:image/jpeg;base64,{PNG}"' in bundle_html({"image/jpeg": PNG})
    svg = bundle_html({"image/svg+xml": "<svg><script>alert(1)</script></svg>"})
    assert svg.startswith('<img class="fsub-picture" alt="picture" src="data:image/svg+xml;base64,')
    assert is_picture({"image/png": PNG})
    assert not is_picture({"text/html": "<b>x</b>"})


def test_a_picture_comes_before_the_html_beside_it():
    assert "<img" in bundle_html({"text/html": "<b>interactive</b>", "image/png": PNG})


def test_a_picture_that_is_none_gives_way_to_text():
    assert bundle_html({"image/png": "no base64!", "text/plain": "fig"}) == '<pre class="fsub-text">fig</pre>'


def test_a_huge_picture_is_named():
    assert "too large" in bundle_html({"image/png": "A" * (PICTURE_BYTES + 4)})


def test_json_and_markdown_are_shown_as_such():
    assert "&quot;a&quot;: [" in bundle_html({"application/json": {"a": [1]}, "text/plain": "x"})
    assert "<h1>T</h1>" in bundle_html({"text/markdown": "# T", "text/plain": "x"})


def test_what_cannot_be_shown_is_named():
    assert "application/x-thing" in bundle_html({"application/x-thing": "1"})
    assert bundle_html({}) == ""
    assert bundle_text({"application/x-thing": "1"}) == "[application/x-thing]"
    assert bundle_text({"image/png": PNG, "text/plain": "<Figure>"}) == "<Figure>"


def test_markdown_makes_tables_and_keeps_money():
    html = markdown_html("| a | b |\n|---|--:|\n| 1 | $5 |\n\n**bold** <b>raw</b>")
    assert "<td>1</td>" in html
    assert "$5" in html
    assert "<strong>bold</strong> &lt;b&gt;raw&lt;/b&gt;" in html


def test_code_is_coloured_and_hides_nothing():
    html = code_html("import os\nx = 'a\u202eb'\x1b[2K")
    assert "import</span>" in html
    assert Reader(html).seen_text == "import os\nx = 'a\\u202eb'\\x1b[2K"


def test_very_long_code_is_shown_whole():
    code = "x = 1\n" * 10_000
    assert Reader(code_html(code)).seen_text == code


def test_text_is_shown_as_a_terminal_would():
    assert clean("10%\r50%\r100%\ndone\r\n") == "100%\ndone\n"
    assert clean("\x1b[31mred\x1b[0m \x1b]0;title\x07ok\x07") == "red ok"
    assert visible("a\u200bb\tc\n") == "a\\u200bb\tc\n"
    assert one_line("a\n  b" + "c" * 200, 10) == "a bcccccc…"


def test_long_text_keeps_head_and_tail():
    assert shortened("abc", 500) == "abc"
    shown = shortened("a" * 1000 + "b" * 1000, 500)
    assert (shown[0], shown[-1], len(shown)) == ("a", "b", 500)
    assert "\n… 1,500 characters left out …\n" in shown
