"""Quotes for many requests or children, made before most of them run (docs/budgets.md).

`fan_outs` notices that many of one kind follow, and has `QuotesFeature`; `agreement` asks about the rest; `figures` has the
estimates.
"""
