"""Text and MIME bundles of models and kernels as HTML that is safe in the user's notebook page: pure functions.

A script in a notebook page has all the rights of its user, so nothing that comes from outside is passed on as markup.
HTML of a kernel (tables) is rebuilt from a short list of tags without links, styles and sources. It is not put into a
sandboxed `<iframe>`: that has no height of its own, reloads at each update, ignores the page's colours and is lost in
most exports. Nothing loads from the network either, which would carry data out of a kernel that has none: pictures are
`data:` URIs, an SVG is drawn as a picture (browsers run no scripts there), and Markdown may link but not embed.

Formulas are `$…$` and `$$…$$`, as MathJax reads them in a page where it is; elsewhere they stay as they are. Notebooks
typeset the whole page, and a sum of money is no formula: so blocks of agents are left out (`mathjax_ignore`), and only what
is one here is marked (`mathjax_process`). TeX can define commands, set styles and make links that run scripts: a formula
with a command that is not listed stays text.
"""

import base64
import binascii
import html
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from pygments.lexers.python import PythonLexer
from pygments.token import Token

from freeact_sub.cells import MimeBundle
from freeact_sub.text import clean, one_line, printable, shortened, visible

TEXT_CHARS = 8_000
"""Characters of the beginning and of the end that a text output shows."""

CODE_CHARS = 20_000
"""Characters above which code has no colours."""

HTML_CHARS = 200_000
"""Characters of a kernel's HTML that are read."""

PICTURE_BYTES = 4_000_000
"""Bytes (in base64) above which a picture is named, not shown."""

_COLOURS = (
    (Token.Comment, "--jp-mirror-editor-comment-color", "#6a737d"),
    (Token.Keyword, "--jp-mirror-editor-keyword-color", "#0a7a2f"),
    (Token.Operator.Word, "--jp-mirror-editor-keyword-color", "#0a7a2f"),
    (Token.Literal.String, "--jp-mirror-editor-string-color", "#b5261e"),
    (Token.Literal.Number, "--jp-mirror-editor-number-color", "#0a7a5c"),
    (Token.Name.Builtin, "--jp-mirror-editor-builtin-color", "#0b6fa4"),
    (Token.Name.Function, "--jp-mirror-editor-def-color", "#0b5fd0"),
    (Token.Name.Class, "--jp-mirror-editor-def-color", "#0b5fd0"),
)
"""Colours of the notebook's own editor, so that code follows its theme; the second for pages without such variables."""

_TAGS = frozenset(
    {"table", "thead", "tbody", "tfoot", "tr", "th", "td", "caption", "div", "span", "p", "b", "strong", "i", "em", "u"}
    | {"s", "sub", "sup", "code", "pre", "small", "ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote"}
)
_VOID_TAGS = frozenset({"br", "hr"})
_DROPPED_TAGS = frozenset(
    {"script", "style", "head", "title", "template", "noscript", "noframes", "noembed", "iframe", "object", "svg"}
    | {"math", "textarea", "select", "xmp", "audio", "video", "canvas", "plaintext"}
)
"""Tags that go with their content; other unlisted tags leave theirs."""

_PYTHON: Any = PythonLexer(stripnl=False, ensurenl=False)
_MARKUP = re.compile(
    r"<!-- | < (?P<end>/?) (?P<tag>[a-z][a-z0-9]*+) (?P<attributes>[^<>]*+) > | <[!?][^<>]*+>",
    re.IGNORECASE | re.VERBOSE,
)
_SPANS = re.compile(r"\b(colspan|rowspan)=[\"']?([0-9]{1,3})\b", re.IGNORECASE)
_ALIGNED = re.compile(r'style="text-align:(left|right|center)"')
"""Alignments in rendered Markdown, whose texts have no quotation marks."""
_LEXERS = frozenset(
    {"bash", "c", "console", "cpp", "css", "diff", "go", "html", "java", "javascript", "js", "json", "py", "python", "r"}
    | {"rust", "sh", "shell", "sql", "toml", "ts", "typescript", "yaml", "yml"}
)
"""Languages of fences that are drawn in colours."""


FORMULA_CHARS: Final = 2_000
_DELIMITERS: Final = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))
_COMMAND: Final = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
_NAMES: Final = """
alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi pi varpi rho
varrho sigma varsigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi
Psi Omega ell hbar imath jmath Re Im aleph partial nabla infty emptyset varnothing forall exists nexists neg
lnot frac dfrac tfrac cfrac binom sqrt sum prod coprod int iint iiint oint bigcup bigcap bigoplus bigotimes
lim limsup liminf max min sup inf arg argmax argmin det dim exp ker log ln lg gcd deg Pr sin cos tan cot sec
csc arcsin arccos arctan sinh cosh tanh mod bmod pmod to mapsto gets rightarrow leftarrow leftrightarrow
Rightarrow Leftarrow Leftrightarrow longrightarrow longleftarrow implies iff uparrow downarrow hookrightarrow
rightharpoonup leq le geq ge neq ne ll gg approx sim simeq cong equiv propto prec succ preceq succeq subset
supset subseteq supseteq in notin ni cup cap setminus times cdot div pm mp ast star circ bullet oplus ominus
otimes odot wedge vee land lor perp parallel mid nmid angle triangle therefore because dots ldots cdots vdots
ddots prime dagger left right big Big bigg Bigg bigl bigr Bigl Bigr langle rangle lfloor rfloor lceil rceil
lvert rvert lVert rVert vert Vert hat bar tilde vec dot ddot widehat widetilde overline underline overbrace
underbrace overset underset stackrel boldsymbol mathbf mathrm mathit mathcal mathbb mathsf mathfrak mathtt
operatorname text textbf textit textrm displaystyle textstyle limits nolimits quad qquad tag begin end
substack not colon
"""
_COMMANDS: Final = frozenset(_NAMES.split()) | frozenset("\\,;:!{}%#&_$| \n")


def add_formulas(markdown: MarkdownIt) -> None:
    """Add formulas to a Markdown parser."""
    markdown.inline.ruler.before("escape", "formula", _formula)
    markdown.add_render_rule("formula", lambda _self, tokens, index, _options, _env: _shown(tokens[index].content))


def _shown(source: str) -> str:
    return f'<span class="mathjax_process">{escapeHtml(source)}</span>'


def _formula(state: Any, silent: bool) -> bool:
    for opening, closing in _DELIMITERS:
        if not state.src.startswith(opening, state.pos):
            continue
        begin = state.pos + len(opening)
        end = state.src.find(closing, begin, min(state.posMax, begin + FORMULA_CHARS))
        if end < 0 or not _is_formula(state.src[begin:end], opening, state.src[end + len(closing) : end + len(closing) + 1]):
            return False
        if not silent:
            state.push("formula", "", 0).content = state.src[state.pos : end + len(closing)]
        state.pos = end + len(closing)
        return True
    return False


def _is_formula(text: str, opening: str, after: str) -> bool:
    """Return whether a text between two delimiters is a formula: no sum of money, and nothing beside it."""
    if not text.strip() or "\n\n" in text or not all(command in _COMMANDS for command in _COMMAND.findall(text)):
        return False
    return opening != "$" or not (text[0].isspace() or text[-1].isspace() or after.isdigit() or text.endswith("\\"))


def escaped(text: str) -> str:
    """Return the text as HTML."""
    return html.escape(text, quote=True)


def text_html(text: str, kind: str = "text") -> str:
    """Return text that a cell wrote, as a block of class `kind`."""
    return f'<pre class="fsub-{kind}">{escaped(shortened(clean(text), TEXT_CHARS))}</pre>'


def code_html(code: str) -> str:
    """Return Python code in colours, with every character visible."""
    shown = visible(code)
    if len(shown) > CODE_CHARS:
        return f'<pre class="fsub-code">{escaped(shown)}</pre>'
    tokens = _PYTHON.get_tokens(shown)
    return f'<pre class="fsub-code">{"".join(_coloured(token, text) for token, text in tokens)}</pre>'


def markdown_html(text: str) -> str:
    """Return Markdown as HTML, without raw HTML and pictures, and only with links that are safe to click."""
    shown = _ALIGNED.sub(r'class="fsub-\1"', _MARKDOWN.render(printable(text)))  # the page's own style would win
    return f'<div class="fsub-markdown">{shown}</div>'


def _fence(code: str, language: str, _attributes: str) -> str:
    """Return a fence in colours; empty: it has none."""
    if language.lower() not in _LEXERS or len(code) > CODE_CHARS:
        return ""
    from pygments.lexers import get_lexer_by_name  # noqa: PLC0415  # few need it

    lexer: Any = get_lexer_by_name(language.lower(), stripnl=False)
    return f'<pre class="fsub-code">{"".join(_coloured(token, text) for token, text in lexer.get_tokens(code))}</pre>'


_MARKDOWN = MarkdownIt("commonmark", {"html": False, "highlight": _fence})
_MARKDOWN.enable(["table", "strikethrough"]).disable("image")
add_formulas(_MARKDOWN)


def table_html(source: str) -> str:
    """Return a kernel's HTML, rebuilt from tags that show text and tables; empty: nothing is left to see."""
    rebuilt = _Rebuilder(source[:HTML_CHARS])
    left_out = len(source) - HTML_CHARS
    note = f'<div class="fsub-note">… {left_out:,} characters left out</div>' if left_out > 0 else ""
    return f'<div class="fsub-table">{rebuilt.html}</div>{note}' if rebuilt.has_text else note


def is_picture(bundle: MimeBundle) -> bool:
    """Return whether the bundle is drawn as a picture."""
    return any(mime in _PICTURES and bundle.get(mime) for mime in bundle)


def bundle_html(bundle: MimeBundle) -> str:
    """Return the richest form of a display that can be shown safely."""
    for mime, show in _FORMS.items():
        shown = show(mime, bundle[mime]) if bundle.get(mime) not in (None, "") else ""
        if shown:
            return shown
    return f'<div class="fsub-note">nothing to show for {escaped(one_line(", ".join(bundle)))}</div>' if bundle else ""


def bundle_text(bundle: MimeBundle) -> str:
    """Return a display in one line or as its text, for places without pictures."""
    return clean(_text(bundle.get("text/plain") or f"[{', '.join(bundle)}]"))


def _coloured(token: Any, text: str) -> str:
    for kind, variable, fallback in _COLOURS:
        if token in kind:
            return f'<span style="color:var({variable},{fallback})">{escaped(text)}</span>'
    return escaped(text)


def _text(data: Any) -> str:
    """Return the data of a bundle as text; notebook files keep it as a list of lines."""
    return "".join(map(str, data)) if isinstance(data, list) else str(data)


def _picture(mime: str, data: Any) -> str:
    content = "".join(_text(data).split())
    if len(content) > PICTURE_BYTES:
        return f'<div class="fsub-note">a picture of {len(content) // 1000:,} kB is too large to show here</div>'
    try:
        base64.b64decode(content, validate=True)
    except binascii.Error:
        return ""
    return f'<img class="fsub-picture" alt="picture" src="data:{mime};base64,{content}">'


def _svg(mime: str, data: Any) -> str:
    return _picture(mime, base64.b64encode(_text(data).encode()).decode())


def _json(_mime: str, data: Any) -> str:
    try:
        return text_html(json.dumps(data, indent=2, ensure_ascii=False, default=str))
    except (ValueError, RecursionError):
        return ""


_PICTURES = {f"image/{kind}": _picture for kind in ("png", "jpeg", "gif", "webp")} | {"image/svg+xml": _svg}
_FORMS: dict[str, Callable[[str, Any], str]] = {
    **_PICTURES,
    "text/html": lambda _, data: table_html(_text(data)),
    "text/markdown": lambda _, data: markdown_html(shortened(_text(data), HTML_CHARS)),
    "application/json": _json,
    "text/plain": lambda _, data: text_html(_text(data)),
}
"""Forms of a bundle; pictures come first: beside one, HTML is usually there for its scripts."""


class _Rebuilder:
    """A writer of new HTML: listed tags with checked attributes, properly nested, and escaped text; nothing else.

    So safety does not hang on reading the source as a browser would. It is read in one pass, in linear time, and no more
    comes out than went in: `html.parser` takes minutes for some sources of this size, and a parser that follows the
    standard (html5ever, which nh3 uses) makes gigabytes of them.
    """

    def __init__(self, source: str) -> None:
        self._parts: list[str] = []
        self._open: list[str] = []
        self._times_open: Counter[str] = Counter()
        self.has_text = False
        position = 0
        while match := _MARKUP.search(source, position):
            self._add_text(source[position : match.start()])
            position = self._add_markup(match)
        self._add_text(source[position:])
        self.html = "".join(self._parts) + "".join(f"</{tag}>" for tag in reversed(self._open))

    def _add_text(self, source: str) -> None:
        text = printable(html.unescape(source))
        self._parts.append(escaped(text))
        self.has_text = self.has_text or bool(text.strip())

    def _add_markup(self, match: re.Match[str]) -> int:
        """Take in a tag or a comment; return where to read on."""
        source, tag = match.string, (match["tag"] or "").lower()
        if match[0] == "<!--":
            return _after("-->", source, match.end())
        if tag in _DROPPED_TAGS and not match["end"]:
            return _after(">", source, _after(f"</{tag}", source, match.end()))
        if tag in _VOID_TAGS:
            self._parts.append(f"<{tag}>")
        elif tag in _TAGS and not match["end"]:
            self._open.append(tag)
            self._times_open[tag] += 1
            self._parts.append(f"<{tag}{_spans(match['attributes'])}>")
        elif match["end"] and self._times_open[tag]:
            self._close(tag)
        return match.end()

    def _close(self, tag: str) -> None:
        while True:
            closed = self._open.pop()
            self._times_open[closed] -= 1
            self._parts.append(f"</{closed}>")
            if closed == tag:
                return


def _after(ending: str, source: str, position: int) -> int:
    """Return the position after the next such ending, in small or capital letters; the end where there is none."""
    match = re.compile(re.escape(ending), re.IGNORECASE).search(source, position)
    return match.end() if match else len(source)


def _spans(attributes: str) -> str:
    return "".join(f' {name.lower()}="{value}"' for name, value in _SPANS.findall(attributes))
