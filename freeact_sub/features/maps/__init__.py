"""Maps (`Agent.map`): one question about each row of a frame (docs/maps.md).

`tables` reads and makes frames; `many` makes prompts of rows, and asks; `kept_answers` keeps the answers for the next call.
"""
