"""`Agent.map`: one question about each row of a frame. See docs/maps.md.

`tables` reads and makes frames, `templates` makes prompts of rows, `kept_answers` keeps what was answered for the next call.
"""
