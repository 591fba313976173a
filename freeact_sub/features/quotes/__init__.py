"""What many requests or children will take, asked before they run. See docs/budgets.md.

`fan_outs` notices that many of one kind follow, and has `QuotesFeature`; `agreement` asks about the rest; `figures` tells
what it will take.
"""
