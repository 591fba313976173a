"""Markdown in a page: columns where they were said to stand, fences in colours, formulas and no more than formulas."""

import re

from support.tables import each

from freeact_sub.show.safe_html import markdown_html


def test_columns_say_where_they_stand() -> None:
    shown = markdown_html('| a | b | c |\n| :-- | --: | :-: |\n| 1 | style="text-align:right" | 3 |')
    assert re.findall(r'<td class="fsub-(\w+)">', shown) == ["left", "right", "center"]
    assert 'style="' not in shown


@each("language", ["python", "bash", "json", "SQL"])
def test_a_fence_has_colours(language: str) -> None:
    shown = markdown_html(f'```{language}\nselect "<b>" 1\n```')
    assert "color:var(" in shown
    assert "<b>" not in shown
    assert "&lt;b&gt;" in shown


def test_a_fence_of_an_unknown_language_is_text() -> None:
    shown = markdown_html('```no such"><script>\n<b>\n```')
    assert "<b>" not in shown
    assert "<script>" not in shown


@each("text", ["$a^2 + b_1^2$", r"$$\frac{a}{b} \leq \sqrt{x}$$", r"\(x < y\)", r"\[\sum_{i=1}^n i\]", "$$\nE = mc^2\n$$"])
def test_a_formula_is_marked_and_stays_as_it_is(text: str) -> None:
    shown = markdown_html(f"It is {text}, really.")
    (formula,) = re.findall(r'(?s)<span class="mathjax_process">(.*?)</span>', shown)
    assert formula.replace("&lt;", "<") == text
    assert "<em>" not in shown


@each(
    "text",
    [
        "It costs $5 and then $6 more.",
        "$5-$6",
        r"$\href{javascript:alert(1)}{x}$",
        r"$\def\x{\href}\x{javascript:alert(1)}{x}$",
        r"$$\style{background:red}{x}$$",
        r"$\unicode{x}$",
        "`$a$`",
        "```\n$a$\n```",
        "$" + "a" * 3000 + "$",
    ],
)
def test_what_is_no_formula_is_not_marked(text: str) -> None:
    assert "mathjax_process" not in markdown_html(text)
