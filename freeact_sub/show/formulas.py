"""Formulas in Markdown: `$…$` and `$$…$$`, as MathJax reads them in a page where it is; elsewhere they stay as they are.

Notebooks typeset the whole page, and a sum of money is no formula: so blocks of agents are left out (`mathjax_ignore`), and
only what is one here is marked (`mathjax_process`). TeX can define commands, set styles and make links that run scripts:
a formula with a command that is not listed stays text.
"""

import re
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml

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
    """Lets it read formulas."""
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
    """Whether a text between two delimiters is one: no sum of money, and nothing that is more than a formula."""
    if not text.strip() or "\n\n" in text or not all(command in _COMMANDS for command in _COMMAND.findall(text)):
        return False
    return opening != "$" or not (text[0].isspace() or text[-1].isspace() or after.isdigit() or text.endswith("\\"))
