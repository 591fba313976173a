"""`TerminalConfig`: the settings of the terminal."""

from typing import Literal

from freeact_sub.config.section import Section


class TerminalConfig(Section):
    """How the terminal shows things and calls for attention (docs/terminal.md)."""

    notify: Literal["auto", "bell", "osc9", "off"] = "auto"
    """The signal when a question opens or a long run ends: `bell`, `osc9` (a notification), `off`; `auto`: what the
    terminal is known to support."""
    pictures: Literal["auto", "kitty", "iterm2", "sixel", "blocks", "off"] = "auto"
    """How the terminal (docs/terminal.md) draws pictures: `kitty`, `iterm2`, `sixel`, `blocks` (half blocks, in any terminal
    with colours), `off`; `auto`: what it is known to draw, otherwise only their paths."""
    plain: bool = False
    """`true`: a conversation in plain lines, without colours and without rows that change, for those who hear what a
    terminal prints (docs/terminal.md); where `TERM` is `dumb` it is always held so."""
